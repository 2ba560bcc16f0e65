"""How many hosts each rule of the pack can watch before a bound on queries stops it.

The model is `tests.tools.query_costs`. Past a bound a rule does not answer slowly, it stops.
"""

from functools import partial

import pytest

from api.promql.find import series_max
from api.promql.parse import parse_query
from tests.tools import query_costs
from tests.tools.query_costs import board_reaches, is_sparse, reach, rule_reaches

HOSTS_LEAST = 2_890
"""What every rule of the pack carries today, with 24 GiB; most carry more than ten thousand."""
HOSTS_WANTED = 10_000
FAR_ENOUGH = 0.9
"""The part of the rules that reach HOSTS_WANTED."""
BOARD_HOSTS_LEAST = 42
SERIES_MAX = series_max(query_costs.MEMORY_BYTES)


def test_no_rule_stops_on_a_small_cluster() -> None:
    """One did from twenty hosts on: it read every sample of a day, of every NVLink."""
    assert [one for one in rule_reaches() if one.hosts < HOSTS_LEAST] == []


def test_the_least_reach_is_what_is_said_here() -> None:
    """A change that makes it larger says so above; HOSTS_WANTED is the aim."""
    assert HOSTS_LEAST <= rule_reaches()[0].hosts < 1.1 * HOSTS_LEAST < HOSTS_WANTED


def test_most_rules_reach_what_is_wanted() -> None:
    far = [one.hosts >= HOSTS_WANTED for one in rule_reaches()]
    assert sum(far) / len(far) > FAR_ENOUGH


def test_no_panel_stops_sooner_than_today() -> None:
    assert [one for one in board_reaches() if one.hosts < BOARD_HOSTS_LEAST] == []


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


@pytest.mark.parametrize(
    "text",
    [
        "fabric_port_state < 4",
        "sum by (host) (increase(a_total[5m])) > 0",
        "a < 4 or b > 5",
        "a != a offset 1h",
    ],
)
def test_few_series_pass_a_threshold(text: str) -> None:
    assert is_sparse(parse_query(text))


@pytest.mark.parametrize("text", ["a > 0", "a", "a == bool 1", "a < 4 or b", "a != b"])
def test_many_series_pass_what_is_no_threshold(text: str) -> None:
    assert not is_sparse(parse_query(text))
