"""A job's steps replayed without a culprit's lateness: time regained, ranks waited for. Pure.

Only what was measured is used: a collective that waited for a culprit would have begun when the
last of the others came. Never more comes back than the culprit was outside beyond its peers.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.signals.gaps import OwnTime
from alerts.signals.late import LateStretch
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import JobWindow
from alerts.window.split import PAIRWISE
from collector.contract.verdict import Cost, Evidence

SECONDS = 1e9
COMMUNICATORS_MAX = 64
RANKS_NAMED_MAX = 16
"""Ranks that a label lists: those of the largest host."""
LOOKS_LATE = 0.3
"""A rank that enters last in such a share of a group's collectives looks late."""


class SeenLast(msgspec.Struct, frozen=True, kw_only=True):
    """Who came last in the collectives that the culprits took part in."""

    communicators: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    last_in: tuple[int, ...]
    """The job's ranks that often entered a collective last, the most often first."""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a stretch's collectives, and for each who was last."""

    row: Ints
    number: Ints
    """The operation, counted from 0."""
    last_ns: Ints
    others_ns: Ints
    """When the last of those who are not accused entered; the least of numbers without any."""
    has_both: Flags


def waits_in(own: OwnTime, accused: Flags, stretch: LateStretch) -> Waits:
    """Of each collective in the stretch: its last entry, and its last entry by an innocent."""
    rows = own.rows
    collective = np.array([name not in PAIRWISE for name in rows.records.operations], dtype=bool)
    chosen = np.flatnonzero(
        collective[rows.records.operation]
        & (rows.bin >= stretch.first)
        & (rows.bin <= stretch.last)
    )
    _, number = np.unique(rows.operation[chosen], return_inverse=True)
    count = int(number.max()) + 1 if len(number) else 0
    entry = rows.records.entry_ns[chosen]
    least = np.iinfo(np.int64).min
    last = np.full(count, least, dtype=np.int64)
    others = np.full(count, least, dtype=np.int64)
    np.maximum.at(last, number, entry)
    innocent = ~accused[rows.rank[chosen]]
    np.maximum.at(others, number[innocent], entry[innocent])
    guilty = np.bincount(number[~innocent], minlength=count) > 0
    return Waits(
        row=chosen,
        number=number.astype(np.int64),
        last_ns=last,
        others_ns=others,
        has_both=guilty & (others > least),
    )


def waited_for(own: OwnTime, accused: Flags, stretch: LateStretch) -> Floats:
    """[ranks, steps]: how long others waited for each of the accused, summed over collectives; ns.

    Of collectives that overlap work it is more than they stood still for.
    """
    waits = waits_in(own, accused, stretch)
    rank, step = own.rows.rank[waits.row], own.rows.bin[waits.row]
    entry = own.rows.records.entry_ns[waits.row]
    saved = np.where(
        waits.has_both[waits.number] & accused[rank],
        np.maximum(entry - waits.others_ns[waits.number], 0),
        0,
    ).astype(np.float64)
    shape = own.excess_ns.shape
    flat = np.bincount(rank * shape[1] + step, saved, shape[0] * shape[1])
    return flat.reshape(shape).astype(np.float64)


def cost_of(job: JobWindow, own: OwnTime, accused: Flags, stretch: LateStretch) -> Cost:
    """What the stretch would not have lost with the accused as fast as their peers."""
    by_step = waited_for(own, accused, stretch)
    inside = stretch.steps
    capped = np.minimum(by_step, np.maximum(np.nan_to_num(own.excess_ns), 0.0))[accused][:, inside]
    length = own.length_ns[inside].astype(np.float64)
    lost: Floats = np.minimum(capped.max(axis=0), length)
    total = float(length.sum())
    step_seconds = float(np.median(length)) / SECONDS if job.steps else None
    without = step_seconds - float(np.median(lost)) / SECONDS if step_seconds is not None else None
    seconds = float(lost.sum()) / SECONDS
    if job.slices and total > 0:
        # What was not read lost as much as what was.
        whole = float(own.end_ns[stretch.last] - own.start_ns[stretch.first])
        seconds *= max(1.0, whole / total)
    return Cost(
        job=job.job,
        lost_seconds=seconds,
        step_seconds=step_seconds,
        step_seconds_without=without,
        lost_share=float(lost.sum()) / total if total > 0 else 0.0,
        gpu_hours=seconds * job.size / 3600,
    )


def seen_last(job: JobWindow, own: OwnTime, accused: Flags, stretch: LateStretch) -> SeenLast:
    waits = waits_in(own, accused, stretch)
    rows = own.rows
    both = waits.has_both[waits.number]
    entry = rows.records.entry_ns[waits.row]
    inside = rows.records.exit_ns[waits.row] - entry
    count = len(waits.last_ns)
    least = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(least, waits.number, inside)
    members = np.bincount(waits.number, minlength=count)
    guilty = accused[rows.rank[waits.row]]
    met = np.flatnonzero(waits.has_both)
    fair = (
        float(np.mean(np.bincount(waits.number[guilty], minlength=count)[met] / members[met]))
        if len(met)
        else 0.0
    )
    is_last = entry == waits.last_ns[waits.number]
    is_least = inside == least[waits.number]
    when = int(own.start_ns[stretch.first]), int(own.end_ns[stretch.last])
    evidence = []
    for metric, flags, words in (
        ("rank_last_in", is_last, "is the last to enter"),
        ("rank_least_inside", is_least, "spends the least time inside of"),
    ):
        hits = len(np.unique(waits.number[flags & guilty & both]))
        if len(met):
            value = hits / len(met)
            text = f"it {words} {hits} of {len(met)} collectives; by chance {fair:.0%}"
            evidence.append(
                Evidence(
                    metric=metric, text=text, value=value, unit="ratio", baseline=fair,
                    from_ns=when[0], to_ns=when[1], samples=len(met),
                    labels=labels_of(job, own.ranks[accused]),
                )
            )  # fmt: skip
    codes = np.unique(rows.records.communicator[waits.row[both]]).tolist()
    names = tuple(sorted(rows.records.communicators[code] for code in codes)[:COMMUNICATORS_MAX])
    return SeenLast(
        communicators=names, evidence=tuple(evidence), last_in=often_last(own, waits, is_last)
    )


def labels_of(job: JobWindow, ranks: Ints) -> dict[str, str]:
    """The subject of an observation: the rank and its host, or the host and which of its ranks."""
    labels = {"job": job.job}
    hosts = {job.culprit(rank).host for rank in ranks.tolist()}
    if len(hosts) == 1 and "" not in hosts:
        labels["host"] = hosts.pop()
    said = sorted({*ranks.tolist()} - job.guessed)
    if len(said) == len(ranks) == 1:
        labels["rank"] = str(said[0])
    elif said and len(ranks) <= RANKS_NAMED_MAX:
        labels["ranks"] = ",".join(map(str, said))
    return labels


def often_last(own: OwnTime, waits: Waits, is_last: Flags) -> tuple[int, ...]:
    """Ranks that enter last in a large share of their collectives, the most often first."""
    rank = own.rows.rank[waits.row]
    alone = np.bincount(waits.number, minlength=len(waits.last_ns)) == 1
    counted = ~alone[waits.number]
    total = np.bincount(rank[counted], minlength=len(own.ranks))
    last = np.bincount(rank[counted & is_last], minlength=len(own.ranks))
    share = last / np.maximum(total, 1)
    chosen = np.flatnonzero(share >= LOOKS_LATE)
    ordered = chosen[np.argsort(-share[chosen], kind="stable")]
    return tuple(int(own.ranks[row]) for row in ordered)


# An incident's costs over time -------------------------------------------------------------------


def stood(cost: Cost, elapsed_s: float) -> Cost:
    gpus = cost.gpu_hours / cost.lost_seconds if cost.lost_seconds > 0 else 0.0
    return msgspec.structs.replace(
        cost,
        lost_seconds=cost.lost_seconds + elapsed_s,
        gpu_hours=cost.gpu_hours + gpus * elapsed_s,
    )


def is_rougher(cost: Cost, other: Cost) -> bool:
    """Whether it is an estimate without steps beside one that has them.

    What operations take longer a step hides in part, behind what ranks compute meanwhile.
    """
    return cost.step_seconds is None and other.step_seconds is not None


def grown(old: Cost, new: Cost, elapsed_s: float) -> Cost:
    """What a job has lost: never less than before.

    A round that sees no longer step adds nothing to it, and says nothing of those that were longer.
    """
    told = old if new.lost_share <= 0.0 < old.lost_share else new
    added_s = max(new.lost_share, 0.0) * elapsed_s
    rate = new.gpu_hours / new.lost_seconds if new.lost_seconds > 0 else 0.0
    # A sum with a part that is too low is too low, until a round has measured all of it.
    is_sum = new.lost_seconds < old.lost_seconds + added_s
    return msgspec.structs.replace(
        told,
        is_at_least=new.is_at_least or (old.is_at_least and is_sum),
        lost_seconds=max(new.lost_seconds, old.lost_seconds + added_s),
        gpu_hours=max(new.gpu_hours, old.gpu_hours + added_s * rate),
    )
