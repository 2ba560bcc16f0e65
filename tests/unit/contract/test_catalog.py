"""The catalog: its rules, and that what ships keeps them."""

import re

import pytest

from collector.contract.catalog import (
    Catalog,
    Kind,
    Metric,
    Target,
    Unit,
    check_metric,
    load_catalog,
    parse_catalog_file,
)
from collector.contract.counters import WIDE
from collector.contract.errors import CatalogError
from collector.tables import ethtool, rdma

PORT = Target(name="port", help="A port.", labels=["device", "port"])


def metric(name: str, kind: Kind = Kind.GAUGE, **fields: object) -> Metric:
    return Metric(name=name, kind=kind, since="0.1.0", **{"help": "A count.", **fields})  # type: ignore[arg-type]


# --- rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (metric("port_state"), "beginning with fabric_"),
        (metric("fabric_port_State"), "lower case"),
        (metric("fabric_gpu_state"), "named fabric_port_"),
        (metric("fabric_port_drops", Kind.COUNTER), "ends in _total"),
        (metric("fabric_port_drops_total"), "neither _total nor _info"),
        (metric("fabric_port_what", Kind.INFO), "ends in _info"),
        (metric("fabric_port_rate", unit=Unit.BYTES), "ends in _bytes"),
        (metric("fabric_port_state", help="No full stop"), "full stop"),
        (metric("fabric_port_state", labels=["device"]), "target's already"),
        (metric("fabric_port_state", window="queue"), "none of its labels"),
        (metric("fabric_port_info", Kind.INFO, window="all"), "counters and gauges"),
    ],
)
def test_what_breaks_a_rule_is_refused(bad: Metric, message: str) -> None:
    with pytest.raises(CatalogError, match=re.escape(message)):
        check_metric(bad, PORT)


@pytest.mark.parametrize(
    "good",
    [
        metric("fabric_port_state"),
        metric("fabric_port_rate_bits_per_second", unit=Unit.BITS_PER_SECOND),
        metric("fabric_port_receive_bytes_total", Kind.COUNTER, unit=Unit.BYTES),
        metric("fabric_port_info", Kind.INFO, labels=["driver"]),
        metric("fabric_port_state", labels=["queue"], window="queue"),
        metric("fabric_port_state", window="all"),
    ],
)
def test_what_keeps_the_rules_passes(good: Metric) -> None:
    check_metric(good, PORT)


TOML = """
[target]
name = "port"
help = "A port."
labels = ["device", "port"]
[[metrics]]
name = "fabric_port_receive_bytes_total"
kind = "counter"
unit = "bytes"
help = "Bytes."
since = "0.1.0"
labels = ["queue"]
[[metrics.aliases]]
exporter = "other"
name = "other_bytes"
factor = 8.0
"""


def test_metrics_are_looked_up_by_name_and_by_alias() -> None:
    catalog = Catalog([parse_catalog_file(TOML, "port.toml")])
    found = catalog.metric("fabric_port_receive_bytes_total")
    assert found is not None
    assert catalog.target_of(found.name) == PORT
    assert catalog.labels_of(found.name) == {"device", "port", "queue"}
    assert [(alias.factor, each) for alias, each in catalog.aliases_of("other_bytes")] == [
        (8.0, found)
    ]
    assert catalog.metric("nothing") is None
    assert catalog.target_of("nothing") is None
    assert catalog.aliases_of("nothing") == []


def test_a_metric_has_one_meaning() -> None:
    file = parse_catalog_file(TOML, "port.toml")
    with pytest.raises(CatalogError, match="defined twice"):
        Catalog([file, file])


@pytest.mark.parametrize(
    "text", ["[", TOML + "surprise = 1\n", TOML.replace('"counter"', '"sum"'), "a = 1"]
)
def test_a_broken_file_is_named(text: str) -> None:
    with pytest.raises(CatalogError, match=r"catalog/port\.toml"):
        parse_catalog_file(text, "port.toml")


# --- what ships ----------------------------------------------------------------------------------


def test_the_catalog_that_ships_keeps_the_rules() -> None:
    names = {file.target.name for file in load_catalog().files}
    assert names >= {"port", "nic", "gpu", "collective", "step", "job"}


def test_every_target_of_a_host_has_the_label_host() -> None:
    for file in load_catalog().files:
        if file.target.name in {"port", "nic", "gpu", "collective", "step"}:
            assert {"host", "cluster"} <= set(file.target.labels)


def test_every_table_row_names_a_metric_of_the_catalog_and_its_labels() -> None:
    catalog = load_catalog()
    tables = (
        rdma.CLASSIC,
        rdma.MLX5,
        rdma.BNXT_RE,
        rdma.IRDMA,
        rdma.EFA,
        rdma.EFA_DEVICE,
        rdma.HFI1,
    )
    for table in tables:
        for row in table.values():
            assert catalog.metric(row.metric), row
            assert {name for name, _ in row.labels} <= catalog.labels_of(row.metric)
    for driver in ethtool.BY_DRIVER.values():
        for each in driver.rows.values():
            assert catalog.metric(each.metric), each
        for pattern in driver.patterns:
            assert pattern.label in catalog.labels_of(pattern.metric), pattern


def test_only_counters_are_extended_or_clamped() -> None:
    catalog = load_catalog()
    for table in (rdma.CLASSIC, rdma.MLX5, rdma.HFI1):
        for row in table.values():
            found = catalog.metric(row.metric)
            assert found
            assert row.width == WIDE or found.kind is Kind.COUNTER, row


def test_an_alias_means_one_metric() -> None:
    """A foreign name may mean two of ours only where its labels decide which."""
    catalog = load_catalog()
    for each in catalog.metrics:
        for alias in each.aliases:
            meanings = catalog.aliases_of(alias.name)
            assert len(meanings) == 1 or all(other.match for other, _ in meanings), alias.name
