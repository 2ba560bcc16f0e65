"""Cables against a plan that names each of them; nodes outside the plan are no mistake. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from api.fabric.cabling import PortKey, natural_port
from api.fabric.mistake import Mistake, MistakeKind, gigabits, names, plural
from api.fabric.model import Link, Topology
from api.fabric.plan import Basis
from collector.contract.identity import LinkId, PortId, natural


class Comparison:
    """A plan and a topology side by side. Each planned and each found link is explained once."""

    def __init__(self, topology: Topology, planned: dict[LinkId, int | None]) -> None:
        self.topology = topology
        self.planned = planned
        self.peer = {
            end: other for link in planned for end, other in ((link.a, link.b), (link.b, link.a))
        }
        self.nodes = {end.host for end in self.peer}
        self.missing = {link for link in planned if link not in topology.links}
        self.odd = {
            link.id
            for link in topology.links.values()
            if link.id not in planned and {link.id.a.host, link.id.b.host} <= self.nodes
        }

    def check(self) -> Iterator[Mistake]:
        yield from self.unheard_of()
        yield from self.swaps()
        yield from self.moves()
        for link in sorted(self.missing, key=link_key):
            yield self.report_missing(link)
        for link in sorted(self.odd, key=link_key):
            yield self.report_extra(link)
        yield from self.speeds()

    def unheard_of(self) -> Iterator[Mistake]:
        """Nodes of the plan of which nothing was seen: their links cannot be judged one by one."""
        silent = {name for name in self.nodes if not self.topology.neighbours.get(name)}
        for name in sorted(silent, key=natural):
            links = sorted(
                (link for link in self.missing if name in {link.a.host, link.b.host}), key=link_key
            )
            if not links:
                continue
            self.missing.difference_update(links)
            yield Mistake(
                kind=MistakeKind.MISSING_LINK,
                what=f"no link of {name} is seen, and the plan has {plural(len(links), 'link')}",
                expected=names(links),
                found="nothing",
                fix=f"look whether {name} runs and whether it or its neighbours are asked",
                basis=Basis.PLAN,
                confidence=0.5,
                nodes=(name,),
                links=tuple(links),
                evidence=(
                    f"{name} is known" if name in self.topology.nodes else f"{name} is not known",
                ),
            )

    def swaps(self) -> Iterator[Mistake]:
        """Two found links whose ends, crossed over, are two planned ones."""
        for link in sorted(self.odd, key=link_key):
            if link not in self.odd:
                continue
            for port, at in ((link.a, link.b), (link.b, link.a)):
                place, other = self.peer.get(port), self.peer.get(at)
                if place is None or other is None or place == other:
                    continue
                crossed = between(other, place)
                if crossed in self.odd and crossed != link:
                    self.odd -= {link, crossed}
                    self.missing -= {between(port, place), between(other, at)}
                    yield self.report_swap(port, other)
                    break

    def report_swap(self, one: PortId, other: PortId) -> Mistake:
        """Two ports that have each other's cables; named by the hosts' ports, if there are any."""
        ports = [one, other]
        if one.host == one.device and other.host == other.device:
            far = [self.topology.other_end(port) for port in ports]
            if all(end is not None and end.host != end.device for end in far):
                ports = [end for end in far if end is not None]
        ports.sort(key=natural_port)
        one, other = ports
        if one.host == other.host and one.host != one.device:
            shown = f"{one.device} and {other.device} of {one.host}"
        else:
            shown = names(ports)
        wanted = [f"{port} to {names([self.peer[port]])}" for port in ports]
        found = [f"{port} to {names([self.topology.other_end(port)])}" for port in ports]
        links = tuple(self.topology.link_of[port].id for port in ports)
        return Mistake(
            kind=MistakeKind.SWAPPED,
            what=f"{shown} are swapped",
            expected=names(wanted),
            found=names(found),
            fix=f"plug each cable where the other one is now: {names(wanted)}",
            basis=Basis.PLAN,
            confidence=1.0,
            nodes=tuple(sorted({end.host for link in links for end in (link.a, link.b)})),
            ports=tuple(ports),
            links=links,
            evidence=tuple(self.seen(link) for link in links),
        )

    def moves(self) -> Iterator[Mistake]:
        """Found links of which one end should be somewhere else."""
        for link in sorted(self.odd, key=link_key):
            for port, at in ((link.a, link.b), (link.b, link.a)):
                place = self.peer.get(port)
                if place is None or between(port, place) not in self.missing:
                    continue
                self.odd.discard(link)
                self.missing.discard(between(port, place))
                yield self.report_move(port, at, place)
                break

    def report_move(self, port: PortId, at: PortId, place: PortId) -> Mistake:
        return Mistake(
            kind=self.kind_of_move(at, place),
            what=f"{names([port])} is cabled to {names([at])} instead of {names([place])}",
            expected=f"{names([port])} to {names([place])}",
            found=f"{names([port])} to {names([at])}",
            fix=f"move the end of the cable from {names([at])} to {names([place])}",
            basis=Basis.PLAN,
            confidence=1.0,
            nodes=(port.host, at.host, place.host),
            ports=(port, at, place),
            links=(between(port, at),),
            evidence=(self.seen(between(port, at)),),
        )

    def kind_of_move(self, at: PortId, place: PortId) -> MistakeKind:
        if at.host == place.host:
            return MistakeKind.WRONG_PORT
        here, there = self.topology.nodes.get(at.host), self.topology.nodes.get(place.host)
        if here is None or there is None:
            return MistakeKind.WRONG_LEAF
        if here.tier != there.tier and there.tier is not None:
            return MistakeKind.WRONG_TIER
        if here.rail != there.rail and here.pod == there.pod:
            return MistakeKind.RAIL_MISMATCH
        return MistakeKind.WRONG_LEAF

    def report_missing(self, link: LinkId) -> Mistake:
        states = [
            f"{names([end])} is {known.state}"
            for end in (link.a, link.b)
            if (known := self.topology.ports.get(end)) is not None and known.state
        ]
        return Mistake(
            kind=MistakeKind.MISSING_LINK,
            what=f"the link from {names([link.a])} to {names([link.b])} is missing",
            expected=f"{names([link.a])} to {names([link.b])}",
            found="no link is seen at either end",
            fix="look for the cable and for both of its plugs",
            basis=Basis.PLAN,
            confidence=1.0,
            nodes=(link.a.host, link.b.host),
            ports=(link.a, link.b),
            links=(link,),
            evidence=tuple(states),
        )

    def report_extra(self, link: LinkId) -> Mistake:
        return Mistake(
            kind=MistakeKind.EXTRA_LINK,
            what=f"{names([link.a])} is cabled to {names([link.b])}, which the plan does not have",
            expected="no link",
            found=str(link),
            fix="unplug the cable, or write it into the plan",
            basis=Basis.PLAN,
            confidence=1.0,
            nodes=(link.a.host, link.b.host),
            ports=(link.a, link.b),
            links=(link,),
            evidence=(self.seen(link),),
        )

    def speeds(self) -> Iterator[Mistake]:
        """Links that are where they should be, at another speed than planned."""
        for link, wanted in sorted(self.planned.items()):
            found = self.topology.links.get(link)
            rate = None if found is None else found.rate_bits_per_second
            if found is None or found.is_up is False or None in {wanted, rate}:
                continue
            if rate != wanted:
                yield wrong_speed(found, int(wanted or 0), Basis.PLAN, 1.0, "as planned")

    def seen(self, link: LinkId) -> str:
        found = self.topology.links[link]
        return f"{link} is reported by {names(found.seen_from) or 'a file'}"


def wrong_speed(link: Link, wanted: int, basis: Basis, confidence: float, why: str) -> Mistake:
    rate = link.rate_bits_per_second or 0
    ends = (link.id.a, link.id.b)
    return Mistake(
        kind=MistakeKind.WRONG_SPEED,
        what=f"the link of {names(ends)} runs at {gigabits(rate)}",
        expected=f"{gigabits(wanted)}: {why}",
        found=gigabits(rate),
        fix="look at cable, optics and the ports' settings: lanes or a generation are lost"
        if rate < wanted
        else "look whether the ports' settings or the expectation is wrong",
        basis=basis,
        confidence=round(confidence, 3),
        nodes=tuple(end.host for end in ends),
        ports=ends,
        links=(link.id,),
    )


def between(one: PortId, other: PortId) -> LinkId:
    return LinkId(one, other) if one < other else LinkId(other, one)


def link_key(link: LinkId) -> tuple[PortKey, PortKey]:
    return natural_port(link.a), natural_port(link.b)
