"""Series that no longer fit into a cache: for which days the store last got each of them.

A sender may have more series than are cached. Those that are left out are parsed with every request
again, but they are not new: neither their names nor their sender's budget may be charged again.
"""

from __future__ import annotations

import numpy as np

from api.base.limits import FORGOTTEN_SERIES_MAX
from api.data.ingest.columns import Int64s, UInt64s

Span = tuple[int, int]
RECENT_MAX = 100_000
"""Entries that wait, in a dictionary, until they are sorted in among all others."""


class Forgotten:
    """Ids of series, each with its successive days; 24 bytes each. For one thread at a time."""

    def __init__(self) -> None:
        self._ids: UInt64s = np.empty(0, dtype=np.uint64)
        """In order, each once."""
        self._spans: Int64s = np.empty((0, 2), dtype=np.int64)
        """The first and the last day of each."""
        self._recent: dict[int, Span] = {}

    def __len__(self) -> int:
        """How many there are, about: one that waits may be counted twice."""
        return len(self._ids) + len(self._recent)

    def span_of(self, identity: int) -> Span | None:
        """The last days for which the store has the series; None: it is new, or was long ago."""
        if (span := self._recent.get(identity)) is not None:
            return span
        place = int(np.searchsorted(self._ids, np.uint64(identity)))
        if place == len(self._ids) or int(self._ids[place]) != identity:
            return None
        first, last = self._spans[place].tolist()
        return first, last

    def put(self, ids: UInt64s, first: Int64s, last: Int64s) -> None:
        """Remember these with their days, instead of those that were known before."""
        is_old = np.zeros(len(ids), dtype=np.bool_)
        if len(self._ids):
            place = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            is_same = (self._spans[place] == np.stack([first, last], axis=1)).all(axis=1)
            is_old = (self._ids[place] == ids) & is_same
        for series in ids[is_old].tolist():
            self._recent.pop(series, None)
        new = (column[~is_old].tolist() for column in (ids, first, last))
        self._recent.update((series, (begin, end)) for series, begin, end in zip(*new, strict=True))
        if len(self._recent) > RECENT_MAX:
            self._sort_in()

    def _sort_in(self) -> None:
        """Past the bound, those of the latest day are kept, and of these a part if need be."""
        ids = np.concatenate([np.fromiter(self._recent, np.uint64), self._ids])
        spans = np.concatenate([np.array([*self._recent.values()], np.int64), self._spans])
        self._recent = {}
        ids, first = np.unique(ids, return_index=True)  # the first: what waited is later
        spans = spans[first]
        if len(ids) > FORGOTTEN_SERIES_MAX:
            kept = np.sort(np.argsort(-spans[:, 1], kind="stable")[:FORGOTTEN_SERIES_MAX])
            ids, spans = ids[kept], spans[kept]
        self._ids, self._spans = ids, spans
