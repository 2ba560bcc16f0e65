"""The flows of one moment as columns: paths, what losses cost them, and who advances with whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from simulator.network.losses import LinkErrors, packet_bytes, recover, wire_efficiency
from simulator.pattern import Pattern
from simulator.topology.model import HOPS_MAX, NO_LINK, Bools, Floats, Ints, LinkKind
from simulator.topology.routing import route
from simulator.world import Background, World

LOSS_LEAST = 1e-15
"""Below it a loss is rounding, or comes once in years."""
NO_FLOW_BYTES = 1e-9
"""What a flow of no bytes counts as, so that nothing is divided by zero."""


@dataclass(frozen=True, eq=False)
class Links:
    """What every flow must know of the links, as long as a world's version lasts."""

    capacity_bps: Floats
    """On the wire, headers included."""
    is_dead: Bools
    """Nothing can be sent over it. A slot that takes nothing is not dead: its NIC pauses others."""
    leaves_switch: Bools
    errors: LinkErrors
    efficiency: float
    packet_bits: float

    @classmethod
    def of(cls, world: World, errors: LinkErrors) -> Links:
        """As this world has them now."""
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
    """Where flows go and what losses on the way cost them; one row or value for each flow."""

    source: Ints
    target: Ints
    path: Ints
    """[flows, hops], NO_LINK behind the end; nothing but NO_LINK where no way is left."""
    loss: Floats
    """Probability that a packet is lost on some link of the way."""
    wire_per_payload: Floats
    """Bits on the wire for one of payload that counts: headers, and what is sent again."""
    limit_bps: Floats
    """Payload that it moves at most, alone in the network: less than the path where timers run."""
    is_lossless: Bools
    """Pause frames protect it; else full queues drop its packets."""

    def take(self, which: Bools) -> Paths:
        """Only these flows."""
        return Paths(*(getattr(self, field.name)[which] for field in fields(self)))


def find_paths(world: World, links: Links, source: Ints, target: Ints, key: Ints) -> Paths:
    """Route flows through a world as it is."""
    path = route(world, source, target, key)
    is_link = path != NO_LINK
    lowest = np.where(is_link, links.capacity_bps[path], np.inf).min(axis=1)
    arrives = np.where(is_link, 1 - links.errors.packet_loss[path], 1.0).prod(axis=1)
    loss = 1 - arrives
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
        loss=loss,
        wire_per_payload=recovery.sent_per_delivered / links.efficiency,
        # Within one NIC there is no network to be slow.
        limit_bps=np.where(is_stuck, np.where(is_alone, np.inf, 0.0), limit),
        is_lossless=world.nic_pfc_ok[source] & world.nic_pfc_ok[target],
    )


def background_paths(world: World, links: Links) -> Paths:
    """Of the traffic that belongs to nobody here."""
    source = np.array([one.source_nic for one in world.background], dtype=np.int32)
    target = np.array([one.target_nic for one in world.background], dtype=np.int32)
    # Each is a connection of its own: its number is as good a key as any.
    key = np.arange(len(source), dtype=np.int32) + np.int32(7919)
    if not len(source):
        nothing = np.zeros(0)
        empty = np.zeros((0, HOPS_MAX), dtype=np.int32)
        nobody = np.zeros(0, dtype=np.bool_)
        return Paths(source, target, empty, nothing, nothing, nothing, nobody)
    return find_paths(world, links, source, target, key)


def mean_bps(one: Background) -> float:
    """What a background source sends on average."""
    if one.period_seconds <= 0:
        return one.bits_per_second
    return one.bits_per_second * min(1.0, one.on_seconds / one.period_seconds)


@dataclass(frozen=True, eq=False)
class Flows:
    """All flows that are active together: those of patterns in order, then the background's."""

    paths: Paths
    variable: Ints
    """Number of what it advances with: its ring, or itself."""
    weight: Floats
    """Its rate for one of its variable's: 1 for the largest flow of a ring."""
    limit_bps: Floats
    """Of each variable."""
    first_background: int
    """Flows from here on are nobody's."""

    @property
    def count(self) -> int:
        """How many flows there are."""
        return len(self.variable)


def gather(
    active: Sequence[tuple[Pattern, Bools, Paths]],
    background: Paths,
    background_limit_bps: Floats,
) -> Flows:
    """Join the active flows of all patterns. Masks are of flows, paths of all of a pattern's."""
    paths, variables, weights, limits = [], [], [], []
    variables_before = 0
    for pattern, is_active, routed in active:
        paths.append(routed.take(is_active))
        size = np.maximum(pattern.flow_bytes[is_active], NO_FLOW_BYTES)
        if pattern.is_coupled:
            variable = pattern.flow_unit[is_active]
            count = pattern.units
            largest = np.full(count, NO_FLOW_BYTES)
            np.maximum.at(largest, variable, size)
            weight = size / largest[variable]
        else:
            count = len(size)
            variable = np.arange(count, dtype=np.int32)
            weight = np.ones(count)
        limit = np.full(count, np.inf)
        np.minimum.at(limit, variable, paths[-1].limit_bps / weight)
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
    """Numbers of the links that anyone crosses, ascending."""

    @classmethod
    def of(cls, path: Ints, links_total: int) -> Uses:
        """The crossings of these paths, in a network of so many links."""
        flow, hop = np.nonzero(path != NO_LINK)
        crossed = path[flow, hop]
        is_used = np.zeros(links_total, dtype=np.bool_)
        is_used[crossed] = True
        links = np.flatnonzero(is_used).astype(np.int32)
        index = np.zeros(links_total, dtype=np.int32)
        index[links] = np.arange(len(links), dtype=np.int32)
        return cls(flow.astype(np.int32), hop.astype(np.int32), index[crossed], links)
