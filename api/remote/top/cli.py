"""`fabricscope top`: a live view in the terminal, of a service here or elsewhere."""

from __future__ import annotations

import argparse
import os
import sys

from rich.console import Console

from api.remote.client import ServiceError, Target
from api.remote.top.app import run_live
from api.remote.top.ask import ask, open_client
from api.remote.top.model import Order, View, Wanted
from api.remote.top.plain import as_json, as_lines
from api.remote.top.screen import LISTS, Screen
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError

EXIT_FAILED = 1
INTERVAL_S = 2.0
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.5, 3_600.0
"""Agents report every 5 s; and a screen that is renewed less than once an hour is no live view."""
TEXT_COLUMNS = 120
"""The width without a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    parser.add_argument(
        "--interval",
        type=float,
        default=INTERVAL_S,
        metavar="SECONDS",
        help="how often to ask; incidents come at once (default %(default)s)",
    )
    parser.add_argument(
        "--view", choices=[view.value for view in LISTS], help="what to begin with, or show once"
    )
    parser.add_argument(
        "--order",
        choices=[order.value for order in Order],
        default=Order.UTILISATION.value,
        help="which links are the worst (default %(default)s)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print it and exit, as without a terminal"
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    if not INTERVAL_S_MIN <= arguments.interval <= INTERVAL_S_MAX:
        raise SettingsError(
            f"--interval {arguments.interval:g}: between {INTERVAL_S_MIN:g} and "
            f"{INTERVAL_S_MAX:g} seconds"
        )
    target = Target.of(arguments)
    target.read_token()
    # A terminal that cannot encode ▸ gets a ?, not a trace.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
    order = Order(arguments.order)
    if arguments.once or arguments.json or not is_interactive(console):
        views = frozenset({View(arguments.view)} if arguments.view else LISTS)
        return print_once(target, views, order, as_program=arguments.json)
    screen = Screen(view=View(arguments.view or View.NOW), order=order)
    return run_live(target, console, arguments.interval, screen)


def is_interactive(console: Console) -> bool:
    # A program that was started with its input closed has none.
    has_keyboard = sys.stdin is not None and sys.stdin.isatty()
    return console.is_terminal and not console.is_dumb_terminal and has_keyboard


def print_once(target: Target, views: frozenset[View], order: Order, *, as_program: bool) -> int:
    client = open_client(target)
    try:
        picture = ask(client, Wanted(views=views, order=order))
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()
    if as_program:
        print(as_json(picture))
    else:
        has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
        console = Console(width=None if has_width else TEXT_COLUMNS)
        lines = as_lines(picture, views, order, url=client.url, width=console.width)
        for line in lines:
            console.print(line, highlight=False, no_wrap=True, overflow="ignore", crop=False)
    return EXIT_FAILED if picture.problems else 0
