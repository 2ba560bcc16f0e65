"""Names of switches over OTLP: what an alias cannot say is translated when it arrives.

Names and attributes are those of NVIDIA's "Open Telemetry Export" (Cumulus Linux 5.15) and of
sonic-swss' countersyncd (message/otel.rs).
"""

from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from api.data.ingest.columns import Acceptance
from api.data.ingest.otlp import OtlpSeries, decode_otlp
from api.data.ingest.otlp_switches import CUMULUS, SAI
from collector.contract.catalog import load_catalog

NOW_MS = 1_790_000_000_000
ACCEPTANCE = Acceptance(earliest_ms=NOW_MS - 10_000, latest_ms=NOW_MS + 10_000)


def pushed(
    name: str, attributes: dict[str, str], *numbers: float, unit: str = "", host: str = "leaf1"
) -> dict[str, list[float]]:
    """Values in order of time, by series, of one gauge with a point a millisecond."""
    message = ExportMetricsServiceRequest()
    of_resource = message.resource_metrics.add()
    set_attributes(of_resource.resource, {"host.name": host} if host else {})
    metric = of_resource.scope_metrics.add().metrics.add()
    metric.name, metric.unit = name, unit
    for place, number in enumerate(numbers):
        point = metric.gauge.data_points.add()
        point.time_unix_nano = (NOW_MS + place) * 1_000_000
        point.as_double = number
        set_attributes(point, attributes)
    series = OtlpSeries()
    write = decode_otlp(message, series, ACCEPTANCE).request.write
    labels = {each.series: dict(each.labels) for each in write.series}
    found: dict[str, list[float]] = {}
    for number, value in zip(write.samples.series.tolist(), write.samples.value, strict=True):
        words = dict(labels[number])
        shown = ",".join(f"{key}={text}" for key, text in words.items() if key != "__name__")
        found.setdefault(f"{words['__name__']}{{{shown}}}", []).append(float(value))
    return found


def set_attributes(holder: Any, attributes: dict[str, str]) -> None:  # noqa: ANN401 - protobuf
    for key, text in attributes.items():
        pair = holder.attributes.add()
        pair.key, pair.value.string_value = key, text


def test_every_metric_that_is_named_is_in_the_catalog() -> None:
    catalog = load_catalog()
    place = {"host": "leaf1", "interface": "swp1", "system_name": "spine1"}
    told = [translate(place) for translate in CUMULUS.values()]
    for metric, labels in [*SAI.values(), *(each for each in told if each is not None)]:
        assert set(labels) <= catalog.labels_of(metric), metric


def test_a_state_is_a_state_of_ours_and_an_unknown_one_is_none() -> None:
    found = pushed("nvswitch_interface_oper_state", {"interface": "swp1"}, 1, 2, 8, 0)
    assert found["fabric_port_state{device=leaf1,host=leaf1,port=swp1}"] == [4.0, 1.0]
    assert found["nvswitch_interface_oper_state{host=leaf1,interface=swp1}"] == [1, 2, 8, 0]


def test_pauses_of_the_whole_port_have_their_priority() -> None:
    found = pushed("nvswitch_interface_dot3_out_pause_frames", {"interface": "swp1"}, 7)
    ours = "fabric_port_transmit_pause_frames_total"
    assert found[f"{ours}{{device=leaf1,host=leaf1,port=swp1,priority=global}}"] == [7.0]


@pytest.mark.parametrize(
    ("kind", "port_id", "described", "peer_port"),
    [("ifname", "swp9", "to leaf1", "swp9"), ("mac", "b8:ce:f6:00:00:01", "eth2", "eth2")],
)
def test_a_neighbour_is_a_link(kind: str, port_id: str, described: str, peer_port: str) -> None:
    """A switch names its port; lldpd on a host gives an address, and the name as description."""
    told = {
        "interface": "swp1",
        "system_name": "peer",
        "chassis_id": "94:6d:ae:ab:00:42",
        "port_id": port_id,
        "port_id_type": kind,
        "port_description": described,
    }
    found = pushed("nvswitch_lldp_neighbor_info", told, 1)
    (link,) = [name for name in found if name.startswith("fabric_link_info")]
    for words in (
        "port=swp1",
        "method=lldp",
        "peer_name=peer",
        f"peer_port={peer_port}",
        f"peer_port_id={port_id}",
    ):
        assert words in link


@pytest.mark.parametrize("interface", ["eth0", "mgmt", ""])
def test_what_is_no_port_of_the_fabric_is_stored_as_it_is(interface: str) -> None:
    found = pushed("nvswitch_interface_oper_state", {"interface": interface}, 1)
    assert not [name for name in found if name.startswith("fabric_")]


def test_a_switch_without_a_name_is_not_translated() -> None:
    """NVOS and countersyncd send no host: nothing may be made up."""
    found = pushed("nvswitch_interface_oper_state", {"interface": "swp1"}, 1, host="")
    assert list(found) == ["nvswitch_interface_oper_state{interface=swp1}"]
    sai = {"object_name": "Ethernet0", "sai_type_id": "1", "sai_stat_id": "0"}
    (name,) = pushed("sai_counter_type_1_stat_0", sai, 5, unit="1", host="")
    assert name.startswith("sai_counter_type_1_stat_0")


@pytest.mark.parametrize(
    ("kind", "statistic", "thing", "wanted"),
    [
        ("1", "0", "Ethernet0", "fabric_port_receive_bytes_total{device=s,host=s,port=Ethernet0}"),
        (
            *("1", "110", "Ethernet0"),
            "fabric_port_transmit_pause_frames_total{device=s,host=s,port=Ethernet0,priority=3}",
        ),
        (
            *("21", "24", "Ethernet4|3"),
            "fabric_port_queue_depth_bytes{device=s,host=s,port=Ethernet4,queue=3}",
        ),
        (
            *("26", "2", "Ethernet4|3"),
            "fabric_port_priority_group_depth_bytes{device=s,host=s,port=Ethernet4,priority=3}",
        ),
    ],
)
def test_high_frequency_telemetry_has_the_catalogs_names(
    kind: str, statistic: str, thing: str, wanted: str
) -> None:
    told = {"object_name": thing, "sai_type_id": kind, "sai_stat_id": statistic}
    name = f"sai_counter_type_{kind}_stat_{statistic}"
    assert pushed(name, told, 5, 6, unit="1", host="s") == {wanted: [5.0, 6.0]}


@pytest.mark.parametrize(
    ("kind", "statistic", "thing"),
    [
        ("21", "24", "Ethernet4"),  # a queue without its number
        ("1", "0", "Ethernet4|3"),  # a port with one
        ("24", "2", "ingress_lossless_pool"),  # of a pool the catalog has no metric
        ("1", "99999", "Ethernet4"),
        ("1", "0", ""),
    ],
)
def test_what_sai_names_and_the_catalog_does_not_keeps_its_name(
    kind: str, statistic: str, thing: str
) -> None:
    told = {"object_name": thing, "sai_type_id": kind, "sai_stat_id": statistic}
    name = f"sai_counter_type_{kind}_stat_{statistic}"
    (found,) = pushed(name, told, 5, unit="1", host="s")
    assert found.startswith(name)
