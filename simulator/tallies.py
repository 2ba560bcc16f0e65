"""Counters of all ports and NICs: rates of the network, summed over time.

Steady flows are summed exactly. Random events (bits that flip, packets that are damaged) are summed
as an expectation and drawn once a tick, so that rare events come as whole numbers and the same seed
gives the same ones.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from simulator.network.flows import Wire
from simulator.network.lone import Lone
from simulator.network.losses import LinkErrors
from simulator.network.model import NOTICED, SUMMED, LinkRates, NicRates
from simulator.snapshot import Counts, LinkCounters, NicCounters
from simulator.topology.model import Bools, Floats, Ints, LinkKind, Topology

RETRAINING_LOSS = 1e-3
"""A link that damages more than this share of its packets retrains."""
RETRAININGS_PER_SECOND = 0.05
"""How often it retrains: each takes a part of a second and helps for a while."""

_MICROSECONDS = 1e6
_NANOSECONDS = 1e9


class Tallies:
    """All counters of one cluster."""

    def __init__(self, topology: Topology, random: np.random.Generator) -> None:
        self._topology = topology
        self._random = random
        links = topology.links
        # A row for each link: links are added by their numbers, all columns at once.
        self._table = np.zeros((links, len(SUMMED)))
        self._sums = dict(zip(SUMMED, self._table.T, strict=True))
        self._peak = np.zeros(links)
        self._burst = np.zeros(links)
        self._bits = np.zeros(links)
        self._chance = {
            name: np.zeros(links, dtype=np.int64)
            for name in ("lost", "corrupted", "corrected", "symbols", "recoveries")
        }
        self._downs = np.zeros(links, dtype=np.int64)
        self._nic_table = np.zeros((topology.nics, len(NOTICED)))
        self._at_boot: LinkCounters | None = None
        self._nics_at_boot: NicCounters | None = None

    # Adding ----------------------------------------------------------------------------------

    def add(self, links: LinkRates, nics: NicRates, seconds: float) -> None:
        at = links.links
        self._table[at] += links.table * seconds
        self._burst[at] = np.maximum(self._burst[at], links.burst_bytes)
        if links.has_queues:
            self._peak[at] = np.maximum(self._peak[at], links.queue_peak_bytes)
        if not nics.is_calm:
            self._nic_table[nics.nics] += nics.table * seconds

    def add_lone(self, lone: Lone, seconds: Floats) -> None:
        """Add what units send that share no link: for so many seconds of each."""
        self._table[lone.links] += lone.link_table * seconds[lone.link_unit, None]
        sends = seconds[lone.link_unit] > 0
        at = lone.links[sends]
        self._burst[at] = np.maximum(self._burst[at], lone.link_bursts[sends])
        if lone.nic_table.any():
            self._nic_table[lone.nics] += lone.nic_table * seconds[lone.nic_unit, None]

    def take_back(self, wire: Wire, collectives: Floats) -> None:
        """Subtract bytes and packets that units never sent: so many collectives of each."""
        sent = wire.bytes_of(collectives)
        self._sums["bytes"][wire.links] -= sent
        self._sums["packets"][wire.links] -= sent / wire.packet_bytes

    def add_downs(self, links: Ints) -> None:
        self._downs[links] += 1

    def draw(self, errors: LinkErrors, is_up: Bools, speed_share: Floats, seconds: float) -> None:
        """Draw random errors of so many seconds: in packets, and in the bits that always flow."""
        random, topology = self._random, self._topology
        lost = random.poisson(self._sums["lost_packets"])
        self._sums["lost_packets"][:] = 0.0
        damaged = errors.packet_loss > 0
        share = np.where(
            damaged, errors.packet_corruption / np.maximum(errors.packet_loss, 1e-300), 1
        )
        self._chance["lost"] += lost
        self._chance["corrupted"] += random.binomial(lost, np.clip(share, 0.0, 1.0))
        bits = np.where(
            topology.kind > LinkKind.PCIE_IN,
            topology.bits_per_second * speed_share * is_up * seconds,
            0.0,
        )
        self._bits += bits
        self._chance["corrected"] += random.poisson(bits * errors.corrected_per_bit)
        self._chance["symbols"] += random.poisson(bits * errors.symbol_errors_per_bit)
        retraining = (errors.packet_corruption > RETRAINING_LOSS) & is_up
        self._chance["recoveries"] += random.poisson(
            retraining * (RETRAININGS_PER_SECOND * seconds)
        )

    def restart(self, nics: Bools) -> None:
        """Reset what the hosts of these NICs see to zero: the NICs have lost power."""
        links, counters = self.links(1.0), self.nics()
        if self._at_boot is None or self._nics_at_boot is None:
            self._at_boot = LinkCounters(
                **{field.name: np.zeros_like(getattr(links, field.name)) for field in fields(links)}
            )
            self._nics_at_boot = NicCounters(
                **{
                    field.name: np.zeros_like(getattr(counters, field.name))
                    for field in fields(counters)
                }
            )
        which = np.flatnonzero(nics).astype(np.int32)
        topology = self._topology
        ends = np.concatenate([topology.up(which), topology.down(which), topology.pcie_in(which)])
        for field in fields(links):
            getattr(self._at_boot, field.name)[ends] = getattr(links, field.name)[ends]
        for field in fields(counters):
            getattr(self._nics_at_boot, field.name)[which] = getattr(counters, field.name)[which]

    # Reading ---------------------------------------------------------------------------------

    def links(self, seconds: float) -> LinkCounters:
        """As the switches count; queues are means over the ``seconds`` since `forget_queues`."""
        sums, chance = self._sums, self._chance
        return LinkCounters(
            bytes=_whole(sums["bytes"]),
            packets=_whole(sums["packets"]),
            lost_packets=chance["lost"].copy(),
            corrupted_packets=chance["corrupted"].copy(),
            dropped_packets=_whole(sums["dropped_packets"]),
            marked_packets=_whole(sums["marked_packets"]),
            paused_us=_whole(sums["paused_share"] * _MICROSECONDS),
            pause_frames=_whole(sums["pause_frames"]),
            wait_ns=_whole(sums["waiting_share"] * _NANOSECONDS),
            bits=_whole(self._bits),
            corrected_bits=chance["corrected"].copy(),
            symbol_errors=chance["symbols"].copy(),
            recoveries=chance["recoveries"].copy(),
            downs=self._downs.copy(),
            queue_bytes=_whole(sums["queue_bytes"] / seconds),
            queue_peak_bytes=_whole(self._peak),
        )

    def nics(self) -> NicCounters:
        totals = zip(NOTICED, self._nic_table.T, strict=True)
        return NicCounters(**{name: _whole(total) for name, total in totals})

    def seen_by_hosts(
        self, links: LinkCounters, nics: NicCounters
    ) -> tuple[LinkCounters, NicCounters]:
        """The same counters as hosts see them: since their NICs had power."""
        if self._at_boot is None or self._nics_at_boot is None:
            return links, nics
        gauges = ("queue_bytes", "queue_peak_bytes")
        seen = {
            field.name: getattr(links, field.name)
            if field.name in gauges
            else getattr(links, field.name) - getattr(self._at_boot, field.name)
            for field in fields(links)
        }
        own = {
            field.name: getattr(nics, field.name) - getattr(self._nics_at_boot, field.name)
            for field in fields(nics)
        }
        return LinkCounters(**seen), NicCounters(**own)

    def bursts(self, mean_bytes: Floats) -> Floats:
        """By link: the highest rate since `forget_queues`, and no less than this mean."""
        return np.maximum(self._burst, mean_bytes)

    def forget_queues(self) -> None:
        """Start a new tick for queue depths and bursts: each tick reports its own."""
        self._burst[:] = 0.0
        self._sums["queue_bytes"][:] = 0.0
        self._peak[:] = 0.0

    @property
    def bytes_sent(self) -> Floats:
        return self._sums["bytes"]


def _whole(values: Floats) -> Counts:
    whole: Counts = np.floor(values + 1e-6).astype(np.int64)
    return whole
