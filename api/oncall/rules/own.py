"""The service's own metrics as series in its store; a process is its host's name and port."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable

from api.base.limits import OWN_SERIES_MAX
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.data.ingest.commit import Overloaded
from api.data.ingest.own import OwnSamples
from collector.contract.errors import StoreError
from collector.contract.identity import printable
from collector.contract.model import Sample, Series
from collector.contract.units import NS

OWN_SECONDS = 15.0
"""How often: what Prometheus' users scrape at."""
HOST, INSTANCE, PROCESS = "host", "instance", "process"

log = logging.getLogger(__name__)


class OwnNumbers:
    """Writes the registry's numbers. ``clock``: unix seconds; ``port``: what is listened on."""

    def __init__(
        self, metrics: ServiceMetrics, own: OwnSamples, clock: Callable[[], float], port: int
    ) -> None:
        self._metrics = metrics
        self._own = own
        self._clock = clock
        host = printable(socket.gethostname())
        self.place = {HOST: host, INSTANCE: f"{host}:{port}"}
        self._is_failing = False

    def name_process(self, name: str) -> None:
        """Its name among the processes of one service; empty: it is the only one."""
        if name:
            self.place[PROCESS] = name

    async def run(self, steady: Steady) -> None:
        """Write until cancelled. The first time after a while: before, the counters are empty."""
        while True:
            await asyncio.sleep(OWN_SECONDS)
            with steady.round():
                await self.write()

    async def write(self) -> int:
        samples = self.samples(round(self._clock() * NS))
        left_out = max(0, len(samples) - OWN_SERIES_MAX)
        try:
            await self._own.write(samples[:OWN_SERIES_MAX])
            self._is_failing = False
        except (StoreError, Overloaded) as error:
            if not self._is_failing:
                log.warning("the service's own numbers cannot be written: %s", error)
            self._is_failing = True
            left_out = len(samples)
        self._metrics.own_left_out.inc(left_out)
        return len(samples) - left_out

    def samples(self, now_ns: int) -> list[Sample]:
        return [
            Sample(Series(sample.name, {**sample.labels, **self.place}), sample.value, now_ns)
            for family in self._metrics.registry.collect()
            for sample in family.samples
            if not math.isnan(sample.value)
        ]
