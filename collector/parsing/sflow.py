"""sFlow version 5: a datagram of a switch as samples of packets and counters.

By "sFlow Version 5" (sflow.org, July 2004): big-endian words, lengths before everything that may
be unknown, so that a record of another kind is passed over by its length. Read are flow samples
and counter samples in both forms (compact and expanded), and notices of dropped packets ("sFlow
Dropped Packet Notification Structures", sflow.org: `discarded_packet`, 0:5); of their records the
packet's header, the IPv4 and IPv6 forms of one, a dropped packet's queue (0:1036) and what dropped
it (access list 0:1037, function 0:1038; and as Host sFlow's `sflow.h` has them, the chip's trap
0:1041 and Linux' reason 0:1042), the generic and the Ethernet counters of an interface, and its
name ("sFlow Port Name", 0:1005). Everything comes over UDP from anywhere: nothing is believed that
does not fit, and a sample that breaks off ends the datagram, not the reader.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from collector.contract.drop_reasons import DETAILS, detail_of
from collector.contract.errors import ParseError

VERSION = 5
SAMPLES_MAX = 256
"""Samples of one datagram. A datagram of 1,400 bytes holds some ten, one of 64 kB no 600."""
RECORDS_MAX = 32
"""Records of one sample: there are some dozen kinds."""
NAME_BYTES_MAX = 256

FLOW, COUNTERS, FLOW_EXPANDED, COUNTERS_EXPANDED, DISCARDED = 1, 2, 3, 4, 5
RAW_HEADER, SAMPLED_IPV4, SAMPLED_IPV6, EGRESS_QUEUE = 1, 3, 4, 1036
ACL, FUNCTION, HARDWARE_TRAP, LINUX_REASON = 1037, 1038, 1041, 1042
NAMING = {ACL: "acl", HARDWARE_TRAP: "trap", LINUX_REASON: "linux", FUNCTION: "function"}
"""Records that name what dropped a packet, by `collector.contract.drop_reasons.DETAILS`."""
GENERIC, ETHERNET, PORT_NAME = 1, 2, 1005
HEADER_ETHERNET = 1
"""header_protocol: ETHERNET-ISO88023."""
PORT_INDEX = 0
"""Kind of a data source, and form of an interface: an ifIndex."""
DROPPED = 1
"""Form of an output: the packet went nowhere, the rest is the reason."""
INTERNAL = 0x3FFFFFFF
"""An interface of the switch itself."""
UNKNOWN_32, UNKNOWN_64 = (1 << 32) - 1, (1 << 64) - 1
"""A counter that the switch does not have."""
NOT_ONE = frozenset({INTERNAL, UNKNOWN_32})
"""What stands for no interface, or not one alone."""

_VLAN_TAGS = frozenset({0x8100, 0x88A8, 0x9100})
_TAGS_MAX = 4
_IPV4, _IPV6 = 0x0800, 0x86DD
_GENERIC = struct.Struct(">IIQIIQIIIIIIQIIIIII")
_ETHERNET = struct.Struct(">13I")


class Flow(NamedTuple):
    """One sampled packet."""

    source: str
    destination: str
    """Addresses of its IP header; empty: it has none that was sampled."""
    frame_bytes: int
    sampling_rate: int
    """One of so many packets is sampled."""
    sampled_at: int
    input: int
    """ifIndex; 0: not known, or the switch itself."""
    output: int
    """ifIndex; 0: not known, dropped, several, or the switch itself."""
    is_dropped: bool


class Discard(NamedTuple):
    """One packet that the switch has dropped, and told of: no sample, but each up to its limit."""

    source: str
    destination: str
    """Addresses of its IP header; empty: it has none that was sent along."""
    input: int
    """ifIndex; 0: not known."""
    output: int
    """ifIndex where it was dropped on its way out; 0: it was dropped before."""
    reason: int
    """`drop_reason` of the specification."""
    queue: int | None
    """Where it was to leave from."""
    detail: str
    """What dropped it, as `collector.contract.drop_reasons` writes it; empty: not told."""
    source_id: tuple[int, int]
    """The part of the switch that told it, and counts what it did not tell."""
    untold: int
    """Drops that this part has not told of since it began, for its limit."""


class Counts(NamedTuple):
    """Counters of one interface; None: the switch does not have it."""

    port: int
    """Its ifIndex."""
    speed: int | None
    name: str
    values: dict[str, int]
    """By the names of the specification."""


class Datagram(NamedTuple):
    """What one datagram holds."""

    agent: str
    """The address that the switch gives itself."""
    sub_agent: int
    sequence: int
    uptime_ms: int
    flows: list[Flow]
    counters: list[Counts]
    discards: list[Discard]
    broken: int
    """Samples that do not fit."""


class Reader:
    """Words of a piece of a datagram, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def word(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def take(self, length: int) -> bytes:
        if length > len(self._data) - self.at:
            raise ParseError("sFlow", f"{length} bytes at {self.at} of {len(self._data)}")
        piece = self._data[self.at : self.at + length]
        self.at += length
        return piece

    def opaque(self) -> bytes:
        """Bytes behind their length, filled up to whole words."""
        length = self.word()
        piece = self.take(length)
        self.at += min(-length % 4, len(self._data) - self.at)
        return piece

    def address(self) -> str:
        """Type and address; empty for UNKNOWN."""
        match self.word():
            case 0:
                return ""
            case 1:
                return str(IPv4Address(self.take(4)))
            case 2:
                return str(IPv6Address(self.take(16)))
            case kind:
                raise ParseError("sFlow", f"{kind} is no type of an address")


def parse_datagram(data: bytes) -> Datagram:
    """The samples of a datagram; ParseError for one that is not of version 5."""
    reader = Reader(data)
    if (version := reader.word()) != VERSION:
        raise ParseError("sFlow", f"version {version}, not {VERSION}")
    agent, sub_agent, sequence, uptime = (
        reader.address(),
        reader.word(),
        reader.word(),
        reader.word(),
    )
    found = Datagram(agent, sub_agent, sequence, uptime, [], [], [], 0)
    broken, count = 0, reader.word()
    for _ in range(min(count, SAMPLES_MAX)):
        try:
            kind, sample = reader.word(), Reader(reader.opaque())
        except ParseError:
            broken += 1
            break
        try:
            if kind in {FLOW, FLOW_EXPANDED}:
                found.flows.append(read_flow(sample, is_expanded=kind == FLOW_EXPANDED))
            elif kind in {COUNTERS, COUNTERS_EXPANDED}:
                counts = read_counts(sample, is_expanded=kind == COUNTERS_EXPANDED)
                if counts is not None:
                    found.counters.append(counts)
            elif kind == DISCARDED:
                found.discards.append(read_discard(sample))
        except ParseError:
            broken += 1
    return found._replace(broken=broken + max(0, count - SAMPLES_MAX))


def read_source(sample: Reader, *, is_expanded: bool) -> int:
    """The ifIndex that was sampled or counted; 0 for a VLAN or another part."""
    if is_expanded:
        kind, index = sample.word(), sample.word()
    else:
        word = sample.word()
        kind, index = word >> 24, word & 0xFFFFFF
    return index if kind == PORT_INDEX else 0


def read_interface(sample: Reader, *, is_expanded: bool) -> tuple[int, bool]:
    """An interface's ifIndex, 0 for none; and whether the packet was dropped instead."""
    if is_expanded:
        form, value = sample.word(), sample.word()
    else:
        word = sample.word()
        form, value = word >> 30, word & 0x3FFFFFFF
    is_index = form == PORT_INDEX and value not in NOT_ONE
    return (value if is_index else 0), form == DROPPED


def records_of(sample: Reader) -> Iterator[tuple[int, bytes]]:
    for _ in range(min(sample.word(), RECORDS_MAX)):
        yield sample.word(), sample.opaque()


def read_flow(sample: Reader, *, is_expanded: bool) -> Flow:
    sample.word()  # its sequence number: datagrams have one too
    sampled_at = read_source(sample, is_expanded=is_expanded)
    rate = sample.word()
    sample.take(8)  # the pool, and samples that the switch itself dropped
    came_in, _ = read_interface(sample, is_expanded=is_expanded)
    went_out, is_dropped = read_interface(sample, is_expanded=is_expanded)
    source = destination = ""
    frame = 0
    for kind, record in records_of(sample):
        if kind == RAW_HEADER:
            frame, pair = read_header(record)
            source, destination = pair or (source, destination)
        elif kind in {SAMPLED_IPV4, SAMPLED_IPV6} and not source:
            source, destination, length = read_sampled_ip(record, is_ipv6=kind == SAMPLED_IPV6)
            frame = frame or length
    return Flow(source, destination, frame, rate, sampled_at, came_in, went_out, is_dropped)


def read_discard(sample: Reader) -> Discard:
    """A notice of a dropped packet, which has the expanded form of a source alone."""
    sample.word()  # its sequence number: datagrams have one too
    source_id = sample.word(), sample.word()
    untold = sample.word()
    came_in, to_leave, reason = sample.word(), sample.word(), sample.word()
    source = destination = ""
    queue = None
    named: dict[str, str] = {}
    for kind, record in records_of(sample):
        if kind == RAW_HEADER:
            source, destination = read_header(record)[1] or (source, destination)
        elif kind in {SAMPLED_IPV4, SAMPLED_IPV6} and not source:
            source, destination, _ = read_sampled_ip(record, is_ipv6=kind == SAMPLED_IPV6)
        elif kind == EGRESS_QUEUE:
            queue = Reader(record).word()
        elif kind in NAMING:
            named[NAMING[kind]] = read_detail(record, kind)
    detail = next((named[what] for what in DETAILS if named.get(what)), "")
    came_in, to_leave = (0 if each in NOT_ONE else each for each in (came_in, to_leave))
    return Discard(source, destination, came_in, to_leave, reason, queue, detail, source_id, untold)


def read_detail(record: bytes, kind: int) -> str:
    """The name of what dropped a packet: an access list without one has its number."""
    reader = Reader(record)
    number = reader.word() if kind == ACL else 0
    name = text_of(reader.opaque())
    if kind == HARDWARE_TRAP:
        group, name = name, text_of(reader.opaque())
        name = name or group
    return detail_of(NAMING[kind], name or (str(number) if kind == ACL else ""))


def text_of(data: bytes) -> str:
    text = data[:NAME_BYTES_MAX].decode("utf-8", "replace")
    return "".join(letter for letter in text if letter.isprintable())


def read_header(record: bytes) -> tuple[int, tuple[str, str] | None]:
    """The length of the packet's frame, and the addresses in what was kept of it."""
    reader = Reader(record)
    protocol, frame = reader.word(), reader.word()
    reader.word()  # bytes that were stripped: they are in the frame's length
    header = reader.opaque()
    return frame, addresses_of(header) if protocol == HEADER_ETHERNET else None


def addresses_of(header: bytes) -> tuple[str, str] | None:
    """Source and destination of the IP header behind Ethernet's; None without one."""
    at = 12
    for _ in range(_TAGS_MAX):
        kind = int.from_bytes(header[at : at + 2], "big")
        at += 2
        if kind not in _VLAN_TAGS:
            break
        at += 2
    packet = header[at:]
    if kind == _IPV4 and len(packet) >= 20 and packet[0] >> 4 == 4:  # noqa: PLR2004 - RFC 791
        return str(IPv4Address(packet[12:16])), str(IPv4Address(packet[16:20]))
    if kind == _IPV6 and len(packet) >= 40 and packet[0] >> 4 == 6:  # noqa: PLR2004 - RFC 8200
        return str(IPv6Address(packet[8:24])), str(IPv6Address(packet[24:40]))
    return None


def read_sampled_ip(record: bytes, *, is_ipv6: bool) -> tuple[str, str, int]:
    """Source, destination and length of a packet that a switch took apart itself."""
    reader = Reader(record)
    length = reader.word()
    reader.word()  # the protocol
    if is_ipv6:
        return str(IPv6Address(reader.take(16))), str(IPv6Address(reader.take(16))), length
    return str(IPv4Address(reader.take(4))), str(IPv4Address(reader.take(4))), length


GENERIC_NAMES = (
    "ifIndex", "ifType", "ifSpeed", "ifDirection", "ifStatus", "ifInOctets", "ifInUcastPkts",
    "ifInMulticastPkts", "ifInBroadcastPkts", "ifInDiscards", "ifInErrors", "ifInUnknownProtos",
    "ifOutOctets", "ifOutUcastPkts", "ifOutMulticastPkts", "ifOutBroadcastPkts", "ifOutDiscards",
    "ifOutErrors", "ifPromiscuousMode",
)  # fmt: skip
WIDE_NAMES = frozenset({"ifSpeed", "ifInOctets", "ifOutOctets"})
ETHERNET_NAMES = (
    "dot3StatsAlignmentErrors", "dot3StatsFCSErrors", "dot3StatsSingleCollisionFrames",
    "dot3StatsMultipleCollisionFrames", "dot3StatsSQETestErrors", "dot3StatsDeferredTransmissions",
    "dot3StatsLateCollisions", "dot3StatsExcessiveCollisions", "dot3StatsInternalMacTransmitErrors",
    "dot3StatsCarrierSenseErrors", "dot3StatsFrameTooLongs", "dot3StatsInternalMacReceiveErrors",
    "dot3StatsSymbolErrors",
)  # fmt: skip


def read_counts(sample: Reader, *, is_expanded: bool) -> Counts | None:
    """Counters of an interface; None for those of a VLAN, a processor or a queue."""
    sample.word()  # its sequence number
    index = read_source(sample, is_expanded=is_expanded)
    values: dict[str, int] = {}
    name = ""
    for kind, record in records_of(sample):
        if kind == GENERIC and len(record) >= _GENERIC.size:
            values |= zip(GENERIC_NAMES, _GENERIC.unpack_from(record), strict=True)
        elif kind == ETHERNET and len(record) >= _ETHERNET.size:
            values |= zip(ETHERNET_NAMES, _ETHERNET.unpack_from(record), strict=True)
        elif kind == PORT_NAME:
            name = text_of(Reader(record).opaque())
    index = values.pop("ifIndex", index) or index
    known = {
        what: value
        for what, value in values.items()
        if value != (UNKNOWN_64 if what in WIDE_NAMES else UNKNOWN_32)
    }
    speed = known.pop("ifSpeed", None) or None
    return Counts(index, speed, name, known) if index and (known or name) else None
