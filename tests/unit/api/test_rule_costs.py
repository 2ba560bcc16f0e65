"""How many hosts each rule of the pack can watch before a bound on queries stops it.

A model, without data: how many series a host has of each metric, how often they are read, and how
far back each query looks. A rule past a bound does not answer slowly, it stops working.
"""

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec
import pytest

from alerts.rulebook.file import parse_rules
from alerts.rulebook.knobs import fill_pack
from alerts.rulebook.model import Group, Rule
from api.base.limits import QUERY_SAMPLES_MAX, QUERY_SERIES_MAX
from api.promql.parse import parse_query
from api.promql.plan import Aggregate, Node, RangeSelect, Select, Subquery, children_of
from collector.contract.catalog import load_catalog

HOSTS_LEAST = 208
"""What every rule of the pack carries today; most carry some thousand."""
HOSTS_WANTED = 10_000
READ_SECONDS = 5
"""How often agents read."""
LOOKBACK_MS = 300_000

THINGS = {"port": 40, "nic": 10, "gpu": 8, "rank": 8, "step": 8, "communicator": 4, "burst": 40}
"""Of each target, those of one host with eight GPUs and NICs: a NIC's port has four ports of
switches with it, in two tiers of a fabric without oversubscription. One of others."""
EACH = {
    "priority": 8,
    "queue": 8,
    "lane": 4,
    "link": 18,
    "cast": 3,
    "ip_version": 2,
    "direction": 2,
}
"""Series of one thing by the values of a label; one of others."""
PER_HOST_LABELS = {"device": 8, "port": 1, "gpu": 8, "rank": 8, "communicator": 4}
"""The same for what rules record, by the labels that they keep."""
SPARSE = {"link:fabric_gpu_nvlink_link_up:lost"}
"""Recorded only of what is broken."""
SPARSE_LABELS = {("fabric_agent_reading_missing", "reason", "saturated")}
"""Values of a label that only few series have: a counter stands at its end until it is reset."""
CONSTANT = {"service", "incident", "job", "finding", "setting"}
"""Targets whose series do not grow with hosts, or hardly."""


class Recorded(msgspec.Struct, frozen=True):
    """A series that the pack records: how often, and how many a host."""

    every_s: float
    per_host: float


def pack() -> Iterator[tuple[Group, Rule]]:
    for name, text in fill_pack({}).items():
        for group in parse_rules(text, name):
            for rule in group.rules:
                yield group, rule


def kept_labels(plan: Node) -> tuple[str, ...] | None:
    """The labels of the outermost aggregation; None: there is none, or it drops labels."""
    waiting = [plan]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, Aggregate):
            return None if node.without else node.labels
        waiting += children_of(node)
    return None


@cache
def recorded() -> Mapping[str, Recorded]:
    found = {}
    for group, rule in pack():
        if rule.is_alert:
            continue
        labels = kept_labels(parse_query(rule.expression)) or ("device", "priority")
        per_host = 1.0 if "host" in labels else 0.0
        for label in labels:
            per_host *= PER_HOST_LABELS.get(label, EACH.get(label, 1))
        if {"device", "port"} <= set(labels):
            per_host *= THINGS["port"] / PER_HOST_LABELS["device"]
        is_sparse = rule.name in SPARSE
        found[rule.name] = Recorded(group.interval_s or 30.0, 0.0 if is_sparse else per_host)
    return found


def series_of(metric: str) -> tuple[float, float]:
    """How many series of a metric a host has, and the seconds between two of their samples."""
    if metric in recorded():
        one = recorded()[metric]
        return one.per_host, one.every_s
    catalog = load_catalog()
    target = catalog.target_of(metric)
    if target is None or target.name in CONSTANT:
        return 0.0, READ_SECONDS
    per_host = float(THINGS.get(target.name, 1))
    for label in catalog.labels_of(metric):
        per_host *= EACH.get(label, 1)
    return per_host, READ_SECONDS


def reads(plan: Node, above_ms: int = 0) -> Iterator[tuple[Select, int]]:
    """Every selector with the time that it reads, subqueries' included."""
    match plan:
        case Select():
            yield plan, above_ms + LOOKBACK_MS
        case RangeSelect(select=select, range_ms=range_ms):
            yield select, above_ms + range_ms
        case Subquery(expression=inside, range_ms=range_ms):
            yield from reads(inside, above_ms + range_ms)
        case _:
            for child in children_of(plan):
                yield from reads(child, above_ms)


def reach(text: str) -> tuple[float, str]:
    """How many hosts a query can be asked of, and the bound that ends it."""
    samples, most = 0.0, 0.0
    for select, time_ms in reads(parse_query(text)):
        per_host, every_s = series_of(select.selector.metric or "")
        if any(
            (select.selector.metric, one.label, one.value) in SPARSE_LABELS
            for one in select.selector.matchers
        ):
            per_host = 0.0
        most = max(most, per_host)
        samples += per_host * time_ms / 1_000 / every_s
    by_series = QUERY_SERIES_MAX / most if most else float("inf")
    by_samples = QUERY_SAMPLES_MAX / samples if samples else float("inf")
    return min((by_series, "QUERY_SERIES_MAX"), (by_samples, "QUERY_SAMPLES_MAX"))


def reaches() -> list[tuple[float, str, str]]:
    return sorted((*reach(rule.expression), rule.name) for _, rule in pack())


def test_no_rule_stops_on_a_small_cluster() -> None:
    """One did from twenty hosts on: it read every sample of a day, of every NVLink."""
    small = [
        f"{name}: {hosts:,.0f} hosts, then {bound}"
        for hosts, bound, name in reaches()
        if hosts < HOSTS_LEAST
    ]
    assert small == []


def test_the_least_reach_is_what_is_said_here() -> None:
    """A change that makes it larger says so above; HOSTS_WANTED is the aim."""
    assert HOSTS_LEAST <= reaches()[0][0] < 1.1 * HOSTS_LEAST < HOSTS_WANTED


@pytest.mark.parametrize(
    ("text", "hosts", "bound"),
    [
        ("fabric_gpu_nvlink_link_up", 200_000 / (8 * 18), "QUERY_SERIES_MAX"),
        ("max_over_time(fabric_gpu_up[1d])", 50e6 / (8 * 17_280), "QUERY_SAMPLES_MAX"),
        (
            "max_over_time(rate(fabric_gpu_up[1h])[23h:5m])",
            50e6 / (8 * 17_280),
            "QUERY_SAMPLES_MAX",
        ),
        ("fabric_service_up", float("inf"), "QUERY_SAMPLES_MAX"),
    ],
)
def test_the_model_counts_series_and_samples(text: str, hosts: float, bound: str) -> None:
    found, ended_by = reach(text)
    assert found == pytest.approx(hosts)
    assert ended_by == bound
