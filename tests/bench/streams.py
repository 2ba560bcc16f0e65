"""What an agent's stream costs the service, by the shape of its batches.

One simulated host in a job, by the defaults of an agent: some 3,400 series read every five seconds,
and records of collectives and steps. The same readings are sent in several shapes: everything every
five seconds; everything every ten; what windows and records need every five seconds, with the rest
every ten or twenty. Many agents send, each over a connection of its own; the past is sent, so that
rounds and rolls do not work on it. CPU of the service's process, for a million samples; and of
decoding alone, which merges do not disturb.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from api.data.ingest.columns import Acceptance
from api.data.ingest.native import decode_native
from api.data.ingest.series import NativeTables
from collector.agent.coalesce import coalesce
from collector.contract import wire
from collector.contract.catalog import load_catalog
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from tests.bench.decode import RETENTION_DAYS, time_decoder
from tests.bench.load import Request, http_post
from tests.bench.processes import free_port, run_program, say
from tests.bench.recording import CLUSTER, CYCLE_TICKS, START_MS, WARM_TICKS, scenario_of
from tests.bench.report import OUTPUT, BenchError, Result, Table, number
from tests.bench.sender import send_all
from tests.bench.systems import Fabricscope

AGENTS, QUICK_AGENTS = 32, 12
HOSTS_SIMULATED = 4
BACK_MS = 3 * 3_600_000
"""How long ago the readings are: further than a roll catches up."""
DECODE_PASSES = 20
HEADERS = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}

Batches = list[wire.Batch]


def simulated() -> Batches:
    """The batches of one host, one for each tick."""
    scenario = scenario_of(HOSTS_SIMULATED)
    simulation = Simulation(scenario)
    reporter = Reporter(
        simulation.topology, CLUSTER, start_unix_ns=scenario.start_unix_ns, seed=scenario.seed
    )
    found: Batches = []
    for snapshot in simulation.run():
        decoded = [wire.decode_batch(body) for body in reporter.batches(snapshot)]
        found += [batch for batch in decoded if batch.agent == "node0000" and batch.sample_count]
    return found[WARM_TICKS : WARM_TICKS + CYCLE_TICKS]


def without_records(batch: wire.Batch) -> wire.Batch:
    return msgspec.structs.replace(batch, collectives=None, steps=[], events=[])


def chosen(batch: wire.Batch, wanted: Callable[[str], bool]) -> wire.Batch:
    """The samples of these metrics alone."""
    rows = batch.series_rows()
    kept = [row for row, (name, _) in enumerate(rows) if wanted(name)]
    moved = np.full(len(rows), -1, dtype=np.int64)
    moved[kept] = np.arange(len(kept))
    index = moved[np.frombuffer(batch.index, dtype="<u4")]
    here = index >= 0
    return msgspec.structs.replace(
        batch,
        series=msgspec.Raw(msgspec.msgpack.encode([rows[row] for row in kept])),
        index=index[here].astype("<u4").tobytes(),
        time_ms=np.frombuffer(batch.time_ms, dtype="<i8")[here].tobytes(),
        value=np.frombuffer(batch.value, dtype="<f8")[here].tobytes(),
    )


def joined(batches: Sequence[wire.Batch]) -> wire.Batch:
    """These as one, in order of series, as an agent that collects for longer writes it."""
    one = coalesce(batches)
    index = np.frombuffer(one.index, dtype="<u4")
    order = np.argsort(index, kind="stable")
    return msgspec.structs.replace(
        one,
        first=msgspec.UNSET,
        index=index[order].tobytes(),
        time_ms=np.frombuffer(one.time_ms, dtype="<i8")[order].tobytes(),
        value=np.frombuffer(one.value, dtype="<f8")[order].tobytes(),
    )


def shapes(ticks: Batches) -> dict[str, Batches]:
    """The same readings in each shape."""
    catalog = load_catalog()

    def is_fresh(name: str) -> bool:
        metric = catalog.metric(name)
        return metric is not None and bool(metric.window)

    def together(size: int) -> Batches:
        return [joined(ticks[at : at + size]) for at in range(0, len(ticks), size)]

    fresh = [chosen(batch, is_fresh) for batch in ticks]
    bulk = [without_records(chosen(batch, lambda name: not is_fresh(name))) for batch in ticks]

    def split(size: int) -> Batches:
        return [
            joined([fresh[at], *bulk[at + 1 - size : at + 1]])
            if (at + 1) % size == 0
            else fresh[at]
            for at in range(len(ticks))
        ]

    return {
        "all every 5 s": ticks,
        "all every 10 s": together(2),
        "all every 20 s": together(4),
        "windows and records every 5 s, the rest every 10": split(2),
        "windows and records every 5 s, the rest every 20": split(4),
        "all every 5 s, without records": [without_records(batch) for batch in ticks],
    }


def sent_by(agent: str, batches: Batches, shift_ms: int) -> list[bytes]:
    """The bodies of one agent, with times moved."""
    shift_ns = shift_ms * 1_000_000
    bodies = []
    for sequence, batch in enumerate(batches):
        packed = batch.collectives
        if packed is not None:
            moved = {
                name: moved_ns(getattr(packed, name), shift_ns)
                for name in ("time_ns", "entry_ns", "exit_ns", "enqueue_ns")
            }
            contexts = [msgspec.structs.replace(one, host=agent) for one in packed.contexts]
            packed = msgspec.structs.replace(packed, contexts=contexts, **moved)
        one = msgspec.structs.replace(
            batch,
            agent=agent,
            sequence=sequence,
            common={**batch.common, "host": agent},
            time_ms=(np.frombuffer(batch.time_ms, dtype="<i8") + shift_ms).tobytes(),
            events=[],
            collectives=packed,
            steps=[
                msgspec.structs.replace(
                    span,
                    host=agent,
                    start_ns=span.start_ns + shift_ns,
                    end_ns=span.end_ns + shift_ns,
                )
                for span in batch.steps
            ],
        )
        bodies.append(wire.encode_batch(one))
    return bodies


def moved_ns(column: bytes, shift_ns: int) -> bytes:
    numbers = np.frombuffer(column, dtype="<i8")
    return np.where(numbers < 0, numbers, numbers + shift_ns).tobytes()


def decode_cost(batches: Batches) -> float:
    """CPU-seconds of decoding a million samples, the best of several passes."""
    last_ms = max(int(np.frombuffer(batch.time_ms, dtype="<i8").max()) for batch in batches)
    acceptance = Acceptance.at(last_ms, RETENTION_DAYS)
    tables = NativeTables()
    bodies = [wire.encode_batch(batch) for batch in batches]

    def decode(body: bytes) -> int:
        request = decode_native(body, tables, acceptance)
        request.table.days.update(request.days)  # as after a commit
        return len(request.write.samples)

    return 1e6 / time_decoder(decode, bodies, DECODE_PASSES)[0]


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench."""
    agents = QUICK_AGENTS if is_quick else AGENTS
    ticks = simulated()
    plans = shapes(ticks)
    samples = sum(batch.sample_count for batch in ticks)
    folder = OUTPUT / "work" / "streams"
    shutil.rmtree(folder, ignore_errors=True)
    port, system = free_port(), Fabricscope()
    command = system.command(folder / "service", port)
    if command is None:
        raise BenchError("we are always here")
    costs: dict[str, list[float]] = {name: [] for name in plans}
    sizes = dict.fromkeys(plans, 0.0)
    with run_program("service", command, folder / "service", port) as service:
        service.wait_until_ready(system.ready_path)
        for turn in range(rounds + 1):
            for place, (name, batches) in enumerate(plans.items()):
                shift_ms = round(time.time() * 1000) - BACK_MS - START_MS + turn * 600_000
                bodies = [
                    sent_by(f"s{place}-{agent:04}", batches, shift_ms) for agent in range(agents)
                ]
                queues = [
                    [Request(http_post("/v1/ingest", HEADERS, body), 1) for body in one]
                    for one in bodies
                ]
                before = service.cpu_seconds()
                send_all(port, queues)
                if turn:  # the first makes tables and series known
                    costs[name].append((service.cpu_seconds() - before) / samples / agents * 1e6)
                sizes[name] = sum(len(body) for one in bodies for body in one) / agents / samples
                say(f"streams: {name}: turn {turn}")
    shutil.rmtree(folder, ignore_errors=True)
    title = f"One host of a job, {samples // len(ticks)} series; {agents} such agents"
    return make_result(title, plans, costs, sizes, is_quick=is_quick)


def make_result(
    title: str,
    plans: dict[str, Batches],
    costs: dict[str, list[float]],
    sizes: dict[str, float],
    *,
    is_quick: bool,
) -> Result:
    """The table."""
    decoding = {name: decode_cost(batches) for name, batches in plans.items()}
    medians = {name: float(np.median(found)) for name, found in costs.items()}
    base = medians["all every 5 s"]
    return Result(
        name="streams",
        tables=[
            Table(
                title=title,
                columns=[
                    "",
                    "decoding, CPU-s a million samples",
                    "service, CPU-s a million samples",
                    "of the first",
                    "bytes a sample",
                    "requests",
                ],
                rows=[
                    [
                        name,
                        number(decoding[name]),
                        number(medians[name]),
                        f"{medians[name] / base:.2f}",
                        number(sizes[name]),
                        f"{len(batches)}",
                    ]
                    for name, batches in plans.items()
                ],
            )
        ],
        bars=[],
        figures={
            name: {"cpu": medians[name], "decoding": decoding[name], "bytes": sizes[name]}
            for name in plans
        },
        notes=[
            "12 ticks of 5 s in each turn; nothing is subtracted",
            "merges fall where they fall: the ratios of the service differ by half between runs",
        ],
        is_quick=is_quick,
    )
