"""Queues, pauses and credits, a few microseconds at a time, for flows that compete.

Bytes are a fluid: each flow has so many of them in front of each link of its path. In one step
every link serves what stands in front of it, in proportion (as a FIFO queue does on average), and
the served bytes stand in front of the next link in the next step. So a step is also a hop's
latency, and the bytes left behind in a step are the queue.

A full buffer makes its senders wait. On RoCE a node whose buffer for one of its incoming links is
nearly full sends a pause for that link; on InfiniBand a link sends only into free buffer at its far
end. No code here models congestion as such: it spreads upstream by these two rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.network.columns import add_up
from simulator.network.dcqcn import Marking, RateControl
from simulator.network.flows import Paths, Uses
from simulator.network.losses import packet_bytes
from simulator.topology.model import Bools, Fabric, Floats
from simulator.topology.world import SWITCH_BUFFER_BYTES, World

STEP_SECONDS = 5e-6
"""About the latency of two hops; a tenth of the time in which senders react."""
WINDOW_BYTES = 16 << 20
"""Most bytes that one flow has in flight: NCCL's buffer of a channel (NCCL_BUFFSIZE, 4 MiB), for
four channels that share a NIC."""
NIC_BUFFER_SECONDS = 20e-6
"""Of line rate that a NIC's buffer holds, for each direction: one megabyte at 400 Gb/s."""
NIC_XOFF_SHARE = 0.5
"""Of that buffer at which the NIC pauses its switch: the rest is for bytes still on their way."""
PORT_BUFFER_SHARE = 1 / 24
"""Of a switch's free packet memory that one incoming link may fill before it is paused: a dynamic
threshold, 2.8 MB of 67 while the switch is empty, well beyond where marking begins."""
XOFF_LEAST_BYTES = 200e3
"""Bytes that an incoming link may always fill, also in a full switch."""
XON_SHARE = 0.75
"""Share of the threshold below which a pause ends."""
PAUSE_BITS = 65535 * 512
"""Bit times that one pause frame lasts. It is repeated after half of them."""
CREDIT_SECONDS = 20e-6
"""Of line rate that an InfiniBand switch buffers for each incoming link."""


@dataclass(frozen=True, eq=False)
class Sources:
    """What flows have to send: one value for each. Rates are in bits a second on the wire."""

    demand_bps: Floats
    """Infinite for a flow that always has more to send."""
    start_bps: Floats
    """The rate that its limiter begins with."""
    is_controlled: Bools
    """Whether it slows down on congestion notifications."""
    period_seconds: Floats
    """Of sources that send in bursts; 0 for the others."""
    on_seconds: Floats

    @classmethod
    def steady(cls, demand_bps: Floats, start_bps: Floats) -> Sources:
        never = np.zeros(len(demand_bps))
        return cls(demand_bps, start_bps, np.ones(len(demand_bps), dtype=np.bool_), never, never)


class Totals:
    """Sums, each moment times its weight: bytes, unless noted; divide by `seconds`."""

    def __init__(self, links: int, flows: int) -> None:
        self.seconds = 0.0
        self.served: Floats = np.zeros(links)
        self.marked: Floats = np.zeros(links)
        self.paused: Floats = np.zeros(links)
        """Seconds."""
        self.pause_frames: Floats = np.zeros(links)
        self.waited: Floats = np.zeros(links)
        """Seconds."""
        self.queue: Floats = np.zeros(links)
        """Byte seconds."""
        self.queue_peak: Floats = np.zeros(links)
        self.flow_sent: Floats = np.zeros(flows)
        self.flow_delivered: Floats = np.zeros(flows)
        self.flow_dropped: Floats = np.zeros(flows)
        self.flow_marked: Floats = np.zeros(flows)
        """Packets."""
        self.flow_notified: Floats = np.zeros(flows)
        """Notifications."""

    def add(
        self, weight: float, served: Floats, queue: Floats, sent: Floats, delivered: Floats
    ) -> None:
        self.seconds += weight * STEP_SECONDS
        self.served += weight * served
        self.queue += (weight * STEP_SECONDS) * queue
        np.maximum(self.queue_peak, queue, out=self.queue_peak)
        self.flow_sent += weight * sent
        self.flow_delivered += weight * delivered


class Fluid:
    """A part of the network with the flows in it. `step` simulates `STEP_SECONDS`."""

    def __init__(
        self,
        world: World,
        paths: Paths,
        capacity_bps: Floats,
        sources: Sources,
        *,
        has_ecn: bool = True,
    ) -> None:
        topology = world.topology
        self._is_infiniband = topology.fabric is Fabric.INFINIBAND
        self._sources = sources
        # Bytes in front of the first link are in the host's memory: in no queue.
        self.uses = Uses.of(paths.path[:, 1:], topology.links)
        links = self.links = self.uses.links
        self._flow, self._link = self.uses.flow, self.uses.link
        self._first = np.flatnonzero(self.uses.hop == 0)
        self._is_last = np.append(self._flow[1:] != self._flow[:-1], True)
        # One index beyond the links stands for "from the host": it is never full.
        self._ingress = np.where(self.uses.hop == 0, len(links), np.roll(self._link, 1))
        self._is_lossy = ~paths.is_lossless[self._flow] & (not self._is_infiniband)
        self._has_lossy = bool(self._is_lossy.any())
        self._step_bytes = capacity_bps[links] * STEP_SECONDS / 8
        self._line_bps = topology.bits_per_second[links]
        self._find_buffers(world)
        self._find_nics(paths, capacity_bps, topology.bits_per_second, topology.nics)
        is_marking = (self._near_switch >= 0) & has_ecn & (not self._is_infiniband)
        self._marking = Marking(self._line_bps, is_marking)
        self._packet_bytes = packet_bytes(topology.fabric)
        line = topology.bits_per_second[paths.path[:, 1]]
        can_slow = sources.is_controlled & (not self._is_infiniband) & has_ecn
        self.control = RateControl(line, sources.start_bps, can_slow)
        self.queued: Floats = np.zeros(len(self._flow))
        self._find_supply()
        self._in_flight = np.zeros(len(paths.source))
        self.is_paused: Bools = np.zeros(len(links), dtype=np.bool_)
        self._space = self._credit.copy()
        self._up_queue = np.zeros(len(links))
        self.time_s = 0.0
        self.totals = Totals(len(links), len(paths.source))
        self.use_dropped: Floats = np.zeros(len(self._flow))
        """Bytes of each flow that were dropped in front of each link of its path, see `uses`."""

    def _find_supply(self) -> None:
        """Compute what flows can send in one step, and how much of it they may save up."""
        sources = self._sources
        self._arriving = sources.demand_bps * (STEP_SECONDS / 8)
        self._waiting = np.where(np.isinf(self._arriving), np.inf, 0.0)
        # A flow saves up at most a window: the rest of the ring would have stopped by then.
        self._waiting_most = np.where(
            np.isinf(self._arriving), np.inf, np.maximum(WINDOW_BYTES, self._arriving)
        )
        self._is_bursty = sources.period_seconds > 0
        self._period = np.where(self._is_bursty, sources.period_seconds, 1.0)
        self._has_bursts = bool(self._is_bursty.any())

    def _find_buffers(self, world: World) -> None:
        """Compute how much each link's far end may hold of what came over it."""
        topology, links = world.topology, self.links
        far, near = topology.target_switch[links], topology.source_switch[links]
        self._near_switch = near
        # Switches of this scene get new numbers; the first place stands for "no switch".
        switches = np.unique(np.concatenate([[-1], far, near]))
        self._far, self._near = np.searchsorted(switches, far), np.searchsorted(switches, near)
        share = np.where(switches >= 0, world.switch_buffer_share[switches], 1.0)
        self._memory = np.where(switches >= 0, SWITCH_BUFFER_BYTES * share, np.inf)
        self._is_into_switch = far >= 0
        self._nic_buffer = self._line_bps * NIC_BUFFER_SECONDS / 8
        self._nic_xoff = self._nic_buffer * NIC_XOFF_SHARE
        seconds = np.where(self._is_into_switch, CREDIT_SECONDS, NIC_BUFFER_SECONDS)
        # Host memory takes all that its slot delivers.
        self._is_delivery = np.zeros(len(links), dtype=np.bool_)
        self._is_delivery[self._link[self._is_last]] = True
        credit = self._line_bps * seconds / 8 * share[self._far]
        self._credit = np.where(self._is_delivery, np.inf, credit)
        self._frames_per_step = STEP_SECONDS * self._line_bps / (PAUSE_BITS / 2)

    def _find_nics(self, paths: Paths, capacity: Floats, built: Floats, nics: int) -> None:
        senders, self._sender = np.unique(paths.source, return_inverse=True)
        self._fetch_bytes = capacity[senders] * STEP_SECONDS / 8
        up = np.searchsorted(self.links, 2 * nics + senders)
        self._sender_up = up
        self._transmit_buffer = built[2 * nics + senders] * NIC_BUFFER_SECONDS / 8

    # One step ----------------------------------------------------------------------------------

    def step(self, weight: float = 1.0) -> None:
        """Simulate one step; its events count ``weight`` times (0: not at all)."""
        sent = self._fetch()
        out, served, backlog = self._serve(weight)
        self.queued -= out
        queue = backlog - served
        if self._has_lossy:
            queue = self._drop(queue, weight)
        marked = self._mark(out, served, queue, weight)
        notified = self.control.advance(marked, STEP_SECONDS)
        self._press_back(queue, weight)
        delivered = out[self._is_last]
        out[self._is_last] = 0.0
        self.queued[1:] += out[:-1]
        self.queued[self._first] += sent
        self._in_flight += sent
        self._in_flight -= delivered
        self._up_queue = queue
        self.time_s += STEP_SECONDS
        if weight > 0:
            self.totals.add(weight, served, queue, sent, delivered)
            if marked is not None:
                self.totals.flow_marked += weight * marked
                self.totals.flow_notified += weight * notified

    def _fetch(self) -> Floats:
        """Bytes that NICs take from memory, bounded by limiters, windows, slots and buffers."""
        arriving = self._arriving
        if self._has_bursts:
            phase = np.mod(self.time_s + STEP_SECONDS / 2, self._period)
            is_off = self._is_bursty & (phase >= self._sources.on_seconds)
            arriving = np.where(is_off, 0.0, arriving)
        self._waiting += arriving
        np.minimum(self._waiting, self._waiting_most, out=self._waiting)
        wanted = np.minimum(self._waiting, self.control.rate * (STEP_SECONDS / 8))
        wanted = np.minimum(wanted, np.maximum(WINDOW_BYTES - self._in_flight, 0.0))
        total = add_up(self._sender, wanted, len(self._fetch_bytes))
        room = np.maximum(self._transmit_buffer - self._up_queue[self._sender_up], 0.0)
        allowed = np.minimum(np.minimum(self._fetch_bytes, room), total)
        sent: Floats = wanted * (allowed / np.maximum(total, 1e-300))[self._sender]
        self._waiting -= sent
        return sent

    def _serve(self, weight: float) -> tuple[Floats, Floats, Floats]:
        """Bytes that leave in front of each link: by use, by link, and all that stood there."""
        backlog = add_up(self._link, self.queued, len(self.links))
        if self._has_lossy:
            may_go = self.queued * (self._is_lossy | ~self.is_paused[self._link])
            ready = add_up(self._link, may_go, len(self.links))
        else:
            may_go = self.queued
            ready = np.where(self.is_paused, 0.0, backlog)
        served = np.minimum(ready, self._step_bytes)
        if self._is_infiniband:
            wanted = served
            served = np.minimum(wanted, self._space)
            if weight > 0:
                blocked = 1 - served / np.maximum(wanted, 1.0)
                self.totals.waited += weight * STEP_SECONDS * np.where(wanted > 1.0, blocked, 0.0)
        out = may_go * (served / np.maximum(ready, 1e-300))[self._link]
        return out, served, backlog

    def _drop(self, queue: Floats, weight: float) -> Floats:
        """Drop unprotected bytes that do not fit; returns the remaining queues."""
        unprotected = np.where(self._is_lossy, self.queued, 0.0)
        lossy = add_up(self._link, unprotected, len(self.links))
        limit = np.where(
            self._near_switch >= 0,
            self._threshold(queue)[self._near],
            np.where(self._is_delivery, self._nic_buffer, np.inf),
        )
        excess = np.minimum(np.maximum(queue - limit, 0.0), lossy)
        if not excess.any():
            return queue
        gone = unprotected * (excess / np.maximum(lossy, 1e-300))[self._link]
        self.queued -= gone
        by_flow = add_up(self._flow, gone, len(self._in_flight))
        self._in_flight -= by_flow
        self.use_dropped += weight * gone
        self.totals.flow_dropped += weight * by_flow
        left: Floats = queue - excess
        return left

    def _mark(self, out: Floats, served: Floats, queue: Floats, weight: float) -> Floats | None:
        """Packets of each flow that were marked on the way into a link; None if there were none."""
        share = self._marking.share(queue)
        if share is None:
            return None
        if weight > 0:
            self.totals.marked += weight * served * share
        marked = add_up(self._flow, out * share[self._link], len(self._in_flight))
        return marked / self._packet_bytes

    # Back-pressure -----------------------------------------------------------------------------

    def _threshold(self, queue: Floats) -> Floats:
        """For each switch, the bytes that one of its ports may fill at these queues."""
        used = add_up(self._near, queue, len(self._memory))
        threshold: Floats = np.maximum(PORT_BUFFER_SHARE * (self._memory - used), XOFF_LEAST_BYTES)
        return threshold

    def _press_back(self, queue: Floats, weight: float) -> None:
        """Pause, or take credit from, links whose far end holds too much of what came over them."""
        protected = np.where(self._is_lossy, 0.0, self.queued) if self._has_lossy else self.queued
        held = add_up(self._ingress, protected, len(self.links) + 1)[:-1]
        if self._is_infiniband:
            self._space = np.maximum(self._credit - held, 0.0)
            return
        xoff = np.where(self._is_into_switch, self._threshold(queue)[self._far], self._nic_xoff)
        was = self.is_paused
        self.is_paused = held > np.where(was, xoff * XON_SHARE, xoff)
        if weight > 0 and (was.any() or self.is_paused.any()):
            self.totals.paused += weight * STEP_SECONDS * was
            # One frame to stop, one to go on, and repetitions while it lasts.
            frames = (was != self.is_paused) + self.is_paused * self._frames_per_step
            self.totals.pause_frames += weight * frames
