"""One step of a job that no simulation ran: its ranks, and collectives of every kind."""

from typing import Any

import numpy as np

from collector.contract.collective import Operation, State
from simulator.pattern import Algorithm
from simulator.snapshot import CollectiveBlock, HangDump, JobStatus, Snapshot, StepBlock
from simulator.topology.model import Floats, Ints, Topology
from tests.simulated import make_snapshot

JOB = "4711"
FIRST_PID = 70_000
STEP_S = (58.2, 59.4)
"""When the step began and ended."""
DIGITS = {Operation.ALL_GATHER: "aaaa", Operation.ALL_REDUCE: "bbbb"}
"""What hashes of communicators inside hosts, and between them, begin with."""


def make_job(topology: Topology, **changes: object) -> JobStatus:
    """A job on all GPUs of the cluster, rank by rank in their order."""
    ranks = topology.gpus
    gpu = np.arange(ranks, dtype=np.int32)
    host = gpu // topology.gpus_per_host
    inside = gpu.reshape(topology.hosts, topology.gpus_per_host)
    communicators = {f"0xaaaa{unit:08x}": ("tensor", row) for unit, row in enumerate(inside)}
    communicators |= {f"0xbbbb{unit:08x}": ("data", row) for unit, row in enumerate(inside.T)}
    values: dict[str, Any] = {
        "name": JOB,
        "ranks": ranks,
        "rank_host": host,
        "rank_gpu": gpu,
        "rank_nic": gpu * topology.nics_per_host // topology.gpus_per_host,
        "rank_pid": FIRST_PID + gpu,
        "step": 7,
        "step_seconds": 1.2,
        "hung_since_s": None,
        "is_running": True,
        "start_s": 2.5,
        "communicators": communicators,
    }
    return JobStatus(**(values | changes))


def make_block(members: Ints, operation: Operation, sequence: int, seed: int) -> CollectiveBlock:
    """A collective of all units, entered within milliseconds of each other in the last second."""
    random = np.random.default_rng(seed)
    entry: Floats = 59.0 + random.uniform(0, 0.01, members.shape)
    digits = DIGITS.get(operation, "cccc")
    return CollectiveBlock(
        job=JOB,
        operation=operation,
        algorithm=Algorithm.RING,
        communicators=tuple(f"0x{digits}{unit:08x}" for unit in range(len(members))),
        sequence=sequence,
        size_bytes=1 << 26,
        members=members,
        entry_s=entry,
        exit_s=entry.max(axis=1, keepdims=True) + random.uniform(0.02, 0.03, members.shape),
    )


def make_blocks(topology: Topology, sequence: int = 3) -> list[CollectiveBlock]:
    """Inside the hosts, between them along rails (twice), and from one host to the next."""
    ranks = np.arange(topology.gpus, dtype=np.int32)
    inside = ranks.reshape(topology.hosts, topology.gpus_per_host)
    rails = np.ascontiguousarray(inside.T)
    return [
        make_block(inside, Operation.ALL_GATHER, sequence, seed=1),
        make_block(rails, Operation.ALL_REDUCE, sequence, seed=2),
        make_block(rails, Operation.ALL_REDUCE, sequence + 1, seed=3),
        make_block(np.ascontiguousarray(rails[:, :2]), Operation.SEND_RECV, sequence, seed=4),
    ]


def make_hang(topology: Topology) -> HangDump:
    """After a whole step, an all-reduce that one rank never launched, and a send without an end."""
    done = make_blocks(topology)
    _, _, reduced, pair = make_blocks(topology, sequence=4)
    reduced.sequence = 5
    reduced.entry_s[0, 1] = np.nan
    for block in (reduced, pair):
        block.exit_s[0] = np.nan
        block.state = State.STARTED
    return HangDump(JOB, 120.0, [*done, reduced, pair])


def make_step(topology: Topology, step: int = 7) -> StepBlock:
    """One step of every rank, in three phases."""
    start, end = (np.full(topology.gpus, at) for at in STEP_S)
    start, end = start + 1e-6 * np.arange(topology.gpus), end + 2e-6 * np.arange(topology.gpus)
    third = (end - start) / 3
    return StepBlock(
        job=JOB,
        step=step,
        start_s=start,
        end_s=end,
        phases={
            "data": (start, start + third),
            "forward": (start + third, end - third),
            "backward": (end - third, end),
        },
    )


def make_busy_snapshot(topology: Topology, **changes: object) -> Snapshot:
    """A tick with a job at work, by clocks that differ."""
    values: dict[str, Any] = {
        "jobs": [make_job(topology)],
        "collectives": make_blocks(topology),
        "steps": [make_step(topology)],
        "clock_offset_s": np.linspace(-0.2, 0.3, topology.hosts),
    }
    return make_snapshot(topology, **(values | changes))
