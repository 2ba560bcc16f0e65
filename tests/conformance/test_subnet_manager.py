"""Who manages the subnet, asked of real opensm processes on a fabric that ibsim plays.

The master is killed and the standby takes over: both must be seen, by `sminfo` from a third host
and in the log of the one that takes over.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from functools import partial
from pathlib import Path

import pytest

from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.sources.ib_fabric import IbFabric
from collector.sources.ib_fabric import Settings as FabricSettings
from collector.sources.opensm import OpensmLog
from collector.sources.opensm import Settings as LogSettings
from simulator.interfaces.ibsim import hca_id, switch_id
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric as FabricKind
from simulator.topology.model import Topology
from tests.stands import ib_fabric
from tests.stands.ib_fabric import Fabric, Manager, wait_until
from tests.tools import peers

pytestmark = pytest.mark.peer("ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "sminfo")

WATCHED = "fabric_subnet_manager_"
FIRST, SECOND = 1, 3
"""HCAs of the two managers; the poller asks from HCA 0, which runs none."""
START_SECONDS = 10.0
"""For each thing that a manager is waited for: a fifth of a second on a free core."""
STARTS_MAX = 10
"""One in twenty to one in five gets stuck."""


class Stand:
    """A small fabric with a master and a standby, and the sources that watch them."""

    def __init__(self, running: Fabric, topology: Topology, managers: list[Manager]) -> None:
        program = peers.find("sminfo")
        assert program is not None
        names = ("LD_PRELOAD", "SIM_HOST", "IBSIM_SOCKNAME")
        self.running, self.topology, self.managers = running, topology, managers
        self._host = Host(Path("/"))
        self._fabric = IbFabric(
            FabricSettings(
                enabled=True,
                timeout_seconds=120,
                answer_milliseconds=100,
                programs_dir=str(program.parent),
                environment={name: running.environment[name] for name in names},
            )
        )
        self.logs = [OpensmLog(LogSettings(files=(str(one.log),))) for one in managers]

    def ask(self) -> list[Reading]:
        """What the poller says of the subnet manager; of the rest nothing is asked here."""
        return [
            each
            for each in self._fabric.read(self._host)
            if isinstance(each, Event)
            or (isinstance(each, Sample | Missing) and each.series.metric.startswith(WATCHED))
        ]

    def read_log(self, number: int) -> list[Reading]:
        return list(self.logs[number].read(self._host))

    def guid(self, number: int) -> str:
        """Of the manager's port: ibsim counts ports of an HCA on from its node's GUID."""
        return f"0x{self.topology.nic_guid((FIRST, SECOND)[number]) + 1:016x}"


@contextmanager
def running_stand(folder: Path) -> Iterator[Stand]:
    topology = build(
        ClusterSpec(
            hosts=2, gpus_per_host=2, nics_per_host=2, fabric=FabricKind.INFINIBAND, switch_ports=4
        )
    )
    with ExitStack() as stack:
        stack.enter_context(chdir(folder))
        running = stack.enter_context(ib_fabric.fabric(topology))
        yield Stand(running, topology, started(stack, running, topology))


def anew_if_stuck(folder: Path, story: Callable[[Stand], None]) -> None:
    """Tell the story on a new stand where a manager got stuck.

    A manager sometimes asks a port that does not listen yet, or that has just lost its link.
    ibsim's library then loses the question and has no time-outs: opensm waits for good.
    """
    for is_last in (*(False,) * (STARTS_MAX - 1), True):
        try:
            with running_stand(folder) as stand:
                story(stand)
        except peers.PeerError:
            if is_last:
                raise
        else:
            return


def started(stack: ExitStack, running: Fabric, topology: Topology) -> list[Manager]:
    """The master and the standby, once the master has swept the fabric."""
    managers = []
    for nic, priority, state in ((FIRST, 9, "MASTER"), (SECOND, 2, "STANDBY")):
        one = stack.enter_context(running.manager(hca_id(topology, nic), priority))
        wait_until(partial(one.has_said, f"{state} state"), running, START_SECONDS)
        managers.append(one)
    wait_until(partial(managers[0].has_said, "SUBNET UP"), running, START_SECONDS)
    return managers


def values(readings: list[Reading]) -> dict[str, float]:
    samples = (each for each in readings if isinstance(each, Sample))
    return {each.series.metric: each.value for each in samples}


def infos(readings: list[Reading]) -> list[dict[str, str]]:
    samples = (each for each in readings if isinstance(each, Sample))
    named = "fabric_subnet_manager_info"
    return [dict(each.series.labels) for each in samples if each.series.metric == named]


def test_the_standby_takes_over_when_the_master_is_killed(tmp_path: Path) -> None:
    anew_if_stuck(tmp_path, take_over)


def test_without_a_manager_there_is_none_and_it_is_no_change(tmp_path: Path) -> None:
    anew_if_stuck(tmp_path, lose_both)


def test_a_link_that_goes_is_a_trap_and_a_heavy_sweep_in_the_masters_log(tmp_path: Path) -> None:
    anew_if_stuck(tmp_path, lose_a_link)


def take_over(stand: Stand) -> None:
    before = stand.ask()
    assert values(before)["fabric_subnet_manager_up"] == 1
    assert values(before)["fabric_subnet_manager_changes_total"] == 0
    assert values(before)["fabric_subnet_manager_activity_total"] > 0
    (master,) = infos(before)
    name = stand.topology.host_name(stand.topology.host_of_nic(FIRST))
    assert (master["guid"], master["priority"]) == (stand.guid(0), "9")
    assert master["name"] == f"{name} {stand.topology.device_name(FIRST)}"
    assert [values(stand.read_log(number))["fabric_subnet_manager_state"] for number in (0, 1)] == [
        3,
        2,
    ]

    stand.managers[0].kill()
    seen: list[Reading] = []
    wait_until(lambda: bool(infos(seen.__iadd__(stand.ask()))), stand.running, START_SECONDS)
    (after,) = infos(seen)[-1:]
    assert (after["guid"], after["priority"]) == (stand.guid(1), "2")
    changes = [each for each in seen if isinstance(each, Event)]
    assert [(each.kind, each.attributes["before"]) for each in changes] == [
        ("subnet_manager_changed", stand.guid(0))
    ]
    assert values(seen)["fabric_subnet_manager_up"] == 1
    assert values(seen)["fabric_subnet_manager_changes_total"] == 1

    said = stand.read_log(1)
    assert values(said)["fabric_subnet_manager_state"] == 3
    states = [each.attributes["state"] for each in said if isinstance(each, Event)]
    assert states[-1] == "master"


def lose_both(stand: Stand) -> None:
    stand.ask()
    for one in reversed(stand.managers):
        one.kill()
    readings = stand.ask()
    assert values(readings)["fabric_subnet_manager_up"] == 0
    assert values(readings)["fabric_subnet_manager_changes_total"] == 0
    assert infos(readings) == []
    missing = [each for each in readings if isinstance(each, Missing)]
    assert [each.series.metric for each in missing] == ["fabric_subnet_manager_activity_total"]


def lose_a_link(stand: Stand) -> None:
    first = values(stand.read_log(0))
    link = stand.topology.down(2)  # of an HCA that runs no manager
    switch, port = int(stand.topology.source_switch[link]), int(stand.topology.port[link])
    stand.running.type([f'Unlink "{switch_id(stand.topology, switch)}"[{port}]'])
    after = dict(first)
    sweeps = "fabric_subnet_manager_heavy_sweeps_total"
    wait_until(
        lambda: after.update(values(stand.read_log(0))) or after[sweeps] > first[sweeps],
        stand.running,
        START_SECONDS,
    )
    traps = [
        dict(each.series.labels)["trap"]
        for each in stand.read_log(0)
        if isinstance(each, Sample) and each.series.metric == "fabric_subnet_manager_traps_total"
    ]
    assert "128" in traps
    engines = [
        dict(each.series.labels)["engine"]
        for each in stand.read_log(0)
        if isinstance(each, Sample) and each.series.metric == "fabric_subnet_manager_routing_info"
    ]
    assert engines == ["minhop"]
