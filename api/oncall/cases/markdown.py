"""An incident as a page of Markdown: for a ticket, a wiki, or a terminal. Pure.

Names and notes come from outside: they keep to one line and cannot open markup of their own.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from alerts.cases.words import culprit_words, verdict_words
from alerts.judge.incident import Incident
from alerts.judge.incident_model import linked_words
from alerts.judge.words import name, names, sure
from api.data.inventory.feedback import Feedback
from api.data.inventory.work import Deed, Does, state_of
from collector.contract.causes import runbook_of, title
from collector.contract.figures import duration, share
from collector.contract.identity import printable
from collector.contract.units import NS
from collector.contract.verdict import Cost, Evidence, Reason

MARKUP = re.compile(r"[\\*\[\]<>|#~&]|(?<![^\W_])_|_(?![^\W_])|^[-+](?=[-+\s]|$)")
"""What opens markup inside of a line or at its beginning. Underscores inside of words open none."""
NUMBERED = re.compile(r"^(\d+)(?=[.)](?:\s|$))")
"""What would begin a list with numbers."""
CODE = re.compile(r"(`[^`]*`)")
VICTIMS_MAX = 20

DONE = {
    Does.ACKNOWLEDGE: "acknowledged it",
    Does.UNACKNOWLEDGE: "took the acknowledgement back",
    Does.ASSIGN: "assigned it to",
    Does.NOTE: "noted",
}


def plain(text: str) -> str:
    r"""Text on one line that is no markup.

    >>> plain("<b>a</b>\n| *b* `c` _d_ mlx5_0 &lt;")
    "\\<b\\>a\\</b\\> \\| \\*b\\* 'c' \\_d\\_ mlx5_0 \\&lt;"
    """
    line = printable(" ".join(text.split())).replace("`", "'")
    return NUMBERED.sub(r"\1\\", MARKUP.sub(r"\\\g<0>", line))


def commanding(text: str) -> str:
    r"""The same with our own commands between backticks, which are shown as they are typed.

    >>> commanding("run `ls *.log | wc` on <n1>")
    'run `ls *.log | wc` on \\<n1\\>'
    >>> commanding("run `ls` on n`<b>")  # a name with a backtick of its own: nothing is a command
    "run 'ls' on n'\\<b\\>"
    """
    if text.count("`") % 2 or "``" in text:
        return plain(text)
    pieces = CODE.split(printable(" ".join(text.split())))
    return "".join(
        piece if piece.startswith("`") else MARKUP.sub(r"\\\g<0>", piece) for piece in pieces
    )


class Price(msgspec.Struct, frozen=True):
    """What a GPU-hour costs; 0: not known."""

    per_gpu_hour: float = 0.0
    currency: str = ""


NO_PRICE = Price()


def markdown_of(
    incident: Incident,
    deeds: Sequence[Deed] = (),
    said: Sequence[Feedback] = (),
    external_url: str = "",
    price: Price = NO_PRICE,
) -> str:
    """The whole incident; ``said`` is in order of time, as ``deeds`` are."""
    verdict = incident.verdict
    lines = [f"# {plain(verdict.summary or verdict_words(verdict.cause, verdict.culprit))}", ""]
    lines += [f"- {title}: {text}" for title, text in facts(incident, deeds, external_url) if text]
    if verdict.action:
        lines += ["", "## What to do", "", commanding(verdict.action)]
    lines += section("Cost", [cost_line(one, price) for one in verdict.costs] or ["not known"])
    lines += section("Evidence", (evidence_line(one) for one in verdict.evidence))
    lines += section(
        "Ruled out", (f"{plain(title_of(one.what))}: {plain(one.why)}" for one in verdict.ruled_out)
    )
    lines += section(
        "Victims, which only look guilty",
        (plain(name(one)) for one in verdict.victims[:VICTIMS_MAX]),
        len(verdict.victims) - VICTIMS_MAX,
    )
    lines += section("What happened", (text for _, text in sorted(story(incident, deeds, said))))
    return "\n".join(lines) + "\n"


def section(title: str, texts: Iterable[str], left_out: int = 0) -> list[str]:
    found = [f"- {text}" for text in texts if text]
    if left_out > 0:
        found.append(f"- and {left_out:,} more")
    return ["", f"## {title}", "", *found] if found else []


def facts(
    incident: Incident, deeds: Sequence[Deed], external_url: str
) -> Iterator[tuple[str, str]]:
    verdict = incident.verdict
    reason = "" if verdict.reason is Reason.UNKNOWN else f", {verdict.reason.facts.title}"
    yield "Incident", f"{incident.id}, {incident.state}"
    yield "Cause", f"{title(verdict.cause)}{reason}; {sure(verdict.confidence)}"
    yield "Culprit", plain(names((verdict.culprit, *verdict.accomplices)))
    until = "" if verdict.until_ns is None else f" until {moment(verdict.until_ns)}"
    yield "When", f"{moment(verdict.since_ns)}{until}; {lasting(incident)}"
    if incident.taken_for is not None:
        yield "First taken for", plain(linked_words(incident.taken_for))
    if incident.became is not None:
        yield "Turned out to be", plain(linked_words(incident.became))
    yield "Jobs", plain(", ".join(incident.jobs))
    work = state_of(deeds)
    by = plain(work.acknowledged_by)
    at = "" if work.acknowledged_ns is None else f", {moment(work.acknowledged_ns)}"
    at += f": {plain(work.acknowledged_note)}" if work.acknowledged_note else ""
    yield "Acknowledged", f"by {by}{at}" if by else "no"
    yield "Assigned to", plain(work.assigned_to)
    yield (
        "Runbook",
        f"{external_url.rstrip('/')}/runbooks/{runbook_of(verdict.cause, verdict.reason)}",
    )
    if external_url:
        yield "Page", f"{external_url.rstrip('/')}/#/incident/{incident.id}"


def lasting(incident: Incident) -> str:
    """How long it was confirmed, and since when the first time."""
    verb = "lasts" if incident.is_open else "lasted"
    count = incident.earlier.count + 1
    again = ""
    if count > 1:
        again = f" in {count} stretches, the first at {moment(incident.first_since_ns)}"
    seen = f", last seen {moment(incident.last_seen_ns)}" if incident.is_open else ""
    return f"{verb} {duration(incident.lasted_ns / NS)}{again}{seen}"


def moment(time_ns: int, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """To the second, with its zone: who reads a ticket may sit in another one.

    >>> moment(1_700_000_000_120_000_000)
    '2023-11-14 22:13:20 UTC'
    """
    return dt.datetime.fromtimestamp(time_ns // NS, dt.UTC).strftime(form)


def title_of(what: str) -> str:
    """What was ruled out: a cause, a reason, or words.

    >>> title_of("link_flap"), title_of("gpu_error"), title_of("network")
    ('Link flap', 'GPU errors', 'Network')
    """
    return Reason(what).facts.title if what in set(Reason) else title(what)


def evidence_line(one: Evidence) -> str:
    """What was seen, by which number, and when."""
    if not one.to_ns:
        return plain(one.text)
    day, until = moment(one.from_ns, "%Y-%m-%d"), moment(one.to_ns)
    of = f"{plain(one.metric)}, " if one.metric else ""
    seen = moment(one.from_ns, "%Y-%m-%d %H:%M:%S")
    return f"{plain(one.text)} ({of}{seen} to {until.removeprefix(f'{day} ')})"


def cost_line(cost: Cost, price: Price = NO_PRICE) -> str:
    lost = f"{'at least ' if cost.is_at_least else ''}{duration(cost.lost_seconds)}"
    text = f"{plain(cost.job)}: {lost} lost, {cost.gpu_hours:.2f} GPU-hours"
    if price.per_gpu_hour > 0:
        text += f" ({price.per_gpu_hour * cost.gpu_hours:,.2f} {plain(price.currency)})"
    return f"{text}, {share(cost.lost_share)} of its time meanwhile" if cost.lost_share else text


def story(
    incident: Incident, deeds: Sequence[Deed], said: Sequence[Feedback]
) -> Iterator[tuple[int, str]]:
    """What happened to it and who did what, each with its time (unix nanoseconds)."""
    for turn in incident.history:
        about = f"{title(turn.cause)}: {culprit_words(turn.culprit)}".removesuffix(": ")
        text = turn.note or f"{about}, {share(turn.confidence)} sure"
        yield turn.time_ns, f"{moment(turn.time_ns)} {turn.news}: {plain(text)}"
    for deed in deeds:
        to = f" {plain(deed.to) or 'no person'}" if deed.does is Does.ASSIGN else ""
        note = f": {plain(deed.note)}" if deed.note else ""
        text = f"{plain(deed.by)} {DONE[deed.does]}{to}{note}"
        yield deed.at_ns, f"{moment(deed.at_ns)} {text}"
    for one in said:
        note = f": {plain(one.note)}" if one.note else ""
        yield one.at_ns, f"{moment(one.at_ns)} {plain(one.by)} says it is {one.says}{note}"
