"""`fabricscope hosts`: list hosts and when they were last seen; remove those that are gone."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from api.remote.cases.cli import by_of
from api.remote.client import Client, ServiceError, Target, quoted
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError

EXIT_FAILED = 1
PAGE = 1_000
HOUR_SECONDS = 3_600.0

Answer = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")
    listing = verbs.add_parser("list", help="hosts by name, and when they were last seen")
    listing.add_argument(
        "--silent",
        type=float,
        metavar="HOURS",
        help="only those that were not seen for so many hours",
    )
    listing.add_argument("--json", action="store_true", help="for programs")
    remove = verbs.add_parser("remove", help="remove hosts that are gone, and all of theirs")
    remove.add_argument("host", nargs="+")
    remove.add_argument(
        "--by", default="", metavar="NAME", help="your name for the record (default: your user)"
    )
    for each in (listing, remove):
        add_client_flags(each)


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "list" and arguments.silent is not None and not arguments.silent >= 0:
        raise SettingsError(f"--silent is {arguments.silent:g}; 0 hours or more")
    target = Target.of(arguments, "operate" if arguments.verb == "remove" else "read")
    target.read_token()
    client = Client(target, "hosts", for_terminal=True)
    try:
        return remove(client, arguments) if arguments.verb == "remove" else show(client, arguments)
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()


def pages(client: Client) -> Iterator[Answer]:
    """All hosts and switches, by name."""
    for role in ("host", "switch"):
        after: dict[str, str] = {}
        while True:
            page = client.get("/v1/hosts", Answer, limit=PAGE, role=role, all="true", **after)
            yield from page["items"]
            if not page["next"]:
                break
            after = {"after": page["next"]}


def show(client: Client, arguments: argparse.Namespace) -> int:
    found = []
    for host in pages(client):
        last_s = dt.datetime.fromisoformat(host["last_seen"]).timestamp()
        hours = max(0.0, client.now_s - last_s) / HOUR_SECONDS
        if arguments.silent is None or hours >= arguments.silent:
            found.append(host | {"silent_hours": round(hours, 2)})
    if arguments.json:
        print(msgspec.json.encode(found).decode())
        return 0
    width = max((len(host["host"]) for host in found), default=4)
    print(f"{'HOST':<{width}}  ROLE    LAST SEEN             SILENT")
    for host in found:
        seen = host["last_seen"][:19].replace("T", " ")
        hours = host["silent_hours"]
        print(f"{host['host']:<{width}}  {host['role']:<6}  {seen}Z  {hours:.1f} h")
    return 0


def remove(client: Client, arguments: argparse.Namespace) -> int:
    """Each by itself; those that can be removed are, also where another one cannot."""
    status = 0
    for host in arguments.host:
        try:
            path = f"/v1/hosts/{quoted(host)}"
            removed = client.send("DELETE", path, b"", Answer, by=by_of(arguments))
        except ServiceError as error:
            print(f"fabricscope: {error}", file=sys.stderr)
            status = EXIT_FAILED
        else:
            print(f"{removed['host']} is removed; it was last seen {removed['last_seen']}")
    return status
