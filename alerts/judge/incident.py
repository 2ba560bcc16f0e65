"""From verdicts to incidents: verdicts that repeat belong to one incident. Pure.

Every few seconds the evaluator judges the last minutes again. Most verdicts then repeat known ones
with a little more evidence; some give the same trouble another name; some are about what is over.
`advance` takes the incidents and the new verdicts, and returns the incidents afterwards.

An incident is one trouble of one culprit. It keeps its explanation (cause, culprit, reason) unless
another one is clearly more certain, or no verdict has repeated its own for a while: the on-call
person must not find another name at each look. An explanation by another culprit ends it and begins
a new one, each with a link to the other; more names of the same culprit do not.

Trouble that comes and goes is one incident of several stretches. Only evidence from after its end
opens a closed incident again, and only evidence of the same cause, culprit and reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from alerts.judge.agreement import (
    Says,
    accuses_another,
    confirms,
    is_apart,
    is_back,
    is_bare,
    is_exact,
    leaves_open,
    refines,
    says,
)
from alerts.judge.incident_model import (
    CLOSE_INTERMITTENT_SECONDS,
    CLOSE_SECONDS,
    HISTORY_MAX,
    Advance,
    Change,
    Incident,
    IncidentState,
    Linked,
    News,
    Symptom,
    Turn,
    evidence_from,
    linked_words,
    noted,
    settled,
    with_turn,
    worded,
)
from alerts.judge.names import name_incident, names_of, same_thing
from alerts.judge.stretches import GAP_SECONDS, of_present, over_all, part_since, with_stretch
from alerts.signals.replay import grown, is_rougher, stood
from collector.contract.cause_facts import Family
from collector.contract.units import NS
from collector.contract.verdict import Cost, Culprit, Verdict

__all__ = [
    "CLOSE_INTERMITTENT_SECONDS", "CLOSE_SECONDS", "HISTORY_MAX", "Advance", "Change", "Incident",
    "IncidentState", "Linked", "News", "Symptom", "Turn", "advance", "noted", "standing_verdicts",
]  # fmt: skip

OPEN_CONFIDENCE = 0.5
"""Below it a verdict is more likely wrong than right: it may support an incident, not begin one."""
MARGIN = 0.15
"""How much more certain another explanation must be to replace the present one: confidence moves by
a few hundredths from one evaluation to the next, with the noise of the window."""
SWITCH_SECONDS = 30
"""An explanation not repeated for this long (six evaluations) gives way, however certain."""
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
JOBS_MAX = 100
"""Jobs of one incident, the first that suffered: a switch's outage hits all of a cluster."""


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
    times = (verdict.since_ns, verdict.until_ns or 0)
    said = (str(verdict.cause), names, *times, str(verdict.reason), verdict.jobs)
    cost = repr(verdict.costs)
    return (-verdict.confidence, *said, cost)


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
        """Give a verdict to the open incident that it confirms; empty if there is none.

        One that names it exactly comes before one that has more names.
        """
        opened = [each for each in self._standing.values() if each.is_open]
        for is_meant in (is_exact, confirms_or_leaves_open):
            for incident in opened:
                if is_meant(verdict, incident.verdict):
                    self._hear(incident, verdict)
                    return incident.id
        return ""

    def place(self, verdict: Verdict) -> str:
        """Give a verdict to an incident that it may be about, or begin one; empty: neither."""
        # Of two verdicts on the same trouble the first may just have begun its incident.
        if known := self.confirm(verdict):
            return known
        found = self._find(verdict)
        if found is None:
            return self._begin(verdict)
        if not found.is_open:
            return self._return(found, verdict)
        if verdict.cause is found.verdict.cause and same_thing(
            verdict.culprit, found.verdict.culprit
        ):
            self._hear(found, verdict)
        elif self._is_live(verdict) and self._prevails(verdict, found):
            return self._change(found, verdict)
        else:
            self._merge(found, verdict)
        return found.id

    def _hear(self, incident: Incident, verdict: Verdict) -> None:
        """A verdict of an incident's own cause, about its culprit."""
        standing = incident.verdict
        if leaves_open(verdict, standing):
            self._persist(incident, verdict)
            return
        match says(verdict, standing):
            case Says.SAME:
                self._repeat(incident, verdict)
            case Says.MORE if self._adds(verdict, standing):
                self._adopt(incident, verdict)
            case Says.OTHERWISE if self._is_live(verdict) and self._prevails(verdict, incident):
                self._change(incident, verdict)
            case Says.OTHERWISE:
                # Its explanation was not given: after a while it gives way.
                self._persist(incident, verdict, is_confirmed=False)
            case _:
                self._persist(incident, verdict)

    def _adds(self, verdict: Verdict, standing: Verdict) -> bool:
        """Whether its further names or its reason are sure enough to be taken over."""
        if verdict.culprit == standing.culprit:
            return verdict.confidence >= OPEN_CONFIDENCE
        return verdict.confidence >= standing.confidence and self._is_live(verdict)

    def _find(self, verdict: Verdict) -> Incident | None:
        standing = list(self._standing.values())
        opened = [each for each in standing if each.is_open]
        for matches in (is_named, is_known_symptom, is_victim):
            for incident in opened:
                is_its_own = matches is not is_named and self._is_apart(verdict, incident)
                is_later = matches is is_victim and begins_after(verdict, incident)
                if matches(verdict, incident) and not is_its_own and not is_later:
                    return incident
        for incident in reversed(standing):
            if not incident.is_open and self._is_past(verdict, incident):
                return incident
        for incident in opened:
            if self._is_same_trouble(verdict, incident):
                return incident
        return None

    def _is_past(self, verdict: Verdict, incident: Incident) -> bool:
        """Whether a closed incident is meant: its trouble, or what was seen of it before its end.

        Its earlier symptoms stay in the window for some minutes, and are still its own.
        """
        closed_ns = incident.closed_ns or incident.last_seen_ns
        if self._evidence_ns(verdict) <= closed_ns:
            return (
                is_known_symptom(verdict, incident)
                or is_named(verdict, incident)
                or leaves_open(verdict, incident.verdict)
            )
        # What became another incident does not come back: that one has its place.
        if incident.became is not None or not is_back(verdict, incident.verdict):
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
        if self._news.get(incident.id) is News.REOPENED:
            return False  # what came back is what had gone
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
        incident = self._new(verdict)
        self._keep(incident, News.OPENED)
        return incident.id

    def _new(self, verdict: Verdict) -> Incident:
        evidence_ns = self._evidence_ns(verdict)
        said = verdict
        if verdict.until_ns is not None:
            said = worded(msgspec.structs.replace(verdict, until_ns=None))
        return Incident(
            id=name_incident(verdict, self._now_ns, self._standing),
            state=IncidentState.OPEN,
            verdict=said,
            first_said_ns=self._now_ns,
            last_seen_ns=evidence_ns,
            confirmed_ns=self._now_ns,
            jobs=verdict.jobs[:JOBS_MAX],
            seen_first_ns=evidence_ns,
        )

    def _repeat(self, incident: Incident, verdict: Verdict) -> None:
        """The same explanation again: the newer evidence stands, with the names that are known."""
        old = incident.verdict
        is_better = verdict.confidence >= old.confidence or self._is_live(verdict)
        said = msgspec.structs.replace(verdict, culprit=old.culprit) if is_better else old
        self._say(incident, said, verdict)

    def _adopt(self, incident: Incident, verdict: Verdict) -> None:
        """The verdict's explanation from now on, all of it."""
        old = incident.verdict
        is_other = old.culprit != verdict.culprit or old.cause is not verdict.cause
        self._say(incident, verdict, verdict, News.CHANGED if is_other else None)

    def _persist(self, incident: Incident, verdict: Verdict, *, is_confirmed: bool = True) -> None:
        """It goes on and costs more; what is said of it stays."""
        self._say(incident, incident.verdict, verdict, is_confirmed=is_confirmed)

    def _say(
        self,
        incident: Incident,
        said: Verdict,
        verdict: Verdict,
        news: News | None = None,
        *,
        is_confirmed: bool = True,
    ) -> None:
        """Keep an incident that goes on, explained as ``said``; the new evidence is a verdict's."""
        after = self._seen(incident, verdict, said)
        old = after.verdict
        explanation = msgspec.structs.replace(
            said,
            # Another reason makes the standing one no surer.
            confidence=max(old.confidence, (verdict if is_confirmed else said).confidence),
            since_ns=old.since_ns,
            until_ns=old.until_ns,
            jobs=join(old.jobs, verdict.jobs),
            costs=old.costs,
        )
        after = msgspec.structs.replace(
            after,
            verdict=explanation,
            confirmed_ns=self._now_ns if is_confirmed else after.confirmed_ns,
            jobs=join(incident.jobs, verdict.jobs),
        )
        self._keep(after, news)

    def _merge(self, incident: Incident, verdict: Verdict) -> None:
        symptom = Symptom(verdict.cause, verdict.culprit)
        kept = incident.symptoms
        if symptom not in kept and len(kept) < SYMPTOMS_KEPT_MAX:
            kept = (*kept, symptom)
        elif symptom not in kept:
            self._overflow.setdefault(incident.id, set()).add(symptom)
        seen = len(kept) + len(self._overflow.get(incident.id, ()))
        after = incident
        if is_named(verdict, incident) or self._is_its_slowness(verdict, incident):
            told = msgspec.structs.replace(verdict, costs=())
            after = self._seen(incident, told, incident.verdict)
        self._keep(
            msgspec.structs.replace(
                after,
                jobs=join(incident.jobs, verdict.jobs),
                symptoms=kept,
                symptoms_seen=max(seen, incident.symptoms_seen),
            )
        )

    def _change(self, incident: Incident, verdict: Verdict) -> str:
        """Another explanation prevails. By another culprit it is another incident; its id."""
        old = incident.verdict
        left = Symptom(old.cause, old.culprit)
        new = Symptom(verdict.cause, verdict.culprit)
        kept = tuple(each for each in incident.symptoms if each not in (left, new))
        if left != new:
            kept = (left, *kept)[:SYMPTOMS_KEPT_MAX]
        if accuses_another(verdict, old):
            return self._become(incident, verdict, kept)
        changed = msgspec.structs.replace(
            incident,
            # How sure the old explanation was says nothing of the new one.
            verdict=msgspec.structs.replace(old, confidence=0.0),
            symptoms=kept,
            symptoms_seen=max(incident.symptoms_seen, len(kept)),
        )
        self._say(changed, verdict, verdict, News.CHANGED)
        return incident.id

    def _become(self, incident: Incident, verdict: Verdict, symptoms: tuple[Symptom, ...]) -> str:
        """End an incident, and begin the one that its trouble turned out to be; its id."""
        new = msgspec.structs.replace(
            self._new(verdict),
            symptoms=symptoms,
            symptoms_seen=max(incident.symptoms_seen, len(symptoms)),
            taken_for=incident.link,
            first_incident=incident.first_incident or incident.id,
        )
        ended = msgspec.structs.replace(
            incident, state=IncidentState.CLOSED, closed_ns=self._now_ns, became=new.link
        )
        self._keep(settled(ended), News.CLOSED)
        self._keep(new, News.OPENED)
        return new.id

    def _return(self, incident: Incident, verdict: Verdict) -> str:
        """A verdict on a closed incident: later evidence reopens it, else it only came late."""
        closed_ns = incident.closed_ns or incident.last_seen_ns
        if self._evidence_ns(verdict) <= closed_ns:
            if incident.became is None and confirms(verdict, incident.verdict):
                self._repeat_late(incident, verdict)
            return incident.id
        if verdict.confidence < OPEN_CONFIDENCE:
            return incident.id
        back = msgspec.structs.replace(
            self._after_gap(incident, max(verdict.since_ns, closed_ns), closed_ns),
            state=IncidentState.OPEN,
            closed_ns=None,
            reopened=incident.reopened + 1,
        )
        back = msgspec.structs.replace(
            back, verdict=msgspec.structs.replace(back.verdict, until_ns=None)
        )
        self._hear(back, verdict)
        self._keep(self._standing[incident.id], News.REOPENED)
        return incident.id

    def _repeat_late(self, incident: Incident, verdict: Verdict) -> None:
        """Evidence from before an incident's end that came after it."""
        if says(verdict, incident.verdict) is Says.SAME:
            self._repeat(incident, verdict)
        else:
            self._persist(incident, verdict)
        self._keep(settled(self._standing[incident.id]))

    def _keep(self, incident: Incident, news: News | None = None) -> None:
        if incident.id in self._standing:
            # What is said follows what is known: no sentence of an earlier state stays.
            said = worded(incident.verdict)
            incident = msgspec.structs.replace(incident, verdict=said)
        self._standing[incident.id] = incident
        # All changes of an incident in one round are one piece of news: the first.
        if news is not None:
            self._news.setdefault(incident.id, news)
            if news in (News.REOPENED, News.CLOSED):
                self._news[incident.id] = news

    # --- times and costs -------------------------------------------------------------------------

    def _is_live(self, verdict: Verdict) -> bool:
        return verdict.until_ns is None or verdict.until_ns >= self._now_ns

    def _evidence_ns(self, verdict: Verdict) -> int:
        """The latest time that a verdict covers."""
        return self._now_ns if verdict.until_ns is None else min(verdict.until_ns, self._now_ns)

    def _since(self, old: Verdict, new: Verdict, said: Verdict) -> int:
        """When it began: by the new estimate where its window reaches back to the start.

        No later than the evidence that is given: a round that lacks records sees it begin later.
        """
        from_ns = self._seen_from_ns
        reaches_back = from_ns is not None and old.since_ns > from_ns + ONSET_SECONDS * NS
        latest_ns = max(old.since_ns, evidence_from(said)) if reaches_back else old.since_ns
        return min(new.since_ns, latest_ns)

    def _seen(self, incident: Incident, verdict: Verdict, said: Verdict) -> Incident:
        """The incident with the time of a verdict's evidence, and its cost; explained as ``said``.

        Evidence past a gap begins a new stretch. What lies before the present one is no part of it.
        """
        evidence_ns = self._evidence_ns(verdict)
        if evidence_ns < max(
            incident.verdict.since_ns - GAP_SECONDS * NS, incident.earlier.over_ns
        ):
            return incident
        if verdict.since_ns > incident.last_seen_ns + GAP_SECONDS * NS:
            incident = self._after_gap(incident, verdict.since_ns, incident.last_seen_ns)
        old = incident.verdict
        first_ns = min(incident.seen_first_ns or evidence_ns, evidence_ns)
        since_ns = max(min(self._since(old, verdict, said), first_ns), incident.earlier.over_ns)
        last_ns = max(incident.last_seen_ns, evidence_ns)
        elapsed_s = max(0, evidence_ns - incident.last_seen_ns) / NS
        present = of_present(old.costs, incident.earlier)
        for cost in verdict.costs:
            own = part_since(cost, verdict.since_ns, since_ns, evidence_ns)
            known = present.get(cost.job)
            # One cause costs what it did: a round that sees no steps knows less, and says no other.
            is_less = known is not None and verdict.cause is old.cause and is_rougher(own, known)
            present[cost.job] = (
                own if known is None else grown(known, known if is_less else own, elapsed_s)
            )
        # What it has cost is a counter, which does not fall: it began early enough for that.
        longest_s = max((cost.lost_seconds for cost in present.values()), default=0.0)
        since_ns = max(min(since_ns, last_ns - round(longest_s * NS)), incident.earlier.over_ns)
        costs = over_all(present, incident.earlier, last_ns - since_ns)[:JOBS_MAX]
        return msgspec.structs.replace(
            incident,
            verdict=msgspec.structs.replace(old, since_ns=since_ns, costs=costs),
            last_seen_ns=last_ns,
            seen_first_ns=first_ns,
        )

    def _after_gap(self, incident: Incident, since_ns: int, over_ns: int) -> Incident:
        """The incident at the start of a new stretch, with no evidence in it yet."""
        verdict = incident.verdict
        return msgspec.structs.replace(
            incident,
            earlier=with_stretch(incident.earlier, incident.present, verdict.costs, over_ns),
            verdict=msgspec.structs.replace(verdict, since_ns=since_ns),
            last_seen_ns=since_ns,
            seen_first_ns=0,
        )

    # --- the end ---------------------------------------------------------------------------------

    def stand(self, still: Collection[str]) -> None:
        """Incidents of jobs that still stand: they go on, and cost all of the time."""
        for incident in self._open_of(Family.STUCK):
            jobs = set(incident.jobs) & set(still)
            if jobs:
                self._go_on(incident, partial(stood_in, jobs))

    def stay_late(self, late: Collection[Culprit]) -> None:
        """Incidents of culprits that still come late: they go on, at the same cost rate.

        They were late for all of the window; of a gap before it nothing is known.
        """
        for incident in self._open_of(Family.RANK):
            if any(same_thing(one, incident.verdict.culprit) for one in late):
                last_ns = incident.last_seen_ns
                from_ns = self._seen_from_ns or last_ns
                is_gap = from_ns > last_ns + GAP_SECONDS * NS
                on = self._after_gap(incident, from_ns, last_ns) if is_gap else incident
                self._go_on(on, lambda cost, seconds: grown(cost, cost, seconds))

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
                seen_first_ns=incident.seen_first_ns or self._now_ns,
            )
        )

    def end(self, incident_of: list[str], unjudged: frozenset[str] = frozenset()) -> Advance:
        """Close what is over, forget what is long over, and return the changes."""
        changes = []
        kept = []
        for incident in self._standing.values():
            now = incident
            before = self._before.get(now.id)
            news = self._news.get(now.id)
            is_over = self._now_ns - now.last_seen_ns >= now.close_ns
            is_over = is_over and unjudged.isdisjoint(now.jobs)
            if news is not None:
                was = None if before is None else before.verdict
                now = with_turn(now, news, was, self._now_ns, link_note(now, news))
                if not (is_over and now.is_open):
                    changes.append(Change(news, now, self._now_ns))
            if now.is_open and is_over:
                # An incident that was over at its first verdict is reported once, as closed.
                now = settled(
                    msgspec.structs.replace(now, state=IncidentState.CLOSED, closed_ns=self._now_ns)
                )
                now = with_turn(now, News.CLOSED, None, self._now_ns)
                changes.append(Change(News.CLOSED, now, self._now_ns))
            elif news is None and before is not None and is_news(before, now):
                changes.append(Change(News.UPDATED, now, self._now_ns))
            closed_ns = now.closed_ns or self._now_ns
            if now.is_open or self._now_ns - closed_ns <= REOPEN_SECONDS * NS:
                kept.append(now)
        return Advance(forget_oldest(kept), changes, incident_of, self._left_out)


def link_note(incident: Incident, news: News) -> str:
    """What an incident was taken for, or turned out to be; empty where that is not the news."""
    if news is News.CLOSED and incident.became is not None:
        return f"It turned out to be {linked_words(incident.became)}."
    if news is News.OPENED and incident.taken_for is not None:
        return f"It was first taken for {linked_words(incident.taken_for)}."
    return ""


def confirms_or_leaves_open(verdict: Verdict, standing: Verdict) -> bool:
    return leaves_open(verdict, standing) or confirms(verdict, standing)


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


def begins_after(verdict: Verdict, incident: Incident) -> bool:
    """Whether what is accused began only when the incident's trouble was over.

    Of a slow link all ranks of its ring are victims: one of them that hangs half a minute later,
    while the incident is still open, is another trouble.
    """
    return verdict.since_ns > incident.last_seen_ns + ONSET_SECONDS * NS


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


def join(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))[:JOBS_MAX]


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
