"""Traces of torch.profiler and of Kineto on demand: what a rank's GPU did, and its collectives.

A trace is read in pieces and reduced as it comes: its events are never held. Of the GPU's events
remain three sets of stretches (computing, communicating, copying, over all streams and devices of
the process), of each NCCL kernel one record. What everything needs, the base of all times and the
rank, stands before the events in some versions and behind them in others; so times stay relative
until the end, and what was reduced waits for it (`PENDING_MAX`, `INTERVALS_MAX`). Events may come
in any order: stretches are sorted when they are merged, operations before they are numbered.

- A `Collective` per NCCL kernel. Its sequence is PyTorch's where the trace has it (`Seq`), else
  the order of such kernels on this rank within the trace, from the first step's number times a
  million on: then ranks can be joined only if they were profiled over the same steps, as one
  schedule for all ranks makes them, and of traces without steps only one of each rank.
- A `StepSpan` per `ProfilerStep#N`, by the host's annotation: those follow each other without gaps,
  while the GPU's own exist only where it had work. Within it `gpu.compute`, `gpu.communication`,
  `gpu.copy` and `gpu.idle`; communication under compute is in both, idle is none of the three. A
  trace without steps is one, numbered 0. Gaps below GAP_NS, and more where there are many, are not
  shown; the event's totals are exact.
- One `Event` "profile" with the totals.

Times are read as floating point: exact to a nanosecond relative to a base, to a quarter of a
microsecond in old traces that count from 1970.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, ClassVar

import msgspec

from collector.contract.collective import Collective, StepSpan
from collector.contract.communicator import RANKS_MAX
from collector.contract.errors import ParseError
from collector.contract.model import Event
from collector.formats import Origin, Record
from collector.parsing.intervals import (
    Interval,
    Intervals,
    clip,
    coarsen,
    gaps,
    length,
    merge,
    overlap,
)
from collector.parsing.json_stream import JsonStream, Readable
from collector.parsing.kineto_operations import (
    ABSOLUTE_NS,
    ANNOTATED,
    NCCL_KERNEL,
    UNNAMED,
    Arguments,
    Context,
    Operations,
    decode_arguments,
)

VALUE_BYTES_MAX = 4 << 20
"""A member of the trace besides its events. A list of all ranks of a job of 100,000 has 0.7 MB."""
STEPS_MAX = 4096
"""Steps of a trace. A schedule records a handful; profilers that were left on some hundreds."""
SPANS_PER_STEP_MAX = 128
"""Stretches of one phase in one step; with more the phase is shown coarser."""
SPANS_UNMARKED_MAX = 32 * SPANS_PER_STEP_MAX
"""The same for a trace whose steps are not marked, and which is one: it has several."""
GAP_NS = 50_000
"""Gaps that are not shown: launches lie some microseconds apart even when the GPU is kept busy."""
RANGES_MAX = 65_536
"""Stretches that the program named, and that are kept: 8 MB."""
ERRORS_MAX = 20
"""Parts that are not understood and named one by one; the others are one sum."""
BROKEN_MAX = 100_000
"""Parts that are not understood before the trace is given up: each costs fifty times a good one."""
MEMBERS_MAX = 1000
"""Members of the trace. PyTorch writes some ten, and users may add theirs."""
TIME_US_MAX = 4e15
"""A time: 2096. Beyond it is no time."""
DURATION_US_MAX = 1e12
TEXT_CHARS_MAX = 200
"""Characters of the trace's own texts that the event repeats."""
NS_PER_MS = 1e6

RANK_IN_NAME = re.compile(r"rank[_-]?([0-9]{1,7})(?![0-9])")
NAME_OF_HANDLER = re.compile(r"([A-Za-z0-9.-]{1,253})_([0-9]{1,10})\.[0-9]+\.pt\.trace\.json")
"""`tensorboard_trace_handler` names files by host and process."""
STEP = re.compile(r"ProfilerStep#([0-9]{1,12})")
_NUMBERS = re.compile(rb"[0-9]{1,7}")
_MARKS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:'
    rb'|"cat"\s*:\s*"(?:kernel|cpu_op|gpu_memcpy|Kernel|Operator|user_annotation)"'
)
_TRACE = re.compile(rb'"(?:traceEvents|schemaVersion)"\s*:')
_KERNELS = re.compile(rb'"cat"\s*:\s*"[Kk]ernel"|"nccl[A-Za-z]{0,16}Kernel')
_ARRAY = ord("[")


class TraceEvent(msgspec.Struct, gc=False):
    """The members of an event that are used."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


class ProcessGroup(msgspec.Struct, gc=False):
    """A process group in `distributedInfo`; its ranks are a list, or a list in quotes."""

    name: str = msgspec.field(name="pg_name", default="")
    ranks: msgspec.Raw = msgspec.Raw(b"")


class DistributedInfo(msgspec.Struct, gc=False):
    """The trace's facts about the job."""

    backend: str = ""
    rank: int = -1
    world_size: int = 0
    pg_config: list[ProcessGroup] = []
    nccl_version: str = ""


class Device(msgspec.Struct, gc=False):
    """A GPU in `deviceProperties`."""

    name: str = ""


class Kineto:
    """The format."""

    name: ClassVar[str] = "kineto"
    title: ClassVar[str] = "PyTorch profiler trace"

    def recognises(self, head: bytes, origin: Origin) -> bool:  # noqa: ARG002 - by content alone
        """An object with `traceEvents` and Kineto's own keys; a list only with kernels in it."""
        start = head.lstrip()[:1]
        if start == b"[":
            return _KERNELS.search(head) is not None
        return start == b"{" and bool(_TRACE.search(head)) and bool(_MARKS.search(head))

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """Collectives by their start, then steps, then the event; at the end of the stream."""
        return (record for record in read_trace(stream, origin) if record is not None)


FORMAT = Kineto()


def read_trace(stream: Readable, origin: Origin) -> Iterator[Record | ParseError | None]:
    """As `Kineto.parse`, and a None after each piece: there a caller may pause as long as it likes.

    A trace that is cut off gives its records so far, then raises.
    """
    profile = Profile(origin)
    failure: ParseError | None = None
    try:
        yield from read_members(JsonStream(stream), profile)
    except ParseError as error:
        failure = error
    if profile.has_events:
        yield from profile.finish(is_whole=failure is None)
    elif failure is None:
        failure = ParseError("", "the trace has no traceEvents")
    if failure is not None:
        raise failure


def read_members(json: JsonStream, profile: Profile) -> Iterator[Collective | ParseError | None]:
    """Read everything into the profile; yields what is ready or not understood."""
    if json.peek() == _ARRAY:
        yield from read_events(json, profile, is_end_optional=True)
        return
    for count, name in enumerate(json.members()):
        if count >= MEMBERS_MAX:
            raise ParseError(json.where, f"more than MEMBERS_MAX = {MEMBERS_MAX} members; given up")
        if name == "traceEvents":
            yield from read_events(json, profile, is_end_optional=False)
        elif name in Profile.MEMBERS:
            text = json.read_value(VALUE_BYTES_MAX)
            if text is None:
                detail = f"longer than VALUE_BYTES_MAX = {VALUE_BYTES_MAX} bytes; passed over"
                yield ParseError(name, detail)
            elif problem := profile.learn(name, text):
                yield problem


def read_events(
    json: JsonStream, profile: Profile, *, is_end_optional: bool
) -> Iterator[Collective | ParseError | None]:
    profile.has_events = True
    for block in json.read_elements(_decode_events, is_end_optional=is_end_optional):
        if isinstance(block, ParseError):
            yield from profile.name_error(block)
        else:
            yield from profile.add(block)
        yield None


_decode_events = msgspec.json.Decoder(list[TraceEvent]).decode


class Profile:
    """The reduced content of a trace while it is read, and its records at the end."""

    MEMBERS: ClassVar[frozenset[str]] = frozenset(
        {"distributedInfo", "baseTimeNanoseconds", "deviceProperties"}
    )

    def __init__(self, origin: Origin) -> None:
        rank = RANK_IN_NAME.search(origin.name)
        named = NAME_OF_HANDLER.fullmatch(origin.name)
        self._origin = origin
        self.context = Context(
            rank=int(rank[1]) if rank else None,
            host=named[1] if named else "",
            pid=int(named[2]) if named else 0,
        )
        self.has_events = False
        self._info = DistributedInfo()
        self._device = ""
        self._operations = Operations(self.context)
        self._compute, self._communication, self._copy = Intervals(), Intervals(), Intervals()
        self._sets = self._compute, self._communication, self._copy
        self._kernels = 0
        self._steps: dict[int, Interval] = {}
        self._gpu_steps: dict[int, Interval] = {}
        self._ranges: list[Interval] = []
        self._host_ranges: list[Interval] = []
        self._whole: Interval | None = None
        self._has_pid = False
        self._errors = 0
        self._dropped: Counter[str] = Counter()
        self._readers: dict[str, Callable[[TraceEvent], None]] = {
            "kernel": self._add_kernel,
            "gpu_memcpy": self._add_copy,
            "gpu_memset": self._add_copy,
            "cpu_op": self._add_cpu,
            "user_annotation": self._add_step,
            "gpu_user_annotation": self._add_gpu_step,
            "Trace": self._add_whole,
            # As versions of 2021 called them.
            "Kernel": self._add_kernel,
            "Memcpy": self._add_copy,
            "Memset": self._add_copy,
            "Operator": self._add_cpu_or_step,
        }

    # The trace as a whole ------------------------------------------------------------------------

    def learn(self, name: str, text: bytes) -> ParseError | None:
        """Take in a member of the trace; an error if it is not what it should be."""
        try:
            if name == "baseTimeNanoseconds":
                base = msgspec.json.decode(text, type=int)
                self.context.base_ns = base if 0 <= base < ABSOLUTE_NS * 4 else None
            elif name == "deviceProperties":
                devices = msgspec.json.decode(text, type=list[Device])
                self._device = devices[0].name[:TEXT_CHARS_MAX] if devices else ""
            else:
                self._learn_job(msgspec.json.decode(text, type=DistributedInfo))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return ParseError(name, f"not understood: {error}")
        return None

    def _learn_job(self, info: DistributedInfo) -> None:
        self._info = info
        if 0 <= info.rank < RANKS_MAX:
            self.context.rank = info.rank
        self.context.world_size = info.world_size if 0 <= info.world_size <= RANKS_MAX else 0
        for group in info.pg_config:
            ranks = {int(rank) for rank in _NUMBERS.findall(bytes(group.ranks))}
            if ranks and b"..." not in bytes(group.ranks):
                self.context.groups[group.name] = sorted(ranks)

    # Events ----------------------------------------------------------------------------------

    def add(self, events: list[TraceEvent]) -> Iterator[Collective | ParseError]:
        readers = self._readers
        for event in events:
            reader = readers.get(event.cat)
            if reader is None or event.ph != "X":
                continue
            try:
                reader(event)
            except ParseError as error:
                yield from self.name_error(error)
        self.context.first_step = min(self._steps or self._gpu_steps or (0,))
        yield from self._operations.ready()

    def name_error(self, error: ParseError) -> Iterator[ParseError]:
        self._errors += 1
        if self._errors <= ERRORS_MAX:
            yield error
        elif self._errors > BROKEN_MAX:
            raise ParseError("", f"more than BROKEN_MAX = {BROKEN_MAX} parts are broken; given up")

    def _add_kernel(self, event: TraceEvent) -> None:
        start, end = find_span(event)
        self._kernels += 1
        if not NCCL_KERNEL.match(event.name):
            self._compute.add(start, end)
            return
        self._communication.add(start, end)
        stream = event.tid if isinstance(event.tid, int) else 0
        arguments = find_arguments(event)
        self._operations.add_kernel(start, end, event.name, stream, arguments)

    def _add_copy(self, event: TraceEvent) -> None:
        self._copy.add(*find_span(event))

    def _add_cpu(self, event: TraceEvent) -> None:
        if not self._has_pid and isinstance(event.pid, int) and 0 < event.pid < 1 << 31:
            self.context.pid = event.pid
            self._has_pid = True
        if event.name == "record_param_comms":
            self._operations.add_call(find_arguments(event))

    def _add_cpu_or_step(self, event: TraceEvent) -> None:
        self._add_cpu(event)
        self._add_step(event)

    def _add_step(self, event: TraceEvent) -> None:
        if event.name.startswith(ANNOTATED):
            arguments = find_arguments(event)
            link = arguments.link if arguments.link >= 0 else arguments.old_link
            self._operations.name_calls(link, event.name)
            return
        if not self._add_step_to(self._steps, event):
            self._add_range(self._host_ranges, event)

    def _add_gpu_step(self, event: TraceEvent) -> None:
        if event.name.startswith(ANNOTATED):
            stream = event.tid if isinstance(event.tid, int) else 0
            self._operations.name_stretch(stream, *find_span(event), event.name)
            return
        if not self._add_step_to(self._gpu_steps, event):
            self._add_range(self._ranges, event)

    def _add_range(self, ranges: list[Interval], event: TraceEvent) -> None:
        """What the program calls a stretch of its work: of use where no kernel of it is shown."""
        if len(ranges) < RANGES_MAX:
            ranges.append(find_span(event))

    def _add_step_to(self, steps: dict[int, Interval], event: TraceEvent) -> bool:
        """Whether the event is a step."""
        match = STEP.fullmatch(event.name)
        if match is None:
            return False
        if len(steps) >= STEPS_MAX:
            self._dropped[f"more than STEPS_MAX = {STEPS_MAX} steps"] += 1
        else:
            steps.setdefault(int(match[1]), find_span(event))
        return True

    def _add_whole(self, event: TraceEvent) -> None:
        if event.name.startswith("PyTorch Profiler"):
            self._whole = find_span(event)

    # Records -------------------------------------------------------------------------------------

    def finish(self, *, is_whole: bool) -> Iterator[Record | ParseError]:
        """All records still due, and what was left out; no phases of a trace that is cut off."""
        yield from self._operations.rest()
        busy = {
            "compute": self._compute.all() or innermost(self._ranges or self._host_ranges),
            "communication": self._communication.all(),
            "copy": self._copy.all(),
        }
        steps = self._steps or self._gpu_steps
        window, marked = self._find_window(busy, steps), len(steps)
        spans_max = SPANS_PER_STEP_MAX if steps else SPANS_UNMARKED_MAX
        if is_whole and window is not None and not steps:
            steps = {0: window}
        for number, (start, end) in sorted(steps.items()):
            phases = find_phases(start, end, busy, spans_max) if is_whole else []
            yield from self._spans(number, [("", (start, end)), *phases])
        yield self._describe(window, marked, busy if is_whole else {})
        for why, count in (self._dropped + self._operations.left_out).items():
            yield ParseError("", f"{count} left out: {why}")
        if self._operations.unnamed:
            yield ParseError("", f"{self._operations.unnamed} {UNNAMED}")
        if self._errors > ERRORS_MAX:
            yield ParseError("", f"{self._errors - ERRORS_MAX} more parts were not understood")

    def _find_window(
        self, busy: dict[str, list[Interval]], steps: dict[int, Interval]
    ) -> Interval | None:
        """From the first step to the last; without steps, what was profiled."""
        parts = list(steps.values())
        if not parts:
            parts = [(each[0][0], each[-1][1]) for each in busy.values() if each]
            parts += [self._whole] if self._whole else []
        if not parts:
            return None
        return min(start for start, _ in parts), max(end for _, end in parts)

    def _spans(self, number: int, spans: list[tuple[str, Interval]]) -> Iterator[StepSpan]:
        for phase, (each_start, each_end) in spans:
            start_ns = self.context.absolute(each_start)
            if start_ns is None:
                self._dropped["steps count from baseTimeNanoseconds, and the trace has none"] += 1
                return
            yield StepSpan(
                step=number,
                start_ns=start_ns,
                end_ns=start_ns + each_end - each_start,
                source="kineto",
                phase=phase,
                rank=self.context.rank,
                host=self.context.host,
                pid=self.context.pid,
            )

    def _describe(
        self, window: Interval | None, steps: int, busy: dict[str, list[Interval]]
    ) -> Event:
        """The profile as an event; without totals where ``busy`` is empty."""
        context, info = self.context, self._info
        attributes = {
            "backend": info.backend[:TEXT_CHARS_MAX],
            "world_size": str(context.world_size or ""),
            "nccl_version": info.nccl_version[:TEXT_CHARS_MAX],
            "device": self._device,
            "host": context.host,
            "pid": str(context.pid or ""),
            "steps": str(steps),
            "kernels": str(self._kernels),
            "operations": str(self._operations.count),
            "resolution_ns": str(max(each.resolution_ns for each in self._sets) or ""),
            **(find_totals(*window, busy) if window and busy else {}),
        }
        rank = "" if context.rank is None else str(context.rank)
        return Event(
            kind="profile",
            time_ns=(window and context.absolute(window[1])) or self._origin.time_ns,
            labels={"rank": rank} if rank else {},
            message=f"Profile of rank {rank or '?'}: {self._kernels} kernels, {steps} steps.",
            attributes={name: value for name, value in attributes.items() if value},
        )


def find_phases(
    start: int, end: int, busy: dict[str, list[Interval]], spans_max: int = SPANS_PER_STEP_MAX
) -> list[tuple[str, Interval]]:
    """What the GPU did from start to end; together the phases cover it."""
    shown = {
        phase: coarsen(clip(stretches, start, end), spans_max, GAP_NS)[0]
        for phase, stretches in busy.items()
    }
    covered = merge([each for stretches in shown.values() for each in stretches])
    shown["idle"] = gaps(covered, start, end)
    return [(f"gpu.{phase}", each) for phase, some in shown.items() for each in some]


def innermost(ranges: Sequence[Interval]) -> list[Interval]:
    """Of stretches that lie within each other those that hold no other, in order and apart.

    What holds others may be a whole step, with its waiting.

    >>> innermost([(0, 100), (10, 20), (30, 60), (30, 40)])
    [(10, 20), (30, 40)]
    """
    # By their ends, the later beginnings first: one that holds another comes behind it.
    found: list[Interval] = []
    latest = -1
    for start, end in sorted(set(ranges), key=lambda each: (each[1], -each[0])):
        if start > latest and end > start:
            found.append((start, end))
        latest = max(latest, start)
    return merge(found)


def find_totals(start: int, end: int, busy: dict[str, list[Interval]]) -> dict[str, str]:
    """How long each phase took from start to end, exactly, and how much lay below compute."""
    inside = {phase: clip(stretches, start, end) for phase, stretches in busy.items()}
    union = merge([each for stretches in inside.values() for each in stretches])
    totals_ns = {"window": end - start}
    totals_ns |= {phase: length(stretches) for phase, stretches in inside.items()}
    totals_ns["idle"] = end - start - length(union)
    totals = {f"{phase}_ms": f"{value / NS_PER_MS:.3f}" for phase, value in totals_ns.items()}
    if totals_ns["communication"]:
        shared = overlap(inside["communication"], inside["compute"])
        totals["overlap_ratio"] = f"{shared / totals_ns['communication']:.4f}"
    return totals


def find_span(event: TraceEvent) -> Interval:
    """Start and end of an event, in nanoseconds as the trace counts them."""
    start, duration = event.ts, event.dur or 0.0
    if start is None or not 0 <= start < TIME_US_MAX or not 0 <= duration < DURATION_US_MAX:
        name = event.name[:TEXT_CHARS_MAX]
        raise ParseError(
            "", f"{name!r}: ts {event.ts} and dur {event.dur} are no time; passed over"
        )
    start_ns = to_ns(start)
    return start_ns, start_ns + to_ns(duration)


def to_ns(microseconds: float) -> int:
    """The time in nanoseconds; the whole part is kept exactly.

    >>> to_ns(1794700746302385.25)
    1794700746302385250
    """
    whole = int(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000)


def find_arguments(event: TraceEvent) -> Arguments:
    """The event's arguments, as far as they are used; ParseError if they are broken."""
    text = bytes(event.args)
    try:
        return decode_arguments(text) if text else Arguments()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        name = event.name[:TEXT_CHARS_MAX]
        raise ParseError("", f"{name!r}: arguments not understood: {error}") from error
