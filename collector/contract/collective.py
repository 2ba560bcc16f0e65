"""What one rank did in one collective operation, and in one step: records, not samples.

A record holds what a job's own tools saw (NCCL Inspector, Flight Recorder, torch.profiler, the
training loop). Records of many ranks are joined by communicator, operation and sequence number;
what no tool saw is None, never 0. Times are unix nanoseconds by the clock of the rank's host.
"""

from __future__ import annotations

import enum

import msgspec


class Operation(enum.StrEnum):
    """What was done. Closed: it is a label's value, and joins compare it."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    BARRIER = "barrier"
    SEND = "send"
    RECV = "recv"
    SEND_RECV = "send_recv"
    """Sends and receives that NCCL ran as one kernel: often an all-to-all of the framework."""
    OTHER = "other"


class Timing(enum.StrEnum):
    """How well a record's entry and exit are known."""

    KERNEL = "kernel"
    """When the kernel was seen to start and to end: good to tens of microseconds."""
    CPU = "cpu"
    """When the host saw the operation start and end, without times from the GPU."""
    DISCOVERED = "discovered"
    """When a watchdog noticed it: always late, by up to seconds. No use for skew."""
    UNKNOWN = "unknown"
    """Only the duration, or nothing at all, is known."""


class State(enum.StrEnum):
    """How far the operation came on this rank."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"


class Collective(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One rank's part in one operation.

    ``(communicator, operation, sequence)`` is the same on all ranks that take part, and
    ``source`` names the numbering tool. ``size_bytes`` is the message as NCCL counts it: what
    one rank gives to an all-gather and what one rank gets from a reduce-scatter.
    """

    communicator: str
    operation: Operation
    sequence: int
    rank: int
    """Within the communicator."""
    ranks: int
    """How many the communicator has; 0 if the source does not report it."""
    source: str
    time_ns: int
    """When it was done, as well as is known: the exit, or else the closest moment to it."""
    entry_ns: int | None = None
    exit_ns: int | None = None
    enqueue_ns: int | None = None
    duration_ns: int | None = None
    """On the GPU's own clock where the source has it; exit minus entry may differ."""
    size_bytes: int | None = None
    timing: Timing = Timing.UNKNOWN
    state: State = State.COMPLETED
    algorithm: str = ""
    """`ring`, `tree`, `nvls`…: in small letters; empty if the source does not report it."""
    protocol: str = ""
    peer: int | None = None
    """The other rank of a send or receive."""
    host: str = ""
    """Where the rank runs; empty for the host whose agent reads it."""
    pid: int = 0
    """The rank's process; 0 if the source does not report it."""
    job: str = ""
    """Empty where no source named it: the service then infers it from the traffic between hosts."""


class StepSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stretch of one step of one rank: the whole step if ``phase`` is empty.

    Phases are the training loop's own names (`forward`, `data`), or what a profile shows of the
    GPU: `gpu.compute`, `gpu.communication`, `gpu.copy`, `gpu.idle`.
    """

    step: int
    start_ns: int
    end_ns: int
    source: str
    phase: str = ""
    rank: int | None = None
    """Within the job; None if the source does not report it."""
    host: str = ""
    pid: int = 0
    job: str = ""


COLLNET = "collnet"
NVLS = "nvls"


def reduces_in_network(algorithm: str, hosts: int) -> bool:
    """Whether switches of the network add up: NCCL's CollNet, or NVLS over several hosts.

    Within a host NVLS adds up in the NVSwitch. Over several hosts NCCL takes it only with CollNet
    between them (NCCL 2.28, `src/graph/tuning.cc`); NVLS_TREE has a tree between hosts instead.

    >>> reduces_in_network("collnet_direct", 1), reduces_in_network("CollNetChain", 4)
    (True, True)
    >>> reduces_in_network("nvls", 1), reduces_in_network("nvls", 2)
    (False, True)
    >>> reduces_in_network("nvls_tree", 2)
    False
    """
    name = algorithm.lower()
    return name.startswith(COLLNET) or (name == NVLS and hosts > 1)


_WIRE_FACTOR = {
    Operation.ALL_REDUCE: (2, False),
    Operation.ALL_GATHER: (1, True),
    Operation.REDUCE_SCATTER: (1, True),
    Operation.ALL_TO_ALL: (1, False),
    Operation.GATHER: (1, True),
    Operation.SCATTER: (1, True),
}
"""nccl-tests' PERFORMANCE.md: how often the (n-1)/n of the message crosses the slowest link, and
whether the message is one rank's part of the whole. Others send the message once."""


def bus_bytes(operation: Operation, size_bytes: int, ranks: int) -> float:
    """Bytes that must cross each rank's link: over a duration this is NCCL's bus bandwidth.

    >>> bus_bytes(Operation.ALL_REDUCE, 8000, 8), bus_bytes(Operation.ALL_GATHER, 1000, 8)
    (14000.0, 7000.0)
    """
    if operation not in _WIRE_FACTOR or ranks < 1:
        return float(size_bytes)
    times, is_part = _WIRE_FACTOR[operation]
    whole = size_bytes * ranks if is_part else size_bytes
    return times * whole * (ranks - 1) / ranks


SIZE_CLASSES = (
    (4 << 10, "4KiB"),
    (16 << 10, "16KiB"),
    (64 << 10, "64KiB"),
    (256 << 10, "256KiB"),
    (1 << 20, "1MiB"),
    (4 << 20, "4MiB"),
    (16 << 20, "16MiB"),
    (64 << 20, "64MiB"),
    (256 << 20, "256MiB"),
    (1 << 30, "1GiB"),
    (4 << 30, "4GiB"),
)
"""Upper ends, inclusive. A step of four: within it a link's efficiency changes little, and a job
has a handful of classes, so that the label stays small."""
SIZE_CLASS_LARGEST = "more"


def size_class(size_bytes: int) -> str:
    """The label's value for messages of this size: the smallest class that holds them.

    >>> size_class(0), size_class(8 << 20), size_class(1 << 40)
    ('4KiB', '16MiB', 'more')
    """
    for limit, name in SIZE_CLASSES:
        if size_bytes <= limit:
            return name
    return SIZE_CLASS_LARGEST


COMMUNICATOR_HEX_MAX = 14
"""NCCL Inspector cuts a communicator's hash to so many digits; its other tools print all 16."""


def communicator_id(commhash: str) -> str:
    """A communicator's hash as every source of ours writes it: as NCCL Inspector cuts it.

    >>> communicator_id("0x4c2e456598088116"), communicator_id("0x4c2e4565980881")
    ('0x4c2e4565980881', '0x4c2e4565980881')
    """
    return commhash[: len("0x") + COMMUNICATOR_HEX_MAX].lower()
