"""The flows of one moment as columns: paths, cost of losses, and which flows advance together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from simulator.network.columns import add_up
from simulator.network.losses import LinkErrors, packet_bytes, recover, wire_efficiency
from simulator.pattern import Pattern
from simulator.topology.model import HOPS_MAX, NO_LINK, Bools, Floats, Ints, LinkKind
from simulator.topology.routing import route
from simulator.topology.world import Background, World

LOSS_LEAST = 1e-15
"""Below it a loss is rounding, or comes once in years."""
NO_FLOW_BYTES = 1e-9
"""Bytes of a flow without bytes, so that nothing is divided by zero."""


@dataclass(frozen=True, eq=False)
class Links:
    """Properties of the links that all flows need, as long as a world's version lasts."""

    capacity_bps: Floats
    """On the wire, headers included."""
    is_dead: Bools
    """It carries nothing. A slot that takes nothing is not dead: its NIC pauses the senders."""
    leaves_switch: Bools
    errors: LinkErrors
    efficiency: float
    packet_bits: float

    @classmethod
    def of(cls, world: World, errors: LinkErrors) -> Links:
        capacity = world.capacity()
        is_slot = world.topology.kind == LinkKind.PCIE_IN
        return cls(
            capacity_bps=capacity,
            is_dead=(capacity <= 0) & ~is_slot,
            leaves_switch=world.topology.source_switch >= 0,
            errors=errors,
            efficiency=wire_efficiency(world.topology.fabric),
            packet_bits=8 * packet_bytes(world.topology.fabric),
        )


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of flows and the cost of losses on them; one row or value for each flow."""

    source: Ints
    target: Ints
    path: Ints
    """[flows, hops], NO_LINK behind the end; nothing but NO_LINK where no path is left."""
    arrives: Floats
    """[flows, hops]: probability that a packet was lost on no link before this one."""
    loss: Floats
    """Probability that a packet is lost on some link of the path."""
    wire_per_payload: Floats
    """Bits on the wire for one of payload that counts: headers, and retransmissions."""
    limit_bps: Floats
    """Payload that it moves at most, alone in the network: less than the path where timers run."""
    is_lossless: Bools
    """Pause frames protect it; else full queues drop its packets."""

    def take(self, which: Bools) -> Paths:
        return Paths(*(getattr(self, field.name)[which] for field in fields(self)))


def find_paths(world: World, links: Links, source: Ints, target: Ints, key: Ints) -> Paths:
    path = route(world, source, target, key)
    is_link = path != NO_LINK
    lowest = np.where(is_link, links.capacity_bps[path], np.inf).min(axis=1)
    passes = np.where(is_link, 1 - links.errors.packet_loss[path], 1.0).cumprod(axis=1)
    arrives = np.concatenate([np.ones((len(path), 1)), passes[:, :-1]], axis=1)
    loss = 1 - passes[:, -1]
    loss[loss < LOSS_LEAST] = 0.0
    is_stuck = ~is_link.any(axis=1) | (is_link & links.is_dead[path]).any(axis=1)
    line = np.where(is_stuck, 0.0, lowest)
    recovery = recover(loss, line, links.packet_bits)
    is_alone = source == target
    limit = np.where(loss > 0, recovery.goodput_bps * links.efficiency, np.inf)
    return Paths(
        source=source,
        target=target,
        path=path,
        arrives=arrives,
        loss=loss,
        wire_per_payload=recovery.sent_per_delivered / links.efficiency,
        # Within one NIC no link limits a flow.
        limit_bps=np.where(is_stuck, np.where(is_alone, np.inf, 0.0), limit),
        is_lossless=world.nic_pfc_ok[source] & world.nic_pfc_ok[target],
    )


def background_paths(world: World, links: Links) -> Paths:
    source = np.array([one.source_nic for one in world.background], dtype=np.int32)
    target = np.array([one.target_nic for one in world.background], dtype=np.int32)
    # Each is a connection of its own, and its number is its key.
    key = np.arange(len(source), dtype=np.int32) + np.int32(7919)
    if not len(source):
        nothing = np.zeros(0)
        empty = np.zeros((0, HOPS_MAX), dtype=np.int32)
        no_flow = np.zeros(0, dtype=np.bool_)
        return Paths(
            source, target, empty, np.ones(empty.shape), nothing, nothing, nothing, no_flow
        )
    return find_paths(world, links, source, target, key)


def mean_bps(one: Background) -> float:
    if one.period_seconds <= 0:
        return one.bits_per_second
    return one.bits_per_second * min(1.0, one.on_seconds / one.period_seconds)


@dataclass(frozen=True, eq=False)
class Flows:
    """All flows of some patterns, active or not, in their order; then the background's."""

    paths: Paths
    variable: Ints
    """Number of the variable that it advances with: its ring, or itself."""
    weight: Floats
    """Its rate for one of its variable's: 1 for the largest flow of a ring."""
    limit_bps: Floats
    first_background: int
    """Flows from here on belong to no job."""

    @property
    def count(self) -> int:
        return len(self.variable)


def gather(
    patterns: Sequence[tuple[Pattern, Paths]], background: Paths, background_limit_bps: Floats
) -> Flows:
    paths, variables, weights, limits = [], [], [], []
    variables_before = 0
    for pattern, routed in patterns:
        paths.append(routed)
        size = np.maximum(pattern.flow_bytes, NO_FLOW_BYTES)
        if pattern.is_coupled:
            variable, count = pattern.flow_unit, pattern.units
            largest = np.full(count, NO_FLOW_BYTES)
            np.maximum.at(largest, variable, size)
            weight = size / largest[variable]
        else:
            count = len(size)
            variable = np.arange(count, dtype=np.int32)
            weight = np.ones(count)
        limit = np.full(count, np.inf)
        np.minimum.at(limit, variable, routed.limit_bps / weight)
        variables.append(variable + np.int32(variables_before))
        weights.append(weight)
        limits.append(limit)
        variables_before += count
    first_background = sum(map(len, variables))
    paths.append(background)
    count = len(background.source)
    variables.append(np.arange(count, dtype=np.int32) + np.int32(variables_before))
    weights.append(np.ones(count))
    limits.append(np.minimum(background.limit_bps, background_limit_bps))
    joined = Paths(
        *(np.concatenate([getattr(one, field.name) for one in paths]) for field in fields(Paths))
    )
    return Flows(
        joined,
        np.concatenate(variables),
        np.concatenate(weights),
        np.concatenate(limits),
        first_background,
    )


@dataclass(frozen=True, eq=False)
class Uses:
    """Every crossing of a link by a flow, in the order of flows and then of their paths."""

    flow: Ints
    hop: Ints
    link: Ints
    """Index into ``links``."""
    links: Ints
    """Numbers of the links that any flow crosses, ascending."""

    @classmethod
    def of(cls, path: Ints, links_total: int) -> Uses:
        flow, hop = np.nonzero(path != NO_LINK)
        crossed = path[flow, hop]
        is_used = np.zeros(links_total, dtype=np.bool_)
        is_used[crossed] = True
        links = np.flatnonzero(is_used).astype(np.int32)
        index = np.zeros(links_total, dtype=np.int32)
        index[links] = np.arange(len(links), dtype=np.int32)
        return cls(flow.astype(np.int32), hop.astype(np.int32), index[crossed], links)

    def take(self, which: Ints) -> Uses:
        """Only these; numbers of flows and links stay as they are."""
        return Uses(self.flow[which], self.hop[which], self.link[which], self.links)


@dataclass(frozen=True, eq=False)
class Crowd:
    """Flows, and their derived columns that do not depend on which are active: made once."""

    flows: Flows
    uses: Uses
    usage: Floats
    """For each flow: bits on the wire a second for one of its variable."""
    feed: Ints
    """For each use: number of the pair of this link and the one before it in the path."""
    fed_from: Ints
    """Of each pair, indices into the links of ``uses``."""
    fed_to: Ints
    passes_bps: Floats
    """[flows, hops]: what each link of a path carries, infinite behind its end."""
    nics: Ints
    """NICs at which any flow begins or ends, ascending."""
    source: Ints
    """Of each flow, an index into ``nics``."""
    target: Ints

    @classmethod
    def of(cls, flows: Flows, links: Links) -> Crowd:
        paths = flows.paths
        uses = Uses.of(paths.path, len(links.capacity_bps))
        # The first link of a path is fed by memory; no caller reads its pair.
        pair = np.roll(uses.link, 1).astype(np.int64) * len(uses.links) + uses.link
        pairs, feed = np.unique(pair, return_inverse=True)
        nics = np.unique(np.concatenate([paths.source, paths.target])).astype(np.int32)
        return cls(
            flows=flows,
            uses=uses,
            usage=flows.weight * paths.wire_per_payload,
            feed=feed.astype(np.int32),
            fed_from=(pairs // max(len(uses.links), 1)).astype(np.int32),
            fed_to=(pairs % max(len(uses.links), 1)).astype(np.int32),
            passes_bps=np.where(paths.path != NO_LINK, links.capacity_bps[paths.path], np.inf),
            nics=nics,
            source=np.searchsorted(nics, paths.source).astype(np.int32),
            target=np.searchsorted(nics, paths.target).astype(np.int32),
        )


@dataclass(frozen=True, eq=False)
class Wire:
    """Bytes of one collective of each unit on the links, with headers, without retransmissions."""

    links: Ints
    """Numbers of the links that the pattern uses, ascending."""
    packet_bytes: float
    unit: Ints
    link: Ints
    """Index into ``links``: one entry for each crossing of a link by a flow."""
    size: Floats
    """Bytes of that crossing."""

    @classmethod
    def of(cls, pattern: Pattern, paths: Paths, links: Links, links_total: int) -> Wire:
        uses = Uses.of(paths.path, links_total)
        sent = (pattern.flow_bytes * paths.wire_per_payload)[uses.flow]
        size = sent * paths.arrives[uses.flow, uses.hop]
        return cls(uses.links, links.packet_bits / 8, pattern.flow_unit[uses.flow], uses.link, size)

    def bytes_of(self, collectives: Floats) -> Floats:
        """Over each of ``links``, for so many collectives of each unit (parts of one count)."""
        return add_up(self.link, self.size * collectives[self.unit], len(self.links))
