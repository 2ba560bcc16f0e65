"""The fabric side of hosts as files: sysfs of RDMA devices and interfaces, and ``ethtool``.

An agent with ``--root`` reads the files below ``<folder>/<hostname>/``, laid out as by the kernel:
devices live in the PCI tree, and `/sys/class` holds links to them, so that a reader can find the
GPU nearest to a NIC.

An agent holds counter files open and reads them again and again. So a file is never replaced, only
overwritten in place: in one call, padded with newlines to the old length, and cut to size
afterwards. A reader in between sees the new number with empty lines behind it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.interfaces.columns import (
    DOWN_SPEEDS,
    PHYSICAL_DISABLED,
    PHYSICAL_POLLING,
    PHYSICAL_UP,
    PORT_ACTIVE,
    PORT_DOWN,
    ethtool_columns,
    hca_columns,
    netdev_columns,
    port_columns,
    port_speed,
)
from simulator.snapshot import Counts, Snapshot
from simulator.topology.build import pcie_slot
from simulator.topology.model import Fabric, Topology

STATES = {PORT_ACTIVE: "4: ACTIVE", PORT_DOWN: "1: DOWN"}
PHYSICAL_STATES = {
    PHYSICAL_UP: "5: LinkUp",
    PHYSICAL_DISABLED: "3: Disabled",
    PHYSICAL_POLLING: "2: Polling",
}
LINK_LAYERS = {Fabric.INFINIBAND: "InfiniBand", Fabric.ROCE: "Ethernet"}
GID_TYPES = ("IB/RoCE v1", "RoCE v2")
"""Entries of a RoCE port's GID table, each for the port's own address."""
MTU_BYTES = {Fabric.INFINIBAND: 4092, Fabric.ROCE: 9000}
HARDWARE_TYPES = {Fabric.INFINIBAND: 32, Fabric.ROCE: 1}
"""ARPHRD_INFINIBAND and ARPHRD_ETHER."""
PCI_CLASSES = {Fabric.INFINIBAND: "0x020700", Fabric.ROCE: "0x020000"}

KERNEL_DRIVER = "mlx5_core"
DRIVER_NAMES = {Fabric.INFINIBAND: "mlx5_core[ib_ipoib]", Fabric.ROCE: KERNEL_DRIVER}
"""Driver names in ``ethtool -i``; InfiniBand's interfaces have mlx5's own."""
KERNEL_VERSION = "6.8.0"
NUMA_NODES = 2
"""Sockets of a host; the first half of its slots is on the first."""

SLOTS_PER_DOMAIN = 8
FIRST_BUS, BUSES_PER_SLOT = 0x15, 24
"""One root port for each GPU and its NIC, so many bus numbers apart."""

STATISTIC_BYTES = 64
"""Of one line of ``ethtool -S``, filled up with spaces. It divides a page, so a text that is read
while it is written may be partly of this tick and partly of the last, but each number is one."""
DIGITS = 20


# Identities ---------------------------------------------------------------------------------------


class NicModel(NamedTuple):
    """Hardware identity as the driver reports it."""

    bits_per_second: float
    hca_type: str
    board: str
    firmware: str
    pci_device: str


NIC_MODELS = (
    NicModel(10e9, "MT4117", "MT_2420110034", "14.32.1900", "0x1015"),
    NicModel(100e9, "MT4119", "MT_0000000013", "16.35.4030", "0x1017"),
    NicModel(200e9, "MT4123", "MT_0000000224", "20.43.2026", "0x101b"),
    NicModel(400e9, "MT4129", "MT_0000000838", "28.43.2026", "0x1021"),
    NicModel(800e9, "MT4131", "MT_0000001069", "40.44.1036", "0x1023"),
)


def nic_model(topology: Topology) -> NicModel:
    """The oldest NIC that has the topology's ports."""
    wanted = topology.speed.bits_per_second
    return next((model for model in NIC_MODELS if model.bits_per_second >= wanted), NIC_MODELS[-1])


def guid_text(guid: int) -> str:
    """Eight bytes as sysfs prints them.

    >>> guid_text(0x0200000300000001)
    '0200:0003:0000:0001'
    """
    return guid.to_bytes(8, "big").hex(":", 2)


def interface_address(topology: Topology, nic: int) -> str:
    """A MAC; on InfiniBand twenty bytes: queue pair, subnet prefix, GUID."""
    if topology.fabric is Fabric.ROCE:
        return topology.nic_mac(nic)
    guid = topology.nic_guid(nic).to_bytes(8, "big").hex(":")
    return f"00:00:01:07:fe:80:00:00:00:00:00:00:{guid}"


def nic_pci_path(index: int) -> str:
    """The way through the PCI tree to a host's NIC: root, port, switch, port of it, NIC.

    >>> nic_pci_path(0)
    'pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0'
    """
    return _pci_path(index, port=0)


def gpu_pci_path(index: int) -> str:
    """To a host's GPU, which is behind the same switch as the NIC with its number.

    >>> gpu_pci_path(0)
    'pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0'
    """
    return _pci_path(index, port=1)


def _pci_path(index: int, port: int) -> str:
    number, slot = divmod(index, SLOTS_PER_DOMAIN)
    domain, bus = f"{number:04x}", FIRST_BUS + BUSES_PER_SLOT * slot
    hops = ((bus, 1), (bus + 1, 0), (bus + 2, port), (bus + 3 + port, 0))
    path = "/".join(f"{domain}:{each:02x}:{device:02x}.0" for each, device in hops)
    return f"pci{domain}:{bus:02x}/{path}"


def numa_node(index: int, devices: int) -> int:
    return index * NUMA_NODES // max(devices, 1)


def boot_id(topology: Topology, host: int, boot_unix_ns: int) -> str:
    """Changes whenever the host boots, as a random UUID would; the same in every run."""
    seed = f"{topology.name}/{host}/{boot_unix_ns}".encode()
    digits = blake2b(seed, digest_size=16).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def driver_text(topology: Topology, nic: int) -> str:
    model = nic_model(topology)
    address = nic_pci_path(nic % topology.nics_per_host).rpartition("/")[2]
    lines = {
        "driver": DRIVER_NAMES[topology.fabric],
        "version": KERNEL_VERSION,
        "firmware-version": f"{model.firmware} ({model.board})",
        "expansion-rom-version": "",
        "bus-info": address,
        "supports-statistics": "yes",
    }
    return "\n".join(f"{name}: {value}" for name, value in lines.items())


# Files --------------------------------------------------------------------------------------------


def write_new(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(handle, text.encode() + b"\n")
    finally:
        os.close(handle)


def write_over(path: str, text: bytes, length_before: int) -> None:
    """Overwrite a file's text so that no reader ever finds a part of it."""
    handle = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(handle, text.ljust(length_before, b"\n"), 0)
        if length_before > len(text):
            os.ftruncate(handle, len(text))
    finally:
        os.close(handle)


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Texts by path below a folder, which is created if missing."""
    for parent in sorted({path.rpartition("/")[0] for path in files}):
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        write_new(f"{folder}/{path}", text)


def write_link(path: Path, target: str) -> None:
    """A symbolic link, as written; one that a former run left is the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


# Texts --------------------------------------------------------------------------------------------


def rate_text(topology: Topology, rate: int, lanes: int, *, is_up: bool) -> str:
    """As the kernel prints it: `400 Gb/sec (4X NDR)`."""
    speed = port_speed(topology) if is_up else DOWN_SPEEDS[topology.fabric]
    return f"{round(rate / 1e9, 1):g} Gb/sec ({lanes}X {speed.name})"


def live_texts(snapshot: Snapshot) -> dict[str, list[str]]:
    """Text files below a NIC's PCI folder about its link and slot, NIC by NIC."""
    topology = snapshot.topology
    ports = {name: column.tolist() for name, column in port_columns(snapshot).items()}
    is_up = [state == PORT_ACTIVE for state in ports["state"]]
    slot = pcie_slot(topology.speed)
    widths = np.maximum(np.rint(slot.width * snapshot.world.nic_pcie_share), 1.0)
    rates = zip(ports["rate"], ports["lanes"], is_up, strict=True)
    return {
        "infiniband/{device}/ports/1/state": [STATES[state] for state in ports["state"]],
        "infiniband/{device}/ports/1/phys_state": [
            PHYSICAL_STATES[state] for state in ports["phys_state"]
        ],
        "infiniband/{device}/ports/1/rate": [
            rate_text(topology, rate, lanes, is_up=up) for rate, lanes, up in rates
        ],
        "infiniband/{device}/ports/1/lid": [hex(lid) for lid in ports["lid"]],
        "infiniband/{device}/ports/1/sm_lid": [hex(lid) for lid in ports["sm_lid"]],
        "net/{interface}/operstate": ["up" if up else "down" for up in is_up],
        "net/{interface}/carrier": [str(int(up)) for up in is_up],
        # The kernel refuses to read the speed of a link that is down; older kernels gave -1.
        "net/{interface}/speed": [
            str(rate // 1_000_000 if up else -1)
            for rate, up in zip(ports["rate"], is_up, strict=True)
        ],
        "current_link_width": [str(int(width)) for width in widths],
    }


def still_texts(topology: Topology, nic: int) -> dict[str, str]:
    model, fabric, slot = nic_model(topology), topology.fabric, pcie_slot(topology.speed)
    device, interface = topology.device_name(nic), topology.interface_name(nic)
    host, index = divmod(nic, topology.nics_per_host)
    guid = guid_text(topology.nic_guid(nic))
    transfers = f"{slot.transfers_per_second / 1e9:.1f} GT/s PCIe"
    pci = {
        "vendor": "0x15b3",
        "device": model.pci_device,
        "class": PCI_CLASSES[fabric],
        "numa_node": str(numa_node(index, topology.nics_per_host)),
        "current_link_speed": transfers,
        "max_link_speed": transfers,
        "max_link_width": str(slot.width),
    }
    rdma = {
        "fw_ver": model.firmware,
        "node_guid": guid,
        "sys_image_guid": guid,
        "node_desc": f"{topology.host_name(host)} {device}",
        "node_type": "1: CA",
        "board_id": model.board,
        "hca_type": model.hca_type,
        "hw_rev": "0",
    }
    port = {
        "link_layer": LINK_LAYERS[fabric],
        "lid_mask_count": "0",
        "sm_sl": "0",
        "cap_mask": "0x04010000" if fabric is Fabric.ROCE else "0xa751e848",
        "gids/0": f"fe80:0000:0000:0000:{guid}",
        "pkeys/0": "0xffff",
    }
    if fabric is Fabric.ROCE:
        for number, kind in enumerate(GID_TYPES):
            port[f"gid_attrs/ndevs/{number}"] = interface
            port[f"gid_attrs/types/{number}"] = kind
    netdev = {
        "address": interface_address(topology, nic),
        "mtu": str(MTU_BYTES[fabric]),
        "dev_port": "0",
        "dev_id": "0x0",
        "type": str(HARDWARE_TYPES[fabric]),
        "ifindex": str(index + 2),
    }
    rdma |= {f"ports/1/{name}": text for name, text in port.items()}
    return (
        pci
        | {f"infiniband/{device}/{name}": text for name, text in rdma.items()}
        | {f"net/{interface}/{name}": text for name, text in netdev.items()}
    )


class Statistics:
    """Texts of ``ethtool -S`` of all NICs, of which only digits change."""

    def __init__(self, names: Sequence[str], nics: int) -> None:
        lines = ["NIC statistics:", *(f"     {name}: " for name in names)]
        page = "".join(line.ljust(STATISTIC_BYTES - 1) + "\n" for line in lines)
        self._starts = [len(line) for line in lines[1:]]
        template = np.frombuffer(page.encode(), dtype=np.uint8)
        self._pages = np.tile(template.reshape(1, len(lines), STATISTIC_BYTES), (nics, 1, 1))

    def put(self, row: int, values: Counts) -> None:
        """New numbers of one statistic, for every NIC."""
        digits = values.astype(f"S{DIGITS}").view(np.uint8).reshape(len(values), DIGITS)
        start = self._starts[row]
        self._pages[:, row + 1, start : start + DIGITS] = np.where(digits == 0, ord(" "), digits)

    def text(self, nic: int) -> bytes:
        """The whole text of one NIC, always of the same length."""
        text: bytes = self._pages[nic].tobytes()
        return text


# The tree -----------------------------------------------------------------------------------------


class FabricTree:
    """The fabric side of all hosts below one folder: written once, then kept up to date."""

    def __init__(self, folder: Path, topology: Topology) -> None:
        self._topology = topology
        self._roots = [folder / topology.host_name(host) for host in range(topology.hosts)]
        per_host = topology.nics_per_host
        paths = [nic_pci_path(index) for index in range(per_host)]
        self._folders = [f"{root}/sys/devices/{path}" for root in self._roots for path in paths]
        self._statistics_files = [
            f"{root}/ethtool/{topology.interface_name(index)}/statistics"
            for root in self._roots
            for index in range(per_host)
        ]
        self._number_files: list[str] = []
        """Below a NIC's PCI folder, by row of ``_numbers``."""
        self._numbers: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._ethtool: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._pages = Statistics((), 0)
        self._texts: dict[str, list[str]] = {}
        self._boots: list[int] = []

    # Writing it once -------------------------------------------------------------------------

    def start(self, snapshot: Snapshot) -> None:
        """Write everything, also over files that are already there."""
        topology, per_host = self._topology, self._topology.nics_per_host
        self._numbers = self._number_columns(snapshot)
        self._texts = live_texts(snapshot)
        self._boots = snapshot.hosts.boot_unix_ns.tolist()
        for nic in range(topology.nics):
            self._write_nic(nic)
        for host, root in enumerate(self._roots):
            boot = boot_id(topology, host, self._boots[host])
            write_files(
                root,
                {
                    "proc/sys/kernel/hostname": topology.host_name(host),
                    "proc/sys/kernel/random/boot_id": boot,
                },
            )
            self._write_host_links(root, per_host)
        self._start_ethtool(snapshot)

    def _write_nic(self, nic: int) -> None:
        files = still_texts(self._topology, nic)
        for pattern, texts in self._texts.items():
            files[self._named(pattern, nic)] = texts[nic]
        for row, pattern in enumerate(self._number_files):
            files[self._named(pattern, nic)] = str(self._numbers[row, nic])
        folder = Path(self._folders[nic])
        write_files(folder, files)
        climb = "../" * (len(folder.relative_to(self._root_of(nic)).parts) - 1)
        write_link(folder / "driver", f"{climb}bus/pci/drivers/{KERNEL_DRIVER}")
        for child in ("infiniband/{device}", "net/{interface}"):
            write_link(folder / self._named(child, nic) / "device", f"../../../{folder.name}")

    def _root_of(self, nic: int) -> Path:
        return self._roots[nic // self._topology.nics_per_host]

    def _named(self, pattern: str, nic: int) -> str:
        return pattern.format(
            device=self._topology.device_name(nic), interface=self._topology.interface_name(nic)
        )

    def _write_host_links(self, root: Path, per_host: int) -> None:
        (root / "sys/bus/pci/drivers" / KERNEL_DRIVER).mkdir(parents=True, exist_ok=True)
        for index in range(per_host):
            for pattern in ("infiniband/{device}", "net/{interface}"):
                name = self._named(pattern, index)
                target = f"../../devices/{nic_pci_path(index)}/{name}"
                write_link(root / "sys/class" / name, target)
        paths = [nic_pci_path(index) for index in range(per_host)]
        paths += [gpu_pci_path(index) for index in range(self._topology.gpus_per_host)]
        for path in paths:
            address = path.rpartition("/")[2]
            write_link(root / "sys/bus/pci/devices" / address, f"../../../devices/{path}")

    def _start_ethtool(self, snapshot: Snapshot) -> None:
        columns = ethtool_columns(snapshot)
        self._ethtool = self._stack(columns)
        self._pages = Statistics(list(columns), self._topology.nics)
        for row, values in enumerate(self._ethtool):
            self._pages.put(row, values)
        for nic, path in enumerate(self._statistics_files):
            write_files(Path(path).parent, {"driver": driver_text(self._topology, nic)})
            Path(path).write_bytes(self._pages.text(nic))

    # Keeping it up to date -------------------------------------------------------------------

    def update(self, snapshot: Snapshot) -> None:
        world = snapshot.world
        is_awake = ~world.host_is_down[world.nic_host]
        self._update_numbers(snapshot, is_awake)
        self._update_ethtool(snapshot, is_awake)
        self._update_texts(snapshot, is_awake)
        self._update_boots(snapshot)

    def _update_numbers(self, snapshot: Snapshot, is_awake: NDArray[np.bool_]) -> None:
        fresh = self._number_columns(snapshot)
        before = self._numbers
        rows, nics = np.nonzero((fresh != before) & is_awake)
        new, old = fresh[rows, nics].tolist(), before[rows, nics].tolist()
        files = {row: self._number_files[row] for row in np.unique(rows).tolist()}
        for row, nic, value, was in zip(rows.tolist(), nics.tolist(), new, old, strict=True):
            path = f"{self._folders[nic]}/{self._named(files[row], nic)}"
            # A number that fell (a reboot, a wrap) may have become shorter.
            write_over(path, b"%d\n" % value, len(str(was)) + 1 if value < was else 0)
        self._numbers = np.where(is_awake, fresh, before)

    def _update_ethtool(self, snapshot: Snapshot, is_awake: NDArray[np.bool_]) -> None:
        fresh = np.where(is_awake, self._stack(ethtool_columns(snapshot)), self._ethtool)
        has_changed = fresh != self._ethtool
        for row in np.flatnonzero(has_changed.any(axis=1)).tolist():
            self._pages.put(row, fresh[row])
        for nic in np.flatnonzero(has_changed.any(axis=0)).tolist():
            write_over(self._statistics_files[nic], self._pages.text(nic), 0)
        self._ethtool = fresh

    def _update_texts(self, snapshot: Snapshot, is_awake: NDArray[np.bool_]) -> None:
        for pattern, texts in live_texts(snapshot).items():
            before = self._texts[pattern]
            for nic, (old, new) in enumerate(zip(before, texts, strict=True)):
                if old != new and is_awake[nic]:
                    path = f"{self._folders[nic]}/{self._named(pattern, nic)}"
                    write_over(path, new.encode() + b"\n", len(old) + 1)
                    before[nic] = new

    def _update_boots(self, snapshot: Snapshot) -> None:
        for host, boot_ns in enumerate(snapshot.hosts.boot_unix_ns.tolist()):
            if boot_ns != self._boots[host] and not snapshot.world.host_is_down[host]:
                path = f"{self._roots[host]}/proc/sys/kernel/random/boot_id"
                write_over(path, boot_id(self._topology, host, boot_ns).encode() + b"\n", 0)
                self._boots[host] = boot_ns

    # Columns ---------------------------------------------------------------------------------

    def _number_columns(self, snapshot: Snapshot) -> NDArray[np.int64]:
        """Numbers of all files that hold just one: a row for each file, a column for each NIC."""
        columns = {
            f"infiniband/{{device}}/ports/1/{name}": column
            for name, column in hca_columns(snapshot).items()
        }
        for name, column in netdev_columns(snapshot).items():
            columns[f"net/{{interface}}/{name}"] = column
        self._number_files = list(columns)
        return self._stack(columns)

    def _stack(self, columns: Mapping[str, Counts]) -> NDArray[np.int64]:
        stacked: NDArray[np.int64] = np.stack(list(columns.values()))
        return stacked
