"""`fabricscope kubernetes`: the controller, and `extender`, which runs beside a scheduler."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys

from api.remote.answers import Service
from api.remote.client import FLEET_BOUNDS, AsyncClient, Target
from api.remote.executor import PASSING, until_told
from api.remote.kubernetes.access import find_access
from api.remote.kubernetes.client import Cluster
from api.remote.kubernetes.controller import Controller, Mode, Options
from api.remote.kubernetes.gateway import Gateway
from api.remote.kubernetes.lease import Leadership, make_identity
from api.remote.kubernetes.probe import serve_state
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError
from collector.contract.logs import LOG_LEVELS, set_up_logging

EXIT_FAILED = 1
LEASE = "fabricscope-controller"
EXTENDER_LISTEN = "127.0.0.1:9703"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "program",
        nargs="?",
        choices=("controller", "extender"),
        default="controller",
        help="controller: write to nodes (default); extender: pass kube-scheduler's questions on"
        " to the service, with a token, at --listen",
    )
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in Mode],
        default=Mode.DRY_RUN.value,
        help="dry-run: print what would be written; report: conditions and labels; enforce: also"
        " taints, for actions that stand (default %(default)s)",
    )
    parser.add_argument(
        "--share-max",
        type=float,
        default=Options.__struct_defaults__[1],
        metavar="SHARE",
        help="of all nodes, that may be tainted at once (default %(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="look and write once, and exit")
    service = parser.add_argument_group("the service")
    add_client_flags(service)
    cluster = parser.add_argument_group("the cluster (default: KUBECONFIG, or the pod's own)")
    cluster.add_argument("--kubeconfig", default="", metavar="FILE", help="instead of KUBECONFIG")
    cluster.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig")
    cluster.add_argument(
        "--lease",
        default=LEASE,
        metavar="NAME",
        help="Lease that decides which of several controllers writes (default %(default)s)",
    )
    parser.add_argument(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help="answers /healthz, for probes; empty: nowhere (default); of the extender: where the"
        f" scheduler asks (default {EXTENDER_LISTEN})",
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info")


def run(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.share_max <= 1:
        raise SettingsError(f"--share-max {arguments.share_max:g}: above 0, and at most 1")
    set_up_logging(arguments.log_level)
    program = extend if arguments.program == "extender" else control
    return asyncio.run(program(arguments))


def make_service(arguments: argparse.Namespace, scope: str) -> Service:
    """SettingsError if there is no token where one should be."""
    target = Target.of(arguments, scope)
    target.read_token()
    return Service(AsyncClient(target, "kubernetes", bounds=FLEET_BOUNDS))


async def control(arguments: argparse.Namespace) -> int:
    access = find_access(arguments.kubeconfig, arguments.context, os.environ)
    async with contextlib.AsyncExitStack() as stack:
        cluster = Cluster(access)
        stack.push_async_callback(cluster.close)
        service = make_service(arguments, "operate")
        stack.push_async_callback(service.close)
        controller = Controller(
            cluster,
            service,
            Leadership(cluster, arguments.lease, make_identity()),
            Options(mode=Mode(arguments.mode), share_max=arguments.share_max, say=say),
        )
        if arguments.once:
            return await once(controller)
        if arguments.listen:
            await stack.enter_async_context(serve_state(arguments.listen, controller))
        await until_told(controller.run())
    return 0


async def extend(arguments: argparse.Namespace) -> int:
    service = make_service(arguments, "read")
    try:
        async with Gateway(service).serve(arguments.listen or EXTENDER_LISTEN):
            await until_told(asyncio.Event().wait())
    finally:
        await service.close()
    return 0


async def once(controller: Controller) -> int:
    try:
        done = await controller.once()
    except PASSING as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_FAILED if done.refused else 0


def say(words: str) -> None:
    print(words, flush=True)
