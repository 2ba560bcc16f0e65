"""Plays a recording to a service.

`python -m tests.bench.player FILE PORT SECONDS START_MS FIRST READ_TICKS`. A process of
its own, whose CPU time is not the bench's. ``START_MS`` is when the recording's first tick was, and
``FIRST`` the number of the tick to begin with. What is past by now goes out as fast as it is
taken; then it prints a line `live`, and each tick's batches are spread over the
tick, in real time, as agents do it. At the end, or when standard input ends, it prints what became
of them as JSON.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from pathlib import Path

import msgspec

from collector.contract.wire import CONTENT_TYPE
from tests.bench.load import http_post
from tests.bench.recording import CYCLE_TICKS, TICK_SECONDS, Recording
from tests.bench.report import BenchError, quantile
from tests.bench.sender import Connection, is_retried, is_success

WORKERS_MAX = 256
"""Connections: each agent has its own, up to what a service accepts from one address."""
QUEUE_MAX = 8
"""Batches that wait for a connection, of each worker: past it the player is late, and says so."""
RETRY_SECONDS = 0.5
HEADERS = {"Content-Type": CONTENT_TYPE, "Content-Encoding": "zstd"}


class Played(msgspec.Struct):
    """What became of the batches."""

    sent: int = 0
    retried: int = 0
    refused: int = 0
    complaint: str = ""
    late_seconds: float = 0.0
    """How far the last tick was behind its time."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    cpu_seconds: float = 0.0


class Worker(threading.Thread):
    """One connection."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self.bodies: queue.Queue[bytes | None] = queue.Queue(QUEUE_MAX)
        self.played = Played()
        self.latencies: list[float] = []

    def run(self) -> None:
        connection = Connection(self._port)
        while (body := self.bodies.get()) is not None:
            request = http_post("/v1/ingest", HEADERS, body)
            while True:
                started = time.perf_counter()
                try:
                    status, answer = connection.ask(request)
                except (OSError, BenchError):
                    connection.close()
                    connection = Connection(self._port)
                    self.played.retried += 1
                    continue
                if not is_retried(status):
                    break
                self.played.retried += 1
                time.sleep(RETRY_SECONDS)
            self.latencies.append(time.perf_counter() - started)
            self.played.sent += 1
            if not is_success(status):
                self.played.refused += 1
                self.played.complaint = f"{status} {answer[:200]!r}"


def heed_the_end(ends: threading.Event) -> None:
    sys.stdin.read()
    ends.set()


class Part(msgspec.Struct, frozen=True):
    """Which ticks are played, and when they are due."""

    start_ms: int
    first: int = 0
    read_ticks: int = 1


def play(recording: Recording, port: int, seconds: float, part: Part) -> Played:
    ends = threading.Event()
    threading.Thread(target=heed_the_end, args=(ends,), daemon=True).start()
    workers = [Worker(port) for _ in range(min(recording.agents, WORKERS_MAX))]
    for worker in workers:
        worker.start()
    ago = time.time() - part.start_ms / 1000
    begun = time.monotonic() - ago
    live_cpu, late = 0.0, 0.0
    now = max(part.first, round(ago / TICK_SECONDS))
    for number in range(part.first, now + round(seconds / TICK_SECONDS)):
        cycle, tick = divmod(number, CYCLE_TICKS)
        if number == now:
            drain(workers)
            live_cpu = time.process_time()
            for worker in workers:
                worker.latencies.clear()
            print("live", flush=True)
        if ends.is_set():
            break
        due = begun + number * TICK_SECONDS
        bodies = recording.played(cycle, tick, part.start_ms, part.read_ticks)
        for place, body in enumerate(bodies):
            share = place / max(1, recording.agents)
            time.sleep(max(0.0, due + share * TICK_SECONDS - time.monotonic()))
            workers[place % len(workers)].bodies.put(body)
        late = max(0.0, time.monotonic() - due - TICK_SECONDS)
    cpu = time.process_time() - live_cpu
    for worker in workers:
        worker.bodies.put(None)
    for worker in workers:
        worker.join()
    return summed(workers, late, cpu)


def drain(workers: list[Worker]) -> None:
    while any(not worker.bodies.empty() for worker in workers):
        time.sleep(0.05)


def summed(workers: list[Worker], late: float, cpu: float) -> Played:
    # Of the second half: in the first, all series are new.
    latencies = [
        each for worker in workers for each in worker.latencies[len(worker.latencies) // 2 :]
    ]
    return Played(
        sent=sum(worker.played.sent for worker in workers),
        retried=sum(worker.played.retried for worker in workers),
        refused=sum(worker.played.refused for worker in workers),
        complaint=next((w.played.complaint for w in workers if w.played.complaint), ""),
        late_seconds=late,
        p50_ms=quantile(latencies, 0.5) * 1000,
        p95_ms=quantile(latencies, 0.95) * 1000,
        cpu_seconds=cpu,
    )


def main(words: list[str]) -> int:
    file, port, seconds, start_ms, first, read_ticks = words
    recording = Recording(Path(file))
    part = Part(int(start_ms), int(first), int(read_ticks))
    played = play(recording, int(port), float(seconds), part)
    print(msgspec.json.encode(played).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
