"""What the simulator has no model of, made up for dashboards by the catalog's names and labels.

Agents' numbers about themselves, the burst sampler's, light and heat of transceivers, what a
baseline test measured, and those of the service's own that need clients. They are plausible and no
more: they show that a panel asks for names and labels that exist, not that anything is measured
right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from api.base.metrics import ServiceMetrics
from collector.bursts.track import BOUNDS
from collector.contract.model import Sample, Series
from collector.contract.units import NS
from simulator.topology.model import Fabric, Topology

SERVICE_HOST = "monitor"
SOURCES = ("host", "ib_sysfs", "ethtool", "nvml", "links", "nccl_inspector", "steps", "bursts")
POLLER = "poller-0"
SILENT_SWITCH = "management-0"
"""A switch that is to be polled and never answers."""
AWAY = (420.0, 540.0)
"""Seconds in which the second host's agent cannot reach the service, and spools."""
BLIND_FROM_S = 300.0
"""Seconds from which on the third host's agent cannot read its GPUs."""
BURSTY = (700.0, 900.0)
"""Seconds in which the first host's ports see bursts."""

Labels = dict[str, str]


@dataclass
class Counting:
    """Counters that only grow: the total of each so far."""

    totals: dict[Series, float] = field(default_factory=dict)

    def add(self, series: Series, amount: float) -> float:
        """The new total."""
        self.totals[series] = self.totals.get(series, 0.0) + amount
        return self.totals[series]


class Supplement:
    """Made-up samples of one cluster. Ask at rising times."""

    def __init__(
        self,
        topology: Topology,
        cluster: str,
        start_s: int,
        service: ServiceMetrics,
        dead_from_s: Mapping[str, float],
    ) -> None:
        """``dead_from_s``: hosts whose agents end, after so many seconds."""
        self._topology = topology
        self._cluster = cluster
        self._start_s = start_s
        self._service = service
        self._dead_from_s = dead_from_s
        self._random = np.random.default_rng(7)
        self._counting = Counting()
        self._last_s = float(start_s)
        self._place = {"host": SERVICE_HOST, "instance": f"{SERVICE_HOST}:9700"}
        service.inform("fabric_service_info", version="0.1.0", store="chdb")
        self._watch_service()

    def samples(self, now_ns: int) -> list[Sample]:
        """Everything of this moment."""
        now_s = now_ns / NS
        passed_s, self._last_s = now_s - self._last_s, now_s
        elapsed_s = now_s - self._start_s
        hosts = [self._topology.host_name(number) for number in range(self._topology.hosts)]
        pairs = [
            *(pair for host in [*hosts, POLLER] for pair in self._agent(host, elapsed_s, passed_s)),
            *(pair for host in hosts for pair in self._sampler(host, passed_s)),
            *self._bursts(elapsed_s, passed_s),
            *self._optics(elapsed_s),
            *self._switches(passed_s),
            *self._queues(elapsed_s, passed_s),
            *self._nics(passed_s),
            *self._baseline(hosts[0]),
            *self._settings(hosts),
        ]
        dead = {host for host, from_s in self._dead_from_s.items() if elapsed_s >= from_s}
        made = [
            Sample(series, value, now_ns)
            for series, value in pairs
            if not dead or dict(series.labels)["host"] not in dead
        ]
        return made + self._service_samples(now_ns, passed_s)

    def _series(self, metric: str, host: str, /, **labels: str) -> Series:
        return Series(metric, {"host": host, "cluster": self._cluster, **labels})

    def _counter(
        self, amount: float, metric: str, host: str, /, **labels: str
    ) -> tuple[Series, float]:
        series = self._series(metric, host, **labels)
        return series, self._counting.add(series, amount)

    def _gauge(
        self, value: float, metric: str, host: str, /, **labels: str
    ) -> tuple[Series, float]:
        return self._series(metric, host, **labels), value

    # Agents --------------------------------------------------------------------------------------

    def _agent(
        self, host: str, elapsed_s: float, passed_s: float
    ) -> Iterator[tuple[Series, float]]:
        """One agent about itself."""
        is_away = host == self._topology.host_name(1) and AWAY[0] <= elapsed_s < AWAY[1]
        is_blind = host == self._topology.host_name(2) and elapsed_s >= BLIND_FROM_S
        waiting = (elapsed_s - AWAY[0]) / 5 if is_away else 0.0
        samples = 0.0 if is_away else passed_s * 800
        for name, value in (
            ("start_time_seconds", self._start_s - 86_400.0),
            ("service_up", 0.0 if is_away else 1.0),
            ("spool_batches", waiting),
            ("spool_bytes", waiting * 40_000),
            ("spool_limit_bytes", 1e9),
            ("spool_oldest_age_seconds", waiting * 5),
            ("send_duration_seconds", 0.02 + 0.01 * self._random.random()),
        ):
            yield self._gauge(value, f"fabric_agent_{name}", host)
        yield self._gauge(1, "fabric_agent_build_info", host, version="0.1.0", python="3.11.2")
        for name, amount in (
            ("shipped_batches_total", samples / 4_000),
            ("shipped_samples_total", samples),
            ("link_messages_lost_total", 0.0),
            ("spool_foreign_files_total", 0.0),
            ("scrapes_total", passed_s / 15),
        ):
            yield self._counter(amount, f"fabric_agent_{name}", host)
        for name, label, text, amount in (
            ("send_failures_total", "error", "ConnectError", is_away * passed_s / 5),
            ("dropped_batches_total", "reason", "spool_full", 0.0),
            ("dropped_samples_total", "reason", "spool_full", is_away * 3.0),
            ("rejected_batches_total", "status", "422", 0.0),
            ("rejected_samples_total", "status", "422", 0.0),
            ("refused_samples_total", "rule", "too_old", is_away * 2.0),
            ("reloads_total", "result", "ok", 0.0),
        ):
            yield self._counter(amount, f"fabric_agent_{name}", host, **{label: text})
        for source in ("snmp",) if host == POLLER else SOURCES:
            yield from self._source(host, source, passed_s, is_broken=is_blind and source == "nvml")

    def _source(
        self, host: str, source: str, passed_s: float, *, is_broken: bool
    ) -> Iterator[tuple[Series, float]]:
        """One source of an agent."""
        took_s = (
            (0.002 + 0.003 * self._random.random()) * (1 + SOURCES.index(source) % 4)
            if (source in SOURCES)
            else 0.4
        )
        for name, value in (
            ("up", 0.0 if is_broken else 1.0),
            ("duration_seconds", took_s),
            ("readings", 0.0 if is_broken else 120.0),
            ("last_success_age_seconds", 60.0 if is_broken else 1.0),
        ):
            yield self._gauge(value, f"fabric_agent_source_{name}", host, source=source)
        metric = "fabric_agent_source_reads_total"
        for result, share in (("ok", not is_broken), ("failed", is_broken)):
            yield self._counter(passed_s * share, metric, host, source=source, result=result)
        missed = is_broken * passed_s / 2
        yield self._counter(missed, "fabric_agent_source_ticks_missed_total", host, source=source)
        missing = 4.0 if source == "nvml" else 0.0
        metric = "fabric_agent_source_missing"
        yield self._gauge(missing, metric, host, source=source, reason="not_supported")

    # Bursts and optics ---------------------------------------------------------------------------

    def _sampler(self, host: str, passed_s: float) -> Iterator[tuple[Series, float]]:
        """The process that reads counters fast."""
        for name, value in (("up", 1.0), ("ticks", 998.0)):
            yield self._gauge(value, f"fabric_burst_sampler_{name}", host)
        for quantile, value in (("0.5", 3e-5), ("0.99", 4e-4), ("1", 2e-3)):
            late_s = value * (0.8 + 0.4 * self._random.random())
            metric = "fabric_burst_sampler_lateness_seconds"
            yield self._gauge(late_s, metric, host, quantile=quantile)
        for name, amount in (
            ("restarts", 0.0),
            ("ticks_missed", 0.4 * passed_s),
            ("reads_interrupted", 0.1 * passed_s),
            ("cpu_seconds", 0.03 * passed_s),
            ("events_dropped", 0.0),
            ("reports_dropped", 0.0),
        ):
            yield self._counter(amount, f"fabric_burst_sampler_{name}_total", host)

    def _bursts(self, elapsed_s: float, passed_s: float) -> Iterator[tuple[Series, float]]:
        """Every fast counter of every port."""
        for nic in range(self._topology.nics):
            host = self._topology.host_name(self._topology.host_of_nic(nic))
            is_hit = nic < self._topology.nics_per_host and BURSTY[0] <= elapsed_s < BURSTY[1]
            for direction in ("transmit", "receive"):
                labels = {
                    "device": self._topology.device_name(nic),
                    "port": "1",
                    "direction": direction,
                }
                yield from self._counted(host, labels, passed_s, is_hit=is_hit)

    def _counted(
        self, host: str, labels: Labels, passed_s: float, *, is_hit: bool
    ) -> Iterator[tuple[Series, float]]:
        """One direction of one port: what was seen in the last second."""
        line = self._topology.speed.bits_per_second / 8
        is_incast = is_hit and labels["direction"] == "receive"
        mean = (0.2 + 0.1 * self._random.random()) * (1.6 if is_incast else 1.0)
        peak = min(1.0, (0.9 if is_incast else 0.55) + 0.1 * self._random.random())
        busy = 0.3 if is_incast else 0.06 * self._random.random()
        for name, value in (
            ("peak_bytes_per_second", peak * line),
            ("coarse_peak_bytes_per_second", 0.8 * peak * line),
            ("mean_bytes_per_second", mean * line),
            ("busy_ratio", busy),
            ("variation_ratio", 1.4 if is_incast else 0.5 + 0.1 * self._random.random()),
            ("resolution_seconds", 0.001),
            ("period_seconds", 0.001),
            ("read_seconds", 0.00008),
            ("windows", 990.0),
            ("line_bytes_per_second", line),
        ):
            yield self._gauge(value, f"fabric_burst_{name}", host, **labels)
        bursts = passed_s * (6 if is_incast else 0.2)
        yield self._counter(round(bursts), "fabric_burst_bursts_total", host, **labels)
        for bound in (*BOUNDS, math.inf):
            share = 1.0 if bound >= 1.0 else (1 - busy) * bound ** (0.4 * mean)
            text = "+Inf" if math.isinf(bound) else f"{bound:g}"
            metric = "fabric_burst_utilisation_seconds_total"
            yield self._counter(share * passed_s, metric, host, le=text, **labels)

    def _optics(self, elapsed_s: float) -> Iterator[tuple[Series, float]]:
        """Transceivers of switches, where the first one grows hot."""
        topology = self._topology
        links = np.flatnonzero(topology.source_switch >= 0)
        for link in links.tolist():
            switch = topology.switches[int(topology.source_switch[link])].name
            labels = {"device": switch, "port": topology.switch_port_name(link)}
            heat = 25.0 * min(1.0, elapsed_s / 600.0) if link == links[0] else 0.0
            for name, value in (
                ("temperature_celsius", 48.0 + heat + self._random.random()),
                ("supply_volts", 3.3 + 0.01 * self._random.random()),
                ("bias_amperes", 0.0075 + 0.0002 * self._random.random()),
            ):
                yield self._gauge(value, f"fabric_port_module_{name}", switch, **labels)

    def _switches(self, passed_s: float) -> Iterator[tuple[Series, float]]:
        """How switches are asked, how warm they are and what they throw away; one is silent."""
        yield self._gauge(0.0, "fabric_switch_up", SILENT_SWITCH, method="snmp")
        for switch in self._topology.switches:
            host = switch.name
            for method, took_s in (("snmp", 0.4), ("gnmi", 0.05)):
                polled = took_s * (0.8 + 0.4 * self._random.random())
                yield self._gauge(polled, "fabric_switch_poll_seconds", host, method=method)
                yield self._gauge(1_200.0, "fabric_switch_poll_values", host, method=method)
            for table, rows in (("ifTable", 34.0), ("entitySensors", 12.0)):
                labels = {"method": "snmp", "table": table}
                yield self._gauge(rows, "fabric_switch_table_rows", host, **labels)
                metric = "fabric_switch_poll_flaws"
                yield self._gauge(0.0, metric, host, flaw="out_of_order", **labels)
            for sensor, degrees in (("chip", 61.0), ("inlet", 27.0)):
                warm = degrees + 2 * self._random.random()
                yield self._gauge(warm, "fabric_switch_temperature_celsius", host, sensor=sensor)
            yield self._gauge(0.08, "fabric_switch_stream_delay_seconds", host, method="gnmi")
            for name, amount in (("updates", 40 * passed_s), ("connects", 0.0)):
                metric = f"fabric_switch_stream_{name}_total"
                yield self._counter(amount, metric, host, method="gnmi")
            reason = {"method": "gnmi", "drop_reason": "unknown_path"}
            yield self._counter(0.0, "fabric_switch_stream_dropped_total", host, **reason)
            reason = {"chip": "0", "drop_reason": "egress_queue_overflow"}
            yield self._counter(0.2 * passed_s, "fabric_switch_drops_total", host, **reason)
            reason = {"drop_reason": "no_buffer_space"}
            yield self._counter(0.1 * passed_s, "fabric_switch_drop_notices_total", host, **reason)

    def _queues(self, elapsed_s: float, passed_s: float) -> Iterator[tuple[Series, float]]:
        """The lossless queue of every switch port; the first host's stands full for a while."""
        topology = self._topology
        links = np.flatnonzero(topology.source_switch >= 0).tolist()
        for link in links:
            switch = topology.switches[int(topology.source_switch[link])].name
            place = {"device": switch, "port": topology.switch_port_name(link)}
            is_full = link == links[0] and BURSTY[0] <= elapsed_s < BURSTY[1]
            depth = (3e6 if is_full else 2e4) * (0.7 + 0.6 * self._random.random())
            queue = {**place, "queue": "3"}
            for name, value in (
                ("queue_depth_bytes", depth),
                ("queue_depth_average_bytes", 0.6 * depth),
                ("queue_peak_bytes", 2.5 * depth),
            ):
                yield self._gauge(value, f"fabric_port_{name}", switch, **queue)
            for name in ("depth", "peak", "headroom_peak"):
                metric = f"fabric_port_priority_group_{name}_bytes"
                yield self._gauge(0.5 * depth, metric, switch, priority="3", **place)
            marked = (4_000.0 if is_full else 3.0) * passed_s
            metric = "fabric_port_queue_ecn_marked_packets_total"
            yield self._counter(round(marked), metric, switch, **queue)
            stuck = float(is_full)
            for name in ("stuck", "recovered"):
                metric = f"fabric_port_pause_watchdog_{name}_total"
                yield self._counter(stuck, metric, switch, cast="unicast", **queue)
            metric = "fabric_port_ingress_queue_discarded_packets_total"
            yield self._counter(9 * stuck, metric, switch, **queue)
            if topology.fabric is Fabric.INFINIBAND:
                metric = "fabric_port_transmit_lifetime_discards_total"
                yield self._counter(5 * stuck, metric, switch, **place)
            reason = {**place, "drop_reason": "egress_queue_overflow"}
            yield self._counter(20 * stuck, "fabric_port_drops_total", switch, **reason)

    def _nics(self, passed_s: float) -> Iterator[tuple[Series, float]]:
        """Blocks that error correction had to mend, and what quotas hold back."""
        for nic in range(self._topology.nics):
            host = self._topology.host_name(self._topology.host_of_nic(nic))
            device = self._topology.interface_name(nic)
            for name, per_s in (("corrected", 900.0), ("uncorrectable", 0.0)):
                metric = f"fabric_nic_phy_receive_fec_{name}_blocks_total"
                yield self._counter(per_s * passed_s, metric, host, device=device)
        for number in range(self._topology.hosts):
            host = self._topology.host_name(number)
            for name, per_s in (
                ("periods", 10.0),
                ("throttled_periods", 0.3),
                ("throttled_seconds", 0.01),
            ):
                metric = f"fabric_host_cgroup_cpu_{name}_total"
                yield self._counter(per_s * passed_s, metric, host, cgroup="training.slice")

    # Tests and settings --------------------------------------------------------------------------

    def _baseline(self, host: str) -> Iterator[tuple[Series, float]]:
        """What nccl-tests measured when the cluster was taken over."""
        ranks = str(self._topology.gpus)
        for size, power in (
            ("1MiB", 20),
            ("64MiB", 26),
            ("256MiB", 28),
            ("1GiB", 30),
            ("2GiB", 31),
        ):
            labels = {
                "operation": "all_reduce",
                "ranks": ranks,
                "size": size,
                "bytes": str(1 << power),
                "type": "float",
                "placement": "out_of_place",
            }
            rate = 46e9 / (1 + (1 << 25) / (1 << power))
            metric = "fabric_baseline_bus_bandwidth_bytes_per_second"
            yield self._gauge(rate, metric, host, **labels)

    def _settings(self, hosts: list[str]) -> Iterator[tuple[Series, float]]:
        """A setting that is the same on every host."""
        for host in hosts:
            labels = {"setting": "net.ipv4.tcp_rmem", "value": "4096", "origin": "sysctl"}
            yield self._gauge(1.0, "fabric_setting_info", host, **labels)

    # The service ---------------------------------------------------------------------------------

    def _watch_service(self) -> None:
        """Values that other tasks of the service would give the registry."""
        watch = self._service.watch
        watch("fabric_service_evaluation_leads", lambda: 1.0)
        watch("fabric_service_incidents", lambda: 2.0)
        watch("fabric_service_live_clients", lambda: 3.0)
        watch("fabric_service_pending_rows", lambda: 4_000 * self._random.random())
        watch("fabric_service_inflight_bytes", lambda: 2e5 * self._random.random())
        for protocol, series in (("native", 21_000.0), ("remote_write", 900.0), ("otlp", 0.0)):
            watch("fabric_service_known_series", partial(float, series), protocol=protocol)
        watch("fabric_service_alertmanager_queue", lambda: 0.0, alertmanager="am-0:9093")
        watch("fabric_service_alertmanager_up", lambda: 1.0, alertmanager="am-0:9093")
        watch("fabric_service_notices_waiting", lambda: 0.0, receiver="pager")
        watch("fabric_service_notices_oldest_seconds", lambda: 0.0, receiver="pager")
        watch("fabric_service_notify_left_out", lambda: 0.0)

    def _service_samples(self, now_ns: int, passed_s: float) -> list[Sample]:
        """The registry, after some more work."""
        self._work(passed_s)
        return [
            Sample(Series(one.name, {**one.labels, **self._place}), one.value, now_ns)
            for family in self._service.registry.collect()
            for one in family.samples
            if not math.isnan(one.value)
        ]

    def _work(self, passed_s: float) -> None:
        """What a service does in this time."""
        numbers = self._service
        gauss = self._random.normal
        for path, per_s, took_s in (
            ("/v1/ingest", 1.6, 0.03),
            ("/api/v1/query_range", 0.8, 0.09),
            ("/v1/jobs", 0.1, 0.02),
        ):
            count = round(per_s * passed_s)
            numbers.requests.labels("POST", path, "200").inc(count)
            for _ in range(count):
                numbers.request_seconds.labels(path).observe(abs(gauss(took_s, took_s / 2)))
        numbers.requests.labels("GET", "/v1/jobs", "404").inc(round(passed_s / 15))
        numbers.samples.labels("native").inc(6_400 * passed_s)
        numbers.samples.labels("remote_write").inc(60 * passed_s)
        numbers.events.labels("native").inc(round(passed_s / 15))
        numbers.records.labels("native", "collectives").inc(300 * passed_s)
        numbers.records.labels("native", "steps").inc(10 * passed_s)
        numbers.merged.labels("remote_write").inc(0)
        numbers.pairs_left_out.labels("rank").inc(0)
        numbers.rolled.inc(40 * passed_s)
        numbers.refused.labels("native", "too_old").inc(round(passed_s / 30))
        numbers.commits.labels("stored").inc(round(passed_s * 2))
        numbers.commits.labels("failed").inc(0)
        for _ in range(round(passed_s * 2)):
            numbers.commit_seconds.observe(abs(gauss(0.04, 0.02)))
            numbers.commit_rows.observe(abs(gauss(3_200, 900)))
        self._evaluate(passed_s)

    def _evaluate(self, passed_s: float) -> None:
        """Rounds of the evaluator and of the notifier."""
        numbers = self._service
        rounds = round(passed_s / 5)
        numbers.evaluations.labels("done").inc(rounds)
        numbers.evaluations.labels("failed").inc(0)
        numbers.evaluation_delays.inc(0)
        for _ in range(rounds):
            numbers.evaluation_seconds.observe(abs(self._random.normal(0.3, 0.1)))
            for detector, took_s in (("lossy_link", 0.02), ("straggler", 0.06), ("hang", 0.01)):
                seconds = abs(self._random.normal(took_s, took_s / 3))
                numbers.detector_seconds.labels(detector).observe(seconds)
        numbers.detector_errors.labels("hang").inc(0)
        numbers.inventory_flushed.inc(3 * rounds)
        numbers.alertmanager_sent.labels("am-0:9093").inc(rounds)
        numbers.alertmanager_errors.labels("am-0:9093").inc(0)
        numbers.alertmanager_dropped.labels("am-0:9093", "queue_full").inc(0)
        numbers.notices.labels("pager", "sent").inc(round(passed_s / 30))
        numbers.notify_errors.inc(0)
