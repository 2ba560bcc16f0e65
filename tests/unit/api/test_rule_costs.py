"""How many hosts each rule and each panel can be asked of before a bound on queries stops it.

The model is `tests.tools.query_costs`. Past a bound a query does not answer slowly, it stops.
"""

from functools import partial

import pytest

from api.promql.find import series_max
from api.promql.parse import parse_query
from tests.tools import query_costs
from tests.tools.query_costs import board_reaches, is_sparse, reach, rule_reaches

HOSTS_WANTED = 10_000
"""Of every rule and every panel, with 24 GiB."""
OF_ALL_QUEUES = {
    "FabricHeadroomUsed",
    "FabricQueueBurst",
    "FabricQueueStanding",
    "group:fabric_port_priority_group_headroom_peak:drain",
    "port:fabric_port_queue_depth:drain5m",
    "port:fabric_port_queue_peak:drain",
    "queue:fabric_port_queue_depth:drain5m",
    "queue:fabric_port_queue_peak:drain",
}
"""Gauges of 320 queues a host: which of them hold anything only their samples tell, and all labels
are more than a selector may hold. Panels that choose by them end with them."""
HOSTS_OF_ALL_QUEUES = 5_440
SERIES_MAX = series_max(query_costs.MEMORY_BYTES)


def test_every_rule_reaches_what_is_wanted() -> None:
    """One ended at twenty hosts: it read every sample of a day, of every NVLink."""
    assert {one.name for one in rule_reaches() if one.hosts < HOSTS_WANTED} == OF_ALL_QUEUES


def test_rules_about_all_queues_reach_half_of_it() -> None:
    assert rule_reaches()[0].hosts >= HOSTS_OF_ALL_QUEUES


def test_every_panel_reaches_what_is_wanted() -> None:
    """Some ended at 43 hosts: they read every sample of an hour, of every port."""
    assert [one for one in board_reaches() if one.hosts < HOSTS_WANTED] == []


on_a_board = partial(reach, steps=240, step_ms=15_000)


@pytest.mark.parametrize(
    ("text", "hosts", "bound"),
    [
        ("fabric_gpu_nvlink_link_up", SERIES_MAX / (8 * 18), "QUERY_SERIES_MAX"),
        # The store reduces them: a number a series is loaded, and a core reads them all.
        ("max_over_time(fabric_gpu_up[1d])", 60e9 / (8 * 17_280 * 270), "QUERY_SECONDS_DEFAULT"),
        ("increase(fabric_gpu_up[1d])", 60e9 / (8 * 17_280 * 270), "QUERY_SECONDS_DEFAULT"),
        ("quantile_over_time(0.5, fabric_gpu_up[1d])", 50e6 / (8 * 17_280), "QUERY_SAMPLES_MAX"),
        (
            "max_over_time(rate(fabric_gpu_up[1h])[23h:5m])",
            50e6 / (8 * 17_280),
            "QUERY_SAMPLES_MAX",
        ),
        ("fabric_service_up", float("inf"), "QUERY_POINTS_MAX"),
        # A side with few series on its left is asked for these alone.
        (
            "fabric_gpu_up == 0 and max_over_time(fabric_gpu_up[1d])",
            SERIES_MAX / 8,
            "QUERY_SERIES_MAX",
        ),
        # Of counters that stand still the store reads the samples, and nobody the labels.
        (
            "sum by (port) (increase(fabric_port_queue_discarded_packets_total[5m])) > 0",
            60e9 / (40 * 8 * 3 * 60 * 56),
            "QUERY_SECONDS_DEFAULT",
        ),
        # Unless it might leave a note.
        (
            "fabric_gpu_up == 0 and rate(fabric_gpu_up[1d])",
            60e9 / (8 * (17_280 + 60) * 270),
            "QUERY_SECONDS_DEFAULT",
        ),
        ('fabric_port_queue_depth_bytes{queue=~"3|4"}', SERIES_MAX / (40 * 2), "QUERY_SERIES_MAX"),
        ('fabric_gpu_up{host="one"}', float("inf"), "QUERY_POINTS_MAX"),
        ('fabric_link_info{peer_name="one"}', float("inf"), "QUERY_POINTS_MAX"),
        # Of one priority: those without the label are no more.
        (
            'fabric_port_receive_pause_frames_total{priority=~"0|"}',
            SERIES_MAX / 40,
            "QUERY_SERIES_MAX",
        ),
        # A host has one sampler, which looks at its own ports; its histogram has eight steps.
        ("fabric_burst_sampler_up", SERIES_MAX, "QUERY_SERIES_MAX"),
        ("fabric_burst_utilisation_seconds_total", SERIES_MAX / (8 * 2 * 8), "QUERY_SERIES_MAX"),
    ],
)
def test_the_model_counts_series_and_samples(text: str, hosts: float, bound: str) -> None:
    found = reach(text)
    assert found.hosts == pytest.approx(hosts)
    assert found.bound == bound


def test_a_board_reads_the_whole_time_that_it_shows() -> None:
    raw = on_a_board("rate(fabric_gpu_up[1m])")
    assert raw.hosts == pytest.approx(50e6 / (8 * (239 * 15 + 60) / 5))
    cells = on_a_board("max_over_time(fabric_gpu_up[1h])")
    assert cells.hosts == pytest.approx(20e6 / (8 * 240))
    assert cells.bound == "QUERY_POINTS_MAX"


def test_what_a_panel_chooses_once_is_read_once() -> None:
    """And of what it shows only the chosen ones are read, at every step."""
    chosen = "topk(10, max_over_time(fabric_gpu_up[1h] @ end()) > 0)"
    found = on_a_board(f"rate(fabric_gpu_seconds_total[1m]) and {chosen}")
    assert found.hosts == pytest.approx(60e9 / (8 * 720 * 270))
    assert found.bound == "QUERY_SECONDS_DEFAULT"
    whole = on_a_board("rate(fabric_gpu_up[1m]) and topk(10, fabric_gpu_up)")
    assert whole.hosts < found.hosts / 5


@pytest.mark.parametrize(
    "text",
    [
        "fabric_port_state < 4",
        "sum by (host) (increase(a_total[5m])) > 0",
        "a < 4 or b > 5",
        "a != a offset 1h",
        "topk(10, a)",
        "a and topk(10, b)",
    ],
)
def test_few_series_pass_a_threshold(text: str) -> None:
    assert is_sparse(parse_query(text))


@pytest.mark.parametrize("text", ["a > 0", "a", "a == bool 1", "a < 4 or b", "a != b"])
def test_many_series_pass_what_is_no_threshold(text: str) -> None:
    assert not is_sparse(parse_query(text))
