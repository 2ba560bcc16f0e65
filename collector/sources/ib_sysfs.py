"""RDMA ports: everything below `/sys/class/infiniband` (InfiniBand, RoCE, EFA, Omni-Path, iWARP).

This is the source to read before writing another one. It has three parts:

1. *Discovery*, seldom: survey the directories, decide what each file is (per driver, by
   `collector/tables/rdma.py`) and build the `Series` objects once.
2. *Reading*, at every tick: each file gives a `Sample` or a `Missing`, and no file's trouble
   touches its neighbours.
3. *Parsing*: pure functions from bytes to numbers, which raise ValueError and nothing else.

A host without such devices yields nothing: that is normal. A device that lacks what every device
of its driver has yields a `Missing`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from collector.contract.counters import Extender, Overflow
from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.reading.sysfs import (
    explain,
    read_driver_name,
    read_label,
    read_netdev,
    read_pci_path,
)
from collector.sources import SourceSettings
from collector.tables.rdma import Driver, Row, Table, driver_of

CLASS = "sys/class/infiniband"

DISCOVER_SECONDS = 60
"""How long a discovery is believed. A device that comes or goes is noticed at once (one listing per
read); a counter that an administrator switches on, or a new firmware's label, within this time."""
COUNTER_MAX = (1 << 64) - 1


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `ib_sysfs`."""

    exclude: tuple[str, ...] = ()
    """Devices to leave alone, as shell patterns. For restricted functions, where every read makes
    the kernel log an error (prometheus/node_exporter#3434)."""
    driver_values_max: int = 128
    """Counters without a table entry, per port, that are passed on. hfi1 has some 350 of them."""


# What one read does ------------------------------------------------------------------------------


class Counter(NamedTuple):
    """One counter, ready to be read."""

    series: Series
    factor: float
    saturated_at: int
    """The number at which it counts no more; -1 for a counter that does not clamp."""
    extender: Extender | None
    """For a counter that wraps at less than 64 bits."""


class Attribute(NamedTuple):
    """One file that describes the port, and the series that its text gives a number for each."""

    path: str
    series: tuple[Series, ...]
    parse: Callable[[bytes], tuple[float, ...]]


class Directory:
    """A directory of counters. What a scrape costs is spent here, so it does little per counter.

    Most counters stand still most of the time: a file's text is parsed only when it has changed.
    """

    def __init__(self, paths: list[str], counters: list[Counter]) -> None:
        self._paths = paths
        self._counters = counters
        self._series = [counter.series for counter in counters]
        self._texts: Sequence[bytes | HostError | None] = [None] * len(paths)
        self._numbers: list[float] = [0] * len(paths)
        self._absent: dict[int, Missing] = {}

    def read(self, host: Host) -> list[Reading]:
        time_ns = host.now_ns()
        texts = host.reread_all(self._paths)
        for index, (now, before) in enumerate(zip(texts, self._texts, strict=True)):
            if now != before:
                self._take(index, now)
        self._texts = texts
        pairs = zip(self._series, self._numbers, strict=True)
        readings: list[Reading] = [Sample(series, number, time_ns) for series, number in pairs]
        for index, missing in self._absent.items():
            readings[index] = missing
        return readings

    def _take(self, index: int, text: bytes | HostError) -> None:
        outcome = interpret(self._counters[index], text)
        if isinstance(outcome, Missing):
            self._absent[index] = outcome
        else:
            self._absent.pop(index, None)
            self._numbers[index] = outcome


def interpret(counter: Counter, text: bytes | HostError) -> float | Missing:
    """The metric's value that a counter file's text stands for, or why there is none."""
    series, factor, saturated_at, extender = counter
    if isinstance(text, HostError):
        return Missing(series, text.reason, text.detail)
    try:
        raw = int(text)
    except ValueError:
        raw = -1
    if not 0 <= raw <= COUNTER_MAX:
        return explain(series, text)
    if raw == saturated_at:
        return Missing(series, UnreadReason.SATURATED, f"stands at its maximum, {raw}; reset it")
    return factor * (raw if extender is None else extender.extend(raw))


class Port(NamedTuple):
    """A port, or the port-less part of a device: what discovery found out about it."""

    known: list[tuple[Series, float]]
    """Numbers that discovery itself knows: the info metric, how many files there are."""
    absent: list[Missing]
    attributes: list[Attribute]
    directories: list[Directory]


def read_port(host: Host, port: Port) -> list[Reading]:
    """Every reading of one port.

    All counters of a directory share one time: they are read within a millisecond, and the driver
    fetches `hw_counters` from the firmware in one go anyway.
    """
    time_ns = host.now_ns()
    readings: list[Reading] = [Sample(series, value, time_ns) for series, value in port.known]
    readings += port.absent
    readings += read_attributes(host, port.attributes, time_ns)
    for directory in port.directories:
        readings += directory.read(host)
    return readings


def read_attributes(host: Host, attributes: list[Attribute], time_ns: int) -> list[Reading]:
    """For each attribute, a sample for each of its series, or a `Missing` for each."""
    readings: list[Reading] = []
    texts = host.reread_all([attribute.path for attribute in attributes])
    for text, (_, all_series, parse) in zip(texts, attributes, strict=True):
        if isinstance(text, HostError):
            readings += [Missing(series, text.reason, text.detail) for series in all_series]
            continue
        try:
            values = parse(text)
        except ValueError:
            readings += [explain(series, text) for series in all_series]
            continue
        for series, value in zip(all_series, values, strict=True):
            readings.append(Sample(series, value, time_ns))
    return readings


# The source --------------------------------------------------------------------------------------


class IbSysfs:
    """The source; it keeps what it discovered, and the counters that it extends to 64 bits."""

    name: ClassVar[str] = "ib_sysfs"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._devices: list[str] = []
        self._ports: list[Port] = []
        self._built: dict[str, tuple[Survey, Port]] = {}
        self._discover_ns = 0
        self._extenders: dict[str, Extender] = {}
        self._restored: dict[str, tuple[int, int]] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        """Every reading of every port. ``host`` is the only door to the machine."""
        try:
            devices = [name for name in host.list(CLASS) if not self._is_excluded(name)]
        except HostError as error:
            if error.reason is UnreadReason.ABSENT:
                return
            raise
        if devices != self._devices or host.monotonic_ns() >= self._discover_ns:
            self._ports = self._discover(host, devices)
            self._devices = devices
            self._discover_ns = host.monotonic_ns() + DISCOVER_SECONDS * 1_000_000_000
        for port in self._ports:
            yield from read_port(host, port)

    def save_state(self) -> dict[str, Any]:
        """What must be kept so that extended counters go on after a restart, by series."""
        current = {name: extender.state for name, extender in self._extenders.items()}
        return self._restored | current

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a state of this boot; entries of another shape start at 0, as a reset."""
        for name, entry in state.items():
            match entry:
                case [int(raw), int(extended)] if 0 <= raw <= extended:
                    self._restored[name] = raw, extended
                case _:
                    pass

    def _is_excluded(self, device: str) -> bool:
        return any(fnmatch(device, pattern) for pattern in self._settings.exclude)

    # Discovery -----------------------------------------------------------------------------------

    def _discover(self, host: Host, devices: list[str]) -> list[Port]:
        """What there is to read. What looks as it did last time is kept, with all its series."""
        before, self._built = self._built, {}
        for device in devices:
            for survey in survey_device(host, device):
                built = before.get(survey.path)
                if built is None or built[0] != survey:
                    built = survey, self._build_port(survey)
                self._built[survey.path] = built
        return [port for _, port in self._built.values()]

    def _build_port(self, survey: Survey) -> Port:
        """The port that a survey describes: every series is made here, and only here."""
        port = Port([], [], discover_attributes(survey), [])
        if survey.info:
            port.known.append((Series("fabric_port_info", survey.labels | survey.info), 1))
        taken: set[Series] = set()
        for directory, names in survey.listings.items():
            if isinstance(names, Missing):
                port.absent.append(names)
                continue
            place = survey.labels | {"directory": directory}
            port.known.append((Series("fabric_port_counter_files", place), len(names)))
            table, expected = table_of(survey, directory)
            others = [name for name in names if name not in table]
            left_out = others[self._settings.driver_values_max :]
            if others:
                left = Series("fabric_port_driver_values_left_out", place)
                port.known.append((left, len(left_out)))
            wanted = sorted(expected.union(names).difference(left_out))
            port.directories.append(self._build_directory(survey, directory, wanted, taken))
        return port

    def _build_directory(
        self, survey: Survey, directory: str, names: list[str], taken: set[Series]
    ) -> Directory:
        """The counters of a directory, without those whose series another file gives already."""
        table, _ = table_of(survey, directory)
        paths: list[str] = []
        counters: list[Counter] = []
        for name in names:
            counter = self._build_counter(table.get(name) or pass_through(name), survey.labels)
            if counter.series not in taken:
                taken.add(counter.series)
                paths.append(f"{survey.path}/{directory}/{name}")
                counters.append(counter)
        return Directory(paths, counters)

    def _build_counter(self, row: Row, labels: dict[str, str]) -> Counter:
        series = Series(row.metric, labels | dict(row.labels))
        extender = None
        if row.width.overflow is Overflow.WRAP and row.width.maximum < COUNTER_MAX:
            key = repr(series)
            if key not in self._extenders:
                self._extenders[key] = Extender(row.width, self._restored.pop(key, None))
            extender = self._extenders[key]
        return Counter(series, row.factor, row.width.saturated_at, extender)


SOURCE = IbSysfs


class Survey(NamedTuple):
    """What is there of a port, or of a device without its ports: enough to build its series."""

    path: str
    driver: Driver
    labels: dict[str, str]
    info: dict[str, str]
    """More labels for the info metric; a device without its ports has none."""
    listings: dict[str, list[str] | Missing]
    """The files in each directory of counters, or why an expected one cannot be listed."""


def survey_device(host: Host, device: str) -> Iterator[Survey]:
    """A survey of each port, and one of the device itself where it has counters of its own."""
    base, labels = f"{CLASS}/{device}", {"device": device}
    driver = driver_of(read_driver_name(host, base), device)
    own = list_counters(host, base, labels, {"hw_counters"}, frozenset())
    try:
        ports = host.list(f"{base}/ports")
    except HostError as error:
        missing = Missing(Series("fabric_port_info", labels), error.reason, error.detail)
        yield Survey(base, driver, labels, {}, own | {"ports": missing})
        return
    if own:
        yield Survey(base, driver, labels, {}, own)
    for port in ports:
        path, of_port = f"{base}/ports/{port}", labels | {"port": port}
        info = describe_port(host, base, path, driver)
        # hw_counters first: where a driver counts the same thing in both (bnxt_re's bytes), the
        # classic file is a copy, and on some kernels one that answers EINVAL (procfs#675).
        directories = ("hw_counters", "counters")
        listings = list_counters(host, path, of_port, directories, driver.directories)
        yield Survey(path, driver, of_port, info, listings)


def list_counters(
    host: Host,
    path: str,
    labels: dict[str, str],
    directories: Iterable[str],
    expected: frozenset[str],
) -> dict[str, list[str] | Missing]:
    """The files of each directory; for an expected one that is missing, one absence, not twenty."""
    found: dict[str, list[str] | Missing] = {}
    for directory in directories:
        try:
            found[directory] = host.list(f"{path}/{directory}")
        except HostError as error:
            if directory in expected:
                files = Series("fabric_port_counter_files", labels | {"directory": directory})
                found[directory] = Missing(files, error.reason, error.detail)
    return found


def table_of(survey: Survey, directory: str) -> tuple[Table, frozenset[str]]:
    """The table of a directory's files, and which of them must be there."""
    driver = survey.driver
    if "port" not in survey.labels:
        return driver.device, frozenset()
    if directory == "counters":
        return driver.classic, driver.expected
    return driver.hardware, frozenset()


def pass_through(name: str) -> Row:
    """What an unknown counter is: the driver's number under the driver's name, unchanged."""
    return Row("fabric_port_driver_value", labels=(("counter", name),))


def discover_attributes(survey: Survey) -> list[Attribute]:
    """The files that describe a port; read every time, because a link that flaps changes them."""
    if not survey.info:
        return []

    def attribute(
        file: str, parse: Callable[[bytes], tuple[float, ...]], *metrics: str
    ) -> Attribute:
        series = tuple(Series(metric, survey.labels) for metric in metrics)
        return Attribute(f"{survey.path}/{file}", series, parse)

    return [
        attribute("state", parse_state, "fabric_port_state"),
        attribute("phys_state", parse_physical_state, "fabric_port_physical_state"),
        attribute("rate", parse_rate, "fabric_port_rate_bits_per_second", "fabric_port_lanes"),
        attribute("lid", parse_lid, "fabric_port_lid"),
        attribute("sm_lid", parse_lid, "fabric_port_sm_lid"),
    ]


def describe_port(host: Host, base: str, path: str, driver: Driver) -> dict[str, str]:
    link_layer = read_label(host, f"{path}/link_layer")
    return {
        "driver": driver.name,
        "firmware": read_label(host, f"{base}/fw_ver"),
        "node_guid": read_label(host, f"{base}/node_guid"),
        "board_id": read_label(host, f"{base}/board_id"),
        "hca_type": read_label(host, f"{base}/hca_type"),
        "link_layer": link_layer,
        "speed": parse_speed(read_label(host, f"{path}/rate")),
        "netdev": read_netdev(host, base, path, link_layer),
        "pci_path": read_pci_path(host, base),
    }


# Parsing -----------------------------------------------------------------------------------------

STATES = frozenset({"DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"})

TEXTS_KEPT = 256
"""Texts that a parser remembers: a port's description hardly ever changes between two reads."""

_STATE = re.compile(rb"\s*([0-7]):\s*([A-Za-z_<>/ -]+?)\s*")
_RATE = re.compile(rb"\s*([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec \(([0-9]{1,3})X ?([A-Z0-9]*)\)\s*")
_LID = re.compile(rb"\s*0x([0-9a-fA-F]{1,8})\s*")


@lru_cache(TEXTS_KEPT)
def parse_state(text: bytes) -> tuple[float, ...]:
    """The logical state: 1 down, 2 init, 3 armed, 4 active, 5 active but deferred.

    >>> parse_state(b"4: ACTIVE")
    (4,)
    """
    number, word = _match(_STATE, text)
    if word.decode() not in STATES:
        raise ValueError(text)
    return (int(number),)


@lru_cache(TEXTS_KEPT)
def parse_physical_state(text: bytes) -> tuple[float, ...]:
    """The physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 up, 6 recovering, 7 test.

    Some drivers put the logical state here (``4: ACTIVE``). That 4 would read as "training".

    >>> parse_physical_state(b"5: LinkUp")
    (5,)
    """
    number, word = _match(_STATE, text)
    if word.decode() in STATES:
        raise ValueError(text)
    return (int(number),)


@lru_cache(TEXTS_KEPT)
def parse_rate(text: bytes) -> tuple[float, ...]:
    """The rate in bits per second, and the number of lanes.

    >>> parse_rate(b"2.5 Gb/sec (1X SDR)")
    (2500000000, 1)
    """
    gigabits, lanes, _ = _match(_RATE, text)
    return round(float(gigabits) * 1_000_000_000), int(lanes)


def parse_speed(text: str) -> str:
    """The name of the signalling speed; kernels before 6.0 left out the slowest one's name.

    >>> parse_speed("400 Gb/sec (4X NDR)"), parse_speed("10 Gb/sec (4X)"), parse_speed("?")
    ('NDR', 'SDR', '')
    """
    match = _RATE.fullmatch(text.encode())
    return (match[3].decode() or "SDR") if match else ""


@lru_cache(TEXTS_KEPT)
def parse_lid(text: bytes) -> tuple[float, ...]:
    """A local identifier; 0 on Ethernet, which has none.

    >>> parse_lid(b"0x1a")
    (26,)
    """
    (digits,) = _match(_LID, text)
    return (int(digits, 16),)


def _match(pattern: re.Pattern[bytes], text: bytes) -> tuple[bytes, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(text)
    groups: tuple[bytes, ...] = match.groups()
    return groups
