"""Collectives for tests: of a job that never was, or as a source read them, as columns."""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from alerts.window.clocks import operation_index
from alerts.window.columns import Records
from alerts.window.split import medians
from collector.contract.collective import Collective
from collector.contract.records import ABSENT
from collector.contract.units import NS

START_NS = 1_800_000_000 * NS


def make_records(
    *,
    hosts: int = 8,
    ranks_per_host: int = 1,
    steps: int = 100,
    step_seconds: float = 0.05,
    transfer_seconds: float = 0.008,
    jitter_seconds: float = 0.0005,
    late: dict[int, float] | None = None,
    seed: int = 1,
) -> Records:
    """One communicator over all ranks: an all-reduce and a short all-gather a step.

    ``late`` adds seconds to a rank's entry into the all-reduce. Exits scatter by a twentieth of
    the transfer.
    """
    random = np.random.default_rng(seed)
    ranks = hosts * ranks_per_host
    shape = (steps, ranks)
    base = START_NS + (np.arange(steps) * step_seconds * NS).astype(np.int64)[:, None]
    entry = base + (random.exponential(jitter_seconds, shape) * NS).astype(np.int64)
    for rank, seconds in (late or {}).items():
        entry[:, rank] += int(seconds * NS)
    columns: dict[str, list[np.ndarray]] = {"entry": [], "exit": [], "operation": []}
    for number, share in ((1, 1.0), (0, 0.1)):
        transfer = transfer_seconds * share * NS
        scatter = random.normal(0, transfer / 20, shape).astype(np.int64)
        leave = entry.max(1, keepdims=True) + int(transfer) + scatter
        leave = np.maximum(leave, entry + 1)
        columns["entry"].append(entry)
        columns["exit"].append(leave)
        columns["operation"].append(np.full(shape, number))
        entry = leave + 10_000
    flat = {name: np.concatenate(parts).reshape(-1) for name, parts in columns.items()}
    member = np.tile(np.arange(ranks), steps * 2)
    order = np.lexsort((member, np.repeat(np.tile(np.arange(steps), 2), ranks), flat["operation"]))
    size = np.where(flat["operation"] == 1, 8 << 20, 256 << 10)
    return Records(
        communicators=["0xabc"],
        operations=["all_gather", "all_reduce"],
        hosts=[f"node{number}" for number in range(hosts)],
        communicator=np.zeros(len(member), dtype=np.int32),
        operation=flat["operation"][order].astype(np.int32),
        sequence=np.repeat(np.tile(np.arange(steps), 2), ranks)[order].astype(np.int64),
        rank=member[order].astype(np.int32),
        host=(member // ranks_per_host)[order].astype(np.int32),
        pid=(100 + member)[order].astype(np.int32),
        entry_ns=flat["entry"][order].astype(np.int64),
        exit_ns=flat["exit"][order].astype(np.int64),
        enqueue_ns=np.full(len(member), ABSENT, dtype=np.int64),
        duration_ns=(flat["exit"] - flat["entry"])[order].astype(np.int64),
        size_bytes=size[order].astype(np.int64),
        ranks=np.full(len(member), ranks, dtype=np.int32),
        peer=np.full(len(member), -1, dtype=np.int32),
    )


def to_columns(collectives: Iterable[Collective]) -> Records:
    """The records, sorted, without a store in between."""
    rows = sorted(collectives, key=lambda c: (c.communicator, c.operation, c.sequence, c.rank))
    names = {
        field: sorted({str(getattr(row, field)) for row in rows})
        for field in ("communicator", "operation", "host")
    }
    codes = {
        field: np.array([known.index(str(getattr(row, field))) for row in rows], dtype=np.int32)
        for field, known in names.items()
    }
    numbers = {
        field: np.array([getattr(row, field) for row in rows], dtype=np.int32)
        for field in ("rank", "pid", "ranks")
    }
    times = ("sequence", "entry_ns", "exit_ns", "enqueue_ns", "duration_ns", "size_bytes")
    values = {field: [getattr(row, field) for row in rows] for field in times}
    wide = {
        field: np.array([ABSENT if v is None else v for v in column], dtype=np.int64)
        for field, column in values.items()
    }
    return Records(
        communicators=names["communicator"],
        operations=names["operation"],
        hosts=names["host"],
        communicator=codes["communicator"],
        operation=codes["operation"],
        host=codes["host"],
        rank=numbers["rank"],
        pid=numbers["pid"],
        ranks=numbers["ranks"],
        peer=np.array([-1 if row.peer is None else row.peer for row in rows], dtype=np.int32),
        sequence=wide["sequence"],
        entry_ns=wide["entry_ns"],
        exit_ns=wide["exit_ns"],
        enqueue_ns=wide["enqueue_ns"],
        duration_ns=wide["duration_ns"],
        size_bytes=wide["size_bytes"],
    )


def shift_clocks(records: Records, offsets_ns: np.ndarray, drifts: np.ndarray) -> Records:
    """The records as hosts with these clocks would have written them."""
    start = int(records.exit_ns.min())

    def shifted(times: np.ndarray) -> np.ndarray:
        there = times != ABSENT
        ahead = offsets_ns[records.host] + drifts[records.host] * (times - start)
        moved: np.ndarray = np.where(there, times + np.rint(ahead).astype(np.int64), times)
        return moved

    return msgspec.structs.replace(
        records,
        entry_ns=shifted(records.entry_ns),
        exit_ns=shifted(records.exit_ns),
        enqueue_ns=shifted(records.enqueue_ns),
    )


def clock_errors(corrected: Records, truth: Records) -> np.ndarray:
    """How far each host's times are off at worst, nanoseconds.

    What is common to all hosts cannot be known and is taken out: an offset and a drift.
    """
    error = (corrected.exit_ns - truth.exit_ns).astype(np.float64)
    when = (truth.exit_ns - truth.exit_ns.min()) / NS
    design = np.stack([np.ones_like(when), when], axis=1)
    common, *_ = np.linalg.lstsq(design, error, rcond=None)
    rest = np.abs(error - design @ common)
    worst = np.zeros(len(truth.hosts))
    np.maximum.at(worst, truth.host, rest)
    return worst


def set_clocks(records: Records, steps: Mapping[int, tuple[float, float]]) -> Records:
    """The records as hosts would have written them whose clocks were set meanwhile.

    ``steps``: by host (its code) at which share of the time, and by how many nanoseconds.
    """
    start, end = int(records.exit_ns.min()), int(records.exit_ns.max())
    moved = {}
    for name in ("entry_ns", "exit_ns", "enqueue_ns"):
        times = getattr(records, name)
        ahead = np.zeros(len(times), dtype=np.int64)
        for host, (share, step_ns) in steps.items():
            after = times >= start + int(share * (end - start))
            ahead += np.where((records.host == host) & after, int(step_ns), 0)
        moved[name] = np.where(times != ABSENT, times + ahead, times)
    return msgspec.structs.replace(records, **moved)


def placing_errors(corrected: Records, truth: Records) -> np.ndarray:
    """How far each host's exits are off at worst, against the median rank of the operation.

    Nanoseconds; NaN: none of its exits has a time.
    """
    there = corrected.exit_ns != ABSENT
    error = (corrected.exit_ns - truth.exit_ns)[there]
    index = operation_index(truth)[there]
    _, dense = np.unique(index, return_inverse=True)
    off = np.abs(error - medians(error, dense.astype(np.int64))[dense])
    worst = np.full(len(truth.hosts), np.nan)
    np.fmax.at(worst, truth.host[there], off.astype(np.float64))
    return worst
