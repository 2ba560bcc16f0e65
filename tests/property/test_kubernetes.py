"""Kubernetes' side: hostile bytes are refused by name, and taints keep their promises."""

import datetime as dt
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
import yaml
from hypothesis import given

from api.fleet.kubernetes.extender import NotAsked, filter_nodes, prioritize, read_question
from api.remote.answers import Action
from api.remote.kubernetes.access import read_kubeconfig
from api.remote.kubernetes.client import decode
from api.remote.kubernetes.errors import ClusterOdd
from api.remote.kubernetes.objects import Node
from api.remote.kubernetes.plan import TAINT_KEY, Known, plan_fleet
from collector.contract.errors import SettingsError
from collector.contract.node_labels import VALUE, label_value
from tests.doubles.kubernetes_double import check_node, merge

NOW = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
NAMES = tuple(f"n{number}" for number in range(6))

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
trees = st.recursive(
    scalars,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=8), below),
    max_leaves=10,
)
FIELDS = ("Pod", "Nodes", "NodeNames", "metadata", "annotations", "items", "name", "spec", "taints")
documents = st.recursive(
    scalars,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), below),
    max_leaves=12,
)


@given(st.binary(max_size=200) | documents.map(msgspec.json.encode))
def test_a_body_is_a_question_or_is_refused_by_name(body: bytes) -> None:
    try:
        asked = read_question(body)
    except NotAsked:
        return
    answer = filter_nodes(asked, None)
    assert answer.error or len(answer.failed_and_unresolvable_nodes) == 0
    assert [each.host for each in prioritize(asked, None)] == list(asked.names)


@given(documents)
def test_an_object_is_a_node_or_is_odd(document: Any) -> None:  # noqa: ANN401 - JSON
    try:
        node = decode(msgspec.json.encode(document), Node, "a node")
    except ClusterOdd:
        return
    plan_fleet([node], Known(actions={}), NOW, 1.0)


CONFIG_FIELDS = ("clusters", "users", "contexts", "current-context", "name", "cluster", "user")
configs = st.recursive(
    scalars,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(CONFIG_FIELDS), below)
    ),
    max_leaves=12,
)


@given(st.binary(max_size=100) | (configs | trees).map(lambda each: yaml.safe_dump(each).encode()))
def test_a_kubeconfig_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = Path(tmp_path_factory.getbasetemp()) / "kubeconfig"
    file.write_bytes(content)
    with pytest.raises(SettingsError):
        read_kubeconfig([file])


@given(st.text(max_size=80), st.text(max_size=80))
def test_names_become_labels_and_stay_apart(one: str, other: str) -> None:
    assert VALUE.fullmatch(label_value(one))
    assert (label_value(one) == label_value(other)) == (one == other)


hosts = st.sets(st.sampled_from(NAMES))
strangers = st.lists(st.sampled_from(("theirs", "other", TAINT_KEY)), unique=True, max_size=2)


@given(
    st.lists(st.tuples(hosts, st.booleans(), st.integers(0, 5)), min_size=1, max_size=8),
    st.lists(strangers, min_size=len(NAMES), max_size=len(NAMES)),
    st.sampled_from((0.1, 0.34, 0.5, 1.0)),
)
def test_whatever_stands_and_whenever_it_dies_taints_keep_their_promises(
    rounds: list[tuple[set[str], bool, int]], before: list[list[str]], share: float
) -> None:
    """Never more than the share, nothing of others lost, nothing on doubt; in the end all is so."""
    cluster: dict[str, Any] = {
        name: {
            "metadata": {"name": name, "resourceVersion": "1", "annotations": {}},
            "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in keys]},
            "status": {},
        }
        for name, keys in zip(NAMES, before, strict=True)
    }
    allowed = max(1, int(share * len(NAMES)))
    standing: set[str] = set()
    for standing, is_doubt, dies_after in [
        *rounds,
        (rounds[-1][0], False, 99),
        (rounds[-1][0], False, 99),
    ]:
        actions = {
            host: Action(f"a-{host}", "drain", host, "standing", "draining") for host in standing
        }
        known = Known(actions=None if is_doubt else actions)
        nodes = [msgspec.convert(each, Node) for each in cluster.values()]
        plan = plan_fleet(nodes, known, NOW, share)
        assert not (is_doubt and plan.changes)
        for write in plan.changes[:dies_after]:
            cluster[write.node] = merge(cluster[write.node], write.patch)
            check_node(cluster[write.node])
        assert len(ours(cluster)) <= allowed
        for name, keys in zip(NAMES, before, strict=True):
            there = {taint["key"] for taint in cluster[name]["spec"]["taints"]}
            assert set(keys) <= there
    assert ours(cluster) <= standing
    free = {name for name, keys in zip(NAMES, before, strict=True) if TAINT_KEY not in keys}
    assert len(ours(cluster)) == min(allowed, len(standing & free))


def ours(cluster: dict[str, Any]) -> set[str]:
    """Nodes that carry a taint that we set."""
    return {
        name
        for name, node in cluster.items()
        if "fabricscope.io/action" in node["metadata"]["annotations"]
        and any(taint["key"] == TAINT_KEY for taint in node["spec"]["taints"])
    }
