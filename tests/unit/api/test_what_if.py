"""Changes that were not made: what is expected of steps, what was played, what cannot be told."""

from typing import Any

import msgspec
import numpy as np
import pytest

from alerts.traffic.flows import Sums, paired, traffic_of
from alerts.traffic.places import places_of
from alerts.window.model import Communicator, Rank
from api.fabric.tiers import with_tiers
from api.fleet.what_if.change import changed_topology, moved_ranks
from api.fleet.what_if.load import Fabric, phases_of
from api.fleet.what_if.model import Ask, CannotTry, JobSeen, Move, Outlook, Rule, Speed
from api.fleet.what_if.predict import predict
from collector.contract.identity import LinkId, PortId
from simulator.topology import model as simulated
from simulator.topology.model import LinkKind
from tests.worlds.played_changes import Seen, both_ways, link_id, outlooks, play
from tests.worlds.simulated_cluster import small_scenario
from tests.worlds.topologies import RATE, changed, nic, simulated_topology

TREE = with_tiers(simulated_topology(topology="fat_tree", hosts=4, nics_per_host=1,
                                     gpus_per_host=1, hosts_per_leaf=2))  # fmt: skip
"""Two leaves with two hosts and two uplinks each."""
BYTES, COUNT, RUN_S, STEP_S = 1 << 30, 60, 60.0, 1.0
EDGE_S = 8 * 1.5 * BYTES / RATE
"""That one all-reduce of four ranks needs on a whole cable: 2 x 3/4 of its bytes."""


def sums(operation: str = "all_reduce", algorithm: str = "", took_s: float = EDGE_S) -> Sums:
    """One operation a second."""
    return Sums(
        communicators=["c"],
        operations=[operation],
        algorithms=[algorithm],
        communicator=np.zeros(1, dtype=np.int32),
        operation=np.zeros(1, dtype=np.int32),
        algorithm=np.zeros(1, dtype=np.int32),
        size_bytes=np.array([BYTES], dtype=np.int64),
        ranks=np.array([4], dtype=np.int32),
        count=np.array([float(COUNT)]),
        transfer_ns=np.array([COUNT * took_s * 1e9]),
    )


NOTHING = paired(
    [],
    communicator=np.zeros(0, dtype=np.int32),
    rank=np.zeros(0, dtype=np.int32),
    peer=np.zeros(0, dtype=np.int32),
    kind=np.zeros(0, dtype=np.int32),
    totals=(np.zeros(0), np.zeros(0)),
)


def job(name: str = "train", hosts: tuple[int, ...] = (0, 1, 2, 3), **changes: Any) -> JobSeen:  # noqa: ANN401
    """A ring over these hosts, which sends for as long as its bytes need."""
    members = dict(enumerate(range(len(hosts))))
    known: dict[str, Any] = {
        "job": name,
        "title": name,
        "ranks": {
            rank: Rank(rank=rank, host=f"node{host:04d}", gpu=0, devices=("mlx5_0",))
            for rank, host in enumerate(hosts)
        },
        "communicators": {
            "c": Communicator(name="c", ranks=4, job_rank=members, rings=[list(members)])
        },
        "sums": [sums()],
        "messages": NOTHING,
        "seconds": RUN_S,
        "step_seconds": STEP_S,
    }
    return JobSeen(**(known | changes))


def ask(*jobs: JobSeen, topology: Any = TREE, **asked: Any) -> list[Outlook]:  # noqa: ANN401
    """The answer about these jobs."""
    question = Ask(**asked)
    after = changed_topology(topology, question)
    return predict(Fabric.of(topology), Fabric.of(after), jobs, question)


def uplinks(leaf: str) -> tuple[LinkId, ...]:
    """Its cables to spines."""
    return tuple(
        name
        for name in sorted(TREE.links)
        if leaf in (name.a.host, name.b.host) and "node" not in f"{name.a.host}{name.b.host}"
    )


LEAVES = sorted({name.a.host if "node" in name.b.host else name.b.host for name in TREE.links
                 if "node" in f"{name.a.host}{name.b.host}"})  # fmt: skip


def nic_link(host: int) -> LinkId:
    """The cable of its NIC."""
    return TREE.link_of[nic(host, 0)].id


# What is expected --------------------------------------------------------------------------------


def test_a_nic_at_half_its_rate_doubles_the_transfers_of_its_ring() -> None:
    (one,) = ask(job(), speed=(Speed(link=nic_link(1), bits_per_second=RATE // 2),))
    assert one.is_affected
    assert one.transfer_seconds == pytest.approx(EDGE_S)
    assert one.transfer_seconds_expected == pytest.approx(2 * EDGE_S)
    assert one.step_seconds_expected == pytest.approx(STEP_S + EDGE_S)
    assert one.step_seconds_range is not None
    assert one.step_seconds_range[0] == STEP_S
    assert one.step_seconds_range[1] == pytest.approx(STEP_S + EDGE_S)
    assert one.slower == pytest.approx(EDGE_S)
    assert one.gpu_hours_per_day == pytest.approx(4 * 24 * EDGE_S / (1 + EDGE_S))
    assert one.bottleneck_expected is not None
    assert one.bottleneck_expected.link == str(nic_link(1))
    assert one.bottleneck_expected.bits_per_second == RATE / 2


def test_a_cable_of_several_may_go_while_each_connection_finds_one() -> None:
    """One edge of the ring leaves each leaf: one cable is enough, and its luck is not known."""
    (one,) = ask(job(), drop=uplinks(LEAVES[0])[:1])
    assert not one.is_affected
    assert one.step_seconds_expected == STEP_S
    assert one.cannot_tell == []


def test_two_connections_on_the_last_cable_take_twice_as_long() -> None:
    """A ring that goes to and fro leaves a leaf by both of its hosts."""
    (one,) = ask(job(hosts=(0, 2, 1, 3)), drop=uplinks(LEAVES[0])[:1])
    assert one.transfer_seconds_expected == pytest.approx(2 * EDGE_S)
    left = uplinks(LEAVES[0])[1]
    spine = left.b.host if left.a.host == LEAVES[0] else left.a.host
    beyond = next(one for one in uplinks(LEAVES[1]) if spine in (one.a.host, one.b.host))
    (half,) = ask(job(hosts=(0, 2, 1, 3)), drop=uplinks(LEAVES[0])[:1], double=(left,))
    assert half.transfer_seconds_expected == pytest.approx(2 * EDGE_S), "the other leaf's is one"
    (again,) = ask(job(hosts=(0, 2, 1, 3)), drop=uplinks(LEAVES[0])[:1], double=(left, beyond))
    assert again.transfer_seconds_expected == pytest.approx(EDGE_S)


def test_half_of_every_uplink_is_no_whole_one() -> None:
    slow = tuple(Speed(link=name, bits_per_second=RATE // 2) for name in uplinks(LEAVES[0]))
    (one,) = ask(job(), speed=slow)
    assert one.transfer_seconds_expected == pytest.approx(2 * EDGE_S)
    assert one.step_seconds_range is not None
    assert one.step_seconds_range[0] == STEP_S, "divided among both it would do"


def test_a_job_without_a_way_stops() -> None:
    (one,) = ask(job(), drop=uplinks(LEAVES[0]))
    assert one.is_affected
    assert "node0000/mlx5_0" in one.stops_because or "node0001/mlx5_0" in one.stops_because
    assert one.step_seconds_expected is None
    (cut,) = ask(job(), drop=(nic_link(2),))
    assert "node0002/mlx5_0" in cut.stops_because


def test_others_on_the_cable_count_with_their_mean() -> None:
    """Two jobs over two leaves: with one uplink less, all of the other's mean is on the last."""
    jobs = [job("a", (0, 2)), job("b", (1, 3))]
    pair = {"c": Communicator(name="c", ranks=2, job_rank={0: 0, 1: 1}, rings=[[0, 1]])}
    two = msgspec.structs.replace(sums(), ranks=np.array([2], dtype=np.int32))
    jobs = [msgspec.structs.replace(one, communicators=pair, sums=[two]) for one in jobs]
    one, other = ask(*jobs, drop=uplinks(LEAVES[0])[:1])
    busy = 8 * BYTES / RATE
    for each in (one, other):
        assert each.transfer_seconds_expected == pytest.approx(EDGE_S + busy * busy / 2)
        assert each.bottleneck_expected is not None
        assert each.bottleneck_expected.used_by_others == pytest.approx(busy)


def test_a_move_takes_the_nic_of_the_same_rail() -> None:
    order: dict[str, Any] = {"topology": "rail", "hosts": 4, "nics_per_host": 2}
    topology = with_tiers(simulated_topology(**order, gpus_per_host=2, hosts_per_leaf=2))
    move = Move(job="train", rank=1, host="node0003")
    ranks = dict(job().ranks) | {1: Rank(rank=1, host="node0001", gpu=1, devices=("mlx5_1",))}
    found = moved_ranks(topology, job(ranks=ranks), (move,))
    assert found[1] == Rank(rank=1, host="node0003", devices=("mlx5_1",))
    (one,) = ask(job(ranks=ranks), topology=topology, move=(move,))
    assert (one.cannot_tell, one.stops_because) == ([], "")
    assert one.transfer_seconds_expected is not None


def test_calls_that_are_alike_send_at_once() -> None:
    """Four pairs of a job: two that have no rank in common are one phase, the others another."""
    ends = {"a": (0, 1), "b": (2, 3), "x": (0, 2), "y": (1, 3)}
    known = {
        name: Communicator(name=name, ranks=2, job_rank=dict(enumerate(pair)), rings=[[0, 1]])
        for name, pair in ends.items()
    }
    tables = [
        msgspec.structs.replace(sums(), communicators=[name], ranks=np.array([2], dtype=np.int32))
        for name in ends
    ]
    traffic = traffic_of(tables, NOTHING, known, places_of(job().ranks))
    found = phases_of(traffic.flows)
    assert len(found) == 4
    assert sorted(found.values()) == [0, 0, 1, 1]


# What cannot be told -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sums": [sums(algorithm="tree")]}, "no log shows the trees' edges"),
        ({"sums": [sums(algorithm="pat")]}, "shape or members are not known"),
        ({"communicators": {}}, "shape or members are not known"),
        ({"sums": [sums(took_s=EDGE_S / 2)]}, "those are not all"),
        ({"sums": [sums(took_s=0.0)]}, "none of its transfers was timed"),
        ({"sums": []}, "no byte is known"),
    ],
)
def test_what_is_not_known_is_said(changes: dict[str, Any], why: str) -> None:
    (one,) = ask(job(**changes), drop=(nic_link(1),))
    assert any(why in reason for reason in one.cannot_tell), one.cannot_tell
    assert one.step_seconds_expected is None
    assert one.transfer_seconds_expected is None


def test_nics_without_a_cable_are_said() -> None:
    bare = changed(TREE, without=[nic_link(2)])
    (one,) = ask(job(), topology=bare, drop=uplinks(LEAVES[0])[:1])
    assert any("name or cable is not known" in reason for reason in one.cannot_tell)


def test_without_rates_no_time_is_told() -> None:
    bare = changed(TREE, alter=lambda one: msgspec.structs.replace(one, rate_bits_per_second=None))
    (one,) = ask(job(), topology=bare, drop=uplinks(LEAVES[0])[:1])
    assert one.cannot_tell == ["no cable's rate is known"]


# What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({}, Rule.NOTHING_ASKED),
        ({"drop": (nic_link(0),), "speed": (Speed(link=nic_link(0), bits_per_second=1),)},
         Rule.TWICE),
        ({"double": (nic_link(0),)}, Rule.NIC_DOUBLED),
        ({"move": (Move(job="train", rank=9, host="node0001"),)}, Rule.NOT_ON_HOST),
        ({"move": (Move(job="train", rank=1, host="spine-0"),)}, Rule.NOT_ON_HOST),
    ],
)  # fmt: skip
def test_a_contradiction_is_refused_by_name(asked: dict[str, Any], rule: Rule) -> None:
    with pytest.raises(CannotTry) as refused:
        ask(job(), **asked)
    assert refused.value.rule is rule


def test_a_second_cable_has_ports_that_no_switch_has() -> None:
    name = uplinks(LEAVES[0])[0]
    after = changed_topology(TREE, Ask(double=(name,)))
    (new,) = after.links.keys() - TREE.links.keys()
    assert {new.a.host, new.b.host} == {name.a.host, name.b.host}
    assert PortId(new.a.host, new.a.device, new.a.port) not in TREE.ports


# Held against the simulator ----------------------------------------------------------------------

SIMULATED_BY = 0.03
"""Of a step, that a played change may differ from what is expected where no hash decides: docs'
table has up to 2 %."""


@pytest.fixture(scope="module")
def seen() -> Seen:
    """A job on four of six hosts, of rails; seen for fourteen seconds."""
    return play(small_scenario(seconds=22.0, seed=907))


@pytest.mark.parametrize("where", ["nic", "uplinks"])
def test_what_is_expected_is_what_is_played(seen: Seen, where: str) -> None:
    cluster = seen.topology
    links = [int(cluster.up(2))] if where == "nic" else uplinks_of(cluster, 2)
    slow = tuple(Speed(link=link_id(cluster, one), bits_per_second=RATE // 2) for one in links)

    def alter(world: Any) -> None:  # noqa: ANN401
        world.link_speed_share[both_ways(cluster, links)] = 0.5

    played = play(small_scenario(seconds=22.0, seed=907), alter).step_seconds["train"]
    one = outlooks(seen, Ask(speed=slow))["train"]
    assert played > 1.2 * seen.step_seconds["train"], "the change matters"
    assert one.step_seconds == pytest.approx(seen.step_seconds["train"], rel=0.01)
    assert one.step_seconds_expected == pytest.approx(played, rel=SIMULATED_BY)


def uplinks_of(cluster: simulated.Topology, nic_number: int) -> list[int]:
    """The uplinks of the leaf that this NIC hangs on."""
    leaf = cluster.target[cluster.up(nic_number)]
    return [
        int(link)
        for link in np.flatnonzero(cluster.kind == LinkKind.FABRIC_UP)
        if cluster.source[link] == leaf
    ]
