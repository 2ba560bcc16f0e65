"""What a trouble costs where another one of the same job ended as it began. Pure.

A job's usual step is taken from just before a trouble. Where another trouble stood there, those
steps were slow as well, and held against them the new one would cost too little: the steps before
that other trouble are the usual ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.judge.words import summary
from alerts.signals.step_times import cost_by_steps
from alerts.window.model import Window
from collector.contract.cause_facts import Family
from collector.contract.units import NS
from collector.contract.verdict import Cost, Verdict

TURN_NS = 15 * NS
"""One that ends no later than this after another began has given way to it. With one that goes on
beside it, steps are slow by both, and none of them alone costs what they became longer by."""


def costs_apart(window: Window, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The same verdicts, with their costs against steps in which no other of them stood.

    Lateness is played, and not measured by steps: what that costs stays.
    """
    return [one if one.cause.facts.family is Family.RANK else apart(window, one, verdicts)
            for one in verdicts]  # fmt: skip


def apart(window: Window, verdict: Verdict, verdicts: Sequence[Verdict]) -> Verdict:
    costs = tuple(cost_apart(window, verdict, cost, verdicts) for cost in verdict.costs)
    if costs == verdict.costs:
        return verdict
    changed = msgspec.structs.replace(verdict, costs=costs)
    return msgspec.structs.replace(changed, summary=summary(changed))


def cost_apart(window: Window, verdict: Verdict, cost: Cost, verdicts: Sequence[Verdict]) -> Cost:
    before = [
        (one.since_ns, one.until_ns)
        for one in verdicts
        if cost.job in one.jobs
        and one.since_ns < verdict.since_ns
        and one.until_ns is not None
        and one.until_ns <= verdict.since_ns + TURN_NS
    ]
    jobs = [one for one in window.jobs if one.job == cost.job]
    if not before or not jobs or cost.step_seconds is None:
        return cost
    last_ns = window.to_ns if verdict.until_ns is None else verdict.until_ns
    found = cost_by_steps(jobs[0], verdict.since_ns, last_ns, cost.lost_seconds, apart=before)
    # Another trouble only hides what this one costs.
    is_known = found.step_seconds is not None and found.lost_seconds > cost.lost_seconds
    return found if is_known else cost
