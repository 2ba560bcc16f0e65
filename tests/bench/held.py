"""A store that holds half an hour of a recorded cluster, and a service over it whose clock stands.

The first minute is sent as agents send it, the store repeats it, and ticks then go on one by one.
Collectives of the first minute are made into series as the running service does it, and repeated
with everything else. A filled store is kept below `build/bench` and used again.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

from api.base.kept import Kept
from api.http.context import Context
from api.jobs.correlate import ahead
from api.jobs.correlate.pieces import PIECES_BYTES_MAX
from api.jobs.correlate.roll import DELAY_SECONDS, ROLL_SECONDS, RollTask
from api.jobs.watch import JobWatch
from collector.contract.catalog import Kind, load_catalog
from collector.contract.identity import metric_id
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Layer, Reason, Verdict
from collector.contract.wire import CONTENT_TYPE
from tests.bench.live import JOB, recorded
from tests.bench.processes import say
from tests.bench.recording import CYCLE_MS, CYCLE_TICKS, GPUS, TICK_SECONDS, Recording
from tests.bench.report import OUTPUT
from tests.stands.round_by_round import RoundByRound, round_by_round
from tests.worlds.incidents import Teller

CYCLES = 31
"""Minutes that are stored before the first question: half an hour, and what it looks back."""
CYCLES_AT_ONCE = 10
"""Minutes that one statement writes, so that the engine holds no more."""
READ_TICKS = 3
"""Agents read their counters every 15 s, as Prometheus scrapes: two cores fill a store with 256
hosts so in a quarter of an hour. Records of jobs are whole."""
NEXT_TICKS = 6
"""Until the page asks again: 30 seconds."""
JOB_HOSTS = 8
"""Of each job, whatever the number of hosts: the cost of one job's view must not grow with it."""
HOST = "node0001"
"""One of the first job's, which an incident accuses."""
HEADERS = {"Content-Type": CONTENT_TYPE, "Content-Encoding": "zstd"}

GROWN = """
    CREATE TABLE bench_grown ENGINE = Memory AS
    SELECT metric, series,
        maxIf(value, time >= {end}) AS later, minIf(value, time < {second}) AS early,
        if(countIf(time >= {end}) AND countIf(time < {second}), later - early, 0) AS grown
    FROM samples WHERE metric IN ({counters}) AND time >= {first} GROUP BY metric, series
"""
"""By how much a cycle's counters grow: exactly what the player adds, so that what it plays after
the filled minutes goes on where they end, and no counter leaps there."""
MORE_SAMPLES = """
    INSERT INTO samples (metric, series, time, whole, fraction)
    SELECT metric, series, time + toIntervalMillisecond(cycle * {ms}),
        if(grown = 0, whole, if(is_whole, toInt64(more), 0)),
        if(grown = 0, fraction, if(is_whole, 0., more))
    FROM (
        SELECT metric, series, time, whole, fraction, grown, cycle,
            value + cycle * grown AS more, more = floor(more) AND abs(more) < 9e15 AS is_whole
        FROM (
            SELECT metric, series, time, whole, fraction, value, grown
            FROM samples LEFT JOIN bench_grown USING (metric, series)
            WHERE time >= {first} AND time < {end}
        ) ARRAY JOIN range({from_cycle}, {to_cycle}) AS cycle
    )
    SETTINGS min_insert_block_size_rows = 8000000, min_insert_block_size_bytes = 1000000000
"""
MORE_COLLECTIVES = """
    INSERT INTO collectives
    SELECT * EXCEPT (taken, cycle) REPLACE (
        sequence + cycle * taken AS sequence,
        time + toIntervalMillisecond(cycle * {ms}) AS time,
        entry + toIntervalMillisecond(cycle * {ms}) AS entry,
        exit + toIntervalMillisecond(cycle * {ms}) AS exit,
        enqueue + toIntervalMillisecond(cycle * {ms}) AS enqueue)
    FROM (
        SELECT * FROM
            (SELECT * FROM collectives WHERE time >= {first} AND time < {end}) AS played
        LEFT JOIN (
            SELECT communicator, operation, max(sequence) + 1 - min(sequence) AS taken
            FROM collectives WHERE time >= {first} AND time < {end} GROUP BY communicator, operation
        ) AS numbers USING (communicator, operation)
    ) ARRAY JOIN range({from_cycle}, {to_cycle}) AS cycle
    SETTINGS min_insert_block_size_rows = 2000000, min_insert_block_size_bytes = 1000000000
"""
# Names of hosts, switches and jobs, of which each copy has its own.
OWN_NAME = "'((node|leaf|spine|job-)[0-9]+)'"
MORE_SERIES = """
    INSERT INTO series SELECT day, metric_name, cityHash64(series, copy),
        mapApply((name, value) -> (
            name, replaceRegexpAll(value, {own_name}, concat('\\\\1x', toString(copy)))), labels)
    FROM series ARRAY JOIN range(1, {times}) AS copy
"""
MORE_HOSTS = """
    INSERT INTO samples (metric, series, time, whole, fraction)
    SELECT metric, cityHash64(series, copy), time, whole, fraction
    FROM samples ARRAY JOIN range(1, {times}) AS copy
    SETTINGS min_insert_block_size_rows = 8000000, min_insert_block_size_bytes = 1000000000
"""


class Clock:
    """Unix seconds, set by hand."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


class Stand:
    """A service over a filled store, whose time goes on tick by tick."""

    def __init__(
        self,
        service: RoundByRound,
        file: Callable[[], Path],
        clock: Clock,
        start_ms: int,
        read_ticks: int = READ_TICKS,
    ) -> None:
        """``file``: the recording of the cluster, asked for when it is played."""
        self.service, self.clock = service, clock
        self.start_ms, self.read_ticks = start_ms, read_ticks
        self._file = file
        self.tick = 0
        self.watch = JobWatch(service.service.store, service.service.inventory)

    @cached_property
    def recording(self) -> Recording:
        return Recording(self._file())

    @property
    def parts(self) -> Context:
        return self.service.service.context

    @property
    def url(self) -> str:
        return str(self.service.client.base_url).rstrip("/")

    def play(self, ticks: int) -> None:
        """The next ticks, as agents send them."""
        for _ in range(ticks):
            cycle, tick = divmod(self.tick, CYCLE_TICKS)
            self.clock.seconds = self.start_ms / 1000 + (self.tick + 1) * TICK_SECONDS
            self.send(self.recording.played(cycle, tick, self.start_ms, self.read_ticks))
            self.tick += 1

    def send(self, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            answer = self.service.client.post("/v1/ingest", content=body, headers=HEADERS)
            assert answer.status_code == 200, answer.text

    def look(self) -> None:
        """What the watches of ports and jobs and the inventory's feed do, at the stand's time."""
        now = dt.datetime.fromtimestamp(self.clock(), tz=dt.UTC)
        self.service.do(self.parts.ingest.sighted())
        self.parts.ingest.feed.run_once()
        self.service.ports.look(now)
        self.parts.inventory.links.note_unplugged(now)
        self.watch.look(now)
        self.service.judge_health()

    def advance(self) -> None:
        """Go on until the page asks again."""
        self.play(NEXT_TICKS)
        self.look()
        self.roll(self.clock())

    def roll(self, until_s: float) -> None:
        """Make series of collectives until this moment, one stretch after the other."""
        self.service.lead()
        task, now_s = self.service.part("roll", RollTask), self.clock.seconds
        for ago in range(60, -1, -ROLL_SECONDS):
            self.clock.seconds = until_s - ago
            self.service.do(task.catch_up())
        self.clock.seconds = now_s

    def make_ahead(self) -> int:
        """Make anew what the service makes of jobs before they are looked at; how many pieces.

        Without the pauses that keep it within its share of a core.
        """
        self.parts.job_pieces.kept = Kept(PIECES_BYTES_MAX)
        with patch.object(ahead, "AHEAD_SHARE", 1.0), patch.object(ahead, "ROUND_PIECES_MAX", 8):
            # From this round on it is known that nothing is written.
            made = self.service.do(self.parts.ahead.round())
            while some := self.service.do(self.parts.ahead.round()):
                made += some
        return made

    def accuse(self) -> None:
        """One incident, of a NIC of the job's first host."""
        now_ns = int(self.clock() * NS)
        culprit = Culprit(host=HOST, device="mlx5_0", port="1")
        verdict = Verdict(
            cause=Cause.SLOW_LINK,
            culprit=culprit,
            since_ns=now_ns - 120 * NS,
            reason=Reason.NIC,
            confidence=0.9,
            layer=Layer.NETWORK,
            summary="its NIC is slow",
            jobs=(JOB,),
        )
        Teller(self.parts.inventory, self.service.service.store).say(now_ns, verdict)

    def fill(self, cycles: int = CYCLES) -> None:
        """So many minutes: one that is sent, and what the store makes of it."""
        self.play(CYCLE_TICKS)
        self.look()
        first_ms, end_ms = self.start_ms - 60_000, self.start_ms + CYCLE_MS
        half_ms = round(TICK_SECONDS * 500)
        given: dict[str, Any] = {
            "ms": CYCLE_MS,
            "first": f"fromUnixTimestamp64Milli({first_ms})",
            # Readings of a tick stand at its end, or a moment before.
            "second": f"fromUnixTimestamp64Milli({self.start_ms + 3 * half_ms})",
            "end": f"fromUnixTimestamp64Milli({end_ms + half_ms})",
            "counters": ", ".join(
                str(metric_id(one.name))
                for one in load_catalog().metrics
                if one.kind is not Kind.GAUGE
            ),
        }
        self._command(MORE_COLLECTIVES, {**given, "from_cycle": 1, "to_cycle": 2})
        self.roll(end_ms / 1000 + DELAY_SECONDS)
        self.service.part("roll", RollTask)._rolled_s = None
        self.clock.seconds += TICK_SECONDS
        self.send(self.recording.first_readings(1, self.start_ms))
        self._command(GROWN, given)
        for cycle in range(1, cycles, CYCLES_AT_ONCE):
            say(f"held: minute {cycle + 1} of {cycles}")
            end = min(cycles, cycle + CYCLES_AT_ONCE)
            self._command(MORE_SAMPLES, {**given, "from_cycle": cycle, "to_cycle": end})
            begin = max(2, cycle)
            self._command(MORE_COLLECTIVES, {**given, "from_cycle": begin, "to_cycle": end})
        self._command("DROP TABLE bench_grown", {})
        self.tick = cycles * CYCLE_TICKS
        self.clock.seconds = self.start_ms / 1000 + self.tick * TICK_SECONDS

    def finish(self) -> None:
        """What views need beside half an hour: now at a moment of theirs, and an incident."""
        # Until the page's questions, which end at a multiple of 30 s, end at now.
        while self.clock() % (NEXT_TICKS * TICK_SECONDS):
            self.play(1)
        self.look()
        self.accuse()

    def multiply(self, times: int) -> None:
        """Samples as of so many times the hosts; the inventory and records know the first alone.

        What a question about one of its jobs or hosts costs shows so, in minutes.
        """
        self._command(MORE_SERIES, {"times": times, "own_name": OWN_NAME})
        self._command(MORE_HOSTS, {"times": times})
        self.service.service.store.known.note_series(None)

    def _command(self, sql: str, given: dict[str, Any]) -> None:
        store = self.service.service.store
        with store.holding_writes("fill") as client:
            client.command(sql.format(**given))
        store.touched_samples.note_all()
        store.touched_records.note_all()
        store.recent.forget()


def name_of(hosts: int, times: int) -> str:
    return f"{hosts}x{times}" if times > 1 else str(hosts)


@contextmanager
def held(hosts: int, times: int = 1) -> Iterator[Stand]:
    """The stand; the store is filled the first time. ``times``: see `Stand.multiply`."""
    folder = OUTPUT / "held" / name_of(hosts, times)
    note = folder / "filled.json"
    if not note.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    known = json.loads(note.read_text()) if note.exists() else None
    start_ms = known["start_ms"] if known else int(time.time()) // 60 * 60_000 - CYCLES * CYCLE_MS
    clock = Clock(start_ms / 1000 + (known["tick"] if known else 0) * TICK_SECONDS)
    with round_by_round(folder, clock=clock) as service:
        stand = Stand(service, lambda: recorded(hosts, GPUS, JOB_HOSTS), clock, start_ms)
        if known is None:
            say(f"held: filling a store with {CYCLES} minutes of {hosts} hosts")
            stand.fill()
            stand.finish()
            if times > 1:
                stand.multiply(times)
        else:
            stand.tick = known["tick"]
            stand.look()
        note.write_text(json.dumps({"start_ms": start_ms, "tick": stand.tick}))
        yield stand
        note.write_text(json.dumps({"start_ms": start_ms, "tick": stand.tick}))
