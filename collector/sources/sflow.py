"""Packets that switches have sampled, and counters that they push: sFlow version 5 over UDP.

Off until `listen` is set. Each switch stands in the settings, by the address that it gives itself
(`agent-address`); what any other address sends is counted and dropped. Shown are who fills the
ports that are busy with several senders (`collector.switches.talkers`), which packets it has
dropped, where a switch tells (`collector.switches.drops`), and, if wanted, the counters of its
interfaces. Samples are an estimate: a verdict shows them as context.

sFlow names ports by ifIndex. A switch that sends names beside its counters (Open vSwitch, Host
sFlow) is understood; for others `ports` of the settings says which is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import msgspec

from collector.contract.counters import WRAPS_32, advance
from collector.contract.errors import HostError, ParseError, SettingsError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.host import Host
from collector.doors.udp import split_address
from collector.parsing.sflow import WIDE_NAMES, Counts, Datagram, parse_datagram
from collector.sources import SourceSettings
from collector.switches import drops
from collector.switches.talkers import PORTS_MAX, Talkers, event_of

LOOK_SECONDS = 0.2
"""Between two looks at the socket: the kernel keeps some 400 kB, which are 300 datagrams."""
DATAGRAMS_MAX = 2_000
"""Of one look: ten thousand a second. Above that the kernel drops, and counts it."""
SUB_AGENTS_MAX = 64
"""Parts of one switch with sequence numbers of their own (the cards of a chassis)."""
GAP_MAX = 10_000
"""Datagrams that may be lost at once; a greater step is a switch that began anew."""
HOSTS_MAX = 65_536
"""Lines of `hosts_file`."""
UP_ADMIN, UP_OPERATIONAL = 1, 2
"""Bits of ifStatus."""

DATAGRAMS = "fabric_switch_flow_datagrams_total"
LOST = "fabric_switch_flow_lost_datagrams_total"
SAMPLES = "fabric_switch_flow_samples_total"
LEFT_OUT = "fabric_switch_flow_left_out_total"
DROPS = "fabric_switch_drop_notices_total"
DROPS_UNTOLD = "fabric_switch_drop_notices_withheld_total"
STATE_UP, STATE_DOWN = 4, 1

COUNTERS = {
    "ifInOctets": "fabric_port_receive_bytes_total",
    "ifInUcastPkts": "fabric_port_receive_unicast_packets_total",
    "ifInMulticastPkts": "fabric_port_receive_multicast_packets_total",
    "ifInBroadcastPkts": "fabric_port_receive_broadcast_packets_total",
    "ifInDiscards": "fabric_port_receive_discards_total",
    "ifInErrors": "fabric_port_receive_errors_total",
    "ifOutOctets": "fabric_port_transmit_bytes_total",
    "ifOutUcastPkts": "fabric_port_transmit_unicast_packets_total",
    "ifOutMulticastPkts": "fabric_port_transmit_multicast_packets_total",
    "ifOutBroadcastPkts": "fabric_port_transmit_broadcast_packets_total",
    "ifOutDiscards": "fabric_port_transmit_discards_total",
    "ifOutErrors": "fabric_port_transmit_errors_total",
    "dot3StatsAlignmentErrors": "fabric_port_receive_alignment_errors_total",
    "dot3StatsFCSErrors": "fabric_port_receive_crc_errors_total",
    "dot3StatsInternalMacReceiveErrors": "fabric_port_receive_mac_errors_total",
    "dot3StatsSymbolErrors": "fabric_port_symbol_errors_total",
}


class SflowSwitch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A switch that sends sFlow."""

    name: str
    """As `snmp` or `gnmi` call it."""
    address: str
    """That it gives itself in its datagrams (`agent-address`)."""
    ports: dict[str, str] = {}
    """ifIndex → name, for a switch that sends no names."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `sflow`."""

    interval_seconds: float = 10.0
    listen: str = ""
    """Address and UDP port to listen at, such as 192.0.2.1:6343; empty: off."""
    switches: tuple[SflowSwitch, ...] = ()
    hosts_file: str = "/etc/hosts"
    """Names of hosts by their addresses, as /etc/hosts has them: the first name of a line counts,
    and is to be the name that the host's agent has."""
    busy_ratio: float = 0.5
    """Share of its line from which on a port's senders are told of."""
    counters: bool = False
    """Whether counters of interfaces are reported: for switches that are not polled."""


class Switch:
    """What one switch has sent."""

    def __init__(self, settings: SflowSwitch) -> None:
        self.name = settings.name
        self.talkers = Talkers()
        self.drops = drops.Drops()
        self.datagrams = self.lost = self.samples = self.broken = 0
        self.names = {int(index): name for index, name in settings.ports.items()}
        self._given = frozenset(self.names)
        self.speeds: dict[int, int] = {}
        self._sequences: dict[int, tuple[int, int]] = {}
        """Number and uptime of the last datagram of each part."""
        self._counted: dict[tuple[int, str], tuple[int, int]] = {}
        """What each counter of 32 bits last showed, and its count since then."""
        self._news: dict[int, tuple[Counts, int]] = {}
        """The latest counters of each port since the last read."""
        self._series: dict[tuple[str, str], Series] = {}

    def hear(self, datagram: Datagram, now_ns: int) -> None:
        self.datagrams += 1
        self.samples += len(datagram.flows)
        self.broken += datagram.broken
        self._note_sequence(datagram)
        for flow in datagram.flows:
            self.talkers.count(flow)
        for discard in datagram.discards:
            self.drops.count(discard)
        for counts in datagram.counters:
            if counts.port in self.speeds or len(self.speeds) < PORTS_MAX:
                self.speeds[counts.port] = counts.speed or 0
                if counts.name and counts.port not in self._given:
                    self.names[counts.port] = counts.name
                before = self._news.get(counts.port)
                values = before[0].values | counts.values if before else counts.values
                self._news[counts.port] = counts._replace(values=values), now_ns

    def _note_sequence(self, datagram: Datagram) -> None:
        last, uptime = self._sequences.get(datagram.sub_agent, (0, -1))
        if uptime < 0 and len(self._sequences) >= SUB_AGENTS_MAX:
            return
        step = datagram.sequence - last
        if 0 <= uptime <= datagram.uptime_ms and 1 < step <= GAP_MAX:
            self.lost += step - 1
        if step > 0 or datagram.uptime_ms < uptime or step < -GAP_MAX or uptime < 0:
            self._sequences[datagram.sub_agent] = datagram.sequence, datagram.uptime_ms

    def read(
        self, seconds: float, settings: Settings, host: Host, hosts: Mapping[str, str]
    ) -> Iterator[Reading]:
        """All that is new; ``seconds``: since the last read, ``hosts``: by their addresses."""
        if not self.datagrams:
            detail = "it has sent no sFlow, or its agent-address is another"
            yield Missing(self._find(DATAGRAMS), UnreadReason.ABSENT, detail)
            return
        time_ns, now_ns = host.now_ns(), host.monotonic_ns()
        yield Sample(self._find(DATAGRAMS), self.datagrams, time_ns)
        yield Sample(self._find(LOST), self.lost, time_ns)
        yield Sample(self._find(SAMPLES), self.samples, time_ns)
        for load in self.talkers.take(seconds, self.speeds, settings.busy_ratio, now_ns):
            yield event_of(load, self._port_labels(load.port), seconds, time_ns, hosts)
        yield from self._read_drops(seconds, time_ns, hosts)
        left_out = {"broken": self.broken, **self.talkers.dropped, "drops": self.drops.left_out}
        for reason, count in left_out.items():
            yield Sample(self._find(LEFT_OUT, reason), count, time_ns)
        news, self._news = self._news, {}
        if settings.counters:
            for counts, heard_ns in news.values():
                yield from self._read_port(counts, heard_ns)

    def _read_drops(
        self, seconds: float, time_ns: int, hosts: Mapping[str, str]
    ) -> Iterator[Reading]:
        """Nothing of a switch that has told of no drop: most cannot."""
        if not self.drops.told:
            return
        for reason, count in self.drops.told.items():
            yield Sample(self._find(DROPS, reason), count, time_ns)
        yield Sample(self._find(DROPS_UNTOLD), self.drops.untold, time_ns)
        for index, found in self.drops.take():
            yield drops.event_of(found, self._port_labels(index), seconds, time_ns, hosts)

    def _read_port(self, counts: Counts, time_ns: int) -> Iterator[Sample]:
        if counts.port not in self.names:
            return  # an ifIndex is no name that anything else knows
        port = self.names[counts.port]
        if counts.speed:
            series = self._find("fabric_port_rate_bits_per_second", port)
            yield Sample(series, counts.speed, time_ns)
        status = counts.values.get("ifStatus")
        if status is not None:
            is_up = bool(status & UP_OPERATIONAL)
            enabled = self._find("fabric_port_enabled", port)
            yield Sample(enabled, status & UP_ADMIN, time_ns)
            state = self._find("fabric_port_state", port)
            yield Sample(state, STATE_UP if is_up else STATE_DOWN, time_ns)
        for name, metric in COUNTERS.items():
            if name in counts.values:
                count = self._widened(counts.port, name, counts.values[name])
                yield Sample(self._find(metric, port), count, time_ns)

    def _widened(self, index: int, name: str, raw: int) -> int:
        if name in WIDE_NAMES:
            return raw
        last = self._counted.get((index, name))
        count = raw if last is None else last[1] + advance(last[0], raw, WRAPS_32)[0]
        self._counted[index, name] = raw, count
        return count

    def _port_labels(self, index: int) -> dict[str, str]:
        return {"host": self.name, "device": self.name, "port": self.names.get(index, str(index))}

    def _find(self, metric: str, word: str = "") -> Series:
        key = metric, word
        if key not in self._series:
            labels = {"host": self.name}
            if metric in {LEFT_OUT, DROPS}:
                labels["drop_reason"] = word
            elif word:
                labels |= {"device": self.name, "port": word}
            self._series[key] = Series(metric, labels)
        return self._series[key]


class Sflow:
    """The source."""

    name: ClassVar[str] = "sflow"
    Settings: ClassVar[type[SourceSettings]] = Settings
    look_seconds: float
    """Only there with `listen`: an agent without switches does not wake up for them."""

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        if settings.listen:
            check(settings)
            self.look_seconds = LOOK_SECONDS
        self._switches = {each.address: Switch(each) for each in settings.switches}
        self._read_ns = 0
        self._failure: HostError | None = None
        self._dropped = {"unknown_switch": 0, "not_sflow": 0, "kernel": 0}
        self._left_out = {
            reason: Series(LEFT_OUT, {"drop_reason": reason}) for reason in self._dropped
        }

    def read(self, host: Host) -> Iterator[Reading]:
        if not self._settings.listen:
            return
        self._drain(host)
        now_ns, time_ns = host.monotonic_ns(), host.now_ns()
        seconds = (now_ns - self._read_ns) / NS if self._read_ns else 0.0
        self._read_ns = now_ns
        if self._failure is not None:
            detail = f"{self._failure.path}: {self._failure.detail}"
            yield Missing(self._left_out["kernel"], self._failure.reason, detail)
            return
        for reason, count in self._dropped.items():
            yield Sample(self._left_out[reason], count, time_ns)
        hosts = read_hosts(host, self._settings.hosts_file)
        for switch in self._switches.values():
            yield from switch.read(seconds, self._settings, host, hosts)

    def look(self, host: Host) -> Iterable[Reading]:
        """Empties the socket; what came is told at the next read."""
        self._drain(host)
        return ()

    def _drain(self, host: Host) -> None:
        try:
            packets, dropped = host.receive_udp(self._settings.listen, DATAGRAMS_MAX)
        except HostError as error:
            self._failure = error
            return
        self._failure = None
        self._dropped["kernel"] = dropped
        for packet in packets:
            try:
                datagram = parse_datagram(packet.data)
            except ParseError:
                self._dropped["not_sflow"] += 1
                continue
            switch = self._switches.get(datagram.agent)
            if switch is None:
                self._dropped["unknown_switch"] += 1
            else:
                switch.hear(datagram, host.now_ns())


def read_hosts(host: Host, path: str) -> dict[str, str]:
    """Hosts by their addresses; none where the file cannot be read, and addresses stay as such."""
    try:
        text = host.read(path.lstrip("/")).decode("utf-8", "replace") if path else ""
    except HostError:
        return {}
    lines = (line.partition("#")[0].split() for line in text.splitlines()[:HOSTS_MAX])
    return {words[0]: words[1] for words in lines if len(words) > 1}


def check(settings: Settings) -> None:
    """Refuse settings that cannot work."""
    try:
        split_address(settings.listen)
    except ValueError as error:
        raise SettingsError(f"sources.sflow.listen: {error}") from error
    if not settings.switches:
        raise SettingsError("sources.sflow.switches: none is set, and others are not listened to")
    addresses = [each.address for each in settings.switches]
    if twice := sorted({one for one in addresses if addresses.count(one) > 1}):
        raise SettingsError(f"sources.sflow.switches: {twice[0]} is there twice")
    for each in settings.switches:
        if odd := [index for index in each.ports if not (index.isascii() and index.isdigit())]:
            raise SettingsError(f"sources.sflow.switches: {each.name}: {odd[0]!r} is no ifIndex")


SOURCE = Sflow
