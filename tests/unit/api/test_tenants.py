"""What one token may take: bounds over all of its addresses, refusals by name, counters."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from api.base.errors import Problem
from api.base.metrics import ServiceMetrics
from api.data.ingest.budgets import (
    NO_IDENTITIES,
    TENANT_SAMPLES,
    TENANT_SERIES,
    Budgets,
    KnownHosts,
    Over,
    Sender,
)
from api.http.settings import load_service_settings
from api.http.tenants import QUERIES, QUERY_SAMPLES, TenantLimits, Tenants
from collector.contract.errors import SettingsError


class Stand:
    """Tenants, budgets and a clock that is set by hand."""

    def __init__(self, **limits: TenantLimits) -> None:
        self.now_s = 1_000.0
        self.metrics = ServiceMetrics()
        by_name = {"*" if name == "others" else name: each for name, each in limits.items()}
        self.tenants = Tenants(by_name, self.metrics, ticks=lambda: self.now_s)
        self.budgets = Budgets(lambda: self.now_s, ticks=lambda: self.now_s)
        self.budgets.tenants = self.tenants

    def send(self, token: str, address: str, samples: int, series: int = 0) -> None:
        sender = Sender(f"{token} at {address}", tenant=token)
        self.budgets.enter(sender)
        rng = np.random.default_rng(series)
        identities = rng.integers(0, 1 << 63, series).astype(np.uint64)
        self.budgets.allowance(sender).settle(samples, identities, KnownHosts(), NO_IDENTITIES)

    def counted(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"fabric_service_tenant_{name}", labels)


def test_a_token_is_bounded_over_all_of_its_addresses() -> None:
    stand = Stand(a=TenantLimits(samples_a_second=10))
    stand.send("a", "one", 300)
    stand.send("a", "two", 301)  # a minute's worth is 600, and a request is taken whole
    with pytest.raises(Over, match="more than 10 samples a second") as refused:
        stand.send("a", "three", 1)
    assert refused.value.body.status == 429
    assert refused.value.body.rule == TENANT_SAMPLES
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 60
    stand.send("b", "one", 10_000_000)
    stand.send("b", "one", 1)
    stand.now_s += 1
    stand.send("a", "three", 1)
    assert stand.counted("samples_total", tenant="a") == 602
    assert stand.counted("refused_total", tenant="a", rule=TENANT_SAMPLES) == 1
    assert stand.counted("samples_total", tenant="*") is None, "no table is about it"


def test_past_its_series_of_a_day_a_token_begins_no_others() -> None:
    stand = Stand(a=TenantLimits(active_series=1_000))
    stand.send("a", "one", 0, series=2_000)
    allowance = stand.budgets.allowance(Sender("a at two", tenant="a"))
    assert allowance.take_series() == TENANT_SERIES
    assert allowance.is_past_day(1)
    assert allowance.day_rule == TENANT_SERIES
    stand.now_s += 86_400
    allowance = stand.budgets.allowance(Sender("a at two", tenant="a"))
    assert allowance.take_series() is None, "tomorrow is another day"


def test_queries_at_once_are_bounded_and_the_next_is_refused_by_name() -> None:
    stand = Stand(others=TenantLimits(queries=2))
    with contextlib.ExitStack() as running:
        for _ in range(2):
            running.enter_context(stand.tenants.asking("a"))
        running.enter_context(stand.tenants.asking("b"))
        with pytest.raises(Problem, match="'a' has 2 queries running, and may have 2") as refused:
            running.enter_context(stand.tenants.asking("a"))
    assert refused.value.body.status == 429
    assert refused.value.body.rule == QUERIES
    with stand.tenants.asking("a"):
        pass
    assert stand.counted("queries_total", tenant="*") == 4
    assert stand.counted("refused_total", tenant="*", rule=QUERIES) == 1


def test_what_queries_read_is_paid_off_by_the_minute() -> None:
    stand = Stand(a=TenantLimits(query_samples_a_minute=1_000))
    with stand.tenants.asking("a") as charge:
        charge(1_500)
    with pytest.raises(Problem) as refused, stand.tenants.asking("a"):
        pass
    assert refused.value.body.rule == QUERY_SAMPLES
    assert refused.value.headers["Retry-After"] == "31"
    stand.now_s += 31
    with stand.tenants.asking("a"):
        pass
    assert stand.counted("query_samples_total", tenant="a") == 1_500


def test_without_a_table_nothing_is_bounded_or_counted() -> None:
    stand = Stand()
    with stand.tenants.asking("a") as charge:
        charge(1 << 40)
    assert stand.tenants.of("") is None
    assert stand.counted("queries_total", tenant="*") is None


def test_a_bound_below_zero_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text("[tenant_limits.a]\nqueries = -1\n")
    with pytest.raises(SettingsError, match=r"tenant_limits.a.queries is -1; 0 \(unbounded\)"):
        load_service_settings(file, {}, {})
    file.write_text('[tenant_limits."*"]\nqueries = 3\nactive_series = 5\n')
    limits = load_service_settings(file, {}, {}).tenant_limits
    assert limits["*"] == TenantLimits(queries=3, active_series=5)
    file.write_text("[tenant_limits.a]\nquery = 1\n")
    with pytest.raises(SettingsError, match="query"):
        load_service_settings(file, {}, {})


def test_a_new_connection_is_no_new_budget() -> None:
    budgets = Stand().budgets
    assert budgets.of(Sender("a", line="host:1")) is budgets.of(Sender("a", line="host:2"))
