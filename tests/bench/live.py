"""The whole service as it runs in production, fed by a recorded cluster in real time.

Verdicts, rules, roll, health and inventory run, three browsers (one on each of the views Now,
Fabric and Job) ask what the page asks as often as it does, and a recording
(`tests.bench.recording`) is played to it: series, records of jobs, polls of switches. The yardstick
is what the same samples cost VictoriaMetrics, which only stores them, in the same run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx
import msgspec
import numpy as np
import numpy.typing as npt

from collector.contract import wire
from collector.contract.identity import METRIC_LABEL
from collector.contract.model import Event
from tests.bench.load import Request, Template, http_post
from tests.bench.player import Part, Played
from tests.bench.processes import Program, fabricscope, free_port, run_program, say
from tests.bench.recording import (
    CYCLE_MS,
    CYCLE_TICKS,
    GPUS,
    JOB_HOSTS_MAX,
    TICK_SECONDS,
    Recording,
    record,
)
from tests.bench.report import OUTPUT, ROOT, Bar, BenchError, Result, Table, quantile, save
from tests.bench.sender import send_all
from tests.bench.systems import VictoriaMetrics
from tests.tools.kept import fingerprint

SIZES, QUICK_SIZES = (16, 64, 256, 1_024), (16,)
PAST_CYCLES, QUICK_PAST_CYCLES = 0, 3
"""Minutes of past that are sent first: detectors look back three. Many hosts' would take longer to
send than to wait for, and the live part would begin late."""
SETTLE_SECONDS, QUICK_SETTLE_SECONDS = 240.0, 20.0
"""Before it is measured: series are new, then windows fill, then rounds are as they will be."""
MEASURED_SECONDS, QUICK_MEASURED_SECONDS = 120.0, 30.0
FAULTS = 5
APART_SECONDS = 20.0
VERDICT_SECONDS_MAX = 120.0
XID_OFF_THE_BUS = 79
"""The GPU has fallen off the bus: one event is a verdict."""

JOB = "job-000"
LOOKED_SECONDS = 1_800
"""The time that the page's views show unless the reader chooses another."""
POINTS = 240


class Asked(msgspec.Struct, frozen=True):
    """A question of a view of the page, and how often the view asks it, in seconds."""

    every: int
    path: str
    is_ranged: bool = False
    """Whether it is about the last LOOKED_SECONDS, which end at a multiple of ``every``."""
    query: str = ""
    """PromQL over them."""
    about: str = ""
    """What the answer shows, where the path does not say it."""

    @property
    def name(self) -> str:
        return self.about or self.path.partition("?")[0]

    def parameters(self, now_s: float) -> dict[str, str]:
        to = int(now_s) // self.every * self.every
        if self.query:
            step = LOOKED_SECONDS // POINTS
            start, end = str(to - LOOKED_SECONDS), str(to)
            return {"query": self.query, "start": start, "end": end, "step": str(step)}
        return {"from": str(to - LOOKED_SECONDS), "to": str(to)} if self.is_ranged else {}


RANGE = "/api/v1/query_range"
OF_JOB = f'and on (host) max by (host) (fabric_rank_lateness_seconds{{job="{JOB}"}})'
VIEWS: dict[str, tuple[Asked, ...]] = {
    "now": (
        Asked(10, "/v1/jobs?limit=1"),
        Asked(10, f"/v1/jobs/{JOB}/verdict"),
        Asked(15, "/v1/incidents?state=open&limit=100"),
        Asked(15, "/v1/jobs?state=running&limit=100"),
        Asked(
            15,
            "/api/v1/query?query=max%20by%20(job)%20(fabric_job_step_seconds)",
            about="PromQL: steps of all jobs, now",
        ),
        Asked(15, "/api/v1/alerts"),
        Asked(15, "/v1/health"),
    ),
    "fabric": (Asked(30, "/v1/topology"), Asked(30, "/v1/fabric/state?frames=60", True)),
    "job": (
        Asked(30, f"/v1/jobs/{JOB}"),
        Asked(30, f"/v1/jobs/{JOB}/heat", True),
        Asked(30, f"/v1/jobs/{JOB}/timeline?buckets={POINTS}", True),
        Asked(
            30,
            RANGE,
            query=f"quantile(0.5, sum by (host, device, port) "
            f"(rate(fabric_port_transmit_bytes_total[30s])) * 8 {OF_JOB})",
            about="PromQL: traffic of the job's ports, half an hour",
        ),
        Asked(
            30,
            RANGE,
            query=f"quantile(0.5, max by (host, gpu) (fabric_gpu_sm_clock_hertz) {OF_JOB})",
            about="PromQL: clocks of its GPUs, half an hour",
        ),
        Asked(
            30,
            RANGE,
            query=f'max by (operation, size) (fabric_communicator_transfer_seconds{{job="{JOB}"}})',
            about="PromQL: its transfers, half an hour",
        ),
        Asked(
            30,
            RANGE,
            query="topk(5, sum by (host, device, port) "
            f"(rate(fabric_port_symbol_errors_total[30s])) {OF_JOB} > 0)",
            about="PromQL: errors of its ports, half an hour",
        ),
    ),
}
"""What a browser on this view asks, at the page's pace."""

RATIO_BAR = 2.0
RSS_BASE_MIB, RSS_HOST_MIB = 500.0, 1.5
ROUND_BAR, VERDICT_BAR, ANSWER_BAR_MS = 2.0, 15.0, 300.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one size costs."""

    hosts: int
    series: int
    samples_per_second: float
    cores: float
    """CPU-seconds a second, everything included."""
    by_work: dict[str, float]
    """Cores by what they were spent on."""
    cpu_us_per_sample: float
    peer_us_per_sample: float | None
    rss_mib: float
    rounds: int
    round_seconds: float
    verdict_seconds: list[float]
    answers_p95_ms: dict[str, float]
    answers_failed: int
    played: Played
    behind_seconds: float
    """How much earlier than now verdicts look: data that came late."""


def run(*, is_quick: bool, rounds: int) -> Result:
    del rounds  # minutes of real time are many rounds
    found: list[Figures] = []
    for hosts in QUICK_SIZES if is_quick else SIZES:
        found.append(measure(hosts, is_quick=is_quick))
        save(result_of(found, is_quick=is_quick))  # a run that is stopped keeps its smaller sizes
        if found[-1].played.late_seconds > TICK_SECONDS:
            say(f"live: {hosts} hosts are past the knee; larger sizes are left out")
            break
    return result_of(found, is_quick=is_quick)


def result_of(found: Sequence[Figures], *, is_quick: bool) -> Result:
    return Result(
        name="live",
        tables=[table_of(found), works_of(found), answers_of(found)],
        bars=bars_of(found),
        figures={str(each.hosts): msgspec.to_builtins(each) for each in found},
        notes=notes_of(found),
        is_quick=is_quick,
    )


def recorded(hosts: int, gpus: int = GPUS, job_hosts: int = JOB_HOSTS_MAX) -> Path:
    """The recording of so many hosts, made once for a version of the simulator."""
    made = fingerprint(("simulator", "collector"))
    file = OUTPUT / "recordings" / f"{hosts}x{gpus}-{job_hosts}-{made}.msgpack"
    if not file.exists():
        say(f"live: recording a minute of {hosts} hosts")
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        record(hosts, part, gpus, job_hosts)
        part.replace(file)
    return file


# One size ----------------------------------------------------------------------------------------


def measure(hosts: int, *, is_quick: bool) -> Figures:
    file = recorded(hosts)
    settle = QUICK_SETTLE_SECONDS if is_quick else SETTLE_SECONDS
    seconds = QUICK_MEASURED_SECONDS if is_quick else MEASURED_SECONDS
    past = QUICK_PAST_CYCLES if is_quick else PAST_CYCLES
    folder = OUTPUT / "work" / f"live-{hosts}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port = free_port()
    command = [fabricscope(), "serve", "--data", str(folder), "--listen", f"127.0.0.1:{port}"]
    with run_program("live", command, folder, port) as service:
        service.wait_until_ready("/readyz")
        whole = settle + seconds + FAULTS * (VERDICT_SECONDS_MAX + APART_SECONDS)
        with playing(file, port, whole, past) as player, Browsers(port) as browsers:
            say(f"live: {hosts} hosts, settling")
            time.sleep(settle)
            browsers.forget()
            before = Look(service)
            say(f"live: {hosts} hosts, measuring for {seconds:.0f} s")
            time.sleep(seconds)
            after = Look(service)
            answers = browsers.p95_ms()
            failed = browsers.failed
            say(f"live: {hosts} hosts, {FAULTS} faults")
            verdicts = []
            for fault in range(1 if is_quick else FAULTS):
                verdicts.append(time_to_verdict(service, host_of(hosts, fault)))
                time.sleep(0.0 if is_quick else APART_SECONDS)  # faults at once are another bench
            rss = service.rss_mib()
            played = player.end()
    shutil.rmtree(folder, ignore_errors=True)
    samples = after.samples - before.samples
    cpu = after.cpu - before.cpu
    wall = after.time - before.time
    rounds = after.rounds - before.rounds
    recording = Recording(file)
    return Figures(
        hosts=hosts,
        series=recording.series,
        samples_per_second=samples / wall,
        cores=cpu / wall,
        by_work={name: (after.works[name] - before.works[name]) / wall for name in after.works},
        cpu_us_per_sample=cpu / samples * 1e6,
        peer_us_per_sample=peer_cost(recording, hosts),
        rss_mib=rss,
        rounds=int(rounds),
        round_seconds=(after.round_seconds - before.round_seconds) / max(1, rounds),
        verdict_seconds=verdicts,
        answers_p95_ms=answers,
        answers_failed=failed,
        played=played,
        behind_seconds=after.behind,
    )


WORKS = re.compile(r'^fabric_service_cpu_seconds_total\{work="([^"]+)"\} (\S+)$', re.MULTILINE)


class Look:
    """The service's own numbers at a moment."""

    def __init__(self, service: Program) -> None:
        text = service.get("/metrics").text
        self.time, self.cpu = time.monotonic(), service.cpu_seconds()
        found = WORKS.findall(text)
        self.works = defaultdict(float, {work: float(value) for work, value in found})
        self.samples = sum(values(text, "fabric_service_samples_total"))
        self.rounds = sum(values(text, "fabric_service_evaluation_seconds_count"))
        self.round_seconds = sum(values(text, "fabric_service_evaluation_seconds_sum"))
        self.behind = sum(values(text, "fabric_service_evaluation_behind_seconds"))


def values(text: str, name: str) -> list[float]:
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return [float(each) for each in found]


class Player:
    """The process that plays."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_live(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.strip() != "live":
            raise BenchError(f"the player ended before the past was in: {line}")

    def end(self) -> Played:
        """Stop playing, and what became of the batches."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        return msgspec.json.decode(self._process.stdout.readline(), type=Played)


@contextmanager
def playing(file: Path, port: int, seconds: float, past: int) -> Iterator[Player]:
    """So many minutes of past, and then the recording in real time."""
    part = Part(start_ms=int(time.time() * 1000) - past * CYCLE_MS)
    with playing_part(file, port, seconds, part) as player:
        yield player


@contextmanager
def playing_part(file: Path, port: int, seconds: float, part: Part) -> Iterator[Player]:
    numbers = (port, seconds, part.start_ms, part.first, part.read_ticks)
    words = [sys.executable, "-m", "tests.bench.player", str(file), *map(str, numbers)]
    with subprocess.Popen(
        words, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            player = Player(process)
            player.await_live()
            yield player
        finally:
            process.kill()


class Browsers:
    """People who look at the page: one at each view, as long as this lasts."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(v,)) for v in VIEWS.values()]
        self._took: dict[str, list[float]] = {}
        self._lock = threading.Lock()
        self.failed = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def forget(self) -> None:
        with self._lock:
            self._took, self.failed = {}, 0

    def p95_ms(self) -> dict[str, float]:
        with self._lock:
            return {name: quantile(took, 0.95) * 1000 for name, took in self._took.items()}

    def _look(self, view: Sequence[Asked]) -> None:
        due = dict.fromkeys(view, 0.0)
        with httpx.Client(base_url=self._url, timeout=60.0, trust_env=False) as client:
            while not self._ends.is_set():
                for one in [one for one in view if due[one] <= time.monotonic()]:
                    due[one] = time.monotonic() + one.every
                    self._ask(client, one)
                self._ends.wait(max(0.0, min(due.values()) - time.monotonic()))

    def _ask(self, client: httpx.Client, one: Asked) -> None:
        started = time.perf_counter()
        url = httpx.URL(one.path).copy_merge_params(one.parameters(time.time()))
        try:
            is_well = client.get(url).is_success
        except httpx.TransportError:
            is_well = False
        with self._lock:
            self._took.setdefault(one.name, []).append(time.perf_counter() - started)
            self.failed += not is_well


def host_of(hosts: int, fault: int) -> str:
    """Hosts far from each other, in different jobs where there are several."""
    return f"node{(hosts * (2 * fault + 1)) // (2 * FAULTS):04}"


def time_to_verdict(service: Program, host: str) -> float:
    """Seconds from an event of a GPU that fell off the bus until an incident names its host."""
    now_ns = time.time_ns()
    event = Event(
        kind="gpu_xid",
        time_ns=now_ns,
        labels={"gpu": "3"},
        message="GPU has fallen off the bus.",
        attributes={"xid": str(XID_OFF_THE_BUS)},
    )
    batch = wire.pack_batch(
        (),
        (event,),
        agent=host,
        boot="bench-fault",
        sequence=now_ns,
        sent_ms=now_ns // 1_000_000,
        common={"host": host, "cluster": "live"},
    )
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    sent = send_all(
        service.port, [[Request(http_post("/v1/ingest", headers, wire.encode_batch(batch)), 0)]]
    )
    assert sent.complaint == "", sent.complaint
    started = time.monotonic()
    while time.monotonic() - started < VERDICT_SECONDS_MAX:
        items = service.get("/v1/incidents", host=host, limit="200").json()["items"]
        if any(item["culprit"].get("host") == host for item in items):
            return time.monotonic() - started
        time.sleep(0.25)
    return VERDICT_SECONDS_MAX


# The yardstick -----------------------------------------------------------------------------------


def peer_cost(recording: Recording, hosts: int) -> float | None:
    """CPU-microseconds a sample that VictoriaMetrics takes to store the same samples, once warm."""
    system, folder = VictoriaMetrics(), OUTPUT / "work" / "live-peer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port = free_port()
    command = system.command(folder, port)
    if command is None:
        return None
    say(f"live: {hosts} hosts, the same samples into VictoriaMetrics")
    start_ms = int(time.time() * 1000) - 10 * 60_000
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    with run_program(system.name, command, folder, port) as program:
        program.wait_until_ready(system.ready_path)
        templates: dict[tuple[str, bytes], Template] = {}
        cpu, samples = 0.0, 0
        for number in range(2 * CYCLE_TICKS):
            requests = []
            for batch in recording.batches(*divmod(number, CYCLE_TICKS), start_ms):
                if not batch.sample_count:
                    continue
                key = batch.agent, bytes(batch.series) + batch.index
                template = templates.get(key)
                if template is None:
                    template = templates[key] = Template(labels_of(batch))
                body = template.fill(*row_of(batch))
                wired = http_post(system.write_path, headers, body)
                requests.append(Request(wired, batch.sample_count))
            if number == CYCLE_TICKS:  # every series is known by now
                program.settle()
                cpu, samples = program.cpu_seconds(), 0
            queues = [requests[at::8] for at in range(8)]
            samples += send_all(port, [each for each in queues if each]).samples
        program.settle()
        cpu = program.cpu_seconds() - cpu
    shutil.rmtree(folder, ignore_errors=True)
    return cpu / samples * 1e6


def labels_of(batch: wire.Batch) -> list[dict[str, str]]:
    """Of each sample of a batch, in its order."""
    rows = batch.series_rows()
    whole = [{METRIC_LABEL: name, **batch.common, **labels} for name, labels in rows]
    return [whole[row] for row in np.frombuffer(batch.index, dtype="<u4").tolist()]


def row_of(batch: wire.Batch) -> tuple[npt.NDArray[np.float64], list[int]]:
    """The values of a batch, and its time: what it costs to store does not depend on more."""
    values = np.frombuffer(batch.value, dtype="<f8").reshape(1, -1)
    return values, [int(np.frombuffer(batch.time_ms, dtype="<i8")[0])]


# Tables ------------------------------------------------------------------------------------------


def table_of(found: Sequence[Figures]) -> Table:
    columns = ["hosts", "series", "samples", "cores", "CPU a sample", "VictoriaMetrics", "RSS"]
    columns += ["a round", "verdict p90", "ingest p95", "late"]
    rows = [
        [
            str(each.hosts),
            f"{each.series:,}",
            f"{each.samples_per_second / 1000:.1f} k/s",
            f"{each.cores:.2f}",
            f"{each.cpu_us_per_sample:.1f} µs",
            "none" if each.peer_us_per_sample is None else f"{each.peer_us_per_sample:.1f} µs",
            f"{each.rss_mib:,.0f} MiB",
            f"{each.round_seconds:.2f} s",
            f"{quantile(each.verdict_seconds, 0.9):.1f} s",
            f"{each.played.p95_ms:.0f} ms",
            f"{each.played.late_seconds:.0f} s",
        ]
        for each in found
    ]
    return Table(title="The whole service, by size", columns=columns, rows=rows)


def works_of(found: Sequence[Figures]) -> Table:
    """Cores by work, the dearest first, by the largest size."""
    works = sorted(found[-1].by_work, key=lambda work: -found[-1].by_work[work])
    rows = [
        [work, *(f"{100 * each.by_work.get(work, 0.0):.1f} %" for each in found)]
        for work in works
        if found[-1].by_work[work] >= 0.001
    ]
    columns = ["of a core for", *(f"{each.hosts} hosts" for each in found)]
    return Table(title="What the CPU time is spent on", columns=columns, rows=rows)


def answers_of(found: Sequence[Figures]) -> Table:
    rows = [
        [path, *(f"{each.answers_p95_ms.get(path, 0.0):.0f} ms" for each in found)]
        for path in dict.fromkeys(one.name for view in VIEWS.values() for one in view)
    ]
    columns = ["p95 of", *(f"{each.hosts} hosts" for each in found)]
    return Table(title="Answers meanwhile", columns=columns, rows=rows)


def bars_of(found: Sequence[Figures]) -> list[Bar]:
    last = found[-1]
    peer = last.peer_us_per_sample
    bound = RSS_BASE_MIB + RSS_HOST_MIB * last.hosts
    return [
        Bar(
            what="all of it against VictoriaMetrics' ingest, CPU a sample {needed}x",
            needed=RATIO_BAR,
            value=None if peer is None else last.cpu_us_per_sample / peer,
            unit="x",
            at_most=True,
        ),
        Bar(
            what="RSS against 500 MiB and 1.5 MiB a host {needed}x",
            needed=1.0,
            value=last.rss_mib / bound,
            unit="x",
            at_most=True,
        ),
        Bar(
            what="a round of verdicts in seconds {needed}",
            needed=ROUND_BAR,
            value=last.round_seconds,
            unit=" s",
            at_most=True,
        ),
        Bar(
            what="p90 of the time to a verdict in seconds {needed}",
            needed=VERDICT_BAR,
            value=quantile(last.verdict_seconds, 0.9),
            unit=" s",
            at_most=True,
        ),
        Bar(
            what="p95 of the slowest answer of the page in ms {needed}",
            needed=ANSWER_BAR_MS,
            value=max(last.answers_p95_ms.values()),
            unit=" ms",
            at_most=True,
        ),
    ]


def notes_of(found: Sequence[Figures]) -> list[str]:
    return [
        f"{each.hosts} hosts: {each.played.sent:,} batches, {each.played.retried:,} retried, "
        f"{each.played.refused:,} refused {each.played.complaint}; the player took "
        f"{each.played.cpu_seconds:.1f} CPU-seconds; {each.answers_failed} answers failed; "
        f"verdicts looked {each.behind_seconds:.0f} s back"
        for each in found
    ]
