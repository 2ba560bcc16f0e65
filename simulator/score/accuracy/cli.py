"""`fabricscope score --accuracy`: trials and watches, kept line by line, and their tables."""

from __future__ import annotations

import argparse
import gc
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from collector.contract.errors import SettingsError
from simulator.score.accuracy.peace import Watch, Watched, play_watch
from simulator.score.accuracy.shapes import SHAPE, SIGHT, all_shapes, play_shape
from simulator.score.accuracy.table import markdown
from simulator.score.accuracy.trials import (
    BEFORE,
    HOSTS_LARGE,
    HOSTS_MEDIUM,
    HOSTS_SMALL,
    Played,
    Trial,
    before,
    beside,
    ladder,
    several,
)

TRIALS, PEACE, TABLES = "trials.jsonl", "peace.jsonl", "accuracy.md"
WATCH_HOURS = 2.0
DAYS_MAX = 365.0
GC_THRESHOLDS = (100_000, 50, 50)
"""As of a service (`api.http.serving`): records and series are held for minutes and make no cycles,
and a twentieth of the time went into looking at them again and again."""
SEVERAL_PER_SEED = 8
"""Seeds of trials with several faults for each seed of the ladder, which has 132 trials."""

Line = TypeVar("Line")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="how small, how many at once, how long in peace: trials without a service",
    )
    parser.add_argument(
        "--trials",
        choices=("all", "strengths", "several", "shapes", "probes", "none"),
        default="all",
        help="of --accuracy: which trials are played (default all)",
    )
    parser.add_argument(
        "--trial-hosts",
        type=int,
        choices=(HOSTS_SMALL, HOSTS_MEDIUM, HOSTS_LARGE),
        default=HOSTS_SMALL,
        help="of --accuracy: hosts of the cluster with one fault (default 16)",
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=0,
        metavar="N",
        help="of --accuracy: so many of the trials, drawn by the first seed (default: all)",
    )
    parser.add_argument(
        "--peace-days",
        type=float,
        default=0.0,
        metavar="N",
        help="of --accuracy: days of 512 GPUs in which nothing is wrong (default 0)",
    )


def family_of(kind: str) -> str:
    """What `--trials` calls a kind of trial."""
    if kind in (SHAPE, SIGHT):
        return "shapes"
    if kind == BEFORE:
        return "probes"
    return "strengths" if kind == "ladder" else "several"


def run_accuracy(arguments: argparse.Namespace) -> int:
    """Play what is not in the files of ``--out`` yet, then write the tables of all that is."""
    if arguments.sample < 0:
        raise SettingsError(f"--sample {arguments.sample}: must be 0 (all) or more")
    if not 0 <= arguments.peace_days <= DAYS_MAX:
        raise SettingsError(f"--peace-days {arguments.peace_days:g}: must be 0 to {DAYS_MAX:g}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    extra = range(seeds[0], seeds[0] + SEVERAL_PER_SEED * len(seeds))
    trials = [
        *ladder(seeds, arguments.trial_hosts),
        *several(extra),
        *beside(seeds),
        *all_shapes(seeds[:1]),
        *before(seeds, arguments.trial_hosts),
    ]
    trials = [one for one in trials if arguments.trials in ("all", family_of(one.kind))]
    trials = sampled(trials, arguments.sample, seeds[0])
    watches = [
        Watch(seed=seeds[0] + number, hours=WATCH_HOURS)
        for number in range(round(arguments.peace_days * 24 / WATCH_HOURS))
    ]
    known = {one.trial for one in read_lines(out / TRIALS, Played)}
    watched = {one.watch for one in read_lines(out / PEACE, Watched)}
    todo = (
        [one for one in trials if one not in known],
        [one for one in watches if one not in watched],
    )
    total, done = len(todo[0]) + len(todo[1]), 0
    with ProcessPoolExecutor(arguments.processes, initializer=collect_seldom) as pool:
        for name, line, words in played(pool, *todo):
            with (out / name).open("ab") as file:
                file.write(line + b"\n")
            done += 1
            console.print(f"{done} of {total}: {words}", markup=False, highlight=False)
    text = markdown(read_lines(out / TRIALS, Played), read_lines(out / PEACE, Watched))
    (out / TABLES).write_text(text, encoding="utf-8")
    console.print(Markdown(text))
    print(f"Written: {out / TRIALS}, {out / PEACE}, {out / TABLES}")
    return 0


def sampled(trials: Sequence[Trial], count: int, seed: int) -> list[Trial]:
    """So many of them in the order in which they were drawn; all of them for 0."""
    if not count:
        return list(trials)
    order = np.random.default_rng([seed, *b"sample"]).permutation(len(trials))
    return [trials[place] for place in order[:count].tolist()]


def collect_seldom() -> None:
    gc.set_threshold(*GC_THRESHOLDS)


def played(
    pool: ProcessPoolExecutor, trials: Sequence[Trial], watches: Sequence[Watch]
) -> Iterator[tuple[str, bytes, str]]:
    """The file, its line and words for a person, as they end: which it was, and its time."""
    started: dict[Future[Any], tuple[str, str]] = {}
    for trial in trials:
        started[pool.submit(play_shape, trial)] = (TRIALS, trial.name)
    for watch in watches:
        started[pool.submit(play_watch, watch)] = (PEACE, f"peace {watch.seed}")
    for future in as_completed(started):
        name, words = started[future]
        result = future.result()
        yield name, msgspec.json.encode(result), f"{words}, {result.cpu_seconds:.0f} s of a core"


def read_lines(path: Path, kind: type[Line]) -> list[Line]:
    if not path.exists():
        return []
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(line) for line in path.read_bytes().splitlines() if line]
