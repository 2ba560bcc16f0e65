"""`fabricscope score --sources`: the fabric's faults, seen through one source of switches each."""

from __future__ import annotations

import argparse
import signal

import msgspec
from rich.console import Console
from rich.markdown import Markdown

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from simulator.score.sources.play import Trial, fabric_faults, play_all
from simulator.score.sources.readers import SOURCES
from simulator.score.sources.table import state, to_markdown

ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sources",
        nargs="?",
        const=ALL,
        metavar="NAMES",
        help=(
            "the fabric's faults on a cluster whose switches are seen through one source alone: "
            f"{', '.join(SOURCES)}, or several with commas between them (default all)"
        ),
    )
    parser.add_argument(
        "--with-agents",
        action="store_true",
        help="of --sources: hosts have agents as well; default: switches are all that is seen",
    )


def run_sources(arguments: argparse.Namespace) -> int:
    names = list(SOURCES) if arguments.sources == ALL else arguments.sources.split(",")
    for name in names:
        if name not in SOURCES:
            raise SettingsError(unknown("source", name, list(SOURCES)))
    known = sorted({fault for name in names for fault in fabric_faults(SOURCES[name])})
    for case in arguments.cases:
        if case not in known:
            raise SettingsError(unknown("fault of the fabric", case, known))
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    trials = [
        Trial(fault, seed, name, not arguments.with_agents)
        for seed in seeds
        for fault in known
        for name in names
        if fault in fabric_faults(SOURCES[name]) and fault in (arguments.cases or known)
    ]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    outcomes = []
    for done in play_all(trials, arguments.processes):
        outcomes.append(done)
        one = done.trial
        console.print(
            f"{len(outcomes)} of {len(trials)}: {one.source} {one.fault} {one.seed}: {state(done)}",
            markup=False,
        )
    text = to_markdown(outcomes, seeds)
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = msgspec.json.format(msgspec.json.encode(outcomes), indent=1) + b"\n"
    (arguments.out / "sources.json").write_bytes(document)
    (arguments.out / "sources.md").write_text(text, encoding="utf-8")
    console.print(Markdown(text))
    print(f"Written: {arguments.out / 'sources.json'}, {arguments.out / 'sources.md'}")
    return 1 if any(one.run.error for one in outcomes) else 0
