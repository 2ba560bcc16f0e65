"""How long ranks computed, where traces show it: the part of a step that is their own. Pure.

A kernel that computes waits for no other rank, and is measured on one clock. In a pipeline that
tells most: messages run beside the work, so that what lies outside of them is little of it, and
some traces show a message only from when both of its ends had come, so that waiting for it looks
like time outside.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.columns import Computing, Flags, Floats, Ints, Records
from alerts.window.messages import partners

TOGETHER_NS = 100_000
"""Within which two ends of a message began together, as far as two clocks can tell."""
TOGETHER_SHARE = 0.9
"""Of messages whose ends begin together, in a trace that shows transfers without the waiting for
them. Of those with the waiting hardly any do: ranks of a pipeline wait for each other in turn."""


class Busy:
    """For each rank how long it had computed until a time."""

    def __init__(self, computing: Computing, ranks: Ints) -> None:
        """``ranks`` are sorted."""
        self._edges: list[tuple[Ints, Floats]] = []
        order = np.lexsort((computing.start_ns, computing.rank))
        rank = computing.rank[order]
        first, last = (np.searchsorted(rank, ranks, side) for side in ("left", "right"))
        for begin, end in zip(first.tolist(), last.tolist(), strict=True):
            own = order[begin:end]
            start, stop = computing.start_ns[own], computing.end_ns[own]
            # Stretches of one rank that overlap count once.
            start = np.maximum(start, np.append(start[:1], np.maximum.accumulate(stop)[:-1]))
            stop = np.maximum(start, stop)
            edges = np.stack([start, stop], axis=1).reshape(-1)
            done = np.zeros(len(edges))
            done[1::2] = np.cumsum(stop - start)
            done[2::2] = done[1:-1:2]
            self._edges.append((edges, done))

    @property
    def is_known(self) -> Flags:
        """Of which ranks any computing was seen."""
        return np.array([len(edges) > 0 for edges, _ in self._edges], dtype=bool)

    def until(self, rank: Ints, time_ns: Ints) -> Floats:
        """How long each of these ranks, by their places, had computed until each of these times."""
        found = np.zeros(len(rank))
        for place in np.unique(rank).tolist():
            edges, done = self._edges[place]
            rows = rank == place
            if len(edges):
                base = int(edges[0])
                found[rows] = np.interp(time_ns[rows] - base, edges - base, done)
        return found

    def began(self, rank: Ints, time_ns: Ints) -> Ints:
        """When each of these ranks began to compute what it computed last before each time.

        The time itself if it was idle just before.
        """
        found = time_ns.copy()
        for place in np.unique(rank).tolist():
            edges, _ = self._edges[place]
            rows = np.flatnonzero(rank == place)
            if len(edges):
                at = np.searchsorted(edges, time_ns[rows], side="left")
                begun = edges[np.maximum(at - 1, 0) // 2 * 2]
                is_near = (at > 0) & (time_ns[rows] - edges[np.maximum(at - 1, 0)] <= TOGETHER_NS)
                found[rows] = np.where((at % 2 == 1) | is_near, begun, time_ns[rows])
        return found

    def since(self, rank: Ints, time_ns: Ints) -> Ints:
        """When each of these ranks last computed before each of these times; 0: never before."""
        found = np.zeros(len(rank), dtype=np.int64)
        for place in np.unique(rank).tolist():
            edges, _ = self._edges[place]
            rows = np.flatnonzero(rank == place)
            if len(edges):
                at = np.searchsorted(edges, time_ns[rows], side="right")
                ended = np.where(at > 0, edges[np.maximum(at - 1, 0)], 0)
                found[rows] = np.where(at % 2 == 1, time_ns[rows], ended)
        return found


def shows_waiting(records: Records) -> bool:
    """Whether messages are seen from when a rank came, and not from when both had come."""
    other = partners(records)
    rows = np.flatnonzero(other >= 0)
    if not len(rows):
        return True
    apart = np.abs(records.entry_ns[rows] - records.entry_ns[other[rows]])
    return float((apart <= TOGETHER_NS).mean()) < TOGETHER_SHARE


def with_waiting(records: Records, rank: Ints, gap_ns: Ints, busy: Busy) -> Records:
    """The records with what ranks waited for them, where traces show transfers alone.

    A rank of a pipeline that neither computes nor communicates waits for what it does next. Rows
    are by rank and entry; ``gap_ns`` is the time since the latest exit of anything, or -1.
    """
    if shows_waiting(records):
        return records
    entry = records.entry_ns
    ready = np.maximum(busy.since(rank, entry), entry - gap_ns)
    changed: Records = msgspec.structs.replace(
        records, entry_ns=np.where(gap_ns > 0, np.minimum(ready, entry), entry)
    )
    return changed


def own_gaps(records: Records, rank: Ints, gap_ns: Ints, busy: Busy) -> Ints:
    """What each rank did itself since it entered the operation before, computing or idle.

    Rows are by rank and entry; ``gap_ns`` is the time since the latest exit of anything, -1 for a
    rank's first row. Of that one only what was computed before it is known.
    """
    entry = records.entry_ns
    done = busy.until(rank, entry)
    before = np.zeros(len(done))
    same = rank[1:] == rank[:-1]
    before[1:][same] = done[:-1][same]
    computed = done - before
    idle = np.maximum(gap_ns, 0)
    inside = done - np.maximum(before, busy.until(rank, entry - idle))
    found: Ints = (computed + np.maximum(idle - inside, 0)).astype(np.int64)
    return found


def shared_factor(own: Floats, peers: Floats, pipeline: Ints) -> Floats:
    """By which all stages of a pipeline take longer than their copies: lower median, 1 at least.

    Longer sequences are longer for every stage, and a rank is not at fault for what it was given.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        longer = np.where(peers > 0, own / peers, np.nan)
    return of_pipelines(longer, pipeline, 1.0)


def of_pipelines(values: Floats, pipeline: Ints, least: float) -> Floats:
    """What all stages of a pipeline have of these: the lower median, and no less than ``least``.

    ``values`` is [ranks, steps]; ranks in no pipeline have ``least``.
    """
    found = np.full(values.shape, least)
    for name in np.unique(pipeline[pipeline >= 0]).tolist():
        members = np.flatnonzero(pipeline == name)
        ordered = np.sort(values[members], axis=0)
        count = (~np.isnan(ordered)).sum(axis=0)
        middle = np.take_along_axis(ordered, np.maximum(count - 1, 0)[None] // 2, axis=0)
        found[members] = np.fmax(middle, least)
    return found
