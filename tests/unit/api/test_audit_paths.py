"""What only the fabric shows: ranks elsewhere than their like, small MTUs on the way."""

from collections.abc import Sequence

import pytest

from api.fabric.model import Topology, make_topology
from api.fleet.audit.paths import RankPlace, asymmetric_paths, leaves, nvlink_domains, path_mtu
from collector.audit.facts import Fact
from collector.contract.identity import PortId
from simulator.topology.build import ClusterSpec, build
from tests.worlds.topologies import AT, cable, topology_of

CLUSTER = build(ClusterSpec(hosts=8, gpus_per_host=4, nics_per_host=4))


def all_ranks(topology: Topology, job: str = "llm") -> list[RankPlace]:
    nics = sorted(leaves(topology))
    return [RankPlace(job, rank, host, device) for rank, (host, device) in enumerate(nics)]


def moved(topology: Topology, nic: PortId, switch: str) -> Topology:
    """The topology with one NIC's cable at another switch."""
    links = [link for link in topology.links.values() if nic not in (link.id.a, link.id.b)]
    links.append(cable(nic, PortId(switch, switch, "spare")))
    return make_topology(AT, topology.nodes.values(), topology.ports.values(), links)


def a_nic(topology: Topology) -> PortId:
    return min(port for port in topology.ports if port.host != port.device)


def test_ranks_whose_rails_share_a_leaf_are_fine() -> None:
    topology = topology_of(CLUSTER)
    assert len(set(leaves(topology).values())) > 1
    assert list(asymmetric_paths(topology, all_ranks(topology))) == []


def test_a_rank_on_another_leaf_than_its_rail_is_named() -> None:
    topology = topology_of(CLUSTER)
    nic = a_nic(topology)
    of_nic = leaves(topology)
    home = of_nic[nic.host, nic.device]
    other = next(leaf for leaf in of_nic.values() if leaf != home)
    wrong = moved(topology, nic, other)
    (finding,) = asymmetric_paths(wrong, all_ranks(wrong))
    assert (finding.host, finding.device) == (nic.host, nic.device)
    assert other in finding.title
    assert home in finding.expected


@pytest.mark.parametrize("ranks", [0, 3])
def test_few_ranks_accuse_nobody(ranks: int) -> None:
    topology = topology_of(CLUSTER)
    nic = a_nic(topology)
    wrong = moved(topology, nic, next(iter(leaves(topology).values())))
    rail = [place for place in all_ranks(wrong) if place.device == nic.device][:ranks]
    assert list(asymmetric_paths(wrong, rail)) == []


def test_a_job_over_many_leaves_accuses_nobody() -> None:
    topology = topology_of(CLUSTER)
    for number, port in enumerate(sorted(p for p in topology.ports if p.host != p.device)):
        topology = moved(topology, port, f"leaf-{number % 3}")
    assert list(asymmetric_paths(topology, all_ranks(topology))) == []


def test_a_rank_whose_nic_is_not_in_the_topology_is_passed_over() -> None:
    topology = topology_of(CLUSTER)
    unknown = [RankPlace("llm", 0, "elsewhere", "mlx5_0")]
    assert list(asymmetric_paths(topology, unknown)) == []


# --- MTU -----------------------------------------------------------------------------------------


def facts_with_mtu(mtu: str, layer: str = "Ethernet", count: int = 8) -> dict[str, Sequence[Fact]]:
    return {
        f"node-{number}": [
            Fact("mlx5_0", "link_layer", layer),
            Fact("mlx5_0", "interface_mtu", mtu),
        ]
        for number in range(count)
    }


def switch_port(topology: Topology) -> PortId:
    link = min(topology.links.values(), key=lambda each: each.id)
    return next(end for end in (link.id.a, link.id.b) if end.host == end.device)


def test_a_switch_port_with_a_smaller_mtu_than_the_nics_is_named() -> None:
    topology = topology_of(CLUSTER)
    port = switch_port(topology)
    mtus = {(port.host, port.port): 1500.0}
    (finding,) = path_mtu(topology, facts_with_mtu("9000"), mtus)
    assert (finding.host, finding.check) == (port.host, "path_mtu")
    assert "MTU 1500; most NICs have 9000" in finding.title


@pytest.mark.parametrize(
    ("facts", "mtu"),
    [
        (facts_with_mtu("9000"), 9216.0),
        (facts_with_mtu("1500"), 1500.0),
        (facts_with_mtu("9000", count=4), 1500.0),
        (facts_with_mtu("4092", layer="InfiniBand"), 2048.0),
        (facts_with_mtu("9000"), 0.0),
    ],
)
def test_a_switch_port_that_is_large_enough_is_fine(
    facts: dict[str, Sequence[Fact]], mtu: float
) -> None:
    topology = topology_of(CLUSTER)
    port = switch_port(topology)
    assert list(path_mtu(topology, facts, {(port.host, port.port): mtu})) == []


# --- NVLink domains ------------------------------------------------------------------------------

RACK, OTHER = "aaaa clique 1", "bbbb clique 1"


def racks(**other: dict[str, str]) -> dict[str, dict[str, str]]:
    """Six hosts of one rack, each with two GPUs; some are elsewhere."""
    return {f"n{number}": {"0": RACK, "1": RACK} for number in range(6)} | other


def ranks_on(hosts: Sequence[str], job: str = "llm") -> list[RankPlace]:
    return [
        RankPlace(job, 2 * number + gpu, host, "")
        for number, host in enumerate(hosts)
        for gpu in range(2)
    ]


@pytest.mark.parametrize("own", [{"0": OTHER, "1": OTHER}, {"0": RACK, "1": OTHER}])
def test_a_host_outside_its_jobs_nvlink_domain_is_named(own: dict[str, str]) -> None:
    domains = racks(n2=own)
    (finding,) = nvlink_domains(ranks_on(sorted(domains)), domains)
    assert (finding.host, finding.check, finding.expected) == ("n2", "nvlink_domains", RACK)
    assert "5 of 6 hosts of job llm" in finding.title
    assert OTHER in {each.value for each in finding.read}


@pytest.mark.parametrize(
    "domains",
    [
        racks(),
        racks(n1={"0": OTHER}, n2={"0": OTHER}, n3={"0": OTHER}),  # a job over two racks
        {name: own for name, own in racks(n2={"0": OTHER}).items() if name < "n3"},  # too few
        {},
    ],
)
def test_no_host_is_accused_without_a_domain_that_most_share(
    domains: dict[str, dict[str, str]],
) -> None:
    # A host that tells of no domain is not judged.
    assert list(nvlink_domains(ranks_on([*sorted(domains), "silent"]), domains)) == []
