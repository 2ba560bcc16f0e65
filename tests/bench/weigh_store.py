"""Counts and weighs what a stopped service has left: `python -m tests.bench.weigh_store FOLDER`.

In a process of its own, because chDB opens one folder a process. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from api.data.store.store import Store, StoreUrl
from tests.bench.load import PREFIXES

TABLES = ("samples", "series", "events", "exemplars", "metadata")


def weigh(store: Store) -> dict[str, int]:
    """Distinct samples and series of the load; bytes of the parts once everything is merged."""
    before = parts(store)
    is_load = " OR ".join(f"startsWith(metric_name, '{prefix}')" for prefix in PREFIXES)
    sent = f"SELECT DISTINCT series FROM series WHERE {is_load}"  # noqa: S608 - our own words
    counts = store.query(
        "SELECT count() AS n, uniqExact(series) AS s FROM samples FINAL "  # noqa: S608
        f"WHERE series IN ({sent})"
    )
    named = store.query(f"SELECT uniqExact(series) AS s FROM ({sent})")  # noqa: S608
    rows = counts.to_pylist()[0]
    # What VictoriaMetrics' force_merge is to it.
    for table in TABLES:
        store._writer.command(f"OPTIMIZE TABLE {table} FINAL")
    after = parts(store)
    return {
        "samples": int(rows["n"]),
        "series": min(int(rows["s"]), int(named.to_pylist()[0]["s"])),
        "parts": sum(count for count, _ in before.values()),
        "data": after["samples"][1],
        "indexed": sum(size for _, size in after.values()),
        "data_unmerged": before["samples"][1],
    }


def parts(store: Store) -> dict[str, tuple[int, int]]:
    """The number and the bytes of each table's living parts."""
    answer = store.query(
        "SELECT table, count() AS n, sum(bytes_on_disk) AS size FROM system.parts "
        "WHERE active AND database = currentDatabase() GROUP BY table"
    )
    return {str(row["table"]): (int(row["n"]), int(row["size"])) for row in answer.to_pylist()}


def main(arguments: list[str]) -> int:
    """The command line."""
    store = Store(StoreUrl.parse(f"chdb://{Path(arguments[0]).resolve()}"))
    try:
        print(json.dumps(weigh(store)))
    finally:
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
