"""The answers about the whole fleet, as bytes: made once a change, for all clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b

import cramjam
import msgspec

from alerts.health.model import HealthState, Standing, Target, TargetKind
from api.base.limits import HEALTH_BODIES_MAX, HEALTH_REASONS_SHORT_MAX
from api.base.packing import LEVEL
from api.data.inventory.incidents import moment_of

TAG_BYTES = 12
"""Of an answer's digest: enough that two answers never share it by chance."""


WELL = Standing(state=HealthState.HEALTHY, risk=0.0)


class HostEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host in a list."""

    host: str
    state: HealthState
    risk: float
    """0 to 1: what a job that begins there now would risk."""
    lemon: float
    """0 to 1: how much more often than usual it was in trouble within four weeks."""
    since_ns: int = 0
    """When it got into this state; left out: as long as is known."""
    reasons: tuple[str, ...] = ()
    """Short reasons, the heaviest first; left out where there are none."""


class ThingEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device, link, GPU or switch in a list: those against which something is known."""

    host: str
    """The machine that it is part of, or the switch."""
    name: str
    """`node3/mlx5_0`, `node3/mlx5_0/1`, `node3/2`, `leaf1`."""
    state: HealthState
    risk: float
    since_ns: int = 0
    reasons: tuple[str, ...] = ()


class FleetHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the fleet."""

    counts: dict[str, int]
    """Hosts by state, of the whole fleet."""
    stale: Sequence[str]
    """Parts that cannot be trusted now, in sentences. Empty: all of it can. Act on nothing that
    you would not do blindly while there is something."""
    items: Sequence[HostEntry | ThingEntry]


class FleetHosts(msgspec.Struct, frozen=True, kw_only=True):
    """The same, for the interface's document: what is answered for hosts."""

    counts: dict[str, int]
    stale: Sequence[str]
    items: Sequence[HostEntry]


class Asked(msgspec.Struct, frozen=True):
    """Filter: which things of the fleet."""

    kind: TargetKind = TargetKind.HOST
    states: frozenset[HealthState] = frozenset()
    """Empty: all."""
    min_risk: float = 0.0

    def wants(self, entry: HostEntry | ThingEntry) -> bool:
        return (not self.states or entry.state in self.states) and entry.risk >= self.min_risk


class Body(msgspec.Struct, frozen=True, dict=True):
    """An answer and its entity tag, which is the same however it is packed."""

    tag: str
    content: bytes

    @cached_property
    def packed(self) -> bytes:
        """Gzip: a twentieth of the size, packed once for all clients."""
        return bytes(cramjam.gzip.compress(self.content, LEVEL))


class Fleet:
    """The health of everything at a moment; never changes. Answers are made on request."""

    def __init__(
        self,
        hosts: Mapping[str, HostEntry],
        standings: Mapping[Target, Standing],
        since_ns: Mapping[Target, int],
        stale: tuple[str, ...],
    ) -> None:
        self.hosts = hosts
        self.standings = standings
        """Of everything with evidence for or against it."""
        self.since_ns = since_ns
        self.stale = stale
        self.counts = {state.value: 0 for state in HealthState}
        for entry in hosts.values():
            self.counts[entry.state.value] += 1
        self._bodies: OrderedDict[Asked, Body] = OrderedDict()
        self.body(Asked())

    def is_like(self, other: Fleet) -> bool:
        return self.body(Asked()) == other.body(Asked()) and self.standings == other.standings

    def entries(self, asked: Asked) -> Iterable[HostEntry | ThingEntry]:
        if asked == Asked():
            return self.hosts.values()
        if asked.kind is TargetKind.HOST:
            return (entry for entry in self.hosts.values() if asked.wants(entry))
        return (entry for entry in self._things(asked.kind) if asked.wants(entry))

    def _things(self, kind: TargetKind) -> Iterable[ThingEntry]:
        targets = (target for target in self.standings if target.kind is kind)
        return (self.thing(target) for target in sorted(targets))

    def thing(self, target: Target) -> ThingEntry:
        """One thing in a list; one without evidence is healthy."""
        standing = self.standings.get(target, WELL)
        return ThingEntry(
            host=target.host,
            name=target.name,
            state=standing.state,
            risk=standing.risk,
            since_ns=self.since_ns.get(target, 0),
            reasons=reasons_of(standing),
        )

    def body(self, asked: Asked) -> Body:
        known = self._bodies.get(asked)
        if known is not None:
            self._bodies.move_to_end(asked)
            return known
        fleet = FleetHealth(counts=self.counts, stale=self.stale, items=[*self.entries(asked)])
        content = msgspec.json.encode(fleet)
        made = Body(f'"{blake2b(content, digest_size=TAG_BYTES).hexdigest()}"', content)
        self._bodies[asked] = made
        if len(self._bodies) > HEALTH_BODIES_MAX:
            self._bodies.popitem(last=False)
        return made


def reasons_of(standing: Standing, limit: int = HEALTH_REASONS_SHORT_MAX) -> tuple[str, ...]:
    """Short reasons for a state: what is certain, then the heaviest."""
    reasons = [] if standing.hold is None else [standing.hold.short]
    if standing.silent_since_ns is not None:
        reasons.append(f"silent since {moment_of(standing.silent_since_ns):%Y-%m-%dT%H:%M:%SZ}")
    reasons += [charge.short for charge in standing.charges]
    return tuple(reasons[:limit])
