"""A detector or the judge that breaks while the scoreboard runs."""

from __future__ import annotations

from api.base.metrics import ServiceMetrics
from collector.contract.errors import FabricscopeError


class BrokenEvaluator(FabricscopeError):  # noqa: N818 - reads as the statement it is
    """A bug of ours: the run is no measure of anything, and must not look like one."""


def broken_detectors(metrics: ServiceMetrics) -> list[str]:
    return sorted(
        sample.labels["detector"]
        for family in metrics.detector_errors.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    )
