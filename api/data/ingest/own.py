"""Writes samples that the service computes itself as ordinary series."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from api.data.ingest.columns import MS_PER_DAY, SampleColumns
from api.data.ingest.commit import GroupCommit, Write
from api.data.ingest.series import NewSeries
from api.data.store.shards import place_of_series
from collector.contract.identity import metric_id
from collector.contract.model import Sample, Series
from collector.contract.units import NS_PER_MS

KNOWN_SERIES_MAX = 200_000
"""Own series cached as written, about 60 MB. Past it the cache is cleared."""


class OwnSamples:
    """Writes the service's samples. For one task at a time."""

    def __init__(self, commit: GroupCommit) -> None:
        self._commit = commit
        self._known: dict[Series, tuple[int, int]] = {}
        """The id of each series that was written, and the day for which it last was."""

    def preview(self, samples: Sequence[Sample]) -> tuple[SampleColumns, bool]:
        """The samples as they will be written, and whether the store knows all their series."""
        columns, news = self._prepare(samples)
        return columns, not news

    async def write(self, samples: Sequence[Sample], *, at_once: bool = False) -> None:
        """Return when they are durable; raise StoreError when none of them may be."""
        if not samples:
            return
        # In a thread: rules may record thousands, which would block the event loop.
        columns, news = await asyncio.to_thread(self._prepare, samples)
        write = Write(samples=columns, series=list(news.values()))
        await self._commit.write(write, at_once=at_once)
        if len(self._known) + len(news) > KNOWN_SERIES_MAX:
            self._known.clear()
        self._known.update((series, (new.series, day)) for (series, day), new in news.items())

    def _prepare(
        self, samples: Sequence[Sample]
    ) -> tuple[SampleColumns, dict[tuple[Series, int], NewSeries]]:
        identities = []
        news: dict[tuple[Series, int], NewSeries] = {}
        for sample in samples:
            series, day = sample.series, sample.time_ns // NS_PER_MS // MS_PER_DAY
            identity, known_day = self._known.get(series) or (series.identify({}), None)
            if day != known_day:
                news[series, day] = NewSeries(day, identity, series.full_labels({}))
            identities.append(identity)
        place = None
        if self._commit.is_placed:
            labels = (dict(sample.series.full_labels({})) for sample in samples)
            place = np.fromiter(map(place_of_series, labels, identities), np.uint32, len(samples))
        columns = SampleColumns(
            np.array([metric_id(sample.series.metric) for sample in samples], dtype=np.uint32),
            np.array(identities, dtype=np.uint64),
            np.array([sample.time_ns // NS_PER_MS for sample in samples], dtype=np.int64),
            np.array([sample.value for sample in samples], dtype=np.float64),
            place,
        )
        return columns, news
