"""Who fills a port of a switch, from the packets that the switch has sampled (sFlow).

Of each port that packets left through, the bytes of each pair of addresses are added up, scaled by
the sampling rate. A port that was busy with packets of several senders is told as an event with
its greatest pairs; a port with one sender is a port at work, and nothing is said of it.

A packet may be sampled where it comes in, where it goes out, or at both. Both are kept apart, and
where the port itself was sampled only that counts: else a packet would count twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from collector.contract.model import Event
from collector.contract.units import NS
from collector.parsing.sflow import Flow

KIND: Final = "port_talkers"
FLOWS_MAX: Final = 8_192
"""Pairs of addresses at all ports of one switch between two reads."""
PORTS_MAX: Final = 1_024
TALKERS_MAX: Final = 5
"""Pairs that an event names."""
EVENTS_MAX: Final = 64
"""Ports of one switch that are told of at one read."""
SAMPLES_LEAST: Final = 50
"""Samples of a port. A pair that sends half of it is then known to 28 % of itself, with 95 %
certainty (196 % / sqrt(n): "Packet Sampling Basics", sflow.org)."""
SENDERS_LEAST: Final = 2
AGAIN_SECONDS: Final = 30
"""From one event of a port to its next."""
PERCENT: Final = 100

Pair = tuple[str, str]


class Port:
    """The samples of one port since the last read."""

    __slots__ = ("at_input", "at_output")

    def __init__(self) -> None:
        self.at_input: dict[Pair, list[int]] = {}
        """Bytes and samples of each pair, where packets were sampled as they came in."""
        self.at_output: dict[Pair, list[int]] = {}

    def flows(self) -> dict[Pair, list[int]]:
        return self.at_output or self.at_input


class Load(NamedTuple):
    """How busy a port was, and with what."""

    port: int
    """Its ifIndex."""
    busy: float
    """Share of its speed."""
    samples: int
    pairs: list[tuple[Pair, float]]
    """The greatest, with their share of the port's bytes; empty addresses: no IP."""
    senders: int


class Talkers:
    """The pairs of one switch."""

    def __init__(self) -> None:
        self._ports: dict[int, Port] = {}
        self._flows = 0
        self._told_ns: dict[int, int] = {}
        self.dropped = {"flows": 0, "no_speed": 0, "ports": 0}

    def count(self, flow: Flow) -> None:
        """One sampled packet that left through a port."""
        if not flow.output:
            return
        port = self._ports.get(flow.output)
        if port is None:
            if len(self._ports) >= PORTS_MAX:
                self.dropped["flows"] += 1
                return
            port = self._ports[flow.output] = Port()
        flows = port.at_output if flow.sampled_at == flow.output else port.at_input
        pair = flow.source, flow.destination
        entry = flows.get(pair)
        if entry is None:
            if self._flows >= FLOWS_MAX:
                self.dropped["flows"] += 1
                return
            self._flows += 1
            entry = flows[pair] = [0, 0]
        entry[0] += flow.frame_bytes * flow.sampling_rate
        entry[1] += 1

    def take(self, seconds: float, speeds: dict[int, int], least: float, now_ns: int) -> list[Load]:
        """Busy ports of several senders since the last call, the busiest first."""
        found = []
        for index, port in self._ports.items():
            flows = port.flows()
            samples = sum(count for _, count in flows.values())
            if samples < SAMPLES_LEAST or seconds <= 0:
                continue
            if not (speed := speeds.get(index)):
                self.dropped["no_speed"] += 1
                continue
            load = load_of(index, flows, samples, seconds * speed / 8)
            told_ns = self._told_ns.get(index)
            is_due = told_ns is None or now_ns - told_ns >= AGAIN_SECONDS * NS
            if load.busy >= least and load.senders >= SENDERS_LEAST and is_due:
                found.append(load)
        self._ports.clear()
        self._flows = 0
        found.sort(key=lambda load: (-load.busy, load.port))
        self.dropped["ports"] += max(0, len(found) - EVENTS_MAX)
        self._told_ns = {k: v for k, v in self._told_ns.items() if now_ns - v < AGAIN_SECONDS * NS}
        for load in found[:EVENTS_MAX]:
            self._told_ns[load.port] = now_ns
        return found[:EVENTS_MAX]


def load_of(index: int, flows: dict[Pair, list[int]], samples: int, bytes_full: float) -> Load:
    total = sum(size for size, _ in flows.values())
    greatest = sorted(flows.items(), key=lambda item: (-item[1][0], item[0]))[:TALKERS_MAX]
    senders = {source for source, _ in flows if source}
    pairs = [(pair, size / total) for pair, (size, _) in greatest] if total else []
    return Load(index, total / bytes_full, samples, pairs, len(senders))


def event_of(
    load: Load, labels: dict[str, str], seconds: float, time_ns: int, hosts: Mapping[str, str]
) -> Event:
    """What is told of a busy port; ``hosts``: the host of an address."""
    named = [(pair, share) for pair, share in load.pairs if all(pair)]
    known = {one: hosts[one] for pair, _ in named for one in pair if one in hosts}
    words = ", ".join(f"{a} to {b} {share:.0%}" for (a, b), share in named)
    return Event(
        time_ns=time_ns,
        kind=KIND,
        labels=labels,
        message=(
            f"{labels['port']} of {labels['host']} sent {load.busy:.0%} of its line for "
            f"{seconds:.3g} s, from {load.senders} senders, by {load.samples} samples: {words}"
        ),
        attributes={
            "talkers": " ".join(f"{a}>{b}={share * PERCENT:.0f}" for (a, b), share in named),
            "hosts": " ".join(f"{address}={host}" for address, host in known.items()),
            "samples": str(load.samples),
            "milliseconds": f"{seconds * 1000:.0f}",
        },
    )
