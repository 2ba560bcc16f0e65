"""Steps and phases of training loops: marks that `fabricscope_steps.py` sends to a local socket.

Or writes to files, for jobs that cannot reach the socket. A sender is known by the pid that the
*kernel* gives for its message; a pid that stands in a file counts only if that process started at
the time in the file. A loop's own job and rank are believed, because it can only spoil its own
numbers: one process has one loop, and loops have a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

from collector.contract.errors import HostError, ParseError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.formats.steps import Header, Mark, make_span, parse_line
from collector.reading.follow import YOUNG_SECONDS, Chunk, Follower
from collector.reading.jobs import read_process
from collector.sources import SourceSettings

FILES = ("*.steps.jsonl",)
DATAGRAMS_PER_READ = 128
"""Sixteen senders' batches of eight seconds, 8 MB at most. What waits stays in the socket's queue;
a sender that finds it full keeps its marks, and in the end drops the oldest and counts them."""
POLL_BYTES_MAX = 8 << 20
"""Of all files in one read: 200,000 marks."""
HEADER_BYTES_MAX = 4096
"""The header line that names the sender has some 250; a longer one is not kept for later lines."""
SENDERS_MAX = 256
"""Processes, and loops, that are known at once: sixteen ranks with sixteen helpers. Marks of others
are counted as dropped."""
PHASES_MAX = 32
"""Phases of one loop; the others are added up as `other`."""
IDLE_SECONDS = 900
"""How long a sender whose process cannot be inspected is kept without a mark. The end of others is
seen at once: a loop that has ended is no hang."""

_BATCH = b'{"fabricscope_steps"'
"""How a batch begins, in a file as in a message."""
_UNREAD = Series("fabric_step_steps_total")


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `steps`."""

    interval_seconds: float = 1.0
    """As often as the training process writes; a read without news costs 50 microseconds."""
    socket: str = "/run/fabricscope/steps.sock"
    """Where the agent listens, if the folder is there. Empty: nowhere."""
    directories: tuple[str, ...] = ()
    """Folders with files of marks; shell patterns are allowed."""
    history_seconds: float = YOUNG_SECONDS
    """A file that changed within this time when it is first seen is read from its beginning."""


class Loop:
    """The counts of one rank of one job; shared by all processes that claim its job and rank."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels
        self._steps = Series("fabric_step_steps_total", labels)
        self._duration = Series("fabric_step_last_duration_seconds", labels)
        self._completed = Series("fabric_step_last_completed_time_seconds", labels)
        self._marks = Series("fabric_step_marks_total", labels)
        self._dropped = Series("fabric_step_marks_dropped_total", {**labels, "reason": "queue"})
        self._phases: dict[str, tuple[Series, list[int]]] = {}
        self._last: Mark | None = None
        self.steps = 0
        self.marks = 0
        self.dropped = 0

    def count(self, mark: Mark) -> None:
        self.marks += 1
        if mark.phase:
            name = mark.phase if len(self._phases) < PHASES_MAX - 1 else "other"
            _, sums = self._phases.get(mark.phase) or self._phases.setdefault(
                name,
                (Series("fabric_step_phase_seconds_total", {**self._labels, "phase": name}), [0]),
            )
            sums[0] += mark.duration_ns
            return
        self.steps += 1
        if self._last is None or mark.start_ns >= self._last.start_ns:
            self._last = mark

    def samples(self, time_ns: int) -> Iterator[Sample]:
        yield Sample(self._marks, self.marks, time_ns)
        yield Sample(self._dropped, self.dropped, time_ns)
        yield Sample(self._steps, self.steps, time_ns)
        if self._last is not None:
            end_ns = self._last.start_ns + self._last.duration_ns
            yield Sample(self._duration, self._last.duration_ns / 1e9, time_ns)
            # To the microsecond, which a float still holds.
            yield Sample(self._completed, end_ns // 1000 / 1e6, time_ns)
        for series, sums in self._phases.values():
            yield Sample(series, sums[0] / 1e9, time_ns)


class Sender:
    """A process that sends marks: its identity, and the loop it belongs to now."""

    def __init__(self, pid: int, start_ticks: int, *, is_known: bool) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.is_known = is_known
        """Whether it is the process of this host that has this pid."""
        self.dropped = 0
        self.loop = Loop({})
        self.job = ""
        self.rank: int | None = None
        self.host = ""
        self.seen_ns = 0


class StepMarks:
    """The source; it keeps senders, loops and how far each file was read."""

    name: ClassVar[str] = "steps"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._follower = Follower(
            settings.directories,
            FILES,
            young_seconds=settings.history_seconds,
            poll_bytes_max=POLL_BYTES_MAX,
        )
        self._senders: dict[tuple[int, int], Sender] = {}
        self._loops: dict[tuple[str, str, str], Loop] = {}
        self._refused = {
            reason: Series("fabric_step_marks_dropped_total", {"reason": reason})
            for reason in ("unparseable", "limit")
        }
        self._refusals = Counter[str]()
        self._trouble: tuple[int, str] = (0, "")

    def read(self, host: Host) -> Iterator[Reading]:
        """The spans that have come, then the numbers of every loop."""
        self._trouble = (0, "")
        if self._settings.socket:
            yield from self._read_socket(host)
        if self._settings.directories:
            yield from self._read_files(host)
        count, first = self._trouble
        if count:
            yield Missing(
                _UNREAD, UnreadReason.UNPARSEABLE, f"{count} lines or files; first: {first}"
            )
        self._forget(host)
        time_ns = host.now_ns()
        for loop in self._loops.values():
            yield from loop.samples(time_ns)
        for reason, series in self._refused.items():
            if self._loops or self._refusals[reason]:
                yield Sample(series, self._refusals[reason], time_ns)

    def save_state(self) -> dict[str, Any]:
        return self._follower.save_state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there; counters begin at 0, as after every restart."""
        self._follower.load_state(state)

    # --- where marks come from -----------------------------------------------------------------

    def _read_socket(self, host: Host) -> Iterator[Reading]:
        try:
            messages = host.receive(self._settings.socket.lstrip("/"), DATAGRAMS_PER_READ)
        except HostError as error:
            if error.reason is not UnreadReason.ABSENT:
                yield Missing(_UNREAD, error.reason, error.detail)
            return
        for message in messages:
            # One batch is one message with one header: a lookup of the process costs more than
            # anything else here, and a sender must not be able to force many.
            first, _, marks = message.data.partition(b"\n")
            header = self._parse(first)
            if isinstance(header, Header):
                sender = self._find_sender(host, header, message.pid)
                yield from self._read_marks(marks, sender)
            elif header is not None or not first.strip():
                self._complain("a message that does not begin with the sender's header")

    def _read_files(self, host: Host) -> Iterator[Reading]:
        for chunk in self._follower.poll(host):
            if isinstance(chunk, HostError):
                self._complain(f"{chunk.path}: {chunk.detail}")
            else:
                yield from self._read_chunk(host, chunk)

    def _read_chunk(self, host: Host, chunk: Chunk) -> Iterator[Reading]:
        """The spans of some lines of a file: batches, the first perhaps without its beginning."""
        note = chunk.file.note
        kept = note.get("header", "") if chunk.is_continued else ""
        rest = f"{kept}\n".encode() + chunk.lines
        for batch in rest.split(_BATCH)[1:]:
            first, _, marks = batch.partition(b"\n")
            header = self._parse(_BATCH + first)
            note["header"] = (_BATCH + first)[:HEADER_BYTES_MAX].decode("utf-8", "replace")
            if isinstance(header, Header):
                yield from self._read_marks(marks, self._find_sender(host, header, 0))
        if not rest.startswith((_BATCH, b"\n" + _BATCH)):
            self._complain("marks before the header that names their sender")

    def _read_marks(self, lines: bytes, sender: Sender | None) -> Iterator[Reading]:
        for line in lines.split(b"\n"):
            mark = self._parse(line)
            if sender is not None and isinstance(mark, Mark):
                sender.loop.count(mark)
                yield make_span(
                    mark, job=sender.job, rank=sender.rank, host=sender.host, pid=sender.pid
                )
            elif isinstance(mark, Mark):
                self._refusals["limit"] += 1

    def _parse(self, line: bytes) -> Header | Mark | None:
        try:
            return parse_line(line)
        except ParseError as error:
            self._complain(error.detail)
            return None

    def _complain(self, detail: str) -> None:
        """Count something that was not understood; the first of a read is described in words."""
        count, first = self._trouble
        self._trouble = (count + 1, first or detail)
        self._refusals["unparseable"] += 1

    # --- senders ---------------------------------------------------------------------------------

    def _find_sender(self, host: Host, header: Header, kernel_pid: int) -> Sender | None:
        """The sender of a batch, brought up to date; None when there are too many."""
        pid = kernel_pid or header.pid
        # To the kernel a process is one sender, whatever its header claims.
        key = (pid, 0 if kernel_pid else header.start_ticks)
        sender = self._senders.get(key)
        if sender is None or sender.start_ticks != header.start_ticks:
            sender = self._meet(host, header, pid, kernel_pid)
        if not sender.is_known and header.host != host.name:
            sender.host = header.host
        sender.seen_ns = host.monotonic_ns()
        sender.job = header.job or sender.job or header.run
        sender.rank = header.rank if header.rank is not None else sender.rank
        if len(self._senders) >= SENDERS_MAX and key not in self._senders:
            return None
        if not self._join_loop(sender):
            return None
        self._senders[key] = sender
        sender.loop.dropped += max(0, header.dropped - sender.dropped)
        sender.dropped = header.dropped
        return sender

    def _meet(self, host: Host, header: Header, pid: int, kernel_pid: int) -> Sender:
        """A new sender, with its facts from `/proc` if it is surely the process of that pid."""
        facts = read_process(host, pid) if pid else None
        if facts is not None and not kernel_pid and facts.start_ticks != header.start_ticks:
            facts = None
        sender = Sender(pid, header.start_ticks, is_known=facts is not None)
        if facts is not None:
            sender.job, sender.rank = facts.job, facts.rank
        return sender

    def _join_loop(self, sender: Sender) -> bool:
        """Put a sender to the loop that its job and rank name; False when there are too many."""
        rank = "" if sender.rank is None else str(sender.rank)
        key = (sender.job, rank, sender.host)
        loop = self._loops.get(key)
        if loop is None:
            if len(self._loops) >= SENDERS_MAX:
                return False
            loop = Loop({"job": sender.job, "rank": rank, "host": sender.host})
            self._loops[key] = loop
        sender.loop = loop
        return True

    def _forget(self, host: Host) -> None:
        """Drop senders that have ended, and loops without a sender."""
        idle_ns = host.monotonic_ns() - IDLE_SECONDS * 1_000_000_000
        for key, sender in list(self._senders.items()):
            if sender.is_known:
                is_over = not host.exists(f"proc/{sender.pid}")
            else:
                is_over = sender.seen_ns < idle_ns
            if is_over:
                del self._senders[key]
        alive = {id(sender.loop) for sender in self._senders.values()}
        self._loops = {key: loop for key, loop in self._loops.items() if id(loop) in alive}


SOURCE = StepMarks
