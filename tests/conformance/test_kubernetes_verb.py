"""`fabricscope kubernetes` as people run it: a process, its lines, its end, and its death."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.doubles.kubernetes_double import READER, WRITER, KubernetesDouble
from tests.stands.environment import clean_environment
from tests.stands.kubernetes_stand import LEASE, TOKEN, ServiceDouble, action
from tests.stands.ports import free_port
from tests.stands.service import ROOT, eventually, launch

WAIT_SECONDS = 180


@pytest.fixture
def cluster() -> Iterator[KubernetesDouble]:
    with KubernetesDouble() as double:
        yield double


@pytest.fixture
def service() -> Iterator[ServiceDouble]:
    with ServiceDouble() as double:
        yield double


def kubeconfig(folder: Path, cluster: KubernetesDouble, **user: object) -> str:
    file = folder / "kubeconfig"
    content = {
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": cluster.url}}],
        "users": [{"name": "u", "user": user or {"token": WRITER}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(yaml.safe_dump(content))
    return str(file)


def words(folder: Path, config: str, service: ServiceDouble) -> list[str]:
    """The command line of every controller in this file."""
    token = folder / "token"
    token.write_text(TOKEN)
    return [
        "kubernetes",
        f"--kubeconfig={config}",
        f"--service={service.url}",
        f"--token-file={token}",
    ]


def run(*line: str) -> subprocess.CompletedProcess[str]:
    """A verb to its end."""
    command = "import sys; from collector.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", command, *line],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )


def test_without_a_mode_it_only_says_what_it_would_do(
    tmp_path: Path, cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    cluster.add_node("node1")
    service.put("node1", "degraded", "link_flap")
    done = run(*words(tmp_path, kubeconfig(tmp_path, cluster, token=READER), service), "--once")
    assert (done.returncode, done.stderr) == (0, "")
    expected = "would write node1: condition FabricHealthy is False (Degraded): link_flap\n"
    assert done.stdout == expected
    assert cluster.writes(leases=True) == []


def test_errors_are_one_line_and_a_status(
    tmp_path: Path, cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}
    refused = run(*words(tmp_path, kubeconfig(tmp_path, cluster, exec=program), service), "--once")
    assert refused.returncode == 2
    assert "user 'u': exec: it starts a program" in refused.stderr
    config = kubeconfig(tmp_path, cluster)
    cluster.stop()
    away = run(*words(tmp_path, config, service), "--once", "--mode=enforce")
    assert away.returncode == 1
    assert (
        away.stderr == f"fabricscope: cannot reach {cluster.url}: All connection attempts failed\n"
    )
    share = run(*words(tmp_path, config, service), "--share-max=2")
    assert (share.returncode, "--share-max 2: above 0" in share.stderr) == (2, True)


def test_one_that_is_killed_leaves_work_that_the_next_one_ends(
    tmp_path: Path, cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    names = [f"node{number:02}" for number in range(16)]
    for name in names:
        cluster.add_node(name)
        service.put(name, "degraded", "link_flap")
    service.actions = [action(f"a-{name}", name) for name in names]
    line = [*words(tmp_path, kubeconfig(tmp_path, cluster), service), "--mode=enforce"]
    line += ["--share-max=1"]

    def tainted() -> int:
        return sum(1 for name in names if cluster.taints(name))

    first = launch(line, tmp_path / "first.log")
    try:
        eventually(lambda: tainted() >= 3, "some taints")
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(WAIT_SECONDS)
    done = tainted()
    assert done < len(names), "it was killed too late for this test to mean something"
    assert cluster.leases[LEASE]["spec"]["holderIdentity"] != ""
    cluster.leases.clear()  # as its end after 15 s, which other tests look at
    second = launch(line, tmp_path / "second.log")
    try:
        eventually(lambda: tainted() == len(names), "all taints")
        eventually(lambda: len({number for number, _ in service.applied}) == len(names), "reports")
    finally:
        second.send_signal(signal.SIGTERM)
        assert second.wait(WAIT_SECONDS) == 0
    assert cluster.leases[LEASE]["spec"]["holderIdentity"] == "", "given back"
    writes = [call[1] for call in cluster.writes() if "/status" not in call[1]]
    assert len(writes) == len(names), "each once, by one of them"
    assert {body["outcome"] for _, body in service.applied} == {"done"}


def test_probes_see_that_it_goes_on(
    tmp_path: Path, cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    cluster.add_node("node1")
    service.put("node1", "healthy")
    port = free_port()
    line = words(tmp_path, kubeconfig(tmp_path, cluster), service)
    process = launch([*line, f"--listen=127.0.0.1:{port}"], tmp_path / "log")
    try:

        def state() -> dict[str, object]:
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/healthz")
            except httpx.TransportError:
                return {}
            assert answer.status_code == 200
            found: dict[str, object] = answer.json()
            return found

        eventually(lambda: state().get("nodes") == 1, "/healthz")
        assert state() == {"mode": "dry-run", "writes": False, "nodes": 1, "trouble": {}}
        assert httpx.get(f"http://127.0.0.1:{port}/other").status_code == 404
        assert httpx.post(f"http://127.0.0.1:{port}/healthz").status_code == 405
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


def test_the_extender_listens_where_it_is_told(
    tmp_path: Path, cluster: KubernetesDouble, service: ServiceDouble
) -> None:
    port = free_port()
    line = [*words(tmp_path, kubeconfig(tmp_path, cluster), service), "extender"]
    process = launch([*line, f"--listen=127.0.0.1:{port}"], tmp_path / "log")
    try:

        def answers() -> bool:
            try:
                return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            except httpx.TransportError:
                return False

        eventually(answers, "/healthz")
        service.stop()
        asked = httpx.post(f"http://127.0.0.1:{port}/filter", json={"NodeNames": []})
        assert (asked.status_code, service.url in asked.text) == (503, True)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    assert cluster.calls == [], "it needs no cluster"
