"""`fabricscope score`: how well simulated faults are found."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from api.base.version import VERSION
from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from collector.contract.targets import check_folder
from simulator.engine import Simulation
from simulator.interfaces.run_folder import RunFolder
from simulator.score import kept_cases
from simulator.score.accuracy import cli as accuracy
from simulator.score.cases import case_names, make_case
from simulator.score.day import FAULTS_DEFAULT, HOURS_DEFAULT, SHIFTS_DEFAULT, Shift, make_shift
from simulator.score.handicap import Handicap
from simulator.score.marks import Run, mark
from simulator.score.oncall import watch_all
from simulator.score.pages import day_markdown, mark_day
from simulator.score.report import Scoreboard, to_json, to_markdown
from simulator.score.run import run_all
from simulator.score.sources import cli as sources
from simulator.score.week import cli as week

SEEDS_DEFAULT = 1
"""A quarter of an hour on two cores."""
SEEDS_MAX = 1000
SEED_MOST = 1_000_000_000
PROCESSES_MAX = 1000
HOURS_MAX, FAULTS_MAX, SHIFTS_MAX = 1000.0, 1000, 100
"""A month and a half; more is a job for several runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="faults, or healthy ones (default: all)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS_DEFAULT,
        metavar="N",
        help=f"runs of each case (default {SEEDS_DEFAULT})",
    )
    parser.add_argument(
        "--first-seed", type=int, default=1, metavar="N", help="the first of these (default 1)"
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
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="write what one case with one seed leaves behind, for diagnose, and mark nothing",
    )
    parser.add_argument(
        "--without",
        choices=[each.value for each in Handicap],
        default=Handicap.NONE.value,
        help="what is taken away, to see what still works (default none)",
    )
    parser.add_argument("--list", action="store_true", help="print the cases and exit")
    parser.add_argument(
        "--day",
        action="store_true",
        help="a day on call instead: faults one after the other, and the pages that are sent",
    )
    week.add_arguments(parser)
    accuracy.add_arguments(parser)
    kept_cases.add_arguments(parser)
    sources.add_arguments(parser)
    add_day_arguments(parser)


def add_day_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hours",
        type=float,
        default=HOURS_DEFAULT,
        metavar="N",
        help=f"how long the day is (default {HOURS_DEFAULT:g})",
    )
    parser.add_argument(
        "--faults",
        type=int,
        default=FAULTS_DEFAULT,
        metavar="N",
        help=f"faults of the day, 0 for a healthy one (default {FAULTS_DEFAULT})",
    )
    parser.add_argument(
        "--shifts",
        type=int,
        default=SHIFTS_DEFAULT,
        metavar="N",
        help=f"parts of the day, each on a cluster of its own (default {SHIFTS_DEFAULT})",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        print("\n".join(case_names()))
        return 0
    if arguments.case_folder is not None:
        return kept_cases.run_cases(arguments)
    # Before the work of minutes or hours, not after it.
    check_folder(arguments.folder or arguments.out)
    for is_asked, run_it in (
        (arguments.day, run_day),
        (arguments.week, week.run_week),
        (arguments.accuracy, accuracy.run_accuracy),
        (arguments.sources, sources.run_sources),
    ):
        if is_asked:
            return run_it(arguments)
    cases = check(arguments)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    # A supervisor's request to end ends us as Ctrl-C does: nothing is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    if arguments.folder:
        write_folder(cases[0], seeds[0], arguments.folder)
        print(f"Written: {arguments.folder}. Try: fabricscope diagnose {arguments.folder}")
        return 0
    runs = run_with_progress([(name, seed) for seed in seeds for name in cases], arguments, console)
    board = Scoreboard(
        version=VERSION, seeds=list(seeds), without=arguments.without, marks=mark(runs), runs=runs
    )
    text = to_markdown(board)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "score.json").write_bytes(to_json(board))
    (arguments.out / "score.md").write_text(text, encoding="utf-8")
    console.print(Markdown(text))
    print(f"Written: {arguments.out / 'score.json'}, {arguments.out / 'score.md'}")
    return 1 if board.marks.broken else 0


def run_day(arguments: argparse.Namespace) -> int:
    for flag, value, least, most in (
        ("--hours", arguments.hours, 0.5, HOURS_MAX),
        ("--faults", arguments.faults, 0, FAULTS_MAX),
        ("--shifts", arguments.shifts, 1, SHIFTS_MAX),
        ("--processes", arguments.processes, 1, PROCESSES_MAX),
    ):
        if not least <= value <= most:
            raise SettingsError(f"{flag} {value:g}: must be {least:g} to {most:g}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shifts = [
        Shift(
            seed=arguments.first_seed,
            number=number,
            shifts=arguments.shifts,
            hours=arguments.hours,
            faults=arguments.faults,
        )
        for number in range(arguments.shifts)
    ]
    make_shift(shifts[0])  # fails at once for what cannot be
    console = Console()
    watches = []
    for done in watch_all(shifts, arguments.processes):
        watches.append(done)
        console.print(f"shift {done.shift.number}: {len(done.pages)} pages", markup=False)
    watches.sort(key=lambda each: each.shift.number)
    marks = mark_day(watches)
    text = day_markdown(marks)
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = msgspec.json.format(msgspec.json.encode(watches), indent=1) + b"\n"
    (arguments.out / "day.json").write_bytes(document)
    (arguments.out / "day.md").write_text(text, encoding="utf-8")
    console.print(Markdown(text))
    print(f"Written: {arguments.out / 'day.json'}, {arguments.out / 'day.md'}")
    return 1 if marks.broken else 0


def run_with_progress(
    wanted: Sequence[tuple[str, int]], arguments: argparse.Namespace, console: Console
) -> list[Run]:
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    runs = {}
    handicap = Handicap(arguments.without)
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=len(wanted))
        for done in run_all(wanted, arguments.processes, handicap=handicap):
            runs[done.case, done.seed] = done
            progress.update(task, advance=1, description=f"{done.case} {done.seed}")
            if done.error:
                progress.console.print(f"{done.case} {done.seed}: {done.error}", markup=False)
            elif not console.is_terminal:
                # Where no bar can move, as in a log, a line shows progress.
                console.print(f"{len(runs)} of {len(wanted)}: {done.case} {done.seed}")
    return [runs[case] for case in wanted]


def write_folder(case: str, seed: int, folder: Path) -> None:
    """The files of a case's hosts as a capture: the same run as on the scoreboard."""
    simulation = Simulation(make_case(case, seed))
    written = RunFolder(folder)
    for snapshot in simulation.run():
        written.write(snapshot)
    written.close(simulation.truths())


def check(arguments: argparse.Namespace) -> list[str]:
    """All cases, or those that were named, each once; a SettingsError if something is wrong."""
    known = case_names()
    for name in arguments.cases:
        if name not in known:
            raise SettingsError(unknown("case", name, known))
    cases = list(dict.fromkeys(arguments.cases)) or known
    for flag, value, least, most in (
        ("--seeds", arguments.seeds, 1, SEEDS_MAX),
        ("--first-seed", arguments.first_seed, 0, SEED_MOST),
        ("--processes", arguments.processes, 1, PROCESSES_MAX),
    ):
        if not least <= value <= most:
            raise SettingsError(f"{flag} {value}: must be {least} to {most}")
    folder = arguments.folder
    if folder and (len(cases), arguments.seeds) != (1, 1):
        raise SettingsError("--folder takes one case and one seed: name a case")
    if folder and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"--folder {folder}: is there and not an empty folder")
    return cases
