"""Whether a trial goes well: the agent's own numbers since the change against those before. Pure.

Only what is new counts. A source that failed before the change proves nothing, nor does an error
that had been counted as often before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from collector.agent.schedule import UP
from collector.agent.settings import AgentSettings
from collector.contract.model import Sample, Series
from collector.contract.rollout import Outcome

READS: Final = "fabric_agent_source_reads_total"
SHIPPED: Final = Series("fabric_agent_shipped_batches_total")
FAILED_READS_MIN: Final = 2
"""Failed reads that outnumber the others: one may be a device that is busy for a moment."""
UNREACHED_SECONDS: Final = 120.0
"""A service takes a batch every few seconds; two minutes are a restart of it, and more."""
INTERVALS_UNREAD: Final = 2
"""Intervals after which a source that was not read at all counts as failing."""
ERRORS: Final[Mapping[str, frozenset[str]]] = {
    "fabric_agent_dropped_samples_total": frozenset({"buffer_full", "batch_too_large"}),
    "fabric_agent_refused_samples_total": frozenset(),
    "fabric_agent_rejected_batches_total": frozenset(),
}
"""Counters that a configuration can make rise, and their labels; none: any. A full spool or disk is
the service's or the host's trouble, and proves nothing against a configuration."""


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's own numbers at one moment that a trial is judged by."""

    up: dict[str, float]
    """By source; absent: it was not read yet, or is off."""
    read: dict[tuple[str, bool], float]
    """By source and whether the read was good."""
    errors: dict[Series, float]
    shipped: float

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Numbers:
        up: dict[str, float] = {}
        read: dict[tuple[str, bool], float] = {}
        errors: dict[Series, float] = {}
        shipped = 0.0
        for sample in samples:
            metric, labels = sample.series.metric, dict(sample.series.labels)
            if metric == UP:
                up[labels["source"]] = sample.value
            elif metric == READS:
                key = labels["source"], labels["result"] == "ok"
                read[key] = read.get(key, 0.0) + sample.value
            elif sample.series == SHIPPED:
                shipped = sample.value
            elif metric in ERRORS:
                counted = ERRORS[metric]
                if not counted or counted & set(labels.values()):
                    errors[sample.series] = sample.value
        return cls(up=up, read=read, errors=errors, shipped=shipped)


class Judgement(msgspec.Struct, frozen=True):
    """What becomes of a trial, and why."""

    outcome: Outcome
    why: str = ""


def judge(
    before: Numbers,
    now: Numbers,
    settings: AgentSettings,
    *,
    elapsed_seconds: float,
    trial_seconds: float,
) -> Judgement:
    """TRYING while nothing is decided; ``settings`` are those on trial."""
    is_over = elapsed_seconds >= trial_seconds
    if why := fault_in_sources(before, now, settings, elapsed_seconds, is_over=is_over):
        return Judgement(Outcome.FAILED, why)
    if why := fault_in_errors(before, now):
        return Judgement(Outcome.FAILED, why)
    if now.shipped <= before.shipped:
        # Not before two batches were due: flush_seconds may be long.
        patience = max(UNREACHED_SECONDS, 2 * settings.flush_seconds)
        if elapsed_seconds < patience:
            return Judgement(Outcome.TRYING)
        return Judgement(Outcome.INTERRUPTED, f"the service took no batch in {patience:g} s")
    return Judgement(Outcome.GOOD if is_over else Outcome.TRYING)


def fault_in_sources(
    before: Numbers, now: Numbers, settings: AgentSettings, elapsed_seconds: float, *, is_over: bool
) -> str:
    """The first source that fails since the change and did not before; empty: none does."""
    for name, chosen in sorted(settings.sources.items()):
        if not chosen.enabled or before.up.get(name) == 0:
            continue
        good, bad = (
            now.read.get((name, is_good), 0.0) - before.read.get((name, is_good), 0.0)
            for is_good in (True, False)
        )
        is_failing = now.up.get(name) == 0 and bad > good
        if is_failing and (bad >= FAILED_READS_MIN or is_over):
            return f"source {name} fails since the change: {bad:g} of {good + bad:g} reads"
        due_seconds = INTERVALS_UNREAD * chosen.interval_seconds + chosen.timeout_seconds
        if is_over and not good + bad and elapsed_seconds > due_seconds:
            return f"source {name} was not read in {elapsed_seconds:.0f} s"
    return ""


def fault_in_errors(before: Numbers, now: Numbers) -> str:
    """The first error counter that rose by more than all that it had counted before."""
    for series, value in sorted(now.errors.items(), key=lambda item: str(item[0])):
        was = before.errors.get(series, 0.0)
        if value - was > was:
            kind = ", ".join(f"{name} {label}" for name, label in series.labels)
            return f"{series.metric} rose by {value - was:g} since the change ({kind})"
    return ""
