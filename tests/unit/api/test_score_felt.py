"""Every fault of the scoreboard is felt: one that costs no job anything could not be found."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.engine import Simulation
from simulator.faults import discover
from simulator.scenario import Scenario
from simulator.score.cases import make_case

COST_LEAST = 0.03
"""Of a step: what every fault must cost the job that it strikes."""
QUIET_FROM_S, FAULT_START_S, FAULT_FROM_S, FAULT_END_S = 7.0, 20.0, 22.0, 60.0
"""Jobs need some seconds to start, and GPUs to become hot: steps are compared that lie between the
first two and between the last two."""
STEPS_LEAST = 4
"""Fewer in the time of the fault: the job hangs, or nearly."""

HARMFUL = [name for name, fault in discover().items() if fault.causes]


def shorten(scenario: Scenario) -> Scenario:
    """The same fault, earlier: detectors need a past, we do not."""
    [injection] = scenario.injections
    early = replace(injection, start_s=FAULT_START_S, end_s=FAULT_END_S)
    return replace(scenario, injections=(early,), seconds=FAULT_END_S)


def cost(scenario: Scenario) -> float:
    """How much longer the steps of the job that suffers most are; infinite if it hangs."""
    before: dict[str, list[float]] = {job.name: [] for job in scenario.jobs}
    during: dict[str, list[float]] = {job.name: [] for job in scenario.jobs}
    for snapshot in Simulation(scenario).run():
        for step in snapshot.steps:
            start_s, end_s = float(step.start_s.min()), float(step.end_s.max())
            if start_s > QUIET_FROM_S and end_s < FAULT_START_S:
                before[step.job].append(end_s - start_s)
            elif start_s > FAULT_FROM_S:
                during[step.job].append(end_s - start_s)
    return max(
        float(np.mean(during[job]) / np.mean(before[job]) - 1.0)
        if len(during[job]) >= STEPS_LEAST
        else np.inf
        for job in before
    )


@pytest.mark.slow
@pytest.mark.rotating(8)
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("name", HARMFUL)
def test_a_fault_costs_a_job_some_of_its_speed(name: str, seed: int) -> None:
    assert cost(shorten(make_case(name, seed))) >= COST_LEAST
