"""Joins ports' reports of their neighbours to cables, each once. Pure.

Both ends of a cable may report it, by several methods, or one alone. A port has one cable: where
reports contradict each other, a cable that both ends report counts most, then one to a known port,
then the latest. The loser is kept as a `Conflict` for an operator to check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from api.data.inventory.records import UP_STATES
from api.fabric.directory import Directory, EndFact, NicFact, PortFact, SwitchFact
from api.fabric.model import Conflict, Link, Node, NodeKind
from collector.contract.errors import IdentityError
from collector.contract.identity import LinkId, PortId

UNHEARD_OF: Final = PortFact(id=PortId("?", "?", "?"))


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The cables, and the reports that became none."""

    links: tuple[Link, ...]
    unknown: tuple[Node, ...]
    """Neighbours that the inventory lacks; their ports' device is the node itself."""
    conflicts: tuple[Conflict, ...]
    superseded: tuple[LinkId, ...] = ()
    """Links that a port names beside a better one, to a neighbour that reports nothing."""
    loops: tuple[PortId, ...] = ()
    """Ports that name themselves: a loopback plug, or a MAC that two things share."""
    aliases: frozenset[PortId] = frozenset()
    """Names that pollers have for ports which have a better one."""


class Claim(msgspec.Struct):
    """One port's reports of another, by all methods."""

    since: datetime
    last_seen: datetime
    methods: set[str]


class Candidate(msgspec.Struct):
    """A cable as its ends report it: claims by the end that makes them."""

    id: LinkId
    is_known: bool
    last_seen: datetime
    claims: dict[PortId, Claim]


def resolve(
    ends: Iterable[EndFact],
    ports: Iterable[PortFact],
    nics: Iterable[NicFact],
    switches: Iterable[SwitchFact],
    skip: Callable[[EndFact, IdentityError], object] = lambda *_: None,
) -> Resolved:
    """``skip`` is called with an end whose neighbour has no name that can be one."""
    ends, ports = list(ends), list(ports)
    directory = Directory(ports, nics, switches, ends)
    candidates: dict[LinkId, Candidate] = {}
    unknown: dict[str, Node] = {}
    loops: dict[PortId, None] = {}
    for end in ends:
        try:
            teller, found = directory.itself(end.port), directory.find(end)
        except IdentityError as error:
            skip(end, error)
            continue
        if teller == found.port:
            loops[teller] = None
            continue
        if not found.is_known:
            unknown.setdefault(found.port.host, unknown_node(found.port.host, end))
        note_claim(candidates, teller, found.port, end, is_known=found.is_known)
    in_order = sorted(candidates.values(), key=lambda each: each.id)
    kept, lost = choose(in_order)
    conflicts, superseded = explain_lost(lost, kept)
    facts = {fact.id: fact for fact in ports}
    cabled = {port.host for port in kept}
    return Resolved(
        links=tuple(make_link(each, facts) for each in in_order if kept.get(each.id.a) is each),
        unknown=tuple(unknown[name] for name in sorted(unknown.keys() & cabled)),
        conflicts=tuple(conflicts),
        superseded=tuple(superseded),
        loops=tuple(sorted(loops)),
        aliases=directory.aliases,
    )


def unknown_node(name: str, end: EndFact) -> Node:
    reported = {"chassis": end.peer_chassis, "guid": end.peer_guid, "name": end.peer_name}
    return Node(
        name=name,
        kind=NodeKind.UNKNOWN,
        attributes={key: value for key, value in reported.items() if value},
    )


def note_claim(
    candidates: dict[LinkId, Candidate],
    teller: PortId,
    neighbour: PortId,
    end: EndFact,
    *,
    is_known: bool,
) -> None:
    link = LinkId(teller, neighbour) if teller < neighbour else LinkId(neighbour, teller)
    candidate = candidates.get(link)
    if candidate is None:
        candidate = candidates[link] = Candidate(link, is_known, end.last_seen, {})
    candidate.last_seen = max(candidate.last_seen, end.last_seen)
    claim = candidate.claims.get(teller)
    if claim is None:
        candidate.claims[teller] = Claim(end.since, end.last_seen, {end.method})
        return
    claim.since = min(claim.since, end.since)
    claim.last_seen = max(claim.last_seen, end.last_seen)
    claim.methods.add(end.method)


def choose(in_order: list[Candidate]) -> tuple[dict[PortId, Candidate], list[Candidate]]:
    """The cable at each port, and the cables that lost against a better one."""
    kept: dict[PortId, Candidate] = {}
    lost: list[Candidate] = []
    for each in sorted(
        in_order, key=lambda each: (len(each.claims), each.is_known, each.last_seen), reverse=True
    ):
        if each.id.a in kept or each.id.b in kept:
            lost.append(each)
        else:
            kept[each.id.a] = kept[each.id.b] = each
    return kept, sorted(lost, key=lambda each: each.id)


def explain_lost(
    lost: list[Candidate], kept: dict[PortId, Candidate]
) -> tuple[list[Conflict], list[LinkId]]:
    """An unknown neighbour beside a known one is neither: a NIC's firmware often sends LLDP too."""
    conflicts: list[Conflict] = []
    superseded: list[LinkId] = []
    for each in lost:
        found = len(conflicts)
        for teller, claim in sorted(each.claims.items()):
            neighbour = other_end(each.id, teller)
            instead = kept.get(neighbour)
            if instead is None:
                continue
            conflict = Conflict(
                port=teller,
                names=neighbour,
                named_back=other_end(instead.id, neighbour),
                methods=tuple(sorted(claim.methods)),
                last_seen=claim.last_seen,
            )
            conflicts.append(conflict)
        if len(conflicts) == found and each.is_known:
            superseded.append(each.id)
    return conflicts, superseded


def make_link(candidate: Candidate, facts: dict[PortId, PortFact]) -> Link:
    one, *others = candidate.claims.values()
    since, methods = one.since, one.methods
    for claim in others:
        since, methods = min(since, claim.since), methods | claim.methods
    a, b = (facts.get(end, UNHEARD_OF) for end in (candidate.id.a, candidate.id.b))
    return Link(
        id=candidate.id,
        since=since,
        last_seen=candidate.last_seen,
        seen_from=tuple(sorted(candidate.claims)),
        methods=tuple(sorted(methods)),
        is_up=both_up(a.state, b.state),
        rate_bits_per_second=lower(a.rate_bits_per_second, b.rate_bits_per_second),
    )


def both_up(one: str | None, other: str | None) -> bool | None:
    """Whether no end reports the link as down; None if neither reports a state."""
    if one is None and other is None:
        return None
    return (one is None or one in UP_STATES) and (other is None or other in UP_STATES)


def lower(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def other_end(link: LinkId, port: PortId) -> PortId:
    return link.b if link.a == port else link.a
