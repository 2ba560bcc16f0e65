"""`fabricscope slurm`: an executor, a health check, prolog, epilog, placement and topology.conf.

The verbs that Slurm itself runs (healthcheck, prolog, epilog) never fail a node or a job because of
us: on doubt they write why to standard error and exit with 0.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import logging
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from api.remote.answers import FleetHealth, Service
from api.remote.client import (
    FLEET_BOUNDS,
    AsyncClient,
    Bounds,
    Client,
    ServiceError,
    Target,
    quoted,
)
from api.remote.executor import Doubt, Loop, until_told
from api.remote.slurm.follow import INTERVAL_S, SlurmExecutor, read_nodes
from api.remote.slurm.jobs import job_id, job_said
from api.remote.slurm.place import ask_placement, free_nodes, sbatch_words
from api.remote.slurm.topology import Cables, block_lines, groups_of, tree_lines
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import FabricscopeError, ParseError, SettingsError
from collector.contract.identity import printable
from collector.contract.logs import set_up_logging
from collector.doors.host import Host

EXIT_FAILED = 1
QUICK = Bounds(silence_s=5.0, answer_s=5.0)
"""For what Slurm waits for: it kills a health check after 60 s, and a prolog delays a job."""
PATIENT = msgspec.structs.replace(FLEET_BOUNDS, silence_s=30.0, answer_s=30.0)
"""For the whole fleet: the topology of 4,096 hosts has 30 MB."""
INTERVAL_S_MIN, INTERVAL_S_MAX = 1.0, 3_600.0
HELD = frozenset({"draining", "out"})
BAD = HELD | {"degraded"}
CONFLICT, NOT_FOUND = 409, 404

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="WHAT")
    follow = verbs.add_parser("follow", help="drain in Slurm what is held, and give it back")
    follow.add_argument("--interval", type=float, default=INTERVAL_S, metavar="SECONDS")
    follow.add_argument("--once", action="store_true", help="look once and exit")
    follow.add_argument(
        "--share-max",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="of all nodes, that we may have drained at once (default %(default)s: no bound here)",
    )
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
    verbs.add_parser("epilog", help="report that the job has ended")
    place = verbs.add_parser(
        "place", help="print words for sbatch: the best hosts of the idle ones"
    )
    place.add_argument("--size", type=int, required=True, metavar="HOSTS")
    place.add_argument("--partition", default="", metavar="NAME", help="default: every partition")
    topology = verbs.add_parser("topology", help="topology.conf from what is cabled")
    topology.add_argument("--plugin", choices=["tree", "block"], default="tree")
    topology.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    for each in verbs.choices.values():
        add_client_flags(each)


def run(arguments: argparse.Namespace) -> int:
    set_up_logging("info" if arguments.verb == "follow" else "warning")
    target = Target.of(arguments, "operate")
    host = Host()
    try:
        if arguments.verb in {"follow", "healthcheck"}:
            act = follow if arguments.verb == "follow" else healthcheck
            return asyncio.run(act(arguments, target, host))
        client = Client(target, "slurm", bounds=PATIENT if arguments.verb == "topology" else QUICK)
        try:
            asks = {"prolog": prolog, "epilog": epilog, "place": place, "topology": topology}
            ask = asks[arguments.verb]
            return ask(arguments, client, host)
        finally:
            client.close()
    finally:
        host.close()


def complain(words: object) -> None:
    """A line on standard error: Slurm writes it to its own log."""
    print(f"fabricscope: {words}", file=sys.stderr)


# --- the executor -------------------------------------------------------------------------------


async def follow(arguments: argparse.Namespace, target: Target, host: Host) -> int:
    if not INTERVAL_S_MIN <= arguments.interval <= INTERVAL_S_MAX:
        raise SettingsError(
            f"--interval {arguments.interval:g}: between {INTERVAL_S_MIN:g} and "
            f"{INTERVAL_S_MAX:g} seconds"
        )
    if not 0 < arguments.share_max <= 1:
        raise SettingsError(f"--share-max {arguments.share_max:g}: above 0, and at most 1")
    service = Service(AsyncClient(target, "slurm", bounds=PATIENT))
    executor = SlurmExecutor(
        service, host, print, is_dry=not arguments.apply, share_max=arguments.share_max
    )
    loop = Loop(executor, service, is_dry=not arguments.apply, say=log.warning)
    try:
        if arguments.once:
            await once(loop)
        else:
            await until_told(loop.run(arguments.interval))
    except (Doubt, ServiceError, ParseError) as error:
        complain(f"nothing is changed: {error}")
        return EXIT_FAILED
    finally:
        await service.close()
    return 0


async def healthcheck(arguments: argparse.Namespace, target: Target, host: Host) -> int:
    """`slurm healthcheck`: always 0, or slurmd would not register its node."""
    node = arguments.node or os.environ.get("SLURMD_NODENAME", "") or host.name.partition(".")[0]
    service = Service(AsyncClient(target, "slurm", bounds=QUICK), node)
    executor = SlurmExecutor(service, host, print, is_dry=not arguments.apply, node=node)
    try:
        await once(Loop(executor, service, is_dry=not arguments.apply, say=log.warning))
    except FabricscopeError as error:
        complain(f"nothing is changed: {error}")
    finally:
        await service.close()
    return 0


async def once(loop: Loop[Any, Any]) -> None:
    """One pass. The next one sends reports that fail."""
    await loop.once()
    try:
        await loop.reports.send()
    except ServiceError as error:
        log.warning("a report did not reach the service: %s", error)


# --- jobs ---------------------------------------------------------------------------------------


def prolog(arguments: argparse.Namespace, service: Client, host: Host) -> int:
    """`slurm prolog`: registers the job; prints which of its hosts are unhealthy."""
    try:
        job = job_said(os.environ, now_of(host))
    except ParseError as error:
        complain(error)
        return 0
    try:
        service.send("POST", "/v1/jobs", msgspec.json.encode(job), dict[str, Any])
    except ServiceError as error:
        # It was registered with other values: a requeued job, which has other hosts now.
        if error.status == CONFLICT:
            change = {name: job[name] for name in ("hosts", "started_at")}
            change |= {"state": "running", "ended_at": None}
            send_change(service, "PATCH", f"/v1/jobs/{quoted(job['id'])}", change)
        else:
            complain(f"job {job['id']} is not registered: {error}")
    return look_at_hosts(service, frozenset(job["hosts"]), refuses=arguments.refuse_held)


def look_at_hosts(service: Client, hosts: frozenset[str], *, refuses: bool) -> int:
    try:
        health = service.get("/v1/health", FleetHealth, state=sorted(BAD))
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


def epilog(_: argparse.Namespace, service: Client, host: Host) -> int:
    try:
        path = f"/v1/jobs/{quoted(job_id(os.environ))}"
    except ParseError as error:
        complain(error)
        return 0
    send_change(service, "PATCH", path, {"state": "ended", "ended_at": now_of(host).isoformat()})
    return 0


def send_change(service: Client, method: str, path: str, body: object) -> None:
    """Send the service a change; a failure is only logged."""
    try:
        service.send(method, path, msgspec.json.encode(body), dict[str, Any])
    except ServiceError as error:
        if error.status != NOT_FOUND:
            complain(error)


def now_of(host: Host) -> dt.datetime:
    return dt.datetime.fromtimestamp(host.now_ns() / 1e9, tz=dt.UTC)


# --- placement ----------------------------------------------------------------------------------


def place(arguments: argparse.Namespace, service: Client, host: Host) -> int:
    """`slurm place`: always 0, so that a job is submitted without a word of ours where we doubt."""
    try:
        candidates = free_nodes(read_nodes(host, partition=arguments.partition))
        placed = ask_placement(service, arguments.size, candidates)
    except (Doubt, FabricscopeError) as error:
        complain(f"Slurm places the job: {error}")
        return 0
    if not placed.sets:
        complain(f"Slurm places the job: {printable(placed.none_because)}")
        return 0
    for words in placed.sets[0].why:
        complain(printable(words))
    print(sbatch_words(placed.sets[0].hosts))
    return 0


# --- the topology -------------------------------------------------------------------------------


def topology(arguments: argparse.Namespace, service: Client, _: Host) -> int:
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
    # Written beside it, then renamed: slurmctld may read at any moment.
    draft = arguments.out.with_name(f".{arguments.out.name}.new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(arguments.out)
    except OSError as error:
        raise SettingsError(f"--out {arguments.out}: {error.strerror}") from error
    return 0
