"""The samples of a store of ours in a real Prometheus, for tests that ask both the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray

from api.data.store.store import Store, StoreUrl
from tests.oracles.promql_oracle import running_prometheus
from tests.worlds import remote_write

SERIES_IN_A_REQUEST = 500
SAMPLE = np.dtype(
    [
        ("field", "u1"),
        ("length", "u1"),
        ("value_tag", "u1"),
        ("value", "<f8"),
        ("time_tag", "u1"),
        ("time", "u1", (6,)),
    ]
)
"""A Sample of remote write as a field of its series. Milliseconds of our century have 41 bits, so
every one of them takes six bytes, and all samples are of one length."""


def packed(time_ms: NDArray[np.int64], value: NDArray[np.float64]) -> bytes:
    """Samples in protobuf, all at once: one after the other would take minutes."""
    made = np.zeros(len(time_ms), dtype=SAMPLE)
    made["field"] = 2 << 3 | 2
    made["length"] = SAMPLE.itemsize - 2
    made["value_tag"] = 1 << 3 | 1
    made["value"] = value
    made["time_tag"] = 2 << 3
    for place in range(6):
        bits = (time_ms >> (7 * place)) & 0x7F
        made["time"][:, place] = bits | (0x80 if place < 5 else 0)
    assert (time_ms >> 42).max(initial=0) == 0
    return made.tobytes()


def series_of(store: Store, metrics: Collection[str]) -> Iterator[bytes]:
    """Every series of these metrics as a field of a write request, samples in order of time."""
    labels: dict[int, Mapping[str, str]] = {
        row["series"]: {**dict(row["labels"]), "__name__": row["name"]}
        for row in store.query(
            "SELECT series, any(labels) AS labels, any(metric_name) AS name FROM series"
            " GROUP BY series"
        ).to_pylist()
        if row["name"] in metrics
    }
    found = store.query(
        "SELECT series, toUnixTimestamp64Milli(time) AS at, value FROM samples ORDER BY series, at"
    )
    series = found.column("series").to_numpy()
    at = found.column("at").to_numpy()
    value = found.column("value").to_numpy()
    is_last = np.append((series[1:] != series[:-1]) | (at[1:] != at[:-1]), True)
    series, at, value = series[is_last], at[is_last], value[is_last]
    starts = np.flatnonzero(np.append(True, series[1:] != series[:-1])).tolist()
    for start, end in zip(starts, [*starts[1:], len(series)], strict=True):
        if int(series[start]) not in labels:
            continue
        pairs = sorted(labels[int(series[start])].items())
        head = b"".join(
            remote_write.length_field(
                1,
                remote_write.length_field(1, name.encode())
                + remote_write.length_field(2, text.encode()),
            )
            for name, text in pairs
        )
        body = head + packed(at[start:end], value[start:end])
        yield remote_write.length_field(1, body)


def requests_of(folder: Path, metrics: Collection[str]) -> list[bytes]:
    """Write requests with all samples of these metrics in the store below a folder."""
    store = Store(StoreUrl.parse(f"chdb://{folder / 'store'}"))
    try:
        fields = list(series_of(store, metrics))
    finally:
        store.close()
    return [
        b"".join(fields[first : first + SERIES_IN_A_REQUEST])
        for first in range(0, len(fields), SERIES_IN_A_REQUEST)
    ]


@contextmanager
def loaded_prometheus(workspace: Path, requests: Collection[bytes]) -> Iterator[httpx.Client]:
    """A Prometheus that has taken these requests."""
    with running_prometheus(workspace) as client:
        for body in requests:
            answer = client.post(
                "/api/v1/write",
                content=remote_write.snappy(body),
                headers=remote_write.V1_HEADERS,
            )
            assert answer.is_success, answer.text
        yield client
