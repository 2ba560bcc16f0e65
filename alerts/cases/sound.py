"""Whether a window that was read from a file holds together. Pure.

Detectors trust their window: the service makes it. One from a file may have been made by a
stranger, so that every index, length and size is checked before a detector sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from alerts.window.columns import Codes, Columns, Ints
from alerts.window.model import (
    Captured,
    Communicator,
    Grid,
    JobWindow,
    Paths,
    Ports,
    Things,
    Window,
)
from collector.contract.communicator import RANKS_MAX
from collector.contract.errors import CaseError
from collector.contract.records import ABSENT

CELLS_MAX = 8_000
"""Of a window's grid, as in the service."""
READINGS_MAX = 32 << 20
"""Things times cells of one reading: detectors make a whole matrix of it."""
EVENTS_MAX = 10_000
"""As in the service."""
TIME_NS_MAX = 1 << 62
"""Any time, so that differences of two do not overflow."""
NO_INDEX = -1


def check_window(window: Window) -> None:
    """Raises CaseError for the first thing that cannot be."""
    check_times("the window", (window.from_ns, window.to_ns))
    if window.from_ns >= window.to_ns:
        raise CaseError(f"the window ends at {window.to_ns}, and begins at {window.from_ns}")
    if len(window.events) > EVENTS_MAX:
        raise CaseError(f"{len(window.events)} events; EVENTS_MAX is {EVENTS_MAX}")
    check_times("events", (event.time_ns for event in window.events))
    for kind, things in (("ports", window.ports), ("gpus", window.gpus), ("hosts", window.hosts)):
        check_things(kind, things)
    check_ports(window.ports)
    if window.captured is not None:
        check_captured(window.captured, window.ports)
    check_lengths("gpus", len(window.gpus), [window.gpus.gpu])
    for job in window.jobs:
        check_job(job, window.ports)


def check_grid(kind: str, grid: Grid, things: int) -> None:
    check_times(kind, (grid.start_ns,))
    if not (1 <= grid.cells <= CELLS_MAX and 1 <= grid.step_ns <= TIME_NS_MAX // CELLS_MAX):
        raise CaseError(f"{kind}: a grid of {grid.cells} cells of {grid.step_ns} ns")
    if things * grid.cells > READINGS_MAX:
        raise CaseError(f"{kind}: {things} things of {grid.cells} cells; at most {READINGS_MAX}")


def check_things(kind: str, things: Things) -> None:
    check_grid(kind, things.grid, len(things))
    check_lengths(kind, len(things), [things.seen_ns])
    check_column_times(kind, things.seen_ns)
    for name, reading in things.readings.items():
        where = f"{kind}: reading {name[:60]!r}"
        check_range(where, reading.row, 0, len(things))
        if reading.row.ndim != 1 or len(np.unique(reading.row)) != len(reading.row):
            raise CaseError(f"{where} has two lines of one thing")
        if reading.values.shape != (len(reading.row), things.grid.cells):
            raise CaseError(f"{where} has values of shape {reading.values.shape}")


def check_captured(captured: Captured, ports: Ports) -> None:
    kind = "a burst capture"
    check_grid(kind, captured.grid, len(captured.row))
    check_range(f"{kind}: ports", captured.row, 0, len(ports))
    shape = (len(captured.row), captured.grid.cells)
    for name, values in (("transmit", captured.transmit), ("receive", captured.receive)):
        if values.shape != shape:
            raise CaseError(f"{kind}: {name} has values of shape {values.shape}, not {shape}")


def check_ports(ports: Ports) -> None:
    columns = (ports.device, ports.port, ports.is_switch, ports.other_end, ports.tier, ports.rail)
    check_lengths("ports", len(ports), (*columns, ports.rate_bits_per_second))
    if ports.netdev:
        check_lengths("ports", len(ports), [ports.netdev])
    check_range("ports: other ends", ports.other_end, NO_INDEX, len(ports))


def check_job(job: JobWindow, ports: Ports) -> None:
    if not 0 <= job.size <= RANKS_MAX:
        raise CaseError(f"a job of {job.size} ranks; RANKS_MAX is {RANKS_MAX}")
    check_ranks("a job's ranks", (rank.rank for rank in job.ranks.values()))
    for communicator in job.communicators.values():
        check_communicator(communicator)
    check_columns("records", job.records)
    check_columns("operations", job.operations)
    records, operations = job.records, job.operations
    check_range("records", records.communicator, 0, len(records.communicators))
    check_range("records", records.operation, 0, len(records.operations))
    check_range("records", records.host, NO_INDEX, len(records.hosts))
    check_range("operations", operations.communicator, 0, len(operations.communicators))
    check_range("operations", operations.operation, 0, len(operations.operations))
    for column in (records.rank, records.peer, records.ranks, operations.ranks):
        check_range("ranks in records", column, NO_INDEX, RANKS_MAX + 1)
    for column in (operations.last_in, operations.least_inside, operations.last_out):
        check_range("ranks of operations", column, NO_INDEX, RANKS_MAX)
    if job.computing is not None:
        check_columns("computing", job.computing)
        check_range("computing", job.computing.rank, NO_INDEX, RANKS_MAX)
    for begin_ns, end_ns in job.slices:
        check_times("slices", (begin_ns, end_ns))
    for step in job.steps:
        check_times("steps", (step.start_ns, step.end_ns))
    for pending in job.pending:
        check_ranks("pending operations", (pending.ranks, *pending.states, *pending.job_rank))
    if job.paths is not None:
        check_paths(job.paths, ports)


def check_communicator(communicator: Communicator) -> None:
    where = "a communicator's ranks"
    check_ranks(where, (communicator.ranks, *communicator.job_rank.values()))
    for ring in communicator.rings:
        if len(ring) > communicator.ranks:
            raise CaseError(f"a ring of {len(ring)} in a communicator of {communicator.ranks}")
        check_ranks(where, ring)
    for tree in communicator.trees:
        check_ranks(where, tree)


def check_paths(paths: Paths, ports: Ports) -> None:
    edges = len(paths.communicator)
    check_lengths("paths", edges, [paths.source, paths.target])
    check_lengths("paths", edges + 1, [paths.start])
    check_lengths("paths", len(paths.port), [paths.share])
    check_range("paths", paths.port, 0, len(ports))
    check_range("paths", paths.start, 0, len(paths.port) + 1)
    if np.any(np.diff(paths.start) < 0):
        raise CaseError("paths end before they begin")


# Parts -------------------------------------------------------------------------------------------


def check_columns(kind: str, columns: Columns) -> None:
    arrays = columns.arrays()
    check_lengths(kind, len(columns), list(arrays.values()))
    for name, column in arrays.items():
        if column.ndim != 1:
            raise CaseError(f"{kind}: column {name} has {column.ndim} dimensions")
        if name.endswith("_ns"):
            check_column_times(kind, column)


def check_lengths(kind: str, length: int, columns: Iterable[Sequence[object] | object]) -> None:
    for column in columns:
        found = len(column)  # type: ignore[arg-type]  # lists and arrays alike
        if found != length:
            raise CaseError(f"{kind}: a column of {found} beside one of {length}")


def check_range(kind: str, column: Ints | Codes, least: int, end: int) -> None:
    if len(column) and not least <= int(column.min()) <= int(column.max()) < end:
        raise CaseError(f"{kind}: {column.min()} to {column.max()}; {least} to {end - 1} can be")


def check_ranks(kind: str, ranks: Iterable[int]) -> None:
    for rank in ranks:
        if not 0 <= rank <= RANKS_MAX:
            raise CaseError(f"{kind}: {rank}; RANKS_MAX is {RANKS_MAX}")


def check_times(kind: str, times: Iterable[int]) -> None:
    for time_ns in times:
        if abs(time_ns) > TIME_NS_MAX:
            raise CaseError(f"{kind}: {time_ns} is no time")


def check_column_times(kind: str, column: Ints) -> None:
    known = column[column != ABSENT]
    check_range(f"{kind}: times", known, -TIME_NS_MAX, TIME_NS_MAX)
