"""From verdicts to incidents: verdicts that repeat belong to one incident. Pure.

Every few seconds the evaluator judges the last minutes again. Most verdicts then repeat known ones
with a little more evidence; some give the same trouble another name; some are about what is over.
`advance` takes the incidents and the new verdicts, and returns the incidents afterwards.

An incident keeps its explanation (cause and culprit) unless another one is clearly more certain, or
no verdict has repeated its own for a while: the on-call person must not find another name at each
look. Trouble that comes and goes is one incident. Only evidence from after its end opens a closed
incident again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from alerts.judge.agreement import confirms, is_apart, is_bare, leaves_open, refines
from alerts.judge.names import name_incident, names_of, same_thing
from alerts.signals.replay import grown, stood
from collector.contract.cause_facts import Family
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Verdict

OPEN_CONFIDENCE = 0.5
"""Below it a verdict is more likely wrong than right: it may support an incident, not begin one."""
MARGIN = 0.15
"""How much more certain another explanation must be to replace the present one: confidence moves by
a few hundredths from one evaluation to the next, with the noise of the window."""
SWITCH_SECONDS = 30
"""An explanation not repeated for this long (six evaluations) gives way, however certain."""
CLOSE_SECONDS = 60
"""An incident without evidence for this long is over: an agent that missed some of its reports, or
a job's checkpoint, is no end."""
CLOSE_INTERMITTENT_SECONDS = 600
"""The same for causes that come and go by nature: links flap every few minutes."""
REOPEN_SECONDS = 1_800
"""Trouble that comes back within half an hour of its end is the same incident."""
ONSET_SECONDS = 15
"""Two troubles of one job that begin so close together are one, unless each has a culprit and
evidence of its own (`is_apart`): starts are known to a cell of the window (5 s), and a switch is
read every 10 s."""
MOVED_CONFIDENCE = 0.05
"""A change of confidence that is news."""
MOVED_COST = 1.25
"""A growth of the lost time that is news."""

OPEN_MAX = 200
"""Incidents open at once. A cluster with more of them has one trouble that was not merged, and more
would only hide it. Past it, new ones are left out and counted."""
KEPT_MAX = 1_000
"""Incidents examined in a round, closed ones included: of those the oldest are forgotten first, and
cannot be opened again."""
SYMPTOMS_KEPT_MAX = 50
"""Other explanations that an incident remembers; more are counted."""
HISTORY_MAX = 50
"""Turns of an incident that are kept: the first, and the latest."""
JOBS_MAX = 100
"""Jobs of one incident, the first that suffered: a switch's outage hits all of a cluster."""


class IncidentState(enum.StrEnum):
    """Whether an incident goes on."""

    OPEN = "open"
    CLOSED = "closed"


class News(enum.StrEnum):
    """What happened to an incident."""

    OPENED = "opened"
    UPDATED = "updated"
    CHANGED = "changed"
    CLOSED = "closed"
    REOPENED = "reopened"
    ASKED = "asked"
    """The service requested a measurement for it (`alerts.judge.asking`)."""
    ANSWERED = "answered"
    """What came of that."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of an incident, and its explanation from then on."""

    time_ns: int
    news: News
    cause: Cause
    culprit: Culprit
    confidence: float
    was_cause: Cause | None = None
    was_culprit: Culprit | None = None
    note: str = ""
    """A sentence: what was asked, or what came of it."""


class Symptom(msgspec.Struct, frozen=True):
    """Another explanation of the same trouble, that was merged into it."""

    cause: Cause
    culprit: Culprit


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One trouble, from its first verdict on. Times are unix nanoseconds."""

    id: str
    """Sorts by time; its last two words are pronounceable over a telephone."""
    state: IncidentState
    verdict: Verdict
    """The latest, or that at the end; ``until_ns`` is None while the incident is open."""
    first_said_ns: int
    last_seen_ns: int
    """The last evidence for it."""
    confirmed_ns: int
    closed_ns: int | None = None
    jobs: tuple[str, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    symptoms_seen: int = 0
    """How many other explanations were merged into it: all that are kept and, past them, as many
    as there were in one round."""
    reopened: int = 0
    history: tuple[Turn, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.state is IncidentState.OPEN

    @property
    def close_ns(self) -> int:
        comes_and_goes = self.verdict.cause.facts.comes_and_goes or self.reopened > 0
        return (CLOSE_INTERMITTENT_SECONDS if comes_and_goes else CLOSE_SECONDS) * NS


class Change(msgspec.Struct, frozen=True):
    """News of an incident, with the incident as it is after it."""

    news: News
    incident: Incident
    time_ns: int


class Advance(msgspec.Struct, frozen=True):
    """The result of a round."""

    incidents: list[Incident]
    """All that are open, and those closed ones that may still be opened again; in order."""
    changes: list[Change]
    incident_of: list[str]
    """For each verdict, in the order given, the incident that it went to; empty: none."""
    left_out: int
    """Verdicts that would have been incidents, past OPEN_MAX."""


# A round -----------------------------------------------------------------------------------------


def advance(
    incidents: Sequence[Incident],
    verdicts: Sequence[Verdict],
    now_ns: int,
    *,
    seen_from_ns: int | None = None,
    still: Collection[str] = (),
    late: Collection[Culprit] = (),
    unjudged: Collection[str] = (),
) -> Advance:
    """Apply a round's verdicts to the incidents.

    ``seen_from_ns`` is the start of the judged window: a trouble that began before it seems to
    begin there. ``still`` are jobs that run and in which nothing has moved for the whole window:
    detectors see no stop in it, and a job that hung before still hangs. ``late`` are ranks and
    hosts that come late for the whole window: by itself that is unequal work, but a culprit of an
    open incident is then still late. ``unjudged`` are jobs whose evidence has not all come: their
    incidents are not over because this round has no verdict on them. The order of verdicts and of
    incidents makes no difference.
    """
    work = Round(incidents, now_ns, seen_from_ns)
    order = sorted(range(len(verdicts)), key=lambda place: rank_of(verdicts[place]))
    incident_of = [""] * len(verdicts)
    # Verdicts that confirm an incident come first: others are compared with its updated state.
    waiting = []
    for place in order:
        if found := work.confirm(verdicts[place]):
            incident_of[place] = found
        else:
            waiting.append(place)
    for place in waiting:
        incident_of[place] = work.place(verdicts[place])
    work.stand(still)
    work.stay_late(late)
    return work.end(incident_of, frozenset(unjudged))


def rank_of(verdict: Verdict) -> tuple[object, ...]:
    """The order in which verdicts are placed: the surest first, then by content."""
    names = sorted(map(str, names_of(verdict.culprit)))
    return (-verdict.confidence, str(verdict.cause), names, verdict.since_ns, verdict.until_ns or 0)


class Round:
    """One round, while verdicts are placed one after the other."""

    def __init__(
        self, incidents: Sequence[Incident], now_ns: int, seen_from_ns: int | None
    ) -> None:
        self._now_ns = now_ns
        self._seen_from_ns = seen_from_ns
        self._before = {each.id: each for each in incidents}
        self._standing = {key: self._before[key] for key in sorted(self._before)}
        self._news: dict[str, News] = {}
        self._overflow: dict[str, set[Symptom]] = {}
        self._left_out = 0

    # --- placing ---------------------------------------------------------------------------------

    def confirm(self, verdict: Verdict) -> str:
        """Give a verdict to the open incident that it confirms; empty if there is none."""
        for incident in self._standing.values():
            if not incident.is_open:
                continue
            if leaves_open(verdict, incident.verdict):
                self._persist(incident, verdict)
                return incident.id
            if confirms(verdict, incident.verdict):
                self._update(incident, verdict)
                return incident.id
        return ""

    def place(self, verdict: Verdict) -> str:
        """Give a verdict to an incident that it may be about, or begin one; empty: neither."""
        found = self._find(verdict)
        if found is None:
            return self._begin(verdict)
        if not found.is_open:
            self._return(found, verdict)
        elif confirms(verdict, found.verdict):
            self._update(found, verdict)
        elif self._is_live(verdict) and self._prevails(verdict, found):
            self._change(found, verdict)
        else:
            self._merge(found, verdict)
        return found.id

    def _find(self, verdict: Verdict) -> Incident | None:
        standing = list(self._standing.values())
        opened = [each for each in standing if each.is_open]
        for matches in (is_named, is_known_symptom, is_victim):
            for incident in opened:
                is_its_own = matches is is_known_symptom and self._is_apart(verdict, incident)
                if matches(verdict, incident) and not is_its_own:
                    return incident
        for incident in reversed(standing):
            if not incident.is_open and self._is_past(verdict, incident):
                return incident
        for incident in opened:
            if self._is_same_trouble(verdict, incident):
                return incident
        return None

    def _is_past(self, verdict: Verdict, incident: Incident) -> bool:
        """Whether a closed incident is meant: the same names, during it or soon after.

        Its earlier symptoms stay in the window for some minutes, and are still its own.
        """
        closed_ns = incident.closed_ns or incident.last_seen_ns
        if is_known_symptom(verdict, incident) and self._evidence_ns(verdict) <= closed_ns:
            return True
        if not is_named(verdict, incident):
            return False
        return verdict.since_ns <= closed_ns + REOPEN_SECONDS * NS

    def _is_same_trouble(self, verdict: Verdict, incident: Incident) -> bool:
        """Whether a job of the incident suffers from both, from the same time on.

        Where the incident's own explanation was given in this round, the two must have begun
        together; where it was not, they must have overlapped.
        """
        if not set(verdict.jobs) & set(incident.jobs):
            return False
        begun_ns = incident.verdict.since_ns
        if incident.confirmed_ns == self._now_ns:
            if is_apart(verdict, incident.verdict):
                return False
            return abs(verdict.since_ns - begun_ns) <= ONSET_SECONDS * NS
        return (
            verdict.since_ns <= incident.last_seen_ns
            and self._evidence_ns(verdict) >= begun_ns - ONSET_SECONDS * NS
        )

    def _is_apart(self, verdict: Verdict, incident: Incident) -> bool:
        """Whether both explanations were given in this round, and neither explains the other."""
        return incident.confirmed_ns == self._now_ns and is_apart(verdict, incident.verdict)

    def _is_its_slowness(self, verdict: Verdict, incident: Incident) -> bool:
        """Whether a job is slow since the incident began: then it goes on without a new reason.

        Not where slowness is all that the incident itself has: then it is another trouble.
        """
        began_ns = incident.verdict.since_ns + ONSET_SECONDS * NS
        has_job = bool({*verdict.jobs} & {*incident.jobs})
        return (
            is_bare(verdict)
            and not is_bare(incident.verdict)
            and has_job
            and (verdict.since_ns <= began_ns)
        )

    def _prevails(self, verdict: Verdict, incident: Incident) -> bool:
        standing = incident.verdict
        if refines(verdict, standing):
            return verdict.confidence >= standing.confidence
        if verdict.confidence < OPEN_CONFIDENCE:
            return False
        if self._now_ns - incident.confirmed_ns < SWITCH_SECONDS * NS:
            return verdict.confidence >= min(1.0, standing.confidence + MARGIN)
        # A cause that began before the window is no change any more and detectors may miss it; the
        # slowness that it causes they still find.
        return not is_bare(verdict) or verdict.confidence >= standing.confidence

    # --- changes of an incident ------------------------------------------------------------------

    def _begin(self, verdict: Verdict) -> str:
        if verdict.confidence < OPEN_CONFIDENCE:
            return ""
        if sum(each.is_open for each in self._standing.values()) >= OPEN_MAX:
            self._left_out += 1
            return ""
        incident = Incident(
            id=name_incident(verdict, self._now_ns, self._standing),
            state=IncidentState.OPEN,
            verdict=msgspec.structs.replace(verdict, until_ns=None),
            first_said_ns=self._now_ns,
            last_seen_ns=self._evidence_ns(verdict),
            confirmed_ns=self._now_ns,
            jobs=verdict.jobs[:JOBS_MAX],
        )
        self._keep(incident, News.OPENED)
        return incident.id

    def _update(self, incident: Incident, verdict: Verdict) -> None:
        old = incident.verdict
        is_better = verdict.confidence >= old.confidence or self._is_live(verdict)
        base = verdict if is_better else old
        joined = msgspec.structs.replace(
            base,
            culprit=old.culprit,
            reason=verdict.reason if verdict.confidence >= old.confidence else old.reason,
            confidence=max(old.confidence, verdict.confidence),
            since_ns=self._since(old, verdict),
            until_ns=old.until_ns,
            jobs=join(old.jobs, verdict.jobs),
            costs=self._costs(incident, verdict),
        )
        self._keep(
            msgspec.structs.replace(
                incident,
                verdict=joined,
                last_seen_ns=max(incident.last_seen_ns, self._evidence_ns(verdict)),
                confirmed_ns=self._now_ns,
                jobs=join(incident.jobs, verdict.jobs),
            )
        )

    def _persist(self, incident: Incident, verdict: Verdict) -> None:
        """It goes on and costs more; what is said of it stays."""
        costs = self._costs(incident, verdict)
        self._keep(
            msgspec.structs.replace(
                incident,
                verdict=msgspec.structs.replace(incident.verdict, costs=costs),
                last_seen_ns=max(incident.last_seen_ns, self._evidence_ns(verdict)),
                confirmed_ns=self._now_ns,
                jobs=join(incident.jobs, verdict.jobs),
            )
        )

    def _merge(self, incident: Incident, verdict: Verdict) -> None:
        symptom = Symptom(verdict.cause, verdict.culprit)
        kept = incident.symptoms
        if symptom not in kept and len(kept) < SYMPTOMS_KEPT_MAX:
            kept = (*kept, symptom)
        elif symptom not in kept:
            self._overflow.setdefault(incident.id, set()).add(symptom)
        seen = len(kept) + len(self._overflow.get(incident.id, ()))
        evidence_ns = incident.last_seen_ns
        if is_named(verdict, incident) or self._is_its_slowness(verdict, incident):
            evidence_ns = max(evidence_ns, self._evidence_ns(verdict))
        self._keep(
            msgspec.structs.replace(
                incident,
                last_seen_ns=evidence_ns,
                jobs=join(incident.jobs, verdict.jobs),
                symptoms=kept,
                symptoms_seen=max(seen, incident.symptoms_seen),
            )
        )

    def _change(self, incident: Incident, verdict: Verdict) -> None:
        old = incident.verdict
        left = Symptom(old.cause, old.culprit)
        kept = tuple(each for each in incident.symptoms if each != left)
        explanation = msgspec.structs.replace(
            verdict,
            since_ns=self._since(old, verdict),
            until_ns=None,
            jobs=join(old.jobs, verdict.jobs),
            costs=self._costs(incident, verdict),
        )
        changed = msgspec.structs.replace(
            incident,
            verdict=explanation,
            last_seen_ns=max(incident.last_seen_ns, self._evidence_ns(verdict)),
            confirmed_ns=self._now_ns,
            jobs=join(incident.jobs, verdict.jobs),
            symptoms=(left, *kept)[:SYMPTOMS_KEPT_MAX],
            symptoms_seen=max(incident.symptoms_seen, min(len(kept) + 1, SYMPTOMS_KEPT_MAX)),
        )
        self._keep(changed, News.CHANGED)

    def _return(self, incident: Incident, verdict: Verdict) -> None:
        """A verdict on a closed incident: later evidence reopens it, else it only came late."""
        closed_ns = incident.closed_ns or incident.last_seen_ns
        if self._evidence_ns(verdict) <= closed_ns:
            if confirms(verdict, incident.verdict):
                self._update(incident, verdict)
                self._keep(settled(self._standing[incident.id]))
            return
        if verdict.confidence < OPEN_CONFIDENCE:
            return
        back = msgspec.structs.replace(
            incident,
            state=IncidentState.OPEN,
            verdict=msgspec.structs.replace(incident.verdict, until_ns=None),
            closed_ns=None,
            reopened=incident.reopened + 1,
        )
        if confirms(verdict, back.verdict):
            self._update(back, verdict)
        else:
            self._change(back, verdict)
        self._keep(self._standing[incident.id], News.REOPENED)

    def _keep(self, incident: Incident, news: News | None = None) -> None:
        self._standing[incident.id] = incident
        # All changes of an incident in one round are one piece of news: the first.
        if news is not None:
            self._news.setdefault(incident.id, news)
            if news is News.REOPENED:
                self._news[incident.id] = news

    # --- times and costs -------------------------------------------------------------------------

    def _is_live(self, verdict: Verdict) -> bool:
        return verdict.until_ns is None or verdict.until_ns >= self._now_ns

    def _evidence_ns(self, verdict: Verdict) -> int:
        """The latest time that a verdict covers."""
        return self._now_ns if verdict.until_ns is None else min(verdict.until_ns, self._now_ns)

    def _since(self, old: Verdict, new: Verdict) -> int:
        """When it began: by the new estimate where its window reaches back to the start."""
        if (
            self._seen_from_ns is not None
            and old.since_ns > self._seen_from_ns + ONSET_SECONDS * NS
        ):
            return new.since_ns
        return min(old.since_ns, new.since_ns)

    def _costs(self, incident: Incident, verdict: Verdict) -> tuple[Cost, ...]:
        """What it has cost so far, for each job.

        A window shows only its own cost. For an incident that began before it, the time since the
        last round is added at the rate that the window shows.
        """
        total = {cost.job: cost for cost in incident.verdict.costs}
        elapsed_s = max(0, self._evidence_ns(verdict) - incident.last_seen_ns) / NS
        for cost in verdict.costs:
            known = total.get(cost.job)
            total[cost.job] = cost if known is None else grown(known, cost, elapsed_s)
        return tuple(total[job] for job in sorted(total))[:JOBS_MAX]

    # --- the end ---------------------------------------------------------------------------------

    def stand(self, still: Collection[str]) -> None:
        """Incidents of jobs that still stand: they go on, and cost all of the time."""
        for incident in self._open_of(Family.STUCK):
            jobs = set(incident.jobs) & set(still)
            if jobs:
                self._go_on(incident, partial(stood_in, jobs))

    def stay_late(self, late: Collection[Culprit]) -> None:
        """Incidents of culprits that still come late: they go on, at the same cost rate."""
        for incident in self._open_of(Family.RANK):
            if any(same_thing(one, incident.verdict.culprit) for one in late):
                self._go_on(incident, lambda cost, seconds: grown(cost, cost, seconds))

    def _open_of(self, family: Family) -> list[Incident]:
        return [
            each
            for each in self._standing.values()
            if each.is_open and each.verdict.cause.facts.family is family
        ]

    def _go_on(self, incident: Incident, spend: Callable[[Cost, float], Cost]) -> None:
        """Confirm an incident now, and add the cost of the time since it was last seen."""
        elapsed_s = max(0, self._now_ns - incident.last_seen_ns) / NS
        if not elapsed_s:
            return
        costs = tuple(spend(cost, elapsed_s) for cost in incident.verdict.costs)
        self._keep(
            msgspec.structs.replace(
                incident,
                verdict=msgspec.structs.replace(incident.verdict, costs=costs),
                last_seen_ns=self._now_ns,
                confirmed_ns=self._now_ns,
            )
        )

    def end(self, incident_of: list[str], unjudged: frozenset[str] = frozenset()) -> Advance:
        """Close what is over, forget what is long over, and return the changes."""
        changes = []
        kept = []
        for incident in self._standing.values():
            now = incident
            news = self._news.get(now.id)
            is_over = self._now_ns - now.last_seen_ns >= now.close_ns
            is_over = is_over and unjudged.isdisjoint(now.jobs)
            if news is not None:
                now = with_turn(now, news, self._before.get(now.id), self._now_ns)
                if not (is_over and now.is_open):
                    changes.append(Change(news, now, self._now_ns))
            if now.is_open and is_over:
                # An incident that was over at its first verdict is reported once, as closed.
                now = settled(
                    msgspec.structs.replace(now, state=IncidentState.CLOSED, closed_ns=self._now_ns)
                )
                now = with_turn(now, News.CLOSED, now, self._now_ns)
                changes.append(Change(News.CLOSED, now, self._now_ns))
            elif news is None and (before := self._before.get(now.id)) and is_news(before, now):
                changes.append(Change(News.UPDATED, now, self._now_ns))
            closed_ns = now.closed_ns or self._now_ns
            if now.is_open or self._now_ns - closed_ns <= REOPEN_SECONDS * NS:
                kept.append(now)
        return Advance(forget_oldest(kept), changes, incident_of, self._left_out)


def is_named(verdict: Verdict, incident: Incident) -> bool:
    standing = incident.verdict
    return verdict.cause.facts.family is standing.cause.facts.family and (
        same_thing(verdict.culprit, standing.culprit) or confirms(verdict, standing)
    )


def is_known_symptom(verdict: Verdict, incident: Incident) -> bool:
    return Symptom(verdict.cause, verdict.culprit) in incident.symptoms


def is_victim(verdict: Verdict, incident: Incident) -> bool:
    others = (*incident.verdict.victims, *incident.verdict.accomplices)
    return bool(names_of(verdict.culprit)) and verdict.culprit in others


def stood_in(jobs: Collection[str], cost: Cost, elapsed_s: float) -> Cost:
    """A job's cost after ``elapsed_s`` more: all of them are lost if it is one of ``jobs``."""
    return stood(cost, elapsed_s) if cost.job in jobs else cost


def forget_oldest(incidents: list[Incident]) -> list[Incident]:
    """At most KEPT_MAX: all that are open, and the latest of the closed ones."""
    closed = sorted(
        (each for each in incidents if not each.is_open),
        key=lambda each: (each.closed_ns or 0, each.id),
    )
    dropped = {each.id for each in closed[: max(0, len(incidents) - KEPT_MAX)]}
    return [each for each in incidents if each.id not in dropped]


def settled(incident: Incident) -> Incident:
    """A closed incident whose verdict ends when it was last seen."""
    ended = msgspec.structs.replace(incident.verdict, until_ns=incident.last_seen_ns)
    return msgspec.structs.replace(incident, verdict=ended)


def join(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))[:JOBS_MAX]


def with_turn(incident: Incident, news: News, before: Incident | None, now_ns: int) -> Incident:
    """With one more line in its history; past HISTORY_MAX an old one is dropped."""
    verdict = incident.verdict
    has_changed = before is not None and (before.verdict.cause, before.verdict.culprit) != (
        verdict.cause,
        verdict.culprit,
    )
    turn = Turn(
        time_ns=now_ns,
        news=news,
        cause=verdict.cause,
        culprit=verdict.culprit,
        confidence=verdict.confidence,
        was_cause=before.verdict.cause if before is not None and has_changed else None,
        was_culprit=before.verdict.culprit if before is not None and has_changed else None,
    )
    return with_line(incident, turn)


def noted(
    incident: Incident, news: News, note: str, now_ns: int, said: Verdict | None = None
) -> Incident:
    """With a line in its history that changes no explanation; ``said``: what was said then."""
    verdict = incident.verdict if said is None else said
    turn = Turn(
        time_ns=now_ns,
        news=news,
        cause=verdict.cause,
        culprit=verdict.culprit,
        confidence=verdict.confidence,
        note=note,
    )
    return with_line(incident, turn)


def with_line(incident: Incident, turn: Turn) -> Incident:
    history = (*incident.history, turn)
    if len(history) > HISTORY_MAX:
        # What was asked stays: an incident asks once.
        places = range(1, len(history))
        dropped = next(one for one in places if history[one].news is not News.ASKED)
        history = (*history[:dropped], *history[dropped + 1 :])
    return msgspec.structs.replace(incident, history=history)


def is_news(before: Incident, after: Incident) -> bool:
    old, new = before.verdict, after.verdict
    lost_before, lost_after = lost_seconds(old), lost_seconds(new)
    return (
        abs(new.confidence - old.confidence) >= MOVED_CONFIDENCE
        or old.reason is not new.reason
        or before.jobs != after.jobs
        or before.symptoms_seen != after.symptoms_seen
        or len(old.victims) != len(new.victims)
        or {each.metric for each in old.evidence} != {each.metric for each in new.evidence}
        or lost_after > max(1.0, lost_before) * MOVED_COST
    )


def lost_seconds(verdict: Verdict) -> float:
    return sum(cost.lost_seconds for cost in verdict.costs)


def standing_verdicts(incidents: Iterable[Incident]) -> list[Verdict]:
    """The verdicts of all open incidents, the costliest first."""
    verdicts = (each.verdict for each in incidents if each.is_open)
    return sorted(verdicts, key=lambda each: (-lost_seconds(each), *rank_of(each)))
