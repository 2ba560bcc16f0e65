"""Ports that are sent more than they carry, for longer than a burst.

*Phenomenon.* Flows meet at one port: foreign traffic into a NIC that a job needs, or many of the
job's own flows that a bad hash puts on one uplink while others idle. The queue in front of that
port stands; packets are marked, senders slow down or are stopped, and the switch holds back the
ports that send into it.

*Signal.* Into a NIC: it receives much more than its ring has it send (a ring's NIC receives what it
sends), its port carries a large part of its line, and a queue shows: marks at the NIC, or ports and
NICs that this switch holds back while the NIC holds back none. Less of the line is enough where
marks alone hold the queue in check, which bursts do not wait for (`microburst`). Between switches:
a port carries several NICs' worth of bytes, well more than is usual of it, while the median of its
switch's other ports of the same kind carries less than half of it. More traffic in all is a
neighbour, the same traffic on fewer ports is routing.

*Assumptions.* Bytes by themselves are no congestion, and neither are marks by themselves: healthy
jobs whose flows meet are marked all the time, so both are held against the port's own past; what
was usual of a NIC's marks is so of its ring's packets, and is thinned out where others' packets are
most of what comes. The port where the queue stands is the one that is full and is not held back by
its far end. Of more than twenty equal ways one is accused only with a job whose transfers are slow
since then (the judge).

*Misses.* Uplinks that have been overloaded for longer than the window; jobs that do not send what
they receive (all-to-all with uneven experts is compared by the second, and mostly does).

*Reference.* No public number for CNP or ECN rates exists: ratios to packets and to the port's own
past are used. PortXmitWait as a share of time as in UFM's lost bandwidth. DCQCN marks from a queue
of a few hundred kilobytes on.
"""

from __future__ import annotations

import numpy as np

from alerts.finding import Finding
from alerts.signals.inflow import inflow_findings
from alerts.signals.ports import (
    Span,
    added,
    called,
    carried,
    faces_switch,
    latest,
    line_bytes,
    line_of,
    load,
    mean,
    means,
    observe,
    packets,
    percent,
    report,
    rows_with,
    scaled,
    usual,
    values_of,
    waited,
)
from alerts.signals.storage_traffic import storage_beside
from alerts.signals.talkers import flow_evidence
from alerts.window.columns import Flags, Floats
from alerts.window.model import Ports, Window
from collector.contract.verdict import Cause, Evidence, Reason

NAME = "congestion"
LOAD_LEAST = 0.5
"""Of its line, as a mean of seconds, from which on a port between switches can be congested: jobs
send at line rate for a half or a third of their steps."""
LOAD_CLEAR = 0.9
LOAD_RISE = 0.15
"""Of its line that it must carry more than is usual of it."""
LOAD_NEIGHBOUR = 0.8
"""Of its line, from which on more traffic than before fills a port. The job's own flows meet at
line rate, all at once: for them `LOAD_LEAST` is enough."""
FLOWS_LEAST = 2.5
"""NICs' worth of bytes on one port: two flows that meet are everyday's chance."""
FLOWS_RISE = 1.5
"""NICs' worth of bytes that it must carry more than is usual of it."""
OTHERS_MOST = 0.5
"""Of its load that the median of the switch's other ports of this kind may carry."""
TOTAL_RISE = 1.3
"""Times the usual of all those ports together: more traffic, not only a worse spread."""
HELD_MOST = 0.2
"""Share of time for which its far end may hold it back: beyond, the queue is that one's fault."""
RESENT_LEAST = 1e-5
"""Of a NIC's packets that were not acknowledged: more than go-back-N bears."""
READINGS_LEAST = 2
BUSY_NIC = 0.05
"""Of its line, from which on a NIC counts as sending."""


def detect(window: Window) -> list[Finding]:
    ports = window.ports
    if not len(ports) or not ports.grid.cells:
        return []
    into_nics = inflow_findings(window, detector=NAME, cause=Cause.CONGESTION, is_bursty=False)
    return [*into_nics, *uplinks(window)]


# Between switches --------------------------------------------------------------------------------


def uplinks(window: Window) -> list[Finding]:
    """Overloaded ports between switches; of each switch the fullest names it."""
    ports = window.ports
    inner = ports.is_switch & faces_switch(ports)
    unit = nic_load(ports)
    share = np.where(inner[:, None] & ~np.isnan(unit)[None, :], load(ports), np.nan)
    flows = share / unit
    # In flows and not only in bytes: where a job stands still its ports look idle, and are not.
    base, before = (np.nan_to_num(usual(values))[:, None] for values in (flows, share))
    flags = (share >= LOAD_LEAST) & (share >= before + LOAD_RISE)
    flags &= (flows >= FLOWS_LEAST) & (flows >= base + FLOWS_RISE)
    flags &= ~(waited(ports) > HELD_MOST) & ~is_resending(ports)[None, :]
    best: dict[str, tuple[tuple[float, str], Finding]] = {}
    for row in rows_with(flags, READINGS_LEAST):
        span = latest(ports, flags[row], least=READINGS_LEAST)
        finding = uplink(window, row, span, share, flows) if span is not None else None
        if finding is None or span is None:
            continue
        order = (-mean(share[row, span.cells]), called(ports, row))
        if ports.host[row] not in best or order < best[ports.host[row]][0]:
            best[ports.host[row]] = order, finding
    return [best[host][1] for host in sorted(best)]


def is_resending(ports: Ports) -> Flags:
    """For each cell whether NICs resend: such bytes are no demand, but `lossy_link`'s symptom."""
    resent = added(ports, ("sequence_naks_total", "ack_timeouts_total"))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = resent / packets(ports, "transmit")
    return np.atleast_1d((share >= RESENT_LEAST).any(axis=0))


def nic_load(ports: Ports) -> Floats:
    """For each cell what one sending NIC puts on its line: the median of those that send."""
    sent = carried(ports) * 8 / ports.rate_bits_per_second[:, None]
    sending = np.where((~ports.is_switch)[:, None] & (sent >= BUSY_NIC), sent, np.nan)
    found = np.full(sent.shape[1], np.nan)
    for cell in range(sent.shape[1]):
        known = sending[~np.isnan(sending[:, cell]), cell]
        if len(known):
            found[cell] = np.median(known)
    return found


def uplink(window: Window, row: int, span: Span, share: Floats, flows: Floats) -> Finding | None:
    """One port against the others of its kind; None if they are as full."""
    ports = window.ports
    same = beside(ports, row)
    full = mean(share[row, span.cells])
    others = np.nan_to_num(means(share[same][:, span.cells])) if same else np.zeros(0)
    if not len(others) or np.median(others) > OTHERS_MOST * full:
        return None
    before = slice(0, max(0, span.first - 1))
    usual_flows = mean(flows[row, before])
    earlier = float(np.nan_to_num(means(flows[[row, *same]][:, before])).sum())
    now = float(np.nan_to_num(means(flows[[row, *same]][:, span.cells])).sum())
    grew = span.first > 1 and now > TOTAL_RISE * earlier
    if grew and full < LOAD_NEIGHBOUR:
        return None
    idle = int((others < OTHERS_MOST * full).sum())
    count = mean(flows[row, span.cells])
    words = (
        f"{called(ports, row)} carries {{0}} of its line: as much as {count:.1f} NICs send, "
        f"{usual_flows:.1f} before; {idle} of {len(others)} ports beside it carry less than half"
    )
    return report(
        window,
        span,
        detector=NAME,
        cause=Cause.CONGESTION,
        reason=Reason.NEIGHBOUR if grew else Reason.ROUTING,
        culprit=ports.culprit(row),
        strength=scaled(full, LOAD_LEAST, LOAD_CLEAR, low=0.65, high=0.9),
        rows=slowed(window, row, span),
        evidence=[
            *carries(window, row, span, words, mean(share[row, before])),
            *flow_evidence(window, row, span),
            *storage_beside(window, behind(ports, row), span, line_bytes(ports, row)),
        ],
    )


def beside(ports: Ports, row: int) -> list[int]:
    """The other ports of its switch that lead to the same tier: a hash may choose among them."""
    far = int(ports.other_end[row])
    return [
        other
        for other in ports.rows_of_device[ports.host[row], ports.device[row]]
        if other != row
        and ports.other_end[other] >= 0
        and ports.tier[ports.other_end[other]] == ports.tier[far]
        and ports.is_switch[ports.other_end[other]] == ports.is_switch[far]
    ]


def behind(ports: Ports, row: int) -> list[str]:
    """The hosts on the port's switch, whose bytes may go through it."""
    on_switch = np.isin(ports.other_end, ports.rows_of_device[ports.host[row], ports.device[row]])
    return sorted(
        {ports.host[one] for one in np.flatnonzero(on_switch & ~ports.is_switch).tolist()}
    )


def carries(window: Window, row: int, span: Span, words: str, before: float) -> list[Evidence]:
    """How full a port is, by its own count or by its far end's; ``words`` with {0} for it."""
    ports, far = window.ports, int(window.ports.other_end[row])
    for name, end in (("transmit_bytes_total", row), ("receive_bytes_total", far)):
        count = mean(line_of(ports, name, end)[span.cells]) if end >= 0 else 0.0
        if count > 0 and ports.rate_bits_per_second[end] > 0:
            full = count * 8 / float(ports.rate_bits_per_second[end])
            text = words.format(percent(full))
            return [
                observe(
                    window, end, name, span, text=text, value=full, unit="ratio", baseline=before
                )
            ]
    return []


def slowed(window: Window, row: int, span: Span) -> list[int]:
    """NICs of the same switch that receive CNPs (congestion notifications) or are held back."""
    ports = window.ports
    notified = np.nan_to_num(means(values_of(ports, "cnp_handled_total")[:, span.cells]))
    held = np.nan_to_num(means(waited(ports)[:, span.cells]))
    return [
        other
        for other in np.flatnonzero(~ports.is_switch & ((notified > 0) | (held > 0))).tolist()
        if ports.other_end[other] >= 0 and ports.host[ports.other_end[other]] == ports.host[row]
    ]
