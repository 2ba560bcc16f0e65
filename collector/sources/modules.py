"""Transceivers and error correction of NICs: light, current, heat, names, blocks that FEC mended.

Two questions to the kernel (ethtool's generic netlink): the pages of a module's memory (SFF-8472,
SFF-8636, CMIS), and the counts of forward error correction with their histogram. A module is behind
a slow bus and the kernel holds a lock meanwhile, so measurements are read once a minute, names and
limits every ten minutes, and a round ends after `round_seconds`: the interfaces that are left go
first in the next one.

Modules want CAP_NET_ADMIN, error correction wants nothing. Counts that the driver also has in
`ethtool -S` are left to the source `ethtool`: a fact has one series.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.ethtool_netlink import Fec
from collector.doors.host import Host
from collector.parsing.transceiver import (
    FIRST_LOOK,
    Memory,
    Module,
    Page,
    decode,
    live_pages,
    still_pages,
)
from collector.parsing.transceiver.model import FAULT, LEVELS, NO_LIGHT
from collector.reading.sysfs import list_or_nothing, read_driver_name
from collector.sources import SourceSettings
from collector.tables.ethtool import table_of

CLASS = "sys/class/net"
INTERFACES_MAX = 64
"""Interfaces with hardware that are asked; virtual functions have no module of their own."""
PAGES_MAX = 16
"""Pieces of one module's names and limits: a CMIS module with all its diagnostics has eight."""
STILL_SECONDS = 600
"""How long names and limits are believed: a module that was swapped is known after that, or at
once where a read fails meanwhile."""

SERIES_MAX = 1024
"""Series of one interface that are kept: a module has up to some 200."""

PREFIX = "fabric_nic_module"
PER_LANE = (
    ("receive_watts", f"{PREFIX}_receive_power_watts"),
    ("transmit_watts", f"{PREFIX}_transmit_power_watts"),
    ("bias_amperes", f"{PREFIX}_bias_amperes"),
)
LIMITS = {
    "temperature": f"{PREFIX}_temperature_limit_celsius",
    "supply": f"{PREFIX}_supply_limit_volts",
    "receive_power": f"{PREFIX}_receive_power_limit_watts",
    "transmit_power": f"{PREFIX}_transmit_power_limit_watts",
    "bias": f"{PREFIX}_bias_limit_amperes",
}
SEEN = {
    "snr": f"{PREFIX}_signal_to_noise_ratio",
    "pre_fec_ber": f"{PREFIX}_pre_fec_bit_error_ratio",
}
FEC_BLOCKS = "fabric_nic_phy_receive_fec_blocks_total"
FEC_COUNTS = {
    "corrected_blocks": "fabric_nic_phy_receive_fec_corrected_blocks_total",
    "uncorrectable_blocks": "fabric_nic_phy_receive_fec_uncorrectable_blocks_total",
    "corrected_bits": "fabric_nic_phy_receive_corrected_bits_total",
}


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `modules`."""

    interval_seconds: float = 60.0
    """Light and heat change over minutes, and each read stops other changes of network settings
    for milliseconds."""
    timeout_seconds: float = 10.0
    round_seconds: float = 2.0
    """After so long no further module is read in this round; a piece takes some 10 ms."""
    exclude: tuple[str, ...] = ()
    """Interfaces to leave alone, as shell patterns."""


class Interface:
    """One interface: the names and limits of its module, and when they were read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._labels = {"device": name}
        self._memory = Memory()
        self._still_until_ns = 0
        self._in_driver: frozenset[str] | None = None
        """Metrics that the source `ethtool` reads of its driver."""
        self._made: dict[tuple[str, ...], Series] = {}

    def _series(self, metric: str, **labels: str) -> Series:
        """The series of this interface with these labels, made once."""
        key = (metric, *labels.values())
        series = self._made.get(key)
        if series is None:
            if len(self._made) >= SERIES_MAX:
                self._made.clear()  # modules were swapped many times
            series = self._made[key] = Series(metric, self._labels | labels)
        return series

    # The module ------------------------------------------------------------------------------

    def read_module(self, host: Host) -> Iterator[Reading]:
        """Readings of the module, or one absence with its reason."""
        try:
            if host.monotonic_ns() >= self._still_until_ns:
                self._memory = read_still(host, self.name)
                self._still_until_ns = host.monotonic_ns() + STILL_SECONDS * NS
            for page in live_pages(self._memory):
                self._memory.put(page, read_piece(host, self.name, page))
        except HostError as error:
            self._still_until_ns = 0  # it may have been pulled: look again from the start
            yield Missing(self._series(f"{PREFIX}_info"), error.reason, error.detail)
            return
        module = decode(self._memory)
        if module is None:
            kind = self._memory.byte(0, 0)
            yield Missing(
                self._series(f"{PREFIX}_info"),
                UnreadReason.NOT_SUPPORTED if kind is not None else UnreadReason.UNPARSEABLE,
                "its memory is empty" if kind is None else f"kind 0x{kind:02x} of SFF-8024",
            )
            return
        yield from self._show(module, host.now_ns())

    def _show(self, module: Module, time_ns: int) -> Iterator[Reading]:
        names = self._series(
            f"{PREFIX}_info",
            kind=module.kind,
            standard=module.standard,
            vendor=module.vendor,
            part=module.part,
            revision=module.revision,
            serial=module.serial,
            firmware=module.firmware,
        )
        yield Sample(names, 1, time_ns)
        if module.temperature_celsius is not None:
            temperature = self._series(f"{PREFIX}_temperature_celsius")
            yield Sample(temperature, module.temperature_celsius, time_ns)
            yield from self._show_absent(module)
        if module.supply_volts is not None:
            yield Sample(self._series(f"{PREFIX}_supply_volts"), module.supply_volts, time_ns)
        for lane in module.lanes:
            for field, metric in PER_LANE:
                if (reading := getattr(lane, field)) is not None:
                    yield Sample(self._series(metric, lane=str(lane.number)), reading, time_ns)
        for what, limits in module.limits.items():
            for level, value in zip(LEVELS, limits, strict=True):
                yield Sample(self._series(LIMITS[what], level=level), value, time_ns)
        for what, raised in module.raised.items():
            levels = ("alarm",) if what in {NO_LIGHT, FAULT} else ("alarm", "warning")
            for level, count in zip(levels, raised, strict=False):
                series = self._series(f"{PREFIX}_alarms", reading=what, level=level)
                yield Sample(series, count, time_ns)
        seen = {
            self._series(SEEN[one.what], side=one.side, lane=str(one.lane)): one.value
            for one in module.seen
        }
        yield from (Sample(series, value, time_ns) for series, value in seen.items())

    def _show_absent(self, module: Module) -> Iterator[Missing]:
        """What a module with lasers should have, and does not show."""
        for metric, is_there in (
            (f"{PREFIX}_receive_power_watts", module.lanes),
            (LIMITS["temperature"], module.limits),
        ):
            if not is_there:
                detail = "the module does not give that page"
                yield Missing(self._series(metric), UnreadReason.NOT_SUPPORTED, detail)

    # Error correction --------------------------------------------------------------------------

    def read_fec(self, host: Host) -> Iterator[Reading]:
        try:
            fec = host.fec(self.name)
        except HostError as error:
            yield Missing(self._series("fabric_nic_fec_info"), error.reason, error.detail)
            return
        if self._in_driver is None:
            table = table_of(read_driver_name(host, f"{CLASS}/{self.name}"))
            self._in_driver = frozenset(row.metric for row in table.rows.values())
        yield from self._show_fec(fec, self._in_driver, host.now_ns())

    def _show_fec(self, fec: Fec, in_driver: frozenset[str], time_ns: int) -> Iterator[Reading]:
        if fec.mode:
            yield Sample(self._series("fabric_nic_fec_info", mode=fec.mode), 1, time_ns)
        for field, metric in FEC_COUNTS.items():
            if metric not in in_driver and (count := getattr(fec, field)) is not None:
                yield Sample(self._series(metric), count, time_ns)
        bins = {
            self._series(FEC_BLOCKS, symbol_errors=range_name(one.low, one.high)): one.blocks
            for one in fec.bins
        }
        yield from (Sample(series, blocks, time_ns) for series, blocks in bins.items())


def range_name(low: int, high: int) -> str:
    """As `fabric_port_receive_fec_blocks_total` of switches has it, where a bin is one number.

    >>> range_name(3, 3), range_name(4, 7)
    ('3', '4-7')
    """
    return str(low) if low == high else f"{low}-{high}"


class Modules:
    """The source; it remembers the names of modules, and whose turn it is."""

    name: ClassVar[str] = "modules"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._interfaces: dict[str, Interface] = {}
        self._next = ""
        """The interface that the last round had no time for."""

    def read(self, host: Host) -> Iterator[Reading]:
        names = [name for name in self._find(host) if not self._is_excluded(name)]
        known = self._interfaces
        self._interfaces = {name: known.get(name) or Interface(name) for name in names}
        for interface in self._interfaces.values():
            yield from interface.read_fec(host)
        yield from self._read_modules(host, names)

    def _read_modules(self, host: Host, names: list[str]) -> Iterator[Reading]:
        first = names.index(self._next) if self._next in names else 0
        until_ns = host.monotonic_ns() + round(self._settings.round_seconds * NS)
        self._next = ""
        for name in (*names[first:], *names[:first]):
            if self._next or host.monotonic_ns() >= until_ns:
                self._next = self._next or name
                series = Series(f"{PREFIX}_info", {"device": name})
                detail = f"the round took longer than {self._settings.round_seconds:g} s"
                yield Missing(series, UnreadReason.TIMEOUT, detail)
            else:
                yield from self._interfaces[name].read_module(host)

    def _find(self, host: Host) -> list[str]:
        """Interfaces with hardware of their own; a virtual function shares its parent's module."""
        found = [
            name
            for name in list_or_nothing(host, CLASS)
            if host.exists(f"{CLASS}/{name}/device")
            and not host.exists(f"{CLASS}/{name}/device/physfn")
        ]
        return found[:INTERFACES_MAX]

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self._settings.exclude)


SOURCE = Modules


def read_still(host: Host, interface: str) -> Memory:
    """Names, limits and abilities; a page that the module refuses is left out."""
    memory = Memory()
    memory.put(FIRST_LOOK, host.module_piece(interface, FIRST_LOOK))
    for _ in range(PAGES_MAX):
        page = next((one for one in still_pages(memory) if not memory.has(one)), None)
        if page is None:
            break
        memory.put(page, read_piece(host, interface, page))
    return memory


def read_piece(host: Host, interface: str, page: Page) -> bytes:
    """A piece of the memory; nothing where the module has no such page: the others stand."""
    try:
        return host.module_piece(interface, page)
    except HostError as error:
        if error.reason is not UnreadReason.NOT_SUPPORTED:
            raise
        return b""
