"""kube-scheduler's questions: its own JSON, what is refused and how good nodes are."""

import asyncio
import json
import re
from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from alerts.health.model import HealthState
from api.base.limits import EXTENDER_GANG_SECONDS
from api.fabric.model import Node, NodeKind, make_topology
from api.fabric.tiers import with_tiers
from api.fleet.health.answers import Fleet, HostEntry
from api.fleet.kubernetes import extender
from api.fleet.kubernetes import gangs as gang_book
from api.fleet.kubernetes.extender import NotAsked, filter_nodes, prioritize, read_question
from api.fleet.kubernetes.gangs import Gangs
from api.fleet.kubernetes.labels import labels_of
from collector.contract.identity import PortId
from collector.contract.node_labels import is_ours, label_value
from tests.worlds.topologies import AT, cable, nic, recabled, simulated_topology, switch_port

NODES = ["well", "shaky", "bad", "leaving", "gone", "unheard"]


def entry(host: str, state: HealthState, risk: float = 0.0, lemon: float = 0.0) -> HostEntry:
    return HostEntry(host=host, state=state, risk=risk, lemon=lemon, reasons=(f"why {host}",))


def fleet(*stale: str) -> Fleet:
    entries = (
        entry("well", HealthState.HEALTHY),
        entry("shaky", HealthState.SUSPECT, 0.25),
        entry("bad", HealthState.DEGRADED, 0.9),
        entry("leaving", HealthState.DRAINING),
        entry("gone", HealthState.OUT),
    )
    return Fleet({each.host: each for each in entries}, {}, {}, stale)


def asked(**annotations: str) -> extender.Asked:
    return extender.Asked(names=NODES, annotations=annotations)


def as_go_writes_it(**parts: Any) -> bytes:  # noqa: ANN401 - JSON
    """ExtenderArgs: fields without tags, objects of the API with theirs, nothing is null."""
    pod = {"metadata": {"name": "train-0", "creationTimestamp": None}, "spec": {"containers": []}}
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": None, **parts}).encode()


# --- the format ---------------------------------------------------------------------------------


def test_names_are_read_in_any_case_as_go_reads_them() -> None:
    for name in ("NodeNames", "nodenames", "nodeNames"):
        body = json.dumps({"pod": {"metadata": {}}, name: ["a", "b"]}).encode()
        assert read_question(body).names == ["a", "b"]
    assert read_question(as_go_writes_it(NodeNames=[])).names == []


def test_nodes_come_back_as_they_went() -> None:
    """A scheduler that is not `nodeCacheCapable` goes on with the objects that we return."""
    odd = {"metadata": {"name": "well", "x": [1]}, "status": {"images": [{"sizeBytes": 1e9}]}}
    out = {"metadata": {"name": "gone"}}
    question = read_question(as_go_writes_it(Nodes={"metadata": {}, "items": [odd, out]}))
    answer = json.loads(msgspec.json.encode(filter_nodes(question, fleet())))
    assert answer == {
        "Nodes": {"items": [odd]},
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"gone": "fabricscope: out: why gone"},
        "Error": "",
    }
    scores = json.loads(msgspec.json.encode(prioritize(question, fleet())))
    assert scores == [{"Host": "well", "Score": 10}, {"Host": "gone", "Score": 0}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no ExtenderArgs"),
        (b"[]", "no ExtenderArgs"),
        (b'{"NodeNames": [1]}', "no ExtenderArgs"),
        (b'{"NodeNames": "a"}', "no ExtenderArgs"),
        (b'{"Pod": {"metadata": {"annotations": {"a": 1}}}, "NodeNames": []}', "no ExtenderArgs"),
        (b'{"Pod": {}}', "neither NodeNames nor Nodes"),
        (b'{"NodeNames": [], "Nodes": {"items": []}}', "one of them"),
        (b"[" * 100_000, "no ExtenderArgs"),
        (b'{"NodeNames": ["\xff"]}', "no ExtenderArgs"),
    ],
)
def test_what_is_no_question_is_named(body: bytes, words: str) -> None:
    with pytest.raises(NotAsked, match=words):
        read_question(body)


def test_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender, "EXTENDER_NODES_MAX", 2)
    with pytest.raises(NotAsked, match="3 nodes; EXTENDER_NODES_MAX is 2"):
        read_question(as_go_writes_it(NodeNames=["a", "b", "c"]))


# --- the answers --------------------------------------------------------------------------------


def test_who_is_held_is_refused_and_says_why() -> None:
    answer = filter_nodes(asked(), fleet())
    assert answer.node_names == ["well", "shaky", "bad", "unheard"]
    assert answer.failed_nodes == {}
    assert answer.failed_and_unresolvable_nodes == {
        "leaving": "fabricscope: draining: why leaving",
        "gone": "fabricscope: out: why gone",
    }


def test_a_pod_may_avoid_more() -> None:
    def left(states: str) -> list[str]:
        return list(filter_nodes(asked(**{extender.AVOID: states}), fleet()).node_names or [])

    assert left("degraded") == ["well", "shaky", "unheard"]
    assert left("suspect, degraded,") == ["well", "unheard"]
    assert left("") == ["well", "shaky", "bad", "unheard"]


def test_a_state_that_is_none_is_an_error_of_that_pod() -> None:
    answer = filter_nodes(asked(**{extender.AVOID: "degradet"}), fleet())
    assert answer.node_names is None
    assert "did you mean 'degraded'?" in answer.error


def test_scores_follow_states_risks_and_the_past() -> None:
    scores = {one.host: one.score for one in prioritize(asked(), fleet())}
    assert scores == {"well": 10, "shaky": 6, "bad": 1, "leaving": 0, "gone": 0, "unheard": 5}
    lemon = entry("well", HealthState.HEALTHY, lemon=0.8)
    assert extender.score(lemon, is_sure=True) == 6
    assert extender.score(entry("bad", HealthState.DEGRADED, 0.5), is_sure=True) == 2


def test_on_doubt_only_what_somebody_said_counts() -> None:
    doubtful = fleet("verdicts: nothing was evaluated since yesterday")
    answer = filter_nodes(asked(**{extender.AVOID: "degraded,suspect"}), doubtful)
    assert answer.node_names == ["well", "shaky", "bad", "unheard"]
    scores = {one.host: one.score for one in prioritize(asked(), doubtful)}
    assert scores == {name: 0 if name in {"leaving", "gone"} else 10 for name in NODES}


def test_when_nobody_knows_all_pass_and_are_alike() -> None:
    assert filter_nodes(asked(), None).node_names == NODES
    assert {one.score for one in prioritize(asked(), None)} == {10}


# --- jobs as a whole ----------------------------------------------------------------------------


class Chooser:
    """Chooses the first hosts by name, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, size: int, among: Collection[str]) -> list[str]:
        self.asked += 1
        return sorted(among)[:size] if size <= len(among) else []


def test_what_was_chosen_for_a_job_is_remembered_for_a_while() -> None:
    now, choose = [1000.0], Chooser()
    gangs = Gangs(lambda: now[0])

    def chosen(job: str, size: int, free: str) -> str:
        """The hosts, whose names are letters here."""
        return "".join(sorted(asyncio.run(gangs.hosts_for(job, size, free, choose)) or "-"))

    assert chosen("j", 2, "abc") == "ab"
    assert chosen("j", 2, "bc") == "ab"
    assert chosen("other", 2, "bc") == "bc"
    assert choose.asked == 2
    assert chosen("j", 2, "cd") == "cd", "all are taken"
    assert chosen("j", 1, "cd") == "c", "another size"
    now[0] += EXTENDER_GANG_SECONDS
    assert chosen("j", 1, "bc") == "b", "another attempt"
    assert chosen("j", 9, "bc") == "-"


def test_pods_that_come_at_once_are_sent_to_the_same_hosts() -> None:
    async def main() -> None:
        gangs, free = Gangs(lambda: 0.0), [["a", "b", "c"], ["b", "c", "d"]]

        async def slow(size: int, among: Collection[str]) -> list[str]:
            await asyncio.sleep(0)
            return sorted(among)[:size]

        one, two = await asyncio.gather(*(gangs.hosts_for("j", 2, each, slow) for each in free))
        assert one == two

    asyncio.run(main())


def test_jobs_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_book, "EXTENDER_GANGS_MAX", 2)

    async def main() -> None:
        gangs = Gangs(lambda: 0.0)
        for job in ("x", "y", "z"):
            await gangs.hosts_for(job, 1, ["a"], Chooser())
        assert list(gangs._kept) == ["y", "z"]

    asyncio.run(main())


def test_pods_of_one_job_are_known_by_their_owner_or_by_their_word() -> None:
    def job(**metadata: Any) -> str:  # noqa: ANN401 - JSON
        body = {"Pod": {"metadata": {"namespace": "n", **metadata}}, "NodeNames": []}
        return read_question(json.dumps(body).encode()).job

    owners = [{"uid": "u0"}, {"uid": "u1", "controller": True}]
    assert job(ownerReferences=owners) == "n/u1"
    said = {"fabricscope.io/job": "mine"}
    assert job(ownerReferences=owners, annotations=said) == "n/mine"
    assert job() == job(ownerReferences=[{"uid": "u0"}]) == ""


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "eight", "9" * 30, "²", " "])
def test_a_number_of_hosts_that_is_none_is_named(text: str) -> None:
    with pytest.raises(NotAsked, match=r"fabricscope\.io/hosts: .* must be a number"):
        extender.read_hosts({extender.HOSTS: text})


# --- labels -------------------------------------------------------------------------------------


def test_hosts_of_a_rail_s_pod_have_a_leaf_for_each_rail() -> None:
    topology = simulated_topology(topology="rail", hosts=6, nics_per_host=2, hosts_per_leaf=3)
    found = labels_of(with_tiers(topology))
    assert len(found) == 6
    pods: dict[str, list[str]] = {}
    for host, labels in found.items():
        assert set(labels) == {f"topology.fabricscope.io/{each}" for each in LABELS_OF_RAILS}
        pods.setdefault(labels["topology.fabricscope.io/pod"], []).append(host)
        assert labels["topology.fabricscope.io/rail-0"] != labels["topology.fabricscope.io/rail-1"]
    assert sorted(len(hosts) for hosts in pods.values()) == [3, 3]


LABELS_OF_RAILS = ("pod", "rail-0", "rail-1")


def test_hosts_of_one_leaf_have_that_leaf() -> None:
    found = labels_of(
        with_tiers(simulated_topology(topology="fat_tree", hosts=8, hosts_per_leaf=4))
    )
    leaves = {tuple(sorted(labels.items())) for labels in found.values()}
    assert len(leaves) == 2
    for labels in found.values():
        assert labels["topology.fabricscope.io/leaf"] == labels["topology.fabricscope.io/pod"]


def test_a_cable_into_a_spine_is_no_leaf() -> None:
    topology = simulated_topology(topology="fat_tree", hosts=16, hosts_per_leaf=4)
    found = labels_of(with_tiers(recabled(topology, {nic(0, 0): switch_port("spine-0", 99)})))
    assert all("spine" not in value for labels in found.values() for value in labels.values())


def test_a_host_with_one_cable_into_another_pod_is_where_most_are() -> None:
    shape = {"topology": "rail", "hosts": 8, "nics_per_host": 4, "hosts_per_leaf": 4}
    topology = with_tiers(simulated_topology(**shape))
    before, first = labels_of(topology), nic(0, 0).host
    other = next(host for host in before if before[host] != before[first])
    rail = "topology.fabricscope.io/rail-0"
    moved = recabled(topology, {nic(0, 0): switch_port(before[other][rail], 99)})
    after = labels_of(with_tiers(moved))
    pod = "topology.fabricscope.io/pod"
    assert after[first] == {**before[first], rail: before[other][rail]}
    assert after[first][pod] == before[first][pod]


def test_a_neighbour_that_nobody_polls_is_a_leaf_if_several_hosts_name_it() -> None:
    one, two, three = (PortId(f"n{number}", "mlx5_0", "1") for number in range(3))
    unseen, odd = PortId("tor7", "tor7", "swp1"), PortId("laptop", "laptop", "1")
    unseen_too = PortId("tor7", "tor7", "swp2")
    nodes = [Node(name=name, kind=NodeKind.UNKNOWN) for name in ("tor7", "laptop")]
    cables = [cable(one, unseen), cable(two, unseen_too), cable(three, odd)]
    found = labels_of(make_topology(AT, nodes, [], cables))
    expected = {"topology.fabricscope.io/leaf": "tor7", "topology.fabricscope.io/pod": "tor7"}
    assert found == {"n0": expected, "n1": expected}


@pytest.mark.parametrize("name", ["a" * 64, "-leaf-", "lëaf", "leaf 1", "", "/", "leaf.1_x"])
def test_every_name_becomes_a_label_that_kubernetes_takes(name: str) -> None:

    value = label_value(name)
    assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", value)
    assert label_value(f"{name}x") != value


def test_only_labels_that_we_set_are_ours() -> None:
    ours = [f"topology.fabricscope.io/{name}" for name in ("leaf", "pod", "rail-0", "rail-15")]
    assert all(map(is_ours, ours))
    others = ("leaf", "topology.kubernetes.io/zone", "topology.fabricscope.io/mine")
    assert not any(map(is_ours, others))
