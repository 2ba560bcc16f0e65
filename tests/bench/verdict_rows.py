"""From made records to a verdict, alone in its process: prints seconds and memory as JSON.

`python -m tests.bench.verdict_rows ROWS`. A job of 10,240 ranks does one operation a second; one
host is late by a fifth of a second from two thirds of the time on, and must be named.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from alerts.detectors import discover
from alerts.finding import Finding
from alerts.judge.verdict import judge
from alerts.window.model import Window
from api.data.inventory.job_model import CommunicatorFound, JobFound, MemberFound, Origin, said
from api.data.inventory.repository import Inventory
from api.data.store.store import Store, StoreUrl
from api.fabric.cache import TopologyCache
from api.jobs.correlate.windows import WindowReader
from collector.contract.units import NS
from tests.bench.join_rows import GROUP, RANKS, ROWS_PER_INSERT, START_S

GPUS = 8
LATE_HOST = 700
LATE_NS = 200_000_000
LATE_FROM = 2 / 3
"""Of the time: of an hour from minute 40 on."""
JOB = "bench"

FILL = """
    INSERT INTO collectives
    SELECT concat('0xc', toString(intDiv(r, {group}))), 'all_reduce', s, r % {group},
           'nccl_inspector', concat('node', toString(intDiv(r, {gpus}))), 1000 + r % {gpus},
           leave, fromUnixTimestamp64Nano(toInt64(at + late + cityHash64(s, r) % 3000000)), leave,
           fromUnixTimestamp64Nano(toInt64(at - 1000000)), 28000000, 8388608, {group}, NULL,
           'ring', 'simple', 'kernel', 'completed', ''
    FROM (
        SELECT {first} + intDiv(number, {ranks}) AS s, number % {ranks} AS r,
               toInt64({start} + s) * 1000000000 AS at,
               s >= {late_from} AS is_late,
               is_late AND intDiv(r, {gpus}) = {late_host} ? {late_ns} : 0 AS late,
               is_late AND intDiv(r, {group}) = intDiv({late_host} * {gpus}, {group})
                   ? {late_ns} : 0 AS waited,
               toInt64(at + 30000000 + waited + cityHash64(s, r, 1) % 400000) AS leave_ns,
               fromUnixTimestamp64Nano(leave_ns) AS leave
        FROM numbers({rows})
    )
"""


def fill(store: Store, rows: int) -> int:
    """Insert so many records; how many seconds of the job they are."""
    steps, each = rows // RANKS, ROWS_PER_INSERT // RANKS
    for first in range(0, steps, each):
        values = {
            "group": GROUP,
            "gpus": GPUS,
            "ranks": RANKS,
            "start": START_S,
            "first": first,
            "rows": min(each, steps - first) * RANKS,
            "late_from": int(steps * LATE_FROM),
            "late_host": LATE_HOST,
            "late_ns": LATE_NS,
        }
        store._writer.command(FILL.format(**values))
    return steps


def keep_job(inventory: Inventory, seconds: int) -> None:
    """The job with all its ranks and communicators."""
    hosts = [f"node{number}" for number in range(RANKS // GPUS)]
    places = tuple(
        said(
            rank, Origin.NCCL, host=hosts[rank // GPUS], pid=1000 + rank % GPUS,
            gpu=str(rank % GPUS), device=f"mlx5_{rank % GPUS}",
        )
        for rank in range(RANKS)
    )  # fmt: skip
    first_ns, last_ns = START_S * NS, (START_S + seconds) * NS
    groups = tuple(
        CommunicatorFound(
            communicator=f"0xc{number}",
            ranks=GROUP,
            members=tuple(
                MemberFound(
                    rank=rank,
                    host=hosts[(number * GROUP + rank) // GPUS],
                    pid=1000 + rank % GPUS,
                    job_rank=number * GROUP + rank,
                )
                for rank in range(GROUP)
            ),
            first_ns=first_ns,
            last_ns=last_ns,
        )
        for number in range(RANKS // GROUP)
    )
    found = JobFound(
        job=JOB,
        was_said=True,
        ranks=RANKS,
        places=places,
        communicators=groups,
        hosts=frozenset(hosts),
        first_ns=first_ns,
        last_ns=last_ns,
    )
    inventory.jobs.keep(found, datetime.fromtimestamp(START_S + seconds, tz=UTC))


def find_all(window: Window, seconds: dict[str, float]) -> list[Finding]:
    """What all detectors find; how long each took goes into ``seconds``."""
    found: list[Finding] = []
    for name, detect in discover().items():
        started = time.perf_counter()
        found += detect(window)
        seconds[name] = time.perf_counter() - started
    return found


def main(rows: int) -> None:
    """Fill, read, find, judge."""
    with tempfile.TemporaryDirectory(prefix="fabricscope-bench-") as folder:
        store = Store(StoreUrl.parse(f"chdb://{folder}/store"))
        store.migrate()
        seconds = fill(store, rows)
        inventory = Inventory(f"sqlite:///{Path(folder) / 'inventory.db'}")
        inventory.migrate()
        keep_job(inventory, seconds)
        end_ns = (START_S + seconds) * NS
        cables = TopologyCache(inventory, lambda: float(START_S + seconds))
        reader = WindowReader(store, inventory, cables.at)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        window = reader.read(START_S * NS, end_ns)
        read = time.perf_counter()
        parts: dict[str, float] = {}
        findings = find_all(window, parts)
        verdicts = judge(window, findings)
        judged = time.perf_counter()
        store.close()
        inventory.close()
    figures = {
        "rows": rows,
        "rows_held": sum(len(job.records) for job in window.jobs),
        "operations": sum(len(job.operations) for job in window.jobs),
        "read_seconds": read - started,
        "judge_seconds": judged - read,
        "seconds": judged - started,
        "detectors": {name: round(value, 3) for name, value in parts.items() if value > 0.05},
        "peak_before_gib": before / (1 << 20),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20),
        "verdicts": [[str(one.cause), one.culprit.host or ""] for one in verdicts],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]))
