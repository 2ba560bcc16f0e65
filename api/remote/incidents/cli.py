"""`fabricscope incident`: show an incident, acknowledge or assign it, note something about it."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from alerts.cases.words import verdict_words
from api.remote.cases.cli import by_of
from api.remote.client import Client, ServiceError, Target
from api.remote.incidents.show import TEXT_COLUMNS, path_of, read_markdown, show
from collector.contract.client_flags import add_client_flags
from collector.contract.verdict import Cause, Culprit

EXIT_FAILED = 1
LIST_MAX = 50

Answer = dict[str, Any]
Doing = Callable[[Client, argparse.Namespace], int]
DOES = {"ack": "acknowledge", "unack": "unacknowledge", "assign": "assign", "note": "note"}
"""The verbs that change something, and what the service calls them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")
    listing = verbs.add_parser("list", help="incidents, the latest first, and who has them")
    listing.add_argument("--open", action="store_true", help="only those that go on")
    shown = verbs.add_parser("show", help="all of one: what it is, what to do, who did what")
    shown.add_argument("incident")
    shown.add_argument("--markdown", action="store_true", help="as it is, for a ticket or a wiki")
    ack = verbs.add_parser("ack", help="acknowledge it: you have seen it and look after it")
    unack = verbs.add_parser("unack", help="take the acknowledgement back")
    assign = verbs.add_parser("assign", help="say who looks after it from now on")
    note = verbs.add_parser("note", help="note something for your colleagues")
    for each in (ack, unack, assign, note):
        each.add_argument("incident")
        each.add_argument(
            "--by", default="", metavar="NAME", help="your name for the record (default: your user)"
        )
    assign.add_argument("to", metavar="WHO", help="a name; '' for no person")
    note.add_argument("note", metavar="TEXT")
    for each in (ack, unack, assign):
        each.add_argument("--note", default="", metavar="TEXT", help="for your colleagues")
    for each in verbs.choices.values():
        add_client_flags(each)
        each.add_argument("--json", action="store_true", help="the service's own answer")


def run(arguments: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    target = Target.of(arguments, "operate" if arguments.verb in DOES else "read")
    target.read_token()
    client = Client(target, "incident", for_terminal=True)
    doing = {"list": ask_list, "show": show_one}.get(arguments.verb, work)
    try:
        return doing(client, arguments)
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()


# --- what is asked ------------------------------------------------------------------------------


def show_one(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json(client.get(path_of(arguments.incident), Answer))
    text = read_markdown(client, arguments.incident)
    show(text, is_drawn=False if arguments.markdown else None)
    return 0


def ask_list(client: Client, arguments: argparse.Namespace) -> int:
    wanted = {"state": "open"} if arguments.open else {}
    answer = client.get("/v1/incidents", Answer, limit=LIST_MAX, **wanted)
    return print_json(answer) if arguments.json else show_list(answer["items"])


def work(client: Client, arguments: argparse.Namespace) -> int:
    body = {"does": DOES[arguments.verb], "by": by_of(arguments), "note": arguments.note}
    if arguments.verb == "assign":
        body["to"] = arguments.to
    path = path_of(arguments.incident, "/work")
    answer = client.send("POST", path, msgspec.json.encode(body), Answer)
    if arguments.json:
        return print_json(answer)
    print(f"{answer['incident']}: {work_words(answer['work'])}")
    return 0


# --- what is shown ------------------------------------------------------------------------------


def print_json(answer: Answer) -> int:
    print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    return 0


def work_words(state: Answer) -> str:
    by, to = state.get("acknowledged_by", ""), state.get("assigned_to", "")
    words = f"acknowledged by {by}" if by else "not acknowledged"
    return f"{words}, assigned to {to}" if to else words


def show_list(items: list[Answer]) -> int:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("INCIDENT", "STATE", "VERDICT", "LOOKED AFTER"):
        table.add_column(head, overflow="fold", no_wrap=head in {"INCIDENT", "STATE"})
    for item in items:
        said = verdict_words(Cause(item["cause"]), msgspec.convert(item["culprit"], Culprit))
        cells = (item["id"], item["state"], said, work_words(item.get("work") or {}))
        table.add_row(*(Text(str(cell)) for cell in cells))
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else TEXT_COLUMNS
    Console(highlight=False, markup=False, emoji=False, width=width).print(table)
    return 0
