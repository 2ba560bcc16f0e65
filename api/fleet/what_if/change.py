"""A topology and a job with changes that were not made. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from alerts.window.model import Rank
from api.fabric.cabling import natural_port
from api.fabric.model import Link, NodeKind, Topology, make_topology
from api.fleet.what_if.model import Ask, CannotTry, JobSeen, Move, Rule
from api.jobs.correlate.link_shares import port_of_nic
from collector.contract.identity import LinkId, PortId

BESIDE = "+"
"""Ends the port names of a cable that was put beside another: no port of a switch has it."""


def changed_topology(topology: Topology, ask: Ask) -> Topology:
    """With these cables down, doubled or at another rate. Nodes keep their tiers."""
    check(topology, ask)
    rates = {one.link: one.bits_per_second for one in ask.speed}
    gone = set(ask.drop)
    links: list[Link] = []
    for link in topology.links.values():
        if link.id in gone:
            links.append(msgspec.structs.replace(link, is_up=False))
        elif link.id in rates:
            links.append(msgspec.structs.replace(link, rate_bits_per_second=rates[link.id]))
        else:
            links.append(link)
    links += [beside(topology.links[name]) for name in ask.double]
    return make_topology(
        topology.at, topology.nodes.values(), topology.ports.values(), links, topology.conflicts
    )


def beside(link: Link) -> Link:
    """A second cable like this one, between the same two switches."""
    one, other = (
        PortId(end.host, end.device, f"{end.port}{BESIDE}") for end in (link.id.a, link.id.b)
    )
    return msgspec.structs.replace(link, id=LinkId.between(one, other), is_up=True)


def check(topology: Topology, ask: Ask) -> None:
    """Raise CannotTry for a question that contradicts itself."""
    names = [*ask.drop, *ask.double, *(one.link for one in ask.speed)]
    moved = [(one.job, one.rank) for one in ask.move]
    if not names and not moved:
        why = "nothing is changed: name a link to drop, double or set, or a rank to move"
        raise CannotTry(Rule.NOTHING_ASKED, why)
    twice = [str(name) for name, count in Counter(names).items() if count > 1]
    twice += [f"rank {rank} of {job}" for (job, rank), count in Counter(moved).items() if count > 1]
    if twice:
        why = f"{twice[0]} is changed more than once: each change may name it once"
        raise CannotTry(Rule.TWICE, why)
    for name in ask.double:
        ends = [topology.nodes[end.host].kind for end in (name.a, name.b)]
        if ends != [NodeKind.SWITCH, NodeKind.SWITCH]:
            why = f"{name} ends at a host: a NIC's port has one cable; set its speed instead"
            raise CannotTry(Rule.NIC_DOUBLED, why)


def sentences(topology: Topology, ask: Ask) -> Iterator[str]:
    for name in ask.drop:
        was = "; it is down already" if topology.links[name].is_up is False else ""
        yield f"{name} is down{was}"
    for name in ask.double:
        yield f"a second cable beside {name}, of the same rate"
    for one in ask.speed:
        rate = topology.links[one.link].rate_bits_per_second
        was = "not known" if rate is None else f"{rate / 1e9:.4g} Gb/s"
        yield f"{one.link} at {one.bits_per_second / 1e9:.4g} Gb/s; it is {was}"
    for move in ask.move:
        yield f"rank {move.rank} of {move.job} on {move.host}"


def moved_ranks(topology: Topology, job: JobSeen, moves: tuple[Move, ...]) -> dict[int, Rank]:
    """The job's ranks with those that move on their new hosts; CannotTry where one has no NIC."""
    ranks = dict(job.ranks)
    for move in moves:
        if move.job != job.job:
            continue
        rank = ranks.get(move.rank)
        if rank is None:
            known = f"0 to {max(ranks)}" if ranks else "none"
            why = f"{job.job} has no rank {move.rank}; known are {known}"
            raise CannotTry(Rule.NOT_ON_HOST, why)
        devices = tuple(nic_for(topology, rank.host, name, move) for name in rank.devices)
        ranks[move.rank] = Rank(rank=move.rank, host=move.host, devices=devices)
    return ranks


def nic_for(topology: Topology, host: str, device: str, move: Move) -> str:
    """The NIC of the new host in the place of this one: on its rail, else of its name."""
    port = port_of_nic(topology, host, device)
    known = None if port is None else topology.ports.get(port)
    rail = None if known is None else known.rail
    there = sorted(
        (one for one in topology.ports_of.get(move.host, ()) if one.id in topology.link_of),
        key=lambda one: natural_port(one.id),
    )
    same_rail = [one for one in there if rail is not None and one.rail == rail]
    same_name = [one for one in there if device in (one.id.device, one.netdev)]
    found = next(iter([*same_rail, *same_name]), None)
    if found is None:
        wanted = f"on rail {rail}" if rail is not None else f"called {device}"
        why = f"{move.host} has no cabled NIC {wanted}, which rank {move.rank} of {move.job} needs"
        raise CannotTry(Rule.NOT_ON_HOST, why)
    return found.id.device
