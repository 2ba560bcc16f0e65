"""Dropped packets as simulated Ethernet switches tell of them: sFlow's `discarded_packet`.

A switch tells of each packet that a full queue has dropped, up to a limit, and of how many it did
not tell. Whose they were no counter says: the drops in front of a link are shared among the flows
that cross it and that no pause protects, by the bytes that they bring. Packets that vanish on a
cable or inside a switch are told by none, as in reality.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address

import numpy as np

from collector.contract.units import NS, NS_PER_MS
from simulator.interfaces.columns import LOSSLESS_PRIORITY
from simulator.interfaces.switch_tables import Flavour, Ports, interface_index, interface_name
from simulator.network.flows import Links, Paths, background_paths, find_paths, mean_bps
from simulator.network.losses import LinkErrors, link_errors
from simulator.pattern import Pattern
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Floats, Ints, Topology
from simulator.topology.world import World

NOTICES_A_SECOND = 20
"""Of one switch: the rest it counts. Host sFlow's limit is set by hand, too."""
NOTICES_A_DATAGRAM = 8
NIC_NET = int(IPv4Address("198.18.0.0"))
"""Addresses of NICs, for 131,072 of them (RFC 2544)."""
SWITCH_NET = int(IPv4Address("10.255.0.0"))
FRAME_BYTES = 4096 + 74
ROCE_PORT = 4791
NO_BUFFER_SPACE = 259
DISCARDED, RAW_HEADER, EGRESS_QUEUE, HARDWARE_TRAP = 5, 1, 1036, 1041
TRAP = (b"buffer_drops", b"tail_drop")
"""As Linux' devlink calls a full queue."""


def nic_address(nic: int) -> str:
    return str(IPv4Address(NIC_NET + nic + 1))


def switch_address(switch: int) -> str:
    return str(IPv4Address(SWITCH_NET + switch + 1))


def port_names(topology: Topology, switch: int, flavour: Flavour) -> dict[str, str]:
    """Names of a switch's ports by ifIndex, as the settings of `sflow` want them."""
    ports = Ports(topology)
    numbers = [int(ports.number[position]) for position in ports.of_switch(switch)]
    return {str(interface_index(flavour, one)): interface_name(flavour, one) for one in numbers}


def hosts_file(topology: Topology) -> str:
    """The host of each NIC's address, as /etc/hosts has it."""
    lines = [
        f"{nic_address(nic)} {topology.host_name(topology.host_of_nic(nic))}"
        for nic in range(topology.nics)
    ]
    return "\n".join(lines) + "\n"


class DropNotices:
    """The notices of all switches, from one snapshot to the next."""

    def __init__(
        self, topology: Topology, patterns: Sequence[Pattern], flavour: Flavour = Flavour.SONIC
    ) -> None:
        """``patterns``: what the jobs ask of the network."""
        self._topology = topology
        self._patterns = patterns
        self._flavour = flavour
        self._dropped: Counts = np.zeros(topology.links, dtype=np.int64)
        self._sent: Counts = np.zeros(topology.links, dtype=np.int64)
        self._sequence = [0] * len(topology.switches)
        self._notices = [0] * len(topology.switches)
        self._withheld = [0] * len(topology.switches)

    def datagrams(self, snapshot: Snapshot) -> list[tuple[int, bytes]]:
        """What switches sent since the last snapshot: the switch's number, and a message."""
        new = snapshot.links.dropped_packets - self._dropped
        self._dropped = snapshot.links.dropped_packets.copy()
        bps = 8 * (snapshot.links.bytes - self._sent) / snapshot.interval_s
        self._sent = snapshot.links.bytes.copy()
        links = np.flatnonzero((new > 0) & (self._topology.source_switch >= 0))
        if not len(links):
            return []
        crossing = Crossing(snapshot.world, self._patterns)
        told: dict[int, list[bytes]] = {}
        limit = max(round(NOTICES_A_SECOND * snapshot.interval_s), 1)
        for link in links.tolist():
            switch = int(self._topology.source_switch[link])
            own = told.setdefault(switch, [])
            count = min(int(new[link]), limit - len(own))
            self._withheld[switch] += int(new[link]) - count
            for source, target, incoming in crossing.shared(link, count, float(bps[link])):
                own.append(self._notice(switch, link, incoming, source, target))
        return [
            (switch, self._datagram(switch, own[first : first + NOTICES_A_DATAGRAM], snapshot))
            for switch, own in told.items()
            for first in range(0, len(own), NOTICES_A_DATAGRAM)
        ]

    def _notice(self, switch: int, link: int, incoming: int, source: int, target: int) -> bytes:
        self._notices[switch] += 1
        topology, back = self._topology, self._topology.reverse
        came_in = interface_index(self._flavour, int(topology.port[back[incoming]]))
        leaves = interface_index(self._flavour, int(topology.port[link]))
        records = (
            record(RAW_HEADER, words(1, FRAME_BYTES, 4) + opaque(frame(source, target))),
            record(EGRESS_QUEUE, words(LOSSLESS_PRIORITY)),
            record(HARDWARE_TRAP, b"".join(map(opaque, TRAP))),
        )
        numbers = (self._notices[switch], 0, 0, self._withheld[switch], came_in, leaves)
        body = words(*numbers, NO_BUFFER_SPACE, len(records))
        return record(DISCARDED, body + b"".join(records))

    def _datagram(self, switch: int, notices: Sequence[bytes], snapshot: Snapshot) -> bytes:
        self._sequence[switch] += 1
        uptime_ms = round(snapshot.time_s * NS) // NS_PER_MS
        head = words(5, 1) + IPv4Address(switch_address(switch)).packed
        return head + words(0, self._sequence[switch], uptime_ms, len(notices)) + b"".join(notices)


class Crossing:
    """Which flows cross a link now, and how much they bring."""

    def __init__(self, world: World, patterns: Sequence[Pattern]) -> None:
        errors: LinkErrors = link_errors(world)
        links = Links.of(world, errors)
        routed = [
            find_paths(world, links, one.flow_source, one.flow_target, one.flow_key)
            for one in patterns
        ]
        of_jobs = [(paths, one.flow_bytes) for paths, one in zip(routed, patterns, strict=True)]
        rates = np.array([mean_bps(one) for one in world.background])
        self._kinds: list[tuple[Paths, Floats]] = [
            *of_jobs,
            (background_paths(world, links), rates),
        ]
        """Paths with what each flow brings, in units of its kind; the background's come last."""

    def shared(self, link: int, count: int, bps: float) -> Iterator[tuple[int, int, int]]:
        """So many packets: source and target NIC, and the link that each came in by.

        ``bps``: what the link carries. The jobs bring what the background does not: how often their
        collectives run, patterns do not say.
        """
        found = [self._at(link, paths, weight) for paths, weight in self._kinds]
        background, jobs = found[-1], np.concatenate(found[:-1])
        rate = float(background[:, 3].sum())
        others = round(count * min(rate / bps, 1.0)) if len(jobs) and bps > 0 else count
        for part, share in ((background, others), (jobs, count - others)):
            packets = apportion(part[:, 3], share).tolist() if len(part) else []
            for row, number in enumerate(packets):
                source, target, before = part[row, :3].astype(int).tolist()
                yield from [(source, target, before)] * number

    def _at(self, link: int, paths: Paths, weight: Floats) -> Floats:
        """Source, target, the link before this one, and weight of each flow that may lose here."""
        rows, hops = np.nonzero(paths.path == link)
        may = ~paths.is_lossless[rows] & (hops > 0) & (weight[rows] > 0)
        rows, hops = rows[may], hops[may]
        before = paths.path[rows, hops - 1]
        return np.column_stack([paths.source[rows], paths.target[rows], before, weight[rows]])


def apportion(weights: Floats, count: int) -> Ints:
    """Whole numbers that add up to ``count``, by weight: the largest remainders get one more.

    >>> apportion(np.array([3.0, 1.0, 1.0]), 6).tolist()
    [4, 1, 1]
    """
    exact = weights / weights.sum() * count
    shares: Ints = np.floor(exact).astype(np.int32)
    rest = np.argsort(-(exact - shares), kind="stable")[: count - int(shares.sum())]
    shares[rest] += 1
    return shares


def words(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def opaque(data: bytes) -> bytes:
    return words(len(data)) + data + bytes(-len(data) % 4)


def record(kind: int, body: bytes) -> bytes:
    return words(kind) + opaque(body)


def frame(source: int, target: int) -> bytes:
    """The beginning of a RoCE packet: Ethernet, IPv4 and UDP."""
    ends = IPv4Address(nic_address(source)).packed + IPv4Address(nic_address(target)).packed
    length = FRAME_BYTES - 18
    ip = struct.pack(">BBHIBBH", 0x45, LOSSLESS_PRIORITY << 5, length, 0, 64, 17, 0) + ends
    udp = struct.pack(">HHHH", 49152 + source % 16384, ROCE_PORT, length - 20, 0)
    return bytes(12) + b"\x08\x00" + ip + udp
