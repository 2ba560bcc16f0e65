"""Series out of joined collectives: bandwidth, skew, transfer, lateness, shares of time. Pure.

One `Roller` a service: it is given the records of one stretch of time after the other and keeps
the totals of its counters. Which job a communicator belongs to, and which rank of the job a member
is, comes from the inventory.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from alerts.window.clocks import operation_index
from alerts.window.columns import Flags, Floats, Ints, Operations, Records
from alerts.window.messages import is_pairwise, met_ns, peers_of
from alerts.window.split import distinct, joinable, medians, members_in, reduced, split, starts_of
from alerts.window.steps import infer_bounds, to_work
from collector.contract.collective import size_class
from collector.contract.model import Sample, Series
from collector.contract.records import ABSENT

SIZE_UNKNOWN = "unknown"
SERIES_MAX = 100_000
"""Groups whose totals are kept: 10,000 communicators of ten kinds of operations. Past it, those
that had no operation in the last stretch are forgotten; their counters then begin anew."""

MESSAGE_RANKS_MAX = 32
"""Ranks of a job whose sends and receives are matched in each stretch: to find a message's other
end takes a millisecond for each pair of ranks, and the median of 32 is that of a thousand."""
SPREAD = 2_654_435_761
"""Knuth's multiplicative hash: neighbours in any regular order of ranks are far apart."""


class Place(msgspec.Struct, frozen=True):
    """Which rank of which job a member of a communicator is."""

    job: str
    rank: int
    host: str


Places = Mapping[tuple[str, int], Place]
"""By communicator and rank within it."""


class Totals(msgspec.Struct):
    """Counters of one group; seconds."""

    operations: int = 0
    incomplete: int = 0
    duration: float = 0.0
    skew: float = 0.0
    transfer: float = 0.0


class RankTotals(msgspec.Struct):
    """Counters of one rank of a job; seconds."""

    last_in: int = 0
    waited_for: float = 0.0


class Roller:
    """From records of a stretch of time to samples at its end."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], Totals] = {}
        self._ranks: dict[Place, RankTotals] = {}

    def roll(
        self,
        records: Records,
        places: Places,
        from_ns: int,
        to_ns: int,
        rhythm: Records | None = None,
    ) -> list[Sample]:
        """Samples for operations that ended in this stretch, and for the time in it.

        Records are on one clock and also hold what began before the stretch; those of
        communicators that belong to no known job are left out. ``rhythm``: records of each job's
        lowest rank from long before on, if the others are not.
        """
        known: Records = records.select(known_rows(records, places))
        rhythm = known if rhythm is None else rhythm.select(known_rows(rhythm, places))
        seen = members_in(known)[0]
        rows = in_stretch(known, from_ns, to_ns)
        operations = split(rows)
        ended = (operations.last_exit_ns >= from_ns) & (operations.last_exit_ns < to_ns)
        jobs = {communicator: place.job for (communicator, _), place in places.items()}
        samples = [
            *self._communicators(operations.select(ended), jobs, to_ns),
            *self._rank_samples(rows, operations, ended, places, to_ns),
            *sizes([*seen, *members_in(rhythm)[0]], places, to_ns),
            *shares(
                [of_collectives(rows), of_messages(known, places, from_ns, to_ns)],
                [places[key] for key in seen],
                places,
                from_ns,
                to_ns,
            ),
            *step_times(rhythm, places, to_ns),
        ]
        self._forget()
        return samples

    def _communicators(
        self, operations: Operations, jobs: Mapping[str, str], time_ns: int
    ) -> Iterator[Sample]:
        classes = [class_of(int(size)) for size in operations.size_bytes]
        code = {name: number for number, name in enumerate(dict.fromkeys(classes))}
        size = np.array([code[name] for name in classes], dtype=np.int64)
        for chosen in gathered(distinct(operations.communicator, operations.operation, size)[1]):
            rows: Operations = operations.select(chosen)
            communicator = operations.communicators[rows.communicator[0]]
            operation = operations.operations[rows.operation[0]]
            key = (jobs[communicator], communicator, operation, classes[chosen[0]])
            totals = self._groups.pop(key, Totals())
            self._groups[key] = totals  # the most recently used is last
            yield from communicator_samples(key, rows, totals, time_ns)

    def _rank_samples(
        self, records: Records, operations: Operations, ended: Flags, places: Places, time_ns: int
    ) -> Iterator[Sample]:
        rows, index = records, operation_index(records)
        several = (operations.ranks_seen > 1) & ended
        chosen = several[index] if len(index) else np.zeros(0, dtype=bool)
        if not chosen.any():
            return
        late = rows.entry_ns - medians(rows.entry_ns, index)[index]
        is_last = rows.rank == operations.last_in[index]
        waited = np.where(is_last, operations.skew_ns[index], 0) / 1e9
        rows = rows.select(chosen)
        late, is_last, waited = late[chosen], is_last[chosen], waited[chosen]
        member, found = members(rows, places)
        for place, own in zip(found, gathered(member), strict=True):
            totals = self._ranks.pop(place, RankTotals())
            self._ranks[place] = totals
            totals.last_in += int(is_last[own].sum())
            totals.waited_for += float(waited[own].sum())
            for name, value in (
                ("lateness_seconds", float(np.median(late[own])) / 1e9),
                ("last_in_total", totals.last_in),
                ("waited_for_seconds_total", totals.waited_for),
            ):
                yield Sample(rank_series(f"fabric_rank_{name}", place), value, time_ns)

    def _forget(self) -> None:
        while len(self._groups) > SERIES_MAX:
            del self._groups[next(iter(self._groups))]
        while len(self._ranks) > SERIES_MAX:
            del self._ranks[next(iter(self._ranks))]


def gathered(group: Ints) -> list[Ints]:
    """The rows of each group, in the order of the groups' numbers: 0, 1, 2…, none empty."""
    order = np.argsort(group, kind="stable")
    return np.split(order, starts_of(group[order])[1:]) if len(group) else []


def in_stretch(records: Records, from_ns: int, to_ns: int) -> Records:
    """The timed records of operations of which any part lies in this stretch, with all ranks."""
    rows: Records = records.select(joinable(records))
    index = operation_index(rows)
    starts = starts_of(index)
    ended = reduced(np.maximum, rows.exit_ns, starts) >= from_ns
    begun = reduced(np.minimum, rows.entry_ns, starts) < to_ns
    chosen: Records = rows.select((ended & begun)[index] if len(rows) else slice(0))
    return chosen


def known_rows(records: Records, places: Container[tuple[str, int]]) -> Flags:
    keys, which = members_in(records)
    return np.array([key in places for key in keys], dtype=bool)[which]


def members(records: Records, places: Places) -> tuple[Ints, list[Place]]:
    """The place of each row, as a number into the list of places; all are known."""
    keys, which = members_in(records)
    of_key = [places[key] for key in keys]
    found = list(dict.fromkeys(of_key))
    number = {place: place_number for place_number, place in enumerate(found)}
    return np.array([number[place] for place in of_key], dtype=np.int64)[which], found


def class_of(size_bytes: int) -> str:
    return SIZE_UNKNOWN if size_bytes == ABSENT else size_class(size_bytes)


@lru_cache(maxsize=SERIES_MAX)
def group_series(metric: str, key: tuple[str, ...]) -> Series:
    """A series of a group of operations; kept, because a series costs microseconds to make."""
    job, communicator, operation, size = key
    labels = {"job": job, "communicator": communicator, "operation": operation, "size": size}
    return Series(metric, labels)


@lru_cache(maxsize=SERIES_MAX)
def rank_series(metric: str, place: Place) -> Series:
    return Series(metric, {"job": place.job, "rank": str(place.rank), "host": place.host})


def communicator_samples(
    key: tuple[str, ...], rows: Operations, totals: Totals, time_ns: int
) -> Iterator[Sample]:
    """The samples of one group of operations; adds them to the totals."""
    skew, transfer = rows.skew_ns / 1e9, rows.transfer_ns / 1e9
    totals.operations += len(rows)
    totals.incomplete += int((rows.ranks_seen < rows.ranks).sum())
    totals.duration += float((skew + transfer).sum())
    totals.skew += float(skew.sum())
    totals.transfer += float(transfer.sum())
    values = {
        "operations_total": totals.operations,
        "incomplete_total": totals.incomplete,
        "duration_seconds_total": totals.duration,
        "entry_skew_seconds_total": totals.skew,
        "transfer_seconds_total": totals.transfer,
        "duration_seconds": float(np.median(skew + transfer)),
        "entry_skew_seconds": float(np.median(skew)),
        "transfer_seconds": float(np.median(transfer)),
        "transfer_max_seconds": float(transfer.max()),
    }
    if rows.bus_bytes.any():
        values["bus_bandwidth_bytes_per_second"] = float(np.median(rows.bus_bandwidth))
    for name, value in values.items():
        yield Sample(group_series(f"fabric_communicator_{name}", key), value, time_ns)


def sizes(seen: Iterable[tuple[str, int]], places: Places, time_ns: int) -> Iterator[Sample]:
    """How many ranks the jobs of these members have."""
    active = {places[key].job for key in seen}
    ranks: dict[str, set[int]] = {job: set() for job in sorted(active)}
    for place in places.values():
        if place.job in ranks:
            ranks[place.job].add(place.rank)
    for job, known in ranks.items():
        yield Sample(Series("fabric_job_ranks", {"job": job}), len(known), time_ns)


class Met(NamedTuple):
    """Timed records, when all that take part had come, and who stands for others of its job."""

    rows: Records
    met_ns: Ints
    left_out: frozenset[Place] = frozenset()
    """Ranks of jobs with too many whose records of this kind were not looked at."""


def of_collectives(rows: Records) -> Met:
    """Those of one operation are all here."""
    index = operation_index(rows)
    return Met(rows, reduced(np.maximum, rows.entry_ns, starts_of(index))[index])


def of_messages(records: Records, places: Places, from_ns: int, to_ns: int) -> Met:
    """Sends and receives of which any part lies in this stretch; of each job those of some ranks.

    The other ends are here as well, and belong to ranks that are left out unless they are chosen.
    """
    near = (records.exit_ns >= from_ns) & (records.entry_ns < to_ns)
    rows: Records = records.select(is_pairwise(records) & records.timed() & near)
    if not len(rows):
        return Met(rows, rows.entry_ns)
    of_job: dict[str, set[Place]] = {}
    for key in members_in(rows)[0]:
        of_job.setdefault(places[key].job, set()).add(places[key])
    # Far from each other in any order of ranks, so that no stage stands for all.
    kept = {
        place
        for own in of_job.values()
        for place in sorted(own, key=lambda one: one.rank * SPREAD % (1 << 32))[:MESSAGE_RANKS_MAX]
    }
    every = frozenset(place for own in of_job.values() for place in own)
    if len(kept) < len(every):
        ends = msgspec.structs.replace(rows, rank=peers_of(rows))
        rows = rows.select(is_of(rows, places, kept) | is_of(ends, places, kept))
    return Met(rows, met_ns(rows), every - kept)


def is_of(rows: Records, places: Places, kept: Container[Place]) -> Flags:
    keys, which = members_in(rows)
    return np.array([places.get(key) in kept for key in keys], dtype=bool)[which]


def shares(
    parts: Sequence[Met], seen: Sequence[Place], places: Places, from_ns: int, to_ns: int
) -> Iterator[Sample]:
    """How much of this stretch each job's median rank spent waiting and in transfers.

    ``seen`` are places that had records before, too: one without any in this stretch spent none of
    it.
    """
    number: dict[Place, int] = {}
    numbers = []
    for part in parts:
        member, present = members(part.rows, places)
        own = [number.setdefault(place, len(number)) for place in present]
        numbers.append(np.array(own, dtype=np.int64)[member])
    for place in seen:
        number.setdefault(place, len(number))
    member = np.concatenate(numbers)
    entry = np.concatenate([part.rows.entry_ns for part in parts])
    leave = np.concatenate([part.rows.exit_ns for part in parts])
    met = np.concatenate([part.met_ns for part in parts])
    order = np.lexsort((entry, member))
    wait, transfer = covered(member[order], entry[order], leave[order], met[order], from_ns, to_ns)
    length = float(to_ns - from_ns)
    waiting = np.bincount(member[order], wait, len(number)) / length
    transferring = np.bincount(member[order], transfer, len(number)) / length
    left_out = frozenset[Place]().union(*(part.left_out for part in parts))
    of_job: dict[str, list[int]] = {}
    for place, row in number.items():
        if place not in left_out:
            of_job.setdefault(place.job, []).append(row)
    for job, own in of_job.items():
        for name, ratio in (("network", transferring), ("wait", waiting)):
            series = Series(f"fabric_job_{name}_share_ratio", {"job": job})
            yield Sample(series, float(np.median(ratio[own])), to_ns)


def covered(
    member: Ints, entry: Ints, leave: Ints, last_entry: Ints, from_ns: int, to_ns: int
) -> tuple[Floats, Floats]:
    """Time inside each operation before and after the last rank came, within the stretch.

    Rows are sorted by member and entry. Where a member's operations overlap, the earlier one has
    the time. One running maximum serves all members: each lives on its own stretch of numbers.
    """
    length = to_ns - from_ns
    start, end = np.clip(entry - from_ns, 0, length), np.clip(leave - from_ns, 0, length)
    lane = member * (length + 1)
    ended = np.zeros(len(member), dtype=np.int64)
    ended[1:] = np.maximum.accumulate(end + lane)[:-1]
    begin = np.maximum(start, ended - lane)
    turn = np.clip(np.clip(last_entry - from_ns, 0, length), begin, np.maximum(begin, end))
    wait = np.maximum(turn - begin, 0).astype(np.float64)
    return wait, np.maximum(end - turn, 0).astype(np.float64)


def step_times(records: Records, places: Places, time_ns: int) -> Iterator[Sample]:
    """How long each job's steps take, by the rhythm of its lowest rank's collectives."""
    chosen: dict[str, dict[tuple[str, int], int]] = {}
    for key in members_of_lowest(places):
        chosen.setdefault(places[key].job, {})[key] = places[key].rank
    for job, job_rank in chosen.items():
        own = records.select(known_rows(records, job_rank))
        bounds = infer_bounds(to_work(own, job_rank))
        if bounds is not None and len(bounds) > 2:  # noqa: PLR2004 - the first and last are cut
            lasted = (bounds.end_ns - bounds.start_ns)[1:-1]
            series = Series("fabric_job_step_seconds", {"job": job})
            yield Sample(series, float(np.median(lasted)) / 1e9, time_ns)


def members_of_lowest(places: Places) -> list[tuple[str, int]]:
    """The members of communicators that are the lowest rank of their job."""
    lowest: dict[str, int] = {}
    for place in places.values():
        lowest[place.job] = min(lowest.get(place.job, place.rank), place.rank)
    return [key for key, place in places.items() if place.rank == lowest[place.job]]
