"""What a trouble costs where another one of the same job stood just before or after it. Pure.

A job's usual step is taken from just before and just after a trouble. Where another trouble stood
there, those steps were slow as well, and held against them this one would cost too little: the
steps beyond that other trouble are the usual ones. Where none of these was read, and of lateness,
which was played and held against the slow ones, it is said that it cost at least so much.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.judge.words import summary
from alerts.signals.step_times import MEASURED_SHARE, Span, cost_by_steps, step_times
from alerts.window.model import JobWindow, Window
from collector.contract.cause_facts import Family
from collector.contract.units import NS
from collector.contract.verdict import Cost, Verdict

TURN_NS = 15 * NS
"""One that ends no later than this after another began has given way to it. Of two that go on
beside each other steps are slow by both, and neither costs what they became longer by."""


def costs_apart(window: Window, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The same verdicts, with their costs against steps in which no other of them stood."""
    return [apart(window, one, verdicts) for one in verdicts]


def apart(window: Window, verdict: Verdict, verdicts: Sequence[Verdict]) -> Verdict:
    costs = tuple(cost_apart(window, verdict, cost, verdicts) for cost in verdict.costs)
    if costs == verdict.costs:
        return verdict
    changed = msgspec.structs.replace(verdict, costs=costs)
    return msgspec.structs.replace(changed, summary=summary(changed))


def cost_apart(window: Window, verdict: Verdict, cost: Cost, verdicts: Sequence[Verdict]) -> Cost:
    end_ns = end_of(window, verdict)
    others = [
        (one.since_ns, end_of(window, one))
        for one in verdicts
        if cost.job in one.jobs
        and (gives_way(window, one, verdict) or gives_way(window, verdict, one))
    ]
    jobs = [one for one in window.jobs if one.job == cost.job]
    if not others or not jobs or cost.step_seconds is None:
        return cost
    if verdict.cause.facts.family is Family.RANK:
        is_low = is_held_low(jobs[0], verdict.since_ns, end_ns, others)
        return msgspec.structs.replace(cost, is_at_least=cost.is_at_least or is_low)
    found = cost_by_steps(jobs[0], verdict.since_ns, end_ns, cost.lost_seconds, apart=others)
    if found.step_seconds is None:
        return msgspec.structs.replace(cost, is_at_least=True)
    # Another trouble only hides what this one costs.
    return found if found.lost_seconds > cost.lost_seconds else cost


def is_held_low(job: JobWindow, since_ns: int, end_ns: int, others: Sequence[Span]) -> bool:
    """Whether what was played was held against steps that others made longer.

    What it was before is not known any more, so it cannot be held against calm steps here.
    """
    held = step_times(job, since_ns, end_ns)
    if held is None:
        return False
    calm = step_times(job, since_ns, end_ns, others)
    return calm is None or held.usual > (1.0 + MEASURED_SHARE) * calm.usual


def gives_way(window: Window, one: Verdict, other: Verdict) -> bool:
    """Whether the one is over as the other begins."""
    is_earlier = one.since_ns < other.since_ns
    return is_earlier and end_of(window, one) <= other.since_ns + TURN_NS


def end_of(window: Window, verdict: Verdict) -> int:
    return window.to_ns if verdict.until_ns is None else verdict.until_ns
