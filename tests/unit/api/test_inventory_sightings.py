"""What labels say exists, and what they do not."""

import math
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.base.host_names import without_port
from api.data.inventory.records import DeviceKind
from api.data.inventory.sightings import (
    ATTRIBUTE_CHARS_MAX,
    NAME_BYTES_MAX,
    SHAPES,
    PortValues,
    Sighting,
    sight,
)
from collector.contract.catalog import Catalog, load_catalog, parse_catalog_file
from collector.contract.identity import canonical_labels

PORT = """
[target]
name = "port"
help = "A port."
labels = ["host", "cluster", "device", "port"]

[[metrics]]
name = "fabric_port_transmit_bytes_total"
kind = "counter"
unit = "bytes"
help = "Bytes."
since = "0.1.0"
aliases = [
    { exporter = "node_exporter", name = "node_infiniband_port_data_transmitted_bytes_total" },
]

[[metrics]]
name = "fabric_port_info"
kind = "info"
help = "What the port is."
labels = [
    "board_id", "driver", "firmware", "link_layer", "netdev", "node_guid", "port_guid", "state",
]
since = "0.1.0"
[[metrics.aliases]]
exporter = "node_exporter"
name = "node_infiniband_info"
labels = { firmware = "firmware_version" }
"""
NIC = """
[target]
name = "nic"
help = "A network interface."
labels = ["host", "cluster", "device"]

[[metrics]]
name = "fabric_nic_receive_bytes_total"
kind = "counter"
unit = "bytes"
help = "Bytes."
since = "0.1.0"
[[metrics.aliases]]
exporter = "node_exporter"
name = "node_network_receive_bytes_total"

"""
GPU = """
[target]
name = "gpu"
help = "A GPU."
labels = ["host", "cluster", "gpu"]

[[metrics]]
name = "fabric_gpu_power_watts"
kind = "gauge"
unit = "watts"
help = "Power."
since = "0.1.0"
aliases = [{ exporter = "dcgm", name = "DCGM_FI_DEV_POWER_USAGE", match = { job = "dcgm" } }]
"""
AGENT = """
[target]
name = "agent"
help = "The agent."
labels = ["host", "cluster"]

[[metrics]]
name = "fabric_agent_build_info"
kind = "info"
help = "Which program runs."
labels = ["version", "python"]
since = "0.1.0"
"""
SERVICE = """
[target]
name = "service"
help = "The service."
labels = []

[[metrics]]
name = "fabric_service_samples_total"
kind = "counter"
help = "Samples."
since = "0.1.0"
"""
CATALOG = Catalog([parse_catalog_file(text, "test") for text in (PORT, NIC, GPU, AGENT, SERVICE)])


def seen(**labels: str) -> Sighting | None:
    return sight(canonical_labels({"__name__": labels.pop("name"), **labels}), CATALOG)


def test_a_port_shows_its_device_and_host() -> None:
    assert seen(
        name="fabric_port_transmit_bytes_total", host="h1", cluster="c1", device="mlx5_0", port="1"
    ) == Sighting(
        host="h1",
        kind=DeviceKind.RDMA,
        device="mlx5_0",
        port="1",
        host_attributes=(("cluster", "c1"),),
    )


def test_an_info_metric_describes_the_device_and_the_port() -> None:
    assert seen(
        name="fabric_port_info",
        host="h1",
        device="mlx5_0",
        port="1",
        board_id="MT_0838",
        driver="mlx5_core",
        firmware="28.39.1002",
        link_layer="InfiniBand",
        netdev="ib0",
        node_guid="9803:9b03:0001:0002",
        port_guid="9803:9b03:0001:0003",
        rack="r7",
    ) == Sighting(
        host="h1",
        kind=DeviceKind.RDMA,
        device="mlx5_0",
        port="1",
        device_attributes=(
            ("board_id", "MT_0838"),
            ("driver", "mlx5_core"),
            ("firmware", "28.39.1002"),
            ("node_guid", "9803:9b03:0001:0002"),
        ),
        port_attributes=(
            ("guid", "9803:9b03:0001:0003"),
            ("link_layer", "InfiniBand"),
            ("netdev", "ib0"),
        ),
    )


def test_a_label_never_sets_what_only_a_value_can_say() -> None:
    sighting = seen(
        name="fabric_port_info", host="h1", device="mlx5_0", port="1", state="4: ACTIVE"
    )
    assert sighting is not None
    assert sighting.port_attributes == ()


def test_node_exporter_shows_ports_and_interfaces() -> None:
    assert seen(
        name="node_infiniband_port_data_transmitted_bytes_total",
        instance="node-7:9100",
        device="mlx5_0",
        port="1",
    ) == Sighting(host="node-7", kind=DeviceKind.RDMA, device="mlx5_0", port="1")
    assert seen(
        name="node_network_receive_bytes_total", instance="[fd00::7]:9100", device="eth0"
    ) == Sighting(host="fd00::7", kind=DeviceKind.NIC, device="eth0")


def test_node_exporters_info_has_no_port_and_describes_the_device() -> None:
    assert seen(
        name="node_infiniband_info",
        instance="node-7:9100",
        device="mlx5_0",
        board_id="MT_0838",
        firmware_version="28.1",
        hca_type="MT4129",
    ) == Sighting(
        host="node-7",
        kind=DeviceKind.RDMA,
        device="mlx5_0",
        device_attributes=(("board_id", "MT_0838"), ("firmware", "28.1")),
    )


def test_dcgm_shows_gpus_with_what_it_repeats_on_each_series() -> None:
    labels = {
        "name": "DCGM_FI_DEV_POWER_USAGE",
        "instance": "10.0.0.7:9400",
        "Hostname": "gpu-7",
        "gpu": "3",
        "device": "nvidia3",
        "modelName": "NVIDIA H200",
        "UUID": "GPU-1",
    }
    assert seen(job="dcgm", **labels) == Sighting(
        host="gpu-7",
        kind=DeviceKind.GPU,
        device="3",
        device_attributes=(("model", "NVIDIA H200"), ("uuid", "GPU-1")),
    )
    assert seen(job="other", **labels) is None, "the alias asks for job=dcgm"


def test_the_agent_shows_its_host_and_version() -> None:
    assert seen(
        name="fabric_agent_build_info", host="h1", version="0.1.0", python="3.11.2"
    ) == Sighting(host="h1", host_attributes=(("agent_version", "0.1.0"), ("python", "3.11.2")))


def test_our_own_gpu_series_name_the_gpu_on_each() -> None:
    assert seen(name="fabric_gpu_power_watts", host="h1", gpu="3", uuid="GPU-1") == Sighting(
        host="h1", kind=DeviceKind.GPU, device="3", device_attributes=(("uuid", "GPU-1"),)
    )


@pytest.mark.parametrize(
    ("state", "rate", "attributes"),
    [
        (4.0, 4e11, (("rate_bits_per_second", "400000000000"), ("state", "active"))),
        (None, 0.0, (("rate_bits_per_second", "0"),)),
        (9.0, -1.0, (("state", "unknown (9)"),)),
        (math.nan, math.nan, (("state", "unknown (nan)"),)),
        (None, math.inf, ()),
        (None, None, ()),
    ],
)
def test_values_of_a_port(
    state: float | None, rate: float | None, attributes: tuple[tuple[str, str], ...]
) -> None:
    values = PortValues(
        host="h1",
        device="mlx5_0",
        port="1",
        seen_at=datetime(2026, 1, 1, tzinfo=UTC),
        state=state,
        rate_bits_per_second=rate,
    )
    assert values.sighting() == Sighting(
        host="h1",
        kind=DeviceKind.RDMA,
        device="mlx5_0",
        port="1",
        port_attributes=attributes,
    )
    assert msgspec.structs.replace(values, device="").sighting() is None


@pytest.mark.parametrize(
    "name",
    ["node_infiniband_port_data_transmitted_bytes_total", "node_network_receive_bytes_total"],
)
def test_the_catalog_that_ships_knows_node_exporter(name: str) -> None:
    labels = canonical_labels(
        {"__name__": name, "instance": "node-7:9100", "device": "x0", "port": "1"}
    )
    sighting = sight(labels, load_catalog())
    assert sighting is not None
    assert (sighting.host, sighting.device) == ("node-7", "x0")


def test_every_target_of_the_catalog_that_ships_has_the_labels_we_look_for() -> None:
    targets = {file.target.name: file.target.labels for file in load_catalog().files}
    for name, shape in SHAPES.items():
        assert {"host", shape.device_label} <= set(targets[name])
        assert not shape.port_label or shape.port_label in targets[name]


def test_a_port_may_have_a_slash_in_its_name() -> None:
    labels = {"host": "leaf-1", "device": "switch", "port": "Ethernet1/1"}
    sighting = seen(name="fabric_port_transmit_bytes_total", **labels)
    assert sighting is not None
    assert sighting.port == "Ethernet1/1"


@pytest.mark.parametrize(
    "labels",
    [
        {"name": "http_requests_total", "host": "h1", "instance": "app:8080"},
        {"name": "up", "instance": "node-7:9100"},
        {"name": "fabric_service_samples_total", "instance": "service:9700"},
        {"name": "fabric_port_transmit_bytes_total", "device": "mlx5_0", "port": "1"},
        {"name": "fabric_port_transmit_bytes_total", "host": "h1", "port": "1"},
        {"name": "fabric_port_transmit_bytes_total", "host": "a\0", "device": "d", "port": "1"},
        {"name": "fabric_nic_receive_bytes_total", "host": "h" * 256, "device": "eth0"},
    ],
)
def test_labels_that_say_nothing(labels: dict[str, str]) -> None:
    assert seen(**labels) is None


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("node-7:9100", "node-7"),
        ("node-7", "node-7"),
        ("10.0.0.7:9100", "10.0.0.7"),
        ("[fd00::7]:9100", "fd00::7"),
        ("fd00::7", "fd00::7"),
        ("node-7:metrics", "node-7:metrics"),
        ("", ""),
    ],
)
def test_instance_without_its_port(instance: str, host: str) -> None:
    assert without_port(instance) == host


NAMES = [metric.name for metric in CATALOG.metrics] + [
    alias.name for metric in CATALOG.metrics for alias in metric.aliases
]
LABELS = ["host", "node", "instance", "device", "port", "netdev", "gpu", "cluster", "firmware"]


@given(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(LABELS), st.text(min_size=1)))
def test_whatever_the_labels_are_a_sighting_fits_the_databases(
    name: str, labels: dict[str, str]
) -> None:
    sighting = sight(canonical_labels({**labels, "__name__": name}), CATALOG)
    if sighting is None:
        return
    for part in (sighting.host, sighting.device, sighting.port):
        assert part.isprintable()
        assert len(part.encode()) <= NAME_BYTES_MAX
    for attributes in (
        sighting.host_attributes,
        sighting.device_attributes,
        sighting.port_attributes,
    ):
        assert all(
            value.isprintable() and len(value) <= ATTRIBUTE_CHARS_MAX for _, value in attributes
        )
