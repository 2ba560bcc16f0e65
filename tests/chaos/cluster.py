"""A simulated cluster that sends in real time, and remembers what the service acknowledged.

The quiet past before the fault is made and sent at once, and from then on a tick every five
seconds, as agents do. Each agent has a thread and a spool in memory: batches leave in order, and
each is sent again until it is acknowledged.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from collector.contract import wire
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import FOREVER, Injection, Place
from simulator.faults.places import HostFault
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario, plan
from simulator.topology.build import ClusterSpec
from simulator.topology.world import World
from tests.chaos.ledger import Ledger

NAME = "chaos"
HOSTS, JOB_HOSTS, GPUS_PER_HOST = 6, 6, 4
TICK_SECONDS = 5.0
QUIET_SECONDS = 100.0
"""How long all is well before the cluster comes alive: detectors need a past to compare with."""
FAULT_SECONDS = 5.0
"""After that the fault begins, and lasts until the case is over."""
ANSWER_SECONDS = 12.0
"""How long an agent waits for an answer before it sends again; shorter than the longest stop."""
PAUSE_SECONDS = 0.3
RETRIED = frozenset({429, 500, 502, 503, 504})
"""Statuses after which an agent sends the same batch again."""
DRAIN_SECONDS = 90.0

EPISODE_SECONDS, EPISODE_LASTS_SECONDS = 150.0, 70.0
"""Where there are several faults: from one's begin to the next one's, and how long each lasts."""

Address = tuple[str, int]


def scenario(seed: int, fault: str, start_unix_ns: int, episodes: int = 0) -> Scenario:
    """One job on all hosts of a small cluster; where the fault strikes follows from the seed.

    ``episodes``: so many faults of the kind, one after the other, each at another host; 0: one,
    which lasts.
    """
    random = np.random.default_rng([seed, *fault.encode()])
    quiet = Scenario(
        cluster=ClusterSpec(
            topology="rail",
            hosts=HOSTS,
            gpus_per_host=GPUS_PER_HOST,
            nics_per_host=GPUS_PER_HOST,
            speed="NDR",
            hosts_per_leaf=HOSTS // 2,
        ),
        jobs=(
            JobSpec(
                name="train",
                hosts=tuple(range(JOB_HOSTS)),
                tensor=GPUS_PER_HOST,
                compute_seconds=0.8,
                gradient_bytes=10 << 30,
            ),
        ),
        seconds=1e6,
        tick_seconds=TICK_SECONDS,
        seed=int(random.integers(1 << 31)),
        start_unix_ns=start_unix_ns,
    )
    cluster = Simulation(quiet).cluster
    begun = plan(discover()[fault], cluster, random, QUIET_SECONDS + FAULT_SECONDS)
    if episodes:
        return replace(quiet, injections=in_turn(begun, episodes))
    lasting = replace(begun, end_s=float("inf"), strength=begun.fault.strengths[1])
    return replace(quiet, injections=(lasting,))


def in_turn(first: Injection, episodes: int) -> tuple[Injection, ...]:
    """The same fault at one host after the other."""
    strength = first.fault.strengths[1]
    made = []
    for number in range(episodes):
        host = (first.place.host + number) % HOSTS
        nic = first.place.nic + (host - first.place.host) * GPUS_PER_HOST
        begin_s = first.start_s + number * EPISODE_SECONDS
        place = first.place._replace(host=host, nic=nic)
        end_s = begin_s + EPISODE_LASTS_SECONDS
        made.append(replace(first, place=place, start_s=begin_s, end_s=end_s, strength=strength))
    return tuple(made)


class ClockStep(HostFault):
    """A host whose clock is set an hour ahead or back. No job is slower for it."""

    name = "clock_step"
    title = "A host's clock is set wrong."
    causes = ()

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        del strength, elapsed_s
        world.host_clock_offset_s[place.host] = self._seconds
        return FOREVER


class Agent(threading.Thread):
    """One agent: its spool, and what became of each batch."""

    def __init__(self, name: str, ledger: Ledger, targets: Callable[[], Sequence[Address]]) -> None:
        super().__init__(name=name, daemon=True)
        self._ledger = ledger
        self._targets = targets
        self._spool: deque[bytes] = deque()
        self._news = threading.Condition()
        self._ends = False
        self._is_abandoned = False
        self._turn = 0
        self._connection: http.client.HTTPConnection | None = None
        self.failures = 0

    def add(self, body: bytes) -> None:
        with self._news:
            self._spool.append(body)
            self._news.notify()

    def end(self) -> None:
        """Stop when the spool is empty."""
        with self._news:
            self._ends = True
            self._news.notify()

    def abandon(self) -> None:
        """Stop, whatever waits."""
        self._is_abandoned = True
        self.end()

    @property
    def waiting(self) -> int:
        return len(self._spool)

    def run(self) -> None:
        while (body := self._next()) is not None:
            if self._deliver(body):
                self._spool.popleft()
            else:
                self.failures += 1
                time.sleep(PAUSE_SECONDS)  # the service is away: ask again soon
        self._hang_up()

    def _next(self) -> bytes | None:
        """The oldest batch, when there is one; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._spool or self._ends)
            return None if self._is_abandoned or not self._spool else self._spool[0]

    def _deliver(self, body: bytes) -> bool:
        """Whether the service has answered for good."""
        try:
            status, answer = self._post(body)
        except (OSError, http.client.HTTPException):
            self._hang_up()
            self._turn += 1
            return False
        if status in RETRIED:
            return False
        if status == 200:
            self._ledger.acknowledge(body, msgspec.json.decode(answer, type=wire.Receipt))
        else:
            self._ledger.refuse(self.name, f"{status}: {answer[:300]!r}")
        return True

    def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            targets = self._targets()
            host, port = targets[self._turn % len(targets)]
            self._connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
        self._connection.request("POST", "/v1/ingest", body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class LiveCluster(threading.Thread):
    """The simulation in real time, from its quiet past on, and its agents."""

    def __init__(
        self,
        seed: int,
        fault: str,
        ledger: Ledger,
        targets: Callable[[], Sequence[Address]],
        episodes: int = 0,
    ) -> None:
        super().__init__(name="cluster", daemon=True)
        self.start_ns = time.time_ns() - round(QUIET_SECONDS * NS)
        self._start_monotonic = time.monotonic() - QUIET_SECONDS
        self.simulation = Simulation(scenario(seed, fault, self.start_ns, episodes))
        self.truths = self.simulation.truths()
        self.truth = self.truths[0]
        self._ledger = ledger
        self._targets = targets
        self._agents: dict[str, Agent] = {}
        self._ends = threading.Event()
        self._wanted: list[Injection] = []
        self.error: BaseException | None = None

    @property
    def age_s(self) -> float:
        """Simulated seconds since the fault began; by a clock that no case steps."""
        return time.monotonic() - self._start_monotonic - QUIET_SECONDS - FAULT_SECONDS

    @property
    def waiting(self) -> int:
        """Batches that wait for an acknowledgement."""
        return sum(agent.waiting for agent in self._agents.values())

    @property
    def failures(self) -> int:
        """Attempts that no service answered."""
        return sum(agent.failures for agent in self._agents.values())

    def step_clock(self, host: int, step_s: float, lasts_s: float) -> None:
        """Set the clock of a host at the next tick, and back after so many seconds."""
        self._wanted.append(Injection(ClockStep(step_s), Place(host=host), 0.0, lasts_s, 1.0))

    def run(self) -> None:
        try:
            self._play()
        except BaseException as error:  # noqa: BLE001 - shown by the stand
            self.error = error

    def _play(self) -> None:
        made = self.simulation.scenario
        reporter = Reporter(
            self.simulation.topology, cluster=NAME, start_unix_ns=self.start_ns, seed=made.seed
        )
        while not self._ends.is_set():
            due = self._start_monotonic + self.simulation.now_s + TICK_SECONDS
            if self._ends.wait(max(0.0, due - time.monotonic())):
                break
            while self._wanted:
                wish, now_s = self._wanted.pop(), self.simulation.now_s
                self.simulation.inject(
                    replace(wish, start_s=now_s + 1e-3, end_s=now_s + wish.end_s)
                )
            for body in reporter.batches(self.simulation.tick()):
                self._agent(wire.decode_batch(body).agent).add(body)

    def _agent(self, name: str) -> Agent:
        if name not in self._agents:
            self._agents[name] = Agent(name, self._ledger, self._targets)
            self._agents[name].start()
        return self._agents[name]

    def abandon(self) -> None:
        """Make no more ticks, whatever waits."""
        self._ends.set()
        self.join()
        for agent in self._agents.values():
            agent.abandon()

    def end(self) -> None:
        """Make no more ticks, and wait until every batch is acknowledged."""
        self._ends.set()
        self.join()
        for agent in self._agents.values():
            agent.end()
        deadline = time.monotonic() + DRAIN_SECONDS
        for agent in self._agents.values():
            agent.join(max(0.0, deadline - time.monotonic()))
        stuck = {name: one.waiting for name, one in self._agents.items() if one.is_alive()}
        assert not stuck, f"batches that are not acknowledged after {DRAIN_SECONDS} s: {stuck}"
        if self.error is not None:
            raise self.error
