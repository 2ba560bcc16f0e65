"""Programs that others wrote ask our service in PromQL: promtool, and vmalert with rules."""

import itertools
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.promql_oracle import our_side
from tests.stands.ports import free_port
from tests.stands.service import READY_SECONDS, ServiceProcess, eventually
from tests.tools import peers
from tests.worlds.remote_write import TimeSeries

PORTS = ("1", "2")
BYTES_PER_SECOND = 100
INTERVAL_MS = 5_000

RULES = """
groups:
  - name: fabric
    interval: 1s
    rules:
      - record: host:port_bytes:rate1m
        expr: sum by (host) (rate(port_bytes_total[1m]))
        labels: {recorded: "yes"}
      - alert: PortFast
        expr: rate(port_bytes_total{port="2"}[1m]) > 10
        for: 1h
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.host }}: {{ $value }} bytes/s"}
      - alert: PortSeen
        expr: port_bytes_total{port="1"} > 0
"""


def port_series(end_ms: int) -> list[TimeSeries]:
    """Ten minutes of two counters, of 100 and 200 bytes/s; their last samples are at ``end_ms``."""
    times = range(end_ms - 600_000, end_ms + 1, INTERVAL_MS)
    return [
        TimeSeries(
            [("__name__", "port_bytes_total"), ("host", "gpu-1"), ("port", port)],
            [
                (float(n * INTERVAL_MS // 1000 * BYTES_PER_SECOND * int(port)), at)
                for n, at in enumerate(times, 1)
            ],
        )
        for port in PORTS
    ]


@pytest.fixture(scope="module")
def end_ms() -> int:
    """A moment now; series end there, so that rules find them for some minutes."""
    return int(time.time()) * 1000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, end_ms: int) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    # The alerts here are the client's; those of the service itself are another test's.
    (folder / "service.toml").write_text(
        "rules_pack = false\nown_numbers = false\naccept_alerts = true\n"
    )
    with ServiceProcess(folder / "data", "--config", str(folder / "service.toml")) as running:
        our_side(running).load(port_series(end_ms))
        yield running


def promtool(*words: str) -> Any:  # noqa: ANN401 - JSON
    """What promtool prints, as JSON."""
    done = subprocess.run(
        [str(peers.find("promtool")), "query", *words[:1], "-o", "json", *words[1:]],
        check=False,
        capture_output=True,
        text=True,
        timeout=READY_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.peer("promtool")
def test_promtool_asks_for_a_moment(service: ServiceProcess, end_ms: int) -> None:
    rate = 'sum by (host) (rate(port_bytes_total{port="2"}[1m]))'
    shown = promtool("instant", f"--time={end_ms // 1000}", service.url, rate)
    assert json.loads(shown) == [
        {"metric": {"host": "gpu-1"}, "value": [end_ms // 1000, str(2 * BYTES_PER_SECOND)]}
    ]


@pytest.mark.peer("promtool")
def test_promtool_asks_for_a_range(service: ServiceProcess, end_ms: int) -> None:
    when = [f"--start={end_ms // 1000 - 60}", f"--end={end_ms // 1000}", "--step=30s"]
    shown = promtool("range", *when, service.url, 'port_bytes_total{port="1"}')
    [series] = json.loads(shown)
    assert series["metric"] == {"__name__": "port_bytes_total", "host": "gpu-1", "port": "1"}
    assert [at - end_ms // 1000 for at, _ in series["values"]] == [-60, -30, 0]
    values = [float(value) for _, value in series["values"]]
    assert [late - early for early, late in itertools.pairwise(values)] == [3000, 3000]


@pytest.mark.peer("promtool")
def test_promtool_lists_series_and_labels(service: ServiceProcess) -> None:
    shown = json.loads(promtool("series", "--match=port_bytes_total", service.url))
    assert sorted(each["port"] for each in shown) == list(PORTS)
    assert json.loads(promtool("labels", service.url, "port")) == list(PORTS)


@pytest.mark.peer("promtool")
def test_promtool_shows_our_refusal(service: ServiceProcess) -> None:
    done = subprocess.run(
        [str(peers.find("promtool")), "query", "instant", service.url, "rate(port_bytes_total)"],
        check=False,
        capture_output=True,
        text=True,
        timeout=READY_SECONDS,
    )
    assert done.returncode != 0
    assert "bad_data" in done.stderr


@contextmanager
def vmalert(folder: Path, service: ServiceProcess) -> Iterator[None]:
    """Evaluates the rules every second: reads from the service and writes to it."""
    rules = folder / "rules.yml"
    rules.write_text(RULES)
    command = [
        str(peers.find("vmalert")),
        f"-rule={rules}",
        f"-datasource.url={service.url}",
        f"-remoteWrite.url={service.url}",
        "-remoteWrite.flushInterval=100ms",
        f"-remoteRead.url={service.url}",
        # No process listens there: this test does not check notifications.
        f"-notifier.url=http://127.0.0.1:{free_port()}",
        f"-httpListenAddr=127.0.0.1:{free_port()}",
    ]
    with (folder / "vmalert.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(READY_SECONDS)


def ask(service: ServiceProcess, query: str) -> list[dict[str, Any]]:
    """The instant vector that the service answers now."""
    answer = service.client.get("/api/v1/query", params={"query": query})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


@pytest.mark.slow
@pytest.mark.peer("vmalert")
def test_vmalert_evaluates_rules_on_our_answers(service: ServiceProcess, tmp_path: Path) -> None:
    with vmalert(tmp_path, service):
        eventually(lambda: len(ask(service, "host:port_bytes:rate1m")) == 1, "a recorded series")
        eventually(lambda: len(ask(service, "ALERTS")) == 2, "both alerts")
        [recorded] = ask(service, "host:port_bytes:rate1m")
        assert recorded["metric"]["host"] == "gpu-1"
        assert recorded["metric"]["recorded"] == "yes"
        assert float(recorded["value"][1]) > 0
        alerts = {each["metric"]["alertname"]: each["metric"] for each in ask(service, "ALERTS")}
        assert alerts["PortSeen"]["alertstate"] == "firing"
        assert alerts["PortFast"]["alertstate"] == "pending"
        assert alerts["PortFast"]["severity"] == "warning"
        assert alerts["PortFast"]["port"] == "2"
        since = ask(service, 'ALERTS_FOR_STATE{alertname="PortFast"}')[0]["value"][1]

    # After a restart it asks us since when the alert is pending, and goes on from there.
    restarted = time.time()
    with vmalert(tmp_path, service):
        newest = 'timestamp(ALERTS_FOR_STATE{alertname="PortFast"})'
        eventually(
            lambda: any(float(each["value"][1]) > restarted + 2 for each in ask(service, newest)),
            "the alert's state after a restart",
        )
        [again] = ask(service, 'ALERTS_FOR_STATE{alertname="PortFast"}')
        assert again["value"][1] == since
