"""What simulated agents report of NCCL's RAS: standstills, by counts of launches."""

import numpy as np
import pytest

from collector.contract.communicator import COMMUNICATOR
from collector.contract.ras import Presence, RasReport, decode_report
from collector.contract.units import NS
from simulator.readings.ras import RasSection
from simulator.snapshot import Snapshot
from simulator.topology.model import Topology
from tests.worlds.simulated import make_topology
from tests.worlds.simulated_jobs import make_busy_snapshot, make_hang, make_job

MISSING = 21
"""A rank of the third host: the first two are asked."""


@pytest.fixture(scope="module")
def topology() -> Topology:
    return make_topology(hosts=4)


def hung(topology: Topology, rank: int = MISSING) -> Snapshot:
    return make_busy_snapshot(
        topology,
        jobs=[make_job(topology, hung_since_s=100.0)],
        standing=[make_hang(topology, rank)],
        time_s=120.0,
    )


def reports(topology: Topology, snapshot: Snapshot, host: int = 0) -> dict[str, RasReport]:
    section = RasSection(topology)
    section.read(snapshot, np.ones(topology.hosts, dtype=np.bool_))
    found = {}
    for event in section.events(host):
        report = decode_report(event)
        assert report is not None
        found[event.labels[COMMUNICATOR]] = report
    return found


def test_nothing_is_reported_of_a_job_that_moves(topology: Topology) -> None:
    assert reports(topology, make_busy_snapshot(topology)) == {}


def test_a_rank_that_never_launched_is_one_behind(topology: Topology) -> None:
    (report,) = reports(topology, hung(topology)).values()
    (odd,) = report.odd
    assert (odd.world, odd.presence) == (MISSING, Presence.ANSWERS)
    assert odd.launched == {"all_reduce": 42}
    assert report.launched == {"all_reduce": 43}
    assert report.standing_ns == 20 * NS


def test_processes_of_a_host_that_are_stopped_do_not_answer(topology: Topology) -> None:
    snapshot = hung(topology)
    host = MISSING // topology.gpus_per_host
    snapshot.world.host_process_is_stopped[host] = True
    try:
        found = reports(topology, snapshot)
        gone = {
            one.world
            for report in found.values()
            for one in report.odd
            if one.presence is Presence.UNRESPONSIVE
        }
        first = host * topology.gpus_per_host
        assert gone == set(range(first, first + topology.gpus_per_host))
    finally:
        snapshot.world.host_process_is_stopped[host] = False


def test_a_host_whose_processes_are_stopped_gets_no_answer(topology: Topology) -> None:
    snapshot = hung(topology)
    snapshot.world.host_process_is_stopped[0] = True
    try:
        assert reports(topology, snapshot, host=0) == {}
        assert reports(topology, snapshot, host=1)
    finally:
        snapshot.world.host_process_is_stopped[0] = False


def test_only_the_first_two_hosts_of_a_job_report(topology: Topology) -> None:
    snapshot = hung(topology)
    told = [bool(reports(topology, snapshot, host)) for host in range(topology.hosts)]
    assert told == [True, True, *[False] * (topology.hosts - 2)]
