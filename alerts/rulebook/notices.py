"""What to tell whom, and when. Pure: standing alerts and what was told in, notices out.

Alerts that belong together are one talk with a receiver: those of one incident, or those with the
same labels (`group_by`). A talk begins a little after its first alert, so that the others can join.
After that the receiver hears of it again when something is new, at most once an interval; when
nothing is, after the much longer repeat interval; and once more when it is over.

An incident is one page: alerts that join it later say nothing new. Only another culprit does.

Whoever was told that something fires is told that it ended, also where it was silenced or
explained by an incident meanwhile; in between it is not mentioned again. What this process has not
evaluated yet, after a restart, is taken to go on.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from alerts.rulebook.model import ALERT_NAME, INCIDENT_LABEL, NS, Alert, AlertState
from collector.contract.identity import Labels, canonical_labels

SEVERITY_LABEL = "severity"
CRITICAL = "critical"
"""The severity that pages, unless a route says otherwise."""
GROUP_BY_DEFAULT = (ALERT_NAME, "cluster")

CULPRIT_LABELS = ("host", "gpu", "rank", "device", "port", "switch", "switch_port")
"""The names by which an alert says who it is about, the widest first."""

GONE_SECONDS = 15 * 60
"""Alerts of a rule group that nobody has evaluated for so long, while others were, are over: its
file was removed. As long as Prometheus remembers what is resolved."""

TALKS_MAX = 10_000
"""Groups of alerts that somebody is being told about. Nobody reads ten thousand; what is new past
it is left out and counted."""
TOLD_MAX = 2_000
"""Alerts of one talk that are told apart. What comes past it is not mentioned one by one."""
LINES_MAX = 100
"""Alerts that one notice describes: a page of text. Of more it gives the number."""

_FNV_OFFSET, _FNV_PRIME, _FNV_MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
_FINGERPRINTS_KEPT = 65_536
"""Alerts whose fingerprint is remembered: every one is asked for each second."""

Fits = Callable[[str, str], bool]
"""Whether all of a text (second) matches a pattern (first). The caller's, because Python's own
engine can be made to run for ever by a pattern."""


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
        """Whether labels meet it."""
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
    """Alerts that meet all matchers page nobody between two moments (unix nanoseconds)."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_ns: int
    ends_ns: int
    created_by: str
    comment: str
    updated_ns: int

    def mutes(self, labels: Mapping[str, str], now_ns: int, fits: Fits) -> bool:
        """Whether an alert with these labels is silenced now."""
        return self.starts_ns <= now_ns < self.ends_ns and all(
            matcher.meets(labels, fits) for matcher in self.matchers
        )


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Which alerts a receiver gets, and how often it hears of them. Seconds."""

    receiver: str
    matchers: tuple[Matcher, ...] = ()
    group_by: tuple[str, ...] = GROUP_BY_DEFAULT
    """Alerts that agree in these labels are one talk; those of an incident are in any case."""
    group_wait_s: float = 10.0
    """From the first alert to the first notice: what has the same cause comes within two rounds of
    the agents' reports."""
    group_interval_s: float = 300.0
    """Between two notices of a talk that has news."""
    repeat_interval_s: float = 14_400.0
    """Between two notices of a talk that has none: twice a shift, as Alertmanager."""
    send_resolved: bool = True
    goes_on: bool = False
    """An alert that takes this route is offered to those behind it, too."""


# --- what is known ------------------------------------------------------------------------------


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as receivers see it: with the labels that tell this installation from others."""

    labels: Labels
    alert: Alert
    source: str
    """The key of its rule group."""
    expression: str = ""

    @property
    def fingerprint(self) -> str:
        """Its short name."""
        return fingerprint(self.labels)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What this process has seen."""

    alerts: tuple[Standing, ...]
    evaluated: Mapping[str, int]
    """When each rule group was last evaluated, unix nanoseconds."""
    since_ns: int
    """Since when this process looks."""

    def is_known(self, source: str) -> bool:
        """Whether an alert of this rule group that is not here has ended."""
        latest_ns = max(self.evaluated.values(), default=self.since_ns)
        return source in self.evaluated or latest_ns - self.since_ns > GONE_SECONDS * NS


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What a notice says of one alert. Unix nanoseconds."""

    labels: Labels
    annotations: dict[str, str]
    starts_ns: int
    ends_ns: int | None = None
    """None: it fires."""
    expression: str = ""

    @property
    def fingerprint(self) -> str:
        """The alert's short name."""
        return fingerprint(self.labels)

    @property
    def is_critical(self) -> bool:
        """Whether it is of the severity that pages."""
        return (SEVERITY_LABEL, CRITICAL) in self.labels

    @classmethod
    def of(cls, one: Standing) -> Line:
        """The alert as it stands."""
        alert = one.alert
        return cls(
            labels=one.labels,
            annotations=alert.annotations,
            starts_ns=alert.active_ns if alert.fired_ns is None else alert.fired_ns,
            ends_ns=alert.resolved_ns if alert.state is AlertState.INACTIVE else None,
            expression=one.expression,
        )


class Status(enum.StrEnum):
    """What a notice says of its group."""

    FIRING = "firing"
    RESOLVED = "resolved"


class Why(enum.StrEnum):
    """What made a notice necessary."""

    FIRST = "first"
    CHANGED = "changed"
    """Alerts have come or gone, or an incident accuses somebody else."""
    REPEAT = "repeat"
    OVER = "over"


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver was told about a group of alerts. Unix nanoseconds."""

    key: str
    receiver: str
    labels: Labels
    opened_ns: int
    number: int = 0
    """Notices so far; 0: none yet."""
    planned_ns: int = 0
    """When the last of them was made."""
    told: dict[str, str] = {}
    """Alerts that it said fire, by fingerprint, and their rule groups."""
    lines: tuple[Line, ...] = ()
    explanation: str = ""
    send_resolved: bool = True
    group_interval_s: float = 0.0
    """Both as the route said when something was last told."""

    @property
    def is_incident(self) -> bool:
        """Whether it is about an incident."""
        return any(name == INCIDENT_LABEL for name, _ in self.labels)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell a receiver, once. Unix nanoseconds."""

    id: str
    """The same however often it is tried: by it a receiver can tell a repetition."""
    group: str
    """The talk's key."""
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
        """Whether it is worth more than others, when there is no room for all."""
        return any(line.is_critical for line in self.lines)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a scene."""

    talks: dict[str, Talk]
    """All of them, as they are now."""
    notices: list[Notice]
    forgotten: list[str]
    """Keys of talks that are over; nothing older about them may be sent any more."""
    left_out: int
    """Alerts that found no room among the talks."""

    @property
    def changed(self) -> list[Talk]:
        """Talks to be kept with the notices."""
        spoken = {notice.group for notice in self.notices}
        return [talk for key, talk in self.talks.items() if key in spoken]


# --- planning -----------------------------------------------------------------------------------


class Gathered(msgspec.Struct, kw_only=True):
    """Alerts that belong together for a receiver."""

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
    """The notices that are due, and the talks after them."""
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
            # Of one in which nothing was said, nothing is kept; what may still wait to be sent is
            # the end of an earlier talk about the same.
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
    """The alerts that may page, by the key of their talk."""
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
    """The routes that an alert takes: the first that it meets, and more where that says so."""
    taken: list[Route] = []
    for route in routes:
        if all(matcher.meets(labels, fits) for matcher in route.matchers):
            taken.append(route)
            if not route.goes_on:
                break
    return taken


def open_talk(key: str, group: Gathered, now_ns: int) -> Talk:
    """A talk in which nothing was said.

    It begins when its first alert fired, also where that was before a crash that lost what was
    planned: then its notices have the same names as those that may have been sent.
    """
    fired = (Line.of(one).starts_ns for one in group.firing)
    return Talk(
        key=key,
        receiver=group.route.receiver,
        labels=group.labels,
        opened_ns=min(now_ns, *fired),
    )


def group_labels(route: Route, labels: Mapping[str, str]) -> Labels:
    """The labels that alerts of one talk share: their incident, or those of the route."""
    if incident := labels.get(INCIDENT_LABEL):
        return ((INCIDENT_LABEL, incident),)
    return canonical_labels({name: labels.get(name, "") for name in route.group_by})


def group_key(receiver: str, labels: Labels) -> str:
    """A talk's name. It has no route in it, so that a changed route goes on with what is open.

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
        """The talk after now, None when it is over, and what is to be said."""
        talk = self._by_this_clock(talk)
        firing = group.firing if group is not None else []
        if talk.number == 0:
            return self._begin(talk, group)
        on = {name: source for name, source in talk.told.items() if self._goes_on(name, source)}
        waited_s = (self._now_ns - talk.planned_ns) / NS
        if not on and not firing:
            return self._end(talk)
        if group is None:
            return talk, None  # silenced, explained, or not ours to know yet
        route = group.route
        joined = [one for one in firing if one.fingerprint not in talk.told]
        left = len(on) < len(talk.told)
        if talk.is_incident:
            is_news = names_another(talk.explanation, explanation_of(firing))
        else:
            is_news = bool(joined[: TOLD_MAX - len(on)]) or (left and route.send_resolved)
        if is_news and waited_s >= route.group_interval_s:
            return self._speak(talk, group, on, Why.CHANGED)
        if waited_s >= route.repeat_interval_s:
            return self._speak(talk, group, on, Why.REPEAT)
        return talk, None

    def _by_this_clock(self, talk: Talk) -> Talk:
        """The talk, where a clock that was set back made its past a future: as if it were now."""
        if max(talk.planned_ns, talk.opened_ns) <= self._now_ns:
            return talk
        return msgspec.structs.replace(
            talk,
            planned_ns=min(talk.planned_ns, self._now_ns),
            opened_ns=talk.opened_ns if talk.number else self._now_ns,
        )

    def _goes_on(self, name: str, source: str) -> bool:
        """Whether an alert that was told has not ended, as far as is known."""
        one = self._by_name.get(name)
        if one is not None:
            return one.alert.state is not AlertState.INACTIVE
        return not self._scene.is_known(source)

    def _begin(self, talk: Talk, group: Gathered | None) -> tuple[Talk | None, Notice | None]:
        """A talk in which nothing was said yet."""
        if group is None:
            return None, None
        if self._now_ns - talk.opened_ns < group.route.group_wait_s * NS:
            return talk, None
        return self._speak(talk, group, {}, Why.FIRST)

    def _speak(
        self, talk: Talk, group: Gathered, on: Mapping[str, str], why: Why
    ) -> tuple[Talk, Notice]:
        """The talk with a notice of what fires, and of what has ended since the last one."""
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
            send_resolved=group.route.send_resolved,
            group_interval_s=group.route.group_interval_s,
        )
        return after, self._notice(after, Status.FIRING, why, lines)

    def _end(self, talk: Talk) -> tuple[Talk | None, Notice | None]:
        """A talk of which nothing is left: say so, unless nobody wants to know.

        Not sooner than the interval: what comes and goes would be told each time.
        """
        if not talk.send_resolved:
            return None, None
        if self._now_ns - talk.planned_ns < talk.group_interval_s * NS:
            return talk, None
        last = msgspec.structs.replace(talk, number=talk.number + 1)
        return None, self._notice(last, Status.RESOLVED, Why.OVER, self._ended(talk, {}))

    def _ended(self, talk: Talk, on: Mapping[str, str]) -> tuple[Line, ...]:
        """What was told and has ended, with its end where that is known."""
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
        """A notice of a talk that has already counted it."""
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
    """The name of a talk's newest notice: no other has it, and it never changes."""
    text = f"{talk.key}\0{talk.opened_ns}\0{talk.number}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def importance(line: Line) -> tuple[bool, int, Labels]:
    """What is worse, and then what is older, comes first."""
    return (not line.is_critical, line.starts_ns, line.labels)


def explanation_of(firing: Sequence[Standing]) -> str:
    """Whom the most important of these alerts accuses; jobs that join change nothing."""
    if not firing:
        return ""
    first = dict(min((Line.of(one) for one in firing), key=importance).labels)
    return json.dumps([first.get(name, "") for name in CULPRIT_LABELS])


def names_another(told: str, said: str) -> bool:
    """Whether somebody else is accused than those who were woken have been told.

    More names of the same thing are no news, nor is a better reason: they look at it already, and
    the incident's page has it. Whoever was told of nobody wants to hear a name.

    >>> names_another('["n1", "", "mlx5_0"]', '["n1", "7", "mlx5_0"]')
    False
    >>> names_another('["n1", "", "mlx5_0"]', '["n1", "7", "mlx5_1"]')
    True
    """
    if not told or not said:
        return bool(said)
    both = list(zip(json.loads(told), json.loads(said), strict=False))
    if any(one and other and one != other for one, other in both):
        return True
    return any(other for _, other in both) and not any(one and other for one, other in both)
