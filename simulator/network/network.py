"""The network as the engine sees it: asked for the speeds of what is active, it answers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.network.columns import add_up
from simulator.network.congestion import (
    KEPT_PACE,
    Scene,
    Settled,
    find_congestion,
    reach_of,
    scene_of,
    settle,
)
from simulator.network.counting import count_links, count_nics, sent_bps
from simulator.network.flows import (
    Flows,
    Links,
    Paths,
    Uses,
    background_paths,
    find_paths,
    gather,
    mean_bps,
)
from simulator.network.losses import link_errors
from simulator.network.maxmin import Sharing, share
from simulator.network.model import Solution
from simulator.pattern import Pattern
from simulator.topology.model import Bools, Floats, Ints, Topology
from simulator.world import World

SOLUTIONS_BYTES_MAX = 256 << 20
"""Memory for solutions: a thousand mixtures of units of a cluster of 128 hosts, twenty of 4,096. A
job of eight rails that run by themselves comes to 256 mixtures."""
SCENES_KEPT = 256
"""Congested parts of the network that are remembered; fewer than mixtures, for many share one."""

_Key = tuple[tuple[Pattern, bytes], ...]


@dataclass(frozen=True, eq=False)
class _Fair:
    """Flows at their fair rates."""

    flows: Flows
    uses: Uses
    sharing: Sharing


class Network:
    """Shares links among flows, and runs the fluid where they fight for them.

    Solutions are remembered as long as the world's version lasts, and shared: nobody may write into
    them.
    """

    def __init__(self, topology: Topology, *, has_ecn: bool = True) -> None:
        self._topology = topology
        self._has_ecn = has_ecn
        self._known: tuple[World, int] | None = None
        self._solutions: OrderedDict[_Key, Solution] = OrderedDict()
        self._solutions_bytes = 0
        self._scenes: OrderedDict[bytes, Settled] = OrderedDict()
        self._paths: dict[Pattern, Paths] = {}
        self._components: dict[Pattern, Ints] = {}

    def solve(self, world: World, active: Sequence[tuple[Pattern, Bools]]) -> Solution:
        """How the active units of these patterns fare together."""
        self._look_at(world)
        key = tuple((pattern, units.tobytes()) for pattern, units in active)
        found = self._solutions.get(key)
        if found is not None:
            self._solutions.move_to_end(key)
            return found
        solution = self._solve(world, active)
        self._solutions[key] = solution
        self._solutions_bytes += _size_of(solution)
        while self._solutions_bytes > SOLUTIONS_BYTES_MAX and len(self._solutions) > 1:
            _, oldest = self._solutions.popitem(last=False)
            self._solutions_bytes -= _size_of(oldest)
        return solution

    def components(self, world: World, pattern: Pattern) -> Ints:
        """A number for each unit: those with different numbers cannot disturb each other."""
        self._look_at(world)
        if pattern not in self._components:
            self._components[pattern] = self._find_components(world, pattern)
        return self._components[pattern]

    def _look_at(self, world: World) -> None:
        """Forget everything if the world has changed."""
        if self._known == (world, world.version):
            return
        self._known = (world, world.version)
        self._solutions.clear()
        self._solutions_bytes = 0
        self._scenes.clear()
        self._paths.clear()
        self._components.clear()
        self._links = Links.of(world, link_errors(world))
        self._background = background_paths(world, self._links)
        self._background_bps = np.array([mean_bps(one) for one in world.background])

    def _paths_of(self, world: World, pattern: Pattern) -> Paths:
        """Of all flows of a pattern, routed once as long as the world does not change."""
        if pattern not in self._paths:
            self._paths[pattern] = find_paths(
                world, self._links, pattern.flow_source, pattern.flow_target, pattern.flow_key
            )
        return self._paths[pattern]

    # Solving -----------------------------------------------------------------------------------

    def _share(self, world: World, active: Sequence[tuple[Pattern, Bools]]) -> _Fair:
        """Fair rates of all active flows."""
        flows = gather(
            [
                (pattern, units[pattern.flow_unit], self._paths_of(world, pattern))
                for pattern, units in active
            ],
            self._background,
            self._background_bps,
        )
        uses = Uses.of(flows.paths.path, self._topology.links)
        sharing = share(
            flows.variable[uses.flow],
            uses.link,
            (flows.weight * flows.paths.wire_per_payload)[uses.flow],
            self._links.capacity_bps[uses.links],
            flows.limit_bps,
        )
        return _Fair(flows, uses, sharing)

    def _solve(self, world: World, active: Sequence[tuple[Pattern, Bools]]) -> Solution:
        """Fair rates first; then the fluid, but only where links are fed more than they carry."""
        fair = self._share(world, active)
        flows, uses = fair.flows, fair.uses
        feeding = find_congestion(world, self._links, flows, uses, fair.sharing)
        own = fair.sharing.rate[flows.variable] * flows.weight
        is_measured = np.zeros(flows.count, dtype=np.bool_)
        fluid = None
        if len(feeding.congested):
            scene = scene_of(world, self._links, flows, uses, fair.sharing, feeding)
            fluid = scene, self._settle(world, scene)
            own, is_measured = _after_congestion(own, *fluid)
        speeds, pace = _paces(active, own, flows.first_background)
        pace = np.concatenate([pace, own[flows.first_background :]])
        pace = np.where(np.isfinite(pace), pace, 0.0)
        able = self._able_bps(fair, pace, own, is_measured)
        on_wire = sent_bps(flows, pace, fluid)
        return Solution(
            speed=speeds,
            flow_bps=_split(active, able),
            links=count_links(self._links, uses, on_wire, fluid),
            nics=count_nics(self._links, flows, pace, on_wire, fluid),
        )

    def _settle(self, world: World, scene: Scene) -> Settled:
        """As the fluid says, which is asked once for each scene.

        Other units come and go on links that have nothing to do with it.
        """
        key = scene.key()
        settled = self._scenes.get(key)
        if settled is None:
            settled = self._scenes[key] = settle(world, scene, has_ecn=self._has_ecn)
            if len(self._scenes) > SCENES_KEPT:
                self._scenes.popitem(last=False)
        return settled

    def _able_bps(self, fair: _Fair, pace: Floats, own: Floats, is_measured: Bools) -> Floats:
        """What each flow could move while all others keep their pace."""
        flows, uses = fair.flows, fair.uses
        wire = pace * flows.paths.wire_per_payload
        capacity = self._links.capacity_bps[uses.links]
        free = capacity - add_up(uses.link, wire[uses.flow], len(capacity))
        room = np.full(flows.count, np.inf)
        np.minimum.at(room, uses.flow, np.maximum(free, 0.0)[uses.link])
        able = np.minimum(pace + room / flows.paths.wire_per_payload, flows.paths.limit_bps)
        # Where the fluid held a flow up, what seems free on its links was not free for it.
        able = np.where(is_measured, own, able)
        larger: Floats = np.maximum(able, pace)
        return larger

    # Components --------------------------------------------------------------------------------

    def _find_components(self, world: World, pattern: Pattern) -> Ints:
        """Units that cross the same link, where together they want more than it carries."""
        units = np.ones(pattern.units, dtype=np.bool_)
        fair = self._share(world, [(pattern, units)])
        flows, uses = fair.flows, fair.uses
        ours = uses.flow < flows.first_background
        unit = pattern.flow_unit[uses.flow[ours]]
        alone = self._most_bps(flows, uses)
        capacity = self._links.capacity_bps[uses.links]
        wanted = add_up(uses.link, alone[uses.flow], len(capacity))
        is_shared = wanted > capacity * (1 + 1e-9)
        feeding = find_congestion(world, self._links, flows, uses, fair.sharing)
        _, reached = reach_of(flows.paths.path, feeding.congested, self._topology.links)
        is_shared |= reached[uses.links]
        at = is_shared[uses.link[ours]]
        return _join(unit[at], uses.link[ours][at], pattern.units, len(capacity))

    def _most_bps(self, flows: Flows, uses: Uses) -> Floats:
        """What each flow would put on the wire if it were alone."""
        most = flows.paths.limit_bps * flows.paths.wire_per_payload
        np.minimum.at(most, uses.flow, self._links.capacity_bps[uses.links][uses.link])
        finite: Floats = np.where(np.isfinite(most), most, 0.0)
        return finite


def _size_of(solution: Solution) -> int:
    """Bytes of a solution's columns."""
    columns = [*solution.speed, *solution.flow_bps]
    for rates in (solution.links, solution.nics):
        columns += vars(rates).values()
    return sum(column.nbytes for column in columns)


def _after_congestion(own: Floats, scene: Scene, settled: Settled) -> tuple[Floats, Bools]:
    """Rates of flows, with those that the fluid has measured, and which these are."""
    rates = own.copy()
    at = scene.flows
    is_greedy = np.isinf(scene.sources.demand_bps)
    keeps = ~is_greedy & (settled.payload_bps >= own[at] * KEPT_PACE)
    rates[at] = np.where(keeps, own[at], settled.payload_bps)
    is_measured = np.zeros(len(own), dtype=np.bool_)
    is_measured[at] = ~keeps
    return rates, is_measured


def _paces(
    active: Sequence[tuple[Pattern, Bools]], own: Floats, count: int
) -> tuple[list[Floats], Floats]:
    """Speeds of units (their slowest flow's), and the rates of flows at those speeds."""
    speeds, paces, first = [], [np.zeros(0)], 0
    for pattern, units in active:
        is_active = units[pattern.flow_unit]
        unit, size = pattern.flow_unit[is_active], 8 * pattern.flow_bytes[is_active]
        rate = own[first : first + len(unit)]
        first += len(unit)
        speed = np.where(units, np.inf, 0.0)
        np.minimum.at(speed, unit, np.where(size > 0, rate / np.maximum(size, 1e-300), np.inf))
        speeds.append(speed)
        with np.errstate(invalid="ignore"):
            paces.append(np.where(size > 0, speed[unit] * size, 0.0))
    assert first == count
    return speeds, np.concatenate(paces)


def _split(active: Sequence[tuple[Pattern, Bools]], rates: Floats) -> list[Floats]:
    """Rates of active flows as one column for each pattern, with 0 for those that are not."""
    columns, first = [], 0
    for pattern, units in active:
        is_active = units[pattern.flow_unit]
        column = np.zeros(len(is_active))
        count = int(is_active.sum())
        column[is_active] = rates[first : first + count]
        first += count
        columns.append(column)
    return columns


def _join(unit: Ints, link: Ints, units: int, links: int) -> Ints:
    """The lowest number among all units that are connected over these links."""
    label = np.arange(units, dtype=np.int32)
    while True:
        lowest = np.full(links, units, dtype=np.int32)
        np.minimum.at(lowest, link, label[unit])
        joined = label.copy()
        np.minimum.at(joined, unit, lowest[link])
        if (joined == label).all():
            return label
        label = joined
