"""`fabricscope score --week`: what a week costs a fleet, without us and with us."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import msgspec
from rich.console import Console
from rich.markdown import Markdown

from collector.contract.errors import SettingsError
from simulator.score.week.draw import draw
from simulator.score.week.model import Arm, Outcome, Spec
from simulator.score.week.table import week_markdown
from simulator.score.week.yard import play

HOSTS_MIN, HOSTS_MAX = 64, 4096
"""Fewer have no room for a drain within two in a hundred."""
SEEDS_MAX = 100
FALSE_MAX = 1000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    spec = Spec()
    parser.add_argument(
        "--week",
        action="store_true",
        help="a week of a fleet instead: GPU-hours lost without us and with us",
    )
    parser.add_argument(
        "--hosts",
        type=int,
        default=spec.hosts,
        metavar="N",
        help=f"of the week's fleet (default {spec.hosts})",
    )
    parser.add_argument(
        "--false-per-day",
        type=float,
        default=spec.false_per_day,
        metavar="X",
        help=f"verdicts about nothing in the week's fleet (default {spec.false_per_day:g})",
    )


def run_week(arguments: argparse.Namespace) -> int:
    for flag, value, least, most in (
        ("--hosts", arguments.hosts, HOSTS_MIN, HOSTS_MAX),
        ("--seeds", arguments.seeds, 1, SEEDS_MAX),
        ("--false-per-day", arguments.false_per_day, 0, FALSE_MAX),
    ):
        if not least <= value <= most:
            raise SettingsError(f"{flag} {value:g}: must be {least:g} to {most:g}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    spec = Spec(hosts=arguments.hosts, false_per_day=arguments.false_per_day)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    console = Console()
    outcomes = []
    for done in play_all(spec, seeds, arguments.processes):
        outcomes.append(done)
        console.print(f"seed {done.seed}, {done.arm}: {done.losses.lost:,.0f} GPU-hours lost")
    text = week_markdown(spec, outcomes)
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = {"spec": spec, "outcomes": outcomes}
    (arguments.out / "week.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    )
    (arguments.out / "week.md").write_text(text, encoding="utf-8")
    console.print(Markdown(text))
    print(f"Written: {arguments.out / 'week.json'}, {arguments.out / 'week.md'}")
    return 0


def play_all(spec: Spec, seeds: Sequence[int], processes: int) -> Iterator[Outcome]:
    wanted = [(spec, seed, arm) for seed in seeds for arm in Arm]
    if processes == 1:
        yield from map(play_one, wanted)
        return
    with ProcessPoolExecutor(min(processes, len(wanted))) as pool:
        yield from pool.map(play_one, wanted)


def play_one(wanted: tuple[Spec, int, Arm]) -> Outcome:
    spec, seed, arm = wanted
    return play(spec, draw(spec, seed), seed, arm)
