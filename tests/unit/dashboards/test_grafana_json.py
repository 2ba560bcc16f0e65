"""The dashboards as Grafana gets them: always the same text, in the documented structure."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dashboards.grafana.boards import discover
from dashboards.grafana.classic import text_of, to_classic
from dashboards.grafana.jumps import uid_of
from dashboards.grafana.lint import check
from dashboards.grafana.model import Board, Panel, Query, Row
from tests.conftest import Golden
from tests.oracles.grafana_schema import schema_flaws

NAMES = sorted(discover())
FIXTURES = Path(__file__).parents[2] / "fixtures/grafana"
STABLE = """
from dashboards.grafana.boards import discover
from dashboards.grafana.classic import text_of
print("".join(text_of(name, board) for name, board in discover().items()), end="")
"""


@cache
def text_of_board(name: str) -> str:
    return text_of(name, discover()[name])


def rendered(name: str) -> dict[str, Any]:
    return dict(json.loads(text_of_board(name)))


def test_a_board_is_rendered_as_it_was_reviewed(golden: Golden) -> None:
    golden(FIXTURES / "lines.json", text_of("lines", board_of_lines()))


def test_the_text_does_not_depend_on_the_order_of_sets() -> None:
    texts = set()
    for seed in ("1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", STABLE]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        texts.add(done.stdout)
    assert len(texts) == 1


@pytest.mark.parametrize("name", NAMES)
def test_no_flaw_is_found(name: str) -> None:
    boards = {uid_of(each) for each in NAMES}
    assert [str(flaw) for flaw in check(rendered(name), boards)] == []


def test_titles_and_questions_are_the_boards_own() -> None:
    boards = discover().values()
    assert len({board.title for board in boards}) == len(NAMES)
    assert all(board.question.endswith((".", "?")) for board in boards)


def test_links_only_set_variables_that_the_other_board_has() -> None:
    """A name that is not there would be lost without a word."""
    boards = discover()
    has = {name: {each.name for each in board.variables} for name, board in boards.items()}
    jumps = [
        (f"{name}, {panel.title}", jump)
        for name, board in boards.items()
        for row in board.rows
        for panel in row.panels
        for jump in (panel.jump, *(column.jump for column in panel.columns))
        if jump
    ]
    missing = [
        f"{where}: {jump.to} has no {variable}"
        for where, jump in jumps
        for variable in jump.variables
        if variable not in has.get(jump.to, set())
    ]
    assert not missing


# --- Grafana's own types -------------------------------------------------------------------------


@cache
def grafana_types() -> Any:  # noqa: ANN401 - a module
    """Grafana's SDK. It warns of a newer kind of dashboard, which older Grafanas do not read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog import plugins  # noqa: PLC0415 - it warns when imported
        from grafana_foundation_sdk.models import dashboard  # noqa: PLC0415 - the same

    plugins.register_default_plugins()
    return dashboard


def through_grafana_types(found: dict[str, Any]) -> dict[str, Any]:
    """What is left of a dashboard when Grafana's types have read and written it."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415 - as above

    read = grafana_types().Dashboard.from_json(json.loads(json.dumps(found)))
    return dict(json.loads(json.dumps(read, cls=JSONEncoder)))


def lost(before: object, after: object, where: str = "") -> Iterator[str]:
    """What Grafana's types do not know, or take for something else. Defaults may be added."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from lost(value, after[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is not known"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{where}[{place}]")
    elif before != after:
        yield f"{where}: {before!r} became {after!r}"


@pytest.mark.parametrize("name", NAMES)
def test_grafana_s_own_types_know_every_key(name: str) -> None:
    """Also inside the options of panels, of fields and of queries."""
    found = rendered(name)
    assert list(lost(found, through_grafana_types(found))) == []


@pytest.mark.parametrize(
    ("way", "key"),
    [
        ((), "titel"),
        (("panels", 1), "gridpos"),
        (("panels", 1, "options"), "legende"),
        (("panels", 1, "fieldConfig", "defaults"), "unitt"),
        (("panels", 1, "fieldConfig", "defaults", "custom"), "line_width"),
        (("panels", 1, "targets", 0), "query"),
        (("templating", "list", 0), "lable"),
        (("annotations", "list", 0), "expression"),
    ],
)
def test_a_misspelt_key_is_seen(way: tuple[str | int, ...], key: str) -> None:
    """The check above can fail, at every level."""
    found: dict[str, Any] = to_classic("lines", board_of_lines())
    place: Any = found
    for step in way:
        place = place[step]
    place[key] = 1
    assert [each for each in lost(found, through_grafana_types(found)) if key in each]


def board_of_lines() -> Board:
    panel = Panel(title="Up", text="Who is up.", queries=(Query(expr="up"),))
    return Board(title="B", question="Q?", rows=(Row(title="R", panels=(panel,)),))


# --- Grafana's published schema ------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_grafana_s_published_schema_has_nothing_against_it(name: str) -> None:
    assert schema_flaws(rendered(name)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schemaVersion",), "39"),
        (("paneles",), []),
        (("panels", 1, "gridPos", "w"), "wide"),
        (("panels", 1, "titel"), "a misspelt key"),
        (("panels", 1, "fieldConfig", "defaults", "unit"), 5),
        (("templating", "list", 0, "hide"), 7),
    ],
)
def test_the_schema_finds_what_is_wrong(path: tuple[str | int, ...], value: object) -> None:
    found: Any = rendered("fleet")
    place = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert schema_flaws(found)
