"""What differs between two dashboards: named, bounded, blind to what Grafana adds."""

import copy
from typing import Any

from dashboards.grafana.difference import (
    DIFF_LINES_MAX,
    PARTS_MAX,
    describe,
    fingerprint,
    normalised,
    push_message,
    pushed_fingerprint,
    unified,
)

BOARD: dict[str, Any] = {
    "uid": "fabricscope-x",
    "title": "X",
    "panels": [
        {"id": 1, "title": "Load", "type": "timeseries", "targets": [{"expr": "up"}]},
        {"id": 2, "title": "Row", "type": "row", "panels": [{"id": 3, "title": "Folded"}]},
    ],
    "templating": {"list": [{"name": "host", "query": "label_values(up, host)"}]},
    "annotations": {"list": [{"name": "Incidents", "expr": "fabric_incident"}]},
}


def test_what_grafana_adds_is_no_difference() -> None:
    stored = {**copy.deepcopy(BOARD), "id": 17, "version": 4, "iteration": 1}
    assert normalised(stored) == normalised(BOARD)
    assert fingerprint(stored) == fingerprint(BOARD)
    assert describe(stored, BOARD) == ()
    assert unified(stored, BOARD) == ""


def test_each_part_that_differs_is_named() -> None:
    changed = copy.deepcopy(BOARD)
    changed["panels"][0]["targets"][0]["expr"] = "down"
    changed["panels"][1]["panels"][0]["title"] = "Other"
    changed["templating"]["list"][0]["query"] = "label_values(down, host)"
    changed["annotations"]["list"] = []
    changed["title"] = "Y"
    assert describe(BOARD, changed) == (
        "+ panel 'Other'",
        "- panel 'Folded'",
        "- annotation 'Incidents'",
        "~ panel 'Load' (targets)",
        "~ variable 'host' (query)",
        "~ setting 'title'",
    )
    assert '+          "expr": "down"' in unified(BOARD, changed)


def test_two_panels_of_one_title_are_told_apart() -> None:
    twice = {"panels": [{"title": "A", "x": 1}, {"title": "A", "x": 2}]}
    other = {"panels": [{"title": "A", "x": 1}, {"title": "A", "x": 3}]}
    assert describe(twice, other) == ("~ panel 'A' (2) (x)",)


def test_long_differences_are_cut_and_say_so() -> None:
    empty: dict[str, Any] = {"panels": []}
    many = {"panels": [{"title": str(number), "type": "x"} for number in range(3_000)]}
    lines = describe(empty, many)
    assert len(lines) == PARTS_MAX + 1
    assert lines[-1] == f"and {3_000 - PARTS_MAX} more"
    diff = unified(empty, many).splitlines()
    assert len(diff) == DIFF_LINES_MAX + 1
    assert diff[-1].endswith("lines more")


def test_hostile_dashboards_are_described_all_the_same() -> None:
    odd: dict[str, Any] = {
        "panels": [None, 3, {"panels": [None]}, {"title": None}],
        "templating": {"list": ["x", None]},
        "annotations": [],
    }
    assert describe(odd, BOARD)
    assert describe(BOARD, {"panels": "no", "templating": None})


def test_a_push_is_known_again_by_its_message() -> None:
    assert pushed_fingerprint(push_message(BOARD)) == fingerprint(BOARD)
    for message in ("", "fabricscope push", "x" + push_message(BOARD), push_message(BOARD) + "x"):
        assert pushed_fingerprint(message) == ""
