"""Plans notifications. Pure: standing alerts and earlier notifications in, notices out.

Alerts that belong together are one talk (a notification group) with a receiver: those of one
incident, or those with the same labels (`group_by`). Its first notice goes out a little after its
first alert, so that the others can join. The receiver gets further notices on changes, at most one
an interval; without changes after the much longer repeat interval; and a last one when it is over.

An incident is one page: alerts that join it later are no news. Only another culprit is, and an
incident that turns out to be another one stays the same page.

A receiver that got a firing alert also gets its end, even if the alert was silenced or explained by
an incident meanwhile; in between it is not mentioned again. Alerts that this process has not
evaluated yet, after a restart, are taken to go on.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from alerts.rulebook.model import (
    ALERT_NAME,
    FIRST_INCIDENT_LABEL,
    INCIDENT_LABEL,
    WORK,
    Alert,
    AlertState,
)
from collector.contract.identity import Labels, canonical_labels
from collector.contract.units import NS

SEVERITY_LABEL = "severity"
CRITICAL = "critical"
"""The severity that pages, unless a route has other matchers."""
GROUP_BY_DEFAULT = (ALERT_NAME, "cluster")

CULPRIT_LABELS = ("host", "gpu", "rank", "device", "port", "switch", "switch_port", "storage")
"""Labels that name an alert's culprit, the widest first."""

GONE_SECONDS = 15 * 60
"""Alerts of a rule group that was not evaluated for this long, while others were, are over: its
file was removed. As long as Prometheus keeps resolved alerts."""

WORK_SECONDS = 10.0
"""After a notice, before another one says who looks after the incident: clicks come in pairs."""
TALKS_MAX = 10_000
"""Open talks, over all receivers. New alerts past it are left out and counted."""
TOLD_MAX = 2_000
"""Alerts of one talk that are tracked one by one. Further ones are no news."""
LINES_MAX = 100
"""Alerts that one notice describes: a page of text. Further ones are counted."""

_FNV_OFFSET, _FNV_PRIME, _FNV_MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
_FINGERPRINTS_KEPT = 65_536
"""Alerts whose fingerprint is cached: each is needed every second."""

Fits = Callable[[str, str], bool]
"""Whether all of a text (second) matches a pattern (first). The caller provides it, because a
pattern can make Python's own engine run for ever."""


@lru_cache(_FINGERPRINTS_KEPT)
def fingerprint(labels: Labels) -> str:
    """The short name of an alert, the same that Prometheus and Alertmanager give it (FNV-1a).

    >>> fingerprint(())
    'cbf29ce484222325'
    """
    total = _FNV_OFFSET
    for byte in b"".join(text.encode() + b"\xff" for pair in labels for text in pair):
        total = ((total ^ byte) * _FNV_PRIME) & _FNV_MASK
    return f"{total:016x}"


# --- conditions ---------------------------------------------------------------------------------


class Operator(enum.StrEnum):
    """How a label is compared, as in PromQL."""

    IS = "="
    IS_NOT = "!="
    FITS = "=~"
    FITS_NOT = "!~"


class Matcher(msgspec.Struct, frozen=True):
    """One condition on a label; an absent label is empty."""

    label: str
    operator: Operator
    value: str

    def meets(self, labels: Mapping[str, str], fits: Fits) -> bool:
        given = labels.get(self.label, "")
        match self.operator:
            case Operator.IS:
                return given == self.value
            case Operator.IS_NOT:
                return given != self.value
            case Operator.FITS:
                return fits(self.value, given)
        return not fits(self.value, given)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts that meet all matchers do not page between two times (unix nanoseconds)."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_ns: int
    ends_ns: int
    created_by: str
    comment: str
    updated_ns: int

    def mutes(self, labels: Mapping[str, str], now_ns: int, fits: Fits) -> bool:
        return self.starts_ns <= now_ns < self.ends_ns and all(
            matcher.meets(labels, fits) for matcher in self.matchers
        )


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Which alerts a receiver gets, and how often. Seconds."""

    receiver: str
    matchers: tuple[Matcher, ...] = ()
    group_by: tuple[str, ...] = GROUP_BY_DEFAULT
    """Alerts that agree in these labels are one talk; those of an incident are in any case."""
    group_wait_s: float = 10.0
    """From the first alert to the first notice: alerts of the same cause come within two rounds of
    the agents' reports."""
    group_interval_s: float = 300.0
    """Between two notices of a talk that has news."""
    repeat_interval_s: float = 14_400.0
    """Between two notices of a talk that has none: twice a shift, as Alertmanager."""
    send_resolved: bool = True
    goes_on: bool = False
    """An alert that takes this route is offered to later routes, too."""


# --- inputs and state ---------------------------------------------------------------------------


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as receivers see it: with the labels that identify this installation."""

    labels: Labels
    alert: Alert
    source: str
    expression: str = ""

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.labels)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts and evaluations that this process has seen."""

    alerts: tuple[Standing, ...]
    evaluated: Mapping[str, int]
    """When each rule group was last evaluated, unix nanoseconds."""
    since_ns: int
    """When this process started to evaluate."""

    def is_known(self, source: str) -> bool:
        """Whether an alert of this rule group that is not in the scene has ended."""
        latest_ns = max(self.evaluated.values(), default=self.since_ns)
        return source in self.evaluated or latest_ns - self.since_ns > GONE_SECONDS * NS


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One alert in a notice. Unix nanoseconds."""

    labels: Labels
    annotations: dict[str, str]
    starts_ns: int
    ends_ns: int | None = None
    """None: it fires."""
    expression: str = ""
    is_kept: bool = False
    """Its expression holds no longer, and it fires on for a while (`keep_firing_for`)."""

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.labels)

    @property
    def is_critical(self) -> bool:
        return (SEVERITY_LABEL, CRITICAL) in self.labels

    @classmethod
    def of(cls, one: Standing) -> Line:
        alert = one.alert
        return cls(
            labels=one.labels,
            annotations=alert.annotations,
            starts_ns=alert.active_ns if alert.fired_ns is None else alert.fired_ns,
            ends_ns=alert.resolved_ns if alert.state is AlertState.INACTIVE else None,
            expression=one.expression,
            is_kept=alert.keep_firing_since_ns is not None,
        )


class Status(enum.StrEnum):
    """State of a notice's group."""

    FIRING = "firing"
    RESOLVED = "resolved"


class Why(enum.StrEnum):
    """Reasons for a notice."""

    FIRST = "first"
    CHANGED = "changed"
    """Alerts have come or gone, or an incident names another culprit."""
    WORK = "work"
    """A person acknowledged the incident or took it over, or no longer does."""
    REPEAT = "repeat"
    OVER = "over"


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A notification group: what a receiver got about a group of alerts. Unix nanoseconds."""

    key: str
    receiver: str
    labels: Labels
    opened_ns: int
    number: int = 0
    """Notices so far; 0: none yet."""
    planned_ns: int = 0
    told: dict[str, str] = {}
    """Alerts sent as firing, by fingerprint, and their rule groups."""
    lines: tuple[Line, ...] = ()
    explanation: str = ""
    work: str = ""
    """Who looked after the incident at the last notice."""
    send_resolved: bool = True
    group_interval_s: float = 0.0
    """Both from the route at the last notice."""

    @property
    def is_incident(self) -> bool:
        return any(name == INCIDENT_LABEL for name, _ in self.labels)

    @property
    def present_incident(self) -> str:
        """What the page is about now: the incident that it began with may have become another."""
        for line in self.lines:
            if line.ends_ns is None and (incident := dict(line.labels).get(INCIDENT_LABEL)):
                return incident
        return dict(self.labels).get(INCIDENT_LABEL, "")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One notification for one receiver. Unix nanoseconds."""

    id: str
    """The same at every delivery attempt, so that a receiver can drop repetitions."""
    group: str
    receiver: str
    group_labels: Labels
    number: int
    """Of the talk's notices, from 1."""
    status: Status
    why: Why
    planned_ns: int
    lines: tuple[Line, ...]
    """Those that fire first, the critical ones among them in front."""
    left_out: int = 0
    """Alerts past LINES_MAX."""

    @property
    def is_critical(self) -> bool:
        """Critical notices have priority when there is no room for all."""
        return any(line.is_critical for line in self.lines)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The talks after a scene, and the notices that are due."""

    talks: dict[str, Talk]
    notices: list[Notice]
    forgotten: list[str]
    """Keys of talks that are over; older notices about them must not be sent any more."""
    left_out: int
    """Alerts past TALKS_MAX."""

    @property
    def changed(self) -> list[Talk]:
        groups = {notice.group for notice in self.notices}
        return [talk for key, talk in self.talks.items() if key in groups]


# --- planning -----------------------------------------------------------------------------------


class Gathered(msgspec.Struct, kw_only=True):
    """Alerts of one talk."""

    route: Route
    labels: Labels
    firing: list[Standing]


def plan(
    routes: Sequence[Route],
    scene: Scene,
    talks: Mapping[str, Talk],
    now_ns: int,
    *,
    silences: Iterable[Silence] = (),
    fits: Fits,
) -> Plan:
    muting = [one for one in silences if one.starts_ns <= now_ns < one.ends_ns]
    groups = gather(routes, scene, now_ns, muting, fits)
    outlook = Outlook(scene, now_ns)
    receivers = {route.receiver for route in routes}
    after: dict[str, Talk] = {}
    notices: list[Notice] = []
    forgotten: list[str] = []
    for key, talk in talks.items():
        if talk.receiver not in receivers:
            forgotten.append(key)
            continue
        next_talk, notice = outlook.advance(talk, groups.get(key))
        if notice is not None:
            notices.append(notice)
        if next_talk is not None:
            after[key] = next_talk
        elif talk.number:
            # A talk without a notice was not stored; a notice that still waits under its key is the
            # end of an earlier talk.
            forgotten.append(key)
    left_out = 0
    for key, group in groups.items():
        if key in talks:
            continue
        if len(after) >= TALKS_MAX:
            left_out += len(group.firing)
            continue
        opened, notice = outlook.advance(open_talk(key, group, now_ns), group)
        if notice is not None:
            notices.append(notice)
        if opened is not None:
            after[key] = opened
    return Plan(talks=after, notices=notices, forgotten=forgotten, left_out=left_out)


def gather(
    routes: Sequence[Route], scene: Scene, now_ns: int, muting: Sequence[Silence], fits: Fits
) -> dict[str, Gathered]:
    groups: dict[str, Gathered] = {}
    for one in scene.alerts:
        if one.alert.state is not AlertState.FIRING or one.alert.inhibited_by:
            continue
        labels = dict(one.labels)
        taken = routes_of(routes, labels, fits)
        # Silences come last: there may be many, and most alerts take no route.
        if not taken or any(silence.mutes(labels, now_ns, fits) for silence in muting):
            continue
        for route in taken:
            common = group_labels(route, labels)
            key = group_key(route.receiver, common)
            group = groups.get(key)
            if group is None:
                groups[key] = Gathered(route=route, labels=common, firing=[one])
            elif group.firing[-1] is not one:
                group.firing.append(one)
    return groups


def routes_of(routes: Sequence[Route], labels: Mapping[str, str], fits: Fits) -> list[Route]:
    """The routes that an alert takes: the first that it meets, and more while `goes_on` is set."""
    taken: list[Route] = []
    for route in routes:
        if all(matcher.meets(labels, fits) for matcher in route.matchers):
            taken.append(route)
            if not route.goes_on:
                break
    return taken


def open_talk(key: str, group: Gathered, now_ns: int) -> Talk:
    """A talk without a notice, from its first alert on: ids stay the same after a crash."""
    fired = (Line.of(one).starts_ns for one in group.firing)
    return Talk(
        key=key, receiver=group.route.receiver, labels=group.labels, opened_ns=min(now_ns, *fired)
    )


def group_labels(route: Route, labels: Mapping[str, str]) -> Labels:
    """The labels that alerts of one talk share: their incident, or those of the route.

    Incidents that became each other are one talk, under the name of the first.
    """
    if incident := labels.get(FIRST_INCIDENT_LABEL) or labels.get(INCIDENT_LABEL):
        return ((INCIDENT_LABEL, incident),)
    return canonical_labels({name: labels.get(name, "") for name in route.group_by})


def group_key(receiver: str, labels: Labels) -> str:
    """A talk's key. It does not contain the route, so that open talks survive a changed route.

    >>> group_key("oncall", (("alertname", "LinkDown"), ("cluster", "a")))
    'oncall{alertname="LinkDown",cluster="a"}'
    """
    pairs = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels)
    return f"{receiver}{{{pairs}}}"


class Outlook:
    """Decides for one talk at a time, over the same scene."""

    def __init__(self, scene: Scene, now_ns: int) -> None:
        self._scene = scene
        self._now_ns = now_ns
        self._by_name = {one.fingerprint: one for one in scene.alerts}

    def advance(self, talk: Talk, group: Gathered | None) -> tuple[Talk | None, Notice | None]:
        """The talk afterwards (None: it is over), and the notice that is due."""
        talk = self._by_this_clock(talk)
        firing = group.firing if group is not None else []
        if talk.number == 0:
            return self._begin(talk, group)
        on = {name: source for name, source in talk.told.items() if self._goes_on(name, source)}
        waited_s = (self._now_ns - talk.planned_ns) / NS
        if not on and not firing:
            return self._end(talk)
        if group is None:
            return talk, None  # silenced, explained, or not evaluated yet
        why = self._reason(talk, group, on, waited_s)
        return (talk, None) if why is None else self._speak(talk, group, on, why)

    def _reason(
        self, talk: Talk, group: Gathered, on: Mapping[str, str], waited_s: float
    ) -> Why | None:
        """Why a talk that goes on has something to tell by now; None: it has not."""
        route, firing = group.route, group.firing
        joined = [one for one in firing if one.fingerprint not in talk.told]
        left = len(on) < len(talk.told)
        if talk.is_incident:
            is_news = names_another(talk.explanation, explanation_of(firing))
        else:
            is_news = bool(joined[: TOLD_MAX - len(on)]) or (left and route.send_resolved)
        if is_news and waited_s >= route.group_interval_s:
            return Why.CHANGED
        if talk.is_incident and work_of(firing) != talk.work and waited_s >= WORK_SECONDS:
            return Why.WORK
        return Why.REPEAT if waited_s >= route.repeat_interval_s else None

    def _by_this_clock(self, talk: Talk) -> Talk:
        """The talk without times in the future, which a clock that was set back leaves."""
        if max(talk.planned_ns, talk.opened_ns) <= self._now_ns:
            return talk
        return msgspec.structs.replace(
            talk,
            planned_ns=min(talk.planned_ns, self._now_ns),
            opened_ns=talk.opened_ns if talk.number else self._now_ns,
        )

    def _goes_on(self, name: str, source: str) -> bool:
        """Whether an alert that was sent has not ended, as far as is known."""
        one = self._by_name.get(name)
        if one is not None:
            return one.alert.state is not AlertState.INACTIVE
        return not self._scene.is_known(source)

    def _begin(self, talk: Talk, group: Gathered | None) -> tuple[Talk | None, Notice | None]:
        if group is None:
            return None, None
        if self._now_ns - talk.opened_ns < group.route.group_wait_s * NS:
            return talk, None
        return self._speak(talk, group, {}, Why.FIRST)

    def _speak(
        self, talk: Talk, group: Gathered, on: Mapping[str, str], why: Why
    ) -> tuple[Talk, Notice]:
        """The talk with a notice of the firing alerts, and of those that ended since the last."""
        firing = sorted((Line.of(one) for one in group.firing), key=importance)
        ended = [] if not group.route.send_resolved else self._ended(talk, on)
        lines = (*firing, *ended)
        told = dict(on)
        for one in group.firing:
            if len(told) < TOLD_MAX:
                told[one.fingerprint] = one.source
        after = msgspec.structs.replace(
            talk,
            number=talk.number + 1,
            planned_ns=self._now_ns,
            told=told,
            lines=tuple(firing[:LINES_MAX]),
            explanation=explanation_of(group.firing),
            work=work_of(group.firing),
            send_resolved=group.route.send_resolved,
            group_interval_s=group.route.group_interval_s,
        )
        return after, self._notice(after, Status.FIRING, why, lines)

    def _end(self, talk: Talk) -> tuple[Talk | None, Notice | None]:
        """Send the end of a talk if the route wants it, not sooner than the interval."""
        if not talk.send_resolved:
            return None, None
        if self._now_ns - talk.planned_ns < talk.group_interval_s * NS:
            return talk, None
        last = msgspec.structs.replace(talk, number=talk.number + 1)
        return None, self._notice(last, Status.RESOLVED, Why.OVER, self._ended(talk, {}))

    def _ended(self, talk: Talk, on: Mapping[str, str]) -> tuple[Line, ...]:
        ended: list[Line] = []
        for line in talk.lines:
            name = line.fingerprint
            if name in on or name not in talk.told:
                continue
            one = self._by_name.get(name)
            over_ns = one.alert.resolved_ns if one is not None else None
            ends_ns = self._now_ns if over_ns is None else max(over_ns, line.starts_ns)
            ended.append(msgspec.structs.replace(line, ends_ns=ends_ns))
        return tuple(ended)

    def _notice(self, talk: Talk, status: Status, why: Why, lines: tuple[Line, ...]) -> Notice:
        """A notice of a talk whose ``number`` already counts it."""
        return Notice(
            id=notice_id(talk),
            group=talk.key,
            receiver=talk.receiver,
            group_labels=talk.labels,
            number=talk.number,
            status=status,
            why=why,
            planned_ns=self._now_ns,
            lines=lines[:LINES_MAX],
            left_out=max(0, len(lines) - LINES_MAX),
        )


def notice_id(talk: Talk) -> str:
    """The id of a talk's newest notice: unique, and the same after a restart."""
    text = f"{talk.key}\0{talk.opened_ns}\0{talk.number}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def importance(line: Line) -> tuple[bool, bool, int, Labels]:
    """Sorts the more severe first, then what holds now, then the older."""
    return (not line.is_critical, line.is_kept, line.starts_ns, line.labels)


def explanation_of(firing: Sequence[Standing]) -> str:
    """The culprit of the most important of these alerts; jobs that join do not change it."""
    if not firing:
        return ""
    first = dict(min((Line.of(one) for one in firing), key=importance).labels)
    return json.dumps([first.get(name, "") for name in CULPRIT_LABELS])


def work_of(firing: Sequence[Standing]) -> str:
    """Who looks after the incident, by the most important of its alerts that fire."""
    if not firing:
        return ""
    return min((Line.of(one) for one in firing), key=importance).annotations.get(WORK, "")


def names_another(before: str, now: str) -> bool:
    """Whether the culprit is another than in the last notice.

    More names of the same thing are no news, nor is a better reason: the on-call person looks at it
    already, and the incident's page has it. A first culprit after none is news.

    >>> names_another('["n1", "", "mlx5_0"]', '["n1", "7", "mlx5_0"]')
    False
    >>> names_another('["n1", "", "mlx5_0"]', '["n1", "7", "mlx5_1"]')
    True
    """
    if not before or not now:
        return bool(now)
    both = list(zip(json.loads(before), json.loads(now), strict=False))
    if any(one and other and one != other for one, other in both):
        return True
    return any(other for _, other in both) and not any(one and other for one, other in both)
