"""A synthetic job, rank by rank: a rank that computes longer enters late, and the others wait.

Each step: every rank computes, meets the ranks of its host, computes, and meets its like on all
other hosts. A rank leaves a collective when the last has come and the bytes are there.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from alerts.window.columns import Records, Step
from alerts.window.model import (
    Communicator,
    Gpus,
    Grid,
    Hosts,
    JobWindow,
    Pending,
    Ports,
    Rank,
    Readings,
    Window,
)
from alerts.window.split import split
from collector.contract.model import Event
from collector.contract.records import ABSENT
from collector.contract.units import NS

START_NS = 1_800_000_000 * NS
MS = 1_000_000
CELL_NS = 5 * NS


def make_job(
    *,
    hosts: int = 4,
    gpus: int = 2,
    steps: int = 40,
    compute_ms: float = 200.0,
    transfer_ms: float = 10.0,
    extra_ms: np.ndarray | None = None,
    seed: int = 1,
    offsets_ns: Sequence[int] = (),
) -> JobWindow:
    """The job; ``extra_ms`` [steps, ranks] is added to what ranks compute before they first meet.

    ``offsets_ns`` are how far each host's clock is ahead.
    """
    random = np.random.default_rng(seed)
    ranks = hosts * gpus
    extra = np.zeros((steps, ranks)) if extra_ms is None else extra_ms
    free = np.zeros(ranks)
    rows: list[tuple[float, ...]] = []
    bounds = []
    host_of = np.arange(ranks) // gpus
    for step in range(steps):
        began = free.copy()
        for phase, work in enumerate((0.6, 0.4)):
            jitter = 1 + random.normal(0, 0.003, ranks)
            entry = free + work * compute_ms * jitter + (extra[step] if phase == 0 else 0.0)
            group = host_of if phase == 0 else np.arange(ranks) % gpus
            for one in np.unique(group):
                members = np.flatnonzero(group == one)
                leave = entry[members].max() + transfer_ms * (0.2 if phase == 0 else 1.0)
                for place, rank in enumerate(members):
                    name = int(one if phase == 0 else hosts + one)
                    seen = leave + abs(random.normal(0, 0.01))
                    who = int(rank), int(host_of[rank])
                    rows.append((name, step, place, *who, float(entry[rank]), float(seen)))
                    free[rank] = seen
        bounds.append((float(np.median(began)), float(np.median(free))))
    return to_job(rows, bounds, hosts, gpus, offsets_ns)


def to_job(
    rows: list[tuple[float, ...]],
    bounds: list[tuple[float, float]],
    hosts: int,
    gpus: int,
    offsets_ns: Sequence[int],
) -> JobWindow:
    """The rows as columns, with the ranks' identities."""
    table = np.array(sorted(rows), dtype=np.float64)
    name, step, place, rank, host = (table[:, column].astype(np.int32) for column in range(5))
    ahead = np.array(offsets_ns or [0] * hosts, dtype=np.int64)[host]
    names = [f"0x{number:02d}" for number in range(hosts + gpus)]
    size = np.where(name < hosts, gpus, hosts).astype(np.int32)
    records = Records(
        communicators=names,
        operations=["all_reduce"],
        hosts=[f"node{number}" for number in range(hosts)],
        communicator=name,
        operation=np.zeros(len(table), dtype=np.int32),
        sequence=step.astype(np.int64),
        rank=place,
        host=host,
        pid=rank,
        entry_ns=START_NS + np.rint(table[:, 5] * MS).astype(np.int64) + ahead,
        exit_ns=START_NS + np.rint(table[:, 6] * MS).astype(np.int64) + ahead,
        enqueue_ns=np.full(len(table), ABSENT, dtype=np.int64),
        duration_ns=np.full(len(table), ABSENT, dtype=np.int64),
        size_bytes=np.full(len(table), 1 << 20, dtype=np.int64),
        ranks=size,
        peer=np.full(len(table), -1, dtype=np.int32),
    )
    pairs = sorted({(int(n), int(p), int(r)) for n, p, r in zip(name, place, rank, strict=True)})
    communicators = {
        names[code]: Communicator(
            name=names[code],
            ranks=gpus if code < hosts else hosts,
            job_rank={p: r for n, p, r in pairs if n == code},
        )
        for code in range(hosts + gpus)
    }
    return JobWindow(
        job="training",
        size=hosts * gpus,
        ranks={
            number: Rank(rank=number, host=f"node{number // gpus}", gpu=number % gpus)
            for number in range(hosts * gpus)
        },
        communicators=communicators,
        source="nccl_inspector",
        records=records,
        operations=split(records),
        clocks=(),
        steps=[
            Step(
                number=number,
                start_ns=START_NS + round(first * MS),
                end_ns=START_NS + round(last * MS),
                ranks=hosts * gpus,
                compute_ns=0,
                wait_ns=0,
                transfer_ns=0,
                last_rank=None,
            )
            for number, (first, last) in enumerate(bounds)
        ],
    )


def make_window(
    job: JobWindow,
    *,
    is_live: bool = True,
    silent_ns: int = 0,
    gpu_levels: Mapping[str, tuple[float, float]] | None = None,
    odd: Mapping[str, Mapping[int, float]] | None = None,
    host_levels: Mapping[str, tuple[float, Mapping[int, float]]] | None = None,
    events: Sequence[Event] = (),
    seen_ns: int | None = None,
) -> Window:
    """The window from the job's first record until ``silent_ns`` after its last.

    ``gpu_levels`` are a metric's values before the last record and after; ``odd`` those of some
    GPUs after it; ``host_levels`` a metric's value, and what it is on some hosts after it.
    """
    last = max(START_NS, int(job.records.exit_ns.max())) if len(job.records) else START_NS
    to_ns = last + silent_ns
    cells = max(2, -(-(to_ns - START_NS) // CELL_NS))
    grid = Grid(to_ns - cells * CELL_NS, CELL_NS, cells)
    after = grid.edges_ns[:-1] >= last
    ranks = sorted(job.ranks.values(), key=lambda one: one.rank)
    places = [(one.host, one.gpu or 0) for one in ranks]
    hosts = sorted({one.host for one in ranks})
    readings = {}
    for name, (before, then) in (gpu_levels or {}).items():
        values = np.tile(np.where(after, then, before), (len(places), 1)).astype(np.float64)
        for row, value in (odd or {}).get(name, {}).items():
            values[row, after] = value
        readings[name] = Readings(
            metric=f"fabric_gpu_{name}", row=np.arange(len(places)), values=values
        )
    loads = {}
    for name, (usual, changed) in (host_levels or {}).items():
        values = np.full((len(hosts), cells), usual)
        for row, value in changed.items():
            values[row, after] = value
        loads[name] = Readings(
            metric=f"fabric_host_{name}", row=np.arange(len(hosts)), values=values
        )
    seen = to_ns if seen_ns is None else seen_ns
    return Window(
        from_ns=START_NS,
        to_ns=to_ns,
        jobs=[job],
        ports=no_ports(grid),
        gpus=Gpus(
            grid=grid,
            host=[host for host, _ in places],
            gpu=[gpu for _, gpu in places],
            readings=readings,
            seen_ns=np.full(len(places), seen, dtype=np.int64),
        ),
        hosts=Hosts(
            grid=grid,
            host=hosts,
            readings=loads,
            seen_ns=np.full(len(hosts), seen, dtype=np.int64),
        ),
        events=events,
        is_live=is_live,
    )


def no_ports(grid: Grid) -> Ports:
    """No port was read."""
    nothing = np.zeros(0, dtype=np.int64)
    return Ports(
        grid=grid,
        host=[],
        device=[],
        port=[],
        readings={},
        seen_ns=nothing,
        is_switch=np.zeros(0, dtype=bool),
        other_end=nothing,
        rate_bits_per_second=np.zeros(0),
        rail=nothing,
        tier=nothing,
    )


def with_pending(job: JobWindow, pending: Sequence[Pending]) -> JobWindow:
    """The job as its recorders show it."""
    return msgspec.structs.replace(job, pending=tuple(pending))


def shuffled(job: JobWindow, seed: int) -> JobWindow:
    """The same job, its hosts and communicators named in another order and its rows sorted so."""
    random = np.random.default_rng(seed)
    records = job.records
    names = random.permutation(len(records.communicators))
    hosts = random.permutation(len(records.hosts))
    moved = msgspec.structs.replace(
        records,
        communicators=[records.communicators[code] for code in np.argsort(names)],
        hosts=[records.hosts[code] for code in np.argsort(hosts)],
        communicator=names[records.communicator].astype(np.int32),
        host=hosts[records.host].astype(np.int32),
    )
    order = np.lexsort((moved.rank, moved.sequence, moved.operation, moved.communicator))
    moved = moved.select(order)
    return msgspec.structs.replace(
        job, records=moved, operations=split(moved), steps=list(reversed(job.steps))
    )
