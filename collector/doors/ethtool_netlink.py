"""Modules' memory and error correction from the kernel, over ethtool's generic netlink.

For `collector.doors.host` alone. Numbers are those of linux/ethtool_netlink.h (Linux 6.18) and
Documentation/networking/ethtool-netlink.rst. The kernel holds its lock of network settings while
it reads a module over I2C, some milliseconds a piece, and wants CAP_NET_ADMIN for it; error
correction is open to everyone. One request is in flight at a time.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from typing import NamedTuple

from collector.doors.netlink import ATTRIBUTE, ERROR, HEADER, split_attributes, split_messages
from collector.parsing.transceiver import Page

GENERIC = 16
"""NETLINK_GENERIC."""
CONTROLLER = 0x10
"""GENL_ID_CTRL: the family that knows the numbers of the others."""
GET_FAMILY, FAMILY_ID, FAMILY_NAME = 3, 1, 2
FAMILY = b"ethtool\0"
REQUEST = 1
NESTED = 0x8000
VERSION = 1
COMMAND = struct.Struct("=BBH")
"""struct genlmsghdr."""

FEC_GET, MODULE_EEPROM_GET = 29, 31
HEADER_NAME, HEADER_FLAGS = 2, 3
WITH_STATISTICS = 4
"""ETHTOOL_FLAG_STATS."""
EEPROM_OFFSET, EEPROM_LENGTH, EEPROM_PAGE, EEPROM_BANK, EEPROM_ADDRESS, EEPROM_DATA = range(2, 8)
FEC_ACTIVE, FEC_STATISTICS = 4, 5
FEC_CORRECTED, FEC_UNCORRECTABLE, FEC_CORRECTED_BITS, FEC_HISTOGRAM = 2, 3, 4, 5
BIN_LOW, BIN_HIGH, BIN_COUNT = 1, 2, 3
FEC_MODES = {49: "none", 50: "rs", 51: "base_r", 74: "llrs"}
"""Bits of ETHTOOL_LINK_MODE_FEC_…"""
NOT_SET = (1 << 64) - 1
"""ETHTOOL_STAT_NOT_SET: the driver does not count it."""

SECONDS = 1.0
"""For one answer. A piece of a module's memory takes some 10 ms; a driver that is stuck in I2C gets
no more of our time."""
ANSWER_BYTES_MAX = 1 << 15
ANSWERS_MAX = 16
"""Datagrams for one request: an answer, an error, or leftovers of a request that timed out."""
BINS_MAX = 32
"""Of a histogram; the standards define 16."""
NAME_BYTES = 16


class FecBin(NamedTuple):
    """Blocks that had so many wrong symbols, both ends included."""

    low: int
    high: int
    blocks: int


class Fec(NamedTuple):
    """Error correction of an interface; None for what its driver does not count."""

    mode: str
    """`rs`, `base_r`, `llrs`, `none`; empty while the link is down."""
    corrected_blocks: int | None = None
    uncorrectable_blocks: int | None = None
    corrected_bits: int | None = None
    bins: tuple[FecBin, ...] = ()


class EthtoolNetlink:
    """Asks; every failure is an OSError. One thread at a time, others wait."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._family = 0
        self._sequence = 0
        self._lock = threading.Lock()

    def module_piece(self, interface: str, page: Page) -> bytes:
        """A piece of a module's memory; at most as long as asked for."""
        body = (
            request_header(interface)
            + attribute(EEPROM_OFFSET, struct.pack("=I", page.offset))
            + attribute(EEPROM_LENGTH, struct.pack("=I", page.length))
            + attribute(EEPROM_PAGE, struct.pack("=B", page.page))
            + attribute(EEPROM_BANK, struct.pack("=B", page.bank))
            + attribute(EEPROM_ADDRESS, struct.pack("=B", page.address))
        )
        answer = dict(self._ask(MODULE_EEPROM_GET, body))
        return answer.get(EEPROM_DATA, b"")[: page.length]

    def fec(self, interface: str) -> Fec:
        return parse_fec(self._ask(FEC_GET, request_header(interface, WITH_STATISTICS)))

    def close(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _ask(self, command: int, body: bytes) -> list[tuple[int, bytes]]:
        with self._lock:
            if self._socket is None:
                self._open()
            answer = self._send(self._family, command, body)
        return list(split_attributes(answer))

    def _open(self) -> None:
        """Open a socket and look up ethtool's family; ENOENT where the kernel has none."""
        self._socket = self._connect()
        try:
            answer = self._send(CONTROLLER, GET_FAMILY, attribute(FAMILY_NAME, FAMILY))
            self._family = family_in(answer)
        except OSError:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            raise

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC)
        try:
            made.bind((0, 0))
            made.settimeout(SECONDS)
        except OSError:
            made.close()
            raise
        return made

    def _send(self, kind: int, command: int, body: bytes) -> bytes:
        """The attributes of the answer to this very request."""
        assert self._socket is not None
        self._sequence = self._sequence % 0xFFFF_FFFF + 1
        message = COMMAND.pack(command, VERSION, 0) + body
        length = HEADER.size + len(message)
        self._socket.send(HEADER.pack(length, kind, REQUEST, self._sequence, 0) + message)
        for _ in range(ANSWERS_MAX):
            data = self._socket.recv(ANSWER_BYTES_MAX)
            if len(data) < HEADER.size or HEADER.unpack_from(data)[3] != self._sequence:
                continue  # of a request that was given up
            for found, content in split_messages(data):
                if found == ERROR:
                    raise_error(content)
                elif found == kind and len(content) >= COMMAND.size:
                    return content[COMMAND.size :]
        raise OSError(errno.EPROTO, "no answer among what the kernel sent")


def family_in(answer: bytes) -> int:
    number = dict(split_attributes(answer)).get(FAMILY_ID, b"")
    if len(number) != 2:  # noqa: PLR2004 - a u16
        raise OSError(errno.EPROTO, "the kernel does not name ethtool's family")
    (family,) = struct.unpack("=H", number)
    return int(family)


def raise_error(content: bytes) -> None:
    """The kernel's refusal, unless it is an acknowledgement."""
    if len(content) < 4:  # noqa: PLR2004 - a struct nlmsgerr begins with an int
        raise OSError(errno.EPROTO, "a refusal without a reason")
    (code,) = struct.unpack_from("=i", content)
    if code:
        raise OSError(-code, os.strerror(-code))


def attribute(kind: int, value: bytes) -> bytes:
    size = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(size, kind) + value + bytes(-size % 4)


def request_header(interface: str, flags: int = 0) -> bytes:
    name = interface.encode()
    if len(name) >= NAME_BYTES:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    inside = attribute(HEADER_NAME, name + b"\0")
    if flags:
        inside += attribute(HEADER_FLAGS, struct.pack("=I", flags))
    return attribute(1 | NESTED, inside)


def parse_fec(attributes: list[tuple[int, bytes]]) -> Fec:
    found = dict(attributes)
    active = number_of(found.get(FEC_ACTIVE, b""))
    inside = list(split_attributes(found.get(FEC_STATISTICS, b"")))
    counts = dict(inside)
    bins = [each for kind, value in inside if kind == FEC_HISTOGRAM for each in parse_bin(value)]
    return Fec(
        mode="" if active is None else FEC_MODES.get(active, f"mode_{active}"),
        corrected_blocks=total_of(counts.get(FEC_CORRECTED, b"")),
        uncorrectable_blocks=total_of(counts.get(FEC_UNCORRECTABLE, b"")),
        corrected_bits=total_of(counts.get(FEC_CORRECTED_BITS, b"")),
        bins=tuple(bins[:BINS_MAX]),
    )


def parse_bin(value: bytes) -> Iterator[FecBin]:
    inside = dict(split_attributes(value))
    low, high, blocks = (number_of(inside.get(one, b"")) for one in (BIN_LOW, BIN_HIGH, BIN_COUNT))
    if low is not None and high is not None and blocks is not None:
        yield FecBin(low, high, blocks)


def total_of(value: bytes) -> int | None:
    """The first of an array of 64 bits: the total, before those of the lanes."""
    number = number_of(value[:8]) if len(value) >= 8 else None  # noqa: PLR2004 - bytes of a u64
    return None if number == NOT_SET else number


def number_of(value: bytes) -> int | None:
    """A number of 32 or 64 bits, in the machine's order."""
    if len(value) not in {4, 8}:
        return None
    number: int = struct.unpack("=I" if len(value) == 4 else "=Q", value)[0]  # noqa: PLR2004
    return number


# Captured trees ----------------------------------------------------------------------------------


def recorded_piece(text: str, page: Page) -> bytes:
    """The piece from a recording (`Host.module_piece` describes it); EINVAL where it has none."""
    for line in text.splitlines():
        where, _, content = line.partition(":")
        try:
            address, bank, number, offset = (int(word, 16) for word in where.split())
            data = bytes.fromhex(content)
        except ValueError:
            continue
        start = page.offset - offset
        is_there = (address, bank, number) == (page.address, page.bank, page.page)
        if is_there and 0 <= start < len(data):
            return data[start : start + page.length]
    raise OSError(errno.EINVAL, "the capture has no such page")


def parse_recorded_fec(text: str) -> Fec:
    try:
        data = bytes.fromhex("".join(text.split()))
    except ValueError as error:
        raise OSError(errno.EPROTO, "the capture is not in hexadecimal") from error
    return parse_fec(list(split_attributes(data)))
