"""What the demo shows in a terminal: the fabric, the jobs, what was injected and what was found."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from collector.contract.verdict import Culprit
from simulator.scenario import Truth
from simulator.snapshot import JobStatus, Snapshot
from simulator.topology.model import Bools, Floats, LinkKind

STEPS_DRAWN = 40
FAULTS_SHOWN = 6
BARS = "▁▂▃▄▅▆▇█"
DOT = "■"
UTILISATION_COLOURS = ((0.02, "grey37"), (0.3, "dark_green"), (0.7, "green3"), (1.1, "yellow3"))
"""A port's share of line rate, up to which it is drawn so."""
LOST_SHARE = 1e-6
"""A port that loses more of its packets than this in a second is drawn as lossy."""
PAUSED_SHARE = 0.05
SLOWER_YELLOW, SLOWER_RED = 0.05, 0.2
"""How much longer a step may take before it is drawn so."""
HOSTS_DRAWN_MAX = 64


@dataclass
class Story:
    """A fault that was injected, and what became of it. Times are seconds since the start."""

    truth: Truth
    start_s: float
    end_s: float
    found: str = ""
    found_s: float | None = None


@dataclass
class Screen:
    """Everything that is drawn; updated once a second."""

    url: str
    stories: list[Story] = field(default_factory=list)
    agents: int = 0
    """Agents that the service has heard of."""
    samples: float = 0.0
    """Stored so far."""
    has_detectors: bool = False
    _steps: dict[str, deque[float]] = field(default_factory=dict)
    _before: dict[str, Floats] = field(default_factory=dict)

    def render(self, snapshot: Snapshot) -> RenderableType:
        """The whole picture at this tick."""
        return Group(
            self._headline(snapshot),
            Panel(self._fabric(snapshot), title="fabric: a column is a host, a row is a rail"),
            Panel(self._jobs(snapshot), title="jobs"),
            Panel(self._faults(snapshot), title="injected, and found"),
            Text(f"  {self.url}/docs shows the whole HTTP interface. Ctrl-C ends it.", "dim"),
        )

    def _headline(self, snapshot: Snapshot) -> Text:
        topology = snapshot.topology
        text = Text()
        text.append(" Fabricscope demo ", "bold reverse")
        text.append(f"  {topology.hosts} hosts, {topology.gpus} GPUs, {topology.nics} NICs ")
        text.append(f"({topology.speed.name}, {topology.name}), none of them real.  ")
        text.append(f"{clock(snapshot.time_s)}  ", "bold")
        text.append(
            f"{self.agents} of {topology.hosts} agents, {self.samples:,.0f} samples", "cyan"
        )
        return text

    # The fabric --------------------------------------------------------------------------------

    def _fabric(self, snapshot: Snapshot) -> RenderableType:
        topology = snapshot.topology
        utilisation, trouble = self._ports(snapshot)
        hosts = min(topology.hosts, HOSTS_DRAWN_MAX)
        lines = [self._switches(snapshot)]
        for rail in range(topology.nics_per_host):
            line = Text(f" mlx5_{rail} ")
            for host in range(hosts):
                nic = host * topology.nics_per_host + rail
                if host and host % 8 == 0:
                    line.append(" ")
                line.append(DOT, trouble.get(nic) or colour_of(float(utilisation[nic])))
            lines.append(line)
        legend = Text(" ■", "green3").append(" busy  ", "dim").append("■", "bold red")
        legend.append(" down  ", "dim").append("■", "bold magenta").append(" loses  ", "dim")
        legend.append("■", "bold dark_orange").append(" paused, or waits for credit", "dim")
        return Group(*lines, legend)

    def _switches(self, snapshot: Snapshot) -> Text:
        """Each tier of switches in a word: how many, and how busy what leaves them is."""
        topology = snapshot.topology
        rates = self._rate(snapshot, "bytes", snapshot.links.bytes.astype(np.float64))
        share = rates * 8 / topology.bits_per_second
        text = Text(" ")
        for tier in sorted({switch.tier for switch in topology.switches}, reverse=True):
            members = [n for n, switch in enumerate(topology.switches) if switch.tier == tier]
            leaving = np.isin(topology.source_switch, members)
            leaving &= topology.kind >= LinkKind.FABRIC_UP
            name = "leaf" if tier == 0 else "spine"
            busiest = float(share[leaving].max(initial=0.0))
            text.append(f"{len(members)} {name} switches", "bold")
            text.append(f" busiest uplink {busiest:.0%}   " if tier == 0 else "   ", "dim")
        return text

    def _ports(self, snapshot: Snapshot) -> tuple[Floats, dict[int, str]]:
        """Each NIC's share of line rate, and the colour of those in trouble."""
        topology, links = snapshot.topology, snapshot.links
        nic = np.arange(topology.nics, dtype=np.int32)
        up, down = topology.up(nic), topology.down(nic)
        rate = self._rate(snapshot, "bytes", links.bytes.astype(np.float64))
        packets = self._rate(snapshot, "packets", links.packets.astype(np.float64))
        lost = self._rate(snapshot, "lost", links.lost_packets.astype(np.float64))
        stopped = self._rate(snapshot, "paused", links.paused_us / 1e6 + links.wait_ns / 1e9)
        self._remember(snapshot)
        utilisation = np.maximum(rate[up], rate[down]) * 8 / topology.bits_per_second[up]
        trouble: dict[int, str] = {}
        for colour, which in (
            ("bold dark_orange", np.maximum(stopped[up], stopped[down]) > PAUSED_SHARE),
            ("bold magenta", is_lossy(lost, packets, up) | is_lossy(lost, packets, down)),
            ("bold red", ~(snapshot.world.link_up[up] & snapshot.world.link_up[down])),
        ):
            trouble.update({int(n): colour for n in np.flatnonzero(which)})
        return utilisation, trouble

    def _rate(self, snapshot: Snapshot, name: str, now: Floats) -> Floats:
        before = self._before.get(name)
        zero: Floats = np.zeros(len(now))
        return zero if before is None else (now - before) / snapshot.interval_s

    def _remember(self, snapshot: Snapshot) -> None:
        links = snapshot.links
        self._before = {
            "bytes": links.bytes.astype(np.float64),
            "packets": links.packets.astype(np.float64),
            "lost": links.lost_packets.astype(np.float64),
            "paused": links.paused_us / 1e6 + links.wait_ns / 1e9,
        }

    # Jobs and faults ---------------------------------------------------------------------------

    def _jobs(self, snapshot: Snapshot) -> RenderableType:
        table = Table(box=None, pad_edge=False)
        for name in ("job", "GPUs", "step", "a step takes", "", ""):
            table.add_column(name, justify="right" if name in {"GPUs", "step"} else "left")
        for block in snapshot.steps:
            seconds = float(np.nanmax(block.end_s) - np.nanmin(block.start_s))
            self._steps.setdefault(block.job, deque(maxlen=STEPS_DRAWN)).append(seconds)
        for job in snapshot.jobs:
            past = list(self._steps.get(job.name, ()))
            table.add_row(
                job.name,
                str(job.ranks),
                str(job.step),
                f"{job.step_seconds * 1e3:,.0f} ms" if job.step_seconds else "starting",
                Text(sparkline(past), "cyan"),
                slowdown(job, past, snapshot.time_s),
            )
        return table

    def _faults(self, snapshot: Snapshot) -> RenderableType:
        if not self.stories:
            return Text(" nothing yet: all is well", "green")
        table = Table(box=None, pad_edge=False)
        for name in ("at", "what was done", "to whom", "", "found"):
            table.add_column(name)
        for story in self.stories[-FAULTS_SHOWN:]:
            is_active = snapshot.time_s < story.end_s
            state = f"for {snapshot.time_s - story.start_s:.0f} s" if is_active else "over"
            table.add_row(
                clock(story.start_s),
                f"{story.truth.fault}: {story.truth.title}",
                name_of(story.truth.culprits),
                Text(state, "bold red" if is_active else "dim"),
                self._found(story),
            )
        return table

    def _found(self, story: Story) -> Text:
        if story.found_s is not None:
            return Text(f"{story.found}, after {story.found_s - story.start_s:.0f} s", "bold green")
        if not self.has_detectors:
            return Text("this version has no detectors yet", "dim")
        return Text("-", "dim")


def is_lossy(lost: Floats, packets: Floats, links: np.ndarray) -> Bools:
    """Which of these links lose more than LOST_SHARE of what goes over them."""
    bad: Bools = lost[links] > LOST_SHARE * np.maximum(packets[links], 1.0)
    return bad


def colour_of(utilisation: float) -> str:
    """How a healthy port is drawn."""
    return next(
        colour for limit, colour in UTILISATION_COLOURS if utilisation <= limit or limit > 1
    )


def sparkline(values: list[float]) -> str:
    """A line of bars, the highest value as the highest bar.

    >>> sparkline([1.0, 2.0, 4.0])
    '▂▄█'
    """
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "".join(BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] for value in values)


def slowdown(job: JobStatus, past: list[float], now_s: float) -> Text:
    """How much slower the last step was than the typical fast one; or that nothing moves."""
    if job.hung_since_s is not None:
        return Text(f"stuck for {now_s - job.hung_since_s:.0f} s", "bold red")
    if len(past) < FAULTS_SHOWN or not job.step_seconds:
        return Text("")
    usual = float(np.quantile(past, 0.2))
    extra = job.step_seconds / usual - 1
    colour = "green" if extra < SLOWER_YELLOW else "yellow" if extra < SLOWER_RED else "bold red"
    return Text(f"{extra:+.0%}", colour)


def name_of(culprits: tuple[Culprit, ...]) -> str:
    """Whom it was done to, in the fewest words that say it."""
    if not culprits:
        return "nobody in particular"
    one = culprits[0]
    if one.switch:
        return "/".join(part for part in (one.switch, one.switch_port) if part)
    parts = [one.host, one.device]
    if one.gpu is not None:
        parts.append(f"gpu{one.gpu}")
    return "/".join(part for part in parts if part) or one.job


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(75)
    '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
