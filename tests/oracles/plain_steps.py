"""Steps of a job rank by rank and step by step: what `alerts.window.steps` does for all at once."""

from __future__ import annotations

from itertools import chain

import msgspec
import numpy as np

from alerts.window import steps
from alerts.window.columns import Floats, Ints, Step
from alerts.window.split import distinct, medians, reduced, starts_of
from alerts.window.statistics import middle
from alerts.window.steps import (
    JUMP_STEPS,
    LOOKED_AT_MAX,
    Bounds,
    Spent,
    Work,
    find_pattern,
)
from collector.contract.records import ABSENT


class Rhythm(steps.Rhythm, frozen=True, kw_only=True):
    own: Work


def infer_bounds(work: Work) -> Bounds | None:
    """Where steps begin and end on each rank, numbered alike on all; None if nothing repeats."""
    patterns: dict[bytes, Ints | None] = {}
    each = [find_rhythm(own, patterns) for own in by_rank(work)]
    rhythms = [rhythm for rhythm in each if rhythm is not None]
    seam = steps.find_seam([*rhythms])
    found = [bounds for rhythm in rhythms if (bounds := bounds_of_rank(rhythm, seam)) is not None]
    if not found:
        return None
    reference = max(found, key=len)
    aligned = [renumbered(bounds, reference) for bounds in found]
    lowest = min(int(bounds.number.min()) for bounds in aligned)
    columns = {
        name: np.concatenate([getattr(bounds, name) for bounds in aligned])
        for name in ("rank", "number", "start_ns", "end_ns")
    }
    columns["number"] = columns["number"] - lowest
    return Bounds(**columns)


def by_rank(work: Work) -> list[Work]:
    starts = starts_of(work.rank.astype(np.int64))
    ends = [*starts[1:].tolist(), len(work)][: len(starts)]
    return [
        work.select(slice(start, end)) for start, end in zip(starts.tolist(), ends, strict=True)
    ]


def find_rhythm(own: Work, patterns: dict[bytes, Ints | None] | None = None) -> Rhythm | None:
    """How this rank's operations repeat; None if they do not.

    In the order of the program, where it is known: kernels on several streams take turns. Most
    ranks run the same program: ``patterns`` keeps what was found for the same operations.
    """
    if (own.enqueue_ns != ABSENT).all():
        own = own.select(np.argsort(own.enqueue_ns, kind="stable"))
    looked_at: Work = unbroken(own).select(slice(LOOKED_AT_MAX))
    patterns = {} if patterns is None else patterns
    program = looked_at.kind.tobytes()
    if program not in patterns:
        patterns[program] = find_pattern(looked_at.kind)
    pattern = patterns[program]
    if pattern is None:
        return None
    away, period = away_before(looked_at), len(pattern)
    place = np.arange(len(away)) % period
    # The first period is warm-up: it says little about how long a rank usually stays away.
    usual = medians(away[period:], place[period:])
    return Rhythm(own=own, pattern=pattern, away_ns=usual)


def unbroken(own: Work) -> Work:
    """The longest stretch in which no stream's numbers jump.

    Between two slices of time (`alerts.window.slices`) steps are cut anywhere, and a pattern over
    both would be one of neither.
    """
    order = np.argsort(own.stream, kind="stable")
    stream, sequence = own.stream[order], own.sequence[order]
    same = np.flatnonzero(stream[1:] == stream[:-1])
    if not len(same):
        return own
    further = np.maximum(sequence[same + 1] - sequence[same], 0)
    _, group = distinct(stream[same])
    jumps = further > JUMP_STEPS * np.maximum(medians(further, group)[group], 1)
    if not jumps.any():
        return own
    edges = np.unique([0, *order[same[jumps] + 1].tolist(), len(own)])
    longest = int(np.argmax(np.diff(edges)))
    stretch: Work = own.select(slice(int(edges[longest]), int(edges[longest + 1])))
    return stretch


def away_before(own: Work) -> Ints:
    """How long the rank was away from collectives before each: on the GPU and in the program.

    The shorter of the two counts. A program may launch operations long before they run; and of
    trees some ranks' kernels are seen to end early, with nothing but waiting after them.
    """
    away = np.zeros(len(own), dtype=np.int64)
    away[1:] = own.entry_ns[1:] - np.maximum.accumulate(own.exit_ns)[:-1]
    launched = own.enqueue_ns
    if (launched != ABSENT).all():
        away[1:] = np.minimum(away[1:], np.diff(launched))
    return away


def bounds_of_rank(rhythm: Rhythm, seam: tuple[int, int]) -> Bounds | None:
    """One rank's steps, numbered from the first whole one; None if it has no such seam."""
    start = find_start(rhythm, seam)
    if start is None:
        return None
    own = rhythm.own
    number = count_steps(own, start, rhythm.period)
    order = np.argsort(number, kind="stable")
    firsts = starts_of(number[order] - number[order][0])
    ends = reduced(np.maximum, own.exit_ns[order], firsts)
    entries = reduced(np.minimum, own.entry_ns[order], firsts)
    # A step begins where the one before ended: what a rank computes before its first collective
    # belongs to it. For the first step nobody knows when that began.
    begins = np.append(entries[:1], np.maximum.accumulate(ends)[:-1])
    numbers = number[order][firsts]
    gaps = np.diff(numbers, prepend=numbers[0] - 1) > 1
    begins[gaps] = entries[gaps]
    return Bounds(
        rank=np.full(len(numbers), own.rank[0], dtype=np.int32),
        number=numbers,
        start_ns=np.minimum(begins, ends),
        end_ns=ends,
    )


def find_start(rhythm: Rhythm, seam: tuple[int, int]) -> int | None:
    """The first operation that begins a whole step at this seam."""
    places = np.flatnonzero((rhythm.before == seam[0]) & (rhythm.pattern == seam[1]))
    if not len(places):
        return None
    begin = int(places[np.argmax(rhythm.away_ns[places])])
    pattern, kinds = np.roll(rhythm.pattern, -begin), rhythm.own.kind[:LOOKED_AT_MAX]
    last = len(kinds) - rhythm.period
    # Where records were lost, the places are others: then every operation may begin a step.
    for first in chain(range(begin, last + 1, rhythm.period), range(last + 1)):
        if (kinds[first : first + rhythm.period] == pattern).all():
            return first
    return None


def count_steps(own: Work, start: int, period: int) -> Ints:
    """The step of each operation, by how far its stream has counted since the first whole step."""
    number = np.zeros(len(own), dtype=np.int64)
    whole = own.select(slice(start, start + period))
    streams, per_step = np.unique(whole.stream, return_counts=True)
    rare = np.full(len(own), fill_value=True)
    for stream, count in zip(streams, per_step, strict=True):
        rows = own.stream == stream
        first = int(whole.sequence[whole.stream == stream].min())
        counted = own.sequence[rows]
        # Flight Recorder counts operations of all kinds together, so that a step is further.
        further = counted[count:] - counted[:-count]
        number[rows] = (counted - first) // max(1, int(middle(further)) if len(further) else 1)
        rare &= ~rows
    if rare.any():
        # What does not belong to every step (an evaluation, a checkpoint's barrier) counts to the
        # step in which it happens.
        known = np.flatnonzero(~rare)
        before = np.searchsorted(known, np.flatnonzero(rare), side="right") - 1
        number[rare] = number[known[np.maximum(before, 0)]]
    return number


def renumbered(bounds: Bounds, reference: Bounds) -> Bounds:
    """The bounds with the reference's numbers, by which of its steps are nearest in time."""
    nearest = np.searchsorted(reference.end_ns, bounds.end_ns)
    nearest = np.clip(nearest, 0, len(reference) - 1)
    before = np.maximum(nearest - 1, 0)
    closer = np.abs(reference.end_ns[before] - bounds.end_ns) < np.abs(
        reference.end_ns[nearest] - bounds.end_ns
    )
    nearest = np.where(closer, before, nearest)
    shift = int(middle(reference.number[nearest] - bounds.number))
    return msgspec.structs.replace(bounds, number=bounds.number + shift)


def measure_steps(work: Work, bounds: Bounds) -> list[Step]:
    spent = measure_ranks(work, bounds)
    order = np.argsort(bounds.number, kind="stable")
    edges = np.flatnonzero(np.diff(bounds.number[order])) + 1
    return [summed(bounds, spent, rows) for rows in np.split(order, edges) if len(rows)]


def measure_ranks(work: Work, bounds: Bounds) -> Spent:
    """Where each rank's time went, step by step; an operation belongs to the step it ends in."""
    wait, transfer, waited_for = np.zeros((3, len(bounds)))
    ranks = np.unique(bounds.rank)
    first, last = (np.searchsorted(bounds.rank, ranks, side) for side in ("left", "right"))
    whole = {int(own.rank[0]): own for own in by_rank(work)}
    nobody: Work = work.select(slice(0))
    for number, rank in enumerate(ranks.tolist()):
        place = slice(first[number], last[number])
        steps = last[number] - first[number]
        own = whole.get(rank, nobody)
        # A step that ends before the one before it has nothing of its own.
        step = np.searchsorted(np.maximum.accumulate(bounds.end_ns[place]), own.exit_ns)
        inside = step < steps
        own, step = own.select(inside), step[inside]
        before, after = inside_times(own, bounds.start_ns[place][step])
        wait[place] = np.bincount(step, before, steps)
        transfer[place] = np.bincount(step, after, steps)
        waited_for[place] = np.bincount(step, own.skew_ns * own.is_last, steps)
    return Spent(wait_ns=wait, transfer_ns=transfer, waited_for_ns=waited_for)


def inside_times(own: Work, start_ns: Ints) -> tuple[Floats, Floats]:
    """Time in each collective before and after the last rank came, none of it counted twice.

    Collectives of one rank may overlap; what an earlier one covers is the earlier one's. Time
    before the step began is not counted.
    """
    ended = np.zeros(len(own), dtype=np.int64)
    ended[1:] = np.maximum.accumulate(own.exit_ns)[:-1]
    begin = np.maximum(np.maximum(own.entry_ns, ended), start_ns)
    turn = np.clip(own.waited_ns, begin, np.maximum(begin, own.exit_ns))
    wait = np.maximum(turn - begin, 0)
    transfer = np.maximum(own.exit_ns - turn, 0)
    return wait.astype(np.float64), transfer.astype(np.float64)


def summed(bounds: Bounds, spent: Spent, rows: Ints) -> Step:
    """One step from its rows of all ranks; medians, so that one odd rank does not hide it."""
    wait, transfer = middle(spent.wait_ns[rows]), middle(spent.transfer_ns[rows])
    # From the earliest on: whole times do not fit into a float's digits.
    base = int(bounds.start_ns[rows].min())
    start = base + int(middle(bounds.start_ns[rows] - base))
    end = base + int(middle(bounds.end_ns[rows] - base))
    waited_for = spent.waited_for_ns[rows]
    worst = int(np.argmax(waited_for))
    return Step(
        number=int(bounds.number[rows[0]]),
        start_ns=start,
        end_ns=end,
        ranks=len(rows),
        compute_ns=max(0, int(end - start - wait - transfer)),
        wait_ns=int(wait),
        transfer_ns=int(transfer),
        last_rank=int(bounds.rank[rows[worst]]) if waited_for[worst] > 0 else None,
    )
