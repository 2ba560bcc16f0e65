"""The overview boards' answers with other exporters alone; no value where no agent reports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import chain

import pytest

from alerts.rulebook.inhibit import JOB_THEMES, MACHINE_THEMES, NETWORK_THEMES, Covered
from dashboards.grafana.boards import alerts, capacity, fleet, itself
from dashboards.grafana.model import Board, Draw, Panel
from dashboards.grafana.substitute import ALL, substituted
from tests.stands.own import write_own
from tests.stands.recorded import write_recorded
from tests.stands.service import InProcess, in_process
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy

NOW = round(time.time())
BEFORE = NOW - 4 * 3_600
"""When alerts fired: hours before the rest, because a process can open one store only."""
MINUTES = 20
EVERYTHING = {"cluster": ALL, "instance": ALL}
BOARDS = {"fleet": fleet.BOARD, "alerts": alerts.BOARD, "capacity": capacity.BOARD}
SPREADING = frozenset({"pause", "congestion", "bursts"})

NODE = {"instance": "node-7:9100", "job": "node"}
PORT = {**NODE, "device": "mlx5_0", "port": "1"}
WIRE = {**NODE, "device": "eth0"}
PLAIN_WIRE = {"instance": "node-8:9100", "job": "node", "device": "eth0"}
GPU = {"Hostname": "node-7", "UUID": "GPU-aa", "gpu": "0", "instance": "node-7:9400"}


def series(
    name: str, labels: Mapping[str, str], value: float, rate: float = 0.0, end: int = NOW
) -> TimeSeries:
    """Every 15 seconds of the range and of as long before."""
    times = range(end - 2 * MINUTES * 60, end + 1, 15)
    samples = [(value + rate * (each - times[0]), each * 1000) for each in times]
    return TimeSeries((("__name__", name), *sorted(labels.items())), samples)


def turned(name: str, labels: Mapping[str, str], value: float) -> TimeSeries:
    """0, and this value in the last five minutes."""
    zero = series(name, labels, 0.0)
    since = (NOW - 300) * 1000
    return TimeSeries(
        zero.labels, [(0.0 if moment < since else value, moment) for _, moment in zero.samples]
    )


EXPORTERS = [
    series("node_load1", NODE, 3.0),
    series("node_load1", PLAIN_WIRE, 3.0),
    series("node_infiniband_state_id", PORT, 4.0),
    series("node_infiniband_rate_bytes_per_second", PORT, 50e9),
    series("node_infiniband_port_data_transmitted_bytes_total", PORT, 0.0, 45e9),
    series("node_infiniband_port_data_received_bytes_total", PORT, 0.0, 5e9),
    series("node_infiniband_port_packets_transmitted_total", PORT, 0.0, 1e6),
    series("node_infiniband_port_discards_transmitted_total", PORT, 0.0, 1e3),
    series("node_infiniband_symbol_error_total", PORT, 0.0, 4.0),
    series("node_network_speed_bytes", PLAIN_WIRE, 1e9),
    series("node_network_transmit_bytes_total", PLAIN_WIRE, 0.0, 0.25e9),
    series("node_network_speed_bytes", WIRE, 1e9),
    series("node_network_transmit_bytes_total", WIRE, 0.0, 1e9),
    series("DCGM_FI_DEV_GPU_UTIL", GPU, 75.0),
    series("DCGM_FI_DEV_FB_USED", GPU, 60_000.0),
    series("DCGM_FI_DEV_FB_FREE", GPU, 20_000.0),
    series("DCGM_FI_DEV_POWER_USAGE", GPU, 500.0),
    turned("DCGM_FI_DEV_XID_ERRORS", GPU, 48.0),
]


@pytest.fixture(scope="module")
def exporters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A service that only node_exporter and dcgm-exporter have written to, and rules."""
    with in_process(tmp_path_factory.mktemp("exporters")) as running:
        write(running, EXPORTERS)
        write_recorded(running, BOARDS.values(), NOW - MINUTES * 60, NOW)
        yield running


def write(service: InProcess, sent: list[TimeSeries]) -> None:
    """By remote write."""
    body = snappy(request_v1(sent))
    answer = service.client.post("/api/v1/write", content=body, headers=V1_HEADERS)
    assert answer.status_code == 204, answer.text


def ask(service: InProcess, expr: str, at: int = NOW) -> list[tuple[dict[str, str], float]]:
    """The answer to a board's expression, everything chosen."""
    lengths = {"__range": f"{MINUTES}m", "__range_s": str(MINUTES * 60)}
    query = substituted(expr, EVERYTHING, lengths)
    answer = service.client.post("/api/v1/query", data={"query": query, "time": str(at)})
    assert answer.status_code == 200, answer.text
    return [(one["metric"], float(one["value"][1])) for one in answer.json()["data"]["result"]]


def panels(board: Board) -> dict[str, Panel]:
    """By title."""
    return {panel.title: panel for row in board.rows for panel in row.panels}


@pytest.mark.parametrize(
    ("board", "title", "query", "wanted"),
    [
        ("fleet", "Ports lost", 0, [0.0]),
        ("fleet", "Hosts silent", 0, [0.0]),
        ("fleet", "Damaged bits", 0, [1e-11]),
        ("fleet", "Lost packets", 0, [1e-3]),
        ("fleet", "Fullest", 0, [0.9, 0.25]),
        ("fleet", "XIDs", 0, [1.0]),
        ("capacity", "Links without room", 0, [1.0]),
        ("capacity", "How many ports are how full", 0, [0.9, 0.25]),
        ("capacity", "Fullest ports", 0, [0.9, 0.25]),
        ("capacity", "Mean by tier", 0, [0.575]),
        ("capacity", "Trend by tier", 3, [0.575]),
        ("capacity", "GPUs busy", 0, [0.75]),
        ("capacity", "GPU memory used", 0, [0.75]),
        ("capacity", "Power of all GPUs", 0, [500.0]),
    ],
)
def test_boards_answer_with_other_exporters_alone(
    exporters: InProcess, board: str, title: str, query: int, wanted: list[float]
) -> None:
    """A NIC beside an RDMA port is the same wire and is counted once; one alone is counted."""
    found = ask(exporters, panels(BOARDS[board])[title].queries[query].expr)
    assert sorted((value for _, value in found), reverse=True) == pytest.approx(wanted, rel=1e-3)


def test_an_xid_of_dcgm_exporter_is_told_by_its_number(exporters: InProcess) -> None:
    [(labels, _)] = ask(exporters, panels(fleet.BOARD)["XIDs"].queries[0].expr)
    assert (labels["host"], labels["gpu"], labels["xid"]) == ("node-7", "0", "48")


def test_no_number_is_green_where_nobody_looks(exporters: InProcess) -> None:
    """Without a service that evaluates, without agents and switches: nothing, and never 0."""
    silent = {
        "fleet": ("Incidents", "GPU hours lost", "Alerts", "Switches silent"),
        "alerts": tuple(
            title for title, panel in panels(alerts.BOARD).items() if panel.draw is Draw.NUMBER
        ),
        "itself": tuple(
            title for title, panel in panels(itself.BOARD).items() if panel.draw is Draw.NUMBER
        ),
    }
    boards = {**BOARDS, "itself": itself.BOARD}
    for name, title in chain.from_iterable(
        [(name, title) for title in titles] for name, titles in silent.items()
    ):
        for query in panels(boards[name])[title].queries:
            assert ask(exporters, query.expr) == [], f"{name}: {title}"


# --- what an incident explains --------------------------------------------------------------------

VICTIMS = [
    Covered("port", (("device", "mlx5_0"), ("host", "n1"), ("port", "1")), NETWORK_THEMES),
    Covered("port", (("device", "mlx5_1"), ("host", "n1")), NETWORK_THEMES),
    Covered("nic", (("host", "n1"),), NETWORK_THEMES),
    Covered("switch", (("host", "leaf-1"),), NETWORK_THEMES),
    Covered("gpu", (("gpu", "3"), ("host", "n2")), MACHINE_THEMES),
    Covered("gpu", (("host", "n3"),), MACHINE_THEMES),
    Covered("host", (("host", "n2"),), MACHINE_THEMES),
    Covered("job", (("job", "train"),), JOB_THEMES),
    Covered("fabric", (), SPREADING),
]
FIRING = [
    {"scope": scope, "theme": theme, **labels}
    for scope, labels in [
        ("port", {"host": "n1", "device": "mlx5_0", "port": "1"}),
        ("port", {"host": "n1", "device": "mlx5_0", "port": "2"}),
        ("port", {"host": "n1", "device": "mlx5_1", "port": "7"}),
        ("port", {"host": "n9", "device": "mlx5_0", "port": "1"}),
        ("nic", {"host": "n1", "device": "eth0"}),
        ("nic", {"host": "n2", "device": "eth0"}),
        ("switch", {"host": "leaf-1"}),
        ("switch", {"host": "leaf-2"}),
        ("gpu", {"host": "n2", "gpu": "3"}),
        ("gpu", {"host": "n2", "gpu": "4"}),
        ("gpu", {"host": "n3", "gpu": "0"}),
        ("host", {"host": "n2"}),
        ("host", {"host": "n3"}),
        ("job", {"job": "train"}),
        ("rank", {"job": "train", "rank": "7"}),
        ("job", {"job": "other"}),
        ("service", {}),
    ]
    for theme in sorted({*NETWORK_THEMES, *MACHINE_THEMES, *JOB_THEMES, "self"})
]


def test_what_is_explained_is_what_the_service_says_is(exporters: InProcess) -> None:
    """The board's PromQL and `alerts.rulebook.inhibit` divide the same alerts in the same way.

    Without the fabric's scope first: it covers so much that a flaw of the others would not show.
    """
    state = {"alertstate": "firing", "severity": "warning"}
    named = {f"A{number}": labels for number, labels in enumerate(FIRING)}
    write_own(
        exporters.store,
        [
            series("ALERTS", {**labels, **state, "alertname": name}, 1.0, end=BEFORE)
            for name, labels in named.items()
        ],
    )
    unexplained = panels(alerts.BOARD)["Alerts that nothing explains"].queries[0].expr
    for victims in (VICTIMS[:-1], VICTIMS):
        metric = "fabric_incident_victim"
        things = [{**dict(each.labels), "scope": each.scope} for each in victims]
        write_own(exporters.store, [series(metric, labels, 1.0, end=BEFORE) for labels in things])
        wanted = {name for name, labels in named.items() if any(v.has(labels) for v in victims)}
        assert names(ask(exporters, alerts.EXPLAINED, BEFORE)) == wanted
        assert names(ask(exporters, unexplained, BEFORE)) == named.keys() - wanted


def names(found: list[tuple[dict[str, str], float]]) -> set[str]:
    """Of the alerts."""
    return {labels["alertname"] for labels, _ in found}
