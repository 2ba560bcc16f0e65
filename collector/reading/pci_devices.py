"""Which NIC, GPU or disk is behind a PCI address, a network device or an RDMA device, by sysfs.

A device that has failed may vanish from sysfs: what was seen once is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from collector.contract.units import NS
from collector.doors.host import Host
from collector.reading.sysfs import list_or_nothing, read_pci_path

LOOK_SECONDS = 60
"""How long a look at sysfs is believed; after it, a look follows before the next question."""
THINGS_MAX = 512
"""NICs, GPUs and disks that are remembered: a host with hundreds of virtual functions has these."""
DOMAIN_DIGITS = 4
"""Of an address in sysfs; some drivers write eight."""

RDMA_CLASS, NET_CLASS, DISK_CLASS = "sys/class/infiniband", "sys/class/net", "sys/class/nvme"
GPUS = "proc/driver/nvidia/gpus"
PCI_BUS = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")


class Thing(NamedTuple):
    """A device on the PCI bus, by the labels that all other readings of it carry."""

    labels: Mapping[str, str]
    """`device` of a NIC (RDMA name, or else its network device) or disk; `gpu` of a GPU."""
    path: tuple[str, ...]
    """PCI addresses from the root to it; the last one is its own."""
    netdev: str = ""


class PciDevices:
    """What was seen on the bus of this host."""

    def __init__(self) -> None:
        self._by_address: dict[str, Thing] = {}
        self._by_unit: dict[str, Thing] = {}
        self._look_ns: int | None = None

    def at(self, host: Host, address: str) -> Thing | None:
        """The thing at an address, or the only one behind a bridge with that address."""
        self._look(host)
        address = normal_address(address)
        if address in self._by_address:
            return self._by_address[address]
        behind = [thing for thing in self._by_address.values() if address in thing.path]
        return behind[0] if address and len(behind) == 1 else None

    def named(self, host: Host, unit: str) -> Thing | None:
        """The thing of this network device, RDMA device or disk."""
        self._look(host)
        return self._by_unit.get(unit)

    def _look(self, host: Host) -> None:
        now_ns = host.monotonic_ns()
        if self._look_ns is not None and now_ns < self._look_ns:
            return
        self._look_ns = now_ns + LOOK_SECONDS * NS
        netdevs = {name: path for name in list_or_nothing(host, NET_CLASS)
                   if (path := find_path(host, NET_CLASS, name))}  # fmt: skip
        first_of = {path[-1]: name for name, path in reversed(netdevs.items())}
        for name in list_or_nothing(host, RDMA_CLASS):
            if path := find_path(host, RDMA_CLASS, name):
                thing = Thing({"device": name}, path, first_of.get(path[-1], ""))
                self._remember(thing, name, thing.netdev)
        for name, path in netdevs.items():
            known = self._by_address.get(path[-1])
            thing = known if known is not None else Thing({"device": name}, path, name)
            self._remember(thing, name)
        for name in list_or_nothing(host, DISK_CLASS):
            if path := find_path(host, DISK_CLASS, name):
                self._remember(Thing({"device": name}, path), name)
        for index, address in enumerate(list_or_nothing(host, GPUS)):
            own = normal_address(address)
            path = tuple(read_pci_path(host, f"{PCI_BUS}/{own}").split("/"))
            self._remember(Thing({"gpu": str(index)}, path if path[-1] == own else (own,)))

    def _remember(self, thing: Thing, *units: str) -> None:
        address = thing.path[-1]
        if address not in self._by_address and len(self._by_address) >= THINGS_MAX:
            return
        self._by_address[address] = thing
        self._by_unit |= dict.fromkeys(filter(None, units), thing)


def find_path(host: Host, folder: str, name: str) -> tuple[str, ...]:
    """The PCI addresses on the way to a device of a class; empty for what is not on that bus."""
    for link in (f"{folder}/{name}", f"{folder}/{name}/device"):
        if path := read_pci_path(host, link):
            return tuple(path.split("/"))
    return ()


def normal_address(address: str) -> str:
    """An address as sysfs writes it; empty for what is none.

    >>> normal_address("00000000:3B:00.0"), normal_address("0000:5d:00"), normal_address("n5")
    ('0000:3b:00.0', '0000:5d:00.0', '')
    """
    found = _ADDRESS.fullmatch(address.lower())
    if found is None:
        return ""
    domain = found[1][-DOMAIN_DIGITS:] if not found[1][:-DOMAIN_DIGITS].strip("0") else found[1]
    return f"{domain}:{found[2]}:{found[3]}.{found[4] or '0'}"
