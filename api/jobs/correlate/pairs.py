"""Series of pairs of ranks: bytes sent and their slowness, and waiting for each other. Pure.

The model is that of a job's matrix (`alerts.traffic`). A matrix has a cell for every two ranks, and
a store should not have a series for each of a hundred million: there are bounds, a job that passes
one is shown by hosts, and what is left out is counted. Once a minute, because of steps that take
longer than the ten seconds of other series.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from alerts.traffic.flows import (
    Flows,
    Messages,
    Sums,
    Traffic,
    messages_of,
    summed,
    sums_of,
    traffic_of,
)
from alerts.traffic.places import By, places_of
from alerts.traffic.places import Places as TrafficPlaces
from alerts.window.clocks import operation_index
from alerts.window.columns import Columns, Flags, Floats, Ints, Operations, Records
from alerts.window.model import Communicator, Rank
from alerts.window.series import Place, Places, known_rows, members
from alerts.window.split import distinct, joinable, reduced, split, starts_of
from api.data.store.rollups import STALE_BITS
from api.jobs.correlate.read import thinned_by
from api.jobs.correlate.windows import to_communicator
from collector.contract.model import Sample, Series
from collector.contract.units import NS

PAIRS_SECONDS = 60
"""The time over which a sample is the mean, and the interval between samples."""
PAIRS_MAX = 1_024
"""Pairs of one job that are shown: all of 32 ranks, or the rings of 512 hosts. A picture with more
cells cannot be read."""
ROUND_PAIRS_MAX = 16_384
"""Pairs of all jobs together, 50,000 series: a quarter of what the service remembers as written."""
JOB_FLOWS_MAX = 200_000
"""Flows of one job, 20 ms of work: the rings of 10,000 ranks with eight channels and some more, or
all-to-alls of 440 ranks. A matrix on request may have thirty times as many."""
WAIT_MIN = 0.01
"""Share of time below which no rank is blamed for waiting: in every collective one rank is last."""
TRANSFER_MIN_NS = 200_000
"""Operations that usually take less are not compared: NCCL's latency over several hosts is ten to a
hundred microseconds, and below twice that a time is little evidence about a link."""
STALE: float = struct.unpack("<d", struct.pack("<Q", STALE_BITS))[0]
SERIES_KEPT = 65_536
"""Series objects that are kept, because one costs microseconds to make: somewhat more than
ROUND_PAIRS_MAX pairs have."""


class Wire(msgspec.Struct, frozen=True):
    """A communicator's wiring, from its processes; see `alerts.window.model.Communicator`."""

    ranks: int = 0
    rings: Sequence[Sequence[int]] = ()
    trees: Sequence[Mapping[int, int | None]] = ()
    is_in_network: bool = False


Wiring = Mapping[str, Wire]
"""By communicator. One that is not here has its ranks in order for a ring."""


class Thinning(msgspec.Struct, frozen=True):
    """Which operations records are of, when they are not of all."""

    kept_one_in: int = 1
    is_numbered: bool = False
    """Agents keep the multiples of a power of two, so that the numbers show the factor."""


class Cells(Columns, frozen=True, kw_only=True):
    """Pairs with traffic or waiting."""

    source: Ints
    target: Ints
    amount: Floats
    """Bytes a second, or share of time."""
    ratio: Floats
    """Of transfers, by the usual; NaN where it is not known."""


class Pairs:
    """From records to samples, once a minute. Remembers which series stand; for one task."""

    def __init__(self) -> None:
        self._standing: set[Series] = set()
        self._room = 0
        self.left_out: Counter[str] = Counter()

    def roll(
        self, records: Records, places: Places, wiring: Wiring, to_ns: int, thinning: Thinning
    ) -> list[Sample]:
        """The minute that ends at ``to_ns``; records are on one clock and may hold more."""
        self._room = ROUND_PAIRS_MAX
        known: Records = records.select(known_rows(records, places))
        made: list[Sample] = []
        for job, own in by_job(places).items():
            rows: Records = known.select(known_rows(known, own))
            if len(rows):
                made += self._job(job, rows, own, wiring, to_ns, thinning)
        return [*made, *self._ended({sample.series for sample in made}, to_ns)]

    def end(self, to_ns: int) -> list[Sample]:
        return self._ended(set(), to_ns)

    def _ended(self, standing: set[Series], to_ns: int) -> list[Sample]:
        over = sorted(self._standing - standing, key=lambda one: (one.metric, one.labels))
        self._standing = standing
        return [Sample(series, STALE, to_ns) for series in over]

    def _job(
        self,
        job: str,
        rows: Records,
        places: Places,
        wiring: Wiring,
        to_ns: int,
        thinning: Thinning,
    ) -> Iterator[Sample]:
        ranks = {place.rank: Rank(rank=place.rank, host=place.host) for place in places.values()}
        where = places_of(ranks)
        found = minute_of(rows, to_ns, thinning)
        traffic, usual = modelled(found, communicators_of(places, ranks, wiring), where)
        series = Series("fabric_pair_unplaced_bytes_per_second", {"job": job})
        yield Sample(series, traffic.unplaced_bytes / PAIRS_SECONDS, to_ns)
        sent, waits = sent_by(traffic.flows, usual), waits_of(found, places, where)
        for by in (By.RANK, By.HOST):
            names = where.names(by)
            for metric, cells in (
                ("bytes_per_second", sent if by is By.RANK else sent_by_host(sent, where)),
                ("wait_ratio", shown(waits if by is By.RANK else waits_by_host(waits, where))),
            ):
                for row in self._chosen(by, cells).tolist():
                    ends = (job, str(by), names[cells.source[row]], names[cells.target[row]])
                    yield Sample(pair_series(metric, ends), float(cells.amount[row]), to_ns)
                    if np.isfinite(cells.ratio[row]):
                        ratio = float(cells.ratio[row])
                        yield Sample(pair_series("transfer_ratio", ends), ratio, to_ns)

    def _chosen(self, by: By, cells: Cells) -> Ints:
        room = min(PAIRS_MAX, self._room)
        if len(cells) > room:
            kept = room if by is By.HOST else 0
            self.left_out[str(by)] += len(cells) - kept
            slow = np.round(np.nan_to_num(cells.ratio, nan=1.0), 1)
            order = np.lexsort((cells.target, cells.source, -cells.amount, -slow))
            chosen: Ints = np.sort(order[:kept])
        else:
            chosen = np.arange(len(cells), dtype=np.int64)
        self._room -= len(chosen)
        return chosen


@lru_cache(maxsize=SERIES_KEPT)
def pair_series(metric: str, ends: tuple[str, str, str, str]) -> Series:
    return Series(
        f"fabric_pair_{metric}", dict(zip(("job", "by", "source", "target"), ends, strict=True))
    )


def by_job(places: Places) -> dict[str, dict[tuple[str, int], Place]]:
    found: dict[str, dict[tuple[str, int], Place]] = {}
    for key, place in places.items():
        found.setdefault(place.job, {})[key] = place
    return dict(sorted(found.items()))


def communicators_of(
    places: Places, ranks: Mapping[int, Rank], wiring: Wiring
) -> dict[str, Communicator]:
    joined: dict[str, dict[int, int]] = {}
    for (name, rank), place in places.items():
        joined.setdefault(name, {})[rank] = place.rank
    found = {}
    for name, job_rank in joined.items():
        wire = wiring.get(name, Wire())
        found[name] = to_communicator(
            name,
            job_rank,
            wire.ranks,
            wire.rings,
            wire.trees,
            ranks,
            is_in_network=wire.is_in_network,
        )
    return found


# What a minute has ------------------------------------------------------------------------------


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """A job's last minute."""

    records: Records
    operations: Operations
    is_in: Flags
    scale: Floats
    messages: Messages


def minute_of(rows: Records, to_ns: int, thinning: Thinning) -> Minute:
    from_ns = to_ns - PAIRS_SECONDS * NS
    operations = split(rows)
    ended = (operations.last_exit_ns >= from_ns) & (operations.last_exit_ns < to_ns)
    left = rows.timed() & (rows.exit_ns >= from_ns) & (rows.exit_ns < to_ns)
    messages = messages_of(rows.select(left))
    times = float(thinning.kept_one_in)
    return Minute(
        records=rows.select(joinable(rows)),
        operations=operations,
        is_in=ended,
        scale=scales(operations, thinning),
        messages=msgspec.structs.replace(
            messages, bytes=messages.bytes * times, transfer_ns=messages.transfer_ns * times
        ),
    )


def scales(operations: Operations, thinning: Thinning) -> Floats:
    """How many operations each one stands for."""
    scale = np.full(len(operations), float(thinning.kept_one_in))
    if thinning.is_numbered and len(operations):
        _, group = distinct(operations.communicator, operations.operation)
        scale = np.maximum(scale, thinned_by(group, operations.sequence))
    return scale


# Traffic ----------------------------------------------------------------------------------------


def modelled(
    minute: Minute, communicators: Mapping[str, Communicator], where: TrafficPlaces
) -> tuple[Traffic, Floats]:
    """The minute's flows, and for each how long it would usually have taken (ns)."""
    operations: Operations = minute.operations.select(minute.is_in)
    sums = sums_of(operations)
    # The same rows as the sums': each has one communicator and operation, and so one scale.
    first, _ = distinct(
        operations.communicator, operations.operation, operations.size_bytes, operations.ranks
    )
    scale = minute.scale[minute.is_in][first]
    sums = msgspec.structs.replace(
        sums, count=sums.count * scale, transfer_ns=sums.transfer_ns * scale
    )
    spans = {
        name: len({where.host[where.row_of[rank]] for rank in one.job_rank.values()})
        for name, one in communicators.items()
    }
    usual_ns = usual_of(sums, spans)
    is_long = usual_ns >= TRANSFER_MIN_NS * sums.count
    sums = msgspec.structs.replace(sums, transfer_ns=np.where(is_long, sums.transfer_ns, 0.0))
    traffic = traffic_of([sums], minute.messages, communicators, where, flows_max=JOB_FLOWS_MAX)
    usual = traffic_of(
        [msgspec.structs.replace(sums, transfer_ns=np.where(is_long, usual_ns, 0.0))],
        msgspec.structs.replace(
            minute.messages, transfer_ns=usual_of_messages(minute.messages, spans)
        ),
        communicators,
        where,
        flows_max=JOB_FLOWS_MAX,
    )
    return traffic, usual.flows.transfer_ns


def usual_of(sums: Sums, spans: Mapping[str, int]) -> Floats:
    """In ns, at the median of the same operation, size and number of ranks over as many hosts."""
    hosts = spans_of(sums.communicators, spans)[sums.communicator]
    _, kind = distinct(sums.operation, sums.size_bytes, sums.ranks, hosts)
    each = sums.transfer_ns / np.maximum(sums.count, 1.0)
    return group_medians(each, kind)[kind] * sums.count if len(kind) else each


def usual_of_messages(messages: Messages, spans: Mapping[str, int]) -> Floats:
    """The same for messages, by their bytes: among those within hosts, and among the others."""
    hosts = spans_of(messages.communicators, spans)[messages.communicator]
    _, kind = distinct(hosts)
    each = messages.transfer_ns / np.maximum(messages.bytes, 1.0)
    return group_medians(each, kind)[kind] * messages.bytes if len(kind) else each


def spans_of(names: Sequence[str], spans: Mapping[str, int]) -> Ints:
    """Over how many hosts each communicator goes; the last is for a code of no name."""
    return np.array([*(spans.get(name, 0) for name in names), 0], dtype=np.int64)


def group_medians(values: Floats, group: Ints) -> Floats:
    """The median of each group, the lower one of two; groups are 0, 1, 2…, none empty."""
    order = np.lexsort((values, group))
    counts = np.bincount(group)
    middle: Floats = values[order][np.cumsum(counts) - counts + (counts - 1) // 2]
    return middle


def sent_by(flows: Flows, usual: Floats) -> Cells:
    first, pair = distinct(flows.source, flows.target)
    took, wanted = summed(pair, flows.transfer_ns, len(first)), summed(pair, usual, len(first))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((wanted > 0) & (took > 0), took / wanted, np.nan)
    return Cells(
        source=flows.source[first],
        target=flows.target[first],
        amount=summed(pair, flows.bytes, len(first)) / PAIRS_SECONDS,
        ratio=ratio,
    )


def sent_by_host(sent: Cells, where: TrafficPlaces) -> Cells:
    cells, pair = on_hosts(sent, where)
    slowest = np.full(len(cells), -np.inf)
    np.fmax.at(slowest, pair, sent.ratio[known_hosts(sent, where)])
    return msgspec.structs.replace(cells, ratio=np.where(slowest > 0, slowest, np.nan))


# Waiting ----------------------------------------------------------------------------------------


def waits_of(minute: Minute, places: Places, where: TrafficPlaces) -> Cells:
    """The share of the minute that each rank waited for each other: the one that came last."""
    rows = minute.records
    index = operation_index(rows)
    starts = starts_of(index)
    is_last = rows.entry_ns == reduced(np.maximum, rows.entry_ns, starts)[index]
    lasts = np.flatnonzero(is_last)
    _, first = np.unique(index[lasts], return_index=True)
    last = lasts[first][index]
    member, found = members(rows, places)
    number = np.array([where.row_of[place.rank] for place in found], dtype=np.int64)
    waited = (rows.entry_ns[last] - rows.entry_ns) * minute.scale[index] / NS
    chosen = minute.is_in[index] & (waited > 0)
    source, target = number[member[chosen]], number[member[last[chosen]]]
    pairs, pair = distinct(source, target)
    amount = summed(pair, waited[chosen], len(pairs)) / PAIRS_SECONDS
    return Cells(
        source=source[pairs], target=target[pairs], amount=amount, ratio=np.full(len(pairs), np.nan)
    )


def waits_by_host(waits: Cells, where: TrafficPlaces) -> Cells:
    """The same between hosts, in the mean of the ranks that wait and could wait."""
    cells, _ = on_hosts(waits, where)
    ranks = np.bincount(where.host[where.host >= 0], minlength=len(where.hosts))
    mean = cells.amount / np.maximum(ranks[cells.source], 1)
    return msgspec.structs.replace(cells, amount=mean)


def shown(waits: Cells) -> Cells:
    """Those that wait for long enough."""
    kept: Cells = waits.select(waits.amount >= WAIT_MIN)
    return kept


def known_hosts(cells: Cells, where: TrafficPlaces) -> Flags:
    both: Flags = (where.host[cells.source] >= 0) & (where.host[cells.target] >= 0)
    return both


def on_hosts(cells: Cells, where: TrafficPlaces) -> tuple[Cells, Ints]:
    kept: Cells = cells.select(known_hosts(cells, where))
    source, target = where.host[kept.source], where.host[kept.target]
    first, pair = distinct(source, target)
    added = Cells(
        source=source[first].astype(np.int64),
        target=target[first].astype(np.int64),
        amount=summed(pair, kept.amount, len(first)),
        ratio=np.full(len(first), np.nan),
    )
    return added, pair
