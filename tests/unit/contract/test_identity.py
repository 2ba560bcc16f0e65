"""Identities and series ids: one canonical form, stable for ever."""

import pytest

from collector.contract.errors import IdentityError
from collector.contract.identity import (
    LABEL_NAME_BYTES_MAX,
    LABEL_VALUE_BYTES_MAX,
    LABELS_MAX,
    DeviceId,
    GpuId,
    LinkId,
    PortId,
    canonical_bytes,
    canonical_labels,
    check_labels,
    metric_id,
    series_id,
)


def test_labels_are_sorted_and_empty_ones_dropped() -> None:
    labels = {"port": "1", "__name__": "up", "device": "mlx5_0", "rack": ""}
    assert canonical_labels(labels) == (("__name__", "up"), ("device", "mlx5_0"), ("port", "1"))


def test_a_label_that_comes_twice_is_refused() -> None:
    with pytest.raises(IdentityError, match="appears twice"):
        canonical_labels([("a", "1"), ("a", "2")])


def test_different_labels_never_share_their_bytes() -> None:
    """Without a separator that UTF-8 cannot hold, these would be one series."""
    assert canonical_bytes((("a", "bc"),)) != canonical_bytes((("ab", "c"),))
    assert canonical_bytes((("a", "b"), ("c", "d"))) != canonical_bytes((("a", "bcd"),))


def test_ids_never_change() -> None:
    """Every stored sample refers to them: if this fails, stored data is lost."""
    labels = canonical_labels({"__name__": "fabric_port_state", "host": "node-0", "port": "1"})
    assert series_id(labels) == 0x0FE1ABA629FBC8A2
    assert metric_id("fabric_port_state") == 0x1140DB81


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"a": "1"}, "needs a metric name"),
        ({"__name__": "up", "": "1"}, "without a name"),
        ({"__name__": "up", "a" * (LABEL_NAME_BYTES_MAX + 1): "1"}, "over 128 bytes"),
        ({"__name__": "up", "a": "é" * (LABEL_VALUE_BYTES_MAX // 2 + 1)}, "over 2048 bytes"),
        ({"__name__": "up"} | {f"l{n}": "1" for n in range(LABELS_MAX)}, "at most 64"),
    ],
)
def test_labels_that_cannot_name_a_series(labels: dict[str, str], message: str) -> None:
    with pytest.raises(IdentityError, match=message):
        check_labels(canonical_labels(labels))


def test_labels_that_can() -> None:
    """Other people's names may be any text, as in Prometheus 3."""
    check_labels(canonical_labels({"__name__": "job:up:rate5m", "a": "any text, even ünïcode"}))
    check_labels(canonical_labels({"__name__": "http.server.duration", "service.name": "x"}))


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        (DeviceId("node-0", "mlx5_0"), "node-0/mlx5_0"),
        (PortId("node-0", "mlx5_0", "1"), "node-0/mlx5_0/1"),
        (PortId("leaf-1", "switch", "Ethernet1/1"), "leaf-1/switch/Ethernet1%2F1"),
        (PortId("leaf|1", "50%", "1"), "leaf%7C1/50%25/1"),
        (GpuId("node-0", "7"), "node-0/7"),
    ],
)
def test_one_text_form(identity: DeviceId | PortId | GpuId, text: str) -> None:
    assert str(identity) == text
    assert type(identity).parse(text) == identity


@pytest.mark.parametrize("text", ["", "node-0", "a/b", "a//c", "a/b/c/d", "a/b/\n"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(IdentityError):
        PortId.parse(text)


def test_a_link_is_the_same_from_both_ends() -> None:
    host, switch = PortId("node-0", "mlx5_0", "1"), PortId("leaf-1", "switch", "7")
    link = LinkId.between(host, switch)
    assert link == LinkId.between(switch, host)
    assert str(link) == "leaf-1/switch/7|node-0/mlx5_0/1"
    assert LinkId.parse(str(link)) == link


def test_a_link_joins_two_ports() -> None:
    port = PortId("node-0", "mlx5_0", "1")
    with pytest.raises(IdentityError, match="joins two ports"):
        LinkId.between(port, port)
    with pytest.raises(IdentityError, match="not a LinkId"):
        LinkId.parse("node-0/mlx5_0/1")
