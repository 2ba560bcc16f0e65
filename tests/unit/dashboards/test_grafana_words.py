"""Units, transformations, reducers, colours and options of our boards are ones that Grafana knows.

The lists are those of Grafana's own libraries (`tests/fixtures/grafana/README.md`).
"""

import json
from typing import Any

import pytest

from dashboards.grafana.boards import discover
from dashboards.grafana.classic import text_of, to_classic
from dashboards.grafana.model import Colour, Draw, Unit
from tests.oracles.grafana_words import known, unknown_words, words_of

BOARDS = discover()


def board() -> dict[str, Any]:
    """A board of ours that a test may spoil."""
    return dict(json.loads(text_of("host", BOARDS["host"])))


def first(dashboard: dict[str, Any], kind: Draw) -> dict[str, Any]:
    """Its first panel of a kind."""
    panels = [one for each in dashboard["panels"] for one in (each, *each.get("panels", ()))]
    return next(dict(each) for each in panels if each["type"] == kind.value)


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_grafana_knows_every_word_of_a_board(name: str) -> None:
    assert unknown_words(to_classic(name, BOARDS[name])) == []


def test_grafana_knows_every_word_that_a_board_may_use() -> None:
    assert {unit.value for unit in Unit} <= known()["units"]
    assert {colour.value for colour in Colour} <= known()["colours"]


def test_every_kind_of_word_is_looked_at() -> None:
    """Boards use them all; one that is read nowhere would prove nothing."""
    looked = {
        word.kind for name, board in BOARDS.items() for word in words_of(to_classic(name, board))
    }
    assert {"transformations", "field_matchers", "reducers", "units", "colour_modes"} <= looked
    assert {"TableCellDisplayMode", "BigValueColorMode", "BarGaugeValueMode"} <= looked


def test_a_word_that_grafana_does_not_know_is_named() -> None:
    spoiled = board()
    table = first(spoiled, Draw.TABLE)
    table["transformations"].append({"id": "organise", "options": {}})
    table["fieldConfig"]["overrides"][0]["properties"].append({"id": "unit", "value": "gigs"})
    lines = first(spoiled, Draw.LINES)
    lines["fieldConfig"]["defaults"]["custom"]["drawStyle"] = "lines"
    first(spoiled, Draw.NUMBER)["options"]["reduceOptions"]["calcs"] = ["newest"]
    said = unknown_words(spoiled)
    assert len(said) == 4
    for words in ("'organise' is not in transformations", "'gigs' is not in units"):
        assert any(each.endswith(words) for each in said)
    assert f"{lines['title']}: 'lines' is not in GraphDrawStyle" in said
