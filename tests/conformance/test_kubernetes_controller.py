"""The controller between doubles of Kubernetes and of our service: what it writes, and when not."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from api.remote.client import Away, Busy, Odd, Refused
from api.remote.kubernetes import client, lease
from api.remote.kubernetes import controller as controllers
from api.remote.kubernetes.access import Access
from api.remote.kubernetes.client import Cluster
from api.remote.kubernetes.controller import Mode
from api.remote.kubernetes.errors import ClusterAway, ClusterOdd, ClusterRefused
from api.remote.kubernetes.lease import Leadership
from tests.doubles.kubernetes_double import READER, STRANGER, WRITER, Fault, KubernetesDouble
from tests.stands.kubernetes_stand import LEASE, ServiceDouble, action, run_once, running
from tests.stands.ports import free_port
from tests.stands.service import eventually

TAINT = "fabricscope.io/unhealthy=draining:NoSchedule"
LEAF = "topology.fabricscope.io/leaf"


@pytest.fixture
def cluster() -> Iterator[KubernetesDouble]:
    with KubernetesDouble() as double:
        for number in range(1, 6):
            double.add_node(f"node{number}")
        yield double


@pytest.fixture
def service() -> Iterator[ServiceDouble]:
    with ServiceDouble() as double:
        double.put("node1", "healthy")
        double.put("node2", "suspect", "silent since 2026-11-16T05:24:33Z")
        double.put("node3", "degraded", "slow_link (nic) of device mlx5_0, open, i1")
        yield double


def access(cluster: KubernetesDouble, token: str = WRITER) -> Access:
    return Access(server=cluster.url, token=token, namespace="fabricscope")


# --- what is written ----------------------------------------------------------------------------


def test_conditions_say_how_hosts_are(cluster: KubernetesDouble, service: ServiceDouble) -> None:
    run_once(access(cluster), service.url, Mode.REPORT)
    found = {name: cluster.condition(name) for name in cluster.nodes}
    assert {name: (one["status"], one["reason"]) for name, one in found.items() if one} == {
        "node1": ("True", "Healthy"),
        "node2": ("Unknown", "Suspect"),
        "node3": ("False", "Degraded"),
    }
    three = found["node3"]
    assert three is not None
    assert three["message"] == "slow_link (nic) of device mlx5_0, open, i1"
    assert three["lastHeartbeatTime"] == three["lastTransitionTime"]
    assert cluster.condition("node1", "Ready") is not None, "others' conditions stay"


def test_a_second_pass_writes_nothing(cluster: KubernetesDouble, service: ServiceDouble) -> None:
    service.labels = {"node1": {LEAF: "leaf1"}}
    service.actions = [action("a1", "node3")]
    assert len(run_once(access(cluster), service.url)) == 5
    cluster.calls.clear()
    assert run_once(access(cluster), service.url) == []
    assert cluster.writes() == []


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action("a1", "node3")]
    said = run_once(access(cluster, READER), service.url, Mode.DRY_RUN)
    assert cluster.writes(leases=True) == []
    assert service.applied == []
    assert said[0] == (
        f"would write node3: taint {TAINT} for action a1 by policy:slow-links:"
        " slow_link of device mlx5_0"
    )
    assert "would write node1: condition FabricHealthy is True (Healthy): nothing" in said[1]


def test_only_enforce_taints_and_reports_it(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action("a1", "node3"), action("a2", "elsewhere")]
    run_once(access(cluster), service.url, Mode.REPORT)
    assert cluster.taints("node3") == []
    assert service.applied == []
    run_once(access(cluster), service.url)
    assert cluster.taints("node3") == [TAINT]
    done = {"executor": "kubernetes", "outcome": "done", "words": f"node node3: taint {TAINT} set"}
    assert service.applied == [("a1", done)]


def test_what_is_over_is_taken_back_and_nothing_of_others(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    mine = {"key": "mine", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    cluster.change("node3", {"spec": {"taints": [mine]}})
    by_hand = {"key": "fabricscope.io/unhealthy", "effect": "NoSchedule"}
    cluster.change("node4", {"spec": {"taints": [by_hand]}})
    service.actions = [action("a1", "node3")]
    run_once(access(cluster), service.url)
    assert cluster.taints("node3") == ["mine=x:NoExecute", TAINT]
    service.actions = []
    run_once(access(cluster), service.url)
    assert cluster.nodes["node3"]["spec"]["taints"] == [mine]
    assert cluster.taints("node4") == ["fabricscope.io/unhealthy=:NoSchedule"], "set by hand"
    assert service.applied[-1][0] == "a1"
    assert "removed" in service.applied[-1][1]["words"]


def test_labels_say_where_hosts_hang(cluster: KubernetesDouble, service: ServiceDouble) -> None:
    pod = "topology.fabricscope.io/pod"
    service.labels = {"node1": {LEAF: "leaf1", pod: "leaf1"}, "node2": {LEAF: "leaf1"}}
    run_once(access(cluster), service.url, Mode.REPORT)
    assert cluster.nodes["node1"]["metadata"]["labels"] == {
        "kubernetes.io/hostname": "node1",
        LEAF: "leaf1",
        pod: "leaf1",
    }
    service.labels = {"node1": {LEAF: "leaf2"}}
    run_once(access(cluster), service.url, Mode.REPORT)
    labels = {name: node["metadata"]["labels"] for name, node in cluster.nodes.items()}
    assert (labels["node1"].get(LEAF), labels["node1"].get(pod)) == ("leaf2", None)
    assert labels["node2"][LEAF] == "leaf1", "no agent reports its cables now: the label stays"


def test_no_more_than_the_share_is_tainted(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action(f"a{number}", f"node{number}") for number in range(1, 6)]
    run_once(access(cluster), service.url, share_max=0.4)
    tainted = [name for name in cluster.nodes if cluster.taints(name)]
    assert tainted == ["node1", "node2"]
    outcomes = {number: body["outcome"] for number, body in service.applied}
    assert outcomes == {"a1": "done", "a2": "done", "a3": "failed", "a4": "failed", "a5": "failed"}
    words = dict(service.applied)["a3"]["words"]
    assert words == "node3: not tainted: 2 of 5 nodes are already, and --share-max is 0.4"


def test_a_taint_of_which_nobody_was_told_is_told_of(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action("a1", "node3")]
    service.status = {"/v1/actions/a1/applied": 503}
    with pytest.raises(Busy, match="told to fail"):
        run_once(access(cluster), service.url)
    assert cluster.taints("node3") == [TAINT]
    service.status = {}
    run_once(access(cluster), service.url)
    assert [number for number, _ in service.applied] == ["a1"]


# --- doubt --------------------------------------------------------------------------------------


def test_stale_evidence_makes_unknown_and_changes_no_taint(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action("a1", "node3")]
    run_once(access(cluster), service.url)
    service.stale = ["verdicts: nothing was evaluated since 2026-11-16T05:24:33Z"]
    service.evidence, service.actions = "stale", [action("a2", "node1")]
    run_once(access(cluster), service.url)
    found = [cluster.condition(f"node{number}") for number in (1, 2, 3)]
    assert {(one["status"], one["reason"], one["message"]) for one in found if one} == {
        ("Unknown", "EvidenceStale", service.stale[0])
    }
    assert (cluster.taints("node1"), cluster.taints("node3")) == ([], [TAINT])


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/health", 503, Busy),
        ("/v1/actions", 500, Busy),
        ("/v1/actions", 404, Odd),
        ("/v1/actions", 429, Busy),
        ("/v1/kubernetes/labels", 403, Refused),
    ],
)
def test_a_service_that_does_not_answer_changes_nothing(
    cluster: KubernetesDouble,
    service: ServiceDouble,
    path: str,
    status: int,
    error: type[Exception],
) -> None:
    service.status = {path: status}
    with pytest.raises(error, match=f"{path}: HTTP {status}"):
        run_once(access(cluster), service.url)
    assert cluster.writes(leases=True) == []


@pytest.mark.parametrize("evidence", ["perhaps", None, 1])
def test_an_answer_that_is_none_changes_nothing(
    cluster: KubernetesDouble, service: ServiceDouble, evidence: object
) -> None:
    service.actions, service.evidence = [action("a1", "node3")], evidence
    with pytest.raises(Odd, match="/v1/actions: not an answer of Fabricscope"):
        run_once(access(cluster), service.url)
    assert cluster.writes(leases=True) == []


def test_a_service_that_is_away_is_named(cluster: KubernetesDouble, service: ServiceDouble) -> None:
    service.stop()
    with pytest.raises(Away, match=f"cannot reach {service.url}"):
        run_once(access(cluster), service.url)
    assert cluster.writes(leases=True) == []


def test_when_the_service_dies_conditions_become_unknown_and_taints_stay(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action("a1", "node3")]
    with running(access(cluster), service.url, kept_seconds=0.3) as one:
        eventually(lambda: cluster.taints("node3") == [TAINT], "the taint")
        service.stop()

        def reason() -> str:
            return str((cluster.condition("node3") or {}).get("reason"))

        eventually(lambda: reason() == "ServiceUnreachable", "Unknown")
        assert "cannot reach" in one.trouble["actions"]
        assert cluster.taints("node3") == [TAINT]
        service.start()
        eventually(lambda: reason() == "Degraded", "how it was")
        service.actions = []
        eventually(lambda: cluster.taints("node3") == [], "the return")


# --- an API server that is odd, busy or away ----------------------------------------------------


def test_who_may_not_is_told_what_is_missing(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    with pytest.raises(ClusterRefused, match=r"HTTP 401 .*not accepted"):
        run_once(access(cluster, STRANGER), service.url)
    with pytest.raises(ClusterAway, match=r"HTTP 403 leases is forbidden.*deploy/kubernetes"):
        run_once(access(cluster, READER), service.url)
    assert [call for call in cluster.writes() if call[0] == "PATCH"] == []


def test_a_write_that_is_forbidden_is_reported(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action("a1", "node3")]
    forbidden = json.dumps({"message": "nodes is forbidden", "code": 403}).encode()
    cluster.faults = [Fault("PATCH /api/v1/nodes/node3", 403, forbidden, times=1000)]
    with running(access(cluster), service.url) as one:
        eventually(lambda: bool(service.applied), "the report")
        eventually(lambda: "passes" in one.trouble, "trouble")
    number, body = service.applied[0]
    assert (number, body["outcome"]) == ("a1", "failed")
    assert "nodes is forbidden" in body["words"]
    assert len(service.applied) == 1, "reported once"


def test_an_api_server_that_is_away_is_named(service: ServiceDouble) -> None:
    nowhere = Access(server=f"http://127.0.0.1:{free_port()}", token=WRITER)
    with pytest.raises(ClusterAway, match=f"cannot reach {nowhere.server}"):
        run_once(nowhere, service.url)
    assert service.applied == []


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"items": [{"metadata": 3}]}', b"\xff"])
def test_an_answer_that_is_not_kubernetes_is_named(
    cluster: KubernetesDouble, service: ServiceDouble, body: bytes
) -> None:
    cluster.faults = [Fault("GET /api/v1/nodes", 200, body)]
    with pytest.raises(ClusterOdd, match="GET /api/v1/nodes: no answer of Kubernetes"):
        run_once(access(cluster), service.url)


def test_an_answer_without_end_is_cut(cluster: KubernetesDouble, service: ServiceDouble) -> None:
    cluster.faults = [Fault("GET /api/v1/nodes", 200, b" " * 4096)]
    with (
        patch.object(client, "ANSWER_BYTES_MAX", 1 << 10),
        pytest.raises(ClusterOdd, match="/api/v1/nodes: more than"),
    ):
        run_once(access(cluster), service.url)


def test_somebody_else_s_write_in_between_is_kept(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    """409: the node is read again, and the taint goes beside the other one."""
    service.actions = [action("a1", "node3")]
    theirs = {"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}}
    start = "PATCH /api/v1/nodes/node3"
    cluster.faults = [Fault(start, before=lambda: cluster.change("node3", theirs))]
    run_once(access(cluster), service.url)
    assert cluster.taints("node3") == ["theirs=:NoSchedule", TAINT]


def test_a_node_that_others_write_all_the_time_does_not_hold_up_the_rest(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action("a1", "node3")]
    turns = iter(range(1000))

    def somebody() -> None:
        cluster.change("node3", {"metadata": {"labels": {"turn": str(next(turns))}}})

    cluster.faults = [Fault("PATCH /api/v1/nodes/node3", before=somebody, times=4)]
    run_once(access(cluster), service.url)
    assert cluster.taints("node3") == []
    assert cluster.condition("node1") is not None
    run_once(access(cluster), service.url)
    assert cluster.taints("node3") == [TAINT]


def test_one_odd_node_does_not_hide_the_others(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    refused = json.dumps({"message": "admission webhook denied it", "code": 422}).encode()
    cluster.faults = [Fault("PATCH /api/v1/nodes/node1/status", 422, refused)]
    said = run_once(access(cluster), service.url)
    assert any(line.startswith("node1: not written: ") and "denied it" in line for line in said)
    assert cluster.condition("node3") is not None


def test_an_answer_that_is_lost_is_no_second_write(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.actions = [action("a1", "node3")]
    cluster.faults = [Fault("PATCH /api/v1/nodes/node3", is_done=True)]
    with running(access(cluster), service.url):
        eventually(
            lambda: bool(service.applied) and service.applied[-1][1]["outcome"] == "done", "report"
        )
    assert cluster.taints("node3") == [TAINT]
    writes = [call for call in cluster.writes() if call[1] == "/api/v1/nodes/node3"]
    assert len(writes) == 1


def test_a_write_that_hangs_ends_before_anybody_else_may_write(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    over = threading.Event()

    def hang() -> None:
        over.wait(30)

    cluster.faults = [Fault("PATCH /api/v1/nodes/node1", before=hang)]
    try:
        with (
            patch.object(controllers, "WRITE_SECONDS_MAX", 0.05),
            pytest.raises(ClusterAway, match=r"node1: no answer to a write within 0\.05 s"),
        ):
            run_once(access(cluster), service.url)
    finally:
        over.set()
    assert controllers.WRITE_SECONDS_MAX + lease.RENEWED_SECONDS <= lease.LEASE_SECONDS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's, with the authority that has signed it, and a client's, signed by itself."""
    folder = tmp_path_factory.mktemp("certificates")
    script = Path(__file__).parents[2] / "deploy/kubernetes/make-secrets.sh"
    printed = subprocess.run([script], capture_output=True, check=True).stdout
    secret = next(each for each in yaml.safe_load_all(printed) if each["kind"] == "Secret")
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (folder / name).write_bytes(base64.b64decode(secret["data"][name]))
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=us"
    files = ("-keyout", folder / "client.key", "-out", folder / "client.crt")
    subprocess.run(["openssl", *words.split(), *files], capture_output=True, check=True)
    return folder


def test_it_knows_the_api_server_by_its_certificate(
    service: ServiceDouble, certificates: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    ca = (certificates / "ca.crt").read_text()
    with KubernetesDouble(tls) as double:
        double.add_node("node3")
        known = Access(server=double.url, token=WRITER, ca=ca)
        run_once(known, service.url, Mode.REPORT)
        assert double.condition("node3") is not None
        unknown = Access(server=double.url, token=WRITER)
        with pytest.raises(ClusterAway, match="certificate verify failed"):
            run_once(unknown, service.url, Mode.REPORT)


def test_it_shows_its_own_certificate_where_it_has_one(
    service: ServiceDouble, certificates: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    tls.load_verify_locations(certificates / "client.crt")
    tls.verify_mode = ssl.CERT_REQUIRED
    ca, own, key = (
        (certificates / name).read_text() for name in ("ca.crt", "client.crt", "client.key")
    )
    with KubernetesDouble(tls) as double:
        double.add_node("node3")
        known = Access(server=double.url, token=WRITER, ca=ca, certificate=own, key=key)
        run_once(known, service.url, Mode.REPORT)
        assert double.condition("node3") is not None
        with pytest.raises(ClusterAway, match="cannot reach"):
            run_once(Access(server=double.url, token=WRITER, ca=ca), service.url, Mode.REPORT)


# --- following nodes ----------------------------------------------------------------------------


def test_nodes_come_and_go_and_are_set_right(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.put("late", "degraded", "link_flap")
    with running(access(cluster), service.url, Mode.REPORT) as one:
        eventually(lambda: cluster.condition("node1") is not None, "the first pass")
        cluster.add_node("late")
        eventually(lambda: cluster.condition("late") is not None, "the new node's condition")
        wrong = {"type": "FabricHealthy", "status": "True", "reason": "Me", "message": ""}
        cluster.change("node3", {"status": {"conditions": [wrong]}})
        eventually(lambda: (cluster.condition("node3") or {})["reason"] == "Degraded", "set right")
        cluster.remove("late")
        assert one.controller is not None
        followed = one.controller.nodes
        eventually(lambda: "late" not in followed.by_name, "forgotten")


@pytest.mark.parametrize("in_stream", [True, False])
def test_a_watch_that_is_too_far_behind_lists_again(
    cluster: KubernetesDouble, service: ServiceDouble, *, in_stream: bool
) -> None:
    cluster.is_gone_in_stream = in_stream
    service.put("late", "healthy")
    with running(access(cluster), service.url, Mode.REPORT):
        eventually(lambda: cluster.watches == 1, "the watch")
        cluster.stop()
        cluster.add_node("late")
        cluster.remove("node5")
        cluster.compact()
        cluster.start()
        eventually(lambda: cluster.condition("late") is not None, "the node that was missed")
    lists = [call for call in cluster.calls if call[1].startswith("/api/v1/nodes?limit")]
    assert len(lists) == 2


def test_a_watch_that_ends_goes_on_where_it_was(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    service.put("late", "healthy")
    with running(access(cluster), service.url, Mode.REPORT):
        eventually(lambda: cluster.watches == 1, "the watch")
        cluster.end_watches()
        cluster.add_node("late")
        eventually(lambda: cluster.condition("late") is not None, "the node")
    lists = [call for call in cluster.calls if call[1].startswith("/api/v1/nodes?limit")]
    assert len(lists) == 1


def test_many_nodes_come_in_pages_also_when_a_page_is_too_old(
    cluster: KubernetesDouble,
) -> None:
    async def listed() -> list[str]:
        one = Cluster(access(cluster))
        try:
            return sorted((await one.list_nodes())[0])
        finally:
            await one.close()

    with patch.object(client, "PAGE_NODES", 2):
        assert asyncio.run(listed()) == sorted(cluster.nodes)
        cluster.faults = [Fault("GET /api/v1/nodes?limit=2&continue", before=cluster.compact)]
        assert asyncio.run(listed()) == sorted(cluster.nodes)
        gone = json.dumps({"code": 410, "message": "too old"}).encode()
        cluster.faults = [Fault("GET /api/v1/nodes?limit=2&continue", 410, gone, times=9)]
        with pytest.raises(ClusterAway, match="change faster"):
            asyncio.run(listed())


# --- one writer ---------------------------------------------------------------------------------


def test_of_two_controllers_one_writes_and_the_other_takes_over(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    with running(access(cluster), service.url, identity="first") as first:
        eventually(lambda: cluster.condition("node1") is not None, "the first writes")
        with running(access(cluster), service.url, identity="second") as second:
            eventually(
                lambda: (
                    second.controller is not None
                    and "held by 'first'" in second.controller._leadership.why
                ),
                "the second waits",
            )
            service.put("node1", "degraded", "link_flap")
            eventually(lambda: (cluster.condition("node1") or {})["status"] == "False", "news")
            assert second.said == []
            first.end()
            eventually(
                lambda: cluster.leases[LEASE]["spec"]["holderIdentity"] == "second", "taken over"
            )
            service.put("node1", "healthy")
            eventually(lambda: (cluster.condition("node1") or {})["status"] == "True", "more news")
    spec = cluster.leases[LEASE]["spec"]
    assert spec["holderIdentity"] == ""
    assert spec["leaseTransitions"] == 1


def leaderships(
    cluster: KubernetesDouble, now: list[float]
) -> tuple[Cluster, Leadership, Leadership]:
    one = Cluster(access(cluster))
    first, second = (
        Leadership(one, LEASE, name, monotonic=lambda: now[0]) for name in ("first", "second")
    )
    return one, first, second


def test_a_holder_that_is_dead_is_followed_only_after_its_time(cluster: KubernetesDouble) -> None:
    async def main() -> None:
        now = [1000.0]
        one, first, second = leaderships(cluster, now)
        assert await first.step()
        assert not await second.step()
        now[0] += lease.LEASE_SECONDS - 1
        assert not first.is_held(), "it stops before another controller may begin"
        assert not await second.step()
        assert await first.step(), "it was only slow, and no other controller took the lease"
        now[0] += lease.LEASE_SECONDS - 1
        assert not await second.step(), "the lease has changed meanwhile"
        now[0] += lease.LEASE_SECONDS
        assert await second.step()
        assert not await first.step()
        assert "held by 'second'" in first.why
        await one.close()

    asyncio.run(main())


def test_of_two_that_reach_for_it_at_once_one_gets_it(cluster: KubernetesDouble) -> None:
    async def main() -> None:
        one, first, second = leaderships(cluster, [1000.0])
        assert sorted(await asyncio.gather(first.step(), second.step())) == [False, True]
        await one.close()

    for _ in range(5):
        cluster.leases.clear()
        asyncio.run(main())


def test_who_cannot_renew_stops_writing(cluster: KubernetesDouble) -> None:
    async def main() -> None:
        now = [1000.0]
        one, first, _ = leaderships(cluster, now)
        assert await first.step()
        cluster.stop()
        now[0] += lease.RENEWED_SECONDS - 1
        assert await first.step(), "its time is not over"
        now[0] += 1
        assert not await first.step()
        assert "cannot reach" in first.why
        cluster.start()
        assert await first.step()
        await one.close()

    asyncio.run(main())


def test_once_does_not_write_beside_somebody_else(
    cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    with running(access(cluster), service.url, identity="other"):
        eventually(lambda: LEASE in cluster.leases, "the lease")
        with pytest.raises(ClusterAway, match="is held by 'other'"):
            run_once(access(cluster), service.url)


def test_a_token_that_is_exchanged_is_read_again(
    cluster: KubernetesDouble, service: ServiceDouble, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(STRANGER)
    kubernetes = Access(server=cluster.url, token_file=token)
    with running(kubernetes, service.url, Mode.REPORT) as one:
        eventually(lambda: "401" in one.trouble.get("nodes", ""), "refused")
        token.write_text(f"{WRITER}\n")
        eventually(lambda: cluster.condition("node1") is not None, "let in")
        leadership = one.controller._leadership if one.controller is not None else None
        assert leadership is not None
        token.write_text("")
        eventually(lambda: "token is empty" in leadership.why, "a file that is being written")
        token.write_text(WRITER)
        eventually(lambda: not leadership.why, "let in again")
