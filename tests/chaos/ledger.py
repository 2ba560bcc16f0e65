"""One ledger of what was acknowledged and what was paged, and the comparison with what is stored.

What must hold after every case, however it went:

- each row of a batch that was acknowledged is stored, with its value, and no row is stored that no
  agent sent (a resend is the same row);
- each incident was paged once: one firing notice, and at most one resolved. A notice that came
  again under its own id counts once (docs/how-to/get-paged.md, "Not guaranteed");
- the incident that is open names the true culprit, and none, open or closed, named an innocent.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alerts.judge.incident import Incident
from api.data.inventory.incidents import IncidentQuery
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from collector.contract import wire
from collector.contract.identity import METRIC_LABEL, canonical_labels, series_id
from collector.contract.records import ABSENT
from collector.contract.verdict import Culprit
from simulator.scenario import Truth
from simulator.score.marks import is_right
from tests.stands.alerting import Call

SHOWN = 5
"""Rows of a difference that an error shows."""

Row = tuple[Any, ...]

SAMPLES = (
    "SELECT series, toUnixTimestamp64Milli(time) AS time, reinterpretAsUInt64(value) AS bits"
    " FROM samples FINAL"
)
COLLECTIVES = """
    SELECT communicator, operation, sequence, rank, source, host, pid,
           toUnixTimestamp64Nano(entry) AS entered, toUnixTimestamp64Nano(exit) AS left
    FROM collectives FINAL"""
STEPS = """
    SELECT job, step, rank, phase, toUnixTimestamp64Nano(start) AS begun,
           toUnixTimestamp64Nano(end) AS ended, source, host, pid
    FROM steps FINAL"""
EVENTS = """
    SELECT kind, toUnixTimestamp64Nano(time) AS moment,
           arraySort(arrayZip(mapKeys(labels), mapValues(labels))) AS pairs, message
    FROM events FINAL"""


@dataclass
class Tally:
    """What one case came to: a line of the table."""

    acknowledged: int = 0
    stored: int = 0
    refused: int = 0
    pages: int = 0
    verdict: str = "none"


@dataclass
class Rows:
    """Rows of acknowledged batches, as the store should have them."""

    series: list[np.ndarray] = field(default_factory=list)
    times: list[np.ndarray] = field(default_factory=list)
    bits: list[np.ndarray] = field(default_factory=list)
    collectives: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    ids: dict[bytes, np.ndarray] = field(default_factory=dict)

    def add(self, body: bytes) -> None:
        batch = wire.decode_batch(body)
        host = batch.common.get("host", "")
        index = np.frombuffer(batch.index, dtype="<u4")
        self.series.append(self._series_ids(batch)[index])
        self.times.append(np.frombuffer(batch.time_ms, dtype="<i8"))
        self.bits.append(np.frombuffer(batch.value, dtype="<u8"))
        self.collectives += collective_rows(batch, host)
        self.steps += [
            (
                span.job,
                span.step,
                -1 if span.rank is None else span.rank,
                span.phase,
                span.start_ns,
                span.end_ns,
                span.source,
                span.host or host,
                span.pid,
            )
            for span in batch.steps
        ]
        self.events += [
            (
                event.kind,
                event.time_ns,
                canonical_labels({**batch.common, **event.labels}),
                event.message,
            )
            for event in batch.events
        ]

    def _series_ids(self, batch: wire.Batch) -> np.ndarray:
        digest = batch.table_digest()
        if digest not in self.ids:
            self.ids[digest] = np.array(
                [
                    series_id(canonical_labels({**batch.common, **labels, METRIC_LABEL: metric}))
                    for metric, labels in batch.series_rows()
                ],
                dtype=np.uint64,
            )
        return self.ids[digest]


def collective_rows(batch: wire.Batch, host: str) -> list[Row]:
    packed = batch.collectives
    if packed is None:
        return []
    columns = [
        np.frombuffer(getattr(packed, name), dtype="<i8").tolist()
        for name in ("sequence", "entry_ns", "exit_ns")
    ]
    index = np.frombuffer(packed.context, dtype="<u4").tolist()
    rows = []
    for place, sequence, entry, leave in zip(index, *columns, strict=True):
        one = packed.contexts[place]
        moments = (None if each == ABSENT else each for each in (entry, leave))
        key = (one.communicator, str(one.operation), sequence, one.rank)
        rows.append((*key, one.source, one.host or host, one.pid, *moments))
    return rows


class Ledger:
    """Thread-safe: agents and the receiver of pages write to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bodies: list[bytes] = []
        self.refusals: list[str] = []
        self.refused: Counter[str] = Counter()
        """Readings that receipts name as refused, by rule: no promise was made of them."""
        self._is_whole = True
        """Whether every batch that was sent is known here."""
        self.calls: list[Call] = []
        """What the receiver of pages got."""

    # What happens ----------------------------------------------------------------------------

    def acknowledge(self, body: bytes, receipt: wire.Receipt) -> None:
        with self._lock:
            self.refused.update(receipt.refused)
            if not receipt.refused:
                self._bodies.append(body)

    def expect(self, body: bytes) -> None:
        """A batch that lay in an agent's spool: it must arrive; others may, too."""
        with self._lock:
            self._is_whole = False
            self._bodies.append(body)

    def refuse(self, agent: str, answer: str) -> None:
        """The service will never take a batch: it is no batch, or the agent may not send it."""
        with self._lock:
            self.refusals.append(f"{agent}: {answer}")

    @property
    def acknowledged(self) -> int:
        """Batches."""
        return len(self._bodies)

    # What must hold --------------------------------------------------------------------------

    def check_rows(self, store: Store, tally: Tally) -> None:
        """Everything acknowledged is stored, once, and of these agents nothing else is."""
        assert not self.refusals, f"batches that were refused: {self.refusals[:SHOWN]}"
        rows = Rows()
        for body in self._bodies:
            rows.add(body)
        tally.refused = self.refused.total()
        is_exact = self._is_whole and not tally.refused
        tally.acknowledged, tally.stored = compare_samples(rows, store, is_exact=is_exact)
        for sent, sql in (
            (rows.collectives, COLLECTIVES),
            (rows.steps, STEPS),
            (rows.events, EVENTS),
        ):
            found = [tuple(map(plain, row.values())) for row in store.query(sql).to_pylist()]
            assert len(found) == len(set(found)), f"stored twice: {doubles(found)}"
            missing = set(sent) - set(found)
            assert not missing, f"acknowledged and lost, of {len(sent)}: {some(missing)}"
            strangers = set(found) - set(sent)
            assert not (strangers and is_exact), f"stored and never sent: {some(strangers)}"
            tally.acknowledged += len(set(sent))
            tally.stored += len(found)

    def check_pages(self, incidents: Sequence[Incident], tally: Tally, least: int = 1) -> None:
        """One page for each incident, and at most one end.

        ``least``: 0 where the service may have been stopped before it paged.
        """
        told = self.pages()
        tally.pages = sum(len(ids["firing"]) for ids in told.values())
        for incident in incidents:
            got = told.get(incident.id, {})
            firing, resolved = (got.get(status, set()) for status in ("firing", "resolved"))
            assert least <= len(firing) <= 1, (
                f"{incident.id}: {len(firing)} pages: {self.calls_of(incident)}"
            )
            assert len(resolved) <= (not incident.is_open), f"{incident.id}: ended {len(resolved)}x"
        strangers = told.keys() - {incident.id for incident in incidents}
        assert not strangers, f"pages of incidents that do not exist: {strangers}"

    def pages(self) -> dict[str, dict[str, set[str]]]:
        """Of each incident the ids of its notices, by status."""
        told: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for call in list(self.calls):
            for incident in incidents_of(call):
                told[incident][call.body["status"]].add(call.body["fabricscope"]["id"])
        return told

    def calls_of(self, incident: Incident) -> list[Any]:
        return [call.body for call in self.calls if incident.id in incidents_of(call)]

    @property
    def others(self) -> list[str]:
        """Alerts of pages that are about no incident: about the service itself."""
        return sorted(
            {
                alert["labels"]["alertname"]
                for call in self.calls
                for alert in call.body["alerts"]
                if "incident" not in alert["labels"]
            }
        )


def check_verdicts(incidents: Sequence[Incident], truth: Truth, tally: Tally) -> None:
    """One incident is open and right; none, whatever it was called meanwhile, is of an innocent."""
    for incident in incidents:
        named = [incident.verdict.culprit, *(turn.culprit for turn in incident.history)]
        wrong = [culprit for culprit in named if is_innocent(culprit, truth)]
        assert not wrong, f"{incident.id} named an innocent: {wrong}; the truth: {truth}"
    standing = [incident for incident in incidents if incident.is_open]
    assert len(standing) == 1, f"open: {[incident.verdict for incident in standing]}"
    verdict = standing[0].verdict
    assert is_right(verdict, truth), f"{verdict.cause} at {verdict.culprit}; the truth: {truth}"
    tally.verdict = f"{verdict.cause} {culprit_text(verdict.culprit)}"


def is_innocent(culprit: Culprit, truth: Truth) -> bool:
    """Whether a machine is named that has no part in the fault; a job alone accuses no machine."""
    if culprit.host:
        return culprit.host not in {one.host for one in truth.culprits}
    ends = {(one.switch, one.switch_port) for one in truth.culprits}
    return bool(culprit.switch) and (culprit.switch, culprit.switch_port) not in ends


def culprit_text(culprit: Culprit) -> str:
    gpu = "" if culprit.gpu is None else f"gpu{culprit.gpu}"
    return " ".join(filter(None, (culprit.host or culprit.switch, culprit.device, gpu)))


def incidents_of(call: Call) -> set[str]:
    labels = (alert["labels"] for alert in call.body["alerts"])
    return {each["incident"] for each in labels if "incident" in each}


def read_incidents(inventory: Inventory) -> list[Incident]:
    return inventory.incidents.page(IncidentQuery(), limit=100)


# Comparing -----------------------------------------------------------------------------------


def compare_samples(rows: Rows, store: Store, *, is_exact: bool) -> tuple[int, int]:
    """How many samples were acknowledged and are stored; raises where they differ."""
    sent = [np.concatenate(each) for each in (rows.series, rows.times, rows.bits)]
    table = store.query(SAMPLES)
    found = [table.column(name).to_numpy() for name in ("series", "time", "bits")]
    ours = np.isin(found[0], sent[0])
    wanted, stored = order(sent), order([column[ours] for column in found])
    assert len(np.unique(stored[["series", "time"]])) == len(stored), "samples stored twice"
    missing = np.setdiff1d(wanted, stored)
    assert not len(missing), f"acknowledged and lost, of {len(wanted)}: {missing[:SHOWN]}"
    strangers = np.setdiff1d(stored, wanted)
    assert not (len(strangers) and is_exact), f"stored and never sent: {strangers[:SHOWN]}"
    return len(wanted), len(stored)


def order(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of (series, time, value), sorted, each once."""
    kinds = [("series", "<u8"), ("time", "<i8"), ("bits", "<u8")]
    rows = np.empty(len(columns[0]), dtype=kinds)
    for (name, _), column in zip(kinds, columns, strict=True):
        rows[name] = column
    return np.unique(rows)


def plain(value: object) -> object:
    """Lists of pairs, as Arrow returns them, as tuples."""
    if isinstance(value, list):
        return tuple(tuple(one.values()) if isinstance(one, dict) else one for one in value)
    return value


def doubles(rows: Iterable[Row]) -> list[Row]:
    return [row for row, count in Counter(rows).items() if count > 1][:SHOWN]


def some(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=repr)[:SHOWN]
