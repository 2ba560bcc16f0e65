"""`/v1/kubernetes`, and the controller, before the service itself."""

import asyncio
import contextlib
import datetime as dt
import json
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from api.data.inventory.records import DeviceKind
from api.data.inventory.sightings import LinkEnd, Observation, Sighting
from api.fabric import cache
from api.fleet.health import board
from api.oncall.evaluate import lead, task
from api.remote.answers import Service
from api.remote.client import AsyncClient, Target
from api.remote.kubernetes import gateway
from api.remote.kubernetes.access import Access
from api.remote.kubernetes.gateway import Gateway
from collector.contract.units import NS
from tests.doubles.kubernetes_double import WRITER, KubernetesDouble
from tests.stands.kubernetes_stand import run_once
from tests.stands.ports import free_port
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.incidents import HOLDER, Teller, slow_link

HOSTS = ("node1", "node3", "node4", "node5", "node6")


def cabled(host: str) -> Sighting:
    """A NIC that a leaf sees."""
    end = LinkEnd(
        device="mlx5_0", port="1", method="lldp", peer_name="leaf0", peer_port=f"swp-{host}"
    )
    return Sighting(host=host, kind=DeviceKind.RDMA, device="mlx5_0", port="1", link=end)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A service that looks often: node3 is degraded, node4 is held."""
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (task, "EVALUATE_SECONDS", 1e6),
            (lead, "RENEW_SECONDS", 1e6),
            (lead, "LEASE_SECONDS", 1e6),
            (lead, "name_holder", lambda: HOLDER),
            (board, "LOOK_SECONDS", 0.02),
            (cache, "CACHE_SECONDS", 0.05),
        ):
            stack.enter_context(patch.object(place, name, value))
        now = dt.datetime.now(dt.UTC)
        seen = [Observation.at(cabled(host), now) for host in HOSTS]
        folder = tmp_path_factory.mktemp("service")
        service = stack.enter_context(
            in_process(folder, prepare=lambda inventory: inventory.observe(seen))
        )
        now_ns = time.time_ns()
        Teller(service.inventory, service.store).say(now_ns, slow_link(now_ns - NS))
        eventually(lambda: states(service.client).get("node3") == "degraded", "degraded")
        hold = {"state": "out", "reason": "swap", "by": "ada"}
        service.client.put("/v1/hosts/node4/hold", json=hold).raise_for_status()
        eventually(lambda: states(service.client).get("node4") == "out", "out")
        eventually(lambda: bool(labels_by_host(service)), "cables")
        yield service


def labels_by_host(service: InProcess) -> dict[str, dict[str, str]]:
    found = service.client.get("/v1/kubernetes/labels").json()["items"]
    return {each["host"]: each["labels"] for each in found}


def states(client: httpx.Client) -> dict[str, str]:
    answer = client.get("/v1/health")
    return {each["host"]: each["state"] for each in answer.json().get("items", [])}


def ask(service: InProcess, verb: str, **args: Any) -> Any:  # noqa: ANN401 - JSON
    """As kube-scheduler asks."""
    body = {"Pod": {"metadata": {"name": "p"}}, "Nodes": None, "NodeNames": None, **args}
    headers = {"Content-Type": "application/json"}
    content = json.dumps(body).encode()
    answer = service.client.post(f"/v1/kubernetes/{verb}", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_filter(service: InProcess) -> None:
    names = ["node1", "node3", "node4", "gpu-less"]
    found = ask(service, "filter", NodeNames=names)
    assert found["NodeNames"] == ["node1", "node3", "gpu-less"]
    assert found["FailedAndUnresolvableNodes"] == {"node4": "fabricscope: out: out by ada: swap"}
    careful = {"metadata": {"annotations": {"fabricscope.io/avoid": "degraded"}}}
    found = ask(service, "filter", NodeNames=names, Pod=careful)
    assert found["NodeNames"] == ["node1", "gpu-less"]
    assert "slow_link" in found["FailedAndUnresolvableNodes"]["node3"]


def test_prioritize(service: InProcess) -> None:
    found = ask(service, "prioritize", NodeNames=["node1", "node3", "node4", "gpu-less"])
    assert {each["Host"]: each["Score"] for each in found} == {
        "node1": 10,
        "node3": 1,
        "node4": 0,
        "gpu-less": 5,
    }


def test_the_hosts_of_a_job_are_chosen_together(service: InProcess) -> None:
    names = ["node1", "node5", "node6", "gpu-less"]
    known = ["node1", "node5", "node6"]
    placed = service.client.post("/v1/placement", json={"size": 2, "candidates": known}).json()
    best = set(placed["sets"][0]["hosts"])
    assert len(best) == 2

    def scores(*free: str, **annotations: str) -> dict[str, int]:
        owner = {"uid": "u1", "kind": "Job", "name": "j", "controller": True}
        metadata = {"namespace": "n", "ownerReferences": [owner], "annotations": annotations}
        found = ask(service, "prioritize", NodeNames=free, Pod={"metadata": metadata})
        return {each["Host"]: each["Score"] for each in found}

    two = {"fabricscope.io/hosts": "2"}
    assert scores(*names, **two) == {name: 10 if name in best else 4 for name in names}
    # The first pod is bound, its host is no longer named: the second goes beside it.
    taken, *left = sorted(best)
    rest = [name for name in names if name != taken]
    assert scores(*rest, **two) == {name: 10 if name in left else 4 for name in rest}
    assert scores(*names) == {**dict.fromkeys(known, 10), "gpu-less": 5}
    assert scores(*names, **{"fabricscope.io/hosts": "9"}) == scores(*names), "no nine hosts"
    wrong = {"metadata": {"annotations": {"fabricscope.io/hosts": "two"}}}
    assert "must be a number" in ask(service, "filter", NodeNames=names, Pod=wrong)["Error"]


def test_what_is_no_question(service: InProcess) -> None:
    """The scheduler shows `Error`; of any other status but 200 it shows the number alone."""
    answer = service.client.post("/v1/kubernetes/filter", content=b"{}")
    assert answer.status_code == 200
    assert answer.json()["Error"].startswith("fabricscope: it has neither NodeNames nor Nodes")
    answer = service.client.post("/v1/kubernetes/prioritize", content=b"nonsense")
    assert (answer.status_code, answer.json()["title"]) == (422, "not ExtenderArgs")


def test_labels(service: InProcess) -> None:
    prefix = "topology.fabricscope.io"
    labels = {f"{prefix}/leaf": "leaf0", f"{prefix}/pod": "leaf0"}
    assert labels_by_host(service) == dict.fromkeys(HOSTS, labels)


# --- beside a scheduler -------------------------------------------------------------------------


def through_gateway(url: str, *asked: tuple[str, str, bytes]) -> list[httpx.Response]:
    """What the program beside a scheduler answers to method, path and body."""

    async def main() -> list[httpx.Response]:
        service = Service(AsyncClient(Target(url=url), "test"))
        async with (
            Gateway(service).serve("127.0.0.1:0") as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            found = [
                await client.request(method, path, content=body) for method, path, body in asked
            ]
        await service.close()
        return found

    return asyncio.run(main())


def test_the_extender_passes_questions_on(service: InProcess) -> None:
    question = json.dumps({"Pod": {}, "NodeNames": ["node1", "node4"]}).encode()
    filtered, scored, healthy, elsewhere, wrong = through_gateway(
        str(service.client.base_url),
        ("POST", "/filter", question),
        ("POST", "/prioritize", question),
        ("GET", "/healthz", b""),
        ("POST", "/bind", question),
        ("POST", "/prioritize", b"nonsense"),
    )
    assert filtered.json()["NodeNames"] == ["node1"]
    assert [each["Score"] for each in scored.json()] == [10, 0]
    assert (healthy.status_code, elsewhere.status_code) == (200, 405)
    assert (wrong.status_code, "not ExtenderArgs" in wrong.text) == (503, True)


def test_the_extender_says_when_nobody_answers_and_takes_no_endless_body() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with patch.object(gateway, "BODY_BYTES_MAX", 10):
        away, large = through_gateway(
            nowhere, ("POST", "/filter", b"{}"), ("POST", "/filter", b"x" * 11)
        )
    assert (away.status_code, "cannot reach" in away.text) == (503, True)
    assert (large.status_code, "nodeCacheCapable" in large.text) == (413, True)


# --- the controller before the service ----------------------------------------------------------


def test_the_whole_way_from_a_hold_to_a_taint_and_back(service: InProcess) -> None:
    """An operator's request becomes an action, a taint, a report; its end takes all of it back."""
    url = str(service.client.base_url)
    with KubernetesDouble() as cluster:
        for name in (*HOSTS, "gpu-less"):
            cluster.add_node(name)
        access = Access(server=cluster.url, token=WRITER, namespace="fabricscope")
        run_once(access, url, share_max=0.5)
        assert {name: cluster.taints(name) for name in cluster.nodes if cluster.taints(name)} == {
            "node4": ["fabricscope.io/unhealthy=out:NoSchedule"]
        }
        conditions = {name: cluster.condition(name) for name in cluster.nodes}
        assert {name: each["status"] for name, each in conditions.items() if each} == {
            "node1": "True",
            "node3": "False",
            "node4": "False",
            "node5": "True",
            "node6": "True",
        }
        labels = cluster.nodes["node1"]["metadata"]["labels"]
        assert labels["topology.fabricscope.io/leaf"] == "leaf0"
        (action,) = service.client.get("/v1/actions?state=standing").json()["actions"]
        (said,) = action["applied"]
        assert (said["executor"], said["outcome"]) == ("kubernetes", "done")

        service.client.delete("/v1/hosts/node4/hold?by=ada").raise_for_status()
        run_once(access, url, share_max=0.5)
        assert cluster.taints("node4") == []
        after = service.client.get(f"/v1/actions/{action['id']}").json()
        assert after["applied"][0]["words"].endswith("NoSchedule removed")
        hold = {"state": "out", "reason": "swap", "by": "ada"}
        service.client.put("/v1/hosts/node4/hold", json=hold).raise_for_status()
        eventually(lambda: states(service.client).get("node4") == "out", "out")
