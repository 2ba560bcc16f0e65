"""What NCCL's network proxy did for one peer, as the Inspector's `proxy_trace` records have it.

By plugins/profiler/inspector/README.md of NVIDIA/nccl, output versions 4.3 and 4.4. Times are the
host's, taken in the proxy's callbacks, in microseconds: not the GPU's, and not the NIC's. A phase
that was not seen from its beginning to its end is left out, as the plugin does, and is no zero.
Steps of one operation overlap, so that their times add up to more than passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

TIME_US_MAX = (1 << 63) // 1000 - 1
DURATION_US_MAX = 10**12
"""Eleven days, as for an operation: no wait is longer."""
STEPS_MAX = 1 << 16
"""Steps in one record. A dump gathers what the ring holds: 1,024 unless it is made larger."""
PEER_MAX = (1 << 31) - 1

_Time = Annotated[int, Meta(ge=0, le=TIME_US_MAX)]
_Duration = Annotated[int, Meta(ge=0, le=DURATION_US_MAX)] | None
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]

SEND, RECEIVE = "send", "recv"

PHASES = {
    SEND: (
        ("gpu", "gpu_produce_us", "send_gpu_wait_ts", "send_peer_wait_ts"),
        ("peer", "peer_credit_us", "send_peer_wait_ts", "send_wait_ts"),
        ("wire", "wire_us", "send_wait_ts", "proxy_step_stop_ts"),
    ),
    RECEIVE: (
        ("wire", "wire_us", "recv_wait_ts", "recv_flush_wait_ts"),
        ("flush", "flush_us", "recv_flush_wait_ts", "recv_gpu_wait_ts"),
        ("gpu", "gpu_consume_us", "recv_gpu_wait_ts", "proxy_step_stop_ts"),
    ),
}
"""Of each direction: what a phase waits for, the record's own duration, and where that is missing
(before durations were written) the times that it lies between."""


class Times(msgspec.Struct, gc=False):
    """When each phase was entered; 0: it was not seen."""

    send_gpu_wait_ts: _Time = 0
    send_peer_wait_ts: _Time = 0
    send_wait_ts: _Time = 0
    recv_wait_ts: _Time = 0
    recv_flush_wait_ts: _Time = 0
    recv_gpu_wait_ts: _Time = 0
    proxy_step_stop_ts: _Time = 0


class ProxyStep(msgspec.Struct, gc=False):
    """One slice on its way to a peer, or from it."""

    gpu_produce_us: _Duration = None
    peer_credit_us: _Duration = None
    wire_us: _Duration = None
    flush_us: _Duration = None
    gpu_consume_us: _Duration = None
    event_trace_ts: Times | None = None


class ProxyTrace(ProxyStep, gc=False):
    """One record: a step by itself, or an operation with those of its steps that it gathers."""

    record_type: Annotated[str, Meta(max_length=64)] = ""
    peer: Annotated[int, Meta(ge=-1, le=PEER_MAX)] = -1
    direction: Annotated[str, Meta(max_length=16)] = ""
    trans_size_bytes: _Count = 0
    steps: Annotated[list[ProxyStep], Meta(max_length=STEPS_MAX)] = []


class ProxyTotals(msgspec.Struct):
    """The sum of some records of one peer and direction."""

    operations: int = 0
    bytes: int = 0
    waits_us: dict[str, int] = {}

    def add(self, trace: ProxyTrace) -> None:
        if trace.record_type == "proxy_op":
            # Only the final record has an operation's own numbers: nothing is counted twice.
            self.operations += 1
            self.bytes += trace.trans_size_bytes
        steps = [trace] if trace.record_type == "proxy_step" else trace.steps
        for step in steps:
            for phase, wait_us in waits_of(step, trace.direction):
                self.waits_us[phase] = self.waits_us.get(phase, 0) + wait_us


def waits_of(step: ProxyStep, direction: str) -> Iterator[tuple[str, int]]:
    """What a step waited for, and how long in microseconds.

    >>> list(waits_of(ProxyStep(gpu_produce_us=10, wire_us=4), "send"))
    [('gpu', 10), ('wire', 4)]
    >>> times = Times(send_peer_wait_ts=120, send_wait_ts=130, proxy_step_stop_ts=125)
    >>> list(waits_of(ProxyStep(event_trace_ts=times), "send"))
    [('peer', 10)]
    """
    times = step.event_trace_ts
    for phase, duration, entered, left in PHASES.get(direction, ()):
        wait_us: int | None = getattr(step, duration)
        if wait_us is None and times is not None:
            begin, end = getattr(times, entered), getattr(times, left)
            wait_us = end - begin if 0 < begin <= end else None
        if wait_us is not None:
            yield phase, wait_us
