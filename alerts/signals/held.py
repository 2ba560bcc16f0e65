"""How much more than its peers all-to-alls gave a rank to work on, step by step. Pure.

With experts a rank works on the tokens that were sent to it, and sends them back in another
all-to-all. What a rank sends there is what it held: PyTorch's profiler notes it as `In msg nelems`,
which is the sum of `In split size` (torch/csrc/profiler/util.cpp; of the list itself it prints
thirty at most). All-to-alls that give all ranks the same, as those that hand out equally many
tokens, tell nothing and are left out.

A rank that is late by no more than its share explains does more work and is not slow. The share
explains at most what the peers' whole time of their own would be longer by; of a rank that became
late, at most what its share has grown by meanwhile.
"""

from __future__ import annotations

import numpy as np

from alerts.signals.gaps import OwnTime
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.split import medians, reduced, starts_of
from alerts.window.statistics import median_known
from collector.contract.collective import Operation
from collector.contract.records import ABSENT

UNEVEN_MIN = 1.02
"""By which the largest part of an all-to-all must be above the smallest, to tell of any work."""
RANKS_MIN = 3
"""Ranks of an all-to-all: of two, the one with more says as little as the one with less."""
HELD_MORE_MIN = 1.05
"""A rank with a twentieth more than its peers may be late because of it."""
EXPLAINED_MAX = 1.25
"""By which lateness may exceed what the share explains: matrices of other shapes take other times
per token."""
STEPS_SHARE_MIN = 0.7
"""Of the late steps, that what it held must be known of, and must explain."""
CALM_MIN = 4
"""Steps in which it was not late, that show what it held then."""


def held_share(own: OwnTime) -> Floats | None:
    """[ranks, steps]: what each rank sent in uneven all-to-alls, by its peers' median.

    NaN where it was in none; None where there is none at all.
    """
    rows = own.rows
    records = rows.records
    kinds = np.array([name == Operation.ALL_TO_ALL for name in records.operations], dtype=bool)
    if not kinds.any():
        return None
    chosen = np.flatnonzero(
        kinds[records.operation] & (rows.bin >= 0) & (records.size_bytes != ABSENT)
    )
    chosen = chosen[np.argsort(rows.operation[chosen], kind="stable")]
    if not len(chosen):
        return None
    starts = starts_of(rows.operation[chosen])
    size = records.size_bytes[chosen]
    usual, told = usual_size(size, starts)
    shape = (len(own.ranks), len(own.start_ns))
    cell = (rows.rank[chosen] * shape[1] + rows.bin[chosen])[told]
    if not len(cell):
        return None
    mine = np.bincount(cell, size[told].astype(np.float64), shape[0] * shape[1])
    peers = np.bincount(cell, usual[told].astype(np.float64), shape[0] * shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(peers > 0, mine / peers, np.nan).reshape(shape)


def usual_size(size: Ints, starts: Ints) -> tuple[Ints, Flags]:
    """Of each row its operation's median part, and whether that operation tells anything."""
    counts = np.diff(np.append(starts, len(size)))
    group = np.repeat(np.arange(len(starts)), counts)
    least, most = reduced(np.minimum, size, starts), reduced(np.maximum, size, starts)
    usual = medians(size, group)
    told = (counts >= RANKS_MIN) & (usual > 0) & (most >= UNEVEN_MIN * least)
    return usual[group], told[group]


def explains(own: OwnTime, rows: Ints, late: Ints, calm: Ints, excess_ns: Floats) -> float | None:
    """What these ranks held in their late steps, by their peers' median, if they are late by it.

    ``late`` and ``calm`` are steps; ``excess_ns`` is by how much they are late in each step. None:
    what they held does not explain it, or is not known.
    """
    share = held_share(own)
    if share is None:
        return None
    held = np.array([median_known(column) for column in share[rows].T])
    known = late[~np.isnan(held[late])]
    if len(known) < STEPS_SHARE_MIN * len(late) or not len(known):
        return None
    if median_known(held[known]) < HELD_MORE_MIN:
        return None
    before = 1.0
    if len(calm) >= CALM_MIN:
        # What it had held all along did not make it late.
        before = np.fmax(before, median_known(held[calm]))
    peers_ns = np.array([median_known(column) for column in own.peers_ns[rows][:, known].T])
    is_explained = excess_ns[known] <= EXPLAINED_MAX * (held[known] - before) * peers_ns
    # Step by step: of a rank that holds more and has become slow as well, some are not.
    return median_known(held[known]) if is_explained.mean() >= STEPS_SHARE_MIN else None
