"""A played pipeline as profiler traces, one for each rank, as different tools would write them."""

from __future__ import annotations

import enum
import gzip
import json
from pathlib import Path
from typing import Any

from tests.worlds.pipeline_play import Kernel, Play

BASE_NS = 1_790_857_026_000_000_000
STREAMS = ("compute", "sync", "forward-send", "forward-recv", "backward-send", "backward-recv")
KERNELS = {
    "params": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "grads": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "norm": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "message": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
CALLS = {"params": "_allgather_base", "grads": "_reduce_scatter_base", "norm": "allreduce"}
ELEMENTS = {"params": 50_000_000, "grads": 50_000_000, "norm": 1, "message": 8_388_608}


class Style(enum.StrEnum):
    """What a trace says of an operation."""

    FULL = "full"
    """Groups, sizes and both ends in the arguments of each kernel."""
    ANNOTATED = "annotated"
    """Stretches around the kernels that name the call and both ends, and nothing else."""
    RANGES = "ranges"
    """As FULL; computing is stretches of the program on the GPU, without kernels."""
    NAMELESS = "nameless"
    """As FULL; sends and receives do not name their other end."""
    TRANSFERS = "transfers"
    """As FULL; messages and collectives are shown from when all of their ranks had come."""


def write_traces(
    play: Play, folder: Path, style: Style = Style.FULL, *, has_steps: bool = True
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in play.shape.ranks:
        events = [
            event for kernel in play.kernels[rank] for event in to_events(play, kernel, style)
        ]
        if has_steps:
            events += [
                range_of("user_annotation", f"ProfilerStep#{number + 100}", start, end, rank + 1000)
                for number, (start, end) in enumerate(play.bounds[rank])
            ]
        trace = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
            "distributedInfo": {
                "backend": "nccl", "rank": rank, "world_size": play.shape.size,
                **({} if style is Style.ANNOTATED else {"pg_config": groups_of(play, rank)}),
            },
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": events,
        }  # fmt: skip
        text = json.dumps(trace).encode()
        (folder / f"rank{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text, 1))


def groups_of(play: Play, rank: int) -> list[dict[str, Any]]:
    names = {kernel.group: name_of(play, kernel) for kernel in play.kernels[rank] if kernel.group}
    names[tuple(range(play.shape.size))] = "0"
    return [
        {"pg_name": name, "pg_size": len(group), "ranks": list(group)}
        for group, name in sorted(names.items(), key=lambda item: item[1])
    ]


def name_of(play: Play, kernel: Kernel) -> str:
    """Of the process group: the default one, or that of the copies of a stage."""
    is_world = len(kernel.group) == len(play.shape.ranks)
    return "9" if is_world else str(10 + kernel.group[0])


def range_of(category: str, name: str, start: float, end: float, process: int) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": process,
        "ts": round(start * 1e6, 3), "dur": round((end - start) * 1e6, 3), "args": {},
    }  # fmt: skip


def to_events(play: Play, kernel: Kernel, style: Style) -> list[dict[str, Any]]:
    stream = STREAMS.index(kernel.stream) + 7
    place = {"pid": 0, "tid": stream}
    start = kernel.start
    if style is Style.TRANSFERS and kernel.stream != "compute":
        shape = play.shape
        took = shape.message_seconds if kernel.halves else shape.sync_seconds
        start = max(start, kernel.end - took)
    times = {"ts": round(start * 1e6, 3), "dur": round((kernel.end - start) * 1e6, 3)}
    base = {"ph": "X", **place, **times}
    if kernel.stream == "compute":
        if style is Style.RANGES:
            return [{**base, "cat": "gpu_user_annotation", "name": f"{kernel.kind}-compute"}]
        name = f"sm90_xmma_gemm_bf16_{kernel.kind}"
        return [{**base, "cat": "kernel", "name": name, "args": {"stream": stream}}]
    event = {**base, "cat": "kernel", "name": KERNELS[kernel.kind], "args": {"stream": stream}}
    if style is not Style.ANNOTATED:
        event["args"] = {"stream": stream, **arguments_of(play, kernel, style)}
        return [event]
    note = {**base, "cat": "gpu_user_annotation", "name": note_of(kernel)}
    return [note, event]


def note_of(kernel: Kernel) -> str:
    if kernel.kind != "message":
        return f"nccl:{CALLS[kernel.kind]}"
    if len(kernel.halves) > 1:
        return "nccl:coalesced"
    half = kernel.halves[0]
    if half.is_send:
        return f"nccl:send {half.source}->{half.target}"
    return f"nccl:recv {half.target}<-{half.source}"


def arguments_of(play: Play, kernel: Kernel, style: Style) -> dict[str, Any]:
    elements = {"In msg nelems": ELEMENTS[kernel.kind], "Out msg nelems": ELEMENTS[kernel.kind]}
    if kernel.kind != "message":
        return {
            "Collective name": CALLS[kernel.kind], **elements, "Group size": len(kernel.group),
            "dtype": "BFloat16", "Process Group Name": name_of(play, kernel),
            "Process Group Ranks": str(list(kernel.group)),
        }  # fmt: skip
    if len(kernel.halves) > 1:
        return {}
    half = kernel.halves[0]
    other = {"Dst Rank": half.target} if half.is_send else {"Src Rank": half.source}
    if style is Style.NAMELESS:
        other = {}
    return {
        "Collective name": "send" if half.is_send else "recv", **elements,
        "Group size": play.shape.size, "dtype": "BFloat16", "Process Group Name": "0",
        "Process Group Ranks": str(list(range(play.shape.size))), **other,
    }  # fmt: skip
