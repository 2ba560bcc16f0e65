"""Decoding alone, on one core: from the body of a request to columns, without the store."""

from __future__ import annotations

import time
from collections.abc import Callable

from api.data.ingest.columns import Acceptance
from api.data.ingest.native import decode_native
from api.data.ingest.remote_write import unpack
from api.data.ingest.remote_write_v1 import decode_v1
from api.data.ingest.series import NativeTables, RemoteSeries
from tests.bench.load import SERIES_PER_HOST, make_load, native_bodies, remote_bodies
from tests.bench.processes import say
from tests.bench.report import Bar, Result, Table, rate

HOSTS, READINGS = 208, 10
"""As many series as in the ingest bench: memories of known series must not fit into the cache."""
RETENTION_DAYS = 30
PASSES, QUICK_PASSES = 5, 1
NATIVE_BAR = 10e6


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench: the best of several passes, because the rest of the machine only ever slows."""
    passes = QUICK_PASSES if is_quick else PASSES * rounds
    load = make_load(HOSTS, READINGS)
    acceptance = Acceptance.at(load.times_ms[-1], RETENTION_DAYS)
    speeds: dict[str, tuple[float, float]] = {}
    for readings in (10, 1):
        say(f"decode: native batches of {SERIES_PER_HOST} series x {readings}")
        tables = NativeTables()
        bodies = [body for _, body, _ in native_bodies(load, readings)]

        def native(body: bytes, tables: NativeTables = tables) -> int:
            request = decode_native(body, tables, acceptance)
            request.table.days.update(request.days)  # as after a commit
            return len(request.write.samples)

        speeds[f"native x{readings}"] = time_decoder(native, bodies, passes)
    say("decode: remote write")
    known = RemoteSeries()

    def remote(body: bytes) -> int:
        request = decode_v1(unpack(body), known, acceptance)
        known.written(request.write.series)  # as after a commit
        return len(request.write.samples)

    bodies = [body for _, body, _ in remote_bodies(load)]
    speeds["remote write"] = time_decoder(remote, bodies, passes)
    return Result(
        name="decode",
        tables=[
            Table(
                title="Samples decoded per second of one core",
                columns=["", "known series", "first pass, all series new"],
                rows=[[name, rate(warm), rate(cold)] for name, (warm, cold) in speeds.items()],
            )
        ],
        bars=[
            Bar(
                what="native x10, million samples decoded per CPU-second {needed}",
                needed=NATIVE_BAR / 1e6,
                value=speeds["native x10"][0] / 1e6,
                unit=" M/s",
            )
        ],
        figures={name: {"warm": warm, "cold": cold} for name, (warm, cold) in speeds.items()},
        is_quick=is_quick,
    )


def time_decoder(
    decode: Callable[[bytes], int], bodies: list[bytes], passes: int
) -> tuple[float, float]:
    """Samples a second with everything known (the best pass), and in the first pass."""
    found = []
    for _ in range(passes + 1):
        started = time.thread_time()
        samples = sum(decode(body) for body in bodies)
        found.append(samples / (time.thread_time() - started))
    return max(found[1:]), found[0]
