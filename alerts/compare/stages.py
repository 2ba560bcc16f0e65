"""What each stage of a pipeline does with a step: its own work, waiting, transfer. Pure.

A pipeline's *bubble* is the time in which a stage waits for others: to get its first micro-batch,
to get gradients back, and at the end of the step for those that drain last. It is measured here,
not computed from a schedule: what a rank waits inside of messages and collectives until the last of
those that take part has come. Ranks are of one stage if they do the same work
(`alerts.signals.pipelines`): copies, and the ranks that share one copy's stage.

A stage *sets the pace* if steps that are played again with a tenth less of its work are shorter by
clearly more than with a tenth less of any other's. It is context and accuses no part: a stage may
be given more work, and one of its ranks may be slow. `own_most_ns` beside `own_ns` tells these two
apart, and verdicts do.
"""

from __future__ import annotations

import enum

import msgspec
import numpy as np

from alerts.compare.sides import Side, side_of, why_not
from alerts.signals.gaps import OwnTime, own_time
from alerts.signals.what_if import MATCHED_SHARE_MIN, ROWS_MAX, what_if
from alerts.window.columns import Floats, Ints
from alerts.window.messages import is_pairwise, partners
from alerts.window.model import JobWindow
from alerts.window.split import PAIRWISE
from alerts.window.statistics import median_known
from collector.contract.collective import Operation

RANKS_NAMED_MAX = 64
"""Ranks of a stage that are listed; all are counted and in the figures."""
STAGES_MAX = 128
"""Stages of one answer: deeper pipelines are not built, and more would be ranks by themselves."""
CUT = 0.1
"""Of a stage's own time, that is taken away to see how far the step depends on it."""
AHEAD = 1.5
"""By which the pace must depend more on one stage than on the next: even stages take turns."""
FITS_MAX = 0.3
"""Of a step, by which what a stage did in it may differ from it: beyond, steps were cut wrongly.
Recorded pipelines with a slow rank differ by a tenth, since not all ranks begin together."""
SAVED_SHARE_MIN = 0.3 * CUT
"""Of a step that this must save at least: below it steps depend on something else."""


class Basis(enum.StrEnum):
    """What a stage's own time was measured by."""

    KERNELS = "kernels"
    """Profiles show what GPUs computed, also beside messages; idle time outside of all operations
    counts as own."""
    OUTSIDE = "outside"
    """Time outside of collectives and messages: work beside a message looks like its transfer, and
    what a host sleeps like work."""


class StageTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: a typical step of its typical rank, in nanoseconds.

    That is the one whose own time is the lower median: of two copies a slow one is not typical.
    """

    stage: int
    """In the order in which micro-batches reach them."""
    ranks: list[int]
    """The first RANKS_NAMED_MAX."""
    ranks_total: int
    own_ns: int
    wait_ns: int
    transfer_ns: int
    bubble_share: float
    """Waiting, of the three together."""
    own_most_ns: int
    own_most_rank: int
    """The rank whose own time is longest: far above `own_ns` a rank differs, and no stage."""
    saved_share: float | None
    """Of a step, that it would be shorter by with a tenth less own time; null: not played."""


class Stages(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of a job's pipelines in a stretch of time."""

    job: str
    from_ns: int | None
    to_ns: int | None
    pipelines: int
    """Copies that pass micro-batches on; 0: no pipeline was seen."""
    steps: int
    step_ns: int | None
    basis: Basis | None
    bubble_share: float | None
    """Over all ranks, in a typical step."""
    stages: list[StageTimes]
    pace: int | None
    """The stage that sets the pace; null: none by itself."""
    unknown: list[str]
    """Why there are no figures, or which are missing."""


def stages_in(job: JobWindow) -> Stages:
    """The job's stages in the whole window."""
    if not has_messages(job):
        return without(
            job.job, "no sends and receives between its ranks were recorded: no pipeline"
        )
    reason = why_not(job)
    if reason:
        return without(job.job, reason)
    own = own_time(job)
    assert own is not None, "why_not was asked"
    if not (own.pipeline >= 0).any():
        return without(job.job, "its messages connect no stages: ranks exchange blocks as peers")
    reason = why_apart(own)
    if reason:
        return without(job.job, reason)
    side = side_of(job, np.arange(len(own.start_ns), dtype=np.int64))
    found = in_order(side)
    if not 1 < len(found) <= STAGES_MAX:
        return without(job.job, f"{len(found)} stages are told apart, of 2 to {STAGES_MAX}")
    return told(side, found)


def has_messages(job: JobWindow) -> bool:
    """Cheap: by the kinds of operations, before any of them is looked at."""
    return any(name in PAIRWISE for name in job.records.operations)


def without(job: str, reason: str) -> Stages:
    """No figures of this job, and why."""
    return Stages(
        job=job, from_ns=None, to_ns=None, pipelines=0, steps=0, step_ns=None, basis=None,
        bubble_share=None, stages=[], pace=None, unknown=[reason],
    )  # fmt: skip


def why_apart(own: OwnTime) -> str:
    """Why stages cannot be told apart; empty: they can."""
    records = own.rows.records
    messages = is_pairwise(records)
    share = float((partners(records)[messages] >= 0).mean()) if messages.any() else 0.0
    if share >= MATCHED_SHARE_MIN:
        return ""
    return (
        f"of {1 - share:.0%} of its messages the other end is not known (a source that batches "
        "them names none, or its ranks' records are missing)"
    )


def in_order(side: Side) -> list[Ints]:
    """Places of each stage's ranks, the stage first that sends first in a typical step.

    A stage's first send is what it made of the first micro-batch; the last stage's is a gradient,
    and still later than the one that it was made of.
    """
    own = side.table
    rows = own.rows
    sending = (Operation.SEND, Operation.SEND_RECV)
    kinds = np.array([name in sending for name in rows.records.operations], dtype=bool)
    sends = np.flatnonzero(kinds[rows.records.operation] & (rows.bin >= 0))
    first = np.full((len(own.ranks), len(own.start_ns)), np.inf)
    cells = (rows.rank[sends], rows.bin[sends])
    np.minimum.at(first, cells, rows.records.entry_ns[sends] - own.start_ns[rows.bin[sends]])
    first[np.isinf(first)] = np.nan
    after = np.array([median_known(each) for each in first])
    stages = [np.flatnonzero(own.stage == one) for one in np.unique(own.stage[own.stage >= 0])]
    # Stages that never send come last, then by their lowest rank.
    return sorted(
        stages,
        key=lambda members: (np.nan_to_num(median_known(after[members]), nan=np.inf), members[0]),
    )


def told(side: Side, stages: list[Ints]) -> Stages:
    own = side.table
    parts = parts_of(side)
    known = [members for members in stages if not np.isnan(parts.own[members]).all()]
    off = [members for members in known if not fits(side, parts, members)]
    if off:
        return without(
            side.job.job,
            f"what {len(off)} of {len(known)} stages did in a step does not add up to one: where "
            "steps begin is not known well enough; mark them in the training loop",
        )
    saved = saved_by(own, known)
    shown = [
        stage_times(own, parts, members, place, saved[place] if saved else None)
        for place, members in enumerate(known)
    ]
    unknown = []
    if len(known) < len(stages):
        unknown.append(f"{len(stages) - len(known)} stages have no step with all of its records")
    if not saved:
        unknown.append("steps cannot be played again: which stage sets the pace is not known")
    members = own.pipeline >= 0
    return Stages(
        job=side.job.job,
        from_ns=int(own.start_ns.min()),
        to_ns=int(own.end_ns.max()),
        pipelines=len(np.unique(own.pipeline[members])),
        steps=len(own.start_ns),
        step_ns=round(side.step_ns),
        basis=Basis.KERNELS if own.is_computing else Basis.OUTSIDE,
        bubble_share=round(median_known(parts.bubble[members]), 4),
        stages=shown,
        pace=pace_of(saved),
        unknown=unknown,
    )


class Shares(msgspec.Struct, frozen=True):
    """For each rank what a typical step of it has: nanoseconds, and the bubble's share."""

    own: Floats
    wait: Floats
    transfer: Floats
    whole: Floats
    """All three together."""
    bubble: Floats


def parts_of(side: Side) -> Shares:
    own, wait, transfer = side.own_ns, side.wait_ns, side.transfer_ns
    if side.table.is_computing:
        # What is computed beside a message is no waiting; what is left of both is shared as seen.
        busy = side.table.outside_ns[:, side.steps]
        left = np.maximum(own + wait + transfer - busy, 0.0)
        transfer = np.minimum(transfer, left)
        own, wait = busy, left - transfer
    whole = own + wait + transfer
    with np.errstate(invalid="ignore", divide="ignore"):
        bubble = np.where(whole > 0, wait / whole, whole)
    return Shares(
        *(
            np.array([median_known(row) for row in each])
            for each in (own, wait, transfer, whole, bubble)
        )
    )


def fits(side: Side, parts: Shares, members: Ints) -> bool:
    whole = median_known(parts.whole[members])
    return abs(whole - side.step_ns) <= FITS_MAX * side.step_ns


def stage_times(
    own: OwnTime, parts: Shares, members: Ints, place: int, saved: float | None
) -> StageTimes:
    ordered = members[np.argsort(parts.own[members], kind="stable")]
    ordered = ordered[~np.isnan(parts.own[ordered])]
    typical, most = int(ordered[(len(ordered) - 1) // 2]), int(ordered[-1])
    return StageTimes(
        stage=place,
        ranks=own.ranks[members[:RANKS_NAMED_MAX]].tolist(),
        ranks_total=len(members),
        own_ns=round(float(parts.own[typical])),
        wait_ns=round(float(parts.wait[typical])),
        transfer_ns=round(float(parts.transfer[typical])),
        bubble_share=round(float(parts.bubble[typical]), 4),
        own_most_ns=round(float(parts.own[most])),
        own_most_rank=int(own.ranks[most]),
        saved_share=None if saved is None else round(saved, 4),
    )


def saved_by(own: OwnTime, stages: list[Ints]) -> list[float]:
    """Of a step, what a tenth less own time of each stage saves; empty: it cannot be played.

    Played are the newest steps of which all plays together have ROWS_MAX rows.
    """
    counts = np.bincount(own.rows.bin[own.rows.bin >= 0], minlength=len(own.start_ns))
    each = ROWS_MAX // max(1, len(stages))
    kept = max(1, int((np.cumsum(counts[::-1]) <= each).sum()))
    steps = slice(len(own.start_ns) - kept, len(own.start_ns))
    found = []
    for members in stages:
        factor = np.ones(own.outside_ns.shape)
        factor[members] = 1.0 - CUT
        played = what_if(own, factor, steps)
        if played is None:
            return []
        found.append(played.saved_share)
    return found


def pace_of(saved: list[float]) -> int | None:
    """The stage on which steps depend clearly more than on any other."""
    if len(saved) < 2:  # noqa: PLR2004 - one has no other
        return None
    first, second = sorted(saved, reverse=True)[:2]
    is_one = first >= SAVED_SHARE_MIN and first >= AHEAD * second
    return saved.index(first) if is_one else None
