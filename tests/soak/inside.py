"""The service of a soak: `fabricscope serve`, with a thread that writes what only it can see.

`python -m tests.soak.inside FILE SECONDS serve …`. Every SECONDS one JSON object is appended to
FILE: memory as Python, Arrow, the C library and the engine count it, and the engine's parts and
caches. Nothing else of the service is changed.
"""

from __future__ import annotations

import ctypes
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from api.data.store.store import Store
from api.http import serving as serve
from api.http.app import create_app
from collector.cli import main as fabricscope
from collector.contract.errors import StoreError

ENGINE_SQL = """
    SELECT concat('engine_', metric) AS name, toFloat64(value) AS value FROM system.metrics
    WHERE metric = 'MemoryTracking' OR metric LIKE '%Cache%Bytes' OR metric LIKE '%Cache%Cells'
        OR metric LIKE '%Cache%Files' OR metric = 'GlobalThread'
"""
ALLOCATOR_SQL = "SELECT stats FROM system.jemalloc_stats"
ALLOCATOR_LINE = re.compile(r"^Allocated: .*$", re.MULTILINE)
ALLOCATOR_FIGURE = re.compile(r"(\w+): (\d+)")
"""`Allocated: 32300384, active: 33083392, metadata: … (n_thp 0, …), resident: 47149056, …`"""
PARTS_SQL = """
    SELECT toFloat64(countIf(active)) AS parts, toFloat64(countIf(NOT active)) AS parts_inactive,
        toFloat64(sumIf(rows, active)) AS rows, toFloat64(sumIf(marks, active)) AS marks,
        toFloat64(sum(primary_key_bytes_in_memory_allocated)) AS primary_key_bytes
    FROM system.parts WHERE database = currentDatabase()
"""

log = logging.getLogger(__name__)


class MallInfo(ctypes.Structure):
    """What glibc's mallinfo2(3) returns: over all arenas, in bytes but for the counts."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def libc_figures() -> dict[str, float]:
    """Memory that the C library has given out, and what it keeps although it is free."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # no glibc, or older than 2.33
        return {}
    mallinfo.restype = MallInfo
    found = mallinfo()
    return {
        "malloc_used_bytes": float(found.uordblks + found.hblkhd),
        "malloc_free_bytes": float(found.fordblks),
    }


def python_figures() -> dict[str, float]:
    """Not the objects of `gc`: to list them breaks tuples that other threads are building."""
    return {
        "python_blocks": float(sys.getallocatedblocks()),
        "arrow_bytes": float(pa.total_allocated_bytes()),
    }


def engine_figures(store: Store) -> Iterator[tuple[str, float]]:
    for row in store.query(ENGINE_SQL).to_pylist():
        yield row["name"], row["value"]
    yield from allocator_figures(store.query(ALLOCATOR_SQL).to_pylist()[0]["stats"])
    for row in store.query(PARTS_SQL).to_pylist():
        yield from row.items()


def allocator_figures(stats: str) -> Iterator[tuple[str, float]]:
    """The sums of the engine's own allocator.

    >>> dict(allocator_figures("Allocated: 5, active: 6, metadata: 1 (n_thp 0), resident: 9"))
    {'jemalloc_allocated_bytes': 5.0, 'jemalloc_active_bytes': 6.0, \
'jemalloc_metadata_bytes': 1.0, 'jemalloc_resident_bytes': 9.0}
    """
    line = ALLOCATOR_LINE.search(stats)
    if line is None:
        return
    for name, value in ALLOCATOR_FIGURE.findall(line[0]):
        yield f"jemalloc_{name.lower()}_bytes", float(value)


def watch(stores: list[Store], file: Path, seconds: float) -> None:
    """Write figures until the process ends; a look that fails is logged and left out."""
    while True:
        time.sleep(seconds)
        figures = {"time": time.time(), **libc_figures(), **python_figures()}
        try:
            for store in stores:
                figures.update(engine_figures(store))
        except StoreError:
            log.exception("the engine does not tell its figures")
        with file.open("a") as out:
            out.write(json.dumps(figures) + "\n")


def main(arguments: list[str]) -> int:
    file, seconds, *words = arguments
    stores: list[Store] = []

    def keep_store(settings: Any, store: Store, *more: Any) -> Any:  # noqa: ANN401 - passed through
        stores.append(store)
        return create_app(settings, store, *more)

    threading.Thread(target=watch, args=(stores, Path(file), float(seconds)), daemon=True).start()
    with patch.object(serve, "create_app", keep_store):
        return fabricscope(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
