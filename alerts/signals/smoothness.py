"""The NIC that never waits: in a ring at the pace of its slowest NIC, all others do. Pure.

A slow NIC sends and receives without a pause, at its own limit and never above it. All others
burst and wait for it. So while the averages of all are equal, the rate of the slow one varies
least. It takes readings that are short against an operation: over seconds all are smooth.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.columns import Floats, Ints
from alerts.window.model import Ports

CELL_NS_MAX = 50_000_000
"""Longer readings average over bursts and waits."""
CELLS_MIN = 20
NICS_MIN = 3
"""Among two, the one that varies less proves little."""
BUSY_SHARE = 0.02
"""Of the busiest cell: a cell with less is between two operations and shows no limit."""
PEAK = 95.0
"""Percentile that counts as the busiest moments. Standard deviations are ruled by the idle ones
between operations, which all have alike."""
CLEARLY = 0.75
"""The smoothest stands out where its variation is below so much of the next one's."""
DIRECTIONS = ("transmit_bytes_total", "receive_bytes_total")


class Smoothest(msgspec.Struct, frozen=True, kw_only=True):
    """The NIC whose rate varies least."""

    row: int
    variation: float
    """How far its busiest moments are above its mean, in the direction where it is more: 0.2 is a
    fifth."""
    others: float
    cells: int

    @property
    def is_clear(self) -> bool:
        return self.variation < CLEARLY * self.others


def smoothest(ports: Ports, rows: Ints, since_ns: int, last_ns: int) -> Smoothest | None:
    """Of these ports, in this time; None where readings are too coarse or too few."""
    grid = ports.grid
    first = max(0, grid.cell_of(since_ns) + 1)
    last = min(grid.cells, grid.cell_of(last_ns))
    if grid.step_ns > CELL_NS_MAX or last - first < CELLS_MIN or len(rows) < NICS_MIN:
        return None
    ways = [excess(ports.values(name)[rows, first:last]) for name in DIRECTIONS]
    worst = np.maximum(ways[0], ways[1])
    known = np.flatnonzero(np.isfinite(worst))
    if len(known) < NICS_MIN:
        return None
    order = known[np.argsort(worst[known], kind="stable")]
    return Smoothest(
        row=int(rows[order[0]]),
        variation=float(worst[order[0]]),
        others=float(worst[order[1]]),
        cells=last - first,
    )


def excess(rates: Floats) -> Floats:
    """[ports]: how far a port's busiest cells are above its mean, as a share of it; NaN: too few.

    The busiest but for a few: what a buffer gives away in a moment is no rate. Cells in which no
    port moves bytes are between operations: they are left out for all alike.
    """
    filled = np.where(np.isfinite(rates), rates, 0.0)
    busiest = filled.max(axis=0, initial=0.0)
    busy = busiest > BUSY_SHARE * busiest.max(initial=0.0)
    seen = np.isfinite(rates) & busy[None, :]
    answer = np.full(len(rates), np.nan)
    for port in np.flatnonzero(seen.sum(axis=1) >= CELLS_MIN).tolist():
        own = rates[port, seen[port]]
        mean = float(own.mean())
        if mean > 0:
            answer[port] = float(np.percentile(own, PEAK)) / mean - 1.0
    return answer
