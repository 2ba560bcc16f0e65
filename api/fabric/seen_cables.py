"""Mistakes that need no plan: links down or slow, ends that contradict each other. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from api.fabric.cabling import natural_port
from api.fabric.mistake import Mistake, MistakeKind, names, plural
from api.fabric.model import Conflict, Link, NodeKind, Topology
from api.fabric.plan import Basis, Plan, vote
from api.fabric.planned_cables import link_key, wrong_speed
from collector.contract.identity import LinkId, PortId, natural

DOUBLED_PORTS_MIN = 2
"""Ports of one name at which two cables end that make two machines of it; one may be a mistake of
that port alone."""

SPEED_VOTERS_MIN = 4
SPEED_SHARE = 0.75
"""Links of one switch that must agree on a speed before one that is slower stands out: a leaf with
two generations of hosts has no speed."""

CONFLICT_CONFIDENCE = 0.9
"""One of two ends is wrong, or its report is outdated."""


def check_seen(topology: Topology, plan: Plan) -> Iterator[Mistake]:
    yield from check_down(topology)
    yield from check_names(topology)
    yield from check_unknown(topology)
    yield from check_speeds(topology, plan)


def check_down(topology: Topology) -> Iterator[Mistake]:
    down = [link for link in topology.links.values() if link.is_up is False]
    for link in sorted(down, key=lambda link: link_key(link.id)):
        ends = (link.id.a, link.id.b)
        states = [
            f"{names([end])} is {known.state}"
            for end in ends
            if (known := topology.ports.get(end)) is not None and known.state
        ]
        yield Mistake(
            kind=MistakeKind.DOWN,
            what=f"the link of {names(ends)} is down",
            expected="a link that is up",
            found=names(states) or "an end reports it as down",
            fix="look at the cable, the optics and both ports",
            basis=Basis.SEEN,
            confidence=1.0,
            nodes=tuple(end.host for end in ends),
            ports=ends,
            links=(link.id,),
            evidence=tuple(states),
        )


# --- contradictions -----------------------------------------------------------------------------


def check_names(topology: Topology) -> Iterator[Mistake]:
    """Ends that contradict each other: one machine too many of a name, or a stale or odd end."""
    conflicts = [each for each in topology.conflicts if not is_taken_back(topology, each)]
    doubled = doubled_ports(topology, conflicts)
    twins = {host for host, ports in by_host(doubled).items() if are_twins(ports)}
    for host in sorted(twins, key=natural):
        yield report_twins(topology, host, {p: n for p, n in doubled.items() if p.host == host})
    for conflict in sorted(
        conflicts, key=lambda each: (natural_port(each.port), natural_port(each.names))
    ):
        if conflict.names.host not in twins and conflict.port.host not in twins:
            yield report_conflict(conflict)
    reported = {conflict.names for conflict in conflicts}
    for port, others in doubled.items():
        if port.host not in twins and port not in reported:
            yield report_doubled(port, others)


def is_taken_back(topology: Topology, conflict: Conflict) -> bool:
    """Whether the contradicted end has reported another neighbour since: its cable was moved."""
    link = topology.link_of.get(conflict.port)
    return (
        link is not None and conflict.port in link.seen_from and link.last_seen > conflict.last_seen
    )


def doubled_ports(topology: Topology, conflicts: list[Conflict]) -> dict[PortId, list[PortId]]:
    at: dict[PortId, set[PortId]] = {}
    for link in topology.links.values():
        at.setdefault(link.id.a, set()).add(link.id.b)
        at.setdefault(link.id.b, set()).add(link.id.a)
    for conflict in conflicts:
        at.setdefault(conflict.names, set()).update({conflict.port, conflict.named_back})
    return {
        port: sorted(others, key=natural_port) for port, others in at.items() if len(others) > 1
    }


def by_host(doubled: dict[PortId, list[PortId]]) -> dict[str, dict[PortId, list[PortId]]]:
    found: dict[str, dict[PortId, list[PortId]]] = {}
    for port, others in doubled.items():
        found.setdefault(port.host, {})[port] = others
    return found


def are_twins(ports: dict[PortId, list[PortId]]) -> bool:
    """Two machines have cables each; one whose cables are moved has the same neighbours in turn."""
    neighbours = {other for others in ports.values() for other in others}
    return len(ports) >= DOUBLED_PORTS_MIN and len(neighbours) >= 2 * len(ports)


def report_twins(topology: Topology, host: str, doubled: dict[PortId, list[PortId]]) -> Mistake:
    ports = sorted(doubled, key=natural_port)
    switches = sorted({other.host for others in doubled.values() for other in others}, key=natural)
    return Mistake(
        kind=MistakeKind.DUPLICATE_NAME,
        what=f"two machines call themselves {host}",
        expected="each port has one cable",
        found=f"{plural(len(ports), 'port')} of {host} with two cables each, as to"
        f" {names(doubled[ports[0]])}",
        fix=f"find both at {names(switches)} and give one another name",
        basis=Basis.SEEN,
        confidence=CONFLICT_CONFIDENCE,
        nodes=(host, *switches),
        ports=tuple(ports),
        links=tuple(link.id for link in topology.neighbours.get(host, ())),
        evidence=tuple(f"{port}: {names(doubled[port])}" for port in ports),
    )


def report_conflict(conflict: Conflict) -> Mistake:
    port, other, instead = (
        names([end]) for end in (conflict.port, conflict.names, conflict.named_back)
    )
    return Mistake(
        kind=MistakeKind.ASYMMETRIC,
        what=f"{port} reports a cable to {other}, which is cabled to {instead}",
        expected="both ends of a cable name each other",
        found=f"{port} names {other}; {other} names {instead}",
        fix=f"check {port} and {other}: one of them reports a cable that is gone",
        basis=Basis.SEEN,
        confidence=CONFLICT_CONFIDENCE,
        nodes=(conflict.port.host, conflict.names.host, conflict.named_back.host),
        ports=(conflict.port, conflict.names, conflict.named_back),
        evidence=(
            f"{port} last reported it at {conflict.last_seen:%Y-%m-%d %H:%M:%S} UTC"
            + (f" by {names(conflict.methods)}" if conflict.methods else ""),
        ),
    )


def report_doubled(port: PortId, others: list[PortId]) -> Mistake:
    return Mistake(
        kind=MistakeKind.ASYMMETRIC,
        what=f"{names(others)} both report a cable to {names([port])}",
        expected="each port has one cable",
        found=names(f"{names([port])} to {names([other])}" for other in others),
        fix=f"check {names([port])}: one of the others reports a cable that is gone",
        basis=Basis.SEEN,
        confidence=CONFLICT_CONFIDENCE,
        nodes=tuple(sorted({port.host, *(other.host for other in others)})),
        ports=(port, *others),
    )


def check_unknown(topology: Topology) -> Iterator[Mistake]:
    for name in sorted(topology.nodes, key=natural):
        node = topology.nodes[name]
        links = topology.neighbours.get(name, [])
        if node.kind is not NodeKind.UNKNOWN or not links:
            continue
        ports = [end for link in links for end in (link.id.a, link.id.b) if end.host != name]
        yield Mistake(
            kind=MistakeKind.UNKNOWN_NEIGHBOUR,
            what=f"{names(ports)} {'is' if len(ports) == 1 else 'are'} cabled to {name},"
            " of which nothing else is known",
            expected="a host with an agent, or a switch that is asked",
            found=names(f"{key} {value}" for key, value in sorted(node.attributes.items())) or name,
            fix="run the agent there, add the switch to the poller, or unplug it",
            basis=Basis.SEEN,
            confidence=1.0,
            nodes=(name, *sorted({port.host for port in ports})),
            ports=tuple(ports),
            links=tuple(link.id for link in links),
        )


# --- speeds -------------------------------------------------------------------------------------


def check_speeds(topology: Topology, plan: Plan) -> Iterator[Mistake]:
    """Links that are slower than the pattern's speed, or than the other links of their switch."""
    live = [
        link
        for link in topology.links.values()
        if link.is_up is not False and link.rate_bits_per_second
        if plan.links is None or plan.links.get(link.id) is None
    ]
    if plan.rate is not None:
        odd = [link for link in live if link.rate_bits_per_second != plan.rate]
        for link in sorted(odd, key=lambda link: link_key(link.id)):
            yield wrong_speed(link, plan.rate, Basis.PATTERN, 1.0, "by the pattern")
        return
    reported: set[LinkId] = set()
    for where, links in sorted(alike_links(topology, live).items()):
        expected = vote(
            Counter(int(link.rate_bits_per_second or 0) for link in links),
            SPEED_VOTERS_MIN,
            SPEED_SHARE,
        )
        if expected is None:
            continue
        why = f"{expected.agreeing} of {expected.voters} links {where[1]} of {where[0]} do"
        wanted = int(expected.value)
        slow = [
            link
            for link in links
            if int(link.rate_bits_per_second or 0) < wanted and link.id not in reported
        ]
        for link in sorted(slow, key=lambda link: link_key(link.id)):
            reported.add(link.id)
            yield wrong_speed(
                link, wanted, Basis.MAJORITY, expected.confidence(Basis.MAJORITY), why
            )


def alike_links(topology: Topology, links: list[Link]) -> dict[tuple[str, str], list[Link]]:
    """The links of each switch to hosts, up, and down: those that should have one speed."""
    found: dict[tuple[str, str], list[Link]] = {}
    for link in links:
        one, other = topology.nodes[link.id.a.host], topology.nodes[link.id.b.host]
        for node, neighbour in ((one, other), (other, one)):
            if node.kind is not NodeKind.SWITCH:
                continue
            if neighbour.kind is not NodeKind.SWITCH:
                way = "to hosts"
            elif node.tier == neighbour.tier:
                way = "to its peers"
            else:
                way = "up" if (node.tier or 0) < (neighbour.tier or 0) else "down"
            found.setdefault((node.name, way), []).append(link)
    return found
