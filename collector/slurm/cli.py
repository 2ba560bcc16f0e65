"""`fabricscope slurm`: an executor, a health check, prolog and epilog, and topology.conf.

What is run by Slurm itself (healthcheck, prolog, epilog) never fails a node or a job because of us:
on doubt it says so on standard error and exits with 0.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from collector.contract.client_flags import add_client_flags, token_beside
from collector.contract.errors import FabricscopeError, ParseError, SettingsError
from collector.contract.identity import printable
from collector.host import Host
from collector.settings import TokenFile
from collector.slurm.follow import INTERVAL_S, Doubt, Executor
from collector.slurm.jobs import job_id, job_said
from collector.slurm.service import Service, ServiceError, quoted
from collector.slurm.topology import Cables, block_lines, groups_of, tree_lines

EXIT_FAILED = 1
QUICK_SECONDS = 5.0
"""For what Slurm waits for: it kills a health check after 60 s, and a prolog delays a job."""
INTERVAL_S_MIN, INTERVAL_S_MAX = 1.0, 3_600.0
HELD = frozenset({"draining", "out"})
BAD = HELD | {"degraded"}
CONFLICT, NOT_FOUND = 409, 404


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words and flags of `slurm`."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")
    follow = verbs.add_parser("follow", help="drain in Slurm what is held, and give it back")
    follow.add_argument("--interval", type=float, default=INTERVAL_S, metavar="SECONDS")
    follow.add_argument("--once", action="store_true", help="look once and exit")
    health = verbs.add_parser("healthcheck", help="the same for this node alone, once")
    health.add_argument("--node", default="", metavar="NAME", help="default: SLURMD_NODENAME")
    for each in (follow, health):
        each.add_argument(
            "--apply", action="store_true", help="do it; without, commands are only printed"
        )
    prolog = verbs.add_parser("prolog", help="register the job, and read its hosts' health")
    prolog.add_argument(
        "--refuse-held", action="store_true", help="exit with 1 where a host is draining or out"
    )
    verbs.add_parser("epilog", help="say that the job has ended")
    topology = verbs.add_parser("topology", help="topology.conf from what is cabled")
    topology.add_argument("--plugin", choices=["tree", "block"], default="tree")
    topology.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    for each in verbs.choices.values():
        add_client_flags(each)


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit status."""
    from collector.cli import set_up_logging

    set_up_logging("info" if arguments.verb == "follow" else "warning")
    if not arguments.service.startswith(("http://", "https://")):
        raise SettingsError(f"--service {arguments.service!r}: write http://HOST:PORT")
    is_quick = arguments.verb in {"healthcheck", "prolog", "epilog"}
    service = Service(
        arguments.service,
        token_reader(arguments.token_file),
        arguments.ca_file,
        seconds=QUICK_SECONDS if is_quick else 30.0,
    )
    host = Host()
    doing: dict[str, Callable[[argparse.Namespace, Service, Host], int]] = {
        "follow": follow,
        "healthcheck": healthcheck,
        "prolog": prolog,
        "epilog": epilog,
        "topology": topology,
    }
    try:
        return doing[arguments.verb](arguments, service, host)
    finally:
        service.close()
        host.close()


def token_reader(file: str) -> Callable[[], str]:
    """What gives the token each time."""
    token = token_beside(file)
    return TokenFile(Path(file)).read if file else lambda: token


def complain(words: object) -> None:
    """A line on standard error: Slurm writes it to its own log."""
    print(f"fabricscope: {words}", file=sys.stderr)


# --- the executor -------------------------------------------------------------------------------


def follow(arguments: argparse.Namespace, service: Service, host: Host) -> int:
    """`slurm follow`."""
    if not INTERVAL_S_MIN <= arguments.interval <= INTERVAL_S_MAX:
        raise SettingsError(
            f"--interval {arguments.interval:g}: between {INTERVAL_S_MIN:g} and "
            f"{INTERVAL_S_MAX:g} seconds"
        )
    executor = Executor(service, host, print, is_dry=not arguments.apply)
    if arguments.once:
        try:
            executor.once()
        except (Doubt, ServiceError, ParseError) as error:
            complain(f"nothing is changed: {error}")
            return EXIT_FAILED
        return 0
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    executor.run(arguments.interval, stop)
    return 0


def healthcheck(arguments: argparse.Namespace, service: Service, host: Host) -> int:
    """`slurm healthcheck`: always 0, or slurmd would not register its node."""
    node = arguments.node or os.environ.get("SLURMD_NODENAME", "") or host.name.partition(".")[0]
    executor = Executor(service, host, print, is_dry=not arguments.apply)
    try:
        executor.once([node])
    except FabricscopeError as error:
        complain(f"nothing is changed: {error}")
    return 0


# --- jobs ---------------------------------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True):
    """A host in the list of health."""

    host: str
    state: str
    reasons: list[str] = []


class Health(msgspec.Struct, frozen=True):
    """Hosts that are not simply well."""

    stale: list[str]
    items: list[Entry]


def prolog(arguments: argparse.Namespace, service: Service, host: Host) -> int:
    """`slurm prolog`: registers the job; says which of its hosts are unwell."""
    try:
        said = job_said(os.environ, now_of(host))
    except ParseError as error:
        complain(error)
        return 0
    try:
        service.send("POST", "/v1/jobs", said)
    except ServiceError as error:
        # It was registered otherwise: a requeued job, which has other hosts now.
        if error.status == CONFLICT:
            change = {name: said[name] for name in ("hosts", "started_at")}
            change |= {"state": "running", "ended_at": None}
            tell(service, "PATCH", f"/v1/jobs/{quoted(said['id'])}", change)
        else:
            complain(f"job {said['id']} is not registered: {error}")
    return look_at_hosts(service, frozenset(said["hosts"]), refuses=arguments.refuse_held)


def look_at_hosts(service: Service, hosts: frozenset[str], *, refuses: bool) -> int:
    """Say which of a job's hosts are unwell; the exit status."""
    try:
        health = service.get("/v1/health", Health, state=sorted(BAD))
    except ServiceError as error:
        complain(f"the health of the job's hosts is not known: {error}")
        return 0
    if health.stale:
        complain(f"the health of hosts is of the past: {printable('; '.join(health.stale))}")
        return 0
    bad = [each for each in health.items if each.host in hosts and each.state in BAD]
    for each in bad:
        complain(f"{printable(each.host)} is {each.state}: {printable('; '.join(each.reasons))}")
    is_held = any(each.state in HELD for each in bad)
    return EXIT_FAILED if refuses and is_held else 0


def epilog(_: argparse.Namespace, service: Service, host: Host) -> int:
    """`slurm epilog`: the job has ended."""
    try:
        path = f"/v1/jobs/{quoted(job_id(os.environ))}"
    except ParseError as error:
        complain(error)
        return 0
    tell(service, "PATCH", path, {"state": "ended", "ended_at": now_of(host).isoformat()})
    return 0


def tell(service: Service, method: str, path: str, body: object) -> None:
    """Tell the service something; it is no harm if it does not hear."""
    try:
        service.send(method, path, body)
    except ServiceError as error:
        if error.status != NOT_FOUND:
            complain(error)


def now_of(host: Host) -> dt.datetime:
    """This machine's time."""
    return dt.datetime.fromtimestamp(host.now_ns() / 1e9, tz=dt.UTC)


# --- the topology -------------------------------------------------------------------------------


def topology(arguments: argparse.Namespace, service: Service, _: Host) -> int:
    """`slurm topology`."""
    try:
        cables = service.get("/v1/topology", Cables)
    except ServiceError as error:
        complain(error)
        return EXIT_FAILED
    groups, left = groups_of(cables)
    if not groups:
        complain("no host is known to be cabled to a leaf; nothing is written")
        return EXIT_FAILED
    lines = tree_lines if arguments.plugin == "tree" else block_lines
    text = "\n".join(lines(groups, left)) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
        return 0
    # Beside it and then in its place: slurmctld may read at any moment.
    draft = arguments.out.with_name(f".{arguments.out.name}.new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(arguments.out)
    except OSError as error:
        raise SettingsError(f"--out {arguments.out}: {error.strerror}") from error
    return 0
