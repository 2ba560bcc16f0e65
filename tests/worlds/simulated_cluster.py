"""Whole simulated clusters, small enough to run within a second, and what was seen of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from collector.contract.collective import Operation
from simulator.engine import Simulation
from simulator.faults.model import Fault, Injection, Place
from simulator.interfaces.run_folder import RunFolder
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.snapshot import CollectiveBlock, Counts, Snapshot, StepBlock
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric, Floats

GPUS_PER_HOST = 2
HOSTS, JOB_HOSTS = 6, 4
"""The job leaves two hosts idle: that is where neighbours and harmless events live."""
BUCKET_BYTES = 1 << 30
BUCKETS = 4
REDUCTIONS_PER_STEP = BUCKETS + 1
"""The last one is of the loss, which is a few bytes."""


def small_job(**changes: object) -> JobSpec:
    """Two GPUs a host that share a model, four copies of it, and hardly any chance in it."""
    values: dict[str, Any] = {
        "name": "train",
        "hosts": tuple(range(JOB_HOSTS)),
        "tensor": GPUS_PER_HOST,
        "gradient_bytes": BUCKETS * BUCKET_BYTES,
        "buckets": BUCKETS,
        "compute_seconds": 0.2,
        "startup_seconds": 0.5,
        "watchdog_seconds": 12.0,
    }
    return JobSpec(**(values | changes))


def small_cluster(fabric: Fabric = Fabric.INFINIBAND, **changes: object) -> ClusterSpec:
    """Six hosts on rails at 400 Gb/s, two on each leaf: rings cross the spine without colliding."""
    values: dict[str, Any] = {
        "topology": "rail",
        "hosts": HOSTS,
        "gpus_per_host": GPUS_PER_HOST,
        "nics_per_host": GPUS_PER_HOST,
        "speed": "NDR" if fabric is Fabric.INFINIBAND else "400GbE",
        "fabric": fabric,
        "hosts_per_leaf": 2,
    }
    return ClusterSpec(**(values | changes))


def small_scenario(
    fabric: Fabric = Fabric.INFINIBAND, *jobs: JobSpec, **changes: object
) -> Scenario:
    """One small job on the small cluster for twenty seconds."""
    values: dict[str, Any] = {
        "cluster": small_cluster(fabric),
        "jobs": jobs or (small_job(),),
        "seconds": 20.0,
    }
    return Scenario(**(values | changes))


# What was seen -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Watched:
    """A simulation and all that it has shown."""

    simulation: Simulation
    seen: list[Snapshot]

    @classmethod
    def start(cls, scenario: Scenario) -> Watched:
        """Nothing has been seen yet."""
        return cls(Simulation(scenario), [])

    def until(self, time_s: float) -> Snapshot:
        """Look at every tick up to this time; the last one."""
        while self.simulation.now_s < time_s - 1e-6:
            self.seen.append(self.simulation.tick())
        return self.seen[-1]

    @property
    def last(self) -> Snapshot:
        """The latest tick."""
        return self.seen[-1]

    def at(self, time_s: float) -> Snapshot:
        """The tick at this time."""
        return next(one for one in self.seen if abs(one.time_s - time_s) < 1e-6)

    def steps(self, job: str = "train") -> list[StepBlock]:
        """All steps that were reported."""
        return [step for one in self.seen for step in one.steps if step.job == job]

    def blocks(self, job: str = "train") -> list[CollectiveBlock]:
        """All collectives that were reported."""
        return [block for one in self.seen for block in one.collectives if block.job == job]

    def step_seconds(self, start_s: float, end_s: float, job: str = "train") -> float:
        """Median length of the steps that lie in this time; infinite if none does."""
        found = [
            float(np.median(step.end_s - step.start_s))
            for step in self.steps(job)
            if start_s <= step.start_s.min() and step.end_s.max() <= end_s
        ]
        return float(np.median(found)) if found else float("inf")

    def links(self, name: str, start_s: float, end_s: float) -> Counts:
        """How much a counter of every link grew between two ticks."""
        grown: Counts = getattr(self.at(end_s).links, name) - getattr(self.at(start_s).links, name)
        return grown

    def nics(self, name: str, start_s: float, end_s: float) -> Counts:
        """How much a counter of every NIC grew between two ticks."""
        grown: Counts = getattr(self.at(end_s).nics, name) - getattr(self.at(start_s).nics, name)
        return grown

    def reductions(self, start_s: float, end_s: float) -> list[CollectiveBlock]:
        """The gradient's all-reduces that lie in this time."""
        return [
            block
            for block in self.blocks()
            if block.operation is Operation.ALL_REDUCE
            and block.size_bytes == BUCKET_BYTES
            and start_s <= block.entry_s.min()
            and block.exit_s.max() <= end_s
        ]


def last_hosts(watched: Watched, start_s: float, end_s: float) -> Counts:
    """For each host: of how many rings it was the last to come to a step's first all-reduce.

    To the others a rank comes when it has left the one before, so they measure the ring.
    """
    counts = np.zeros(HOSTS, dtype=np.int64)
    rank_host = watched.last.jobs[0].rank_host
    for block in watched.reductions(start_s, end_s):
        if block.sequence % REDUCTIONS_PER_STEP:
            continue
        last = block.members[np.arange(len(block.members)), block.entry_s.argmax(axis=1)]
        np.add.at(counts, rank_host[last], 1)
    return counts


def entry_spread(watched: Watched, start_s: float, end_s: float) -> float:
    """Median time between the first and the last rank of a ring to come, seconds."""
    spreads: list[Floats] = [
        block.entry_s.max(axis=1) - block.entry_s.min(axis=1)
        for block in watched.reductions(start_s, end_s)
    ]
    return float(np.median(np.concatenate(spreads)))


# Faults ------------------------------------------------------------------------------------------


class Strike(NamedTuple):
    """When a fault begins, when one looks at it, when it ends and when all must be well again."""

    begin_s: float = 6.5
    look_s: float = 26.0
    end_s: float = 26.5
    over_s: float = 40.0


WHEN = Strike()


def strike(
    watched: Watched, fault: Fault, place: Place | None = None, when: Strike = WHEN
) -> Place:
    """Let a fault strike at its worst, at the place that it chooses if none is given."""
    simulation = watched.simulation
    if place is None:
        place = fault.choose(simulation.cluster, np.random.default_rng(3))
    simulation.inject(Injection(fault, place, when.begin_s, when.end_s, 1.0))
    return place


# The same bytes ----------------------------------------------------------------------------------


def digest(scenario: Scenario, folder: Path) -> str:
    """Of everything that a run shows, and of all files that it writes into the folder."""
    hashed = hashlib.blake2b()
    files = RunFolder(folder)
    simulation = Simulation(scenario)
    for snapshot in simulation.run():
        for piece in _pieces(snapshot):
            hashed.update(piece)
        files.write(snapshot)
    files.close(simulation.truths())
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            hashed.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return hashed.hexdigest()


def _pieces(value: object) -> Iterator[bytes]:
    """What a snapshot holds, in its order; the topology and the world are left out."""
    if isinstance(value, np.ndarray):
        yield value.tobytes()
    elif isinstance(value, Snapshot):
        for field in fields(value):
            if field.name not in {"topology", "world"}:
                yield from _pieces(getattr(value, field.name))
    elif is_dataclass(value):
        for field in fields(value):
            yield from _pieces(getattr(value, field.name))
    elif isinstance(value, dict):
        for name, one in value.items():
            yield str(name).encode()
            yield from _pieces(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _pieces(one)
    else:
        yield repr(value).encode()
