"""The service's self-monitoring metrics, as the catalog defines them (`catalog/service.toml`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from api.base.threads import cpu_seconds
from api.base.vitals import Pulse, Vitals
from collector.contract.catalog import Metric, load_catalog

ROWS_BUCKETS = (1e2, 1e3, 1e4, 5e4, 1e5, 5e5, 1e6, 4e6)
SECONDS_BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


def defined(name: str) -> Metric:
    """Asserts that the catalog has the metric: a missing one is a bug."""
    metric = load_catalog().metric(name)
    assert metric is not None, f"{name} is not in the catalog"
    return metric


class CpuTimes(Collector):
    """What this process has spent its CPU time on."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        metric = defined("fabric_service_cpu_seconds_total")
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        for work, seconds in cpu_seconds():
            family.add_metric([work], seconds)
        yield family


def registry_of_process() -> CollectorRegistry:
    """A registry that has what the process itself uses."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(CpuTimes())
    return registry


class ServiceMetrics:
    """One registry a service, so that two of them can live in one process (tests).

    ``clock``: unix seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        # Otherwise every counter exports a second series, `_created`, that no client queries.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry_of_process()
        self.requests = self._counter("fabric_service_requests_total")
        self.request_seconds = self._histogram("fabric_service_request_seconds", SECONDS_BUCKETS)
        self.denied = self._counter("fabric_service_denied_total")
        self.connections_refused = self._counter("fabric_service_connections_refused_total")
        self.work_failures = self._counter("fabric_service_work_failures_total")
        self.samples = self._counter("fabric_service_samples_total")
        self.events = self._counter("fabric_service_events_total")
        self.records = self._counter("fabric_service_records_total")
        self.merged, self.blank = map(
            self._counter,
            ("fabric_service_merged_samples_total", "fabric_service_blank_samples_total"),
        )
        self.rolled = self._counter("fabric_service_rolled_samples_total")
        self.pairs_left_out = self._counter("fabric_service_pairs_left_out_total")
        self.refused = self._counter("fabric_service_refused_total")
        self.quarantined = self._counter("fabric_service_quarantined_total")
        self.commits = self._counter("fabric_service_commits_total")
        self.commit_seconds = self._histogram("fabric_service_commit_seconds", SECONDS_BUCKETS)
        self.commit_rows = self._histogram("fabric_service_commit_rows", ROWS_BUCKETS)
        self.inventory_flushed = self._counter("fabric_service_inventory_flushed_total")
        self.inventory_dropped = self._counter("fabric_service_inventory_dropped_total")
        self.inventory_errors = self._counter("fabric_service_inventory_errors_total")
        self.ghosts_forgotten = self._counter("fabric_service_ghosts_forgotten_total")
        self.hosts_forgotten = self._counter("fabric_service_hosts_forgotten_total")
        self.evaluations = self._counter("fabric_service_evaluations_total")
        self.evaluation_seconds = self._histogram(
            "fabric_service_evaluation_seconds", SECONDS_BUCKETS
        )
        self.evaluation_delays = self._counter("fabric_service_evaluation_delays_total")
        self.asks = self._counter("fabric_service_asks_total")
        self.verdicts_held_back = self._counter("fabric_service_verdicts_held_back_total")
        self.detector_seconds = self._histogram("fabric_service_detector_seconds", SECONDS_BUCKETS)
        self.detector_errors = self._counter("fabric_service_detector_errors_total")
        self.findings_left_out = self._counter("fabric_service_findings_left_out_total")
        self.live_dropped = self._counter("fabric_service_live_dropped_total")
        self.health_left_out = self._counter("fabric_service_health_left_out_total")
        self.actions = self._counter("fabric_service_actions_total")
        self._count_notices()
        self.rule_evaluations = self._counter("fabric_service_rule_evaluations_total")
        self.rule_failures = self._counter("fabric_service_rule_failures_total")
        self.rule_seconds = self._histogram("fabric_service_rule_seconds", SECONDS_BUCKETS)
        self.rule_group_seconds = self._histogram(
            "fabric_service_rule_group_seconds", SECONDS_BUCKETS
        )
        self.rule_groups_missed = self._counter("fabric_service_rule_groups_missed_total")
        self.rule_rounds = self._counter("fabric_service_rule_groups_total")
        self.rule_reloads = self._counter("fabric_service_rule_reloads_total")
        self.rule_files_left_out = self._counter("fabric_service_rule_files_left_out_total")
        self.rule_samples_left_out = self._counter("fabric_service_rule_samples_left_out_total")
        self.alert_annotations_left_out = self._counter(
            "fabric_service_alert_annotations_left_out_total"
        )
        self.own_left_out = self._counter("fabric_service_own_samples_left_out_total")
        self.clock_steps, self.damaged_reads, self.direct_dropped = map(
            self._counter,
            (
                "fabric_service_clock_steps_total",
                "fabric_service_store_damaged_reads_total",
                "fabric_service_direct_notices_dropped_total",
            ),
        )
        self._count_reads_and_cases()
        self.newest_sample = self._gauge("fabric_service_newest_sample_time_seconds")
        self.vitals = self._watched(Vitals(clock))

    def _count_notices(self) -> None:
        self.alertmanager_sent = self._counter("fabric_service_alertmanager_sent_total")
        self.alertmanager_errors = self._counter("fabric_service_alertmanager_errors_total")
        self.alertmanager_dropped = self._counter("fabric_service_alertmanager_dropped_total")
        self.notices = self._counter("fabric_service_notices_total")
        self.pagerduty_events = self._counter("fabric_service_pagerduty_events_total")
        self.slack_actions = self._counter("fabric_service_slack_actions_total")
        self.notify_errors = self._counter("fabric_service_notify_errors_total")

    def _count_reads_and_cases(self) -> None:
        self.evaluations_fenced = self._counter("fabric_service_evaluations_fenced_total")
        self.cases = self._counter("fabric_service_cases_total")
        self.cases_dropped = self._counter("fabric_service_cases_dropped_total")
        self.recent_reads = self._counter("fabric_service_recent_reads_total")
        self.days_dropped = self._counter("fabric_service_store_days_dropped_total")
        self.kept_parts = self._counter("fabric_service_kept_parts_total")
        self.ahead_left_out = self._counter("fabric_service_ahead_left_out_total")
        self.rollout_steps = self._counter("fabric_service_rollout_steps_total")
        self.rollout_reports_dropped = self._counter("fabric_service_rollout_reports_dropped_total")
        self.configurations_refused = self._counter("fabric_service_configurations_refused_total")
        self.rollup_samples = self._counter("fabric_service_rollup_samples_total")
        self.tenant_samples = self._counter("fabric_service_tenant_samples_total")
        self.tenant_refused = self._counter("fabric_service_tenant_refused_total")
        self.tenant_queries = self._counter("fabric_service_tenant_queries_total")
        self.tenant_query_samples = self._counter("fabric_service_tenant_query_samples_total")
        self.rollup_late_hours = self._counter("fabric_service_rollup_late_hours_total")

    def _counter(self, name: str) -> Counter:
        metric = defined(name)
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        metric = defined(name)
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)

    def _watched(self, vitals: Vitals) -> Vitals:
        for pulse in vitals.pulses:
            self._watch_pulse(pulse)
        return vitals

    def _watch_pulse(self, pulse: Pulse) -> None:
        self.watch(
            "fabric_service_last_success_time_seconds", lambda: pulse.succeeded_s, work=pulse.name
        )
        self.watch("fabric_service_failing_seconds", lambda: pulse.failing_s, work=pulse.name)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        metric = defined(name)
        return Histogram(
            metric.name, metric.help, metric.labels, buckets=buckets, registry=self.registry
        )

    def watch(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """Export a gauge whose value ``read`` returns at each scrape."""
        metric = defined(name)
        existing = self.registry._names_to_collectors.get(name)  # noqa: SLF001 - no public look-up
        gauge = existing or Gauge(name, metric.help, metric.labels, registry=self.registry)
        assert isinstance(gauge, Gauge)
        (gauge.labels(**labels) if labels else gauge).set_function(read)

    def inform(self, name: str, **labels: str) -> None:
        """Export an info metric: always 1."""
        metric = defined(name)
        Gauge(name, metric.help, metric.labels, registry=self.registry).labels(**labels).set(1)

    def refuse(self, protocol: str, refused: dict[str, int]) -> None:
        for rule, count in refused.items():
            self.refused.labels(protocol, rule).inc(count)
