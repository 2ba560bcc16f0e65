"""Hosts' cables against what like hosts do: swapped, on the wrong leaf or tier, missing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from api.fabric.cabling import natural_port
from api.fabric.file import PatternKind
from api.fabric.mistake import Mistake, MistakeKind, names, plural
from api.fabric.model import Topology
from api.fabric.plan import PATTERN_CONFIDENCE, Basis, Expectation, HostGroup, Plan, Slot, Vote
from collector.contract.identity import PortId, natural

LIVE_STATES = frozenset({"active", "up"})
"""States of a port that has a neighbour, whether or not any end reports it."""

Misplaced = dict[PortId, tuple[Vote, str]]
"""Ports, each with the leaf where it is expected and the switch where it is."""


def check_hosts(topology: Topology, expectation: Expectation, plan: Plan) -> Iterator[Mistake]:
    pattern = plan.pattern
    if pattern is not None and pattern.kind is PatternKind.FAT_TREE:
        yield from check_one_leaf(topology, expectation)
    else:
        for group in expectation.groups:
            yield from check_group(topology, expectation, group, plan.basis)
            if pattern is not None:
                yield from check_one_rail(group)
    yield from check_tier(topology, expectation, plan.basis)


def check_group(
    topology: Topology, expectation: Expectation, group: HostGroup, basis: Basis
) -> Iterator[Mistake]:
    switch_of = expectation.cabling.switch_of
    misplaced: Misplaced = {}
    for host in group.hosts:
        cabled = (port.id for port in topology.ports_of[host] if port.id in switch_of)
        ports = sorted(cabled, key=natural_port)
        lost = missing_slots(expectation, group, ports)
        if lost is None:
            misplaced |= find_misplaced(topology, expectation, group, ports)
            have = {(port.device, port.port) for port in ports}
            lost = [slot for slot in group.slots if slot not in have]
        for slot in lost:
            found = report_missing(topology, expectation, group, (host, slot), basis)
            if found is not None:
                yield found
    yield from explain(topology, group, misplaced, basis)


def missing_slots(
    expectation: Expectation, group: HostGroup, ports: list[PortId]
) -> list[Slot] | None:
    """The slots that a host lacks if its NICs moved up to fill a gap; None if they did not.

    Drivers number what they find: a host that lost its third NIC calls the fourth by the third's
    name. Its leaves in order are then the expected ones with some left out, and nothing is swapped.
    """
    if not 0 < len(ports) < len(group.slots):
        return None
    waiting = [expectation.cabling.switch_of[port] for port in ports]
    lost: list[Slot] = []
    for slot in group.slots:
        if waiting and group.leaf_of_slot[slot].value == waiting[0]:
            waiting.pop(0)
        else:
            lost.append(slot)
    return None if waiting else lost


def find_misplaced(
    topology: Topology, expectation: Expectation, group: HostGroup, ports: list[PortId]
) -> Misplaced:
    found: Misplaced = {}
    for port in ports:
        switch = expectation.cabling.switch_of[port]
        expected = group.expected(port, topology.ports[port].rail)
        if expected is not None and expected.value != switch and switch in expectation.leaves:
            found[port] = (expected, switch)
    return found


# --- misplaced ports ----------------------------------------------------------------------------


def explain(
    topology: Topology, group: HostGroup, misplaced: Misplaced, basis: Basis
) -> Iterator[Mistake]:
    """Swaps first, within hosts and then between them; each of the others by itself."""
    left: Misplaced = {}
    for host in dict.fromkeys(port.host for port in misplaced):
        of_host = {port: place for port, place in misplaced.items() if port.host == host}
        for port in list(of_host):
            circle = find_circle(of_host, port)
            if circle:
                yield report_circle(topology, {each: of_host.pop(each) for each in circle}, basis)
        left |= of_host
    for pair in find_pairs(left):
        yield report_circle(topology, {port: left.pop(port) for port in pair}, basis)
    for port, (expected, switch) in left.items():
        is_same_group = switch in group.leaves
        kind = MistakeKind.RAIL_MISMATCH if is_same_group else MistakeKind.WRONG_LEAF
        whose = leaf_name(topology, switch) if is_same_group else "which serves other hosts"
        yield Mistake(
            kind=kind,
            what=f"{port} is cabled to {switch}, {whose}",
            expected=f"{port} on {expected.value}, as {majority_text(expected)}",
            found=f"{port} on {names([topology.other_end(port) or switch])}",
            fix=f"move the cable of {port} from {switch} to a free port of {expected.value}",
            basis=basis,
            confidence=expected.confidence(basis),
            nodes=(port.host, switch, str(expected.value)),
            ports=ends_at(topology, port),
            evidence=(seen_by(topology, port),),
        )


def find_circle(left: Misplaced, port: PortId) -> list[PortId]:
    """Ports of a host that have each other's cables, from this one on."""
    if port not in left:
        return []
    circle = [port]
    while (at := left[circle[-1]][1]) != left[port][0].value:
        following = [
            each
            for each, (expected, _) in left.items()
            if expected.value == at and each not in circle
        ]
        if not following:
            return []
        circle.append(following[0])
    return circle


def find_pairs(left: Misplaced) -> list[tuple[PortId, PortId]]:
    """Ports of different hosts that are on each other's leaves: crossed over, both are right."""
    waiting: dict[tuple[str | int, str | int], list[PortId]] = {}
    found: list[tuple[PortId, PortId]] = []
    for port, (expected, switch) in left.items():
        partners = waiting.get((switch, expected.value))
        if partners:
            found.append((partners.pop(0), port))
        else:
            waiting.setdefault((expected.value, switch), []).append(port)
    return found


def report_circle(topology: Topology, circle: Misplaced, basis: Basis) -> Mistake:
    ports = sorted(circle, key=natural_port)
    hosts = {port.host for port in ports}
    if len(hosts) == 1:
        shown = f"{names(port.device for port in ports)} of {ports[0].host}"
    else:
        shown = names(ports)
    verb = "are swapped" if len(ports) == len("ab") else "are cabled in a circle"
    votes = [circle[port][0] for port in ports]
    places = [f"{port} on {circle[port][0].value}" for port in ports]
    found = [f"{port} on {circle[port][1]}" for port in ports]
    return Mistake(
        kind=MistakeKind.SWAPPED,
        what=f"{shown} {verb}",
        expected=f"{names(places)}, as {majority_text(votes[0])}",
        found=names(found),
        fix=f"plug each cable where another one is now: {names(places)}",
        basis=basis,
        confidence=min(each.confidence(basis) for each in votes),
        nodes=(*sorted(hosts, key=natural), *sorted({at for _, at in circle.values()})),
        ports=tuple(end for port in ports for end in ends_at(topology, port)),
        evidence=tuple(seen_by(topology, port) for port in ports),
    )


# --- other checks -------------------------------------------------------------------------------


def report_missing(
    topology: Topology,
    expectation: Expectation,
    group: HostGroup,
    place: tuple[str, Slot],
    basis: Basis,
) -> Mistake | None:
    """A slot without a cable. Of a port that is up, only the neighbour's name is missing."""
    host, slot = place
    port = PortId(host, *slot)
    expected = group.leaf_of_slot[slot]
    known = topology.ports.get(port)
    if port in expectation.cabling.switch_of:
        what = f"{host} has fewer NICs than its likes: none is cabled to {expected.value}"
    elif port in topology.link_of:
        return None  # cabled to a node that is no switch: another check reports that
    elif known is None and is_there_unnamed(expectation, group, place):
        return None
    elif known is None:
        what = f"{host} shows no {slot[0]} (port {slot[1]}), which its likes have"
    elif known.state is None or known.state.lower() in LIVE_STATES:
        return None
    else:
        what = f"{port} has no link and is {known.state}"
    return Mistake(
        kind=MistakeKind.MISSING_LINK,
        what=what,
        expected=f"a link from {port} to {expected.value}, as {majority_text(expected)}",
        found="no link",
        fix=f"look for the NIC in {host} and for its cable to {expected.value}",
        basis=basis,
        confidence=expected.confidence(basis),
        nodes=(host, str(expected.value)),
        ports=(port,),
        evidence=(f"{len(group.hosts)} hosts hang on the same leaves",),
    )


def is_there_unnamed(expectation: Expectation, group: HostGroup, place: tuple[str, Slot]) -> bool:
    """Whether the host has as many cables to the right leaf as its likes, at whatever ports.

    The switches of a host that has just booted report its interfaces; the host reports a little
    later which RDMA device is behind each. Several such hosts may agree on the interfaces' names.
    """
    host, slot = place
    leaf = str(group.leaf_of_slot[slot].value)
    cables = Counter(port.host for port in expectation.cabling.ports_at.get(leaf, ()))
    return cables[host] >= median(cables[other] for other in group.hosts) > 0


def check_tier(topology: Topology, expectation: Expectation, basis: Basis) -> Iterator[Mistake]:
    for switch, ports in expectation.cabling.ports_at.items():
        if switch in expectation.leaves or topology.nodes[switch].tier is None:
            continue
        for port in sorted(ports, key=natural_port):
            yield Mistake(
                kind=MistakeKind.WRONG_TIER,
                what=f"{port} hangs on {switch}, which is no leaf",
                expected="hosts hang on leaves (tier 0)",
                found=f"{switch} is of tier {topology.nodes[switch].tier}",
                fix=f"move the cable of {port} from {switch} to its leaf",
                basis=basis,
                confidence=PATTERN_CONFIDENCE,
                nodes=(port.host, switch),
                ports=ends_at(topology, port),
                evidence=(seen_by(topology, port),),
            )


def check_one_leaf(topology: Topology, expectation: Expectation) -> Iterator[Mistake]:
    """A fat tree: all NICs of a host on one leaf, the one where most of them are."""
    by_host: dict[str, list[PortId]] = {}
    for port, switch in expectation.cabling.switch_of.items():
        if switch in expectation.leaves:
            by_host.setdefault(port.host, []).append(port)
    for host in sorted(by_host, key=natural):
        ports = sorted(by_host[host], key=natural_port)
        counted = Counter(expectation.cabling.switch_of[port] for port in ports)
        leaf, most = counted.most_common(1)[0]
        if len(counted) == 1:
            continue
        is_clear = 2 * most > len(ports)
        astray = [port for port in ports if expectation.cabling.switch_of[port] != leaf]
        shown = astray if is_clear else ports
        where = [f"{port} on {expectation.cabling.switch_of[port]}" for port in shown]
        yield Mistake(
            kind=MistakeKind.WRONG_LEAF,
            what=f"{names(shown)} and the rest of {host} hang on different leaves"
            if is_clear
            else f"the NICs of {host} hang on {len(counted)} leaves",
            expected=f"all NICs of {host} on {leaf}" if is_clear else "all NICs on one leaf",
            found=names(where),
            fix=f"move the cables to {leaf}"
            if is_clear
            else "cable all NICs of a host to one leaf",
            basis=Basis.PATTERN,
            confidence=PATTERN_CONFIDENCE if is_clear else PATTERN_CONFIDENCE / 2,
            nodes=(host, *sorted(counted, key=natural)),
            ports=tuple(end for port in shown for end in ends_at(topology, port)),
            evidence=tuple(seen_by(topology, port) for port in shown),
        )


def check_one_rail(group: HostGroup) -> Iterator[Mistake]:
    """Rail-optimised: no leaf is the place of two rails."""
    rails: dict[str, list[int]] = {}
    for rail, expected in sorted(group.leaf_of_rail.items()):
        rails.setdefault(str(expected.value), []).append(rail)
    for leaf, here in rails.items():
        if len(here) > 1:
            yield Mistake(
                kind=MistakeKind.RAIL_MISMATCH,
                what=f"{leaf} carries rails {names(here)}",
                expected="one rail on each leaf",
                found=f"{plural(len(here), 'rail')} on {leaf}",
                fix="if this is a fat tree, set pattern=fat-tree; else give each rail a leaf",
                basis=Basis.PATTERN,
                confidence=PATTERN_CONFIDENCE,
                nodes=(leaf,),
                evidence=(f"{plural(len(group.hosts), 'host')} hang on it",),
            )


# --- words --------------------------------------------------------------------------------------


def majority_text(expected: Vote) -> str:
    return f"{expected.agreeing} of {expected.voters} like hosts have it"


def leaf_name(topology: Topology, switch: str) -> str:
    rail = topology.nodes[switch].rail
    return "another leaf of its hosts" if rail is None else f"the leaf of rail {rail}"


def ends_at(topology: Topology, port: PortId) -> tuple[PortId, ...]:
    other = topology.other_end(port)
    return (port,) if other is None else (port, other)


def seen_by(topology: Topology, port: PortId) -> str:
    link = topology.link_of[port]
    by = names(link.seen_from) or "a file"
    how = f" by {names(link.methods)}" if link.methods else ""
    return f"{link.id} since {link.since:%Y-%m-%d %H:%M} UTC, reported by {by}{how}"
