"""Virtual functions of a NIC from the kernel, over rtnetlink.

For `collector.doors.host` alone. Needs no privilege. Numbers are those of linux/if_link.h and
linux/rtnetlink.h (Linux 6.1). Most drivers ask the NIC's firmware about each function, some hundred
microseconds a piece. An attribute of netlink has 64 KiB, so that of more than some 200 functions
the kernel leaves out the last.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from collector.doors.netlink import (
    GETLINK,
    HEADER,
    IFNAME,
    INTERFACE,
    NEWLINK,
    has_ended,
    split_attributes,
    split_messages,
)

REQUEST = 1
VF_LIST, EXTRA = 22, 29
"""IFLA_VFINFO_LIST, IFLA_EXT_MASK."""
WITH_FUNCTIONS = 1
"""RTEXT_FILTER_VF."""
INFO = 1
"""IFLA_VF_INFO."""
MAC, LINK_STATE, RATE, STATISTICS, TRUST = 1, 5, 6, 8, 9
"""IFLA_VF_…"""
LINK_STATES = ("auto", "enable", "disable")
COUNTS = (0, 1, 2, 3, 7, 8)
"""IFLA_VF_STATS_…: packets received and sent, bytes received and sent, dropped of both."""
NAME_BYTES = 16
SECONDS = 2.0
ANSWER_BYTES_MAX = 1 << 18
"""One interface: 64 KiB of functions, and what else is said of it."""
MEGABIT = 1_000_000


class Counts(NamedTuple):
    """As the function sees it. Zeros where its driver does not count."""

    received_packets: int = 0
    sent_packets: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    received_dropped: int = 0
    sent_dropped: int = 0


class VirtualFunction(NamedTuple):
    """One of them, as its physical function is told to treat it."""

    number: int
    link: str = ""
    """`auto`: as its NIC's; `enable`, `disable`: whatever that does."""
    is_trusted: bool = False
    rate_most: int = 0
    """Bits per second that it may send; 0: not limited."""
    rate_least: int = 0
    """Bits per second that it is promised; 0: none."""
    counts: Counts | None = None


def ask_functions(interface: str) -> bytes:
    """The attributes of the kernel's answer about an interface; OSError where it refuses."""
    name = interface.encode()
    if len(name) >= NAME_BYTES:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    body = INTERFACE.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + struct.pack(
        "=HHI", 8, EXTRA, WITH_FUNCTIONS
    )
    body += struct.pack("=HH", 4 + len(name) + 1, IFNAME) + name + b"\0"
    body += bytes(-len(body) % 4)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asker:
        asker.settimeout(SECONDS)
        asker.send(HEADER.pack(HEADER.size + len(body), GETLINK, REQUEST, 1, 0) + body)
        data = asker.recv(ANSWER_BYTES_MAX)
    has_ended(data)
    for kind, content in split_messages(data):
        if kind == NEWLINK and len(content) >= INTERFACE.size:
            return content[INTERFACE.size :]
    raise OSError(errno.EPROTO, "no interface among what the kernel sent")


def parse_functions(attributes: bytes) -> list[VirtualFunction]:
    """Those that the answer names; none of an interface without."""
    return [
        found
        for kind, content in split_attributes(attributes)
        if kind == VF_LIST
        for own, inside in split_attributes(content)
        if own == INFO and (found := parse_function(inside)) is not None
    ]


def parse_function(content: bytes) -> VirtualFunction | None:
    attributes = dict(split_attributes(content))
    address = attributes.get(MAC, b"")
    if len(address) < 4:  # noqa: PLR2004 - it begins with the function's number
        return None
    (number,) = struct.unpack_from("=I", address)
    link = numbers_in(attributes.get(LINK_STATE, b""), 2)
    rate = numbers_in(attributes.get(RATE, b""), 3)
    trust = numbers_in(attributes.get(TRUST, b""), 2)
    return VirtualFunction(
        number=number,
        link=LINK_STATES[link[1]] if link and link[1] < len(LINK_STATES) else "",
        is_trusted=bool(trust) and trust[1] == 1,
        rate_least=rate[1] * MEGABIT if rate else 0,
        rate_most=rate[2] * MEGABIT if rate else 0,
        counts=parse_counts(attributes.get(STATISTICS)),
    )


def parse_counts(content: bytes | None) -> Counts | None:
    if content is None:
        return None
    found = {
        kind: struct.unpack("=Q", value)[0]
        for kind, value in split_attributes(content)
        if len(value) == 8  # noqa: PLR2004 - bytes of a u64
    }
    return Counts(*(int(found.get(kind, 0)) for kind in COUNTS))


def numbers_in(content: bytes, count: int) -> Sequence[int]:
    """So many numbers of 32 bits; none where it is shorter."""
    return struct.unpack_from(f"={count}I", content) if len(content) >= 4 * count else ()


def parse_recorded(text: str) -> bytes:
    """The attributes of an answer in hexadecimal."""
    try:
        return bytes.fromhex("".join(text.split()))
    except ValueError as error:
        raise OSError(errno.EPROTO, "the capture is not in hexadecimal") from error
