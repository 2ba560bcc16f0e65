"""Tiny probes from each rail to the same rail of other hosts: loss and latency before a job is.

Off unless it is asked for, and alike on all hosts of a mesh: each sends UDP datagrams of 64 bytes
to its targets, on some flows (source ports) so that several ways through the fabric are tried, and
answers those of its targets. Targets stand in the settings or, where `networks` allows it, come
from the service, and then probes from these networks are answered. It takes a thousandth of a link
at most, both directions and its answers counted; what does not fit into a round has its turn in a
later one.

A probe is lost when no answer has come in a second. A host that does not answer at all may have no
agent: only detectors that see several hosts tell that from a broken path. UDP is not RDMA: it is
in another class of traffic, which may be lost where RDMA is not, and the reverse.
"""

from __future__ import annotations

import contextlib
import ipaddress
import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from msgspec import Meta

from collector.contract.errors import HostError, SettingsError, WireError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.probes import (
    FLOW_LOST,
    LOST,
    RAIL,
    ROUND_TRIP,
    SENT,
    TARGETS_MAX,
    ProbeTarget,
    decode_targets,
    encode_targets,
    far_end,
)
from collector.contract.units import NS
from collector.doors.host import Host
from collector.doors.probes import Network, Plan, Prober, Sending, is_within
from collector.parsing.probes import WIRE_BYTES
from collector.sources import SourceSettings

ANSWERS = "fabric_host_probe_answers_total"
BUDGET_SHARE = 0.001
"""Of a link, for probes and for answers together."""
LINK_BITS_LEAST = 1_000_000_000
"""Taken for a link whose speed is not known."""
LINK_BITS_MOST = 400_000_000_000
ANSWER_SECONDS = 1.0
"""A fabric answers in microseconds; a datagram that took longer is as good as lost."""
RAILS_MAX = 16
FLOW_SERIES_MAX = 1_024
"""Series of flows that have lost a probe; more are counted in the target's own."""
ROUND_MAX = 4_096
"""Probes of one round, over all rails."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `probes`."""

    enabled: bool = False
    """It sends traffic."""
    interval_seconds: float = 5.0
    rails: tuple[str, ...] = ()
    """Own addresses: `rail0 10.0.0.41 ens1f0`. The interface is asked for its speed; without one
    1 Gb/s is taken."""
    targets: tuple[str, ...] = ()
    """The rails of other hosts: `rail0 node0042 10.0.0.42`, the host by the name under which its
    own agent sends. Alike on all hosts: a host's own addresses are passed over. Only these are
    answered, and what `networks` names."""
    networks: tuple[str, ...] = ()
    """Networks in which the service may name more targets: `10.0.0.0/16`. Probes that come from
    there are answered. Empty: it may name none."""
    port: Annotated[int, Meta(ge=1024, le=65_000)] = 9_797
    """Requests come here; the flows are sent from the ports behind it."""
    flows: Annotated[int, Meta(ge=1, le=16)] = 4
    """Ways that are tried to each target: as many source ports."""


class Rail(NamedTuple):
    """A line of the setting `rails`."""

    name: str
    address: str
    interface: str


class Target(NamedTuple):
    """A line of the setting `targets`."""

    rail: str
    host: str
    address: str


class Counts:
    """Of one target, since the agent started."""

    def __init__(self, target: Target) -> None:
        labels = {"rail": target.rail, "to": far_end(target.host, target.rail)}
        self.sent_series, self.lost_series = Series(SENT, labels), Series(LOST, labels)
        self.round_trip_series = Series(ROUND_TRIP, labels)
        self.labels = labels
        self.sent = self.lost = 0
        self.round_trips: list[int] = []
        """Of the last round that it had a part in."""


class Probes:
    """The source; it keeps its sockets, its counts and whose turn it is."""

    name: ClassVar[str] = "probes"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        rails = [parse_rail(line) for line in settings.rails]
        if len(rails) > RAILS_MAX or len(settings.targets) > TARGETS_MAX:
            raise SettingsError(
                f"probes: {len(rails)} rails and {len(settings.targets)} targets; at most"
                f" {RAILS_MAX} and {TARGETS_MAX}: let each host probe a part of the others"
            )
        self._rails = {rail.name: rail for rail in rails}
        own = {rail.address for rail in rails}
        targets = [parse_target(line) for line in settings.targets]
        self._flows: dict[tuple[Target, int], list[int]] = {}
        self._flow_series: dict[tuple[Target, int], Series] = {}
        self._networks = tuple(parse_network(text) for text in settings.networks)
        self._rail_series = [rail_series(rail) for rail in rails if self._networks]
        self._own_targets = [one for one in targets if one.address not in own]
        self._counts: dict[Target, Counts] = {}
        self._turn = dict.fromkeys(self._rails, 0)
        self._served: list[ProbeTarget] = []
        """By the service, and taken up."""
        self._offered: deque[list[ProbeTarget]] = deque(maxlen=1)
        """By the service, for the next round to take up."""
        self._aim_at(self._own_targets)
        self._answers = {
            what: Series(ANSWERS, {"what": what}) for what in ("answered", "refused", "over_limit")
        }
        self._prober: Prober | None = None

    # Targets of the service ------------------------------------------------------------------

    @property
    def takes_targets(self) -> bool:
        """Whether the service may name targets."""
        return bool(self._networks)

    def take_targets(self, targets: Sequence[ProbeTarget]) -> None:
        """Probe these from the next round on, beside those of the settings; for any thread."""
        self._offered.append(list(targets))

    def save_state(self) -> dict[str, Any]:
        return {"targets": encode_targets(self._served)}

    def load_state(self, state: dict[str, Any]) -> None:
        """A service that is away when the agent starts stops no probes."""
        with contextlib.suppress(WireError, KeyError, TypeError):
            kept = decode_targets(state["targets"])
            if not self._offered:
                self._offered.append(kept)

    def _take_up(self) -> None:
        try:
            offered = self._offered.pop()
        except IndexError:
            return
        self._served = [each for each in offered if self._may_probe(each)]
        named = [Target(each.rail, each.host, each.address) for each in self._served]
        self._aim_at(list(dict.fromkeys([*self._own_targets, *named]))[:TARGETS_MAX])

    def _may_probe(self, target: ProbeTarget) -> bool:
        own = {rail.address for rail in self._rails.values()}
        return target.address not in own and is_within(target.address, self._networks)

    def _aim_at(self, targets: Sequence[Target]) -> None:
        """Probe these from now on; what is known of those that stay is kept."""
        self._targets = {name: [one for one in targets if one.rail == name] for name in self._rails}
        every = [one for each in self._targets.values() for one in each]
        self._counts = {one: self._counts.get(one) or Counts(one) for one in every}
        stay = set(every)
        self._flow_series = {
            key: series for key, series in self._flow_series.items() if key[0] in stay
        }
        self._flows = {key: count for key, count in self._flows.items() if key[0] in stay}

    def _introduce(self, time_ns: int) -> Iterator[Reading]:
        """Where the service finds the own rails, if it may name targets."""
        for series in self._rail_series:
            yield Sample(series, 1, time_ns)

    def close(self) -> None:
        """Free the ports, also for the agent's next configuration."""
        if self._prober is not None:
            self._prober.close()
            self._prober = None

    def read(self, host: Host) -> Iterator[Reading]:
        """One round, and what all rounds have counted."""
        self._take_up()
        yield from self._introduce(host.now_ns())
        if not self._counts and not self._networks:
            return
        if self._prober is None:
            try:
                self._prober = host.prober(self._plan())
            except HostError as error:
                for counts in self._counts.values():
                    yield Missing(counts.sent_series, error.reason, error.detail)
                return
        chosen = [each for rail in self._rails.values() for each in self._choose(host, rail)]
        chosen = chosen[:ROUND_MAX]
        sendings = [Sending(target.rail, target.address, flow) for target, flow in chosen]
        trips = self._prober.round(sendings, ANSWER_SECONDS)
        for target in {target for target, _ in chosen}:
            self._counts[target].round_trips = []
        for (target, flow), trip_ns in zip(chosen, trips, strict=True):
            self._note(target, flow, trip_ns)
        yield from self._report(host.now_ns())

    def _plan(self) -> Plan:
        return Plan(
            rails={rail.name: rail.address for rail in self._rails.values()},
            peers=frozenset(target.address for target in self._own_targets),
            networks=self._networks,
            port=self._settings.port,
            flows=self._settings.flows,
        )

    def _choose(self, host: Host, rail: Rail) -> list[tuple[Target, int]]:
        """The next targets and flows of a rail, as many as its budget has."""
        targets = self._targets[rail.name]
        every = len(targets) * self._settings.flows
        count = min(every, probes_of_round(link_bits(host, rail), self._settings.interval_seconds))
        first = self._turn[rail.name]
        self._turn[rail.name] = (first + count) % max(every, 1)
        places = ((first + place) % every for place in range(count))
        # All targets on one flow before the next flow: a short round still has every target.
        return [(targets[place % len(targets)], place // len(targets)) for place in places]

    def _note(self, target: Target, flow: int, trip_ns: int | None) -> None:
        counts = self._counts[target]
        counts.sent += 1
        if trip_ns is not None:
            counts.round_trips.append(trip_ns)
            return
        counts.lost += 1
        key = target, flow
        if key not in self._flow_series and len(self._flow_series) < FLOW_SERIES_MAX:
            self._flow_series[key] = Series(FLOW_LOST, {**counts.labels, "flow": str(flow)})
            self._flows[key] = [0]
        if key in self._flows:
            self._flows[key][0] += 1

    def _report(self, time_ns: int) -> Iterator[Reading]:
        for counts in self._counts.values():
            if counts.sent:
                yield Sample(counts.sent_series, counts.sent, time_ns)
                yield Sample(counts.lost_series, counts.lost, time_ns)
            if counts.round_trips:
                middle = statistics.median(counts.round_trips) / NS
                yield Sample(counts.round_trip_series, middle, time_ns)
        for key, series in self._flow_series.items():
            yield Sample(series, self._flows[key][0], time_ns)
        if self._prober is not None:
            for what, series in self._answers.items():
                yield Sample(series, getattr(self._prober.answers, what), time_ns)


SOURCE = Probes


def parse_rail(line: str) -> Rail:
    """A line of the setting.

    >>> parse_rail("rail0 10.0.0.41")
    Rail(name='rail0', address='10.0.0.41', interface='')
    """
    words = line.split()
    if len(words) not in {2, 3}:
        raise SettingsError(f"probes: rails: {line!r} is not RAIL ADDRESS [INTERFACE]")
    return Rail(words[0], checked(words[1], "rails"), words[2] if len(words) > 2 else "")  # noqa: PLR2004


def rail_series(rail: Rail) -> Series:
    labels = {"rail": rail.name, "address": rail.address, "interface": rail.interface}
    return Series(RAIL, {label: text for label, text in labels.items() if text})


def parse_target(line: str) -> Target:
    words = line.split()
    if len(words) != 3:  # noqa: PLR2004 - as the message says
        raise SettingsError(f"probes: targets: {line!r} is not RAIL HOST ADDRESS")
    return Target(words[0], words[1], checked(words[2], "targets"))


def parse_network(text: str) -> Network:
    """As numbers, so that each datagram costs little to check.

    >>> parse_network("10.0.0.0/16")
    (167772160, 4294901760)
    """
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise SettingsError(f"probes: networks: {text!r} is no IPv4 network: {error}") from error
    return int(network.network_address), int(network.netmask)


def checked(address: str, setting: str) -> str:
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError as error:
        raise SettingsError(f"probes: {setting}: {address!r} is no IPv4 address") from error


def link_bits(host: Host, rail: Rail) -> int:
    """The rail's speed, as its driver states it; the least that is likely where it does not."""
    if not rail.interface:
        return LINK_BITS_LEAST
    try:
        megabits = int(host.read(f"sys/class/net/{rail.interface}/speed"))
    except (HostError, ValueError):
        return LINK_BITS_LEAST
    return min(megabits * 1_000_000, LINK_BITS_MOST) if megabits > 0 else LINK_BITS_LEAST


def probes_of_round(link_bits_per_second: int, interval_seconds: float) -> int:
    """How many probes of a rail fit into a round; as many answers to others are sent.

    >>> probes_of_round(1_000_000_000, 5.0)
    2403
    """
    bits = link_bits_per_second * BUDGET_SHARE * interval_seconds
    return int(bits / (2 * WIRE_BYTES * 8))
