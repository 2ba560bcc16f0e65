"""Real Prometheus beside us: an agent that sends native histograms, and one that federates us."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.stands.ports import free_port
from tests.stands.service import READY_SECONDS, ServiceProcess, eventually
from tests.tools import peers
from tests.worlds import remote_write as rw

pytestmark = [pytest.mark.slow, pytest.mark.peer("prometheus")]

PROTOBUF = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
COUNTER, HISTOGRAM = 0, 4
AGENT = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: page
    static_configs: [{{targets: ["127.0.0.1:{page}"]}}]
remote_write:
  - url: {url}/api/v1/write
    send_native_histograms: true
    queue_config: {{batch_send_deadline: 1s}}
"""
FEDERATING = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs:
  - job_name: fabricscope
    honor_labels: true
    metrics_path: /federate
    params: {{"match[]": ['{{__name__=~"fabric_port_.*"}}']}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def family(name: str, kind: int, metric: bytes) -> bytes:
    """A MetricFamily with one metric, behind its length (io.prometheus.client, metrics.proto)."""
    body = rw.length_field(1, name.encode()) + rw.varint_field(3, kind, keep_zero=True)
    body += rw.length_field(4, metric)
    return rw.varint(len(body)) + body


def page() -> bytes:
    """A counter, and a native histogram of three observations in two buckets."""
    zigzag_one = rw.varint(2)
    span = rw.varint_field(2, 2)
    native = (
        rw.varint_field(1, 3)
        + rw.double_field(2, 4.5)
        + rw.varint_field(5, 6)  # the schema 3, in zigzag
        + rw.double_field(6, 0.001)
        + rw.length_field(12, span)
        + rw.tag(13, 0) + zigzag_one
        + rw.tag(13, 0) + zigzag_one
    )  # fmt: skip
    return family(
        "neighbour_requests_total", COUNTER, rw.length_field(3, rw.double_field(1, 7.0))
    ) + family("neighbour_seconds", HISTOGRAM, rw.length_field(7, native))


class Page(BaseHTTPRequestHandler):
    """What a program with native histograms shows to a scraper that asks for protobuf."""

    def do_GET(self) -> None:
        body = page()
        self.send_response(200)
        self.send_header("Content-Type", PROTOBUF)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def serving_page() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(READY_SECONDS)


@contextmanager
def prometheus(folder: Path, settings: str, *flags: str) -> Iterator[httpx.Client]:
    """A Prometheus with these settings; its log is prometheus.log."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(settings)
    command = [
        str(peers.find("prometheus")),
        f"--config.file={config}",
        f"--web.listen-address=127.0.0.1:{port}",
        *flags,
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        process.kill()
        process.wait(READY_SECONDS)


def test_native_histograms_of_an_agent_are_refused_by_name_and_all_else_is_stored(
    tmp_path: Path,
) -> None:
    with (
        ServiceProcess(tmp_path / "data") as service,
        serving_page() as port,
        prometheus(
            tmp_path,
            AGENT.format(page=port, url=service.url),
            "--enable-feature=agent,native-histograms",
            f"--storage.agent.path={tmp_path / 'agent'}",
        ) as agent,
    ):
        eventually(lambda: service.samples("neighbour_requests_total") != [], "the counter")
        assert service.samples("neighbour_requests_total")[0]["values"][0] == 7.0

        def refused() -> list[dict[str, object]]:
            answer = service.client.get("/v1/refused").json()["refused"]
            return [one for one in answer if one["reason"] == "native_histograms"]

        eventually(lambda: refused() != [], "the refusal has a name")
        [one] = refused()
        assert (one["road"], one["sender"]) == ("remote_write", "127.0.0.1")
        name = 'fabric_service_refused_total{protocol="remote_write",rule="native_histograms"}'
        assert name in service.client.get("/metrics").text
        assert service.samples("neighbour_seconds") == []
        # What Prometheus itself shows and logs: the sender's people see the loss too.
        failed = "prometheus_remote_storage_histograms_failed_total"

        def failures() -> float:
            lines = agent.get("/metrics").text.splitlines()
            return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(failed))

        eventually(lambda: failures() > 0, failed)
        log = (tmp_path / "prometheus.log").read_text()
        assert "native histograms are not supported; send classic" in log
        # The batches that hold a histogram lose nothing else, and none is sent for ever.
        before = len(service.samples("neighbour_requests_total")[0]["values"])
        eventually(
            lambda: len(service.samples("neighbour_requests_total")[0]["values"]) > before + 2,
            "later samples come as well",
        )


def test_prometheus_federates_what_we_hold(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as service:
        labels = [("device", "mlx5_0"), ("host", "node1"), ("port", "1")]
        series = rw.TimeSeries(
            [("__name__", "fabric_port_state"), *labels], [(4.0, time.time_ns() // 1_000_000)]
        )
        body = rw.snappy(rw.request_v1([series]))
        answer = service.client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
        assert answer.status_code == 204, answer.text
        settings = FEDERATING.format(port=service.port)
        storage = f"--storage.tsdb.path={tmp_path / 'tsdb'}"
        with prometheus(tmp_path, settings, storage) as peer:

            def found() -> list[dict[str, object]]:
                try:
                    answer = peer.get("/api/v1/query", params={"query": "fabric_port_state"})
                except httpx.TransportError:
                    return []
                return list(answer.json()["data"]["result"]) if answer.is_success else []

            eventually(lambda: found() != [], "Prometheus has our series")
            [one] = found()
            metric = one["metric"]
            assert isinstance(metric, dict)
            # `instance` is Prometheus' own, as a series of ours has none; `job` likewise.
            assert {name: metric[name] for name, _ in labels} == dict(labels)
            assert one["value"][1] == "4"  # type: ignore[index]
