"""A real Prometheus that sends us what it scrapes: what others' agents do, not what we think."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.stands.ports import free_port
from tests.stands.service import READY_SECONDS, ServiceProcess, eventually
from tests.tools import peers

CONFIG = """
global: {{scrape_interval: 1s, external_labels: {{cluster: blue}}}}
scrape_configs:
  - job_name: itself
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
  - job_name: nobody
    static_configs: [{{targets: ["127.0.0.1:1"]}}]
remote_write:
  - url: {url}/api/v1/write
    send_exemplars: true
    queue_config: {{batch_send_deadline: 1s}}
    metadata_config: {{send: true, send_interval: 1s}}
"""


@contextmanager
def prometheus(folder: Path, service: ServiceProcess) -> Iterator[str]:
    """The address of a Prometheus that scrapes itself every second and writes to the service."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(port=port, url=service.url))
    command = [
        str(peers.find("prometheus")),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(READY_SECONDS)


@pytest.mark.slow
@pytest.mark.peer("prometheus")
def test_what_prometheus_scrapes_is_found_here(tmp_path: Path) -> None:
    with (
        ServiceProcess(tmp_path / "data") as service,
        prometheus(tmp_path, service) as address,
        httpx.Client(base_url=address, timeout=30) as peer,
    ):
        eventually(
            lambda: len((service.samples('up{job="itself"}') or [{"values": []}])[0]["values"]) > 5,
            "five scrapes of Prometheus by itself",
        )
        [alive] = service.samples('up{job="itself"}')
        assert alive["labels"]["cluster"] == "blue"
        assert set(alive["values"]) <= {0, 1}
        assert alive["values"][-1] == 1
        [dead] = service.samples('up{job="nobody"}')
        assert set(dead["values"]) == {0}

        # Every sample that it has of some metrics up to now, we have too, with the same value.
        until = time.time() - 2
        for metric in ("prometheus_tsdb_head_samples_appended_total", "go_gc_duration_seconds"):
            query = {"query": f"{metric}[1h]", "time": str(until)}
            theirs = peer.get("/api/v1/query", params=query).json()["data"]["result"]
            assert theirs
            for series in theirs:
                labels = {**series["metric"], "cluster": "blue"}
                matchers = ",".join(f'{name}="{value}"' for name, value in labels.items())
                wanted = {round(at * 1000): float(value) for at, value in series["values"]}
                eventually(
                    lambda m=matchers, w=wanted: w.items() <= have(service, m).items(),  # type: ignore[misc]
                    f"all samples of {matchers}",
                )
        log = (tmp_path / "prometheus.log").read_text()
        assert "non-recoverable error" not in log
        metrics = service.client.get("/metrics").text
        assert 'path="/api/v1/write",status="204"' in metrics
        assert 'path="/api/v1/write",status="4' not in metrics


def have(service: ServiceProcess, matchers: str) -> dict[int, float]:
    """Our samples of one series: time → value."""
    found = service.samples(f"{{{matchers}}}")
    assert len(found) <= 1
    return {
        at: float(value)
        for series in found
        for at, value in zip(series["times_ms"], series["values"], strict=True)
    }
