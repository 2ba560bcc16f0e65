"""Packets that one end of a cable has sent and the other never received: what no port counts.

Two ends are read at slightly different moments, so a single comparison is noise; each cable is held
against its own scatter in quiet times, and a switch is named only if nearly all its cables agree.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.signals.ports import Span, faces_switch, from_far, packets
from alerts.window.columns import Flags, Floats
from alerts.window.model import Ports
from alerts.window.statistics import NORMAL

SHARE_LEAST = 2e-4
"""Of packets that must vanish on a cable: go-back-N is hurt from 1e-5 on, but two ends cannot be
read so exactly at one time."""
SCATTERS = 5.0
"""Times the cable's own scatter before."""
PACKETS_LEAST = 1e5
"""That a cable must have carried: fewer prove nothing about such shares."""
AGREEING = 0.8
"""Of a switch's cables to other switches that must lose before it is the switch, and not one of
those it is cabled to, which share only some of the losing cables with it."""
CABLES_LEAST = 2


class Vanished(msgspec.Struct, frozen=True):
    """Who loses packets silently: a switch, or one cable's port."""

    switch: str
    row: int
    """A port that shows it: where the packets left; -1 if it is the switch as a whole."""
    worst: tuple[tuple[int, float], ...]
    """By the port that sends over each such way: the share of its packets that vanished; the
    largest first."""


def vanished(ports: Ports, span: Span) -> Vanished | None:
    """The switch between whose cables packets vanish, or the one cable on which they do.

    Cables between switches come first: a switch that loses shows at all of them. Only if none
    does, it is a NIC's.
    """
    inner = ports.is_switch & faces_switch(ports)
    is_known, share, loses = losing_cables(ports, span, inner)
    rows = np.flatnonzero(loses)
    if not len(rows):
        return of_one_nic(ports, span)
    totals: dict[str, int] = {}
    lossy: dict[str, list[float]] = {}
    for row in np.flatnonzero(is_known).tolist():
        for host in (ports.host[row], ports.host[int(ports.other_end[row])]):
            totals[host] = totals.get(host, 0) + 1
            if loses[row]:
                lossy.setdefault(host, []).append(float(share[row]))
    agreeing = {
        host: found
        for host, found in lossy.items()
        if len(found) >= max(CABLES_LEAST, AGREEING * totals[host])
    }
    cables = {tuple(sorted((int(row), int(ports.other_end[row])))) for row in rows.tolist()}
    if len(cables) == 1:
        row = int(rows[np.argmax(share[rows])])
        return Vanished(ports.host[row], row, ((row, float(share[row])),))
    # One that explains all of it, and the only one that does.
    complete = sorted(
        host for host, found in agreeing.items() if len(found) >= AGREEING * len(rows)
    )
    if len(complete) != 1:
        return None
    host = complete[0]
    own = [
        (row, float(share[row]))
        for row in rows.tolist()
        if host in (ports.host[row], ports.host[int(ports.other_end[row])])
    ]
    own.sort(key=lambda one: (-one[1], ports.host[one[0]], ports.port[one[0]]))
    return Vanished(host, -1, tuple(own))


def of_one_nic(ports: Ports, span: Span) -> Vanished | None:
    """The one cable of a NIC on which packets vanish; of several nothing is certain."""
    outer = (ports.other_end >= 0) & ~(ports.is_switch & faces_switch(ports))
    _, share, loses = losing_cables(ports, span, outer)
    rows = np.flatnonzero(loses)
    if len({min(row, int(ports.other_end[row])) for row in rows.tolist()}) != 1:
        return None
    row = int(rows[np.argmax(share[rows])])
    return Vanished(ports.host[row], row, ((row, float(share[row])),))


def losing_cables(ports: Ports, span: Span, senders: Flags) -> tuple[Flags, Floats, Flags]:
    """By the ports that send over these cables: compared, share lost, loses."""
    sent = np.where(senders[:, None], packets(ports, "transmit"), np.nan)
    lost = sent - from_far(ports, packets(ports, "receive"))
    both = ~np.isnan(lost)
    total = np.where(both, sent, 0.0)[:, span.cells].sum(axis=1)
    gone = np.where(both, lost, 0.0)[:, span.cells].sum(axis=1)
    is_known = senders & (total * ports.grid.step_ns / 1e9 >= PACKETS_LEAST)
    share = np.where(is_known, gone / np.maximum(total, 1.0), 0.0)
    limit = np.maximum(SHARE_LEAST, SCATTERS * scatter(sent, lost, span))
    return is_known, share, is_known & (share >= limit)


def scatter(sent: Floats, lost: Floats, span: Span) -> Floats:
    before = slice(0, max(0, span.first - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(sent > 0, lost / sent, np.nan)[:, before]
    found = np.zeros(len(sent))
    for row in np.flatnonzero((~np.isnan(share)).any(axis=1)).tolist():
        known = share[row][~np.isnan(share[row])]
        found[row] = NORMAL * float(np.median(np.abs(known)))
    return found
