"""What a soak looks at: the process from outside, from inside, and the service's own numbers."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec

from tests.bench.processes import disk_bytes
from tests.bench.report import KIB

Figures = dict[str, float]

SERVICE_LINE = re.compile(r"^(fabric_service_\w+?)(?:\{(.*)\})? (\S+)$")
NOT_SIZES = re.compile(
    r"_(total|bucket|sum|count|created)$|_time_seconds$|_seconds$|_info$|_disk_|_store_rows$"
)
"""Counters only ever rise, times are no sizes, and disks are not the service's."""
ROLLUP = {"Rss": "rss_bytes", "Pss": "pss_bytes", "Anonymous": "anonymous_bytes"}


class Moment(msgspec.Struct, frozen=True):
    """All figures at one time, in seconds since the load began."""

    seconds: float
    figures: Figures


def process_figures(pid: int) -> Figures:
    """As the kernel sees the process."""
    proc = Path(f"/proc/{pid}")
    found = dict(rollup(proc / "smaps_rollup"))
    found["descriptors"] = float(sum(1 for _ in (proc / "fd").iterdir()))
    found["threads"] = float(sum(1 for _ in (proc / "task").iterdir()))
    return found


def rollup(file: Path) -> Iterator[tuple[str, float]]:
    for line in file.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ROLLUP:
            yield ROLLUP[name], float(rest.split()[0]) * KIB


def service_figures(text: str) -> Figures:
    r"""The sizes among the service's own metrics, and how many lines there are.

    >>> service_figures('fabric_service_senders 2.0\nfabric_service_samples_total{a="b"} 7.0')
    {'metric_lines': 2.0, 'senders': 2.0}
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found: Figures = {"metric_lines": float(len(lines))}
    for line in lines:
        parts = SERVICE_LINE.match(line)
        if parts is None or NOT_SIZES.search(parts[1]):
            continue
        name, value = parts[1].removeprefix("fabric_service_"), float(parts[3])
        if math.isfinite(value):
            shown = f"{name}{{{parts[2]}}}" if parts[2] else name
            found[shown] = value
    return found


def last_line(file: Path) -> Figures:
    """What the process last wrote of itself; nothing if that is not yet a whole line."""
    if not file.exists():
        return {}
    lines = file.read_bytes().rpartition(b"\n")[0].splitlines()
    if not lines:
        return {}
    found: Figures = json.loads(lines[-1])
    found.pop("time", None)
    return found


def look(pid: int, inside: Path, data: Path, client: httpx.Client) -> Figures:
    return {
        **process_figures(pid),
        **last_line(inside),
        "disk_bytes": float(disk_bytes(data)),
        **service_figures(client.get("/metrics").text),
    }


# --- the file -------------------------------------------------------------------------------------


def append(file: Path, moment: Moment) -> None:
    """One line a figure: a figure that appears later needs no other file."""
    is_new = not file.exists()
    with file.open("a", newline="") as out:
        writer = csv.writer(out)
        if is_new:
            writer.writerow(("seconds", "figure", "value"))
        for name, value in moment.figures.items():
            writer.writerow((f"{moment.seconds:.1f}", name, f"{value:.17g}"))


def read(file: Path) -> list[Moment]:
    found: dict[float, Figures] = {}
    with file.open(newline="") as rows:
        for row in csv.DictReader(rows):
            found.setdefault(float(row["seconds"]), {})[row["figure"]] = float(row["value"])
    return [Moment(seconds, figures) for seconds, figures in sorted(found.items())]


def names_of(moments: list[Moment]) -> list[str]:
    """Every figure, in the order in which they appeared."""
    return list(dict.fromkeys(name for moment in moments for name in moment.figures))


def values_of(moments: list[Moment], name: str) -> list[tuple[float, float]]:
    return [(moment.seconds, moment.figures[name]) for moment in moments if name in moment.figures]


def shown(name: str, value: float) -> str:
    """A number as people read it.

    >>> shown("rss_bytes", 3 << 20), shown("threads", 12.0)
    ('3.0 MiB', '12')
    """
    if "bytes" in name.lower() or name == "engine_MemoryTracking":
        return f"{value / (KIB * KIB):,.1f} MiB"
    return f"{value:,.0f}"
