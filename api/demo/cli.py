"""`fabricscope demo`: 32 hosts and 256 GPUs that are not there, and everything else for real.

The simulator writes what the hosts' kernels, NICs, GPUs and training jobs would show into a tree of
files for each host; production agents read them, the production service stores and joins it.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.live import Live
from simulator.interfaces.host_trees import HostTrees

from api.demo.menu import Menu, choose_faults
from api.demo.programs import SERVICE, Programs, await_ready, free_port
from api.demo.view import Screen, Story, clock, name_of
from collector.contract.errors import SettingsError
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric

HOSTS = 32
TICK_SECONDS = 1.0
STARTED_TOGETHER = 4
"""Agents that are started in one tick: each needs a third of a second of a core for that."""
ASK_SECONDS = 2.0
"""How often the service is asked what it has."""

JOBS = (
    JobSpec(name="llama-70b", hosts=tuple(range(16)), compute_seconds=0.8),
    JobSpec(name="mixtral", hosts=tuple(range(16, 30)), pipeline=2, compute_seconds=0.7, buckets=2),
)
"""Two jobs; two hosts are idle."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `demo`."""
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
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of chance (default 1)")
    parser.add_argument("--port", type=int, default=9700, help="port on 127.0.0.1 (default 9700)")
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


def run(arguments: argparse.Namespace) -> int:
    """Start everything, show it, end everything."""
    known = discover()
    if arguments.list:
        width = max(len(name) for name in known)
        print("\n".join(f"{name:<{width}}  {fault.title}" for name, fault in known.items()))
        return 0
    if arguments.quiet and (arguments.fault or arguments.faults):
        raise SettingsError("--quiet and --fault contradict each other; give one of them")
    faults = choose_faults(
        known, arguments.fault, everything=arguments.faults == "all", fabric=arguments.fabric
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt), folder_for(arguments.data) as folder:
        Demo(arguments, folder).run([] if arguments.quiet else faults)
    return 0


@contextlib.contextmanager
def folder_for(wanted: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or one that is gone afterwards."""
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="fabricscope-demo-") as temporary:
            yield Path(temporary)
        return
    if wanted.exists() and any(wanted.iterdir()):
        raise SettingsError(f"--data {wanted}: it is not empty; name a new folder")
    wanted.mkdir(parents=True, exist_ok=True)
    yield wanted.resolve()


class Demo:
    """One demo, from start to end."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._console = Console()
        self._port = free_port(arguments.port)
        self._url = f"http://127.0.0.1:{self._port}"
        speed = "400GbE" if arguments.fabric == Fabric.ROCE else "NDR"
        self._scenario = Scenario(
            cluster=ClusterSpec(
                topology="rail",
                hosts=HOSTS,
                speed=speed,
                fabric=Fabric(arguments.fabric),
                hosts_per_leaf=HOSTS // 2,
            ),
            jobs=JOBS,
            tick_seconds=TICK_SECONDS,
            seed=arguments.seed,
            start_unix_ns=time.time_ns(),
        )
        self._screen = Screen(self._url)
        self._asked_s = 0.0

    def run(self, faults: list[Any]) -> None:
        """Everything; returns when the time is over or the person has had enough."""
        self._console.print(
            f"Fabricscope demo: {HOSTS} simulated hosts, real agents, the real service at "
            f"{self._url}; everything it writes is in {self._folder}"
        )
        if self._port != self._arguments.port:
            self._console.print(f"Port {self._arguments.port} is taken; using {self._port}.")
        with (
            Programs(self._folder) as programs,
            httpx.Client(base_url=self._url, timeout=5) as client,
        ):
            data = ["--data", str(self._folder / "service")]
            programs.start(SERVICE, "serve", [*data, "--listen", f"127.0.0.1:{self._port}"])
            simulation = Simulation(self._scenario)
            trees = HostTrees(self._folder / "hosts", simulation.topology)
            menu = Menu(faults, simulation.cluster, self._arguments.seed)
            await_ready(client, programs)
            self._loop(simulation, trees, menu, programs, client)
            self._console.print("Stopping the agents and the service …")

    def _loop(
        self,
        simulation: Simulation,
        trees: HostTrees,
        menu: Menu,
        programs: Programs,
        client: httpx.Client,
    ) -> None:
        """One tick a second: what is late is made up for, so that simulated time is real time."""
        is_terminal = self._console.is_terminal
        screen = Live(console=self._console, auto_refresh=False) if is_terminal else None
        with screen or contextlib.nullcontext():
            while self._arguments.seconds is None or simulation.now_s < self._arguments.seconds:
                snapshot = simulation.tick()
                trees.write(snapshot)
                self._keep_agents(programs, trees, snapshot)
                self._inject(simulation, menu)
                self._ask(client, snapshot.time_s)
                programs.check()
                if screen is not None:
                    screen.update(self._screen.render(snapshot), refresh=True)
                wait_until(self._scenario.start_unix_ns / 1e9 + snapshot.time_s)

    def _keep_agents(self, programs: Programs, trees: HostTrees, snapshot: Snapshot) -> None:
        """Start agents, a few at a time; end those of hosts that are down or whose agent died."""
        started = 0
        for host in range(snapshot.topology.hosts):
            name = snapshot.topology.host_name(host)
            is_wanted = not (
                snapshot.world.host_is_down[host] or snapshot.world.host_agent_is_dead[host]
            )
            if is_wanted and not programs.is_running(name) and started < STARTED_TOGETHER:
                programs.start(name, "agent", trees.agent_flags(host, self._url))
                started += 1
            elif not is_wanted and programs.is_running(name):
                programs.stop([name])

    def _inject(self, simulation: Simulation, menu: Menu) -> None:
        injection = menu.serve(simulation.now_s)
        if injection is None:
            return
        truth = simulation.inject(injection)
        self._screen.stories.append(Story(truth, injection.start_s, injection.end_s))
        if not self._console.is_terminal:
            self._console.print(
                f"{clock(injection.start_s)} injected {truth.fault} "
                f"({name_of(truth.culprits)}): {truth.title}"
            )

    def _ask(self, client: httpx.Client, now_s: float) -> None:
        """What the service has by now; a busy service is asked again later."""
        if now_s - self._asked_s < ASK_SECONDS:
            return
        self._asked_s = now_s
        with contextlib.suppress(httpx.HTTPError):
            hosts = client.get("/v1/hosts", params={"limit": 1000}).json()["items"]
            self._screen.agents = len(hosts)
            self._screen.samples = stored_samples(client.get("/metrics").text)


def stored_samples(exposition: str) -> float:
    """The service's own count of samples that it took."""
    name = "fabric_service_samples_total"
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in exposition.splitlines()
        if line.startswith(name) and not line.startswith("#")
    )


def wait_until(unix_s: float) -> None:
    """Sleep until then, if it is not past."""
    left = unix_s - time.time()
    if left > 0:
        time.sleep(left)
