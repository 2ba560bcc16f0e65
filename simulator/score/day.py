"""A day on call: what goes wrong in it, and the shifts that it is played in.

A day is cut into shifts, each with a cluster, jobs and a store of its own, so that a machine with
several cores plays several at once. Faults last minutes, with long stretches in which all is well;
what only looks like trouble (reboots of idle hosts, clocks, lost telemetry, checkpoints) is spread
over all of it, in a healthy day too.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from collector.contract.errors import SettingsError
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Cluster, Fault, Injection
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.score.cases import LINE_BYTES_PER_SECOND, SEED_END
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric

HOSTS, GPUS_PER_HOST = 8, 4
"""Small, because every second of a day is simulated, stored, looked at and judged."""
TICK_SECONDS = 10.0
"""How often agents report: half as often as by default, for the same reason."""
FAULT_SECONDS = (180.0, 420.0)
"""A fault that pages lasts for minutes."""
QUIET_SECONDS = 660.0
"""Before the first fault of a shift and after each: the one before must be over, and what comes and
goes is open for ten minutes after it was last seen."""
BENIGN_PER_SHIFT = 3
BENIGN_SECONDS = (60.0, 300.0)
PLACEMENTS_MAX = 200
HOURS_DEFAULT, FAULTS_DEFAULT, SHIFTS_DEFAULT = 24.0, 20, 4

CLUSTERS = tuple(
    ClusterSpec(
        topology=shape,
        hosts=HOSTS,
        gpus_per_host=GPUS_PER_HOST,
        nics_per_host=GPUS_PER_HOST,
        speed="NDR" if fabric is Fabric.INFINIBAND else "400GbE",
        fabric=fabric,
        hosts_per_leaf=hosts_per_leaf,
    )
    for shape, fabric, hosts_per_leaf in (
        ("rail", Fabric.ROCE, 4),
        ("rail", Fabric.INFINIBAND, 4),
        ("fat_tree", Fabric.ROCE, 2),
        ("dragonfly", Fabric.INFINIBAND, 1),
    )
)
"""One after the other."""

COMPUTE_SECONDS = 2.4
NETWORK_SHARE = 0.42
"""What reducing the gradient takes, of a step's compute: as on the scoreboard."""


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a day, by what determines it."""

    seed: int
    number: int
    shifts: int
    hours: float
    """Of the whole day."""
    faults: int
    """Of the whole day; 0: a healthy one."""

    @property
    def seconds(self) -> float:
        ticks = np.ceil(self.hours * 3_600 / self.shifts / TICK_SECONDS)
        return float(ticks * TICK_SECONDS)


def make_shift(shift: Shift) -> Scenario:
    random = np.random.default_rng([shift.seed, *b"day", shift.number])
    scenario = draw_placement(
        Scenario(
            cluster=CLUSTERS[shift.number % len(CLUSTERS)],
            jobs=draw_jobs(random),
            seconds=shift.seconds,
            tick_seconds=TICK_SECONDS,
            seed=int(random.integers(SEED_END)),
        ),
        random,
    )
    cluster = Simulation(scenario).cluster
    share = [len(part) for part in np.array_split(np.arange(shift.faults), shift.shifts)]
    before = sum(share[: shift.number])
    faults = draw_faults(shift, cluster, before, share[shift.number])
    injections = [*place_faults(shift, cluster, faults, random), *draw_benign(scenario, random)]
    return replace(scenario, injections=tuple(sorted(injections, key=lambda one: one.start_s)))


def draw_jobs(random: np.random.Generator) -> tuple[JobSpec, ...]:
    """Two jobs with the habits of healthy ones, and one idle host; placement is drawn later."""
    return (
        JobSpec(
            name="llama-70b",
            hosts=tuple(range(4)),
            tensor=GPUS_PER_HOST,
            compute_seconds=COMPUTE_SECONDS * float(random.uniform(0.9, 1.1)),
            gradient_bytes=gradient_bytes(4),
            checkpoint_every_steps=int(random.integers(300, 700)),
        ),
        JobSpec(
            name="mixtral",
            hosts=tuple(range(4, 7)),
            tensor=GPUS_PER_HOST,
            compute_seconds=COMPUTE_SECONDS * float(random.uniform(0.9, 1.1)),
            gradient_bytes=gradient_bytes(3),
            evaluation_every_steps=int(random.integers(300, 700)),
            imbalance=float(random.uniform(0.0, 0.05)),
        ),
    )


def draw_placement(scenario: Scenario, random: np.random.Generator) -> Scenario:
    """The scenario with its jobs on hosts by chance, so that no cable carries bytes of both.

    Jobs that share a cable slow each other down whenever their rhythms meet: that is congestion,
    and would need a verdict on a healthy day.
    """
    for _ in range(PLACEMENTS_MAX):
        hosts = iter(random.permutation(HOSTS).tolist())
        placed = tuple(
            replace(job, hosts=tuple(sorted(next(hosts) for _ in job.hosts)))
            for job in scenario.jobs
        )
        used = [fabric_links(replace(scenario, jobs=(job,))) for job in placed]
        if not used[0] & used[1]:
            return replace(scenario, jobs=placed)
    raise SettingsError(f"{PLACEMENTS_MAX} placements, and jobs share a cable in each of them")


def fabric_links(scenario: Scenario) -> set[int]:
    """Links between switches that the scenario's jobs use."""
    simulation = Simulation(scenario)
    used = simulation.cluster.used_links
    assert used is not None
    return {int(link) for link in used if link >= simulation.topology.first_fabric_link}


def gradient_bytes(copies: int) -> int:
    """A gradient that the network needs its share of a step for."""
    times_sent = 2 * (copies - 1) / copies
    return int(COMPUTE_SECONDS * NETWORK_SHARE * LINE_BYTES_PER_SECOND / times_sent)


def draw_faults(shift: Shift, cluster: Cluster, before: int, count: int) -> list[Fault]:
    """The shift's share of the day's faults: all kinds, one after the other, as far as they fit."""
    kinds = [fault for fault in discover().values() if fault.causes]
    order = np.random.default_rng([shift.seed, *b"faults"]).permutation(len(kinds))
    fitting = [kinds[place] for place in np.roll(order, -before) if kinds[place].fits(cluster)]
    if count and not fitting:
        raise SettingsError(f"no fault fits into shift {shift.number}")
    return [fitting[k % len(fitting)] for k in range(count)]


def place_faults(
    shift: Shift, cluster: Cluster, faults: list[Fault], random: np.random.Generator
) -> list[Injection]:
    """Faults one after the other, with quiet between them. Raises SettingsError without room."""
    if not faults:
        return []
    slot = (shift.seconds - QUIET_SECONDS) / len(faults)
    if slot < FAULT_SECONDS[1] + QUIET_SECONDS:
        raise SettingsError(
            f"{len(faults)} faults in {shift.seconds / 3_600:.3g} h: each needs "
            f"{(FAULT_SECONDS[1] + QUIET_SECONDS) / 60:.0f} min, so ask for fewer or for more hours"
        )
    injections = []
    for place, fault in enumerate(faults):
        seconds = float(random.uniform(*FAULT_SECONDS))
        spare = slot - QUIET_SECONDS - seconds
        start = QUIET_SECONDS + place * slot + float(random.uniform(0.0, spare))
        injections.append(inject(fault, cluster, random, start, seconds))
    return injections


def draw_benign(scenario: Scenario, random: np.random.Generator) -> list[Injection]:
    cluster = Simulation(scenario).cluster
    kinds = [one for one in discover().values() if not one.causes and one.fits(cluster)]
    chosen = random.choice(len(kinds), size=min(BENIGN_PER_SHIFT, len(kinds)), replace=False)
    return [
        inject(
            kinds[place],
            cluster,
            random,
            float(random.uniform(QUIET_SECONDS / 2, scenario.seconds - BENIGN_SECONDS[1])),
            float(random.uniform(*BENIGN_SECONDS)),
        )
        for place in sorted(chosen.tolist())
    ]


def inject(
    fault: Fault, cluster: Cluster, random: np.random.Generator, start_s: float, seconds: float
) -> Injection:
    return Injection(
        fault=fault,
        place=fault.choose(cluster, random),
        start_s=start_s,
        end_s=start_s + seconds,
        strength=float(random.uniform(*fault.strengths)),
    )
