"""Who holds RDMA resources, from the kernel over RDMA's netlink.

For `collector.doors.host` alone; sources use the `Host`. Needs no privilege. Numbers are those of
rdma/rdma_netlink.h (Linux 6.1), which the kernel keeps for good. It answers in the asker's
namespaces: devices of its network namespace (all, unless `rdma system` is exclusive), and processes
by the number that they have in its PID namespace, none where they have none there.

A list of queue pairs makes the driver ask the firmware about each of them, and a list of counters
about each counter: some ten microseconds a piece. The numbers of the summary cost nothing.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from collector.doors.netlink import (
    HEADER,
    REQUEST_DUMP,
    has_ended,
    split_attributes,
    split_messages,
)

PROTOCOL = 20
"""NETLINK_RDMA."""
CLIENT = 5 << 10
"""RDMA_NL_NLDEV, as it stands in the type of a message."""
SECONDS = 2.0
"""For one datagram. Four thousand queue pairs take a fifth of a second."""
ANSWER_BYTES_MAX = 1 << 16
"""One datagram; the kernel fills at most 32 KiB."""
DATAGRAMS_MAX = 1024
"""Of one answer: some 200 queue pairs or 500 memory regions fit into a datagram."""
TEXT_BYTES_MAX = 64
"""Of a name: IB_DEVICE_NAME_MAX. Counters' names have some thirty."""

DEVICE_INDEX, DEVICE_NAME, PORT = 1, 2, 3
SUMMARY, SUMMARY_ENTRY, SUMMARY_NAME, SUMMARY_COUNT = 15, 16, 17, 18
QP, QP_ENTRY, QP_NUMBER, QP_TYPE, QP_STATE = 19, 20, 21, 26, 27
PID, KERNEL_NAME = 28, 29
MR, MR_ENTRY, MR_BYTES = 40, 41, 45
STAT_RESOURCE, STAT_COUNTER, STAT_ENTRY, STAT_ID = 75, 77, 78, 79
HW, HW_ENTRY, HW_NAME, HW_VALUE = 80, 81, 82, 83
"""RDMA_NLDEV_ATTR_…: DEV_INDEX, …, RES_SUMMARY, …, RES_QP, …, STAT_HWCOUNTER_ENTRY_VALUE."""

QP_TYPES = {0: "smi", 1: "gsi", 2: "rc", 3: "uc", 4: "ud", 8: "raw_packet", 9: "xrc_ini"} | {
    10: "xrc_tgt",
    255: "driver",
}
"""enum ib_qp_type of rdma/ib_verbs.h; `driver` is a vendor's own (mlx5's DC, EFA's SRD)."""
QP_STATES = ("reset", "init", "rtr", "rts", "sqd", "sqe", "error")
"""enum ib_qp_state."""


class Question(StrEnum):
    """A list that the kernel gives."""

    DEVICES = "devices"
    SUMMARY = "summary"
    QUEUE_PAIRS = "queue_pairs"
    MEMORY_REGIONS = "memory_regions"
    COUNTERS = "counters"


COMMANDS = {
    Question.DEVICES: 1,
    Question.SUMMARY: 9,
    Question.QUEUE_PAIRS: 10,
    Question.MEMORY_REGIONS: 13,
    Question.COUNTERS: 17,
}
"""RDMA_NLDEV_CMD_GET, RES_GET, RES_QP_GET, RES_MR_GET, STAT_GET."""


class Device(NamedTuple):
    """An RDMA device by the number that questions about it need."""

    number: int
    name: str


class Owner(NamedTuple):
    """Who made a resource. Neither: a process outside of our PID namespace, or one that ended."""

    pid: int = 0
    kernel: str = ""
    """The part of the kernel, if it was none of a process'."""


class QueuePair(NamedTuple):
    """One end of a connection."""

    number: int
    owner: Owner
    kind: str = ""
    """One of QP_TYPES' names."""
    state: str = ""


class MemoryRegion(NamedTuple):
    """Memory that a device may read and write."""

    owner: Owner
    size: int


class BoundCounter(NamedTuple):
    """A set of statistics that counts for some queue pairs only (`rdma statistic qp`)."""

    number: int
    port: int
    owner: Owner
    queue_pairs: tuple[int, ...]
    values: Mapping[str, int]


class RdmaNetlink:
    """Asks; every failure is an OSError. Sockets are of one question each: these are rare."""

    def ask(self, question: Question, device: int | None = None) -> list[bytes]:
        """The attributes of every message of the answer."""
        body = b"" if device is None else number_attribute(DEVICE_INDEX, device)
        if question is Question.COUNTERS:
            body += number_attribute(STAT_RESOURCE, QP)
        kind = CLIENT | COMMANDS[question]
        with self._connect() as asker:
            length = HEADER.size + len(body)
            asker.send(HEADER.pack(length, kind, REQUEST_DUMP, 1, 0) + body)
            found: list[bytes] = []
            for _ in range(DATAGRAMS_MAX):
                data = asker.recv(ANSWER_BYTES_MAX)
                found += [content for own, content in split_messages(data) if own == kind]
                if has_ended(data):
                    return found
        raise OSError(errno.EMSGSIZE, f"more than DATAGRAMS_MAX = {DATAGRAMS_MAX} in one answer")

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL)
        try:
            made.bind((0, 0))
            made.settimeout(SECONDS)
        except OSError:
            made.close()
            raise
        return made


def number_attribute(kind: int, number: int) -> bytes:
    return struct.pack("=HHI", 8, kind, number)


# What the answers say --------------------------------------------------------------------------


def parse_devices(messages: Sequence[bytes]) -> list[Device]:
    return [device for message in messages if (device := device_in(message)) is not None]


def parse_summaries(messages: Sequence[bytes]) -> dict[str, dict[str, int]]:
    """How many of each kind (`qp`, `mr`, `cq`, …) there are, by device."""
    found: dict[str, dict[str, int]] = {}
    for message in messages:
        device = device_in(message)
        if device is None:
            continue
        counts = found.setdefault(device.name, {})
        for entry in entries_of(message, SUMMARY, SUMMARY_ENTRY):
            name, count = text_in(entry, SUMMARY_NAME), number_in(entry, SUMMARY_COUNT)
            if name and count is not None:
                counts[name] = count
    return found


def parse_queue_pairs(messages: Sequence[bytes]) -> list[QueuePair]:
    return [
        QueuePair(
            number_in(entry, QP_NUMBER) or 0,
            owner_in(entry),
            QP_TYPES.get(number_in(entry, QP_TYPE) or 0, "other"),
            state_of(number_in(entry, QP_STATE)),
        )
        for message in messages
        for entry in entries_of(message, QP, QP_ENTRY)
    ]


def parse_memory_regions(messages: Sequence[bytes]) -> list[MemoryRegion]:
    return [
        MemoryRegion(owner_in(entry), number_in(entry, MR_BYTES) or 0)
        for message in messages
        for entry in entries_of(message, MR, MR_ENTRY)
    ]


def parse_counters(messages: Sequence[bytes]) -> list[BoundCounter]:
    found = []
    for message in messages:
        for entry in entries_of(message, STAT_COUNTER, STAT_ENTRY):
            number = number_in(entry, STAT_ID)
            if number is None:
                continue
            pairs = [number_in(one, QP_NUMBER) for one in entries_in(entry.get(QP), QP_ENTRY)]
            values = {
                name: value
                for one in entries_in(entry.get(HW), HW_ENTRY)
                if (name := text_in(one, HW_NAME))
                and (value := number_in(one, HW_VALUE)) is not None
            }
            known = tuple(pair for pair in pairs if pair is not None)
            port = number_in(entry, PORT) or 0
            found.append(BoundCounter(number, port, owner_in(entry), known, values))
    return found


def device_in(message: bytes) -> Device | None:
    attributes = dict(split_attributes(message))
    index, name = number_in(attributes, DEVICE_INDEX), text_in(attributes, DEVICE_NAME)
    return Device(index, name) if index is not None and name else None


def entries_of(message: bytes, table: int, entry: int) -> Iterator[dict[int, bytes]]:
    for kind, content in split_attributes(message):
        if kind == table:
            yield from entries_in(content, entry)


def entries_in(content: bytes | None, entry: int) -> Iterator[dict[int, bytes]]:
    for kind, inside in split_attributes(content or b""):
        if kind == entry:
            yield dict(split_attributes(inside))


def owner_in(entry: Mapping[int, bytes]) -> Owner:
    return Owner(number_in(entry, PID) or 0, text_in(entry, KERNEL_NAME))


def state_of(number: int | None) -> str:
    return QP_STATES[number] if number is not None and number < len(QP_STATES) else "other"


def text_in(attributes: Mapping[int, bytes], kind: int) -> str:
    text = attributes.get(kind, b"")[:TEXT_BYTES_MAX].split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(character for character in text if character.isprintable())


def number_in(attributes: Mapping[int, bytes], kind: int) -> int | None:
    """A number of 8, 32 or 64 bits, in the machine's order."""
    value = attributes.get(kind, b"")
    form = {1: "=B", 4: "=I", 8: "=Q"}.get(len(value))
    if form is None:
        return None
    (number,) = struct.unpack(form, value)
    return int(number)


# Captured trees ----------------------------------------------------------------------------------


def parse_recorded(text: str) -> list[bytes]:
    """Messages' attributes in hexadecimal, one message a line."""
    try:
        return [bytes.fromhex(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise OSError(errno.EPROTO, "the capture is not in hexadecimal") from error
