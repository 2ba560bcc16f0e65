"""What one answer costs: the page's questions to a store with half an hour of a recorded cluster.

`python -m tests.bench.asked [HOSTS]`. The first minute is sent as agents send it,
the store repeats it, and then ticks go on one by one while each question is asked three times: of
data that nobody has asked about (`first`), again (`same`), and 30 seconds later (`next`). Nothing
else runs beside it, so that the process's CPU time is the answer's; the peak is what the
process's memory grew by. The filled store is kept and used again.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

from api.http.context import Context
from api.jobs.watch import JobWatch
from collector.contract.catalog import Kind, load_catalog
from collector.contract.identity import metric_id
from collector.contract.wire import CONTENT_TYPE
from tests.bench.live import JOB, VIEWS, Asked, recorded
from tests.bench.processes import say
from tests.bench.recording import CYCLE_MS, CYCLE_TICKS, TICK_SECONDS, Recording
from tests.bench.report import OUTPUT
from tests.stands.round_by_round import RoundByRound, round_by_round

CYCLES = 31
"""Minutes that are stored before the first question: half an hour, and what it looks back."""
NEXT_TICKS = 6
"""Until the page asks again: 30 seconds."""
QUESTIONS: tuple[Asked, ...] = (
    *(each for view in VIEWS.values() for each in view),
    Asked(30, f"/v1/explain?job={JOB}"),
)
HEADERS = {"Content-Type": CONTENT_TYPE, "Content-Encoding": "zstd"}
ANSWER_SECONDS_MAX = 600
"""The time does not count, and the machine may be busy."""
FREE = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")

MORE_SAMPLES = """
    INSERT INTO samples (metric, series, time, whole, fraction)
    SELECT metric, series, time + toIntervalMillisecond({ms}), whole + {cycle} * grown, fraction
    FROM samples LEFT JOIN (
        SELECT metric, series, toInt64((max(whole) - min(whole)) * 12 / 11) AS grown FROM samples
        WHERE metric IN ({counters}) AND time >= {first} AND time < {end} GROUP BY metric, series
    ) AS counters USING (metric, series)
    WHERE time >= {first} AND time < {end}
"""
MORE_COLLECTIVES = """
    INSERT INTO collectives
    SELECT * EXCEPT (taken) REPLACE (
        sequence + {cycle} * taken AS sequence, time + toIntervalMillisecond({ms}) AS time,
        entry + toIntervalMillisecond({ms}) AS entry, exit + toIntervalMillisecond({ms}) AS exit,
        enqueue + toIntervalMillisecond({ms}) AS enqueue)
    FROM (SELECT * FROM collectives WHERE time >= {first} AND time < {end}) AS played LEFT JOIN (
        SELECT communicator, operation, max(sequence) + 1 - min(sequence) AS taken
        FROM collectives WHERE time >= {first} AND time < {end} GROUP BY communicator, operation
    ) AS numbers USING (communicator, operation)
"""


class Clock:
    """Unix seconds, set by hand."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


class Stand:
    """A service over a filled store, whose time goes on tick by tick."""

    def __init__(self, service: RoundByRound, recording: Recording, clock: Clock) -> None:
        self.service, self.recording, self.clock = service, recording, clock
        self.start_ms = 0
        self.tick = 0
        self.watch = JobWatch(service.service.store, service.service.inventory)

    @property
    def parts(self) -> Context:
        return self.service.service.context

    def play(self, ticks: int) -> None:
        """The next ticks, as agents send them."""
        for _ in range(ticks):
            cycle, tick = divmod(self.tick, CYCLE_TICKS)
            self.clock.seconds = self.start_ms / 1000 + (self.tick + 1) * TICK_SECONDS
            for body in self.recording.played(cycle, tick, self.start_ms):
                answer = self.service.client.post("/v1/ingest", content=body, headers=HEADERS)
                assert answer.status_code == 200, answer.text
            self.tick += 1

    def look(self) -> None:
        """What the watches of ports and jobs and the inventory's feed do, at the stand's time."""
        now = dt.datetime.fromtimestamp(self.clock(), tz=dt.UTC)
        self.service.do(self.parts.ingest.sighted())
        self.parts.ingest.feed.run_once()
        self.service.ports.look(now)
        self.parts.inventory.links.note_unplugged(now)
        self.watch.look(now)
        self.service.judge_health()

    def repeat(self) -> None:
        """The first cycle again and again, by the store itself."""
        catalog = load_catalog()
        counters = [
            str(metric_id(one.name)) for one in catalog.metrics if one.kind is not Kind.GAUGE
        ]
        first_ms, end_ms = self.start_ms - 60_000, self.start_ms + CYCLE_MS
        store = self.service.service.store
        for cycle in range(1, CYCLES):
            given: dict[str, Any] = {
                "cycle": cycle,
                "ms": cycle * CYCLE_MS,
                "counters": ", ".join(counters),
                "first": f"fromUnixTimestamp64Milli({first_ms})",
                "end": f"fromUnixTimestamp64Milli({end_ms})",
            }
            for sql in (MORE_SAMPLES, MORE_COLLECTIVES):
                store._writer.command(sql.format(**given))
        self.tick = CYCLES * CYCLE_TICKS
        self.clock.seconds = self.start_ms / 1000 + self.tick * TICK_SECONDS


class Cost(msgspec.Struct, frozen=True):
    """Of one answer."""

    cpu_ms: float
    peak_mib: float
    size: int


def ask(stand: Stand, asked: Asked) -> Cost:
    parameters = asked.parameters(stand.clock())
    FREE.write_text("5")
    before, begun = memory("VmRSS"), time.process_time()
    # The client would put parameters in the place of those that the path has.
    place = httpx.URL(asked.path).copy_merge_params(parameters)
    answer = stand.service.client.get(place, timeout=ANSWER_SECONDS_MAX)
    assert answer.status_code == 200, (asked, answer.text[:300])
    return Cost((time.process_time() - begun) * 1000, memory("VmHWM") - before, len(answer.content))


def memory(name: str) -> float:
    line = next(x for x in STATUS.read_text().splitlines() if x.startswith(name + ":"))
    return int(line.split()[1]) / 1024


def filled(hosts: int, folder: Path) -> Iterator[Stand]:
    """The stand; the store is filled the first time."""
    recording = Recording(recorded(hosts))
    note = folder / "filled.json"
    if not note.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    known = json.loads(note.read_text()) if note.exists() else None
    start_ms = known["start_ms"] if known else int(time.time()) // 60 * 60_000 - CYCLES * CYCLE_MS
    clock = Clock(start_ms / 1000 + CYCLES * CYCLE_MS / 1000)
    with round_by_round(folder, clock=clock) as service:
        stand = Stand(service, recording, clock)
        stand.start_ms = start_ms
        if known is None:
            say(f"asked: filling a store with {CYCLES} minutes of {hosts} hosts")
            stand.play(CYCLE_TICKS)
            stand.look()
            stand.repeat()
            stand.play(1)
            stand.look()
            note.write_text(json.dumps({"start_ms": start_ms, "tick": stand.tick}))
        else:
            stand.tick = known["tick"]
            stand.clock.seconds = start_ms / 1000 + stand.tick * TICK_SECONDS
        yield stand
        note.write_text(json.dumps({"start_ms": start_ms, "tick": stand.tick}))


def measure(stand: Stand) -> None:
    # Until the page's questions, which end at a multiple of 30 s, end at now.
    while stand.clock() % (NEXT_TICKS * TICK_SECONDS):
        stand.play(1)
    stand.look()
    found: dict[str, list[Cost]] = {one.name: [] for one in QUESTIONS}
    for one in QUESTIONS:
        found[one.name] += [ask(stand, one), ask(stand, one)]
    for _ in range(2):
        stand.play(NEXT_TICKS)
        stand.look()
        for one in QUESTIONS:
            found[one.name].append(ask(stand, one))
    print(f"{'':58} {'first':>14} {'same':>14} {'next':>14} {'next':>14}   KiB")
    for name, costs in found.items():
        cells = " ".join(f"{c.cpu_ms:6.0f}ms {c.peak_mib:4.0f}M" for c in costs)
        print(f"{name[:58]:58} {cells} {costs[-1].size / 1024:7.0f}")
    print(f"RSS {memory('VmRSS'):.0f} MiB")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.asked", description=__doc__)
    parser.add_argument("hosts", nargs="?", type=int, default=64)
    chosen = parser.parse_args(words)
    folder = OUTPUT / "asked" / str(chosen.hosts)
    for stand in filled(chosen.hosts, folder):
        measure(stand)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
