"""`fabricscope explain`: what an incident is, in words."""

from __future__ import annotations

import argparse
import io
import sys

import msgspec

from alerts.compare.model import StepsCompared
from api.remote.client import Client, ServiceError, Target, quoted
from api.remote.incidents.show import path_of, read_markdown, show
from collector.contract.client_flags import add_client_flags
from collector.contract.figures import duration, shown
from collector.contract.units import NS
from collector.contract.verdict import Verdict

EXIT_FAILED = 1
RANKS_SHOWN_MAX = 32
"""Ranks in a terminal, the first in the order of blame."""


class Incident(msgspec.Struct):
    """What is needed of one."""

    verdict: Verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "incident", help="its id, as alerts and `fabricscope incident list` have it"
    )
    parser.add_argument(
        "--steps", action="store_true", help="its job's slow steps against those before, by rank"
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
        if arguments.steps:
            text = steps_markdown(client, arguments.incident)
        else:
            text = read_markdown(client, arguments.incident)
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()
    show(text, is_drawn=False if arguments.markdown else None)
    return 0


def steps_markdown(client: Client, incident: str) -> str:
    """The comparison of the incident's first job, as a sentence and a table.

    Raises ServiceError, also where the incident concerns no job.
    """
    story = client.get(path_of(incident), Incident)
    if not story.verdict.jobs:
        raise ServiceError(f"incident {incident} concerns no job: there are no steps to compare")
    path = f"/v1/jobs/{quoted(story.verdict.jobs[0])}/steps/compare"
    return as_markdown(client.get(path, StepsCompared, incident=incident))


def as_markdown(found: StepsCompared) -> str:
    lines = [found.sentence, "", *(f"Not known: {reason}.\n" for reason in found.unknown)]
    if found.ranks:
        lines += [
            "| rank | host | in these steps | own | waiting | transfer |",
            "|---|---|---|---|---|---|",
        ]
    for one in found.ranks[:RANKS_SHOWN_MAX]:
        who = f"**{one.rank}** accused" if one.is_accused else str(one.rank)
        parts = (one.excess.own_ns, one.excess.wait_ns, one.excess.transfer_ns)
        cells = [who, shown(one.host), one.role.replace("_", " "), *map(signed, parts)]
        lines.append(f"| {' | '.join(cells)} |")
    more = len(found.ranks) - RANKS_SHOWN_MAX + found.ranks_left_out
    lines += [f"\n{more:,} more ranks."] if more > 0 else []
    lines += [
        f"\nReplayed {one.title}: a step takes {duration(one.step_ns / NS)}."
        for one in found.without
    ]
    return "\n".join(lines) + "\n"


def signed(excess_ns: int | None) -> str:
    """An excess with its sign.

    >>> signed(30_000_000), signed(-2_000_000), signed(None)
    ('+30.0 ms', '-2.00 ms', 'not known')
    """
    if excess_ns is None:
        return "not known"
    return f"{'+' if excess_ns > 0 else ''}{duration(excess_ns / NS)}"
