"""Ranks times steps: what each rank did in each step, as one matrix. Pure.

A column is a step, or some steps that follow each other where there are more than are shown: then
each cell is the largest of them, so that one slow step in a thousand is still seen. Steps are those
of `alerts.window.steps`; the first and the last one of a window, which may be cut off, are left
out.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.window.columns import Floats, Ints
from alerts.window.split import distinct, medians
from alerts.window.steps import Bounds, Late, Spent, Work, measure_ranks
from api.jobs.correlate.window import JobCollectives, JobWork
from collector.contract.units import NS

WORST_SHARE = 4
"""Of ranks that must be chosen from, one in so many is shown because it stands out; the others are
evenly spread over the job."""


class Quantity(enum.StrEnum):
    """The value of a cell, in seconds.

    `late`: how much later than the median rank it entered, the worst of the step's collectives;
    below 0 it was early in all of them. `compute`: outside of collectives. `wait`: inside, before
    the last rank had come. `network`: inside, after that. `step`: all of it.
    """

    LATE = "late"
    COMPUTE = "compute"
    WAIT = "wait"
    NETWORK = "network"
    STEP = "step"


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """The matrix and what its rows and columns are; times are unix nanoseconds."""

    ranks: Ints
    number: Ints
    """Of each column its first step, counted from the first of the window."""
    start_ns: Ints
    end_ns: Ints
    steps_in_one: int = 1
    """Steps that a column stands for; the last one may have fewer."""
    values: Floats
    """[ranks, columns] in seconds; NaN where the rank was not seen."""


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """The whole steps of a window, as medians over some ranks."""

    number: Ints
    start_ns: Ints
    end_ns: Ints


def find_pulse(bounds: Bounds | None) -> Pulse | None:
    # Without the first and the last.
    numbers = np.unique(bounds.number)[1:-1] if bounds is not None else np.zeros(0, dtype=np.int64)
    if bounds is None or not len(numbers):
        return None
    inside = np.isin(bounds.number, numbers)
    step = np.searchsorted(numbers, bounds.number[inside]).astype(np.int64)
    end_ns = medians(bounds.end_ns[inside], step)
    return Pulse(
        number=numbers,
        start_ns=medians(bounds.start_ns[inside], step),
        end_ns=np.maximum.accumulate(end_ns),
    )


def step_in(pulse: Pulse, work: Work | Late) -> Ints:
    """By the last rank's entry: a late rank itself enters in the others' next step. -1: outside."""
    step = np.searchsorted(pulse.end_ns, work.waited_ns)
    inside = (step < len(pulse.number)) & (work.waited_ns > pulse.start_ns[0])
    return np.where(inside, step, -1)


def bounds_in(pulse: Pulse, work: Work) -> Bounds:
    step = step_in(pulse, work)
    own: Work = work.select(step >= 0)
    cell, which = np.unique(
        own.rank.astype(np.int64) * len(pulse.number) + step[step >= 0], return_inverse=True
    )
    end_ns = np.full(len(cell), np.iinfo(np.int64).min)
    start_ns = np.full(len(cell), np.iinfo(np.int64).max)
    np.maximum.at(end_ns, which, own.exit_ns)
    np.minimum.at(start_ns, which, own.entry_ns)
    rank, number = np.divmod(cell, len(pulse.number))
    follows = (np.diff(cell) == 1) & (np.diff(rank) == 0)
    start_ns[1:][follows] = end_ns[:-1][follows]
    is_first = number == 0
    start_ns[is_first] = np.minimum(start_ns[is_first], pulse.start_ns[0])
    return Bounds(
        rank=rank.astype(np.int32),
        number=number,
        start_ns=np.minimum(start_ns, end_ns),
        end_ns=end_ns,
    )


def heat_of(job: JobWork, quantity: Quantity, *, steps_max: int, ranks_max: int) -> HeatMap | None:
    """The matrix; None if the job shows no steps in this window.

    Where records were thinned (``window.kept_one_in``), `late` is of the operations that were kept,
    of all ranks, and everything else of all operations, of the ranks in ``window.members``.
    """
    window = job.window
    pulse = find_pulse(job.bounds)
    if pulse is None:
        return None
    together = -(-len(pulse.number) // steps_max)
    if quantity is Quantity.LATE:
        ranks, values = late_in(pulse, job.of_all)
        together = max(together, steps_of_one_kept(window, len(pulse.number)))
    else:
        ranks, spent = spent_in(pulse, job.of_members, [quantity])
        values = spent[quantity]
    whole = HeatMap(
        ranks=ranks,
        number=pulse.number,
        start_ns=pulse.start_ns,
        end_ns=pulse.end_ns,
        values=values / NS,
    )
    return fewer_ranks(put_together(whole, together), ranks_max)


def steps_of_one_kept(window: JobCollectives, steps: int) -> int:
    """How many steps that follow each other hold an operation that was kept.

    Operations are kept by their numbers, and each communicator counts each kind of its own by
    itself: the kind that comes most often in a step decides.
    """
    if window.kept_one_in == 1:
        return 1
    _, stream = distinct(window.operations.communicator, window.operations.operation)
    per_step = max(1, round(int(np.bincount(stream).max()) / steps))
    return -(-window.kept_one_in // per_step)


def spent_in(
    pulse: Pulse, work: Work, quantities: Sequence[Quantity]
) -> tuple[Ints, dict[Quantity, Floats]]:
    """Ranks, and [ranks, steps] of where their time went, in nanoseconds."""
    bounds = bounds_in(pulse, work)
    ranks = np.unique(bounds.rank).astype(np.int64)
    row = np.searchsorted(ranks, bounds.rank)
    spent = measure_ranks(work, bounds)
    found = {}
    for quantity in quantities:
        values = np.full((len(ranks), len(pulse.number)), np.nan)
        values[row, bounds.number] = spent_on(quantity, bounds, spent)
        found[quantity] = values
    return ranks, found


def spent_on(quantity: Quantity, bounds: Bounds, spent: Spent) -> Floats:
    took = (bounds.end_ns - bounds.start_ns).astype(np.float64)
    match quantity:
        case Quantity.WAIT:
            return spent.wait_ns
        case Quantity.NETWORK:
            return spent.transfer_ns
        case Quantity.COMPUTE:
            return np.maximum(took - spent.wait_ns - spent.transfer_ns, 0.0)
        case _:
            return took


def late_in(pulse: Pulse, work: Work | Late) -> tuple[Ints, Floats]:
    """Ranks, and [ranks, steps] of the worst that each was late by, in nanoseconds."""
    first, row = distinct(work.rank)
    late = np.full((len(first), len(pulse.number)), np.nan)
    step = step_in(pulse, work)
    inside = step >= 0
    # By one index: numpy takes ten times as long for two.
    cell = row[inside] * len(pulse.number) + step[inside]
    np.fmax.at(late.reshape(-1), cell, work.late_ns[inside].astype(np.float64))
    return work.rank[first].astype(np.int64), late


def put_together(heat: HeatMap, together: int) -> HeatMap:
    if together <= 1:
        return heat
    first = np.arange(0, len(heat.number), together)
    last = np.minimum(first + together, len(heat.number)) - 1
    return HeatMap(
        ranks=heat.ranks,
        number=heat.number[first],
        start_ns=heat.start_ns[first],
        end_ns=heat.end_ns[last],
        steps_in_one=together,
        values=np.fmax.reduceat(heat.values, first, axis=1),
    )


def fewer_ranks(heat: HeatMap, ranks_max: int) -> HeatMap:
    """The same of at most ``ranks_max`` ranks: outliers, and a sample of the others."""
    count = len(heat.ranks)
    if count <= ranks_max:
        return heat
    worst = np.nan_to_num(heat.values, nan=-np.inf).max(axis=1)
    chosen = np.zeros(count, dtype=bool)
    chosen[np.argsort(-worst, kind="stable")[: ranks_max // WORST_SHARE]] = True
    others = np.flatnonzero(~chosen)
    wanted = ranks_max - int(chosen.sum())
    chosen[others[np.arange(wanted) * len(others) // wanted]] = True
    return msgspec.structs.replace(heat, ranks=heat.ranks[chosen], values=heat.values[chosen])
