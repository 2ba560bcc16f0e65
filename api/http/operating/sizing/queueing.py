"""A small simulation of ingest: batches arrive, queue at processes, are taken; one process fails.

Each host sends a batch every interval, at a phase of its own, to the process that its connection
leads to. A process takes one batch after the other, each for as long as the live bench says. One
process fails: what waits there and what comes meanwhile is sent again, a second or more later, to
others (agents spool and repeat, so nothing is lost); then it is back. What the store does is not
simulated. Times are seconds. The same seed gives the same numbers.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from api.http.operating.sizing import costs
from api.http.operating.sizing.size import Asked, Size

SECONDS = 120.0
FAILS_AT_S, BACK_AT_S = 60.0, 75.0
RETRY_S_MIN, RETRY_S_MAX = 1.0, 5.0
"""Until a sender that lost its connection sends again."""
SEED = 28
WARM_S = 10.0
"""Of the beginning that is not counted: queues fill first."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """How it went. Waits are from a batch's first sending to its acknowledgement, in seconds."""

    processes: int
    batches: int
    batch_s: float
    """How long a process works on a batch."""
    busy: float
    wait_p50: float
    wait_p99: float
    wait_max: float
    failed_wait_p99: float
    """Of batches that were sent again because of the failure."""
    resent: int
    queue_max: int
    """The longest queue of a process, in batches."""
    settled_s: float
    """Seconds after the failure until no batch waited longer than an interval any more."""


def batch_seconds() -> float:
    """For a host's batch: what a host adds in the live bench, on what is left of a core."""
    return costs.INGEST.per_host * costs.INTERVAL_S / (1 - costs.INGEST.fixed)


def simulate(size: Size, seed: int = SEED) -> Queued:
    asked = size.asked
    processes = size.processes.get("ingest", 1)
    random = np.random.default_rng(seed)
    sent_s, host = arrivals(asked, random)
    home = random.integers(0, processes, asked.hosts)
    at_s, where = sent_s.copy(), home[host]
    service_s = batch_seconds() * asked.gpus_per_host / costs.GPUS
    hit = np.zeros(len(at_s), bool)
    if processes > 1:
        hit = failed(at_s, where, service_s)
        again = random.uniform(RETRY_S_MIN, RETRY_S_MAX, int(hit.sum()))
        at_s[hit] = np.maximum(at_s[hit], FAILS_AT_S) + again
        where[hit] = 1 + random.integers(0, processes - 1, int(hit.sum()))
    done_s, queue_max = serve(at_s, where, service_s, processes)
    wait_s = done_s - sent_s
    counted = sent_s > WARM_S
    late = counted & (sent_s > FAILS_AT_S - asked.interval_s) & (wait_s > asked.interval_s)
    return Queued(
        processes=processes,
        batches=len(at_s),
        batch_s=service_s,
        busy=asked.hosts / asked.interval_s * service_s / processes,
        wait_p50=float(np.percentile(wait_s[counted], 50)),
        wait_p99=float(np.percentile(wait_s[counted & ~hit], 99)),
        wait_max=float(wait_s[counted].max()),
        failed_wait_p99=float(np.percentile(wait_s[hit], 99)) if hit.any() else 0.0,
        resent=int(hit.sum()),
        queue_max=queue_max,
        settled_s=float((done_s[late] - FAILS_AT_S).max()) if late.any() else 0.0,
    )


def arrivals(asked: Asked, random: np.random.Generator) -> tuple[Floats, Ints]:
    """When which host sends."""
    rounds = int(SECONDS / asked.interval_s)
    phase = random.uniform(0, asked.interval_s, asked.hosts)
    sent = phase[:, None] + asked.interval_s * np.arange(rounds)[None, :]
    host = np.repeat(np.arange(asked.hosts), rounds)
    return sent.ravel(), host


def failed(at_s: Floats, where: Ints, service_s: float) -> npt.NDArray[np.bool_]:
    """Batches of process 0 that it had not acknowledged when it failed, or that came while away."""
    done_s, _ = serve(at_s, where, service_s, 1)
    hit: npt.NDArray[np.bool_] = (where == 0) & (done_s > FAILS_AT_S) & (at_s < BACK_AT_S)
    return hit


def serve(at_s: Floats, where: Ints, service_s: float, processes: int) -> tuple[Floats, int]:
    """When each batch is taken, first come, first served; and the longest queue."""
    done_s = np.full(len(at_s), np.inf)
    longest = 0
    for process in range(processes):
        mine = np.flatnonzero(where == process)
        if not len(mine):
            continue
        order = mine[np.argsort(at_s[mine], kind="stable")]
        number = np.arange(len(order))
        # Work on a batch ends a service time after the later of its arrival and the end before.
        begun = np.maximum.accumulate(at_s[order] - service_s * number)
        done_s[order] = begun + service_s * (number + 1)
        ahead = number - np.searchsorted(done_s[order], at_s[order], side="right")
        longest = max(longest, int(ahead.max()) + 1)
    return done_s, longest


def told(queued: Queued) -> str:
    """For people."""
    away = BACK_AT_S - FAILS_AT_S
    lines = [
        f"{SECONDS:.0f} s: {queued.batches} batches of {queued.batch_s * 1000:.1f} ms each,",
        f"  {queued.processes} ingest processes, {queued.busy:.0%} busy; one is away {away:.0f} s",
        f"  wait: p50 {queued.wait_p50 * 1000:.0f} ms, p99 {queued.wait_p99 * 1000:.0f} ms",
        f"  {queued.resent} batches were sent again: p99 {queued.failed_wait_p99:.1f} s",
        f"  longest wait {queued.wait_max:.1f} s, longest queue {queued.queue_max} batches",
        f"  late by more than an interval until {queued.settled_s:.0f} s after the failure",
    ]
    return "\n".join(lines)
