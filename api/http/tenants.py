"""What the users of one token may take of the service together: `tenant_limits`.

A tenant is a token, by its name: the only notion of who asks and sends that there is. Its senders
are bounded in `api.data.ingest.budgets`, beside their own budgets; its queries here. Where a
service is several processes, each has these bounds for what comes to it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from api.base.errors import Problem
from api.base.metrics import ServiceMetrics
from api.data.ingest.budgets import TENANT_SAMPLES, Meter, Sizes
from collector.contract.errors import SettingsError

OTHERS: Final = "*"
"""The table of tokens that have none of their own, and the label of all of these in metrics."""
QUERIES, QUERY_SAMPLES = "tenant_limits.queries", "tenant_limits.query_samples_a_minute"
RETRY_SECONDS: Final = 1


class TenantLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of one token; 0: only those of the service hold."""

    samples_a_second: float = 0.0
    active_series: int = 0
    """Different series of a day (UTC), counted to 3 %. Past it new ones are refused."""
    queries: int = 0
    """At once."""
    query_samples_a_minute: float = 0.0
    """Samples, or rows of roll-ups, that its queries read."""


def check_limits(limits: Mapping[str, TenantLimits]) -> None:
    """Raise SettingsError for a bound below zero."""
    for name, bounds in limits.items():
        for field, value in msgspec.structs.asdict(bounds).items():
            if value < 0:
                msg = f"tenant_limits.{name}.{field} is {value:g}; 0 (unbounded) or more"
                raise SettingsError(msg)


class Asking(msgspec.Struct):
    """What a tenant's queries take now."""

    meter: Meter
    running: int = 0


class Tenants:
    """The bounds of all tenants, and what their queries have taken. From any thread."""

    def __init__(
        self,
        limits: Mapping[str, TenantLimits],
        metrics: ServiceMetrics,
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._metrics = metrics
        self._ticks = ticks
        self._lock = threading.Lock()
        self._asking: dict[str, Asking] = {}
        """By name: there are no more than tokens."""

    def of(self, name: str) -> TenantLimits | None:
        """None: there is no token, or no table that is about it."""
        return (self._limits.get(name) or self._limits.get(OTHERS)) if name else None

    def sizes(self, name: str) -> Sizes | None:
        """Of what it sends."""
        limits = self.of(name)
        if limits is None:
            return None
        return Sizes.of_tenant(limits.samples_a_second, limits.active_series)

    def took(self, name: str, samples: int) -> None:
        """Count samples that its senders brought."""
        self._metrics.tenant_samples.labels(self._label(name)).inc(samples)

    def waited(self, name: str) -> None:
        """Count a request that was refused because its senders bring too many samples."""
        self._metrics.tenant_refused.labels(self._label(name), TENANT_SAMPLES).inc()

    def _label(self, name: str) -> str:
        return name if name in self._limits else OTHERS

    @contextlib.contextmanager
    def asking(self, name: str) -> Iterator[Callable[[int], None]]:
        """While a query runs; call what it yields with the samples that were read.

        Raises Problem (429) for a query that is one too many.
        """
        limits = self.of(name)
        if limits is None:
            yield lambda _: None
            return
        state = self._enter(name, limits)
        try:
            yield lambda samples: self._charge(name, state, samples)
        finally:
            with self._lock:
                state.running -= 1

    def _enter(self, name: str, limits: TenantLimits) -> Asking:
        with self._lock:
            per_minute = limits.query_samples_a_minute or float("inf")
            state = self._asking.get(name)
            if state is None:
                state = self._asking[name] = Asking(Meter(per_minute, per_minute, self._ticks()))
            if limits.queries and state.running >= limits.queries:
                why = f"has {state.running} queries running, and may have {limits.queries}"
                raise self._refusal(name, QUERIES, why, RETRY_SECONDS)
            if limits.query_samples_a_minute and state.meter.level(self._ticks()) <= 0:
                why = f"reads more than {per_minute:.0f} samples a minute"
                raise self._refusal(name, QUERY_SAMPLES, why, state.meter.wait_seconds(1.0))
            state.running += 1
        self._metrics.tenant_queries.labels(self._label(name)).inc()
        return state

    def _charge(self, name: str, state: Asking, samples: int) -> None:
        with self._lock:
            if state.meter.holds != float("inf"):
                state.meter.take(samples)
        self._metrics.tenant_query_samples.labels(self._label(name)).inc(samples)

    def _refusal(self, name: str, rule: str, why: str, wait_seconds: int) -> Problem:
        self._metrics.tenant_refused.labels(self._label(name), rule).inc()
        return Problem(
            429,
            "over budget",
            f"token {name!r} {why}; {rule} (docs/reference/settings.md)",
            rule=rule,
            headers={"Retry-After": str(wait_seconds)},
        )
