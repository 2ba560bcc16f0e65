"""The task that looks for dying optics: every five minutes, in the process that leads health.

What stands is written again every twenty seconds, as findings for people and for health and as
series for rules. Nothing of it reaches the judge of jobs: an optic that loses nothing slows none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from alerts.optics.judge import Dying, Judged, judge
from api.base.metrics import ServiceMetrics
from api.base.optics_limits import OPTICS_NAMED_MAX
from api.base.steady import Steady
from api.data.ingest.commit import Overloaded
from api.data.ingest.own import OwnSamples
from api.data.store.store import Store
from api.fabric.cache import TopologyCache
from api.fleet.optics.read import Readings
from api.oncall.evaluate.lead import Lead
from api.oncall.evaluate.rows import RowWriter, sound_finding
from api.oncall.evaluate.series import STALE
from api.promql.engine import Engine
from api.promql.errors import QueryError
from collector.contract.errors import InventoryError, SettingsError, StoreError
from collector.contract.model import Sample, Series
from collector.contract.units import NS, NS_PER_MS
from collector.contract.verdict import Culprit

ROUND_SECONDS: Final = 20.0
"""How often what stands is written: health forgets a finding that was not written for 90 s."""
BELIEVED_SECONDS: Final = 900
"""For so long a judgement stands where the store cannot be read for the next one."""
DYING, EXPECTED = "fabric_optic_dying", "fabric_optic_errors_expected_seconds"

log = logging.getLogger(__name__)


def port_labels(culprit: Culprit) -> dict[str, str]:
    """As `fabric_port_…` has them: a switch is the host and the device of its ports."""
    if culprit.host:
        return {"host": culprit.host, "device": culprit.device, "port": culprit.port}
    return {"host": culprit.switch, "device": culprit.switch, "port": culprit.switch_port}


class OpticSeries:
    """Remembers which series are live. For one task at a time."""

    def __init__(self) -> None:
        self._standing: set[Series] = set()

    def samples(self, now_ns: int, dying: Sequence[Dying], judged_ns: int) -> list[Sample]:
        made: dict[Series, Sample] = {}
        for one in dying:
            labels = {**port_labels(one.finding.culprit), "sign": one.signs[0]}
            strength = Series(DYING, labels)
            made[strength] = Sample(strength, one.finding.strength, now_ns)
            if one.seconds_left is not None:
                left = Series(EXPECTED, labels)
                passed_s = (now_ns - judged_ns) / NS
                made[left] = Sample(left, max(0.0, one.seconds_left - passed_s), now_ns)
        over = sorted(self._standing - made.keys(), key=lambda one: (one.metric, one.labels))
        self._standing = set(made)
        return [*made.values(), *(Sample(series, STALE, now_ns) for series in over)]


class OpticsTask:
    """Judges while this process leads. ``clock``: unix seconds."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        topologies: TopologyCache,
        lead: Lead,
        own: OwnSamples,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._readings = Readings(engine)
        self._topologies = topologies
        self._lead = lead
        self._own = own
        self._clock = clock
        self._writer = RowWriter(store)
        self._series = OpticSeries()
        self._judged = Judged([], 0)
        self._judged_ns = 0
        self._is_failing = False
        metrics.watch("fabric_service_dying_optics", lambda: float(len(self._judged.dying)))
        metrics.watch("fabric_service_optics_withheld", lambda: float(self._judged.withheld))
        metrics.watch(
            "fabric_service_optics_series_left_out", lambda: float(self._readings.left_out)
        )

    async def run(self, steady: Steady) -> None:
        while True:
            with steady.round():
                await self.once()
            await asyncio.sleep(ROUND_SECONDS)

    async def once(self) -> Judged | None:
        """One round, if this process leads; None if it does not, or the store is away."""
        if not self._lead.is_held():
            self._readings.forget()
            self._judged, self._series = Judged([], 0), OpticSeries()
            return None
        now_ns = round(self._clock() * NS)
        try:
            await asyncio.to_thread(self._look, now_ns)
            if not self._lead.may_write(now_ns):
                return None
            findings = [sound_finding(one.finding) for one in self._judged.dying]
            await asyncio.to_thread(self._writer.write, now_ns, findings, ())
            await self._own.write(self._series.samples(now_ns, self._judged.dying, self._judged_ns))
        except (StoreError, QueryError, Overloaded) as error:
            if not self._is_failing:
                log.warning("dying optics cannot be looked for: %s", error)
            self._is_failing = True
            if now_ns - self._judged_ns > BELIEVED_SECONDS * NS:
                self._judged = Judged([], 0)
            return None
        self._is_failing = False
        return self._judged

    def _look(self, now_ns: int) -> None:
        if not self._readings.refresh(now_ns // NS_PER_MS):
            return
        try:
            topology = self._topologies.at(None).topology
        except (InventoryError, SettingsError):
            topology = None  # ports have their own names, and cables only one end
        found = judge(self._readings.history(topology))
        self._judged = found._replace(dying=found.dying[:OPTICS_NAMED_MAX])
        self._judged_ns = now_ns
