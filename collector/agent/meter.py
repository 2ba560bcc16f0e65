"""The agent's own metrics: counters and gauges, kept once, exposed and shipped.

These are series like any others, so that the service can watch its agents without a scrape. The
names, kinds and help texts stand in `contract/catalog/agent.toml`; a name that is not there is a
bug and raises at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from collector.contract.catalog import Kind, load_catalog
from collector.contract.errors import ContractError
from collector.contract.model import Sample, Series


class Meter:
    """Numbers by series. Safe for use by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Series, float] = {}
        self._asked: dict[Series, Callable[[], float | None]] = {}

    def add(self, metric: str, amount: float = 1, /, **labels: str) -> None:
        """Count ``amount`` more; adding 0 makes the counter visible before the first event."""
        series = _series(metric, labels, Kind.COUNTER)
        with self._lock:
            self._values[series] = self._values.get(series, 0.0) + amount

    def set(self, metric: str, value: float, /, **labels: str) -> None:
        series = _series(metric, labels, Kind.GAUGE)
        with self._lock:
            self._values[series] = float(value)

    def ask(self, metric: str, answer: Callable[[], float | None], /, **labels: str) -> None:
        """Call ``answer`` at each `samples` or `value`; None hides the series."""
        series = _series(metric, labels, Kind.GAUGE)
        with self._lock:
            self._asked[series] = answer

    def forget_levels(self) -> None:
        """Drop every level, because its source is gone; counters stay."""
        with self._lock:
            self._asked.clear()
            for series in [each for each in self._values if not each.metric.endswith("_total")]:
                del self._values[series]

    def value(self, metric: str, /, **labels: str) -> float | None:
        series = Series(metric, labels)
        with self._lock:
            answer = self._asked.get(series)
            if answer is None:
                return self._values.get(series)
        return answer()

    def samples(self, now_ns: int) -> list[Sample]:
        with self._lock:
            values = list(self._values.items())
            asked = list(self._asked.items())
        # Outside the lock: an answer may take locks of its own (the spool's).
        answers = [(series, answer()) for series, answer in asked]
        return [
            Sample(series, value, now_ns)
            for series, value in (*values, *answers)
            if value is not None
        ]


_SERIES: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}


def _series(metric: str, labels: dict[str, str], kind: Kind) -> Series:
    key = (metric, tuple(labels.items()))
    series = _SERIES.get(key)
    if series is None:
        known = load_catalog().metric(metric)
        if known is None or (known.kind is Kind.COUNTER) != (kind is Kind.COUNTER):
            msg = f"{metric} is not a {kind} of catalog/agent.toml"
            raise ContractError(msg)
        series = _SERIES[key] = Series(metric, labels)
    return series
