"""`fabricscope init`: print a whole configuration, every setting with its meaning and default."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Protocol, cast

from collector.agent.settings import AgentSettings
from collector.contract.example import example_of
from collector.sources import discover

SWITCH_SOURCES = frozenset({"snmp", "gnmi", "ib_fabric"})
"""What a poller reads; an agent reads the others."""
SERVICE_EXAMPLE = "api.http.example"
"""Named and not imported: an agent's install has no server's packages."""


class ServiceExample(Protocol):
    """What the service's module offers."""

    def service_example(self) -> str: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=["agent", "service", "poller"],
        help="whose configuration; write it to a file: fabricscope init agent > agent.toml",
    )


def run(arguments: argparse.Namespace) -> int:
    texts: dict[str, Callable[[], str]] = {
        "agent": agent_example,
        "poller": poller_example,
        "service": service_example,
    }
    sys.stdout.write(texts[arguments.what]())
    return 0


def agent_example() -> str:
    return of_agent(
        "Settings of an agent: fabricscope agent --config FILE. A line that begins with # and a "
        "name shows a default; remove the # to change it. The environment (FABRICSCOPE_AGENT_NAME) "
        "and flags win over this file.",
        is_poller=False,
    )


def poller_example() -> str:
    return of_agent(
        "Settings of a poller, which is an agent that reads switches: fabricscope agent --config "
        "FILE. A line that begins with # and a name shows a default; remove the # to change it. "
        "Switches are added as [[sources.snmp.switches]] with a name and an address.",
        is_poller=True,
    )


def of_agent(title: str, *, is_poller: bool) -> str:
    tables = {
        f"sources.{name}": source.Settings
        for name, source in discover().items()
        if (name in SWITCH_SOURCES) is is_poller
    }
    return example_of(AgentSettings, title=title, tables=tables, left_out=frozenset({"sources"}))


def service_example() -> str:
    from collector.cli import load_verb  # noqa: PLC0415 - it imports this module

    module = cast("ServiceExample", load_verb("init service", SERVICE_EXAMPLE))
    return module.service_example()
