"""Bytes between a host and its shared storage, held against what a port of the host carries. Pure.

A checkpoint that is written or read back over the NIC of the collectives looks like a neighbour's
traffic, or like a slow NIC. Hosts count the bytes of each mount, so that it can be told apart. Who
reads by NFS over RDMA counts there as well, GPUDirect Storage of other file systems does not.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.signals.ports import (
    Span,
    carried,
    gap_cells,
    line_bytes,
    mean,
    percent,
    times_of,
    values_of,
)
from alerts.signals.storage import READ, WRITE
from alerts.window.columns import Flags, Floats
from alerts.window.model import Window
from collector.contract.figures import quantity
from collector.contract.storage import server_of
from collector.contract.verdict import Culprit, Evidence, Reason

READINGS = {READ: "mount_read_bytes_total", WRITE: "mount_written_bytes_total"}
"""By what the host does. Bytes that it reads come in at its port."""
MENTIONED_LEAST = 0.1
"""Of the port's line, from which on storage is worth a word beside what the port carries."""
EXPLAINS = (0.7, 1.3)
"""Of the bytes that are to be explained. A mount's count lacks headers, and less than that leaves
room for other senders; more goes another way as well, so that it is open what came by this one."""
FULL_LEAST = 0.75
"""Of its line that a port sends in a cell, beside a job that computes in between: a NIC that is
slow by more than a quarter cannot."""
OTHERS_LEAST = 0.3
"""Of its line that it sends beyond what it receives: both ways of a ring are nearly equal, and of
trees one may be the half of the other where nothing fills the line."""
COVERS = 0.75
"""Of what a NIC's ring lost of the line, from which on what else it sends is why: a checkpoint that
takes a third of the line makes transfers half as long again, and leaves a slow NIC's ring more."""
CELLS_MIN = 2
"""Cells that must agree one by one: of one, chance may have made the amounts equal."""
ALIKE_SHARE = 0.8
"""Of the cells, in and beside the time in question, in which storage and port must agree."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What a host moved to or from one storage while a port was full."""

    host: str
    storage: str
    kind: str
    values: Floats
    """[cells] bytes a second."""
    now: float
    """Mean of the time in question."""


def traffic_of(window: Window, host: str, span: Span, kind: str) -> Traffic | None:
    """The storage with which a host moved most in this time; None where it moved nothing."""
    hosts = window.hosts
    if host not in hosts.row_of or hosts.grid != window.ports.grid:
        return None
    row, prefix = hosts.row_of[host], f"{READINGS[kind]}:"
    best: Traffic | None = None
    for name in sorted(hosts.readings):
        storage = name.removeprefix(prefix)
        if storage == name or not server_of(storage):
            continue
        values = hosts.values(name)[row]
        now = mean(values[span.cells])
        if now > 0 and (best is None or now > best.now):
            best = Traffic(host=host, storage=storage, kind=kind, values=values, now=now)
    return best


def explains(one: Traffic, wanted: Floats, span: Span) -> bool:
    """Whether these bytes account for those of a port, cell by cell, also where there are none.

    ``wanted``: [cells] bytes a second that the port carries beyond what its job's ring does.
    """
    known = ~np.isnan(wanted) & ~np.isnan(one.values)
    inside = is_alike(one.values, wanted)[span.cells][known[span.cells]]
    if len(inside) < CELLS_MIN or inside.mean() < ALIKE_SHARE:
        return False
    beside = np.ones(len(wanted), dtype=bool)
    # The cells next to it are of both times.
    beside[max(0, span.first - 1) : span.last + 2] = False
    beside &= known
    # As much from storage while the port carried nothing of it went another way.
    elsewhere = beside & (one.values >= EXPLAINS[0] * one.now) & (wanted < EXPLAINS[0] * one.values)
    return bool(elsewhere.sum() <= (1.0 - ALIKE_SHARE) * max(1, int(beside.sum())))


def is_alike(values: Floats, wanted: Floats) -> Flags:
    """[cells] whether bytes of storage are those that are to be explained; False: not known."""
    lowest, highest = EXPLAINS
    least = np.maximum(wanted, 1.0)
    found: Flags = (values >= lowest * least) & (values <= highest * least)
    return found


def storage_evidence(window: Window, one: Traffic, span: Span, line_bytes: float) -> list[Evidence]:
    """The mount and its server, if its bytes are a good part of the port's line (bytes/s)."""
    if not line_bytes > 0 or one.now < MENTIONED_LEAST * line_bytes:
        return []
    from_ns, to_ns = times_of(window, span)
    before = mean(one.values[: max(0, span.first - 1)]) if span.first > 1 else None
    does, way = ("reads", "from") if one.kind == READ else ("writes", "to")
    known = "" if before is None or np.isnan(before) else f", {quantity(before, 'bytes/s')} before"
    text = (
        f"{one.host} {does} {quantity(one.now, 'bytes/s')} {way} {one.storage} (server "
        f"{server_of(one.storage)}){known}: {percent(one.now / line_bytes)} of the port's line."
    )
    return [
        Evidence(
            metric=window.hosts.metric(f"{READINGS[one.kind]}:{one.storage}"),
            text=text,
            value=one.now,
            unit="bytes/s",
            baseline=before if known else None,
            from_ns=from_ns,
            to_ns=to_ns,
            labels={"host": one.host, "storage": one.storage},
            samples=int((~np.isnan(one.values[span.cells])).sum()),
        )
    ]


def storage_beside(
    window: Window, hosts: list[str], span: Span, line_bytes: float
) -> list[Evidence]:
    """Of these hosts the one that moves most to or from storage, if that is worth a word."""
    found = [
        one
        for host in hosts
        for kind in READINGS
        if (one := traffic_of(window, host, span, kind)) is not None
    ]
    if not found:
        return []
    most = max(found, key=lambda one: (one.now, one.host, one.storage, one.kind))
    return storage_evidence(window, most, span, line_bytes)


def storage_at(window: Window, nic: Culprit, since_ns: int, last_ns: int) -> list[Evidence]:
    """Storage that the host of a NIC moves while that NIC is slow."""
    found = place_of(window, nic, since_ns, last_ns)
    if found is None:
        return []
    row, span = found
    return storage_beside(window, [nic.host], span, line_bytes(window.ports, row))


def what_fills(
    window: Window, nic: Culprit, span_ns: tuple[int, int], ratio: float, kind: str = WRITE
) -> Reason | None:
    """Why a NIC that looks slow is full of what no ring sends; None: it is not.

    A ring's NIC sends what it receives. What it sends beyond that is others' doing, and with
    ``kind`` READ what it receives beyond what it sends. It is the host's own storage traffic if
    that is what the host writes (reads), cell by cell, and the ring lost no more of the line by it:
    its transfers take ``ratio`` times as long as usual. Where nothing tells what it is, both
    together must fill the line in one cell: a slow NIC could not send as much. Only the last half
    minute of ``span_ns`` counts.
    """
    found = place_of(window, nic, *span_ns)
    if found is None:
        return None
    row, span = found
    ports = window.ports
    # A checkpoint that is over, or that a NIC no longer carries, excuses nothing that goes on.
    span = Span(max(span.first, span.last + 1 - gap_cells(ports)), span.last)
    line = line_bytes(ports, row)
    sent, far = carried(ports)[row], int(ports.other_end[row])
    received = values_of(ports, "receive_bytes_total")[row]
    if far >= 0:
        received = np.where(np.isnan(received), carried(ports)[far], received)
    flow, back = (sent, received) if kind == WRITE else (received, sent)
    more, cells = flow - back, span.cells
    # A ring that had all of its line lost this; one that had less lost less.
    lost = (1.0 - 1.0 / max(ratio, 1.0)) * line
    moved = traffic_of(window, nic.host, span, kind)
    covers = more >= max(COVERS * lost, MENTIONED_LEAST * line)
    is_full = (flow >= FULL_LEAST * line) & (more >= OTHERS_LEAST * line)
    fills = (covers | is_full)[cells].any()
    if fills and moved is not None and explains(moved, more, whole_cells(span)):
        return Reason.STORAGE_TRAFFIC
    # One cell alone may agree by chance, and is enough not to call the NIC slow.
    agrees = moved is not None and is_alike(moved.values, more)[span.last] and covers[span.last]
    return Reason.UNKNOWN if is_full[cells].any() or agrees else None


def whole_cells(span: Span) -> Span:
    """Without the first one, which is of the time before as well, where enough others are left."""
    return Span(span.first + 1, span.last) if span.last - span.first >= CELLS_MIN else span


def place_of(window: Window, nic: Culprit, since_ns: int, last_ns: int) -> tuple[int, Span] | None:
    """The row of a NIC's port and the cells of a time; None where either is not in the window."""
    ports = window.ports
    row = ports.row_of.get((nic.host, nic.device, nic.port))
    first, last = max(0, ports.grid.cell_of(since_ns)), ports.grid.cell_of(last_ns)
    span = Span(first, min(ports.grid.cells - 1, last))
    return None if row is None or span.first > span.last else (row, span)
