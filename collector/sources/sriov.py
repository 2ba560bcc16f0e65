"""Virtual functions of NICs: who has which, what passes through each, and what it may send.

A physical function is an interface whose `sriov_totalvfs` is not 0; the kernel is asked about its
functions only while `sriov_numvfs` is not 0 either. Bytes are those that the driver counts for a
function (`ip -s link show`): a driver that does not count shows zeros, and of an interface whose
functions all stand at zero they are missing. In the switch mode of a NIC a function's bytes are
those of its representor, which `netdev` and `ethtool` read, in the other direction: `representor`
names it.

A function whose interface or RDMA device was moved into a container's network namespace has none
here. Its bytes are still counted, and `rdma_resources` tells whose it is where the RDMA device
stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.doors.virtual_functions import VirtualFunction
from collector.reading.kept_series import KeptSeries
from collector.reading.sysfs import list_or_nothing, read_label
from collector.sources import SourceSettings

NET_CLASS = "sys/class/net"
PHYSICAL_MAX = 32
"""Interfaces with functions of one host; eight NICs of two ports are 16."""
FUNCTIONS_MAX = 256
"""Of a host."""
NUMBER_DIGITS_MAX = 5

POSSIBLE, CONFIGURED = "fabric_function_possible", "fabric_function_configured"
INFO = "fabric_function_info"
RATE_MOST = "fabric_function_rate_limit_bits_per_second"
RATE_LEAST = "fabric_function_rate_promised_bits_per_second"
LEFT_OUT = "fabric_function_left_out"
COUNTS = (
    ("received_packets", "fabric_function_received_packets_total"),
    ("sent_packets", "fabric_function_transmitted_packets_total"),
    ("received_bytes", "fabric_function_received_bytes_total"),
    ("sent_bytes", "fabric_function_transmitted_bytes_total"),
    ("received_dropped", "fabric_function_received_dropped_packets_total"),
    ("sent_dropped", "fabric_function_transmitted_dropped_packets_total"),
)
"""Fields of the kernel's answer, and metrics."""

_REPRESENTOR = re.compile(r"(?:c\d+)?pf(\d{1,3})vf(\d{1,5})")
"""`phys_port_name` of a representor (Documentation/networking/devlink/devlink-port.rst)."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `sriov`."""

    interval_seconds: float = 15.0


class Sriov:
    """The source; it keeps the series of what is there."""

    name: ClassVar[str] = "sriov"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._kept = KeptSeries()
        self._left_out = Series(LEFT_OUT)

    def read(self, host: Host) -> Iterator[Reading]:
        self._kept.begin_read()
        physical = list(find_physical(host))
        if not physical:
            return
        lost = max(0, len(physical) - PHYSICAL_MAX)
        representors = find_representors(host) if any(own for _, _, own in physical) else {}
        room = FUNCTIONS_MAX
        for name, possible, configured in physical[:PHYSICAL_MAX]:
            time_ns = host.now_ns()
            yield Sample(self._kept.find(POSSIBLE, device=name), possible, time_ns)
            yield Sample(self._kept.find(CONFIGURED, device=name), configured, time_ns)
            if not configured:
                continue
            try:
                functions = host.virtual_functions(name)
            except HostError as error:
                yield Missing(self._kept.find(INFO, device=name), error.reason, error.detail)
                continue
            lost += max(0, max(configured, len(functions)) - min(room, len(functions)))
            yield from self._functions(host, name, functions[:room], representors)
            room -= min(room, len(functions))
        yield Sample(self._left_out, lost, host.now_ns())

    def _functions(
        self,
        host: Host,
        name: str,
        functions: Sequence[VirtualFunction],
        representors: dict[tuple[str, int], str],
    ) -> Iterator[Reading]:
        counts_at_all = any(any(one.counts) for one in functions if one.counts is not None)
        switch = read_switch(host, name)
        for one in functions:
            time_ns, labels = host.now_ns(), {"device": name, "vf": str(one.number)}
            shown = {
                **read_names(host, name, one.number),
                "representor": representors.get((switch, one.number), ""),
                "link": one.link,
                "trusted": "yes" if one.is_trusted else "no",
            }
            yield Sample(self._kept.find(INFO, **labels, **shown), 1, time_ns)
            for metric, bits in ((RATE_MOST, one.rate_most), (RATE_LEAST, one.rate_least)):
                if bits:
                    yield Sample(self._kept.find(metric, **labels), bits, time_ns)
            for field, metric in COUNTS:
                series = self._kept.find(metric, **labels)
                if counts_at_all and one.counts is not None:
                    yield Sample(series, getattr(one.counts, field), time_ns)
                else:
                    detail = "the driver counts nothing for this interface's functions"
                    yield Missing(series, UnreadReason.NOT_SUPPORTED, detail)


SOURCE = Sriov


def find_physical(host: Host) -> Iterator[tuple[str, int, int]]:
    """Interfaces that can have functions, how many, and how many they have."""
    for name in list_or_nothing(host, NET_CLASS):
        path = f"{NET_CLASS}/{name}"
        # A representor has the same `device` as its physical function; it is not asked again.
        if _REPRESENTOR.fullmatch(read_label(host, f"{path}/phys_port_name")):
            continue
        possible = read_number(host, f"{path}/device/sriov_totalvfs")
        if possible:
            yield name, possible, read_number(host, f"{path}/device/sriov_numvfs")


def find_representors(host: Host) -> dict[tuple[str, int], str]:
    """Interfaces that stand for a function in a NIC's own switch, by that and its number.

    Two physical functions behind one switch have functions of the same numbers: the first part of
    the key then holds both.
    """
    found: dict[tuple[str, int], str] = {}
    for name in list_or_nothing(host, NET_CLASS):
        port = _REPRESENTOR.fullmatch(read_label(host, f"{NET_CLASS}/{name}/phys_port_name"))
        switch = read_label(host, f"{NET_CLASS}/{name}/phys_switch_id")
        if port and switch:
            found[f"{switch} pf{port[1]}", int(port[2])] = name
    return found


def read_switch(host: Host, name: str) -> str:
    """The key of an interface's functions among representors; empty where it has none."""
    switch = read_label(host, f"{NET_CLASS}/{name}/phys_switch_id")
    port = read_label(host, f"{NET_CLASS}/{name}/phys_port_name")
    number = re.fullmatch(r"p(\d{1,3})", port)
    return f"{switch} pf{number[1]}" if switch and number else ""


def read_names(host: Host, name: str, number: int) -> dict[str, str]:
    """Address, interface and RDMA device of a function, as far as this namespace sees them."""
    link = f"{NET_CLASS}/{name}/device/virtfn{number}"
    try:
        address = host.link_target(link).rpartition("/")[2]
    except HostError:
        address = ""
    names = {what: list_or_nothing(host, f"{link}/{what}") for what in ("net", "infiniband")}
    return {
        "pci_address": address,
        "interface": names["net"][0] if names["net"] else "",
        "rdma_device": names["infiniband"][0] if names["infiniband"] else "",
    }


def read_number(host: Host, path: str) -> int:
    """A small number in a file; 0 where there is none."""
    text = read_label(host, path)
    return int(text) if text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX else 0
