"""One demo from start to end: the simulated cluster in real time, and the programs around it."""

from __future__ import annotations

import contextlib
import io
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live

from api.remote.client import Client, ServiceError, Target
from collector.contract.units import NS
from simulator.demo.answers import BOUNDS, Asker
from simulator.demo.folders import Folders
from simulator.demo.lines import Lines
from simulator.demo.menu import Menu
from simulator.demo.programs import SERVICE, Programs, Stop, await_ready, free_port
from simulator.demo.story import Story
from simulator.demo.view import Screen
from simulator.engine import Simulation
from simulator.faults.model import Cluster, Fault
from simulator.interfaces.host_trees import HostTrees
from simulator.interfaces.poller_tree import POLLER, PollerTree
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric

HOSTS = (32, 16, 8)
"""How many there can be. An idle agent costs two to three hundredths of a core, so that 32 of them,
the service and the simulation fill nearly two: the page would wait for them."""
CORES_FOR_MOST = 4
CLUSTER = "demo"
TICK_SECONDS = 1.0
STARTED_TOGETHER = 4
"""Agents that are started in one tick: each needs a third of a second of a core for that."""
LAG_SECONDS_MAX = 8.0
"""A simulation that is further behind will not catch up: the machine is too slow for it."""
SWITCHES_SECONDS = 2.0
"""How often the switches' answers are written anew. The poller asks every 10 s, so that what it
gets is 2 s old at most, and a rate over two polls a fifth wrong at most."""
PICTURE_COLUMNS = 110


def hosts_by_cores(cores: int) -> int:
    """The default number of hosts: what this machine carries beside a browser."""
    return HOSTS[0] if cores >= CORES_FOR_MOST else HOSTS[1]


def jobs_on(hosts: int) -> tuple[JobSpec, JobSpec]:
    """Two jobs on both halves of the fabric: spines have work, too. Of many hosts two are idle."""
    half, quarter = hosts // 2, hosts // 4
    idle = 2 if hosts == HOSTS[0] else 0
    experts = (*range(quarter, half), *range(half + quarter, hosts - idle))
    return (
        JobSpec(
            name="llama-70b",
            hosts=(*range(quarter), *range(half, half + quarter)),
            compute_seconds=0.8,
            gradient_bytes=4 << 30,
        ),
        JobSpec(
            name="mixtral",
            hosts=experts,
            pipeline=2,
            expert=len(experts) // 2,
            compute_seconds=0.7,
            buckets=2,
            gradient_bytes=2 << 30,
        ),
    )


@dataclass(frozen=True)
class Wishes:
    """The user's choices."""

    fabric: Fabric
    hosts: int
    seed: int
    port: int
    seconds: float | None
    """None: until the user stops it."""
    picture: Path | None


def make_cluster(fabric: Fabric, hosts: int = HOSTS[0]) -> Cluster:
    """The demo's cluster, without anything that runs: to see which faults it can have."""
    return Cluster(build(cluster_spec(fabric, hosts)), jobs_on(hosts))


def cluster_spec(fabric: Fabric, hosts: int) -> ClusterSpec:
    """Two halves, in each a leaf for each rail, spines between them."""
    speed = "400GbE" if fabric is Fabric.ROCE else "NDR"
    return ClusterSpec(
        topology="rail", hosts=hosts, speed=speed, fabric=fabric, hosts_per_leaf=hosts // 2
    )


class Demo:
    """Everything that runs, until the time is over or ``stop`` is set, at any time."""

    def __init__(self, wishes: Wishes, folders: Folders, console: Console, stop: Stop) -> None:
        self._stop = stop
        self._wishes = wishes
        self._folders = folders
        self._console = console
        self._port = free_port(wishes.port)
        self._url = f"http://127.0.0.1:{self._port}"
        self._lines = Lines(console)
        self._screen = Screen(self._url)

    def run(self, faults: Sequence[Fault]) -> None:
        say = self._lines.say
        hosts = self._wishes.hosts
        say(f"Fabricscope demo: {hosts} simulated hosts, real agents, the real service.")
        if self._wishes.port not in {0, self._port}:
            say(f"Port {self._wishes.port} is taken; using {self._port}.")
        say(f"Starting the service at {self._url}; it writes to {self._folders.service}")
        client = Client(Target(url=self._url), "demo", bounds=BOUNDS)
        with contextlib.closing(client), Programs(self._folders.service) as programs:
            flags = [
                "--data",
                str(self._folders.service / "data"),
                "--listen",
                f"127.0.0.1:{self._port}",
            ]
            programs.start(SERVICE, "serve", flags)
            if await_ready(client, programs, self._stop):
                say(f"Ready: {self._shown(client)} Ctrl-C ends it.")
                with Asker(client) as asker:
                    self._play(programs, asker, faults)
            say("Stopping the agents and the service …")
        if self._wishes.picture is not None:
            self._wishes.picture.write_text(make_svg(self._screen), encoding="utf-8")

    def _shown(self, client: Client) -> str:
        """What there is to open in a browser: where no page was built, / leads to the other."""
        other = f"{self._url}/docs shows what can be asked."
        has_page = False
        with contextlib.suppress(ServiceError):  # without a page it redirects
            has_page = bool(client.read("/"))
        return f"{self._url}/ is the built-in page, {other}" if has_page else other

    def _play(self, programs: Programs, asker: Asker, faults: Sequence[Fault]) -> None:
        """One tick a second: what is late is made up for, so that simulated time is real time."""
        wishes = self._wishes
        simulation = Simulation(
            Scenario(
                cluster=cluster_spec(wishes.fabric, wishes.hosts),
                jobs=jobs_on(wishes.hosts),
                tick_seconds=TICK_SECONDS,
                seed=wishes.seed,
                start_unix_ns=time.time_ns(),
            )
        )
        trees = HostTrees(self._folders.hosts, simulation.topology)
        poller = PollerTree(self._folders.hosts / POLLER, simulation.topology)
        menu = Menu(faults, simulation.cluster, wishes.seed)
        live = Live(console=self._console, auto_refresh=False)
        is_terminal = self._console.is_terminal
        start_ns, lag_s = simulation.scenario.start_unix_ns, 0.0
        with live if is_terminal else contextlib.nullcontext():
            while wishes.seconds is None or simulation.now_s < wishes.seconds:
                snapshot = simulation.tick()
                snapshot.start_unix_ns = start_ns
                trees.write(snapshot)
                self._keep_agents(programs, trees, snapshot)
                self._keep_poller(programs, poller, snapshot)
                self._inject(simulation, menu)
                programs.check()
                self._screen.take(snapshot, asker.latest, lag_s)
                if is_terminal:
                    live.update(self._screen.render(self._console.width), refresh=True)
                else:
                    self._lines.show(snapshot, asker.latest)
                lag_s = time.time() - start_ns / NS - snapshot.time_s
                if lag_s > LAG_SECONDS_MAX:
                    # Let all clocks jump: of what is older, the service would make no series.
                    start_ns += round(lag_s * NS)
                    self._skip(lag_s)
                if self._stop.wait(max(0.0, -lag_s)):
                    return

    def _skip(self, seconds: float) -> None:
        if not self._screen.skipped_s:
            fewer = [hosts for hosts in HOSTS if hosts < self._wishes.hosts]
            hint = f" Fewer hosts need less: --hosts {fewer[0]}." if fewer else ""
            self._lines.say(f"This machine has too much to do: simulated time runs slow.{hint}")
        self._screen.skipped_s += seconds

    def _keep_agents(self, programs: Programs, trees: HostTrees, snapshot: Snapshot) -> None:
        """Start agents, a few at a time; end those of hosts that are down or whose agent died."""
        world, started = snapshot.world, 0
        for host in range(snapshot.topology.hosts):
            name = snapshot.topology.host_name(host)
            is_wanted = not (world.host_is_down[host] or world.host_agent_is_dead[host])
            if is_wanted and not programs.is_running(name) and started < STARTED_TOGETHER:
                programs.start(name, "agent", trees.agent_flags(host, self._url, CLUSTER))
                started += 1
            elif not is_wanted:
                programs.stop([name])

    def _keep_poller(self, programs: Programs, poller: PollerTree, snapshot: Snapshot) -> None:
        if snapshot.time_s % SWITCHES_SECONDS < TICK_SECONDS:
            poller.write(snapshot)
            if not programs.is_running(POLLER):
                programs.start(POLLER, "agent", poller.agent_flags(self._url, CLUSTER))

    def _inject(self, simulation: Simulation, menu: Menu) -> None:
        injection = menu.serve(simulation.now_s)
        if injection is None:
            return
        story = Story(simulation.inject(injection), injection.start_s, injection.end_s)
        self._screen.stories.append(story)
        if not self._console.is_terminal:
            self._lines.tell(story)


def make_svg(screen: Screen) -> str:
    """The picture as it stands. Without the fonts that `rich` would fetch from elsewhere."""
    console = Console(
        record=True,
        width=PICTURE_COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(screen.render(PICTURE_COLUMNS))
    svg = console.export_svg(title="fabricscope demo")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
