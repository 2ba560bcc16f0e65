"""Results of nccl-tests on this fabric, as a baseline for a job's collectives."""

from __future__ import annotations

import msgspec

from api.data.store.store import Store
from collector.contract.identity import metric_id

BUS_BANDWIDTH = "fabric_baseline_bus_bandwidth_bytes_per_second"
SIZE_FACTOR_MAX = 4
"""A test of another size is comparable up to this factor: within a class of sizes a link's
efficiency changes little."""

SQL = """
    SELECT operation, ranks, size_bytes, max(value) AS best
    FROM (
        SELECT DISTINCT series, labels['operation'] AS operation,
               toInt64OrZero(labels['ranks']) AS ranks, toInt64OrZero(labels['bytes']) AS size_bytes
        FROM series WHERE metric_name = {name:String}
    ) AS named
    INNER JOIN (SELECT series, value FROM samples WHERE metric = {metric:UInt32}) AS numbers
    USING series
    GROUP BY operation, ranks, size_bytes
"""


class Baselines(msgspec.Struct, frozen=True):
    """The best bus bandwidth of each test: by operation and number of ranks, sizes and values."""

    tests: dict[tuple[str, int], list[tuple[int, float]]]

    def find(self, operation: str, ranks: int, size_bytes: int | None) -> float | None:
        if not size_bytes:
            return None
        near = [
            (max(size, size_bytes) / min(size, size_bytes), value)
            for size, value in self.tests.get((operation, ranks), [])
            if size > 0
        ]
        factor, value = min(near, default=(SIZE_FACTOR_MAX + 1.0, 0.0))
        return value if factor <= SIZE_FACTOR_MAX else None


def read_baselines(store: Store) -> Baselines:
    tests: dict[tuple[str, int], list[tuple[int, float]]] = {}
    parameters = {"name": BUS_BANDWIDTH, "metric": metric_id(BUS_BANDWIDTH)}
    for row in store.query(SQL, parameters).to_pylist():
        key = (row["operation"], row["ranks"])
        tests.setdefault(key, []).append((row["size_bytes"], row["best"]))
    return Baselines(tests)
