"""The network as the engine sees it: returns the speeds of active units."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from simulator.network.columns import add_up
from simulator.network.congestion import (
    KEPT_PACE,
    Fair,
    Scene,
    Settled,
    find_congestion,
    scene_of,
    settle,
)
from simulator.network.counting import count_links, count_nics, sent_bps, without_background
from simulator.network.flows import (
    Crowd,
    Links,
    Paths,
    Wire,
    background_paths,
    find_paths,
    gather,
    mean_bps,
)
from simulator.network.lone import Lone, used
from simulator.network.losses import link_errors
from simulator.network.maxmin import share
from simulator.network.meetings import find_meetings
from simulator.network.model import FINEST_SECONDS, Solution
from simulator.network.partial import Mixture, scale
from simulator.pattern import Pattern
from simulator.topology.model import Bools, Floats, Topology
from simulator.topology.world import Background, World

SOLUTIONS_BYTES_MAX = 256 << 20
"""Memory for solutions: a thousand mixtures of units of a cluster of 128 hosts, twenty of 4,096. A
job of eight rails that run by themselves comes to 256 mixtures."""
STATES_KEPT = 8
"""Cached states of the network: healthy, and those that flapping links return to."""
SCENES_KEPT = 256
SCENES_BYTES_MAX = 16 << 20
"""Congested parts of the network that stay cached for each state: so many, and so much memory, but
one at least. Of 1,024 hosts one scene may have half a megabyte."""

_Active = Sequence[tuple[Pattern, Bools]]
_Key = tuple[bytes, tuple[tuple[Pattern, bytes], ...]]


@dataclass(eq=False)
class _State:
    """The network between two changes, and the results cached for it."""

    digest: bytes
    links: Links
    background: Paths
    background_bps: Floats
    paths: dict[Pattern, Paths] = field(default_factory=dict)
    crowds: dict[tuple[Pattern, ...], Crowd] = field(default_factory=dict)
    wires: dict[Pattern, Wire] = field(default_factory=dict)
    wholes: dict[tuple[Pattern, ...], Mixture] = field(default_factory=dict)
    scenes: OrderedDict[bytes, Settled] = field(default_factory=OrderedDict)
    scenes_bytes: int = 0
    lone: dict[Pattern, Lone | None] = field(default_factory=dict)
    used: dict[tuple[Pattern, ...], Bools] = field(default_factory=dict)
    """Links that the flows of some patterns cross, by number."""
    meetings: dict[tuple[tuple[Pattern, ...], tuple[Pattern, ...]], bool] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, world: World, digest: bytes) -> _State:
        links = Links.of(world, link_errors(world))
        background_bps = np.array([mean_bps(one) for one in world.background])
        return cls(digest, links, background_paths(world, links), background_bps)


class Network:
    """Shares links among flows, and runs the fluid where they compete for them.

    Solutions are cached and shared: no caller may write into them. They depend on what the network
    can feel of a world and on nothing else, so they outlast changes of anything else, and are there
    when a world comes back to an earlier state.
    """

    def __init__(self, topology: Topology, *, has_ecn: bool = True) -> None:
        self._topology = topology
        self._has_ecn = has_ecn
        self._known: tuple[World, int] | None = None
        self._state: _State | None = None
        self._states: OrderedDict[bytes, _State] = OrderedDict()
        self._solutions: OrderedDict[_Key, Solution] = OrderedDict()
        self._solutions_bytes = 0

    def solve(self, world: World, active: _Active) -> Solution:
        state = self._look_at(world)
        key = (state.digest, tuple((pattern, units.tobytes()) for pattern, units in active))
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

    def solve_alone(self, world: World, pattern: Pattern, unit: int) -> Solution:
        """The solution for one unit alone; its counters are without the background's."""
        only = np.zeros(pattern.units, dtype=np.bool_)
        only[unit] = True
        solution = self.solve(world, [(pattern, only)])
        if not world.background:
            return solution
        own = self._solve(world, [(pattern, only)], counts_background=False)
        return without_background(solution, self.solve(world, []), own)

    def lone(self, world: World, pattern: Pattern) -> Lone | None:
        """What each unit of a pattern does by itself; None where its units or the background meet.

        For as long as no flow of another job meets them: see `may_meet`.
        """
        state = self._look_at(world)
        if pattern not in state.lone:
            paths = self._paths_of(world, pattern)
            found = None
            if not (used([paths], self._topology.links) & self._used_by_background(state)).any():
                everyone = [(pattern, np.ones(pattern.units, dtype=np.bool_))]
                solution = self._solve(world, everyone, counts_background=False)
                found = Lone.of(pattern, paths, solution)
            state.lone[pattern] = found
        return state.lone[pattern]

    def may_meet(
        self, world: World, some: tuple[Pattern, ...], others: tuple[Pattern, ...]
    ) -> bool:
        """Whether flows of the one and of the other cross the same link."""
        state = self._look_at(world)
        if (some, others) not in state.meetings:
            for patterns in (some, others):
                if patterns not in state.used:
                    paths = [self._paths_of(world, pattern) for pattern in patterns]
                    state.used[patterns] = used(paths, self._topology.links)
            meet = bool((state.used[some] & state.used[others]).any())
            state.meetings[some, others] = meet
        return state.meetings[some, others]

    def _used_by_background(self, state: _State) -> Bools:
        return used([state.background], self._topology.links)

    def wire(self, world: World, pattern: Pattern) -> Wire:
        state = self._look_at(world)
        if pattern not in state.wires:
            paths = self._paths_of(world, pattern)
            state.wires[pattern] = Wire.of(pattern, paths, state.links, self._topology.links)
        return state.wires[pattern]

    def _look_at(self, world: World) -> _State:
        if self._state is not None and self._known == (world, world.version):
            return self._state
        self._known = (world, world.version)
        digest = world.network_digest()
        state = self._states.pop(digest, None) or _State.of(world, digest)
        self._states[digest] = self._state = state
        if len(self._states) > STATES_KEPT:
            self._states.popitem(last=False)
        return state

    def _paths_of(self, world: World, pattern: Pattern) -> Paths:
        """Paths of all flows of a pattern, routed once for each state of the network."""
        state = self._look_at(world)
        if pattern not in state.paths:
            state.paths[pattern] = find_paths(
                world, state.links, pattern.flow_source, pattern.flow_target, pattern.flow_key
            )
        return state.paths[pattern]

    # Solving -----------------------------------------------------------------------------------

    def _crowd(self, world: World, patterns: tuple[Pattern, ...]) -> Crowd:
        state = self._look_at(world)
        if patterns not in state.crowds:
            routed = [(pattern, self._paths_of(world, pattern)) for pattern in patterns]
            flows = gather(routed, state.background, state.background_bps)
            state.crowds[patterns] = Crowd.of(flows, state.links)
        return state.crowds[patterns]

    def _mix(self, world: World, active: _Active) -> Mixture:
        links = self._look_at(world).links
        patterns = tuple(pattern for pattern, _ in active)
        crowd = self._crowd(world, patterns)
        fair = _share(links, crowd, _here(active, len(world.background)))
        feeding = find_congestion(world, links, crowd, fair)
        fluid = None
        if len(feeding.congested):
            if not _is_whole(active):
                fluid = scale(self._whole(world, patterns), feeding, self._topology.links)
            if fluid is None:
                scene = scene_of(world, links, crowd, fair, feeding)
                fluid = scene, self._settle(world, scene)
        return Mixture(crowd, fair, feeding, fluid)

    def _whole(self, world: World, patterns: tuple[Pattern, ...]) -> Mixture:
        wholes = self._look_at(world).wholes
        if patterns not in wholes:
            everyone = [(pattern, np.ones(pattern.units, dtype=np.bool_)) for pattern in patterns]
            wholes[patterns] = self._mix(world, everyone)
        return wholes[patterns]

    def _solve(self, world: World, active: _Active, *, counts_background: bool = True) -> Solution:
        """Rates of flows, the resulting paces of units, and counter rates."""
        links = self._look_at(world).links
        patterns = tuple(pattern for pattern, _ in active)
        is_whole = _is_whole(active)
        mixture = self._whole(world, patterns) if is_whole else self._mix(world, active)
        crowd, fluid, own = mixture.crowd, mixture.fluid, mixture.fair.own_bps
        flows = crowd.flows
        is_measured = np.zeros(flows.count, dtype=np.bool_)
        if fluid is not None:
            able = _able_bps(links, mixture, own, own, is_measured)
            # No unit waits for the background: it never sends more than it has.
            able[flows.first_background :] = own[flows.first_background :]
            own, is_measured = _after_congestion(own, able, *fluid)
        speeds, pace = _paces(active, own)
        pace = np.concatenate([pace, own[flows.first_background :]])
        pace = np.where(np.isfinite(pace), pace, 0.0)
        able = _able_bps(links, mixture, pace, own, is_measured)
        on_wire = sent_bps(flows, pace, fluid)
        if not counts_background:
            on_wire[flows.first_background :] = 0.0
        bursts = _burst_bps(active, world.background, pace, able) * flows.paths.wire_per_payload
        if not counts_background:
            bursts[flows.first_background :] = 0.0
        ends = np.cumsum([len(pattern.flow_unit) for pattern in patterns])
        return Solution(
            speed=speeds,
            flow_bps=np.split(able, ends)[:-1],
            links=count_links(links, crowd, on_wire, bursts, fluid),
            nics=count_nics(links, crowd, pace, on_wire, fluid),
            meetings=find_meetings(world, patterns, mixture.fair, mixture.feeding),
        )

    def _settle(self, world: World, scene: Scene) -> Settled:
        """Run the fluid once for each scene: units come and go on links outside of it."""
        state = self._look_at(world)
        scenes = state.scenes
        key = scene.key()
        settled = scenes.get(key)
        if settled is None:
            settled = scenes[key] = settle(world, scene, has_ecn=self._has_ecn)
            state.scenes_bytes += len(key) + settled.nbytes
            while len(scenes) > 1 and (
                len(scenes) > SCENES_KEPT or state.scenes_bytes > SCENES_BYTES_MAX
            ):
                old, gone = scenes.popitem(last=False)
                state.scenes_bytes -= len(old) + gone.nbytes
        return settled


def _is_whole(active: _Active) -> bool:
    return all(units.all() for _, units in active)


def _here(active: _Active, background: int) -> Bools:
    """Which flows of a crowd are active: the background's always are."""
    masks = [units[pattern.flow_unit] for pattern, units in active]
    return np.concatenate([*masks, np.ones(background, dtype=np.bool_)])


def _share(links: Links, crowd: Crowd, is_here: Bools) -> Fair:
    flows = crowd.flows
    which = np.flatnonzero(is_here[crowd.uses.flow]).astype(np.int32)
    uses = crowd.uses.take(which)
    sharing = share(
        flows.variable[uses.flow],
        uses.link,
        crowd.usage[uses.flow],
        links.capacity_bps[uses.links],
        flows.limit_bps,
    )
    own = np.where(is_here, sharing.rate[flows.variable] * flows.weight, 0.0)
    return Fair(which, uses, own, sharing.is_held)


def _able_bps(
    links: Links, mixture: Mixture, pace: Floats, own: Floats, is_measured: Bools
) -> Floats:
    """What each flow could move while all others keep their pace; 0 for those not active."""
    flows, uses = mixture.crowd.flows, mixture.fair.uses
    wire = pace * flows.paths.wire_per_payload
    capacity = links.capacity_bps[uses.links]
    free = capacity - add_up(uses.link, wire[uses.flow], len(capacity))
    room = np.full(flows.count, np.inf)
    np.minimum.at(room, uses.flow, np.maximum(free, 0.0)[uses.link])
    able = np.minimum(pace + room / flows.paths.wire_per_payload, flows.paths.limit_bps)
    # Where the fluid limited a flow, capacity that seems free on its links was not free for it.
    able = np.where(is_measured, own, able)
    larger: Floats = np.where(mixture.fair.own_bps > 0, np.maximum(able, pace), 0.0)
    return larger


def _burst_bps(
    active: _Active, background: Sequence[Background], pace: Floats, able: Floats
) -> Floats:
    """The highest rate of each flow over `FINEST_SECONDS`, bits of payload a second.

    A flow that waits for slower ones of its unit sends what is its own at once, as fast as it is
    able, until the buffers between the two are full. A flow that is waited for has no such rate.
    """
    ahead, size = [np.zeros(0)], [np.zeros(0)]
    for pattern, _ in active:
        own = pattern.flow_ahead_bytes
        ahead.append(np.zeros(len(pattern.flow_unit)) if own is None else own)
        size.append(pattern.flow_bytes)
    count = len(pace) - len(background)
    burst = pace[:count] + np.concatenate(ahead) * (8 / FINEST_SECONDS)
    # An operation that is over sooner is no longer than all of its bytes.
    burst = np.minimum(burst, np.concatenate(size) * (8 / FINEST_SECONDS))
    others = [
        one.bits_per_second * min(1.0, one.on_seconds / FINEST_SECONDS)
        if one.period_seconds > 0
        else 0.0
        for one in background
    ]
    own_bursts = np.where(pace[:count] > 0, np.minimum(burst, able[:count]), 0.0)
    return np.concatenate([own_bursts, np.maximum(pace[count:], others)])


def _size_of(solution: Solution) -> int:
    """Bytes of a solution's columns: those of links and NICs are there twice, see their tables."""
    size = sum(column.nbytes for column in [*solution.speed, *solution.flow_bps])
    for rates in (solution.links, solution.nics):
        size += 2 * sum(getattr(rates, column.name).nbytes for column in fields(rates))
    return size


def _after_congestion(
    own: Floats, able: Floats, scene: Scene, settled: Settled
) -> tuple[Floats, Bools]:
    """Rates of flows, with those that the fluid has measured, and which these are.

    In the fluid, flows that nothing limits send at their unit's fair pace. Where the limited one
    gets more than that (FIFO queues favour the sender that pushes hardest), the unit goes as fast
    as it does: the others follow as far as they are able.
    """
    at = scene.flows
    is_greedy = np.isinf(scene.sources.demand_bps)
    keeps = ~is_greedy & (settled.payload_bps >= own[at] * KEPT_PACE)
    is_measured = np.zeros(len(own), dtype=np.bool_)
    is_measured[at] = ~keeps
    rates = able.copy()
    rates[at] = np.where(keeps, able[at], settled.payload_bps)
    return rates, is_measured


def _paces(active: _Active, own: Floats) -> tuple[list[Floats], Floats]:
    """Speeds of units (their slowest flow's), and the rates of flows at those speeds."""
    speeds, paces, first = [], [np.zeros(0)], 0
    for pattern, units in active:
        unit, size = pattern.flow_unit, 8 * pattern.flow_bytes
        rate = own[first : first + len(unit)]
        first += len(unit)
        speed = np.where(units, np.inf, 0.0)
        np.minimum.at(speed, unit, np.where(size > 0, rate / np.maximum(size, 1e-300), np.inf))
        speeds.append(speed)
        with np.errstate(invalid="ignore"):
            paces.append(np.where(size > 0, speed[unit] * size, 0.0))
    return speeds, np.concatenate(paces)
