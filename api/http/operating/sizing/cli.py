"""`fabricscope sizing`: what so many hosts take, from measured unit costs, and what is guessed."""

from __future__ import annotations

import argparse
import re

import msgspec

from api.http.operating.sizing import costs
from api.http.operating.sizing.queueing import simulate, told
from api.http.operating.sizing.size import GIB, Asked, Size, size_of
from collector.contract.errors import SettingsError

TABLE_HOSTS = (100, 1_000, 12_500)
HOSTS_MAX, GPUS_MAX, DAYS_MAX = 100_000, 64, 3_650
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.1, 300.0
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shown = ", ".join(f"{hosts:,}" for hosts in TABLE_HOSTS)
    parser.add_argument("--hosts", type=int, metavar="N", help=f"default: a table of {shown}")
    parser.add_argument("--gpus-per-host", type=int, default=costs.GPUS, metavar="N")
    parser.add_argument(
        "--interval", default="5s", metavar="TIME", help="of agents, as 1s (default %(default)s)"
    )
    parser.add_argument(
        "--retention", type=int, default=30, metavar="DAYS", help="of samples (default %(default)s)"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="queues of ingest, and the failure of a process"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    hosts = TABLE_HOSTS if arguments.hosts is None else (arguments.hosts,)
    sizes = [size_of(asked_by(arguments, count)) for count in hosts]
    queues = [simulate(size) for size in sizes] if arguments.simulate else []
    if arguments.json:
        document = {"sizes": sizes, "queues": queues}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return 0
    print(table(sizes))
    for size in sizes:
        for note in size.notes:
            print(f"{size.asked.hosts} hosts: {note}")
    for size, queued in zip(sizes, queues, strict=False):
        print(f"\n{size.asked.hosts} hosts, {told(queued)}")
    return 0


def asked_by(arguments: argparse.Namespace, hosts: int) -> Asked:
    """Raises SettingsError for what is out of bounds."""
    for flag, value, most in (
        ("--hosts", hosts, HOSTS_MAX),
        ("--gpus-per-host", arguments.gpus_per_host, GPUS_MAX),
        ("--retention", arguments.retention, DAYS_MAX),
    ):
        if not 1 <= value <= most:
            raise SettingsError(f"{flag} is {value}; 1 to {most}")
    return Asked(
        hosts=hosts,
        gpus_per_host=arguments.gpus_per_host,
        interval_s=seconds_of(arguments.interval),
        retention_days=arguments.retention,
        collectives_days=min(7, arguments.retention),
    )


def seconds_of(text: str) -> float:
    """A duration.

    >>> seconds_of("1s"), seconds_of("500ms"), seconds_of("2")
    (1.0, 0.5, 2.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|)", text)
    seconds = float(found[1]) * UNITS_S[found[2] or "s"] if found else 0.0
    if not INTERVAL_S_MIN <= seconds <= INTERVAL_S_MAX:
        raise SettingsError(
            f"--interval is {text[:40]!r}; {INTERVAL_S_MIN:g}s to {INTERVAL_S_MAX:g}s, as 5s"
        )
    return seconds


def table(sizes: list[Size]) -> str:
    rows = [
        ("hosts", [f"{size.asked.hosts:,}" for size in sizes]),
        ("series", [f"{size.series:,}" for size in sizes]),
        ("samples a second", [f"{size.samples_per_s:,.0f}" for size in sizes]),
        *(
            (f"cores busy: {role}", [f"{size.cores[role]:.2f}" for size in sizes])
            for role in sizes[0].cores
        ),
        (f"cores at {costs.BUSY:.0%} busy", [str(size.cores_needed) for size in sizes]),
        ("memory GiB", [f"{size.memory_bytes / GIB:.1f}" for size in sizes]),
        ("disk GiB: samples", [f"{size.samples_bytes / GIB:,.0f}" for size in sizes]),
        ("disk GiB: records", [f"{size.records_bytes / GIB:,.0f}" for size in sizes]),
        ("disk GiB: roll-ups", [f"{size.rollups_bytes / GIB:,.0f}" for size in sizes]),
        ("disk GiB with merges", [f"{size.disk_bytes / GIB:,.0f}" for size in sizes]),
        ("shards x replicas", [f"{size.shards} x {size.replicas}" for size in sizes]),
        ("processes", [processes_of(size) for size in sizes]),
    ]
    name_width = max(len(name) for name, _ in rows)
    widths = [max(len(cells[place]) for _, cells in rows) for place in range(len(sizes))]
    return "\n".join(
        f"{name:<{name_width}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for name, cells in rows
    )


def processes_of(size: Size) -> str:
    return ", ".join(f"{count} {role}" for role, count in size.processes.items())
