"""The job's side: files parsed, records stored, records joined over ranks.

No peer does these; the measure beside us is Python's own `json` on the same bytes, and the bars.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from api.data.ingest.columns import Acceptance
from api.data.ingest.commit import insert_group
from api.data.ingest.native import NativeRequest, decode_native
from api.data.ingest.series import NativeTables
from api.data.store.store import Store, StoreUrl
from collector.agent.buffer import BATCH_COLLECTIVES_MAX
from collector.contract.collective import Collective
from collector.contract.wire import encode_batch, pack_batch
from collector.formats import Origin, discover
from tests.bench.processes import say
from tests.bench.records import inspector_lines
from tests.bench.report import ROOT, Bar, BenchError, Result, Table, number, rate
from tests.bench.traces import kineto_trace

LINES, QUICK_LINES = 200_000, 20_000
TRACE_MB, QUICK_TRACE_MB = 100, 10
JOIN_ROWS, QUICK_JOIN_ROWS = 36_864_000, 1_024_000
"""One hour of a job of 10,240 ranks with one operation a second."""
PASSES = 3
NOW_MS = 1_794_700_000_000
RETENTION_DAYS = 30
ORIGIN = Origin("node0-pid1.log")

LINES_BAR, STORED_BAR = 200_000, 10_000
JOIN_SECONDS_BAR, JOIN_GIB_BAR = 10, 4


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench; the best of several passes, because the rest of the machine only ever slows."""
    passes = 1 if is_quick else PASSES * rounds
    say("jobs: NCCL Inspector lines")
    lines = inspector_lines(QUICK_LINES if is_quick else LINES, 8, 1)
    count = lines.count(b"\n")
    records = parse("nccl_inspector", lines)
    if len(records) != count:
        raise BenchError(f"{count} lines gave {len(records)} records")
    parsed = best(lambda: drain("nccl_inspector", lines), passes)
    plain = best(lambda: deque(map(json.loads, lines.splitlines()), 0), passes)
    say("jobs: a Kineto trace")
    trace = b"".join(kineto_trace(QUICK_TRACE_MB if is_quick else TRACE_MB, 1))
    kineto = best(lambda: drain("kineto", trace), passes)
    whole = best(lambda: json.loads(trace), 1)
    say("jobs: records stored")
    decoded, stored = time_store(records)
    say("jobs: an hour of 10,240 ranks, joined in the store")
    joined = time_join(QUICK_JOIN_ROWS if is_quick else JOIN_ROWS)
    megabytes = len(trace) / 1e6
    rows = [
        ["Inspector lines, verbose", rate(count / parsed), f"{plain / parsed:.1f}x json.loads"],
        ["Kineto trace", f"{megabytes / kineto:.0f} MB/s", f"{whole / kineto:.1f}x json.loads"],
        ["records decoded from batches", rate(count / decoded), ""],
        ["records inserted", rate(count / stored), ""],
        ["rows joined", rate(joined["rows"] / joined["join_seconds"]), f"{joined['rows']:,} rows"],
    ]
    table = Table(title="The job's side, per second", columns=["", "speed", ""], rows=rows)
    return Result(
        name="jobs",
        tables=[table],
        bars=bars(count / parsed, count / stored, joined),
        figures={
            "inspector_lines_per_second": count / parsed,
            "kineto_mb_per_second": megabytes / kineto,
            "records_decoded_per_second": count / decoded,
            "records_inserted_per_second": count / stored,
            "join": joined,
        },
        notes=[f"clocks of 1,280 hosts: {number(joined['align_seconds'])} s beside the join"],
        is_quick=is_quick,
    )


def bars(parsed: float, stored: float, joined: dict[str, Any]) -> list[Bar]:
    """What was promised."""
    return [
        Bar(
            what="Inspector lines parsed a second on one core {needed} k",
            needed=LINES_BAR / 1e3,
            value=parsed / 1e3,
            unit=" k/s",
        ),
        Bar(
            what="records inserted a second {needed} k (36 million an hour)",
            needed=STORED_BAR / 1e3,
            value=stored / 1e3,
            unit=" k/s",
        ),
        Bar(
            what="an hour of 10,240 ranks joined in seconds {needed}",
            needed=JOIN_SECONDS_BAR,
            value=joined["join_seconds"],
            unit=" s",
            at_most=True,
        ),
        Bar(
            what="its peak memory in GiB {needed}",
            needed=JOIN_GIB_BAR,
            value=joined["peak_gib"],
            unit=" GiB",
            at_most=True,
        ),
    ]


def parse(name: str, content: bytes) -> list[Collective]:
    """The collectives in these bytes."""
    found = discover()[name].parse(io.BytesIO(content), ORIGIN)
    return [record for record in found if isinstance(record, Collective)]


def drain(name: str, content: bytes) -> None:
    """Parse and forget."""
    deque(discover()[name].parse(io.BytesIO(content), ORIGIN), 0)


def best(work: Callable[[], object], passes: int) -> float:
    """The CPU-seconds of the fastest pass."""
    found = []
    for _ in range(passes):
        started = time.thread_time()
        work()
        found.append(time.thread_time() - started)
    return min(found)


def time_store(records: list[Collective]) -> tuple[float, float]:
    """CPU-seconds to decode batches of these records, and seconds to insert them."""
    bodies = []
    for first in range(0, len(records), BATCH_COLLECTIVES_MAX):
        batch = pack_batch(
            [],
            collectives=records[first : first + BATCH_COLLECTIVES_MAX],
            agent="bench",
            boot="bench",
            sequence=first,
            sent_ms=NOW_MS,
            common={"host": "node0"},
        )
        bodies.append(encode_batch(batch))
    tables, acceptance = NativeTables(), Acceptance.at(NOW_MS + 60_000, RETENTION_DAYS)
    decode_native(bodies[0], tables, acceptance)  # the first one also loads libraries
    started = time.thread_time()
    requests: list[NativeRequest] = [decode_native(body, tables, acceptance) for body in bodies]
    decoded = time.thread_time() - started
    with tempfile.TemporaryDirectory(prefix="fabricscope-bench-") as folder:
        store = Store(StoreUrl.parse(f"chdb://{folder}/store"))
        store.migrate()
        begun = time.perf_counter()
        for request in requests:
            insert_group(store, [request.write])
        stored = time.perf_counter() - begun
        kept = int(store.query("SELECT count() AS n FROM collectives FINAL")["n"][0].as_py())
        store.close()
    if kept != len(records):
        raise BenchError(f"{len(records)} records were inserted, {kept} are there")
    return decoded, stored


def time_join(rows: int) -> dict[str, Any]:
    """The join of so many records, in a process of its own: its memory is part of the bar."""
    command = [sys.executable, "-m", "tests.bench.join_rows", str(rows)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"join_rows failed: {done.stderr.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if figures["complete"] != figures["operations"]:
        raise BenchError(f"not every operation is complete: {figures}")
    return figures
