"""Prometheus text: every promise of the format, and of ours."""

import math

import pytest

from collector.agent.exposition import Renderer, format_value, render
from collector.contract.catalog import Catalog, CatalogFile, Kind, Metric, Target
from collector.contract.model import Event, Missing, Series
from collector.contract.reason import UnreadReason
from tests.doubles.fakes import sample

CATALOG = Catalog(
    [
        CatalogFile(
            target=Target(name="port", help="A port.", labels=["device", "port"]),
            metrics=[
                Metric(
                    name="fabric_port_errors_total",
                    kind=Kind.COUNTER,
                    help="Back\\slash and\nnewline, 100 %.",
                    since="0.1.0",
                ),
                Metric(name="fabric_port_device_info", kind=Kind.INFO, help="One.", since="0.1.0"),
            ],
        )
    ]
)


def test_families_and_series_are_sorted_and_have_help_and_type_once() -> None:
    renderer = Renderer({"host": "n"}, CATALOG)
    series = [
        Series("fabric_port_errors_total", {"device": "b"}),
        Series("fabric_port_device_info", {"device": "a"}),
        Series("fabric_port_errors_total", {"device": "a"}),
    ]
    assert renderer.render(series, [2.0, 1.0, 3.5]) == (
        "# HELP fabric_port_device_info One.\n"
        "# TYPE fabric_port_device_info gauge\n"
        'fabric_port_device_info{device="a",host="n"} 1\n'
        "# HELP fabric_port_errors_total Back\\\\slash and\\nnewline, 100 %.\n"
        "# TYPE fabric_port_errors_total counter\n"
        'fabric_port_errors_total{device="a",host="n"} 3.5\n'
        'fabric_port_errors_total{device="b",host="n"} 2\n'
    )


def test_a_metric_outside_the_catalog_is_untyped() -> None:
    text = Renderer({}, CATALOG).render([Series("driver_thing")], [1.0])
    assert "# TYPE driver_thing untyped\ndriver_thing 1\n" in text


def test_label_values_are_escaped_and_percent_signs_survive() -> None:
    series = Series("m", {"a": 'quote " back \\ line \n percent %s %d %'})
    text = Renderer({}, CATALOG).render([series], [1.0])
    assert 'm{a="quote \\" back \\\\ line \\n percent %s %d %"} 1\n' in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (7, "7"),
        (-3.0, "-3"),
        (0.1, "0.1"),
        (9007199254740993.0, "9007199254740992"),
        (1e16, "1e+16"),
        (2.0**64, "1.8446744073709552e+19"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (5e-324, "5e-324"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert format_value(value) == text
    assert Renderer({}, CATALOG).render([Series("m")], [value]).endswith(f"m {text}\n")


def test_numbers_change_without_a_new_layout_and_series_come_and_go() -> None:
    renderer = Renderer({}, CATALOG)
    a, b = Series("m", {"x": "a"}), Series("m", {"x": "b"})
    assert renderer.render([b, a], [1.0, 2.0]).endswith('m{x="a"} 2\nm{x="b"} 1\n')
    assert renderer.render([b, a], [3.0, 4.0]).endswith('m{x="a"} 4\nm{x="b"} 3\n')
    assert renderer.render([a], [5.0]).endswith('untyped\nm{x="a"} 5\n')
    assert renderer.render([], []) == ""


def test_a_series_that_appears_twice_is_shown_once() -> None:
    text = Renderer({}, CATALOG).render([Series("m"), Series("m")], [1.0, 2.0])
    assert text.endswith("m 1\n")
    assert text.count("\nm ") == 1


def test_a_series_label_wins_over_a_common_one() -> None:
    text = Renderer({"host": "agent"}, CATALOG).render([Series("m", {"host": "switch"})], [1.0])
    assert 'm{host="switch"} 1\n' in text


def test_an_absence_is_a_line_with_its_reason_and_an_event_is_none() -> None:
    missing = Missing(Series("fabric_port_x", {"device": "d"}), UnreadReason.NOT_SUPPORTED, "N/A")
    event = Event(kind="xid", time_ns=1, labels={})
    text = render([missing, event, sample("m", 1.0)], {"host": "n"}, "ib_sysfs")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        (
            'fabric_agent_reading_missing{device="d",host="n",metric="fabric_port_x",'
            'reason="not_supported",source="ib_sysfs"} 1'
        ),
        'm{host="n"} 1',
    ]
