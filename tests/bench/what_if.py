"""`/v1/what-if` against what is played: `python -m tests.bench.what_if [FIRST END [FABRIC]]`.

For each seed and fabric a simulated cluster of eight hosts with one job (data-parallel, or with
experts) or two that share leaves; it is read as a service would read it, and each change is then
played from the beginning. Prints every case, and for each kind of change how far the expected step
is from the played one, and how many were within the range.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from api.fleet.what_if.model import Ask, Move, Outlook, Speed
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric, LinkKind, Topology
from simulator.topology.world import World
from tests.worlds.played_changes import Seen, both_ways, link_id, outlooks, play
from tests.worlds.simulated_cluster import small_job
from tests.worlds.topologies import RATE

SEEDS = (201, 209)
HOSTS, GPUS = 8, 2
SECONDS = 30.0
OWN, OTHER = (0, 2, 4, 5), (1, 3, 6, 7)
"""Hosts of the jobs: rings that cross leaves, and share them."""
KINDS = ("data", "shared", "expert")
THIN = 2.0
"""Oversubscription of the cluster whose uplinks are doubled."""
TOLERANCE = 0.01
"""Of a step, past the ends of a range: steps vary by so much from one run to the other."""


class Case(NamedTuple):
    """One job, one change."""

    fabric: str
    seed: int
    change: str
    job: str
    before_s: float
    played_s: float
    outlook: Outlook

    @property
    def error(self) -> float | None:
        """Of the expected step, relative to the played one."""
        expected = self.outlook.step_seconds_expected
        return None if expected is None else expected / self.played_s - 1.0

    @property
    def is_within(self) -> bool:
        """Whether the played step lies in the range."""
        low, high = self.outlook.step_seconds_range or (np.inf, -np.inf)
        return low * (1 - TOLERANCE) <= self.played_s <= high * (1 + TOLERANCE)


class Change(NamedTuple):
    """A question, and the scenario in which it has come true."""

    name: str
    ask: Ask
    scenario: Scenario
    alter: Callable[[World], object] | None = None


def scenario_of(fabric: Fabric, seed: int) -> Scenario:
    """A cluster and its jobs by the seed."""
    random = np.random.default_rng(seed)
    kind, is_rail = KINDS[seed % len(KINDS)], bool(seed % 2)
    size: dict[str, Any] = {
        "compute_seconds": float(random.uniform(0.1, 0.4)),
        "gradient_bytes": int(random.integers(2, 6)) << 30,
    }
    jobs: tuple[JobSpec, ...] = (small_job(hosts=OWN, **size),)
    if kind == "expert":
        jobs = (small_job(hosts=OWN, expert=len(OWN), **size),)
    elif kind == "shared":
        size["compute_seconds"] *= 1.3
        jobs = (*jobs, small_job(name="other", hosts=OTHER, **size))
    cluster = ClusterSpec(
        topology="rail" if is_rail else "fat_tree",
        hosts=HOSTS,
        gpus_per_host=GPUS,
        nics_per_host=GPUS,
        speed="NDR" if fabric is Fabric.INFINIBAND else "400GbE",
        fabric=fabric,
        hosts_per_leaf=2 if is_rail else 4,
    )
    return Scenario(cluster=cluster, jobs=jobs, seconds=SECONDS, seed=seed)


def changes(scenario: Scenario, cluster: Topology) -> Iterator[Change]:
    """A cable less, slower uplinks, a slower NIC, two ranks on an idle host."""
    nic = OWN[1] * GPUS
    leaf = cluster.target[cluster.up(nic)]
    is_up = (cluster.kind == LinkKind.FABRIC_UP) & (cluster.source == leaf)
    own = np.flatnonzero(is_up).tolist()

    def slower(links: list[int], part: float) -> tuple[Ask, Callable[[World], object]]:
        rate = int(RATE * part)
        asked = tuple(Speed(link=link_id(cluster, one), bits_per_second=rate) for one in links)

        def alter(world: World) -> None:
            world.link_speed_share[both_ways(cluster, links)] = part

        return Ask(speed=asked), alter

    def down(world: World) -> None:
        world.link_up[both_ways(cluster, own[:1])] = False

    yield Change("an uplink less", Ask(drop=(link_id(cluster, own[0]),)), scenario, down)
    for name, links, part in (
        ("a leaf's uplinks at half", own, 0.5),
        ("a NIC at half", [int(cluster.up(nic))], 0.5),
        ("a NIC at a quarter", [int(cluster.up(nic))], 0.25),
    ):
        ask, alter = slower(links, part)
        yield Change(name, ask, scenario, alter)
    if len(scenario.jobs) == 1:
        idle = OTHER[0]
        job = scenario.jobs[0]
        moved = tuple(idle if host == OWN[1] else host for host in job.hosts)
        moves = tuple(
            Move(job=job.name, rank=GPUS + gpu, host=cluster.host_name(idle)) for gpu in range(GPUS)
        )
        jobs = (dataclasses.replace(job, hosts=moved),)
        yield Change(
            "a host's ranks moved", Ask(move=moves), dataclasses.replace(scenario, jobs=jobs)
        )


def cases(fabric: Fabric, seed: int) -> Iterator[Case]:
    """All changes of one cluster, played."""
    scenario = scenario_of(fabric, seed)
    seen = play(scenario)
    for change in changes(scenario, seen.topology):
        after = play(change.scenario, change.alter)
        yield from compared(fabric, seed, change.name, change.ask, seen, after)
    thin = dataclasses.replace(scenario.cluster, oversubscription=THIN)
    before = play(dataclasses.replace(scenario, cluster=thin))
    cluster = before.topology
    links = np.flatnonzero(cluster.kind == LinkKind.FABRIC_UP).tolist()
    ask = Ask(double=tuple(link_id(cluster, one) for one in links))
    yield from compared(fabric, seed, "all uplinks doubled", ask, before, seen)


def compared(
    fabric: Fabric, seed: int, change: str, ask: Ask, before: Seen, after: Seen
) -> Iterator[Case]:
    """Each job's."""
    for job, outlook in sorted(outlooks(before, ask).items()):
        steps = before.step_seconds[job], after.step_seconds[job]
        yield Case(fabric.value, seed, change, job, *steps, outlook)


def table(found: list[Case]) -> str:
    """Errors by fabric and kind of change."""
    lines = [
        "| fabric | change | cases | median error | largest | within the range |",
        "|-|-|-|-|-|-|",
    ]
    for fabric in sorted({one.fabric for one in found}):
        for change in dict.fromkeys(one.change for one in found):
            own = [one for one in found if (one.fabric, one.change) == (fabric, change)]
            errors = [one.error for one in own if one.error is not None]
            if not errors:
                continue
            largest = max(errors, key=abs)
            within = sum(one.is_within for one in own)
            lines.append(
                f"| {fabric} | {change} | {len(own)} | {np.median(np.abs(errors)):.1%} |"
                f" {largest:+.1%} | {within} of {len(own)} |"
            )
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """The command line."""
    first, end = [int(word) for word in arguments[:2]] or SEEDS
    fabrics = [Fabric(word) for word in arguments[2:]] or [Fabric.INFINIBAND, Fabric.ROCE]
    found: list[Case] = []
    for fabric in fabrics:
        for seed in range(first, end):
            for one in cases(fabric, seed):
                found.append(one)
                low, high = one.outlook.step_seconds_range or (0.0, 0.0)
                expected = one.outlook.step_seconds_expected or 0.0
                print(
                    f"{one.fabric:10} {one.seed} {one.change:24} {one.job:6}"
                    f" before {one.before_s:.3f} played {one.played_s:.3f}"
                    f" expected {expected:.3f} ({low:.3f} to {high:.3f})"
                    f" {'; '.join(one.outlook.cannot_tell)}",
                    flush=True,
                )
    print(table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
