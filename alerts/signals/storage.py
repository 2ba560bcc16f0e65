"""How fast shared storage answers each host, and how long ranks wait for it. Pure.

Readings of mounts are split by storage (`SERVER:EXPORT`); a response is the mean time that a server
took to answer one request of a host, network included. A cell with few requests has none: a mean of
three says nothing.
"""

from __future__ import annotations

import numpy as np

from alerts.window.columns import Floats, Ints
from alerts.window.model import Hosts
from alerts.window.statistics import median_known
from collector.contract.storage import server_of

READ, WRITE = "read", "write"
KINDS = (READ, WRITE)
REQUESTS_MIN = 1.0
"""Requests a second from which on their mean is one: five or more between two readings."""
FACTOR = 3.0
"""Times what is usual of it: a busy server takes twice as long as an idle one every day."""
LEAST_SECONDS = 0.005
"""By how much more at least: below it lies what flash and a network hop need."""
PAST_QUANTILE = 0.25
"""Of the cells of a host, the response that is its usual one: trouble may fill half of a window."""
PAST_CELLS_MIN = 4

PHASE_PREFIX = "step_phase_seconds_total:"
DATA_PHASES = frozenset(
    {"data", "dataloader", "data_loader", "data_loading", "data_load", "load_data", "batch",
     "get_batch", "fetch", "input", "loader"}
)  # fmt: skip
"""What training loops call the wait for their batch."""
CHECKPOINT_PHASES = frozenset(
    {"checkpoint", "checkpointing", "save", "save_checkpoint", "ckpt", "write_checkpoint"}
)
"""What they call the writing of a checkpoint."""


def storages(hosts: Hosts) -> list[str]:
    """Every storage that some host has read from or written to, in order."""
    prefixes = tuple(f"{requests_of(kind)}:" for kind in KINDS)
    found = {name.partition(":")[2] for name in hosts.readings if name.startswith(prefixes)}
    return sorted(one for one in found if server_of(one))


def requests_of(kind: str) -> str:
    return f"mount_{kind}s_total"


def response_of(kind: str) -> str:
    return f"mount_{kind}_response_seconds_total"


def responses(hosts: Hosts, storage: str, kind: str) -> Floats:
    """[hosts, cells] seconds; NaN where too little was asked for, or it was not read."""
    requests = hosts.values(f"{requests_of(kind)}:{storage}")
    seconds = hosts.values(f"{response_of(kind)}:{storage}")
    enough = requests >= REQUESTS_MIN
    found: Floats = np.where(enough, seconds / np.where(enough, requests, 1.0), np.nan)
    return found


def past_of(values: Floats) -> Floats:
    """[rows] what was usual of each in its own past; NaN where that is not known."""
    known = (~np.isnan(values)).sum(axis=1)
    ordered = np.sort(values, axis=1)
    place = np.maximum((known - 1) * PAST_QUANTILE, 0).astype(np.int64)
    if not ordered.shape[1]:
        return np.full(len(values), np.nan)
    picked: Floats = ordered[np.arange(len(values)), place]
    return np.where(known >= PAST_CELLS_MIN, picked, np.nan)


def is_slow(values: Floats, usual: Floats) -> np.ndarray:
    """Where a response is far above the usual one; False where either is not known."""
    return (values >= FACTOR * usual) & (values - usual >= LEAST_SECONDS)


def waits(hosts: Hosts, phases: frozenset[str], rows: Ints, ranks: Floats) -> Floats | None:
    """[rows, cells] share of its time that a rank waits in these phases; None: none is marked."""
    total: Floats | None = None
    for name in sorted(hosts.readings):
        phase = name.removeprefix(PHASE_PREFIX)
        if phase == name or phase.lower() not in phases:
            continue
        values = hosts.values(name)[rows] / np.maximum(ranks, 1.0)[:, None]
        total = values if total is None else np.nansum([total, values], axis=0)
    return total


def answers_alike(
    hosts: Hosts, row: int, peers: Ints, span_ns: tuple[int, int]
) -> tuple[str, float, float] | None:
    """The storage that answered this host slowest, and how fast it answered its peers.

    None where none was asked, or where one of them answered this host slower than its peers.
    """
    edges = hosts.grid.edges_ns
    inside = (edges[1:] > span_ns[0]) & (edges[:-1] < span_ns[1])
    others = peers[peers != row]
    found: list[tuple[float, str, float]] = []
    for storage in storages(hosts):
        for kind in KINDS:
            values = responses(hosts, storage, kind)[:, inside]
            own, usual = median_known(values[row]), median_known(values[others].reshape(-1))
            if np.isnan(own) or np.isnan(usual):
                continue
            if is_slow(np.array(own), np.array(usual)):
                return None
            found.append((own, storage, usual))
    if not found:
        return None
    own, storage, usual = max(found)
    return storage, own, usual
