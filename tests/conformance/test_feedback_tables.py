"""Feedback and cases in the inventory, on SQLite and on PostgreSQL: kept within their bounds."""

import datetime as dt

import pytest

from alerts.cases.model import Says, Told
from api.base.case_limits import FEEDBACK_KEPT_DAYS
from api.data.inventory import feedback as tables
from api.data.inventory.feedback import (
    CaseNote,
    CaseState,
    Feedback,
    TooMuchFeedbackError,
    name_feedback,
)
from api.data.inventory.repository import Inventory
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit

START_NS = int(dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC).timestamp()) * NS
DAY_NS = 86_400 * NS
TOLD = Told(cause=Cause.SLOW_LINK, culprit=Culprit(host="node1", device="mlx5_0"), confidence=0.9)


def statement(incident: str, at_ns: int = START_NS, says: Says = Says.RIGHT) -> Feedback:
    return Feedback(
        id=name_feedback(at_ns),
        incident=incident,
        at_ns=at_ns,
        by="ann",
        says=says,
        note="\"'😀",
        told=TOLD,
    )


def note(incident: str, at_ns: int = START_NS, state: CaseState = CaseState.KEPT) -> CaseNote:
    return CaseNote(
        incident=incident, at_ns=at_ns, state=state, words="", told=TOLD, from_ns=1, to_ns=2
    )


def test_what_is_said_comes_back_the_latest_first(inventory: Inventory) -> None:
    said = [statement("a"), statement("b", START_NS + NS), statement("a", START_NS + 2 * NS)]
    for each in said:
        assert inventory.feedback.say(each) == {}
    assert inventory.feedback.of("a") == [said[2], said[0]]
    assert inventory.feedback.of("none") == inventory.feedback.of("nul\0") == []
    assert inventory.feedback.page(limit=2) == [said[2], said[1]]
    assert inventory.feedback.page(said[1].id) == [said[0]]


def test_the_last_statement_stands_though_the_clock_was_set_back(inventory: Inventory) -> None:
    for place, says in enumerate((Says.RIGHT, Says.WRONG, Says.OTHER, Says.RIGHT)):
        inventory.feedback.say(statement("a", START_NS - place // 2 * 60 * NS, says))
    found = [one.says for one in inventory.feedback.of("a")]
    assert found == [Says.RIGHT, Says.OTHER, Says.WRONG, Says.RIGHT]


def test_a_window_is_kept_byte_by_byte_and_replaced(inventory: Inventory) -> None:
    packed = bytes(range(256)) * 10
    assert inventory.feedback.packed("a") is None
    assert inventory.feedback.note("a") is None
    inventory.feedback.keep(note("a", state=CaseState.TOO_LARGE), None)
    assert inventory.feedback.packed("a") is None
    inventory.feedback.keep(note("a"), packed)
    assert inventory.feedback.packed("a") == packed
    assert inventory.feedback.note("a") == note("a")


def test_statements_about_one_incident_are_bounded(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FEEDBACK_PER_INCIDENT_MAX", 2)
    for second in range(2):
        inventory.feedback.say(statement("a", START_NS + second * NS))
    with pytest.raises(TooMuchFeedbackError, match="FEEDBACK_PER_INCIDENT_MAX = 2"):
        inventory.feedback.say(statement("a", START_NS + 3 * NS))
    inventory.feedback.say(statement("b"))
    assert len(inventory.feedback.of("a")) == 2


def test_the_oldest_go_past_every_bound_and_are_counted(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FEEDBACK_KEPT_MAX", 2)
    monkeypatch.setattr(tables, "CASES_KEPT_MAX", 3)
    monkeypatch.setattr(tables, "CASES_KEPT_BYTES_MAX", 250)
    for place, name in enumerate("ab"):
        assert inventory.feedback.say(statement(name, START_NS + place * NS)) == {}
        assert inventory.feedback.keep(note(name, START_NS + place * NS), b"x" * 100) == {}
    assert inventory.feedback.say(statement("c", START_NS + 2 * NS)) == {"FEEDBACK_KEPT_MAX": 1}
    assert inventory.feedback.of("a") == []
    third = inventory.feedback.keep(note("c", START_NS + 2 * NS), b"x" * 100)
    assert third == {"CASES_KEPT_BYTES_MAX": 1}
    assert [inventory.feedback.packed(name) is None for name in "abc"] == [True, False, False]
    assert inventory.feedback.keep(note("d", START_NS + 3 * NS, CaseState.EMPTY), None) == {}
    last = inventory.feedback.keep(note("e", START_NS + 4 * NS, CaseState.EMPTY), None)
    assert last == {"CASES_KEPT_MAX": 1}
    assert inventory.feedback.note("b") is None


def test_what_is_too_old_goes_and_is_counted(inventory: Inventory) -> None:
    inventory.feedback.say(statement("a"))
    inventory.feedback.keep(note("a"), b"x")
    late_ns = START_NS + (FEEDBACK_KEPT_DAYS + 1) * DAY_NS
    assert inventory.feedback.say(statement("b", late_ns)) == {"FEEDBACK_KEPT_DAYS": 2}
    assert inventory.feedback.of("a") == []
    assert inventory.feedback.note("a") is None
