"""The path of a flow: which links it crosses from one host's memory to another's.

A switch forwards towards the switch that the target hangs on, over any live link that brings the
flow nearer. Where there are several, RoCE switches choose by a hash of the flow's identity (ECMP),
each with its own seed; InfiniBand switches have one fixed choice for each target (D-mod-k), which
spreads targets, not flows. Polarisation and collisions are not modelled as such: equal seeds make
the tiers choose alike, and few flows collide, as in real fabrics.

Distances are those of routing protocols that have converged: a dead cable is not used, nor is a
spine whose only cable to the target's leaf is dead. Paths go up and then down and never through a
leaf on the way (that would need valleys, which real fabrics forbid), in a dragonfly over one cable
between groups if there is a live one. A flow to an unreachable target keeps its path of the healthy
fabric, with the dead link in it, and stalls there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.topology.model import HOPS_MAX, NO_LINK, Bools, Ints, LinkKind, Topology
from simulator.topology.world import World

ENDS = 4
"""Links of a path that are not between switches: the slot and the cable of either NIC."""
FABRIC_HOPS_MAX = HOPS_MAX - ENDS

LINK_WEIGHT = 1
GLOBAL_WEIGHT = 3
"""A cable between groups weighs more than a local hop on either side of another one, so minimal
paths (local, global, local: 5) are preferred to two global hops (6)."""
DISTANCE_MAX = {False: FABRIC_HOPS_MAX, True: 2 * GLOBAL_WEIGHT}
"""The longest path that is tried, in weights, by whether there are global cables: up and down over
three tiers; or a detour inside a group, or over a third group."""

CACHED_STATES = 8
"""Sets of dead links whose distances are kept: a link that flaps goes back and forth between two.
Each costs up to 10 MiB at 4,096 hosts."""

Bits = NDArray[np.uint64]
Distances = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class _Ports:
    """The ports of every switch towards other switches, as matrices [switch, n-th port]."""

    link: Ints
    """Padded with NO_LINK."""
    neighbour: Ints
    """Switch at the other end; padded with the number of switches, which is no switch."""
    weight: NDArray[np.int8]
    count: Ints
    goal_of_switch: Ints
    """Switches with NICs, numbered from 0; -1 for others."""
    goals: Ints
    is_transit: Bools
    """For each switch: whether paths may go through it (False: a leaf of a tree)."""
    has_global: bool


@dataclass(frozen=True, eq=False)
class _Reach:
    """Distances over the live links. Columns are switches and one that is none."""

    distance: Distances
    """[goal, switch]: weights to the goal."""
    onward: Distances
    """The same for a flow that comes from another switch: leaves of a tree forward no such flow."""
    neighbour: Ints
    """As of `_Ports`, with dead ports leading nowhere."""
    farthest: int


def route(world: World, source_nic: Ints, target_nic: Ints, key: Ints) -> Ints:
    """The links of each flow in order, [flows, HOPS_MAX], padded with NO_LINK.

    ``key`` is the identity of the connection, all input of the hash (ports, queue pair). Rows of
    flows inside a host are empty: they do not use the network.
    """
    topology = world.topology
    rows = np.full((len(source_nic), HOPS_MAX), NO_LINK, dtype=np.int32)
    flows = np.flatnonzero(
        source_nic // topology.nics_per_host != target_nic // topology.nics_per_host
    )
    if not len(flows):
        return rows
    source, target = source_nic[flows].astype(np.int32), target_nic[flows].astype(np.int32)
    hops, length = _cross(world, source, target, key[flows])
    remote = np.full((len(flows), HOPS_MAX), NO_LINK, dtype=np.int32)
    remote[:, 0] = topology.pcie_out(source)
    remote[:, 1] = topology.up(source)
    remote[:, 2 : 2 + FABRIC_HOPS_MAX] = hops
    each = np.arange(len(flows))
    remote[each, 2 + length] = topology.down(target)
    remote[each, 3 + length] = topology.pcie_in(target)
    rows[flows] = remote
    return rows


# Walking ------------------------------------------------------------------------------------------


def _cross(world: World, source: Ints, target: Ints, key: Ints) -> tuple[Ints, Ints]:
    """Links between switches for each flow, [flows, FABRIC_HOPS_MAX], and how many they are."""
    topology = world.topology
    leaf = leaf_of_nic(topology)
    dead = np.flatnonzero(~world.link_is_live()[topology.first_fabric_link :]).astype(np.int32)
    hops, length = _walk(world, _reach(topology, dead.tobytes()), leaf[source], target, key)
    lost = np.flatnonzero(length < 0)
    if len(lost):
        # As in the healthy fabric: any such path has a dead link in it, or it would have been
        # found.
        whole = _reach(topology, b"")
        part = _walk(world, whole, leaf[source[lost]], target[lost], key[lost])
        hops[lost], length[lost] = part
    return hops, length


def _walk(world: World, reach: _Reach, start: Ints, target: Ints, key: Ints) -> tuple[Ints, Ints]:
    """All flows hop by hop at once. The length is -1 for those that do not arrive."""
    topology = world.topology
    ports = _ports(topology)
    end = leaf_of_nic(topology)[target]
    goal = ports.goal_of_switch[end]
    hops = np.full((len(start), FABRIC_HOPS_MAX), NO_LINK, dtype=np.int32)
    length = np.where(start == end, 0, -1).astype(np.int32)
    at = start.copy()
    moving = np.flatnonzero((at != end) & (reach.distance[goal, at] <= reach.farthest))
    for hop in range(FABRIC_HOPS_MAX):
        if not len(moving):
            break
        link = _next_link(world, reach, at[moving], goal[moving], target[moving], key[moving])
        hops[moving, hop] = link
        at[moving] = topology.target_switch[link]
        arrived = at[moving] == end[moving]
        length[moving[arrived]] = hop + 1
        moving = moving[~arrived]
    # A flow still on the way took a detour that is too long to count as a route.
    hops[moving] = NO_LINK
    return hops, length


def _next_link(world: World, reach: _Reach, at: Ints, goal: Ints, target: Ints, key: Ints) -> Ints:
    """One live link for each flow that brings it nearer to its goal; there must be one."""
    ports = _ports(world.topology)
    switches = reach.distance.shape[1]
    # Many flows stand at the same switch with the same goal. In the order of goals, distances are
    # read row by row, which is what makes this fast.
    place, of_flow = np.unique(goal.astype(np.int64) * switches + at, return_inverse=True)
    place_goal, place_at = np.divmod(place, switches)
    width = int(ports.count[place_at].max())
    ahead = place_goal[:, None] * switches + reach.neighbour[place_at, :width]
    there = reach.onward.ravel()[ahead] + ports.weight[place_at, :width]
    is_nearer = there == reach.distance.ravel()[place][:, None]
    # Candidates of all places in one row, each as place * width + port.
    candidate = np.flatnonzero(is_nearer)
    count = np.count_nonzero(is_nearer, axis=1)
    first = (np.cumsum(count) - count)[of_flow]
    if world.is_infiniband:
        some_link = ports.link[at, candidate[first] % width]
        choice = _choose_by_target(world.topology, some_link, target)
    else:
        choice = _choose_by_hash(world, at, key)
    choice %= count[of_flow].astype(np.uint64)
    chosen: Ints = ports.link[at, candidate[first + choice.astype(np.int64)] % width]
    return chosen


def _choose_by_hash(world: World, at: Ints, key: Ints) -> Bits:
    """The hash of each flow's identity at its switch: even over all of 64 bits.

    The mixing is splitmix64's finaliser; any good one would do, as long as all switches use the
    same one: polarisation is what happens when two switches compute the same.
    """
    bits = world.switch_hash_bits[at].astype(np.uint64)
    seen = key.astype(np.uint32).astype(np.uint64) & ((np.uint64(1) << bits) - np.uint64(1))
    mixed = seen | world.switch_hash_seed[at].astype(np.uint32).astype(np.uint64) << np.uint64(32)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    folded: Bits = mixed ^ (mixed >> np.uint64(31))
    return folded


def _choose_by_target(topology: Topology, candidate: Ints, target: Ints) -> Bits:
    """D-mod-k: neighbouring targets take neighbouring links, in each tier by another digit."""
    ordinal, divisor = _target_tables(topology)
    choice: Bits = (ordinal[target] // divisor[candidate]).astype(np.uint64)
    return choice


# Tables -------------------------------------------------------------------------------------------


@lru_cache(maxsize=CACHED_STATES)
def _target_tables(topology: Topology) -> tuple[Ints, Ints]:
    """For each NIC its place in the order of leaves, and for each link what to divide that by."""
    nics = topology.nics
    nic = np.arange(nics, dtype=np.int32)
    down = topology.down(nic)
    ordinal = np.zeros(nics, dtype=np.int32)
    ordinal[np.lexsort((topology.port[down], leaf_of_nic(topology)))] = nic
    tier = np.array([switch.tier for switch in topology.switches], dtype=np.int32)
    divisor = np.ones(topology.links, dtype=np.int32)
    fabric = np.arange(topology.first_fabric_link, topology.links)
    source, end = topology.source_switch[fabric], topology.target_switch[fabric]
    lower_tier = np.minimum(tier[source], tier[end])
    product = 1
    for level in range(int(tier.max())):
        divisor[fabric[lower_tier == level]] = product
        rising = source[(topology.kind[fabric] == LinkKind.FABRIC_UP) & (tier[source] == level)]
        product *= max(1, int(np.bincount(rising).max(initial=1)))
    return ordinal, divisor


@lru_cache(maxsize=CACHED_STATES)
def _ports(topology: Topology) -> _Ports:
    switches = len(topology.switches)
    fabric = np.arange(topology.first_fabric_link, topology.links, dtype=np.int32)
    order = fabric[np.argsort(topology.source_switch[fabric], kind="stable")]
    owner = topology.source_switch[order]
    count = np.bincount(owner, minlength=switches).astype(np.int32)
    column = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    shape = (switches, max(1, int(count.max())))
    link = np.full(shape, NO_LINK, dtype=np.int32)
    neighbour = np.full(shape, switches, dtype=np.int32)
    weight = np.full(shape, LINK_WEIGHT, dtype=np.int8)
    link[owner, column] = order
    neighbour[owner, column] = topology.target_switch[order]
    is_global = topology.kind[order] == LinkKind.GLOBAL
    weight[owner, column] = np.where(is_global, GLOBAL_WEIGHT, LINK_WEIGHT)
    goals = np.unique(leaf_of_nic(topology))
    goal_of_switch = np.full(switches, -1, dtype=np.int32)
    goal_of_switch[goals] = np.arange(len(goals))
    tier = np.array([switch.tier for switch in topology.switches])
    return _Ports(
        link=link,
        neighbour=neighbour,
        weight=weight,
        count=count,
        goal_of_switch=goal_of_switch,
        goals=goals,
        is_transit=(tier > 0) | (tier.max() == 0),
        has_global=bool(is_global.any()),
    )


@lru_cache(maxsize=CACHED_STATES)
def _reach(topology: Topology, dead: bytes) -> _Reach:
    """Distances without the dead links: their numbers from `first_fabric_link`, as int32 bytes."""
    ports = _ports(topology)
    farthest = DISTANCE_MAX[ports.has_global]
    if not dead:
        distance = _distances(ports, ports.neighbour, ports.goals, farthest)
        return _Reach(distance, _onward(ports, distance, farthest), ports.neighbour, farthest)
    links = np.frombuffer(dead, dtype=np.int32) + topology.first_fabric_link
    is_dead = np.zeros(topology.links + 1, dtype=np.bool_)  # The last one stands for NO_LINK.
    is_dead[links] = True
    nowhere = np.int32(len(topology.switches))
    neighbour = np.where(is_dead[ports.link], nowhere, ports.neighbour)
    healthy = _reach(topology, b"")
    owners = np.unique(topology.source_switch[links])
    farther = np.flatnonzero(_is_farther(ports, healthy, neighbour, owners))
    distance = healthy.distance.copy()
    if len(farther):
        distance[farther] = _distances(ports, neighbour, ports.goals[farther], farthest)
    return _Reach(distance, _onward(ports, distance, farthest), neighbour, farthest)


def _is_farther(ports: _Ports, healthy: _Reach, neighbour: Ints, owners: Ints) -> Bools:
    """For each goal: whether one of the switches with dead links has lost its last way to it.

    Where none has, all distances to the goal stay, and most cables have a twin or a way around of
    equal length: that is why a dead link costs milliseconds and not a new computation.
    """
    is_farther = np.zeros(len(ports.goals), dtype=np.bool_)
    for owner in owners:
        distance = healthy.distance[:, owner]
        there = healthy.onward[:, neighbour[owner]] + ports.weight[owner]
        has_way = (there == distance[:, None]).any(axis=1)
        is_farther |= ~has_way & (distance > 0) & (distance <= healthy.farthest)
    return is_farther


def _onward(ports: _Ports, distance: Distances, farthest: int) -> Distances:
    """Distances for flows that come from another switch: leaves of a tree do not forward them."""
    onward = distance.copy()
    onward[:, :-1][:, ~ports.is_transit] = farthest + 1
    onward[np.arange(len(ports.goals)), ports.goals] = 0
    return onward


def _distances(ports: _Ports, neighbour: Ints, goal_switch: Ints, farthest: int) -> Distances:
    """[goal, switch and one that is none]: weights to each goal, ``farthest`` + 1 if none is known.

    All goals at once: a switch has a bit for each goal that it has reached, and in every round it
    takes over the bits of its neighbours.
    """
    switches, goals = len(ports.count), len(goal_switch)
    own = np.zeros((switches + 1, -(-goals // 64) * 8), dtype=np.uint8)
    number = np.arange(goals)
    own[goal_switch, number // 8] = 1 << (number % 8)
    start = own.view(np.uint64)
    edges = [_edges(ports, neighbour, LINK_WEIGHT), _edges(ports, neighbour, GLOBAL_WEIGHT)]
    reached = [start]
    transit = np.append(ports.is_transit, True)[:, None]
    for distance in range(1, farthest + 1):
        now = reached[-1].copy()
        for weight, (owner, first, other) in zip((LINK_WEIGHT, GLOBAL_WEIGHT), edges, strict=True):
            if len(other) and distance >= weight:
                onward = np.where(transit, reached[distance - weight], start)
                now[owner] |= np.bitwise_or.reduceat(onward[other], first, axis=0)
        reached.append(now)
    far = np.full((goals, switches + 1), farthest + 1, dtype=np.int8)
    for bits in reached:
        has = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little", count=goals)
        far -= has.T.astype(np.int8)
    return far


def _edges(ports: _Ports, neighbour: Ints, weight: int) -> tuple[Ints, Ints, Ints]:
    """Live neighbours by switch: the switches with any, where each one's begin, and all of them."""
    switches = len(ports.count)
    row, column = np.nonzero((neighbour < switches) & (ports.weight == weight))
    pair = np.unique(row * (switches + 1) + neighbour[row, column])
    owner, first = np.unique(pair // (switches + 1), return_index=True)
    return owner.astype(np.int32), first.astype(np.int32), (pair % (switches + 1)).astype(np.int32)


# Neighbours ---------------------------------------------------------------------------------------


@lru_cache(maxsize=CACHED_STATES)
def leaf_of_nic(topology: Topology) -> Ints:
    leaf = topology.target_switch[topology.up(np.arange(topology.nics, dtype=np.int32))]
    leaf.flags.writeable = False
    return leaf
