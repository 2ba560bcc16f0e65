"""`fabricscope shim`: print a file that runs in other people's programs."""

from __future__ import annotations

import argparse
import sys
from importlib import resources

SHIMS = ("steps", "client")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        choices=SHIMS,
        default="steps",
        help="steps: fabricscope_steps.py (default); client: fabricscope_client.py",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the file as it is installed, so that it fits this version's agents and service."""
    name = arguments.file
    shim = resources.files("collector.shims") / f"fabricscope_{name}.py"
    sys.stdout.write(shim.read_text("utf-8"))
    return 0
