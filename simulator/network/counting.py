"""Rates of the counters of links and NICs, while a solution lasts."""

from __future__ import annotations

import numpy as np

from simulator.network.columns import add_up
from simulator.network.congestion import Scene, Settled
from simulator.network.flows import Crowd, Flows, Links
from simulator.network.losses import DROPS_PER_GAP, ROUND_TRIP_SECONDS, TAIL_SHARE
from simulator.network.model import NOTICED, SUMMED, LinkRates, NicRates, Solution
from simulator.topology.model import Floats, Ints


def sent_bps(flows: Flows, payload_bps: Floats, fluid: tuple[Scene, Settled] | None) -> Floats:
    wire: Floats = payload_bps * flows.paths.wire_per_payload
    if fluid is not None:
        scene, settled = fluid
        totals, at = settled.totals, scene.flows
        sent = 8 * totals.flow_sent / totals.seconds
        wire[at] = np.where(settled.drop_share > 0, np.maximum(wire[at], sent), wire[at])
    return wire


def count_links(
    links: Links,
    crowd: Crowd,
    wire_bps: Floats,
    burst_bps: Floats,
    fluid: tuple[Scene, Settled] | None,
) -> LinkRates:
    """Rates of the links with any traffic.

    Bytes and losses come from the flows' rates, all else from the fluid where it ran. A packet lost
    on a link, or dropped in front of it, is on no link behind it.
    """
    uses = crowd.uses
    arriving = wire_bps[uses.flow] * crowd.flows.paths.arrives[uses.flow, uses.hop]
    bits = add_up(uses.link, arriving, len(uses.links))
    dropped = np.zeros(len(bits))
    happens = bits > 0
    if fluid is not None:
        scene, settled = fluid
        drops_at = np.zeros(crowd.flows.paths.path.shape)
        drops_at[scene.flows] = settled.drops_at
        if drops_at.any():
            gone = arriving * drops_at[uses.flow, uses.hop]
            dropped = add_up(uses.link, gone, len(bits))
            left = 1 - drops_at.cumsum(axis=1)
            bits = add_up(uses.link, arriving * left[uses.flow, uses.hop], len(bits))
        # A stopped flow carries nothing and is only paused.
        totals = settled.totals
        is_stopped = (totals.paused > 0) | (totals.waited > 0)
        happens[np.searchsorted(uses.links, settled.links[is_stopped])] = True
    bursts = add_up(uses.link, burst_bps[uses.flow], len(bits))
    bursts = np.maximum(np.minimum(bursts, links.capacity_bps[uses.links]), bits)
    used, bits = uses.links[happens], bits[happens]
    packets, nothing = bits / links.packet_bits, np.zeros(len(bits))
    rates = LinkRates(
        links=used,
        bytes=bits / 8,
        packets=packets,
        lost_packets=packets * links.errors.packet_loss[used],
        dropped_packets=dropped[happens] / links.packet_bits,
        marked_packets=nothing,
        paused_share=nothing,
        pause_frames=nothing,
        waiting_share=nothing,
        queue_bytes=nothing,
        queue_peak_bytes=nothing,
        burst_bytes=bursts[happens] / 8,
    )
    if fluid is not None:
        _add_congestion(links, rates, fluid[1])
    return rates


def _add_congestion(links: Links, rates: LinkRates, settled: Settled) -> None:
    totals, seconds = settled.totals, settled.totals.seconds
    packet_bytes = links.packet_bits / 8
    at = np.searchsorted(rates.links, settled.links)
    is_here = rates.links[np.minimum(at, len(rates.links) - 1)] == settled.links
    at = at[is_here]

    def spread(values: Floats) -> Floats:
        column = np.zeros(len(rates.links))
        column[at] = values[is_here]
        return column

    rates.marked_packets = spread(totals.marked / packet_bytes / seconds)
    rates.paused_share = spread(np.minimum(totals.paused / seconds, 1.0))
    rates.pause_frames = spread(totals.pause_frames / seconds)
    rates.waiting_share = spread(np.minimum(totals.waited / seconds, 1.0))
    # Bytes inside a NIC are in no visible queue, and less than a byte is rounding.
    is_queue = links.leaves_switch[settled.links] & (totals.queue_peak >= 1.0)
    rates.queue_bytes = spread(np.where(is_queue, totals.queue / seconds, 0.0))
    rates.queue_peak_bytes = spread(np.where(is_queue, totals.queue_peak, 0.0))


def count_nics(
    links: Links,
    crowd: Crowd,
    payload_bps: Floats,
    wire_bps: Floats,
    fluid: tuple[Scene, Settled] | None,
) -> NicRates:
    flows = crowd.flows
    packets = wire_bps / links.packet_bits
    gaps = packets * flows.paths.loss
    # Everything sent and not counted as payload is sent again.
    again = np.maximum(packets - payload_bps / links.efficiency / links.packet_bits, 0.0)
    marked, notified = np.zeros(flows.count), np.zeros(flows.count)
    if fluid is not None:
        scene, settled = fluid
        totals, at = settled.totals, scene.flows
        # A packet that met two full queues is marked once, and in a mixture flows may move less
        # than in the scene that was run.
        marked[at] = np.minimum(totals.flow_marked / totals.seconds, packets[at])
        notified[at] = totals.flow_notified / totals.seconds
        gaps[at] += packets[at] * settled.drop_share / DROPS_PER_GAP
    # Losses behind a gap belong to it until it is closed.
    gaps = np.minimum(gaps, 1 / ROUND_TRIP_SECONDS)
    nics, source, target = crowd.nics, crowd.source, crowd.target
    return NicRates(
        nics=nics,
        marked_received=add_up(target, marked, len(nics)),
        cnp_sent=add_up(target, notified, len(nics)),
        cnp_handled=add_up(source, notified, len(nics)),
        out_of_sequence=add_up(target, gaps * (1 - TAIL_SHARE), len(nics)),
        sequence_errors=add_up(source, gaps * (1 - TAIL_SHARE), len(nics)),
        ack_timeouts=add_up(source, gaps * TAIL_SHARE, len(nics)),
        retransmitted_packets=add_up(source, again, len(nics)),
    )


def without_background(solution: Solution, idle: Solution, own: Solution) -> Solution:
    """What a solution's units add to what the background does by itself (``idle``).

    ``own`` is the same with only their bytes and losses counted: those of the background change
    when it must share links, and the difference would not be the units'.
    """
    links, nics = solution.links, solution.nics
    added = _less(links, idle.links, links.links, idle.links.links, SUMMED)
    at = np.searchsorted(links.links, own.links.links)
    for name in ("bytes", "packets", "lost_packets", "dropped_packets"):
        added[name] = np.zeros(len(links.links))
        added[name][at] = getattr(own.links, name)
    kept = {"queue_peak_bytes": links.queue_peak_bytes, "burst_bytes": links.burst_bytes}
    return Solution(
        speed=solution.speed,
        flow_bps=solution.flow_bps,
        links=LinkRates(links=links.links, **kept, **added),
        nics=NicRates(nics.nics, **_less(nics, idle.nics, nics.nics, idle.nics.nics, NOTICED)),
    )


def _less(
    rates: object, other: object, places: Ints, others: Ints, names: tuple[str, ...]
) -> dict[str, Floats]:
    """Columns less those of others where these are, but not below 0."""
    at = np.searchsorted(places, others)
    is_here = at < len(places)
    is_here[is_here] = places[at[is_here]] == others[is_here]
    columns = {}
    for name in names:
        column = getattr(rates, name).copy()
        column[at[is_here]] -= getattr(other, name)[is_here]
        columns[name] = np.maximum(column, 0.0)
    return columns
