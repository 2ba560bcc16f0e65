"""Placement: the time from a question's bytes to its answer's, and how near sets are to the best.

4,096 hosts of 8 NICs in pods of 32, 64 running jobs of 24 hosts, all hosts at some risk and 3 % of
all links at half their rate. A question names all hosts that are free. The clock runs over what a
request costs beside HTTP: the body is read, the hosts are judged, sets are chosen, weighed and
written. The floor is cached, as it is for a client that asks at least once a minute; building it is
a row of its own. *Nearness* is the score of the first set against the best of all sets of 12 hosts,
found by trying each.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from api.fabric.model import Link, Topology
from api.fleet.placement.place import place
from api.fleet.placement.ways import Ways
from api.http.routes.placement import read_ask
from tests.bench.processes import say
from tests.bench.report import Bar, BenchError, Result, Table, number, quantile
from tests.worlds.placements import Stand
from tests.worlds.topologies import RATE, changed, simulated_topology

HOSTS, NICS, HOSTS_PER_POD = 4_096, 8, 32
JOBS, HOSTS_PER_JOB = 64, 24
SIZES = (8, 64, 256, 1_024, 2_048)
COLD_SIZE = 1_024
SETS = 3
ASKED, QUICK_ASKED = 20, 3
RISKS = (0.01, 0.01, 0.02, 0.05)
"""No host is without risk, and some links are slow: no set is perfect, so all work is done."""
SLOW_SHARE = 0.03

WALL_MS_BAR = 200.0
"""A scheduler's patience in one cycle."""

SMALL_HOSTS = 12
CASES, QUICK_CASES = 60, 15
NEARNESS_BAR = 0.95
SEED = 11


@dataclass(frozen=True)
class Timed:
    """One kind of question."""

    title: str
    walls_ms: list[float]
    cpus_ms: list[float]
    share: float | None

    def row(self) -> list[str]:
        """As a row of the table."""
        walls = (number(quantile(self.walls_ms, share)) for share in (0.5, 0.99))
        shown = "" if self.share is None else f"{self.share:.2f}"
        return [self.title, *walls, number(quantile(self.cpus_ms, 0.5)), shown]


def large_stand() -> Stand:
    """The large fleet."""
    topology = simulated_topology(
        topology="rail",
        hosts=HOSTS,
        nics_per_host=NICS,
        gpus_per_host=NICS,
        hosts_per_leaf=HOSTS_PER_POD,
        oversubscription=2.0,
    )
    names = [f"node{place:04d}" for place in range(HOSTS)]
    jobs = {
        f"job-{job:02d}": names[first : first + HOSTS_PER_JOB]
        for job, first in enumerate(range(0, HOSTS, HOSTS // JOBS))
    }
    chance = np.random.default_rng(SEED)
    stand = Stand(changed(topology, alter=lambda link: slowed(link, chance)), jobs)
    for name in names:
        stand.say(name, risk=float(chance.choice(RISKS)))
    return stand


def slowed(link: Link, chance: np.random.Generator) -> Link:
    """The link, or one of half its rate."""
    if chance.random() >= SLOW_SHARE:
        return link
    return msgspec.structs.replace(link, rate_bits_per_second=RATE // 2)


def timed(title: str, turns: int, work: Callable[[], float | None]) -> Timed:
    """So many turns of some work, which gives back the share of bandwidth that it found."""
    walls, cpus, share = [], [], None
    gc.collect()
    for _ in range(turns):
        wall, cpu = time.perf_counter(), time.thread_time()
        share = work()
        walls.append((time.perf_counter() - wall) * 1_000)
        cpus.append((time.thread_time() - cpu) * 1_000)
    return Timed(title, walls, cpus, share)


def ask(stand: Stand, body: bytes, size: int) -> float | None:
    """One question, from its bytes to its answer's; the first set's share of bandwidth."""
    placed = place(stand.known, stand.fleet, read_ask(body))
    msgspec.json.encode(placed)
    if len(placed.sets) != SETS or any(len(set(each.hosts)) != size for each in placed.sets):
        raise BenchError(f"placement: no {SETS} whole sets of {size} hosts: {placed.none_because}")
    return placed.sets[0].bandwidth_share


def measure_large(turns: int) -> list[Timed]:
    """All questions about the large fleet, and what it takes to make its floor."""
    say(f"placement: makes {HOSTS:,} hosts")
    stand = large_stand()
    topology = stand.known.floor.graph.topology
    is_busy = stand.known.traffic.is_busy.tolist()
    free = [name for name, busy in zip(stand.known.floor.hosts, is_busy, strict=True) if not busy]
    found = []
    for size in SIZES:
        say(f"placement: {size} of {len(free)} hosts")
        body = msgspec.json.encode({"size": size, "candidates": free, "sets": SETS})
        ask(stand, body, size)
        found.append(
            timed(f"{size:,} of {len(free):,}", turns, lambda: ask(stand, body, size))  # noqa: B023
        )
    body = msgspec.json.encode({"size": 8, "same_leaf": True, "rail_aligned": True, "sets": SETS})
    title = f"8 of {HOSTS:,}, same leaf, rail-aligned"
    found.append(timed(title, turns, lambda: ask(stand, body, 8)))
    body = msgspec.json.encode({"size": COLD_SIZE, "candidates": free, "sets": SETS})
    title = f"{COLD_SIZE:,} of {len(free):,}, ways not known yet"
    found.append(timed(title, turns, lambda: ask(forgetful(stand), body, COLD_SIZE)))
    return [*found, timed("the floor, made anew", 1, lambda: make_again(topology))]


def forgetful(stand: Stand) -> Stand:
    """The same stand with an empty cache: the first request after a change of cables."""
    other = copy.copy(stand)
    known = stand.known
    other.known = dataclasses.replace(known, ways=Ways(known.floor))
    return other


def make_again(topology: Topology) -> None:
    """What is done behind answers when a cable has changed, less the reading of the inventory."""
    Stand(topology)


# --- nearness -----------------------------------------------------------------------------------


def small_stand(chance: np.random.Generator) -> Stand:
    """Twelve hosts with slow and dead links, risks, and up to two jobs."""
    orders: list[dict[str, object]] = [
        {"topology": "rail", "nics_per_host": 2, "hosts_per_leaf": 4},
        {"topology": "fat_tree", "nics_per_host": 1, "hosts_per_leaf": 3},
        {"topology": "fat_tree", "nics_per_host": 1, "hosts_per_leaf": 2, "switch_ports": 8},
    ]
    order = orders[int(chance.integers(len(orders)))]
    speeds = np.array([RATE, RATE, RATE, RATE, RATE // 2, RATE // 4])

    def alter(link: Link) -> Link:
        rate, is_up = int(chance.choice(speeds)), bool(chance.random() >= 0.05)
        return msgspec.structs.replace(link, rate_bits_per_second=rate, is_up=is_up)

    topology = changed(simulated_topology(hosts=SMALL_HOSTS, **order), alter=alter)
    names = [f"node{place:04d}" for place in range(SMALL_HOSTS)]
    jobs = {
        f"job-{job}": [str(name) for name in chance.choice(names, 2, replace=False)]
        for job in range(int(chance.integers(3)))
    }
    stand = Stand(topology, jobs)
    for name in names:
        stand.say(name, risk=float(chance.choice([0.0, 0.0, 0.02, 0.1, 0.3])))
    return stand


def measure_nearness(cases: int) -> list[float]:
    """Of each case: the first set's score, as a part of the best of all sets'."""
    say(f"placement: tries every set of {cases} small fleets")
    chance = np.random.default_rng(SEED)
    found: list[float] = []
    while len(found) < cases:
        stand, size = small_stand(chance), int(chance.integers(2, 7))
        if stand.place(1).usable < size:
            continue
        best = stand.best_score(size)
        if best > 0:
            score = max((each.score for each in stand.place(size).sets), default=0.0)
            found.append(min(1.0, score / best))
    return found


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench: `rounds` times as many questions."""
    large = measure_large((QUICK_ASKED if is_quick else ASKED) * rounds)
    near = measure_nearness(QUICK_CASES if is_quick else CASES)
    exact = sum(each > 0.999 for each in near) / len(near)
    worst_ms = max(quantile(each.walls_ms, 0.99) for each in large[:-2])
    columns = ["", "p50 ms", "p99 ms", "CPU p50 ms", "bandwidth share"]
    sums = [f"{np.mean(near):.3f}", f"{min(near):.2f}", f"{exact:.0%}".replace("%", " %")]
    return Result(
        name="placement",
        tables=[
            Table(
                title=f"{HOSTS:,} hosts, {HOSTS * NICS:,} NICs, {JOBS} running jobs, {SETS} sets",
                columns=columns,
                rows=[each.row() for each in large],
            ),
            Table(
                title=f"the first set against the best of all, {len(near)} fleets of 12 hosts",
                columns=["", "mean", "worst", "the best itself"],
                rows=[["score, as a part of the best", *sums]],
            ),
        ],
        bars=[
            Bar(
                what=f"p99 of any question about {HOSTS:,} hosts, ways known, in ms {{needed}}",
                needed=WALL_MS_BAR,
                value=worst_ms,
                unit=" ms",
                at_most=True,
            ),
            Bar(
                what="mean score of the first set, as a part of the best, {needed}",
                needed=NEARNESS_BAR,
                value=float(np.mean(near)),
                unit="",
            ),
        ],
        figures={"walls_ms": {each.title: each.walls_ms for each in large}, "nearness": near},
        notes=[
            "without HTTP, over a floor that is there; reading the inventory for it is in no row",
            "ways are not known right after a start, and for new places after a cable has changed",
        ],
        is_quick=is_quick,
    )
