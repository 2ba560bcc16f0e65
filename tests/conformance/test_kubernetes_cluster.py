"""What Kubernetes' API does, as the controller relies on it: of the double, and of a real cluster.

The same tests run against both, so that the double cannot drift from what it stands for. A real
one is taken if KUBECONFIG names it; its API server must be reached over loopback (kind, `kubectl
proxy`), as no test reaches further. They make nodes of their own, without a kubelet, and remove
them; the credentials must allow that, and leases in the context's namespace.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import httpx
import pytest

from api.remote.kubernetes.access import Access, find_access
from api.remote.kubernetes.client import Cluster
from api.remote.kubernetes.errors import ObjectChanged, ObjectMissing, WatchGone
from api.remote.kubernetes.lease import Leadership
from tests.doubles.kubernetes_double import ADMIN, KubernetesDouble
from tests.stands.kubernetes_stand import ServiceDouble, action, run_once

Found = TypeVar("Found")
Json = dict[str, Any]
TAINT = {"key": "fabricscope.io/unhealthy", "value": "draining", "effect": "NoSchedule"}


class Stand:
    """A cluster with nodes that we may do anything with."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.mark = secrets.token_hex(3)
        """In the names of all that a test makes."""
        self._http = httpx.Client(
            base_url=access.server,
            verify=access.make_ssl(),
            headers={"Authorization": f"Bearer {access.read_token()}"},
            trust_env=False,
        )
        self._made: list[str] = []

    def add(self, name: str) -> str:
        """A node of this test; its whole name."""
        whole = f"fabricscope-test-{self.mark}-{name}"
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": whole}}
        self._http.post("/api/v1/nodes", json=body).raise_for_status()
        self._made.append(whole)
        return whole

    def get(self, name: str) -> Json:
        found: Json = self._http.get(f"/api/v1/nodes/{name}").raise_for_status().json()
        return found

    def ask(self, question: Callable[[Cluster], Coroutine[Any, Any, Found]]) -> Found:
        """The answer of our client."""

        async def main() -> Found:
            cluster = Cluster(self.access)
            try:
                return await question(cluster)
            finally:
                await cluster.close()

        return asyncio.run(main())

    def end(self) -> None:
        """Remove what was made."""
        for name in self._made:
            self._http.delete(f"/api/v1/nodes/{name}")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{self.access.namespace}/leases"
        self._http.delete(f"{lease}/fabricscope-test-{self.mark}")
        self._http.close()


@pytest.fixture(params=["double", "real"])
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    if request.param == "real":
        if not os.environ.get("KUBECONFIG"):
            pytest.skip("KUBECONFIG names no cluster")
        one = Stand(find_access("", "", os.environ))
        yield one
        one.end()
        return
    with KubernetesDouble() as double:
        one = Stand(Access(server=double.url, token=ADMIN))
        yield one
        one.end()


def ours(taints: list[Json] | None) -> list[Json]:
    """The taints of ours: a real cluster taints nodes without a kubelet."""
    found = [taint for taint in taints or [] if taint["key"] == TAINT["key"]]
    return [{name: taint[name] for name in TAINT} for taint in found]


def test_a_condition_is_merged_by_its_type(stand: Stand) -> None:
    name = stand.add("one")
    for status in ("False", "True"):
        for kind in ("FabricHealthy", "SomebodyElses"):
            condition = {"type": kind, "status": status, "reason": "R", "message": "m"}
            patch = {"status": {"conditions": [condition]}}
            stand.ask(lambda cluster, patch=patch: cluster.patch_status(name, patch))  # type: ignore[misc]
    found = {each["type"]: each["status"] for each in stand.get(name)["status"]["conditions"]}
    assert {kind: found[kind] for kind in ("FabricHealthy", "SomebodyElses")} == {
        "FabricHealthy": "True",
        "SomebodyElses": "True",
    }


def test_the_status_is_not_changed_by_the_node_nor_the_node_by_the_status(stand: Stand) -> None:
    name = stand.add("one")
    condition = {"type": "FabricHealthy", "status": "True", "reason": "R", "message": "m"}
    both = {"status": {"conditions": [condition]}, "spec": {"taints": [TAINT]}}
    stand.ask(lambda cluster: cluster.patch_status(name, both))
    assert ours(stand.get(name)["spec"].get("taints")) == []
    gone = {"status": {"conditions": []}, "metadata": {"labels": {"fabricscope.test/x": "1"}}}
    stand.ask(lambda cluster: cluster.patch_node(name, gone))
    found = stand.get(name)
    assert found["metadata"]["labels"]["fabricscope.test/x"] == "1"
    assert "FabricHealthy" in {each["type"] for each in found["status"]["conditions"]}


def test_a_version_that_is_old_is_a_conflict(stand: Stand) -> None:
    name = stand.add("one")
    old = stand.get(name)["metadata"]["resourceVersion"]
    labels = {"metadata": {"labels": {"fabricscope.test/x": "1"}}}
    stand.ask(lambda cluster: cluster.patch_node(name, labels))
    patch = {"metadata": {"resourceVersion": old}, "spec": {"taints": [TAINT]}}
    with pytest.raises(ObjectChanged):
        stand.ask(lambda cluster: cluster.patch_node(name, patch))
    removed = {"metadata": {"labels": {"fabricscope.test/x": None}}}
    node = stand.ask(lambda cluster: cluster.patch_node(name, removed))
    assert "fabricscope.test/x" not in node.labels


def test_what_is_not_there_is_missing(stand: Stand) -> None:
    with pytest.raises(ObjectMissing):
        stand.ask(lambda cluster: cluster.get_node(f"fabricscope-test-{stand.mark}-none"))
    with pytest.raises(ObjectMissing):
        stand.ask(lambda cluster: cluster.get_lease(f"fabricscope-test-{stand.mark}"))


def test_a_watch_goes_on_from_a_list(stand: Stand) -> None:
    async def watched(cluster: Cluster) -> tuple[str, str]:
        _, version = await cluster.list_nodes()
        name = stand.add("late")
        async for kind, node in cluster.watch_nodes(version):
            if node.name == name:
                return kind, name
        return "", name

    kind, name = stand.ask(watched)
    assert kind == "ADDED"
    nodes, _ = stand.ask(lambda cluster: cluster.list_nodes())
    assert name in nodes


def test_a_watch_from_the_beginning_of_time_is_gone_or_goes_on(stand: Stand) -> None:
    """A real server may still know it; what counts is that nothing else comes."""

    async def watched(cluster: Cluster) -> str:
        stand.add("one")
        try:
            async for kind, _ in cluster.watch_nodes("1"):
                return kind
        except WatchGone:
            return "gone"
        return "ended"

    assert stand.ask(watched) in {"gone", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"}


def test_a_lease_is_taken_renewed_and_given_back(stand: Stand) -> None:
    async def held(cluster: Cluster) -> list[bool]:
        name = f"fabricscope-test-{stand.mark}"
        first, second = (Leadership(cluster, name, who) for who in ("first", "second"))
        steps = [await first.step(), await first.step(), await second.step()]
        await first.release()
        return [*steps, await second.step(), await first.step()]

    assert stand.ask(held) == [True, True, False, True, False]


def test_the_controller_writes_and_takes_back(stand: Stand) -> None:
    name = stand.add("one")
    with ServiceDouble() as service:
        service.put(name, "degraded", "link_flap")
        service.labels = {name: {"topology.fabricscope.io/pod": "leaf1"}}
        service.actions = [action("a1", name)]
        run_once(stand.access, service.url, share_max=1.0)
        found = stand.get(name)
        assert ours(found["spec"]["taints"]) == [TAINT]
        assert found["metadata"]["labels"]["topology.fabricscope.io/pod"] == "leaf1"
        (condition,) = (
            each for each in found["status"]["conditions"] if each["type"] == "FabricHealthy"
        )
        assert (condition["status"], condition["reason"]) == ("False", "Degraded")
        service.actions = []
        run_once(stand.access, service.url, share_max=1.0)
        assert ours(stand.get(name)["spec"].get("taints")) == []
        assert [body["outcome"] for _, body in service.applied] == ["done", "done"]
