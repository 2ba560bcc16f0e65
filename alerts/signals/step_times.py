"""What a job's steps took in a slow time, and what they took beside it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.window.model import JobWindow
from alerts.window.slices import whole_steps
from collector.contract.units import NS
from collector.contract.verdict import Cost

Span = tuple[int, int]
"""From when to when; unix nanoseconds."""

STEPS_MIN = 3
"""Steps of each kind before their lengths are compared."""
STEPS_BESIDE = 20
"""Steps on each side of a slow time that say what is usual."""

TOLD_SECONDS = 60.0
TOLD_SHARE = 0.1
"""How long a job must be slow, and by which share of its steps at least, before it is said that it
is where no part can be named: nobody can act on a moment, or on little, without a name."""
TOLD_OUTSIDE = 0.5
"""Of what steps are longer, that may lie outside of transfers."""
MEASURED_SHARE = 0.01
"""Of a step: the medians of two healthy stretches differ by some tenths of a percent."""


class StepTimes(msgspec.Struct, frozen=True):
    """Medians, in seconds."""

    slow: float
    usual: float
    slow_outside: float
    """Of a step: outside of collectives, or waiting for other ranks in them."""
    usual_outside: float
    count: int
    """The slow ones that were read."""


def step_times(
    job: JobWindow, since_ns: int, last_ns: int, apart: Sequence[Span] = ()
) -> StepTimes | None:
    """By the steps that were read whole; None where too few are known.

    Usual is what they took just before and just after: further away there may be other trouble.
    Steps in the times ``apart`` are not usual: in these another trouble stood.
    """
    columns = sorted(
        (step.end_ns, step.start_ns, step.compute_ns + step.wait_ns) for step in job.steps
    )
    ends, starts, outside = np.array(columns, dtype=np.int64).reshape(-1, 3).T
    known = whole_steps(job.slices, starts, ends) & (ends > starts)
    ends, starts, outside = ends[known], starts[known], outside[known]
    slow = np.flatnonzero((starts < last_ns) & (ends > since_ns))
    free = np.ones(len(ends), dtype=bool)
    for first_ns, end_ns in apart:
        free &= (ends <= first_ns) | (starts >= end_ns)
    before = np.flatnonzero(free & (ends <= since_ns))[-STEPS_BESIDE:]
    after = np.flatnonzero(free & (starts >= last_ns))[:STEPS_BESIDE]
    beside = np.concatenate([before, after])
    if min(len(slow), len(beside)) < STEPS_MIN:
        return None
    length = ends - starts
    return StepTimes(
        slow=float(np.median(length[slow])) / NS,
        usual=float(np.median(length[beside])) / NS,
        slow_outside=float(np.median(outside[slow])) / NS,
        usual_outside=float(np.median(outside[beside])) / NS,
        count=len(slow),
    )


def as_measured(
    cost: Cost, job: JobWindow, since_ns: int, last_ns: int, waited_s: float = 0.0
) -> Cost:
    """A cost that was played, held against what the steps became longer by.

    Never more than that: ranks that compute while their collective waits for a late one lose less
    than it is late by, and are played as if they stood still. Less than MEASURED_SHARE of a step
    cannot be told from noise, and stays.

    ``waited_s``: how long others were seen to wait in a step, where what is played hides too much.
    """
    times = step_times(job, since_ns, last_ns)
    step, without = cost.step_seconds, cost.step_seconds_without
    if times is None or step is None or without is None or without >= step:
        return cost
    most = max(times.slow - times.usual, MEASURED_SHARE * times.usual)
    share = min(most, max(step - without, waited_s)) / (step - without)
    return msgspec.structs.replace(
        cost,
        lost_seconds=share * cost.lost_seconds,
        step_seconds_without=step - share * (step - without),
        lost_share=share * cost.lost_share,
        gpu_hours=share * cost.gpu_hours,
    )


def cost_by_steps(
    job: JobWindow, since_ns: int, last_ns: int, lost_s: float, apart: Sequence[Span] = ()
) -> Cost:
    """What the job lost: by its steps, or ``lost_s`` where too few of these are known."""
    lasted = max((last_ns - since_ns) / NS, 1e-9)
    times = step_times(job, since_ns, last_ns, apart)
    if times is not None:
        # What was not read lost as much as what was.
        count = max(times.count, lasted / times.slow) if job.slices else times.count
        lost_s = max(0.0, times.slow - times.usual) * count
    lost_s = min(lost_s, lasted)
    return Cost(
        job=job.job,
        lost_seconds=lost_s,
        step_seconds=None if times is None else times.slow,
        step_seconds_without=None if times is None else times.usual,
        lost_share=lost_s / lasted,
        gpu_hours=lost_s * job.size / 3600,
    )


def is_worth_telling(job: JobWindow, since_ns: int, last_ns: int) -> bool:
    """Whether people must hear that a job is slow by its transfers, though none is to be blamed.

    Not where ranks compute longer or wait for each other: transfers that take longer beside that
    may be its effect, as with longer sequences.
    """
    times = step_times(job, since_ns, last_ns)
    if times is None or (last_ns - since_ns) / NS < TOLD_SECONDS:
        return False
    more = times.slow - times.usual
    outside = times.slow_outside - times.usual_outside
    return more >= TOLD_SHARE * times.usual and outside <= TOLD_OUTSIDE * more
