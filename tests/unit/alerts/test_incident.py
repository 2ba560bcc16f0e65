"""Incidents: what is one thing, what changes its name, what ends it, what brings it back."""

import itertools
import random
import re
from typing import Any

import msgspec
import pytest

from alerts.judge import incident
from alerts.judge.incident import (
    CLOSE_INTERMITTENT_SECONDS,
    CLOSE_SECONDS,
    HISTORY_MAX,
    MARGIN,
    OPEN_MAX,
    REOPEN_SECONDS,
    SWITCH_SECONDS,
    SYMPTOMS_KEPT_MAX,
    Incident,
    IncidentState,
    News,
    Symptom,
    advance,
    standing_verdicts,
)
from alerts.judge.stretches import STRETCHES_KEPT_MAX
from alerts.signals.replay import grown
from collector.contract.units import NS
from collector.contract.verdict import (
    Cause,
    Cost,
    Culprit,
    Evidence,
    Reason,
    Verdict,
)
from tests.worlds.incident_story import NIC, RANK, START_NS, Story, cost, verdict

# --- one thing ----------------------------------------------------------------------------------


def test_what_is_said_again_is_one_incident_that_was_first_said_then() -> None:
    story = Story()
    story.at(10, verdict())
    first = story.only()
    story.at(15, verdict(confidence=0.82))
    story.at(20, verdict(confidence=0.78))
    last = story.only()
    assert last.id == first.id
    assert (last.first_said_ns, last.last_seen_ns) == (START_NS + 10 * NS, START_NS + 20 * NS)
    assert last.verdict.confidence == pytest.approx(0.82)
    assert story.news == [(10, News.OPENED)]


def test_a_sum_with_a_part_that_is_too_low_is_too_low() -> None:
    low = msgspec.structs.replace(cost(10.0), is_at_least=True)
    assert grown(low, cost(10.0), 5.0).is_at_least, "what was before is not measured anew"
    assert not grown(low, cost(100.0), 5.0).is_at_least, "all of it was"
    assert grown(cost(100.0), low, 5.0).is_at_least


def test_a_verdict_with_fewer_names_is_about_the_same_and_takes_none_away() -> None:
    story = Story()
    story.at(10, verdict())
    story.at(15, verdict(culprit=Culprit(host="node3", device="mlx5_0"), confidence=0.9))
    assert story.only().verdict.culprit == NIC


def test_a_verdict_with_more_names_and_as_sure_adds_them() -> None:
    story = Story()
    story.at(10, verdict(culprit=Culprit(host="node3", device="mlx5_0")))
    story.at(15, verdict(culprit=NIC, confidence=0.7))
    assert story.only().verdict.culprit == Culprit(host="node3", device="mlx5_0")
    story.at(20, verdict(culprit=NIC, confidence=0.8))
    assert story.only().verdict.culprit == NIC


def test_two_things_at_different_times_are_two_incidents() -> None:
    story = Story()
    story.at(10, verdict())
    story.at(70, verdict(), verdict(Cause.STRAGGLER, RANK, since=60))
    assert [each.verdict.cause for each in story.incidents] == [Cause.SLOW_LINK, Cause.STRAGGLER]


def test_troubles_of_different_jobs_are_two_incidents_even_if_nobody_is_named() -> None:
    story = Story()
    stalls = [verdict(Cause.STALL, Culprit(), jobs=(job,)) for job in ("llama", "mixtral")]
    story.at(10, *stalls)
    story.at(15, *stalls)
    assert sorted(each.jobs for each in story.incidents) == [("llama",), ("mixtral",)]


def test_a_thousand_symptoms_are_one_incident() -> None:
    story = Story()
    symptoms = [
        verdict(Cause.STRAGGLER, Culprit(job="llama", rank=rank), since=rank % 10, confidence=0.6)
        for rank in range(1000)
    ]
    story.at(10, verdict(), *symptoms)
    story.at(15, *symptoms, verdict())
    found = story.only()
    assert found.verdict.culprit == NIC
    assert len(found.symptoms) == SYMPTOMS_KEPT_MAX
    assert found.symptoms_seen == 1000
    assert story.news == [(10, News.OPENED)]


def test_whoever_is_a_victim_of_an_incident_begins_none() -> None:
    victim = Culprit(host="node4", device="mlx5_0")
    story = Story()
    root = verdict(jobs=(), victims=(victim,))
    story.at(10, root)
    story.at(60, root, verdict(culprit=victim, since=50, jobs=()))
    assert story.only().symptoms == (Symptom(Cause.SLOW_LINK, victim),)


def test_a_verdict_that_is_more_likely_wrong_than_right_begins_nothing() -> None:
    story = Story()
    assert story.at(10, verdict(confidence=0.4)) == []
    assert story.last is not None
    assert story.last.incident_of == [""]


# --- names do not flip --------------------------------------------------------------------------


def test_another_explanation_must_be_clearly_more_certain() -> None:
    story = Story()
    story.at(10, verdict(confidence=0.6))
    rival = verdict(Cause.STRAGGLER, RANK)
    story.at(15, msgspec.structs.replace(rival, confidence=0.6 + MARGIN / 2))
    assert story.only().verdict.culprit == NIC
    story.at(20, msgspec.structs.replace(rival, confidence=0.6 + MARGIN))
    found = story.only_open()
    assert found.verdict.culprit == RANK
    assert Symptom(Cause.SLOW_LINK, NIC) in found.symptoms


def test_explanations_that_take_turns_do_not_flip() -> None:
    story = Story()
    one, other = verdict(confidence=0.7), verdict(Cause.LOSSY_LINK, confidence=0.75)
    for second in range(10, 200, 5):
        story.at(second, one if second % 10 else other)
    assert len(story.incidents) == 1
    assert [news for _, news in story.news if news is News.CHANGED] == []


def test_an_explanation_that_nobody_repeats_gives_way_to_one_that_is_said() -> None:
    story = Story()
    story.at(10, verdict(confidence=0.9))
    rival = verdict(Cause.STRAGGLER, RANK, confidence=0.7)
    for second in range(15, 10 + SWITCH_SECONDS, 5):
        story.at(second, rival)
        assert story.only().verdict.culprit == NIC
    story.at(10 + SWITCH_SECONDS, rival)
    assert story.only_open().verdict.culprit == RANK


def test_slowness_alone_does_not_replace_what_it_was_explained_by() -> None:
    story = Story()
    uplink = Culprit(switch="leaf1", switch_port="7")
    for second in range(10, 60, 5):
        story.at(second, verdict(Cause.CONGESTION, uplink, since=0, confidence=0.9))
    # Longer than it may go unseen: the window has nothing from before it any more.
    last = 60 + 2 * CLOSE_INTERMITTENT_SECONDS
    for second in range(60, last, 10):
        story.at(second, verdict(since=0, confidence=0.75))
    assert story.only().verdict.culprit == uplink
    assert story.only().is_open
    story.at(last, verdict(since=0, confidence=0.95))
    assert story.only_open().verdict.culprit == NIC


def test_slowness_that_began_later_is_no_proof_that_the_cause_goes_on() -> None:
    story = Story()
    uplink = Culprit(switch="leaf1", switch_port="7")
    story.at(10, verdict(Cause.CONGESTION, uplink, since=0, confidence=0.9))
    for second in range(60, 60 + CLOSE_INTERMITTENT_SECONDS, 10):
        story.at(second, verdict(since=50, confidence=0.75))
    assert [each.is_open for each in story.incidents if each.verdict.culprit == uplink] == [False]


def test_of_what_is_over_the_name_is_not_changed() -> None:
    story = Story()
    story.at(10, verdict(confidence=0.6))
    story.at(50, verdict(Cause.STRAGGLER, RANK, since=0, until=20, confidence=0.99))
    assert story.only().verdict.culprit == NIC


def test_a_stall_becomes_a_hang_as_soon_as_somebody_can_be_named() -> None:
    story = Story()
    story.at(10, verdict(Cause.STALL, Culprit(job="llama"), confidence=0.8))
    hang = verdict(Cause.HANG, Culprit(job="llama", rank=6), confidence=0.8)
    story.at(15, msgspec.structs.replace(hang, reason=Reason.NOT_LAUNCHED))
    assert story.only().verdict.cause is Cause.HANG


# --- the end, and what comes back ---------------------------------------------------------------


def test_it_is_closed_when_it_has_not_been_seen_for_a_while_and_ended_when_last_seen() -> None:
    story = Story()
    story.at(10, verdict())
    story.at(20, verdict())
    story.at(20 + CLOSE_SECONDS - 1)
    assert story.only().closed_ns is None
    story.at(20 + CLOSE_SECONDS)
    found = story.only()
    assert found.state is IncidentState.CLOSED
    assert found.verdict.until_ns == found.last_seen_ns == START_NS + 20 * NS
    assert found.closed_ns == START_NS + (20 + CLOSE_SECONDS) * NS
    assert [turn.news for turn in found.history] == [News.OPENED, News.CLOSED]


def test_what_comes_and_goes_is_one_incident() -> None:
    story = Story()
    flap = Cause.LINK_FLAP
    for second in range(0, 3000, 5):
        is_down = second % 300 < 10
        story.at(second, *([verdict(flap, since=second, until=second)] if is_down else []))
    assert story.only().is_open
    assert story.news == [(0, News.OPENED)]
    story.at(2705 + CLOSE_INTERMITTENT_SECONDS)
    assert not story.only().is_open


def test_what_comes_back_soon_is_the_same_incident_and_later_another() -> None:
    story = Story()
    story.at(0, verdict())
    story.at(CLOSE_SECONDS)
    back_s = CLOSE_SECONDS + REOPEN_SECONDS - 10
    story.at(back_s, verdict(since=back_s - 5))
    first = story.only()
    assert first.is_open
    assert first.reopened == 1
    assert first.verdict.since_ns == START_NS + (back_s - 5) * NS
    assert first.first_since_ns == START_NS
    closed_s = back_s + CLOSE_INTERMITTENT_SECONDS
    story.at(closed_s)
    again_s = closed_s + REOPEN_SECONDS + 10
    story.at(again_s, verdict(since=again_s - 5))
    assert story.only().id != first.id


@pytest.mark.parametrize(
    "other",
    [
        {"cause": Cause.LOSSY_LINK},
        {"culprit": Culprit(host="node4", device="mlx5_0")},
        {"reason": Reason.CABLE},
    ],
)
def test_what_has_another_cause_culprit_or_reason_is_not_back(other: dict[str, Any]) -> None:
    story = Story()
    story.at(0, verdict(reason=Reason.NIC))
    story.at(CLOSE_SECONDS)
    story.at(600, verdict(since=590, **other))
    assert [each.is_open for each in story.incidents] == [False, True]
    assert [each.reopened for each in story.incidents] == [0, 0]


def test_a_verdict_about_the_past_opens_nothing_again() -> None:
    story = Story()
    story.at(0, verdict())
    story.at(CLOSE_SECONDS)
    before = len(story.news)
    for second in range(CLOSE_SECONDS + 5, CLOSE_SECONDS + 60, 5):
        late = verdict(until=10, confidence=0.95, evidence=(seen(),))
        story.at(second, late)
    found = story.only()
    assert not found.is_open
    assert found.verdict.confidence == pytest.approx(0.95)
    assert found.verdict.until_ns == START_NS + 10 * NS
    assert {news for _, news in story.news[before:]} <= {News.UPDATED}


def seen() -> Evidence:
    return Evidence(metric="collective_transfer", text="slow", value=2.0, unit="s")


def test_what_was_over_before_anybody_said_it_is_told_once_and_is_closed() -> None:
    story = Story()
    past = verdict(since=0, until=10)
    story.at(100, past)
    assert not story.only().is_open
    story.at(105, past)
    assert story.news == [(100, News.CLOSED)]
    assert standing_verdicts(story.incidents) == []


# --- when it began ------------------------------------------------------------------------------


def since_s(story: Story) -> float:
    return (story.only().verdict.since_ns - START_NS) / NS


def throttled(
    since: float, *evidence_from: float, reason: Reason = Reason.GPU_THROTTLED
) -> Verdict:
    """A verdict whose evidence begins at these times."""
    clocks = [
        Evidence(metric="clock", text="low", value=1.0, unit="Hz", from_ns=at, to_ns=at + NS)
        for at in (START_NS + round(second * NS) for second in evidence_from)
    ]
    return verdict(Cause.STRAGGLER, RANK, since=since, reason=reason, evidence=tuple(clocks))


def test_a_round_that_lacks_the_first_records_does_not_let_it_begin_later() -> None:
    """Seen live: steps were read from 44 s after the beginning on, the clock's readings from it."""
    story = Story()
    story.at(20, throttled(10, 10, 12))
    story.at(60, throttled(54, 12, 54))
    assert since_s(story) == 12
    # What is said stays, with its evidence, where a round has no reason.
    story.at(65, throttled(58, 58, reason=Reason.UNKNOWN))
    assert since_s(story) == 12


def test_it_begins_when_its_evidence_does_where_that_was_estimated_too_early() -> None:
    story = Story()
    story.at(20, throttled(0, 0))
    story.at(25, throttled(15, 15))
    assert since_s(story) == 15


def test_evidence_from_before_the_trouble_makes_it_no_older() -> None:
    story = Story()
    story.at(20, throttled(10, -100, 10))
    story.at(25, throttled(15, -100, 15))
    assert since_s(story) == 10


# --- cost ---------------------------------------------------------------------------------------


def test_the_cost_goes_on_growing_when_the_window_no_longer_shows_the_start() -> None:
    story = Story()
    for second in range(5, 1005, 5):
        shown_s = min(second, 180)
        story.at(second, verdict(since=second - shown_s, costs=(cost(0.2 * shown_s),)))
    (total,) = story.only().verdict.costs
    assert total.lost_seconds == pytest.approx(0.2 * 1000, rel=0.01)
    assert total.gpu_hours == pytest.approx(0.2 * 1000 * 16 / 3600, rel=0.01)
    assert story.only().verdict.since_ns == START_NS


def test_seconds_that_are_lost_are_a_share_also_when_steps_are_as_usual_again() -> None:
    """A link still loses packets, and costs the job nothing any more: it did."""
    story = Story()
    story.at(10, verdict(costs=(cost(2.0),)))
    free = msgspec.structs.replace(cost(0.0, share=0.0), step_seconds=1.0)
    story.at(15, verdict(costs=(free,)))
    (found,) = story.only().verdict.costs
    assert found.lost_seconds == 2.0
    assert found.lost_share == pytest.approx(2.0 / 15), "of 15 s"
    assert (found.step_seconds, found.step_seconds_without) == (1.25, 1.0)
    assert found.gpu_hours == pytest.approx(cost(2.0).gpu_hours)


def test_a_gap_costs_nothing_and_lasts_nothing() -> None:
    """Two bursts of 73 and 61 s, 25 minutes apart, are 134 s, and not 27 minutes."""
    story = Story()
    bursts = ((0, 73), (1_560, 1_621))
    for begin, end in bursts:
        for second in range(begin + 3, end + 1, 5):
            lost = 0.2 * (second - begin)
            story.at(second, verdict(since=begin, costs=(cost(lost),)))
        story.at(end, verdict(since=begin, until=end, costs=(cost(0.2 * (end - begin)),)))
        before = story.only()
        for second in range(end + 5, end + CLOSE_INTERMITTENT_SECONDS + 5, 5):
            story.at(second)
        closed = story.only()
        assert not closed.is_open
        # The same while it was open and when it is closed.
        assert closed.lasted_ns == before.lasted_ns
        assert closed.verdict.costs == before.verdict.costs
    found = story.only()
    assert found.reopened == 1
    assert found.lasted_ns == (73 + 61) * NS
    assert found.verdict.costs[0].lost_seconds == pytest.approx(0.2 * (73 + 61))
    assert [each.since_ns for each in found.stretches] == [
        START_NS + begin * NS for begin, _ in bursts
    ]
    assert found.verdict.since_ns == START_NS + 1_560 * NS


def test_what_comes_and_goes_lasts_and_costs_only_while_it_is_seen() -> None:
    story = Story()
    for begin in range(0, 3_000, 300):
        for second in (begin + 5, begin + 10):
            lost = cost(float(second - begin), share=1.0)
            story.at(second, verdict(Cause.LINK_FLAP, since=begin, costs=(lost,)))
    found = story.only()
    assert found.reopened == 0
    assert found.lasted_ns == 100 * NS
    assert found.verdict.costs[0].lost_seconds == pytest.approx(100)
    assert found.earlier.count == 9


def test_stretches_that_are_listed_are_bounded_and_the_sums_are_of_all() -> None:
    story = Story()
    for number in range(2 * STRETCHES_KEPT_MAX):
        begin = 300 * number
        story.at(begin + 10, verdict(Cause.LINK_FLAP, since=begin))
    found = story.only()
    assert len(found.stretches) == STRETCHES_KEPT_MAX + 1
    assert found.first_since_ns == START_NS
    assert found.earlier.count == 2 * STRETCHES_KEPT_MAX - 1
    assert found.lasted_ns == 2 * STRETCHES_KEPT_MAX * 10 * NS


def test_evidence_of_an_earlier_stretch_adds_nothing_to_the_present_one() -> None:
    story = Story()
    flap = Cause.LINK_FLAP
    story.at(10, verdict(flap, since=0, costs=(cost(2.0),)))
    story.at(130, verdict(flap, since=120, costs=(cost(2.0),)))
    before = story.only()
    story.at(135, verdict(flap, since=0, until=10, costs=(cost(2.0),)))
    after = story.only()
    assert (after.stretches, after.verdict.costs) == (before.stretches, before.verdict.costs)


def test_a_round_that_sees_no_steps_does_not_charge_more_than_steps_show() -> None:
    """What transfers take longer, a step hides in part behind what ranks compute."""
    rough = msgspec.structs.replace(
        cost(9.0, share=0.9), step_seconds=None, step_seconds_without=None
    )
    story = Story()
    story.at(10, verdict(costs=(cost(2.0),)))
    story.at(20, verdict(costs=(rough,)))
    (found,) = story.only().verdict.costs
    assert found.lost_seconds == pytest.approx(4.0)
    assert found.step_seconds == 1.25
    # Where no round saw steps, the rough estimate is what is known.
    story = Story()
    story.at(20, verdict(costs=(rough,)))
    assert story.only().verdict.costs[0].lost_seconds == pytest.approx(9.0)


def test_the_cost_never_falls() -> None:
    story = Story()
    story.at(10, verdict(costs=(cost(5.0),)))
    story.at(15, verdict(costs=(cost(1.0, share=0.0),)))
    assert story.only().verdict.costs[0].lost_seconds == pytest.approx(5.0)


# --- order, bounds ------------------------------------------------------------------------------


def test_a_hang_that_outlasts_the_window_stays_open_and_costs_all_of_its_time() -> None:
    lost = Cost(
        job="llama",
        lost_seconds=10.0,
        step_seconds=None,
        step_seconds_without=None,
        lost_share=1.0,
        gpu_hours=0.1,
    )
    story = Story()
    story.at(10, verdict(Cause.HANG, RANK, costs=(lost,)))
    for second in range(15, 1_000, 5):
        story.at(second, still=("llama",))
    hanging = story.only()
    assert hanging.is_open
    assert hanging.verdict.culprit == RANK
    (cost,) = hanging.verdict.costs
    assert cost.lost_seconds == pytest.approx(10 + 995 - 10)
    assert cost.gpu_hours == pytest.approx(0.01 * cost.lost_seconds)
    # It moves again: what was seen of the stop now belongs to it, and it ends.
    stall = verdict(Cause.STALL, Culprit(job="llama"), since=0, until=995, confidence=0.99)
    story.at(1_000, stall)
    assert len(story.incidents) == 1
    story.at(1_000 + CLOSE_SECONDS)
    assert not story.only().is_open


def test_a_symptom_that_the_window_shows_after_the_end_is_no_new_incident() -> None:
    stall = verdict(Cause.STALL, Culprit(job="llama"), since=0, until=100, confidence=0.99)
    story = Story()
    story.at(10, verdict(Cause.HANG, RANK))
    for second in range(105, 280, 5):
        story.at(second, stall)
    assert not story.only().is_open
    assert [news for _, news in story.news] == [News.OPENED, News.CLOSED]
    # Another standstill is another matter.
    story.at(400, verdict(Cause.STALL, Culprit(job="llama"), since=380, until=395, confidence=0.99))
    assert len(story.incidents) == 2


def test_who_has_begun_to_come_late_is_late_until_it_ends() -> None:
    story = Story()
    cost = Cost(
        job="llama",
        lost_seconds=10.0,
        step_seconds=None,
        step_seconds_without=None,
        lost_share=0.1,
        gpu_hours=1.0,
    )
    story.at(10, verdict(Cause.STRAGGLER, RANK, costs=(cost,)))
    late = Culprit(job="llama", host="node5")
    for second in range(20, 1_000, 10):
        story.at(second, late=(late,))
    assert story.only().is_open
    assert story.only().verdict.costs[0].lost_seconds == pytest.approx(10 + 0.1 * 980, rel=0.01)
    for second in range(1_000, 1_000 + 2 * CLOSE_SECONDS, 10):
        story.at(second)
    assert not story.only().is_open


def test_unequal_work_keeps_no_other_trouble_open() -> None:
    story = Story()
    story.at(10, verdict())
    story.at(20, verdict(Cause.STRAGGLER, RANK, jobs=("other",)))
    for second in range(30, 200, 10):
        story.at(second, late=(Culprit(job="llama", host="node3"), Culprit(host="node6")))
    assert [each.is_open for each in story.incidents] == [False, False]


def test_a_job_that_stands_still_keeps_no_other_trouble_open() -> None:
    story = Story()
    story.at(10, verdict(), verdict(Cause.HANG, RANK, jobs=("other",)))
    for second in range(15, 200, 5):
        story.at(second, still=("llama",))
    assert not any(each.is_open for each in story.incidents)


def test_the_order_of_verdicts_and_of_incidents_makes_no_difference() -> None:
    verdicts = [
        verdict(),
        verdict(Cause.LOSSY_LINK, confidence=0.97),
        verdict(Cause.STRAGGLER, RANK, since=100, confidence=0.8),
        verdict(Cause.STRAGGLER, Culprit(host="node9", gpu=1), jobs=("mixtral",)),
        verdict(Cause.CONGESTION, Culprit(switch="leaf1", switch_port="p3"), confidence=0.6),
    ]
    before = Story()
    before.at(5, verdict(confidence=0.7), verdict(Cause.STALL, Culprit(), jobs=("mixtral",)))
    outcomes = set()
    for order in itertools.permutations(range(len(verdicts))):
        given = list(before.incidents)
        random.Random(repr(order)).shuffle(given)
        after = advance(given, [verdicts[place] for place in order], START_NS + 110 * NS)
        told = [(each.news, each.incident.id) for each in after.changes]
        placed = sorted(zip(order, after.incident_of, strict=True))
        outcomes.add(repr((after.incidents, told, placed)))
    assert len(outcomes) == 1


def test_more_incidents_than_anybody_can_read_are_left_out_and_counted() -> None:
    story = Story()
    many = [
        verdict(culprit=Culprit(host=f"node{number}"), jobs=()) for number in range(OPEN_MAX + 7)
    ]
    story.at(10, *many)
    assert len(story.incidents) == OPEN_MAX
    assert story.last is not None
    assert story.last.left_out == 7


def test_closed_incidents_that_are_looked_through_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incident, "KEPT_MAX", 25)
    story = Story()
    for second in range(0, 1200, 200):
        past = [
            verdict(culprit=Culprit(host=f"n{second}-{number}"), until=0, jobs=())
            for number in range(10)
        ]
        story.at(1000 + second, *past)
    assert len(story.incidents) == 25
    assert all("n1000-" in str(each.verdict.culprit) for each in story.incidents[-10:])


def test_an_incident_that_changes_all_the_time_keeps_its_first_turn_and_the_latest() -> None:
    story = Story()
    for number in range(3 * HISTORY_MAX):
        story.at(number * SWITCH_SECONDS, verdict(list(LINK_CAUSES)[number % 2]))
    history = story.only().history
    assert len(history) == HISTORY_MAX
    assert history[0].news is News.OPENED
    assert history[-1].time_ns == START_NS + (3 * HISTORY_MAX - 1) * SWITCH_SECONDS * NS


LINK_CAUSES = (Cause.SLOW_LINK, Cause.LOSSY_LINK)


def test_ids_are_in_order_of_time_and_can_be_said() -> None:
    story = Story()
    for second in (0, 100, 200):
        story.at(second, verdict(culprit=Culprit(host=f"node{second}"), jobs=(), since=second))
    ids = [change.id for change in story.incidents]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)
    assert all(re.fullmatch(r"\d{8}-\d{6}-[a-z]{5}-[a-z]{5}", each) for each in ids)


def test_incidents_survive_being_written_down() -> None:
    story = Story()
    story.at(10, verdict(costs=(cost(1.0),), evidence=(seen(),), victims=(RANK,)))
    written = msgspec.json.encode(story.incidents)
    assert msgspec.json.decode(written, type=list[Incident]) == story.incidents


def test_an_incident_that_an_earlier_version_has_kept_goes_on() -> None:
    story = Story()
    story.at(10, verdict(costs=(cost(1.0),)))
    (kept,) = msgspec.json.decode(msgspec.json.encode(story.incidents))
    for name in ("seen_first_ns", "earlier", "taken_for", "became", "first_incident"):
        del kept[name]
    for turn in kept["history"]:
        turn.pop("reason", None)
    story.incidents = [msgspec.convert(kept, Incident)]
    story.at(20, verdict(costs=(cost(2.0),)))
    found = story.only()
    assert found.lasted_ns == 20 * NS
    assert found.verdict.costs[0].lost_seconds == pytest.approx(3.0)
