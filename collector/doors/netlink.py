"""Link changes from the kernel over rtnetlink.

For `collector.doors.host` alone; sources use the `Host`. Needs no privilege. The kernel reports an
interface in one message (linux/rtnetlink.h, linux/if_link.h); five of its attributes are used here.
Messages that do not fit the socket's buffer are lost, the kernel reports it (ENOBUFS), and then all
interfaces are read again: the counts of carrier changes in that answer show what was missed.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

GROUP_LINK = 1
"""RTMGRP_LINK: subscribes to every change of an interface."""
NEWLINK, DELLINK, GETLINK = 16, 17, 18
ERROR, DONE = 2, 3
REQUEST_DUMP = 0x301
IFNAME, OPERSTATE, CARRIER_UPS, CARRIER_DOWNS = 3, 16, 47, 48
"""IFLA_… attributes that are used."""
FLAG_UP = 1
"""IFF_UP: an administrator has switched the interface on."""
OPERSTATE_UP = 6
"""IF_OPER_UP of RFC 2863: it can pass packets."""

HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, sender."""
INTERFACE = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type, index, flags, change."""
ATTRIBUTE = struct.Struct("=HH")
NUMBER = struct.Struct("=I")
TYPE_MASK = 0x3FFF
"""An attribute's type without its two flags (nested, byte order)."""

BUFFER_BYTES = 1 << 20
"""Of the socket: some 700 messages of 1.4 kB. A host with hundreds of containers makes a few
hundred at once when a job starts."""
MESSAGE_BYTES_MAX = 1 << 16
"""One datagram; the kernel fills at most 32 KiB."""
MESSAGES_MAX = 4096
"""Datagrams taken at one look; more wait for the next one."""


class LinkMessage(NamedTuple):
    """The kernel's message about one interface. A number that an old kernel leaves out is None."""

    name: str
    is_enabled: bool
    is_up: bool
    is_gone: bool = False
    ups: int | None = None
    """Times that the carrier came, since the interface was made."""
    downs: int | None = None


class LinkNews(NamedTuple):
    """Messages in the order they came; ``lost``: some were lost before, and all were read again."""

    messages: list[LinkMessage]
    lost: bool = False


class LinkSocket:
    """Reports changes since the last look; the first look reports every interface."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def look(self) -> LinkNews:
        """What has changed; never waits. OSError where the kernel gives no such socket."""
        if self._socket is None:
            self._socket = self._open()
            return LinkNews(self._ask_for_all(), lost=False)
        try:
            return LinkNews(self._drain())
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                self.close()
                raise
        return LinkNews(self._ask_for_all(), lost=True)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> socket.socket:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            made.bind((0, GROUP_LINK))
            made.setblocking(False)
        except OSError:
            made.close()
            raise
        return made

    def _ask_for_all(self) -> list[LinkMessage]:
        """Every interface, read by a second socket, so that changes meanwhile wait in the first."""
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asker:
            asker.settimeout(1.0)
            body = INTERFACE.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
            asker.send(HEADER.pack(HEADER.size + len(body), GETLINK, REQUEST_DUMP, 1, 0) + body)
            messages: list[LinkMessage] = []
            for _ in range(MESSAGES_MAX):
                data = asker.recv(MESSAGE_BYTES_MAX)
                messages += parse_messages(data)
                if has_ended(data):
                    break
            return messages

    def _drain(self) -> list[LinkMessage]:
        assert self._socket is not None
        messages: list[LinkMessage] = []
        for _ in range(MESSAGES_MAX):
            try:
                data = self._socket.recv(MESSAGE_BYTES_MAX)
            except BlockingIOError:
                break
            messages += parse_messages(data)
        return messages


def split_messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message in a datagram; ends at the first that does not fit."""
    place = 0
    while place + HEADER.size <= len(data):
        length, kind, _, _, _ = HEADER.unpack_from(data, place)
        if not HEADER.size <= length <= len(data) - place:
            return
        yield kind, data[place + HEADER.size : place + length]
        place += (length + 3) & ~3


def has_ended(data: bytes) -> bool:
    """Whether an answer to a question ends with this datagram; OSError if it was refused.

    A list that fails on its way, or at once, ends as others do, with the error's number in its end.
    """
    for kind, body in split_messages(data):
        if kind in {ERROR, DONE}:
            unsaid = -errno.EIO if kind == ERROR else 0
            (code,) = struct.unpack_from("=i", body) if len(body) >= NUMBER.size else (unsaid,)
            if kind == ERROR or code < 0:
                raise OSError(-code, os.strerror(-code))
            return True
    return False


def parse_messages(data: bytes) -> list[LinkMessage]:
    """A datagram's messages about interfaces; others are skipped."""
    found = []
    for kind, body in split_messages(data):
        if kind in {NEWLINK, DELLINK} and len(body) >= INTERFACE.size:
            message = parse_link(body, is_gone=kind == DELLINK)
            if message is not None:
                found.append(message)
    return found


def parse_link(body: bytes, *, is_gone: bool) -> LinkMessage | None:
    """One interface; None if it has no name, or the message is of a bridge's view of it."""
    family, _, _, flags, _ = INTERFACE.unpack_from(body)
    attributes = dict(split_attributes(body[INTERFACE.size :]))
    name = attributes.get(IFNAME, b"").split(b"\0", 1)[0].decode("utf-8", "replace")
    if family != socket.AF_UNSPEC or not name:
        return None
    operstate = attributes.get(OPERSTATE, b"\0")
    return LinkMessage(
        name=name,
        is_enabled=bool(flags & FLAG_UP),
        is_up=operstate[:1] == bytes([OPERSTATE_UP]),
        is_gone=is_gone,
        ups=number_in(attributes.get(CARRIER_UPS)),
        downs=number_in(attributes.get(CARRIER_DOWNS)),
    )


def split_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each attribute; ends at the first that does not fit."""
    place = 0
    while place + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, place)
        if not ATTRIBUTE.size <= length <= len(data) - place:
            return
        yield kind & TYPE_MASK, data[place + ATTRIBUTE.size : place + length]
        place += (length + 3) & ~3


def number_in(value: bytes | None) -> int | None:
    """An attribute of 32 bits."""
    if value is None or len(value) != NUMBER.size:
        return None
    (number,) = NUMBER.unpack(value)
    return int(number)
