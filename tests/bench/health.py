"""Ten schedulers ask for the health of 10,000 hosts every second, while samples come in.

The inventory is made beforehand: hosts, and weeks of incidents. Samples come from a process of
their own, so that the sender does not stand in the pollers' way. A run fails when an answer is not
of the whole fleet.
"""

from __future__ import annotations

import datetime as dt
import http.client
import itertools
import multiprocessing
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import msgspec

from alerts.health.model import HealthState
from alerts.judge.incident import Incident, IncidentState
from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, Sighting
from api.fleet.health.answers import Asked, Fleet, HostEntry
from api.oncall.evaluate.lead import EVALUATOR
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason, Verdict
from tests.bench.load import make_load, native_requests
from tests.bench.processes import Program, free_port, run_program, say
from tests.bench.report import OUTPUT, Bar, BenchError, Result, Table, number, quantile
from tests.bench.sender import send_all
from tests.bench.systems import Fabricscope

HOSTS = 10_000
CLOSED, OPEN = 1_000, 100
"""Incidents of four weeks, and of now: a bad day of a large fleet."""
POLLERS = 10
SECONDS, QUICK_SECONDS = 30, 5
INGEST_HOSTS, READINGS, CONNECTIONS = 208, 5, 4
"""As in the ingest bench, one reading a second, sent every five seconds: 99,840 samples/s."""
INTERVAL_SECONDS = 1.0
WARM_SECONDS = 10
"""Of samples before the first request: the first write of 99,840 series is not measured here."""
REBUILDS = 20
WALL_MS_BAR, REBUILT_MS_BAR = 100, 50
HEALTH_PATH = "/v1/health"


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """What pollers ask for."""

    title: str
    path: str = HEALTH_PATH
    is_tagged: bool = False
    is_stirred: bool = False
    """Whether an operator's hold changes a host every second."""


PASSES = (
    Pass(title="whole answers"),
    Pass(title="with `If-None-Match`", is_tagged=True),
    Pass(title="the same, and a change every second", is_tagged=True, is_stirred=True),
    Pass(title="`/healthz`, which looks at nothing", path="/healthz"),
)


class Polled(msgspec.Struct, frozen=True, kw_only=True):
    """What pollers met in one pass."""

    title: str
    walls_ms: list[float]
    statuses: dict[int, int]
    cpu_share: float
    """Of a core, by the service, ingest included."""

    def row(self) -> list[str]:
        """The pass as a line of the table."""
        statuses = ", ".join(f"{count} x {status}" for status, count in self.statuses.items())
        walls = [number(quantile(self.walls_ms, share)) for share in (0.5, 0.99)]
        return [self.title, *walls, number(max(self.walls_ms)), statuses, number(self.cpu_share)]


# --- the fleet ----------------------------------------------------------------------------------


def host_name(index: int) -> str:
    """A host of the fleet; the first of them are those that send."""
    return f"node-{index:04d}"


def make_inventory(folder: Path) -> None:
    """Hosts that were seen just now, and incidents of the last weeks."""
    (folder / "data").mkdir(parents=True)
    inventory = Inventory(f"sqlite:///{folder / 'data/inventory.db'}")
    inventory.migrate()
    now = dt.datetime.now(dt.UTC)
    inventory.observe(
        Observation.at(Sighting(host=host_name(index)), now) for index in range(HOSTS)
    )
    inventory.leases.take(EVALUATOR, "bench", now, now)
    incidents = [make_incident(index, time.time_ns()) for index in range(CLOSED + OPEN)]
    if not inventory.incidents.keep(incidents, [], task=EVALUATOR, holder="bench", now=now):
        raise BenchError("the inventory has another evaluator")
    inventory.close()


def make_incident(index: int, now_ns: int) -> Incident:
    """An incident of some NIC, some time in four weeks; the last ones are open."""
    is_open = index >= CLOSED
    since_ns = now_ns - (600 if is_open else 3_600 + index * 2_400) * NS
    device = f"mlx5_{index % 8}"
    verdict = Verdict(
        cause=(Cause.LINK_FLAP, Cause.SLOW_LINK, Cause.LOSSY_LINK)[index % 3],
        culprit=Culprit(host=host_name(index * 7 % HOSTS), device=device, port="1", switch="leaf1"),
        since_ns=since_ns,
        until_ns=None if is_open else since_ns + 600 * NS,
        reason=Reason.CABLE,
        confidence=0.9,
        summary=f"{device} of a host loses or damages packets: the cable or a transceiver is bad",
        evidence=(Evidence(metric="fabric_port_symbol_errors_total", text="x", value=1, unit=""),),
    )
    return Incident(
        id=f"bench-{index:06d}",
        state=IncidentState.OPEN if is_open else IncidentState.CLOSED,
        verdict=verdict,
        first_said_ns=since_ns,
        last_seen_ns=now_ns if is_open else since_ns + 600 * NS,
        confirmed_ns=now_ns,
        closed_ns=None if is_open else since_ns + 660 * NS,
    )


# --- ingest -------------------------------------------------------------------------------------


def ingest(port: int, seconds: int, ready: Event, begin: Event) -> None:
    """Send a steady load for so long; runs in a process of its own."""
    load = make_load(INGEST_HOSTS, -(-seconds // READINGS) * READINGS)
    queues = native_requests(load, Fabricscope.ingest_path, CONNECTIONS, READINGS)
    ready.set()
    begin.wait()
    send_all(port, queues, pace_seconds=seconds / len(queues[0]))


@contextmanager
def while_ingesting(port: int, seconds: int) -> Iterator[None]:
    """Samples come in for so long."""
    spawning = multiprocessing.get_context("spawn")
    ready, begin = spawning.Event(), spawning.Event()
    sender = spawning.Process(target=ingest, args=(port, seconds, ready, begin))
    sender.start()
    ready.wait()
    begin.set()
    yield
    sender.join()
    if sender.exitcode:
        raise BenchError("health: the samples were not taken")


# --- pollers ------------------------------------------------------------------------------------


def poll(port: int, delay: float, seconds: int, kind: Pass, found: list[tuple[float, int]]) -> None:
    """One scheduler: asks every second, and notes how long the whole answer took."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    tag = ""
    begun = time.perf_counter() + delay
    for turn in range(int(seconds / INTERVAL_SECONDS)):
        time.sleep(max(0.0, begun + turn * INTERVAL_SECONDS - time.perf_counter()))
        started = time.perf_counter()
        connection.request("GET", kind.path, headers={"If-None-Match": tag} if tag else {})
        answer = connection.getresponse()
        body = answer.read()
        found.append(((time.perf_counter() - started) * 1_000, answer.status))
        if kind.is_tagged:
            tag = answer.headers["ETag"]
        is_whole = body.count(b'"host"') == HOSTS or kind.path != HEALTH_PATH
        if answer.status == http.client.OK and not is_whole:
            raise BenchError(f"health: an answer of {len(body)} bytes is not of the whole fleet")
    connection.close()


def stir(program: Program, stop: threading.Event) -> None:
    """An operator's hold on another host every second: no answer is valid for longer."""
    body = b'{"state": "draining", "reason": "bench", "by": "bench"}'
    connection = http.client.HTTPConnection("127.0.0.1", program.port, timeout=60)
    for turn in itertools.count():
        connection.request("PUT", f"/v1/hosts/{host_name(turn % HOSTS)}/hold", body)
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.client.OK:
            raise BenchError(f"health: a hold was refused: {answer.status}")
        if stop.wait(INTERVAL_SECONDS):
            break
    connection.close()


def measure(program: Program, kind: Pass, seconds: int) -> Polled:
    """One pass of all pollers while samples come in."""
    found: list[tuple[float, int]] = []
    stop = threading.Event()
    pollers = [
        threading.Thread(
            target=poll,
            args=(program.port, place * INTERVAL_SECONDS / POLLERS, seconds, kind, found),
        )
        for place in range(POLLERS)
    ]
    stirrer = threading.Thread(target=stir, args=(program, stop))
    with while_ingesting(program.port, seconds):
        cpu, wall = program.cpu_seconds(), time.perf_counter()
        for thread in [*pollers, *([stirrer] if kind.is_stirred else [])]:
            thread.start()
        for thread in pollers:
            thread.join()
        stop.set()
        spent = (program.cpu_seconds() - cpu) / (time.perf_counter() - wall)
    if kind.is_stirred:
        stirrer.join()
    if len(found) != POLLERS * int(seconds / INTERVAL_SECONDS):
        raise BenchError(f"health: only {len(found)} answers came")
    walls = [wall_ms for wall_ms, _ in found]
    statuses = dict(sorted(Counter(status for _, status in found).items()))
    return Polled(title=kind.title, walls_ms=walls, statuses=statuses, cpu_share=spent)


def rebuild_ms() -> list[float]:
    """CPU that it takes to make the answer about the whole fleet anew."""
    walls = []
    for turn in range(REBUILDS):
        hosts = {
            name: HostEntry(host=name, state=HealthState.HEALTHY, risk=turn / 100, lemon=0.0)
            for name in map(host_name, range(HOSTS))
        }
        started = time.thread_time()
        Fleet(hosts, {}, {}, ()).body(Asked())
        walls.append((time.thread_time() - started) * 1_000)
    return walls


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench: `rounds` times as long."""
    seconds = (QUICK_SECONDS if is_quick else SECONDS) * rounds
    folder = OUTPUT / "work/health"
    shutil.rmtree(folder, ignore_errors=True)
    say(f"health: makes {HOSTS:,} hosts and {CLOSED + OPEN:,} incidents")
    make_inventory(folder)
    system, port = Fabricscope(), free_port()
    command = system.command(folder, port)
    assert command is not None
    passes = []
    with run_program(system.name, command, folder, port) as program:
        program.wait_until_ready(system.ready_path)
        size = len(program.get("/v1/health").content)
        with while_ingesting(port, WARM_SECONDS):
            say("health: samples begin to come in")
        for kind in PASSES:
            say(f"health: {POLLERS} pollers, {kind.title}")
            passes.append(measure(program, kind, seconds))
    rebuilt = rebuild_ms()
    return make_result(passes, rebuilt, size, is_quick=is_quick)


def make_result(
    passes: list[Polled], rebuilt_ms: list[float], size: int, *, is_quick: bool
) -> Result:
    """What is shown."""
    worst_ms = max(quantile(each.walls_ms, 0.99) for each in passes[:-1])
    return Result(
        name="health",
        tables=[
            Table(
                title=f"{POLLERS} pollers a second, {HOSTS:,} hosts, 99,840 samples/s coming in",
                columns=["", "p50 ms", "p99 ms", "max ms", "answers", "cores used"],
                rows=[each.row() for each in passes],
            )
        ],
        bars=[
            Bar(
                what="p99 of any pass over the fleet in ms {needed}",
                needed=WALL_MS_BAR,
                value=worst_ms,
                unit=" ms",
                at_most=True,
            ),
            Bar(
                what="the whole answer made anew in CPU ms {needed}",
                needed=REBUILT_MS_BAR,
                value=quantile(rebuilt_ms, 0.5),
                unit=" ms",
                at_most=True,
            ),
        ],
        figures={"passes": msgspec.to_builtins(passes), "rebuilt_ms": rebuilt_ms, "bytes": size},
        notes=[
            f"the whole answer has {size:,} bytes; clients read it over one connection each",
            "`/healthz` shows what the interpreter makes everybody wait while it takes samples",
        ],
        is_quick=is_quick,
    )
