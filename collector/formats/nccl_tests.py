"""Results of nccl-tests, text or JSON: the bandwidth that a fabric should reach.

The text's columns changed over the years, so a row is read by what stands in it. JSON (`-J`) also
holds the whole environment of the run, secrets included: it is never decoded. nccl-tests counts the
bytes of all ranks for all-gather, reduce-scatter, gather and scatter; here and in collectives a
size is one rank's part, as NCCL itself counts.

A run with NCCL_DEBUG=INFO mixes NCCL's own lines into the text: they are read as `nccl_debug` does.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import BinaryIO, ClassVar, NamedTuple

import msgspec

from collector.contract.collective import Operation, size_class
from collector.contract.errors import ParseError
from collector.contract.model import Event, Sample, Series
from collector.contract.records import NUMBER_MAX
from collector.formats import HEAD_BYTES, Origin, Record
from collector.formats.nccl_debug import DebugLog, is_nccl_tests
from collector.parsing.last_words import LastWords
from collector.parsing.lines import lines_of, read_blocks
from collector.parsing.prefixes import strip_prefix

RESULT_BYTES_MAX = 16 << 20
"""A JSON file. Forty sizes with the durations of 1000 iterations each have some megabytes."""
RESULT_VALUES_MAX = 2_000_000
"""Commas in it: bounds how many things it can be made of."""
LINE_BYTES = 1024
"""Read of a line; rows have about 130 characters."""
PLACES_MAX = 10_000
"""Hosts of a test that are named."""
NCCL_TEST = "nccl_test"
"""The kind of the event that says where a test ran."""
ERRORS_MAX = 20
"""Rows that are not understood and named one by one."""

GIGA = 1e9
MICRO = 1e6

OPERATIONS = {
    "all_reduce": Operation.ALL_REDUCE,
    "all_gather": Operation.ALL_GATHER,
    "reduce_scatter": Operation.REDUCE_SCATTER,
    "alltoall": Operation.ALL_TO_ALL,
    "broadcast": Operation.BROADCAST,
    "reduce": Operation.REDUCE,
    "gather": Operation.GATHER,
    "scatter": Operation.SCATTER,
    "sendrecv": Operation.SEND_RECV,
}
"""Programs without their `_perf`."""
BY_NAME = {name.replace("_", ""): operation for name, operation in OPERATIONS.items()}

PARTS = frozenset(
    {Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.GATHER, Operation.SCATTER}
)
"""Operations whose rows count the bytes of all ranks."""

ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4,
    "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
}  # fmt: skip

BUS = "fabric_baseline_bus_bandwidth_bytes_per_second"
ALGORITHM = "fabric_baseline_algorithm_bandwidth_bytes_per_second"
DURATION = "fabric_baseline_duration_seconds"
WRONG = "fabric_baseline_wrong_values"
MEAN = "fabric_baseline_mean_bus_bandwidth_bytes_per_second"

_PROGRAM = re.compile(rb"\b([a-z_]{4,20})_perf\b")
_RANK = re.compile(rb"# +Rank +([0-9]{1,7}) ")
_PLACE = re.compile(
    rb" Pid +[0-9]{1,10} +on +(\S{1,128}) +device +[0-9]{1,4} \[[^\]]{1,32}\] ?(.{0,80})"
)
_MEAN = re.compile(rb"# Avg bus bandwidth +: +([0-9.eE+\-]{1,32})")
_PROGRAM_IN_NAME = re.compile(
    r"(?<![a-z])(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send_?recv|reduce)"
    r"(?![a-z])"
)


class Row(NamedTuple):
    """One size, measured one way."""

    size: int
    elements: int
    type: str
    placement: str
    time: float | None
    """Microseconds."""
    algorithm: float | None
    """10**9 bytes a second, as `bus`."""
    bus: float | None
    wrong: float | None


class NcclTests:
    """The format."""

    name: ClassVar[str] = "nccl_tests"
    title: ClassVar[str] = "nccl-tests result"

    def recognises(self, head: bytes, origin: Origin) -> bool:  # noqa: ARG002 - by content alone
        """The lines that such a program begins with, or the keys of its configuration."""
        return is_json(head) or is_nccl_tests(head)

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """A sample for each number of each row; a test that is run twice gives both."""
        head = stream.read(HEAD_BYTES)
        reader = ResultReader(origin)
        if head[:1] == b"{" and not is_nccl_tests(head):
            yield from reader.read_json(head + stream.read(RESULT_BYTES_MAX))
        else:
            yield from reader.read_text(Again(head, stream))  # type: ignore[arg-type]


FORMAT = NcclTests()


def is_json(head: bytes) -> bool:
    """By the keys of its configuration: scripts print objects of theirs before a text, too."""
    return head[:1] == b"{" and b'"minimum_bytes"' in head and b'"maximum_bytes"' in head


class Again:
    """A stream whose beginning was read already."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head or self._rest.read(size)


class ResultReader:
    """One file that is being read."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        match = _PROGRAM_IN_NAME.search(origin.name)
        self._operation = BY_NAME[match[1].replace("_", "")] if match else None
        self._ranks = 0
        self._errors = 0
        self._hosts: dict[str, None] = {}
        self._gpus: dict[str, None] = {}

    # Text ------------------------------------------------------------------------------------

    def read_text(self, stream: BinaryIO) -> Iterator[Record | ParseError]:
        log = DebugLog(self._origin.time_ns)
        words = LastWords(self._origin.name, self._origin.time_ns)
        for block in read_blocks(stream):
            if isinstance(block, ParseError):
                yield block
                continue
            is_wanted = words.wants(block[1])
            for number, line in lines_of(*block):
                yield from log.feed(line)
                if is_wanted:
                    yield from words.feed(number, line)
                yield from self._read_line(number, strip_prefix(line[:LINE_BYTES]))
        yield from log.finish()
        yield from self._describe()
        yield from self._sum_errors()

    def _read_line(self, number: int, line: bytes) -> Iterator[Record | ParseError]:
        if line.startswith(b"#"):
            yield from self._read_comment(line)
            return
        if match := _PROGRAM.search(line):
            self._operation = OPERATIONS.get(match[1].decode(), self._operation)
        fields = line.decode("ascii", "replace").split()
        if len(fields) < ROW_FIELDS_MIN or fields[2] not in ELEMENT_BYTES:
            return  # something else that was printed
        try:
            rows = parse_row(fields)
        except ParseError as error:
            self._errors += 1
            if self._errors <= ERRORS_MAX:
                yield ParseError(f"line {number}", error.detail)
            return
        for row in rows:
            yield from self._samples(row)

    def _read_comment(self, line: bytes) -> Iterator[Sample | Event]:
        if line.startswith(b"# nThread"):
            yield from self._describe()
            self._ranks = 0
            self._hosts, self._gpus = {}, {}
        elif match := _RANK.match(line):
            self._ranks = max(self._ranks, int(match[1]) + 1)
            if place := _PLACE.search(line):
                self._note_place(*(part.decode("ascii", "replace") for part in place.groups()))
        elif line.startswith(b"# Collective test starting"):
            match = _PROGRAM.search(line)
            self._operation = OPERATIONS.get(match[1].decode()) if match else None
        elif match := _MEAN.match(line):
            yield from self._sample(MEAN, {}, to_float(match[1].decode()), GIGA)

    # JSON ------------------------------------------------------------------------------------

    def read_json(self, data: bytes) -> Iterator[Record | ParseError]:
        if len(data) > RESULT_BYTES_MAX:
            raise ParseError("", f"over RESULT_BYTES_MAX = {RESULT_BYTES_MAX} bytes")
        if data.count(b",") > RESULT_VALUES_MAX:
            raise ParseError("", f"over RESULT_VALUES_MAX = {RESULT_VALUES_MAX} values")
        try:
            file = msgspec.json.decode(data, type=ResultFile)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ParseError("", f"not a result of nccl-tests: {error}") from error
        self._ranks = len(file.config.devices) or 0
        for device in file.config.devices[:PLACES_MAX]:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                place = msgspec.json.decode(device, type=Device)
                self._note_place(place.hostname[:128], place.device_info[:80])
        for argument in file.args[:1]:
            if match := _PROGRAM.search(argument.encode("utf-8", "replace")):
                self._operation = OPERATIONS.get(match[1].decode(), self._operation)
        for number, raw in enumerate(file.results):
            try:
                result = msgspec.json.decode(raw, type=Result)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self._errors += 1
                if self._errors <= ERRORS_MAX:
                    yield ParseError(f"result {number}", str(error))
                continue
            for row in result.rows():
                yield from self._samples(row)
        if file.average_bus_bandwidth is not None:
            yield from self._sample(MEAN, {}, to_float(file.average_bus_bandwidth.bandwidth), GIGA)
        yield from self._describe()
        yield from self._sum_errors()

    def _note_place(self, host: str, gpu: str) -> None:
        for known, name in ((self._hosts, host), (self._gpus, gpu.strip())):
            if name and len(known) < PLACES_MAX:
                known[name] = None

    def _describe(self) -> Iterator[Event]:
        """Where a test of the file ran, where it says so."""
        if self._hosts:
            yield Event(
                kind=NCCL_TEST,
                time_ns=self._origin.time_ns,
                labels={"file": self._origin.name},
                message=f"A test of nccl-tests: {self._ranks} ranks, {len(self._hosts)} host(s).",
                attributes={
                    "ranks": str(self._ranks),
                    "hosts": ",".join(self._hosts),
                    "gpus": ", ".join(self._gpus),
                },
            )

    def _sum_errors(self) -> Iterator[ParseError]:
        if self._errors > ERRORS_MAX:
            yield ParseError("", f"{self._errors - ERRORS_MAX} more rows not understood")

    # Samples ---------------------------------------------------------------------------------

    def _samples(self, row: Row) -> Iterator[Sample]:
        size = row.size
        if self._operation in PARTS:
            # The column `count` is one rank's; the column `size` is that of all ranks.
            size = row.elements * ELEMENT_BYTES.get(row.type, 0) or row.size // max(1, self._ranks)
        labels = {
            "size": size_class(size),
            "bytes": str(size),
            "type": row.type,
            "placement": row.placement,
        }
        seconds = row.time / MICRO if row.time is not None else None
        yield from self._sample(BUS, labels, row.bus, GIGA)
        yield from self._sample(ALGORITHM, labels, row.algorithm, GIGA)
        yield from self._sample(DURATION, labels, seconds)
        yield from self._sample(WRONG, labels, row.wrong)

    def _sample(
        self, metric: str, labels: dict[str, str], value: float | None, factor: float = 1.0
    ) -> Iterator[Sample]:
        if value is None:
            return
        common = {
            "operation": self._operation or Operation.OTHER.value,
            "ranks": str(self._ranks) if self._ranks else "",
        }
        yield Sample(Series(metric, common | labels), value * factor, self._origin.time_ns)


# Rows --------------------------------------------------------------------------------------------

ROW_FIELDS_MIN = 3 + 8
"""Size, count and type; twice time, two bandwidths and errors."""
PLACEMENTS = ("out_of_place", "in_place")


def parse_row(fields: list[str]) -> list[Row]:
    """The two measurements of a row: out of place, then in place.

    Behind the type stand, depending on operation and version, the reduction and the root; behind
    the numbers, sometimes, more.
    """
    size, count = to_count(fields[0]), to_count(fields[1])
    if size is None or count is None:
        raise ParseError("", f"size {fields[0][:40]!r} and count {fields[1][:40]!r}: no numbers")
    rest = fields[3:]
    if not is_measured(rest[0]):
        rest = rest[1:]  # the reduction: sum, none
    if len(rest) > len(PLACEMENTS) * 4 and re.fullmatch(r"-?[0-9]{1,7}", rest[0]):
        rest = rest[1:]  # the root
    if len(rest) < len(PLACEMENTS) * 4:
        raise ParseError("", f"a row of {len(fields)} fields has no two measurements")
    rows = []
    for place, placement in enumerate(PLACEMENTS):
        numbers = rest[place * 4 : place * 4 + 4]
        if not all(is_measured(number) for number in numbers):
            raise ParseError("", f"{' '.join(numbers)[:80]!r} is no measurement")
        time, algorithm, bus = (to_float(number) for number in numbers[:3])
        # Older versions print a relative error in this column: a fraction, and no count.
        wrong = to_count(numbers[3])
        rows.append(Row(size, count, fields[2], placement, time, algorithm, bus, wrong))
    return rows


def is_measured(field: str) -> bool:
    """Whether a field is a number, or a word for none."""
    return field == "N/A" or to_float(field) is not None


def to_float(value: object) -> float | None:
    """A number that is finite and not negative; None for anything else, as `nan` and `N/A`."""
    if isinstance(value, str):
        try:
            value = float(value[:40])
        except ValueError:
            return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if not 0 <= value < NUMBER_MAX or not math.isfinite(value):
        return None
    return float(value)


def to_count(field: str) -> int | None:
    """A whole number that a record can hold."""
    if not field.isascii() or not field.isdigit() or len(field) > len(str(NUMBER_MAX)):
        return None
    return int(field) if int(field) <= NUMBER_MAX else None


class Measurement(msgspec.Struct):
    """Of a JSON result; `nan` is a text there."""

    time: float | str | None = None
    cpu_time: float | str | None = None
    alg_bw: float | str | None = None
    bus_bw: float | str | None = None
    nwrong: float | str | None = None


class Result(msgspec.Struct):
    """One size of a JSON file."""

    size: int
    count: int
    type: str
    out_of_place: Measurement | None = None
    in_place: Measurement | None = None

    def rows(self) -> Iterator[Row]:
        if not (0 <= self.size <= NUMBER_MAX and 0 <= self.count <= NUMBER_MAX):
            return
        for placement in PLACEMENTS:
            measured: Measurement | None = getattr(self, placement)
            if measured is not None:
                time = measured.time if measured.time is not None else measured.cpu_time
                yield Row(
                    self.size,
                    self.count,
                    self.type[:32],
                    placement,
                    to_float(time),
                    to_float(measured.alg_bw),
                    to_float(measured.bus_bw),
                    to_float(measured.nwrong),
                )


class Device(msgspec.Struct):
    """Where a rank ran."""

    hostname: str = ""
    device_info: str = ""


class Config(msgspec.Struct):
    """How the test was run."""

    devices: list[msgspec.Raw] = []


class Average(msgspec.Struct):
    """The mean over all sizes."""

    bandwidth: float | str | None = None


class ResultFile(msgspec.Struct):
    """A JSON file, without its `env`: it holds the secrets of the user who ran the test."""

    config: Config
    results: list[msgspec.Raw]
    args: list[str] = []
    average_bus_bandwidth: Average | None = None
