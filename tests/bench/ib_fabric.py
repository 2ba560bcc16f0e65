"""What a whole InfiniBand fabric costs to read: 792 ports of switches that ibsim plays.

Beside the source, in the same run: `ibqueryerrors` alone, which prints no zeros and reads the
errors only of ports that have some; and what infiniband_exporter does, `ibnetdiscover -p` and one
`perfquery` for each switch (here twice, because ibsim's extended counters hold no errors), without
the exporter's own work on what they print.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from typing import NamedTuple

from collector.contract.model import Missing, Reading, Sample
from collector.doors.host import Host
from collector.sources.ib_fabric import IbFabric, Settings
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric as FabricKind
from tests.bench.processes import say
from tests.bench.report import Bar, BenchError, Result, Table, number, quantile
from tests.stands import ib_fabric
from tests.stands.ib_fabric import Fabric
from tests.tools import peers

HOSTS = 33
SWITCH_PORTS = 32
READS, QUICK_READS = 20, 4
AT_ONCE = 4
WALL_BAR = 1.0
"""Seconds for 780 ports of switches."""
PORTS_BAR = 780
MEMORY = Path("/dev/shm")  # noqa: S108 - in memory, if there is such a place
"""Where programs start: ibsim's library makes and removes its /sys there, sixty files each time,
which no real HCA needs and which costs more than all the rest on a disk."""


class Cost(NamedTuple):
    """Wall and CPU seconds of one go, programs included; ibsim's own work is not."""

    wall: float
    cpu: float


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench."""
    topology = build(
        ClusterSpec(
            topology="fat_tree",
            hosts=HOSTS,
            fabric=FabricKind.INFINIBAND,
            switch_ports=SWITCH_PORTS,
        )
    )
    reads = (QUICK_READS if is_quick else READS) * rounds
    try:
        with (
            TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder,
            chdir(folder),
            ib_fabric.fabric(topology) as running,
        ):
            costs, ports = measure(running, reads)
    except peers.PeerError as error:
        raise BenchError(str(error)) from error
    if ports < PORTS_BAR:
        raise BenchError(f"{ports} ports are fewer than the {PORTS_BAR} that were promised")
    rows = [
        [
            name,
            number(1000 * middle([each.wall for each in found])),
            number(1000 * max(each.wall for each in found)),
            number(1000 * middle([each.cpu for each in found])),
        ]
        for name, found in costs.items()
    ]
    return Result(
        name="ib_fabric",
        tables=[
            Table(
                title=f"{ports} ports of {len(topology.switches)} switches, milliseconds",
                columns=["", "wall, median", "wall, worst", "CPU, median"],
                rows=rows,
            )
        ],
        bars=[
            Bar(
                what="seconds to read a fabric of 780 switch ports {needed}",
                needed=WALL_BAR,
                value=middle([each.wall for each in costs[SOURCE]]),
                unit=" s",
                at_most=True,
            ),
            Bar(
                what="the same at the first read, which looks nodes and chips up {needed}",
                needed=WALL_BAR,
                value=costs[FIRST][0].wall,
                unit=" s",
                at_most=True,
            ),
        ],
        figures={name: [each._asdict() for each in found] for name, found in costs.items()},
        notes=[
            "CPU is that of the reader and of the programs it runs, not of ibsim, which answers"
        ],
        is_quick=is_quick,
    )


SOURCE, FIRST = "ib_fabric", "ib_fabric, first read"


def middle(values: list[float]) -> float:
    """The median."""
    return quantile(values, 0.5)


def measure(running: Fabric, reads: int) -> tuple[dict[str, list[Cost]], int]:
    """What each way of reading costs, turn by turn, and how many ports the source has read."""
    program = peers.find("perfquery")
    assert program is not None
    names = ("LD_PRELOAD", "SIM_HOST", "IBSIM_SOCKNAME")
    source = IbFabric(
        Settings(
            enabled=True,
            timeout_seconds=60,
            topology_seconds=0,
            processes=AT_ONCE,
            programs_dir=str(program.parent),
            environment={name: running.environment[name] for name in names},
        )
    )
    host = Host(Path("/"))
    costs: dict[str, list[Cost]] = {}
    last: list[Reading] = []

    def read() -> None:
        last[:] = source.read(host)

    say("ib_fabric: first read")
    costs[FIRST] = [timed(read)]
    plan = lids(running)
    for turn in range(reads):
        say(f"ib_fabric: read {turn + 1} of {reads}")
        costs.setdefault(SOURCE, []).append(timed(read))
        costs.setdefault("ibqueryerrors --data", []).append(timed(lambda: query_errors(running)))
        costs.setdefault("a perfquery -x and a plain one for each switch", []).append(
            timed(lambda: query_switches(running, plan))
        )
    missing = [each for each in last if isinstance(each, Missing)]
    if missing:
        raise BenchError(f"something is missing: {missing[0]}")
    metric = "fabric_port_symbol_errors_total"
    return costs, sum(isinstance(each, Sample) and each.series.metric == metric for each in last)


def timed(work: Callable[[], None]) -> Cost:
    """What a piece of work costs."""
    wall, cpu = time.monotonic(), cpu_seconds()
    work()
    return Cost(time.monotonic() - wall, cpu_seconds() - cpu)


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    usages = (getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def lids(running: Fabric) -> dict[str, str]:
    """The ports of each switch, by address."""
    found: dict[str, list[str]] = {}
    text = running.run("ibnetdiscover", "-p")
    for lid, port in re.findall(r"^SW +(\d+) +(\d+) ", text, re.MULTILINE):
        found.setdefault(lid, []).append(port)
    return {lid: ",".join(ports) for lid, ports in found.items()}


def start(running: Fabric, program: str, *arguments: str) -> None:
    """Run a program here; `Fabric.run` would start it in ibsim's own folder, on a disk."""
    path = peers.find(program)
    assert path is not None
    # ibqueryerrors returns 1 when it has found some.
    done = subprocess.run(
        [str(path), *arguments], env=running.environment, check=False, capture_output=True
    )
    if done.returncode not in {0, 1}:
        raise BenchError(f"{program} ended with {done.returncode}")


def query_errors(running: Fabric) -> None:
    """The whole fabric in two processes: traffic of all ports, errors of those that have some."""
    start(running, "ibqueryerrors", "--skip-sl", "--switch", "--counters")
    every = ("--data", "--threshold-file", "/dev/null")
    start(running, "ibqueryerrors", "--skip-sl", "--switch", *every)


def query_switches(running: Fabric, plan: dict[str, str]) -> None:
    """As infiniband_exporter asks."""
    start(running, "ibnetdiscover", "-p")
    questions: list[tuple[str, ...]] = [("-x", "-l", lid, ports) for lid, ports in plan.items()]
    questions += [("-l", lid, ports) for lid, ports in plan.items()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda each: start(running, "perfquery", *each), questions))
