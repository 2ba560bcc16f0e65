"""The expected cabling: from a file, from a pattern, or from the majority. Pure.

A plan of cables is exact. A pattern or the majority gives places: the same slot of like hosts hangs
on the same leaf, and like switches have equally many links to each of those above. Without enough
votes, or without a clear majority, nothing is expected: a tie accuses no cable.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from api.fabric.cabling import Cabling, alike_groups, natural_port, read_cabling
from api.fabric.file import Pattern, TopologyDocument, links_of, naming, parse_speed, read_file
from api.fabric.model import NodeKind, Topology
from api.fabric.tiers import leaf_groups
from collector.contract.errors import SettingsError
from collector.contract.identity import LinkId, PortId, natural

VOTERS_MIN = 3
"""Fewer have no majority: of two that differ, either may be wrong."""

MAJORITY_SHARE = 0.6
"""Of voters that must agree: two of three do."""

BLOCK_PAIRS_MIN = 4
BLOCK_SHARE = 0.75
"""Where two leaves cannot outvote each other, all their links to all spines can: seven of eight."""

PATTERN_CONFIDENCE = 0.9
"""The operator named the shape; the place of each cable is still found by vote."""

Slot = tuple[str, str]
"""Device and port of a host: what like hosts call alike."""


class Basis(enum.StrEnum):
    """The source of an expectation."""

    PLAN = "plan"
    """A file names the cable."""
    PATTERN = "pattern"
    """The operator named the shape."""
    MAJORITY = "majority"
    """Most like hosts or switches are cabled so."""
    SEEN = "seen"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The expected cabling. Without links or pattern: the majority's."""

    links: dict[LinkId, int | None] | None = None
    pattern: Pattern | None = None

    @property
    def basis(self) -> Basis:
        if self.links is not None:
            return Basis.PLAN
        return Basis.MAJORITY if self.pattern is None else Basis.PATTERN

    @property
    def rate(self) -> int | None:
        """Of every link, in bits a second, if the pattern has it."""
        return None if self.pattern is None else parse_speed(self.pattern.speed)


def plan_of(document: TopologyDocument) -> Plan:
    if document.links and document.pattern is not None:
        raise SettingsError("a plan names links or a pattern, not both")
    if not document.links and document.pattern is None:
        raise SettingsError("a plan names links or a pattern; there is neither")
    if document.pattern is not None:
        parse_speed(document.pattern.speed)
        return Plan(pattern=document.pattern)
    return Plan(links=links_of(document))


def read_plan(path: Path) -> Plan:
    with naming(path):
        return plan_of(read_file(path))


class Vote(msgspec.Struct, frozen=True):
    """The majority's value, and how many of how many voters agree."""

    value: str | int
    agreeing: int
    voters: int

    def confidence(self, basis: Basis) -> float:
        """Many voters that agree give more than few; a pattern PATTERN_CONFIDENCE at least."""
        floor = PATTERN_CONFIDENCE if basis is Basis.PATTERN else 0.0
        return round(max(self.agreeing / (self.voters + 1), floor), 3)


def vote(
    counted: Counter[str] | Counter[int], least: int = VOTERS_MIN, share: float = MAJORITY_SHARE
) -> Vote | None:
    voters = counted.total()
    if voters < least:
        return None
    value, agreeing = counted.most_common(1)[0]
    return Vote(value, agreeing, voters) if agreeing >= share * voters else None


class HostGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that hang on the same leaves, and where each of their slots is expected."""

    leaves: tuple[str, ...]
    hosts: tuple[str, ...]
    leaf_of_slot: dict[Slot, Vote]
    leaf_of_rail: dict[int, Vote]
    slots: tuple[Slot, ...]
    """The slots that most hosts of the group have, in natural order."""

    def expected(self, port: PortId, rail: int | None) -> Vote | None:
        found = self.leaf_of_slot.get((port.device, port.port))
        return self.leaf_of_rail.get(rail) if found is None and rail is not None else found


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """The cabling that a topology's own majorities lead to expect."""

    cabling: Cabling
    leaves: frozenset[str]
    groups: tuple[HostGroup, ...]
    uplinks: dict[tuple[str, str], Vote]
    """Links from a switch to one above it, for all pairs of which something is expected."""
    is_flat: bool


def expect(topology: Topology, plan: Plan) -> Expectation:
    """Majorities of like hosts and like switches; the topology must have its tiers."""
    cabling = read_cabling(topology)
    tiers = {
        name: node.tier
        for name, node in topology.nodes.items()
        if node.kind is NodeKind.SWITCH and node.tier is not None
    }
    leaves = [name for name, tier in tiers.items() if tier == 0 and cabling.ports_at[name]]
    uplinks: dict[tuple[str, str], Vote] = {}
    top = max(tiers.values(), default=0)
    for tier in range(top):
        lower = [name for name, at in tiers.items() if at == tier]
        uplinks |= expect_uplinks(cabling, tiers, lower, plan)
    return Expectation(
        cabling=cabling,
        leaves=frozenset(leaves),
        groups=tuple(host_groups(topology, cabling, leaves)),
        uplinks=uplinks,
        is_flat=top == 0,
    )


# --- hosts --------------------------------------------------------------------------------------


def host_groups(topology: Topology, cabling: Cabling, leaves: Iterable[str]) -> Iterable[HostGroup]:
    """Groups of hosts, each host in the one where most of its ports hang."""
    groups = leaf_groups(cabling, leaves)
    group_of = {leaf: number for number, group in enumerate(groups) for leaf in group}
    ports: dict[str, list[PortId]] = {}
    for port in cabling.switch_of:
        ports.setdefault(port.host, []).append(port)
    members: list[list[str]] = [[] for _ in groups]
    for host, of_host in ports.items():
        homes = Counter(
            group_of[switch] for port in of_host if (switch := cabling.switch_of[port]) in group_of
        )
        if homes:
            members[min(homes, key=lambda number: (-homes[number], number))].append(host)
    for group, hosts in zip(groups, members, strict=True):
        yield make_group(topology, cabling, group, sorted(hosts, key=natural), ports)


def make_group(
    topology: Topology,
    cabling: Cabling,
    leaves: list[str],
    hosts: list[str],
    ports: dict[str, list[PortId]],
) -> HostGroup:
    by_slot: dict[Slot, Counter[str]] = {}
    by_rail: dict[int, Counter[str]] = {}
    for host in hosts:
        for port in ports[host]:
            leaf = cabling.switch_of[port]
            by_slot.setdefault((port.device, port.port), Counter())[leaf] += 1
            rail = topology.ports[port].rail
            if rail is not None:
                by_rail.setdefault(rail, Counter())[leaf] += 1
    leaf_of_slot = {slot: found for slot, counts in by_slot.items() if (found := vote(counts))}
    common = [
        slot
        for slot in leaf_of_slot
        if by_slot[slot].total() >= max(VOTERS_MIN, MAJORITY_SHARE * len(hosts))
    ]
    return HostGroup(
        leaves=tuple(leaves),
        hosts=tuple(hosts),
        leaf_of_slot=leaf_of_slot,
        leaf_of_rail={rail: found for rail, counts in by_rail.items() if (found := vote(counts))},
        slots=tuple(sorted(common, key=lambda slot: natural_port(PortId("x", *slot)))),
    )


# --- switches -----------------------------------------------------------------------------------


def expect_uplinks(
    cabling: Cabling, tiers: dict[str, int], lower: list[str], plan: Plan
) -> dict[tuple[str, str], Vote]:
    tied: dict[str, Counter[str]] = {}
    for name in lower:
        above = Counter(
            {
                other: count
                for other, count in cabling.between[name].items()
                if tiers.get(other) == tiers[name] + 1
            }
        )
        if above:
            tied[name] = above
    expected: dict[tuple[str, str], Vote] = {}
    for group in alike_groups(tied):
        expected |= expect_of_group(tied, group, plan)
    return expected


def expect_of_group(
    tied: dict[str, Counter[str]], group: list[str], plan: Plan
) -> dict[tuple[str, str], Vote]:
    """The same for switches that share those above them.

    Each one above is judged by how the group's switches are tied to it: a switch may spread eleven
    links over four spines, with three to some and two to others. Where the group is too small for
    that, by what all its pairs have.
    """
    planned = plan.pattern.links_per_spine if plan.pattern is not None else None
    upper = sorted({other for name in group for other in tied[name]}, key=natural)
    pairs = Counter(count for name in group for count in tied[name].values())
    of_all = vote(pairs, BLOCK_PAIRS_MIN, BLOCK_SHARE) if len(group) > 1 else None
    expected: dict[tuple[str, str], Vote] = {}
    for other in upper:
        found = vote(Counter(tied[name][other] for name in group)) or of_all
        if planned is not None and (found is None or found.value):
            found = Vote(planned, len(group), len(group))
        if found is not None:
            expected |= dict.fromkeys(((name, other) for name in group), found)
    return expected
