"""The load of a soak: a simulated cluster in real time, and a browser that looks at it.

The batches are those of `simulator.readings.batches.Reporter`, which costs a tenth of real agents.
In one respect they are as agents' batches on a busy machine: a source that was late is missing in
one batch and comes with the next, so that hardly two batches have the same table of series.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import msgspec
import numpy as np

from collector.contract import wire
from collector.contract.units import NS
from simulator.demo.run import cluster_spec, jobs_on
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario
from simulator.topology.model import Fabric

CLUSTER = "soak"
FLUSH_TICKS = 5
"""Seconds of one batch: what agents do unless set up otherwise."""
LAG_SECONDS_MAX = 8.0
"""A simulation that is further behind jumps: agents do not read the past."""
SPOOL_BATCHES_MAX = 5_000
"""Batches that wait for the service. Past it the oldest is dropped and counted, as agents do."""
RETRY_SECONDS = 1.0
PAGE_SECONDS = 5.0
VIEW_SECONDS = 600.0
"""What a view of the page shows: the last ten minutes."""
HEADERS = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}

SPAN = "start={start:.3f}&end={now:.3f}&step=5"
VIEWS = (
    "/v1/health",
    "/v1/incidents?limit=50",
    "/v1/hosts?limit=1000",
    "/v1/jobs?state=running&limit=100",
    "/v1/events?limit=100&from={start:.3f}&to={now:.3f}",
    "/v1/fabric/state?from={start:.3f}&to={now:.3f}&frames=60&at={now:.3f}",
    "/v1/topology",
    f"/api/v1/query_range?query=fabric_job_step_seconds&{SPAN}",
    f"/api/v1/query_range?query=sum%20by(host)(rate(fabric_port_transmit_bytes_total[1m]))&{SPAN}",
    "/api/v1/query?query=fabric_gpu_temperature_celsius",
    "/api/v1/alerts",
)
JOB_VIEWS = ("timeline", "heat", "matrix", "ranks")
"""What the page shows of a job, over the same time; one job at a time, in turn."""


class Tally:
    """What was sent and asked so far. Plain numbers: each has one writer."""

    def __init__(self) -> None:
        self.batches = 0
        self.samples = 0
        self.dropped = 0
        self.refused = 0
        self.answers = 0
        self.bad_answers = 0
        self.skipped_s = 0.0
        self.last_trouble = ""


def parted(body: bytes, random: np.random.Generator) -> Iterator[tuple[bytes, int]]:
    """A batch as two, with the samples in each: the sources of its later rows were late."""
    batch = wire.decode_batch(body)
    rows = batch.series_rows()
    if not rows:
        yield renumbered(batch, 0), batch.sample_count
        return
    cut = int(random.integers(0, len(rows)))
    index = np.frombuffer(batch.index, dtype="<u4")
    for part, (is_mine, table, first) in enumerate(
        ((index < cut, rows[:cut], 0), (index >= cut, rows[cut:], cut))
    ):
        some = msgspec.structs.replace(
            batch,
            series=msgspec.Raw(msgspec.msgpack.encode(table)),
            index=(index[is_mine] - np.uint32(first)).astype("<u4").tobytes(),
            time_ms=np.frombuffer(batch.time_ms, dtype="<i8")[is_mine].tobytes(),
            value=np.frombuffer(batch.value, dtype="<f8")[is_mine].tobytes(),
            **({"events": [], "collectives": None, "steps": []} if part else {}),
        )
        yield renumbered(some, part), some.sample_count


def renumbered(batch: wire.Batch, part: int) -> bytes:
    """Each batch becomes two, so each number does."""
    return wire.encode_batch(msgspec.structs.replace(batch, sequence=2 * batch.sequence + part))


class Feeder:
    """All agents of the cluster, until ``stop`` is set."""

    def __init__(self, url: str, hosts: int, seed: int, stop: threading.Event) -> None:
        self.tally = Tally()
        self._stop = stop
        self._random = np.random.default_rng(seed)
        self._spool: deque[tuple[bytes, int]] = deque()
        self._client = httpx.Client(base_url=url, timeout=60.0, trust_env=False)
        self._start_ns = time.time_ns()
        self._simulation = Simulation(
            Scenario(
                cluster=cluster_spec(Fabric.ROCE, hosts),
                jobs=jobs_on(hosts),
                seed=seed,
                start_unix_ns=self._start_ns,
            )
        )
        self._reporter = Reporter(
            self._simulation.topology, CLUSTER, self._start_ns, seed, flush_ticks=FLUSH_TICKS
        )

    def run(self) -> None:
        with self._client:
            while not self._stop.is_set():
                self._tick()
                self._deliver()

    def _tick(self) -> None:
        snapshot = self._simulation.tick()
        snapshot.start_unix_ns = self._start_ns
        for body in self._reporter.batches(snapshot):
            self._spool.extend(parted(body, self._random))
        while len(self._spool) > SPOOL_BATCHES_MAX:
            self._spool.popleft()
            self.tally.dropped += 1
        lag_s = time.time() - self._start_ns / NS - snapshot.time_s
        if lag_s > LAG_SECONDS_MAX:
            self._start_ns += round(lag_s * NS)
            self.tally.skipped_s += lag_s
        self._stop.wait(max(0.0, -lag_s))

    def _deliver(self) -> None:
        while self._spool and not self._stop.is_set():
            body, samples = self._spool[0]
            if not self._send(body):
                self._stop.wait(RETRY_SECONDS)
                return
            self._spool.popleft()
            self.tally.batches += 1
            self.tally.samples += samples

    def _send(self, body: bytes) -> bool:
        try:
            answer = self._client.post("/v1/ingest", content=body, headers=HEADERS)
        except httpx.TransportError as error:
            self.tally.last_trouble = f"ingest: {error!r}"
            return False
        if not answer.is_success:
            self.tally.refused += 1
            self.tally.last_trouble = f"ingest: {answer.status_code} {answer.text[:200]}"
        return answer.is_success


class Browser:
    """A person who leaves the page open: it asks again every few seconds, until ``stop`` is set."""

    def __init__(self, url: str, tally: Tally, stop: threading.Event) -> None:
        self._tally = tally
        self._stop = stop
        self._client = httpx.Client(base_url=url, timeout=60.0, trust_env=False)
        self._jobs: list[str] = []

    def run(self) -> None:
        with self._client:
            look = 0
            while not self._stop.wait(PAGE_SECONDS):
                now = time.time()
                for path in self._paths(look):
                    self._ask(path.format(start=now - VIEW_SECONDS, now=now))
                look += 1

    def _paths(self, look: int) -> Iterator[str]:
        yield from VIEWS
        if self._jobs:
            job = quote(self._jobs[look % len(self._jobs)], safe="")
            for view in JOB_VIEWS:
                yield f"/v1/jobs/{job}/{view}?from={{start:.3f}}&to={{now:.3f}}"

    def _ask(self, path: str) -> None:
        self._tally.answers += 1
        try:
            answer = self._client.get(path)
        except httpx.TransportError as error:
            self._tally.bad_answers += 1
            self._tally.last_trouble = f"{path}: {error!r}"
            return
        if not answer.is_success:
            self._tally.bad_answers += 1
            self._tally.last_trouble = f"{path}: {answer.status_code} {answer.text[:200]}"
        elif path.startswith("/v1/jobs?"):
            with contextlib.suppress(LookupError, ValueError):
                self._jobs = [job["id"] for job in answer.json()["items"]]
