"""A real Alertmanager with the configuration that we ship holds back what our service does."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from alerts.judge.incident import Incident, advance
from alerts.rulebook.inhibit import covered_by, explained
from alerts.rulebook.model import Alert, AlertState
from collector.contract.identity import Labels, canonical_labels
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict
from tests.stands.ports import free_port
from tests.stands.service import eventually
from tests.tools import peers
from tests.worlds.incidents import slow_link, straggler

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"
NOW = 1_800_000_000 * NS

STORM = Verdict(
    cause=Cause.PAUSE_STORM,
    culprit=Culprit(host="node3", device="mlx5_0", port="1", switch="leaf0", switch_port="swp3"),
    since_ns=NOW,
    confidence=0.9,
    jobs=("train",),
)
HANG = Verdict(
    cause=Cause.HANG,
    culprit=Culprit(host="node9"),
    since_ns=NOW,
    confidence=0.9,
    jobs=("train",),
)
SWITCH = Verdict(
    cause=Cause.LOSSY_LINK, culprit=Culprit(switch="leaf0"), since_ns=NOW, confidence=0.9
)

THINGS = [
    *(
        (theme, "port", {"host": host, "device": device, "port": port})
        for theme in ("loss", "pause", "capacity", "self")
        for host, device, port in (
            ("node3", "mlx5_0", "1"),
            ("node3", "mlx5_1", "1"),
            ("leaf0", "leaf0", "swp3"),
            ("leaf0", "leaf0", "swp4"),
            ("spine1", "spine1", "swp1"),
        )
    ),
    ("links", "nic", {"host": "node3", "device": "eth0"}),
    ("links", "nic", {"host": "node4", "device": "eth0"}),
    ("links", "switch", {"host": "leaf0"}),
    ("gpus", "gpu", {"host": "node9", "gpu": "1"}),
    ("gpus", "gpu", {"host": "node9", "gpu": "2"}),
    ("gpus", "gpu", {"host": "node3", "gpu": "1"}),
    ("gpus", "host", {"host": "node9"}),
    ("stragglers", "rank", {"job": "train", "rank": "4"}),
    ("collectives", "job", {"job": "train"}),
    ("collectives", "job", {"job": "other"}),
    ("self", "service", {}),
]
"""Alerts of the pack, as scopes and labels: some of them symptoms of each incident, some not."""


def alert(theme: str, scope: str, names: dict[str, str]) -> Alert:
    """A firing alert."""
    labels = {"alertname": "FabricSomething", "severity": "warning", "theme": theme, "scope": scope}
    return Alert(
        labels=canonical_labels({**labels, **names}),
        annotations={},
        value=1.0,
        state=AlertState.FIRING,
        active_ns=NOW,
    )


def incident_of(verdict: Verdict) -> Incident:
    """The incident that begins with a verdict."""
    (incident,) = advance((), [verdict], NOW).incidents
    return incident


@contextlib.contextmanager
def alertmanager(folder: Path) -> Iterator[httpx.Client]:
    """An Alertmanager with what we ship."""
    program = peers.find("prometheus-alertmanager")
    assert program is not None
    port = free_port()
    arguments = [
        str(program),
        f"--config.file={CONFIGURATION}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    log = (folder / "alertmanager.log").open("wb")
    process = subprocess.Popen(arguments, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            eventually(lambda: is_ready(client), "Alertmanager is ready")
            yield client
    finally:
        process.kill()
        process.wait()
        log.close()


def is_ready(client: httpx.Client) -> bool:
    """Whether it answers."""
    with contextlib.suppress(httpx.TransportError):
        return client.get("/-/ready").status_code == 200
    return False


def held_back(client: httpx.Client) -> set[Labels]:
    """The alerts that it inhibits."""
    shown = client.get("/api/v2/alerts").raise_for_status().json()
    return {
        canonical_labels(msgspec.convert(each["labels"], dict[str, str]))
        for each in shown
        if each["status"]["inhibitedBy"]
    }


@pytest.mark.peer("prometheus-alertmanager")
@pytest.mark.parametrize(
    "verdict",
    [slow_link(NOW), straggler(NOW), STORM, HANG, SWITCH],
    ids=["slow_link", "straggler", "storm", "hang", "switch"],
)
def test_alertmanager_holds_back_what_the_service_marks(verdict: Verdict, tmp_path: Path) -> None:
    incident = incident_of(verdict)
    alerts = [alert(*thing) for thing in THINGS]
    wanted = {each.labels for each in explained(alerts, [incident]) if each.inhibited_by}
    assert wanted, "an incident without a symptom shows nothing"
    assert len(wanted) < len(alerts), "nor does one that explains everything"
    victims = [
        {
            "alertname": "FabricIncidentVictim",
            "severity": "none",
            "theme": "incidents",
            "incident": incident.id,
            "scope": covered.scope,
            **dict(covered.labels),
        }
        for covered in covered_by(incident)
    ]
    body = [{"labels": labels} for labels in (*victims, *(dict(each.labels) for each in alerts))]
    with alertmanager(tmp_path) as client:
        client.post("/api/v2/alerts", json=body).raise_for_status()
        # Its inhibitor hears of alerts a little after its API does.
        with contextlib.suppress(AssertionError):
            eventually(lambda: held_back(client) == wanted, "the same", seconds=20)
        assert held_back(client) == wanted
