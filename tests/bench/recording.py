"""A minute of a simulated cluster's batches, recorded once and played for ever.

A cycle is played again and again with its times moved to now. What must not repeat goes on: a
counter grows by what it grew in the cycle, operations and steps are numbered on. So the service
sees one cluster that runs on, and playing it costs little beside what it is to measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cramjam
import msgspec
import numpy as np
import numpy.typing as npt

from collector.contract import wire
from collector.contract.catalog import Kind, load_catalog
from collector.contract.records import ABSENT, NUMBERS
from collector.contract.units import NS_PER_MS
from simulator.engine import Simulation
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric

CLUSTER = "live"
TICK_SECONDS = 5.0
"""How often agents read and send, by default."""
CYCLE_TICKS = 12
CYCLE_MS = round(CYCLE_TICKS * TICK_SECONDS * 1000)
WARM_TICKS = 4
"""Simulated and not recorded: jobs start within them. Their events are played once."""
REST_TICKS = 1
"""After the cycle: where the next one would begin, so what counters grow by is known."""
JOB_HOSTS_MAX = 32
GPUS = 8
"""Of a host."""
SEED = 24
COUNTER_SUFFIXES = ("_total", "_count", "_sum", "_bucket")
START_MS = 1_800_000_000_000
TIMES = frozenset({"time_ns", "entry_ns", "exit_ns", "enqueue_ns"})

NO_SERIES = msgspec.Raw(msgspec.msgpack.encode([]))

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def scenario_of(hosts: int, gpus: int = GPUS, job_hosts: int = JOB_HOSTS_MAX) -> Scenario:
    """Rail-optimised RoCE, a NIC a GPU; jobs of so many hosts at most, every second a pipeline."""
    size = min(job_hosts, hosts // 2)
    jobs = tuple(
        JobSpec(
            name=f"job-{number:03}",
            hosts=tuple(range(number * size, (number + 1) * size)),
            tensor=gpus,
            pipeline=1 + number % 2,
            gradient_bytes=(1 + number % 2) << 31,
        )
        for number in range(hosts // size)
    )
    cluster = ClusterSpec(
        hosts=hosts,
        gpus_per_host=gpus,
        nics_per_host=gpus,
        speed="400GbE",
        fabric=Fabric.ROCE,
        hosts_per_leaf=min(hosts // 2, 32),
    )
    ticks = WARM_TICKS + CYCLE_TICKS + REST_TICKS
    return Scenario(
        cluster=cluster,
        jobs=jobs,
        seconds=ticks * TICK_SECONDS,
        tick_seconds=TICK_SECONDS,
        seed=SEED,
        start_unix_ns=START_MS * NS_PER_MS,
    )


class Moment(msgspec.Struct, frozen=True):
    """The batches of one tick."""

    batches: list[bytes]
    """Packed, and not compressed."""


def record(hosts: int, file: Path, gpus: int = GPUS, job_hosts: int = JOB_HOSTS_MAX) -> None:
    scenario = scenario_of(hosts, gpus, job_hosts)
    simulation = Simulation(scenario)
    reporter = Reporter(
        simulation.topology, CLUSTER, start_unix_ns=scenario.start_unix_ns, seed=scenario.seed
    )
    moments = [
        Moment([wire.decompress_bounded(body) for body in reporter.batches(snapshot)])
        for snapshot in simulation.run()
    ]
    # Each by itself, so that one moment at a time is unpacked. Tables repeat in each.
    packed = [bytes(cramjam.zstd.compress(msgspec.msgpack.encode(each))) for each in moments]
    file.write_bytes(msgspec.msgpack.encode(packed))


def moments_of(file: Path) -> Iterator[Moment]:
    decoder = msgspec.msgpack.Decoder(Moment)
    for packed in msgspec.msgpack.decode(file.read_bytes(), type=list[bytes]):
        yield decoder.decode(bytes(cramjam.zstd.decompress(packed)))


class Recording:
    """A recorded cycle in memory. For one thread."""

    def __init__(self, file: Path) -> None:
        ticks = self._unpacked(file)
        first, end = WARM_TICKS, WARM_TICKS + CYCLE_TICKS
        self._warm = [batch for tick in ticks[:first] for batch in tick]
        self._ticks = ticks[first:end]
        self._growth = growth_of(self._ticks, ticks[end])
        self._numbers = numbers_of(self._ticks)
        self.samples_per_cycle = sum(batch.sample_count for tick in self._ticks for batch in tick)
        self.records_per_cycle = sum(
            len(batch.collectives or ()) for tick in self._ticks for batch in tick
        )
        self.agents = len({batch.agent for tick in self._ticks for batch in tick})

    @staticmethod
    def _unpacked(file: Path) -> list[list[wire.Batch]]:
        """The ticks. An agent's tables are the same in every one: each is held once."""
        decoder = msgspec.msgpack.Decoder(wire.Batch)
        known: dict[bytes, Any] = {}

        def shared(batch: wire.Batch) -> wire.Batch:
            table = bytes(batch.series)
            return msgspec.structs.replace(
                batch,
                series=known.setdefault(table, msgspec.Raw(table)),
                index=known.setdefault(batch.index, batch.index),
            )

        return [
            [shared(decoder.decode(packed)) for packed in moment.batches]
            for moment in moments_of(file)
        ]

    @property
    def series(self) -> int:
        return sum(len(table) for tables in self._growth.values() for table in tables.values())

    def played(self, cycle: int, tick: int, start_ms: int, read_ticks: int = 1) -> Iterator[bytes]:
        """The batches of a tick of the ``cycle``th time, as agents send them.

        With ``read_ticks``, agents read their counters only in every so many ticks, by turns;
        records of jobs come whole. It is how a machine that cannot take all samples of a large
        cluster plays it.
        """
        number = cycle * CYCLE_TICKS + tick
        for place, batch in enumerate(self.batches(cycle, tick, start_ms)):
            is_read = number < read_ticks or (number + place) % read_ticks == 0
            yield wire.encode_batch(batch if is_read else without_samples(batch))

    def first_readings(self, cycle: int, start_ms: int) -> Iterator[bytes]:
        """What all agents read in the first tick of a cycle, without events and records."""
        for batch in self.batches(cycle, 0, start_ms):
            if batch.series is not NO_SERIES:
                readings = msgspec.structs.replace(batch, events=[], collectives=None, steps=[])
                yield wire.encode_batch(readings)

    def batches(self, cycle: int, tick: int, start_ms: int) -> Iterator[wire.Batch]:
        shift_ms = start_ms + cycle * CYCLE_MS - START_MS - round(WARM_TICKS * TICK_SECONDS * 1000)
        batches = self._ticks[tick]
        if cycle == 0 and tick == 0:
            # Communicators and processes are announced when a job starts, and never again.
            batches = [*(without_rows(batch) for batch in self._warm), *batches]
        for batch in batches:
            yield self._moved(batch, cycle, shift_ms)

    def _moved(self, batch: wire.Batch, cycle: int, shift_ms: int) -> wire.Batch:
        times = np.frombuffer(batch.time_ms, dtype="<i8") + shift_ms
        values = np.frombuffer(batch.value, dtype="<f8")
        growth = self._growth.get(batch.agent, {}).get(bytes(batch.series))
        if cycle and growth is not None:
            values = values + cycle * growth[np.frombuffer(batch.index, dtype="<u4")]
        shift_ns = shift_ms * NS_PER_MS
        return msgspec.structs.replace(
            batch,
            sequence=batch.sequence + cycle * (1 << 20),
            sent_ms=batch.sent_ms + shift_ms,
            time_ms=times.tobytes(),
            value=values.tobytes(),
            events=[
                msgspec.structs.replace(event, time_ns=event.time_ns + shift_ns)
                for event in batch.events
            ],
            collectives=self._moved_collectives(batch, cycle, shift_ns),
            steps=[self._moved_step(span, cycle, shift_ns) for span in batch.steps],
        )

    def _moved_collectives(self, batch: wire.Batch, cycle: int, shift_ns: int) -> Any:  # noqa: ANN401
        packed = batch.collectives
        if packed is None:
            return None
        changed: dict[str, bytes] = {}
        for name in NUMBERS:
            column = np.frombuffer(getattr(packed, name), dtype="<i8")
            if name in TIMES:
                changed[name] = np.where(column == ABSENT, ABSENT, column + shift_ns).tobytes()
        if cycle:
            per_context = np.array(
                [self._numbers[each.communicator, each.operation] for each in packed.contexts],
                dtype=np.int64,
            )
            context = np.frombuffer(packed.context, dtype="<u4")
            sequence = np.frombuffer(packed.sequence, dtype="<i8")
            changed["sequence"] = (sequence + cycle * per_context[context]).tobytes()
        return msgspec.structs.replace(packed, **changed)

    def _moved_step(self, span: Any, cycle: int, shift_ns: int) -> Any:  # noqa: ANN401
        return msgspec.structs.replace(
            span,
            step=span.step + cycle * self._numbers.get((span.job, "step"), 0),
            start_ns=span.start_ns + shift_ns,
            end_ns=span.end_ns + shift_ns,
        )


def without_samples(batch: wire.Batch) -> wire.Batch:
    """Only the events and the records of a batch."""
    return msgspec.structs.replace(batch, series=NO_SERIES, index=b"", time_ms=b"", value=b"")


def without_rows(batch: wire.Batch) -> wire.Batch:
    """Only the events of a batch."""
    return msgspec.structs.replace(without_samples(batch), collectives=None, steps=[])


def growth_of(
    ticks: Sequence[Sequence[wire.Batch]], after: Sequence[wire.Batch]
) -> dict[str, dict[bytes, Floats]]:
    """By agent and table: what counters grow by from the cycle's first reading to the next one's.

    A series that is missing at either end does not grow.
    """
    first, last = values_by_series(ticks[0]), values_by_series(after)
    is_counter = counter_names()
    found: dict[str, dict[bytes, Floats]] = {}
    for batch in (batch for tick in ticks for batch in tick):
        tables = found.setdefault(batch.agent, {})
        if bytes(batch.series) in tables:
            continue
        growth = np.zeros(len(batch.series_rows()))
        for row, (name, labels) in enumerate(batch.series_rows()):
            key = batch.agent, name, tuple(labels.items())
            if is_counter(name) and key in first and key in last:
                growth[row] = max(0.0, last[key] - first[key])
        tables[bytes(batch.series)] = growth
    return found


def counter_names() -> Any:  # noqa: ANN401 - a predicate
    catalog = load_catalog()

    def is_counter(name: str) -> bool:
        metric = catalog.metric(name)
        if metric is not None:
            return metric.kind in {Kind.COUNTER, Kind.HISTOGRAM}
        return name.endswith(COUNTER_SUFFIXES)

    return is_counter


def values_by_series(batches: Sequence[wire.Batch]) -> dict[tuple[Any, ...], float]:
    found: dict[tuple[Any, ...], float] = {}
    for batch in batches:
        rows = batch.series_rows()
        keys = [(batch.agent, name, tuple(labels.items())) for name, labels in rows]
        index = np.frombuffer(batch.index, dtype="<u4").tolist()
        values = np.frombuffer(batch.value, dtype="<f8").tolist()
        for row, value in zip(index, values, strict=True):
            found.setdefault(keys[row], value)
    return found


def numbers_of(ticks: Sequence[Sequence[wire.Batch]]) -> dict[tuple[str, str], int]:
    """By communicator and operation, and by job and "step": how many numbers a cycle takes."""
    lowest: dict[tuple[str, str], int] = {}
    highest: dict[tuple[str, str], int] = {}

    def note(key: tuple[str, str], low: int, high: int) -> None:
        lowest[key] = min(low, lowest.get(key, low))
        highest[key] = max(high, highest.get(key, high))

    for batch in (batch for tick in ticks for batch in tick):
        for span in batch.steps:
            note((span.job, "step"), span.step, span.step)
        if batch.collectives is None:
            continue
        context = np.frombuffer(batch.collectives.context, dtype="<u4")
        sequence = np.frombuffer(batch.collectives.sequence, dtype="<i8")
        for place, each in enumerate(batch.collectives.contexts):
            own = sequence[context == place]
            if len(own):
                note((each.communicator, each.operation), int(own.min()), int(own.max()))
    return {key: highest[key] - low + 1 for key, low in lowest.items()}
