"""What agents cost: a job's step time while they run and while they are held, in turns."""

from __future__ import annotations

import statistics
import time
from typing import Any

from job import Job
from watch import Agents, Service, cpu_seconds

SETTLE_NS = 300_000_000
"""Left out at the beginning of each turn: a step that began in the one before, and a first rush."""
PAIRS_MIN = 2


def measure_agents(
    job: Job, agents: Agents, service: Service, turn_seconds: float, pairs: int
) -> dict[str, Any]:
    """Turns with agents held and running, one after the other; ABBA, so that a drift cancels."""
    held: list[list[float]] = []
    running: list[list[float]] = []
    agents_cpu = service_cpu = seconds = 0.0
    for pair in range(pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        for is_running in order:
            (agents.go_on if is_running else agents.hold)()
            start_ns, started = time.time_ns(), time.monotonic()
            before = cpu_seconds(agents.processes), cpu_seconds([service.process])
            time.sleep(turn_seconds)
            job.check()
            took = job.steps_between(start_ns + SETTLE_NS, time.time_ns())
            (running if is_running else held).append(took)
            if is_running:
                agents_cpu += cpu_seconds(agents.processes) - before[0]
                service_cpu += cpu_seconds([service.process]) - before[1]
                seconds += time.monotonic() - started
    agents.go_on()
    return {
        **compared(held, running),
        "turn_seconds": turn_seconds,
        "agent_cores": round(agents_cpu / seconds / len(agents.processes), 4) if seconds else None,
        "service_cores": round(service_cpu / seconds, 3) if seconds else None,
        "agents_running": agents.running,
    }


def compared(without: list[list[float]], beside: list[list[float]]) -> dict[str, Any]:
    """Step times of turns without and with something, turn by turn.

    The difference is the mean over pairs of turns, relative, with the standard error of that mean:
    where the error is larger than the difference, no more can be said than that it is smaller.

    >>> compared([[10.0, 10.0], [10.0]], [[10.1], [10.2, 10.2]])["difference_percent"]
    1.5
    """
    both = [(other, one) for other, one in zip(without, beside, strict=True) if one and other]
    pairs = [(statistics.fmean(one) / statistics.fmean(other) - 1) * 100 for other, one in both]
    middles = [(statistics.median(one) / statistics.median(other) - 1) * 100 for other, one in both]
    error = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) >= PAIRS_MIN else float("nan")
    return {
        "without": summary([step for turn in without for step in turn]),
        "with": summary([step for turn in beside for step in turn]),
        "difference_percent": round(statistics.fmean(pairs), 3) if pairs else None,
        "standard_error_percent": round(error, 3) if pairs and error == error else None,  # noqa: PLR0124 - not a number
        "medians_percent": round(statistics.fmean(middles), 3) if middles else None,
        "pairs_percent": [round(one, 2) for one in pairs],
    }


def summary(steps: list[float]) -> dict[str, float | int]:
    """Milliseconds."""
    if not steps:
        return {"steps": 0}
    return {
        "steps": len(steps),
        "mean_ms": round(statistics.fmean(steps), 3),
        "median_ms": round(statistics.median(steps), 3),
        "p95_ms": round(sorted(steps)[int(0.95 * (len(steps) - 1))], 3),
    }
