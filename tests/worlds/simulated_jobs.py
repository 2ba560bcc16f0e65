"""Jobs that no simulation ran: whole snapshots of one job, for tests of what is shown of it."""

from typing import Any

import numpy as np

from collector.contract.collective import Operation, State
from simulator.pattern import Algorithm
from simulator.snapshot import CollectiveBlock, HangDump, JobStatus, Snapshot, StepBlock
from simulator.topology.model import Floats, Ints, Topology
from tests.worlds.simulated import make_snapshot

JOB = "llm-70b"
FIRST_PID = 41_000
STEP_S = (58.2, 59.4)
"""When the step began and ended."""
HASHES = {Operation.ALL_REDUCE: "da", Operation.ALL_GATHER: "7e", Operation.SEND_RECV: "55"}
"""What the communicators begin with that are data-parallel, tensor-parallel and pipelines."""


def tensor_groups(topology: Topology) -> Ints:
    """[hosts, GPUs of a host]: the ranks of each tensor-parallel communicator."""
    ranks = np.arange(topology.gpus, dtype=np.int32)
    return ranks.reshape(topology.hosts, topology.gpus_per_host)


def data_groups(topology: Topology) -> Ints:
    """[GPUs of a host, hosts]: the ranks of each data-parallel communicator."""
    return np.ascontiguousarray(tensor_groups(topology).T)


def name_communicators(operation: Operation, count: int) -> tuple[str, ...]:
    """The hashes of the communicators of this operation."""
    return tuple(f"0x{HASHES[operation]}{unit:012x}" for unit in range(count))


def make_job(topology: Topology, **changes: object) -> JobStatus:
    """A job on every GPU, tensor-parallel inside the hosts and data-parallel between them."""
    ranks = np.arange(topology.gpus, dtype=np.int32)
    communicators: dict[str, tuple[str, Ints]] = {}
    for kind, operation, groups in (
        ("data", Operation.ALL_REDUCE, data_groups(topology)),
        ("tensor", Operation.ALL_GATHER, tensor_groups(topology)),
    ):
        names = name_communicators(operation, len(groups))
        communicators |= {name: (kind, row) for name, row in zip(names, groups, strict=True)}
    values: dict[str, Any] = {
        "name": JOB,
        "ranks": topology.gpus,
        "rank_host": ranks // topology.gpus_per_host,
        "rank_gpu": ranks,
        "rank_nic": ranks * topology.nics_per_host // topology.gpus_per_host,
        "rank_pid": FIRST_PID + 7 * ranks,
        "step": 3,
        "step_seconds": 1.2,
        "hung_since_s": None,
        "is_running": True,
        "start_s": 2.5,
        "communicators": communicators,
    }
    return JobStatus(**(values | changes))


def make_block(
    members: Ints, operation: Operation = Operation.ALL_REDUCE, *, seed: int = 7, **changes: object
) -> CollectiveBlock:
    """A collective of all units, entered within milliseconds of each other in the last second."""
    random = np.random.default_rng(seed)
    entry_s: Floats = 59.0 + random.uniform(0, 0.01, members.shape)
    end_s = entry_s.max(axis=1, keepdims=True)
    values: dict[str, Any] = {
        "job": JOB,
        "operation": operation,
        "algorithm": Algorithm.RING,
        "communicators": name_communicators(operation, len(members)),
        "sequence": 41,
        "size_bytes": 1 << 28,
        "members": members,
        "entry_s": entry_s,
        "exit_s": end_s + random.uniform(0.02, 0.03, members.shape),
    }
    return CollectiveBlock(**(values | changes))


def make_reduction(topology: Topology, **changes: Any) -> CollectiveBlock:  # noqa: ANN401
    """One all-reduce of all data-parallel communicators."""
    return make_block(data_groups(topology), **changes)


def make_blocks(topology: Topology, sequence: int = 3) -> list[CollectiveBlock]:
    """Inside the hosts, between them along rails (twice), and from one host to the next."""
    rails = data_groups(topology)
    pairs = np.ascontiguousarray(rails[:, :2])
    return [
        make_block(tensor_groups(topology), Operation.ALL_GATHER, sequence=sequence, seed=1),
        make_block(rails, sequence=sequence, seed=2),
        make_block(rails, sequence=sequence + 1, seed=3),
        make_block(pairs, Operation.SEND_RECV, sequence=sequence, seed=4),
    ]


def make_step(topology: Topology, step: int = 3) -> StepBlock:
    """One step of every rank, in three phases."""
    ranks: Floats = np.arange(topology.gpus, dtype=np.float64)
    start_s, end_s = STEP_S[0] + 1e-6 * ranks, STEP_S[1] + 2e-6 * ranks
    third = (end_s - start_s) / 3
    phases = {
        "data": (start_s, start_s + third),
        "forward": (start_s + third, end_s - third),
        "backward": (end_s - third, end_s),
    }
    return StepBlock(JOB, step, start_s, end_s, phases)


def make_hang(topology: Topology, missing_rank: int) -> HangDump:
    """Two collectives: one that every rank finished, and one that a rank never launched."""
    done = make_reduction(topology)
    entry_s = done.exit_s + 0.5
    entry_s[done.members == missing_rank] = np.nan
    nobody = np.full(entry_s.shape, np.nan)
    # Groups without that rank have gone on.
    is_stuck = (done.members == missing_rank).any(axis=1)
    exit_s = np.where(is_stuck[:, None], nobody, entry_s + 0.1)
    hanging = make_reduction(
        topology, sequence=42, entry_s=entry_s, exit_s=exit_s, state=State.STARTED
    )
    return HangDump(JOB, 120.0, [done, hanging])


def make_busy_snapshot(topology: Topology, **changes: object) -> Snapshot:
    """A tick in which the job ended a collective and a step."""
    values: dict[str, Any] = {
        "jobs": [make_job(topology)],
        "collectives": [make_reduction(topology)],
        "steps": [make_step(topology)],
    }
    return make_snapshot(topology, **(values | changes))


def make_full_snapshot(topology: Topology, **changes: object) -> Snapshot:
    """The same with collectives of every kind, by clocks that differ."""
    values: dict[str, Any] = {
        "collectives": make_blocks(topology),
        "clock_offset_s": np.linspace(-0.2, 0.3, topology.hosts),
    }
    return make_busy_snapshot(topology, **(values | changes))
