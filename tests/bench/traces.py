"""Profiler traces of any size, as PyTorch writes them: for the bench and for tests of bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator

MEGABYTE = 1_000_000
STEP_US = 20_000.0
OPERATORS = (
    "aten::mm",
    "aten::linear",
    "aten::add_",
    "aten::copy_",
    "autograd::engine",
    "aten::to",
)
KERNELS = ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "vectorized_elementwise")
HEAD = """
  {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320
    }
    ],
      "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 1, \
"pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", \
"pg_size": 8, "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}], "nccl_version": "2.28.9"},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""
TAIL = """
  ],
  "traceName": "rank3.pt.trace.json"
}
"""


def kineto_trace(megabytes: float, seed: int) -> Iterator[bytes]:
    """A trace of about this size in pieces, one per step; the same for the same seed.

    Of its events one in five is a kernel, as in profiles of transformers with the host's operators
    and calls recorded; each step has 8 collectives.
    """
    source = random.Random(seed)
    yield HEAD.encode()
    written, step = 0, 0
    while written < megabytes * MEGABYTE:
        events = list(step_events(source, step))
        text = ("" if step == 0 else ",\n") + ",\n".join(events)
        written += len(text)
        step += 1
        yield text.encode()
    yield TAIL.encode()


def step_events(source: random.Random, step: int) -> Iterator[str]:
    """The events of one step: what the host did, then what the GPU did."""
    start = 3_843_720_302_000.0 + step * STEP_US
    yield event("user_annotation", f"ProfilerStep#{step}", start, STEP_US, '"External id": 1')
    for number in range(160):
        at, link = start + number * 100, step * 1000 + number
        name = source.choice(OPERATORS)
        yield event(
            "cpu_op",
            name,
            at,
            source.uniform(5, 90),
            f'"External id": {link},"Record function id": 0, "Sequence number": {number}, '
            f'"Fwd thread id": 0, "Ev Idx": {link}',
        )
        yield event("cuda_runtime", "cudaLaunchKernel", at + 5, 4.0, launch(link))
        yield (
            f'  {{\n    "ph": "s", "id": {link}, "pid": 644, "tid": 644, "ts": {at + 5:.3f},\n'
            '    "cat": "ac2g", "name": "ac2g"\n  }'
        )
    for number in range(80):
        link = step * 1000 + number
        yield from gpu_events(source, start + number * 240, number, link)


def gpu_events(source: random.Random, at: float, number: int, link: int) -> Iterator[str]:
    """A kernel, each tenth with a collective beside it."""
    usual = (
        f'"External id": {link},      "queued": 0, "device": 0, "context": 1,      "stream": 7, '
        f'"correlation": {link},      "registers per thread": 96,      "shared memory": 103808,'
        '      "blocks per SM": 0.015152,      "warps per SM": 0.136364,      "grid": [2, 1, 1],'
        '      "block": [288, 1, 1],      "est. achieved occupancy %": 0'
    )
    yield event("kernel", source.choice(KERNELS), at, source.uniform(20, 230), usual, is_gpu=True)
    if number % 10 == 0:
        said = (
            ', "Collective name": "allreduce", "In msg nelems": 2097152, '
            '"Out msg nelems": 2097152, "Group size": 8, "dtype": "Float", '
            '"In split size": "[]", "Out split size": "[]", "Process Group Name": "0", '
            '"Process Group Description": "default_pg", '
            '"Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"'
        )
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        yield event("kernel", name, at, 1500.0, usual + said, is_gpu=True)


def launch(link: int) -> str:
    """Arguments of a call that launches a kernel."""
    return f'"External id": {link},      "cbid": 211, "correlation": {link}'


def event(
    category: str, name: str, start: float, duration: float, args: str, *, is_gpu: bool = False
) -> str:
    """A complete event in PyTorch's own layout."""
    pid, tid = (0, 7) if is_gpu else (644, 644)
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {start:.3f}, "dur": {duration:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )
