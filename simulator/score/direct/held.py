"""What agents sent in the last minutes, as columns in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.window.columns import Ints, Records
from alerts.window.model import Grid
from api.base.quarantine import Quarantine
from api.data.inventory.job_model import Member
from api.data.store.rings import PART_ROWS, Rings
from api.data.store.rings import Samples as Added
from api.data.store.store import Store
from api.jobs.correlate.meanings import Known, Target
from api.jobs.correlate.readings import GAP_SECONDS, GridReader, Samples, chained, part_of
from api.jobs.correlate.things import GPUS, HOSTS, NICS, PORTS
from collector.contract.identity import metric_id
from collector.contract.records import NUMBERS, Context
from collector.contract.units import NS
from collector.contract.wire import Batch
from simulator.readings.series import shared_labels

HELD_SECONDS = 300
"""A window, and what comes late."""
READ_SECONDS = 5.0
"""How often agents read, and a scoreboard's clusters are looked at."""
SLOTS_SPARE = 4
"""Readings beyond those of HELD_SECONDS: a window begins between two of them."""
ROWS_AT_ONCE = 40_000
"""Series that are learned together."""
ROWS_MAX = 20_000_000
TARGETS = (PORTS, NICS, GPUS, HOSTS)


Words = tuple[str, tuple[tuple[str, str], ...]]
"""A metric, and the labels that an agent gives with a series."""


class HeldStore:
    """What a `GridReader` needs of a store."""

    def __init__(self) -> None:
        self.quarantine = Quarantine()


class HeldSamples(GridReader):
    """Readings of the metrics that windows have; a series is known by its agent's own words."""

    def __init__(self, epoch_ms: int, read_seconds: float = READ_SECONDS) -> None:
        """``read_seconds``: from one reading of a series to the next."""
        super().__init__(cast("Store", HeldStore()))
        self._rings = Rings(ROWS_MAX, epoch_ms, slots_for(read_seconds))
        self.wanted = frozenset(
            name for target in TARGETS for name in self.known(target).by_id.values()
        )
        """The metrics that windows have; samples of others are passed over."""
        self._numbers: dict[str, dict[Words, int]] = {}
        """By agent: the number of each of its series."""
        self._shared: dict[Words, Words] = {}
        """Hosts of one kind say the same of their ports: it stands once for all of them."""
        self._words: list[Words] = []
        self._common: list[Mapping[str, str]] = []
        """By a series' number: its own words, and those of all its agent's series."""
        self._tables: dict[int, tuple[msgspec.Raw, Ints, Any]] = {}
        """By identity: the agents keep a table for as long as it does not change."""

    def add(self, batches: Iterable[Batch]) -> None:
        parts = [part for batch in batches if (part := self._columns(batch)) is not None]
        if parts:
            metric, series, time_ms, value = (
                np.concatenate(one) for one in zip(*parts, strict=True)
            )
            own = series >= 0
            if not own.all():
                metric, series, time_ms, value = (
                    one[own] for one in (metric, series, time_ms, value)
                )
            added = Added(metric, series.astype(np.uint64), time_ms, value)
            self._rings.add(added, lambda _, last: last >= 0)

    def _columns(self, batch: Batch) -> tuple[Any, ...] | None:
        if not batch.index:
            return None
        known = self._tables.get(id(batch.series))
        if known is None or known[0] is not batch.series:
            known = self._tables[id(batch.series)] = (batch.series, *self._table(batch))
        _, series, metric = known
        index = np.frombuffer(batch.index, dtype="<u4")
        return (
            metric[index],
            series[index],
            np.frombuffer(batch.time_ms, dtype="<i8"),
            np.frombuffer(batch.value, dtype="<f8"),
        )

    def _table(self, batch: Batch) -> tuple[Ints, Any]:
        """The series and the metric of each row of a batch's table; -1 for what is not wanted."""
        rows = batch.series_rows()
        ids = [metric_id(metric) for metric, _ in rows]
        series = np.full(len(rows), -1, dtype=np.int64)
        numbers = self._numbers.setdefault(batch.agent, {})
        for place, (metric, labels) in enumerate(rows):
            if metric in self.wanted:
                # An agent says the same of itself in every batch, and labels in one order.
                words = (metric, shared_labels(tuple(labels.items())))
                words = self._shared.setdefault(words, words)
                number = numbers.setdefault(words, len(self._words))
                if number == len(self._words):
                    self._words.append(words)
                    self._common.append(batch.common)
                series[place] = number
        return series, np.array(ids, dtype=np.uint32)

    def ask(self, targets: Sequence[Target], grid: Grid) -> Samples:
        from_ms, to_ms = grid.start_ns // 1_000_000 - GAP_SECONDS * 1000, grid.end_ns // 1_000_000
        ids = sorted({one for target in targets for one in self.known(target).by_id})
        own = [rows for one in ids if len(rows := self._rings.of_metric(one))]
        rows = np.concatenate(own) if own else np.zeros(0, np.int64)
        parts = [
            part_of(self._rings.copy(rows[at : at + PART_ROWS]), grid, from_ms, to_ms)
            for at in range(0, len(rows), PART_ROWS)
        ]
        return chained(parts, grid)

    def _learn(self, known: Known, series: npt.NDArray[np.uint64], _grid: Grid) -> None:
        for at in range(0, len(series), ROWS_AT_ONCE):
            known.add([self._named(one) for one in series[at : at + ROWS_AT_ONCE].tolist()])

    def _named(self, number: int) -> dict[str, Any]:
        metric, labels = self._words[number]
        return {"series": number, "name": metric, "words": {**self._common[number], **dict(labels)}}


def slots_for(read_seconds: float) -> int:
    """How many readings of a series a window and what comes late may need.

    >>> slots_for(10.0), slots_for(1.0)
    (34, 304)
    """
    return math.ceil(HELD_SECONDS / read_seconds) + SLOTS_SPARE


class HeldRecords:
    """Records of collectives, as they came; what is constant in many stands once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Context, str], int] = {}
        self._seen: dict[int, tuple[Context, int]] = {}
        self.contexts: list[Context] = []
        """With the host in them."""
        self._parts: list[tuple[int, Ints, Ints]] = []
        """When a part came, its rows' contexts, and [7, rows] numbers."""

    def add(self, batches: Iterable[Batch], now_ns: int) -> bool:
        """Whether ranks or operations are among them that were not seen before."""
        known = len(self.contexts)
        found = []
        for batch in batches:
            packed = batch.collectives
            if packed is None:
                continue
            numbers = [self._number(one, batch.common["host"]) for one in packed.contexts]
            context = np.array(numbers, dtype=np.int64)[np.frombuffer(packed.context, dtype="<u4")]
            columns = [np.frombuffer(getattr(packed, name), dtype="<i8") for name in NUMBERS]
            found.append((context, np.stack(columns)))
        if found:
            context, rows = (np.concatenate(one, axis=-1) for one in zip(*found, strict=True))
            self._parts.append((now_ns, context, rows))
        oldest = now_ns - HELD_SECONDS * NS
        self._parts = [part for part in self._parts if part[0] >= oldest]
        return len(self.contexts) > known

    def _number(self, context: Context, host: str) -> int:
        """By identity first: an agent keeps its contexts, and hashing them takes a while."""
        kept = self._seen.get(id(context))
        if kept is not None and kept[0] is context:
            return kept[1]
        number = self._numbers.setdefault((context, host), len(self.contexts))
        if number == len(self.contexts):
            self.contexts.append(msgspec.structs.replace(context, host=context.host or host))
        self._seen[id(context)] = (context, number)
        return number

    def within(self, from_ns: int, to_ns: int) -> tuple[Ints, Ints]:
        """Contexts and numbers of the records of a time that had come by its end."""
        time = NUMBERS.index("time_ns")
        contexts, rows = [np.zeros(0, np.int64)], [np.zeros((len(NUMBERS), 0), np.int64)]
        for came_ns, context, numbers in self._parts:
            if not from_ns <= came_ns <= to_ns:
                continue
            inside = (numbers[time] >= from_ns) & (numbers[time] <= to_ns)
            if inside.all():
                contexts.append(context)
                rows.append(numbers)
            elif inside.any():
                contexts.append(context[inside])
                rows.append(numbers[:, inside])
        return np.concatenate(contexts), np.concatenate(rows, axis=1)

    def members(self, first_ns: int) -> list[Member]:
        return [
            Member(
                communicator=one.communicator,
                rank=one.rank,
                host=one.host,
                pid=one.pid,
                ranks=one.ranks,
                job=one.job,
                first_ns=first_ns,
                last_ns=first_ns,
            )
            for one in self.contexts
        ]


class Names:
    """What the contexts say, as columns; codes are in the order of the names."""

    def __init__(self, contexts: Sequence[Context]) -> None:
        self.communicators, self.communicator = coded([one.communicator for one in contexts])
        self.operations, self.operation = coded([str(one.operation) for one in contexts])
        self.hosts, self.host = coded([one.host for one in contexts])
        self.sources, self.source = coded([one.source for one in contexts])
        self.state = [one.state for one in contexts]
        self.rank = np.array([one.rank for one in contexts], dtype=np.int32)
        self.ranks = np.array([one.ranks for one in contexts], dtype=np.int32)
        self.pid = np.array([one.pid for one in contexts], dtype=np.int32)
        self.peer = np.array(
            [-1 if one.peer is None else one.peer for one in contexts], dtype=np.int32
        )

    def records(self, context: Ints, numbers: Ints) -> Records:
        """Sorted as `Records` are; names that no row has are left out, as the store leaves them."""
        columns = dict(zip(NUMBERS, numbers, strict=True))
        communicator, operation = self.communicator[context], self.operation[context]
        order = np.lexsort(
            (columns["time_ns"], self.rank[context], columns["sequence"], operation, communicator)
        )
        context = context[order]
        names: dict[str, Any] = {}
        codes: dict[str, Any] = {}
        for name, words, column in (
            ("communicator", self.communicators, communicator[order]),
            ("operation", self.operations, operation[order]),
            ("host", self.hosts, self.host[context]),
        ):
            used = np.unique(column)
            place = np.zeros(len(words), dtype=np.int32)
            place[used] = np.arange(len(used))
            names[f"{name}s"] = [words[one] for one in used.tolist()]
            codes[name] = place[column]
        return Records(
            **names,
            **codes,
            rank=self.rank[context],
            pid=self.pid[context],
            ranks=self.ranks[context],
            peer=self.peer[context],
            **{name: columns[name][order] for name in NUMBERS if name != "time_ns"},
        )


def coded(words: Sequence[str]) -> tuple[list[str], Any]:
    names = sorted(set(words))
    place = {name: number for number, name in enumerate(names)}
    return names, np.array([place[word] for word in words], dtype=np.int32)
