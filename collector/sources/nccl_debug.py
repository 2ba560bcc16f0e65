"""Debug lines of NCCL in the output of jobs on this host, followed as it grows.

`collector.formats.nccl_debug` parses the lines. A communicator is an event when it is initialised,
and again when more is known of it: the devices of its connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from collector.contract import communicator as words
from collector.contract.errors import HostError, ParseError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.formats.nccl_debug import COMMUNICATORS_MAX, DebugLog
from collector.reading.follow import Chunk, Follower, Identity
from collector.reading.jobs import ContainerProcesses
from collector.reading.whole_files import split_patterns
from collector.sources import SourceSettings

YOUNG_SECONDS = 10 * 365 * 86_400.0
"""However old a log is, it is read from its beginning: NCCL prints when a job starts, and a job
may run for months without another line."""

COMMUNICATORS = "fabric_job_nccl_communicators"
WARNINGS = "fabric_job_nccl_warnings_total"
LEFT_OUT = "fabric_job_nccl_debug_files_left_out"
SKIPPED = "fabric_job_nccl_debug_skipped_bytes_total"


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `nccl_debug`."""

    files: tuple[str, ...] = ()
    """Logs with NCCL's lines, as shell patterns: the jobs' output, or NCCL_DEBUG_FILE."""
    job: str = ""
    """The job that writes there, if only one does."""


class OpenLog:
    """A log that is followed."""

    def __init__(self, path: str, job: str) -> None:
        self.log = DebugLog(0)
        self.series = Series(COMMUNICATORS, {"job": job, "file": path})
        self.seen: set[tuple[str, str]] = set()
        self.refusal: Missing | None = None
        self.warnings = 0


class NcclDebugSource:
    """The source; what it read of each file survives a restart of the agent."""

    name: ClassVar[str] = "nccl_debug"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._job = settings.job
        self._followers = {
            folder: Follower([folder], names, young_seconds=YOUNG_SECONDS)
            for folder, names in split_patterns(settings.files).items()
        }
        self._logs: dict[Identity, OpenLog] = {}
        self._containers = ContainerProcesses()
        self._warnings = Series(WARNINGS, {"job": settings.job})
        self._skipped = Series(SKIPPED, {"job": settings.job})
        self._left_out = Series(LEFT_OUT, {"job": settings.job})
        self._warning_count = 0

    def read(self, host: Host) -> Iterator[Reading]:
        """Events of the new lines; the number of communicators of each log."""
        for follower in self._followers.values():
            for chunk in follower.poll(host):
                if isinstance(chunk, Chunk):
                    for event in self._read_lines(chunk, host.now_ns()):
                        yield self._placed(host, event)
                else:
                    yield self._refuse(chunk)
        files = [file for each in self._followers.values() for file in each.files]
        followed = {file.identity for file in files}
        self._logs = {each: log for each, log in self._logs.items() if each in followed}
        for log in self._logs.values():
            for event in self._pass_on(log, log.log.changed()):
                yield self._placed(host, event)
        if not files:
            return
        time_ns = host.now_ns()
        yield Sample(self._warnings, self._warning_count, time_ns)
        skipped = sum(each.skipped_bytes for each in self._followers.values())
        yield Sample(self._skipped, skipped, time_ns)
        left_out = sum(each.left_out for each in self._followers.values())
        yield Sample(self._left_out, left_out, time_ns)
        for series, log in {log.series: log for log in self._logs.values()}.items():
            yield log.refusal or Sample(series, len(log.seen), time_ns)

    def _read_lines(self, chunk: Chunk, now_ns: int) -> Iterator[Event]:
        log = self._logs.get(chunk.file.identity)
        if log is None or not chunk.is_continued:
            log = self._logs[chunk.file.identity] = OpenLog(chunk.file.path, self._job)
        log.log.time_ns = now_ns
        for line in chunk.lines.removesuffix(b"\n").split(b"\n"):
            yield from self._pass_on(log, log.log.feed(line))
        self._warning_count += log.log.warnings - log.warnings
        log.warnings = log.log.warnings

    def _pass_on(self, log: OpenLog, found: Iterator[Event | ParseError]) -> Iterator[Event]:
        for each in found:
            if isinstance(each, ParseError):
                log.refusal = Missing(log.series, UnreadReason.UNPARSEABLE, str(each))
                continue
            if "communicator" in each.labels and len(log.seen) < COMMUNICATORS_MAX:
                log.seen.add((each.labels["communicator"], each.labels["rank"]))
            yield each

    def _placed(self, host: Host, event: Event) -> Event:
        """The event; a container's names and numbers become those of this host."""
        attributes = event.attributes
        pid = attributes.get(words.PID, "")
        if not pid.isdecimal() or words.HOST not in attributes:
            return event
        here = self._containers.locate(host, attributes[words.HOST], int(pid))
        if here is None:
            return event
        facts = {name: text for name, text in attributes.items() if name != words.HOST}
        return msgspec.structs.replace(event, attributes=facts | {words.PID: str(here)})

    def _refuse(self, error: HostError) -> Missing:
        series = Series(COMMUNICATORS, {"job": self._job, "file": error.path})
        return Missing(series, error.reason, error.detail)

    # Over a restart --------------------------------------------------------------------------

    def save_state(self) -> dict[str, Any]:
        """How far each log was read. A communicator that is being initialised is forgotten."""
        return {folder: each.save_state() for folder, each in self._followers.items()}

    def load_state(self, state: dict[str, Any]) -> None:
        for folder, follower in self._followers.items():
            if isinstance(saved := state.get(folder), dict):
                follower.load_state(saved)


SOURCE = NcclDebugSource
