"""Chooses the counters of a trace: the job's NICs, switch ports on its paths, and culprits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from alerts.window.model import JobWindow
from api.fabric.cache import BuiltTopology
from api.fabric.model import Topology
from api.fabric.spread import SpreadTooLarge
from api.jobs.correlate.windows import EDGES_MAX, ring_edges
from api.jobs.trace.subject import Machines
from collector.contract.identity import PortId
from collector.contract.verdict import Culprit, Verdict

SWITCH_PORTS_MAX = 256
"""Switch ports whose counters are shown: those of the accused, then those that the job's NICs hang
on, then those that most of its bytes cross."""


def machines_of(job: JobWindow, built: BuiltTopology, verdicts: Sequence[Verdict]) -> Machines:
    """The accused first, then the job's hosts in the order of its ranks."""
    culprits = [
        culprit
        for verdict in verdicts
        for culprit in (verdict.culprit, *verdict.accomplices, *verdict.victims)
    ]
    ranks = [rank for _, rank in sorted(job.ranks.items()) if rank.host]
    hosts = dict.fromkeys(culprit.host for culprit in culprits if culprit.host)
    hosts |= dict.fromkeys(rank.host for rank in ranks)
    nics: dict[str, set[str]] = {}
    for rank in ranks:
        nics.setdefault(rank.host, set()).update(rank.devices)
    for rank in ranks:
        if not rank.devices:
            nics.pop(rank.host, None)  # no source names the NIC: all of them
    for culprit in culprits:
        if culprit.host in nics and culprit.device:
            nics[culprit.host].add(culprit.device)
    with_interfaces(built.topology, nics)
    ports = dict.fromkeys(switch_ports(job, built, culprits))
    return Machines(
        hosts=list(hosts),
        nics={host: frozenset(names) for host, names in nics.items()},
        switch_ports=frozenset(list(ports)[:SWITCH_PORTS_MAX]),
        switch_ports_left_out=max(0, len(ports) - SWITCH_PORTS_MAX),
    )


def with_interfaces(topology: Topology, nics: dict[str, set[str]]) -> None:
    """Add the interfaces of the devices: some counters are by one, some by the other."""
    for port in topology.ports.values():
        own = nics.get(port.id.host)
        if own is not None and port.netdev and port.id.device in own:
            own.add(port.netdev)


def switch_ports(
    job: JobWindow, built: BuiltTopology, culprits: Sequence[Culprit]
) -> Iterator[PortId]:
    """Ports of switches, those that matter most first; some more than once."""
    topology = built.topology
    for culprit in culprits:
        if culprit.switch and culprit.switch_port:
            yield from both_ends(
                topology, PortId(culprit.switch, culprit.switch, culprit.switch_port)
            )
    for rank in job.ranks.values():
        for device in rank.devices:
            far = topology.other_end(PortId(rank.host, device, rank.port or "1"))
            if far is not None and is_switch(far):
                yield far
    yield from on_the_ways(job, built)


def both_ends(topology: Topology, port: PortId) -> Iterator[PortId]:
    """A switch's port, and the one at the other end of its cable if that is a switch's too."""
    yield port
    far = topology.other_end(port)
    if far is not None and is_switch(far):
        yield far


def is_switch(port: PortId) -> bool:
    return port.host == port.device


def on_the_ways(job: JobWindow, built: BuiltTopology) -> Iterator[PortId]:
    """Switch ports between ring neighbours, those that carry most of them first."""
    pairs = [edge.ports for edge in ring_edges(job)]
    if not pairs or len(pairs) > EDGES_MAX:
        return
    try:
        spread = built.spread(pairs)
    except SpreadTooLarge:
        return
    links, which = np.unique(spread.link, return_inverse=True)
    share = np.bincount(which, spread.share)
    for row in np.argsort(-share, kind="stable").tolist():
        link = built.graph.links[links[row]]
        yield from (end for end in (link.id.a, link.id.b) if is_switch(end))
