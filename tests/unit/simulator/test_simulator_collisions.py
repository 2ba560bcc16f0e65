"""Chance collisions: recorded where flows of jobs do meet on a cable, and nowhere else."""

from collections import Counter

import numpy as np
import pytest

from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults.ecmp_polarised import FAULT
from simulator.faults.model import Injection, Place
from simulator.faults.storage_neighbour import FAULT as NEIGHBOUR
from simulator.jobs.model import JobSpec
from simulator.scenario import Collision, Scenario
from simulator.topology.build import ClusterSpec
from simulator.topology.model import NO_LINK, Fabric
from simulator.topology.routing import route

RED, BLUE = "red", "blue"
FAULT_SECOND = 3.0


def scenario(seed: int, *jobs: str) -> Scenario:
    """Two jobs whose hosts alternate on two leaves: their rings cross the same spines."""
    hosts = {RED: (0, 2), BLUE: (1, 3)}
    return Scenario(
        cluster=ClusterSpec(
            topology="fat_tree",
            hosts=4,
            gpus_per_host=2,
            nics_per_host=2,
            speed="100GbE",
            fabric=Fabric.ROCE,
            hosts_per_leaf=2,
        ),
        jobs=tuple(
            JobSpec(
                name=name,
                hosts=hosts[name],
                tensor=2,
                gradient_bytes=2 << 30,
                compute_seconds=0.3,
                startup_seconds=1.0,
            )
            for name in jobs
        ),
        seed=seed,
        seconds=10.0,
        tick_seconds=1.0,
    )


def play(simulation: Simulation) -> list[Collision]:
    for _ in simulation.run():
        pass
    return simulation.collisions()


def flows_by_job(simulation: Simulation) -> Counter[tuple[str, str, str]]:
    """Connections of each job over each port of a switch, as the routes have them."""
    topology = simulation.topology
    found: set[tuple[str, str, str, int, int, int]] = set()
    for one in simulation.patterns:
        path = route(simulation.world, one.flow_source, one.flow_target, one.flow_key)
        for flow, hop in zip(*np.nonzero(path >= topology.first_fabric_link), strict=True):
            link = int(path[flow, hop])
            assert link != NO_LINK
            switch = topology.switches[int(topology.source_switch[link])].name
            who = (int(one.flow_source[flow]), int(one.flow_target[flow]), int(one.flow_key[flow]))
            found.add((switch, topology.switch_port_name(link), one.name.split("/")[0], *who))
    return Counter((switch, port, job) for switch, port, job, *_ in found)


@pytest.mark.parametrize("seed", [1, 6])
def test_what_is_recorded_is_what_the_routes_have(seed: int) -> None:
    simulation = Simulation(scenario(seed, RED, BLUE))
    found = play(simulation)
    flows = flows_by_job(simulation)
    assert any(one.jobs == (BLUE, RED) and one.lost_share > 0.2 for one in found)
    for one in found:
        port = one.culprits[0].switch, str(one.culprits[0].switch_port)
        assert all(flows[*port, job] for job in one.jobs), "a job that is named sends over it"
        assert sum(flows[*port, job] for job in (RED, BLUE)) > 1
        assert 0.0 < one.lost_share < 1.0
        assert 0 <= one.start_ns - simulation.scenario.start_unix_ns < one.end_ns


def test_ports_that_one_flow_has_to_itself_are_in_no_record() -> None:
    simulation = Simulation(scenario(1, RED, BLUE))
    named = {(one.culprits[0].switch, one.culprits[0].switch_port) for one in play(simulation)}
    flows = flows_by_job(simulation)
    total: Counter[tuple[str, str]] = Counter()
    for (switch, port, _), count in flows.items():
        total[switch, port] += count
    lonely = {port for port, count in total.items() if count == 1}
    assert lonely
    assert not named & lonely


def test_a_job_beside_nobody_meets_no_other() -> None:
    assert all(one.jobs == (RED,) for one in play(Simulation(scenario(4, RED))))


def test_bytes_of_others_on_a_job_s_cable_are_a_collision() -> None:
    """A checkpoint that another host's server sends lies on a cable with one flow of the job."""
    found = 0
    for seed in range(6):
        whole = scenario(seed, RED)
        simulation = Simulation(whole)
        lonely = {
            (switch, port)
            for (switch, port, _), count in flows_by_job(simulation).items()
            if count == 1
        }
        target = 2 * simulation.topology.nics_per_host
        peers = tuple(range(simulation.topology.nics_per_host, target))
        place = Place(host=2, nic=target, peers=peers)
        simulation.inject(
            Injection(NEIGHBOUR, place, start_s=FAULT_SECOND, end_s=whole.seconds, strength=1.0)
        )
        begin = whole.start_unix_ns + FAULT_SECOND * NS
        for one in play(simulation):
            port = one.culprits[0].switch, str(one.culprits[0].switch_port)
            if port in lonely:
                found += 1
                assert one.jobs == (RED,)
                assert one.start_ns >= begin, "before that the job's flow was alone there"
    assert found


def test_what_a_fault_makes_flows_do_is_no_chance() -> None:
    """While switches hash badly nothing is chance."""
    whole = scenario(1, RED, BLUE)
    simulation = Simulation(whole)
    place = FAULT.choose(simulation.cluster, np.random.default_rng(1))
    simulation.inject(
        Injection(FAULT, place, start_s=FAULT_SECOND, end_s=whole.seconds, strength=1.0)
    )
    begin = whole.start_unix_ns
    found = play(simulation)
    assert found
    assert all(one.end_ns - begin <= FAULT_SECOND * 1e9 for one in found)
