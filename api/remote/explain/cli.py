"""`fabricscope explain`: what an incident is, in words."""

from __future__ import annotations

import argparse
import io
import sys

from api.remote.client import Client, ServiceError, Target
from api.remote.incidents.show import read_markdown, show
from collector.contract.client_flags import add_client_flags

EXIT_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "incident", help="its id, as alerts and `fabricscope incident list` have it"
    )
    parser.add_argument("--markdown", action="store_true", help="as it is, for a ticket or a wiki")
    add_client_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    target = Target.of(arguments, "read")
    target.read_token()
    client = Client(target, "explain", for_terminal=True)
    try:
        text = read_markdown(client, arguments.incident)
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()
    show(text, is_drawn=False if arguments.markdown else None)
    return 0
