"""Running detectors so that a bug in one of them silences no other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from alerts.detectors import Detect, discover
from alerts.finding import Finding
from alerts.judge.verdict import judge
from alerts.window.model import Window
from api.base.metrics import ServiceMetrics
from api.oncall.evaluate.rows import sound_finding, sound_verdict
from collector.contract.errors import InventoryError, StoreError
from collector.contract.verdict import Verdict

FINDINGS_PER_DETECTOR_MAX = 2_000
"""Of one detector and round, the strongest: a whole fabric's ports may flap at once. More are
counted and left out."""
JUDGE, READER = "verdict", "window"
"""The names under which the judge's errors and time, and those of reading the window, are counted
among the detectors'."""

Result = TypeVar("Result")
Judge = Callable[[Window, Sequence[Finding]], list[Verdict]]

log = logging.getLogger(__name__)


class GuardedDetectors:
    """The detectors and the judge, timed and guarded. For one thread at a time."""

    def __init__(
        self,
        metrics: ServiceMetrics,
        detectors: Mapping[str, Detect] | None = None,
        judge_by: Judge = judge,
    ) -> None:
        self._metrics = metrics
        self._detectors = discover() if detectors is None else detectors
        self._judge = judge_by
        self._broken: set[str] = set()

    @property
    def broken(self) -> list[str]:
        return sorted(self._broken)

    def look(self, read: Callable[[], Window]) -> Window | None:
        """None if a bug keeps the window from being read. A store that is unavailable is no bug."""
        return self._watched(READER, read)

    def find(self, window: Window) -> list[Finding]:
        """Findings of all detectors, ordered as `detect_all` does; a broken detector gives none."""
        found: list[Finding] = []
        for name, detect in self._detectors.items():
            own = self._watched(name, lambda detect=detect: detect(window)) or []  # type: ignore[misc]
            strongest = sorted(own, key=lambda one: (-one.strength, repr(one.culprit)))
            if len(own) > FINDINGS_PER_DETECTOR_MAX:
                self._metrics.findings_left_out.inc(len(own) - FINDINGS_PER_DETECTOR_MAX)
            found += map(sound_finding, strongest[:FINDINGS_PER_DETECTOR_MAX])
        return sorted(found, key=lambda one: (one.since_ns, one.detector, repr(one.culprit)))

    def judge(self, window: Window, findings: Sequence[Finding]) -> list[Verdict] | None:
        """None if the judge broke: then nothing is known, not that all is well."""
        verdicts = self._watched(JUDGE, lambda: self._judge(window, findings))
        return None if verdicts is None else [sound_verdict(each) for each in verdicts]

    def _watched(self, name: str, work: Callable[[], Result]) -> Result | None:
        """Times the work; None if it breaks, which is counted and logged once."""
        started = time.perf_counter()
        try:
            result = work()
        except (StoreError, InventoryError):
            raise  # away, and no bug: the round is tried again
        except Exception:
            self._metrics.detector_errors.labels(name).inc()
            if name not in self._broken:
                log.exception("%s is broken: it finds nothing", name)
            self._broken.add(name)
            return None
        finally:
            self._metrics.detector_seconds.labels(name).observe(time.perf_counter() - started)
        self._broken.discard(name)
        return result
