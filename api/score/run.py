"""Running cases: simulate, store, ask, and write down what was said; several cases at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from api.score.cases import FLUSH_SECONDS, make_case
from api.score.marks import NS, Run, Saying
from api.score.service import Evaluator, Silent, SimulatedService
from collector.contract.errors import FabricscopeError
from collector.contract.verdict import Cause, Culprit, Verdict
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario

CLUSTER_NAME = "simulated"


def no_detectors(_: SimulatedService) -> Evaluator:
    """The evaluator of a version that has none."""
    return Silent()


def run_case(
    name: str,
    seed: int,
    make_evaluator: Callable[[SimulatedService], Evaluator] = no_detectors,
) -> Run:
    """One case from start to end, in a folder that is gone afterwards."""
    scenario = make_case(name, seed)
    simulation = Simulation(scenario)
    with tempfile.TemporaryDirectory(prefix="fabricscope-score-") as folder:
        service = SimulatedService(Path(folder), scenario.start_unix_ns / NS)
        sayings = asyncio.run(drive(simulation, scenario, service, make_evaluator(service)))
    return Run(
        case=name,
        seed=seed,
        seconds=scenario.seconds,
        truths=simulation.truths(),
        sayings=sayings,
    )


async def drive(
    simulation: Simulation, scenario: Scenario, service: SimulatedService, evaluator: Evaluator
) -> list[Saying]:
    """Let simulated time pass; agents send every few seconds, and then everyone is asked."""
    reporter = Reporter(
        simulation.topology,
        cluster=CLUSTER_NAME,
        start_unix_ns=scenario.start_unix_ns,
        seed=scenario.seed,
    )
    said: dict[tuple[Cause, Culprit], Saying] = {}
    waiting: list[bytes] = []
    async with service.running():
        for tick, snapshot in enumerate(simulation.run(), start=1):
            waiting += reporter.batches(snapshot)
            if tick % FLUSH_SECONDS:
                continue
            now_ns = scenario.start_unix_ns + round(snapshot.time_s * NS)
            service.now_s = now_ns / NS
            await service.take(waiting)
            waiting = []
            await service.work()
            for verdict in evaluator.evaluate(now_ns):
                remember(said, verdict, now_ns)
    return sorted(said.values(), key=lambda saying: saying.said_ns)


def remember(said: dict[tuple[Cause, Culprit], Saying], verdict: Verdict, now_ns: int) -> None:
    """Keep a verdict under the moment at which it was first said."""
    key = (verdict.cause, verdict.culprit)
    if key not in said:
        said[key] = Saying(verdict, now_ns)


def attempt(name: str, seed: int) -> Run:
    """One case, or why it broke off: one bad case must not hide the others."""
    try:
        return run_case(name, seed)
    except FabricscopeError as error:
        return broken(name, seed, str(error))


def broken(name: str, seed: int, reason: str) -> Run:
    """A run that came to nothing: its truths count as missed."""
    truths = Simulation(make_case(name, seed)).truths()
    return Run(case=name, seed=seed, seconds=0.0, truths=truths, sayings=[], error=reason)


def run_all(cases: Sequence[tuple[str, int]], processes: int) -> Iterator[Run]:
    """All cases, each in a process of its own (the store allows one folder in a process)."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
        futures = {pool.submit(attempt, name, seed): (name, seed) for name, seed in cases}
        try:
            for future in as_completed(futures):
                name, seed = futures[future]
                try:
                    yield future.result()
                except BrokenProcessPool as error:
                    yield broken(name, seed, f"its process died: {error}")
        except (KeyboardInterrupt, GeneratorExit):
            pool.shutdown(wait=False, cancel_futures=True)
            raise
