"""`fabricscope simulate`: runs a cluster with jobs and faults and writes what it shows to files."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Cluster, Fault, Injection
from simulator.interfaces.host_trees import HostTrees
from simulator.interfaces.ibsim import Console, topology_text
from simulator.interfaces.run_folder import RunFolder
from simulator.interfaces.snmp import Switches, responder_command
from simulator.interfaces.switch_tables import Flavour
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario, Truth, plan
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric, Topology

SPEEDS_DEFAULT = {Fabric.INFINIBAND: "NDR", Fabric.ROCE: "400GbE"}
"""400 Gb/s, the port speed of most training clusters built from 2023 on."""
FAULT_SHARE = 1 / 3
"""Share of the run before a fault, and of the fault itself: enough history to compare."""
SECONDS_MAX = 86_400.0
"""One day. Longer runs need a scenario written in Python."""
IDLE_HOSTS = 2
"""Hosts left without a job by default: neighbour traffic and harmless events need some."""
IDLE_FROM_HOSTS = 6
"""Smaller clusters have no host to spare."""
CLUSTER_NAME = "simulated"
SNMP_PORT = 1161
"""Port of the suggested SNMP responder: port 161 needs root."""
Write = Callable[[Snapshot], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT", help="a folder to write into")
    parser.add_argument("--list", action="store_true", help="print the faults and exit")
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument("--hosts", type=int, default=16, metavar="N", help="default 16")
    cluster.add_argument("--gpus", type=int, default=8, metavar="N", help="of a host, default 8")
    cluster.add_argument(
        "--topology", default="rail", help="rail (default), fat_tree, dragonfly or single"
    )
    cluster.add_argument("--fabric", default="infiniband", help="infiniband (default) or roce")
    cluster.add_argument("--speed", help="of ports: NDR, 400GbE, … (default: 400 Gb/s)")
    cluster.add_argument(
        "--oversubscription", type=float, default=1.0, metavar="RATIO", help="of leaves, default 1"
    )
    happening = parser.add_argument_group("what happens")
    happening.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="HOSTS[,NAME=VALUE…]",
        help="a job on so many hosts: 8,tensor=8,pipeline=2,compute_seconds=0.5; may be repeated "
        "(default: one on nearly all hosts)",
    )
    happening.add_argument(
        "--fault", action="append", default=[], metavar="NAME", help="may be repeated; see --list"
    )
    happening.add_argument(
        "--at", type=float, metavar="SECONDS", help="when faults begin (default: after a third)"
    )
    happening.add_argument("--seconds", type=float, default=300.0, help="of the run, default 300")
    happening.add_argument("--seed", type=int, default=1, metavar="N", help="the same: same bytes")
    more = parser.add_argument_group("what else is written")
    more.add_argument(
        "--trees", type=Path, metavar="DIR", help="the hosts' files, for `fabricscope agent --root`"
    )
    more.add_argument(
        "--snmp", metavar="FLAVOUR", help=f"switches for snmpsim: {', '.join(Flavour)}"
    )
    more.add_argument("--ibsim", action="store_true", help="fabric and counters for ibsim")


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        print("\n".join(f"{name:20} {fault.title}" for name, fault in discover().items()))
        return 0
    folder = check_out(arguments.out)
    simulation = Simulation(to_scenario(arguments))
    truths = inject(simulation, arguments)
    started = time.monotonic()
    try:
        advice = write_all(simulation, truths, folder, arguments)
    except OSError as error:
        raise SettingsError(f"{error.filename or folder}: {error.strerror or error}") from error
    topology = simulation.topology
    print(
        f"{folder}: {simulation.now_s:g} s of {topology.hosts} hosts with {topology.gpus} GPUs, "
        f"simulated in {time.monotonic() - started:.0f} s; what was wrong is in truth.json"
    )
    print("\n".join(["fabricscope diagnose " + shlex.quote(str(folder)), *advice]))
    return 0


def check_out(folder: Path | None) -> Path:
    """Check that OUT is a new or empty folder, so that two runs never mix."""
    if folder is None:
        raise SettingsError("simulate needs a folder to write into: fabricscope simulate OUT")
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty; name a new folder")
    return folder


# Arguments ---------------------------------------------------------------------------------------


def to_scenario(arguments: argparse.Namespace) -> Scenario:
    if not 0 < arguments.seconds <= SECONDS_MAX:
        raise SettingsError(f"--seconds {arguments.seconds:g}: from above 0 to {SECONDS_MAX:g}")
    if arguments.seed < 0:
        raise SettingsError(f"--seed {arguments.seed}: from 0")
    if arguments.fabric not in tuple(Fabric):
        raise SettingsError(unknown("fabric", arguments.fabric, tuple(Fabric)))
    fabric = Fabric(arguments.fabric)
    cluster = ClusterSpec(
        topology=arguments.topology,
        hosts=arguments.hosts,
        gpus_per_host=arguments.gpus,
        nics_per_host=arguments.gpus,
        speed=arguments.speed or SPEEDS_DEFAULT[fabric],
        fabric=fabric,
        oversubscription=arguments.oversubscription,
    )
    jobs = to_jobs(arguments.job or [str(default_hosts(arguments.hosts))], cluster)
    return Scenario(cluster=cluster, jobs=jobs, seconds=arguments.seconds, seed=arguments.seed)


def default_hosts(hosts: int) -> int:
    return hosts - IDLE_HOSTS if hosts >= IDLE_FROM_HOSTS else hosts


def to_jobs(words: Sequence[str], cluster: ClusterSpec) -> tuple[JobSpec, ...]:
    """Jobs side by side, in the order of hosts."""
    jobs: list[JobSpec] = []
    taken = 0
    for number, word in enumerate(words):
        size, *settings = word.split(",")
        if not size.isdecimal() or int(size) < 1:
            raise SettingsError(f"--job {word}: begin with a number of hosts, as in 8,pipeline=2")
        hosts = tuple(range(taken, taken + int(size)))
        taken += int(size)
        if taken > cluster.hosts:
            raise SettingsError(f"--job {word}: no {size} hosts are left of {cluster.hosts}")
        values = {"name": f"train-{number}", "hosts": hosts, "tensor": cluster.gpus_per_host}
        jobs.append(to_job(word, values | to_settings(word, settings)))
    return tuple(jobs)


def to_settings(word: str, settings: Sequence[str]) -> dict[str, Any]:
    """`pipeline=2` and the like; names are fields of `JobSpec`."""
    known = [field.name for field in fields(JobSpec) if field.name not in {"name", "hosts"}]
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name not in known:
            raise SettingsError(f"--job {word}: {unknown('setting', name, known)}")
        if not equals:
            raise SettingsError(f"--job {word}: write {name}=VALUE")
        values[name] = value
    return values


def to_job(word: str, values: dict[str, Any]) -> JobSpec:
    try:
        return msgspec.convert(values, JobSpec, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"--job {word}: {error}") from error


# Faults ------------------------------------------------------------------------------------------


def inject(simulation: Simulation, arguments: argparse.Namespace) -> list[Truth]:
    faults = discover()
    seconds = arguments.seconds
    start_s = FAULT_SHARE * seconds if arguments.at is None else arguments.at
    if not 0 <= start_s < seconds:
        raise SettingsError(f"--at {start_s:g}: from 0 to below --seconds {seconds:g}")
    end_s = min(start_s + FAULT_SHARE * seconds, seconds)
    truths = []
    for number, name in enumerate(arguments.fault):
        if name not in faults:
            raise SettingsError(unknown("fault", name, faults))
        check_fits(faults[name], simulation.cluster)
        random = np.random.default_rng([arguments.seed, number, *name.encode()])
        drawn = plan(faults[name], simulation.cluster, random, start_s)
        truths.append(
            simulation.inject(Injection(drawn.fault, drawn.place, start_s, end_s, drawn.strength))
        )
    return truths


def check_fits(fault: Fault, cluster: Cluster) -> None:
    if cluster.topology.fabric not in fault.fabrics:
        raise SettingsError(f"{fault.name} happens on --fabric {' or '.join(fault.fabrics)} only")
    if not fault.fits(cluster):
        raise SettingsError(
            f"{fault.name} finds no place here: it needs hosts without a job (--job HOSTS with "
            "fewer), or more hosts"
        )


# Output ------------------------------------------------------------------------------------------


def write_all(
    simulation: Simulation, truths: list[Truth], folder: Path, arguments: argparse.Namespace
) -> list[str]:
    """Run the simulation and write its files; returns one command line for each thing written."""
    topology = simulation.topology
    fabric = to_ibsim(topology) if arguments.ibsim else None
    files = RunFolder(folder)
    writers: list[Write] = [files.write]
    advice: list[str] = []
    for make in (write_trees, write_switches):
        for write, line in make(topology, folder, arguments):
            writers.append(write)
            advice.append(line)
    for snapshot in simulation.run():
        for write in writers:
            write(snapshot)
        show_progress(snapshot.time_s, simulation.scenario.seconds)
    files.close(truths)
    if fabric is not None:
        advice.append(write_ibsim(folder / "ibsim", fabric, snapshot))
    return advice


def write_trees(
    topology: Topology, _: Path, arguments: argparse.Namespace
) -> Iterator[tuple[Write, str]]:
    """The hosts' trees, if requested: what writes a tick, and the command that reads them."""
    if arguments.trees is None:
        return
    trees = HostTrees(check_out(arguments.trees), topology)
    root = shlex.quote(str(arguments.trees / topology.host_name(0)))
    yield trees.write, f"fabricscope agent --once --root {root}"


def write_switches(
    topology: Topology, folder: Path, arguments: argparse.Namespace
) -> Iterator[tuple[Write, str]]:
    if arguments.snmp is None:
        return
    if arguments.snmp not in tuple(Flavour):
        raise SettingsError(unknown("flavour", arguments.snmp, tuple(Flavour)))
    switches = Switches(folder / "switches", topology, Flavour(arguments.snmp))
    is_started = False

    def write(snapshot: Snapshot) -> None:
        nonlocal is_started
        (switches.update if is_started else switches.start)(snapshot)
        is_started = True

    yield write, shlex.join(responder_command(folder / "switches", SNMP_PORT))


def to_ibsim(topology: Topology) -> str:
    """The fabric as ibsim reads it; a SettingsError if ibsim cannot play it."""
    if topology.fabric is not Fabric.INFINIBAND:
        raise SettingsError("--ibsim plays InfiniBand: --fabric infiniband")
    return topology_text(topology)


def write_ibsim(folder: Path, fabric: str, last: Snapshot) -> str:
    """Write the fabric and the commands that set the final counters; returns how to play it."""
    folder.mkdir()
    (folder / "fabric.net").write_text(fabric, encoding="utf-8")
    commands = Console(last.topology).commands(last)
    (folder / "commands").write_text("\n".join(commands) + "\n", encoding="utf-8")
    quoted = shlex.quote(str(folder))
    return f"cat {quoted}/commands - | ibsim -s {quoted}/fabric.net"


def show_progress(now_s: float, seconds: float) -> None:
    if sys.stderr.isatty():
        end = "\n" if now_s >= seconds else ""
        share = min(now_s / seconds, 1.0)
        print(
            f"\rsimulating {now_s:5.0f} s of {seconds:g} ({share:4.0%})", end=end, file=sys.stderr
        )
        sys.stderr.flush()
