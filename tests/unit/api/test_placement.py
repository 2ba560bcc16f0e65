"""Placement: which host sets it chooses, the bandwidth it predicts, what it refuses."""

import random
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from alerts.health.model import HealthState
from api.fabric.model import Link, Node, NodeKind, Topology, make_topology
from api.fabric.spread import spread_between
from api.fleet.placement import ways
from api.fleet.placement.floor import NOWHERE
from api.fleet.placement.model import CannotPlace, Refusal, Rule
from api.fleet.placement.tree_ways import is_even, tree_ways
from collector.contract.identity import PortId
from tests.worlds.placements import Stand
from tests.worlds.topologies import (
    AT,
    RATE,
    cable,
    changed,
    nic,
    recabled,
    simulated_topology,
    swapped,
    switch_port,
)

TREE: dict[str, Any] = {"topology": "fat_tree", "hosts": 12, "nics_per_host": 1}
RAILS: dict[str, Any] = {"topology": "rail", "hosts": 16, "nics_per_host": 4, "hosts_per_leaf": 8}


def tree(hosts_per_leaf: int = 4, **order: object) -> Topology:
    return simulated_topology(**(TREE | {"hosts_per_leaf": hosts_per_leaf} | order))


def two_leaves(uplink: int = RATE, hosts: int = 3) -> Topology:
    """Hosts a0, a1, … under leaf-a and b0, … under leaf-b; one uplink of each to one spine."""
    links = [
        cable(PortId(f"{side}{number}", "mlx5_0", "1"), switch_port(f"leaf-{side}", number + 1))
        for side in "ab"
        for number in range(hosts)
    ]
    links += [
        cable(
            switch_port(f"leaf-{side}", 99),
            switch_port("spine", port),
            rate_bits_per_second=uplink,
        )
        for port, side in enumerate("ab", start=1)
    ]
    switches = [
        Node(name=name, kind=NodeKind.SWITCH, tier=tier)
        for name, tier in (("leaf-a", 0), ("leaf-b", 0), ("spine", 1))
    ]
    return make_topology(AT, switches, [], links)


def is_at(link: Link, host: str) -> bool:
    return host in {link.id.a.host, link.id.b.host}


# --- which leaves -------------------------------------------------------------------------------


def test_a_set_that_fits_under_a_leaf_uses_no_uplink() -> None:
    best = Stand(tree()).place(4).sets[0]
    assert best.hosts == ["node0000", "node0001", "node0002", "node0003"]
    assert best.leaves == {"leaf-0": 4}
    assert best.expected_bandwidth_bits_per_second == RATE
    assert (best.bandwidth_share, best.oversubscription, best.risk) == (1.0, None, 0.0)
    assert best.why[0] == "all 4 under leaf-0; no uplink is used"


def test_the_leaf_that_is_filled_best_is_taken() -> None:
    stand = Stand(tree(), jobs={"busy": ["node0004", "node0005"]})
    best = stand.place(2).sets[0]
    assert best.hosts == ["node0006", "node0007"], "whole leaves are kept for larger jobs"


def test_few_leaves_are_taken_where_one_does_not_do() -> None:
    best = Stand(tree()).place(6).sets[0]
    assert sorted(best.leaves.values()) == [2, 4]
    assert "2 of 6 edges of the ring cross uplinks" in best.why[0]


def test_a_set_stays_in_a_block_of_a_large_fabric() -> None:
    shape = {"hosts": 32, "hosts_per_leaf": 2, "switch_ports": 8}
    stand = Stand(simulated_topology(**(TREE | shape)))
    floor = stand.known.floor
    assert len(set(floor.block.tolist())) > 1
    hosts = stand.place(6).sets[0].hosts
    assert len({int(floor.block[floor.group[floor.number[host]]]) for host in hosts}) == 1


def test_the_same_question_has_the_same_answer_whatever_the_order() -> None:
    topology = simulated_topology(**RAILS)
    jobs = {"one": ["node0001", "node0009"], "two": ["node0003", "node0004"]}
    names = [name for name, node in topology.nodes.items() if node.kind is NodeKind.HOST]
    answers = set()
    for seed in range(4):
        shuffle = random.Random(seed).sample
        links = shuffle(list(topology.links.values()), len(topology.links))
        nodes = shuffle(list(topology.nodes.values()), len(topology.nodes))
        again = make_topology(AT, nodes, topology.ports.values(), links)
        stand = Stand(again, jobs)
        stand.say("node0002", risk=0.1)
        candidates = tuple(shuffle(names, len(names)))
        answers.add(msgspec.json.encode(stand.place(5, candidates=candidates, sets=4)))
    assert len(answers) == 1


# --- bandwidth ----------------------------------------------------------------------------------


def test_a_narrow_uplink_bounds_the_ring() -> None:
    best = Stand(two_leaves(uplink=RATE // 4)).place(4).sets[0]
    assert best.expected_bandwidth_bits_per_second == RATE // 4
    assert best.bandwidth_share == 0.25
    assert best.oversubscription == 12.0, "three NICs over a quarter of one"
    assert any("25 %" in sentence for sentence in best.why)


def test_a_running_job_takes_its_share_of_an_uplink() -> None:
    topology = two_leaves(hosts=4)
    stand = Stand(topology, jobs={"mixtral": ["a0", "b0"]})
    free = ("a1", "a2", "a3", "b1", "b2", "b3")
    best = stand.place(4, candidates=free).sets[0]
    assert best.expected_bandwidth_bits_per_second == RATE // 2
    (job,) = best.shared_jobs
    assert (job.job, job.hosts, job.leaf_hosts, job.uplinks) == ("mixtral", 0, 2, 2)
    assert job.bits_per_second == RATE
    assert "shares 2 uplinks and leaves (2 hosts) with job mixtral" in best.why
    alone = stand.place(3, candidates=free).sets[0]
    assert alone.expected_bandwidth_bits_per_second == RATE
    assert alone.shared_jobs[0].uplinks == 0


def test_of_sets_as_good_the_one_by_itself_is_taken() -> None:
    jobs = {"mixtral": ["node0004", "node0005", "node0008"]}
    stand = Stand(tree(hosts=16, oversubscription=2.0), jobs)
    first, *others = stand.place(6, avoid=("node0001", "node0012"), sets=3).sets
    assert list(first.leaves) == ["leaf-0", "leaf-3"]
    assert first.shared_jobs == []
    assert first.why[-1] == "no running job is on its leaves or uplinks"
    assert all(each.shared_jobs for each in others)


def test_jobs_in_opposite_directions_do_not_share_a_link() -> None:
    """A ring of two leaves sends both ways over each uplink: one flow each, not two."""
    best = Stand(two_leaves()).place(6).sets[0]
    assert best.expected_bandwidth_bits_per_second == RATE


def test_links_count_with_their_real_state_and_speed() -> None:
    def alter(link: Link) -> Link:
        if is_at(link, "node0000"):
            return msgspec.structs.replace(link, rate_bits_per_second=RATE // 2)
        is_down = is_at(link, "node0004")
        return msgspec.structs.replace(link, is_up=False) if is_down else link

    stand = Stand(changed(tree(), alter=alter))
    first, *others = stand.place(4, sets=3).sets
    assert first.hosts[0] == "node0008", "the leaf without slow or dead links"
    assert all(each.score <= first.score for each in others)
    slow = stand.place(4, candidates=tuple(f"node{n:04d}" for n in range(4))).sets[0]
    assert slow.expected_bandwidth_bits_per_second == RATE // 2
    dark = [each for each in stand.place(4).refused if each.host == "node0004"]
    assert [(each.kind, each.reason) for each in dark] == [
        (Refusal.UNPLACED, "none of its links is up")
    ]


def test_hosts_that_cannot_reach_each_other_are_no_set() -> None:
    def alter(link: Link) -> Link:
        is_cut = is_at(link, "leaf-a") and is_at(link, "spine")
        return msgspec.structs.replace(link, is_up=False) if is_cut else link

    stand = Stand(changed(two_leaves(), alter=alter))
    answer = stand.place(4)
    assert answer.sets == []
    assert answer.none_because.startswith("no set of 4 was found whose hosts all reach each other")
    assert [each.leaves for each in stand.place(3, sets=2).sets] == [{"leaf-a": 3}, {"leaf-b": 3}]


def test_some_gpus_use_as_much_of_the_nics() -> None:
    stand = Stand(two_leaves(uplink=RATE // 2))
    assert stand.place(4).sets[0].bandwidth_share == 0.5
    half = stand.place(4, gpus_per_host=4).sets[0]
    assert half.bandwidth_share == 1.0
    assert half.expected_bandwidth_bits_per_second == RATE // 2


def test_one_host_needs_no_network() -> None:
    best = Stand(tree()).place(1).sets[0]
    assert best.expected_bandwidth_bits_per_second is None
    assert best.why[0] == "one host: nothing crosses the network"


@pytest.mark.parametrize(
    "shape",
    [
        {"topology": "rail", "hosts": 16, "nics_per_host": 2, "hosts_per_leaf": 2},
        {"topology": "fat_tree", "hosts": 40, "nics_per_host": 1, "hosts_per_leaf": 2,
         "switch_ports": 8},
    ],
    ids=["two tiers", "three tiers"],
)  # fmt: skip
@pytest.mark.parametrize("dead", [0.0, 0.15])
def test_the_quick_ways_of_a_tree_are_those_of_the_slow_search(
    shape: dict[str, Any], dead: float
) -> None:
    chance = np.random.default_rng(5)

    def alter(link: Link) -> Link:
        return msgspec.structs.replace(link, is_up=bool(chance.random() >= dead))

    floor = Stand(changed(simulated_topology(**shape), alter=alter)).known.floor
    leaves = np.unique(floor.nic_leaf[floor.nic_leaf != NOWHERE]).astype(np.int64)
    goal, source = (each.ravel() for each in np.meshgrid(leaves, leaves, indexing="ij"))
    goal, source = goal[goal != source], source[goal != source]
    rows = tree_ways(floor, source, goal)
    slow, is_reached = spread_between(floor.graph, source, goal)
    assert is_even(floor.graph)
    assert rows.is_found.tolist() == is_reached.tolist()
    for pair in range(len(goal)):
        mine = slice(rows.start[pair], rows.start[pair + 1])
        other = slice(slow.start[pair], slow.start[pair + 1])
        shares = dict(zip((rows.way[mine] >> 1).tolist(), rows.share[mine], strict=True))
        assert shares == pytest.approx(
            dict(zip(slow.link[other].tolist(), slow.share[other], strict=True)), abs=1e-6
        )


def test_ways_that_were_asked_for_are_known_on_the_next_floor() -> None:
    known = Stand(tree()).known
    ring = np.arange(12)
    before = known.ways.flows(ring)
    again = known.ways.again(Stand(tree()).known.floor)
    with patch.object(ways, "tree_ways", side_effect=AssertionError("it looks for ways")):
        after = again.flows(ring)
    assert after.way.tolist() == before.way.tolist()


@pytest.mark.parametrize("seed", range(8))
def test_sets_come_near_the_best_of_all(seed: int) -> None:
    """Compares with all sets out of twelve hosts that have slow and dead links and risks."""
    chance = np.random.default_rng(seed)

    def alter(link: Link) -> Link:
        speed, dies = chance.choice([1.0, 1.0, 1.0, 0.5, 0.25]), chance.random() < 0.05
        rate = int(speed * RATE)
        return msgspec.structs.replace(link, rate_bits_per_second=rate, is_up=not dies)

    stand = Stand(changed(tree(hosts_per_leaf=int(chance.integers(2, 5))), alter=alter))
    for host in stand.known.floor.hosts:
        stand.say(host, risk=float(chance.choice([0.0, 0.0, 0.02, 0.1, 0.3])))
    size = int(chance.integers(2, 5))
    assert stand.place(size).sets[0].score >= 0.9 * stand.best_score(size) - 1e-4


# --- health -------------------------------------------------------------------------------------


def test_whoever_is_taken_out_is_never_placed() -> None:
    stand = Stand(tree(hosts=4))
    stand.say("node0000", HealthState.DRAINING, reasons=("draining by ada: NIC",))
    stand.say("node0001", HealthState.OUT)
    stand.say("node0002", HealthState.DEGRADED, risk=0.9)
    stand.say("node0003", HealthState.SUSPECT, risk=0.2)
    answer = stand.place(2)
    assert answer.sets == []
    assert answer.none_because == (
        "0 of the candidates can be placed, and 2 are wanted:"
        " 1 degraded, 1 draining, 1 out, 1 suspect"
    )
    assert answer.refused[0].reason == "draining by ada: NIC"
    allowed = stand.place(2, allow=frozenset({HealthState.SUSPECT, HealthState.DEGRADED}))
    assert [each.hosts for each in allowed.sets] == [["node0002", "node0003"]]
    assert allowed.sets[0].risk == 0.92
    assert "at risk: node0002 (0.90), node0003 (0.20)" in allowed.sets[0].why


def test_risk_and_then_the_past_lower_the_rank() -> None:
    stand = Stand(tree(hosts=4))
    stand.say("node0000", risk=0.1)
    assert stand.place(3).sets[0].hosts == ["node0001", "node0002", "node0003"]
    stand.say("node0000", lemon=0.8)
    assert stand.place(3).sets[0].hosts == ["node0001", "node0002", "node0003"]


def test_a_thousand_risks_do_not_drown() -> None:
    stand = Stand(simulated_topology(topology="fat_tree", hosts=160, nics_per_host=1))
    for host in stand.known.floor.hosts:
        stand.say(host, risk=0.5)
    stand.say("node0159", risk=0.6)
    best = stand.place(159).sets[0]
    assert best.score == 0.0
    assert "node0159" not in best.hosts


# --- constraints --------------------------------------------------------------------------------


def test_a_swapped_cable_is_no_rail() -> None:
    stand = Stand(swapped(simulated_topology(**RAILS), nic(1, 2), nic(1, 3)))
    answer = stand.place(15, rail_aligned=True)
    assert "node0001" not in answer.sets[0].hosts
    assert [(each.host, each.kind) for each in answer.refused] == [("node0001", Refusal.RAILS)]


def test_the_same_leaf_is_the_same_for_each_rail() -> None:
    stand = Stand(simulated_topology(**RAILS))
    answer = stand.place(8, same_leaf=True, sets=5)
    assert {tuple(each.leaves.values()) for each in answer.sets} == {(8, 8, 8, 8)}
    stand.say("node0000", HealthState.OUT)
    stand.say("node0015", HealthState.OUT)
    none = stand.place(8, same_leaf=True)
    assert none.sets == []
    assert none.none_because == (
        "at most 7 usable hosts hang on one leaf (leaf-pod0-rail0), and same_leaf wants 8"
    )


def test_hosts_and_switches_can_be_avoided() -> None:
    answer = Stand(tree()).place(4, avoid=("leaf-0", "node0004"))
    assert answer.sets[0].hosts == ["node0008", "node0009", "node0010", "node0011"]
    assert answer.refused_kinds == {"avoided": 5}
    assert answer.refused[0].reason == "it hangs on leaf-0, which the question avoids"


def test_hosts_that_run_a_job_are_free_only_by_the_askers_word() -> None:
    stand = Stand(tree(), jobs={"one": [f"node{number:04d}" for number in range(8)]})
    answer = stand.place(4)
    assert answer.refused_kinds == {"busy": 8}
    assert stand.place(4, candidates=("node0000", "node0001", "node0002", "node0003")).sets


def test_hosts_with_too_few_gpus_are_refused() -> None:
    stand = Stand(tree())
    stand.known.gpus["node0000"] = 4
    del stand.known.gpus["node0001"]
    answer = stand.place(4, gpus_per_host=8)
    assert answer.refused[0].reason == "it has 4 GPUs, and 8 are wanted"
    assert any(words.startswith("gpus: 1 usable hosts do not report") for words in answer.unknown)


@pytest.mark.parametrize(
    ("rule", "size", "asked"),
    [
        (Rule.UNKNOWN_HOSTS, 1, {"candidates": ("node0000", "node9999")}),
        (Rule.UNKNOWN_HOSTS, 1, {"avoid": ("nobody",)}),
        (Rule.SIZE_OVER_CANDIDATES, 13, {}),
        (Rule.SIZE_OVER_CANDIDATES, 2, {"candidates": ("node0000", "node0000")}),
        (Rule.ALL_AVOIDED, 1, {"candidates": ("node0000",), "avoid": ("node0000",)}),
        (Rule.NO_RAILS, 2, {"rail_aligned": True}),
        (Rule.LEAF_TOO_SMALL, 5, {"same_leaf": True}),
    ],
)
def test_contradictions_have_names(rule: Rule, size: int, asked: dict[str, Any]) -> None:
    # Leaves of a fat tree with one NIC a host look like a single rail; two NICs a leaf do not.
    with pytest.raises(CannotPlace) as caught:
        Stand(tree(nics_per_host=2)).place(size, **asked)
    assert caught.value.rule is rule


def test_an_unknown_host_is_named_with_one_that_is_near() -> None:
    with pytest.raises(CannotPlace, match=r"'node00001' has ever come; did you mean node000"):
        Stand(tree()).place(1, candidates=("node00001",))


# --- unknown cables and rates -------------------------------------------------------------------


def test_without_cables_health_alone_ranks_and_that_is_said() -> None:
    stand = Stand(make_topology(AT, [], [], []), names=["a", "b", "c"])
    stand.say("a", risk=0.2)
    answer = stand.place(2)
    best = answer.sets[0]
    assert best.hosts == ["b", "c"]
    assert best.expected_bandwidth_bits_per_second is None
    assert (best.bandwidth_share, best.oversubscription) == (None, None)
    assert answer.unknown[0].startswith("topology: no cable is known")
    for constraint in ("same_leaf", "rail_aligned"):
        with pytest.raises(CannotPlace, match=constraint) as caught:
            stand.place(2, **{constraint: True})
        assert caught.value.rule is Rule.NO_TOPOLOGY


def test_without_rates_only_shares_are_told() -> None:
    def silent(link: Link) -> Link:
        return msgspec.structs.replace(link, rate_bits_per_second=None)

    answer = Stand(changed(tree(), alter=silent)).place(6)
    assert answer.sets[0].expected_bandwidth_bits_per_second is None
    assert answer.sets[0].bandwidth_share == 1.0
    assert any(words.startswith("rates: no link's rate is known") for words in answer.unknown)


def test_a_rate_that_is_not_told_is_taken_for_the_usual_one() -> None:
    def silent(link: Link) -> Link:
        is_silent = is_at(link, "node0000")
        return msgspec.structs.replace(link, rate_bits_per_second=None) if is_silent else link

    answer = Stand(changed(tree(), alter=silent)).place(4)
    assert answer.sets[0].expected_bandwidth_bits_per_second == RATE
    assert "rates: 1 links have no known rate; taken as 400 Gb/s, as most have" in answer.unknown


def test_a_host_whose_cables_nobody_knows_is_refused() -> None:
    stand = Stand(tree(), names=["lonely"])
    assert [(each.host, each.kind) for each in stand.place(4).refused] == [
        ("lonely", Refusal.UNPLACED)
    ]
    stand.entries["newcomer"] = stand.entries["lonely"]
    assert {each.host for each in stand.place(4).refused} == {"lonely", "newcomer"}


def test_a_cable_to_another_leaf_makes_another_group() -> None:
    moved = recabled(tree(), {nic(0, 0): switch_port("leaf-1", 77)})
    answer = Stand(moved).place(5, same_leaf=True)
    assert answer.sets[0].leaves == {"leaf-1": 5}
