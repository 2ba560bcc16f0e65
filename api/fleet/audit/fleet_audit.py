"""The fleet's audit as the service answers it: made on request, cached for a while."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.cache import TopologyCache
from api.fleet.audit.facts import (
    UnreadCount,
    read_facts,
    read_nvlink_domains,
    read_port_mtus,
    read_port_partitions,
    read_unread,
)
from api.fleet.audit.partitions import partitions
from api.fleet.audit.paths import RankPlace, asymmetric_paths, nvlink_domains, path_mtu
from collector.audit.expectations import NOTHING_EXPECTED, Expectations, parse_expectations
from collector.audit.facts import Fact
from collector.audit.finding import Finding, Severity, severity_rank
from collector.audit.fleet import judge_fleet
from collector.audit.judge import check_names
from collector.contract.errors import InventoryError, SettingsError

__all__ = ["FleetAudit", "FleetReport", "Severity", "check_names", "choose", "load_expectations"]
"""What the route uses of the checks, it gets here: routes do not know `collector.audit`."""

log = logging.getLogger(__name__)

KEPT_SECONDS: Final = 30.0
"""How long an answer is cached: agents read their settings every four minutes, and a client
who pages through the findings should see one audit."""
RANKS_MAX: Final = 200_000


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """One audit of the fleet."""

    at: dt.datetime
    hosts: int
    findings: Sequence[Finding]
    left_out: int
    unread: Sequence[UnreadCount]
    blind: Sequence[str]
    """What could not be judged at all, in sentences."""


class FleetAudit:
    """Audits the fleet; thread-safe, one audit at a time."""

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        topologies: TopologyCache,
        expectations: Expectations = NOTHING_EXPECTED,
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._topologies = topologies
        self._expectations = expectations
        self._lock = threading.Lock()
        self._report: FleetReport | None = None

    def report(self, now: dt.datetime) -> FleetReport:
        """The audit of this moment, or one that is at most KEPT_SECONDS old."""
        with self._lock:
            kept = self._report
            if kept is None or not 0 <= (now - kept.at).total_seconds() < KEPT_SECONDS:
                kept = self._report = self._audit(now)
            return kept

    def _audit(self, now: dt.datetime) -> FleetReport:
        facts = read_facts(self._store, now)
        blind: list[str] = []
        more = [
            *self._judge_fabric(facts, now, blind),
            *self._judge_domains(now, blind),
            *self._judge_partitions(facts, now, blind),
        ]
        survey = judge_fleet(facts, self._expectations, more)
        return FleetReport(
            at=now,
            hosts=survey.hosts,
            findings=survey.findings,
            left_out=survey.left_out,
            unread=read_unread(self._store, now),
            blind=blind,
        )

    def _judge_fabric(
        self, facts: Mapping[str, Sequence[Fact]], now: dt.datetime, blind: list[str]
    ) -> list[Finding]:
        """Findings about the topology; a fabric that cannot be read hides no host's findings."""
        try:
            topology = self._topologies.at(None).topology
            places = list(self._places())
        except (InventoryError, SettingsError) as error:
            log.warning("the audit goes without the topology: %s", error)
            blind.append(f"asymmetric_paths and path_mtu: {error}")
            return []
        if not topology.links:
            blind.append("asymmetric_paths and path_mtu: no link is known")
            return []
        mtus = read_port_mtus(self._store, now)
        return [*asymmetric_paths(topology, places), *path_mtu(topology, facts, mtus)]

    def _judge_domains(self, now: dt.datetime, blind: list[str]) -> list[Finding]:
        domains = read_nvlink_domains(self._store, now)
        try:
            return list(nvlink_domains(self._places(), domains)) if domains else []
        except InventoryError as error:
            log.warning("the audit goes without the jobs: %s", error)
            blind.append(f"nvlink_domains: {error}")
            return []

    def _judge_partitions(
        self, facts: Mapping[str, Sequence[Fact]], now: dt.datetime, blind: list[str]
    ) -> list[Finding]:
        asked = read_port_partitions(self._store, now)
        try:
            return list(partitions(self._places(), facts, asked))
        except InventoryError as error:
            log.warning("the audit goes without the jobs: %s", error)
            blind.append(f"partitions: {error}")
            return []

    def _places(self) -> Iterator[RankPlace]:
        count = 0
        for job in self._inventory.jobs.running():
            for rank in self._inventory.jobs.ranks(job.job):
                if rank.host and count < RANKS_MAX:
                    count += 1
                    yield RankPlace(job.job, rank.rank, rank.host, rank.device or "")


def load_expectations(file: str) -> Expectations:
    if not file:
        return NOTHING_EXPECTED
    try:
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"audit_expectations {file}: {error}") from error
    return parse_expectations(text, f"audit_expectations {file}", check_names())


def choose(
    report: FleetReport, host: str | None, severity: Severity | None, check: str | None
) -> list[Finding]:
    least = severity_rank(severity) if severity is not None else 0
    return [
        finding
        for finding in report.findings
        if (host is None or finding.host == host)
        and severity_rank(finding.severity) >= least
        and (check is None or finding.check == check)
    ]
