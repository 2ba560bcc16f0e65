"""Series that no longer fit into a cache: for which day the store last got each of them.

A sender may have more series than are cached. Those that are left out are parsed with every request
again, but they are not new: neither their names nor their sender's budget may be charged again.
"""

from __future__ import annotations

import numpy as np

from api.base.limits import FORGOTTEN_SERIES_MAX
from api.data.ingest.columns import Int64s, UInt64s

RECENT_MAX = 100_000
"""Entries that wait, in a dictionary, until they are sorted in among all others."""


class Forgotten:
    """Ids of series, each with a day; 16 bytes each. For one thread at a time."""

    def __init__(self) -> None:
        self._ids: UInt64s = np.empty(0, dtype=np.uint64)
        """In order, each once."""
        self._days: Int64s = np.empty(0, dtype=np.int64)
        self._recent: dict[int, int] = {}

    def __len__(self) -> int:
        """How many there are, about: one that waits may be counted twice."""
        return len(self._ids) + len(self._recent)

    def day_of(self, identity: int) -> int | None:
        """The last day for which the store has the series; None: it is new, or was long ago."""
        if (day := self._recent.get(identity)) is not None:
            return day
        place = int(np.searchsorted(self._ids, np.uint64(identity)))
        is_there = place < len(self._ids) and int(self._ids[place]) == identity
        return int(self._days[place]) if is_there else None

    def put(self, ids: UInt64s, days: Int64s) -> None:
        """Remember these, with a later day than before or the same."""
        if not len(ids):
            return
        is_old = np.zeros(len(ids), dtype=np.bool_)
        if len(self._ids):
            place = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            is_old = (self._ids[place] == ids) & (self._days[place] == days)
        self._recent.update(zip(ids[~is_old].tolist(), days[~is_old].tolist(), strict=True))
        if len(self._recent) > RECENT_MAX:
            self._sort_in()

    def _sort_in(self) -> None:
        """Past the bound, those of the latest day are kept, and of these a part if need be."""
        ids = np.concatenate([np.fromiter(self._recent, np.uint64), self._ids])
        days = np.concatenate([np.fromiter(self._recent.values(), np.int64), self._days])
        self._recent = {}
        ids, first = np.unique(ids, return_index=True)  # the first: what waited is later
        days = days[first]
        if len(ids) > FORGOTTEN_SERIES_MAX:
            kept = np.sort(np.argsort(-days, kind="stable")[:FORGOTTEN_SERIES_MAX])
            ids, days = ids[kept], days[kept]
        self._ids, self._days = ids, days
