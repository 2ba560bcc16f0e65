"""Bytes of a ring's NICs every millisecond, from how a ring waits: nothing here knows a detector.

A member passes on a chunk when it has received it, has sent the one before and the receiver has
room for one more (``CREDITS``). A chunk waits in the network's buffers where its receiver is slower
than its sender.
"""

from collections.abc import Mapping

import numpy as np

from alerts.window.model import Captured, Grid
from collector.contract.units import NS_PER_MS

CHUNK_BYTES = 4 << 20
LINE_BYTES = 50e9
"""A second: 400 Gb/s."""
CREDITS = 4
JITTER = (0.9, 1.15)
"""What a chunk takes, by what it would at its NIC's rate."""
SIZES = (0.3, 1.7)
"""Of CHUNK_BYTES: operations are cut into pieces of any size, so that no ring has a rhythm."""
SLOW = 0.008
"""Of the line that a slow side carries: a chunk takes ten milliseconds."""


def ring_counters(
    members: int,
    seconds: float,
    *,
    sends: Mapping[int, float] | None = None,
    receives: Mapping[int, float] | None = None,
    step_ms: int = 1,
    seed: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """[members, readings] of bytes sent and received, every ``step_ms`` from 0 on.

    ``sends``, ``receives``: of the line, where a NIC has less of it in that direction.
    """
    random = np.random.default_rng(seed)
    out_s = [CHUNK_BYTES / LINE_BYTES / (sends or {}).get(one, 1.0) for one in range(members)]
    into_s = [CHUNK_BYTES / LINE_BYTES / (receives or {}).get(one, 1.0) for one in range(members)]
    sent: list[list[tuple[float, float]]] = [[] for _ in range(members)]
    taken: list[list[tuple[float, float]]] = [[] for _ in range(members)]
    step = 0
    sizes: list[float] = []
    while min((pieces[-1][1] if pieces else 0.0) for pieces in taken) < seconds:
        sizes.append(random.uniform(*SIZES))
        for one in range(members):
            other = (one + 1) % members
            ready = taken[one][step - 1][1] if step else 0.0
            ready = max(ready, sent[one][step - 1][1] if step else 0.0)
            if step >= CREDITS:
                ready = max(ready, taken[other][step - CREDITS][1])
            sent[one].append((ready, ready + sizes[step] * out_s[one] * random.uniform(*JITTER)))
        for one in range(members):
            other = (one + 1) % members
            begin = max(sent[one][step][0], taken[other][step - 1][1] if step else 0.0)
            took = sizes[step] * into_s[other] * random.uniform(*JITTER)
            taken[other].append((begin, max(begin + took, sent[one][step][1])))
        step += 1
    times = np.arange(0.0, seconds, step_ms / 1000)
    return (
        np.array([counted(pieces, sizes, times) for pieces in sent]),
        np.array([counted(pieces, sizes, times) for pieces in taken]),
    )


def counted(pieces: list[tuple[float, float]], sizes: list[float], times: np.ndarray) -> np.ndarray:
    """Bytes until each of these times; a piece's bytes flow evenly."""
    edges = np.array(pieces).reshape(-1)
    edges = np.maximum.accumulate(edges)
    done = np.repeat(np.cumsum([0.0, *sizes]), 2)[1:-1] * CHUNK_BYTES
    total: np.ndarray = np.round(np.interp(times, edges, done)).astype(np.int64)
    return total


def capture_of(
    out: np.ndarray, into: np.ndarray, rows: list[int], start_ns: int, cell_ms: int = 2
) -> Captured:
    """What a window makes of such counters, read every millisecond: rates of cells."""
    chosen = slice(None, None, cell_ms)
    rates = [np.diff(one[rows][:, chosen], axis=1) * (1000.0 / cell_ms) for one in (out, into)]
    return Captured(
        grid=Grid(start_ns, cell_ms * NS_PER_MS, rates[0].shape[1]),
        row=np.array(rows),
        transmit=rates[0],
        receive=rates[1],
    )
