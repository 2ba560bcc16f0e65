"""The fleet's health as series for PromQL: only of hosts with evidence, nearly all have none."""

from __future__ import annotations

from collections.abc import Iterable

from alerts.health.model import SEVERITY, HealthState
from api.base.limits import HEALTH_SERIES_MAX
from api.fleet.health.answers import HostEntry
from api.oncall.evaluate.series import STALE
from collector.contract.model import Sample, Series

STATE, RISK = "fabric_host_health_state", "fabric_host_risk_ratio"


class HealthSeries:
    """Remembers which series are live. For one task at a time."""

    def __init__(self) -> None:
        self._standing: set[str] = set()
        self.left_out = 0
        """Hosts past HEALTH_SERIES_MAX, so far."""

    def samples(self, now_ns: int, hosts: Iterable[HostEntry]) -> list[Sample]:
        unwell = [each for each in hosts if each.state is not HealthState.HEALTHY or each.risk > 0]
        unwell.sort(key=lambda each: (-each.risk, -SEVERITY[each.state], each.host))
        self.left_out += max(0, len(unwell) - HEALTH_SERIES_MAX)
        made = [
            sample
            for each in unwell[:HEALTH_SERIES_MAX]
            for sample in pair(each.host, float(SEVERITY[each.state]), each.risk, now_ns)
        ]
        named = {each.host for each in unwell[:HEALTH_SERIES_MAX]}
        over = sorted(self._standing - named)
        self._standing = named
        return [*made, *(one for host in over for one in pair(host, STALE, STALE, now_ns))]


def pair(host: str, state: float, risk: float, now_ns: int) -> tuple[Sample, Sample]:
    return (
        Sample(Series(STATE, {"host": host}), state, now_ns),
        Sample(Series(RISK, {"host": host}), risk, now_ns),
    )
