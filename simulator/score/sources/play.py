"""Plays the fabric's faults to a service that sees switches through one source."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from alerts.window.model import Window
from collector.contract.cause_facts import Layer
from collector.contract.causes import Cause
from collector.contract.culprit import Culprit
from collector.contract.errors import FabricscopeError
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario, Truth
from simulator.score.accuracy.costs import Harm, HarmMeter
from simulator.score.cases import CLUSTERS, draw_job, make_faulty
from simulator.score.evaluate import Incidents
from simulator.score.marks import Run, Saying, is_about, is_right, judge
from simulator.score.run import CLUSTER_NAME, FOLDER_PREFIX
from simulator.score.simulated_service import SimulatedService
from simulator.score.sources.readers import SOURCES, Column
from simulator.score.sources.visible import shown_at

HOSTS, NICS_PER_HOST, HOSTS_PER_LEAF = 8, 4, 4
JOB_HOSTS = 5
"""Three hosts are left, for the senders of neighbours' traffic."""


class Trial(msgspec.Struct, frozen=True):
    """One fault, seen through one source."""

    fault: str
    seed: int
    source: str
    is_alone: bool
    """Whether no host has an agent: switches are all that is seen."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a trial."""

    trial: Trial
    run: Run
    shows: list[str]
    """Readings at the culprit's ports of switches that showed the fault while it acted."""
    harm: Harm | None = None
    """What the fault did to jobs and links; None: not measured."""

    @property
    def is_harmless(self) -> bool:
        """Whether no step, no NIC and no link was the worse for it: there was nothing to find."""
        return self.harm is not None and self.harm.is_nothing

    @property
    def is_found(self) -> bool:
        results = judge(self.run)
        return bool(results) and all(result.is_found for result in results)

    @property
    def delay_s(self) -> float | None:
        return next((result.delay_s for result in judge(self.run)), None)


def fabric_faults(column: Column) -> list[str]:
    """Faults whose first right cause lies in the network, of the source's fabric."""
    return [
        name
        for name, fault in discover().items()
        if fault.causes
        and Cause(fault.causes[0]).facts.layer is Layer.NETWORK
        and column.fabric.value in fault.fabrics
    ]


class Watching(Incidents):
    """The service's evaluator; it notes in which readings the fault shows."""

    def __init__(self, service: SimulatedService, truths: Sequence[Truth]) -> None:
        self.shows: set[str] = set()
        self._truths = truths
        super().__init__(service, see=self._note)

    def has_found(self, sayings: Sequence[Saying]) -> bool:
        """Whether every truth was named: the rest of the run has nothing to show."""
        return bool(self._truths) and all(
            any(is_about(one, truth) and is_right(one.verdict, truth) for one in sayings)
            for truth in self._truths
        )

    def _note(self, window: Window) -> Window:
        for truth in self._truths:
            if truth.start_ns < window.to_ns <= truth.end_ns:
                self.shows |= shown_at(truth.fault, window.ports, truth.culprits)
        return window


def make_scenario(trial: Trial, column: Column) -> Scenario:
    """A fault on one of the scoreboard's shapes, small: switches are read many times."""
    random = np.random.default_rng([trial.seed, *trial.fault.encode()])
    clusters = [
        replace(
            spec,
            hosts=HOSTS,
            nics_per_host=NICS_PER_HOST,
            gpus_per_host=NICS_PER_HOST,
            hosts_per_leaf=HOSTS_PER_LEAF,
        )
        for spec in CLUSTERS
        if spec.fabric is column.fabric
    ]
    first = int(random.integers(HOSTS - JOB_HOSTS + 1))
    job = draw_job("llama-70b", list(range(first, first + JOB_HOSTS)), 1, random)
    jobs = (replace(job, tensor=NICS_PER_HOST),)
    return make_faulty(discover()[trial.fault], jobs, random, clusters)


def play(trial: Trial, folder: Path, scenario: Scenario | None = None) -> Outcome:
    """``scenario``: instead of the one that the trial's fault and seed make."""
    column = SOURCES[trial.source]
    scenario = make_scenario(trial, column) if scenario is None else scenario
    simulation = Simulation(scenario)
    service = SimulatedService(folder, scenario.start_unix_ns / NS)
    truths = simulation.truths()
    if trial.is_alone and not column.shows_nics:
        truths = [by_switches(truth) for truth in truths]
    watching = Watching(service, truths)
    meter = HarmMeter(scenario.start_unix_ns)
    sayings = asyncio.run(
        drive(simulation, column, service, watching, meter, is_alone=trial.is_alone)
    )
    run = Run(
        case=trial.fault,
        seed=trial.seed,
        seconds=scenario.seconds,
        truths=truths,
        sayings=sayings,
    )
    harms = [meter.of(truth.start_ns, truth.end_ns) for truth in truths]
    return Outcome(
        trial=trial,
        run=run,
        shows=sorted(watching.shows),
        harm=harms[0] if len(harms) == 1 else None,
    )


def by_switches(truth: Truth) -> Truth:
    """The truth where no host has an agent: a NIC's device has no name, its switch's port has."""
    places = [
        Culprit(switch=each.switch, switch_port=each.switch_port)
        for each in truth.culprits
        if each.switch
    ]
    return msgspec.structs.replace(truth, culprits=type(truth.culprits)(dict.fromkeys(places)))


async def drive(
    simulation: Simulation,
    column: Column,
    service: SimulatedService,
    watching: Watching,
    meter: HarmMeter,
    *,
    is_alone: bool,
) -> list[Saying]:
    scenario = simulation.scenario
    reporter = Reporter(
        simulation.topology,
        cluster=CLUSTER_NAME,
        start_unix_ns=scenario.start_unix_ns,
        seed=scenario.seed,
        poller=None,
    )
    source = column.make(simulation)
    sayings: list[Saying] = []
    standing = set()
    async with service.running():
        for snapshot in simulation.run():
            meter.note(snapshot)
            now_ns = scenario.start_unix_ns + round(snapshot.time_s * NS)
            hosts = [] if is_alone else list(reporter.batches(snapshot))
            batches, pushes = source.deliver(snapshot)
            await service.work(now_ns / NS, [*hosts, *batches], pushes)
            found = {(each.cause, each.culprit): each for each in watching.evaluate(now_ns)}
            sayings += [Saying(found[key], now_ns) for key in found if key not in standing]
            standing = set(found)
            if watching.has_found(sayings):
                break
    return sayings


def play_apart(trial: Trial, folder: str) -> Outcome:
    """In a process of its own: the store allows one folder in each."""
    own = Path(folder) / f"{trial.source}-{trial.fault}-{trial.seed}-{int(trial.is_alone)}"
    own.mkdir()
    try:
        return play(trial, own)
    except FabricscopeError as error:
        nothing = Run(case=trial.fault, seed=trial.seed, seconds=0.0, truths=[], sayings=[])
        run = msgspec.structs.replace(nothing, error=str(error))
        return Outcome(trial=trial, run=run, shows=[])


def play_all(trials: Sequence[Trial], processes: int) -> Iterator[Outcome]:
    with (
        tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder,
        ProcessPoolExecutor(
            processes, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
        ) as pool,
    ):
        try:
            futures = [pool.submit(play_apart, trial, folder) for trial in trials]
            for future in as_completed(futures):
                yield future.result()
        finally:
            # A caller that stops early does not wait for what has not begun.
            pool.shutdown(wait=True, cancel_futures=True)
