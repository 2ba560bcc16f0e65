"""What Grafana's own libraries make of our boards and of our service's answers.

Needs the libraries (`make grafana`): they are 180 MB, so a plain run is without them. What they
taught stands in tests that need nothing: `tests/unit/dashboards/test_grafana_words.py` and
`test_grafana_classic.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards.grafana.boards import discover
from dashboards.grafana.classic import text_of
from tests.conftest import Golden
from tests.oracles.grafana_ask import HttpSource, Span, natural
from tests.oracles.grafana_words import REGISTRIES
from tests.tools import grafana_libraries
from tests.tools.compact_json import compact
from tests.worlds.grafana_data import ROCE, kept_data, served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not grafana_libraries.are_installed(),
        reason="no npm packages @grafana/data and @grafana/schema: make grafana",
    ),
]
DIGITS_MAX = 5
"""Of a number on a board: more cannot be read at a glance."""
NUMBER = re.compile(r"-?[\d.]+(?:e[+-]\d+)?")
NOUGHTS = re.compile(r"^-?0\.0*")
"""Grafana writes three digits of a small number, and all the noughts before them."""

Shown = list[dict[str, Any]]


@pytest.fixture(scope="module")
def boards() -> dict[str, dict[str, Any]]:
    return {name: json.loads(text_of(name, board)) for name, board in discover().items()}


@pytest.fixture(scope="module")
def shown(boards: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Every panel of every board, as Grafana's libraries show a simulated cluster in trouble."""
    data, made = kept_data(ROCE)
    span = Span(made.start_s, made.end_s)
    with served(data, tmp_path_factory.mktemp("libraries")) as service:
        source = HttpSource(service.client)
        panels = [
            panel
            for name, dashboard in boards.items()
            for panel in grafana_libraries.answered(name, dashboard, source, span)
        ]
    return [
        {**panel, **found}
        for panel, found in zip(panels, grafana_libraries.shown(panels), strict=True)
    ]


def tables(shown: Shown) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every panel that is a table, and the table."""
    for panel in shown:
        for table in panel.get("tables", ()):
            yield panel, table


def where(panel: dict[str, Any]) -> str:
    return f"{panel['board']} / {panel['title']}"


def test_the_words_are_those_of_the_libraries(golden: Golden) -> None:
    golden(REGISTRIES, compact(grafana_libraries.registries()) + "\n")


def test_all_panels_are_shown_and_the_libraries_warn_of_nothing(shown: Shown) -> None:
    assert [f"{where(panel)}: {panel['said']}" for panel in shown if panel["said"]] == []
    empty = [where(panel) for panel in shown if not (panel.get("tables") or panel.get("values"))]
    # What this data has nothing for: test_grafana_boards.py names it.
    assert len(empty) < len(shown) / 8, empty


def test_columns_have_their_titles_and_order(shown: Shown) -> None:
    """`organize` leaves out what has no answer, and nothing else comes in."""
    seen = 0
    for panel, table in tables(shown):
        orders = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
        if orders and (titles := orders[0].get("renameByName")):
            place = orders[0]["indexByName"]
            named = sorted(titles, key=lambda name: place[name])
            wanted = list(dict.fromkeys(titles[name] for name in named))
            assert table["columns"] == [each for each in wanted if each in table["columns"]], where(
                panel
            )
            seen += 1
    assert seen > 30


def test_rows_and_columns_of_a_matrix_are_in_order(shown: Shown) -> None:
    seen = 0
    for panel, table in tables(shown):
        if any(one["id"] == "groupingToMatrix" for one in panel["transformations"]):
            corner, *columns = table["columns"]
            rows = [row[0]["text"] for row in table["rows"]]
            assert "\\" in corner
            assert columns == sorted(columns, key=natural), where(panel)
            assert rows == sorted(rows, key=natural), where(panel)
            seen += 1
    assert seen >= 6


def test_a_cell_without_a_value_says_nothing(shown: Shown) -> None:
    """Not what the whole table says when it is empty, and no colour behind it."""
    seen = 0
    for panel, table in tables(shown):
        silence = panel["fieldConfig"]["defaults"].get("noValue")
        for row in table["rows"]:
            for cell, style in zip(row, table["styles"], strict=True):
                assert cell["text"] != silence, where(panel)
                if not cell["text"] and style == "color-background":
                    assert cell["colour"] == "#00000000", where(panel)
                    seen += 1
    assert seen > 100


def test_numbers_can_be_read(shown: Shown) -> None:
    found = [
        f"{where(panel)}: {text}"
        for panel in shown
        for text in texts(panel)
        if (number := NUMBER.match(text))
        and sum(map(str.isdigit, NOUGHTS.sub("", number[0].partition("e")[0]))) > DIGITS_MAX
        and not re.match(r"\d{4}-\d\d-\d\d", text)
    ]
    assert found == []


def texts(panel: dict[str, Any]) -> list[str]:
    """Every value of a panel as it is written; of tables those that are measured."""
    found = [one["text"] for one in panel.get("values", ())]
    for table in panel.get("tables", ()):
        overrides = panel["fieldConfig"]["overrides"]
        plain = {
            one["matcher"]["options"]
            for one in overrides
            if {"id": "unit", "value": "string"} in one["properties"]
        }
        for row in table["rows"]:
            cells = zip(row, table["columns"], strict=True)
            found += [cell["text"] for cell, column in cells if column not in plain]
    return found


def test_no_legend_is_a_query(shown: Shown) -> None:
    """Where a series has no labels, Grafana takes the query for its name."""
    found = [
        f"{where(panel)}: {one['name']}"
        for panel in shown
        if panel["type"] not in {"stat", "bargauge"}
        for one in panel.get("values", ())
        if re.search(r"[({]", one["name"])
    ]
    assert found == []
