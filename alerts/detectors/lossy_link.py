"""Packets that are damaged, dropped or vanish, and are sent again.

*Phenomenon.* A cable damages more bits than correction can mend, a queue without flow control
overflows, or a switch loses packets and counts nothing. Every loss costs a retransmission of all
that was in flight behind it, or a timer; one packet in a thousand halves a flow's rate.

*Signal.* Three, from the surest to the least. Damage (symbol, CRC and uncorrectable FEC errors) as
a bit error rate of the link's speed, at the port that receives it: the cable on that port. Discards
at a switch's port beyond `DISCARDS_LEAST` a second and `LOSS_LEAST` of its packets, while its far
end does not hold it back: a queue that should have paused. And where flows are sent again
(sequence errors, timeouts) and neither is counted anywhere: the receiver that several senders have
in common, the switch whose cables swallow packets (one end has sent more than the other received)
or the one cable that does, or the switch that lossy flows cross and clean ones do not, by
likelihood over the paths.

*Assumptions.* What correction has mended is no loss, however much it was. Damage is counted at the
receiving end of the damaged direction. Whether a port counts nothing is known only once it was read
after losses began, so switches are not accused before. Ring neighbours' paths are the topology's,
less those ports that carry too little for the flow.

*Misses.* Losses below the limits; a silent loss that only one flow meets and several switches could
explain; losses on paths of flows that are not known (all-to-all, storage).

*Reference.* IBTA's 1e-12 and UFM's 1e-12 to 1e-14 as bit error rates (a count is none: 120 errors
an hour are 8e-14 at 400 Gb/s); port_xmit_discards over 100/s and ack timeouts over 1/s
(NVSentinel); go-back-N needs less than 1e-5.
"""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.ports import (
    ERRORS,
    PACKETS,
    Span,
    added,
    amount,
    cable_of,
    called,
    carried,
    faces_nic,
    is_active,
    latest,
    line_of,
    loudest,
    mean,
    means,
    most_of,
    nic_end,
    observe,
    packets,
    percent,
    report,
    rhythm,
    rows_with,
    scaled,
    unusual,
    usual,
    waited,
)
from alerts.signals.talkers import flow_evidence, switch_drops
from alerts.signals.vanished import Vanished, vanished
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import JobWindow, Ports, Window
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason

NAME = "lossy_link"
DAMAGE = (
    "symbol_errors_total",
    "phy_receive_symbol_errors_total",
    "phy_receive_pcs_symbol_errors_total",
    "receive_crc_errors_total",
    "phy_receive_crc_errors_total",
    "receive_icrc_errors_total",
    "phy_receive_fec_uncorrectable_blocks_total",
    "receive_errors_total",
    "local_link_integrity_errors_total",
)
"""What a port counts when bits arrive wrong and correction could not help. They count the same in
different words, so the largest stands for all."""
BIT_ERRORS_MOST = 1e-12
"""Of bits: IBTA's limit, and UFM's for packets."""
BIT_ERRORS_CLEAR = 1e-9
ASSUMED_BITS_PER_SECOND = 1e11
"""Of a port of unknown rate."""
ERRORS_LEAST = 3.0
"""In one episode: with fewer, a rate is chance."""
DISCARDS = (
    "transmit_discards_total",
    "queue_discarded_packets_total",
    "phy_transmit_discards_total",
    "drops_total",
)
DISCARDS_LEAST = 100.0
"""A second (NVSentinel's limit for port_xmit_discards)."""
LOSS_LEAST = 1e-5
"""Of packets: more than go-back-N bears."""
LOSS_CLEAR = 1e-3
DISCARDS_SHARE = 0.5
"""Of the largest discards of that time: a root, and no queue that fills behind it."""
HELD_MOST = 0.1
"""Share of time for which its far end may hold a port back before its drops are the far end's."""
RESENT = (
    "sequence_naks_total",
    "implied_sequence_naks_total",
    "ack_timeouts_total",
    "retransmit_packets_total",
)
GAPS = ("receive_out_of_sequence_total",)
RESENT_LEAST = 1.0
"""A second (NVSentinel's limit for timeouts)."""
RESENT_RISE = 3.0
"""Times the usual of that NIC: adaptive routing puts packets out of sequence, too."""
SENDERS_LEAST = 2
"""Senders that must have lost to one receiver before its port is blamed unread."""
FLOWS_LEAST = 2
"""Lossy flows that must cross a switch before it is blamed for silence."""
CARRIES_LEAST = 0.25
"""Of a flow's bytes, below which a port is not on its way."""
DOUBT = 0.05
"""Chance that a flow misleads about a switch: it had no bytes, or lost elsewhere."""
MARGIN = 3.0
"""Log-likelihood by which a switch must be ahead of the next: twenty to one."""
EXPLAINED_LEAST = 0.8
"""Of the lossy flows, which the switch must be able to explain: the best of bad explanations is
none. The others' losses are of flows that are not known (all-to-all), and so may all of them be."""
SILENT_STRENGTH = 0.8
VANISHED_STRENGTH = 0.93
"""Both ends of several cables agree on what went missing."""
RECEIVER_STRENGTH = 0.85
SHOWN_MAX = 3
"""Of several ports that show the same, in the evidence."""
VANISHED = "packets_vanished"
"""What evidence calls the packets that a cable's far end has not received, of those sent: two
series make it, so that neither can name it."""

report_loss = partial(report, detector=NAME, cause=Cause.LOSSY_LINK)


def detect(window: Window) -> list[Finding]:
    ports = window.ports
    if not len(ports) or not ports.grid.cells:
        return []
    found = [*damaged(window), *discarding(window)]
    return found or silent(window)


# Damage ------------------------------------------------------------------------------------------


def damaged(window: Window) -> list[Finding]:
    """Cables on whose receiving end errors are counted."""
    ports = window.ports
    errors = most_of(ports, DAMAGE)
    speed = np.where(
        ports.rate_bits_per_second > 0, ports.rate_bits_per_second, ASSUMED_BITS_PER_SECOND
    )
    ratio = errors / speed[:, None]
    flags = ratio > BIT_ERRORS_MOST
    seconds = ports.grid.step_ns / NS
    best: dict[tuple[int, int], tuple[tuple[float, str], Finding]] = {}
    for row in rows_with(flags):
        span = latest(ports, flags[row])
        if span is None or np.nansum(errors[row, span.cells]) * seconds < ERRORS_LEAST:
            continue
        worst = float(np.nanmax(ratio[row, span.cells]))
        key, order = cable_of(ports, row), (-worst, called(ports, row))
        if key not in best or order < best[key][0]:
            best[key] = order, damaged_cable(window, row, span, worst, errors)
    return [best[key][1] for key in sorted(best)]


def damaged_cable(window: Window, row: int, span: Span, worst: float, errors: Floats) -> Finding:
    """One cable, by the end that a NIC has or else by the end that sees the damage."""
    ports = window.ports
    name = loudest(ports, DAMAGE, row, span)
    rate = mean(line_of(ports, name, row)[span.cells])
    how = rhythm(errors[row, span.cells])
    text = (
        f"{called(ports, row)} receives {amount(rate)} damaged symbols or packets a second"
        f"{f', {how}' if how else ''}: a bit error rate of {worst:.1g}, against {BIT_ERRORS_MOST:g}"
    )
    end = nic_end(ports, row)
    evidence = [
        observe(window, row, name, span, text=text, value=rate, unit=ERRORS, baseline=0.0),
        *sent_again(window, row, span),
    ]
    return report_loss(
        window,
        span,
        reason=Reason.CABLE,
        culprit=ports.culprit(end),
        strength=scaled(worst, BIT_ERRORS_MOST, BIT_ERRORS_CLEAR),
        rows=[row],
        evidence=evidence,
    )


def sent_again(window: Window, row: int, span: Span) -> list[Evidence]:
    """What the NIC at either end of a cable notices of it."""
    ports, found = window.ports, []
    end = nic_end(ports, row)
    for name in (*GAPS, *RESENT[:1]):
        if ports.is_switch[end] or name not in ports.readings:
            continue
        rate = mean(line_of(ports, name, end)[span.cells])
        if rate >= RESENT_LEAST:
            text = f"{called(ports, end)} notices {amount(rate)} gaps in its packets a second"
            found.append(observe(window, end, name, span, text=text, value=rate, unit=PACKETS))
    return found


# Discards ----------------------------------------------------------------------------------------


def discarding(window: Window) -> list[Finding]:
    """Ports whose full queues drop, where flow control should have stopped the senders."""
    ports = window.ports
    dropped = most_of(ports, DISCARDS)
    sent = np.fmax(np.nan_to_num(packets(ports, "transmit")), 1.0)
    share = dropped / (sent + dropped)
    free = ~(waited(ports) > HELD_MOST)
    flags = (dropped >= DISCARDS_LEAST) & (share >= LOSS_LEAST) & is_active(ports) & free
    spans = {row: latest(ports, flags[row]) for row in rows_with(flags)}
    worst = max(
        (mean(dropped[row, span.cells]) for row, span in spans.items() if span), default=0.0
    )
    findings = []
    for row, span in sorted(spans.items()):
        if span is None or mean(dropped[row, span.cells]) < DISCARDS_SHARE * worst:
            continue
        name = loudest(ports, DISCARDS, row, span)
        rate = mean(line_of(ports, name, row)[span.cells])
        lost = mean(share[row, span.cells])
        text = (
            f"{called(ports, row)} drops {amount(rate)} packets a second, {percent(lost)} of what "
            "it was given, and no sender is paused for it"
        )
        evidence = observe(
            window, row, name, span, text=text, value=rate, unit=PACKETS, baseline=0.0
        )
        finding = report_loss(
            window,
            span,
            reason=Reason.CONFIGURATION,
            culprit=ports.culprit(nic_end(ports, row)),
            strength=scaled(lost, LOSS_LEAST, LOSS_CLEAR),
            rows=[row],
            evidence=[
                evidence,
                *flow_evidence(window, row, span),
                *sent_again(window, row, span),
            ],
        )
        findings.append(finding)
    return findings


# Losses that no port counts -----------------------------------------------------------------------


class Losing(msgspec.Struct, frozen=True):
    """NICs that notice losses, and since when."""

    senders: Flags
    receivers: Flags
    span: Span
    resent: Floats
    gaps: Floats


def silent(window: Window) -> list[Finding]:
    losing = find_losing(window.ports)
    if losing is None:
        return []
    one = common_receiver(window, losing)
    return one or lossy_switch(window, losing)


def find_losing(ports: Ports) -> Losing | None:
    """NICs that resend or see gaps more than is usual of them; None if there is none."""
    resent, gaps = added(ports, RESENT), added(ports, GAPS)
    flags = [unusual(values, RESENT_LEAST, RESENT_RISE) for values in (resent, gaps)]
    spans = [latest(ports, np.atleast_1d(flag.any(axis=0))) for flag in flags]
    known = [span for span in spans if span is not None]
    if not known:
        return None
    first = min(span.first for span in known)
    span = Span(first, max(span.last for span in known))
    inside = [flag[:, span.cells].any(axis=1) & ~ports.is_switch for flag in flags]
    return Losing(inside[0], inside[1], span, resent, gaps)


def common_receiver(window: Window, losing: Losing) -> list[Finding]:
    ports, span = window.ports, losing.span
    receivers = np.flatnonzero(losing.receivers)
    if len(receivers) != 1 or losing.senders.sum() < SENDERS_LEAST:
        return []
    row = int(receivers[0])
    rate = mean(losing.gaps[row, span.cells])
    count = int(losing.senders.sum())
    text = (
        f"{called(ports, row)} alone sees gaps, {amount(rate)} a second; {count} NICs send to it "
        "again, and no port counts damage"
    )
    marked = line_of(ports, "receive_ecn_marked_packets_total", row)
    base = float(np.nan_to_num(usual(marked[None, :])[0]))
    is_full = mean(marked[span.cells]) > max(RESENT_RISE * base, RESENT_LEAST)
    evidence = observe(
        window, row, GAPS[0], span, text=text, value=rate, unit=PACKETS, baseline=0.0
    )
    return [
        report_loss(
            window,
            span,
            reason=Reason.CONFIGURATION if is_full else Reason.UNKNOWN,
            culprit=ports.culprit(row),
            strength=RECEIVER_STRENGTH,
            rows=[row, *np.flatnonzero(losing.senders).tolist()],
            evidence=[evidence, *flow_evidence(window, int(ports.other_end[row]), span)],
        )
    ]


class Flows(msgspec.Struct, frozen=True):
    """Flows between ring neighbours: rows of their ports, and which switches they may cross."""

    source: Ints
    target: Ints
    switches: list[str]
    share: Floats
    """[flows, switches]: how likely a flow crosses each."""


def lossy_switch(window: Window, losing: Losing) -> list[Finding]:
    """The switch whose cables swallow packets, or that all lossy flows cross."""
    if not were_read(window.ports, losing.span):
        return []
    gone = vanished(window.ports, losing.span)
    return [vanishing(window, losing, gone)] if gone is not None else voted(window, losing)


def voted(window: Window, losing: Losing) -> list[Finding]:
    """The switch that explains best who loses and who does not, if it is far ahead."""
    ports, span = window.ports, losing.span
    flows = flows_of(window, span)
    if flows is None:
        return []
    lossy = losing.senders[flows.source] & losing.receivers[flows.target]
    clean = ~losing.senders[flows.source] & ~losing.receivers[flows.target]
    clean &= means(carried(ports)[:, span.cells])[flows.source] > 0
    chance = np.clip(flows.share, DOUBT, 1 - DOUBT)
    vote = np.log(chance[lossy]).sum(axis=0) + np.log(1 - chance[clean]).sum(axis=0)
    order = np.argsort(-vote, kind="stable")
    best = int(order[0])
    is_ahead = len(order) == 1 or vote[best] - vote[order[1]] >= MARGIN
    crossing = lossy & (flows.share[:, best] > 0)
    if not is_ahead or crossing.sum() < max(FLOWS_LEAST, EXPLAINED_LEAST * lossy.sum()):
        return []
    name = flows.switches[best]
    rows = sorted({*flows.source[crossing].tolist(), *flows.target[crossing].tolist()})
    text = (
        f"{int(crossing.sum())} of {int(lossy.sum())} flows that are sent again cross {name}; "
        f"{int(clean.sum())} others lose nothing, and no port counts an error"
    )
    evidence = gaps_of(window, losing, flows.target[crossing], text)
    return [
        report_loss(
            window,
            span,
            reason=Reason.SWITCH,
            culprit=Culprit(switch=name),
            strength=SILENT_STRENGTH,
            rows=rows,
            evidence=[*evidence, *switch_drops(window, name, span)],
        )
    ]


def gaps_of(window: Window, losing: Losing, targets: Ints, why: str) -> list[Evidence]:
    """The receivers that see most gaps; the first one with the reason why they are shown."""
    ports, span = window.ports, losing.span
    rates = {row: mean(losing.gaps[row, span.cells]) for row in set(targets.tolist())}
    worst = sorted(rates, key=lambda row: (-rates[row], called(ports, row)))
    found = []
    for place, row in enumerate(worst[:SHOWN_MAX]):
        rate = rates[row]
        text = f"{called(ports, row)} sees {amount(rate)} gaps in its packets a second"
        text = f"{why}: {text}" if place == 0 else text
        found.append(
            observe(window, row, GAPS[0], span, text=text, value=rate, unit=PACKETS, baseline=0.0)
        )
    return found


def vanishing(window: Window, losing: Losing, gone: Vanished) -> Finding:
    ports, span = window.ports, losing.span
    evidence = []
    for place, (row, share) in enumerate(gone.worst[:SHOWN_MAX]):
        text = (
            f"{percent(share)} of the packets that {called(ports, row)} has sent were never "
            f"received by {called(ports, int(ports.other_end[row]))}"
        )
        if place == 0:
            where = "one way of one cable" if gone.row >= 0 else f"most ways of {gone.switch}"
            text = f"{text}, and no port counts an error: so it is on {where}"
        evidence.append(
            observe(window, row, VANISHED, span, text=text, value=share, unit="ratio", baseline=0.0)
        )
    ends = np.flatnonzero(losing.senders | losing.receivers).tolist()
    switch = ports.host[gone.row] if gone.row >= 0 else gone.switch
    return report_loss(
        window,
        span,
        reason=Reason.SWITCH if gone.row < 0 else Reason.UNKNOWN,
        culprit=ports.culprit(gone.row) if gone.row >= 0 else Culprit(switch=gone.switch),
        strength=VANISHED_STRENGTH,
        rows=ends,
        evidence=[*evidence, *switch_drops(window, switch, span)],
    )


def were_read(ports: Ports, span: Span) -> bool:
    """Whether all switches were read once more after losses began: they would have counted."""
    if not ports.is_switch.any():
        return True
    began_ns = int(ports.grid.edges_ns[span.first + 1])
    seen = ports.seen_ns[ports.is_switch]
    return bool((seen[seen > 0] >= began_ns).all()) and bool((seen > 0).any())


def flows_of(window: Window, span: Span) -> Flows | None:
    """Ring neighbours' flows of all jobs; None where nothing is known of their ways."""
    ports = window.ports
    names, code = np.unique(np.array(ports.host, dtype=object).astype(str), return_inverse=True)
    rate = means(carried(ports)[:, span.cells])
    found = [flow for job in window.jobs for flow in job_flows(window, job, rate, code)]
    is_switch = np.zeros(len(names), dtype=bool)
    is_switch[code[ports.is_switch]] = True
    if not found or not is_switch.any():
        return None
    source, target, share = zip(*found, strict=True)
    return Flows(
        np.array(source, dtype=np.int64),
        np.array(target, dtype=np.int64),
        [str(name) for name in names[is_switch]],
        np.stack(share)[:, is_switch],
    )


def job_flows(
    window: Window, job: JobWindow, rate: Floats, code: Ints
) -> list[tuple[int, int, Floats]]:
    """Of each edge of a job the ports at both ends, and its chance to cross each host or switch.

    Equal ways have equal chances, but for those by ports that carry less than the flow does: what
    they would have had goes to the other ports of the same switch.
    """
    ports, paths = window.ports, job.paths
    if paths is None:
        return []
    inner = ports.is_switch & ~faces_nic(ports) & (ports.other_end >= 0)
    size = int(code.max(initial=-1)) + 1
    found = []
    for edge, name in enumerate(paths.communicator):
        ends = [job.rank_of(name, int(side[edge])) for side in (paths.source, paths.target)]
        rows = [window.rows_of_rank(rank)[:1] if rank is not None else [] for rank in ends]
        if not rows[0] or not rows[1]:
            continue
        source, target = rows[0][0], rows[1][0]
        own = slice(int(paths.start[edge]), int(paths.start[edge + 1]))
        port, part = paths.port[own], paths.share[own]
        port, part = port[inner[port]], part[inner[port]]
        leaving = np.bincount(code[port], part, minlength=size)
        kept = part * ~(rate[port] < CARRIES_LEAST * rate[source])
        left = np.bincount(code[port], kept, minlength=size)
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = np.where(left[code[port]] > 0, kept * (leaving / left)[code[port]], part)
        share = np.bincount(code[ports.other_end[port]], kept, minlength=size)
        for end in (source, target):
            far = int(ports.other_end[end])
            if far >= 0:
                share[code[far]] = 1.0
        found.append((source, target, np.minimum(share, 1.0)))
    return found
