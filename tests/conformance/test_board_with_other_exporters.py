"""The board of a host, with nothing but the series of node_exporter and dcgm-exporter.

A user who already runs those and sends them by remote write should see the host without our agent.
The test lists the panels that stay empty, so that one more fails it.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from collector.contract.catalog import Metric, load_catalog
from dashboards.grafana.boards import host
from dashboards.grafana.model import Panel
from dashboards.grafana.substitute import ALL, substituted
from tests.stands.service import InProcess, in_process
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy

OURS = re.compile(r"\bfabric_(?:gpu|nic|port|host)_\w+")
EMPTY = {
    "Incidents",
    "Incidents of this host",
    "Alerts of this host",
    "Ranks that run here",
    # node_exporter counts every processor by itself, and we all of them together.
    "Where the processors' time goes",
    "Jobs held down by their quota",
    # Of vLLM and SGLang, which send them by themselves where a host runs one.
    "Engine: how long a token takes",
    "Engine: how many requests",
    "Engine: transfers of keys and values",
}
"""What neither exporter knows."""
SAMPLES = 21
STEP_S = 15


def panels() -> list[Panel]:
    return [panel for row in host.BOARD.rows for panel in row.panels]


def theirs(metric: Metric, now_s: int) -> TimeSeries:
    """A rising series under the first name that another exporter has for the metric."""
    alias = metric.aliases[0]
    labels = {"__name__": alias.name, "job": "scraped", "instance": "n1:9100"}
    labels |= {name: value for name, value in alias.match.items() if value}
    if metric.name.startswith("fabric_gpu_"):
        labels |= {"Hostname": "n1", "gpu": "0", "UUID": "GPU-1"}
    if metric.name.startswith(("fabric_port_", "fabric_nic_")):
        labels[alias.labels.get("device", "device")] = "mlx5_0"
    if metric.name.startswith("fabric_port_"):
        labels[alias.labels.get("port", "port")] = "1"
    moments = [(now_s - (SAMPLES - 1 - place) * STEP_S) * 1_000 for place in range(SAMPLES)]
    return TimeSeries(
        sorted(labels.items()), [(4.0 + place, moment) for place, moment in enumerate(moments)]
    )


def answers(service: InProcess, panel: Panel, now_s: int) -> int:
    """How many series all questions of the panel bring."""
    count = 0
    for query in panel.queries:
        expr = substituted(query.expr, {"host": "n1", "cluster": ALL})
        answer = service.client.post("/api/v1/query", data={"query": expr, "time": str(now_s)})
        assert answer.status_code == 200, (panel.title, answer.text)
        count += len(answer.json()["data"]["result"])
    return count


def test_a_host_is_shown_without_an_agent_of_ours(tmp_path: Path) -> None:
    catalog, now_s = load_catalog(), int(time.time())
    names = {
        name for panel in panels() for query in panel.queries for name in OURS.findall(query.expr)
    }
    metrics = [catalog.metric(name) for name in sorted(names)]
    known = [metric for metric in metrics if metric is not None and metric.aliases]
    body = snappy(request_v1([theirs(metric, now_s) for metric in known]))
    with in_process(tmp_path) as service:
        service.client.post("/api/v1/write", content=body, headers=V1_HEADERS).raise_for_status()
        hosts = service.client.get(
            "/api/v1/label/host/values", params={"match[]": "fabric_host_load1"}
        ).json()["data"]
        empty = {panel.title for panel in panels() if not answers(service, panel, now_s)}
    assert hosts == ["n1"]
    assert empty == EMPTY
