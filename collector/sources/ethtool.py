"""Ethernet driver statistics (``ethtool -S``): pause, discards, errors of the wire, PCIe stalls.

Here is what `/sys/class/net` lacks: pause frames by direction, RDMA bytes, corrected bits, a
full receive buffer. Names differ by driver (`collector/tables/ethtool.py`); of the hundreds that a
driver offers, only those that the table names are read out, unless `pass_through` is set.

Direction decides the blame: *received* pause means that the network asked this
host to stop (a victim); *transmitted* pause means that this host cannot drain (the culprit).
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.doors.sockets import NicDriver
from collector.reading.sysfs import read_driver_name
from collector.sources import SourceSettings
from collector.tables.ethtool import table_of

CLASS = "sys/class/net"

DRIVER_SECONDS = 300
"""How long the answer to "which driver, which firmware" is believed: both change with a reboot or a
driver reload, and the latter also changes the list of interfaces, which is read every time."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `ethtool`."""

    exclude: tuple[str, ...] = ()
    """Interfaces to leave alone, as shell patterns. For restricted functions, where every read
    makes the kernel log an error (prometheus/node_exporter#3434)."""
    pass_through: bool = False
    """Also pass on statistics that no table names. A mlx5 interface has about 670."""
    driver_values_max: int = 1024
    """Statistics per interface that ``pass_through`` passes on; the rest is counted."""


class Interface:
    """One interface: its driver, and the plan that maps statistics to series."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._labels = {"device": name}
        self._settings = settings
        self._driver: NicDriver | None = None
        self._driver_ns = 0
        self._names: frozenset[str] = frozenset()
        self._plan: list[tuple[str, Series, float]] = []
        self._left_out = 0
        self._info = Series("fabric_nic_driver_info", self._labels)
        self._count = Series("fabric_nic_statistics", self._labels)
        self._left = Series("fabric_nic_driver_values_left_out", self._labels)

    def read(self, host: Host) -> Iterator[Reading]:
        """Every statistic of this interface that the table of its driver names."""
        name = self._labels["device"]
        self._identify(host)
        try:
            stats = host.ethtool_stats(name)
        except HostError as error:
            # One absence for the interface, not one for each of the fifty that it might have.
            yield Missing(self._count, error.reason, error.detail)
            return
        if self._names != stats.keys():
            self._make_plan(list(stats))
        time_ns = host.now_ns()
        yield Sample(self._info, 1, time_ns)
        yield Sample(self._count, len(stats), time_ns)
        if self._settings.pass_through:
            yield Sample(self._left, self._left_out, time_ns)
        for native, series, factor in self._plan:
            yield Sample(series, stats[native] * factor, time_ns)

    def _identify(self, host: Host) -> None:
        """Ask for the driver now and then; another driver means another table."""
        if self._driver is not None and host.monotonic_ns() < self._driver_ns:
            return
        driver = read_driver(host, self._labels["device"])
        self._driver_ns = host.monotonic_ns() + DRIVER_SECONDS * 1_000_000_000
        if driver != self._driver:
            self._driver, self._names = driver, frozenset()
            self._info = Series("fabric_nic_driver_info", self._labels | driver._asdict())

    def _make_plan(self, names: list[str]) -> None:
        """Decide for every statistic what it is. Names change when flow control is switched on."""
        assert self._driver is not None
        table = table_of(self._driver.driver)
        self._names, self._plan, taken = frozenset(names), [], set[Series]()
        others: list[str] = []
        for name in names:
            row = table.find(name)
            if row is None:
                others.append(name)
                continue
            series = Series(row.metric, self._labels | dict(row.labels))
            if series not in taken:
                taken.add(series)
                self._plan.append((name, series, row.factor))
        if self._settings.pass_through:
            self._left_out = max(0, len(others) - self._settings.driver_values_max)
            for name in others[: self._settings.driver_values_max]:
                series = Series("fabric_nic_driver_value", self._labels | {"counter": name})
                self._plan.append((name, series, 1))


class Ethtool:
    """The source; it keeps one `Interface` for each that has hardware behind it."""

    name: ClassVar[str] = "ethtool"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._interfaces: dict[str, Interface] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        names = [name for name in list_interfaces(host) if not self._is_excluded(name)]
        self._interfaces = {
            name: self._interfaces.get(name) or Interface(name, self._settings) for name in names
        }
        for interface in self._interfaces.values():
            yield from interface.read(host)

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self._settings.exclude)


SOURCE = Ethtool


def list_interfaces(host: Host) -> list[str]:
    """Interfaces with hardware behind them: only those have the `device` link."""
    try:
        names = host.list(CLASS)
    except HostError as error:
        if error.reason is UnreadReason.ABSENT:
            return []
        raise
    return [name for name in names if host.exists(f"{CLASS}/{name}/device")]


def read_driver(host: Host, name: str) -> NicDriver:
    """The driver of an interface; where it does not introduce itself, by its link in sysfs."""
    try:
        return host.ethtool_driver(name)
    except HostError:
        return NicDriver(read_driver_name(host, f"{CLASS}/{name}"))
