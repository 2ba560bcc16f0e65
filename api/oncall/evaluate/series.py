"""Standing findings and open incidents as series for PromQL; ended ones get a stale marker."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from alerts.finding import Finding
from alerts.judge.incident import Incident
from alerts.rulebook.inhibit import SCOPE_LABEL, covered_by
from alerts.rulebook.model import FIRST_INCIDENT_LABEL
from alerts.signals.measured_clocks import Contradiction
from api.data.store.rollups import STALE_BITS
from api.data.store.store import Store
from api.oncall.evaluate.arrivals import NotJudged
from collector.contract.clocks import CONTRADICTION
from collector.contract.identity import metric_id
from collector.contract.model import Sample, Series
from collector.contract.units import NS, NS_PER_MS
from collector.contract.verdict import Culprit

FINDING_SERIES_MAX = 500
"""Series of findings that stand at once, the strongest. More are counted and left out: a rule needs
to know that there are many, not all their names."""
CONTRADICTIONS_MAX = 100
"""Series of clocks that are contradicted: where more are, it is a time server of many hosts."""
INCIDENT_JOBS_MAX = 10
"""Jobs of one incident that have a series each, the first ones."""

STALE: float = struct.unpack("<d", struct.pack("<Q", STALE_BITS))[0]


LIVE_SECONDS = 300
"""For so long a query shows a series that has no stale marker."""
LIVE_SERIES_MAX = 10_000
NAMES = (
    "fabric_finding",
    "fabric_incident",
    "fabric_incident_lost_seconds_total",
    "fabric_incident_lost_gpu_seconds_total",
    "fabric_incident_victim",
    "fabric_job_not_judged_ratio",
    CONTRADICTION,
)
"""The series that are written here."""
LIVE_SQL = f"""
    SELECT DISTINCT metric_name, labels FROM series
    WHERE metric_name IN {{names:Array(String)}} AND series IN (
        SELECT series FROM samples
        WHERE metric IN {{metrics:Array(UInt32)}}
          AND time > fromUnixTimestamp64Milli({{from_ms:Int64}})
        GROUP BY series
        HAVING reinterpretAsUInt64(argMax(value, time)) != {STALE_BITS}
    )
    LIMIT {LIVE_SERIES_MAX}
"""  # noqa: S608 - our words


def read_live(store: Store, now_ns: int) -> set[Series]:
    """The series that another process, or this one before, wrote lately and has not ended."""
    parameters = {
        "names": list(NAMES),
        "metrics": [metric_id(name) for name in NAMES],
        "from_ms": (now_ns - LIVE_SECONDS * NS) // NS_PER_MS,
    }
    rows = store.query(LIVE_SQL, parameters).to_pylist()
    return {Series(row["metric_name"], dict(row["labels"])) for row in rows}


class FoundSeries:
    """Remembers which series are live. For one task at a time."""

    def __init__(self) -> None:
        self._standing: set[Series] = set()
        self.left_out = 0

    def adopt(self, live: set[Series]) -> None:
        """Series of the process before: those that are over get their stale marker here."""
        self._standing = live

    def samples(
        self,
        now_ns: int,
        findings: Sequence[Finding],
        incidents: Iterable[Incident],
        waiting: Iterable[NotJudged] = (),
        contradicted: Sequence[Contradiction] = (),
    ) -> list[Sample]:
        """The samples of this moment, and stale markers for series that have ended."""
        strongest = sorted(findings, key=lambda one: (-one.strength, one.detector))
        self.left_out += max(0, len(strongest) - FINDING_SERIES_MAX)
        made: dict[Series, Sample] = {}
        for finding in strongest[:FINDING_SERIES_MAX]:
            sample = finding_sample(finding, now_ns)
            made.setdefault(sample.series, sample)
        for incident in incidents:
            if incident.is_open:
                made.update((one.series, one) for one in incident_samples(incident, now_ns))
        for one in waiting:
            series = Series("fabric_job_not_judged_ratio", {"job": one.job, "missing": one.missing})
            made[series] = Sample(series, one.share, now_ns)
        furthest = sorted(contradicted, key=lambda one: -abs(one.apart_s))
        self.left_out += max(0, len(furthest) - CONTRADICTIONS_MAX)
        for each in furthest[:CONTRADICTIONS_MAX]:
            labels = {"host": each.host, "job": each.job, "by": each.by}
            series = Series(CONTRADICTION, labels)
            made[series] = Sample(series, each.apart_s, now_ns)
        over = sorted(self._standing - made.keys(), key=lambda one: (one.metric, one.labels))
        self._standing = set(made)
        return [*made.values(), *(Sample(series, STALE, now_ns) for series in over)]


def finding_sample(finding: Finding, now_ns: int) -> Sample:
    labels = {
        "detector": finding.detector,
        "cause": str(finding.cause),
        "reason": str(finding.reason),
        **culprit_labels(finding.culprit),
    }
    if finding.job:
        labels["job"] = finding.job
    return Sample(Series("fabric_finding", labels), finding.strength, now_ns)


def incident_samples(incident: Incident, now_ns: int) -> Iterator[Sample]:
    verdict = incident.verdict
    named = {
        "incident": incident.id,
        "cause": str(verdict.cause),
        "reason": str(verdict.reason),
        **culprit_labels(verdict.culprit),
    }
    if incident.first_incident:
        named[FIRST_INCIDENT_LABEL] = incident.first_incident
    for job in incident.jobs[:INCIDENT_JOBS_MAX] or ("",):
        labels = {**named, "job": job} if job else named
        yield Sample(Series("fabric_incident", labels), verdict.confidence, now_ns)
    for cost in verdict.costs[:INCIDENT_JOBS_MAX]:
        labels = {"incident": incident.id, "job": cost.job}
        for name, value in (
            ("fabric_incident_lost_seconds_total", cost.lost_seconds),
            ("fabric_incident_lost_gpu_seconds_total", cost.gpu_hours * 3_600),
        ):
            yield Sample(Series(name, labels), value, now_ns)
    for covered in covered_by(incident):
        labels = {"incident": incident.id, SCOPE_LABEL: covered.scope, **dict(covered.labels)}
        yield Sample(Series("fabric_incident_victim", labels), 1.0, now_ns)


def culprit_labels(culprit: Culprit) -> dict[str, str]:
    fields = ((name, getattr(culprit, name)) for name in Culprit.__struct_fields__)
    return {name: str(value) for name, value in fields if value is not None and value != ""}
