"""A job with experts, for tests: tokens are handed out, worked on and sent back; and its traces."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from alerts.window.columns import Step
from alerts.window.model import JobWindow
from collector.contract.collective import Collective, Operation
from tests.worlds.collectives import START_NS
from tests.worlds.pipeline_jobs import to_job

RANKS, STEPS = 8, 40
EXPERT_MS, OTHER_MS, TRANSFER_MS = 100.0, 50.0, 4.0
PART_BYTES = 8 << 20
MS = 1_000_000
GROUPS = {"world": "0", "experts": "1"}

Table = Callable[[int, int], float]


def experts(
    held: Table = lambda *_: 1.0, slow_ms: Table = lambda *_: 0.0, *, seed: int = 1
) -> JobWindow:
    """Tokens are handed out evenly, worked on, sent back; gradients are reduced.

    ``held``: how many times the usual number of tokens a rank holds in a step; ``slow_ms``: how
    much longer it takes for them.
    """
    records, steps = played(held, slow_ms, seed)
    return msgspec.structs.replace(to_job(records), steps=steps)


def played(held: Table, slow_ms: Table, seed: int = 1) -> tuple[list[Collective], list[Step]]:
    random = np.random.default_rng(seed)
    now = np.zeros(RANKS)
    records: list[Collective] = []

    def meet(name: str, number: int, operation: Operation, sizes: np.ndarray) -> None:
        leave = now.max() + TRANSFER_MS
        for rank in range(RANKS):
            entry_ns, exit_ns = (START_NS + round(at * MS) for at in (now[rank], leave))
            records.append(
                Collective(
                    communicator=name, operation=operation, sequence=number, rank=rank,
                    ranks=RANKS, source="kineto", time_ns=exit_ns, entry_ns=entry_ns,
                    exit_ns=exit_ns, size_bytes=int(sizes[rank]), host=f"node{rank}", pid=rank + 1,
                )
            )  # fmt: skip
        now[:] = leave

    even = np.full(RANKS, PART_BYTES)
    steps: list[Step] = []
    for step in range(STEPS):
        began_ns = START_NS + round(now.max() * MS)
        share = np.array([held(rank, step) for rank in range(RANKS)])
        now += OTHER_MS * random.normal(1.0, 0.005, RANKS)
        meet("experts", 2 * step, Operation.ALL_TO_ALL, even)
        now += EXPERT_MS * share * random.normal(1.0, 0.005, RANKS)
        now += [slow_ms(rank, step) for rank in range(RANKS)]
        meet("experts", 2 * step + 1, Operation.ALL_TO_ALL, np.rint(share * PART_BYTES))
        meet("world", step, Operation.ALL_REDUCE, even)
        steps.append(
            Step(
                number=step, start_ns=began_ns, end_ns=START_NS + round(now.max() * MS),
                ranks=RANKS, compute_ns=0, wait_ns=0, transfer_ns=0, last_rank=None,
            )
        )  # fmt: skip
    return records, steps


def write_traces(records: Sequence[Collective], folder: Path) -> None:
    """As torch.profiler writes them (`saveNcclMeta`, torch/csrc/profiler/util.cpp, PyTorch 2.6)."""
    kernels = {
        Operation.ALL_TO_ALL: ("ncclDevKernel_SendRecv(ncclDevKernelArgs)", "all_to_allv"),
        Operation.ALL_REDUCE: ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "allreduce"),
    }
    for rank in range(RANKS):
        events = []
        for one in (each for each in records if each.rank == rank):
            name, collective = kernels[one.operation]
            assert one.entry_ns is not None
            assert one.exit_ns is not None
            elements = (one.size_bytes or 0) // 2
            rows = [str(elements // RANKS)] * RANKS if collective == "all_to_allv" else []
            events.append(
                {
                    "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7,
                    "ts": (one.entry_ns - START_NS) / 1000,
                    "dur": (one.exit_ns - one.entry_ns) / 1000,
                    "args": {
                        "stream": 7, "Collective name": collective, "dtype": "BFloat16",
                        "In msg nelems": elements, "Out msg nelems": elements, "Seq": one.sequence,
                        "In split size": f"[{', '.join(rows)}]", "Out split size": "[]",
                        "Group size": RANKS, "Process Group Name": GROUPS[one.communicator],
                        "Process Group Ranks": str([*range(RANKS)]),
                    },
                }
            )  # fmt: skip
        info = {"backend": "nccl", "rank": rank, "world_size": RANKS}
        trace = {
            "schemaVersion": 1, "distributedInfo": info, "baseTimeNanoseconds": START_NS,
            "traceEvents": events,
        }  # fmt: skip
        path = folder / f"rank{rank}.pt.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
