"""Joins made records in a fresh store, alone in its process: prints seconds and memory as JSON."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time

from alerts.window.clocks import align
from api.data.store.store import Store, StoreUrl
from api.jobs.correlate.join import split_in_store
from api.jobs.correlate.read import Question, query_records
from api.jobs.correlate.window import power_of_two

RANKS, GROUP = 10_240, 512
"""1,280 hosts of eight ranks, in communicators of 512: one operation a second."""
START_S = 1_794_700_000
ROWS_PER_INSERT = 2_048_000
CLOCK_ROWS = 1_000_000

FILL = """
    INSERT INTO collectives
    SELECT concat('0xc', toString(intDiv(r, {group}))), 'all_reduce', s, r % {group},
           'nccl_inspector', concat('node', toString(intDiv(r, 8))), 1000 + r % 8,
           leave, fromUnixTimestamp64Nano(toInt64(at + cityHash64(s, r) % 3000000)), leave,
           fromUnixTimestamp64Nano(toInt64(at - 1000000)), 28000000, 8388608, {group}, NULL,
           'ring', 'simple', 'kernel', 'completed', ''
    FROM (
        SELECT {first} + intDiv(number, {ranks}) AS s, number % {ranks} AS r,
               toInt64({start} + s) * 1000000000 AS at,
               toInt64(at + 30000000 + cityHash64(s, r, 1) % 400000) AS leave_ns,
               fromUnixTimestamp64Nano(leave_ns) AS leave
        FROM numbers({rows})
    )
"""


def fill(store: Store, rows: int) -> float:
    """Insert so many records of a healthy job; the seconds it took."""
    started = time.perf_counter()
    step = ROWS_PER_INSERT // RANKS
    for first in range(0, rows // RANKS, step):
        count = min(step, rows // RANKS - first) * RANKS
        sql = FILL.format(group=GROUP, ranks=RANKS, start=START_S, first=first, rows=count)
        store._writer.command(sql)
    return time.perf_counter() - started


def main(rows: int) -> None:
    """Fill, align, join."""
    with tempfile.TemporaryDirectory(prefix="fabricscope-bench-") as folder:
        store = Store(StoreUrl.parse(f"chdb://{folder}/store"))
        store.migrate()
        filled = fill(store, rows)
        question = Question(None, START_S * 10**9, (START_S + 100_000) * 10**9, ["nccl_inspector"])
        started = time.perf_counter()
        keep = power_of_two(-(-rows // CLOCK_ROWS))
        clocks = align(query_records(store, question, keep_one_in=keep))
        aligned = time.perf_counter()
        operations = split_in_store(store, question, clocks)
        joined = time.perf_counter()
        store.close()
    figures = {
        "rows": rows,
        "operations": len(operations),
        "complete": int((operations.ranks_seen == GROUP).sum()),
        "fill_seconds": filled,
        "align_seconds": aligned - started,
        "join_seconds": joined - aligned,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]))
