"""Flight Recorder dumps of the ranks on this host, as PyTorch writes them when a job hangs.

Each dump is read once, when it is whole; one that is written again is read again.
`collector.formats.flight_recorder` parses dumps. A dump names neither its job nor its process: the
settings can name the job.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from collector.contract.collective import Collective
from collector.contract.communicator import DUMP
from collector.contract.errors import HostError, ParseError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.formats import Origin
from collector.formats.flight_recorder import DUMP_BYTES_MAX, FORMAT, LAST_NUMBER
from collector.reading.whole_files import WholeFile, WholeFiles
from collector.sources import SourceSettings

PENDING = "fabric_job_flight_recorder_pending_operations"
DUMPS = "fabric_job_flight_recorder_dumps_total"
LEFT_OUT = "fabric_job_flight_recorder_files_left_out"
UNPARSED = "fabric_job_flight_recorder_unparsed_total"


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `flight_recorder`."""

    timeout_seconds: float = 30.0
    """A dump with stacks takes most of a second, and a host has eight of them."""
    directories: tuple[str, ...] = ()
    """Folders with dumps, as shell patterns: where TORCH_FR_DUMP_TEMP_FILE points to."""
    patterns: tuple[str, ...] = ("*trace_rank_*", "*_dump_*")
    """Names of dumps, as shell patterns."""
    job: str = ""
    """The job that writes there, if only one does."""


class FlightRecorderSource:
    """The source; it remembers which dumps it has read."""

    name: ClassVar[str] = "flight_recorder"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._job = settings.job
        self._files = WholeFiles(settings.directories, settings.patterns, bytes_max=DUMP_BYTES_MAX)
        self._labels = {"job": settings.job}
        self._dumps = Series(DUMPS, self._labels)
        self._unparsed = Series(UNPARSED, self._labels)
        self._left_out = Series(LEFT_OUT, self._labels)
        self._dump_count = 0
        self._unparsed_count = 0
        self._ranks: dict[str, tuple[Series, int | HostError]] = {}
        """By path, the dump's number of pending operations, or why there is none."""

    def read(self, host: Host) -> Iterator[Reading]:
        """Operations and groups of new dumps; of all dumps, how many operations are pending."""
        folders: list[HostError] = []
        for file in self._files.poll(host):
            if not isinstance(file, HostError):
                yield from self._read_dump(file)
            elif file.path in self._files.present:
                self._ranks[file.path] = self._series(file.path), file
            else:
                folders.append(file)
        present = self._files.present
        self._ranks = {path: each for path, each in self._ranks.items() if path in present}
        if not folders and not self._dump_count and not self._ranks:
            return
        time_ns = host.now_ns()
        if folders:
            yield Missing(self._dumps, folders[0].reason, str(folders[0]))
        else:
            yield Sample(self._dumps, self._dump_count, time_ns)
        yield Sample(self._unparsed, self._unparsed_count, time_ns)
        yield Sample(self._left_out, self._files.left_out, time_ns)
        # Two folders may hold a dump of the same rank: one of them is shown.
        for series, pending in dict(self._ranks.values()).items():
            if isinstance(pending, HostError):
                yield Missing(series, pending.reason, pending.detail)
            else:
                yield Sample(series, pending, time_ns)

    def _read_dump(self, file: WholeFile) -> Iterator[Reading]:
        series, pending = self._series(file.path), 0
        self._dump_count += 1
        try:
            origin = Origin(file.name, file.changed_ns)
            # What a dump that is cut off does not show may have been in it: its rank would seem to
            # wait in nothing.
            for record in FORMAT.parse_whole(io.BytesIO(file.data), origin):
                if isinstance(record, ParseError):
                    self._unparsed_count += 1
                elif isinstance(record, Collective):
                    yield msgspec.structs.replace(record, job=self._job)
                elif isinstance(record, Event):
                    if record.kind == DUMP:
                        pending = int(record.attributes["pending"])
                    yield self._with_job(record)
        except ParseError as error:
            self._unparsed_count += 1
            refusal = HostError(UnreadReason.UNPARSEABLE, file.path, str(error))
            self._ranks[file.path] = series, refusal
            return
        self._ranks[file.path] = series, pending

    def _with_job(self, event: Event) -> Event:
        if not self._job:
            return event
        return msgspec.structs.replace(event, labels={**event.labels, "job": self._job})

    def _series(self, path: str) -> Series:
        if path in self._ranks:
            return self._ranks[path][0]
        match = LAST_NUMBER.search(path)
        return Series(PENDING, {**self._labels, "rank": match[1] if match else ""})


SOURCE = FlightRecorderSource
