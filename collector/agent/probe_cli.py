"""`fabricscope probe HOST…`: probes by hand, from this host to others whose agents answer.

Targets, own rails and port are those of the agent's source `probes`; a running agent is not in the
way. The flows have other source ports than the agent's, and may be sent other ways.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from collector.agent.settings import load_settings
from collector.contract.errors import HostError, SettingsError
from collector.contract.units import NS
from collector.doors.host import Host
from collector.doors.probes import Plan, Sending
from collector.sources import discover
from collector.sources.probes import (
    ANSWER_SECONDS,
    LINK_BITS_LEAST,
    Rail,
    Settings,
    Target,
    parse_rail,
    parse_target,
    probes_of_round,
)

EXIT_LOST = 1
COUNT_DEFAULT, COUNT_MAX = 20, 1_000
TARGETS_MAX = 64
"""Of one call: a person reads the answer."""
SOURCE_PORTS_BEHIND = 100
"""So far behind the agent's port the flows begin, clear of the agent's own."""


class Way(msgspec.Struct, kw_only=True):
    """One flow to one target."""

    rail: str
    host: str
    address: str
    flow: int
    sent: int = 0
    lost: int = 0
    median_s: float | None = None
    longest_s: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", nargs="+", help="a host of the setting `targets`, or an address")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the agent's configuration")
    parser.add_argument("--rail", default="", metavar="NAME", help="of these rails only this one")
    parser.add_argument(
        "--count",
        type=int,
        default=COUNT_DEFAULT,
        metavar="N",
        help=f"probes on each flow, {COUNT_DEFAULT} if not given, {COUNT_MAX} at most",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = (
        "Probes go from this host to each of the others, and not between them: to probe between "
        "two others, call it on one of them. "
        "The other hosts' agents must have `probes` on, with this host among their targets. Exit "
        "status: 0 all were answered, 1 some were lost, 2 wrong usage."
    )


def run(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.count <= COUNT_MAX:
        raise SettingsError(f"--count {arguments.count}: from 1 to {COUNT_MAX}")
    types = {name: kind.Settings for name, kind in discover().items()}
    every = load_settings(types, file=arguments.config, environment=os.environ, flags={})
    settings = every.sources["probes"]
    assert isinstance(settings, Settings)
    rails = [rail for rail in map(parse_rail, settings.rails) if arguments.rail in {"", rail.name}]
    targets = choose(arguments.host, rails, [parse_target(line) for line in settings.targets])
    host = Host()
    try:
        ways = probe(host, settings, rails, targets, arguments.count)
    except HostError as error:
        raise SettingsError(f"cannot send probes: {error}") from error
    finally:
        host.close()
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(ways), indent=2).decode())
    else:
        print("\n".join(lines_of(ways)))
    return EXIT_LOST if any(way.lost for way in ways) else 0


def choose(wanted: Sequence[str], rails: Sequence[Rail], known: Sequence[Target]) -> list[Target]:
    """The targets that were named, on these rails. Raises SettingsError for a name that is none."""
    names = {rail.name for rail in rails}
    if not names:
        raise SettingsError("no rail of this host is known: set `rails` of the source `probes`")
    found = []
    for word in wanted:
        own = [one for one in known if word in {one.host, one.address} and one.rail in names]
        if not own:
            hosts = ", ".join(sorted({one.host for one in known})[:10]) or "none"
            raise SettingsError(f"{word} is no target of these rails; known are {hosts}")
        found += own
    if len(found) > TARGETS_MAX:
        raise SettingsError(f"{len(found)} targets; at most {TARGETS_MAX} at a time")
    return list(dict.fromkeys(found))


def probe(
    host: Host, settings: Settings, rails: Sequence[Rail], targets: Sequence[Target], count: int
) -> list[Way]:
    """Rounds to all of them, paced to a thousandth of a slow link."""
    plan = Plan(
        rails={rail.name: rail.address for rail in rails},
        peers=frozenset(),
        port=settings.port,
        flows=settings.flows,
        first_source_port=settings.port + SOURCE_PORTS_BEHIND,
        is_answering=False,
    )
    ways = [
        Way(rail=one.rail, host=one.host, address=one.address, flow=flow)
        for one in targets
        for flow in range(settings.flows)
    ]
    trips: list[list[int]] = [[] for _ in ways]
    sendings = [Sending(way.rail, way.address, way.flow) for way in ways]
    pause_s = len(ways) / probes_of_round(LINK_BITS_LEAST, 1.0)
    prober = host.prober(plan)
    try:
        for number in range(count):
            if number:
                prober.rest(pause_s)
            for place, trip_ns in enumerate(prober.round(sendings, ANSWER_SECONDS)):
                ways[place].sent += 1
                if trip_ns is None:
                    ways[place].lost += 1
                else:
                    trips[place].append(trip_ns)
    finally:
        prober.close()
    for way, own in zip(ways, trips, strict=True):
        if own:
            way.median_s, way.longest_s = statistics.median(own) / NS, max(own) / NS
    return ways


def lines_of(ways: Sequence[Way]) -> Iterator[str]:
    yield f"{'rail':10} {'to':24} flow  lost/sent    median   longest"
    for way in ways:
        times = (
            "no answer"
            if way.median_s is None or way.longest_s is None
            else f"{way.median_s * 1e6:6.0f} us {way.longest_s * 1e6:6.0f} us"
        )
        share = f"{way.lost}/{way.sent}"
        yield f"{way.rail:10} {way.host:24} {way.flow:4}  {share:>9} {times:>19}"
