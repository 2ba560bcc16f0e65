"""Probes on a simulated cluster: a grey link is found before a job runs, and by them alone."""

import numpy as np
import pytest

from alerts.detectors import discover as detectors
from alerts.finding import Finding
from alerts.window.model import Window
from collector.contract.probes import LOST, SENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit
from simulator.engine import Simulation
from simulator.faults import BEFORE_JOBS, before_jobs, discover
from simulator.faults.grey_link import GreyLink
from simulator.faults.model import FOREVER, Cluster, Fault, Injection, Place
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.readings.probes import ProbeMesh
from simulator.scenario import Scenario, truth_of
from simulator.score.direct.windows import DirectWindows
from simulator.topology.build import ClusterSpec, build
from simulator.topology.world import World
from tests.worlds.simulated_cluster import small_cluster

GREY = before_jobs()["grey_link"]
HOSTS = 8
SECONDS, WINDOW_SECONDS, TICK_SECONDS = 100.0, 90, 1.0
"""A window holds 60 probes of a pair: 18 rounds of four flows are 72."""
MESH = ProbeMesh(peers=HOSTS - 1)
CLUSTER = small_cluster(hosts=HOSTS)
TOPOLOGY = build(CLUSTER)
IDLE = Cluster(TOPOLOGY, ())


def play(
    fault: Fault | None,
    place: Place,
    mesh: ProbeMesh | None,
    strength: float,
    cluster: ClusterSpec = CLUSTER,
) -> Window:
    """The last window of an idle cluster."""
    struck = () if fault is None else (Injection(fault, place, 1.0, SECONDS + 1, strength),)
    scenario = Scenario(
        cluster=cluster,
        jobs=(),
        injections=struck,
        seconds=SECONDS,
        tick_seconds=TICK_SECONDS,
    )
    simulation = Simulation(scenario)
    windows = DirectWindows(simulation.topology, scenario.start_unix_ns, TICK_SECONDS)
    reporter = Reporter(
        simulation.topology, "c", scenario.start_unix_ns, 1, wanted=windows.wanted, probes=mesh
    )
    now_ns = scenario.start_unix_ns
    for snapshot in simulation.run():
        now_ns = scenario.start_unix_ns + round(snapshot.time_s * NS)
        windows.take(snapshot, list(reporter.unpacked(snapshot)), now_ns)
    return windows.read(now_ns - WINDOW_SECONDS * NS, now_ns)


class EveryLink(GreyLink):
    """Some links lose a tenth of all packets, silently."""

    def __init__(self, links: tuple[int, ...]) -> None:
        self._links = list(links)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        del place, strength, elapsed_s
        world.link_loss[self._links] = 0.1
        return FOREVER


def found(window: Window) -> list[Finding]:
    """What any detector finds."""
    return [each for detect in detectors().values() for each in detect(window)]


@pytest.mark.parametrize("seed", range(2))
def test_a_grey_link_is_named_before_a_job_runs_and_by_probes_alone(seed: int) -> None:
    place = GREY.choose(IDLE, np.random.default_rng(seed))
    window = play(GREY, place, MESH, 1.0)
    (finding,) = found(window)
    injection = Injection(GREY, place, 1.0, SECONDS, 1.0)
    truth = truth_of(injection, IDLE, window.from_ns)
    assert (finding.detector, finding.cause) == ("probe_loss", Cause.LOSSY_LINK)
    assert finding.cause in truth.causes
    assert finding.culprit in truth.culprits
    assert finding.culprit == Culprit(host=TOPOLOGY.host_name(place.host))
    assert finding.is_context, "a warning: no job is slow"
    assert found(play(GREY, place, None, 1.0)) == [], "nothing else shows it"


def test_a_healthy_idle_cluster_that_probes_itself_is_silent() -> None:
    window = play(None, Place(), MESH, 0.0)
    names = [name for name in window.hosts.readings if name.startswith("probe_sent_total:")]
    assert len(names) == HOSTS * TOPOLOGY.nics_per_host
    assert found(window) == []


def test_a_switch_that_loses_is_no_hosts_fault() -> None:
    """All that a spine carries is bad alike: the rails are named, and no host."""
    links = np.flatnonzero(np.arange(TOPOLOGY.links) >= TOPOLOGY.first_fabric_link)
    place = Place(link=int(links[0]), switch=int(TOPOLOGY.target_switch[links[0]]))
    findings = found(play(discover()["spine_loss"], place, MESH, 1.0))
    assert all(finding.culprit == Culprit() for finding in findings)


@pytest.mark.parametrize("lossy", ["uplinks", "cable"])
def test_the_only_host_of_a_leaf_is_not_told_from_it_and_not_accused(lossy: str) -> None:
    """The same probes are lost in both cases; what would decide is said."""
    cluster = small_cluster(hosts=HOSTS, gpus_per_host=1, nics_per_host=1, hosts_per_leaf=1)
    topology = build(cluster)
    leaf = int(topology.target_switch[topology.up(3)])
    links = np.arange(topology.first_fabric_link, topology.links)
    at_leaf = links[
        (topology.source_switch[links] == leaf) | (topology.target_switch[links] == leaf)
    ]
    places = at_leaf.tolist() if lossy == "uplinks" else [topology.up(3)]
    window = play(EveryLink(tuple(places)), Place(), MESH, 1.0, cluster)
    (finding,) = found(window)
    assert finding.culprit == Culprit()
    name = topology.switches[leaf].name
    assert f"unknown: one of node0003 and its leaf {name}" in finding.evidence[0].text
    assert f"what decides: probes from another host at {name}" in finding.evidence[0].text


def test_probes_that_are_not_asked_for_are_not_sent() -> None:
    reporter = Reporter(TOPOLOGY, "c", 0, 1)
    simulation = Simulation(Scenario(cluster=CLUSTER, jobs=(), seconds=6.0))
    sent = {
        metric
        for snapshot in simulation.run()
        for batch in reporter.unpacked(snapshot)
        for metric, _ in batch.series_rows()
    }
    assert not sent & {SENT, LOST}


def test_a_host_that_is_down_answers_nobody_and_counts_nothing() -> None:
    window = play(discover()["idle_host_reboot"], Place(host=3), MESH, 1.0)
    assert all(
        one.culprit in (Culprit(), Culprit(host=TOPOLOGY.host_name(3))) for one in found(window)
    )


def test_the_fault_turns_its_own_link_alone_and_scoreboards_do_not_draw_it() -> None:
    world = World(TOPOLOGY, np.random.default_rng(1))
    place = GREY.choose(IDLE, np.random.default_rng(7))
    before = world.link_loss.copy()
    GREY.apply(world, place, 1.0, 0.0)
    assert np.flatnonzero(world.link_loss != before).tolist() == [place.link]
    assert not BEFORE_JOBS & set(discover())
    assert not GREY.fits(Cluster(TOPOLOGY, (everywhere(),)))


def everywhere() -> JobSpec:
    return JobSpec(name="all", hosts=tuple(range(HOSTS)))
