"""Windows of a job whose rings are exactly as slow as a test wants them.

Exits follow from how a ring waits (`simulator.jobs.ladder.ring_exits`): nothing here knows what a
detector makes of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alerts.window.columns import ClockFit, Records
from alerts.window.model import (
    Communicator,
    Gpus,
    Grid,
    Hosts,
    JobWindow,
    Paths,
    Ports,
    Rank,
    Window,
)
from alerts.window.split import split
from collector.contract.records import ABSENT
from collector.contract.units import NS
from simulator.jobs.ladder import ring_exits

START_NS = 1_800_000_000 * NS
STEP_SECONDS = 0.2
"""Between two operations of a communicator."""
CHUNK_SECONDS = 0.0005
"""What a chunk takes over a healthy edge."""
SIZE_BYTES = 8 << 20


class Group:
    """A communicator: the job's ranks in ring order, and what a chunk takes over its slow edges.

    Edge ``i`` goes from member ``i`` to the next. ``slow`` are the operations in which they are.
    """

    def __init__(
        self,
        members: Sequence[int],
        slow_edges: Mapping[int, float] | None = None,
        slow: range = range(0),
        *,
        size_bytes: int = SIZE_BYTES,
    ) -> None:
        self.members = list(members)
        self.slow_edges = dict(slow_edges or {})
        self.slow = slow
        self.size_bytes = size_bytes


def make_ports(host: Sequence[str] = (), **columns: Any) -> Ports:  # noqa: ANN401 - any column
    """NICs of these hosts, one each; columns may be given."""
    count = len(host)
    given: dict[str, Any] = {
        "grid": Grid(START_NS, 5 * NS, 10),
        "host": list(host),
        "readings": {},
        "seen_ns": np.full(count, ABSENT, dtype=np.int64),
        "device": ["mlx5_0"] * count,
        "port": ["1"] * count,
        "is_switch": np.zeros(count, dtype=bool),
        "other_end": np.full(count, -1, dtype=np.int64),
        "rate_bits_per_second": np.full(count, np.nan),
        "rail": np.zeros(count, dtype=np.int64),
        "tier": np.full(count, -1, dtype=np.int64),
    }
    return Ports(**{**given, **columns})


def make_records(groups: Sequence[Group], operations: int, seed: int, noise: float) -> Records:
    """Every group does so many all-reduces; ``noise`` (seconds) scatters entries and exits."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("communicator", "sequence", "rank", "host", "entry", "exit", "size")
    }
    for number, group in enumerate(groups):
        count = len(group.members)
        entry = np.arange(operations)[:, None] * STEP_SECONDS + random.exponential(
            noise, (operations, count)
        )
        seconds = np.full((operations, count), CHUNK_SECONDS)
        for edge, slower in group.slow_edges.items():
            seconds[list(group.slow), edge] = slower
        leave = ring_exits(entry, seconds, 2 * (count - 1)) + random.exponential(
            noise, (operations, count)
        )
        shape = np.zeros((operations, count), dtype=np.int64)
        columns["communicator"].append(shape + number)
        columns["sequence"].append(shape + np.arange(operations)[:, None])
        columns["rank"].append(shape + np.arange(count))
        columns["host"].append(shape + np.array(group.members))
        columns["entry"].append((entry * NS).astype(np.int64))
        columns["exit"].append((leave * NS).astype(np.int64))
        columns["size"].append(shape + group.size_bytes)
    flat = {
        name: np.concatenate([part.reshape(-1) for part in parts])
        for name, parts in columns.items()
    }
    ranks = np.array([len(group.members) for group in groups])
    total = max(max(group.members) for group in groups) + 1
    return Records(
        communicators=[f"0x{number:02x}" for number in range(len(groups))],
        operations=["all_reduce"],
        hosts=[f"node{number}" for number in range(total)],
        communicator=flat["communicator"].astype(np.int32),
        operation=np.zeros(len(flat["rank"]), dtype=np.int32),
        sequence=flat["sequence"],
        rank=flat["rank"].astype(np.int32),
        host=flat["host"].astype(np.int32),
        pid=np.ones(len(flat["rank"]), dtype=np.int32),
        entry_ns=START_NS + flat["entry"],
        exit_ns=START_NS + flat["exit"],
        enqueue_ns=np.full(len(flat["rank"]), ABSENT, dtype=np.int64),
        duration_ns=flat["exit"] - flat["entry"],
        size_bytes=flat["size"],
        ranks=ranks[flat["communicator"]].astype(np.int32),
        peer=np.full(len(flat["rank"]), -1, dtype=np.int32),
    )


def make_job(
    groups: Sequence[Group],
    *,
    operations: int = 60,
    seed: int = 1,
    noise: float = 0.0002,
    paths: Paths | None = None,
    **fields: Any,  # noqa: ANN401 - of JobWindow
) -> JobWindow:
    """A job of one rank a host, each with one NIC."""
    records = make_records(groups, operations, seed, noise)
    ranks = sorted({rank for group in groups for rank in group.members})
    communicators = {
        name: Communicator(
            name=name,
            ranks=len(group.members),
            job_rank=dict(enumerate(group.members)),
            rings=[list(range(len(group.members)))],
        )
        for name, group in zip(records.communicators, groups, strict=True)
    }
    given: dict[str, Any] = {
        "job": "train",
        "size": len(ranks),
        "ranks": {
            rank: Rank(rank=rank, host=f"node{rank}", gpu=0, devices=("mlx5_0",)) for rank in ranks
        },
        "communicators": communicators,
        "source": "nccl_inspector",
        "records": records,
        "operations": split(records),
        "clocks": [ClockFit(from_ns=0, to_ns=0, middle_ns=0, clocks=[], operations=0)],
        "paths": paths,
    }
    return JobWindow(**{**given, **fields})


def make_window(*jobs: JobWindow, ports: Ports | None = None, is_live: bool = False) -> Window:
    """These jobs, and NICs without readings for all their hosts."""
    hosts = sorted({rank.host for job in jobs for rank in job.ranks.values()})
    ends = [int(job.operations.last_exit_ns.max()) for job in jobs if len(job.operations)]
    grid = Grid(START_NS, 5 * NS, 10)
    nothing: dict[str, Any] = {
        "grid": grid,
        "host": [],
        "readings": {},
        "seen_ns": np.zeros(0, dtype=np.int64),
    }
    return Window(
        from_ns=START_NS,
        to_ns=max(ends, default=START_NS + NS),
        jobs=list(jobs),
        ports=make_ports(hosts) if ports is None else ports,
        gpus=Gpus(gpu=[], **nothing),
        hosts=Hosts(**nothing),
        is_live=is_live,
    )
