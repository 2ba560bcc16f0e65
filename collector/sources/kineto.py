"""Profiler traces of the ranks on this host, as torch.profiler and Kineto write them.

Each trace is read once, when it has stopped changing, a slice at a time: a trace of a gigabyte
takes minutes and delays nothing. `collector.formats.kineto` parses it. A trace does not name its
job: the settings can.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import msgspec

from collector.contract.collective import Collective, StepSpan
from collector.contract.errors import HostError, ParseError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.host import FileFacts, Host
from collector.formats import HEAD_BYTES, Origin, Record
from collector.formats.kineto import FORMAT, RANK_IN_NAME, read_trace
from collector.reading.follow import YOUNG_SECONDS, find_files
from collector.reading.whole_files import FILES_MAX, SETTLED_SECONDS, Version, version_of
from collector.sources import SourceSettings

SLICE_BYTES = 32 << 20
"""What one read takes of the traces, decompressed: a third of a second of one core, and a trace of
a gigabyte in three minutes at the usual interval."""
SLICE_RECORDS = 20_000
"""What one read yields at most: a batch holds ten times that."""
TRACE_BYTES_MAX = 8 << 30
"""A trace, decompressed. Profiles of hundreds of steps have one or two gigabytes; a small file that
unpacks to more would keep all others waiting for an hour."""
READ_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW = 31
"""zlib's code for a gzip header and its largest window."""

PROFILES = "fabric_step_profiles_total"
UNPARSED = "fabric_step_profile_unparsed_total"
BACKLOG = "fabric_step_profile_backlog_bytes"
IDLE = "fabric_step_profile_idle_ratio"
COMMUNICATION = "fabric_step_profile_communication_ratio"


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `kineto`."""

    timeout_seconds: float = 30.0
    """A slice of a broken trace, which must be parsed event by event, takes seconds."""
    directories: tuple[str, ...] = ()
    """Folders with traces, as shell patterns."""
    patterns: tuple[str, ...] = ("*.json", "*.json.gz")
    """Names of traces, as shell patterns; what is no trace is left alone."""
    young_seconds: float = YOUNG_SECONDS
    """Traces that were older than this when they were first seen are not read."""
    job: str = ""
    """The job that writes there, if only one does."""


class TraceFile:
    """A file below the host's root as a stream; what is compressed comes decompressed."""

    def __init__(self, host: Host, path: str, facts: FileFacts) -> None:
        self._host = host
        self._path = path
        self._facts = facts
        self._offset = 0
        self._unread = b""
        self._input = b""
        self._decompressor = None if self._raw(2) != GZIP_MAGIC else new_decompressor()
        self._offset = 0
        self.taken = 0
        """Bytes handed out so far, decompressed."""

    def head(self) -> bytes:
        """The beginning, to recognise the format; `read` returns it again."""
        head = b""
        while len(head) < HEAD_BYTES and (piece := self.read(HEAD_BYTES - len(head))):
            head += piece
        self._unread, self.taken = head, 0
        return head

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        if self._unread:
            data, self._unread = self._unread, b""
        elif self._decompressor is None:
            data = self._raw(size)
        else:
            data = self._decompress(size)
        self.taken += len(data)
        if self.taken > TRACE_BYTES_MAX:
            raise ParseError("", f"unpacks to over TRACE_BYTES_MAX = {TRACE_BYTES_MAX} bytes")
        return data

    def _raw(self, size: int) -> bytes:
        data = self._host.read_at(self._path, self._offset, size, self._facts.identity)
        self._offset += len(data)
        return data

    def _decompress(self, size: int) -> bytes:
        assert self._decompressor is not None
        while True:
            self._input = self._input or self._raw(READ_BYTES)
            if not self._input:
                return b""
            if self._decompressor.eof:
                # Several gzip files behind one another are one: pigz and `cat` make such.
                self._decompressor = new_decompressor()
            try:
                data = self._decompressor.decompress(self._input, size)
            except zlib.error as error:
                raise ParseError("", f"broken gzip before byte {self._offset}: {error}") from error
            self._input = self._decompressor.unconsumed_tail or self._decompressor.unused_data
            if data:
                return data


def new_decompressor() -> zlib._Decompress:
    return zlib.decompressobj(wbits=GZIP_WINDOW)


class Budget:
    """The bytes and records that one read may still take and yield."""

    def __init__(self) -> None:
        self.bytes = SLICE_BYTES
        self.records = SLICE_RECORDS

    @property
    def is_left(self) -> bool:
        return self.bytes > 0 and self.records > 0


class OpenTrace:
    """The trace that is being read."""

    def __init__(self, path: str, stream: TraceFile, facts: FileFacts) -> None:
        name = path.rpartition("/")[2].removesuffix(".gz")
        self.path = path
        self.size = facts.size
        self.stream = stream
        self.records = read_trace(stream, Origin(name, facts.changed_ns))
        self.taken = 0
        self.profile: Event | None = None


class Result(NamedTuple):
    """The result of a trace: the shares of its time, or why there are none."""

    idle: Series
    communication: Series
    shares: tuple[float, float] | HostError


class KinetoSource:
    """The source; it remembers which traces it has read, also over a restart."""

    name: ClassVar[str] = "kineto"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._labels = {"job": settings.job}
        self._profiles = Series(PROFILES, self._labels)
        self._unparsed = Series(UNPARSED, self._labels)
        self._backlog = Series(BACKLOG, self._labels)
        self._profile_count = self._unparsed_count = 0
        self._seen: dict[str, Version] = {}
        self._done: dict[str, Version] = {}
        """Each file as it was when its reading began, or when it was found to be too old."""
        self._open: OpenTrace | None = None
        self._results: dict[str, Result] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        """A slice of new traces' records; of each rank's last trace, the shares of its time."""
        if not self._settings.directories:
            return
        found = find_files(host, self._settings.directories, self._settings.patterns)
        waiting = self._find_waiting(host, found.files)
        budget = Budget()
        while budget.is_left and (trace := self._open or self._begin(host, waiting)):
            yield from self._read_slice(trace, budget)
        time_ns = host.now_ns()
        yield Sample(self._profiles, self._profile_count, time_ns)
        yield Sample(self._unparsed, self._unparsed_count, time_ns)
        backlog = sum(facts.size for _, facts in waiting) + (self._open.size if self._open else 0)
        yield Sample(self._backlog, backlog, time_ns)
        self._results = {
            path: each for path, each in self._results.items() if path in found.files
        } | {error.path: self._refused(error) for error in found.refusals}
        # Of two traces of one rank the one that was read last is shown.
        for result in {each.idle: each for each in self._results.values()}.values():
            yield from show(result, time_ns)

    # Which traces ----------------------------------------------------------------------------

    def _find_waiting(self, host: Host, files: dict[str, FileFacts]) -> list[tuple[str, FileFacts]]:
        """Traces that have settled and were not read, the youngest first."""
        before, now_ns = self._seen, host.now_ns()
        latest = sorted(files.items(), key=lambda item: item[1].changed_ns, reverse=True)
        self._seen = {path: version_of(facts) for path, facts in latest[:FILES_MAX]}
        self._done = {path: each for path, each in self._done.items() if path in self._seen}
        young_ns = now_ns - int(self._settings.young_seconds * NS)
        settled_ns = now_ns - SETTLED_SECONDS * NS
        waiting = []
        for path, version in self._seen.items():
            facts = files[path]
            if self._done.get(path) == version:
                continue
            if path not in before and facts.changed_ns < young_ns:
                self._done[path] = version
            elif facts.changed_ns <= settled_ns or before.get(path) == version:
                waiting.append((path, facts))
        return waiting

    def _begin(self, host: Host, waiting: list[tuple[str, FileFacts]]) -> OpenTrace | None:
        """The oldest trace that waits, opened; files that are none are passed over."""
        while waiting:
            path, facts = waiting.pop()
            self._done[path] = version_of(facts)
            try:
                stream = TraceFile(host, path, facts)
                head = stream.head()
            except HostError as error:
                self._results[path] = self._refused(error)
                continue
            except ParseError as error:
                self._refuse(path, str(error))
                continue
            self._open = OpenTrace(path, stream, facts)
            if FORMAT.recognises(head, Origin(path.rpartition("/")[2])):
                return self._open
            self._open = None
        return None

    # Reading one -----------------------------------------------------------------------------

    def _read_slice(self, trace: OpenTrace, budget: Budget) -> Iterator[Reading]:
        """Records of the trace until the budget is spent, or the trace is."""
        while budget.is_left:
            try:
                record = next(trace.records)
            except StopIteration:
                self._finish(trace)
                return
            except ParseError as error:
                self._refuse(trace.path, str(error))
                self._open = None
                return
            except HostError as error:
                self._results[trace.path] = self._refused(error)
                self._open = None
                return
            if record is None:
                budget.bytes -= trace.stream.taken - trace.taken
                trace.taken = trace.stream.taken
            elif isinstance(record, ParseError):
                self._unparsed_count += 1
            else:
                budget.records -= 1
                if isinstance(record, Event):
                    trace.profile = record
                yield self._with_job(record)

    def _finish(self, trace: OpenTrace) -> None:
        self._open = None
        self._profile_count += 1
        attributes = trace.profile.attributes if trace.profile else {}
        window_ms = float(attributes.get("window_ms", 0))
        if not window_ms:
            self._results[trace.path] = self._result(
                trace.path, HostError(UnreadReason.ABSENT, trace.path, "the trace shows no GPU")
            )
            return
        idle = float(attributes["idle_ms"]) / window_ms
        communication = float(attributes["communication_ms"]) / window_ms
        rank = trace.profile.labels.get("rank", "") if trace.profile else ""
        self._results.pop(trace.path, None)  # the last that was read comes last
        self._results[trace.path] = self._result(trace.path, (idle, communication), rank)

    def _with_job(self, record: Record) -> Reading:
        job = self._settings.job
        if not job or isinstance(record, Sample):
            return record
        if isinstance(record, Collective | StepSpan):
            return msgspec.structs.replace(record, job=job)
        return msgspec.structs.replace(record, labels={**record.labels, "job": job})

    # Results -------------------------------------------------------------------------------------

    def _refuse(self, path: str, detail: str) -> None:
        self._unparsed_count += 1
        self._results[path] = self._refused(HostError(UnreadReason.UNPARSEABLE, path, detail))

    def _refused(self, error: HostError) -> Result:
        return self._result(error.path, error)

    def _result(self, path: str, shares: tuple[float, float] | HostError, rank: str = "") -> Result:
        match = RANK_IN_NAME.search(path.rpartition("/")[2])
        rank = rank or (match[1] if match else "")
        labels = {**self._labels, "rank": rank}
        idle, communication = Series(IDLE, labels), Series(COMMUNICATION, labels)
        known = next((each for each in self._results.values() if each.idle == idle), None)
        if known:
            idle, communication = known.idle, known.communication
        return Result(idle, communication, shares)

    # Over a restart --------------------------------------------------------------------------

    def save_state(self) -> dict[str, Any]:
        unfinished = self._open.path if self._open else None
        done = [item for item in self._done.items() if item[0] != unfinished]
        return {"read": [[path, *identity, *rest] for path, (identity, *rest) in done]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; entries of another shape are ignored: such files are new."""
        entries = state.get("read")
        for entry in entries[:FILES_MAX] if isinstance(entries, list) else ():
            match entry:
                case [str(path), int(device), int(inode), int(size), int(changed_ns)]:
                    self._done[path] = (device, inode), size, changed_ns
                case _:
                    pass


SOURCE = KinetoSource


def show(result: Result, time_ns: int) -> Iterator[Reading]:
    if isinstance(result.shares, HostError):
        yield Missing(result.idle, result.shares.reason, result.shares.detail)
        yield Missing(result.communication, result.shares.reason, result.shares.detail)
        return
    idle, communication = result.shares
    yield Sample(result.idle, idle, time_ns)
    yield Sample(result.communication, communication, time_ns)
