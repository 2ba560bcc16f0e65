"""Helpers for sysfs. Nothing raises: what is absent is an empty text or list, or a `Missing`."""

from __future__ import annotations

import re

from collector.contract.errors import HostError
from collector.contract.model import Missing, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host

LABEL_CHARACTERS_MAX = 128
"""Firmware versions and board names have some 40; more is no name."""
GID_INDEXES_MAX = 4
"""Entries of the GID table that are asked for their network device; empty ones answer EINVAL."""
TEXT_SHOWN = 40
"""Characters of an unexpected text that a `Missing` quotes."""


def read_label(host: Host, path: str) -> str:
    """A file's text as a label's value; empty when it cannot be read."""
    try:
        text = host.read(path)[:LABEL_CHARACTERS_MAX].decode("utf-8", "replace").strip()
    except HostError:
        return ""
    return "".join(character for character in text if character.isprintable())


def read_driver_name(host: Host, path: str) -> str:
    """The kernel driver behind a device; empty without hardware, or where a capture has no link."""
    try:
        return host.link_target(f"{path}/device/driver").rpartition("/")[2]
    except HostError:
        return ""


_PCI_PART = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_pci_path(host: Host, link: str) -> str:
    """The way through the PCI tree to what a link of sysfs leads to; empty if there is none.

    Two devices are the nearer to each other the longer the beginning is that they share.
    """
    try:
        return pci_path(host.link_target(link))
    except HostError:
        return ""


def pci_path(target: str) -> str:
    """The PCI devices in a path of sysfs, from the root.

    >>> pci_path("../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0")
    'pci0000:3a/0000:3a:00.0/0000:3b:00.0'
    """
    return "/".join(part for part in target.split("/") if _PCI_PART.fullmatch(part))


def list_or_nothing(host: Host, path: str) -> list[str]:
    """The names in a directory that need not be there."""
    try:
        return host.list(path)
    except HostError:
        return []


def explain(series: Series, text: bytes) -> Missing:
    """Why this text is no number: some drivers write `N/A (no PMA)` into the file itself."""
    shown = text[:TEXT_SHOWN].decode("utf-8", "replace").strip()
    if shown.startswith("N/A"):
        return Missing(series, UnreadReason.NOT_SUPPORTED, shown)
    return Missing(series, UnreadReason.UNPARSEABLE, f"{shown!r} is not what this file should hold")


def read_netdev(host: Host, base: str, path: str, link_layer: str) -> str:
    """The network device of an RDMA port: what joins a RoCE port to its Ethernet counters.

    ``base`` is the RDMA device in sysfs, ``path`` its port. On InfiniBand the GID table names none;
    there it is the one whose `dev_port` (counted from 0) names this port.
    """
    indexes = range(GID_INDEXES_MAX if link_layer == "Ethernet" else 0)
    for index in indexes:
        if netdev := read_label(host, f"{path}/gid_attrs/ndevs/{index}"):
            return netdev
    port = path.rpartition("/")[2]
    for netdev in list_or_nothing(host, f"{base}/device/net"):
        index_text = read_label(host, f"{base}/device/net/{netdev}/dev_port")
        if index_text.isdecimal() and str(int(index_text) + 1) == port:
            return netdev
    return ""
