"""Cables between switches against what like switches have: missing, extra, uneven. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from api.fabric.cabling import natural_port
from api.fabric.mistake import Mistake, MistakeKind, names, plural
from api.fabric.model import Link, NodeKind, Topology
from api.fabric.plan import PATTERN_CONFIDENCE, Basis, Expectation, Plan, Vote
from collector.contract.identity import PortId, natural

PEERS_SHARE = 0.25
"""Where more than this of a tier's switches have links within the tier, that is how it is built
(pairs of leaves); fewer are strays."""

UPLINK_STATES_DOWN = frozenset({"down", "init", "polling", "lowerlayerdown", "disabled"})
"""States of a port whose cable may be the missing one."""


def check_switches(topology: Topology, expectation: Expectation, plan: Plan) -> Iterator[Mistake]:
    """Mistakes of cables between switches. Nothing is expected of a flat fabric."""
    if expectation.is_flat:
        return
    yield from check_uplinks(topology, expectation, plan.basis)
    yield from check_levels(topology, plan.basis)
    if plan.pattern is not None:
        yield from check_leaf_sizes(topology, expectation, plan)


def check_uplinks(topology: Topology, expectation: Expectation, basis: Basis) -> Iterator[Mistake]:
    """Each switch' links to those above: too few here and too many there are one mistake."""
    wrong: dict[str, list[tuple[str, int, Vote]]] = {}
    for (lower, upper), expected in expectation.uplinks.items():
        found = expectation.cabling.between[lower][upper]
        if found != expected.value:
            wrong.setdefault(lower, []).append((upper, found, expected))
    for lower in sorted(wrong, key=natural):
        short = [each for each in wrong[lower] if each[1] < int(each[2].value)]
        extra = [each for each in wrong[lower] if each[1] > int(each[2].value)]
        if short and extra:
            yield report_exchange(topology, lower, short, extra, basis)
        else:
            for each in short + extra:
                yield report_uneven(topology, lower, each, basis)


def report_uneven(
    topology: Topology, lower: str, each: tuple[str, int, Vote], basis: Basis
) -> Mistake:
    upper, found, expected = each
    wanted = int(expected.value)
    links = links_between(topology, lower, upper)
    idle = idle_ports(topology, lower)
    if found > wanted:
        kind = MistakeKind.ASYMMETRIC if wanted else MistakeKind.EXTRA_LINK
        fix = f"look where {plural(found - wanted, 'cable')} of {lower} to {upper} should go"
    else:
        kind = MistakeKind.ASYMMETRIC if found else MistakeKind.MISSING_LINK
        at = f"; ports of {lower} without a link: {names(idle)}" if idle else ""
        fix = f"look for {plural(wanted - found, 'cable')} from {lower} to {upper}{at}"
    return Mistake(
        kind=kind,
        what=f"{lower} has {plural(found, 'link')} to {upper} instead of {wanted}",
        expected=f"{plural(wanted, 'link')}, as {expected.agreeing} of {expected.voters} like"
        " switches have",
        found=plural(found, "link"),
        fix=fix,
        basis=basis,
        confidence=expected.confidence(basis),
        nodes=(lower, upper),
        ports=tuple(idle),
        links=tuple(link.id for link in links),
        evidence=tuple(str(link.id) for link in links) or ("no link between them is known",),
    )


def report_exchange(
    topology: Topology,
    lower: str,
    short: list[tuple[str, int, Vote]],
    extra: list[tuple[str, int, Vote]],
    basis: Basis,
) -> Mistake:
    every = short + extra
    votes = [expected for _, _, expected in every]
    links = [link for upper, _, _ in extra for link in links_between(topology, lower, upper)]
    to, instead = names(upper for upper, _, _ in extra), names(upper for upper, _, _ in short)
    return Mistake(
        kind=MistakeKind.ASYMMETRIC,
        what=f"{lower} has too many links to {to} and too few to {instead}",
        expected=names(f"{plural(int(vote.value), 'link')} to {upper}" for upper, _, vote in every),
        found=names(f"{plural(found, 'link')} to {upper}" for upper, found, _ in every),
        fix=f"move cables of {lower} from {to} to {instead}",
        basis=basis,
        confidence=min(vote.confidence(basis) for vote in votes),
        nodes=(lower, *(upper for upper, _, _ in every)),
        links=tuple(link.id for link in links),
        evidence=tuple(str(link.id) for link in links),
    )


def check_levels(topology: Topology, basis: Basis) -> Iterator[Mistake]:
    """Links between switches that are not one tier apart, where that is not how it is built."""
    odd: dict[tuple[int, int], list[Link]] = {}
    switches: dict[tuple[int, int], set[str]] = {}
    for link in topology.links.values():
        one, other = topology.nodes[link.id.a.host], topology.nodes[link.id.b.host]
        if one.tier is None or other.tier is None or one.name == other.name:
            continue
        low, high = sorted((one.tier, other.tier))
        if high - low != 1:
            odd.setdefault((low, high), []).append(link)
            lower = {node.name for node in (one, other) if node.tier == low}
            switches.setdefault((low, high), set()).update(lower)
    sizes: Counter[int | None] = Counter(
        node.tier for node in topology.nodes.values() if node.kind is NodeKind.SWITCH
    )
    for (low, high), links in odd.items():
        if len(switches[low, high]) > PEERS_SHARE * sizes[low]:
            continue
        for link in sorted(links, key=lambda link: link.id):
            ends = (link.id.a, link.id.b)
            yield Mistake(
                kind=MistakeKind.WRONG_TIER,
                what=f"{names(ends)} are cabled to each other, of tiers {low} and {high}",
                expected="links lead to the next tier",
                found=str(link.id),
                fix="unplug the cable, or move one end to the tier next to the other",
                basis=basis,
                confidence=PATTERN_CONFIDENCE,
                nodes=tuple(end.host for end in ends),
                ports=ends,
                links=(link.id,),
                evidence=(f"{len(switches[low, high])} of {sizes[low]} switches have such a link",),
            )


def check_leaf_sizes(topology: Topology, expectation: Expectation, plan: Plan) -> Iterator[Mistake]:
    pattern = plan.pattern
    if pattern is None:
        return
    for leaf in sorted(expectation.leaves, key=natural):
        ports = expectation.cabling.ports_at[leaf]
        hosts = {port.host for port in ports}
        in_order = sorted(hosts, key=natural)
        if pattern.hosts_per_leaf is not None and len(hosts) > pattern.hosts_per_leaf:
            yield Mistake(
                kind=MistakeKind.EXTRA_LINK,
                what=f"{leaf} serves {plural(len(hosts), 'host')}",
                expected=f"at most {plural(pattern.hosts_per_leaf, 'host')} on a leaf",
                found=names(in_order),
                fix=f"move {plural(len(hosts) - pattern.hosts_per_leaf, 'host')} elsewhere",
                basis=Basis.PATTERN,
                confidence=1.0,
                nodes=(leaf,),
            )
        up = expectation.cabling.between[leaf].total()
        ratio = len(ports) / up if up else 0.0
        if pattern.oversubscription is not None and ratio > pattern.oversubscription:
            yield Mistake(
                kind=MistakeKind.OVERSUBSCRIBED,
                what=f"{leaf} has {plural(len(ports), 'link')} down and {up} up",
                expected=f"at most {pattern.oversubscription:g} down for each one up",
                found=f"{ratio:.2f} down for each one up",
                fix=f"look for missing cables from {leaf} to its spines",
                basis=Basis.PATTERN,
                confidence=1.0,
                nodes=(leaf,),
                ports=tuple(idle_ports(topology, leaf)),
            )


# --- helpers ------------------------------------------------------------------------------------


def links_between(topology: Topology, one: str, other: str) -> list[Link]:
    return [
        link
        for link in topology.neighbours.get(one, ())
        if other in {link.id.a.host, link.id.b.host}
    ]


def idle_ports(topology: Topology, switch: str) -> list[PortId]:
    """Ports of a switch that are down and have no link: one of them may be the missing one's."""
    found = [
        port.id
        for port in topology.ports_of.get(switch, ())
        if port.id not in topology.link_of and (port.state or "").lower() in UPLINK_STATES_DOWN
    ]
    return sorted(found, key=natural_port)
