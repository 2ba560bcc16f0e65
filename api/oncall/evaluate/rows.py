"""Findings and verdicts as rows of the store's table `findings`: written, and read back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa

from alerts.finding import Finding
from alerts.judge.incident import MOVED_CONFIDENCE, Incident
from api.base.limits import PAGE_DEFAULT
from api.data.store.store import Store
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Reason, Verdict

FINDING, VERDICT = "finding", "verdict"
ROAD = "findings"
"""Under which the quarantine has rows that cannot be read."""
REWRITE_SECONDS = 60
"""An unchanged row is written again after so long: a query for ten minutes of a trouble of
hours finds it."""
ROUND_ROWS_MAX = 500
"""Rows that one evaluation writes, 2 MB at worst. Past it the weakest findings are left out and
counted: a round with more has one trouble at its root, and its verdicts come first."""
REMEMBERED_MAX = 20_000
"""Findings and verdicts whose last row is remembered. Past it, all are written again once."""
DOCUMENT_BYTES_MAX = 262_144
"""A finding or verdict as JSON. One with thousands of victims is written without them."""

NS, NS_PER_MS = 1_000_000_000, 1_000_000
INT32_MAX = (1 << 31) - 1

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("id", pa.uint64()),
        ("detector", pa.string()),
        ("cause", pa.string()),
        ("reason", pa.string()),
        ("confidence", pa.float64()),
        ("incident", pa.string()),
        ("jobs", pa.list_(pa.string())),
        ("host", pa.string()),
        ("device", pa.string()),
        ("port", pa.string()),
        ("gpu", pa.int32()),
        ("rank", pa.int32()),
        ("switch", pa.string()),
        ("switch_port", pa.string()),
        ("document", pa.string()),
    ]
)

Position = tuple[int, int]
"""Time (unix nanoseconds) and id of a row, as `api.data.events` has them."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows: written in this time (unix nanoseconds), and all conditions that are given."""

    from_ns: int
    to_ns: int
    cause: Cause | None = None
    job: str | None = None
    host: str | None = None
    switch: str | None = None
    incident: str | None = None
    detector: str | None = None


class StoredRow(msgspec.Struct, frozen=True, kw_only=True):
    """When a row was written, and its id."""

    time_ns: int
    id: int

    @property
    def position(self) -> Position:
        return self.time_ns, self.id


class StoredVerdict(StoredRow, frozen=True, kw_only=True):
    """A verdict and its incident (empty: none)."""

    incident: str
    verdict: Verdict


class StoredFinding(StoredRow, frozen=True, kw_only=True):
    """A finding as it was written."""

    finding: Finding


# Numbers that can be kept ------------------------------------------------------------------------


def sound_verdict(verdict: Verdict) -> Verdict:
    """The verdict without NaN and infinities: JSON has none, and they are no evidence."""
    return msgspec.structs.replace(
        verdict,
        confidence=sound_share(verdict.confidence),
        evidence=sound_evidence(verdict.evidence),
        costs=tuple(cost for cost in verdict.costs if is_sound_cost(cost)),
    )


def sound_finding(finding: Finding) -> Finding:
    cost = finding.cost
    return msgspec.structs.replace(
        finding,
        strength=sound_share(finding.strength),
        suspects=tuple(each for each in finding.suspects if math.isfinite(each.share)),
        evidence=sound_evidence(finding.evidence),
        cost=cost if cost is not None and is_sound_cost(cost) else None,
    )


def sound_share(share: float) -> float:
    """Between 0 and 1; NaN becomes 0."""
    return min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0


def sound_evidence(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """The evidence with a finite number; a baseline that is not finite is not known."""
    return tuple(
        each
        if each.baseline is None or math.isfinite(each.baseline)
        else msgspec.structs.replace(each, baseline=None)
        for each in evidence
        if math.isfinite(each.value)
    )


def is_sound_cost(cost: Cost) -> bool:
    steps = (cost.step_seconds, cost.step_seconds_without)
    numbers = (cost.lost_seconds, cost.lost_share, cost.gpu_hours, *(each or 0.0 for each in steps))
    return all(map(math.isfinite, numbers))


# Writing -----------------------------------------------------------------------------------------


class RowWriter:
    """Writes findings and verdicts that are new or have changed. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[int, tuple[int, float, Reason, str]] = {}
        self.left_out = 0

    def write(
        self, now_ns: int, findings: Sequence[Finding], verdicts: Sequence[tuple[Verdict, str]]
    ) -> int:
        """Returns the number of rows. After a StoreError the next call writes all again."""
        rows = [verdict_row(now_ns, *each) for each in verdicts]
        strongest = sorted(findings, key=lambda each: (-each.strength, each.detector))
        rows += [finding_row(now_ns, each) for each in strongest]
        news = [row for row in rows if self._is_news(row, now_ns)]
        self.left_out += max(0, len(news) - ROUND_ROWS_MAX)
        news = news[:ROUND_ROWS_MAX]
        if news:
            self._store.insert_arrow("findings", pa.Table.from_pylist(news, schema=SCHEMA))
        if len(self._written) + len(news) > REMEMBERED_MAX:
            self._written.clear()
        for row in news:
            self._written[row["id"]] = state_of(row, now_ns)
        return len(news)

    def _is_news(self, row: dict[str, Any], now_ns: int) -> bool:
        known = self._written.get(row["id"])
        if known is None:
            return True
        written_ns, confidence, reason, incident = known
        return (
            now_ns - written_ns >= REWRITE_SECONDS * NS
            or abs(row["confidence"] - confidence) >= MOVED_CONFIDENCE
            or row["reason"] != reason
            or row["incident"] != incident
        )


def state_of(row: dict[str, Any], now_ns: int) -> tuple[int, float, Reason, str]:
    return now_ns, row["confidence"], row["reason"], row["incident"]


def digest(*words: object) -> int:
    """Identifies which detector or judge accuses which culprit of what."""
    return int.from_bytes(blake2b(repr(words).encode(), digest_size=8).digest())


def verdict_row(now_ns: int, verdict: Verdict, incident: str) -> dict[str, Any]:
    document = msgspec.json.encode(verdict)
    if len(document) > DOCUMENT_BYTES_MAX:
        document = msgspec.json.encode(msgspec.structs.replace(verdict, victims=(), accomplices=()))
    return {
        "kind": VERDICT,
        "time": now_ns // NS_PER_MS,
        "id": digest(VERDICT, str(verdict.cause), verdict.culprit, verdict.jobs),
        "detector": "",
        "cause": str(verdict.cause),
        "reason": str(verdict.reason),
        "confidence": verdict.confidence,
        "incident": incident,
        "jobs": list(verdict.jobs),
        "document": document.decode(),
        **culprit_columns(verdict.culprit),
    }


def finding_row(now_ns: int, finding: Finding) -> dict[str, Any]:
    document = msgspec.json.encode(finding)
    if len(document) > DOCUMENT_BYTES_MAX:
        bare = msgspec.structs.replace(finding, victims=(), accomplices=(), suspects=())
        document = msgspec.json.encode(bare)
    jobs = dict.fromkeys(job for job in (finding.job, finding.culprit.job) if job)
    return {
        "kind": FINDING,
        "time": now_ns // NS_PER_MS,
        "id": digest(finding.detector, str(finding.cause), finding.culprit, finding.job),
        "detector": finding.detector,
        "cause": str(finding.cause),
        "reason": str(finding.reason),
        "confidence": finding.strength,
        "incident": "",
        "jobs": list(jobs),
        "document": document.decode(),
        **culprit_columns(finding.culprit),
    }


def culprit_columns(culprit: Culprit) -> dict[str, Any]:
    texts = ("host", "device", "port", "switch", "switch_port")
    numbers = {"gpu": number(culprit.gpu), "rank": number(culprit.rank)}
    return {name: getattr(culprit, name) for name in texts} | numbers


def number(value: int | None) -> int:
    """-1 for what does not fit."""
    return value if value is not None and 0 <= value <= INT32_MAX else -1


# Reading -----------------------------------------------------------------------------------------


def read_verdicts(
    store: Store, wanted: Wanted, after: Position | None = None, limit: int = PAGE_DEFAULT
) -> list[StoredVerdict]:
    """Newest first, from before the position ``after``, at most ``limit``."""
    rows = read_rows(store, VERDICT, wanted, after, limit)
    return store.quarantine.sound(
        ROAD,
        VERDICT,
        rows,
        lambda row: StoredVerdict(
            time_ns=row["time_ms"] * NS_PER_MS,
            id=row["id"],
            incident=row["incident"],
            verdict=msgspec.json.decode(row["document"], type=Verdict),
        ),
    )


def read_findings(
    store: Store, wanted: Wanted, after: Position | None = None, limit: int = PAGE_DEFAULT
) -> list[StoredFinding]:
    rows = read_rows(store, FINDING, wanted, after, limit)
    return store.quarantine.sound(
        ROAD,
        FINDING,
        rows,
        lambda row: StoredFinding(
            time_ns=row["time_ms"] * NS_PER_MS,
            id=row["id"],
            finding=msgspec.json.decode(row["document"], type=Finding),
        ),
    )


def read_rows(
    store: Store, kind: str, wanted: Wanted, after: Position | None, limit: int
) -> list[dict[str, Any]]:
    within = "fromUnixTimestamp64Milli({from_ms:Int64}) AND fromUnixTimestamp64Milli({to_ms:Int64})"
    conditions = ["kind = {kind:String}", f"time BETWEEN {within}"]
    parameters: dict[str, Any] = {
        "kind": kind,
        "from_ms": wanted.from_ns // NS_PER_MS,
        "to_ms": wanted.to_ns // NS_PER_MS,
    }
    for name in ("cause", "host", "switch", "incident", "detector"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(f"{name} = {{{name}:String}}")
            parameters[name] = str(value)
    if wanted.job is not None:
        conditions.append("has(jobs, {job:String})")
        parameters["job"] = wanted.job
    if after is not None:
        conditions.append(
            "(time, id) < (fromUnixTimestamp64Milli({after_ms:Int64}), {after_id:UInt64})"
        )
        parameters |= {"after_ms": after[0] // NS_PER_MS, "after_id": after[1]}
    sql = (
        "SELECT toUnixTimestamp64Milli(time) AS time_ms, id, toString(incident) AS incident, "  # noqa: S608 - conditions are ours
        f"document FROM findings FINAL WHERE {' AND '.join(conditions)} "
        f"ORDER BY time DESC, id DESC LIMIT {limit:d}"
    )
    rows: list[dict[str, Any]] = store.query(sql, parameters).to_pylist()
    return rows


def placed(
    verdicts: Sequence[Verdict], incident_of: Sequence[str], incidents: Sequence[Incident]
) -> list[tuple[Verdict, str]]:
    """Verdicts with an incident come first, so that a bound cuts the others."""
    known = {each.id for each in incidents}
    pairs = [
        (verdict, incident if incident in known else "")
        for verdict, incident in zip(verdicts, incident_of, strict=True)
    ]
    return sorted(pairs, key=lambda pair: not pair[1])
