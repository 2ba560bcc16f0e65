"""Series and readings."""

import pytest

from collector.contract.errors import IdentityError
from collector.contract.identity import series_id
from collector.contract.model import Missing, Sample, Series
from collector.contract.reason import UnreadReason


def test_series_are_equal_when_metric_and_labels_are() -> None:
    one = Series("fabric_port_state", {"device": "mlx5_0", "port": "1"})
    same = Series("fabric_port_state", {"port": "1", "device": "mlx5_0", "rack": ""})
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, same, Series("fabric_port_state", {"device": "mlx5_0"})}) == 2
    assert one != "fabric_port_state"


def test_a_series_prints_as_it_is_asked_for() -> None:
    series = Series("fabric_port_state", {"port": "1", "device": "mlx5_0"})
    assert repr(series) == 'fabric_port_state{device="mlx5_0",port="1"}'


def test_the_host_s_labels_belong_to_the_id() -> None:
    series = Series("up", {"device": "mlx5_0"})
    assert series.full_labels({"host": "node-0"}) == (
        ("__name__", "up"),
        ("device", "mlx5_0"),
        ("host", "node-0"),
    )
    assert series.identify({"host": "node-0"}) == series_id(series.full_labels({"host": "node-0"}))
    assert series.identify({"host": "node-0"}) != series.identify({"host": "node-1"})


def test_a_series_own_label_wins_over_the_host_s() -> None:
    assert Series("up", {"host": "leaf-1"}).full_labels({"host": "poller"})[1] == ("host", "leaf-1")


def test_labels_that_come_twice_are_refused() -> None:
    with pytest.raises(IdentityError):
        Series("up", [("a", "1"), ("a", "2")])  # type: ignore[arg-type]


def test_readings_do_not_change() -> None:
    sample = Sample(Series("up"), 1.0, 0)
    missing = Missing(Series("up"), UnreadReason.ABSENT, "")
    with pytest.raises(AttributeError):
        sample.value = 2.0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        missing.detail = "x"  # type: ignore[misc]


def test_reasons_are_label_values() -> None:
    """Rules match on them: adding one is fine, changing one breaks users' alerts."""
    assert {str(reason) for reason in UnreadReason} >= {
        "absent",
        "not_supported",
        "unreadable",
        "unparseable",
        "saturated",
        "timeout",
        "failed",
    }
