"""NCCL kernels of a profile as records of collectives: which group, which rank, which number.

What a kernel's event lacks is looked up: in the event of the call that launched it, in the trace's
own list of process groups, in the file's name. Where the rank or the time stays unknown the
operation is left out and counted: a wrong one would be joined with other ranks' and blame an
innocent rank.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

import msgspec

from collector.contract.collective import Collective, Operation, Timing
from collector.contract.communicator import GUESSED_GROUP, RANKS_MAX, group_communicator
from collector.contract.records import NUMBER_MAX
from collector.parsing.torch_words import NAME_CHARS, OF_OUTPUT, element_bytes, find_operation

PENDING_MAX = 65_536
"""Operations that wait to be put in order and for facts at the end of the trace (up to 20 MB). Of
more, the older half is yielded with what is known by then."""
LINKS_MAX = 65_536
"""Calls that are remembered until their kernel comes; the oldest are forgotten."""
GROUPS_MAX = 1024
"""Process groups of one rank. Jobs with five kinds of parallelism have some twenty."""
MEMBERS_BYTES_MAX = 16 << 10
"""The list of a group's ranks in an event. PyTorch shortens those of over thirty ranks; a longer
one is treated as shortened."""
CALLS_MAX = 16_384
"""Different kinds of calls (group, operation, size) that are kept once each."""
OPERATIONS_PER_STEP = 1_000_000
"""What a step's number is multiplied by where operations are numbered here: the numbers of two
profiles of one job must not be the same, and all ranks know the step's."""
NUMBERED_MAX = 16_384
"""Groups, streams and kinds of operation that are numbered here: ten times GROUPS_MAX."""
ABSOLUTE_NS = 1_000_000_000_000_000_000
"""A time above this (2001) counts from 1970, one below from the trace's own base. Bases are at most
three months old, and traces from before there were bases have whole microseconds since 1970."""

ANNOTATED = "nccl:"
"""What PyTorch calls a stretch of its calls to NCCL begins with: `nccl:all_to_all`."""
UNNAMED = (
    "sends and receives in one kernel, of which the trace does not say what they were (an "
    "all-to-all, or a pipeline's): not compared between ranks"
)
NCCL_KERNEL = re.compile(r"nccl[A-Za-z]{0,16}Kernel")
"""`ncclKernel_…`, `ncclDevKernel_…`, `ncclSymkDevKernel_…`."""
_KERNEL_NAME = re.compile(r"nccl[A-Za-z]*Kernel_(?P<operation>[A-Za-z]+)(?P<rest>\w*)")
_RANKS = re.compile(rb"[0-9]{1,7}")
_ENDS = re.compile(r" ([0-9]{1,7})(?:->|<-)([0-9]{1,7})(?![0-9])")
MESSAGES = "messages"
"""The group of messages of which only both ends are known."""


class Arguments(msgspec.Struct, gc=False):
    """The members of an event's `args` that are used.

    Not `Comms Id`: it is a hash of one operation, with its sequence number in it
    (torch/csrc/profiler/util.cpp), and names no communicator.
    """

    collective: str = msgspec.field(name="Collective name", default="")
    given: int | None = msgspec.field(name="In msg nelems", default=None)
    gotten: int | None = msgspec.field(name="Out msg nelems", default=None)
    kind: str = msgspec.field(name="dtype", default="")
    group: str = msgspec.field(name="Process Group Name", default="")
    members: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=msgspec.Raw(b""))
    group_size: int = msgspec.field(name="Group size", default=0)
    rank: int = msgspec.field(name="Rank", default=-1)
    """Within the group; of a send or receive the other side's."""
    source: int = msgspec.field(name="Src Rank", default=-1)
    destination: int = msgspec.field(name="Dst Rank", default=-1)
    sequence: int = msgspec.field(name="Seq", default=-1)
    link: int = msgspec.field(name="External id", default=-1)
    old_link: int = msgspec.field(name="external id", default=-1)


decode_arguments = msgspec.json.Decoder(Arguments).decode


class Group(NamedTuple):
    """A process group as events name it; ``members`` is the text of its ranks in the job."""

    name: str
    members: bytes
    size: int


class Call(NamedTuple):
    """The framework's facts about an operation; equal ones are kept once."""

    operation: Operation
    group: Group
    size_bytes: int | None
    rank: int
    peer: int
    """The other side's rank in the job; -1 unless it is a send or a receive."""


class Pending(NamedTuple):
    """A kernel that waits for its record. Times as the trace has them, in nanoseconds."""

    start: int
    end: int
    kernel: str
    call: Call | None
    link: int
    sequence: int
    stream: int


class Note(NamedTuple):
    """What PyTorch called a stretch; of a message both ends, -1 where it names none."""

    operation: Operation
    own: int = -1
    peer: int = -1


NO_NOTE = Note(Operation.OTHER)

by_start = itemgetter(0, 1)


class Place(NamedTuple):
    """A group as records name it, and the rank's place in it."""

    communicator: str
    ranks: int
    rank: int | None
    members: Sequence[int]


class Context:
    """Facts of the trace as a whole; filled while it is read."""

    def __init__(self, *, rank: int | None, host: str, pid: int) -> None:
        self.rank = rank
        self.host = host
        self.pid = pid
        self.world_size = 0
        self.base_ns: int | None = None
        self.first_step = 0
        self.groups: dict[str, list[int]] = {}
        """Ranks of the process groups that the trace lists, in order, by the group's name."""

    def absolute(self, time_ns: int) -> int | None:
        """The unix time of a time in the trace; None if the trace has no base."""
        if time_ns >= ABSOLUTE_NS:
            return time_ns
        return None if self.base_ns is None else self.base_ns + time_ns


class Operations:
    """The operations of one trace."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pending: list[Pending] = []
        self._links: dict[int, tuple[Call, int]] = {}
        self._calls: dict[Call, Call] = {}
        self._groups: dict[Group, Group] = {}
        self._called: dict[int, Note] = {}
        """By the link that kernels share with it, what PyTorch called a stretch on the host."""
        self._stretches: dict[int, list[tuple[int, int, Note]]] = {}
        """By stream, the same on the GPU: start, end."""
        self._stretch_count = 0
        self.unnamed = 0
        """Kernels of sends and receives of which nothing says what they were."""
        self._next: Counter[tuple[str, Operation]] = Counter()
        self.count = 0
        self.left_out: Counter[str] = Counter()
        """How many operations gave no record, by the reason."""

    def add_call(self, arguments: Arguments) -> None:
        """Remember a call of the framework for the kernel that it launches."""
        call = self._call_of(arguments)
        if call is None or arguments.link < 0:
            return
        if len(self._links) >= LINKS_MAX:
            del self._links[next(iter(self._links))]
        self._links[arguments.link] = call, arguments.sequence

    def add_kernel(
        self, start: int, end: int, name: str, stream: int, arguments: Arguments
    ) -> None:
        link = arguments.link if arguments.link >= 0 else arguments.old_link
        call = self._call_of(arguments) if arguments.collective else None
        kernel = name[:NAME_CHARS]
        self._pending.append(Pending(start, end, kernel, call, link, arguments.sequence, stream))
        self.count += 1

    def name_calls(self, link: int, name: str) -> None:
        """What kernels with this link are, where their own name does not say it."""
        if link >= 0 and (len(self._called) < LINKS_MAX or link in self._called):
            self._called[link] = read_note(name)

    def name_stretch(self, stream: int, start: int, end: int, name: str) -> None:
        """The same for kernels of a stream in this stretch."""
        if self._stretch_count < LINKS_MAX:
            self._stretch_count += 1
            stretches = self._stretches.setdefault(stream, [])
            stretches.append((start, end, read_note(name)))

    def _annotated(self, kernel: Pending) -> Note:
        """Before 2023 an all-to-all is a kernel `SendRecv` in a stretch that says what it is."""
        if (called := self._called.get(kernel.link)) is not None:
            return called
        stretches = self._stretches.get(kernel.stream, [])
        place = bisect_right(stretches, kernel.start, key=itemgetter(0)) - 1
        if place >= 0 and kernel.end <= stretches[place][1]:
            return stretches[place][2]
        return NO_NOTE

    def ready(self) -> Iterator[Collective]:
        """The older half of those that wait, once there are too many."""
        if len(self._pending) >= PENDING_MAX:
            self._pending.sort(key=by_start)
            half = PENDING_MAX // 2
            older, self._pending = self._pending[:half], self._pending[half:]
            yield from self._records(older)

    def rest(self) -> Iterator[Collective]:
        older, self._pending = sorted(self._pending, key=by_start), []
        yield from self._records(older)

    def _call_of(self, arguments: Arguments) -> Call | None:
        group = self._group_of(arguments)
        if group is None:
            return None
        operation = find_operation(arguments.collective)
        peers = {Operation.SEND: arguments.destination, Operation.RECV: arguments.source}
        call = Call(
            operation=operation,
            group=group,
            size_bytes=find_size(arguments, operation),
            rank=-1 if operation in peers else arguments.rank,
            peer=peers.get(operation, -1),
        )
        if len(self._calls) >= CALLS_MAX:
            return self._calls.get(call, call)
        return self._calls.setdefault(call, call)

    def _group_of(self, arguments: Arguments) -> Group | None:
        members = bytes(arguments.members)
        if len(members) > MEMBERS_BYTES_MAX:
            members = b""
        size = arguments.group_size if 0 <= arguments.group_size <= RANKS_MAX else 0
        group = Group(arguments.group[:NAME_CHARS], members, size)
        if len(self._groups) >= GROUPS_MAX and group not in self._groups:
            self.left_out[f"more than GROUPS_MAX = {GROUPS_MAX} process groups"] += 1
            return None
        return self._groups.setdefault(group, group)

    def _records(self, kernels: list[Pending]) -> Iterator[Collective]:
        places: dict[Group, Place] = {}
        for stretches in self._stretches.values():
            stretches.sort()
        for kernel in kernels:
            call, sequence = kernel.call, kernel.sequence
            if call is None and kernel.link in self._links:
                call, sequence = self._links[kernel.link]
            if call is None:
                # Traces of before 2023 have no more than this: all groups whose operations run on
                # one stream are one here, and it is taken as that of all ranks.
                call = self._guessed(kernel)
            if call.group not in places:
                places[call.group] = self._find_place(call)
            record = self._record(kernel, call, places[call.group], sequence)
            if isinstance(record, str):
                self.left_out[record] += 1
            else:
                yield record

    def _guessed(self, kernel: Pending) -> Call:
        """What a kernel without a call was; OTHER: what its own name says.

        Of a message that names this rank as one end the other end is a rank of the job, too: both
        run on streams of their own, so that those do not tell which message it is.
        """
        group = Group(f"{GUESSED_GROUP}{kernel.stream}", b"", 0)
        if read_kernel_name(kernel.kernel)[0] is not Operation.SEND_RECV:
            return Call(Operation.OTHER, group, None, -1, -1)
        note = self._annotated(kernel)
        self.unnamed += note.operation is Operation.OTHER
        if note.own >= 0 and note.own == self._context.rank:
            return Call(note.operation, Group(MESSAGES, b"", 0), None, -1, note.peer)
        return Call(note.operation, group, None, -1, -1)

    def _record(self, kernel: Pending, call: Call, place: Place, sequence: int) -> Collective | str:
        """The record, or why there is none."""
        entry_ns = self._context.absolute(kernel.start)
        if entry_ns is None:
            return "times count from baseTimeNanoseconds, and the trace has none"
        rank = place.rank if place.rank is not None else call.rank
        if not 0 <= rank < RANKS_MAX:
            return "neither distributedInfo nor the file's name gives the rank in its group"
        named, algorithm = read_kernel_name(kernel.kernel)
        operation = named if call.operation is Operation.OTHER else call.operation
        if not 0 <= sequence <= NUMBER_MAX:
            key = place.communicator, operation
            if len(self._next) >= NUMBERED_MAX and key not in self._next:
                return f"more than NUMBERED_MAX = {NUMBERED_MAX} groups, streams and operations"
            sequence = self._context.first_step * OPERATIONS_PER_STEP + self._next[key]
            self._next[key] += 1
        duration_ns = kernel.end - kernel.start
        members = place.members if call.peer >= 0 else ()
        if call.group.name == MESSAGES and not members:
            members = range(RANKS_MAX)
        return Collective(
            communicator=place.communicator,
            operation=operation,
            sequence=sequence,
            rank=rank,
            ranks=place.ranks,
            source="kineto",
            time_ns=entry_ns + duration_ns,
            entry_ns=entry_ns,
            exit_ns=entry_ns + duration_ns,
            duration_ns=duration_ns,
            size_bytes=call.size_bytes,
            timing=Timing.KERNEL,
            algorithm=algorithm,
            peer=members.index(call.peer) if call.peer in members else None,
            host=self._context.host,
            pid=self._context.pid,
        )

    def _find_place(self, call: Call) -> Place:
        context, group = self._context, call.group
        is_short = b"..." in group.members or not group.members
        members: Sequence[int] = sorted({int(rank) for rank in _RANKS.findall(group.members)})
        shown = members
        if is_short:
            members = context.groups.get(group.name, [])
            if not members and group.size in {0, context.world_size}:
                members = range(context.world_size)
        own = context.rank
        if own is not None and own in members:
            rank: int | None = members.index(own)
        else:
            # Its members are unknown: taken as all ranks, where a rank's place is its rank.
            rank = None if members or shown else own
        communicator = group_communicator(group.name, members or shown)
        return Place(communicator, len(members) or group.size, rank, members)


def read_note(name: str) -> Note:
    """What PyTorch calls a stretch of its calls, with the ends of a message.

    >>> read_note("nccl:recv 3<-2")
    Note(operation=<Operation.RECV: 'recv'>, own=3, peer=2)
    """
    ends = _ENDS.search(name[:NAME_CHARS])
    operation = find_operation(name)
    if ends is None or operation not in {Operation.SEND, Operation.RECV}:
        return Note(operation)
    return Note(operation, int(ends[1]), int(ends[2]))


@lru_cache(maxsize=1024)
def read_kernel_name(name: str) -> tuple[Operation, str]:
    """The operation that a kernel was built for, and its algorithm if that is certain.

    NCCL builds kernels for a few cases and runs all others through them: `LL` stands for every
    protocol, `RING` for every algorithm but the tree (src/device/generate.py, `best_kernel`).

    >>> read_kernel_name("ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgs)")
    (<Operation.ALL_REDUCE: 'all_reduce'>, 'tree')
    """
    match = _KERNEL_NAME.match(name)
    if match is None:
        return Operation.OTHER, ""
    algorithm = "tree" if "TREE" in match["rest"].split("_") else ""
    return find_operation(match["operation"]), algorithm


def find_size(arguments: Arguments, operation: Operation) -> int | None:
    """The message as NCCL counts it, in bytes."""
    elements = arguments.gotten if operation in OF_OUTPUT else arguments.given
    width = element_bytes(arguments.kind)
    if elements is None or width is None or not 0 <= elements * width <= NUMBER_MAX:
        return None
    return elements * width
