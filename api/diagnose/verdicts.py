"""Every detector by itself, then the judge; failed detectors and those without data are named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from alerts.detectors import Detect, discover, looks_for
from alerts.finding import Finding
from alerts.judge import words
from alerts.judge.verdict import judge
from alerts.window.model import JobWindow, Pending, Window
from api.diagnose import units
from api.diagnose.report import DetectorReport, Diagnosis, JobReport
from collector.contract import figures
from collector.contract.cause_facts import Sight
from collector.contract.identity import printable
from collector.contract.ranks_read import rank_words
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from collector.parsing.last_words import HOST_ADDRESS, LAST_WORDS

BROKEN: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a mistake in a detector looks like: its own arithmetic on unforeseen data."""
PROBLEM_LENGTH_MAX = 200
FIRST_WORDS_MAX = 160
UNIT_LENGTH_MAX = 4
"""Characters of a unit in a narrow column."""
CONTEXT_SHARE_MIN = 0.05
"""Of a job's time that something must cost to be mentioned although it is no fault."""
ALSO_SEEN_MAX = 8
JUDGE = "verdict"
"""What the judge is called where it fails: the last step after all detectors."""

LOG_FORMATS: Final = frozenset({"job_log", "nccl_debug", "nccl_tests"})
"""Formats in which processes' last words are looked for."""

AMOUNT_WORDS: Final = (
    ("collectives", "collective", ""),
    ("unfinished", "operation that did not end", "operations that did not end"),
    ("ports", "port", ""),
    ("gpus", "GPU", ""),
    ("hosts", "host's readings", "hosts' readings"),
    ("events", "event", ""),
)


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts, and what was looked for."""

    verdicts: list[Verdict]
    also_seen: list[str]
    detectors: list[DetectorReport]
    looked_at: dict[str, int]
    unclear: list[str]


def judge_window(
    window: Window,
    formats: Collection[str] = (),
    *,
    detectors: Mapping[str, Detect] | None = None,
    judged_by: Callable[[Window, Sequence[Finding]], list[Verdict]] = judge,
) -> Judged:
    """All detectors on what was read, whose formats these are, and then the judge."""
    findings: list[Finding] = []
    reports: list[DetectorReport] = []
    chosen = discover() if detectors is None else detectors
    for name, detect in sorted(chosen.items()):
        sought = looks_for(name)
        title, needs = sought.title, sought.needs
        sees = not needs or any(can_see(window, formats, need) for need in needs)
        missing = [] if sees else list(dict.fromkeys(need.title for need in needs))
        found: list[Finding] = []
        problem = ""
        try:
            found = detect(window)
        except BROKEN as error:
            problem = to_problem(error)
        findings += found
        reports.append(
            DetectorReport(
                detector=name, title=title, findings=len(found), missing=missing, problem=problem
            )
        )
    # The judge must not depend on the order of detectors' names.
    findings.sort(key=lambda one: (one.since_ns, one.detector, repr(one.culprit)))
    verdicts: list[Verdict] = []
    try:
        verdicts = [worded(verdict) for verdict in judged_by(window, findings)]
    except BROKEN as error:
        reports.append(
            DetectorReport(
                detector=JUDGE, title="verdicts from the findings", problem=to_problem(error)
            )
        )
    return Judged(
        verdicts=verdicts,
        also_seen=costly_context(findings),
        detectors=reports,
        looked_at=amounts(window),
        unclear=[] if verdicts else unclear_of(window),
    )


def costly_context(findings: Sequence[Finding]) -> list[str]:
    """What explains a part of the time and is no verdict: of each finding its first evidence."""
    costly = [
        one
        for one in findings
        if one.is_context and one.evidence and one.cost is not None
        and one.cost.lost_share >= CONTEXT_SHARE_MIN
    ]  # fmt: skip
    costly.sort(key=lambda one: -one.cost.gpu_hours if one.cost is not None else 0.0)
    return [
        f"{one.reason.facts.title or one.cause}: {one.evidence[0].text}"
        for one in costly[:ALSO_SEEN_MAX]
    ]


def judge_windows(windows: Sequence[Window], formats: Collection[str] = ()) -> Judged:
    """The verdicts of several times, one after the other; the dearest first."""
    judged = [judge_window(window, formats) for window in windows]
    if len(judged) == 1:
        return judged[0]
    by_name: dict[str, list[DetectorReport]] = {}
    for one in judged:
        for report in one.detectors:
            by_name.setdefault(report.detector, []).append(report)
    detectors = [
        DetectorReport(
            detector=name,
            title=some[0].title,
            findings=sum(one.findings for one in some),
            missing=some[0].missing if all(one.missing for one in some) else [],
            problem=next((one.problem for one in some if one.problem), ""),
        )
        for name, some in by_name.items()
    ]
    looked_at = {name: sum(one.looked_at[name] for one in judged) for name in judged[0].looked_at}
    verdicts = [verdict for one in judged for verdict in one.verdicts]
    verdicts.sort(key=lambda verdict: -sum(cost.gpu_hours for cost in verdict.costs))
    return Judged(
        verdicts=verdicts,
        also_seen=[line for one in judged for line in one.also_seen],
        detectors=detectors,
        looked_at=looked_at,
        unclear=[line for one in judged for line in one.unclear],
    )


def unclear_of(window: Window) -> list[str]:
    """What speaks against an all-clear though no detector found anything; one sentence each."""
    lines = []
    said = [event for event in window.events if event.kind == LAST_WORDS]
    if any(event.attributes.get("proof") for event in said):
        lines.append("The job died; this evidence names no culprit.")
    elif failed := [one for one in said if one.attributes.get("role") != "after"]:
        first = failed[0].message[:FIRST_WORDS_MAX]
        lines.append(f"Processes reported errors; whether the job died is not known: {first}")
    count = sum(len(open_at_the_end(job)) for job in window.jobs)
    if count:
        had = "1 operation had" if count == 1 else f"{count:,} operations had"
        lines.append(f"{had} not ended when the dumps were taken; this evidence names no culprit.")
    return lines


def open_at_the_end(job: JobWindow) -> list[Pending]:
    """Operations that did not end, unless the job was seen to go on after the last of them.

    The Flight Recorder's own times do not show that: they are when its watchdog looked.
    """
    ended = job.records.exit_ns[job.records.timed()] if len(job.records) else np.zeros(0)
    launched = [one.time_ns for one in job.pending if one.time_ns]
    if len(ended) and launched and not job.is_estimate and int(ended.max()) > max(launched):
        return []
    return list(job.pending)


def to_problem(error: Exception) -> str:
    text = printable(f"{type(error).__name__}: {error}".replace("\n", " "))
    return text if len(text) <= PROBLEM_LENGTH_MAX else f"{text[: PROBLEM_LENGTH_MAX - 1]}…"


def worded(verdict: Verdict) -> Verdict:
    """The verdict with its sentences, if the judge did not write them."""
    return msgspec.structs.replace(
        verdict,
        summary=verdict.summary or words.summary(verdict),
        action=verdict.action or words.action(verdict),
    )


def can_see(window: Window, formats: Collection[str], need: Sight) -> bool:
    """Whether the data that is needed is there at all."""
    if need.of == "times":
        return any(len(job.operations) for job in window.jobs)
    if need.of == "dumps":
        return "flight_recorder" in formats or any(job.pending for job in window.jobs)
    if need.of == "logs":
        return bool(LOG_FORMATS & set(formats))
    if need.of == "events":
        return any(word in event.kind for event in window.events for word in need.words)
    things = {"ports": window.ports, "gpus": window.gpus, "hosts": window.hosts}[need.of]
    return any(word in name for name in things.readings for word in need.words)


def amounts(window: Window) -> dict[str, int]:
    jobs = window.jobs
    return {
        "jobs": len(jobs),
        "ranks": sum(job.size for job in jobs),
        "collectives": sum(len(job.operations) for job in jobs),
        "unfinished": sum(len(job.pending) for job in jobs),
        "ports": len(window.ports),
        "gpus": len(window.gpus),
        "hosts": len(window.hosts),
        "events": sum(event.kind != HOST_ADDRESS for event in window.events),
    }


def attendance_lines(diagnosis: Diagnosis) -> list[str]:
    """The first lines of every report: which ranks were read, of each job."""
    one = len(diagnosis.jobs) == 1
    lines = []
    for job in diagnosis.jobs:
        text = job.ranks_read.text
        lines.append(f"{text[:1].upper()}{text[1:]}." if one else f"Job {job.job}: {text}.")
    return lines


def in_part(jobs: Sequence[JobReport]) -> list[str]:
    """Instead of an all-clear, where ranks or the ends of their records are missing."""
    lines = []
    for job in jobs:
        read = job.ranks_read
        timed = len(read.by_source.get(job.source or "", ())) or read.count
        if read.count < read.known:
            what = f"{read.count:,} of {read.known:,} ranks"
        elif timed < read.known:
            what = f"times of {timed:,} of {read.known:,} ranks"
        elif early := sorted({*read.cut, *read.ended_early}):
            what = f"what there is of {rank_words(early)} ends early"
        else:
            continue
        whose = f" of job {job.job}" if len(jobs) > 1 else ""
        lines.append(f"Nothing stands out in what was read{whose}: {what}.")
    return lines


# In words ----------------------------------------------------------------------------------------


def headline(diagnosis: Diagnosis) -> str:
    """The first verdict's sentence; or why there is none, and where to look for more."""
    if diagnosis.verdicts:
        return diagnosis.verdicts[0].summary
    if diagnosis.unclear:
        return diagnosis.unclear[0]
    changes = diagnosis.compared.changes if diagnosis.compared is not None else []
    return f"Nothing stands out. Changed: {changes[0].text}." if changes else "Nothing stands out."


def start_of(diagnosis: Diagnosis, verdict: Verdict) -> int:
    """The zero of the verdict's times: its job's first record, or the first of all."""
    own = [job.first_ns for job in diagnosis.jobs if job.job in verdict.jobs]
    return min(own or [job.first_ns for job in diagnosis.jobs], default=verdict.since_ns)


def when(verdict: Verdict, start_ns: int) -> str:
    """Since when and until when, after the start and by wall clock."""
    since = f"since {after_start(verdict.since_ns, start_ns)} ({units.moment(verdict.since_ns)})"
    if verdict.until_ns is None:
        return f"{since}, and not over where the files end"
    lasted = figures.duration((verdict.until_ns - verdict.since_ns) / NS)
    return f"{since}, until {after_start(verdict.until_ns, start_ns)}: {lasted} long"


def after_start(time_ns: int, start_ns: int) -> str:
    """A time relative to the start of the capture."""
    away = (time_ns - start_ns) / NS
    if away <= 0:
        return "the start"
    return f"{figures.duration(away)} after the start"


def cost_lines(verdict: Verdict) -> list[str]:
    lines = []
    for cost in verdict.costs:
        if cost.lost_seconds <= 0:
            continue
        lost, part = figures.duration(cost.lost_seconds), figures.share(cost.lost_share)
        least = "at least " if cost.is_at_least else ""
        parts = [f"{least}{lost} lost, {part} of the time while it lasted"]
        if cost.step_seconds is not None and cost.step_seconds_without is not None:
            steps = words.compared(cost.step_seconds, cost.step_seconds_without)
            # With a single job the headline has it already.
            parts += [f"a step takes {steps}"] if steps not in verdict.summary else []
        if cost.gpu_hours > 0:
            parts.append(f"{cost.gpu_hours:.3g} GPU-hours")
        is_clear = len(verdict.costs) == 1 and cost.job.startswith(words.INFERRED_JOB_PREFIX)
        who = "" if is_clear else f"job {figures.shown(cost.job)}: "
        lines.append(who + "; ".join(parts))
    return lines


def clock_words(error_ns: int) -> str:
    return f"Clocks of hosts were compared to within {figures.duration(error_ns / NS)}."


def evidence_rows(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    return [
        (
            each.text or each.metric,
            figures.quantity(each.value, short_unit(each.unit)),
            figures.quantity(each.baseline, short_unit(each.unit)),
            f"{each.samples:,}" if each.samples else "-",
        )
        for each in verdict.evidence
    ]


def short_unit(unit: str) -> str:
    """The unit in a narrow column: the sentence beside it names what is counted.

    >>> short_unit("seconds"), short_unit("communicators"), short_unit("W")
    ('seconds', '', 'W')
    """
    is_known = figures.is_known_unit(unit) or len(unit) <= UNIT_LENGTH_MAX
    return unit if is_known else ""


def looked_lines(diagnosis: Diagnosis) -> list[str]:
    """What was looked for and in what; what could not be; detectors that failed."""
    detectors, seen = diagnosis.detectors, diagnosis.looked_at
    looked = [one.title for one in detectors if not one.missing and not one.problem]
    counted = [
        units.count(seen[name], one, many)
        for name, one, many in AMOUNT_WORDS
        if seen.get(name)
    ]  # fmt: skip
    lines = [f"Also seen, {line}." for line in diagnosis.also_seen]
    if looked:
        where = f" in {', '.join(counted)}" if counted else ""
        lines.append(f"Looked for {', '.join(looked)}{where}.")
    blind = [one for one in detectors if one.missing and not one.findings and not one.problem]
    if blind:
        missing = sorted({what for one in blind for what in one.missing})
        # With an answer, a list of what to add is not needed.
        why = "" if diagnosis.verdicts else f" These files do not have {either(missing)}."
        lines.append(f"Could not look for {', '.join(one.title for one in blind)}.{why}")
    return lines


def either(names: Sequence[str]) -> str:
    """Several names, the last after `or`.

    >>> either(["a"]), either(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def failed_lines(diagnosis: Diagnosis) -> list[str]:
    """Detectors that failed: what they would have seen is missing above."""
    return [
        f"Failed to look for {one.title} ({one.detector}): {one.problem}. Please report it."
        for one in diagnosis.detectors
        if one.problem
    ]
