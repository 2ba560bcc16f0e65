"""The demo's terminal: fabric, GPUs, jobs and faults in 24 lines of 80 columns or more."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from simulator.demo.answers import Answers, JobAnswer
from simulator.demo.story import StepTimes, Story, clock
from simulator.snapshot import JobStatus, LinkCounters, Snapshot
from simulator.topology.model import Bools, Floats, Ints, LinkKind

FAULTS_SHOWN = 3
HOSTS_IN_GROUP = 16
BARS = "▁▂▃▄▅▆▇█"
DOT, STRUCK = "■", "◆"
STEPS_DRAWN = (6, 40)
"""At least and at most, as bars."""
OTHER_COLUMNS = 73
"""Of the jobs' table, beside the bars."""

IDLE, BUSY = "grey37", "green3"
DOWN, LOSES, WAITS, SLOW = "bold red", "bold magenta", "bold dark_orange", "bold yellow"
UTILISATION_COLOURS = ((0.02, IDLE), (0.1, "dark_green"), (0.35, BUSY))
"""A port's share of line rate, averaged over a second, up to which it is drawn so."""
FULL_COLOUR = "spring_green1"
LOST_SHARE = 1e-6
"""A port that loses more of its packets than this in a second is drawn as lossy."""
WAITING_SHARE = 0.05
"""A port that may not send for more of its time than this is drawn as waiting."""
FULL_CLOCK_SHARE = 0.97
"""A GPU whose clock is below this share of the fastest one's is drawn as slow."""
BUSY_SHARE = 0.05
"""A GPU that is used less than this is idle, and idle clocks are low."""
SLOWER_YELLOW, SLOWER_RED = 0.05, 0.2
"""How much longer a step may take before it is drawn so."""
LAG_SECONDS = 3.0
"""A picture that is older than this is marked; less is made up for within a few seconds."""


@dataclass
class Screen:
    """Everything that is drawn; `take` once a tick, `render` for each picture."""

    url: str
    stories: list[Story] = field(default_factory=list)
    steps: StepTimes = field(default_factory=StepTimes)
    answers: Answers = field(default_factory=Answers)
    lag_s: float = 0.0
    skipped_s: float = 0.0
    """By which simulated time has fallen behind for good."""
    snapshot: Snapshot | None = None
    _ports: Ports | None = None

    def take(self, snapshot: Snapshot, answers: Answers, lag_s: float) -> None:
        self.steps.add(snapshot)
        before = self.snapshot.links if self.snapshot else None
        self._ports = Ports.between(snapshot, before)
        self.snapshot, self.answers, self.lag_s = snapshot, answers, lag_s

    def render(self, width: int) -> RenderableType:
        if self.snapshot is None or self._ports is None:
            return Text("starting …", "dim")
        return Group(
            self._headline(self.snapshot),
            rule("NICs by rail, and GPUs; a column is a host"),
            fabric(self.snapshot, self._ports, struck(self.snapshot, self.stories)),
            rule("jobs: as simulated, and as the service measures them"),
            self._jobs(self.snapshot, width),
            rule(f"what was done; found: {found(self.answers)}"),
            self._faults(self.snapshot),
        )

    def _headline(self, snapshot: Snapshot) -> Text:
        topology = snapshot.topology
        text = Text.assemble(
            (" Fabricscope demo ", "bold reverse"),
            (f" {clock(snapshot.time_s)} ", "bold"),
            f" {topology.hosts} hosts, {topology.gpus} GPUs, {topology.nics} NICs of "
            f"{topology.speed.name}: simulated\n",
            f" {self.url} ",
        )
        heard, samples = self.answers.hosts, self.answers.samples
        text.append(
            f" {heard} of {topology.hosts} agents heard, {samples:,.0f} samples stored", "cyan"
        )
        behind = self.lag_s + self.skipped_s
        if behind > LAG_SECONDS:
            text.append(f"\n {behind:.0f} s behind: this machine has too much to do", "yellow")
        return text

    def _jobs(self, snapshot: Snapshot, width: int) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(" job", no_wrap=True)
        for name in ("GPUs", "step", "takes"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
        table.add_column("│ service:", no_wrap=True, style="cyan")
        for name in ("network", "waits"):
            table.add_column(name, justify="right", no_wrap=True, style="cyan")
        least, most = STEPS_DRAWN
        count = min(most, max(least, width - OTHER_COLUMNS))
        for job in snapshot.jobs:
            answer = self.answers.jobs.get(job.name, JobAnswer())
            usual = self.steps.usual(job.name)
            table.add_row(
                f" {job.name}",
                str(job.ranks),
                str(job.step),
                f"{job.step_seconds * 1e3:,.0f} ms" if job.step_seconds else "starting",
                Text(sparkline(self.steps.last(job.name, count), usual).ljust(count), "green"),
                slowdown(job, usual, snapshot.time_s),
                f"│ {answer.step_seconds * 1e3:,.0f} ms" if answer.step_seconds else "│ -",
                percent(answer.network_share),
                percent(answer.wait_share),
            )
        return table

    def _faults(self, snapshot: Snapshot) -> RenderableType:
        if not self.stories:
            return Text(" nothing yet: all is well", "green")
        table = Table(
            box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False, expand=True
        )
        for _ in range(4):
            table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for story in self.stories[-FAULTS_SHOWN:]:
            is_active = snapshot.time_s < story.end_s
            state = f"{snapshot.time_s - story.start_s:.0f} s" if is_active else "over"
            table.add_row(
                f" {clock(story.start_s)}",
                Text(state, "bold red" if is_active else "dim"),
                Text(story.truth.fault, "bold" if is_active else ""),
                story.victim,
                Text(story.truth.title, "dim"),
            )
        return table


def found(answers: Answers) -> str:
    if not answers.found:
        return "nothing"
    more = len(answers.found) - 1
    return f"{answers.found[0]}" + (f", and {more} more" if more else "")


def rule(title: str) -> Rule:
    return Rule(Text(title, "bold"), style="dim", align="left")


# The fabric --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ports:
    """What links did since the tick before, one value for each directed link."""

    busy: Floats
    is_lossy: Bools
    is_waiting: Bools

    @classmethod
    def between(cls, snapshot: Snapshot, before: LinkCounters | None) -> Ports:
        """From counters; the first time, nothing has happened yet."""
        now = snapshot.links
        then = before or now
        moved = (now.bytes - then.bytes) * 8 / snapshot.interval_s
        lost = now.lost_packets - then.lost_packets
        waited = (now.paused_us - then.paused_us) / 1e6 + (now.wait_ns - then.wait_ns) / 1e9
        return cls(
            busy=moved / snapshot.topology.bits_per_second,
            is_lossy=lost > LOST_SHARE * np.maximum(now.packets - then.packets, 1),
            is_waiting=waited > WAITING_SHARE * snapshot.interval_s,
        )


def struck(snapshot: Snapshot, stories: list[Story]) -> set[tuple[str, str]]:
    now_s = snapshot.time_s
    culprits = [one.truth.culprits[:1] for one in stories if one.start_s <= now_s < one.end_s]
    return {(who.host, who.device or f"gpu{who.gpu}") for found in culprits for who in found}


def fabric(snapshot: Snapshot, ports: Ports, marked: set[tuple[str, str]]) -> Group:
    """NICs and GPUs as two fields of dots, those with a fault marked; then what colours mean."""
    topology = snapshot.topology
    nics = nic_colours(snapshot, ports)
    gpus = gpu_colours(snapshot)
    lines = [hosts_line(snapshot)]
    per_host = max(topology.nics_per_host, topology.gpus_per_host)
    for row in range(per_host):
        line = Text(f" {row:>2}  ")
        for colours, each, name in (
            (nics, topology.nics_per_host, topology.device_name(row)),
            (gpus, topology.gpus_per_host, f"gpu{row}"),
        ):
            chosen = colours[row::each] if row < each else []
            is_marked = [(topology.host_name(host), name) in marked for host in range(len(chosen))]
            dots(line, chosen, is_marked)
            line.append("    ")
        lines.append(line)
    legend = Text(" ")
    legend.append(STRUCK, "bold white").append(" fault  ", "dim")
    names = (("down", DOWN), ("loses", LOSES), ("paused", WAITS), ("slow clock", SLOW))
    for name, colour in (("idle", IDLE), ("busy", BUSY), *names):
        legend.append(DOT, colour).append(f" {name}  ", "dim")
    legend.append(f"uplinks {uplink_share(snapshot, ports):.0%}", "dim")
    return Group(*lines, legend)


def dots(line: Text, colours: list[str], is_marked: list[bool]) -> None:
    for host, colour in enumerate(colours):
        if host and host % HOSTS_IN_GROUP == 0:
            line.append(" ")
        line.append(*((STRUCK, "bold white") if is_marked[host] else (DOT, colour)))


def hosts_line(snapshot: Snapshot) -> Text:
    """Which job each host works for, above its column; hosts that are down or silent stand out."""
    topology, world = snapshot.topology, snapshot.world
    letters = ["·"] * topology.hosts
    for job in snapshot.jobs:
        for host in np.unique(job.rank_host).tolist():
            letters[host] = job.name[0]
    line = Text("     ")
    for _ in range(2):
        for host, letter in enumerate(letters):
            if host and host % HOSTS_IN_GROUP == 0:
                line.append(" ")
            if world.host_is_down[host]:
                line.append("x", DOWN)
            elif world.host_agent_is_dead[host]:
                line.append("?", WAITS)
            else:
                line.append(letter, "dim")
        line.append("    ")
    return line


def nic_colours(snapshot: Snapshot, ports: Ports) -> list[str]:
    """How each NIC's port is drawn: by its worst trouble, else by how busy it is."""
    topology = snapshot.topology
    nic: Ints = np.arange(topology.nics, dtype=np.int32)
    up, down = topology.up(nic), topology.down(nic)
    live = snapshot.world.link_is_live()[up]
    colours = [colour_of(share) for share in np.maximum(ports.busy[up], ports.busy[down]).tolist()]
    for colour, which in (
        (WAITS, ports.is_waiting[up] | ports.is_waiting[down]),
        (LOSES, ports.is_lossy[up] | ports.is_lossy[down]),
        (DOWN, ~live),
    ):
        for place in np.flatnonzero(which).tolist():
            colours[place] = colour
    return colours


def gpu_colours(snapshot: Snapshot) -> list[str]:
    gpus, world = snapshot.gpus, snapshot.world
    is_busy = gpus.utilization_share > BUSY_SHARE
    is_slow = is_busy & (gpus.sm_clock_mhz < FULL_CLOCK_SHARE * gpus.sm_clock_mhz.max(initial=0.0))
    is_down = world.gpu_is_dead | world.host_is_down[world.gpu_host]
    rows = zip(is_down.tolist(), is_slow.tolist(), is_busy.tolist(), strict=True)
    return [DOWN if dead else SLOW if slow else BUSY if busy else IDLE for dead, slow, busy in rows]


def uplink_share(snapshot: Snapshot, ports: Ports) -> float:
    between = snapshot.topology.kind >= LinkKind.FABRIC_UP
    return float(ports.busy[between].max(initial=0.0))


def colour_of(busy: float) -> str:
    return next((colour for most, colour in UTILISATION_COLOURS if busy <= most), FULL_COLOUR)


# Words and bars ----------------------------------------------------------------------------------


def sparkline(values: list[float], usual: float | None) -> str:
    """A line of bars: half as high as they can be for what is usual, highest for twice as much.

    >>> sparkline([1.0, 1.5, 2.0, 9.0], 1.0)
    '▄▆██'
    """
    if usual is None:
        return ""
    heights = (round(value / usual * len(BARS) / 2) for value in values)
    return "".join(BARS[min(max(1, height), len(BARS)) - 1] for height in heights)


def percent(share: float | None) -> str:
    """A share for people.

    >>> percent(0.256), percent(None)
    ('26%', '-')
    """
    return "-" if share is None else f"{share:.0%}"


def slowdown(job: JobStatus, usual: float | None, now_s: float) -> Text:
    """How much slower the last step was than the usual one; or that nothing moves."""
    if job.hung_since_s is not None:
        return Text(f"stuck {now_s - job.hung_since_s:.0f} s", "bold red")
    if usual is None or not job.step_seconds:
        return Text("")
    # In whole per cent, and never minus nothing.
    extra = round(job.step_seconds / usual - 1, 2) + 0.0
    colour = "green" if extra < SLOWER_YELLOW else "yellow" if extra < SLOWER_RED else "bold red"
    return Text(f"{extra:+.0%}", colour)
