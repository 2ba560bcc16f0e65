"""The cabling: hosts with their NICs, switches, and every link twice, once a direction.

Everything is numbers and columns, because a cluster of 4,096 hosts has a quarter of a million
directed links. Nodes are numbered in three ranges: the host side of each NIC's PCIe slot, the NICs,
the switches. Links begin with four ranges of one per NIC (`pcie_out`, `pcie_in`, `up`, `down`), and
links between switches follow. A *port* is named by the link that leaves it: port ``l`` sends over
link ``l`` and receives over link ``reverse[l]``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Nics = TypeVar("Nics", int, Ints)
"""One NIC, or many at once."""

HOPS_MAX = 8
"""Links of the longest path: PCIe, NIC, three tiers up and down, NIC, PCIe. Shorter ones end in
NO_LINK."""
NO_LINK = -1

NIC_ADDRESSES = 0x02_00_00_00_00_00
"""The first MAC of NICs, one each. The 2 means "locally administered": no maker owns it."""
SWITCH_ADDRESSES = 0x02_00_01_00_00_00
"""The first MAC of switches: each has `ADDRESSES_PER_SWITCH`, its own and then its ports'."""
ADDRESSES_PER_SWITCH = 256

SONIC_PORT, SONIC_STEP = "Ethernet{number}", 4
"""Port names of Ethernet switches, unless a scenario names another maker: the number of the first
of the four lanes, from 0."""


class Fabric(enum.StrEnum):
    """How back-pressure, addresses and counters work."""

    INFINIBAND = "infiniband"
    ROCE = "roce"


class LinkKind(enum.IntEnum):
    """Where a directed link stands, in the order of a path."""

    PCIE_OUT = 0
    PCIE_IN = 1
    UP = 2
    DOWN = 3
    FABRIC_UP = 4
    FABRIC_DOWN = 5
    LOCAL = 6
    """Between two routers of one dragonfly group."""
    GLOBAL = 7


@dataclass(frozen=True)
class Speed:
    """One generation of ports: its name as drivers print it, lanes, and bits a second in all."""

    name: str
    lanes: int
    bits_per_second: float


SPEEDS = {
    "EDR": Speed("EDR", 4, 100e9),
    "HDR": Speed("HDR", 4, 200e9),
    "NDR": Speed("NDR", 4, 400e9),
    "XDR": Speed("XDR", 4, 800e9),
    "10GbE": Speed("10GbE", 1, 10e9),
    "100GbE": Speed("100GbE", 4, 100e9),
    "200GbE": Speed("200GbE", 4, 200e9),
    "400GbE": Speed("400GbE", 8, 400e9),
    "800GbE": Speed("800GbE", 8, 800e9),
}
"""InfiniBand's first, then Ethernet's."""


@dataclass(frozen=True)
class Switch:
    """One switch: its name and its tier (0 is the tier that hosts hang on)."""

    name: str
    tier: int
    rail: int | None = None
    pod: int | None = None


@dataclass(frozen=True, eq=False)
class Topology:
    """A cabled cluster. Columns of links have one value for each directed link."""

    name: str
    fabric: Fabric
    speed: Speed
    """Of NICs' ports."""
    hosts: int
    gpus_per_host: int
    nics_per_host: int
    switches: tuple[Switch, ...]
    source: Ints
    target: Ints
    reverse: Ints
    """The other direction of the same cable, or PCIe slot."""
    kind: NDArray[np.int8]
    bits_per_second: Floats
    """As built; `World` holds what faults leave of it."""
    port: Ints
    """Number of the port at ``source``: from 1 on a switch, 1 on a NIC, 0 for PCIe."""

    @property
    def nics(self) -> int:
        """The number of NICs; NIC ``host * nics_per_host + i`` is the host's ``i``-th."""
        return self.hosts * self.nics_per_host

    @property
    def gpus(self) -> int:
        """The number of GPUs, numbered as NICs are."""
        return self.hosts * self.gpus_per_host

    @property
    def links(self) -> int:
        return len(self.source)

    def pcie_out(self, nic: Nics) -> Nics:
        """The link from host memory into this NIC."""
        return nic

    def pcie_in(self, nic: Nics) -> Nics:
        """The link from this NIC into host memory."""
        return self.nics + nic

    def up(self, nic: Nics) -> Nics:
        """The link from this NIC to its leaf: it also names the NIC's port."""
        return 2 * self.nics + nic

    def down(self, nic: Nics) -> Nics:
        """The link from the leaf to this NIC: it also names the leaf's port."""
        return 3 * self.nics + nic

    @property
    def first_fabric_link(self) -> int:
        """Links from here on are between switches."""
        return 4 * self.nics

    @cached_property
    def source_switch(self) -> Ints:
        return np.maximum(self.source - 2 * self.nics, -1).astype(np.int32)

    @cached_property
    def target_switch(self) -> Ints:
        return np.maximum(self.target - 2 * self.nics, -1).astype(np.int32)

    # Names -----------------------------------------------------------------------------------

    def host_name(self, host: int) -> str:
        """As `hostname` prints it."""
        return f"node{host:04d}"

    def device_name(self, nic: int) -> str:
        """As in `/sys/class/infiniband`."""
        return f"mlx5_{nic % self.nics_per_host}"

    def interface_name(self, nic: int) -> str:
        """As in `/sys/class/net`."""
        kind = "ib" if self.fabric is Fabric.INFINIBAND else "eth"
        return f"{kind}{nic % self.nics_per_host}"

    def host_of_nic(self, nic: int) -> int:
        return nic // self.nics_per_host

    def port_name(self, link: int) -> str:
        """Both names of the port that a link leaves: `node0003/mlx5_1` or `leaf-2/Ethernet64`."""
        node = int(self.source[link])
        if node >= 2 * self.nics:
            return f"{self.switches[node - 2 * self.nics].name}/{self.switch_port_name(link)}"
        nic = node % self.nics
        return f"{self.host_name(self.host_of_nic(nic))}/{self.device_name(nic)}"

    def switch_port_name(self, link: int) -> str:
        """The switch's own name of the port that a link leaves: a number on InfiniBand."""
        number = int(self.port[link])
        if self.fabric is Fabric.INFINIBAND:
            return str(number)
        return SONIC_PORT.format(number=SONIC_STEP * (number - 1))

    def nic_mac(self, nic: int) -> str:
        """As in `/sys/class/net/…/address` and in a neighbour's LLDP table."""
        return _mac_text(NIC_ADDRESSES + nic)

    def nic_guid(self, nic: int) -> int:
        """The node GUID; as on real NICs it is the MAC with 0x0300 in the middle."""
        return _guid(NIC_ADDRESSES + nic)

    def switch_mac(self, switch: int, port: int = 0) -> str:
        """Of a switch's port; of the switch itself without one."""
        return _mac_text(SWITCH_ADDRESSES + switch * ADDRESSES_PER_SWITCH + port)

    def switch_guid(self, switch: int) -> int:
        return _guid(SWITCH_ADDRESSES + switch * ADDRESSES_PER_SWITCH)


def _mac_text(address: int) -> str:
    """Six bytes as drivers print them."""
    return address.to_bytes(6, "big").hex(":")


def _guid(address: int) -> int:
    """Eight bytes from six: maker, 0x0300, number."""
    maker, number = divmod(address, 1 << 24)
    return maker << 40 | 0x0300 << 24 | number
