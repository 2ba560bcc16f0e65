"""Who shares a collective, where traces do not say: ranks that leave it together. Pure.

Old traces name no process groups, so that all ranks with an operation on one stream are taken as
one group. In a pipeline each stage has its own. Ranks of one collective leave it together by clocks
that are a fixed time apart; ranks of two do not, or not every time.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from alerts.signals.pipelines import connected, pipelines_of
from alerts.window.columns import Floats, Ints, Records
from alerts.window.messages import PAIR, is_pairwise, peers_of
from alerts.window.split import members_in
from collector.contract.communicator import group_communicator, is_guessed_group

APART_NS = 100_000
"""By which the time between two ranks' exits changes at most, in most operations that they share:
ten times what kernels of one collective were seen to differ by."""
MOST = 0.8
"""Of operations: a kernel may once be held up."""
OPERATIONS_MIN = 3
RANKS_MAX = 1024
"""Ranks that are compared in pairs: a million pairs."""

Members = dict[tuple[str, int], int]
"""The job's rank of each (communicator, rank within it)."""


def apart(records: Records, job_rank: Mapping[tuple[str, int], int]) -> tuple[Records, Members]:
    """The records with guessed groups taken apart, and the members of the new ones.

    Only where messages show pipelines, and where all parts have one size and no message goes
    within one: copies of stages are that. All other groups stay as they are.
    """
    rank = job_ranks_in(records, job_rank)
    guessed = [code for code, name in enumerate(records.communicators) if is_guessed_group(name)]
    pipeline = pipelines_in(records, rank, job_rank) if guessed else {}
    changes: list[tuple[Ints, list[list[int]], str]] = []
    for code in guessed if pipeline else ():
        for kind in np.unique(records.operation[records.communicator == code]).tolist():
            rows = np.flatnonzero((records.communicator == code) & (records.operation == kind))
            parts = parts_of(records, rows, rank[rows]) if not is_pairwise(records)[rows[0]] else []
            if is_of_copies(parts, pipeline):
                changes.append((rows, parts, records.communicators[code]))
    return renamed(records, rank, changes) if changes else (records, {})


def is_of_copies(parts: list[list[int]], pipeline: dict[int, int]) -> bool:
    sizes = {len(part) for part in parts}
    if len(parts) < 2 or len(sizes) != 1 or sizes == {1}:  # noqa: PLR2004 - one is no part
        return False
    return all(len({pipeline.get(rank, -1 - rank) for rank in part}) == len(part) for part in parts)


def job_ranks_in(records: Records, job_rank: Mapping[tuple[str, int], int]) -> Ints:
    members, which = members_in(records)
    known = np.array([job_rank.get(member, -1) for member in members], dtype=np.int64)
    return known[which] if len(known) else np.zeros(0, dtype=np.int64)


def pipelines_in(
    records: Records, rank: Ints, job_rank: Mapping[tuple[str, int], int]
) -> dict[int, int]:
    """The pipeline of each rank that messages with two known ends reach."""
    peer = peers_of(records)
    rows = np.flatnonzero((peer >= 0) & (rank >= 0))
    names = records.communicators
    ends = {
        (int(rank[row]), job_rank.get((names[records.communicator[row]], int(peer[row])), -1))
        for row in rows.tolist()
    }
    edges = np.array(sorted(end for end in ends if end[1] >= 0), dtype=np.int64).reshape(-1, PAIR)
    ranks = np.unique(edges)
    found = pipelines_of(edges, ranks) if len(edges) else ranks
    return dict(zip(ranks.tolist(), found.tolist(), strict=True))


def parts_of(records: Records, rows: Ints, rank: Ints) -> list[list[int]]:
    """The ranks that leave one operation together, as the job numbers them; none if unclear."""
    ranks, place = np.unique(rank, return_inverse=True)
    numbers, operation = np.unique(records.sequence[rows], return_inverse=True)
    if len(ranks) > RANKS_MAX or len(numbers) < OPERATIONS_MIN or ranks[0] < 0:
        return []
    base = int(records.exit_ns[rows].min())
    leave = np.full((len(ranks), len(numbers)), np.nan)
    leave[place, operation] = records.exit_ns[rows] - base
    pairs = [
        (first, first + 1 + int(other))
        for first in range(len(ranks) - 1)
        for other in np.flatnonzero(changes_of(leave[first + 1 :] - leave[first]) <= APART_NS)
    ]
    lowest = connected(np.array(pairs, dtype=np.int64).reshape(-1, PAIR), len(ranks))
    return [ranks[lowest == one].tolist() for one in np.unique(lowest)]


def changes_of(between: Floats) -> Floats:
    """By how much each row changes at most, in MOST of its columns; endless where it is unknown."""
    known = ~np.isnan(between).any(axis=1)
    middle = np.median(between, axis=1, keepdims=True)
    most = np.quantile(np.abs(between - middle), MOST, axis=1)
    found: Floats = np.where(known, most, np.inf)
    return found


def renamed(
    records: Records, rank: Ints, changes: list[tuple[Ints, list[list[int]], str]]
) -> tuple[Records, Members]:
    names = list(records.communicators)
    columns = {name: getattr(records, name).copy() for name in ("communicator", "rank", "ranks")}
    members: Members = {}
    for rows, parts, old in changes:
        for part in parts:
            name = group_communicator(old.split(":")[1], part)
            if name not in names:
                names.append(name)
            own = rows[np.isin(rank[rows], part)]
            columns["communicator"][own] = names.index(name)
            columns["rank"][own] = np.searchsorted(part, rank[own])
            columns["ranks"][own] = len(part)
            members |= {(name, place): one for place, one in enumerate(part)}
    changed = msgspec.structs.replace(records, communicators=names, **columns)
    order = np.lexsort((changed.rank, changed.sequence, changed.operation, changed.communicator))
    ordered: Records = changed.select(order)
    return ordered, members
