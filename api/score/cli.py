"""`fabricscope score`: how well faults are found that we know, because we made them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from api.score.cases import case_names
from api.score.marks import mark
from api.score.report import Scoreboard, to_json, to_markdown
from api.score.run import run_all
from api.version import VERSION
from collector.contract.errors import SettingsError
from collector.contract.layers import unknown

SEEDS_DEFAULT = 3
SEEDS_MAX = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `score`."""
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="faults, or healthy ones (default: all)"
    )
    parser.add_argument(
        "--seeds", type=int, default=SEEDS_DEFAULT, metavar="N", help="runs of each case"
    )
    parser.add_argument(
        "--first-seed", type=int, default=1, metavar="N", help="the first of these seeds"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="cases that run at the same time (default: one for each core)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build"),
        metavar="DIR",
        help="folder for score.json and score.md (default build)",
    )
    parser.add_argument("--list", action="store_true", help="print the cases and exit")


def run(arguments: argparse.Namespace) -> int:
    """Run the cases, write the scoreboard, show it."""
    console = Console()
    if arguments.list:
        print("\n".join(case_names()))
        return 0
    cases = check_cases(arguments.cases)
    if not 1 <= arguments.seeds <= SEEDS_MAX or arguments.processes < 1:
        raise SettingsError(
            f"--seeds {arguments.seeds} --processes {arguments.processes}: "
            f"seeds from 1 to {SEEDS_MAX}, processes from 1"
        )
    seeds = list(range(arguments.first_seed, arguments.first_seed + arguments.seeds))
    wanted = [(name, seed) for seed in seeds for name in cases]
    runs = []
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=len(wanted))
        for done in run_all(wanted, arguments.processes):
            runs.append(done)
            progress.update(task, advance=1, description=f"{done.case} {done.seed}")
    order = {case: number for number, case in enumerate(wanted)}
    runs.sort(key=lambda one: order[one.case, one.seed])
    board = Scoreboard(version=VERSION, seeds=seeds, marks=mark(runs), runs=runs)
    text = to_markdown(board)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "score.json").write_bytes(to_json(board))
    (arguments.out / "score.md").write_text(text, encoding="utf-8")
    console.print(Markdown(text))
    console.print(f"Written: {arguments.out / 'score.json'}, {arguments.out / 'score.md'}")
    return 1 if board.marks.broken else 0


def check_cases(names: list[str]) -> list[str]:
    """All cases, or those that were named."""
    known = case_names()
    for name in names:
        if name not in known:
            raise SettingsError(unknown("case", name, known))
    return names or known
