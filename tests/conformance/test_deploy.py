"""Configurations in `deploy/`, judged by the programs that read them."""

import subprocess
from pathlib import Path

import pytest

from tests.tools import peers

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def judged(program: str, *words: str) -> str:
    """What a program says of its configuration; it must be content."""
    found = peers.find(program)
    assert found is not None
    done = subprocess.run([found, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.peer("promtool")
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    text = (DEPLOY / "compose/prometheus.yml").read_text("utf-8")
    secret = "/run/secrets/prometheus-token"  # noqa: S105 - where it lies in the container
    assert text.count(secret) == 2
    (tmp_path / "token").write_text("x")
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace(secret, str(tmp_path / "token")))
    assert "SUCCESS" in judged("promtool", "check", "config", str(config))


@pytest.mark.peer("amtool")
def test_alertmanager_takes_its_configuration() -> None:
    judged("amtool", "check-config", str(DEPLOY / "alertmanager/alertmanager.yml"))
