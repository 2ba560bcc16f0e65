"""The built-in page's two large answers, from a fresh store, alone in its process: prints JSON.

`python -m tests.bench.page_rows fabric LINKS` or `… heat RANKS`. Made links have what switches and
NICs are asked for, read every ten seconds for an hour; made ranks do four collectives a step.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from api.base.limits import HEAT_RANKS_MAX, HEAT_STEPS_MAX, LOOK_RECORDS_MAX
from api.data.store.store import Store, StoreUrl
from api.fabric.model import Topology, make_topology
from api.http.routes.fabric import show
from api.http.routes.shared.matrices import pack_floats
from api.jobs.correlate.fabric import FabricReader, frames_of
from api.jobs.correlate.heat import Quantity, heat_of
from api.jobs.correlate.window import JobWork, look
from collector.contract.identity import PortId, metric_id
from collector.contract.units import NS
from tests.worlds.topologies import AT, cable

START_S = 1_794_700_000
SECONDS, PERIOD_S = 3_600, 10
FRAMES = 60
PASSES = 3
NICS_PER_HOST, PORTS_PER_SWITCH = 8, 64

MOVING = ("transmit_bytes_total", "receive_bytes_total", "transmit_wait_seconds_total")
STILL = (
    "symbol_errors_total",
    "receive_errors_total",
    "transmit_discards_total",
    "receive_discards_total",
)
LEVELS = {"state": 4, "rate_bits_per_second": 400_000_000_000}

SAMPLES = """
    INSERT INTO samples (metric, series, time, whole, fraction)
    SELECT {metric}, cityHash64({metric}, p), toDateTime64({start} + t * {period}, 3, 'UTC'),
           {value}, 0
    FROM (SELECT number % {ports} AS p, intDiv(number, {ports}) AS t FROM numbers({rows}))
"""
NAMES = """
    INSERT INTO series (day, metric_name, series, labels)
    SELECT toDate({start}), '{name}', cityHash64({metric}, p),
           if(p < {links},
              map('host', concat('node', toString(intDiv(p, {nics}))),
                  'device', concat('mlx5_', toString(p % {nics})), 'port', '1'),
              map('host', concat('leaf', toString(intDiv(p - {links}, {switch_ports}))),
                  'device', concat('leaf', toString(intDiv(p - {links}, {switch_ports}))),
                  'port', toString((p - {links}) % {switch_ports})))
    FROM (SELECT number AS p FROM numbers({ports}))
"""
OPERATIONS_PER_STEP = 4
RECORDS = """
    INSERT INTO collectives
    SELECT '0xc', 'all_reduce', s, r, 'nccl_inspector', concat('node', toString(intDiv(r, 8))),
           1000 + r % 8, leave, fromUnixTimestamp64Nano(toInt64(at + cityHash64(s, r) % 3000000)),
           leave, fromUnixTimestamp64Nano(toInt64(at - 1000000)), 28000000,
           [67108864, 8388608, 8388608, 1048576][s % {each} + 1], {ranks}, NULL,
           'ring', 'simple', 'kernel', 'completed', ''
    FROM (
        SELECT {first} + intDiv(number, {ranks}) AS s, number % {ranks} AS r,
               toInt64({start} + intDiv(s, {each})) * 1000000000
                   + toInt64(s % {each}) * 100000000 AS at,
               fromUnixTimestamp64Nano(toInt64(at + 30000000 + cityHash64(s, r, 1) % 400000)) AS leave
        FROM numbers({rows})
    )
"""  # noqa: E501


def best(work: Callable[[], object]) -> float:
    """The CPU-seconds, of all threads, of the cheapest pass: others may use the machine, too."""
    found = []
    for _ in range(PASSES):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def fill_samples(store: Store, links: int) -> int:
    """An hour of samples of both ends of so many links; how many."""
    times = SECONDS // PERIOD_S
    values = {f"fabric_port_{name}": "t * 40000000000 + p" for name in MOVING}
    values |= dict.fromkeys((f"fabric_port_{name}" for name in STILL), "7")
    values |= {f"fabric_port_{name}": str(level) for name, level in LEVELS.items()}
    for name, value in values.items():
        words: dict[str, Any] = {
            "metric": metric_id(name),
            "name": name,
            "value": value,
            "start": START_S,
            "period": PERIOD_S,
            "links": links,
            "ports": 2 * links,
            "rows": 2 * links * times,
            "nics": NICS_PER_HOST,
            "switch_ports": PORTS_PER_SWITCH,
        }
        store._writer.command(SAMPLES.format(**words))
        store._writer.command(NAMES.format(**words))
    return len(values) * 2 * links * times


def made_topology(links: int) -> Topology:
    """Every NIC at a port of a leaf."""
    ends = []
    for number in range(links):
        leaf = f"leaf{number // PORTS_PER_SWITCH}"
        nic = PortId(f"node{number // NICS_PER_HOST}", f"mlx5_{number % NICS_PER_HOST}", "1")
        ends.append(cable(nic, PortId(leaf, leaf, str(number % PORTS_PER_SWITCH))))
    return make_topology(AT, [], [], ends)


def measure_fabric(store: Store, links: int) -> dict[str, float]:
    """The state of all links at FRAMES moments of the hour."""
    samples = fill_samples(store, links)
    topology = made_topology(links)
    chosen = list(topology.links.values())
    names = [str(link.id) for link in chosen]
    grid = frames_of(START_S * NS, (START_S + SECONDS) * NS, FRAMES)
    reader = FabricReader(store)
    started = time.process_time()
    state = reader.read(topology, chosen, grid)
    first = time.process_time() - started
    body = show(state, names).model_dump_json()
    known = [state.a_to_b, state.b_to_a, state.errors, state.paused, state.up]
    plain = msgspec.json.encode([matrix.tolist() for matrix in known])
    if state.up.min() != 1.0 or state.up.shape != (FRAMES, links):
        sys.exit(f"not every link was read: {state.up.shape}, {state.up.min()}")
    return {
        "links": links,
        "samples": samples,
        "estimate": reader.estimate(grid),
        "first_seconds": first,
        "seconds": best(lambda: reader.read(topology, chosen, grid)),
        "encode_seconds": best(lambda: show(state, names).model_dump_json()),
        "plain_encode_seconds": best(lambda: msgspec.json.encode([m.tolist() for m in known])),
        "bytes": len(body),
        "plain_bytes": len(plain),
    }


def fill_records(store: Store, ranks: int, steps: int) -> int:
    """Steps of a healthy job; how many records."""
    operations = steps * OPERATIONS_PER_STEP
    at_once = max(1, 2_000_000 // ranks)
    for first in range(0, operations, at_once):
        rows = min(at_once, operations - first) * ranks
        words = {"first": first, "ranks": ranks, "rows": rows, "start": START_S}
        store._writer.command(RECORDS.format(**words, each=OPERATIONS_PER_STEP))
    return operations * ranks


def measure_heat(store: Store, ranks: int) -> dict[str, float]:
    """As many steps of so many ranks as one answer looks at all records of."""
    steps = min(HEAT_STEPS_MAX, LOOK_RECORDS_MAX // (ranks * OPERATIONS_PER_STEP))
    records = fill_records(store, ranks, steps)
    job_rank = {("0xc", rank): rank for rank in range(ranks)}
    span = (START_S * NS, (START_S + steps + 1) * NS)

    def read() -> Any:  # noqa: ANN401 - a window
        return look(store, job_rank, *span, records_max=LOOK_RECORDS_MAX)

    window = read()

    def draw(quantity: Quantity) -> Any:  # noqa: ANN401 - a heat map
        limits = {"steps_max": HEAT_STEPS_MAX, "ranks_max": HEAT_RANKS_MAX}
        return heat_of(JobWork(window, job_rank), quantity, **limits)

    drawn = draw(Quantity.LATE)
    if drawn is None or drawn.values.shape != (min(ranks, HEAT_RANKS_MAX), steps - 2):
        sys.exit("not every step of every rank was found")
    return {
        "ranks": ranks,
        "steps": steps,
        "records": records,
        "read_seconds": best(read),
        **{f"{one}_seconds": best(partial(draw, one)) for one in Quantity},
        "encode_seconds": best(lambda: pack_floats(drawn.values).model_dump_json()),
        "plain_encode_seconds": best(lambda: msgspec.json.encode(drawn.values.tolist())),
        "bytes": len(pack_floats(drawn.values).model_dump_json()),
        "plain_bytes": len(msgspec.json.encode(drawn.values.tolist())),
    }


def main(what: str, count: int) -> None:
    """Measure one of them."""
    measure = {"fabric": measure_fabric, "heat": measure_heat}[what]
    with tempfile.TemporaryDirectory(prefix="fabricscope-bench-") as folder:
        store = Store(StoreUrl.parse(f"chdb://{folder}/store"))
        store.migrate()
        figures = measure(store, count)
        store.close()
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(json.dumps(figures | {"peak_gib": peak_gib}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
