"""`fabricscope case`: say whether a verdict is right, and take its window out without names."""

from __future__ import annotations

import argparse
import getpass
import hashlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from alerts.cases.model import Says
from alerts.cases.packed import CASE_BYTES_MAX
from alerts.cases.words import verdict_words
from api.remote.client import Bounds, Client, ServiceError, Target, quoted
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError
from collector.contract.verdict import Cause, Culprit

EXIT_FAILED = 1
TEXT_COLUMNS = 140
"""The width without a terminal."""
LIST_MAX = 50
PATIENT = Bounds(silence_s=120.0, answer_s=150.0, answer_bytes=2 * CASE_BYTES_MAX)
"""Reading a large cluster's window again, or scrubbing it, takes up to a minute of a core."""
SUFFIX = ".case"
NAME_DIGITS = 12
"""Of an exported file's name: by its content, because an incident's id tells when it was."""

Answer = dict[str, Any]
NUMBERS = ("rank", "gpu")
CULPRIT = tuple(Culprit.__struct_fields__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")
    say = verbs.add_parser("say", help="say whether an incident's verdict is right")
    say.add_argument("incident")
    say.add_argument("says", choices=[each.value for each in Says])
    say.add_argument("--cause", choices=[each.value for each in Cause], help="with other: what")
    for name in CULPRIT:
        say.add_argument(
            f"--{name.replace('_', '-')}",
            type=int if name in NUMBERS else str,
            metavar="N" if name in NUMBERS else "NAME",
            help="with other: who it was, if that is known",
        )
    say.add_argument("--note", default="", metavar="TEXT", help="for people; never exported")
    say.add_argument(
        "--by", default="", metavar="NAME", help="your name for the record (default: your user)"
    )
    show = verbs.add_parser("show", help="what was said about an incident, and its window")
    show.add_argument("incident")
    verbs.add_parser("list", help="what was said about all incidents, the latest first")
    export = verbs.add_parser(
        "export", help="write an incident's window and what was said to a file, without names"
    )
    export.add_argument("incident")
    export.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"default: a name by its content, ending in {SUFFIX}",
    )
    for name, each in verbs.choices.items():
        add_client_flags(each)
        if name != "export":
            each.add_argument("--json", action="store_true", help="the service's own answer")


def run(arguments: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    target = Target.of(arguments, "operate" if arguments.verb == "say" else "read")
    target.read_token()
    client = Client(target, "case", for_terminal=True, bounds=PATIENT)
    try:
        return DOINGS[arguments.verb](client, arguments)
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()


# --- what is asked ------------------------------------------------------------------------------

Doing = Callable[[Client, argparse.Namespace], int]


def path_of(incident: str, what: str) -> str:
    return f"/v1/incidents/{quoted(incident)}/{what}"


def say(client: Client, arguments: argparse.Namespace) -> int:
    culprit = {
        name: value for name in CULPRIT if (value := getattr(arguments, name)) not in (None, "")
    }
    body: Answer = {"says": arguments.says, "by": by_of(arguments), "note": arguments.note}
    if arguments.cause:
        body["cause"] = arguments.cause
    if culprit:
        body["culprit"] = culprit
    path = path_of(arguments.incident, "feedback")
    return shown(client.send("PUT", path, msgspec.json.encode(body), Answer), arguments, show_one)


def by_of(arguments: argparse.Namespace) -> str:
    try:
        return str(arguments.by or getpass.getuser())
    except (KeyError, OSError) as error:
        raise SettingsError("this system has no name for your user: give --by NAME") from error


def ask_one(client: Client, arguments: argparse.Namespace) -> int:
    return shown(client.get(path_of(arguments.incident, "feedback"), Answer), arguments, show_one)


def ask_list(client: Client, arguments: argparse.Namespace) -> int:
    return shown(client.get("/v1/feedback", Answer, limit=LIST_MAX), arguments, show_list)


def export(client: Client, arguments: argparse.Namespace) -> int:
    packed = client.read(path_of(arguments.incident, "case"))
    digest = hashlib.sha256(packed).hexdigest()[:NAME_DIGITS]
    file = arguments.output or Path(f"{digest}{SUFFIX}")
    try:
        file.write_bytes(packed)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    folder = file.parent
    print(f"Written: {file}, {len(packed):,} bytes. Try: fabricscope score --cases {folder}")
    return 0


DOINGS: dict[str, Doing] = {"say": say, "show": ask_one, "list": ask_list, "export": export}


# --- what is shown ------------------------------------------------------------------------------


def shown(
    answer: Answer, arguments: argparse.Namespace, show: Callable[[Console, Answer], None]
) -> int:
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else TEXT_COLUMNS
        show(Console(highlight=False, markup=False, emoji=False, width=width), answer)
    return 0


def show_list(console: Console, answer: Answer) -> None:
    console.print(table_of(answer["items"], with_incident=True))


def show_one(console: Console, answer: Answer) -> None:
    if not answer["items"]:
        console.print(f"{answer['incident']}: nothing was said about it yet")
    else:
        console.print(table_of(answer["items"], with_incident=False))
    case = answer["case"]
    if case is None:
        console.print("Its window is not kept.")
    elif case["state"] == "kept":
        console.print(f"Its window is kept, {case['bytes']:,} bytes. {case['words']}".rstrip())
    else:
        console.print(f"Its window is not kept ({case['state']}): {case['words']}")


def table_of(items: list[Answer], *, with_incident: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = ("AT", *(("INCIDENT",) if with_incident else ()), "BY", "SAYS", "VERDICT", "NOTE")
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in {"AT", "INCIDENT", "SAYS"})
    for item in items:
        incident = (item["incident"],) if with_incident else ()
        cells = (item["at"][:19], *incident, item["by"], item["says"], said(item), item["note"])
        table.add_row(*(Text(str(cell)) for cell in cells))
    return table


def said(item: Answer) -> str:
    """The verdict that is affirmed or refuted, or what it was instead."""
    is_other = item["says"] == Says.OTHER
    found = item if is_other else item["told"]
    culprit = msgspec.convert(found.get("culprit", {}), Culprit)
    return verdict_words(found["cause"], culprit)
