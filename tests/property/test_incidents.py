"""Whatever verdicts come in whatever order: an incident is one trouble of one culprit.

Rounds of random verdicts about a few hosts, GPUs, NICs and jobs, so that most of them are about the
same things under other names, with other reasons, before and after gaps.
"""

import itertools
import random

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from alerts.judge import words
from alerts.judge.incident import (
    OPEN_CONFIDENCE,
    Advance,
    Incident,
    News,
    advance,
)
from alerts.judge.names import names_of
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Reason, Verdict

START_NS = 1_794_700_000 * NS
LOOK_SECONDS = 180
WORLD = 16
"""GPUs of each job."""
CULPRITS = (
    Culprit(),
    Culprit(host="a"),
    Culprit(host="a", gpu=1),
    Culprit(host="a", gpu=2),
    Culprit(job="llama", rank=1, host="a", gpu=1),
    Culprit(host="a", device="mlx5_0"),
    Culprit(host="a", device="mlx5_0", port="1", switch="leaf", switch_port="3"),
    Culprit(host="b"),
    Culprit(switch="leaf", switch_port="3"),
)
CAUSES = (Cause.STRAGGLER, Cause.SLOW_LINK, Cause.LOSSY_LINK, Cause.LINK_FLAP, Cause.STALL)
REASONS = (Reason.UNKNOWN, Reason.GPU_THROTTLED, Reason.HOST_STALL)
JOBS = ((), ("llama",), ("mixtral",), ("llama", "mixtral"))


class Said(msgspec.Struct, frozen=True):
    """A verdict of a round, in seconds before that round."""

    cause: Cause
    culprit: Culprit
    reason: Reason
    jobs: tuple[str, ...]
    confidence: float
    began_ago: int
    ended_ago: int | None
    share: float

    def at(self, now_s: int) -> Verdict:
        ended_s = now_s if self.ended_ago is None else now_s - min(self.ended_ago, self.began_ago)
        lost = (ended_s - now_s + self.began_ago) * self.share
        made = Verdict(
            cause=self.cause,
            culprit=self.culprit,
            reason=self.reason,
            since_ns=START_NS + (now_s - self.began_ago) * NS,
            until_ns=None if self.ended_ago is None else START_NS + ended_s * NS,
            confidence=self.confidence,
            jobs=self.jobs,
            costs=tuple(cost(job, lost, self.share) for job in self.jobs),
        )
        return msgspec.structs.replace(made, summary=words.summary(made), action=words.action(made))


def cost(job: str, lost: float, share: float) -> Cost:
    return Cost(
        job=job,
        lost_seconds=lost,
        step_seconds=None,
        step_seconds_without=None,
        lost_share=share,
        gpu_hours=lost * WORLD / 3600,
    )


SAID = st.builds(
    Said,
    cause=st.sampled_from(CAUSES),
    culprit=st.sampled_from(CULPRITS),
    reason=st.sampled_from(REASONS),
    jobs=st.sampled_from(JOBS),
    confidence=st.sampled_from((0.4, 0.5, 0.6, 0.75, 0.9, 1.0)),
    began_ago=st.integers(0, LOOK_SECONDS),
    ended_ago=st.one_of(st.none(), st.integers(0, LOOK_SECONDS)),
    share=st.sampled_from((0.0, 0.1, 1.0)),
)
PAUSES = st.sampled_from((5, 5, 10, 40, 70, 300, 700, 1_500))
ROUNDS = st.lists(st.tuples(PAUSES, st.lists(SAID, max_size=3)), min_size=2, max_size=12)


@settings(max_examples=300)
@given(rounds=ROUNDS, still=st.booleans(), shuffler=st.integers(0, 1_000))
def test_an_incident_is_one_trouble_of_one_culprit(
    *, rounds: list[tuple[int, list[Said]]], still: bool, shuffler: int
) -> None:
    now_s, standing = 0, list[Incident]()
    for pause_s, said in rounds:
        now_s += pause_s
        now_ns = START_NS + now_s * NS
        verdicts = [each.at(now_s) for each in said]
        after = step(standing, verdicts, now_ns, still=still)
        assert_order_makes_no_difference(standing, verdicts, now_ns, after, shuffler, still=still)
        before = {each.id: each for each in standing}
        assert_placed(verdicts, after)
        assert_one_open_of_each(after.incidents)
        for incident in after.incidents:
            assert_sound(incident)
            assert_linked(incident, after.incidents)
            if incident.id in before:
                assert_follows(before[incident.id], incident, verdicts, now_ns)
        standing = after.incidents


def step(standing: list[Incident], verdicts: list[Verdict], now_ns: int, *, still: bool) -> Advance:
    return advance(
        standing,
        verdicts,
        now_ns,
        seen_from_ns=now_ns - LOOK_SECONDS * NS,
        still=("llama",) if still else (),
        late=(Culprit(host="b"),) if still else (),
    )


def evidence_ns(verdict: Verdict, now_ns: int) -> int:
    return now_ns if verdict.until_ns is None else min(verdict.until_ns, now_ns)


def assert_order_makes_no_difference(
    standing: list[Incident],
    verdicts: list[Verdict],
    now_ns: int,
    after: Advance,
    seed: int,
    *,
    still: bool,
) -> None:
    shuffler = random.Random(seed)
    order = list(range(len(verdicts)))
    shuffler.shuffle(order)
    given = shuffler.sample(standing, len(standing))
    again = step(given, [verdicts[place] for place in order], now_ns, still=still)
    assert again.incidents == after.incidents
    assert again.changes == after.changes


def assert_placed(verdicts: list[Verdict], after: Advance) -> None:
    """Every verdict that is more likely right than wrong is somewhere."""
    known = {each.id for each in after.incidents} | {each.incident.id for each in after.changes}
    for verdict, incident in zip(verdicts, after.incident_of, strict=True):
        if verdict.confidence >= OPEN_CONFIDENCE:
            assert incident in known


def assert_one_open_of_each(incidents: list[Incident]) -> None:
    seen = set()
    for each in incidents:
        culprit = each.verdict.culprit
        if each.is_open and names_of(culprit):
            key = (culprit, each.verdict.cause)
            assert key not in seen
            seen.add(key)


def assert_sound(incident: Incident) -> None:
    verdict = incident.verdict
    lasted_s = incident.lasted_ns / NS
    for one in verdict.costs:
        assert one.lost_seconds <= lasted_s + 1e-6
        assert one.gpu_hours <= lasted_s * WORLD / 3600 + 1e-6
    # One verdict gives the sentence, the advice, the chip and the culprit.
    assert verdict.summary == words.summary(verdict)
    assert verdict.action == words.action(verdict)
    assert verdict.since_ns <= incident.seen_first_ns <= incident.last_seen_ns
    stretches = incident.stretches
    for stretch, following in itertools.pairwise(stretches):
        assert stretch.since_ns <= stretch.until_ns <= following.since_ns
    if not incident.is_open:
        assert incident.closed_ns is not None
        assert incident.last_seen_ns <= incident.closed_ns
        assert verdict.until_ns == incident.last_seen_ns


def assert_linked(incident: Incident, incidents: list[Incident]) -> None:
    by_id = {each.id: each for each in incidents}
    if incident.became is not None:
        assert not incident.is_open
        if following := by_id.get(incident.became.incident):
            assert following.taken_for is not None
            assert following.taken_for.incident == incident.id
            assert following.first_incident == (incident.first_incident or incident.id)
    if incident.taken_for is not None and (former := by_id.get(incident.taken_for.incident)):
        assert former.became is not None
        assert former.became.incident == incident.id


def assert_follows(before: Incident, after: Incident, verdicts: list[Verdict], now_ns: int) -> None:
    if before.earlier.count:
        assert after.first_since_ns == before.first_since_ns
    if not verdicts and not after.is_open:
        # That it is closed changes neither how long it lasted nor what it cost.
        assert after.lasted_ns == before.lasted_ns
        assert after.verdict.costs == before.verdict.costs
    for one in before.verdict.costs:
        (now,) = [each for each in after.verdict.costs if each.job == one.job]
        assert now.lost_seconds >= one.lost_seconds - 1e-6
    if before.is_open:
        return
    if not after.is_open:
        assert_closed_stays(before, after, verdicts, now_ns)
        return
    # It is open again: by evidence of the same cause, culprit and reason, from after its end.
    old, new = before.verdict, after.verdict
    assert before.became is None
    assert new.cause is old.cause
    mine, theirs = names_of(new.culprit), names_of(old.culprit)
    assert mine <= theirs or theirs <= mine
    assert len({new.reason, old.reason} - {Reason.UNKNOWN}) <= 1
    assert before.closed_ns is not None
    assert new.since_ns >= before.closed_ns
    assert after.earlier.count > before.earlier.count
    assert after.earlier.lasted_ns >= before.lasted_ns
    assert after.history[-1].news is News.REOPENED


def assert_closed_stays(
    before: Incident, after: Incident, verdicts: list[Verdict], now_ns: int
) -> None:
    """Only evidence from before its end, that came late, adds to a closed incident."""
    closed_ns = before.closed_ns or 0
    late = [each for each in verdicts if evidence_ns(each, now_ns) <= closed_ns]
    if before.became is not None or not late:
        assert after == before
