"""Incidents: another culprit is another incident, and one verdict gives all that is said."""

import msgspec
import pytest

from alerts.judge import words
from alerts.judge.incident import SWITCH_SECONDS, News
from collector.contract.units import NS
from collector.contract.verdict import (
    Cause,
    Culprit,
    MeasurementKind,
    Reason,
    Suspected,
    Undecided,
    Verdict,
)
from tests.worlds.incident_story import NIC, RANK, START_NS, Story, cost, verdict


def test_another_culprit_ends_the_incident_and_begins_one_that_is_linked_to_it() -> None:
    story = Story()
    story.at(10, verdict(confidence=0.6, costs=(cost(2.0),)))
    story.at(20, verdict(Cause.STRAGGLER, RANK, since=8, confidence=0.9))
    old, new = story.incidents
    assert [news for _, news in story.news] == [News.OPENED, News.CLOSED, News.OPENED]
    assert (old.became, new.taken_for) == (new.link, old.link)
    assert new.first_incident == old.id
    # Each has its own time and its own cost.
    assert (old.verdict.until_ns, old.closed_ns) == (START_NS + 10 * NS, START_NS + 20 * NS)
    assert new.verdict.since_ns == START_NS + 8 * NS
    assert new.verdict.costs == ()
    assert (
        old.history[-1].note
        == f"It turned out to be straggler of rank 5 on node5 (GPU 5), incident {new.id}."
    )
    assert new.history[0].note.startswith("It was first taken for slow_link of node3's NIC mlx5_0")
    # A verdict on the former culprit is a symptom by now, and opens nothing again.
    story.at(25, verdict(confidence=0.6), verdict(Cause.STRAGGLER, RANK, since=8, confidence=0.9))
    assert story.only_open().id == new.id


@pytest.mark.parametrize(("since", "is_another"), [(45, True), (12, False)])
def test_a_former_victim_that_fails_later_is_another_trouble(
    *, since: int, is_another: bool
) -> None:
    """As it was on a live GPU: a rank of a ring hung half a minute after its slow link was well."""
    story = Story()
    story.at(10, verdict(confidence=0.6, victims=(RANK,), until=10))
    story.at(60, verdict(Cause.HANG, RANK, since=since, confidence=0.96))
    old, new = story.incidents
    assert (new.taken_for is None) is is_another
    assert (old.became is None) is is_another


def test_a_third_culprit_belongs_to_the_same_row() -> None:
    story = Story()
    story.at(10, verdict(confidence=0.5))
    story.at(15, verdict(Cause.STRAGGLER, RANK, confidence=0.7))
    story.at(20, verdict(Cause.LOSSY_LINK, Culprit(host="node9", device="mlx5_1"), confidence=0.9))
    first, second, third = story.incidents
    assert second.first_incident == third.first_incident == first.id
    assert third.taken_for == second.link


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Culprit(host="node3"), Culprit(host="node3", gpu=2)),
        (Culprit(job="llama"), RANK),
        (Culprit(host="node3", device="mlx5_0"), NIC),
    ],
)
def test_more_names_of_the_same_culprit_are_the_same_incident(
    first: Culprit, then: Culprit
) -> None:
    story = Story()
    story.at(10, verdict(Cause.STRAGGLER, first))
    story.at(15, verdict(Cause.STRAGGLER, then, confidence=0.95))
    assert story.only().verdict.culprit == then


def test_a_gpu_and_a_nic_of_one_host_are_two_culprits() -> None:
    story = Story()
    story.at(10, verdict(Cause.STRAGGLER, Culprit(host="node3", gpu=1), confidence=0.6))
    story.at(20, verdict(culprit=Culprit(host="node3", device="mlx5_0"), confidence=0.9))
    assert [each.is_open for each in story.incidents] == [False, True]


OTHER = Culprit(host="node4", device="mlx5_0")


def undecided(*suspects: Culprit) -> Undecided:
    return Undecided(
        kind=MeasurementKind.BURST_CAPTURE,
        text="Compare both.",
        suspects=tuple(Suspected(culprit=one, share=0.5) for one in suspects),
    )


def test_a_decision_between_suspects_is_no_other_culprit() -> None:
    story = Story()
    story.at(10, verdict(confidence=0.5, undecided=undecided(NIC, OTHER)))
    story.at(20, verdict(culprit=OTHER, confidence=0.9))
    assert story.only().verdict.culprit == OTHER


def test_what_decided_leaves_the_window_and_opens_no_second_incident() -> None:
    """As in the demo: the closed incident was said once more, of two NICs, and one of them well."""
    story = Story()
    story.at(10, verdict(confidence=0.9))
    story.at(20, verdict(until=15, confidence=0.9))
    story.at(100, verdict(until=15, confidence=0.9))
    assert not story.only().is_open
    late = verdict(culprit=OTHER, until=15, confidence=0.5, undecided=undecided(OTHER, NIC))
    story.at(130, late)
    assert story.only().verdict.culprit == NIC
    assert [news for _, news in story.news] == [News.OPENED, News.CLOSED]
    # Of other evidence, from after its end, it is not known whose it is.
    story.at(200, msgspec.structs.replace(late, since_ns=START_NS + 180 * NS, until_ns=None))
    assert len(story.incidents) == 2


# --- one verdict says it all --------------------------------------------------------------------


def said(
    reason: Reason, culprit: Culprit = RANK, confidence: float = 0.8, since: float = 0
) -> Verdict:
    made = verdict(Cause.STRAGGLER, culprit, since=since, confidence=confidence, reason=reason)
    return msgspec.structs.replace(made, summary=words.summary(made), action=words.action(made))


def test_the_sentence_has_the_reason_that_the_incident_has() -> None:
    story = Story()
    story.at(10, said(Reason.GPU_THROTTLED, confidence=0.9))
    for second in range(15, 10 + SWITCH_SECONDS, 5):
        story.at(second, said(Reason.HOST_STALL))
        found = story.only().verdict
        assert found.reason is Reason.GPU_THROTTLED
        assert "the GPU is throttled" in found.summary
    # The first reason was not repeated for a while: all of it gives way together.
    story.at(10 + SWITCH_SECONDS, said(Reason.HOST_STALL))
    found = story.only().verdict
    assert found.reason is Reason.HOST_STALL
    assert "the host is short of CPU" in found.summary
    assert "vmstat" in found.action
    assert story.only().history[-1].was_reason is Reason.GPU_THROTTLED


def test_a_reason_of_the_host_does_not_keep_the_name_of_a_gpu() -> None:
    story = Story()
    story.at(10, said(Reason.GPU_THROTTLED, Culprit(host="node5", gpu=5), confidence=0.6))
    story.at(15, said(Reason.HOST_STALL, Culprit(host="node5"), confidence=0.9))
    found = story.only().verdict
    assert (found.culprit, found.reason) == (Culprit(host="node5"), Reason.HOST_STALL)
    assert "GPU" not in found.summary


def test_a_reason_stays_while_verdicts_have_none() -> None:
    story = Story()
    story.at(10, said(Reason.UNKNOWN))
    story.at(15, said(Reason.GPU_THROTTLED))
    assert story.only().verdict.reason is Reason.GPU_THROTTLED
    story.at(20, said(Reason.UNKNOWN, confidence=0.95))
    found = story.only().verdict
    assert (found.reason, found.confidence) == (Reason.GPU_THROTTLED, 0.95)
    assert "the GPU is throttled" in found.summary
