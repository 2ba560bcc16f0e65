"""`fabricscope config`: roll a configuration out to agents, watch it, stop it, take it back."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from api.remote.cases.cli import by_of
from api.remote.client import Client, ServiceError, Target
from collector.agent.rollout.document import check_document
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError
from collector.contract.identity import printable
from collector.contract.rollout import DOCUMENT_BYTES_MAX, digest_of, read_key, sign
from collector.sources import discover

EXIT_FAILED = 1
PAGE = 1_000
SHARES = "5%,25%,100%"
PATH = "/v1/configurations"

Answer = dict[str, Any]
Doing = Callable[[Client, argparse.Namespace], int]
NEEDS = {"push": "admin", "resume": "admin", "stop": "operate", "back": "operate"}
"""The scope that a verb's token needs; the others need `read`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")
    check = verbs.add_parser("check", help="say whether agents could use a file; asks no service")
    push = verbs.add_parser("push", help="roll a file out to the agents that take part")
    for each in (check, push):
        each.add_argument("file", type=Path, metavar="FILE", help="settings of agents, TOML")
    status = verbs.add_parser(
        "status", help="the latest roll-out: share, agents, what it waits for"
    )
    hosts = verbs.add_parser("hosts", help="which version each agent runs, and how far it is")
    hosts.add_argument("--state", default="", metavar="STATE", help="only these: failed, good, …")
    show = verbs.add_parser("show", help="print the document of a version")
    show.add_argument("version", type=int)
    stop = verbs.add_parser("stop", help="reach no other agent; those that have it keep it")
    resume = verbs.add_parser("resume", help="go on after a stop, or with the next shares")
    back = verbs.add_parser("back", help="take all agents back to what was done before")
    add_plan(push, resume)
    for each in (push, stop, resume, back):
        each.add_argument("--why", default="", metavar="TEXT", help="for the record")
        each.add_argument(
            "--by", default="", metavar="NAME", help="your name for the record (default: your user)"
        )
    for each in (push, status, hosts, show, stop, resume, back):
        add_client_flags(each)
        each.add_argument("--json", action="store_true", help="the service's own answer")


def add_plan(push: argparse.ArgumentParser, resume: argparse.ArgumentParser) -> None:
    """What says how far it goes, and when it stops."""
    for each, default in ((push, SHARES), (resume, "")):
        each.add_argument(
            "--share",
            default=default,
            metavar="PERCENT,…",
            help="of the agents that take part; each share must be good before the next is told "
            + ("(default %(default)s)" if default else "(default: as before)"),
        )
        each.add_argument(
            "--failures-max",
            type=int,
            metavar="COUNT",
            help="so many agents that go back stop it (default 1; of resume: as before)",
        )
    push.add_argument(
        "--trial",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long each agent tries it before it is good there (default %(default)g)",
    )
    push.add_argument(
        "--key-file", type=Path, metavar="FILE", help="sign it with the key that agents hold"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "check":
        check_file(arguments.file)
        print(f"{arguments.file}: agents of this release can use it")
        return 0
    target = Target.of(arguments, NEEDS.get(arguments.verb, "read"))
    target.read_token()
    client = Client(target, "config", for_terminal=True)
    doing: dict[str, Doing] = {
        "push": push,
        "status": ask_status,
        "hosts": ask_hosts,
        "show": show_document,
    }
    try:
        return doing.get(arguments.verb, order)(client, arguments)
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()


def check_file(file: Path) -> bytes:
    """The document, which an agent of this release can use; SettingsError says why not."""
    try:
        with file.open("rb") as opened:
            document = opened.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    types = {name: source.Settings for name, source in discover().items()}
    check_document(document, types, str(file))
    return document


def shares_of(text: str) -> list[float]:
    """Percent, with or without the sign.

    >>> shares_of("5%, 25,100%")
    [5.0, 25.0, 100.0]
    """
    try:
        return [float(each.strip().removesuffix("%")) for each in text.split(",")]
    except ValueError as error:
        raise SettingsError(f"--share {text!r}: write percent, as {SHARES}") from error


# --- what is asked ------------------------------------------------------------------------------


def push(client: Client, arguments: argparse.Namespace) -> int:
    document = check_file(arguments.file)
    sha256 = digest_of(document)
    body: Answer = {
        "document": document.decode("utf-8"),
        "sha256": sha256,
        "by": by_of(arguments),
        "why": arguments.why,
        "shares": shares_of(arguments.share),
        "trial_seconds": arguments.trial,
        "failures_max": 1 if arguments.failures_max is None else arguments.failures_max,
    }
    if arguments.key_file is not None:
        latest = latest_of(client)
        body["version"] = 1 + (latest["version"] if latest is not None else 0)
        body["signature"] = sign(read_key(arguments.key_file), body["version"], sha256)
    answer = client.send("POST", PATH, msgspec.json.encode(body), Answer)
    return print_json(answer) if arguments.json else print_version(answer)


def order(client: Client, arguments: argparse.Namespace) -> int:
    """Stop, resume or back, of the latest version."""
    latest = latest_of(client)
    if latest is None:
        raise SettingsError("no configuration was pushed yet")
    body: Answer = {"by": by_of(arguments), "why": arguments.why}
    if arguments.verb == "resume":
        body["shares"] = shares_of(arguments.share) if arguments.share else None
        body["failures_max"] = arguments.failures_max
    path = f"{PATH}/{latest['version']}/{arguments.verb}"
    answer = client.send("POST", path, msgspec.json.encode(body), Answer)
    return print_json(answer) if arguments.json else print_version(answer)


def latest_of(client: Client) -> Answer | None:
    items = client.get(PATH, Answer, limit=1)["items"]
    return items[0] if items else None


def ask_status(client: Client, arguments: argparse.Namespace) -> int:
    latest = latest_of(client)
    if latest is None:
        print("null" if arguments.json else "no configuration was pushed yet")
        return 0
    answer = client.get(f"{PATH}/{latest['version']}", Answer)
    return print_json(answer) if arguments.json else print_status(answer)


def agents_of(client: Client) -> Iterator[Answer]:
    after: dict[str, str] = {}
    while True:
        page = client.get("/v1/agents/configurations", Answer, limit=PAGE, **after)
        yield from page["items"]
        if not page["next"]:
            break
        after = {"after": page["next"]}


def ask_hosts(client: Client, arguments: argparse.Namespace) -> int:
    found = [each for each in agents_of(client) if arguments.state in {"", each["state"] or "none"}]
    if arguments.json:
        print(msgspec.json.encode(found).decode())
        return 0
    width = max((len(each["agent"]) for each in found), default=4)
    print(f"{'HOST':<{width}}  VERSION  STATE    WHY")
    for each in found:
        line = f"{each['agent']:<{width}}  {each['version']:<7}  {each['state'] or '-':<7}"
        print(f"{line}  {each['detail']}".rstrip())
    return 0


def show_document(client: Client, arguments: argparse.Namespace) -> int:
    """Line by line: a document for people may have line breaks, and nothing else that acts."""
    body = client.read(f"{PATH}/{arguments.version}")
    answer = msgspec.json.decode(body)
    if arguments.json:
        return print_json(answer)
    for line in answer["document"].splitlines():
        print(printable(line))
    return 0


# --- what is shown ------------------------------------------------------------------------------


def print_json(answer: Answer) -> int:
    print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    return 0


def print_version(version: Answer) -> int:
    rollout = version["rollout"]
    signed = "signed" if version["is_signed"] else "not signed"
    share = rollout["shares"][rollout["stage"]]
    print(f"configuration {version['version']} is {rollout['state']} at {share:g} %")
    print(f"  sha256  {version['sha256']} ({signed})")
    print(f"  pushed  {version['at'][:19]}Z by {version['by']}: {version['why'] or '-'}")
    plan = ", ".join(f"{each:g} %" for each in rollout["shares"])
    bound = f"{rollout['failures_max']} failed stop it"
    print(f"  plan    {plan}; {rollout['trial_seconds']:g} s on trial; {bound}")
    print(f"  back    is to {version_words(rollout['base'])}")
    if rollout["reason"]:
        by = f" by {rollout['by']}" if rollout["by"] else ""
        print(f"  since   {rollout['since'][:19]}Z{by}: {rollout['reason']}")
    return 0


def version_words(version: int) -> str:
    return f"configuration {version}" if version else "the hosts' own files alone"


def print_status(answer: Answer) -> int:
    print_version(answer["version"])
    counts = ", ".join(f"{count} {state}" for state, count in answer["hosts"].items() if count)
    print(f"  hosts   {counts or 'none takes part: [configuration] from_service = true'}")
    if answer["waits_for"]:
        print(f"  waits   {answer['waits_for']}")
    for each in answer["failed"]:
        print(f"  failed  {each['agent']}: {each['detail']}")
    if answer["silent"]:
        print(f"  silent  {', '.join(answer['silent'])}")
    return 0
