"""Partitions that a real opensm sets on a fabric that ibsim plays, read with the real smpquery.

What stands in partitions.conf must arrive at the ports it names, and the audit must name the host
that was left out, and no other.
"""

from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest

from api.fleet.audit.partitions import partitions
from api.fleet.audit.paths import RankPlace
from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.reading import partitions as partitions_module
from collector.sources.ib_fabric import IbFabric, Settings
from simulator.interfaces.ibsim import hca_id
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric as FabricKind
from simulator.topology.model import Topology
from tests.stands import ib_fabric
from tests.stands.ib_fabric import Fabric
from tests.tools import peers

pytestmark = pytest.mark.peer(
    "ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "perfquery", "smpquery"
)

HOSTS = 6
SPEC = ClusterSpec(
    hosts=HOSTS, gpus_per_host=2, nics_per_host=2, fabric=FabricKind.INFINIBAND, switch_ports=12
)
JOB = 0x0001
METRIC = "fabric_port_partitions_info"


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fabric, Topology]]:
    with ExitStack() as stack:
        stack.enter_context(chdir(tmp_path_factory.mktemp("programs")))
        topology = build(SPEC)
        yield stack.enter_context(ib_fabric.fabric(topology)), topology


def port_guid(topology: Topology, nic: int) -> str:
    """Of a NIC: ibsim counts ports of an HCA on from its node's GUID."""
    return f"0x{topology.nic_guid(nic) + 1:016x}"


def file_of(topology: Topology, left_out: int = -1, limited: tuple[int, ...] = ()) -> str:
    """A partition for the job, beside the fabric's own, whose one full member is the manager."""
    members = [
        f"{port_guid(topology, nic)}={'limited' if host in limited else 'full'}"
        for nic in range(topology.nics)
        if (host := int(topology.host_of_nic(nic))) != left_out
    ]
    default = "Default=0x7fff,ipoib,defmember=limited:ALL,SELF=full;"
    return f"{default}\njob=0x{JOB:04x}:{', '.join(members)};\n"


def source(running: Fabric) -> IbFabric:
    program = peers.find("smpquery")
    assert program is not None
    names = ("LD_PRELOAD", "SIM_HOST", "IBSIM_SOCKNAME")
    return IbFabric(
        Settings(
            enabled=True,
            partitions=True,
            timeout_seconds=120,
            # A machine that stands still for a moment must not look like a silent HCA.
            answer_milliseconds=1_000,
            programs_dir=str(program.parent),
            environment={name: running.environment[name] for name in names},
        )
    )


def tables(readings: list[Reading]) -> dict[tuple[str, str], str]:
    found = {}
    for each in readings:
        if isinstance(each, Sample) and each.series.metric == METRIC:
            labels = dict(each.series.labels)
            found[labels["host"], labels["device"]] = labels["partitions"]
    return found


def read(running: Fabric) -> dict[tuple[str, str], str]:
    return tables(list(source(running).read(Host(Path("/")))))


def places(topology: Topology) -> list[RankPlace]:
    return [
        RankPlace("llm", nic, topology.host_name(topology.host_of_nic(nic)), device)
        for nic in range(topology.nics)
        for device in [topology.device_name(nic)]
    ]


def test_every_hca_s_table_is_what_the_manager_set(fabric: tuple[Fabric, Topology]) -> None:
    running, topology = fabric
    running.sweep(file_of(topology, left_out=3))
    found = read(running)
    assert len(found) == topology.nics
    for nic in range(topology.nics):
        host = int(topology.host_of_nic(nic))
        # The manager's own port is the first HCA's.
        default = "0:0xffff" if nic == 0 else "0:0x7fff"
        wanted = default if host == 3 else f"{default} 1:0x8001"
        assert found[topology.host_name(host), topology.device_name(nic)] == wanted


def test_the_host_that_was_left_out_is_named(fabric: tuple[Fabric, Topology]) -> None:
    running, topology = fabric
    running.sweep(file_of(topology, left_out=3))
    (finding,) = partitions(places(topology), {}, read(running))
    # On both rails, though the manager's own port, a full member of all, hears it on one.
    assert (finding.host, finding.device) == (topology.host_name(3), "")
    assert "no member of 0x0001" in finding.title


def test_two_limited_members_are_named(fabric: tuple[Fabric, Topology]) -> None:
    running, topology = fabric
    running.sweep(file_of(topology, limited=(2,)))
    assert list(partitions(places(topology), {}, read(running))) == []
    running.sweep(file_of(topology, limited=(2, 4)))
    found = list(partitions(places(topology), {}, read(running)))
    # Four of six full members are too few to say which are wrong.
    assert [each.host for each in found] == [""]
    assert "limited members of 0x0001" in found[0].title


def test_a_fabric_without_partitions_of_its_own_accuses_nobody(
    fabric: tuple[Fabric, Topology],
) -> None:
    running, topology = fabric
    running.sweep("Default=0x7fff,ipoib:ALL=full;\n")
    found = read(running)
    assert set(found.values()) == {"0:0xffff"}
    assert list(partitions(places(topology), {}, found)) == []


def test_ports_are_asked_in_turn(
    fabric: tuple[Fabric, Topology], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, _ = fabric
    monkeypatch.setattr(partitions_module, "ASKED_MAX", 5)
    own, host = source(running), Host(Path("/"))
    counts = [len(tables(list(own.read(host)))) for _ in range(4)]
    assert counts == [5, 10, 12, 12]


def test_a_silent_hca_is_one_absence(
    fabric: tuple[Fabric, Topology], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, topology = fabric
    monkeypatch.setattr(partitions_module, "AGAIN_SECONDS", 0)
    own, host = source(running), Host(Path("/"))
    before = tables(list(own.read(host)))
    silent = topology.host_name(topology.host_of_nic(5)), topology.device_name(5)
    running.type([f'Error "{hca_id(topology, 5)}" 100'])
    try:
        readings = list(own.read(host))
    finally:
        running.type([f'Error "{hca_id(topology, 5)}" 0'])
    assert set(before) - set(tables(readings)) == {silent}
    (missing,) = [one for one in readings if isinstance(one, Missing) and METRIC in str(one.series)]
    labels = dict(missing.series.labels)
    assert (labels["host"], labels["device"]) == silent
    assert missing.reason is UnreadReason.TIMEOUT
