"""A job rests while it keeps its pace and nothing points at it, and never for long."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from alerts.finding import Finding
from alerts.judge.incident import Incident, advance
from alerts.window.columns import Records
from alerts.window.model import JobWindow, Rank, Window
from api.data.inventory.leases import Look
from api.oncall.evaluate.resting import REST_SECONDS, Resting, shape_of
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit
from tests.worlds.incidents import slow_link, straggler
from tests.worlds.late_jobs import START_NS, make_job, make_window

STEPS = 100
NAMES = ("alone", "first", "second")


def job(name: str, first_host: int, slow: float = 0.0) -> JobWindow:
    """Eight ranks on four hosts; ``slow``: of a step, in its last ten seconds."""
    extra = np.zeros((STEPS, 8))
    extra[-12:, 3] = slow * 1_000.0
    made = make_job(steps=STEPS, compute_ms=1_000.0, extra_ms=extra)
    ranks = {
        number: Rank(rank=number, host=f"node{first_host + number // 2}", gpu=number % 2)
        for number in made.ranks
    }
    return msgspec.structs.replace(made, job=name, ranks=ranks)


class Stand:
    """Three jobs: two share a host, one has its hosts to itself."""

    def __init__(self, slow: float = 0.0) -> None:
        self.jobs = [job("alone", 10, slow), job("first", 0), job("second", 3)]
        whole = make_window(self.jobs[0])
        self.window = msgspec.structs.replace(whole, jobs=self.jobs)
        # Learned before the last steps, which are the ones that may be slow.
        early = [msgspec.structs.replace(one, **cut(one, STEPS - 12)) for one in self.jobs]
        self.looks: dict[str, Look] = {}
        self.resting = Resting(self.hear, lambda _: self.looks)
        self.learn(msgspec.structs.replace(self.window, jobs=early))  # 12 s behind
        self.asked: list[tuple[str, int]] = []

    def hear(
        self, source: str, members: Sequence[tuple[str, int]], from_ns: int, to_ns: int
    ) -> Records:
        """All jobs have the same names of communicators here: the first one speaks for all."""
        del source
        self.asked = list(members)
        records = self.jobs[0].records
        inside = (records.entry_ns >= from_ns) & (records.entry_ns <= to_ns)
        heard: Records = records.select(inside)
        return heard

    def learn(
        self, window: Window, findings: tuple[Finding, ...] = (), waiting: tuple[str, ...] = ()
    ) -> None:
        self.resting.learn(window, findings, waiting)

    def rested(self, incidents: tuple[Incident, ...] = (), later_s: float = 0.0) -> list[str]:
        return sorted(self.resting.choose(incidents, self.window.to_ns + round(later_s * NS)))


def cut(one: JobWindow, end: int) -> dict[str, object]:
    return {
        "records": one.records.select(one.records.sequence < end),
        "operations": one.operations.select(one.operations.sequence < end),
        "steps": list(one.steps)[:end],
    }


def incident(culprit: Culprit, *jobs: str) -> Incident:
    verdict = msgspec.structs.replace(straggler(START_NS), culprit=culprit, jobs=jobs)
    return advance([], [verdict], START_NS + 60 * NS).incidents[0]


def finding(culprit: Culprit, name: str = "", **given: object) -> Finding:
    whole = {"strength": 0.9, **given}
    return Finding(
        detector="straggler",
        cause=Cause.STRAGGLER,
        culprit=culprit,
        since_ns=START_NS,
        until_ns=None,
        last_ns=START_NS,
        job=name,
        **whole,  # type: ignore[arg-type]
    )


@pytest.fixture(autouse=True)
def same_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs are due at once, half an interval after the window's end."""
    end = make_window(job("any", 0)).to_ns
    half = REST_SECONDS * NS // 2
    turn = -(end + half) // NS % REST_SECONDS
    monkeypatch.setattr("api.oncall.evaluate.resting.zlib.crc32", lambda _: turn)


def test_all_rest_while_they_keep_their_pace_and_are_looked_at_in_time() -> None:
    stand = Stand()
    assert stand.rested() == [*NAMES]
    assert len(stand.asked) == 2, "two ranks of a job are enough"
    assert stand.rested(later_s=10) == [*NAMES]
    assert stand.rested(later_s=REST_SECONDS / 2 + 1) == []
    at_rest = stand.resting.choose((), stand.window.to_ns)["first"]
    assert at_rest.is_resting
    assert not at_rest.is_still
    assert len(at_rest.records) == len(at_rest.operations) == 0
    assert at_rest.ranks == stand.jobs[1].ranks


def test_a_job_that_loses_its_pace_is_looked_at() -> None:
    assert Stand(slow=0.03).rested() == []


def test_a_job_that_another_process_finds_quiet_is_not_listened_to() -> None:
    stand = Stand()
    stand.looks = {one.job: look_at(one) for one in stand.jobs}
    stand.asked = []
    assert stand.rested() == [*NAMES]
    assert stand.asked == []
    assert stand.rested(later_s=REST_SECONDS / 2 + 1) == [*NAMES], "the other looks at it in time"


def test_what_another_process_saw_ends_a_rest() -> None:
    stand = Stand()
    alone, first, second = stand.jobs
    moved = msgspec.structs.replace(look_at(second), shape="other ranks")
    stand.looks = {"alone": look_at(alone, is_quiet=False), "second": moved}
    assert stand.rested() == ["first", "second"], "one that moved is listened to here"
    assert stand.rested(later_s=REST_SECONDS / 2 + 1) == [], "and looked at"
    stand.looks = {"first": look_at(first)}
    accused = incident(Culprit(host="node0"), "other")
    assert stand.rested((accused,)) == ["alone", "second"], "an incident counts more than a note"


def look_at(one: JobWindow, *, is_quiet: bool = True) -> Look:
    return Look(job=one.job, holder="other", looked_ns=0, is_quiet=is_quiet, shape=shape_of(one))


def test_what_concerns_a_job_or_its_neighbour_is_looked_at() -> None:
    stand = Stand()
    rank = Culprit(job="first", rank=1, host="node0")
    assert stand.rested((incident(rank, "first"),)) == ["alone"], "they share node3"
    assert stand.rested((incident(Culprit(host="node11")),)) == ["first", "second"]
    assert stand.rested((incident(Culprit(host="node99")),)) == [*NAMES]
    link = advance([], [slow_link(START_NS, job="alone")], START_NS + 60 * NS).incidents[0]
    assert stand.rested((link,)) == [], "its job, and a host that both others run on"
    over = msgspec.structs.replace(link, state="closed")
    assert stand.rested((over,)) == [*NAMES]


def test_a_finding_ends_the_rest_of_those_that_it_concerns() -> None:
    stand = Stand()
    stand.rested()
    assert not stand.resting.disturb([finding(Culprit(host="node12"), is_context=True)])
    assert stand.resting.disturb([finding(Culprit(host="node12"))])
    assert sorted(stand.resting.jobs) == ["first", "second"]
    assert not stand.resting.disturb([finding(Culprit(host="node12"))]), "once"
    assert stand.resting.disturb([finding(Culprit(), "second")])
    assert not stand.resting.jobs


def test_neighbours_of_a_job_with_findings_do_not_rest_either() -> None:
    stand = Stand()
    own = finding(Culprit(job="first", rank=1, host="node0"), "first")
    stand.learn(stand.window, (own,))
    assert stand.rested() == ["alone", "second"]
    assert stand.resting.disturb([own])
    assert sorted(stand.resting.jobs) == ["alone"]


def test_a_job_that_is_not_quiet_or_waits_for_evidence_does_not_rest() -> None:
    stand = Stand()
    slight = finding(Culprit(job="alone"), "alone", strength=0.1)
    stand.learn(stand.window, (msgspec.structs.replace(slight, detector="slight_lateness"),))
    assert stand.rested() == ["first", "second"]
    stand.learn(stand.window, (), ("second",))
    assert stand.rested() == ["alone", "first"]
    usual = finding(Culprit(job="alone"), "alone", is_context=True)
    stand.learn(stand.window, (usual,))
    assert stand.rested() == [*NAMES]
    assert stand.resting.carried() == [usual], "what was found stands until the next look"


def test_a_job_that_ended_is_forgotten_and_so_is_all_when_another_process_leads() -> None:
    stand = Stand()
    stand.learn(msgspec.structs.replace(stand.window, jobs=stand.jobs[:1]))
    assert stand.rested() == ["alone"]
    stand.resting.forget()
    assert stand.rested() == []
