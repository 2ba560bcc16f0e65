"""Where queues must stand, and the rates of the flows around them once they have settled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.network.columns import add_up
from simulator.network.flows import Crowd, Flows, Links, Paths, Uses
from simulator.network.fluid import STEP_SECONDS, Fluid, Sources, Totals
from simulator.network.losses import DROPS_PER_GAP, packet_bytes, recover
from simulator.topology.model import NO_LINK, Bools, Floats, Ints
from simulator.topology.world import World

SLACK = 1e-3
"""A link that is fed less than this beyond its capacity, relative, is not congested: rounding."""
FIRST_SWITCH_HOP = 2
"""Hops before this one (slot, NIC) wait in the sender's memory, where no counter shows it."""
WARM_UP_SECONDS = 3e-3
"""Until senders have found their rates: dozens of notifications."""
MEASURING_SECONDS = 3e-3
"""Long enough for a dozen cuts and recoveries."""
PHASE_MAX_SECONDS = 6e-3
"""Of a burst, and of the silence after it, that is simulated: after that it has settled."""
PHASE_TAIL_SECONDS = 1e-3
"""At the end of a phase that stands for the rest of it."""
USES_MAX = 12_000
"""Crossings of links by flows in a scene that is run for all that time: larger ones, an all-to-all
of hundreds of NICs, have so many flows that a shorter time is mean enough."""
SECONDS_LEAST_SHARE = 0.3
"""Of that time that every scene is run."""
START_SHARE = 1.2
"""Of its fair rate at which a sender that wants more begins: DCQCN must adapt, but not from far."""
KEPT_PACE = 0.98
"""A flow with this share of its pace keeps pace: the rest is the edge of the measurement."""


@dataclass(frozen=True, eq=False)
class Fair:
    """The active flows of a crowd, at their fair rates."""

    which: Ints
    """Uses of the crowd that are those of active flows."""
    uses: Uses
    own_bps: Floats
    """Payload of each flow, 0 for those that are not active; infinite where nothing limits it."""
    is_held: Bools
    """For each use: this link limits this flow."""


@dataclass(frozen=True, eq=False)
class Feeding:
    """What flows would send if only the links before each one limited them."""

    demand_bps: Floats
    """Of each flow, on the wire; infinite where a link limits it."""
    congested: Ints
    """Links that are fed more than they carry."""
    excess: Floats
    """Of each of those: the share of what it is fed that it does not carry."""
    wire_bps: Floats
    """Rate of each flow on the wire at its fair rate."""
    load_bps: Floats
    """The sum of that on each link that the crowd uses."""


@dataclass(frozen=True)
class Rhythm:
    """When the longest bursts come, in truth and simulated: a long phase is cut once it settled."""

    on_s: float = 0.0
    off_s: float = 0.0

    @property
    def on_simulated_s(self) -> float:
        return min(self.on_s, PHASE_MAX_SECONDS)

    @property
    def period_simulated_s(self) -> float:
        return self.on_simulated_s + min(self.off_s, PHASE_MAX_SECONDS)

    def measuring(self, start_s: float, least_s: float) -> list[float]:
        period = self.period_simulated_s
        if period <= 0:
            return [1.0] * round(least_s / STEP_SECONDS)
        seconds = period * np.ceil(least_s / period - 1e-9)
        times = start_s + STEP_SECONDS * (np.arange(round(seconds / STEP_SECONDS)) + 0.5)
        phase = np.mod(times, period)
        weights = np.ones(len(times))
        for begin, end, true in (
            (0.0, self.on_simulated_s, self.on_s),
            (self.on_simulated_s, period, self.off_s),
        ):
            left_out = true - (end - begin)
            tail = min(PHASE_TAIL_SECONDS, end - begin)
            if left_out > 0:
                weights[(phase >= end - tail) & (phase < end)] += left_out / tail
        return [float(weight) for weight in weights]


@dataclass(frozen=True, eq=False)
class Scene:
    """The part of the network that congestion can reach, ready to be run."""

    flows: Ints
    """Which of all flows these are."""
    paths: Paths
    capacity_bps: Floats
    """Of all links, less what flows outside of the scene take."""
    sources: Sources
    rhythm: Rhythm
    fair_bps: Floats
    """Payload of each flow by max-min fairness."""
    is_held: Bools
    """[flows, hops]: this link limits this flow."""

    def key(self) -> bytes:
        """Equal for scenes that run alike; rates are rounded, as the order of additions varies."""
        path, sources = self.paths.path, self.sources
        rates = (self.capacity_bps[path], sources.demand_bps, sources.start_bps)
        return path.tobytes() + b"".join(rate.astype(np.float32).tobytes() for rate in rates)


@dataclass(frozen=True, eq=False)
class Settled:
    """The fluid's result in a scene. Columns are about its flows, or about ``links``."""

    links: Ints
    totals: Totals
    payload_bps: Floats
    """That arrived, in order, of each flow."""
    drop_share: Floats
    """Of each flow's packets."""
    drops_at: Floats
    """[flows, hops]: the part of it that was dropped in front of this link of its path."""

    @property
    def nbytes(self) -> int:
        """Of its columns."""
        totals = [one for one in vars(self.totals).values() if isinstance(one, np.ndarray)]
        own = self.links.nbytes + self.payload_bps.nbytes
        own += self.drop_share.nbytes + self.drops_at.nbytes
        return own + sum(int(column.nbytes) for column in totals)


def find_congestion(world: World, links: Links, crowd: Crowd, fair: Fair) -> Feeding:
    """Which links are fed more than they carry, by flows at their fair rates or greedier."""
    flows, uses = crowd.flows, fair.uses
    capacity = links.capacity_bps[uses.links]
    wire = fair.own_bps * flows.paths.wire_per_payload
    wire = np.where(np.isfinite(wire), wire, 0.0)
    peak = _peak_demand(world, flows, wire)
    load = add_up(uses.link, wire[uses.flow], len(capacity))
    is_full = load >= capacity * (1 - SLACK)
    if len(world.background):
        burst = add_up(uses.link, (peak - wire)[uses.flow], len(capacity))
        is_full |= (burst > 0) & (load + burst > capacity * (1 + SLACK))
    is_held = np.zeros(flows.count, dtype=np.bool_)
    is_held[uses.flow[fair.is_held]] = True
    is_held[flows.first_background :] = False
    most = flows.paths.limit_bps * flows.paths.wire_per_payload
    demand = np.minimum(np.where(is_held, np.inf, peak), most)
    at = np.flatnonzero((uses.hop >= FIRST_SWITCH_HOP) & is_full[uses.link]).astype(np.int32)
    arriving = _arriving(crowd, fair, (demand, wire), at)
    feed = add_up(crowd.feed[fair.which[at]], arriving, len(crowd.fed_to))
    fed = add_up(crowd.fed_to, np.minimum(feed, capacity[crowd.fed_from]), len(capacity))
    is_over = fed > capacity * (1 + SLACK)
    excess = 1.0 - capacity[is_over] / fed[is_over]
    return Feeding(demand, uses.links[is_over], excess, wire, load)


def _arriving(crowd: Crowd, fair: Fair, rates: tuple[Floats, Floats], at: Ints) -> Floats:
    """What flows bring to links, in these uses, if only the links before limit them.

    A link that limits a flow lets its fair share pass, any other as much as it carries. ``rates``
    are the flows' demands and their fair shares.
    """
    demand, wire = rates
    uses = fair.uses
    passes = crowd.passes_bps.copy()
    flow, hop = uses.flow[fair.is_held], uses.hop[fair.is_held]
    passes[flow, hop] = wire[flow]
    passed = np.minimum.accumulate(passes, axis=1)
    arriving: Floats = np.minimum(demand[uses.flow[at]], passed[uses.flow[at], uses.hop[at] - 1])
    return arriving


def _peak_demand(world: World, flows: Flows, wire: Floats) -> Floats:
    """Fair rates, and of the background what it sends while it is on."""
    peak = wire.copy()
    background = slice(flows.first_background, None)
    on = np.array([one.bits_per_second for one in world.background])
    able = flows.paths.limit_bps[background] > 0
    peak[background] = np.where(able, on * flows.paths.wire_per_payload[background], 0.0)
    return peak


def reach_of(path: Ints, congested: Ints, links_total: int) -> tuple[Bools, Bools]:
    """What congestion can reach: flows, and links on the way towards it.

    Back-pressure goes upstream over all flows that cross a congested link; it then delays all flows
    that share a link with them, and goes upstream from there.
    """
    is_reached = np.zeros(links_total + 1, dtype=np.bool_)
    is_reached[congested] = True
    while True:
        before = int(is_reached.sum())
        # NO_LINK is the last place, which is never reached.
        hit = is_reached[path]
        towards = np.logical_or.accumulate(hit[:, ::-1], axis=1)[:, ::-1]
        is_reached[path[towards]] = True
        if int(is_reached.sum()) == before:
            flows: Bools = towards[:, 0]
            return flows, is_reached[:-1]


def scene_of(world: World, links: Links, crowd: Crowd, fair: Fair, feeding: Feeding) -> Scene:
    """The flows that congestion can reach; the others only take their share of links."""
    flows, uses = crowd.flows, fair.uses
    path = flows.paths.path
    here = np.unique(uses.flow)
    is_reached = np.zeros(flows.count, dtype=np.bool_)
    is_reached[here], _ = reach_of(path[here], feeding.congested, world.topology.links)
    is_inside = is_reached & (feeding.demand_bps > 0)
    wire = feeding.wire_bps
    taken = _outside_bps(path, wire, is_inside, world.topology.links)
    is_held = np.zeros(path.shape, dtype=np.bool_)
    is_held[uses.flow, uses.hop] = fair.is_held
    return Scene(
        flows=np.flatnonzero(is_inside).astype(np.int32),
        paths=flows.paths.take(is_inside),
        capacity_bps=np.maximum(links.capacity_bps - taken, 0.0),
        sources=_sources(world, flows, wire, feeding, is_inside),
        rhythm=_rhythm(world),
        fair_bps=(wire / flows.paths.wire_per_payload)[is_inside],
        is_held=is_held[is_inside],
    )


def settle(world: World, scene: Scene, *, has_ecn: bool) -> Settled:
    """Run the fluid in a scene until it has settled, and measure."""
    fluid = Fluid(world, scene.paths, scene.capacity_bps, scene.sources, has_ecn=has_ecn)
    share = float(np.clip(USES_MAX / len(fluid.queued), SECONDS_LEAST_SHARE, 1.0))
    for _ in range(round(share * WARM_UP_SECONDS / STEP_SECONDS)):
        fluid.step(weight=0.0)
    for weight in scene.rhythm.measuring(fluid.time_s, share * MEASURING_SECONDS):
        fluid.step(weight)
    totals = fluid.totals
    drop_share = np.minimum(totals.flow_dropped / np.maximum(totals.flow_sent, 1.0), 1.0)
    arrived = 8 * totals.flow_delivered / totals.seconds
    packet_bits = 8 * packet_bytes(world.topology.fabric)
    again = recover(drop_share / DROPS_PER_GAP, np.maximum(arrived, 1.0), packet_bits)
    kept = again.goodput_bps / np.maximum(arrived, 1.0)
    payload = arrived / scene.paths.wire_per_payload * np.where(drop_share > 0, kept, 1.0)
    if has_ecn and not world.is_infiniband:
        payload = _even_out(payload, scene)
    return Settled(fluid.links, totals, payload, drop_share, _drops_at(fluid, scene.paths.path))


def _drops_at(fluid: Fluid, path: Ints) -> Floats:
    sent = np.maximum(fluid.totals.flow_sent, 1.0)
    drops: Floats = np.zeros(path.shape)
    # The fluid leaves out the first link: the host's memory is in front of it.
    drops[fluid.uses.flow, fluid.uses.hop + 1] = fluid.use_dropped / sent[fluid.uses.flow]
    return drops


def _even_out(payload: Floats, scene: Scene) -> Floats:
    """Rates of flows that control their rates, as means over a longer time than is run.

    DCQCN cuts flows by chance, and it evens out within a collective: flows that compete for the
    same links get what these links let through, in proportion to their fair shares.
    """
    greedy = np.flatnonzero(np.isinf(scene.sources.demand_bps))
    if not len(greedy):
        return payload
    fair = scene.fair_bps[greedy]
    flow, hop = np.nonzero(scene.is_held[greedy])
    link = scene.paths.path[greedy][flow, hop]
    total = len(scene.capacity_bps)
    got = add_up(link, payload[greedy][flow], total)
    due = add_up(link, fair[flow], total)
    kept = np.full(len(greedy), np.inf)
    np.minimum.at(kept, flow, got[link] / np.maximum(due[link], 1e-300))
    evened = payload.copy()
    evened[greedy] = fair * kept
    return evened


def _outside_bps(path: Ints, wire: Floats, is_inside: Bools, links_total: int) -> Floats:
    """Rate that flows outside the scene take of each link."""
    outside = path[~is_inside]
    load = np.broadcast_to(wire[~is_inside][:, None], outside.shape)
    is_link = outside != NO_LINK
    return add_up(outside[is_link], load[is_link], links_total)


def _rhythm(world: World) -> Rhythm:
    """The rhythm of the background source with the longest period; others run beside it."""
    longest = Rhythm()
    for one in world.background:
        off = one.period_seconds - one.on_seconds
        if off > 0 and one.period_seconds > longest.on_s + longest.off_s:
            longest = Rhythm(one.on_seconds, off)
    return longest


def _sources(
    world: World, flows: Flows, wire: Floats, feeding: Feeding, is_inside: Bools
) -> Sources:
    """What the simulated flows send. Rare bursts are moved closer together, see `Rhythm`."""
    period, on = np.zeros(flows.count), np.zeros(flows.count)
    for number, one in enumerate(world.background):
        at = flows.first_background + number
        if 0 < one.on_seconds < one.period_seconds:
            on[at] = min(one.on_seconds, PHASE_MAX_SECONDS)
            off = one.period_seconds - one.on_seconds
            period[at] = on[at] + min(off, PHASE_MAX_SECONDS)
    return Sources(
        demand_bps=feeding.demand_bps[is_inside],
        start_bps=START_SHARE * wire[is_inside],
        # A burst is many short flows: they end before rate control could slow them down.
        is_controlled=period[is_inside] == 0,
        period_seconds=period[is_inside],
        on_seconds=on[is_inside],
    )
