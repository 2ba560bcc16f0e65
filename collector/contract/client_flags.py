"""The flags by which a command selects the service and the token: one set for all commands."""

from __future__ import annotations

import argparse
import os

SERVICE = "http://127.0.0.1:9700"
SERVICE_VARIABLE = "FABRICSCOPE_SERVICE"
TOKEN_VARIABLE = "FABRICSCOPE_TOKEN"  # noqa: S105 - the name of a variable


def add_client_flags(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--service",
        default=os.environ.get(SERVICE_VARIABLE, SERVICE),
        metavar="URL",
        help=f"the service; or {SERVICE_VARIABLE} (default %(default)s)",
    )
    parser.add_argument(
        "--token-file",
        default="",
        metavar="FILE",
        help=f"holds the bearer token; or {TOKEN_VARIABLE}",
    )
    parser.add_argument("--ca-file", default="", metavar="FILE", help="certificates to trust, PEM")


def token_beside(token_file: str) -> str:
    """The environment's token; empty where a token file is given, which takes precedence."""
    return "" if token_file else os.environ.get(TOKEN_VARIABLE, "")
