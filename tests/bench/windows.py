"""Reads windows of a made cluster from a fresh store, alone in its process: prints JSON.

`python -m tests.bench.windows [PORTS]`; small by default. Each NIC and switch port has the counters
that windows have, read every five seconds; a quarter of them moves.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time

from alerts.window.model import Ports
from api.data.store.store import Store, StoreUrl
from api.jobs.correlate import things
from api.jobs.correlate.readings import GridReader
from api.jobs.correlate.things import read_ports
from api.jobs.correlate.windows import grid_of
from collector.contract.identity import metric_id
from collector.contract.units import NS

PORTS = 1_000
PORTS_PER_HOST = 8
START_S = 1_794_700_000
WINDOW_S = 150
BEFORE_S = 60
"""Samples before the window, which first rates need."""
PERIOD_S = 5
MOVING_ONE_IN = 4
WINDOWS = 5

SAMPLES = """
    INSERT INTO samples (metric, series, time, whole, fraction)
    SELECT {metric}, cityHash64({metric}, p), toDateTime64({start} + t * {period}, 3, 'UTC'),
           if({moves}, toInt64(t * 1000000 + p), 7), 0
    FROM (SELECT number % {ports} AS p, intDiv(number, {ports}) AS t FROM numbers({rows}))
"""
NAMES = """
    INSERT INTO series (day, metric_name, series, labels)
    SELECT toDate({start}), '{name}', cityHash64({metric}, number),
           map('host', concat('node', leftPad(toString(intDiv(number, {per_host})), 5, '0')),
               'device', concat('mlx5_', toString(number % {per_host})), 'port', '1')
    FROM numbers({ports})
"""


def fill(store: Store, ports: int) -> int:
    """Samples of all ports' readings; how many."""
    times = (BEFORE_S + WINDOW_S + WINDOWS * PERIOD_S) // PERIOD_S
    names = [choice.metric for choice in things.PORTS.choices]
    for number, name in enumerate(names):
        values = {
            "metric": metric_id(name),
            "name": name,
            "start": START_S,
            "period": PERIOD_S,
            "moves": int(number % MOVING_ONE_IN == 0),
            "ports": ports,
            "per_host": PORTS_PER_HOST,
            "rows": ports * times,
        }
        store._writer.command(SAMPLES.format(**values))
        store._writer.command(NAMES.format(**values))
    return len(names) * ports * times


def read(reader: GridReader, number: int) -> tuple[Ports, float]:
    """The window that ends some periods after the first one, and the seconds that it took."""
    end_ns = (START_S + BEFORE_S + WINDOW_S + number * PERIOD_S) * NS
    started = time.perf_counter()
    ports = read_ports(reader, None, grid_of(end_ns - WINDOW_S * NS, end_ns))
    return ports, time.perf_counter() - started


def main(count: int) -> None:
    """Fill, read the first window (names are learnt) and some more."""
    with tempfile.TemporaryDirectory(prefix="fabricscope-bench-") as folder:
        store = Store(StoreUrl.parse(f"chdb://{folder}/store"))
        store.migrate()
        samples = fill(store, count)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reader = GridReader(store)
        _, first = read(reader, 0)
        processor = time.process_time()
        later = [read(reader, number)[1] for number in range(1, WINDOWS)]
        processor = (time.process_time() - processor) / len(later)
        ports, _ = read(reader, WINDOWS)
        store.close()
    if len(ports) != count:
        sys.exit(f"{len(ports)} of {count} ports were read")
    figures = {
        "ports": count,
        "samples": samples,
        "first_seconds": first,
        "median_seconds": sorted(later)[len(later) // 2],
        "processor_seconds": processor,
        "peak_before_gib": before / (1 << 20),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PORTS)
