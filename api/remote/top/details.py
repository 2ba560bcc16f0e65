"""All of one incident: its evidence, victims, excluded causes, and history. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from rich.text import Text

from api.remote.top import words
from api.remote.top.layout import indent, wrap
from api.remote.top.model import Detail, Judgement, Picture
from api.remote.top.rows import BAD, QUIET, cause_words
from collector.contract.measurement import undecided_lines
from collector.contract.units import NS
from collector.contract.verdict import Cost, Culprit

LISTED_MAX = 50
"""Victims, pieces of evidence and turns that are listed; of more, how many there are."""


def details(
    incident: str, picture: Picture, width: int, zone: dt.tzinfo | None = None
) -> list[Text]:
    detail = picture.detail
    if not incident:
        return indent([Text("no incident is open")])
    if detail is None or detail.id != incident:
        why = picture.problems.get("incident", "asking …")
        return indent(wrap(why, width - 4, QUIET))
    verdict = detail.verdict
    since_s = verdict.since_ns / NS
    lasts = words.span(detail.lasted_seconds)
    if verdict.until_ns is None:
        lasts = words.lasts(detail.lasted_seconds, detail.last_seen_ns, picture.time_s)
    begun = words.moment(since_s, picture.time_s, zone)
    state = "going on" if verdict.until_ns is None else "over"
    head = Text.assemble(
        "  ",
        (cause_words(verdict.cause).upper(), BAD),
        (f"  {words.culprit(verdict.culprit)}", "bold"),
        f"  {words.share(verdict.confidence)} sure",
    )
    return [
        head,
        *indent(wrap(f"{state}, since {begun} ({lasts}) · {detail.id}", width - 4, QUIET)),
        *section("", [verdict.summary, *links(detail)], width),
        *section("do", [verdict.action], width),
        *section("undecided", undecided(verdict), width),
        *section("cost", [cost(each) for each in verdict.costs], width),
        *section("evidence", [each.text for each in verdict.evidence], width),
        *section("with it", named(verdict.accomplices), width),
        *section("victims, who only look guilty", named(verdict.victims), width),
        *section("ruled out", ruled_out(verdict), width),
        *section("how it went", turns(detail, picture.time_s, zone), width),
    ]


def links(detail: Detail) -> list[str]:
    """What the trouble was taken for before, and what it turned out to be."""
    both = (("first taken for", detail.taken_for), ("turned out to be", detail.became))
    return [
        f"{words_} {cause_words(link.cause)} of {words.culprit(link.culprit)}, {link.incident}"
        for words_, link in both
        if link is not None
    ]


def section(title: str, texts: Sequence[str], width: int) -> list[Text]:
    shown = [text for text in texts if text]
    if not shown:
        return []
    lines = [Text(""), Text(f"  {title}", "bold")] if title else [Text("")]
    for text in shown[:LISTED_MAX]:
        rest, first = ("      ", "    · ") if title else ("    ", "    ")
        lines += indent(wrap(text, width - 8), rest, first)
    if len(shown) > LISTED_MAX:
        lines.append(Text(f"    … and {len(shown) - LISTED_MAX} more", QUIET))
    return lines


def cost(one: Cost) -> str:
    lost = f"{'at least ' if one.is_at_least else ''}{words.span(one.lost_seconds)}"
    text = f"{one.job}: {lost} lost, {one.gpu_hours:.1f} GPU hours"
    if one.step_seconds is not None and one.step_seconds_without is not None:
        usual, now = words.step(one.step_seconds_without), words.step(one.step_seconds)
        text += f"; a step takes {now}, without it {usual}"
    return f"{text} ({words.share(one.lost_share)} of the time)"


def named(many: Sequence[Culprit]) -> list[str]:
    return [words.culprit(one) for one in many]


def ruled_out(verdict: Judgement) -> list[str]:
    return [f"{cause_words(one.what)}: {one.why}" for one in verdict.ruled_out]


def undecided(verdict: Judgement) -> list[str]:
    return undecided_lines(verdict.undecided) if verdict.undecided is not None else []


def turns(detail: Detail, now_s: float, zone: dt.tzinfo | None) -> list[str]:
    """The incident's history, the latest first."""
    return [
        f"{words.moment(turn.time_ns / NS, now_s, zone)} {turn.news}: {cause_words(turn.cause)}, "
        f"{words.culprit(turn.culprit)}, {words.share(turn.confidence)} sure"
        + (f"; {turn.note}" if turn.note else "")
        for turn in reversed(detail.history)
    ]
