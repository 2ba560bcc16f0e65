"""Samples that the service makes itself: what it computes becomes series like any other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from api.ingest.columns import MS_PER_DAY, SampleColumns
from api.ingest.commit import GroupCommit, Write
from api.ingest.series import NewSeries
from collector.contract.identity import metric_id
from collector.contract.model import Sample
from collector.contract.wire import NS_PER_MS

KNOWN_SERIES_MAX = 200_000
"""Series of ours that are remembered as written, about 60 MB. Past it: start anew."""


class OwnSamples:
    """Writes the service's samples. For one task at a time."""

    def __init__(self, commit: GroupCommit) -> None:
        self._commit = commit
        self._written: set[tuple[int, int]] = set()

    async def write(self, samples: Sequence[Sample]) -> None:
        """Return when they are durable; raise StoreError when none of them may be."""
        if not samples:
            return
        identities = [sample.series.identify({}) for sample in samples]
        columns = SampleColumns(
            np.array([metric_id(sample.series.metric) for sample in samples], dtype=np.uint32),
            np.array(identities, dtype=np.uint64),
            np.array([sample.time_ns // NS_PER_MS for sample in samples], dtype=np.int64),
            np.array([sample.value for sample in samples], dtype=np.float64),
        )
        news = {
            (day, identity): NewSeries(day, identity, sample.series.full_labels({}))
            for sample, identity in zip(samples, identities, strict=True)
            if (day := sample.time_ns // NS_PER_MS // MS_PER_DAY, identity) not in self._written
        }
        await self._commit.write(Write(samples=columns, series=list(news.values())))
        if len(self._written) + len(news) > KNOWN_SERIES_MAX:
            self._written.clear()
        self._written.update(news)
