"""`fabricscope demo`: simulated hosts with 8 GPUs each, and everything else for real.

The simulator writes what the hosts' kernels, NICs, GPUs and training jobs would show into a tree of
files for each host; production agents read them, the production service stores and joins it.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from rich.console import Console

from collector.contract.errors import SettingsError
from collector.contract.targets import check_file
from simulator.demo.folders import folders_for
from simulator.demo.menu import choose_faults, showable
from simulator.demo.programs import Stop
from simulator.demo.run import CORES_FOR_MOST, HOSTS, Demo, Wishes, hosts_by_cores, make_cluster
from simulator.topology.model import Fabric

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a supervisor, a terminal that was closed: all end it in order."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME", help="show this fault; repeatable"
    )
    parser.add_argument(
        "--faults", choices=["all"], help="show every fault there is, one after the other"
    )
    parser.add_argument("--quiet", action="store_true", help="let nothing go wrong")
    parser.add_argument("--list", action="store_true", help="print the faults and exit")
    parser.add_argument(
        "--fabric", choices=[str(one) for one in Fabric], default="roce", help="(default roce)"
    )
    parser.add_argument(
        "--hosts",
        type=int,
        choices=HOSTS,
        default=hosts_by_cores(len(os.sched_getaffinity(0))),
        help=f"with 8 GPUs each (default {HOSTS[0]}; below {CORES_FOR_MOST} cores {HOSTS[1]})",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of chance (default 1)")
    parser.add_argument(
        "--port", type=int, default=9700, help="on 127.0.0.1; 0 for any (default 9700)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="keep everything in this folder (default: a temporary one, removed at the end)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="end by itself after so long (default: when you press Ctrl-C)",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the last picture there")


def run(arguments: argparse.Namespace) -> int:
    known = showable()
    if arguments.list:
        width = max(len(name) for name in known)
        print("\n".join(f"{name:<{width}}  {fault.title}" for name, fault in known.items()))
        return 0
    check(arguments)
    fabric = Fabric(arguments.fabric)
    everything = arguments.faults == "all"
    cluster = make_cluster(fabric, arguments.hosts)
    faults = choose_faults(known, arguments.fault, cluster, everything=everything)
    wishes = Wishes(
        fabric=fabric,
        hosts=arguments.hosts,
        seed=arguments.seed,
        port=arguments.port,
        seconds=arguments.seconds,
        picture=arguments.svg,
    )
    # No exception interrupts a start, so that everything that was started is also ended.
    stop = Stop()
    for number in STOPPING:
        signal.signal(number, stop.want)
    with folders_for(arguments.data) as folders:
        Demo(wishes, folders, Console(), stop).run([] if arguments.quiet else faults)
    return 0


def check(arguments: argparse.Namespace) -> None:
    """Raise SettingsError for what cannot work, or contradicts itself."""
    if arguments.quiet and (arguments.fault or arguments.faults):
        raise SettingsError("--quiet and --fault contradict each other; give one of them")
    if arguments.fault and arguments.faults:
        raise SettingsError("--fault and --faults all contradict each other; give one of them")
    if not 0 <= arguments.port < 1 << 16:
        raise SettingsError(f"--port {arguments.port}: must be from 0 to 65535")
    if arguments.seconds is not None and arguments.seconds <= 0:
        raise SettingsError(f"--seconds {arguments.seconds:g}: must be above 0")
    if arguments.seed < 0:
        raise SettingsError(f"--seed {arguments.seed}: must be 0 or more")
    check_file(arguments.svg)
