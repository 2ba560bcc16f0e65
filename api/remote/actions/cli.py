"""`fabricscope actions`: actions on hosts, from a terminal: list, approve, reject, undo."""

from __future__ import annotations

import argparse
import datetime as dt
import getpass
import io
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from alerts.policy.action import ActionState
from alerts.policy.file import read_policy, shipped_text
from api.remote.client import Client, ServiceError, Target, quoted
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError

EXIT_FAILED = 1
TEXT_COLUMNS = 140
"""The width without a terminal."""
LIST_MAX = 50
RESULT_BYTES_MAX = 4 << 20
"""Of a result file that are read and sent; the service refuses a quarter of that."""

Answer = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")
    listing = verbs.add_parser("list", help="what was, is and would have been done")
    listing.add_argument("--state", choices=[each.value for each in ActionState])
    listing.add_argument("--host", default="", metavar="HOST")
    listing.add_argument(
        "--live", action="store_true", help="only what stands, is proposed or shadowed now"
    )
    show = verbs.add_parser("show", help="one action with its history")
    show.add_argument("id")
    for name, text in (
        ("approve", "grant a proposal: the host is held from now on"),
        ("reject", "refuse a proposal"),
        ("undo", "end what stands: the host is let back"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("id")
        verb.add_argument("--words", default="", metavar="TEXT", help="why, for the record")
    drain = verbs.add_parser("drain", help="hold a host by your own word")
    drain.add_argument("host")
    drain.add_argument("--reason", required=True, metavar="TEXT")
    drain.add_argument("--hours", type=float, help="left out: until an operator ends it")
    drain.add_argument("--out", action="store_true", help="out instead of draining")
    back = verbs.add_parser("return", help="return a host to service, whatever holds it")
    back.add_argument("host")
    check = verbs.add_parser("check", help="hold a result of nccl-tests against a floor")
    check.add_argument("host")
    check.add_argument("file", type=Path)
    policy = verbs.add_parser("policy", help="the policy in force, and how often it was right")
    policy.add_argument(
        "--check", type=Path, metavar="FILE", help="only report what is wrong with it"
    )
    policy.add_argument("--print", action="store_true", help="print the shipped policy file")
    for each in verbs.choices.values():
        add_service_arguments(each)


def add_service_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    parser.add_argument(
        "--by",
        default="",
        metavar="NAME",
        help="your name for the record (default: your user name)",
    )
    parser.add_argument("--json", action="store_true", help="the service's own answer")


def run(arguments: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if arguments.verb == "policy" and arguments.print:
        print(shipped_text(), end="")
        return 0
    if arguments.verb == "policy" and arguments.check is not None:
        return check_policy(arguments.check)
    target = Target.of(arguments, "operate")
    target.read_token()
    client = Client(target, "actions", for_terminal=True)
    try:
        answer, show = DOINGS[arguments.verb](client, arguments)
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else TEXT_COLUMNS
        show(Console(highlight=False, markup=False, emoji=False, width=width), answer)
    return 0


def check_policy(file: Path) -> int:
    policy = read_policy(str(file))
    print(f"{file}: mode {policy.mode}, {len(policy.rules)} rules")
    for rule in policy.rules:
        print(f"  {rule.name}: {policy.mode_of(rule)}")
    return 0


def by_of(arguments: argparse.Namespace) -> str:
    try:
        return str(arguments.by or getpass.getuser())
    except (KeyError, OSError) as error:
        raise SettingsError("this system has no name for your user: give --by NAME") from error


# --- what is asked ------------------------------------------------------------------------------

Show = Callable[[Console, Answer], None]
Doing = Callable[[Client, argparse.Namespace], tuple[Answer, Show]]


def ask_list(client: Client, arguments: argparse.Namespace) -> tuple[Answer, Show]:
    asked = {"state": arguments.state, "host": arguments.host, "live": arguments.live and "true"}
    given = {name: value for name, value in asked.items() if value}
    return client.get("/v1/actions", Answer, limit=LIST_MAX, **given), show_list


def ask_one(client: Client, arguments: argparse.Namespace) -> tuple[Answer, Show]:
    return client.get(f"/v1/actions/{quoted(arguments.id)}", Answer), show_one


def decide(client: Client, arguments: argparse.Namespace) -> tuple[Answer, Show]:
    body = msgspec.json.encode({"by": by_of(arguments), "words": arguments.words})
    path = f"/v1/actions/{quoted(arguments.id)}/{arguments.verb}"
    return client.send("POST", path, body, Answer), show_one


def drain(client: Client, arguments: argparse.Namespace) -> tuple[Answer, Show]:
    body: dict[str, Any] = {
        "state": "out" if arguments.out else "draining",
        "reason": arguments.reason,
        "by": by_of(arguments),
    }
    if arguments.hours is not None:
        body["hours"] = arguments.hours
    path = f"/v1/hosts/{quoted(arguments.host)}/hold"
    return client.send("PUT", path, msgspec.json.encode(body), Answer), show_hold


def give_back(client: Client, arguments: argparse.Namespace) -> tuple[Answer, Show]:
    path = f"/v1/hosts/{quoted(arguments.host)}/hold"
    return client.send("DELETE", path, b"", Answer, by=by_of(arguments)), show_hold


def check(client: Client, arguments: argparse.Namespace) -> tuple[Answer, Show]:
    try:
        with arguments.file.open("rb") as file:
            content = file.read(RESULT_BYTES_MAX)
    except OSError as error:
        raise SettingsError(f"{arguments.file}: {error.strerror}") from error
    path = f"/v1/hosts/{quoted(arguments.host)}/check"
    return client.send("POST", path, content, Answer, by=by_of(arguments)), show_check


def ask_policy(client: Client, _: argparse.Namespace) -> tuple[Answer, Show]:
    return client.get("/v1/actions/policy", Answer), show_policy


DOINGS: dict[str, Doing] = {
    "list": ask_list,
    "show": ask_one,
    "approve": decide,
    "reject": decide,
    "undo": decide,
    "drain": drain,
    "return": give_back,
    "check": check,
    "policy": ask_policy,
}


# --- what is shown ------------------------------------------------------------------------------


def table_of(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, no_wrap=head != "WHY", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def moment(text: str | None) -> str:
    """A time for a table; seconds are enough."""
    if not text:
        return "-"
    try:
        return f"{dt.datetime.fromisoformat(text):%Y-%m-%d %H:%M:%SZ}"
    except ValueError:
        return text


def state_of(action: Answer) -> str:
    """The state, and its most important detail."""
    beside = action["refused"] or action["ended_why"] or action["outcome"]
    return f"{action['state']} ({beside})" if beside else str(action["state"])


def show_list(console: Console, answer: Answer) -> None:
    if answer["stale"]:
        console.print(f"evidence is stale, nothing is done: {'; '.join(answer['stale'])}")
    if not answer["actions"]:
        console.print(f"no actions (mode {answer['mode']})")
        return
    rows = (
        (
            each["id"],
            moment(each["at"]),
            each["host"],
            state_of(each),
            each["rule"] or each["by"],
            each["reason"],
        )
        for each in answer["actions"]
    )
    console.print(table_of(("ID", "AT", "HOST", "STATE", "BY", "WHY"), rows))
    if answer["next"]:
        console.print(f"only the latest {LIST_MAX}; --host and --state choose")


def show_one(console: Console, action: Answer) -> None:
    console.print(f"{action['id']}  {action['host']}  {state_of(action)}")
    for name in ("reason", "verdict", "check"):
        if action[name]:
            console.print(f"  {name:<8} {action[name]}")
    console.print(f"  {'until':<8} {moment(action['until'])}")
    for each in action["applied"]:
        console.print(f"  {each['executor']:<8} {each['outcome']}: {each['words']}")
    rows = (
        (moment(each["at"]), each["what"], each["by"], each["words"]) for each in action["history"]
    )
    console.print(table_of(("AT", "WHAT", "BY", "WHY"), rows))


def show_hold(console: Console, hold: Answer) -> None:
    if hold["ended_by"]:
        console.print(f"{hold['host']} is back; it was {hold['state']} by {hold['by']}")
    else:
        console.print(f"{hold['host']} is {hold['state']}: action {hold['id']}")


def show_check(console: Console, answer: Answer) -> None:
    console.print(f"{answer['host']}: {answer['result']}: {answer['words']}")
    if answer["action"]:
        console.print(f"noted in action {answer['action']}")


def show_policy(console: Console, policy: Answer) -> None:
    console.print(f"policy {policy['file']}, mode {policy['mode']}, evidence {policy['evidence']}")
    for line in (policy["problem"], *policy["stale"]):
        if line:
            console.print(f"  {line}")
    held = f"{policy['held']} of {policy['hosts']} hosts are held; {policy['room']} may be"
    console.print(held + ("; these are quiet hours" if policy["is_quiet"] else ""))
    if policy["breaker_until"]:
        console.print(f"the breaker is open until {moment(policy['breaker_until'])}: see refusals")
    rows = (
        (each["name"], each["mode"], hits_words(each["hits"]), " ".join(each["causes"]))
        for each in policy["rules"]
    )
    console.print(table_of(("RULE", "MODE", "SHADOWS OF 30 DAYS", "WHY"), rows))
    console.print(f"all rules: {hits_words(policy['hits'])}")


def hits_words(hits: Answer) -> str:
    rate = "-" if hits["rate"] is None else f"{100 * hits['rate']:.0f} % right"
    return f"{rate} ({hits['confirmed']} right, {hits['cleared']} not, {hits['waiting']} open)"
