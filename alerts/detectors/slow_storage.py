"""*Phenomenon.* A file server answers slowly: all ranks wait for data, or for their checkpoint.

*Signal.* The time in which a server answers a request, by each host's own client, read and write
apart. Slow is far above the host's own past. Where nearly all of a job's hosts that use the server
see it at the same time, and the job feels it, the server is the culprit, and no host. Felt is what
training loops mark as waiting for data or writing a checkpoint; without such marks, steps that grew
outside of their collectives. Where one host alone sees it and its peers with the same mount do not,
it is that host's own way to the storage: a straggler's reason.

*Assumptions.* Hosts of a job do the same work and use storage alike. A server that is asked for
more by the job itself is slow as well: who asks is not told apart.

*Misses.* A server that was slow for all of the window; jobs on one host, where its way and the
server look the same; waits that no mark shows and that steps hide; reads of memory-mapped files are
counted late, by pages. GPUDirect Storage over a parallel file system of its own shows only in its
client's counters.

*Reference.* The kernel's per-operation statistics of NFS (net/sunrpc/stats.c), as `nfsiostat` reads
them; Lustre's `osc` statistics. Data loading and checkpoints as waits of all ranks: MegaScale (NSDI
2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.ports import percent
from alerts.signals.step_times import cost_by_steps, step_times
from alerts.signals.storage import (
    CHECKPOINT_PHASES,
    DATA_PHASES,
    KINDS,
    READ,
    is_slow,
    past_of,
    response_of,
    responses,
    storages,
    waits,
)
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import Hosts, JobWindow, Window
from alerts.window.statistics import median_known, runs
from collector.contract.figures import duration
from collector.contract.storage import server_of
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Reason, RuledOut

NAME = "slow_storage"

HOSTS_MIN = 2
"""Hosts that must see it before the server is accused: of one, its own way may be slow."""
ALIKE_SHARE = 0.8
"""Of the hosts that ask the server, those that must see it slow at the same time."""
PEERS_MIN = 3
"""Other hosts with the same storage that must see it well before one host's way is accused."""
GAP_CELLS = 2
"""Cells in between that do not end it: no request was made, or a batch was lost."""
CELLS_MIN = 2
WAIT_SHARE_MIN = 0.03
"""Of its time, by which a rank must wait longer: about what a job's steps show."""
STEP_GROWTH_MIN = 0.05
STEPS_MIN = 4
"""Before and during it: fewer are no comparison."""
OUTSIDE_SHARE = 0.5
"""Of what steps grew by, that must lie outside of collectives or before their last rank came."""
MARKED_STRENGTH = 0.85
STEPS_STRENGTH = 0.7
CONTEXT_STRENGTH = 0.3
OWN_WAY_STRENGTH = 0.85
"""Above what a late batch by itself has: the mount says why it is late."""


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch in which a storage answered some of a job's hosts slowly."""

    storage: str
    kind: str
    rows: Ints
    """Of the window's hosts: those that saw it."""
    asked: int
    """Hosts of the job that asked it at all."""
    first: int
    last: int
    seconds: float
    """To answer a request, of a typical host, and what is usual."""
    usual: float


class Felt(msgspec.Struct, frozen=True, kw_only=True):
    """How a job shows that it waits."""

    evidence: tuple[Evidence, ...]
    strength: float


def detect(window: Window) -> list[Finding]:
    found = []
    names = storages(window.hosts)
    for job in window.looked if names else ():
        rows = rows_of(window.hosts, job)
        slow, own = look(window.hosts, names, rows)
        found += [to_finding(window, job, stretches) for stretches in by_server(slow)]
        found += [own_way(window, one) for one in own]
    return found


def rows_of(hosts: Hosts, job: JobWindow) -> Ints:
    names = sorted({rank.host for rank in job.ranks.values()})
    return np.array([hosts.row_of[one] for one in names if one in hosts.row_of], dtype=np.int64)


def look(hosts: Hosts, names: Sequence[str], rows: Ints) -> tuple[list[Slow], list[Slow]]:
    """Stretches that nearly all hosts saw, and those of single hosts."""
    shared, own = [], []
    for storage in names:
        for kind in KINDS:
            values = responses(hosts, storage, kind)[rows]
            known = ~np.isnan(values)
            if not known.any():
                continue
            usual = past_of(values)
            slow = is_slow(values, usual[:, None])
            found = for_all(slow, known)
            if found is not None:
                shared.append(stretch(storage, kind, rows, values, usual, slow, found))
            own += list(alone(storage, kind, rows, values))
    return shared, own


def for_all(slow: Flags, known: Flags) -> tuple[int, int] | None:
    """The latest cells in which nearly all hosts that asked saw it."""
    count, asked = slow.sum(axis=0), known.sum(axis=0)
    both = (asked >= HOSTS_MIN) & (count >= ALIKE_SHARE * asked)
    # In the cells between, hosts that did not ask saw nothing: many that are well end it.
    found = [
        each
        for each in runs(both, gap=GAP_CELLS)
        if int(both[each[0] : each[1] + 1].sum()) >= CELLS_MIN
    ]
    return found[-1] if found else None


def stretch(
    storage: str, kind: str, rows: Ints, values: Floats, usual: Floats, slow: Flags,
    cells: tuple[int, int],
) -> Slow:  # fmt: skip
    inside = slice(cells[0], cells[1] + 1)
    seen = slow[:, inside].any(axis=1)
    chosen = np.where(slow[:, inside], values[:, inside], np.nan)
    return Slow(
        storage=storage,
        kind=kind,
        rows=rows[seen],
        asked=int((~np.isnan(values[:, inside])).any(axis=1).sum()),
        first=cells[0],
        last=cells[1],
        seconds=median_known(chosen.reshape(-1)),
        usual=median_known(usual[seen]),
    )


def alone(storage: str, kind: str, rows: Ints, values: Floats) -> Iterator[Slow]:
    """Hosts that wait for what answers their peers at once, at the same time."""
    known = (~np.isnan(values)).sum(axis=0)
    if not (known > PEERS_MIN).any():
        return
    middle = np.full(values.shape[1], np.nan)
    for cell in np.flatnonzero(known > PEERS_MIN).tolist():
        middle[cell] = median_known(values[:, cell])
    slow = is_slow(values, middle[None, :])
    # Where many stand out it is no single host's way: half of them may use another server.
    slow &= (slow.sum(axis=0) <= np.maximum(1, (1.0 - ALIKE_SHARE) * known))[None, :]
    for place in np.flatnonzero(slow.any(axis=1)).tolist():
        for first, last in runs(slow[place], gap=GAP_CELLS)[-1:]:
            cells = slow[place, first : last + 1]
            if int(cells.sum()) < CELLS_MIN:
                continue
            yield Slow(
                storage=storage,
                kind=kind,
                rows=rows[[place]],
                asked=int(known[first : last + 1].max()),
                first=first,
                last=last,
                seconds=median_known(values[place, first : last + 1][cells]),
                usual=median_known(middle[first : last + 1]),
            )


def by_server(slow: Sequence[Slow]) -> list[list[Slow]]:
    """Stretches of one server, what took longest first: two exports are one trouble."""
    found: dict[str, list[Slow]] = {}
    for one in sorted(slow, key=lambda each: (-(each.seconds - each.usual), each.storage)):
        found.setdefault(server_of(one.storage), []).append(one)
    return [found[server] for server in sorted(found)]


# Findings ----------------------------------------------------------------------------------------


def to_finding(window: Window, job: JobWindow, slow: Sequence[Slow]) -> Finding:
    grid, first = window.hosts.grid, min(one.first for one in slow)
    last = max(one.last for one in slow)
    since_ns = grid.start_ns + first * grid.step_ns
    last_ns = min(grid.start_ns + (last + 1) * grid.step_ns, window.to_ns)
    felt = felt_in_marks(window, job, slow, (first, last))
    felt = felt or felt_in_steps(job, since_ns, last_ns)
    others = dict.fromkeys(one.storage for one in slow if one.storage != slow[0].storage)
    return Finding(
        detector=NAME,
        cause=Cause.SLOW_STORAGE,
        culprit=Culprit(job=job.job, storage=slow[0].storage),
        strength=CONTEXT_STRENGTH if felt is None else felt.strength,
        since_ns=since_ns,
        until_ns=window.until(last_ns),
        last_ns=last_ns,
        job=job.job,
        accomplices=tuple(Culprit(job=job.job, storage=name) for name in others),
        evidence=(
            *(answered(window, one) for one in slow),
            *(felt.evidence if felt is not None else ()),
        ),
        ruled_out=(RuledOut(what=str(Reason.HOST_STALL), why=alike_words(slow[0])),),
        cost=cost_of(job, since_ns, last_ns) if felt is not None else None,
        is_context=felt is None,
    )


def alike_words(one: Slow) -> str:
    return f"{len(one.rows)} of {one.asked} hosts that use it see it alike, so it is none of theirs"


def own_way(window: Window, one: Slow) -> Finding:
    grid = window.hosts.grid
    last_ns = min(grid.start_ns + (one.last + 1) * grid.step_ns, window.to_ns)
    return Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        reason=Reason.STORAGE,
        culprit=window.hosts.culprit(int(one.rows[0])),
        strength=OWN_WAY_STRENGTH,
        since_ns=grid.start_ns + one.first * grid.step_ns,
        until_ns=window.until(last_ns),
        last_ns=last_ns,
        evidence=(answered(window, one),),
    )


def answered(window: Window, one: Slow) -> Evidence:
    hosts, grid = window.hosts, window.hosts.grid
    reading = f"{response_of(one.kind)}:{one.storage}"
    does = "a read" if one.kind == READ else "a write"
    if len(one.rows) == 1:
        who, usual = hosts.host[int(one.rows[0])], "its peers"
    else:
        who, usual = f"{len(one.rows)} of {one.asked} hosts", "before"
    labels = {"storage": one.storage}
    if len(one.rows) == 1:
        labels["host"] = who
    return Evidence(
        metric=hosts.metric(reading),
        text=(
            f"{one.storage} takes {duration(one.seconds)} to answer {does} of {who}, "
            f"{usual} {duration(one.usual)}."
        ),
        value=one.seconds,
        unit="seconds",
        baseline=one.usual,
        from_ns=grid.start_ns + one.first * grid.step_ns,
        to_ns=min(grid.start_ns + (one.last + 1) * grid.step_ns, window.to_ns),
        labels=labels,
        samples=one.last - one.first + 1,
    )


# Whether the job feels it ------------------------------------------------------------------------


def felt_in_marks(
    window: Window, job: JobWindow, slow: Sequence[Slow], cells: tuple[int, int]
) -> Felt | None:
    """What the training loop marks: reads make it wait for data, writes for its checkpoint."""
    hosts = window.hosts
    rows = np.unique(np.concatenate([one.rows for one in slow]))
    count: dict[str, int] = {}
    for rank in job.ranks.values():
        count[rank.host] = count.get(rank.host, 0) + 1
    ranks = np.array([count.get(hosts.host[row], 1) for row in rows.tolist()], dtype=np.float64)
    kinds = {one.kind for one in slow}
    found = []
    for kind, phases, words in (
        (READ, DATA_PHASES, "waiting for data"),
        ("write", CHECKPOINT_PHASES, "writing checkpoints"),
    ):
        shares = waits(hosts, phases, rows, ranks) if kind in kinds else None
        if shares is None:
            continue
        now = median_known(shares[:, cells[0] : cells[1] + 1].mean(axis=1))
        usual = median_known(past_of(shares))
        if now - usual < WAIT_SHARE_MIN:
            continue
        grid = hosts.grid
        found.append(
            Evidence(
                metric="fabric_step_phase_seconds_total",
                text=(
                    f"Its ranks spend {percent(now)} of their time {words}, "
                    f"{percent(usual)} beside it."
                ),
                value=now,
                unit="ratio",
                baseline=usual,
                from_ns=grid.start_ns + cells[0] * grid.step_ns,
                to_ns=min(grid.start_ns + (cells[1] + 1) * grid.step_ns, window.to_ns),
                labels={"job": job.job},
                samples=len(rows),
            )
        )
    return Felt(evidence=tuple(found), strength=MARKED_STRENGTH) if found else None


def felt_in_steps(job: JobWindow, since_ns: int, last_ns: int) -> Felt | None:
    """Steps that grew, and not by what the network takes."""
    steps = step_times(job, since_ns, last_ns)
    if steps is None or steps.count < STEPS_MIN:
        return None
    if steps.slow < (1.0 + STEP_GROWTH_MIN) * steps.usual:
        return None
    if steps.slow_outside - steps.usual_outside < OUTSIDE_SHARE * (steps.slow - steps.usual):
        return None
    evidence = Evidence(
        metric="step_outside",
        text=(
            f"Its ranks spend {duration(steps.slow_outside)} of a step outside of collectives or "
            f"waiting for each other, {duration(steps.usual_outside)} beside it."
        ),
        value=steps.slow_outside,
        unit="seconds",
        baseline=steps.usual_outside,
        from_ns=since_ns,
        to_ns=last_ns,
        labels={"job": job.job},
        samples=steps.count,
    )
    return Felt(evidence=(evidence,), strength=STEPS_STRENGTH)


def cost_of(job: JobWindow, since_ns: int, last_ns: int) -> Cost | None:
    """What the steps have lost against those beside it; None where they are not known."""
    steps = step_times(job, since_ns, last_ns)
    if steps is None or steps.slow <= steps.usual:
        return None
    return cost_by_steps(job, since_ns, last_ns, lost_s=0.0)
