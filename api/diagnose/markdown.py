"""The report for a ticket, in Markdown as GitHub, GitLab and Jira show it. Bounded in length.

Names in it come from files: nothing in them becomes a heading, a link, or a mention of a user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from alerts.judge import words
from api.diagnose import units
from api.diagnose.bandwidth import BandwidthReport
from api.diagnose.report import Comparison, Diagnosis, JobReport
from api.diagnose.verdicts import (
    attendance_lines,
    clock_words,
    cost_lines,
    evidence_rows,
    failed_lines,
    headline,
    looked_lines,
    start_of,
    when,
)
from collector.contract.identity import printable
from collector.contract.measurement import undecided_lines
from collector.contract.verdict import Reason, Verdict

CHARS_MAX = 30_000
"""Jira takes 32,767 characters, GitHub 65,536."""
VERDICTS_MAX = 5
EVIDENCE_MAX = 12
ROWS_MAX = 20
CELL_CHARS_MAX = 600
PROBLEMS_MAX = 5

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~])")
_REFERENCE = re.compile(r"([@#!$%&])(?=\w)")
"""What makes a mention, or a link to an issue."""
JOINER = "\u2060"
"""Takes no room and ends a word."""


def escaped(text: str) -> str:
    r"""Shown as it is.

    >>> escaped("a|b <x> rank_3")
    'a\\|b \\<x\\> rank\\_3'
    """
    plain = printable(text.replace("\n", " "))[:CELL_CHARS_MAX]
    return _REFERENCE.sub(rf"\1{JOINER}", _MARKUP.sub(r"\\\1", plain))


def render(diagnosis: Diagnosis) -> str:
    text = "\n".join(all_lines(diagnosis)) + "\n"
    if len(text) <= CHARS_MAX:
        return text
    cut = text.rfind("\n", 0, CHARS_MAX - 100)
    return f"{text[:cut]}\n\n*Cut here: `--json` has everything.*\n"


def all_lines(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"## {escaped(headline(diagnosis))}"
    yield from (f"\n{escaped(line)}" for line in attendance_lines(diagnosis)[:ROWS_MAX])
    yield from coverage_lines(diagnosis)
    for number, verdict in enumerate(diagnosis.verdicts[:VERDICTS_MAX]):
        # The first one's sentence is the title of all.
        yield from ("", f"### {escaped(verdict.summary) if number else 'Verdict'}", "")
        yield from verdict_lines(diagnosis, verdict)
    more = len(diagnosis.verdicts) - VERDICTS_MAX
    if more > 0:
        yield from ("", f"{units.count(more, 'more verdict')}; `--json` has all.")
    if diagnosis.compared is not None:
        yield from compared_lines(diagnosis.compared)
    if diagnosis.nccl_tests:
        yield from test_lines(diagnosis.nccl_tests)
    yield from warning_lines(diagnosis)
    yield from ("", "### Looked for", "")
    yield from (
        f"- {escaped(line)}" for line in (*looked_lines(diagnosis), *failed_lines(diagnosis))
    )


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows[:ROWS_MAX]:
        yield f"| {' | '.join(map(escaped, row))} |"
    if len(rows) > ROWS_MAX:
        yield ""
        yield f"and {len(rows) - ROWS_MAX:,} more in `--json`"


def coverage_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """What the answer rests on, and what is missing."""
    read = diagnosis.read
    yield from ("", "### What was read", "")
    yield f"{units.count(read.files, 'file')}, {units.size(read.size_bytes)}."
    rows = [
        (
            each.title,
            f"{each.files:,}",
            units.counts(each.counts),
            units.span(each.first_ns, each.last_ns),
        )
        for each in read.formats
    ]
    yield from table(("kind", "files", "records", "time"), rows)
    yield ""
    yield from (f"- {escaped(job_line(job))}" for job in diagnosis.jobs[:ROWS_MAX])
    for what, problems, total in (
        ("read in part", read.broken, read.broken_count),
        ("not understood", read.not_understood, read.not_understood_count),
        ("left out", read.left_out, len(read.left_out)),
    ):
        if total:
            named = "; ".join(
                f"{problem.path}: {problem.problems[0]}"
                for problem in problems[:PROBLEMS_MAX]
                if problem.problems
            )
            yield f"- {units.count(total, 'file')} {what}" + (
                f": {escaped(named)}" if named else ""
            )


def job_line(job: JobReport) -> str:
    hosts = len({rank.host for rank in job.ranks if rank.host})
    timed = sum(1 for rank in job.ranks if rank.operations)
    parts = [
        f"job {job.job}: {units.count(job.size, 'rank')}",
        units.count(hosts, "host") if hosts else "hosts not known",
        f"times of {timed} of {units.count(job.size, 'rank')}" if job.source else "no times",
        f"NCCL {', '.join(job.nccl_versions)}" if job.nccl_versions else "",
        units.span(job.first_ns, job.last_ns),
    ]
    return ", ".join(part for part in parts if part)


def verdict_lines(diagnosis: Diagnosis, verdict: Verdict) -> Iterator[str]:
    reason = "" if verdict.reason is Reason.UNKNOWN else f" ({verdict.reason})"
    yield f"- **Cause**: {escaped(f'{verdict.cause}{reason}, {words.sure(verdict.confidence)}')}"
    yield f"- **When**: {escaped(when(verdict, start_of(diagnosis, verdict)))}"
    yield from (f"- **Cost**: {escaped(line)}" for line in cost_lines(verdict))
    if verdict.clock_error_ns is not None:
        yield f"- **Clocks**: {escaped(clock_words(verdict.clock_error_ns))}"
    if verdict.victims:
        yield f"- **Late only because of it**: {escaped(words.names(verdict.victims))}"
    for each in verdict.ruled_out:
        yield f"- **Ruled out**: {escaped(each.what.replace('_', ' '))}: {escaped(each.why)}"
    if verdict.undecided is not None:
        lines = undecided_lines(verdict.undecided)
        yield from (f"- **Undecided**: {escaped(line)}" for line in lines)
    yield f"- **Next step**: {escaped(verdict.action)}"
    if rows := evidence_rows(verdict):
        yield from table(("evidence", "seen", "usual", "n"), rows[:EVIDENCE_MAX])


def compared_lines(compared: Comparison) -> Iterator[str]:
    yield from ("", f"### Compared with {escaped(', '.join(compared.against))}", "")
    if not compared.changes:
        yield "Nothing changed that could be compared."
    else:
        yield units.count(compared.changes_total, "change") + ", the most important first:"
        rows = [(change.what, change.now, change.before) for change in compared.changes]
        yield from table(("what", "now", "before"), rows)
    yield ""
    yield from (f"- equal: {escaped(line)}" for line in compared.equal[:ROWS_MAX])
    yield from (f"- not compared: {escaped(line)}" for line in compared.missing[:ROWS_MAX])


def test_lines(tests: Sequence[BandwidthReport]) -> Iterator[str]:
    rows = [
        (
            test.operation,
            str(test.ranks or "?"),
            units.rate(test.best_bus_bytes_per_second),
            units.rate(test.expected_bus_bytes_per_second),
            str(test.wrong),
            test.path,
        )
        for test in tests
    ]
    yield from ("", "### nccl-tests")
    yield from table(("operation", "ranks", "best bus", "at most", "wrong rows", "file"), rows)


def warning_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.warnings:
        rows = [
            (f"{each.count:,}", each.message, ", ".join(each.hosts[:4]))
            for each in diagnosis.warnings
        ]
        yield from ("", "### NCCL warned")
        yield from table(("times", "message", "hosts"), rows[:PROBLEMS_MAX])
