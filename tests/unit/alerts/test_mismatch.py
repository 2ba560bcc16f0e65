"""Ranks that call another operation than their group: named in the minority, else nobody."""

import msgspec

from alerts.detectors import mismatch
from alerts.judge.verdict import judge
from alerts.window.model import Calls, Side, Window
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause
from tests.worlds.late_jobs import START_NS, make_job, make_window

MOST = (0, 1, 2, 3, 4, 6, 7)


def calls(*sides: Side, ahead: bool = False) -> Calls:
    return Calls(
        communicator="pg:0:a", name="default_pg", sequence=51, sides=sides, time_ns=START_NS + NS,
        is_ahead=ahead,
    )  # fmt: skip


def side(*ranks: int, call: str = "all_reduce of 8 Float", frames: tuple[str, ...] = ()) -> Side:
    return Side(ranks=ranks, call=call, frames=frames)


def window(*differing: Calls, events: tuple[Event, ...] = ()) -> Window:
    made = make_window(make_job(hosts=4, gpus=2, steps=5))
    jobs = [msgspec.structs.replace(made.jobs[0], calls=list(differing))]
    return msgspec.structs.replace(made, jobs=jobs, events=list(events), is_live=False)


def test_the_odd_rank_is_named_with_both_calls_and_places() -> None:
    odd = side(5, call="all_gather of 4 Half", frames=("rank.py:141", "rank.py:149"))
    (verdict,) = judge(window(calls(odd, side(*MOST, frames=("rank.py:152",)))))
    assert (verdict.cause, verdict.culprit.rank) == (Cause.MISMATCH, 5)
    assert {one.rank for one in verdict.victims} == set(MOST)
    own, others = (one.text for one in verdict.evidence)
    assert own == (
        "number 51 of group default_pg: rank 5 called all_gather of 4 Half at rank.py:141, "
        "called at rank.py:149"
    )
    assert "ranks 0, 1, 2, 3, 4, 6, 7 called all_reduce of 8 Float at rank.py:152" in others


def test_halves_that_differ_and_groups_of_two_name_nobody() -> None:
    for sides in ((side(0, 1, 2, 3), side(4, 5, 6, 7, call="x")), (side(0), side(1, call="x"))):
        (finding,) = mismatch.detect(window(calls(*sides)))
        assert finding.culprit.rank is None
        assert len(finding.evidence) == 2


def test_three_kinds_of_calls_name_nobody() -> None:
    (finding,) = mismatch.detect(
        window(calls(side(0, 1, 2, 3, 4, 5), side(6, call="x"), side(7, call="y")))
    )
    assert finding.culprit.rank is None


def test_a_rank_that_is_one_call_ahead_is_named_only_where_its_watchdog_ended_it() -> None:
    """In a job that runs, dumps are taken at different moments: one rank is always ahead."""
    ahead = calls(side(*MOST, call=""), side(5), ahead=True)
    assert mismatch.detect(window(ahead)) == []
    timeout = Event(
        kind="last_words",
        time_ns=START_NS,
        labels={"rank": "5"},
        attributes={"words": "collective_timeout"},
    )
    (finding,) = mismatch.detect(window(ahead, events=(timeout,)))
    assert finding.culprit.rank == 5
    assert "called nothing more" in finding.evidence[1].text
    other = msgspec.structs.replace(timeout, labels={"rank": "2"})
    assert mismatch.detect(window(ahead, events=(other,))) == []


def test_calls_that_agree_are_no_finding() -> None:
    assert mismatch.detect(window()) == []
