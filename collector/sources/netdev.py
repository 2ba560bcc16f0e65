"""Network interfaces: traffic, errors and link state from `/sys/class/net`.

Not from `/proc/net/dev`: that file computes the numbers of every interface at each read, and a host
that runs containers has hundreds of virtual ones; it also adds `rx_missed_errors` to the drops, and
one file cannot show which of its numbers is missing.

RDMA traffic bypasses the kernel and is *not* in these numbers: see `ib_sysfs` and `ethtool`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import ClassVar, NamedTuple

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.reading.sysfs import explain, read_driver_name, read_label
from collector.sources import SourceSettings

CLASS = "sys/class/net"

DISCOVER_SECONDS = 60
"""How long labels and the choice of interfaces are believed; new interfaces are seen at once."""
MEGABIT = 1_000_000

STATISTICS: dict[str, str] = {
    # Documentation/ABI/testing/sysfs-class-net-statistics: 64 bits each.
    "statistics/rx_bytes": "fabric_nic_receive_bytes_total",
    "statistics/tx_bytes": "fabric_nic_transmit_bytes_total",
    "statistics/rx_packets": "fabric_nic_receive_packets_total",
    "statistics/tx_packets": "fabric_nic_transmit_packets_total",
    "statistics/rx_errors": "fabric_nic_receive_errors_total",
    "statistics/tx_errors": "fabric_nic_transmit_errors_total",
    "statistics/rx_dropped": "fabric_nic_receive_drops_total",
    "statistics/tx_dropped": "fabric_nic_transmit_drops_total",
    "statistics/rx_missed_errors": "fabric_nic_receive_missed_total",
    "statistics/rx_fifo_errors": "fabric_nic_receive_fifo_errors_total",
    "statistics/tx_carrier_errors": "fabric_nic_transmit_carrier_errors_total",
    "statistics/multicast": "fabric_nic_receive_multicast_packets_total",
    "carrier_changes": "fabric_nic_carrier_changes_total",
    "mtu": "fabric_nic_mtu_bytes",
}

OPERSTATES = {"up": 1, "down": 0, "lowerlayerdown": 0, "dormant": 0, "notpresent": 0, "testing": 0}
"""RFC 2863. `unknown` is left out: the driver does not report it."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `netdev`."""

    include: tuple[str, ...] = ()
    """Interfaces without hardware to read as well (bonds, bridges, VLANs), as shell patterns."""
    exclude: tuple[str, ...] = ()
    """Interfaces to leave alone, as shell patterns; wins over ``include``."""


class Interface(NamedTuple):
    """What discovery found out about one interface."""

    path: str
    info: Series
    up: Series
    speed: Series
    paths: list[str]
    """The files of STATISTICS, in the order of ``numbers``."""
    numbers: list[Series]


class NetDev:
    """The source; it keeps its series between reads."""

    name: ClassVar[str] = "netdev"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._names: list[str] = []
        self._interfaces: list[Interface] = []
        self._discover_ns = 0

    def read(self, host: Host) -> Iterator[Reading]:
        try:
            names = host.list(CLASS)
        except HostError as error:
            if error.reason is UnreadReason.ABSENT:
                return
            raise
        if names != self._names or host.monotonic_ns() >= self._discover_ns:
            chosen = [name for name in names if self._is_chosen(host, name)]
            self._interfaces = [self._describe(host, name) for name in chosen]
            self._names = names
            self._discover_ns = host.monotonic_ns() + DISCOVER_SECONDS * 1_000_000_000
        for interface in self._interfaces:
            yield from read_interface(host, interface)

    def _describe(self, host: Host, name: str) -> Interface:
        """The interface, with the series it had before unless something about it changed."""
        new = describe_interface(host, name)
        return next((old for old in self._interfaces if old.info == new.info), new)

    def _is_chosen(self, host: Host, name: str) -> bool:
        if any(fnmatch(name, pattern) for pattern in self._settings.exclude):
            return False
        # Only an interface with hardware behind it has this link.
        return host.exists(f"{CLASS}/{name}/device") or any(
            fnmatch(name, pattern) for pattern in self._settings.include
        )


SOURCE = NetDev


def describe_interface(host: Host, name: str) -> Interface:
    path, labels = f"{CLASS}/{name}", {"device": name}
    facts = {"address": read_label(host, f"{path}/address"), "driver": read_driver_name(host, path)}
    return Interface(
        path=path,
        info=Series("fabric_nic_info", labels | facts),
        up=Series("fabric_nic_up", labels),
        speed=Series("fabric_nic_speed_bits_per_second", labels),
        paths=[f"{path}/{file}" for file in STATISTICS],
        numbers=[Series(metric, labels) for metric in STATISTICS.values()],
    )


def read_interface(host: Host, interface: Interface) -> Iterator[Reading]:
    time_ns = host.now_ns()
    yield Sample(interface.info, 1, time_ns)
    texts = host.reread_all(interface.paths)
    for text, series in zip(texts, interface.numbers, strict=True):
        yield parse_number(text, series, time_ns)
    up = read_up(host, interface, time_ns)
    yield up
    if isinstance(up, Sample) and not up.value:
        # The kernel answers EINVAL for the speed of a link that is down; asking would make the
        # host believe for minutes that this interface never has one.
        yield Missing(interface.speed, UnreadReason.NOT_SUPPORTED, "the link is down")
    else:
        yield read_speed(host, interface, time_ns)


def parse_number(text: bytes | HostError, series: Series, time_ns: int) -> Reading:
    """The whole number that a file holds, which is never negative."""
    if isinstance(text, HostError):
        return Missing(series, text.reason, text.detail)
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        return explain(series, text)
    return Sample(series, number, time_ns)


def read_up(host: Host, interface: Interface, time_ns: int) -> Sample | Missing:
    try:
        text = host.reread(f"{interface.path}/operstate")
    except HostError as error:
        return Missing(interface.up, error.reason, error.detail)
    state = text.decode("utf-8", "replace").strip()
    if state == "unknown":
        return Missing(interface.up, UnreadReason.NOT_SUPPORTED, "the driver does not report it")
    if state not in OPERSTATES:
        return explain(interface.up, text)
    return Sample(interface.up, OPERSTATES[state], time_ns)


def read_speed(host: Host, interface: Interface, time_ns: int) -> Reading:
    """The speed in bits per second; the file holds megabits, or -1 where there is none (virtio)."""
    text = b""
    try:
        text = host.reread(f"{interface.path}/speed")
        megabits = int(text)
    except HostError as error:
        return Missing(interface.speed, error.reason, error.detail)
    except ValueError:
        return explain(interface.speed, text)
    if megabits == -1:
        return Missing(
            interface.speed, UnreadReason.NOT_SUPPORTED, "the driver reports -1: unknown"
        )
    if not 0 < megabits < 1 << 32:
        return explain(interface.speed, text)
    return Sample(interface.speed, megabits * MEGABIT, time_ns)
