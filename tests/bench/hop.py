"""What the way to the store process costs: `python -m tests.bench.hop`.

The same inserts and questions to an embedded store in this process and to one that another process
owns: CPU-milliseconds of all processes together, each the mean of many.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from api.base.unix_sockets import bind_unix
from api.data.ingest.columns import SampleColumns
from api.data.store.owner import own_store
from api.data.store.store import Store, StoreUrl
from tests.bench.processes import say
from tests.bench.report import ROOT

REPEATS = 40
ROWS = 20_000
"""Of an insert: a second of 25 hosts."""
BIG_ROWS = 200_000
"""Of a large answer: a window of verdicts reads some of this size."""


def rows_of(number: int) -> SampleColumns:
    now_ms = time.time_ns() // 1_000_000
    return SampleColumns(
        metric=np.full(ROWS, 1, np.uint32),
        series=np.arange(ROWS, dtype=np.uint64),
        time_ms=np.full(ROWS, now_ms - 1_000 * number, np.int64),
        value=np.random.default_rng(number).random(ROWS),
    )


def cpu_of(pid: int | None) -> float:
    own = time.process_time()
    return own if pid is None else own + time.clock_gettime((~pid << 3) | 2)


def mean_ms(pid: int | None, work: Callable[[int], object]) -> float:
    work(0)
    before = cpu_of(pid)
    for number in range(1, REPEATS + 1):
        work(number)
    return (cpu_of(pid) - before) / REPEATS * 1e3


def costs(store: Store, pid: int | None) -> dict[str, float]:
    store.migrate()
    store.ping()
    return {
        f"insert of {ROWS:,} samples": mean_ms(pid, lambda n: store.insert_samples(rows_of(n))),
        "small question": mean_ms(pid, lambda _: store.ping()),
        f"answer of {BIG_ROWS:,} rows": mean_ms(
            pid,
            lambda _: store.query(
                "SELECT metric, series, time, value FROM samples LIMIT {n:UInt32}", {"n": BIG_ROWS}
            ),
        ),
    }


def serve(folder: str) -> None:
    path = Path(folder) / "engine.sock"
    own_store(
        Path(folder) / "data", bind_unix(path), Path(folder), lambda _: print("ready", flush=True)
    )


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fabricscope-hop-"))
    words = [sys.executable, "-m", "tests.bench.hop", str(folder)]
    try:
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, env=os.environ) as owner:
            assert owner.stdout is not None
            owner.stdout.readline()
            owned = StoreUrl.parse(f"chdb://{folder / 'data'}")
            store = Store(StoreUrl.owned_elsewhere(folder / "engine.sock", owned))
            over = costs(store, owner.pid)
            store.close()
            owner.kill()
        store = Store(StoreUrl.parse(f"chdb://{folder / 'here'}"))
        here = costs(store, None)
        store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what, cost in here.items():
        say(f"{what}: {cost:.1f} ms here, {over[what]:.1f} ms in another process")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        main()
