"""Series and their samples put straight into a store, without a service in front of it."""

from collections.abc import Sequence

import numpy as np

from api.data.ingest.columns import SampleColumns
from api.data.ingest.commit import series_rows
from api.data.ingest.series import NewSeries
from api.data.store.shards import place_of_series
from api.data.store.store import Store
from collector.contract.identity import METRIC_LABEL, canonical_labels, metric_id, series_id
from tests.worlds.remote_write import TimeSeries

DAY_MS = 86_400_000


def write_series(store: Store, series: Sequence[TimeSeries]) -> None:
    """All of it at once; a series is known on every day of its samples."""
    new: list[NewSeries] = []
    rows: list[tuple[int, int, int, float, int]] = []
    for one in series:
        labels = canonical_labels(dict(one.labels))
        number = series_id(labels)
        metric = metric_id(dict(labels)[METRIC_LABEL])
        days = sorted({at_ms // DAY_MS for _, at_ms in one.samples})
        new += [NewSeries(day, number, labels) for day in days]
        place = place_of_series(dict(labels), number)
        rows += [(metric, number, at_ms, value, place) for value, at_ms in one.samples]
    store.insert_arrow("series", series_rows(new))
    store.insert_samples(
        SampleColumns(
            np.array([row[0] for row in rows], np.uint32),
            np.array([row[1] for row in rows], np.uint64),
            np.array([row[2] for row in rows], np.int64),
            np.array([row[3] for row in rows], np.float64),
            np.array([row[4] for row in rows], np.uint32),
        )
    )
