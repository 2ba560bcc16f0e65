"""Trials: one fault at a strength, several faults at once, on clusters of several sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict

import msgspec
import numpy as np

from collector.contract.errors import FabricscopeError, SettingsError
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults import before_jobs, discover
from simulator.faults.model import Cluster, Fault, Injection, Place
from simulator.jobs.model import JobSpec
from simulator.scenario import START_UNIX_NS, Scenario
from simulator.score.accuracy.costs import StepCosts
from simulator.score.cases import (
    AFTER_SECONDS,
    QUIET_SECONDS,
    SEED_END,
    TICK_SECONDS,
    clusters,
    draw_jobs,
)
from simulator.score.direct.play import QUIET_SECONDS as CALM_SECONDS
from simulator.score.direct.play import play_directly
from simulator.score.direct.probes import play_probes
from simulator.score.handicap import Handicap
from simulator.score.marks import Run, Saying, judge

HOSTS_SMALL, HOSTS_MEDIUM, HOSTS_LARGE = 16, 128, 1_024
FAULT_SECONDS = 130.0
"""A little longer than the two minutes in which small faults should be named."""
LADDER = (0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
LADDERS: dict[str, tuple[float, ...]] = {
    "slow_loader": (-0.07, -0.04, 0.0, 0.1, 0.3, 1.0),
    "spine_loss": (-1.0, -0.5, 0.0, 0.25, 0.5, 1.0),
    "host_steal": (0.05, 0.1, 0.15, 0.25, 0.5, 1.0),
    "bad_cable": (0.2, 0.5, 0.7, 0.8, 0.9, 1.0),
    "slow_nic": (0.05, 0.11, 0.22, 0.43, 0.7, 1.0),
    "grey_link": (0.0, 0.25, 0.5, 0.75, 1.0),
    "slow_receiver": (0.05, 0.11, 0.22, 0.43, 0.7, 1.0),
}
"""Strengths from hardly anything to the worst, where the usual steps of the ladder are not that.
Below 0 a fault is weaker than the scoreboard's weakest: a loader 10 ms late, a loss of 1e-6."""
APART_SECONDS = (15.0, 45.0)
"""Between the beginnings of faults that overlap."""
RECOVERY_SECONDS = (2.0, 20.0)
"""After the end of a fault in which the next one begins."""
TOGETHER_SECONDS = 3.0
BESIDE = "beside"
"""The kind of trials whose faults are all at one NIC: a slow one whose host writes a checkpoint."""
BEFORE = "before"
"""The kind of trials in which a fault strikes where no job runs, and agents probe each other."""
PLACES_TRIED = 50


Reshape = Callable[[tuple[JobSpec, ...]], tuple[JobSpec, ...]]


class Shortened(TypedDict, total=False):
    """What `play_directly` is told of a short trial."""

    first_look_s: float
    calm_seconds: float
    is_over: Callable[[Sequence[Saying]], bool]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What determines a trial."""

    kind: str
    """`ladder`, `together`, `overlapping`, `recovery`, `beside`, `shape`, `sight` or `before`."""
    faults: tuple[str, ...]
    seed: int
    hosts: int = HOSTS_SMALL
    strength: float | None = None
    """None: drawn, as on the scoreboard."""
    shape: str = ""
    """The jobs' shape, or the name of what is seen (`simulator.score.accuracy.shapes`)."""
    without: Handicap = Handicap.NONE
    is_short: bool = False
    """Looked at from its first fault on, and ended once each fault was named right: what is said
    afterwards is not known. For clusters on which a look takes half a minute."""

    @property
    def name(self) -> str:
        strength = "" if self.strength is None else f" {self.strength:g}"
        shape = f" {self.shape}" if self.shape else ""
        return f"{self.kind}{shape} {'+'.join(self.faults)}{strength} {self.hosts} {self.seed}"


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A trial with its verdicts, and what each of its faults cost."""

    trial: Trial
    topology: str = ""
    fabric: str = ""
    run: Run
    costs: list[float | None] = []
    """For each truth: by how much the steps of the job that lost most became longer, as a share;
    None where no step ended any more."""
    cpu_seconds: float = 0.0


def harmful() -> list[str]:
    return [name for name, fault in discover().items() if fault.causes]


def ladder(seeds: Sequence[int], hosts: int = HOSTS_SMALL) -> list[Trial]:
    return [
        Trial(
            kind="ladder",
            faults=(name,),
            seed=seed,
            hosts=hosts,
            strength=strength,
            is_short=hosts >= HOSTS_LARGE,
        )
        for seed in seeds
        for name in harmful()
        for strength in LADDERS.get(name, LADDER)
    ]


def several(
    seeds: Sequence[int], kinds: Sequence[str] = ("together", "overlapping", "recovery")
) -> list[Trial]:
    """Two faults, and for every third seed three, each kind of timing once a seed."""
    found = []
    names = harmful()
    for seed in seeds:
        for kind in kinds:
            random = np.random.default_rng([seed, *kind.encode()])
            count = 3 if seed % 3 == 0 and kind != "recovery" else 2
            chosen = random.choice(len(names), size=count, replace=False)
            found.append(Trial(kind=kind, faults=tuple(names[one] for one in chosen), seed=seed))
    return found


def beside(seeds: Sequence[int]) -> list[Trial]:
    """A slow NIC over which its host writes a checkpoint, either one first."""
    both = ("slow_nic", "storage_writes")
    return [
        Trial(kind=BESIDE, faults=faults, seed=seed)
        for seed in seeds
        for faults in (both, both[::-1])
    ]


def before(seeds: Sequence[int], hosts: int = HOSTS_SMALL) -> list[Trial]:
    """What probes have to find alone."""
    return [
        Trial(kind=BEFORE, faults=(name,), seed=seed, hosts=hosts, strength=strength)
        for seed in seeds
        for name in before_jobs()
        for strength in LADDERS[name]
    ]


# Scenarios ---------------------------------------------------------------------------------------


def make_trial(trial: Trial, reshape: Reshape = lambda jobs: jobs) -> Scenario:
    """Raises SettingsError where no cluster has a place for all of its faults."""
    random = np.random.default_rng([trial.seed, trial.hosts, *" ".join(trial.faults).encode()])
    known = discover() | before_jobs()
    faults = [known[name] for name in trial.faults]
    jobs = reshape(draw_jobs(random, trial.hosts))
    seed = int(random.integers(SEED_END))
    specs = clusters(trial.hosts)
    for choice in random.permutation(len(specs)):
        scenario = Scenario(cluster=specs[choice], jobs=jobs, seed=seed, tick_seconds=TICK_SECONDS)
        cluster = Simulation(scenario).cluster
        if all(fault.fits(cluster) for fault in faults):
            break
    else:
        raise SettingsError(f"{trial.name}: no cluster has a place for all of it")
    injections = draw_injections(trial, faults, cluster, random)
    end_s = max(one.end_s for one in injections)
    ticks = np.ceil((end_s + AFTER_SECONDS) / TICK_SECONDS)
    return replace(scenario, injections=tuple(injections), seconds=float(ticks * TICK_SECONDS))


def draw_injections(
    trial: Trial, faults: Sequence[Fault], cluster: Cluster, random: np.random.Generator
) -> list[Injection]:
    start_s = float(random.uniform(*QUIET_SECONDS))
    found: list[Injection] = []
    for fault in faults:
        strength = trial.strength
        if strength is None:
            strength = float(random.uniform(*fault.strengths))
        place = choose_place(trial, fault, cluster, found, random)
        end_s = start_s + FAULT_SECONDS
        found.append(
            Injection(fault=fault, place=place, start_s=start_s, end_s=end_s, strength=strength)
        )
        if trial.kind == "together":
            start_s = found[0].start_s + float(random.uniform(0.0, TOGETHER_SECONDS))
        elif trial.kind in ("overlapping", BESIDE):
            start_s += float(random.uniform(*APART_SECONDS))
        else:
            start_s = end_s + float(random.uniform(*RECOVERY_SECONDS))
    return found


def choose_place(
    trial: Trial,
    fault: Fault,
    cluster: Cluster,
    found: Sequence[Injection],
    random: np.random.Generator,
) -> Place:
    if trial.kind == BESIDE:
        # A place with senders does for all faults of NICs.
        known = discover()
        places = [known[name].choose(cluster, random) for name in trial.faults]
        return found[0].place if found else max(places, key=lambda one: len(one.peers))
    for _ in range(PLACES_TRIED):
        place = fault.choose(cluster, random)
        if not any(shares_culprit(fault, place, other, cluster) for other in found):
            return place
    raise SettingsError(f"{trial.name}: its faults are all at one place")


def shares_culprit(fault: Fault, place: object, other: Injection, cluster: Cluster) -> bool:
    """Whether two faults are on one machine: which of them is the culprit no reader could say."""
    one = {culprit.host or culprit.switch for culprit in fault.culprits(cluster, place)}  # type: ignore[arg-type]
    another = {
        culprit.host or culprit.switch for culprit in other.fault.culprits(cluster, other.place)
    }
    return bool(one & another)


def shortened(run: Run, trial: Trial) -> Shortened:
    """How a short trial is played: the same verdicts at the same times until it ends."""
    if not trial.is_short:
        return {}
    start_ns = min(truth.start_ns for truth in run.truths)
    return {
        "first_look_s": (start_ns - START_UNIX_NS) / NS - TICK_SECONDS,
        "calm_seconds": CALM_SECONDS,
        "is_over": lambda sayings: all(
            one.is_found for one in judge(msgspec.structs.replace(run, sayings=list(sayings)))
        ),
    }


# Playing -----------------------------------------------------------------------------------------


def play_trial(trial: Trial, reshape: Reshape = lambda jobs: jobs) -> Played:
    started = time.process_time()
    run = Run(case=trial.name, seed=trial.seed, seconds=0.0, truths=[], sayings=[])
    try:
        simulation = Simulation(make_trial(trial, reshape))
        scenario = simulation.scenario
        truths = simulation.truths()
        run = msgspec.structs.replace(run, truths=truths)
        costs = StepCosts(scenario.start_unix_ns)
        if trial.kind == BEFORE:
            sayings = play_probes(simulation)
        else:
            sayings = play_directly(
                simulation, trial.without, note=costs.note, **shortened(run, trial)
            )
    except FabricscopeError as error:
        return Played(trial=trial, run=msgspec.structs.replace(run, error=str(error)))
    return Played(
        trial=trial,
        topology=scenario.cluster.topology,
        fabric=scenario.cluster.fabric.value,
        run=msgspec.structs.replace(
            run,
            seconds=scenario.seconds,
            sayings=sayings,
            collisions=simulation.collisions(),
        ),
        costs=[costs.of(truth.start_ns, truth.end_ns) for truth in truths],
        cpu_seconds=round(time.process_time() - started, 2),
    )
