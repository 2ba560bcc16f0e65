"""How fast the simulator is: CPU-seconds for an hour of 1,024 GPUs, a scenario to score, a poll.

An hour is not run: jobs repeat their steps, so what a minute costs after the first, in which
congestion is worked out, is what every later one costs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from collector.contract.wire import encode_batch
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.jobs.model import JobSpec
from simulator.readings.poller import Poller, PollerSpec
from simulator.scenario import Scenario, plan
from simulator.topology.build import build
from simulator.topology.model import Fabric
from simulator.topology.spec import ClusterSpec
from tests.bench.processes import say
from tests.bench.report import Bar, BenchError, Result, Table, number
from tests.worlds.simulated import make_snapshot

HOUR_SECONDS = 3600
WARM_SECONDS, QUICK_WARM_SECONDS = 30, 8
"""Of simulated time at the start: nothing moves for five of them, then memories fill."""
LARGE_SECONDS, QUICK_LARGE_SECONDS = 60, 4
SMALL_SECONDS, QUICK_SMALL_SECONDS = 300, 10
RAIL_BAR, CROWDED_BAR, SMALL_BAR = 300, 480, 15
"""CPU-seconds: an hour of 128 hosts with rails of their own, the same where uplinks are scarce, and
five minutes of 16 hosts."""
POLL_BAR, POLLED_PORTS = 0.1, 128 * 64
"""CPU-seconds for one poll of so many switch ports."""
POLLED_HOSTS, QUICK_POLLED_HOSTS = 256, 32
"""A cluster whose switches are polled; what a port costs hardly depends on how many there are."""
POLLS = 5
POLLED_FABRICS = {Fabric.ROCE: "400GbE", Fabric.INFINIBAND: "NDR"}
SEED = 5

LARGE_JOBS = (
    JobSpec(name="dense", hosts=tuple(range(96))),
    JobSpec(name="piped", hosts=tuple(range(96, 128)), pipeline=2),
)
SMALL_JOBS = (
    JobSpec(name="dense", hosts=tuple(range(8))),
    JobSpec(name="piped", hosts=tuple(range(8, 14)), pipeline=2, compute_seconds=0.6),
)
CONGESTING = ("incast", "storage_neighbour", "pfc_misconfigured", "ecmp_polarised")
"""Faults that the fluid has most to do with."""


@dataclass(frozen=True)
class Cost:
    """What a stretch of simulated time cost after the warm-up, and the warm-up itself."""

    warm_up_cpu: float
    cpu: float
    simulated: float
    steps: int

    def of(self, seconds: float) -> float:
        """CPU-seconds for so much simulated time, the warm-up included."""
        return self.warm_up_cpu + self.cpu / self.simulated * seconds


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench; more rounds repeat the same bytes, and the cheapest of them counts."""
    costs: dict[str, Cost] = {}
    warm_up = QUICK_WARM_SECONDS if is_quick else WARM_SECONDS
    for name in ("rail", "fat_tree"):
        say(f"simulator: 128 hosts, {name}")
        seconds = QUICK_LARGE_SECONDS if is_quick else LARGE_SECONDS
        scenario = Scenario(cluster=cluster(name, 128), jobs=LARGE_JOBS)
        costs[f"128 hosts, {name}"] = cheapest(scenario, warm_up, seconds, rounds)
    small = QUICK_SMALL_SECONDS if is_quick else SMALL_SECONDS
    for fault in (None, *CONGESTING):
        say(f"simulator: 16 hosts, fat_tree, {fault or 'healthy'}")
        scenario = small_scenario(fault, small)
        costs[f"16 hosts, fat_tree, {fault or 'healthy'}"] = cheapest(scenario, 0, small, rounds)
    polls = {
        str(fabric): poll_cost(fabric, QUICK_POLLED_HOSTS if is_quick else POLLED_HOSTS)
        for fabric in POLLED_FABRICS
    }
    rows = [
        [name, number(cost.of(HOUR_SECONDS)), number(cost.of(SMALL_SECONDS))]
        for name, cost in costs.items()
    ]
    return Result(
        name="simulator",
        tables=[
            Table(
                title="CPU-seconds to simulate",
                columns=["", "an hour", "five minutes"],
                rows=rows,
            )
        ],
        bars=[*bars(costs), *poll_bars(polls)],
        figures={
            name: {"warm_up_cpu": cost.warm_up_cpu, "cpu": cost.cpu, "simulated": cost.simulated}
            for name, cost in costs.items()
        }
        | {f"poll, {name}": {"cpu": seconds} for name, seconds in polls.items()},
        notes=["an hour is what a minute after the warm-up costs, sixty times"],
        is_quick=is_quick,
    )


def cluster(topology: str, hosts: int, hosts_per_leaf: int | None = None) -> ClusterSpec:
    """RoCE at 400 Gb/s; a fat tree has one uplink for two NICs, so flows collide."""
    return ClusterSpec(
        topology=topology,
        hosts=hosts,
        speed="400GbE",
        fabric=Fabric.ROCE,
        hosts_per_leaf=hosts_per_leaf,
        oversubscription=2.0 if topology == "fat_tree" else 1.0,
    )


def small_scenario(fault: str | None, seconds: float) -> Scenario:
    """Sixteen hosts, with a fault for half of the time."""
    scenario = Scenario(
        cluster=cluster("fat_tree", 16, hosts_per_leaf=4), jobs=SMALL_JOBS, seconds=seconds
    )
    if fault is None:
        return scenario
    places = Simulation(scenario).cluster
    chosen = plan(discover()[fault], places, np.random.default_rng(SEED), seconds / 4)
    ending = replace(chosen, end_s=seconds * 3 / 4)
    return replace(scenario, injections=(ending,))


def cheapest(scenario: Scenario, warm_up: int, seconds: int, rounds: int) -> Cost:
    """Of several rounds, because the rest of the machine only ever slows."""
    found = [measure(scenario, warm_up, seconds) for _ in range(rounds)]
    return min(found, key=lambda cost: cost.cpu)


def measure(scenario: Scenario, warm_up: int, seconds: int) -> Cost:
    """Run it."""
    started = time.process_time()
    simulation = Simulation(scenario)
    for _ in range(warm_up):
        simulation.tick()
    warm = time.process_time()
    for _ in range(seconds - 1):
        simulation.tick()
    steps = sum(job.step for job in simulation.tick().jobs)
    if not steps:
        raise BenchError("no job has made a step")
    return Cost(warm - started, time.process_time() - warm, seconds, steps)


def bars(costs: dict[str, Cost]) -> list[Bar]:
    """What was promised."""
    small = max(cost.of(SMALL_SECONDS) for name, cost in costs.items() if name.startswith("16"))
    promises = [
        (
            "CPU-seconds for an hour of 1,024 GPUs on rails {needed}",
            RAIL_BAR,
            costs["128 hosts, rail"].of(HOUR_SECONDS),
        ),
        (
            "the same on a fat tree with one uplink for two NICs {needed}",
            CROWDED_BAR,
            costs["128 hosts, fat_tree"].of(HOUR_SECONDS),
        ),
        ("five minutes of 128 GPUs, the dearest fault {needed}", SMALL_BAR, small),
    ]
    return [
        Bar(what=what, needed=needed, value=value, unit=" s", at_most=True)
        for what, needed, value in promises
    ]


# Polls -------------------------------------------------------------------------------------------


def poll_cost(fabric: Fabric, hosts: int) -> float:
    """CPU-seconds of fast mode for one poll of POLLED_PORTS, by what its cheapest poll took."""
    say(f"simulator: switches of {hosts} hosts are polled, {fabric}")
    topology = build(ClusterSpec(hosts=hosts, fabric=fabric, speed=POLLED_FABRICS[fabric]))
    poller = Poller(topology, PollerSpec(interval_s=0.0), "bench", "run", samples_max=50_000)
    snapshot, random = make_snapshot(topology), np.random.default_rng(SEED)
    found = []
    for _ in range(POLLS):
        snapshot.links.bytes += random.integers(0, 10**9, topology.links)
        snapshot.links.packets += random.integers(0, 10**5, topology.links)
        started = time.process_time()
        if not sum(len(encode_batch(one)) for one in poller.batches(snapshot)):
            raise BenchError("nothing was polled")
        found.append(time.process_time() - started)
    ports = int((topology.source_switch >= 0).sum())
    return min(found) * POLLED_PORTS / ports


def poll_bars(polls: dict[str, float]) -> list[Bar]:
    """What was promised of polls."""
    what = f"CPU-seconds for a poll of {POLLED_PORTS:,} switch ports, {{name}} {{{{needed}}}}"
    return [
        Bar(what=what.format(name=name), needed=POLL_BAR, value=value, unit=" s", at_most=True)
        for name, value in polls.items()
    ]
