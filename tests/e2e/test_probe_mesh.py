"""Agents that probe each other over a bridge: the lossy cable is named, by its probes alone."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from collector.contract.probes import LOST, SENT
from collector.sources import discover
from collector.sources.probes import BUDGET_SHARE, LINK_BITS_LEAST
from tests.chaos import network
from tests.stands import leaf, namespaces
from tests.stands.service import eventually, launch

pytestmark = pytest.mark.slow

HOSTS, GREY = 5, 2
"""Four peers each; three are needed to name an end."""
FLOWS = 4
KNOWN_PROBES = 120
"""Of each pair, before its silence says anything: twice what the detector asks for."""
LOST_ONE_IN = 5
NAMED_SECONDS = 150.0
TOKEN = "a-token-for-the-probes-of-this-one-test"  # noqa: S105 - of a service that ends with the test


class Mesh:
    """The rack, its agents, and the service."""

    def __init__(self, rack: leaf.Rack, service: network.ServiceOnACable) -> None:
        self.rack, self.service = rack, service

    def ask(self, query: str) -> list[dict[str, Any]]:
        answer = self.service.client.get("/api/v1/query", params={"query": query})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def ever(self, metric: str) -> list[dict[str, str]]:
        """The labels of all series that there have been of a metric."""
        answer = self.service.client.get("/api/v1/series", params={"match[]": metric})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, str]] = answer.json()["data"]
        return found

    def least_sent(self) -> float:
        """Of the pairs, in the time that a window has; 0 while some pair is not known."""
        pairs = self.ask(f"sum by (host, to) (increase({SENT}[3m]))")
        known = len(pairs) == HOSTS * (HOSTS - 1)
        return min(float(pair["value"][1]) for pair in pairs) if known else 0.0


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Mesh]:
    if why := namespaces.why_not():
        pytest.skip(why)
    tokens, socket, cables = (tmp_path / name for name in ("tokens", "way", "cables.toml"))
    tokens.write_text(f"{TOKEN} admin probes\n")
    cables.write_text(
        "\n".join(
            f'[[links]]\na = "node-{place}/r0/1"\nb = "leaf-0/{place + 1}"'
            for place in range(HOSTS)
        )
    )
    with ExitStack() as stack:
        rack = stack.enter_context(leaf.rack(HOSTS, GREY))
        inside = rack.inside(rack.leaf)
        words = ["--token-file", str(tokens), "--topology-file", str(cables)]
        service = network.ServiceOnACable(
            tmp_path / "data", *words, inside=inside, socket=socket, token=TOKEN
        )
        stack.enter_context(network.passed_on(inside, socket, service.port))
        stack.enter_context(service)
        for place in range(HOSTS):
            config = tmp_path / f"node-{place}.toml"
            config.write_text(settings_of(rack, place, service.port, tmp_path))
            log = config.with_suffix(".log")
            words = ["agent", "--config", str(config)]
            agent = launch(words, log, rack.inside(rack.hosts[place]))
            stack.callback(agent.wait, 30)
            stack.callback(agent.kill)
        yield Mesh(rack, service)


def settings_of(rack: leaf.Rack, place: int, port: int, folder: Path) -> str:
    """Of an agent that probes and does nothing else."""
    targets = [f"rail0 node-{other} {address}" for other, address in enumerate(rack.rails)]
    off = [f"[sources.{name}]\nenabled = false" for name in sorted(discover()) if name != "probes"]
    return "\n".join(
        [
            f'host = "node-{place}"',
            f'service_url = "http://{network.SERVICE}:{port}"',
            f'token = "{TOKEN}"',
            f'spool_dir = "{folder}/spool-{place}"',
            'listen = ""',
            "flush_seconds = 1.0",
            "[sources.probes]",
            "enabled = true",
            "interval_seconds = 0.5",
            f"flows = {FLOWS}",
            f'rails = ["rail0 {rack.rails[place]}"]',
            f"targets = {targets}",
            *off,
        ]
    )


def test_a_cable_that_loses_is_named_by_probes_alone_and_peace_is_silent(mesh: Mesh) -> None:
    rack = mesh.rack
    eventually(lambda: mesh.least_sent() > 0, "probes of all pairs", pause_seconds=1.0)
    before, began = [rack.counted(place) for place in range(HOSTS)], time.monotonic()
    eventually(
        lambda: mesh.least_sent() >= KNOWN_PROBES, "enough probes of all pairs", pause_seconds=1.0
    )
    seconds = time.monotonic() - began
    for place, counted in enumerate(before):
        frames, octets = rack.counted(place).since(counted)
        bits = (octets + frames * leaf.BESIDE_FRAME_BYTES) * 8
        assert 0 < bits <= LINK_BITS_LEAST * BUDGET_SHARE * seconds
    assert mesh.ever("fabric_finding") == [], "nothing is wrong, and nothing is said"

    rack.lose(LOST_ONE_IN)

    named = f'fabric_finding{{detector="probe_loss",cause="lossy_link",host="node-{GREY}"}}'

    def is_named() -> bool:
        return bool(mesh.ask(named))

    eventually(is_named, "the host's end", NAMED_SECONDS, pause_seconds=1.0)
    said = mesh.ever("fabric_finding")
    assert {each["detector"] for each in said} == {"probe_loss"}
    # The process that loses takes its time, too: what it carries is slow.
    assert {each["cause"] for each in said} <= {"lossy_link", "slow_link"}
    assert {each.get("host", "") for each in said} <= {f"node-{GREY}", ""}, "no innocent, ever"
    (found,) = mesh.ask(named)
    assert float(found["value"][1]) > 0.5, "its neighbours at the leaf clear the leaf"
    assert mesh.service.client.get("/v1/incidents").json()["items"] == [], "a warning alone"
    others = mesh.ask(f'sum(increase({LOST}{{host!="node-{GREY}",to!="node-{GREY}/rail0"}}[30s]))')
    assert [float(one["value"][1]) for one in others] == [0.0]
