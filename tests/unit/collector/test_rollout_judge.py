"""What makes a trial fail, and what proves nothing."""

import msgspec
import pytest

from collector.agent.rollout.judge import UNREACHED_SECONDS, Judgement, Numbers, judge
from collector.agent.settings import AgentSettings
from collector.contract.model import Sample, Series
from collector.contract.rollout import Outcome
from collector.sources import SourceSettings

SETTINGS = AgentSettings(sources={"a": SourceSettings(), "off": SourceSettings(enabled=False)})
DROPPED = "fabric_agent_dropped_samples_total"
REFUSED = "fabric_agent_refused_samples_total"


def numbers(
    *, up: float | None = 1, good: float = 0, bad: float = 0, shipped: float = 0, **errors: float
) -> Numbers:
    """What an agent's meter shows; ``errors`` are dropped samples by reason."""
    samples = [
        Sample(Series("fabric_agent_source_reads_total", {"source": "a", "result": "ok"}), good, 0),
        Sample(
            Series("fabric_agent_source_reads_total", {"source": "a", "result": "timeout"}), bad, 0
        ),
        Sample(Series("fabric_agent_shipped_batches_total"), shipped, 0),
        *(Sample(Series(DROPPED, {"reason": why}), count, 0) for why, count in errors.items()),
    ]
    if up is not None:
        samples.append(Sample(Series("fabric_agent_source_up", {"source": "a"}), up, 0))
    return Numbers.of(samples)


def judged(before: Numbers, now: Numbers, elapsed: float = 60, trial: float = 60) -> Judgement:
    return judge(before, now, SETTINGS, elapsed_seconds=elapsed, trial_seconds=trial)


BEFORE = numbers(good=10, shipped=5)


def test_a_trial_in_which_nothing_new_fails_is_good_when_it_is_over() -> None:
    now = numbers(good=20, shipped=9)
    assert judged(BEFORE, now, elapsed=59).outcome is Outcome.TRYING
    assert judged(BEFORE, now).outcome is Outcome.GOOD


@pytest.mark.parametrize(
    ("before", "now", "elapsed", "outcome"),
    [
        # Fails again and again: at once.
        (BEFORE, numbers(up=0, good=10, bad=2, shipped=9), 5, Outcome.FAILED),
        # One failed read is not enough, until the end.
        (BEFORE, numbers(up=0, good=10, bad=1, shipped=9), 5, Outcome.TRYING),
        (BEFORE, numbers(up=0, good=10, bad=1, shipped=9), 60, Outcome.FAILED),
        # One of many is none, also if it is the last.
        (BEFORE, numbers(up=0, good=19, bad=1, shipped=9), 60, Outcome.GOOD),
        # It failed before: no proof.
        (numbers(up=0, bad=9), numbers(up=0, bad=20, shipped=9), 60, Outcome.GOOD),
        # It was off before, and fails now.
        (numbers(up=None), numbers(up=0, bad=2, shipped=9), 5, Outcome.FAILED),
        # It is not read any more: it hangs.
        (BEFORE, numbers(up=None, good=10, shipped=9), 60, Outcome.FAILED),
    ],
)
def test_only_a_source_that_fails_newly_counts(
    before: Numbers, now: Numbers, elapsed: float, outcome: Outcome
) -> None:
    assert judged(before, now, elapsed).outcome is outcome


def test_a_source_that_is_seldom_read_is_not_waited_for() -> None:
    rare = AgentSettings(sources={"a": SourceSettings(interval_seconds=240)})
    now = numbers(up=None, good=10, shipped=9)
    found = judge(BEFORE, now, rare, elapsed_seconds=60, trial_seconds=60)
    assert found.outcome is Outcome.GOOD


def test_new_drops_count_and_those_of_a_full_spool_do_not() -> None:
    assert judged(BEFORE, numbers(good=20, shipped=9, buffer_full=3)).outcome is Outcome.FAILED
    assert judged(BEFORE, numbers(good=20, shipped=9, spool_full=3)).outcome is Outcome.GOOD
    before = numbers(good=10, shipped=5, buffer_full=10)
    assert judged(before, numbers(good=20, shipped=9, buffer_full=20)).outcome is Outcome.GOOD
    found = judged(before, numbers(good=20, shipped=9, buffer_full=21))
    assert found.outcome is Outcome.FAILED
    assert "rose by 11" in found.why


def test_what_the_service_refuses_newly_counts() -> None:
    now = numbers(good=20, shipped=9)
    refused = {Series(REFUSED, {"rule": "too_many_labels"}): 4.0}
    found = judged(BEFORE, msgspec.structs.replace(now, errors=refused))
    assert found.outcome is Outcome.FAILED
    assert "too_many_labels" in found.why


def test_a_service_that_is_away_is_no_proof_against_the_configuration() -> None:
    now = numbers(good=20, shipped=5)
    assert judged(BEFORE, now).outcome is Outcome.TRYING
    found = judged(BEFORE, now, elapsed=UNREACHED_SECONDS)
    assert found.outcome is Outcome.INTERRUPTED
    assert "took no batch" in found.why
