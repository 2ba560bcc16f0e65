"""Jobs that no simulation ran: whole snapshots of one job, for tests of what its files say."""

from typing import Any

import numpy as np

from collector.contract.collective import Operation, State
from simulator.pattern import Algorithm
from simulator.snapshot import CollectiveBlock, HangDump, JobStatus, Snapshot, StepBlock
from simulator.topology.model import Floats, Ints, Topology
from tests.simulated import make_snapshot

JOB = "llm-70b"
FIRST_PID = 41_000


def data_groups(topology: Topology) -> Ints:
    """[GPUs of a host, hosts]: the ranks of each data-parallel communicator."""
    ranks = np.arange(topology.gpus, dtype=np.int32)
    return np.ascontiguousarray(ranks.reshape(topology.hosts, topology.gpus_per_host).T)


def make_job(topology: Topology, **changes: object) -> JobStatus:
    """A job on every GPU, tensor-parallel inside the hosts and data-parallel between them."""
    ranks = np.arange(topology.gpus, dtype=np.int32)
    groups = data_groups(topology)
    tensor = groups.T
    communicators = {f"0xda{unit:012x}": ("data", row) for unit, row in enumerate(groups)}
    communicators |= {f"0x7e{unit:012x}": ("tensor", row) for unit, row in enumerate(tensor)}
    values: dict[str, Any] = {
        "name": JOB,
        "ranks": topology.gpus,
        "rank_host": ranks // topology.gpus_per_host,
        "rank_gpu": ranks,
        "rank_nic": ranks * topology.nics_per_host // topology.gpus_per_host,
        "rank_pid": FIRST_PID + 7 * ranks,
        "step": 3,
        "step_seconds": 1.0,
        "hung_since_s": None,
        "is_running": True,
        "start_s": 5.0,
        "communicators": communicators,
    }
    return JobStatus(**(values | changes))


def make_block(topology: Topology, **changes: object) -> CollectiveBlock:
    """One all-reduce of all data-parallel communicators, each rank with times of its own."""
    groups = data_groups(topology)
    random = np.random.default_rng(7)
    entry_s: Floats = 59.0 + random.uniform(0, 0.1, groups.shape)
    values: dict[str, Any] = {
        "job": JOB,
        "operation": Operation.ALL_REDUCE,
        "algorithm": Algorithm.RING,
        "communicators": tuple(f"0xda{unit:012x}" for unit in range(len(groups))),
        "sequence": 41,
        "size_bytes": 1 << 28,
        "members": groups,
        "entry_s": entry_s,
        "exit_s": entry_s + random.uniform(0.1, 0.2, groups.shape),
    }
    return CollectiveBlock(**(values | changes))


def make_step(topology: Topology, step: int = 3) -> StepBlock:
    """One step of all ranks: loading, then the rest."""
    start_s: Floats = 58.5 + np.random.default_rng(5).uniform(0, 0.1, topology.gpus)
    middle_s, end_s = start_s + 0.05, start_s + 1.0
    phases = {"data": (start_s, middle_s), "forward": (middle_s, end_s)}
    return StepBlock(JOB, step, start_s, end_s, phases)


def make_hang(topology: Topology, missing_rank: int) -> HangDump:
    """Two collectives: one that everyone finished, and one that a rank never launched."""
    done = make_block(topology)
    entry_s = done.exit_s + 0.5
    entry_s[done.members == missing_rank] = np.nan
    nobody = np.full(entry_s.shape, np.nan)
    # Groups without that rank have gone on.
    is_stuck = (done.members == missing_rank).any(axis=1)
    exit_s = np.where(is_stuck[:, None], nobody, entry_s + 0.1)
    hanging = make_block(topology, sequence=42, entry_s=entry_s, exit_s=exit_s, state=State.STARTED)
    return HangDump(JOB, 120.0, [done, hanging])


def make_busy_snapshot(topology: Topology, **changes: object) -> Snapshot:
    """A tick in which the job ended a collective and a step."""
    values: dict[str, Any] = {
        "jobs": [make_job(topology)],
        "collectives": [make_block(topology)],
        "steps": [make_step(topology)],
    }
    return make_snapshot(topology, **(values | changes))
