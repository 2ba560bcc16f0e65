"""Flows as a matrix: from each rank, GPU, host, NIC or rail to each other. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.traffic.flows import Flows, summed
from alerts.traffic.places import NAMELESS, By, Places
from alerts.window.columns import Columns, Flags, Floats, Ints


class Cells(Columns, frozen=True, kw_only=True):
    """The cells that have bytes, most bytes first; names are `Places.names`."""

    source: Ints
    target: Ints
    bytes: Floats
    measured_bytes: Floats
    """Of them: those that records of both ends show."""
    transfer_ns: Floats
    """How long the longest of the sending ranks was at it; 0 if it was not timed."""
    is_local: Flags
    """All within one host: NVLink, or PCIe where there is none."""


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The cells and what has no place among them; bytes."""

    by: By
    cells: Cells
    bytes: float
    local_bytes: float
    """Of flows within a host; a matrix of NICs or rails does not show them."""
    nameless_bytes: float
    """Between ranks of which this place is not known."""


def matrix_of(flows: Flows, places: Places, by: By) -> Matrix:
    local = is_local(flows, places)
    known_hosts = (places.host[flows.source] >= 0) & (places.host[flows.target] >= 0)
    local_bytes = float(flows.bytes[local].sum())
    kept: Flows = flows.select(~local) if by.is_network else flows
    inside = np.zeros(len(kept), dtype=bool) if by.is_network else local & known_hosts
    spread, part, near, far = ends_of(kept, places, by)
    named = (near >= 0) & (far >= 0)
    nameless = float((kept.bytes[spread] * part)[~named].sum())
    rows: Flows = kept.select(spread[named])
    cells = added_up(
        msgspec.structs.replace(rows, bytes=rows.bytes * part[named]),
        (near[named], far[named]),
        inside[spread[named]],
        len(places.names(by)),
    )
    return Matrix(
        by=by,
        cells=cells,
        bytes=float(flows.bytes.sum()),
        local_bytes=local_bytes,
        nameless_bytes=nameless,
    )


def is_local(flows: Flows, places: Places) -> Flags:
    near, far = places.host[flows.source], places.host[flows.target]
    same: Flags = (near == far) & (near >= 0)
    return same


def ends_of(flows: Flows, places: Places, by: By) -> tuple[Ints, Floats, Ints, Ints]:
    """For each part of a flow: the flow's row, the part of its bytes, and where it goes.

    A rank that uses several NICs sends in equal parts by each of them, and to the receiver's NICs
    in their order.
    """
    every = np.arange(len(flows), dtype=np.int64)
    if not by.is_network:
        group = places.group(by).astype(np.int64)
        return every, np.ones(len(flows)), group[flows.source], group[flows.target]
    count = places.nics_of_rank
    channels = np.maximum(count[flows.source_by], 1)
    spread = np.repeat(every, channels)
    channel = np.arange(len(spread)) - np.repeat(np.cumsum(channels) - channels, channels)
    source, target = flows.source_by[spread], flows.target_by[spread]
    near = places.nic[source, channel].astype(np.int64)
    far = places.nic[target, channel % np.maximum(count[target], 1)].astype(np.int64)
    if by is By.RAIL:
        rail = np.append(places.rail_of_nic, NAMELESS).astype(np.int64)
        near, far = rail[near], rail[far]
    return spread, 1.0 / channels[spread], near, far


def added_up(flows: Flows, ends: tuple[Ints, Ints], local: Flags, size: int) -> Cells:
    """A cell for each pair of ends, the largest first; of equal ones in the order of the ends.

    Operations that a rank does one after the other take their times together; those of different
    ranks run at the same time. So a cell's time is that of the rank which was at it longest.
    """
    near, far = ends
    keys, cell = np.unique(near * max(size, 1) + far, return_inverse=True)
    bytes_ = summed(cell, flows.bytes, len(keys))
    measured = summed(cell, flows.bytes * flows.is_measured, len(keys))
    outside = np.bincount(cell, ~local, len(keys))
    took = np.zeros(len(keys))
    if len(keys):
        calls = int(flows.call.max()) + 1
        pair = cell.astype(np.int64) * (int(flows.source.max()) + 1) + flows.source
        pairs, which = np.unique(pair, return_inverse=True)
        _, once = np.unique(which.astype(np.int64) * calls + flows.call, return_index=True)
        each = np.bincount(which[once], flows.transfer_ns[once], len(pairs))
        np.maximum.at(took, pairs // (int(flows.source.max()) + 1), each)
    order = np.lexsort((keys, -bytes_))
    return Cells(
        source=(keys // max(size, 1))[order],
        target=(keys % max(size, 1))[order],
        bytes=bytes_[order],
        measured_bytes=measured[order],
        transfer_ns=took[order],
        is_local=(outside == 0)[order],
    )


def sent_and_received(cells: Cells, size: int) -> tuple[Floats, Floats]:
    sent = summed(cells.source, cells.bytes, size)
    return sent, summed(cells.target, cells.bytes, size)


def handed_up(up_bytes: Floats, places: Places) -> Floats:
    """[NICs] what ranks hand to switches that add up, in equal parts by each NIC of a rank."""
    sent = np.zeros(len(places.nics))
    for row in np.flatnonzero(up_bytes > 0).tolist():
        nics = places.nic[row, : int(places.nics_of_rank[row])]
        np.add.at(sent, nics, up_bytes[row] / max(len(nics), 1))
    return sent


# Against the NICs' own counters ------------------------------------------------------------------


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Modelled bytes against those that NICs counted. Counters have headers in them."""

    nics: int
    """That have a counter and no other job."""
    modelled_bytes: float
    counted_bytes: float
    median_ratio: float
    """Modelled by counted, of the median NIC."""
    worst: Ints
    """NICs whose ratio is farthest from the median's, the farthest first."""
    ratio: Floats
    """[NICs] NaN where it is not known."""


WORST_MAX = 8
"""NICs that are named with their ratios."""


def check_of(modelled: Floats, counted: Floats) -> Check | None:
    """How well the model explains the counters; None where no NIC counted anything."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(counted > 0, modelled / counted, np.nan)
    known = np.flatnonzero(np.isfinite(ratio))
    if not len(known):
        return None
    middle = float(np.median(ratio[known]))
    order = known[np.lexsort((known, -np.abs(ratio[known] - middle)))]
    return Check(
        nics=len(known),
        modelled_bytes=float(modelled[known].sum()),
        counted_bytes=float(counted[known].sum()),
        median_ratio=middle,
        worst=order[:WORST_MAX].astype(np.int64),
        ratio=ratio,
    )


def misfit(modelled: Floats, counted: Floats) -> float:
    """How far the shares of the NICs are from those that were counted; 0 is a perfect model.

    Half the sum of differences of shares: the part of the bytes that is in the wrong place. The
    total is left out of it, because headers and other traffic raise all alike.
    """
    known = np.isfinite(counted) & np.isfinite(modelled)
    sums = float(modelled[known].sum()), float(counted[known].sum())
    if min(sums) <= 0:
        return 1.0
    wrong = np.abs(modelled[known] / sums[0] - counted[known] / sums[1])
    return float(wrong.sum()) / 2
