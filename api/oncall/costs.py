"""What incidents cost, in GPU-hours and in money: by incident, cause, culprit, job or week. Pure.

An incident's cost is that of its verdict: steps replayed without the culprit. It is spread evenly
over the time in which the incident was confirmed, so that a range of time, or a week, gets its
part. Trouble that was first taken for something else is counted once, under what it turned out to
be. Two troubles of one job at the same time may each count the same second: sums are an upper end.
An incident whose cost was never measured has none, and is counted apart: it is not free.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from alerts.judge.incident import Incident
from alerts.judge.stretches import Stretch
from alerts.judge.words import name
from collector.contract.units import NS
from collector.contract.verdict import Cost

UNNAMED = "no culprit"
WEEK_NS = 7 * 86_400 * NS
MONDAY_NS = 4 * 86_400 * NS
"""Of the first week after 1970-01-01, a Thursday."""


class By(enum.StrEnum):
    """What costs are added up by."""

    INCIDENT = "incident"
    CAUSE = "cause"
    """And its reason."""
    CULPRIT = "culprit"
    """With its cause: what it would be worth to fix it."""
    JOB = "job"
    WEEK = "week"


class Entry(msgspec.Struct, kw_only=True):
    """One line of an account."""

    key: str
    cause: str = ""
    reason: str = ""
    culprit: str = ""
    incidents: int = 0
    unmeasured: int = 0
    """Of those, the ones whose cost is not known: they add nothing."""
    lost_seconds: float = 0.0
    gpu_hours: float = 0.0
    money: float | None = None
    """None without a price."""
    share: float = 0.0
    """Of all GPU-hours of the account."""
    dearest: str = ""
    """The incident that cost most."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What some time has cost: the dearest first; weeks in order of time."""

    entries: tuple[Entry, ...]
    incidents: int
    unmeasured: int
    gpu_hours: float
    money: float | None


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """One incident's part of a range of time."""

    incident: Incident
    told: Incident
    """What it turned out to be, or itself."""
    spans: tuple[Stretch, ...]
    whole_ns: int


def account(
    incidents: Iterable[Incident], from_ns: int, to_ns: int, by: By, price: float
) -> Account:
    """``price`` is that of a GPU-hour; 0: not known."""
    parts = list(parts_of({one.id: one for one in incidents}, from_ns, to_ns))
    entries: dict[str, Entry] = {}
    counted: dict[tuple[str, str], float] = {}
    seen: set[tuple[str, str]] = set()
    for part in parts:
        for key, share, cost in lines_of(part, by):
            entry = entries.setdefault(key, new_entry(key, part.told, by))
            if (key, part.told.id) not in seen:
                seen.add((key, part.told.id))
                entry.incidents += 1
                entry.unmeasured += not any(is_measured(each) for each in costs_of(part))
            if cost is None:
                continue
            entry.lost_seconds += share * cost.lost_seconds
            entry.gpu_hours += share * cost.gpu_hours
            at = key, part.told.id
            counted[at] = counted.get(at, 0.0) + share * cost.gpu_hours
    total = math.fsum(entry.gpu_hours for entry in entries.values())
    for entry in entries.values():
        entry.share = entry.gpu_hours / total if total > 0 else 0.0
        entry.money = entry.gpu_hours * price if price > 0 else None
        own = [(hours, number) for (key, number), hours in counted.items() if key == entry.key]
        entry.dearest = max(own)[1] if own else ""
    ordered = sorted(entries.values(), key=lambda one: (-one.gpu_hours, one.key))
    if by is By.WEEK:
        ordered.sort(key=lambda one: one.key)
    measured = {part.told.id for part in parts if any(map(is_measured, costs_of(part)))}
    known = {part.told.id for part in parts}
    return Account(
        entries=tuple(ordered),
        incidents=len(known),
        unmeasured=len(known - measured),
        gpu_hours=total,
        money=total * price if price > 0 else None,
    )


def costs_of(part: _Part) -> Sequence[Cost]:
    return part.incident.verdict.costs


def is_measured(cost: Cost) -> bool:
    return math.isfinite(cost.gpu_hours) and cost.lost_seconds >= 0


def parts_of(incidents: Mapping[str, Incident], from_ns: int, to_ns: int) -> Iterator[_Part]:
    for one in incidents.values():
        told = last_of(incidents, one)
        spans = list(one.stretches)
        if told is not one:
            # What it became has counted these times itself.
            spans = without(spans, told.stretches)
        inside = [clipped(each, from_ns, to_ns) for each in spans]
        kept = tuple(each for each in inside if each.lasted_ns > 0)
        if not kept and told is not one:
            continue
        is_inside = from_ns <= one.last_seen_ns and one.first_since_ns < to_ns
        if kept or is_inside:
            whole_ns = sum(each.lasted_ns for each in one.stretches)
            yield _Part(incident=one, told=told, spans=kept, whole_ns=whole_ns)


def last_of(incidents: Mapping[str, Incident], one: Incident) -> Incident:
    """What it turned out to be in the end; a row of incidents never leads back."""
    seen = {one.id}
    while one.became is not None and one.became.incident in incidents:
        following = incidents[one.became.incident]
        if following.id in seen:
            break
        seen.add(following.id)
        one = following
    return one


def clipped(one: Stretch, from_ns: int, to_ns: int) -> Stretch:
    return Stretch(max(one.since_ns, from_ns), min(one.until_ns, to_ns))


def without(spans: Iterable[Stretch], taken: Iterable[Stretch]) -> list[Stretch]:
    """The times of the first that are in none of the others."""
    left = list(spans)
    for other in taken:
        pieces = []
        for one in left:
            pieces.append(Stretch(one.since_ns, min(one.until_ns, other.since_ns)))
            pieces.append(Stretch(max(one.since_ns, other.until_ns), one.until_ns))
        left = [each for each in pieces if each.lasted_ns > 0]
    return left


def lines_of(part: _Part, by: By) -> Iterator[tuple[str, float, Cost | None]]:
    """Key, share of its whole time, and cost of one job; a key without a cost is counted, too."""
    inside = sum(each.lasted_ns for each in part.spans)
    share = inside / part.whole_ns if part.whole_ns else 1.0
    if by is By.WEEK:
        for week, own in weeks_of(part).items():
            yield from ((week, own, cost) for cost in told_costs(part))
        return
    for cost in told_costs(part):
        if by is By.JOB:
            job = cost.job if cost is not None else next(iter(part.incident.jobs), "")
            yield job, share, cost
        else:
            yield key_of(part.told, by), share, cost


def told_costs(part: _Part) -> Sequence[Cost | None]:
    return [one for one in costs_of(part) if is_measured(one)] or [None]


def weeks_of(part: _Part) -> dict[str, float]:
    """The Mondays (UTC) that weeks begin with, and the share of its whole time in each."""
    if not part.spans:
        return {monday_of(part.incident.last_seen_ns): 1.0}
    found: dict[str, float] = {}
    for one in part.spans:
        at = one.since_ns
        while at < one.until_ns:
            following = (at - MONDAY_NS) // WEEK_NS * WEEK_NS + MONDAY_NS + WEEK_NS
            end = min(one.until_ns, following)
            week = monday_of(at)
            found[week] = found.get(week, 0.0) + (end - at) / max(1, part.whole_ns)
            at = end
    return found


def monday_of(time_ns: int) -> str:
    """The day on which the week of a moment began.

    >>> monday_of(0), monday_of(4 * 86_400 * 10**9)
    ('1969-12-29', '1970-01-05')
    """
    start = (time_ns - MONDAY_NS) // WEEK_NS * WEEK_NS + MONDAY_NS
    return dt.datetime.fromtimestamp(start // NS, tz=dt.UTC).date().isoformat()


def key_of(one: Incident, by: By) -> str:
    verdict = one.verdict
    if by is By.INCIDENT:
        return one.id
    cause = f"{verdict.cause}/{verdict.reason}"
    if by is By.CAUSE:
        return cause
    return f"{name(verdict.culprit) or UNNAMED}: {cause}"


def new_entry(key: str, told: Incident, by: By) -> Entry:
    verdict = told.verdict
    is_about = by in {By.INCIDENT, By.CAUSE, By.CULPRIT}
    return Entry(
        key=key,
        cause=str(verdict.cause) if is_about else "",
        reason=str(verdict.reason) if is_about else "",
        culprit=name(verdict.culprit) if by in {By.INCIDENT, By.CULPRIT} else "",
    )
