"""Runs cases: simulate, store, evaluate, and record the verdicts; several cases at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import numpy as np

from collector.contract.errors import FabricscopeError
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario
from simulator.score.cases import make_case
from simulator.score.evaluate import with_detectors
from simulator.score.handicap import Delivery, Handicap
from simulator.score.marks import Run, Saying
from simulator.score.simulated_service import Evaluator, SimulatedService

CLUSTER_NAME = "simulated"
FOLDER_PREFIX = "fabricscope-score-"

MakeEvaluator = Callable[[SimulatedService, Handicap], Evaluator]
"""Must be a function of a module: it is sent to other processes."""


# One run -----------------------------------------------------------------------------------------


def play(
    simulation: Simulation,
    folder: Path,
    make_evaluator: MakeEvaluator = with_detectors,
    handicap: Handicap = Handicap.NONE,
) -> list[Saying]:
    scenario = simulation.scenario
    service = SimulatedService(folder, scenario.start_unix_ns / NS)
    evaluator = make_evaluator(service, handicap)
    return asyncio.run(drive(simulation, scenario, service, evaluator, handicap))


async def drive(
    simulation: Simulation,
    scenario: Scenario,
    service: SimulatedService,
    evaluator: Evaluator,
    handicap: Handicap,
) -> list[Saying]:
    """Let simulated time pass; agents send at every tick, and then the evaluator runs.

    A verdict counts from its first evaluation for as long as each evaluation repeats
    it; one that was dropped and comes back counts as new.
    """
    reporter = Reporter(
        simulation.topology,
        cluster=CLUSTER_NAME,
        start_unix_ns=scenario.start_unix_ns,
        seed=scenario.seed,
    )
    sayings: list[Saying] = []
    standing = set()
    delivery = Delivery(handicap, np.random.default_rng([scenario.seed, *handicap.encode()]))
    async with service.running():
        for tick, snapshot in enumerate(simulation.run()):
            now_ns = scenario.start_unix_ns + round(snapshot.time_s * NS)
            bodies = delivery.take(reporter.batches(snapshot), now_ns / NS)
            await service.work(now_ns / NS, bodies)
            if tick % (handicap.rounds_left_out + 1):
                continue
            found = {(each.cause, each.culprit): each for each in evaluator.evaluate(now_ns)}
            sayings += [Saying(found[key], now_ns) for key in found if key not in standing]
            standing = set(found)
    return sayings


# Many runs ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Attempt:
    """A case that has its process, and what is known of it so far."""

    process: BaseProcess
    run: Run


def run_all(
    cases: Sequence[tuple[str, int]],
    processes: int,
    make_evaluator: MakeEvaluator = with_detectors,
    handicap: Handicap = Handicap.NONE,
) -> Generator[Run]:
    """All cases, as they end; each in a process of its own (the store allows one folder in each).

    One that crashes is reported and stops no other. A caller that stops early leaves
    neither processes nor folders behind.
    """
    waiting = list(reversed(cases))
    running: dict[Connection, Attempt] = {}
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        try:
            while waiting or running:
                while waiting and len(running) < processes:
                    name, seed = waiting.pop()
                    answers, attempt = start(name, seed, Path(folder), (make_evaluator, handicap))
                    running[answers] = attempt
                for answers in [one for one in wait(list(running)) if isinstance(one, Connection)]:
                    if not hear(answers, running[answers]):
                        yield running.pop(answers).run
        finally:
            for answers, attempt in running.items():
                attempt.process.kill()
                attempt.process.join()
                answers.close()


def start(
    name: str, seed: int, folder: Path, how: tuple[MakeEvaluator, Handicap]
) -> tuple[Connection, Attempt]:
    answers, answer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=attempt_case,
        args=(name, seed, folder / f"{name}-{seed}", how, answer),
        name=f"{name} {seed}",
        daemon=True,
    )
    process.start()
    # With our copy of its end closed, the end of the process is the end of the answers.
    answer.close()
    run = Run(case=name, seed=seed, seconds=0.0, truths=[], sayings=[])
    return answers, Attempt(process, run)


def hear(answers: Connection, attempt: Attempt) -> bool:
    """Take the next answer of a process; False when there is none because it has ended."""
    try:
        attempt.run = answers.recv()
    except EOFError:
        answers.close()
        attempt.process.join()
    else:
        return True
    status = attempt.process.exitcode
    if status:
        attempt.run = broken(attempt.run, f"its process ended with status {status}")
    return False


def attempt_case(
    name: str, seed: int, folder: Path, how: tuple[MakeEvaluator, Handicap], answer: Connection
) -> None:
    """In a process of its own: send the truths, then the verdicts or why it broke off."""
    # Ctrl-C reaches every process of a terminal; the parent process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = Run(case=name, seed=seed, seconds=0.0, truths=[], sayings=[])
    try:
        simulation = Simulation(make_case(name, seed))
        run = msgspec.structs.replace(run, truths=simulation.truths())
        answer.send(run)
        folder.mkdir()
        sayings = play(simulation, folder, *how)
    except FabricscopeError as error:
        answer.send(broken(run, str(error)))
    else:
        seconds = simulation.scenario.seconds
        collisions = simulation.collisions()
        answer.send(
            msgspec.structs.replace(run, seconds=seconds, sayings=sayings, collisions=collisions)
        )


def broken(run: Run, reason: str) -> Run:
    return msgspec.structs.replace(run, error=reason)
