"""How slow steps of a job differ from normal ones: ranks, operations, readings, ranked. Pure.

Each candidate is one number for each step (a rank's own time beyond its peers, the transfer and the
waiting of one kind of collective) or for each cell of readings (a port's rate, a GPU's clock). Slow
and normal ones are compared by rank (Mann and Whitney): of all pairs, the share in which the slow
one is higher. One half is no difference, and neither outliers nor units matter. What stands out
must be beyond chance though many candidates were tried, beyond the scatter of normal steps, and of
a size that matters. Ranks come first, by what is their own, then transfers, then waiting, which
follows from both, then readings of machines.

A difference is no cause: ranks that wait do so because of another. That is why waiting is shown by
kind of operation, and ranks by what is their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from alerts.compare.blame import ROLE_SHARE, SLOWER_SHARE
from alerts.compare.sides import Side
from alerts.signals.gaps import OwnTime
from alerts.signals.transfer import shown_size
from alerts.window.columns import Columns, Floats, Ints
from alerts.window.messages import is_pairwise
from alerts.window.model import Things, Window
from alerts.window.split import distinct, reduced, starts_of
from alerts.window.statistics import NORMAL, spread
from collector.contract.records import ABSENT
from collector.contract.units import NS

SHOWN_MAX = 24
"""Differences in an answer, the first: a person reads no more."""
COUNT_MIN = 4
"""Steps, or cells of readings, of either side: fewer separate nothing from chance."""
COMPARED_MAX = 64
"""Steps or cells of either side that are compared with each other, spread over all."""
FALSE_MAX = 0.01
"""Differences that may be found by chance among all candidates together."""
SCATTERS = 3.0
"""By how many scatters of normal steps the medians must differ."""
STEP_SHARE_MIN = 0.01
"""Of a normal step: a duration that differs by less does not matter."""
READING_SHARE_MIN = 0.05
"""Of the larger of two readings, the same."""
LOW_QUANTILE = 0.25
"""The step that is taken for usual where slow ones are looked for: most may be slow."""


class StandsOut(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between slow and normal steps."""

    kind: str
    """`rank`, `operation`, `port`, `gpu` or `host`."""
    name: str
    """Of what: `rank 5 (node5)`, `all_reduce of 8 MiB`, `node3 mlx5_0 1`."""
    what: str
    """Which number: `own time beyond its peers`, `transfer`, a reading's metric."""
    unit: str
    """`ns`, or the reading's own: see the catalog."""
    slow: float
    normal: float
    higher_share: float
    """Of all pairs of a slow and a normal one, those in which the slow one is higher; 0.5: no
    difference, 1: always."""
    scatters: float
    """By how many normal scatters the medians differ."""
    slow_count: int
    normal_count: int
    rank: int | None = None
    labels: dict[str, str] = {}


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """What stands out, the clearest first."""

    found: list[StandsOut]
    candidates: int
    slow_steps: int
    normal_steps: int
    left_out: int
    why_nothing: str
    """Why nothing is found, where nothing is."""


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of many things, [things, slow ones] and [things, normal ones]; NaN: not known."""

    kind: str
    what: str
    unit: str
    names: Sequence[str]
    slow: Floats
    normal: Floats
    least: float
    """By how much medians must differ to matter; relative to the larger one for readings."""
    is_relative: bool = False
    ranks: Sequence[int] = ()
    labels: Sequence[dict[str, str]] = ()
    again: tuple[Floats, Floats] | None = None
    """The same in another measure, which must differ likewise."""


def divide(table: OwnTime) -> tuple[Ints, Ints]:
    """Slow and normal steps by their length alone: beyond the scatter of the shorter half."""
    length = table.length_ns.astype(np.float64)
    usual = float(np.quantile(length, LOW_QUANTILE))
    short = length[length <= np.median(length)]
    scatter = NORMAL * float(np.median(np.abs(short - usual)))
    is_slow = length > usual + max(SLOWER_SHARE * usual, SCATTERS * scatter)
    return np.flatnonzero(is_slow).astype(np.int64), np.flatnonzero(~is_slow).astype(np.int64)


def what_stands_out(window: Window, slow: Side, normal: Side) -> Differences:
    """Both sides are of one job in one window."""
    counts = len(slow.steps), len(normal.steps)
    if min(counts) < COUNT_MIN:
        few = f"{counts[0]} slow and {counts[1]} normal steps: fewer than {COUNT_MIN} tell nothing"
        return Differences(
            found=[], candidates=0, slow_steps=counts[0], normal_steps=counts[1], left_out=0,
            why_nothing=few,
        )  # fmt: skip
    tried = [*of_ranks(slow, normal), *of_kinds(slow, normal), *of_readings(window, slow, normal)]
    candidates = sum(len(one.names) for one in tried)
    least_z = math.sqrt(2.0 * math.log(max(2, candidates) / FALSE_MAX))
    found = [row for one in tried for row in clear_ones(one, least_z)]
    found.sort(key=order_of)
    why = "" if found else "nothing differs beyond chance and beyond the scatter of normal steps"
    return Differences(
        found=found[:SHOWN_MAX],
        candidates=candidates,
        slow_steps=counts[0],
        normal_steps=counts[1],
        left_out=max(0, len(found) - SHOWN_MAX),
        why_nothing=why,
    )


def order_of(one: StandsOut) -> tuple[int, float, float, str]:
    """Ranks by what is their own, then transfers, then what follows from these; largest first."""
    kinds = (("rank", OWN), ("operation", TRANSFER), ("operation", WAITING))
    place = kinds.index((one.kind, one.what)) if (one.kind, one.what) in kinds else len(kinds)
    size = abs(one.slow - one.normal) if one.unit == "ns" else one.scatters
    return place, -size, -abs(one.higher_share - 0.5), one.name


OWN, TRANSFER, WAITING = "own time beyond its peers", "transfer", "waiting for the last rank"


# The comparison ----------------------------------------------------------------------------------


def clear_ones(one: Candidates, least_z: float) -> Iterator[StandsOut]:
    slow, normal = spread_over(one.slow), spread_over(one.normal)
    share, z = higher_shares(slow, normal)
    if one.again is not None:
        _, other = higher_shares(spread_over(one.again[0]), spread_over(one.again[1]))
        z = np.where(
            np.sign(other) == np.sign(z), np.sign(z) * np.fmin(np.abs(z), np.abs(other)), 0
        )
    for row in np.flatnonzero(np.abs(z) >= least_z).tolist():
        now, before = (side[row][~np.isnan(side[row])] for side in (one.slow, one.normal))
        if min(len(now), len(before)) < COUNT_MIN:
            continue
        medians = float(np.median(now)), float(np.median(before))
        apart = abs(medians[0] - medians[1])
        least = one.least * max(map(abs, medians)) if one.is_relative else one.least
        scatter = spread(before)
        if apart < max(least, SCATTERS * scatter):
            continue
        yield StandsOut(
            kind=one.kind,
            name=one.names[row],
            what=one.what,
            unit=one.unit,
            slow=medians[0],
            normal=medians[1],
            higher_share=round(float(share[row]), 4),
            scatters=round(apart / scatter, 1) if scatter > 0 else SCATTERS_MAX,
            slow_count=len(now),
            normal_count=len(before),
            rank=one.ranks[row] if one.ranks else None,
            labels=one.labels[row] if one.labels else {},
        )


SCATTERS_MAX = 1000.0
"""What is said where normal steps do not scatter at all: JSON has no infinity."""


def spread_over(values: Floats) -> Floats:
    """At most COMPARED_MAX columns, evenly taken."""
    count = values.shape[1]
    if count <= COMPARED_MAX:
        return values
    return values[:, np.linspace(0, count - 1, COMPARED_MAX).astype(np.int64)]


def higher_shares(slow: Floats, normal: Floats) -> tuple[Floats, Floats]:
    """For each row the share of pairs in which the slow one is higher, and how far from chance.

    The second is in standard deviations of what equal distributions give; equal values count half.
    """
    share, z = np.full(len(slow), 0.5), np.zeros(len(slow))
    both = np.concatenate([slow, normal], axis=1)
    if not both.size:
        return share, z
    counts = [(~np.isnan(side)).sum(axis=1) for side in (slow, normal)]
    pairs = counts[0] * counts[1]
    # Most counters of a fabric count errors, and stand still: each of them equals all others.
    moves = np.fmin.reduce(both, axis=1) < np.fmax.reduce(both, axis=1)
    chosen = np.flatnonzero((pairs > 0) & moves)
    one, other = (count[chosen] for count in counts)
    of_slow = np.where(np.isnan(slow[chosen]), 0.0, middle_ranks(both[chosen])[:, : slow.shape[1]])
    # As many of the ranks of slow ones as they have among themselves are below no normal one.
    higher = of_slow.sum(axis=1) - one * (one + 1) / 2
    share[chosen] = higher / pairs[chosen]
    chance = np.sqrt(pairs[chosen] * (one + other + 1) / 12)
    z[chosen] = (higher - pairs[chosen] / 2) / chance
    return share, z


def middle_ranks(values: Floats) -> Floats:
    """The place of each value in its row in order of size, from 1; equal ones share their middle.

    Those that are not known come last.
    """
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    places = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    is_first = np.ones(values.shape, dtype=bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    is_last = np.ones(values.shape, dtype=bool)
    is_last[:, :-1] = is_first[:, 1:]
    first = np.maximum.accumulate(np.where(is_first, places, 0), axis=1)
    until = np.where(is_last, places, values.shape[1])[:, ::-1]
    last = np.minimum.accumulate(until, axis=1)[:, ::-1]
    found = np.empty(values.shape)
    np.put_along_axis(found, order, (first + last) / 2 + 1, axis=1)
    return found


# Candidates --------------------------------------------------------------------------------------


def of_ranks(slow: Side, normal: Side) -> Iterator[Candidates]:
    ranks = slow.table.ranks.tolist()
    hosts = [slow.job.culprit(rank).host for rank in ranks]
    names = [
        f"rank {rank} ({host})" if host else f"rank {rank}"
        for rank, host in zip(ranks, hosts, strict=True)
    ]
    yield Candidates(
        kind="rank",
        what=OWN,
        unit="ns",
        names=names,
        # A rank below its peers delays none, however far.
        slow=np.maximum(slow.table.excess_ns[:, slow.steps], 0.0),
        normal=np.maximum(normal.table.excess_ns[:, normal.steps], 0.0),
        # As roles are: less than that is what a late neighbour leaves behind.
        least=max(STEP_SHARE_MIN * normal.step_ns, ROLE_SHARE * (slow.step_ns - normal.step_ns)),
        ranks=ranks,
    )


def of_kinds(slow: Side, normal: Side) -> Iterator[Candidates]:
    """Transfer and waiting of each kind of collective, summed over a step; all ranks together."""
    rows = slow.table.rows
    chosen = np.flatnonzero(~is_pairwise(rows.records) & (rows.bin >= 0))
    if not len(chosen):
        return
    order = chosen[np.argsort(slow.meetings.number[chosen], kind="stable")]
    records = rows.records.select(order)
    starts = starts_of(distinct(slow.meetings.number[order])[1])
    last = slow.meetings.last_ns[order][starts]
    transfer = np.maximum(reduced(np.maximum, records.exit_ns, starts) - last, 0)
    waited = last - reduced(np.minimum, records.entry_ns, starts)
    first, kind = distinct(records.operation[starts], records.size_bytes[starts])
    names = [
        kind_words(records.operations[records.operation[row]], int(records.size_bytes[row]))
        for row in starts[first].tolist()
    ]
    step = rows.bin[order][starts]
    steps = len(slow.table.start_ns)
    for what, values in ((TRANSFER, transfer), (WAITING, waited)):
        shape = (len(first), steps)
        table = np.bincount(kind * steps + step, values.astype(np.float64), len(first) * steps)
        seen = np.bincount(kind * steps + step, minlength=len(first) * steps)
        cells = np.where(seen > 0, table, np.nan).reshape(shape)
        yield Candidates(
            kind="operation",
            what=what,
            unit="ns",
            names=names,
            slow=cells[:, slow.steps],
            normal=cells[:, normal.steps],
            least=STEP_SHARE_MIN * normal.step_ns,
        )


def kind_words(operation: str, size_bytes: int) -> str:
    size = "" if size_bytes == ABSENT else shown_size(size_bytes)
    return f"{operation} of {size}" if size else operation


def of_readings(window: Window, slow: Side, normal: Side) -> Iterator[Candidates]:
    """Readings of the job's own NICs, the switch ports behind them, GPUs and hosts."""
    job = slow.job
    nics = {row for rank in job.ranks.values() for row in window.rows_of_rank(rank)}
    far = {int(window.ports.other_end[row]) for row in nics} - {-1}
    hosts = {rank.host for rank in job.ranks.values() if rank.host}
    gpus = {
        row
        for rank in job.ranks.values()
        if rank.gpu is not None
        and (row := window.gpus.row_of.get((rank.host, rank.gpu))) is not None
    }
    own_hosts = {row for row, name in enumerate(window.hosts.host) if name in hosts}
    for kind, things, rows in (
        ("port", window.ports, nics | far),
        ("gpu", window.gpus, gpus),
        ("host", window.hosts, own_hosts),
    ):
        yield from of_things(kind, things, sorted(rows), slow, normal)


def of_things(
    kind: str, things: Things, rows: Sequence[int], slow: Side, normal: Side
) -> Iterator[Candidates]:
    """Gauges as they are; counters by the second, which must differ by the step as well.

    A job with longer steps moves fewer bytes a second and as many in a step, and a clock that
    ticks counts more in a longer step: neither says anything.
    """
    if not rows:
        return
    sides = [in_cells(things, side) for side in (slow, normal)]
    # A cell that holds both kinds of steps shows neither.
    both = np.intersect1d(sides[0].cell, sides[1].cell)
    sides = [side.select(~np.isin(side.cell, both)) for side in sides]
    if min(len(np.unique(side.group)) for side in sides) < COUNT_MIN:
        return
    place = np.array(rows, dtype=np.int64)
    labels = [labels_of(things, row) for row in rows]
    for name, readings in things.readings.items():
        values = things.values(name)[place]
        known = np.flatnonzero(~np.isnan(values).all(axis=1))
        if not len(known):
            continue
        own = [labels[row] for row in known.tolist()]
        is_counter = readings.metric.endswith(COUNTER)
        slow_values, normal_values = (side.means(values[known]) for side in sides)
        in_step = [side.means(values[known], in_step=True) for side in sides if is_counter]
        yield Candidates(
            kind=kind,
            what=f"{readings.metric}{' a second' if is_counter else ''}",
            unit="",
            names=[" ".join(one.values()) for one in own],
            slow=slow_values,
            normal=normal_values,
            least=READING_SHARE_MIN,
            is_relative=True,
            labels=own,
            again=(in_step[0], in_step[1]) if is_counter else None,
        )


COUNTER = "_total"
"""How names of counters end; their readings are increases a second."""


class InCells(Columns, frozen=True, kw_only=True):
    """Cells of readings in steps of a side: a row for each cell.

    Cells are put together to one number a group: those of one step where steps are longer than
    cells, else each by itself, because steps that share a cell share its reading.
    """

    cell: Ints
    group: Ints
    step_seconds: Floats
    """How long the step of the cell is, or those in it are in the mean."""

    def means(self, values: Floats, *, in_step: bool = False) -> Floats:
        """[things, groups] of [things, cells]; ``in_step``: of a rate what a step has of it."""
        chosen = values[:, self.cell] * (self.step_seconds if in_step else 1.0)
        groups, place = np.unique(self.group, return_inverse=True)
        known = ~np.isnan(chosen)
        shape = len(values), len(groups)
        cell = np.arange(shape[0])[:, None] * shape[1] + place.reshape(-1)
        # Added one by one, in order of time.
        total, count = (
            np.bincount(cell.reshape(-1), each.reshape(-1), shape[0] * shape[1]).reshape(shape)
            for each in (np.where(known, chosen, 0.0), known)
        )
        found: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        return found


def in_cells(things: Things, side: Side) -> InCells:
    grid = things.grid
    starts, ends = side.table.start_ns[side.steps], side.table.end_ns[side.steps]
    length = (ends - starts).astype(np.float64) / NS
    if grid.step_ns < float(np.median(ends - starts)):
        middle = grid.edges_ns[:-1] + grid.step_ns // 2
        step = np.searchsorted(starts, middle, side="right") - 1
        cell = np.flatnonzero((step >= 0) & (middle < ends[np.maximum(step, 0)]))
        own = step[cell]
        return InCells(cell=cell.astype(np.int64), group=own, step_seconds=length[own])
    where = (starts + (ends - starts) // 2 - grid.start_ns) // grid.step_ns
    inside = (where >= 0) & (where < grid.cells)
    cell, place = np.unique(where[inside], return_inverse=True)
    mean = np.bincount(place.reshape(-1), length[inside]) / np.bincount(place.reshape(-1))
    return InCells(cell=cell, group=cell, step_seconds=mean)


def labels_of(things: Things, row: int) -> dict[str, str]:
    found = {"host": things.host[row]}
    for name in ("device", "port", "gpu"):
        column = getattr(things, name, None)
        if column is not None and str(column[row]) != found["host"]:
            found[name] = str(column[row])
    return found
