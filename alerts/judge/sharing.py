"""Bytes of others on the cables of a job that looks slow between switches. Pure.

*Two jobs whose bytes meet on one cable.* Each has a fair way for itself and is slow only while the
other sends too: by itself each looks like a job with a slow NIC, the one whose flow the hash has
put there. Time separates the two cases. Where two flows share a cable each gets a half, so an
operation takes longer by half of the time in which the other sends; a slow NIC is slow at any time.
So the time that both send, halved, is compared with the excess time of operations: it must rise and
fall with it, and be about as much.

*Steady bytes of no job:* a checkpoint that another job loads, a restore. They have no rhythm, but
ports count them: a switch that seems slow, and carries on the job's way so many more bytes than
before as the job lost of the line, is not slow. Which of equal ways a flow takes is not known, and
then no port is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from alerts.detectors.congestion import OTHERS_MOST, beside, carries, nic_load
from alerts.finding import Finding
from alerts.judge.places import is_same
from alerts.signals.ports import Span, called, faces_switch, load, mean, means, percent, scaled
from alerts.signals.step_times import is_worth_telling
from alerts.signals.storage_traffic import whole_cells
from alerts.signals.transfer import kinds_of, shown_size, slower_by
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import JobWindow, Ports, Window
from collector.contract.figures import duration
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason

FLOWS_LEAST = 1.5
"""NICs' worth of bytes on the shared cable: a cable with one flow is not shared."""
SLOWED_BY = 0.5
"""Of the time that both send, by which each takes longer: two flows get a half each."""
FIT_LEAST = 0.9
"""Of the scatter of operations' times, that the time in which the other job sends must account for,
without a slope of its own. Two simulated rings on one cable had 0.99; a NIC at half its rate beside
another job on its cable mostly below 0.7. Only where their rhythms lock, so that both send together
from then on, it had up to 0.93: such a NIC is no slower than its half of the cable."""
EXPLAINED = (0.7, 1.3)
"""Of what operations take too long, that sharing must account for. A NIC at half its rate doubles a
transfer; another job that sends for 40 % of the time then accounts for 0.4 of it."""
OPERATIONS_LEAST = 8
"""Of each kind, before rhythms are compared."""
COST_LEAST = 0.01
"""Of the time of a job, that sharing must cost it: two healthy jobs that meet now and then behind
their computing are everyday's chance."""
OTHERS_TOOK = 0.5
"""Of what transfers lost of the line, that ports on the way must carry more than before: who is
marked gives way by more than what it meets. A tenth of the line made them 1.16 times as long."""
SURELY_CROSSED = 0.5
"""Share of an edge's bytes over a port, from which on it is on their way, and not one of many."""
CABLES_SHOWN = 3
STEADY_STRENGTH = 0.6
PAIRS_MAX = 512
"""Pairs of communicators that are compared: those on the fullest cables first."""


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """Two communicators that share a cable, and how well that explains the first one's times."""

    row: int
    """The port in front of which their bytes meet."""
    other: str
    fit: float
    explained: float
    operation: str
    usual_ns: float
    slow_ns: float
    samples: int


def shared_cable(window: Window, job: JobWindow, symptom: Finding) -> Finding | None:
    """Congestion by another job's bytes on the same cable, if that explains the slow transfers."""
    span = span_of(window.ports, symptom)
    if job.paths is None or span is None:
        return None
    shares = full_cables(window.ports, span)
    met = [
        found
        for name, row, other, theirs in pairs(window, job, symptom.communicators, shares)
        if (found := meeting(symptom, (job, name), (other, theirs), row)) is not None
    ]
    if not met:
        return None
    best = max(met, key=lambda one: (round(one.fit, 2), -abs(1 - one.explained), one.row))
    return to_finding(window, job, symptom, best, span)


def passed_by_others(window: Window, job: JobWindow, symptom: Finding) -> Finding | None:
    """Congestion by bytes of no job on the way through a switch that seems slow, if it is that.

    Where ways are equal, no part is named. None: the switch carries no more than before, or too
    little more, or nothing is known of before.
    """
    ports, span, accused = window.ports, span_of(window.ports, symptom), symptom.culprit
    ratio = slower_by(symptom.evidence)
    if job.paths is None or span is None or accused.host or not accused.switch or not ratio:
        return None
    crossed = crossed_ports(window, job, symptom)
    rows = sorted(crossed)
    before, cells = slice(0, max(0, span.first - 1)), whole_cells(span).cells
    share = load(ports)[rows]
    usual, now = (means(share[:, part]) for part in (before, cells))
    lost = 1.0 - 1.0 / ratio
    # What is not known is neither more nor less.
    fuller = [
        place
        for place in np.argsort(usual - now)
        if now[place] - usual[place] >= OTHERS_TOOK * lost
    ]
    if not fuller:
        return None
    words = "{name} carries {{0}} of its line, {before} before: bytes of others on the way"
    shown: list[Evidence] = []
    for place in fuller[:CABLES_SHOWN]:
        name, least = called(ports, rows[place]), float(usual[place])
        told = words.format(name=name, before=percent(least))
        shown += carries(window, rows[place], span, told, least)
    first = rows[fuller[0]]
    return Finding(
        detector="sharing",
        cause=Cause.CONGESTION,
        culprit=ports.culprit(first) if crossed[first] >= SURELY_CROSSED else Culprit(),
        strength=STEADY_STRENGTH,
        since_ns=symptom.since_ns,
        until_ns=symptom.until_ns,
        last_ns=symptom.last_ns,
        reason=Reason.NEIGHBOUR,
        victims=(accused,),
        evidence=tuple(shown),
    )


def crossed_ports(window: Window, job: JobWindow, symptom: Finding) -> dict[int, float]:
    """Ports of the accused switch or cable to other switches that the slow rings may cross.

    With the largest share of an edge's bytes over each.
    """
    paths, ports = job.paths, window.ports
    found: dict[int, float] = {}
    if paths is None:
        return found
    inner = ports.is_switch & faces_switch(ports)
    for edge, name in enumerate(paths.communicator):
        if name not in symptom.communicators:
            continue
        way = slice(int(paths.start[edge]), int(paths.start[edge + 1]))
        for row, share in zip(paths.port[way].tolist(), paths.share[way].tolist(), strict=True):
            if row in found or (inner[row] and is_same(ports, ports.culprit(row), symptom.culprit)):
                found[row] = max(found.get(row, 0.0), share)
    return found


def is_harmless(job: JobWindow, symptom: Finding, *, is_named: bool = True) -> bool:
    """Whether sharing a cable costs the job too little for an operator to act.

    Where no cable can be named there is little to do: only a job that is plainly slower counts.
    """
    if not is_named:
        return not is_worth_telling(job, symptom.since_ns, symptom.last_ns)
    return symptom.cost is not None and symptom.cost.lost_share < COST_LEAST


def span_of(ports: Ports, symptom: Finding) -> Span | None:
    grid = ports.grid
    first = max(0, grid.cell_of(symptom.since_ns))
    last = min(grid.cells - 1, grid.cell_of(symptom.last_ns))
    return Span(first, last) if len(ports) and first <= last else None


def full_cables(ports: Ports, span: Span) -> dict[int, float]:
    """Ports between switches that carry more than one flow in this time, and how many."""
    inner = np.flatnonzero(ports.is_switch & faces_switch(ports))
    flows = load(ports)[inner][:, span.cells] / nic_load(ports)[span.cells]
    carried = {int(row): mean(flows[place]) for place, row in enumerate(inner)}
    return {row: count for row, count in carried.items() if count >= FLOWS_LEAST}


def pairs(
    window: Window, job: JobWindow, slow: Sequence[str], shares: dict[int, float]
) -> Iterator[tuple[str, int, JobWindow, str]]:
    """Slow communicators, and those of other jobs that cross the same full cable.

    With the first full port on the way, which is where bytes begin to share it. Bounded.
    """
    own = [way for way in ways(job, shares) if way[0] in slow]
    others = [
        (other, way) for other in window.jobs if other is not job for way in ways(other, shares)
    ]
    found: dict[tuple[str, str, str], tuple[str, int, JobWindow, str]] = {}
    for name, rows in own:
        for other, (theirs, theirs_rows) in others:
            both = [row for row in rows if row in theirs_rows]
            if both:
                found.setdefault((name, other.job, theirs), (name, both[0], other, theirs))
    order = sorted(found.values(), key=lambda each: (-shares[each[1]], each[0], each[3]))
    yield from order[:PAIRS_MAX]


def ways(job: JobWindow, shares: dict[int, float]) -> list[tuple[str, list[int]]]:
    """Each ring edge's communicator and the full ports on its way, in order."""
    paths = job.paths
    if paths is None:
        return []
    found = []
    for edge, name in enumerate(paths.communicator):
        rows = paths.port[int(paths.start[edge]) : int(paths.start[edge + 1])].tolist()
        full = [row for row in rows if row in shares]
        if full:
            found.append((name, full))
    return found


def meeting(
    symptom: Finding, own: tuple[JobWindow, str], theirs: tuple[JobWindow, str], row: int
) -> Meeting | None:
    """How well one communicator's sending explains the excess time of another one's operations."""
    job, name = own
    operations = job.operations
    rows = slowest_kind(job, name, symptom)
    busy = busy_time(*theirs)
    if rows is None or busy is None:
        return None
    ends, took = operations.last_exit_ns[rows], operations.transfer_ns[rows].astype(np.float64)
    inside = within(symptom, ends)
    usual = usual_of(took, inside)
    shared = SLOWED_BY * (busy_until(busy, ends) - busy_until(busy, ends - took.astype(np.int64)))
    excess = took - usual
    if np.ptp(excess) <= 0 or excess[inside].sum() <= 0:
        return None
    fit = 1.0 - float(np.var(excess - shared) / np.var(excess))
    explained = float(shared[inside].sum() / excess[inside].sum())
    if fit < FIT_LEAST or not EXPLAINED[0] <= explained <= EXPLAINED[1]:
        return None
    size = shown_size(int(operations.size_bytes[rows[0]]))
    kind = operations.operations[int(operations.operation[rows[0]])]
    return Meeting(
        row=row,
        other=theirs[0].job,
        fit=fit,
        explained=explained,
        operation=f"{kind} of {size}" if size else kind,
        usual_ns=usual,
        slow_ns=float(np.median(took[inside])),
        samples=int(inside.sum()),
    )


def within(symptom: Finding, ends: Ints) -> Flags:
    inside: Flags = (ends >= symptom.since_ns) & (ends <= symptom.last_ns)
    return inside


def usual_of(took: Floats, inside: Flags) -> float:
    """Usual duration (ns): the median outside the finding, or the fastest tenth if it has none."""
    if (~inside).sum() >= OPERATIONS_LEAST:
        return float(np.median(took[~inside]))
    return float(np.quantile(took, 0.1))


def slowest_kind(job: JobWindow, communicator: str, symptom: Finding) -> Ints | None:
    """Rows of the operations of one kind that lost most while the finding lasted."""
    operations = job.operations
    if communicator not in operations.communicators:
        return None
    number = operations.communicators.index(communicator)
    rows = np.flatnonzero(operations.communicator == number)
    _, kind = kinds_of(operations, rows)
    best: tuple[float, Ints] | None = None
    for one in (rows[kind == which] for which in range(int(kind.max(initial=-1)) + 1)):
        inside = within(symptom, operations.last_exit_ns[one])
        if min(len(one), int(inside.sum())) < OPERATIONS_LEAST:
            continue
        took = operations.transfer_ns[one].astype(np.float64)
        lost = float((took[inside] - usual_of(took, inside)).sum())
        if best is None or lost > best[0]:
            best = lost, one
    return best[1] if best is not None else None


def busy_time(job: JobWindow, communicator: str) -> tuple[Ints, Floats] | None:
    """Times (ns), and how long (ns) until each of them a communicator had been sending."""
    operations = job.operations
    if communicator not in operations.communicators:
        return None
    own = operations.communicator == operations.communicators.index(communicator)
    starts, ends = operations.last_entry_ns[own], operations.last_exit_ns[own]
    if not len(starts):
        return None
    order = np.argsort(starts)
    # A communicator's operations follow each other; clocks may let them touch.
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    starts = np.maximum(starts, np.concatenate([starts[:1], ends[:-1]]))
    lasted = np.maximum(ends - starts, 0).astype(np.float64)
    total = np.cumsum(lasted)
    moments = np.stack([starts, np.maximum(ends, starts)], axis=1).reshape(-1)
    return moments, np.stack([total - lasted, total], axis=1).reshape(-1)


def busy_until(busy: tuple[Ints, Floats], moments: Ints) -> Floats:
    origin = busy[0][0]
    found: Floats = np.interp(moments - origin, busy[0] - origin, busy[1])
    return found


def to_finding(
    window: Window, job: JobWindow, symptom: Finding, met: Meeting, span: Span
) -> Finding:
    ports = window.ports
    share = load(ports)
    words = (
        f"{called(ports, met.row)} carries {{0}} of its line: bytes of {job.job} and {met.other}"
    )
    before = mean(share[met.row, : max(0, span.first)])
    times = Evidence(
        metric="shared_cable",
        text=(
            f"{met.operation} of {job.job} takes {duration(met.usual_ns / NS)} alone and "
            f"{duration(met.slow_ns / NS)} while {met.other} sends over the same cable; sharing it "
            f"accounts for {percent(met.explained)} of what it takes longer."
        ),
        value=met.slow_ns / NS,
        baseline=met.usual_ns / NS,
        unit="seconds",
        from_ns=symptom.since_ns,
        to_ns=symptom.last_ns,
        labels={"job": job.job, "other": met.other},
        samples=met.samples,
    )
    return Finding(
        detector="sharing",
        cause=Cause.CONGESTION,
        culprit=ports.culprit(met.row),
        strength=scaled(met.fit, FIT_LEAST, 1.0, low=0.65, high=0.95),
        since_ns=symptom.since_ns,
        until_ns=symptom.until_ns,
        last_ns=symptom.last_ns,
        reason=Reason.ROUTING if is_uneven(ports, met.row, span) else Reason.NEIGHBOUR,
        victims=(symptom.culprit,),
        evidence=(*carries(window, met.row, span, words, before), times),
    )


def is_uneven(ports: Ports, row: int, span: Span) -> bool:
    """Whether ways beside it carry clearly less, so that a better hash would have helped."""
    share = load(ports)
    others = [mean(share[other, span.cells]) for other in ways_beside(ports, row)]
    full = mean(share[row, span.cells])
    return any(other < OTHERS_MOST * full for other in others)


def ways_beside(ports: Ports, row: int) -> list[int]:
    """The ports that the same bytes could have taken: of a dragonfly those to the same router."""
    far = int(ports.other_end[row])
    same = beside(ports, row)
    if ports.tier[far] != ports.tier[row]:
        return same
    return [one for one in same if ports.host[ports.other_end[one]] == ports.host[far]]
