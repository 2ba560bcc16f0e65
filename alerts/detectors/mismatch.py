"""Ranks of one group that call different operations under the same number.

*Phenomenon.* One rank takes another way through the program: an extra all-gather, a buffer of
another size, one batch more. NCCL pairs calls by their order alone, so it pairs what does not
belong together. Mostly the group hangs many calls later, when one rank has nothing left to be
paired with; until then results are silently wrong.

*Signal.* Calls in Flight Recorder dumps, by group and number: the first number under which ranks
called other operations, element counts or types. The ranks in the minority are the odd ones. Where
all calls are alike: a rank that waits in a call that all others never made and whose watchdog has
ended it.

*Assumptions.* Dumps are of one run. The majority runs the program as it was meant.

*Misses.* A group of two, or halves that differ: nobody is named. Calls that the recorder has
already overwritten. Operations whose sizes may differ (all-to-all, gather, scatter) are compared by
name.

*Reference.* PyTorch's analyser of dumps (`torch.distributed.flight_recorder`, `match_state`): the
same fields, named per pair. Own recordings: an extra all-gather, and an all-reduce of half the
size.
"""

from __future__ import annotations

from collections.abc import Sequence

from alerts.finding import Finding
from alerts.window.model import Calls, JobWindow, Side, Window
from collector.contract.communicator import RANK, RANKS_MAX
from collector.contract.identity import whole_number
from collector.contract.verdict import Cause, Culprit, Evidence

MINORITY = 1 / 3
"""Of a group's ranks that may be called odd."""
SIDES_SHOWN = 4
RANKS_SHOWN = 8
VICTIMS_MAX = 64
TIMED_OUT = "collective_timeout"
"""The last words (`collector.parsing.dying_words`) of a rank that waited in vain."""


def detect(window: Window) -> list[Finding]:
    found = (detect_job(window, job) for job in window.looked)
    return [finding for finding in found if finding is not None]


def detect_job(window: Window, job: JobWindow) -> Finding | None:
    """The first difference of the job, over all its groups."""
    timed_out = {
        whole_number(event.labels.get(RANK, ""), RANKS_MAX)
        for event in window.events
        if event.attributes.get("words") == TIMED_OUT
        and event.labels.get("job", job.job) == job.job
    }
    for calls in sorted(job.calls, key=lambda one: (one.time_ns, one.communicator)):
        if not calls.is_ahead or timed_out & set(calls.sides[-1].ranks):
            return to_finding(window, job, calls)
    return None


def odd_side(calls: Calls) -> Side | None:
    """The side in the minority; None where there are more than two, or no clear majority."""
    ordered = sorted(calls.sides, key=lambda side: (len(side.ranks), side.ranks))
    total = sum(len(side.ranks) for side in ordered)
    few = ordered[:-1]
    if sum(len(side.ranks) for side in few) > MINORITY * total or len(few) != 1:
        return None
    return few[0]


def to_finding(window: Window, job: JobWindow, calls: Calls) -> Finding:
    odd = odd_side(calls)
    others = [rank for side in calls.sides if side is not odd for rank in side.ranks]
    culprits = [job.culprit(rank) for rank in odd.ranks] if odd is not None else []
    since = min(max(calls.time_ns, window.from_ns), window.to_ns)
    strength = 0.6 if odd is None else 0.8 if calls.is_ahead else 0.95
    return Finding(
        detector="mismatch",
        cause=Cause.MISMATCH,
        culprit=culprits[0] if culprits else Culprit(job=job.job),
        strength=strength,
        since_ns=since,
        until_ns=None,
        last_ns=window.to_ns,
        job=job.job,
        communicators=(calls.communicator,),
        accomplices=tuple(culprits[1:]),
        victims=tuple(job.culprit(rank) for rank in others[:VICTIMS_MAX]) if culprits else (),
        evidence=evidence_of(job, calls, odd),
    )


def evidence_of(job: JobWindow, calls: Calls, odd: Side | None) -> tuple[Evidence, ...]:
    sides = sorted(calls.sides, key=lambda side: (side is not odd, -len(side.ranks), side.ranks))
    return tuple(
        Evidence(
            metric="collective_calls",
            text=f"number {calls.sequence} of group {calls.name}: {side_words(side)}",
            value=float(len(side.ranks)),
            unit="ranks",
            from_ns=calls.time_ns,
            to_ns=calls.time_ns,
            labels={
                "job": job.job,
                "communicator": calls.communicator,
                "sequence": str(calls.sequence),
            },
            samples=len(side.ranks),
        )
        for side in sides[:SIDES_SHOWN]
    )


def side_words(side: Side) -> str:
    """`rank 5 called all_reduce of 2,097,152 BFloat16 at rank.py:145, rank.py:149`."""
    shown = ", ".join(map(str, side.ranks[:RANKS_SHOWN]))
    more = f" and {len(side.ranks) - RANKS_SHOWN} more" if len(side.ranks) > RANKS_SHOWN else ""
    who = f"rank{'s' if len(side.ranks) > 1 else ''} {shown}{more}"
    at = f" at {stack_words(side.frames)}" if side.frames else ""
    return f"{who} called {side.call}{at}" if side.call else f"{who} called nothing more{at}"


def stack_words(frames: Sequence[str]) -> str:
    return ", called at ".join(frames)
