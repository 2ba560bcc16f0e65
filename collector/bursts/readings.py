"""The sampler's messages as readings: the series of each counter, and the event of a burst."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collector.bursts.plan import NS_PER_SECOND, CounterPlan
from collector.bursts.track import BOUNDS
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason

NUMBERS = {
    "mean": "fabric_burst_mean_bytes_per_second",
    "peak": "fabric_burst_peak_bytes_per_second",
    "peak_coarse": "fabric_burst_coarse_peak_bytes_per_second",
    "busy": "fabric_burst_busy_ratio",
    "variation": "fabric_burst_variation_ratio",
    "resolution": "fabric_burst_resolution_seconds",
    "period": "fabric_burst_period_seconds",
    "read": "fabric_burst_read_seconds",
    "windows": "fabric_burst_windows",
    "bursts": "fabric_burst_bursts_total",
}
"""The sampler's name of a number, and the metric."""
OWN = {
    "ticks": "fabric_burst_sampler_ticks",
    "missed": "fabric_burst_sampler_ticks_missed_total",
    "interrupted": "fabric_burst_sampler_reads_interrupted_total",
    "cpu": "fabric_burst_sampler_cpu_seconds_total",
    "dropped": "fabric_burst_sampler_events_dropped_total",
    "dropped_reports": "fabric_burst_sampler_reports_dropped_total",
}
QUANTILES = ("0.5", "0.99", "1")


def labels_of(counter: CounterPlan) -> dict[str, str]:
    labels = {"device": counter.device}
    return labels | {"port": counter.port} if counter.port else labels


class CounterSeries:
    """The series of one counter, built once."""

    def __init__(self, counter: CounterPlan) -> None:
        self._labels = labels_of(counter) | {"direction": counter.direction}
        self._numbers = {word: Series(metric, self._labels) for word, metric in NUMBERS.items()}
        self.mean = self._numbers["mean"]
        self._line = Series("fabric_burst_line_bytes_per_second", self._labels)
        self._line_rate = counter.line_rate
        bounds = [f"{bound:g}" for bound in BOUNDS] + ["+Inf"]
        self._histogram = [
            Series("fabric_burst_utilisation_seconds_total", self._labels | {"le": bound})
            for bound in bounds
        ]

    def raw(self, capture: str) -> Series:
        return Series("fabric_burst_raw_bytes_total", self._labels | {"capture": capture})

    def readings(self, summary: Mapping[str, Any], time_ns: int) -> Iterator[Reading]:
        """One summary as readings; a counter in trouble gives one absence, not ten."""
        if summary["trouble"]:
            reason = (
                UnreadReason.UNPARSEABLE
                if "no number" in summary["trouble"]
                else UnreadReason.UNREADABLE
            )
            yield Missing(self.mean, reason, str(summary["trouble"]))
            return
        if summary["clamped"]:
            yield Missing(self.mean, UnreadReason.SATURATED, "stands at 2**32 - 1; reset it")
            return
        if summary["mean"] is None:
            return  # it has only just been opened
        for word, series in self._numbers.items():
            if summary[word] is not None:
                yield Sample(series, float(summary[word]), time_ns)
        if summary["peak_coarse"] is None and summary["resolution"] > 0.01:  # noqa: PLR2004 - 10 ms
            detail = f"the counter changes every {summary['resolution'] * 1000:.0f} ms"
            yield Missing(self._numbers["peak_coarse"], UnreadReason.NOT_SUPPORTED, detail)
        if not self._line_rate:
            detail = "the device does not report its line rate: set line_rates to detect bursts"
            yield Missing(self._line, UnreadReason.NOT_SUPPORTED, detail)
            return
        yield Sample(self._line, self._line_rate, time_ns)
        total = 0.0
        for series, seconds in zip(self._histogram, summary["histogram"], strict=True):
            total += seconds
            yield Sample(series, total, time_ns)


class SamplerSeries:
    """The series of the sampler itself."""

    def __init__(self) -> None:
        self.up = Series("fabric_burst_sampler_up", {})
        self.restarts = Series("fabric_burst_sampler_restarts_total", {})
        self._own = {word: Series(metric, {}) for word, metric in OWN.items()}
        self._late = [
            Series("fabric_burst_sampler_lateness_seconds", {"quantile": quantile})
            for quantile in QUANTILES
        ]

    def readings(self, report: Mapping[str, Any], time_ns: int) -> Iterator[Reading]:
        for word, series in self._own.items():
            yield Sample(series, float(report[word]), time_ns)
        for series, late_ns in zip(self._late, report["late"], strict=True):
            yield Sample(series, late_ns / NS_PER_SECOND, time_ns)


def burst_event(
    counter: CounterPlan, burst: Sequence[Any], offset_ns: int, threshold: float
) -> Event:
    """A burst as an event; ``offset_ns`` turns monotonic times into the wall clock's."""
    phase, start_ns, end_ns, counted, peak, windows = burst
    length = (end_ns - start_ns) / NS_PER_SECOND
    rate = peak * NS_PER_SECOND
    full = rate / counter.line_rate if counter.line_rate else 0.0
    where = f"{counter.device}/{counter.port}" if counter.port else counter.device
    length_words = {"whole": "lasted", "ended": "ended after", "started": "has gone on for"}[phase]
    return Event(
        kind="burst",
        time_ns=start_ns + offset_ns,
        labels=labels_of(counter),
        message=f"{where}: a burst to {full:.0%} of the line ({counter.direction}) {length_words} "
        f"{length * 1000:.1f} ms",
        attributes={
            "phase": str(phase),
            "direction": counter.direction,
            "length_seconds": f"{length:.6f}",
            "bytes": str(counted),
            "peak_bytes_per_second": f"{rate:.0f}",
            "resolution_seconds": f"{length / windows:.6f}",
            "threshold_ratio": f"{threshold:g}",
            "line_bytes_per_second": f"{counter.line_rate:.0f}",
        },
    )
