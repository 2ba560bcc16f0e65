"""What only the whole fabric shows: ranks elsewhere than their peers, small MTUs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from api.fabric.model import NodeKind, Topology
from collector.audit.facts import Fact, listed
from collector.audit.finding import Evidence, Finding, Severity
from collector.audit.settings import ETHERNET, INTERFACE_MTU, LINK_LAYER
from collector.contract.identity import PortId

RANKS_MIN = 4
"""Hosts of a job on one rail before one of them counts as elsewhere."""
MAJORITY_SHARE = 0.8
"""Of a rail's hosts that hang on one leaf. A job over many leaves has no such leaf: no host is
accused then."""
NICS_MIN = 5
"""NICs with an MTU before it counts as the fabric's."""


class RankPlace(msgspec.Struct, frozen=True):
    """Where a rank of a job runs, and the NIC that it uses first."""

    job: str
    rank: int
    host: str
    device: str


def asymmetric_paths(topology: Topology, places: Iterable[RankPlace]) -> Iterator[Finding]:
    """Ranks whose NIC hangs on another leaf than those of the job's other hosts on that rail."""
    leaf_of = leaves(topology)
    rail_of = {
        (port.id.host, port.id.device): port.rail
        for port in topology.ports.values()
        if port.rail is not None
    }
    rails: dict[tuple[str, int], dict[tuple[str, str], RankPlace]] = {}
    for place in places:
        key = place.host, place.device
        if key in leaf_of and key in rail_of:
            rails.setdefault((place.job, rail_of[key]), {})[key] = place
    for (_, rail), nics in sorted(rails.items()):
        counts = Counter(leaf_of[nic] for nic in nics)
        common, votes = counts.most_common(1)[0]
        if len(nics) < RANKS_MIN or votes < MAJORITY_SHARE * len(nics):
            continue
        for nic, place in nics.items():
            if leaf_of[nic] != common:
                yield elsewhere(place, rail, leaf_of[nic], common, votes, len(nics))


def leaves(topology: Topology) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for port in topology.ports:
        node = topology.nodes.get(port.host)
        if node is None or node.kind is not NodeKind.HOST:
            continue
        other = topology.other_end(port)
        switch = topology.nodes.get(other.host) if other is not None else None
        if switch is not None and switch.kind is NodeKind.SWITCH:
            found[port.host, port.device] = switch.name
    return found


def elsewhere(place: RankPlace, rail: int, leaf: str, common: str, votes: int, of: int) -> Finding:
    """A rank that reaches its peers over more hops than they reach each other."""
    return Finding(
        check="asymmetric_paths",
        severity=Severity.WARNING,
        host=place.host,
        device=place.device,
        title=f"Rank {place.rank} of job {place.job} is on {leaf}; {votes} of {of} "
        f"of rail {rail} are on {common}",
        read=(Evidence(place.device, "leaf", leaf, "the fabric's topology"),),
        expected=f"all of a job's NICs of one rail at one leaf, here {common}",
        why="Its traffic crosses the spine, and that of the others does not: it meets other jobs'.",
        source="the majority of the job's NICs on the same rail",
        fix="place the job on hosts of one leaf; /v1/topology/mistakes lists swapped cables",
        confidence=0.6,
        cost="Two more hops, and a share of the uplinks; a ring goes at its pace.",
    )


def nvlink_domains(
    places: Iterable[RankPlace], domains: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Hosts of a job outside the NVLink domain that most of its hosts share.

    ``domains``: of each host each GPU's domain and clique. A job over several racks has no domain
    that most are in: then no host is accused, and neither is one whose GPUs tell of no domain.
    """
    jobs: dict[str, dict[str, RankPlace]] = {}
    for place in places:
        if place.host in domains:
            jobs.setdefault(place.job, {}).setdefault(place.host, place)
    for _, hosts in sorted(jobs.items()):
        own = {host: sorted(set(domains[host].values())) for host in hosts}
        counts = Counter(each[0] for each in own.values() if len(each) == 1)
        common, votes = counts.most_common(1)[0] if counts else ("", 0)
        if len(hosts) < RANKS_MIN or votes < MAJORITY_SHARE * len(hosts):
            continue
        for host, place in sorted(hosts.items()):
            if own[host] != [common]:
                yield outside(place, own[host], common, votes, len(hosts))


def outside(place: RankPlace, own: Sequence[str], common: str, votes: int, hosts: int) -> Finding:
    """A host that reaches its job's others over the network, and they each other over NVLink."""
    return Finding(
        check="nvlink_domains",
        severity=Severity.WARNING,
        host=place.host,
        title=f"GPUs of {place.host} are outside the NVLink domain that {votes} of {hosts} hosts "
        f"of job {place.job} share",
        read=tuple(Evidence("", "nvlink_domain", each, "NVML, fabric_gpu_info") for each in own),
        expected=common,
        why="What its ranks exchange with the others leaves NVLink and goes over NICs.",
        source="the majority of the job's hosts",
        fix="place the job on hosts of one rack; where this is one, reset its GPUs' registration",
        confidence=0.7,
        cost="An order of magnitude of bandwidth for tensor- and expert-parallel groups across it.",
    )


def path_mtu(
    topology: Topology, facts: Mapping[str, Iterable[Fact]], mtus: Mapping[tuple[str, str], float]
) -> Iterator[Finding]:
    """Switch ports with a link whose MTU is below that of the NICs of an Ethernet fabric."""
    used = nic_mtus(facts)
    if used.total() < NICS_MIN:
        return
    wanted, _ = used.most_common(1)[0]
    small: dict[str, list[tuple[PortId, float]]] = {}
    for link in topology.links.values():
        for end in (link.id.a, link.id.b):
            mtu = mtus.get((end.host, end.port))
            if mtu is not None and 0 < mtu < wanted:
                small.setdefault(end.host, []).append((end, mtu))
    for switch, ports in sorted(small.items()):
        names = listed([port.port for port, _ in ports])
        yield Finding(
            check="path_mtu",
            severity=Severity.WARNING,
            host=switch,
            device=switch,
            title=f"{names} of {switch}: MTU {ports[0][1]:g}; most NICs have {wanted}",
            read=tuple(
                Evidence(switch, f"mtu of {port.port}", f"{mtu:g}", "fabric_port_mtu_bytes")
                for port, mtu in ports[:8]
            ),
            expected=f"at least {wanted} on every port on the way",
            why="A switch drops what is larger than its MTU, without an error to the sender.",
            source="the MTU of most training NICs",
            fix=f"raise the MTU of these ports to {wanted} or more (9216 is usual)",
            confidence=0.8,
            cost="Large packets are lost on this path: connections hang or crawl.",
        )


def nic_mtus(facts: Mapping[str, Iterable[Fact]]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for of_host in facts.values():
        ethernet: set[str] = set()
        mtus: dict[str, int] = {}
        for fact in of_host:
            if fact.setting == LINK_LAYER and fact.value == ETHERNET:
                ethernet.add(fact.device)
            elif fact.setting == INTERFACE_MTU and fact.value.isdecimal():
                mtus[fact.device] = int(fact.value)
        counts.update(mtus[device] for device in ethernet if device in mtus)
    return counts
