"""A link goes down: a real agent sees it, and a real service knows it."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.trees import write_files
from tests.stands.service import ServiceProcess, eventually, launch

PORT = "sys/class/infiniband/mlx5_0/ports/1"


def events(service: ServiceProcess) -> list[dict[str, Any]]:
    """Link events, oldest first."""
    answer = httpx.get(f"{service.url}/v1/events", params={"host": "node-0"}, timeout=10)
    items: list[dict[str, Any]] = answer.json()["items"]
    return [item for item in reversed(items) if item["kind"].startswith("link_")]


def set_state(tree: Path, state: str) -> None:
    """As the driver does it: the file has the old text or the new one."""
    fresh = tree / "state"
    fresh.write_text(f"{state}\n")
    with (tree / PORT / "state").open("r+b") as file:
        file.write(fresh.read_bytes().ljust(16))


@pytest.mark.slow
def test_a_port_that_blinks_is_in_the_service_as_two_events(tmp_path: Path) -> None:
    """The batch interval is an hour: what arrives was sent because it could not wait."""
    tree = tmp_path / "tree"
    write_files(
        tree,
        {
            "proc/sys/kernel/hostname": "node-0",
            f"{PORT}/state": "4: ACTIVE",
            f"{PORT}/rate": "400 Gb/sec (4X NDR)",
            f"{PORT}/link_layer": "InfiniBand",
        },
    )
    with ServiceProcess(tmp_path / "data") as service:
        config = tmp_path / "agent.toml"
        config.write_text(
            f'service_url = "{service.url}"\nspool_dir = "{tmp_path / "spool"}"\nlisten = ""\n'
            "flush_seconds = 3600\n[sources.links]\ninterval_seconds = 0.5\n",
            encoding="utf-8",
        )
        words = ["agent", "--config", str(config), "--root", str(tree)]
        log = tmp_path / "agent.log"
        process = launch(words, log)
        try:
            eventually(lambda: "source links: found" in log.read_text(), "the first read")
            set_state(tree, "1: DOWN")
            eventually(lambda: len(events(service)) == 1, "the link that went down")
            set_state(tree, "4: ACTIVE")
            eventually(lambda: len(events(service)) == 2, "the link that came back")
        finally:
            process.kill()
            process.wait(60)
        down, up = events(service)
    assert (down["kind"], up["kind"]) == ("link_down", "link_up")
    assert down["labels"] == {"device": "mlx5_0", "host": "node-0", "port": "1"}
    assert down["attributes"] == {"from": "ACTIVE", "to": "DOWN", "seen_by": "sysfs"}
    assert down["message"] == "mlx5_0 port 1 went from ACTIVE to DOWN"


WATCH = """
import json, sys
from pathlib import Path
from collector.contract.model import Event
from collector.doors.host import Host
from collector.sources.links import Links, Settings
host, source = Host(Path("/")), Links(Settings(include=("watched",)))
list(source.read(host))
print("ready", flush=True)
for line in sys.stdin:
    found = [each for each in source.look(host) if isinstance(each, Event)]
    print(json.dumps([[e.kind, e.labels["device"], e.attributes] for e in found]), flush=True)
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace with a pair of interfaces that are cabled to each other."""
    if os.geteuid() != 0:
        pytest.skip("making a network namespace needs root")
    name = f"fs-{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.decode().strip()}")
    try:
        ip(name, "link", "add", "watched", "type", "veth", "peer", "name", "other")
        ip(name, "link", "set", "watched", "up")
        ip(name, "link", "set", "other", "up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def ip(namespace: str, *words: str) -> bytes:
    done = subprocess.run(["ip", "-n", namespace, *words], check=True, capture_output=True)
    return done.stdout


def state_of(namespace: str, interface: str) -> str:
    """As the kernel tells it: it looks at carriers once a second, and tells what it finds then."""
    (found,) = json.loads(ip(namespace, "-json", "link", "show", interface))
    return str(found["operstate"])


def test_the_kernels_news_reach_the_source(namespace: str) -> None:
    """Between two reads the other end went down and came back: the source reports both in order."""
    words = ["ip", "netns", "exec", namespace, sys.executable, "-c", WATCH]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def look() -> list[tuple[str, str, dict[str, str]]]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            return [tuple(each) for each in json.loads(child.stdout.readline())]

        try:
            assert child.stdout.readline() == "ready\n"
            eventually(lambda: state_of(namespace, "watched") == "UP", "the link that is up")
            look()
            ip(namespace, "link", "set", "other", "down")
            # One that is back before the kernel has looked was never away.
            eventually(lambda: state_of(namespace, "watched") != "UP", "the link that went down")
            ip(namespace, "link", "set", "other", "up")
            found: list[tuple[str, str, dict[str, str]]] = []

            def are_both_there() -> bool:
                found.extend(look())
                return len(found) >= 2

            eventually(are_both_there, "both changes")
        finally:
            child.stdin.close()
            child.wait(30)
    seen = {"seen_by": "rtnetlink"}
    assert found == [
        ("link_down", "watched", {"from": "up", "to": "down", **seen}),
        ("link_up", "watched", {"from": "down", "to": "up", **seen}),
    ]
