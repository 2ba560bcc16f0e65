"""Packets that one end of a cable has sent and the other never received: what no port counts.

Two ends are read at slightly different moments, so a single comparison is noise; each cable is held
against its own scatter in quiet times, and a switch is named only if nearly all its cables agree.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.signals.ports import Span, faces_switch, from_far, packets
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import Ports
from alerts.window.statistics import NORMAL
from collector.contract.units import NS

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
TOGETHER_LEAST = 8
"""Ways of one switch, and as many that do not touch it, before they are held against each other."""
TOGETHER_QUANTILE = 0.1
"""Nine of ten ways of a switch lose more than nine of ten others."""
TOGETHER_SHARE_LEAST = 1e-5
"""Of packets, on each way: what go-back-N bears."""
TOGETHER_PACKETS_LEAST = 100.0
"""That vanish on all of them: fewer are chance."""


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
    is_known, share, packets_lost = compared(ports, span, inner)
    if whole := of_whole_switch(ports, is_known, share, packets_lost):
        return whole
    loses = is_known & (share >= least_share(ports, span, inner))
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
    return of_switch(ports, complete[0], rows, share)


def of_whole_switch(
    ports: Ports, is_known: Flags, share: Floats, packets_lost: Floats
) -> Vanished | None:
    """The one switch all of whose ways lose what no other way does, however little it is.

    Two ends are read at different moments, which takes from one cable what it gives to another:
    such noise neither has one sign on all ways of a switch nor stops at its cables.
    """
    rows = np.flatnonzero(is_known)
    hosts, code = np.unique(np.array(ports.host, dtype=object).astype(str), return_inverse=True)
    ends = np.stack([code[rows], code[ports.other_end[rows]]])
    found = []
    for one in np.flatnonzero(np.bincount(ends.ravel(), minlength=len(hosts)) >= TOGETHER_LEAST):
        touches = (ends == one).any(axis=0)
        if np.count_nonzero(~touches) < TOGETHER_LEAST:
            continue
        noise = np.quantile(np.abs(share[rows][~touches]), 1 - TOGETHER_QUANTILE)
        least = max(TOGETHER_SHARE_LEAST, SCATTERS * float(noise))
        is_more = np.quantile(share[rows][touches], TOGETHER_QUANTILE) >= least
        if is_more and packets_lost[rows][touches].sum() >= TOGETHER_PACKETS_LEAST:
            found.append((str(hosts[one]), rows[touches]))
    return of_switch(ports, *found[0], share) if len(found) == 1 else None


def of_switch(ports: Ports, host: str, rows: Ints, share: Floats) -> Vanished:
    """``host`` as a whole, by those of ``rows`` that are its ways."""
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
    is_known, share, _ = compared(ports, span, outer)
    rows = np.flatnonzero(is_known & (share >= least_share(ports, span, outer)))
    if len({min(row, int(ports.other_end[row])) for row in rows.tolist()}) != 1:
        return None
    row = int(rows[np.argmax(share[rows])])
    return Vanished(ports.host[row], row, ((row, float(share[row])),))


def compared(ports: Ports, span: Span, senders: Flags) -> tuple[Flags, Floats, Floats]:
    """Of the ways that these ports send by: whether both ends are known, share and packets lost."""
    sent, lost = sent_and_lost(ports, senders)
    both = ~np.isnan(lost)
    seconds = ports.grid.step_ns / NS
    total = np.where(both, sent, 0.0)[:, span.cells].sum(axis=1) * seconds
    gone = np.where(both, lost, 0.0)[:, span.cells].sum(axis=1) * seconds
    is_known = senders & (total >= PACKETS_LEAST)
    return is_known, np.where(is_known, gone / np.maximum(total, 1.0), 0.0), gone


def least_share(ports: Ports, span: Span, senders: Flags) -> Floats:
    """What must vanish on a cable before that cable shows it by itself."""
    return np.maximum(SHARE_LEAST, SCATTERS * scatter(*sent_and_lost(ports, senders), span))


def sent_and_lost(ports: Ports, senders: Flags) -> tuple[Floats, Floats]:
    sent = np.where(senders[:, None], packets(ports, "transmit"), np.nan)
    return sent, sent - from_far(ports, packets(ports, "receive"))


def scatter(sent: Floats, lost: Floats, span: Span) -> Floats:
    before = slice(0, max(0, span.first - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(sent > 0, lost / sent, np.nan)[:, before]
    found = np.zeros(len(sent))
    for row in np.flatnonzero((~np.isnan(share)).any(axis=1)).tolist():
        known = share[row][~np.isnan(share[row])]
        found[row] = NORMAL * float(np.median(np.abs(known)))
    return found
