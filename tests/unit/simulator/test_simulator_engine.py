"""The whole simulator: what its parts owe each other, on clusters that fit into a second."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from collector.contract.collective import Operation, State
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Fault, Injection, Place
from simulator.faults.places import HostFault, nic_place, reboots
from simulator.jobs.model import JobSpec
from simulator.pattern import Algorithm
from simulator.scenario import Scenario
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric
from simulator.topology.world import World
from tests.worlds.simulated_cluster import (
    BUCKET_BYTES,
    GPUS_PER_HOST,
    JOB_HOSTS,
    Strike,
    Watched,
    digest,
    small_cluster,
    small_job,
    small_scenario,
    strike,
)

FAULTS = discover()
FABRICS = (Fabric.INFINIBAND, Fabric.ROCE)
TROUBLES = (
    "lost_packets",
    "corrupted_packets",
    "dropped_packets",
    "marked_packets",
    "paused_us",
    "pause_frames",
    "wait_ns",
    "symbol_errors",
    "recoveries",
    "downs",
)
"""Counters of links that stay at zero while all is well."""
PACKET_BYTES = {Fabric.INFINIBAND: 4096 + 26, Fabric.ROCE: 4096 + 82}
"""Of a full packet on the wire, by the standards' headers."""
ROOT = Path(__file__).parents[3]


# Nothing appears, nothing disappears -------------------------------------------------------------


def imbalance(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray]:
    """For each switch and each NIC: packets that came in and did not go out, and all that passed.

    What was lost on a link never came in; what was dropped in front of a link never went out.
    """
    topology, links = snapshot.topology, snapshot.links
    nodes = 2 * topology.nics + len(topology.switches)
    came, went = np.zeros(nodes), np.zeros(nodes)
    np.add.at(came, topology.target, links.packets - links.lost_packets)
    np.add.at(went, topology.source, links.packets + links.dropped_packets)
    passing = slice(topology.nics, None)
    return (came - went)[passing], came[passing]


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("shape", ["rail", "fat_tree", "dragonfly", "single"])
def test_what_enters_a_switch_or_a_nic_leaves_it(shape: str, fabric: Fabric) -> None:
    watched = Watched.start(small_scenario(fabric, cluster=small_cluster(fabric, topology=shape)))
    snapshot = watched.until(8.0)
    left, passed = imbalance(snapshot)
    # Each link's packets are rounded down by themselves.
    assert np.abs(left).max() <= 2 * snapshot.topology.links
    assert passed.max() > 1e7
    packets = snapshot.links.bytes / PACKET_BYTES[fabric]
    np.testing.assert_allclose(packets, snapshot.links.packets, atol=1.0)


@pytest.mark.parametrize(
    ("name", "fabric"),
    [
        ("slow_receiver", Fabric.ROCE),
        ("slow_receiver", Fabric.INFINIBAND),
        ("bad_cable", Fabric.INFINIBAND),
        ("spine_loss", Fabric.ROCE),
        ("pfc_misconfigured", Fabric.ROCE),
    ],
)
def test_it_leaves_also_where_packets_wait_or_get_lost(name: str, fabric: Fabric) -> None:
    watched = Watched.start(small_scenario(fabric))
    strike(watched, FAULTS[name], when=Strike(begin_s=2.5))
    snapshot = watched.until(10.0)
    left, _ = imbalance(snapshot)
    gone = snapshot.links.lost_packets.sum() + snapshot.links.dropped_packets.sum()
    # Losses are drawn by chance, what went on is an expectation: they differ by a few roots.
    assert np.abs(left).max() <= 8 * np.sqrt(gone) + 2 * snapshot.topology.links


def test_a_nic_sends_what_its_ranks_collectives_ask_for_and_headers() -> None:
    steps = 6
    watched = Watched.start(small_scenario(Fabric.ROCE, small_job(steps=steps)))
    snapshot = watched.until(20.0)
    assert not snapshot.jobs[0].is_running
    topology = snapshot.topology
    rings = [
        block
        for block in watched.blocks()
        if block.operation is Operation.ALL_REDUCE and block.size_bytes == BUCKET_BYTES
    ]
    assert sum(len(block.members) for block in rings) == steps * 4 * GPUS_PER_HOST
    assert {block.algorithm for block in rings} == {Algorithm.RING}
    payload = np.zeros(topology.nics)
    for block in rings:
        of_rank = 2 * (JOB_HOSTS - 1) / JOB_HOSTS * block.size_bytes
        np.add.at(payload, snapshot.jobs[0].rank_nic[block.members], of_rank)
    nic = np.arange(topology.nics, dtype=np.int32)
    expected = payload * PACKET_BYTES[Fabric.ROCE] / 4096
    for link in (topology.pcie_out, topology.up, topology.down, topology.pcie_in):
        np.testing.assert_allclose(snapshot.links.bytes[link(nic)], expected, rtol=0.006)


# Collectives take as long as their slowest edge ---------------------------------------------------


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("share_left", [1.0, 0.5, 0.1])
def test_a_ring_takes_as_long_as_its_slowest_edge(fabric: Fabric, share_left: float) -> None:
    watched = Watched.start(small_scenario(fabric, small_job(jitter=0.0, hiccup_every_steps=0.0)))
    # A knob of the world itself: no fault has to be found that leaves exactly so much.
    watched.simulation.world.nic_send_share[2] = share_left
    watched.until(10.0)
    edge = 400e9 * share_left * 4096 / PACKET_BYTES[fabric] / 8
    expected = 2 * (JOB_HOSTS - 1) / JOB_HOSTS * BUCKET_BYTES / edge
    blocks = watched.reductions(1.0, 10.0)
    assert len(blocks) > 3
    rail = np.array([[rank % GPUS_PER_HOST == 0 for rank in row] for row in blocks[0].members])
    slow = rail.all(axis=1)
    assert slow.sum() == 1
    took = np.array([(block.exit_s.max(axis=1) - block.entry_s.max(axis=1)) for block in blocks])
    assert np.median(took[:, slow]) == pytest.approx(expected, rel=0.01)
    assert np.median(took[:, ~slow]) == pytest.approx(expected * share_left, rel=0.01)


# Health -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_healthy_cluster_has_nothing_to_complain_of_in_five_minutes(fabric: Fabric) -> None:
    job = small_job(compute_seconds=2.0, gradient_bytes=16 << 30)
    watched = Watched.start(small_scenario(fabric, job, seconds=300.0))
    snapshot = watched.until(300.0)
    for name in TROUBLES:
        assert not getattr(snapshot.links, name).any(), name
    for name, counts in vars(snapshot.nics).items():
        assert not counts.any(), name
    is_wire = snapshot.links.bits > 0
    assert (snapshot.links.corrected_bits[is_wire] > 0).all(), "correction has nothing to do"
    assert not snapshot.gpus.throttle_reasons[snapshot.jobs[0].rank_gpu].any()
    assert all(one.reporting.all() for one in watched.seen)
    assert not [happening for one in watched.seen for happening in one.happenings]
    lengths = [np.median(step.end_s - step.start_s) for step in watched.steps()]
    assert len(lengths) > 100
    assert np.std(lengths) / np.mean(lengths) < 0.01


# The same seed, the same bytes --------------------------------------------------------------------


def lively_scenario(seed: int = 1) -> Scenario:
    """Two jobs, a fault with chance in it and one with congestion."""
    first, second = small_job(hosts=(0, 1)), small_job(name="other", hosts=(2, 3), jitter=0.02)
    scenario = small_scenario(Fabric.ROCE, first, second, seed=seed, seconds=8.0)
    topology = Simulation(scenario).topology
    return replace(
        scenario,
        injections=(
            Injection(FAULTS["bad_cable"], nic_place(topology, 0), 1.25, 6.0, 1.0),
            Injection(FAULTS["slow_receiver"], nic_place(topology, 5), 2.5, 7.0, 1.0),
            Injection(FAULTS["telemetry_loss"], Place(host=1), 1.0, 9.0, 1.0),
        ),
    )


ONE_DIGEST = """
from pathlib import Path
from tests.worlds.simulated_cluster import digest
from tests.unit.simulator.test_simulator_engine import lively_scenario
print(digest(lively_scenario(), Path({folder!r})))
"""


def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    ours = digest(lively_scenario(), tmp_path / "ours")
    assert (tmp_path / "ours" / "truth.json").exists()
    script = ONE_DIGEST.format(folder=str(tmp_path / "theirs"))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ours


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    assert digest(lively_scenario(1), tmp_path / "one") != digest(
        lively_scenario(2), tmp_path / "two"
    )


# Faults come and go -------------------------------------------------------------------------------


def test_overlapping_faults_both_hurt_and_either_may_end_first() -> None:
    watched = Watched.start(small_scenario(seconds=40.0))
    topology = watched.simulation.topology
    simulation = watched.simulation
    simulation.inject(Injection(FAULTS["slow_nic"], nic_place(topology, 0), 10.0, 30.0, 1.0))
    simulation.inject(Injection(FAULTS["slow_loader"], Place(host=2), 20.0, 40.0, 1.0))
    watched.until(50.0)
    healthy = watched.step_seconds(1.0, 10.0)
    nic_alone = watched.step_seconds(11.0, 20.0) - healthy
    both = watched.step_seconds(22.0, 30.0) - healthy
    loader_alone = watched.step_seconds(32.0, 40.0) - healthy
    assert nic_alone > 0.5
    assert loader_alone == pytest.approx(0.6, abs=0.1)
    assert both == pytest.approx(nic_alone + loader_alone, rel=0.1)
    assert watched.step_seconds(42.0, 50.0) == pytest.approx(healthy, rel=0.02)


def test_a_live_injection_begins_at_once_and_tells_the_truth() -> None:
    watched = Watched.start(small_scenario())
    watched.until(8.0)
    simulation = watched.simulation
    place = nic_place(simulation.topology, 4)
    truth = simulation.inject(Injection(FAULTS["slow_nic"], place, 0.0, 60.0, 1.0))
    assert truth.culprits[0].host == "node0002"
    assert truth.fault == "slow_nic"
    watched.until(20.0)
    assert watched.step_seconds(9.0, 20.0) > 2 * watched.step_seconds(1.0, 8.0)


def test_a_fault_may_begin_and_end_within_one_tick() -> None:
    watched = Watched.start(small_scenario())
    place = nic_place(watched.simulation.topology, 4)
    watched.simulation.inject(Injection(FAULTS["nic_dead"], place, 5.2, 5.6, 1.0))
    watched.until(10.0)
    kinds = [(one.kind, one.time_s) for seen in watched.seen for one in seen.happenings]
    assert kinds == [("link_down", 5.2)] * 2 + [("link_up", 5.6)] * 2
    assert watched.last.links.downs.sum() == 2
    longest = max(float((step.end_s - step.start_s).max()) for step in watched.steps())
    # The ring stands while the link is down: some of it may have been computing anyway.
    assert watched.step_seconds(1.0, 5.0) + 0.1 < longest < watched.step_seconds(1.0, 5.0) + 0.41


def test_what_is_lost_without_a_trace_is_never_counted_as_damaged() -> None:
    watched = Watched.start(small_scenario())
    strike(watched, FAULTS["spine_loss"])
    watched.until(40.0)
    assert watched.last.links.lost_packets.sum() > 1e5
    assert watched.last.links.corrupted_packets.sum() == 0


# Jobs come and go ---------------------------------------------------------------------------------


def test_a_job_starts_up_steps_and_leaves_its_nics_quiet() -> None:
    job = small_job(start_s=3.0, startup_seconds=2.0, steps=5)
    watched = Watched.start(small_scenario(Fabric.INFINIBAND, job))
    assert not watched.until(2.0).jobs[0].is_running
    assert watched.until(4.0).jobs[0].is_running
    assert not watched.last.links.bytes.any()
    watched.until(15.0)
    assert not watched.last.jobs[0].is_running
    assert watched.last.jobs[0].step == 5
    assert [step.step for step in watched.steps()] == list(range(5))
    assert watched.steps()[0].start_s.min() >= 5.0
    over_s = np.ceil(watched.steps()[-1].end_s.max()) + 1
    assert not watched.links("bytes", over_s, 15.0).any()
    used = watched.last.jobs[0].rank_gpu
    assert watched.at(6.0).gpus.power_watts[used].min() > watched.last.gpus.power_watts[used].max()
    assert (watched.last.gpus.utilization_share[used] == 0).all()


def test_two_jobs_on_the_same_fabric_do_not_wait_for_each_other() -> None:
    quick = small_job(name="quick", hosts=(0, 2), compute_seconds=0.1)
    slow = small_job(name="slow", hosts=(1, 3), compute_seconds=1.0)
    watched = Watched.start(small_scenario(Fabric.INFINIBAND, quick, slow))
    watched.until(20.0)
    assert watched.step_seconds(1.0, 20.0, "quick") < 0.3
    assert watched.step_seconds(1.0, 20.0, "slow") > 0.9


class HostReboot(HostFault):
    """A host of a job goes down and comes back."""

    name = "host_reboot"
    title = "A host of a job reboots."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Once, for some five seconds."""
        return reboots(world, place, elapsed_s, 5.0 * strength, 1e9)


def test_a_job_whose_host_reboots_stands_still_and_goes_on() -> None:
    watched = Watched.start(small_scenario())
    watched.simulation.inject(Injection(HostReboot(), Place(host=1), 6.5, 60.0, 1.0))
    watched.until(9.0)
    assert watched.last.reporting.tolist() == [True, False, True, True, True, True]
    watched.until(25.0)
    topology = watched.last.topology
    up = topology.up(np.array([2, 3], dtype=np.int32))
    reboot = next(one for seen in watched.seen for one in seen.happenings if one.kind == "reboot")
    assert reboot.host == 1
    assert 9.0 < reboot.time_s < 14.0
    assert (watched.last.host_links.bytes[up] < 0.8 * watched.last.links.bytes[up]).all()
    for one, next_one in pairwise(watched.seen):
        assert (next_one.links.bytes[up] >= one.links.bytes[up]).all(), "a switch has forgotten"
    booted = watched.last.hosts.boot_unix_ns - watched.seen[0].hosts.boot_unix_ns
    assert (booted != 0).tolist() == [False, True, False, False, False, False]
    assert watched.links("downs", 1.0, 25.0)[up].tolist() == [1, 1]
    before, after = watched.step_seconds(1.0, 6.5), watched.step_seconds(16.0, 25.0)
    assert after == pytest.approx(before, rel=0.02)


def test_a_job_that_hangs_is_dumped_once_and_may_go_on() -> None:
    watched = Watched.start(small_scenario(seconds=60.0))
    fault: Fault = FAULTS["hang_not_launched"]
    watched.simulation.inject(Injection(fault, Place(host=3), 5.5, 30.0, 1.0))
    watched.until(60.0)
    dumps = [dump for one in watched.seen for dump in one.dumps]
    assert len(dumps) == 1
    assert 17.0 < dumps[0].time_s < 20.0
    assert dumps[0].blocks[-1].state is State.STARTED
    assert watched.last.jobs[0].hung_since_s is None
    after = watched.step_seconds(32.0, 60.0)
    assert after == pytest.approx(watched.step_seconds(1.0, 5.0), rel=0.02)


# Larger ones --------------------------------------------------------------------------------------


def wide_job(hosts: int, **changes: object) -> JobSpec:
    """A job on all hosts of a large cluster with one GPU each."""
    values = {"tensor": 1, "compute_seconds": 2.0, "gradient_bytes": 4 << 30, "buckets": 2}
    return small_job(**{"hosts": tuple(range(hosts)), **values, **changes})


def large(shape: str, fabric: Fabric, hosts: int, **order: int | None) -> ClusterSpec:
    """A large cluster with one NIC for each host."""
    one_each = {"gpus_per_host": 1, "nics_per_host": 1, "hosts_per_leaf": None}
    return small_cluster(fabric, topology=shape, hosts=hosts, **(one_each | order))


@pytest.mark.parametrize(
    ("spec", "tiers"),
    [
        (large("rail", Fabric.ROCE, 320), 2),
        (large("dragonfly", Fabric.INFINIBAND, 64, hosts_per_leaf=4), 1),
        (large("fat_tree", Fabric.INFINIBAND, 64, switch_ports=8, hosts_per_leaf=4), 3),
    ],
    ids=["rail", "dragonfly", "fat_tree"],
)
def test_large_clusters_of_every_shape_run(spec: ClusterSpec, tiers: int) -> None:
    watched = Watched.start(small_scenario(spec.fabric, wide_job(spec.hosts), cluster=spec))
    snapshot = watched.until(10.0)
    assert len(watched.steps()) > 1
    assert len({switch.tier for switch in snapshot.topology.switches}) == tiers
    left, passed = imbalance(snapshot)
    assert np.abs(left).max() <= 2 * snapshot.topology.links
    assert passed.max() > 1e6


# Peaks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fabric", FABRICS)
def test_over_trees_all_but_the_slow_nic_send_ahead(fabric: Fabric) -> None:
    """While the operations last the slow one is at its mean, and no other; before, none is far."""
    job = small_job(tree_bytes_max=1 << 60)
    simulation = Simulation(small_scenario(fabric, job, seconds=20.0))
    topology = simulation.topology
    nics = np.arange(JOB_HOSTS, dtype=np.int32) * GPUS_PER_HOST
    slow = 1
    place = nic_place(topology, int(nics[slow]))
    simulation.inject(Injection(FAULTS["slow_nic"], place, 9.0, 20.0, 0.8))
    above = {}
    sent = np.zeros(topology.links, dtype=np.int64)
    for snapshot in simulation.run():
        up = topology.up(nics)
        mean = (snapshot.links.bytes - sent)[up] / snapshot.interval_s
        sent = snapshot.links.bytes
        assert (snapshot.burst_bytes[up] >= mean).all()
        assert (snapshot.burst_bytes[up] <= topology.bits_per_second[up] / 8).all()
        above[snapshot.time_s] = snapshot.burst_bytes[up] / np.maximum(mean, 1.0)
    late = above[max(above)]
    assert late.argmin() == slow
    assert late[slow] < 0.75 * np.delete(late, slow).min()
    healthy = above[7.0]
    assert np.ptp(healthy) < 0.25 * healthy.min()
