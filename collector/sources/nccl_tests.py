"""Results of nccl-tests on this host: what its fabric reached when nothing else ran.

A result holds until the test is run again, so each read yields its numbers with the time of the
read; the events of NCCL's own lines come once. `collector.formats.nccl_tests` parses results.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import ClassVar

from collector.contract.errors import HostError, ParseError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.formats import Origin
from collector.formats.nccl_tests import FORMAT, RESULT_BYTES_MAX
from collector.reading.whole_files import WholeFile, WholeFiles, split_patterns
from collector.sources import SourceSettings

SERIES_MAX = 4096
"""Numbers of one host: eight operations of forty sizes, and room for types and numbers of ranks.
What one file has beyond is counted as not understood; of many files the latest are shown."""

RESULTS = "fabric_baseline_results"
LEFT_OUT = "fabric_baseline_files_left_out"
UNPARSED = "fabric_baseline_unparsed_total"


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `nccl_tests`."""

    interval_seconds: float = 60.0
    """Results change when an operator runs a test; PromQL looks back five minutes."""
    files: tuple[str, ...] = ()
    """Results, text or JSON, as shell patterns."""


class NcclTestsSource:
    """The source; it keeps the results of each file."""

    name: ClassVar[str] = "nccl_tests"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._folders = [
            WholeFiles([folder], names, bytes_max=RESULT_BYTES_MAX)
            for folder, names in split_patterns(settings.files).items()
        ]
        self._results: dict[str, tuple[int, dict[Series, float]]] = {}
        """By path: when the file changed, and its numbers."""
        self._refusals: dict[str, Missing] = {}
        self._unparsed = Series(UNPARSED)
        self._left_out = Series(LEFT_OUT)
        self._unparsed_count = 0

    def read(self, host: Host) -> Iterator[Reading]:
        """The last number of each operation and size; why a file gives none."""
        refused: set[str] = set()
        for folder in self._folders:
            for file in folder.poll(host):
                if isinstance(file, HostError):
                    refused.add(file.path)
                    self._refuse(file.path, file.reason, file.detail)
                else:
                    yield from self._read_result(file)
        present = {path for folder in self._folders for path in folder.present}
        self._results = {path: each for path, each in self._results.items() if path in present}
        self._drop_oldest()
        present |= refused  # folders that cannot be listed are refused at each look
        self._refusals = {path: each for path, each in self._refusals.items() if path in present}
        yield from self._refusals.values()
        yield from self._merge(host.now_ns())

    def _drop_oldest(self) -> None:
        room = SERIES_MAX
        latest = sorted(self._results, key=lambda path: self._results[path][0], reverse=True)
        for path in latest:
            room -= len(self._results[path][1])
            if room < 0:
                del self._results[path]
                self._refuse(
                    path, UnreadReason.NOT_SUPPORTED, f"over SERIES_MAX = {SERIES_MAX} numbers"
                )

    def _merge(self, time_ns: int) -> Iterator[Sample]:
        """The numbers of all files; where two have the same series, those of the later one."""
        merged: dict[Series, float] = {}
        for _, values in sorted(self._results.values(), key=lambda result: result[0]):
            merged |= values
        for series, value in merged.items():
            yield Sample(series, value, time_ns)
        if self._results:
            yield Sample(self._unparsed, self._unparsed_count, time_ns)
            left_out = sum(folder.left_out for folder in self._folders)
            yield Sample(self._left_out, left_out, time_ns)

    def _read_result(self, file: WholeFile) -> Iterator[Event]:
        taken = Series(RESULTS, {"file": file.path})
        values: dict[Series, float] = {taken: 0}
        self._refusals.pop(file.path, None)
        self._results.pop(file.path, None)
        try:
            for record in FORMAT.parse(io.BytesIO(file.data), Origin(file.name, file.changed_ns)):
                if isinstance(record, Sample) and len(values) < SERIES_MAX:
                    values[record.series] = record.value
                elif isinstance(record, Event):
                    yield record
                else:
                    self._unparsed_count += 1
        except ParseError as error:
            self._refuse(file.path, UnreadReason.UNPARSEABLE, str(error))
            return
        values[taken] = len(values) - 1
        self._results[file.path] = file.changed_ns, values

    def _refuse(self, path: str, reason: UnreadReason, detail: str) -> None:
        self._refusals[path] = Missing(Series(RESULTS, {"file": path}), reason, detail)


SOURCE = NcclTestsSource
