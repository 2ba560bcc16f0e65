"""The report on a terminal: the answer first, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TextIO

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from alerts.judge import words
from alerts.window.columns import Floats, Step
from api.diagnose import stage_words, units
from api.diagnose.bandwidth import BandwidthReport
from api.diagnose.clock_words import clock_lines, long
from api.diagnose.report import (
    CollectiveReport,
    Comparison,
    Diagnosis,
    JobReport,
    PendingReport,
    Problem,
    RankReport,
    Read,
    Warned,
)
from api.diagnose.run_tables import (
    CHANGES_SHOWN,
    EQUAL_SHOWN,
    HEADINGS,
    TESTS_SHOWN,
    is_wrong,
    result_lines,
    shown_lines,
    size_lines,
    title_of,
)
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
from collector.contract.verdict import Culprit, Reason, Verdict

SLOWEST_SHOWN = 10
STAGES_SHOWN = 32
FILES_SHOWN = 5
RANKS_SHOWN = 32
"""Ranks in the table; of more, those that are last in most often."""
COMMUNICATORS_SHOWN = 12
PENDING_SHOWN = 12
WARNINGS_SHOWN = 5
VERDICTS_SHOWN = 10
"""Verdicts on a terminal: of more the reader has lost the first."""
EVIDENCE_SHOWN = 8
LABEL_COLUMNS = 12
ATTENDANCE_SHOWN = 5
"""Jobs of which the first lines say which ranks were read; each says it of itself again."""
SCREEN_ROWS = 24
"""A screen where its height is not known."""

TITLE = "bold"
FAINT = "dim"
CULPRIT = "bold red"
HOT = "bold yellow"


class Report:
    """Prints one report."""

    def __init__(self, console: Console, *, is_verbose: bool) -> None:
        self._console = console
        self._is_verbose = is_verbose

    def show(self, diagnosis: Diagnosis) -> None:
        for line in attendance_lines(diagnosis)[:ATTENDANCE_SHOWN]:
            self.paragraph(line, HOT if " of " in line else FAINT, indent=0)
        self.show_verdicts(diagnosis)
        if diagnosis.compared is not None:
            self.show_compared(diagnosis.compared)
        self.show_read(diagnosis.read)
        self.show_tests(diagnosis.nccl_tests)
        for job in diagnosis.jobs:
            self.show_job(job)
        if diagnosis.jobs_left_out:
            left = units.count(diagnosis.jobs_left_out, "smaller job")
            self.title(f"{left} not shown; --job ID shows one")
        self.show_warnings(diagnosis.warnings)
        if not diagnosis.jobs:
            self.say("No job: none of the files has collectives.")

    def show_headline(self, diagnosis: Diagnosis) -> None:
        """The answer once more: tables above name ranks that only wait."""
        self._console.print()
        more = len(diagnosis.verdicts) - 1
        above = f" ({units.count(more, 'more verdict')} above)" if more > 0 else ""
        style = CULPRIT if diagnosis.verdicts else TITLE
        self.paragraph(f"In short: {headline(diagnosis)}{above}", style, indent=0)

    def say(self, text: str = "", style: str = "", indent: int = 0) -> None:
        self._console.print(Text(" " * indent + printable(text), style=style), highlight=False)

    def title(self, text: str) -> None:
        self._console.print()
        self.say(text, TITLE)

    # Verdicts --------------------------------------------------------------------------------

    def show_verdicts(self, diagnosis: Diagnosis) -> None:
        """What is wrong; or that nothing is, and what was checked."""
        for number, verdict in enumerate(diagnosis.verdicts[:VERDICTS_SHOWN]):
            if number:
                self._console.print()
            self.show_verdict(verdict, start_of(diagnosis, verdict))
        if len(diagnosis.verdicts) > VERDICTS_SHOWN:
            rest = len(diagnosis.verdicts) - VERDICTS_SHOWN
            self.say(f"{units.count(rest, 'more verdict')}; --json has all.", HOT)
        for line in diagnosis.unclear:
            self.paragraph(line, CULPRIT, indent=0)
        if not diagnosis.verdicts and not diagnosis.unclear:
            self.say("Nothing stands out.", TITLE)
        elif diagnosis.verdicts:
            self._console.print()
        for line in looked_lines(diagnosis):
            self.paragraph(line, FAINT)
        for line in failed_lines(diagnosis):
            self.paragraph(line, HOT)
        self._console.print()

    def show_verdict(self, verdict: Verdict, start_ns: int) -> None:
        self.paragraph(verdict.summary, CULPRIT, indent=0)
        reason = "" if verdict.reason is Reason.UNKNOWN else f" ({verdict.reason})"
        self.paragraph(f"{verdict.cause}{reason}, {words.sure(verdict.confidence)}")
        self.paragraph(when(verdict, start_ns))
        for line in cost_lines(verdict):
            self.paragraph(f"Cost: {line}")
        if verdict.clock_error_ns is not None:
            self.paragraph(clock_words(verdict.clock_error_ns), FAINT)
        self.show_evidence(verdict)
        if verdict.victims:
            victims = words.names(verdict.victims)
            self.part("Late only because of it", victims)
        for each in verdict.ruled_out:
            what = each.what.replace("_", " ")
            self.part(f"Ruled out: {what}", each.why)
        if verdict.undecided is not None:
            for line in undecided_lines(verdict.undecided):
                self.part("Undecided", line)
        self.part("What to do", verdict.action, TITLE)

    def show_evidence(self, verdict: Verdict) -> None:
        rows = evidence_rows(verdict)
        if not rows:
            return
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(Text("evidence", style=FAINT), overflow="fold", ratio=1)
        for heading in ("seen", "usual", "n"):
            table.add_column(Text(heading, style=FAINT), no_wrap=True, justify="right")
        for row in rows[:EVIDENCE_SHOWN]:
            add_row(table, *row)
        self._console.print()
        self._console.print(Padding(table, (0, 0, 0, 2)))
        if len(rows) > EVIDENCE_SHOWN:
            self.paragraph(f"and {len(rows) - EVIDENCE_SHOWN} more in --json", FAINT)
        self._console.print()

    def part(self, title: str, text: str, style: str = "") -> None:
        line = Text(f"{printable(title)}: ", style=style or FAINT)
        line.append(printable(text), style="")
        self._console.print(Padding(line, (0, 0, 0, 2), expand=False), highlight=False)

    def paragraph(self, text: str, style: str = "", indent: int = 2) -> None:
        line = Text(printable(text), style=style)
        self._console.print(Padding(line, (0, 0, 0, indent), expand=False), highlight=False)

    # What was read ---------------------------------------------------------------------------

    def show_read(self, read: Read) -> None:
        self.say(f"Read {units.count(read.files, 'file')}, {units.size(read.size_bytes)}", TITLE)
        table = plain_table("", "files", "records", "from", "for")
        for each in read.formats:
            seen = each.last_ns - each.first_ns if each.first_ns and each.last_ns else None
            add_row(
                table,
                each.title,
                f"{each.files:,}",
                units.counts(each.counts),
                units.moment(each.first_ns),
                units.duration(seen),
            )
        self._console.print(Padding(table, (0, 0, 0, 2)))
        for loss in read.losses:
            if loss.lost:
                self.say(
                    f"Lost: {loss.lost:,} of {loss.lost + loss.records:,} records of "
                    f"{loss.operation} in {loss.communicator} (gaps in their numbers)"
                )
            if loss.kept_one_in > 1:
                self.say(
                    f"Thinned: of {loss.operation} in {loss.communicator} "
                    f"one in {loss.kept_one_in} was kept"
                )
        self.show_problems("Read in part", read.broken, read.broken_count)
        self.show_problems("Not understood", read.not_understood, read.not_understood_count)
        self.show_problems("Left out", read.left_out, len(read.left_out))

    def show_problems(self, what: str, problems: Sequence[Problem], total: int) -> None:
        if not total:
            return
        names_all = self._is_verbose or what != "Not understood"
        reasons = [problem for problem in problems if problem.problems]
        if not names_all and not reasons:
            hint = "" if total == 1 else "; --verbose names them"
            name = f": {problems[0].path}" if total == 1 else ""
            self.say(f"{what}: {units.count(total, 'file')}{name}{hint}", FAINT)
            return
        self.say(f"{what}: {units.count(total, 'file')}")
        shown = problems if self._is_verbose else (reasons or problems)[:FILES_SHOWN]
        for problem in shown:
            self.say(f"{problem.path}: {reason_of(problem)}", FAINT, indent=2)
        if len(shown) < total:
            self.say(f"and {total - len(shown):,} more; --verbose names them", FAINT, indent=2)

    def show_warnings(self, warnings: Sequence[Warned]) -> None:
        if not warnings:
            return
        self.title("NCCL warned")
        shown = warnings if self._is_verbose else warnings[:WARNINGS_SHOWN]
        for each in shown:
            where = ", ".join(each.hosts[:4]) + (", …" if len(each.hosts) > 4 else "")  # noqa: PLR2004 - one line
            self.say(f"{each.count:,} x {each.message} ({where or 'host not known'})", indent=2)
        if len(shown) < len(warnings):
            rest = len(warnings) - len(shown)
            self.say(f"and {rest} more; --verbose names them", FAINT, indent=2)

    # Other runs ------------------------------------------------------------------------------

    def show_compared(self, compared: Comparison) -> None:
        """What changed since another run; what did not, and what could not be compared."""
        self.say(f"Compared with {', '.join(compared.against)}", TITLE)
        shown = compared.changes if self._is_verbose else compared.changes[:CHANGES_SHOWN]
        for change in shown:
            self.paragraph(change.text, CULPRIT if change is compared.changes[0] else "")
        if len(shown) < compared.changes_total:
            rest = compared.changes_total - len(shown)
            self.paragraph(
                f"and {units.count(rest, 'smaller change')}; --verbose names them", FAINT
            )
        if not compared.changes:
            self.paragraph("Nothing changed that could be compared.")
        for title, some in (("Equal", compared.equal), ("Not compared", compared.missing)):
            if some:
                named = some if self._is_verbose else some[:EQUAL_SHOWN]
                more = f"; and {len(some) - len(named)} more" if len(named) < len(some) else ""
                self.part(title, "; ".join(named) + more)
        self._console.print()

    def show_tests(self, tests: Sequence[BandwidthReport]) -> None:
        """Bandwidths by size, and what the network would allow."""
        shown = tests if self._is_verbose else tests[:TESTS_SHOWN]
        for test in shown:
            self.title(title_of(test))
            self.say(test.path, FAINT, indent=2)
            lines = size_lines(test)
            chosen = lines if self._is_verbose else shown_lines(lines)
            table = plain_table(*HEADINGS)
            for line in chosen:
                add_row(table, *line.cells(), style=HOT if is_wrong(line) else "")
            self._console.print(Padding(table, (0, 0, 0, 2)))
            if len(chosen) < len(lines):
                rest = units.count(len(lines) - len(chosen), "smaller size")
                self.say(f"and {rest}; --verbose shows them", FAINT, indent=2)
            for sentence in result_lines(test):
                self.paragraph(sentence)
        if len(shown) < len(tests):
            rest = units.count(len(tests) - len(shown), "more test")
            self.title(f"{rest} of nccl-tests; --verbose shows them")

    # A job -----------------------------------------------------------------------------------

    def show_job(self, job: JobReport) -> None:
        self.title(f"Job {job.job}")
        self.show_facts(job)
        self.show_communicators(job)
        self.show_clocks(job)
        self.show_steps(job)
        self.show_stages(job)
        self.show_pending(job)
        self.show_slowest(job)
        self.show_ranks(job)

    def show_facts(self, job: JobReport) -> None:
        hosts = {rank.host for rank in job.ranks if rank.host}
        gpus = {(rank.host, rank.gpu) for rank in job.ranks if rank.gpu is not None}
        parts = [
            units.count(job.size, "rank"),
            units.count(len(hosts), "host") if hosts else "hosts not known",
            units.count(len(gpus), "GPU") if gpus else "GPUs not known",
            f"NCCL {', '.join(job.nccl_versions)}" if job.nccl_versions else "",
            f"network {', '.join(job.networks)}" if job.networks else "",
        ]
        self.say(", ".join(part for part in parts if part), indent=2)
        self.paragraph(f"{job.ranks_read.text}.", FAINT)
        self.say(units.span(job.first_ns, job.last_ns), indent=2)
        named = "as its own files name it" if job.was_said else "inferred from who talks to whom"
        self.say(f"The job is {named}.", FAINT, indent=2)
        source = f"Times: {job.source}; " if job.source else "No times: "
        self.say(f"{source}{job.source_reason}.", FAINT, indent=2)
        if job.kept_one_in > 1:
            self.say(f"Too many records: one operation in {job.kept_one_in} is looked at.", HOT, 2)
        self._console.print()

    def show_communicators(self, job: JobReport) -> None:
        """Communicators with what they did; those without operations in one line."""
        sums: dict[str, list[str]] = {}
        for one in job.operations:
            incomplete = f" ({one.count - one.complete:,} incomplete)" if one.lost else ""
            reached = one.baseline_bytes_per_second
            baseline = f" of {units.rate(reached)} in nccl-tests" if reached else ""
            sums.setdefault(one.communicator, []).append(
                f"{one.count:,} {one.operation} of {units.size(one.size_bytes)}{incomplete}, "
                f"{units.rate(one.bus_bandwidth_bytes_per_second)} bus{baseline}"
            )
        used = [each for each in job.communicators if each.communicator in sums]
        if used:
            table = plain_table("communicator", "ranks", "wired as", "operations")
            for each in used[:COMMUNICATORS_SHOWN]:
                add_row(
                    table,
                    each.name or each.communicator,
                    units.ranks(each.job_ranks) if each.job_ranks else f"{each.ranks} ranks",
                    each.wiring or "not known",
                    "\n".join(sums[each.communicator]),
                )
            self._console.print(Padding(table, (0, 0, 0, 2)))
        rest = max(0, len(used) - COMMUNICATORS_SHOWN) + len(job.communicators) - len(used)
        if rest:
            without = (
                "" if len(used) > COMMUNICATORS_SHOWN else " without collectives that were timed"
            )
            noun = "more communicator" if used else "communicator"
            self.say(f"{units.count(rest, noun)}{without}.", FAINT, indent=2)

    def show_clocks(self, job: JobReport) -> None:
        """How the hosts' clocks stand, and whether that was corrected."""
        clocks = [clock for fit in job.clocks for clock in fit.clocks if clock.is_known]
        for line in clock_lines(job.clocks):
            self.say(line, HOT, indent=2)
        if not clocks:
            return
        worst = max(clocks, key=lambda clock: abs(clock.offset_ns))
        residual = max(clock.residual_ns for clock in clocks)
        corrected = sorted({clock.host for clock in clocks if clock.is_corrected})
        side = "ahead" if worst.offset_ns > 0 else "behind"
        away = f"{long(abs(worst.offset_ns))} {side}"
        done = (
            f"corrected on {units.count(len(corrected), 'host')}"
            if corrected
            else "within doubt, so no time was changed"
        )
        self.say(
            f"Clocks: worst {worst.host or 'host'}, {away}; good to "
            f"{units.duration(residual)}; {done}.",
            indent=2,
        )

    def show_steps(self, job: JobReport) -> None:
        if not job.steps and job.source is None:
            return
        if not job.steps:
            self.say(
                "Steps: none were found: collectives do not repeat, or no file has their times.",
                FAINT,
                indent=2,
            )
            return
        took = np.array([step.end_ns - step.start_ns for step in job.steps], dtype=np.float64)
        median, p95 = np.quantile(took, [0.5, 0.95])
        origin = {
            "marks": "marked by the training loop",
            "collectives": "inferred from collectives that repeat",
            "profile": "of the profiler",
        }[job.steps_from]
        self.title("Steps")
        self.say(
            f"{units.count(len(job.steps), 'step')}, {origin}: "
            f"median {units.duration(median)}, p95 {units.duration(p95)}, "
            f"longest {units.duration(took.max())}",
            indent=2,
        )
        width = max(20, min(len(job.steps), self._console.width - LABEL_COLUMNS - 34))
        for name, values in step_parts(job.steps).items():
            cells = bucketed(values, width)
            top = units.scale_top(cells.tolist())
            usual, highest = float(np.median(values)), float(values.max())
            line = Text(f"  {name:<{LABEL_COLUMNS - 2}}")
            line.append(units.blocks(cells.tolist(), top))
            line.append(
                f"  median {units.duration(usual)}, most {units.duration(highest)}", style=FAINT
            )
            self._console.print(line, highlight=False, no_wrap=True, crop=False)
        self.say(
            "compute: outside operations; wait: inside, until the last rank came; "
            "transfer: inside, after that",
            FAINT,
            indent=2,
        )

    def show_pending(self, job: JobReport) -> None:
        """Operations that did not end: first those that not all of a group wait in."""
        if not job.pending:
            return
        self.title(f"Operations that did not end ({job.pending_total:,})")
        members = {each.communicator: each.job_ranks for each in job.communicators}
        names = {report.communicator: report.name for report in job.communicators}
        ordered = oldest_pending(job)
        table = plain_table("group", "oldest operation", "number", "waiting in it", "not in it")
        for each in ordered[:PENDING_SHOWN]:
            add_row(
                table,
                names.get(each.communicator) or each.communicator,
                each.operation,
                str(each.sequence),
                units.ranks(each.job_ranks),
                not_in_it(job, each, members.get(each.communicator, [])),
            )
        self._console.print(Padding(table, (0, 0, 0, 2)))
        if len(ordered) > PENDING_SHOWN:
            self.say(f"and {len(ordered) - PENDING_SHOWN} more groups", FAINT, indent=2)

    def show_stages(self, job: JobReport) -> None:
        if job.stages is None:
            return
        self.title(stage_words.TITLE)
        for line in stage_words.stage_lines(job.stages):
            self.paragraph(line)
        table = plain_table(*stage_words.HEADINGS)
        for each in job.stages.stages[:STAGES_SHOWN]:
            style = HOT if each.stage == job.stages.pace else ""
            add_row(table, *stage_words.stage_cells(each), style=style)
        if job.stages.stages:
            self._console.print(Padding(table, (0, 0, 0, 2)))

    def show_slowest(self, job: JobReport) -> None:
        slowest = slowest_of(job.collectives)
        if not slowest:
            return
        self.title("Slowest collectives")
        self.say("compared with the median of the same communicator, operation and size", FAINT, 2)
        table = plain_table(
            "after start", "operation", "size", "number", "slower by", "wait", "transfer", "last in"
        )
        for each in slowest:
            add_row(
                table,
                units.duration(each.start_ns - job.first_ns),
                each.operation,
                units.size(each.size_bytes),
                str(each.sequence),
                units.duration(each.slower_ns),
                units.duration(each.entry_skew_ns),
                units.duration(each.transfer_ns),
                last_in_of(each),
            )
        self._console.print(Padding(table, (0, 0, 0, 2)))

    def show_ranks(self, job: JobReport) -> None:
        """How late each rank comes; those that stand out are marked."""
        ranks = [rank for rank in job.ranks if rank.operations]
        if not ranks:
            return
        self.title("Who is waited for")
        shown = ranks
        if len(ranks) > RANKS_SHOWN:
            chosen = set(sorted(range(len(ranks)), key=lambda at: -ranks[at].last_in)[:RANKS_SHOWN])
            shown = [rank for at, rank in enumerate(ranks) if at in chosen]
        table = plain_table(
            "rank",
            "host",
            "GPU",
            "times last in",
            "of",
            "usually late",
            "most late",
            "usually inside",
        )
        for rank in shown:
            add_row(table, *rank_cells(rank), style=HOT if rank.is_outlier else "")
        self._console.print(Padding(table, (0, 0, 0, 2)))
        if len(shown) < len(ranks):
            self.say(f"{len(ranks) - len(shown):,} ranks that are last in less often", FAINT, 2)
        odd = [rank for rank in ranks if rank.is_outlier]
        if odd:
            who = ", ".join(
                words.name(Culprit(rank=rank.rank, host=rank.host or "")) for rank in odd[:4]
            )
            self.say(f"Last in far more often than its share: {who}.", HOT, indent=2)


def reason_of(problem: Problem) -> str:
    if not problem.problems:
        return "of no kind that is understood"
    more = problem.problem_count - 1
    rest = f" (and {more:,} more)" if more > 0 else ""
    used = f"; {problem.records:,} records used" if problem.format else ""
    return f"{problem.problems[0]}{rest}{used}"


def rank_cells(rank: RankReport) -> list[str]:
    return [
        "-" if rank.rank is None else str(rank.rank),
        rank.host or "-",
        rank.gpu if rank.gpu is not None else "-",
        f"{rank.last_in:,}",
        f"{rank.operations:,}",
        units.duration(rank.median_late_ns),
        units.duration(rank.most_late_ns),
        units.duration(rank.median_inside_ns),
    ]


def last_in_of(each: CollectiveReport) -> str:
    if each.last_in_job_rank is None:
        return each.last_in_host or f"rank {each.last_in} of its communicator"
    rank = f"rank {each.last_in_job_rank}"
    return f"{rank}, {each.last_in_host}" if each.last_in_host else rank


def slowest_of(collectives: Sequence[CollectiveReport]) -> list[CollectiveReport]:
    slower = [each for each in collectives if each.slower_ns > 0]
    return sorted(slower, key=lambda each: -each.slower_ns)[:SLOWEST_SHOWN]


def not_in_it(job: JobReport, pending: PendingReport, members: Sequence[int]) -> str:
    """Members that do not wait in an operation; those without a whole dump may, and are apart."""
    dumped = {*job.ranks_read.by_source.get("flight_recorder", ())} - {*job.ranks_read.cut}
    others = [rank for rank in members if rank not in pending.job_ranks]
    absent = [rank for rank in others if rank in dumped]
    unread = [rank for rank in others if rank not in dumped]
    parts = [units.ranks(absent)] if absent else []
    parts += [f"no dump: {units.ranks(unread)}"] if unread else []
    there = len(pending.scheduled) + len(pending.started) + len(pending.completed)
    if not others and pending.ranks > there:
        parts = [f"{pending.ranks - there} not read"]
    return "; ".join(parts) or "-"


def oldest_pending(job: JobReport) -> list[PendingReport]:
    """Of each group the oldest operation that did not end; first those that not all wait in."""
    oldest: dict[str, PendingReport] = {}
    for each in job.pending:
        oldest.setdefault(each.communicator, each)
    return sorted(oldest.values(), key=lambda one: (is_whole(one), one.communicator))


def is_whole(pending: PendingReport) -> bool:
    return len(pending.scheduled) + len(pending.started) >= pending.ranks


def step_parts(steps: Sequence[Step]) -> dict[str, Floats]:
    return {
        "step": np.array([step.end_ns - step.start_ns for step in steps], dtype=np.float64),
        "compute": np.array([step.compute_ns for step in steps], dtype=np.float64),
        "wait": np.array([step.wait_ns for step in steps], dtype=np.float64),
        "transfer": np.array([step.transfer_ns for step in steps], dtype=np.float64),
    }


def bucketed(values: Floats, buckets: int) -> Floats:
    """The values in so many buckets at most, the median of each."""
    if len(values) <= buckets:
        return values
    edges = np.linspace(0, len(values), buckets + 1).astype(int)
    return np.array([np.median(values[a:b]) for a, b in pairwise(edges.tolist())])


NUMBERS = frozenset(
    {
        "files", "number", "slower by", "wait", "transfer", "rank", "of",
        "usually late", "most late", "usually inside", "after start", "size", "times last in",
        *HEADINGS[2:],
    }
)  # fmt: skip
"""Columns that are read from the right."""


def plain_table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(
            Text(heading, style=FAINT),
            overflow="fold",
            no_wrap=place == 0,
            justify="right" if heading in NUMBERS else "left",
        )
    return table


def add_row(table: Table, *cells: str, style: str = "") -> None:
    """Cells are shown literally: names may hold what looks like markup."""
    lines = ("\n".join(map(printable, cell.split("\n"))) for cell in cells)
    table.add_row(*(Text(line) for line in lines), style=style)


class Counted:
    """A file that knows how many lines were written to it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.lines = 0

    def write(self, text: str) -> int:
        self.lines += text.count("\n")
        return self._file.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the file has
        return getattr(self._file, name)


def print_report(
    diagnosis: Diagnosis,
    file: TextIO,
    *,
    columns: int,
    rows: int = SCREEN_ROWS,
    is_plain: bool,
    is_verbose: bool,
) -> None:
    """Where it is longer than a screen the answer is repeated, so that it is what is seen last."""
    counted = Counted(file)
    console = Console(
        file=counted,  # type: ignore[arg-type]
        width=columns,
        no_color=is_plain or None,
        highlight=False,
    )
    report = Report(console, is_verbose=is_verbose)
    report.show(diagnosis)
    if counted.lines >= rows:
        report.show_headline(diagnosis)
