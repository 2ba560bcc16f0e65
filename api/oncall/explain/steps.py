"""Slow steps of a job against normal ones, and how slow steps differ, from the store."""

from __future__ import annotations

import msgspec

from alerts.compare.model import StepsCompared
from alerts.compare.sides import side_of, why_not
from alerts.compare.stages import Stages, stages_in, without
from alerts.compare.stand_out import Differences, divide, what_stands_out
from alerts.compare.steps import Asked, blamed_of, compare_steps, not_known
from alerts.signals.gaps import own_time
from alerts.window.model import JobWindow, Window
from api.base.compare_limits import (
    COMPARE_APART_SECONDS_MAX,
    COMPARE_AROUND_SECONDS,
    COMPARE_BEFORE_SECONDS,
)
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.past import PastWindows
from collector.contract.units import NS
from collector.contract.verdict import Verdict

Span = tuple[int, int]
"""From and to, unix nanoseconds."""


class StepsQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Which steps of which job."""

    job: str
    span: Span
    """Of `differ`: what is looked at. Of `compare`: the slow time."""
    normal: Span | None = None
    normal_job: str | None = None
    """Another job, or another run, whose steps are the normal ones."""
    troubled: tuple[Span, ...] = ()
    """When incidents of the job were confirmed: no model of what is normal."""
    verdict: Verdict | None = None
    """Of the incident that was asked about: it is believed without being found again."""


class StepsDiffer(msgspec.Struct, frozen=True, kw_only=True):
    """How slow steps of a job differ from its others."""

    job: str
    from_ns: int
    to_ns: int
    differences: Differences
    slow_at_ns: list[int]
    """When slow steps began; bounded."""
    unknown: list[str]


SLOW_SHOWN_MAX = 500
"""Slow steps whose times are in an answer."""


def window_around(span: Span, before_s: int = COMPARE_AROUND_SECONDS) -> Span:
    return max(0, span[0] - before_s * NS), span[1] + COMPARE_AROUND_SECONDS * NS


def compare(past: PastWindows, panel: GuardedDetectors, question: StepsQuestion) -> StepsCompared:
    """Both sides in one window where they are near, else in two."""
    asked = Asked(slow=question.span, normal=question.normal, troubled=question.troubled)
    other = question.normal_job or question.job
    whole = whole_span(question)
    window = past.read(*whole, {question.job, other})
    job = job_in(window, question.job)
    if job is None:
        return not_known(question.job, asked, [f"{question.job}: no record of it was read"])
    normal_job = job_in(window, other) if other != question.job else None
    if question.normal is not None and not covers(whole, question.normal):
        before = past.read(*window_around(question.normal), {other})
        normal_job = job_in(before, other)
        if normal_job is None:
            return not_known(question.job, asked, [f"{other}: no record of it was read"])
    verdicts = panel.judge(window, panel.find(window)) or []
    said = [question.verdict] if question.verdict is not None else []
    return compare_steps(
        window, job, asked, blamed_of([*said, *verdicts], question.job), normal_job
    )


def whole_span(question: StepsQuestion) -> Span:
    """What is read: the slow time, and the normal one with it unless it is far away."""
    if question.normal is None:
        return window_around(question.span, COMPARE_BEFORE_SECONDS)
    both = min(question.span[0], question.normal[0]), max(question.span[1], question.normal[1])
    is_near = both[1] - both[0] <= COMPARE_APART_SECONDS_MAX * NS
    return window_around(both if is_near else question.span)


def covers(whole: Span, part: Span) -> bool:
    return whole[0] <= part[0] and part[1] <= whole[1]


def job_in(window: Window, name: str) -> JobWindow | None:
    return next((job for job in window.jobs if job.job == name), None)


def differ(past: PastWindows, question: StepsQuestion) -> StepsDiffer:
    window = past.of_job(*question.span, question.job)
    job = job_in(window, question.job)
    reason = f"{question.job}: no record of it was read" if job is None else why_not(job)
    table = own_time(job) if job is not None and not reason else None
    nothing = Differences(
        found=[], candidates=0, slow_steps=0, normal_steps=0, left_out=0, why_nothing=reason
    )
    found, at = nothing, []
    if job is not None and table is not None:
        slow, normal = divide(table)
        at = table.start_ns[slow[:SLOW_SHOWN_MAX]].tolist()
        found = (
            what_stands_out(window, side_of(job, slow), side_of(job, normal))
            if len(slow) and len(normal)
            else msgspec.structs.replace(
                nothing,
                slow_steps=len(slow),
                normal_steps=len(normal),
                why_nothing=f"{len(slow)} of {len(slow) + len(normal)} steps are longer than usual",
            )
        )
    return StepsDiffer(
        job=question.job,
        from_ns=question.span[0],
        to_ns=question.span[1],
        differences=found,
        slow_at_ns=at,
        unknown=[reason] if reason else [],
    )


def stages(past: PastWindows, question: StepsQuestion) -> Stages:
    job = past.job_alone(*question.span, question.job)
    if job is None:
        return without(question.job, f"{question.job}: no record of it was read")
    return stages_in(job)
