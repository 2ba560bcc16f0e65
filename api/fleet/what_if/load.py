"""What a job's transfers put on cables, and how long that takes at least. Pure.

The model is placement's (`api.fleet.placement.ways`): bytes follow all equal ways evenly, each
direction of a cable is a link of its own, and links are shared in proportion to what wants to cross
them. Here the bytes are those of the job's own operations, and not of a ring that never pauses;
and what one NIC sends to another is not divided: a switch gives it one cable of several, so that
two cables at half the rate are no whole one. How evenly such connections lie on cables is luck
(`Luck`). NCCL may open several connections between two NICs, which divides it in part.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alerts.traffic.flows import Flows, Traffic
from alerts.traffic.matrix import ends_of, is_local
from alerts.traffic.places import By, Places
from alerts.window.columns import Ints
from alerts.window.split import distinct
from api.base.compare_limits import WHAT_IF_PAIRS_MAX
from api.fabric.graph import compile_graph
from api.fabric.model import Topology
from api.fabric.spread import Doubles, Longs
from api.fleet.placement.floor import NOWHERE, Floor, make_floor
from api.fleet.placement.ways import Ways
from api.jobs.correlate.link_shares import port_of_nic

ALIKE_SHARE = 0.1
"""Communicators whose bytes differ by less than this part do the same thing: rails of one job."""
ROUNDING = 1e-6
"""Of a connection: shares are sums of floats."""


class Luck(enum.IntEnum):
    """How the connections that may take several cables lie on them."""

    DIVIDED = -1
    """As if they could be divided: no arrangement is better."""
    EVEN = 0
    """As evenly as whole connections can."""
    ONE_MORE = 1
    """The fullest cable has one more."""


@dataclass(frozen=True, eq=False)
class Fabric:
    """The cables at one moment, or as they might be."""

    topology: Topology
    floor: Floor
    ways: Ways

    @classmethod
    def of(cls, topology: Topology) -> Fabric:
        """``topology`` knows its tiers."""
        floor = make_floor(compile_graph(topology))
        return cls(topology, floor, Ways(floor))

    @property
    def directed(self) -> int:
        return 2 * len(self.floor.graph.links)


@dataclass(frozen=True, eq=False)
class Laid:
    """A job's bits on directed links: columns are sorted by phase."""

    phase: Longs
    link: Longs
    bits: Doubles
    largest: Doubles
    """Bits of the largest connection that may take the link beside others; 0: none has a choice."""
    network_bytes: float
    """That leave hosts, by the flows."""
    uncabled_bytes: float
    """Of them: by NICs of which the name or the cable is not known, or of too many pairs."""
    torn: Sequence[str]
    """Pairs of NICs between which no way is left."""

    def rates(self, seconds: float, size: int) -> Doubles:
        """Bits a second on every directed link in the mean."""
        return np.bincount(self.link, self.bits / max(seconds, 1e-9), size).astype(np.float64)

    def at(self, luck: Luck) -> Doubles:
        """Bits that the fullest cable carries, for each row."""
        if luck is Luck.DIVIDED:
            return self.bits
        one = np.maximum(self.largest, 1e-9)
        whole = (np.ceil(self.bits / one - ROUNDING) + int(luck)) * one
        found: Doubles = np.where(self.largest > 0, np.maximum(whole, self.bits), self.bits)
        return found


def phases_of(flows: Flows) -> dict[int, int]:
    """For each call the number of its phase: calls that are alike and have no rank in common."""
    order = np.argsort(flows.call, kind="stable")
    calls, first = np.unique(flows.call[order], return_index=True)
    parts = np.split(order, first[1:]) if len(calls) else []
    known: list[tuple[int, float, set[int], int]] = []
    for call, rows in zip(calls.tolist(), parts, strict=True):
        ranks = {*flows.source[rows].tolist(), *flows.target[rows].tolist()}
        known.append((len(ranks), float(flows.bytes[rows].sum()), ranks, call))
    known.sort(key=lambda one: (one[0], one[1], one[3]))
    phases: list[tuple[int, float, set[int]]] = []
    found: dict[int, int] = {}
    for size, bytes_, ranks, call in known:
        number = next(alike(phases, size, bytes_, ranks), len(phases))
        if number == len(phases):
            phases.append((size, bytes_, set()))
        phases[number][2].update(ranks)
        found[call] = number
    return found


def alike(
    phases: Sequence[tuple[int, float, set[int]]], size: int, bytes_: float, ranks: set[int]
) -> Iterator[int]:
    """The phases that such a call may belong to; ``phases`` stand in order of ranks and bytes."""
    for number in range(len(phases) - 1, -1, -1):
        other, base, taken = phases[number]
        if other != size or not math.isclose(base, bytes_, rel_tol=ALIKE_SHARE):
            return
        if taken.isdisjoint(ranks):
            yield number


def took_seconds(flows: Flows, phase_of: Mapping[int, int]) -> Doubles:
    """Of each phase, as measured: of calls that run at once the longest."""
    took = np.zeros(max(phase_of.values(), default=-1) + 1)
    calls, first = np.unique(flows.call, return_index=True)
    for call, row in zip(calls.tolist(), first.tolist(), strict=True):
        number = phase_of[call]
        took[number] = max(took[number], float(flows.transfer_ns[row]) / 1e9)
    return took


def lay(fabric: Fabric, traffic: Traffic, places: Places, phase_of: Mapping[int, int]) -> Laid:
    flows = traffic.flows
    kept: Flows = flows.select(~is_local(flows, places))
    row, part, near, far = ends_of(kept, places, By.NIC)
    bytes_ = kept.bytes[row] * part
    total = float(bytes_.sum())
    named = (near >= 0) & (far >= 0)
    numbers = np.array(
        [phase_of.get(call, 0) for call in range(int(kept.call.max(initial=-1)) + 1)]
    )
    phases = numbers.astype(np.int64)[kept.call[row][named]]
    first, cell = distinct(phases, near[named], far[named])
    bits = 8.0 * np.bincount(cell, bytes_[named], len(first)).astype(np.float64)
    phase, near, far = phases[first], near[named][first], far[named][first]
    most = np.sort(np.argsort(-bits, kind="stable")[:WHAT_IF_PAIRS_MAX])
    phase, near, far, bits = phase[most], near[most], far[most], bits[most]
    leaf, out, is_known = attached(fabric, places)
    seen = is_known[near] & is_known[far]
    uncabled = total - float(bits[seen].sum()) / 8.0
    phase, near, far, bits = phase[seen], near[seen], far[seen], bits[seen]
    up = (leaf[near] != NOWHERE) & (leaf[far] != NOWHERE)
    edge = np.flatnonzero(up)
    way = fabric.ways.between(
        edge,
        bits[edge],
        (out[near[edge]], out[far[edge]] ^ 1),
        (leaf[near[edge]], leaf[far[edge]]),
    )
    lost = np.setdiff1d(np.arange(len(bits)), way.edge)
    names = places.names(By.NIC)
    flow = np.repeat(np.arange(len(way.edge)), np.diff(way.start))
    keys, place = distinct(phase[way.edge][flow], way.way)
    has_choice = way.share < 1.0 - ROUNDING
    largest = np.zeros(len(keys))
    one = way.demand[flow]
    np.maximum.at(largest, place[has_choice], one[has_choice])
    crossing = np.bincount(place, way.demand[flow] * way.share, len(keys)).astype(np.float64)
    return Laid(
        phase=phase[way.edge][flow][keys],
        link=way.way[keys],
        bits=crossing,
        largest=largest,
        network_bytes=total,
        uncabled_bytes=max(uncabled, 0.0),
        torn=[f"{names[near[one]]} to {names[far[one]]}" for one in lost.tolist()],
    )


def attached(fabric: Fabric, places: Places) -> tuple[Ints, Longs, np.ndarray]:
    """Of each NIC: its leaf and the directed link out of it (NOWHERE: down); is a cable known."""
    graph = fabric.floor.graph
    leaf = np.full(len(places.nics), NOWHERE, dtype=np.int64)
    out = np.full(len(places.nics), NOWHERE, dtype=np.int64)
    is_known = np.zeros(len(places.nics), dtype=bool)
    for number, (host, device) in enumerate(places.nics):
        port = port_of_nic(fabric.topology, host, device)
        if port is None:
            continue
        is_known[number] = True
        if port in graph.attached:
            leaf[number], link = graph.attached[port]
            out[number] = 2 * link + (graph.links[link].id.b == port)
    return leaf, out, is_known


@dataclass(frozen=True, eq=False)
class Least:
    """The least time of each phase by the model, and the directed link that sets it."""

    seconds: Doubles
    link: Longs
    """NOWHERE: the phase crosses no cable."""


def least_seconds(
    fabric: Fabric, laid: Laid, phases: int, others: Doubles, luck: Luck = Luck.EVEN
) -> Least:
    """``others``: bits a second of other jobs on each directed link, in the mean."""
    seconds, worst = np.zeros(phases), np.full(phases, NOWHERE, dtype=np.int64)
    if not len(laid.link):
        return Least(seconds, worst)
    capacity = np.maximum(fabric.floor.capacity[laid.link >> 1], 1e-9)
    bits = laid.at(luck)
    alone = bits / capacity
    np.maximum.at(seconds, laid.phase, alone)
    # In proportion to what wants to cross it, as placement shares a link out.
    rate = bits / np.maximum(seconds[laid.phase], 1e-12)
    crowded = seconds[laid.phase] * np.maximum((rate + others[laid.link]) / capacity, 0.0)
    needed = np.maximum(alone, crowded)
    order = np.lexsort((laid.link, needed))
    worst[laid.phase[order]] = laid.link[order]
    np.maximum.at(seconds, laid.phase, needed)
    return Least(seconds, worst)


def detours(was: Laid, then: Laid, phases: int) -> np.ndarray:
    """Which phases take other cables than before: their connections lie otherwise on them."""
    found = np.zeros(phases, dtype=bool)
    before, after = (
        dict(
            zip(
                zip(one.phase.tolist(), one.link.tolist(), strict=True),
                one.bits.tolist(),
                strict=True,
            )
        )
        for one in (was, then)
    )
    for key in before.keys() | after.keys():
        one, other = before.get(key, 0.0), after.get(key, 0.0)
        if not math.isclose(one, other, rel_tol=ROUNDING):
            found[key[0]] = True
    return found
