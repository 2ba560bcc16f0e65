"""PCI devices: the state of their slot, and their configuration space.

The kernel shows the first 64 bytes of a configuration space to every user and the rest to root
only: only root can read whether relaxed ordering is on and which bridges redirect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collector.audit.settings import (
    ACS_BRIDGES,
    IOMMU_DOMAIN,
    MAX_PAYLOAD,
    MAX_READ_REQUEST,
    NONE,
    NUMA_NODE,
    PCI_PATH,
    PCIE_SPEED,
    PCIE_SPEED_MAX,
    PCIE_WIDTH,
    PCIE_WIDTH_MAX,
    RELAXED_ORDERING,
)
from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.reading.configuration.gather import Gatherer

DEVICES = "sys/bus/pci/devices"

_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s.*")
_WIDTH = re.compile(r"([0-9]{1,2})")
_NODE = re.compile(r"([0-9]{1,4})")

# PCI Express Base Specification 6.0, 7.5: the configuration space.
COMMON_BYTES, SPACE_BYTES = 64, 4096
_STATUS, _STATUS_CAPABILITIES, _FIRST_CAPABILITY = 0x06, 0x10, 0x34
_CAPABILITY_EXPRESS = 0x10
_DEVICE_CONTROL = 8
_RELAXED_ORDERING_BIT = 1 << 4
_EXTENDED, _CAPABILITY_ACS, _ACS_CONTROL = 0x100, 0x000D, 6
_ACS_REDIRECT = 0b1100
"""P2P request redirect and P2P completion redirect."""
_SMALLEST_PAYLOAD = 128
CAPABILITIES_MAX = 48
"""Capabilities that are followed: a space of 256 bytes has room for so many; a loop has no end."""
BRIDGES_MAX = 16
"""Bridges above one device. A server has two to five."""


def read_slot(gatherer: Gatherer, device: str, address: str, path: str) -> None:
    """How a device's slot runs, where it hangs, and how it may address memory."""
    base = f"{DEVICES}/{address}"
    gatherer.add(device, PCI_PATH, path, base)
    read_node(gatherer, device, base)
    gatherer.matched(device, PCIE_SPEED, f"{base}/current_link_speed", _SPEED)
    gatherer.matched(device, PCIE_WIDTH, f"{base}/current_link_width", _WIDTH)
    read_most(gatherer, device, path)
    gatherer.text(device, IOMMU_DOMAIN, f"{base}/iommu_group/type")
    read_control(gatherer, device, base)
    read_bridges(gatherer, device, path)


def read_node(gatherer: Gatherer, device: str, base: str) -> None:
    """The NUMA node; firmware of virtual machines, and of small ones, names none (-1)."""
    try:
        is_unknown = gatherer.read(f"{base}/numa_node") == "-1"
    except HostError as error:
        gatherer.refused(device, NUMA_NODE, error)
        return
    if is_unknown:
        gatherer.miss(
            device, NUMA_NODE, UnreadReason.NOT_SUPPORTED, "the firmware names no NUMA node"
        )
    else:
        gatherer.matched(device, NUMA_NODE, f"{base}/numa_node", _NODE)


def read_most(gatherer: Gatherer, device: str, path: str) -> None:
    """What the slot could do at best: the lesser of the device and of the port above it."""
    parts = path.split("/")
    ends = parts[-2:] if len(parts) > 2 else parts[-1:]  # noqa: PLR2004 - root, port, device
    for setting, file, pattern in (
        (PCIE_SPEED_MAX, "max_link_speed", _SPEED),
        (PCIE_WIDTH_MAX, "max_link_width", _WIDTH),
    ):
        known = []
        for end in ends:
            place = f"{DEVICES}/{end}/{file}"
            try:
                found = pattern.fullmatch(gatherer.read(place))
            except HostError:
                continue
            # 255 lanes and "Unknown" are the kernel's values where it knows nothing.
            if found and 0 < float(found[1]) < 255:  # noqa: PLR2004 - see above
                known.append((float(found[1]), found[1], place))
        if known and known[-1][2].endswith(f"{parts[-1]}/{file}"):
            _, value, place = min(known)
            gatherer.add(device, setting, value, place)


def read_control(gatherer: Gatherer, device: str, base: str) -> None:
    """Relaxed ordering and the sizes of requests, which only root may read."""
    try:
        space = gatherer.host.read(f"{base}/config")[:SPACE_BYTES]
    except HostError as error:
        gatherer.refused(device, RELAXED_ORDERING, error)
        return
    if len(space) <= COMMON_BYTES:
        why = "config: only root may read beyond the first 64 bytes"
        gatherer.miss(device, RELAXED_ORDERING, UnreadReason.UNREADABLE, why)
        gatherer.miss(device, ACS_BRIDGES, UnreadReason.UNREADABLE, why)
        return
    control = device_control(space)
    if control is None:
        why = "config: no PCI Express capability"
        gatherer.miss(device, RELAXED_ORDERING, UnreadReason.UNPARSEABLE, why)
        return
    origin = f"{base}/config"
    is_relaxed = bool(control & _RELAXED_ORDERING_BIT)
    gatherer.add(device, RELAXED_ORDERING, "on" if is_relaxed else "off", origin)
    for setting, shift in ((MAX_PAYLOAD, 5), (MAX_READ_REQUEST, 12)):
        size = _SMALLEST_PAYLOAD << (control >> shift & 0b111)
        gatherer.add(device, setting, str(size), origin)


def device_control(space: bytes) -> int | None:
    """The device control register, or None; at most CAPABILITIES_MAX capabilities are followed."""
    if not word_at(space, _STATUS) & _STATUS_CAPABILITIES:
        return None
    place = space[_FIRST_CAPABILITY] & ~3
    for _ in range(CAPABILITIES_MAX):
        if place < COMMON_BYTES or place + _DEVICE_CONTROL + 2 > min(len(space), _EXTENDED):
            return None
        if space[place] == _CAPABILITY_EXPRESS:
            return word_at(space, place + _DEVICE_CONTROL)
        place = space[place + 1] & ~3
    return None


def access_control(space: bytes) -> int | None:
    """The control register of Access Control Services; None if the device has none."""
    place = _EXTENDED
    for _ in range(CAPABILITIES_MAX):
        if place < _EXTENDED or place + _ACS_CONTROL + 2 > len(space):
            return None
        header = int.from_bytes(space[place : place + 4], "little")
        if header & 0xFFFF == _CAPABILITY_ACS:
            return word_at(space, place + _ACS_CONTROL)
        place = header >> 20 & ~3
    return None


def word_at(space: bytes, place: int) -> int:
    return int.from_bytes(space[place : place + 2], "little")


def read_bridges(gatherer: Gatherer, device: str, path: str) -> None:
    """The bridges above a device that send what is between two devices up to the root."""
    found, looked, origin = [], 0, ""
    for bridge in bridges_of(path):
        place = f"{DEVICES}/{bridge}/config"
        try:
            space = gatherer.host.read(place)[:SPACE_BYTES]
        except HostError:
            continue
        if len(space) <= _EXTENDED:
            continue
        looked += 1
        origin = origin or place
        control = access_control(space)
        if control is not None and control & _ACS_REDIRECT:
            found.append(bridge)
            origin = place if len(found) == 1 else origin
    if looked:
        gatherer.add(device, ACS_BRIDGES, ",".join(found) or NONE, origin)


def bridges_of(path: str) -> Iterator[str]:
    yield from path.split("/")[1:-1][:BRIDGES_MAX]
