"""Faults turn knobs at the place that they name, and nothing else."""

import copy
import math
import re
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from collector.contract.collective import Operation
from collector.contract.errors import ContractError
from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults import SUPPORT, before_jobs, discover
from simulator.faults.model import FOREVER, Cluster, Fault, Place
from simulator.faults.places import crossed_links, toggles, used_links
from simulator.jobs.model import JobSpec
from simulator.pattern import Algorithm, Pattern
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric, LinkKind, Topology
from simulator.topology.world import Knobs, World

FAULTS = discover()
HARMFUL = {name: fault for name, fault in FAULTS.items() if fault.causes}
HARMLESS = {name: fault for name, fault in FAULTS.items() if not fault.causes}
IDLE_HOSTS = {12, 13, 14, 15}
JOBS = (
    JobSpec(name="large", hosts=(0, 1, 2, 3, 4, 5, 6, 7)),
    JobSpec(name="small", hosts=(11, 9, 10)),
    JobSpec(name="alone", hosts=(8,)),
)


def make_topology(shape: str = "fat_tree", fabric: Fabric = Fabric.ROCE) -> Topology:
    speed = "400GbE" if fabric is Fabric.ROCE else "NDR"
    return build(
        ClusterSpec(
            topology=shape, hosts=16, fabric=fabric, speed=speed, hosts_per_leaf=4, switch_ports=128
        )
    )


TOPOLOGY = make_topology()
CLUSTER = Cluster(TOPOLOGY, JOBS)


def knobs_of(world: World) -> dict[str, object]:
    return {field.name: copy.deepcopy(getattr(world, field.name)) for field in fields(Knobs)}


def changes(world: World, healthy: dict[str, object]) -> dict[str, np.ndarray]:
    """Knob to the places where it differs from healthy."""
    changed = {}
    for name, value in healthy.items():
        now = getattr(world, name)
        where = np.array([0] * len(now)) if name == "background" else np.flatnonzero(now != value)
        if len(where):
            changed[name] = where
    return changed


def new_world(topology: Topology = TOPOLOGY) -> World:
    return World(topology, np.random.default_rng(5))


# --- finding them ------------------------------------------------------------------------------


def test_every_file_of_the_folder_is_a_fault_with_a_sentence() -> None:
    folder = Path(__file__).parents[3] / "simulator/faults"
    files = {file.stem for file in folder.glob("*.py")} - SUPPORT - {"__init__"}
    assert sorted([*FAULTS, *before_jobs()]) == sorted(files)
    assert len(files) >= 33
    titles = [fault.title for fault in FAULTS.values()]
    assert len(set(titles)) == len(titles)
    assert all(title.endswith(".") and title[0].isupper() for title in titles)


def test_every_cause_but_the_unnamed_stall_has_a_fault() -> None:
    causes = {cause for fault in FAULTS.values() for cause in fault.causes}
    # Dead processes and calls that differ are told by logs and dumps, which no fault writes yet.
    assert causes == set(Cause) - {Cause.STALL, Cause.CRASH, Cause.MISMATCH}
    # Why a file server is slow no host can see.
    without = {name for name, fault in HARMFUL.items() if fault.reason is Reason.UNKNOWN}
    assert without == {"slow_file_server"}


NEWCOMER = '''
"""A host that sleeps."""
from collector.contract.verdict import Cause
from simulator.faults.model import FOREVER
from simulator.faults.places import HostFault

class Sleeper(HostFault):
    """Sleeps."""
    name = "sleeper"
    title = "A host sleeps."
    causes = (Cause.STRAGGLER,)
    def apply(self, world, place, strength, elapsed_s):
        world.host_steal_share[place.host] = strength
        return FOREVER

FAULT = Sleeper()
'''


def test_a_file_in_another_folder_is_found_and_works(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(NEWCOMER)
    found = discover(tmp_path)
    assert list(found) == sorted([*FAULTS, "sleeper"])
    fault = found["sleeper"]
    place = fault.choose(CLUSTER, np.random.default_rng(1))
    world = new_world()
    assert fault.apply(world, place, 0.7, 0.0) == FOREVER
    assert world.host_steal_share[place.host] == 0.7
    assert fault.culprits(CLUSTER, place) == (Culprit(host=TOPOLOGY.host_name(place.host)),)


def test_the_example_of_the_how_to_works(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs/how-to/add-a-fault.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    (tmp_path / "nightly_backup.py").write_text(example)
    fault = discover(tmp_path)["nightly_backup"]
    world = new_world()
    change = fault.apply(world, Place(host=2), 1.0, 0.0)
    assert np.flatnonzero(world.host_io_stall_share).tolist() == [2]
    world.reset()
    assert fault.apply(world, Place(host=2), 1.0, change) > change
    assert not world.host_io_stall_share.any()


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("broken", "import nothing_like_this", "ModuleNotFoundError"),
        ("typo", "def", "SyntaxError"),
        ("empty", "", "must export FAULT"),
        ("other_name", NEWCOMER, "name = 'other_name'"),
        ("untitled", NEWCOMER.replace("title", "word").replace("sleeper", "untitled"), "title"),
        ("slow_nic", NEWCOMER, "already"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(ContractError, match=complaint) as caught:
        discover(tmp_path)
    assert f"{name}.py" in str(caught.value)


# --- where they strike -------------------------------------------------------------------------


STRIKING = {name: fault for name, fault in HARMFUL.items() if name != "slow_file_server"}
"""A file server is none of the cluster's: there is only one place for it, and all hosts see it."""


def hosts_of(place: Place) -> set[int]:
    hosts = {place.host} if place.host >= 0 else set()
    if place.nic >= 0:
        hosts.add(TOPOLOGY.host_of_nic(place.nic))
    if place.gpu >= 0:
        hosts.add(place.gpu // TOPOLOGY.gpus_per_host)
    if 0 <= place.link < TOPOLOGY.first_fabric_link:
        hosts.add(place.link % TOPOLOGY.nics // TOPOLOGY.nics_per_host)
    return hosts


@pytest.mark.parametrize("fault", STRIKING.values(), ids=list(STRIKING))
def test_a_fault_strikes_a_job_of_several_hosts(fault: Fault) -> None:
    used = {host for job in JOBS if len(job.hosts) > 1 for host in job.hosts}
    places = [fault.choose(CLUSTER, np.random.default_rng(seed)) for seed in range(60)]
    assert fault.fits(CLUSTER)
    assert all(hosts_of(place) <= used for place in places)
    assert all(any(number >= 0 for number in place[:5]) for place in places)
    assert len(set(places)) > 1
    if any(hosts_of(place) for place in places):
        assert {host for place in places for host in hosts_of(place)} > {9, 10}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_the_same_seed_strikes_the_same_place(fault: Fault) -> None:
    first, second = (fault.choose(CLUSTER, np.random.default_rng(7)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", ["counter_reset", "idle_host_reboot", "maintenance_flap"])
def test_what_happens_to_idle_hosts_leaves_jobs_alone(name: str) -> None:
    fault = FAULTS[name]
    for seed in range(30):
        assert hosts_of(fault.choose(CLUSTER, np.random.default_rng(seed))) <= IDLE_HOSTS
    full = Cluster(TOPOLOGY, (JobSpec(name="all", hosts=tuple(range(16))),))
    assert not fault.fits(full)
    nowhere = fault.choose(full, np.random.default_rng(1))
    world = new_world()
    healthy = knobs_of(world)
    fault.apply(world, nowhere, 1.0, 0.0)
    assert changes(world, healthy) == {}


@pytest.mark.parametrize("shape", ["fat_tree", "rail", "dragonfly"])
def test_links_between_switches_are_ones_that_neighbours_cross(shape: str) -> None:
    topology = make_topology(shape)
    links = crossed_links(Cluster(topology, JOBS[:1]))
    assert len(links)
    # Hosts 0 to 7 fill the first two leaves (of each rail), so the ring leaves those and no other.
    leaves = {int(topology.source_switch[topology.down(nic)]) for nic in range(8 * 8)}
    assert {int(leaf) for leaf in topology.source_switch[links]} <= leaves
    assert not (topology.kind[links] == LinkKind.FABRIC_DOWN).any()


def test_one_switch_has_no_links_between_switches_and_faults_fall_back_to_a_host() -> None:
    topology = build(ClusterSpec(topology="single", hosts=4, nics_per_host=1, gpus_per_host=1))
    cluster = Cluster(topology, (JobSpec(name="all", hosts=(0, 1, 2, 3), tensor=1),))
    place = FAULTS["spine_loss"].choose(cluster, np.random.default_rng(3))
    assert place.switch == -1
    assert topology.kind[place.link] == LinkKind.DOWN
    world = new_world(topology)
    FAULTS["spine_loss"].apply(world, place, 1.0, 0.0)
    assert np.flatnonzero(world.link_loss).tolist() == [place.link]
    assert not FAULTS["ecmp_polarised"].fits(cluster)


def test_a_cable_between_switches_is_one_that_is_used() -> None:
    some = crossed_links(CLUSTER)[[3]]
    cluster = replace(CLUSTER, used_links=some)
    places = [
        FAULTS["bad_cable"].choose(cluster, np.random.default_rng(seed)) for seed in range(40)
    ]
    between = {place.link for place in places if place.link >= TOPOLOGY.first_fabric_link}
    assert between == set(some.tolist())
    unknown = [
        FAULTS["bad_cable"].choose(CLUSTER, np.random.default_rng(seed)) for seed in range(40)
    ]
    assert all(place.link < TOPOLOGY.first_fabric_link for place in unknown)


def test_senders_are_as_many_as_wanted_and_on_idle_hosts() -> None:
    few = Cluster(TOPOLOGY, (JobSpec(name="most", hosts=tuple(range(14))),))
    for seed in range(10):
        place = FAULTS["incast"].choose(few, np.random.default_rng(seed))
        assert len(set(place.peers)) == 8
        assert {TOPOLOGY.host_of_nic(peer) for peer in place.peers} == {14, 15}


def test_links_that_flows_take_are_found_by_routing_them() -> None:
    world = new_world()
    # One flow from host 0 to host 7, which hang on different leaves.
    ones = np.ones(1, dtype=np.int32)
    pattern = Pattern(
        name="test",
        operation=Operation.ALL_REDUCE,
        algorithm=Algorithm.RING,
        size_bytes=1,
        members=np.zeros((1, 2), dtype=np.int32),
        communicators=("0x1",),
        flow_unit=ones,
        flow_source=0 * ones,
        flow_target=56 * ones,
        flow_member=ones,
        flow_peer=ones,
        flow_bytes=np.ones(1),
        flow_key=ones,
        is_coupled=True,
        floor_seconds=np.zeros(1),
    )
    used = used_links(world, [pattern])
    assert {TOPOLOGY.up(0), TOPOLOGY.down(56)} <= set(used.tolist())
    cluster = replace(CLUSTER, used_links=used)
    place = FAULTS["spine_loss"].choose(cluster, np.random.default_rng(1))
    assert place.link in used
    assert TOPOLOGY.kind[place.link] == LinkKind.FABRIC_UP


# --- what they do ------------------------------------------------------------------------------


def allowed(topology: Topology, place: Place, knob: str) -> set[int]:
    """Where this knob may be turned for a fault at this place."""
    if knob.startswith("link_"):
        links = {place.link, int(topology.reverse[place.link])}
        touching = (topology.source_switch == place.switch) | (
            topology.target_switch == place.switch
        )
        return links | (set(np.flatnonzero(touching).tolist()) if knob == "link_loss" else set())
    if knob.startswith("nic_"):
        return {place.nic}
    if knob.startswith("switch_"):
        return {place.switch}
    return {place.gpu} if knob.startswith("gpu_") else {place.host}


EVERYWHERE = {
    ("warm_aisle", "gpu_cooling_share"),
    ("equal_power_cap", "gpu_power_limit_share"),
    ("ecmp_polarised", "switch_hash_seed"),
    ("slow_file_server", "host_storage_seconds"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
@pytest.mark.parametrize("end", [0, 1])
def test_a_fault_turns_knobs_at_its_place_and_reset_heals(fault: Fault, end: int) -> None:
    world = new_world()
    healthy = knobs_of(world)
    derived = world.gpu_clock_share.copy()
    for seed in range(5):
        place = fault.choose(CLUSTER, np.random.default_rng(seed))
        change = fault.apply(world, place, fault.strengths[end], 0.0)
        assert change > 0.0
        changed = changes(world, healthy)
        assert changed, "it does nothing"
        for knob, where in changed.items():
            if knob == "background":
                ways = {(one.source_nic, one.target_nic) for one in world.background}
                into = {(peer, place.nic) for peer in place.peers}
                assert ways in (into, {(nic, peer) for peer, nic in into})
            elif (fault.name, knob) not in EVERYWHERE:
                assert set(where.tolist()) <= allowed(TOPOLOGY, place, knob), knob
        assert (world.gpu_clock_share == derived).all()
        world.reset()
        assert changes(world, healthy) == {}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_following_a_fault_s_own_times_ends_and_every_time_is_later(fault: Fault) -> None:
    world = new_world()
    place = fault.choose(CLUSTER, np.random.default_rng(2))
    elapsed, turns = 0.0, 0
    # A scenario's time is a sum: what comes back as elapsed time is a little off.
    while elapsed < 120.0:
        world.reset()
        change = fault.apply(world, place, 0.9, elapsed)
        assert change > elapsed + 1e-3
        elapsed = change - 1e-10
        turns += 1
    assert turns < 60


@pytest.mark.parametrize("name", ["link_flap", "maintenance_flap", "counter_reset"])
def test_flaps_go_back_and_forth_at_the_times_that_they_tell(name: str) -> None:
    fault, world = FAULTS[name], new_world()
    place = fault.choose(CLUSTER, np.random.default_rng(4))
    elapsed, states, times = 0.0, [], []
    while elapsed < 120.0:
        world.reset()
        times.append(elapsed)
        change = fault.apply(world, place, 0.8, elapsed)
        is_down = not world.link_up[place.link] or bool(world.host_is_down[place.host])
        assert world.link_up[place.link] == world.link_up[TOPOLOGY.reverse[place.link]]
        states.append(is_down)
        # Nothing changes before the returned time.
        world.reset()
        assert fault.apply(world, place, 0.8, (elapsed + change) / 2) == change
        elapsed = change
    assert states[0]
    assert all(one != other for one, other in pairwise(states))
    lengths = np.diff(times)
    assert len({round(length, 3) for length in lengths}) > 3, "real ones are not regular"
    down = sum(length for length, is_down in zip(lengths, states, strict=False) if is_down)
    assert 0.05 < down / times[-1] < 0.5


def test_toggles_of_two_links_differ() -> None:
    assert toggles(0.0, 2.0, 15.0, 3) != toggles(0.0, 2.0, 15.0, 4)


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_a_dying_gpu_is_dead_first_and_reported_later(strength: float) -> None:
    fault, world = FAULTS["gpu_death"], new_world()
    place = Place(host=3, gpu=25)
    noticed = fault.apply(world, place, strength, 0.0)
    assert world.gpu_is_dead[25]
    assert world.gpu_xid[25] == 0
    assert 1.0 < noticed < 30.0
    assert fault.apply(world, place, strength, noticed) == FOREVER
    assert world.gpu_xid[25] == 79


def test_failing_memory_is_reported_step_by_step() -> None:
    fault, world = FAULTS["gpu_ecc"], new_world()
    place = Place(host=3, gpu=25)
    xids, elapsed = [], 0.0
    while elapsed < math.inf:
        world.reset()
        elapsed = fault.apply(world, place, 1.0, elapsed)
        xids.append(int(world.gpu_xid[25]))
    assert xids == [0, 63, 48, 94]


# --- culprits ----------------------------------------------------------------------------------


def test_a_gpu_is_named_by_host_index_job_and_rank() -> None:
    # Host 9 is the second of "small": its GPU 5 is rank 8 + 5.
    names = FAULTS["thermal_throttle"].culprits(CLUSTER, Place(host=9, gpu=9 * 8 + 5))
    assert names == (
        Culprit(job="small", rank=13, host="node0009", gpu=5),
        Culprit(host="node0009", gpu=5),
        Culprit(job="small", rank=13),
    )


def test_a_nic_is_named_with_the_switch_port_at_the_other_end() -> None:
    nic = 2 * 8 + 3
    names = FAULTS["slow_nic"].culprits(CLUSTER, Place(host=2, nic=nic, link=TOPOLOGY.up(nic)))
    switch, port = TOPOLOGY.port_name(TOPOLOGY.down(nic)).split("/")
    assert names[0] == Culprit(
        host="node0002", device="mlx5_3", port="1", switch=switch, switch_port=port
    )
    assert Culprit(host="node0002", device="mlx5_3", port="1") in names
    assert Culprit(switch=switch, switch_port=port) in names


def test_a_cable_has_the_same_names_in_both_directions() -> None:
    fault = FAULTS["bad_cable"]
    for link in (TOPOLOGY.up(5), TOPOLOGY.first_fabric_link + 7):
        there = fault.culprits(CLUSTER, Place(link=link))
        back = fault.culprits(CLUSTER, Place(link=int(TOPOLOGY.reverse[link])))
        assert set(there) == set(back)
        for name in (TOPOLOGY.port_name(link), TOPOLOGY.port_name(int(TOPOLOGY.reverse[link]))):
            device, _, port = name.partition("/")
            assert any(
                (one.switch, one.switch_port) == (device, port)
                or (one.host, one.device) == (device, port)
                for one in there
            )


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_harmful_ones_name_somebody_and_harmless_ones_nobody(fault: Fault) -> None:
    place = fault.choose(CLUSTER, np.random.default_rng(1))
    names = fault.culprits(CLUSTER, place)
    assert bool(names) == bool(fault.causes)
    assert len(set(names)) == len(names)
    assert all(name != Culprit() for name in names)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_faults_of_ethernet_alone_do_not_fit_infiniband(fault: Fault) -> None:
    topology = make_topology(fabric=Fabric.INFINIBAND)
    only_roce = {"pfc_misconfigured", "ecmp_polarised"}
    assert fault.fits(Cluster(topology, JOBS)) == (fault.name not in only_roce)
