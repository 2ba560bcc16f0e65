"""When a job's collectives took longer than usual to move their bytes. Pure.

A kind is a communicator, an operation and a size: what should take the same time again and again.
Only the time after the last rank had entered counts (transfer), so no rank is blamed for waiting.

Times of collectives scatter, to one side and by factors, and they do so in phases. The floor
separates a slow link from that: over a slow link nothing is fast any more. So a stretch of time is
slow when nearly all of it is above nearly all of the rest: its 20th percentile over the others'
80th. A single operation, however long, is never a stretch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import msgspec
import numpy as np

from alerts.window.columns import Flags, Floats, Ints, Operations
from alerts.window.model import JobWindow, Kind, Past
from alerts.window.split import distinct, starts_of
from alerts.window.statistics import middle, quantile, runs, spread
from collector.contract.figures import duration
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Evidence

TRANSFER = "collective_transfer"
"""The name of evidence on how long operations take after their last rank has come."""
SIZE_BYTES_MIN = 64 << 10
"""Smaller operations are bound by latency, not by a link: at 400 Gb/s this is a microsecond."""
RATIO_MIN = 1.15
"""Slower by less than this is not worth a word: links are shared, and clusters breathe."""
NOISE_RATIO = 1.5
"""Slower by less than this, with some as fast as ever in between, is as usual."""
EXCESS_NS_MIN = 200_000
"""The same in time: threads that see exits are scheduled to some ten microseconds each."""
OPERATIONS_MIN = 5
"""Slow operations of a stretch at least; three of one kind happen by chance in healthy jobs."""
FEW_MIN = 4
FEW_RATIO = 8.0
"""So few are enough where they took so many times longer than the others, beyond doubt."""
MANY = 12
"""As many slow operations in a row are no accident; of fewer more is asked for."""
USUAL_MIN = 2
"""Others to compare them with, where no long past is known."""
NEIGHBOURS = 5
"""Operations that a running median looks at: two outliers among five change nothing."""
GAP = 2
"""So many operations in between, as fast as usual, do not end a stretch."""
LOW, HIGH = 20.0, 80.0
"""Percentiles: nearly all of the slow ones must be over nearly all of the others."""
STRETCHES_MAX = 3
"""A kind that changes its pace more often does so by nature: it is left out."""
BRIEFER = 4
"""Unless what is over is so many times shorter than the longest: warm-ups, pauses for checkpoints
and profilers make a few operations slow each time, and must not hide a link that stays slow."""
OPENING_RATIO = 1.3
"""How much slower a stretch must be than what the window began with."""
OUTLIER = 20.0
"""An operation of so many medians of its stretch stood still: it is a stall, and counts for
nothing here."""
SIGMAS = 3.0
"""A stretch is clear by itself where the gap between nearly all of it and nearly all of the others
is so many times their scatter."""
SCATTER_MIN = 0.03
"""Of a kind, as a logarithm: what a quiet network does in the long run."""
SCATTER_OF_ONE = 0.5
"""Of a kind that was seen once, as shared machines show; falls with the root of the count."""
PAST_OPERATIONS_MIN = 10
"""A past of fewer is no past."""
PAST_RATIO = 1.3
"""Against the long past, whose scatter is not known, more is asked for."""
TOGETHER_SHARE = 0.2
"""Of what operations take too long, within which ranks leave together: behind one slow edge of a
ring they leave a step apart from each other, the first and the last by nearly half of it."""
COMPLETE_SHARE = 1 / 3
"""Where so many of a kind's operations have all their ranks, only those are looked at: without the
last rank's record the wait for it looks like transfer."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which one kind of operation was slow. Rows are of the job's operations, by time."""

    communicator: str
    operation: str
    size_bytes: int
    ranks: int
    slow: Ints
    usual: Ints
    slow_ns: float
    usual_ns: float
    """Median of the others, or of the long past."""
    low_ns: float
    """The 20th percentile in it: how fast it still is at best."""
    high_ns: float
    """The 80th percentile of the others: how slow they are at worst."""
    since_ns: int
    last_ns: int
    share: float
    """Of the kind's operations in the window."""
    goes_on: bool
    """The kind's last operation is in it."""
    is_complete: bool
    """All ranks of its operations were seen."""
    clarity: float
    """The gap between ``low_ns`` and ``high_ns``, in scatters (standard deviations, of logarithms)
    of a single operation."""

    @property
    def is_clear(self) -> bool:
        return self.clarity >= SIGMAS

    @property
    def ratio(self) -> float:
        return self.slow_ns / max(self.usual_ns, 1.0)

    @property
    def excess_ns(self) -> float:
        return self.slow_ns - self.usual_ns


class Kinds(msgspec.Struct, frozen=True, kw_only=True):
    """A job's operations by kind and time; ``start`` has the first row of each, and the end."""

    row: Ints
    """Rows of `Operations`."""
    start: Ints
    level: Floats
    """Transfer as a logarithm of nanoseconds."""
    running: Floats
    """Median of each and its neighbours in time, the lower one of two."""
    is_complete: Flags
    """For each kind: whether all its operations here have all their ranks."""

    def of(self, kind: int) -> slice:
        return slice(int(self.start[kind]), int(self.start[kind + 1]))


def slow_stretches(job: JobWindow, kinds: Kinds | None = None) -> list[Stretch]:
    """Every stretch of every kind, the most excessive first; ``kinds``: where they are at hand."""
    operations = job.operations
    kinds = sorted_kinds(operations) if kinds is None else kinds
    past = own_past(job.past)
    found: list[Stretch] = []
    for kind in changing(operations, kinds, past):
        found += stretches_of(operations, kinds, kind, past)
    return sorted(
        found, key=lambda one: (-one.ratio, one.communicator, one.operation, one.since_ns)
    )


def shown_size(size_bytes: int) -> str:
    """A size for people; empty for one that is not known.

    >>> shown_size(8 << 20), shown_size(1000), shown_size(1536), shown_size(ABSENT)
    ('8 MiB', '1000 bytes', '1.5 KiB', '')
    """
    if size_bytes < 0 or size_bytes == ABSENT:
        return ""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes} bytes"


def slower_by(evidence: Iterable[Evidence]) -> float | None:
    """How many times as long as usual transfers take; None where no usual time is known."""
    for one in evidence:
        if one.metric == TRANSFER and one.baseline is not None and one.value > one.baseline > 0:
            return one.value / one.baseline
    return None


def together_evidence(job: JobWindow, stretch: Stretch) -> list[Evidence]:
    """That all ranks leave the slow operations at once, if they do: then none can be told by it."""
    rows, operations = stretch.slow, job.operations
    apart_ns = float(np.median(operations.last_exit_ns[rows] - operations.first_exit_ns[rows]))
    if apart_ns > TOGETHER_SHARE * stretch.excess_ns:
        return []
    text = (
        f"All ranks leave within {duration(apart_ns / NS)} of each other, though it takes "
        f"{duration(stretch.excess_ns / NS)} longer: as in trees, and where switches add up, all "
        "wait for the slowest part alike, and times accuse none."
    )
    return [
        Evidence(
            metric="exit_spread",
            text=text,
            value=apart_ns / NS,
            baseline=stretch.excess_ns / NS,
            unit="seconds",
            from_ns=stretch.since_ns,
            to_ns=stretch.last_ns,
            labels={"job": job.job, "communicator": stretch.communicator},
            samples=len(rows),
        )
    ]


def own_past(past: Mapping[Kind, Past]) -> dict[Kind, Past]:
    """What is known of the past of one kind alone.

    The long past is kept by classes of sizes. Kinds of one class have one past between them, which
    is a mixture of theirs and holds for none of them.
    """
    times: dict[tuple[str, str, float], int] = {}
    for (communicator, operation, _), known in past.items():
        key = (communicator, operation, known.transfer_ns)
        times[key] = times.get(key, 0) + 1
    return {
        kind: known
        for kind, known in past.items()
        if times[kind[0], kind[1], known.transfer_ns] == 1
        and known.operations >= PAST_OPERATIONS_MIN
        and 0 < known.transfer_ns < math.inf
    }


def sorted_kinds(operations: Operations) -> Kinds:
    """Operations that a link's speed shows in, by kind and time of the last entry."""
    size = operations.size_bytes
    # In the same order whatever order the rows came in: nothing below may depend on that.
    order = np.lexsort(
        (
            operations.sequence,
            operations.last_entry_ns,
            size,
            operations.operation,
            operations.communicator,
        )
    )
    order = order[((size >= SIZE_BYTES_MIN) | (size == ABSENT))[order]]
    order, is_complete = complete_ones(operations, order.astype(np.int64))
    if not len(order):
        nothing = np.zeros(0, dtype=np.int64)
        empty = np.zeros(0)
        return Kinds(
            row=nothing,
            start=np.zeros(1, dtype=np.int64),
            level=empty,
            running=empty,
            is_complete=np.zeros(0, dtype=bool),
        )
    _, kind = kinds_of(operations, order)
    level = np.log(np.maximum(operations.transfer_ns[order], 1).astype(np.float64))
    return Kinds(
        row=order,
        start=np.append(starts_of(kind), len(order)),
        level=level,
        running=running_medians(level, kind),
        is_complete=is_complete,
    )


def kinds_of(operations: Operations, rows: Ints) -> tuple[Ints, Ints]:
    return distinct(
        operations.communicator[rows], operations.operation[rows], operations.size_bytes[rows]
    )


def complete_ones(operations: Operations, order: Ints) -> tuple[Ints, Flags]:
    """Those with all ranks, of kinds that have enough of them; and which kinds these are."""
    if not len(order):
        return order, np.zeros(0, dtype=bool)
    _, kind = kinds_of(operations, order)
    whole = operations.ranks_seen[order] >= operations.ranks[order]
    has_enough: Flags = np.bincount(kind, whole) >= COMPLETE_SHARE * np.bincount(kind)
    return order[whole | ~has_enough[kind]], has_enough


def running_medians(level: Floats, kind: Ints) -> Floats:
    """Of each operation and its neighbours of the same kind, the lower one of two; sorted by kind.

    At the ends of a kind there are fewer neighbours, and the lower one errs on the side of calm.
    """
    half = NEIGHBOURS // 2
    place = np.arange(len(level))[:, None] + np.arange(-half, half + 1)[None, :]
    inside = (place >= 0) & (place < len(level))
    place = np.clip(place, 0, len(level) - 1)
    same = inside & (kind[place] == kind[:, None])
    ordered = np.sort(np.where(same, level[place], np.inf), axis=1)
    middle: Floats = ordered[np.arange(len(level)), (same.sum(axis=1) - 1) // 2]
    return middle


def changing(operations: Operations, kinds: Kinds, past: Mapping[Kind, Past]) -> list[int]:
    """Kinds whose pace changed in the window or since the past: few, and all work is on them."""
    starts = kinds.start[:-1]
    if not len(starts):
        return []
    highest = np.maximum.reduceat(kinds.running, starts)
    lowest = np.minimum.reduceat(kinds.running, starts)
    chosen = highest - lowest >= math.log(RATIO_MIN)
    if past:
        known = [past.get(kind_of(operations, kinds, kind)) for kind in range(len(starts))]
        usual = np.array([one.transfer_ns if one else np.inf for one in known])
        chosen |= highest >= np.log(np.maximum(usual, 1.0) * PAST_RATIO)
    return [int(kind) for kind in np.flatnonzero(chosen & (np.diff(kinds.start) >= FEW_MIN))]


def kind_of(operations: Operations, kinds: Kinds, kind: int) -> Kind:
    row = kinds.row[kinds.start[kind]]
    name = operations.communicators[operations.communicator[row]]
    operation = operations.operations[operations.operation[row]]
    return name, operation, int(operations.size_bytes[row])


def stretches_of(
    operations: Operations, kinds: Kinds, kind: int, past: Mapping[Kind, Past]
) -> list[Stretch]:
    places = kinds.of(kind)
    level, running = kinds.level[places], kinds.running[places]
    before = past.get(kind_of(operations, kinds, kind))
    border = dividing_line(running)
    if before is not None:
        # Where the whole window is slow its own halves are no comparison: the past is.
        known = math.log(before.transfer_ns * PAST_RATIO)
        border = known if known < float(running.min()) else border
    found = [grown(level, border, *run) for run in runs(running > border, gap=GAP)]
    found = [run for run in found if run[1] - run[0] + 1 >= FEW_MIN]
    if len(found) > STRETCHES_MAX:
        found = without_brief(found)
    if not 0 < len(found) <= STRETCHES_MAX:
        return []
    inside = np.zeros(len(level), dtype=bool)
    for first, last in found:
        inside[first : last + 1] = True
    if before is None:
        found = after_the_opening(level, found)
    # What is slow for a moment only is what usually happens, too.
    usual = np.flatnonzero(~inside)
    made = [to_stretch(operations, kinds, kind, run, (usual, before)) for run in found]
    return [one for one in made if one is not None]


def without_brief(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The stretches that are not far shorter than the longest one."""
    longest = max(last - first + 1 for first, last in found)
    return [run for run in found if BRIEFER * (run[1] - run[0] + 1) > longest]


def after_the_opening(level: Floats, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without what the window begins with, and without what is no slower than that.

    A kind that is slow, fast and slow again was fast for a while: that others fill links less is
    no fault, and neither is that they come back.
    """
    if not found or found[0][0] >= USUAL_MIN:
        return found
    first, last = found[0]
    opening = middle(level[first : last + 1]) + math.log(OPENING_RATIO)
    return [run for run in found[1:] if middle(level[run[0] : run[1] + 1]) > opening]


def dividing_line(values: Floats) -> float:
    """Where to cut values into two groups so that these differ most from each other (Otsu)."""
    ordered = np.sort(values)
    count = len(ordered)
    below = np.arange(1, count)
    total = np.cumsum(ordered)
    mean_below = total[:-1] / below
    mean_above = (total[-1] - total[:-1]) / (count - below)
    between = below * (count - below) * (mean_above - mean_below) ** 2
    cut = int(np.argmax(between))
    return float(ordered[cut] + ordered[cut + 1]) / 2


def grown(level: Floats, border: float, first: int, last: int) -> tuple[int, int]:
    """A stretch of running medians, to where its own operations begin and end to be slow."""
    while first > 0 and level[first - 1] > border:
        first -= 1
    while first < last and level[first] <= border:
        first += 1
    while last + 1 < len(level) and level[last + 1] > border:
        last += 1
    while last > first and level[last] <= border:
        last -= 1
    return first, last


def is_comparable(usual: Ints, run: tuple[int, int], count: int) -> bool:
    """Whether the others can show what is usual: some came before, or they are the larger part."""
    before = int((usual < run[0]).sum())
    return before >= USUAL_MIN or 2 * len(usual) >= count > USUAL_MIN


def to_stretch(
    operations: Operations,
    kinds: Kinds,
    kind: int,
    run: tuple[int, int],
    others: tuple[Ints, Past | None],
) -> Stretch | None:
    usual, past = others
    level = kinds.level[kinds.of(kind)]
    places = np.arange(run[0], run[1] + 1)
    moved = places[level[places] <= middle(level[places]) + math.log(OUTLIER)]
    # Connections begin slowly after a standstill: a few slow ones then are its aftermath.
    if len(moved) < FEW_MIN or (len(moved) < len(places) and len(moved) < MANY):
        return None
    if is_comparable(usual, run, len(level)):
        found = stretch_from(operations, kinds, kind, moved, usual=usual)
    elif past is not None:
        found = stretch_from(operations, kinds, kind, moved, past=past)
    else:
        return None
    is_slow = found.ratio >= RATIO_MIN and found.excess_ns >= EXCESS_NS_MIN
    is_enough = len(moved) >= OPERATIONS_MIN or (found.is_clear and found.ratio >= FEW_RATIO)
    return found if is_slow and is_enough and found.low_ns >= found.high_ns else None


def stretch_from(
    operations: Operations,
    kinds: Kinds,
    kind: int,
    places: Ints,
    *,
    usual: Ints | None = None,
    past: Past | None = None,
) -> Stretch:
    """These places of a kind against others of it (all, if not given), or against its past."""
    level, rows = kinds.level[kinds.of(kind)], kinds.row[kinds.of(kind)]
    others = np.setdiff1d(np.arange(len(level)), places) if usual is None else usual
    scatter = max(SCATTER_MIN, spread(level[places]), SCATTER_OF_ONE / math.sqrt(len(places)))
    if past is None:
        usual_ns = math.exp(middle(level[others]))
        high_ns = math.exp(quantile(level[others], HIGH / 100))
        scatter = max(scatter, spread(level[others]), SCATTER_OF_ONE / math.sqrt(len(others)))
    else:
        usual_ns, high_ns = past.transfer_ns, past.transfer_ns * PAST_RATIO
    low_ns = math.exp(quantile(level[places], LOW / 100))
    row = rows[places[0]]
    return Stretch(
        communicator=operations.communicators[operations.communicator[row]],
        operation=operations.operations[operations.operation[row]],
        size_bytes=int(operations.size_bytes[row]),
        ranks=int(operations.ranks[row]),
        slow=rows[places],
        usual=rows[others],
        slow_ns=math.exp(middle(level[places])),
        usual_ns=usual_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        since_ns=int(operations.last_entry_ns[row]),
        last_ns=int(operations.last_exit_ns[rows[places[-1]]]),
        share=len(places) / len(level),
        goes_on=bool(places[-1] >= len(level) - 1 - GAP),
        is_complete=bool(kinds.is_complete[kind]),
        clarity=math.log(low_ns / high_ns) / scatter,
    )


class Company(msgspec.Struct, frozen=True, kw_only=True):
    """How a job's communicators did in some stretch of time, against the rest of the window.

    Those of which too little is known are in neither.
    """

    slower: list[Stretch]
    """By kind, the slowest first."""
    as_usual: frozenset[str]


def company_in(
    job: JobWindow,
    since_ns: int,
    last_ns: int,
    wanted: Collection[str] | None = None,
    excess_per_byte: float = math.inf,
) -> Company:
    """Which communicators (of the wanted ones) were slower in this time, and which were not.

    Less is asked for than of a stretch that had to be looked for: the time is given. One that moves
    so little that what is slow (``excess_per_byte``: nanoseconds) would hardly show in it is not as
    usual: it says nothing.
    """
    operations = job.operations
    kinds = sorted_kinds(operations)
    entry = operations.last_entry_ns[kinds.row]
    inside = (entry >= since_ns) & (entry <= last_ns)
    count = len(kinds.start) - 1
    number = np.repeat(np.arange(count), np.diff(kinds.start))
    during = np.bincount(number[inside], minlength=count)
    otherwise = np.bincount(number[~inside], minlength=count)
    slower: list[Stretch] = []
    calm: set[str] = set()
    for kind in np.flatnonzero((during >= USUAL_MIN) & (otherwise >= USUAL_MIN)).tolist():
        if wanted is not None and kind_of(operations, kinds, kind)[0] not in wanted:
            continue
        chosen = inside[kinds.of(kind)]
        found = stretch_from(operations, kinds, kind, np.flatnonzero(chosen))
        is_noise = found.ratio < NOISE_RATIO and found.low_ns < found.usual_ns
        if is_noise or found.ratio < RATIO_MIN or found.excess_ns < EXCESS_NS_MIN:
            moved = float(operations.bus_bytes[found.slow[0]])
            if not moved or moved * excess_per_byte >= (NOISE_RATIO - 1.0) * found.usual_ns:
                calm.add(found.communicator)
        elif found.low_ns >= found.usual_ns and len(found.slow) >= FEW_MIN:
            slower.append(found)
    calm -= {one.communicator for one in slower}
    slower.sort(key=lambda one: (-one.ratio, one.communicator, one.operation))
    return Company(slower=slower, as_usual=frozenset(calm))
