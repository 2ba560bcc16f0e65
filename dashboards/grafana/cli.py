"""`fabricscope dashboards`: write the Grafana dashboards, look for flaws, bring them to a Grafana.

Writing needs nothing but an agent's install. What a verb needs besides is imported when it is
called, and a missing package is named with what to install.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from collector.contract.errors import SettingsError
from dashboards.grafana.boards import discover
from dashboards.grafana.classic import text_of_json
from dashboards.grafana.commands import (
    EXIT_FAILED,
    add_annotate,
    add_only,
    add_push,
    chosen,
    our_boards,
    read_dashboard,
    run_annotate,
    run_push,
)
from dashboards.grafana.fields import Json
from dashboards.grafana.jumps import uid_of

OUT = Path("fabricscope-dashboards")

EXTRAS = {"promql_parser": "server"}
"""What brings a package; everything else that may be missing comes with `grafana`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")

    export = verbs.add_parser("export", help="write the dashboards as files")
    export.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"default {OUT}")
    add_only(export.add_argument)

    lint = verbs.add_parser("lint", help="find flaws of dashboards; default: ours")
    lint.add_argument("files", nargs="*", type=Path, metavar="FILE", help="Classic JSON")
    lint.add_argument(
        "--other-metrics",
        action="append",
        default=[],
        metavar="PREFIX",
        help="metrics that begin so are known although they are not ours",
    )

    add_push(verbs.add_parser("push", help="bring the dashboards to a Grafana"))
    add_annotate(verbs.add_parser("annotate", help="mark incidents on dashboards of your own"))


def run(arguments: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "export": run_export,
        "lint": run_lint,
        "push": lambda given: run_push(given, say),
        "annotate": lambda given: run_annotate(given, say),
    }
    try:
        return verbs[arguments.verb](arguments)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        raise SettingsError(
            f"dashboards {arguments.verb} needs {error.name}, which is not installed: "
            f"pip install 'fabricscope[{EXTRAS.get(name, 'grafana')}]'"
        ) from error


def say(line: str) -> None:
    """Print a line at once: a push that waits for a Grafana shows where."""
    print(line, flush=True)


def run_export(arguments: argparse.Namespace) -> int:
    made = chosen(our_boards(), arguments.only)
    texts = {f"{name}.json": text_of_json(dashboard) for name, dashboard in made.items()}
    write_files(arguments.out, texts)
    print(f"{count(len(made), 'dashboard')} written to {arguments.out}")
    return 0


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise SettingsError(f"--out {folder}: {error.strerror or error}") from error


def run_lint(arguments: argparse.Namespace) -> int:
    from dashboards.grafana.lint import check

    if arguments.files:
        looked_at: Mapping[str, Json] = {
            str(file): read_dashboard(file) for file in arguments.files
        }
    else:
        looked_at = our_boards()
    known = {uid_of(name) for name in discover()}
    known |= {str(dashboard.get("uid")) for dashboard in looked_at.values()}
    flaws = 0
    for name, dashboard in looked_at.items():
        for flaw in check(dashboard, known, arguments.other_metrics):
            print(f"{name}: {flaw}")
            flaws += 1
    result = count(flaws, "flaw") if flaws else "well"
    print(f"{count(len(looked_at), 'dashboard')}: {result}")
    return EXIT_FAILED if flaws else 0


def count(number: int, what: str) -> str:
    """A number and its noun.

    >>> count(1, "flaw"), count(3, "flaw")
    ('1 flaw', '3 flaws')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
