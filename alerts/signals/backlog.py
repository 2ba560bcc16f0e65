"""NICs into which bytes flow freely: nothing waits in front of them. Pure.

A NIC that takes in bytes too slowly holds back its senders: it pauses its switch, or the
switch waits for its credits, or queues before it mark and drop packets. A NIC that sends too slowly
does none of this: everything behind it is merely idle. So where one direction of a ring is slow and
nothing waits in front of the receiver, its sender is the culprit. Without counters that would show
a wait (plain TCP, a switch without a poller) no conclusion is drawn.
"""

from __future__ import annotations

import numpy as np

from alerts.window.columns import Ints
from alerts.window.model import Ports

HOLDING = {
    "nic": ("transmit_pause_frames_total",),
    "switch": ("receive_pause_frames_total", "transmit_wait_seconds_total"),
}
"""Readings of a NIC and of the switch's port before it that must move if it holds back others: one
of them at least must be read."""
SIGNS = {
    "nic": (
        "cnp_sent_total",
        "receive_ecn_marked_packets_total",
        "receive_discards_total",
        "receive_priority_discards_total",
        "phy_receive_discards_total",
    ),
    "switch": ("transmit_discards_total", "queue_discarded_packets_total"),
}
FLOORS = {"transmit_wait_seconds_total": 0.01}
FLOOR = 10.0
"""A second: pauses, marks and drops that happen anywhere."""
MARKS = frozenset({"cnp_sent_total", "receive_ecn_marked_packets_total"})
MARKED_SHARE = 0.002
"""Of the packets that a NIC receives: fewer marks do not slow a flow down. A sender gives up a part
of its rate for each and has it back within two milliseconds, and one that sends slowly and evenly
meets others on the way more often than before."""
USUAL_FACTOR = 2.0
"""Below so many times what was usual before nothing has changed."""


def free_inflow(ports: Ports, rows: Ints, since_ns: int, last_ns: int) -> set[int]:
    """Those of these NICs' ports that were read in this time, with nothing waiting before them."""
    grid = ports.grid
    first = max(0, grid.cell_of(since_ns) + 1)
    last = min(grid.cells, grid.cell_of(last_ns) + 1)
    if last <= first or not len(rows):
        return set()
    far = ports.other_end[rows]
    is_read = np.zeros(len(rows), dtype=bool)
    waits = np.zeros(len(rows), dtype=bool)
    packets = np.nan_to_num(ports.values("receive_packets_total")[rows, first:last])
    marked_floor = np.maximum(FLOOR, MARKED_SHARE * packets.mean(axis=1))
    for end, chosen in (("nic", rows), ("switch", far)):
        for name in (*HOLDING[end], *SIGNS[end]):
            if name not in ports.readings:
                continue
            # Rows that are not known are read as the last one, and then left out.
            values = np.where((chosen >= 0)[:, None], ports.values(name)[chosen], np.nan)
            now, before = values[:, first:last], values[:, :first]
            usual = np.nan_to_num(before).sum(axis=1) / np.maximum(np.isfinite(before).sum(1), 1)
            most = np.max(np.nan_to_num(now), axis=1)
            floor = marked_floor if name in MARKS else FLOORS.get(name, FLOOR)
            waits |= most > USUAL_FACTOR * usual + floor
            if name in HOLDING[end]:
                is_read |= np.isfinite(now).any(axis=1)
    return {int(row) for row in rows[is_read & ~waits]}
