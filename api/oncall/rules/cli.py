"""`fabricscope rules`: check rule files, run their unit tests, turn the pack's knobs, list it."""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from alerts.rulebook.model import Group
from api.oncall.rules.build import PackRule, pack_rules, read_knobs, write_pack
from api.oncall.rules.cases import TEST_FILE_BYTES_MAX, TestFile, read_tests
from api.oncall.rules.check import Lint, check_files
from api.oncall.rules.expression import duration_text
from api.oncall.rules.files import match_rule_files, read_rule_file, read_text
from api.oncall.rules.testing import Book, Failure, TestResult, run_tests
from api.promql.values import Dialect
from collector.contract.errors import RuleFileError

EXIT_FAILED = 1
TEXT_COLUMNS = 110


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")

    check = verbs.add_parser("check", help="report what is wrong with rule files")
    check.add_argument("paths", nargs="+", metavar="FILE|DIR")
    check.add_argument(
        "--lint",
        choices=[each.value for each in Lint],
        default=Lint.WARN.value,
        help="what to do about things that are allowed and probably wrong (default warn)",
    )

    test = verbs.add_parser("test", help="run unit tests of rules, in promtool's format")
    test.add_argument("paths", nargs="+", metavar="FILE")
    test.add_argument(
        "--dialect",
        choices=[each.value for each in Dialect],
        default=Dialect.PROMETHEUS_3.value,
        help="whose rules decide where Prometheus 2 and 3 differ (default prometheus-3)",
    )
    test.add_argument("--run", metavar="TEXT", default="", help="only tests with this in the name")

    build = verbs.add_parser("build", help="write the rule pack with other thresholds")
    build.add_argument("--knobs", type=Path, metavar="FILE", help="lines of name = value (TOML)")
    build.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="turn one knob"
    )
    build.add_argument(
        "--no-keep-firing-for",
        action="store_true",
        help="leave keep_firing_for out: Prometheus before 2.42 and old vmalerts refuse it",
    )
    build.add_argument("--out", type=Path, required=True, metavar="DIR")

    listing = verbs.add_parser("list", help="the alerts of the rule pack and their knobs")
    listing.add_argument("--json", action="store_true", help="as JSON")

    for each in (check, test, build, listing):
        each.add_argument("--no-color", action="store_true", help="plain text")


def run(arguments: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    verbs: dict[str, Callable[[argparse.Namespace, Console], int]] = {
        "check": run_check,
        "test": run_test,
        "build": run_build,
        "list": run_list,
    }
    return verbs[arguments.verb](arguments, console_of(arguments))


def console_of(arguments: argparse.Namespace) -> Console:
    plain = arguments.no_color
    width = None if sys.stdout.isatty() else TEXT_COLUMNS
    return Console(
        file=sys.stdout,
        no_color=plain,
        force_terminal=False if plain else None,
        highlight=False,
        soft_wrap=True,
        width=width,
    )


def count(number: int, what: str) -> str:
    """A number and its noun.

    >>> count(1, "file"), count(3, "file")
    ('1 file', '3 files')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# --- check -------------------------------------------------------------------------------------


def run_check(arguments: argparse.Namespace, console: Console) -> int:
    checked = check_files(arguments.paths, Lint(arguments.lint))
    for problem in checked.problems:
        console.print(f"[bold red]error[/]   {escape(str(problem))}")
    for warning in checked.warnings:
        console.print(f"[yellow]warning[/] {escape(str(warning))}")
    for file, left_out in checked.left_out.items():
        console.print(f"[bold red]error[/]   {escape(file)}: {left_out} more")
    size = f"{count(checked.files, 'file')}, {count(checked.rules, 'rule')}"
    counts = [count(len(checked.problems), "error")] if checked.problems else []
    counts += [count(len(checked.warnings), "warning")] if checked.warnings else []
    style = "bold red" if checked.is_bad else "green"
    console.print(f"[{style}]{size}: {', '.join(counts) or 'well'}[/]")
    return EXIT_FAILED if checked.is_bad else 0


# --- test --------------------------------------------------------------------------------------


def run_test(arguments: argparse.Namespace, console: Console) -> int:
    dialect = Dialect(arguments.dialect)
    failed = 0
    for name in arguments.paths:
        failed += not run_test_file(Path(name), dialect, arguments.run, console)
    return EXIT_FAILED if failed else 0


def run_test_file(path: Path, dialect: Dialect, wanted: str, console: Console) -> bool:
    """Run one file's tests and print the results; whether all passed."""
    try:
        file, book, empty = load_test_file(path)
    except RuleFileError as error:
        for line, text in error.problems:
            where = f"{error.file}:{line}" if line else error.file
            console.print(f"[bold red]FAILED[/] {escape(where)}: {escape(text)}")
        return False
    for pattern in empty:
        console.print(f"[yellow]warning[/] {escape(f'{path}: no file matches {pattern}')}")
    if wanted:
        chosen = [case for case in file.tests if wanted in case.title]
        file = msgspec.structs.replace(file, tests=chosen)
    failures = cases = 0
    for result in run_tests(file, book, dialect):
        cases += len(result.case.alert_cases) + len(result.case.query_cases)
        if result.failures:
            failures += 1
            show_result(path, result, console)
    size = f"{count(len(file.tests), 'test')}, {count(cases, 'case')}"
    if failures:
        console.print(f"[bold red]FAILED[/] {escape(str(path))}: {failures} of {size}")
    else:
        console.print(f"[green]well[/]   {escape(str(path))}: {size}")
    return not failures


def load_test_file(path: Path) -> tuple[TestFile, Book, list[str]]:
    file = read_tests(read_text(path, TEST_FILE_BYTES_MAX), str(path))
    paths, empty = match_rule_files(file.rule_files, path)
    groups: list[Group] = []
    for one in dict.fromkeys(paths):
        groups += read_rule_file(one)
    return file, Book(groups, file.group_order), empty


def show_result(path: Path, result: TestResult, console: Console) -> None:
    title = f"{path}:{result.case.line}: {result.case.title}"
    console.print(f"[bold red]FAILED[/] [bold]{escape(title)}[/]")
    for failure in result.failures:
        show_failure(failure, console)


def show_failure(failure: Failure, console: Console) -> None:
    where = f"line {failure.line}: " if failure.line else ""
    console.print(
        f"  {where}{failure.kind} {escape(failure.name)} at {duration_text(failure.time_ms)}"
    )
    if failure.error:
        console.print(f"    {escape(failure.error)}")
    else:
        show_sides(failure, console)
    if failure.hint:
        console.print(f"    [cyan]{escape(failure.hint)}[/]")


def show_sides(failure: Failure, console: Console) -> None:
    table = Table(show_edge=False, pad_edge=False, box=None, padding=(0, 3, 0, 0))
    table.add_column("expected", overflow="fold")
    table.add_column("got", overflow="fold")
    expected, got = failure.expected or ["nothing"], failure.got or ["nothing"]
    for row in range(max(len(expected), len(got))):
        left = expected[row] if row < len(expected) else ""
        right = got[row] if row < len(got) else ""
        style = "" if left == right else "yellow"
        table.add_row(escape(left), escape(right), style=style)
    console.print(Padding(table, (0, 0, 0, 4)), soft_wrap=False)


# --- build and list ----------------------------------------------------------------------------


def run_build(arguments: argparse.Namespace, console: Console) -> int:
    written = write_pack(
        arguments.out,
        read_knobs(arguments.knobs, arguments.set),
        keeps_firing=not arguments.no_keep_firing_for,
    )
    console.print(
        f"[green]{count(len(written), 'file')} written to {escape(str(arguments.out))}[/]"
    )
    return 0


def run_list(arguments: argparse.Namespace, console: Console) -> int:
    rules = pack_rules()
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(rules)).decode() + "\n")
        return 0
    console.print(table_of(rules), soft_wrap=False)
    recording = sum(not rule.is_alert for rule in rules)
    alerts = len(rules) - recording
    console.print(f"{count(alerts, 'alert')}, {count(recording, 'recording rule')}")
    return 0


def table_of(rules: Sequence[PackRule]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("alert", "severity", "for", "theme", "what it means", "knobs"):
        table.add_column(name, overflow="fold")
    for rule in rules:
        if rule.is_alert:
            table.add_row(
                *map(
                    escape,
                    (
                        rule.name,
                        rule.severity,
                        rule.wait,
                        rule.theme,
                        plain_summary(rule.summary),
                        ", ".join(rule.knobs),
                    ),
                )
            )
    return table


VALUE = re.compile(r"\{\{[^{}]*\$value[^{}]*\}\}")
LABEL = re.compile(r"\{\{-?\s*\$labels\.(\w+)[^{}]*\}\}")


def plain_summary(text: str) -> str:
    """A summary without template syntax.

    >>> plain_summary("{{ $labels.host }} drops {{ $value | humanize }} packets")
    '<host> drops <value> packets'
    """
    return LABEL.sub(r"<\1>", VALUE.sub("<value>", text))
