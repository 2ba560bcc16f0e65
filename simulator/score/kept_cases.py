"""`fabricscope score --cases`: cases that operators judged, judged again by this version.

Neither a store nor a service is needed: a case has the whole window.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from alerts.cases.compare import Mark, compare
from alerts.cases.model import ReplayCase
from alerts.cases.packed import CASE_BYTES_MAX, unpack
from alerts.cases.words import told_words, truth_words
from api.base.metrics import ServiceMetrics
from api.oncall.evaluate.detect import GuardedDetectors
from collector.contract.errors import CaseError, SettingsError

SUFFIX = ".case"
FILES_MAX = 10_000
"""Cases of one run: an hour or more."""
NOT_READ = "not read"
BROKEN = "broken"
EXIT_DIFFERS = 1
TEXT_COLUMNS = 160
"""The width without a terminal."""


class CaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    name: str
    said: str
    says: str
    mark: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cases",
        dest="case_folder",
        type=Path,
        metavar="DIR",
        help=f"judge the cases (*{SUFFIX}) of a folder again instead, and compare with what "
        "operators said about them",
    )


def run_cases(arguments: argparse.Namespace) -> int:
    """1 if a case is judged otherwise than its operator did, or cannot be judged."""
    files = find_files(arguments.case_folder)
    rows = list(judge_files(files))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = TEXT_COLUMNS
    console.print(table_of(rows))
    console.print(sum_of(rows))
    fine = (Mark.AGREES, Mark.UNKNOWN)
    return 0 if all(row.mark in fine for row in rows) else EXIT_DIFFERS


def find_files(folder: Path) -> list[Path]:
    """A SettingsError if there are none, or too many."""
    if not folder.is_dir():
        raise SettingsError(f"--cases {folder}: is no folder")
    files = sorted(file for file in folder.glob(f"*{SUFFIX}") if file.is_file())
    if not files:
        raise SettingsError(
            f"--cases {folder}: no file there ends in {SUFFIX}; fabricscope case export makes them"
        )
    if len(files) > FILES_MAX:
        raise SettingsError(f"--cases {folder}: {len(files)} cases; at most {FILES_MAX} at once")
    return files


def judge_files(files: Sequence[Path]) -> Iterator[CaseRow]:
    for file in files:
        try:
            with file.open("rb") as opened:
                case = unpack(opened.read(CASE_BYTES_MAX + 1))
        except (CaseError, OSError) as error:
            yield CaseRow(name=file.stem, said="", says=str(error), mark=NOT_READ)
            continue
        yield judge_case(file.stem, case)


def judge_case(name: str, case: ReplayCase) -> CaseRow:
    """As the service judges a round; a detector that breaks makes the case broken."""
    panel = GuardedDetectors(ServiceMetrics())
    verdicts = panel.judge(case.window, panel.find(case.window))
    said = truth_words(case.truth)
    if panel.broken or verdicts is None:
        return CaseRow(name=name, said=said, says=", ".join(panel.broken), mark=BROKEN)
    found = compare(case.truth, verdicts)
    return CaseRow(name=name, said=said, says=told_words(found.told), mark=found.mark)


def table_of(rows: Sequence[CaseRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("CASE", "THE OPERATOR SAID", "THIS VERSION SAYS", ""):
        table.add_column(head, overflow="fold", no_wrap=head in {"CASE", ""})
    for row in rows:
        table.add_row(*(Text(cell) for cell in (row.name, row.said, row.says, row.mark)))
    return table


def sum_of(rows: Sequence[CaseRow]) -> str:
    """How many cases agree, and how many do not.

    >>> sum_of([CaseRow(name="a", said="", says="", mark="agrees")])
    '1 case: 1 agrees, 0 wrong, 0 unknown'
    """
    count = Counter(row.mark for row in rows)
    parts = [f"{count[mark]} {mark}" for mark in Mark]
    parts += [f"{count[mark]} {mark}" for mark in (NOT_READ, BROKEN) if count[mark]]
    return f"{len(rows)} case{'' if len(rows) == 1 else 's'}: {', '.join(parts)}"
