"""What is usual of a GPU or a host: its job's others at the same time, or its own past. Pure.

Ranks of one job do the same work at the same moment, so what one machine shows is held against the
others' median in the same cell of time. Where too few are read, against the machine's own median
over the window: good as long as something new has lasted for less than half of it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import Things, Window
from alerts.window.statistics import NORMAL

PEERS_MIN = 4
"""Readings in a cell, the machine's own among them, from which on their median is the peers': of
three, one that is off already moves it."""
PAST_CELLS_MIN = 6
"""Cells of its own that are a past: half a minute at five seconds each."""


class Usual(msgspec.Struct, frozen=True, kw_only=True):
    """What is usual of each row in each cell, and how far rows lie apart that are all well."""

    level: Floats
    spread: Floats
    """A standard deviation, by the median absolute one; 0 where all are equal."""
    is_past: Flags
    """Where the row was held against its own past, for want of peers."""


def known_values(things: Things, reading: str) -> Floats:
    """[things, cells]; NaN also for what is no number of anything."""
    values = things.values(reading)
    return np.where(np.isfinite(values), values, np.nan)


def nan_median(values: Floats, axis: int) -> Floats:
    """The median without NaNs; NaN where there is nothing else.

    >>> nan_median(np.array([[1.0, np.nan, 4.0], [np.nan, np.nan, np.nan]]), axis=1)
    array([2.5, nan])
    """
    ordered = np.moveaxis(np.sort(values, axis=axis), axis, -1)
    if not ordered.shape[-1]:
        return np.full(ordered.shape[:-1], np.nan)
    known = (~np.isnan(ordered)).sum(axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(known - 1, 0) // 2, axis=-1)
    high = np.take_along_axis(ordered, np.minimum(known // 2, ordered.shape[-1] - 1), axis=-1)
    middle: Floats = ((low + high) / 2)[..., 0]
    return middle


def usual_of(values: Floats, group: Ints, wanted: Flags | None = None) -> Usual:
    """What is usual of ``values`` [rows, cells] in each row's group; -1 is a group of one.

    Only groups with a wanted row are looked at, and other rows stay NaN: of thousands of machines
    few are ever in question.
    """
    wanted = np.ones(len(values), dtype=bool) if wanted is None else wanted
    values = np.where(np.isfinite(values), values, np.nan)
    level, spread = np.full(values.shape, np.nan), np.zeros(values.shape)
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    for number in np.unique(group[wanted & (group >= 0)]).tolist():
        first, last = np.searchsorted(ordered, [number, number + 1])
        rows = order[first:last]
        own = values[rows]
        enough = (~np.isnan(own)).sum(axis=0) >= PEERS_MIN
        if enough.any():
            middle = nan_median(own, 0)
            level[rows] = np.where(enough, middle, np.nan)
            spread[rows] = np.where(enough, NORMAL * nan_median(np.abs(own - middle), 0), 0.0)
    is_past = np.isnan(level) & wanted[:, None]
    alone = np.flatnonzero(is_past.any(axis=1))
    own = values[alone]
    known = (~np.isnan(own)).sum(axis=1) >= PAST_CELLS_MIN
    middle = np.where(known, nan_median(own, 1), np.nan)[:, None]
    apart = NORMAL * nan_median(np.abs(own - middle), 1)[:, None]
    level[alone] = np.where(is_past[alone], middle, level[alone])
    spread[alone] = np.where(is_past[alone], np.nan_to_num(apart), spread[alone])
    return Usual(level=level, spread=spread, is_past=is_past)


def groups_of_gpus(window: Window) -> Ints:
    """A number for each GPU's peers: those of its job, of its model; without a job its host's."""
    gpus = window.gpus
    job_of: dict[tuple[str, int], int] = {}
    for number, job in enumerate(window.jobs):
        for rank in job.ranks.values():
            if rank.gpu is not None:
                job_of.setdefault((rank.host, rank.gpu), number)
    host_number = {name: number for number, name in enumerate(sorted(set(gpus.host)))}
    jobs = len(window.jobs)
    base = [
        job_of.get(key, jobs + host_number[key[0]]) for key in zip(gpus.host, gpus.gpu, strict=True)
    ]
    # GPUs of one model have one highest clock.
    clocks = gpus.values("sm_clock_max_hertz")
    highest = np.nan_to_num(np.fmax.reduce(clocks, axis=1)) if clocks.size else np.zeros(len(gpus))
    _, model = np.unique(highest, return_inverse=True)
    pairs = np.array(base, dtype=np.int64) * (int(model.max(initial=0)) + 1) + model.reshape(-1)
    _, group = np.unique(pairs, return_inverse=True)
    numbered: Ints = group.reshape(-1).astype(np.int64)
    return numbered


def groups_of_hosts(window: Window) -> Ints:
    """A number for each host's peers: those of its first job; -1 for hosts without one."""
    job_of: dict[str, int] = {}
    for number, job in enumerate(window.jobs):
        for rank in job.ranks.values():
            job_of.setdefault(rank.host, number)
    return np.array([job_of.get(host, -1) for host in window.hosts.host], dtype=np.int64)
