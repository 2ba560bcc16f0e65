"""Asking back: an unsure verdict requests its measurement, waits for it, and is judged again.

Requests go the way of any capture: they wait in the inventory until agents fetch them. Their rows,
with who asked and why, are the audit trail and the only memory: another process that takes over, or
a restart, repeats nothing. What was asked and what came of it are turns of the incident's history.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Sequence

from alerts.judge.asking import (
    HOUR_NS,
    Asked,
    AskState,
    Patience,
    asked_before_words,
    asked_words,
    ended_words,
    forbidden,
    is_overdue,
    needs,
    trouble_of,
)
from alerts.judge.incident import Advance, Change, Incident, News, noted
from alerts.judge.words import listed
from api.base.errors import Problem
from api.base.metrics import ServiceMetrics
from api.data.captures import Captures
from api.data.inventory.captures import PENDING, Capture
from api.data.inventory.records import CaptureState
from api.data.inventory.repository import Inventory
from collector.contract.measurement import RAS_DEVICE, kind_requested
from collector.contract.units import NS
from collector.contract.verdict import Culprit, MeasurementKind, Undecided, Verdict

BY_SERVICE = "fabricscope"
"""Who asks, in the audit trail."""
SECONDS_BEFORE, SECONDS_AFTER = 10.0, 5.0
"""Of a capture. Agents learn of it up to five seconds apart: ten seconds of all are left."""
TROUBLES_KEPT_MAX = 1_000
"""Troubles of which is remembered what was said before and that their end was noted."""

log = logging.getLogger(__name__)


class Asking:
    """Requests measurements for unsure verdicts. For one thread at a time."""

    def __init__(
        self,
        captures: Captures,
        inventory: Inventory,
        metrics: ServiceMetrics,
        allowed: Collection[MeasurementKind],
    ) -> None:
        self._captures = captures
        self._inventory = inventory
        self._metrics = metrics
        self._allowed = frozenset(allowed)
        self._patience = Patience()
        self._past: list[Asked] | None = None
        self._before: dict[str, Verdict] = {}
        self._counted: set[str] = set()

    def forget(self) -> None:
        """Another process asks by now."""
        self._patience, self._past = Patience(), None

    def recall(self, now_ns: int) -> None:
        """Read how far requests have come: before the window is read that their answers are in."""
        if not self._allowed or self._past == []:
            return
        if self._past is None or any(one.state is AskState.WAITING for one in self._past):
            self._reread(now_ns)
        else:
            self._past = [one for one in self._past if one.asked_ns > now_ns - HOUR_NS]

    def _reread(self, now_ns: int) -> list[Asked]:
        since = dt.datetime.fromtimestamp((now_ns - HOUR_NS) / NS, tz=dt.UTC)
        self._past = grouped(self._inventory.captures.asked_by(BY_SERVICE, since), now_ns)
        return self._past

    def look(
        self, after: Advance, verdicts: Sequence[Verdict], now_ns: int, judged_ns: int
    ) -> tuple[list[Incident], list[Change]]:
        """The incidents with what was asked and what came, and the news of it.

        ``judged_ns``: the end of the window that was judged. What came later is not in it.
        """
        if not self._allowed:
            return after.incidents, after.changes
        incidents = {each.id: each for each in after.incidents}
        changes = list(after.changes)
        unsure = self._unsure(incidents, verdicts, after.incident_of)
        ready = self._patience.note(unsure)
        for trouble in ready:
            verdict, undecided = unsure[trouble]
            if self._ask(trouble, verdict, undecided, incidents.get(trouble), now_ns):
                log.info("%s: %s", trouble, asked_words(undecided))
                self._note(incidents, changes, trouble, News.ASKED, asked_words(undecided), now_ns)
        for asked in list(self._past or ()):
            ended = self._given_up(asked, now_ns) if is_overdue(asked, now_ns) else asked
            is_judged = ended.state is not AskState.ANSWERED or ended.ended_ns <= judged_ns
            if ended.state is not AskState.WAITING and is_judged:
                self._end(ended, incidents, changes, verdicts, now_ns)
        return list(incidents.values()), changes

    # --- asking --------------------------------------------------------------------------------

    def _unsure(
        self,
        incidents: dict[str, Incident],
        verdicts: Sequence[Verdict],
        incident_of: Sequence[str],
    ) -> dict[str, tuple[Verdict, Undecided]]:
        """By incident, or by the name of a trouble that is none: the verdict and what it needs."""
        found: dict[str, tuple[Verdict, Undecided]] = {}
        for verdict, number in zip(verdicts, incident_of, strict=True):
            incident = incidents.get(number)
            needed = needs(verdict, self._allowed)
            if needed is None or verdict.until_ns is not None:
                continue
            if incident is None:
                found.setdefault(trouble_of(verdict), (verdict, needed))
            elif incident.is_open and needs(incident.verdict, self._allowed) is not None:
                found.setdefault(incident.id, (verdict, needed))
        return found

    def _ask(
        self,
        trouble: str,
        verdict: Verdict,
        undecided: Undecided,
        incident: Incident | None,
        now_ns: int,
    ) -> bool:
        """Request it, unless it was requested for this trouble before or a bound forbids it."""
        past = self._past or []
        names = {trouble, trouble_of(verdict)}
        if incident is not None and any(turn.news is News.ASKED for turn in incident.history):
            return False
        if any(one.trouble in names for one in past):
            return False
        hosts = tuple(dict.fromkeys(one.host for one in undecided.at))
        why = forbidden(hosts, past, now_ns) or self._without_agent(hosts)
        if why:
            self._count_once(trouble, undecided.kind, AskState.REFUSED)
            return False
        if not self._request(trouble, undecided):
            self._count_once(trouble, undecided.kind, AskState.REFUSED)
            return False
        self._reread(now_ns)
        if len(self._before) >= TROUBLES_KEPT_MAX:
            self._before.clear()
        self._before[trouble] = verdict
        self._metrics.asks.labels(undecided.kind, "asked").inc()
        return True

    def _request(self, trouble: str, undecided: Undecided) -> int:
        """Hand the requests to the agents' queues; returns how many were taken."""
        for number, place in enumerate(undecided.at):
            try:
                self._captures.ask(
                    place.host,
                    SECONDS_BEFORE,
                    SECONDS_AFTER,
                    devices_asked(undecided.kind, place),
                    by=BY_SERVICE,
                    why=trouble,
                )
            except Problem as full:
                # What was taken is waited for: it shows something, though it may decide nothing.
                log.info("%s: a capture cannot be requested: %s", trouble, full)
                return number
        return len(undecided.at)

    def _without_agent(self, hosts: Sequence[str]) -> str:
        away = [host for host in hosts if self._inventory.hosts.agent(host) is None]
        return f"no agent at {', '.join(away)}" if away else ""

    # --- what came -----------------------------------------------------------------------------

    def _end(
        self,
        asked: Asked,
        incidents: dict[str, Incident],
        changes: list[Change],
        verdicts: Sequence[Verdict],
        now_ns: int,
    ) -> None:
        """Note in the incident what came of a request, once."""
        self._count_once(asked.trouble, asked.kind, asked.state)
        incident = incidents.get(asked.trouble) or opened_as(asked.trouble, incidents)
        if incident is None or any(turn.news is News.ANSWERED for turn in incident.history):
            return
        standing = incident.verdict
        now = next((one for one in verdicts if is_about(one, standing)), standing)
        shown = standing if standing.confidence >= now.confidence else now
        before = self._before.get(asked.trouble)
        text = ended_words(asked, before, shown)
        log.info("%s: %s", incident.id, text)
        if not any(turn.news is News.ASKED for turn in incident.history):
            words = asked_before_words(asked)
            incidents[incident.id] = noted(incident, News.ASKED, words, asked.asked_ns, before)
        self._note(incidents, changes, incident.id, News.ANSWERED, text, now_ns)

    def _given_up(self, asked: Asked, now_ns: int) -> Asked:
        now = dt.datetime.fromtimestamp(now_ns / NS, tz=dt.UTC)
        self._inventory.captures.withdraw(BY_SERVICE, asked.trouble, now)
        again = self._reread(now_ns)
        return next((one for one in again if one.trouble == asked.trouble), asked)

    def _note(
        self,
        incidents: dict[str, Incident],
        changes: list[Change],
        number: str,
        news: News,
        text: str,
        now_ns: int,
    ) -> None:
        if number in incidents:
            incidents[number] = noted(incidents[number], news, text, now_ns)
            changes.append(Change(news, incidents[number], now_ns))

    def _count_once(self, trouble: str, kind: MeasurementKind, state: AskState) -> None:
        key = f"{state} {trouble}"
        if key in self._counted:
            return
        if len(self._counted) >= TROUBLES_KEPT_MAX:
            self._counted.clear()
        self._counted.add(key)
        self._metrics.asks.labels(kind, state).inc()


def devices_asked(kind: MeasurementKind, place: Culprit) -> list[str]:
    """How a request to the agent of a place names what it is for."""
    if kind is MeasurementKind.RAS_STATUS:
        return [RAS_DEVICE]
    return [place.device] if place.device else []


def opened_as(trouble: str, incidents: dict[str, Incident]) -> Incident | None:
    """The open incident that a trouble became after something was asked for it."""
    return next(
        (
            each
            for each in incidents.values()
            if each.is_open and trouble_of(each.verdict) == trouble
        ),
        None,
    )


def is_about(verdict: Verdict, standing: Verdict) -> bool:
    return verdict.cause is standing.cause and bool({*verdict.jobs} & {*standing.jobs})


def grouped(rows: Sequence[Capture], now_ns: int) -> list[Asked]:
    """Captures as requests: those of one trouble are one, and have come when all have."""
    by_trouble: dict[str, list[Capture]] = {}
    for row in rows:
        by_trouble.setdefault(row.why, []).append(row)
    return [
        Asked(
            trouble=trouble,
            kind=kind_requested(own[0].devices),
            asked_ns=min(round(row.requested_at.timestamp() * NS) for row in own),
            hosts=tuple(sorted({row.agent for row in own})),
            state=state_of(own),
            ended_ns=max(
                round(row.ended_at.timestamp() * NS) if row.ended_at is not None else now_ns
                for row in own
            ),
            samples=sum(row.samples or 0 for row in own),
            why=reasons_of(own),
        )
        for trouble, own in by_trouble.items()
    ]


def reasons_of(own: Sequence[Capture]) -> str:
    """Why answers did not come, each reason with the agents that it is of."""
    by_reason: dict[str, list[str]] = {}
    for row in sorted(own, key=lambda each: each.agent):
        if row.state is not CaptureState.FINISHED:
            by_reason.setdefault(row.detail or row.state, []).append(row.agent)
    return "; ".join(f"{listed(agents)}: {why}" for why, agents in by_reason.items())


def state_of(own: Sequence[Capture]) -> AskState:
    states = {row.state for row in own}
    if any(state.value in PENDING for state in states):
        return AskState.WAITING
    if states & {CaptureState.REFUSED, CaptureState.LOST}:
        return AskState.REFUSED
    return AskState.TIMED_OUT if CaptureState.EXPIRED in states else AskState.ANSWERED
