"""The boards of ports and of congestion name the right ones: both ends of a cable, and the root.

Samples are written as an agent's or as node_exporter's, and asked for as Grafana would ask.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from dashboards.grafana.boards import congestion, port
from dashboards.grafana.cable import ENDS, worst
from dashboards.grafana.model import Board, Panel
from dashboards.grafana.substitute import ALL, substituted
from tests.stands.recorded import write_recorded
from tests.stands.service import InProcess, in_process
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy

NOW = round(time.time())
MINUTES = 15
LENGTHS = {"__range": f"{MINUTES}m"}
STOPPED_FOR = 0.4
"""Of time: what the victims of the storm below are stopped for."""

Labels = dict[str, str]


def series(name: str, labels: Mapping[str, str], value: float, rate: float = 0.0) -> TimeSeries:
    """Every 15 seconds of the range."""
    times = range(NOW - MINUTES * 60, NOW + 1, 15)
    return TimeSeries(
        tuple(sorted({"__name__": name, **labels}.items())),
        [(value + rate * (each - times[0]), each * 1000) for each in times],
    )


def a_port(cluster: str, host: str, device: str, name: str) -> Labels:
    return {"cluster": cluster, "host": host, "device": device, "port": name}


def a_link(here: Labels, name: str, port: str) -> TimeSeries:
    return series("fabric_link_info", {**here, "peer_name": name, "peer_port": port}, 1.0)


# Two clusters with the same names: what is asked of one must not find the other's.
ETHERNET_NIC = a_port("eth", "n1", "mlx5_0", "1")
ETHERNET_OTHER_NIC = a_port("eth", "n1", "mlx5_1", "1")
ETHERNET_LEAF = a_port("eth", "leaf", "leaf", "Ethernet0")
ETHERNET_LEAF_OTHER = a_port("eth", "leaf", "leaf", "Ethernet4")
ETHERNET_UP = a_port("eth", "leaf", "leaf", "Ethernet8")
ETHERNET_SPINE = a_port("eth", "spine", "spine", "Ethernet4")
SUBNET_NIC = a_port("ib", "n1", "mlx5_0", "1")
SUBNET_OTHER_NIC = a_port("ib", "n1", "mlx5_1", "1")
SUBNET_LEAF = a_port("ib", "leaf", "leaf", "1")
SUBNET_LEAF_OTHER = a_port("ib", "leaf", "leaf", "2")
ALONE = a_port("eth", "n2", "mlx5_0", "1")
PORTS = (
    ETHERNET_NIC,
    ETHERNET_OTHER_NIC,
    ETHERNET_LEAF,
    ETHERNET_LEAF_OTHER,
    ETHERNET_UP,
    ETHERNET_SPINE,
    SUBNET_NIC,
    SUBNET_OTHER_NIC,
    SUBNET_LEAF,
    SUBNET_LEAF_OTHER,
    ALONE,
)
NIC = {"cluster": "eth", "host": "n1", "device": "eth0"}
CALM_NIC = {"cluster": "eth", "host": "n2", "device": "eth0"}
VICTIM_NIC = {"cluster": "eth", "host": "n3", "device": "eth0"}
THEIRS = {"instance": "node-7:9100", "job": "node"}
THEIR_PORT = {**THEIRS, "device": "mlx5_0", "port": "1"}
THEIR_WIRE = {"instance": "node-8:9100", "job": "node", "device": "eth0"}


def samples() -> list[TimeSeries]:
    """Cables of two fabrics; n1's NIC does not take what arrives and stops its leaf."""
    made = [series("fabric_port_state", each, 4.0) for each in PORTS]
    made += [series("fabric_port_rate_bits_per_second", each, 4e11) for each in PORTS]
    made += [
        series("fabric_port_info", {**ETHERNET_NIC, "netdev": "eth0", "driver": "mlx5"}, 1.0),
        series("fabric_port_info", {**ALONE, "netdev": "eth0", "driver": "mlx5"}, 1.0),
        a_link(ETHERNET_LEAF, "n1", "eth0"),
        series("fabric_port_info", {**ETHERNET_OTHER_NIC, "netdev": "eth1"}, 1.0),
        a_link(ETHERNET_LEAF_OTHER, "n1", "eth1"),
        a_link(ETHERNET_UP, "spine", "Ethernet4"),
        a_link(SUBNET_LEAF, "n1 mlx5_0", "1"),
        a_link(SUBNET_LEAF_OTHER, "n1 mlx5_1", "1"),
    ]
    for nic, stops, is_stopped in (
        (NIC, STOPPED_FOR, 0.0),
        (CALM_NIC, 0.0, 0.0),
        (VICTIM_NIC, 0.0, STOPPED_FOR),
    ):
        made += [
            series("fabric_nic_up", nic, 1.0),
            series("fabric_nic_transmit_pause_seconds_total", nic, 0.0, stops),
            series("fabric_nic_receive_pause_seconds_total", nic, 0.0, is_stopped),
        ]
    frames = 5_000.0
    made += [
        series("fabric_port_receive_pause_frames_total", ETHERNET_LEAF, 0.0, frames),
        series("fabric_port_transmit_pause_frames_total", ETHERNET_LEAF, 0.0, 0.0),
        series("fabric_port_transmit_pause_frames_total", ETHERNET_UP, 0.0, frames),
        series("fabric_port_receive_pause_frames_total", ETHERNET_SPINE, 0.0, frames),
        series("fabric_port_transmit_wait_seconds_total", SUBNET_LEAF, 0.0, 0.2),
        series("fabric_port_symbol_errors_total", ETHERNET_LEAF, 0.0, 0.008),
        series("fabric_port_symbol_errors_total", SUBNET_LEAF, 0.0, 0.0),
        series("node_infiniband_state_id", THEIR_PORT, 4.0),
        series("node_infiniband_rate_bytes_per_second", THEIR_PORT, 5e10),
        series("node_infiniband_port_data_transmitted_bytes_total", THEIR_PORT, 0.0, 4.5e10),
        series("node_infiniband_port_transmit_wait_total", THEIR_PORT, 0.0, 7.0),
        series("node_network_up", THEIR_WIRE, 1.0),
        series("node_network_speed_bytes", THEIR_WIRE, 1e9),
        series("node_network_transmit_bytes_total", THEIR_WIRE, 0.0, 2.5e8),
    ]
    was = series("fabric_burst_peak_bytes_per_second", ETHERNET_NIC, 0.0)
    over = (NOW - 300) * 1_000
    made.append(TimeSeries(was.labels, [(5e9 * (at < over), at) for _, at in was.samples]))
    return made


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("network")) as running:
        answer = running.client.post(
            "/api/v1/write", content=snappy(request_v1(samples())), headers=V1_HEADERS
        )
        assert answer.status_code == 204, answer.text
        write_recorded(running, [congestion.BOARD], NOW - MINUTES * 60, NOW)
        yield running


def ask(service: InProcess, expr: str, chosen: Mapping[str, str]) -> list[tuple[Labels, float]]:
    query = substituted(expr, {"cluster": ALL, **chosen}, LENGTHS)
    answer = service.client.post("/api/v1/query", data={"query": query, "time": str(NOW)})
    assert answer.status_code == 200, answer.text
    return [(one["metric"], float(one["value"][1])) for one in answer.json()["data"]["result"]]


def panel_of(board: Board, title: str, row: str = "") -> Panel:
    [found] = [
        panel
        for each in board.rows
        for panel in each.panels
        if panel.title == title and each.title.startswith(row)
    ]
    return found


def places(found: list[tuple[Labels, float]]) -> set[tuple[str, ...]]:
    return {tuple(labels[name] for name in ("cluster", "host", "port")) for labels, _ in found}


def place(labels: Labels) -> tuple[str, ...]:
    return labels["cluster"], labels["host"], labels["port"]


@pytest.mark.parametrize(
    ("here", "there"),
    [
        pytest.param(ETHERNET_NIC, ETHERNET_LEAF, id="a host, by what its switch hears by LLDP"),
        pytest.param(ETHERNET_LEAF, ETHERNET_NIC, id="a switch's host, by its interface"),
        pytest.param(ETHERNET_UP, ETHERNET_SPINE, id="a switch of which this one tells"),
        pytest.param(ETHERNET_SPINE, ETHERNET_UP, id="a switch that tells of this one"),
        pytest.param(SUBNET_NIC, SUBNET_LEAF, id="an adapter, by what its subnet says"),
        pytest.param(SUBNET_LEAF_OTHER, SUBNET_OTHER_NIC, id="the right adapter of two"),
    ],
)
def test_both_ends_of_a_cable_are_found(service: InProcess, here: Labels, there: Labels) -> None:
    assert places(ask(service, ENDS, here)) == {place(here), place(there)}


def test_a_port_without_a_known_cable_stands_alone(service: InProcess) -> None:
    assert places(ask(service, ENDS, ALONE)) == {place(ALONE)}


def test_errors_are_shown_at_the_end_where_they_arrive(service: InProcess) -> None:
    [query] = panel_of(port.BOARD, "Bit error rate after correction").queries
    [(labels, rate)] = ask(service, query.expr, ETHERNET_NIC)
    assert place(labels) == place(ETHERNET_LEAF)
    assert rate == pytest.approx(2e-14, rel=1e-3)


def test_pause_of_a_port_is_that_of_the_interface_behind_it(service: InProcess) -> None:
    is_stopped, stops = panel_of(port.BOARD, "Stopped by pause").queries
    assert ask(service, is_stopped.expr, ETHERNET_NIC) == [(NIC, 0.0)]
    [(labels, share)] = ask(service, stops.expr, ETHERNET_NIC)
    assert labels == NIC
    assert share == pytest.approx(STOPPED_FOR)


def test_the_root_is_who_stops_others_and_is_not_stopped(service: InProcess) -> None:
    more, stops, is_stopped = panel_of(congestion.BOARD, "Who stops others: measured time").queries
    for query in (more, stops):
        [(labels, share)] = ask(service, query.expr, {})
        assert labels == NIC
        assert share == pytest.approx(STOPPED_FOR)
    assert ask(service, is_stopped.expr, {}) == [(NIC, 0.0)]
    [roots] = panel_of(congestion.BOARD, "Roots of pause").queries
    assert [value for _, value in ask(service, roots.expr, {})] == [1.0]
    [victims] = panel_of(congestion.BOARD, "Stopped by pause", "Is any port").queries
    assert [value for _, value in ask(service, victims.expr, {})] == [3.0]


def test_a_switch_that_is_stopped_itself_is_no_root(service: InProcess) -> None:
    """The leaf passes on what n1 does: as much received as sent. The spine only suffers."""
    more, _, _ = panel_of(congestion.BOARD, "Who stops others: switches, by frames").queries
    [(labels, difference)] = ask(service, more.expr, {})
    assert labels["host"] == "leaf"
    assert difference == pytest.approx(0.0)


def test_a_stopped_port_leads_to_who_stops_it(service: InProcess) -> None:
    _, neighbours = panel_of(congestion.BOARD, "Who is stopped by whom").queries
    found = {
        (labels["host"], labels["peer_name"]) for labels, _ in ask(service, neighbours.expr, {})
    }
    assert found == {("leaf", "n1")}


def test_where_nobody_has_any_there_is_a_line_at_nought(service: InProcess) -> None:
    """Where no port has the counter, there is no line."""
    counted = 'rate(fabric_port_symbol_errors_total{cluster="ib"}[5m])'
    assert ask(service, worst(counted), {}) == [({"port": "no port"}, 0.0)]
    assert ask(service, worst("rate(fabric_port_drops_total[5m])"), {}) == []


def test_whoever_had_most_is_shown_also_while_he_has_none(service: InProcess) -> None:
    """The burst below was over five minutes ago."""
    expr = worst("fabric_burst_peak_bytes_per_second")
    assert [value for _, value in ask(service, expr, {})] == [0.0]
    assert [labels["host"] for labels, _ in ask(service, expr, {})] == ["n1"]


@pytest.mark.parametrize(
    ("title", "query", "chosen", "wanted"),
    [
        ("State", 0, {"host": "node-7", "device": "mlx5_0", "port": "1"}, 4.0),
        ("Rate", 0, {"host": "node-7", "device": "mlx5_0", "port": "1"}, 4e11),
        ("Utilisation", 0, {"host": "node-7", "device": "mlx5_0", "port": "1"}, 0.9),
        (
            "Ticks without credit (XmitWait)",
            0,
            {"host": "node-7", "device": "mlx5_0", "port": "1"},
            7.0,
        ),
        ("State", 0, {"host": "node-8", "device": "eth0", "port": ""}, 4.0),
        ("Utilisation", 0, {"host": "node-8", "device": "eth0", "port": ""}, 0.25),
    ],
)
def test_a_link_is_seen_with_node_exporter_alone(
    service: InProcess, title: str, query: int, chosen: Labels, wanted: float
) -> None:
    """An RDMA port by its device, and a plain interface by its name."""
    row = "Did it" if title == "Rate" else ""
    expr = panel_of(port.BOARD, title, row).queries[query].expr
    assert [value for _, value in ask(service, expr, chosen)] == [pytest.approx(wanted)]
