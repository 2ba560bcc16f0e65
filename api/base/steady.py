"""Rounds of background work that break without stopping the work.

A loop that looks every few seconds must look again after a round that broke: the supervisor would
start it anew later and later, and what the loop had opened would be closed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from api.base.metrics import ServiceMetrics

log = logging.getLogger(__name__)


class Steady:
    """One loop's rounds: a round that breaks is counted, and logged when the first one does."""

    def __init__(self, work: str, metrics: ServiceMetrics) -> None:
        self._work = work
        self._metrics = metrics
        self._breaks = metrics.vitals.breaks_in_a_row
        self.is_broken = False

    def like(self) -> Steady:
        """The same work's rounds beside these: one that is well does not hide one that is not."""
        return Steady(self._work, self._metrics)

    @contextmanager
    def round(self) -> Iterator[None]:
        """Ends the round at an error, but not the loop. Cancelling passes through."""
        try:
            yield
        except Exception:
            self._metrics.work_failures.labels(self._work).inc()
            _, breaks = self._breaks.get(self, ("", 0))
            self._breaks[self] = (self._work, breaks + 1)
            if not self.is_broken:
                log.exception("%s: a round broke; the next one comes in time", self._work)
            self.is_broken = True
        else:
            if self.is_broken:
                log.info("%s works again", self._work)
            self.is_broken = False
            self._breaks.pop(self, None)
