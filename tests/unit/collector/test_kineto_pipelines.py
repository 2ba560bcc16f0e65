"""Traces of pipelines: ends of messages by PyTorch's notes, and work that is shown as ranges."""

import json
from io import BytesIO
from typing import Any

from collector.contract.collective import Collective, Operation, StepSpan
from collector.formats import Origin
from collector.formats.kineto import SPANS_PER_STEP_MAX, Kineto

Event = dict[str, Any]
KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def event(category: str, name: str, start_us: float, length_us: float, stream: int) -> Event:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": start_us,
        "dur": length_us, "args": {},
    }  # fmt: skip


def records_of(events: list[Event], rank: int = 2) -> list[Any]:
    trace = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 8},
        "baseTimeNanoseconds": 1_790_857_026_000_000_000,
        "traceEvents": events,
    }
    text = json.dumps(trace).encode()
    return list(Kineto().parse(BytesIO(text), Origin(name=f"rank{rank}.json", time_ns=0)))


def message(name: str, stream: int, start_us: float = 0) -> list[Event]:
    return [
        event("gpu_user_annotation", name, start_us, 50, stream),
        event("kernel", KERNEL, start_us, 50, stream),
    ]


def test_the_ends_of_messages_are_read_from_notes() -> None:
    found = records_of([*message("nccl:send 2->3", 9), *message("nccl:recv 2<-3", 10, 100)])
    send, receive = (one for one in found if isinstance(one, Collective))
    assert (send.operation, send.rank, send.peer) == (Operation.SEND, 2, 3)
    assert (receive.operation, receive.rank, receive.peer) == (Operation.RECV, 2, 3)
    # Both ends have the same group, though each has its own stream.
    assert send.communicator == receive.communicator


def test_ends_that_count_within_a_group_are_not_taken_for_ranks_of_the_job() -> None:
    found = records_of(message("nccl:send 0->1", 9))
    assert [one.peer for one in found if isinstance(one, Collective)] == [None]


def computing(events: list[Event]) -> list[int]:
    spans = [one for one in records_of(events) if isinstance(one, StepSpan)]
    return [one.end_ns - one.start_ns for one in spans if one.phase == "gpu.compute"]


def test_ranges_stand_for_computing_where_no_kernel_of_it_is_shown() -> None:
    ranges = [
        event("gpu_user_annotation", "step", 0, 2000, 7),
        event("gpu_user_annotation", "forward-compute", 100, 300, 7),
        event("gpu_user_annotation", "backward-compute", 1000, 600, 7),
        event("kernel", KERNEL, 400, 600, 9),
    ]
    assert computing(ranges) == [300_000, 600_000]
    kernel = event("kernel", "sm90_xmma_gemm", 100, 200, 7)
    assert computing([*ranges, kernel]) == [200_000]


def test_a_trace_without_steps_is_shown_as_finely_as_one_with_several() -> None:
    many = 4 * SPANS_PER_STEP_MAX
    kernels = [event("kernel", "sm90_xmma_gemm", 1000 * place, 500, 7) for place in range(many)]
    assert len(computing(kernels)) == many
    step = event("user_annotation", "ProfilerStep#3", 0, 1000 * many, 7)
    assert len(computing([*kernels, step])) <= SPANS_PER_STEP_MAX
