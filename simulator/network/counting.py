"""What the counters of links and NICs count a second, while a solution lasts."""

from __future__ import annotations

import numpy as np

from simulator.network.columns import add_up
from simulator.network.congestion import Scene, Settled
from simulator.network.flows import Flows, Links, Uses
from simulator.network.losses import DROPS_PER_GAP, ROUND_TRIP_SECONDS, TAIL_SHARE
from simulator.network.model import LinkRates, NicRates
from simulator.topology.model import Floats


def sent_bps(flows: Flows, payload_bps: Floats, fluid: tuple[Scene, Settled] | None) -> Floats:
    """What each flow puts on the wire so that this payload counts."""
    wire: Floats = payload_bps * flows.paths.wire_per_payload
    if fluid is not None:
        scene, settled = fluid
        totals, at = settled.totals, scene.flows
        sent = 8 * totals.flow_sent / totals.seconds
        wire[at] = np.where(settled.drop_share > 0, np.maximum(wire[at], sent), wire[at])
    return wire


def count_links(
    links: Links, uses: Uses, wire_bps: Floats, fluid: tuple[Scene, Settled] | None
) -> LinkRates:
    """Bytes and losses from the flows' rates, all else from the fluid where it was needed."""
    bits = add_up(uses.link, wire_bps[uses.flow], len(uses.links))
    packets = bits / links.packet_bits
    rates = LinkRates(
        links=uses.links,
        bytes=bits / 8,
        packets=packets,
        lost_packets=packets * links.errors.packet_loss[uses.links],
        dropped_packets=np.zeros(len(bits)),
        marked_packets=np.zeros(len(bits)),
        paused_share=np.zeros(len(bits)),
        pause_frames=np.zeros(len(bits)),
        waiting_share=np.zeros(len(bits)),
        queue_bytes=np.zeros(len(bits)),
        queue_peak_bytes=np.zeros(len(bits)),
    )
    if fluid is None:
        return rates
    settled = fluid[1]
    totals, seconds = settled.totals, settled.totals.seconds
    packet_bytes = links.packet_bits / 8
    at = np.searchsorted(uses.links, settled.links)
    rates.dropped_packets[at] = totals.dropped / packet_bytes / seconds
    rates.marked_packets[at] = totals.marked / packet_bytes / seconds
    rates.paused_share[at] = np.minimum(totals.paused / seconds, 1.0)
    rates.pause_frames[at] = totals.pause_frames / seconds
    rates.waiting_share[at] = np.minimum(totals.waited / seconds, 1.0)
    # What waits inside a NIC is no queue that anybody can see, and less than a byte is rounding.
    is_queue = links.leaves_switch[settled.links] & (totals.queue_peak >= 1.0)
    rates.queue_bytes[at] = np.where(is_queue, totals.queue / seconds, 0.0)
    rates.queue_peak_bytes[at] = np.where(is_queue, totals.queue_peak, 0.0)
    return rates


def count_nics(
    links: Links,
    flows: Flows,
    payload_bps: Floats,
    wire_bps: Floats,
    fluid: tuple[Scene, Settled] | None,
) -> NicRates:
    """What the NICs at both ends notice."""
    packets = wire_bps / links.packet_bits
    gaps = packets * flows.paths.loss
    # All that was sent and did not count is sent again.
    again = np.maximum(packets - payload_bps / links.efficiency / links.packet_bits, 0.0)
    marked, notified = np.zeros(flows.count), np.zeros(flows.count)
    if fluid is not None:
        scene, settled = fluid
        totals, at = settled.totals, scene.flows
        marked[at] = totals.flow_marked / totals.seconds
        notified[at] = totals.flow_notified / totals.seconds
        gaps[at] += packets[at] * settled.drop_share / DROPS_PER_GAP
    # Whatever is lost behind a gap belongs to it until it is closed.
    gaps = np.minimum(gaps, 1 / ROUND_TRIP_SECONDS)
    paths = flows.paths
    nics = np.unique(np.concatenate([paths.source, paths.target])).astype(np.int32)
    source, target = np.searchsorted(nics, paths.source), np.searchsorted(nics, paths.target)
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
