"""Receivers that cannot keep up and stop their switch, and all ports that wait behind them.

*Phenomenon.* A NIC cannot put into memory what arrives. Its buffer fills and it stops its switch
(pause frames; on InfiniBand, no credit). That port's queue fills, the switch stops the ports that
send into it, and so on upstream: the whole job waits, and most of those that wait are innocent.

*Signal.* The share of time for which a switch's port was held back by the NIC at its far end: the
NIC's own count of the time that it paused, or the port's count of the time without credit. NICs
pass nothing on, so one that holds its switch back is a root and cannot be a victim. Those that wait
behind it are found by walking upstream over ports that are held back by a switch that is. Where
neither end counts time, as where switches count pause frames and their NICs have no agent, frames
say no share of time. Then three things have to come at once at the NIC's port: frames that can have
stopped it for a third of the time, and many more than before; less traffic through it than before;
and ports that its switch holds back in turn, because what the NIC does not take stands there.

*Assumptions.* What holds a switch back and is a switch itself is never a root here: its own queue
stands at a port that is held back by one further down (and the walk goes on there) or that is
full (`congestion`). Two cells are asked for; where most NICs always pause a little, each is
compared with itself. By frames alone, only a NIC that is the one of its switch to do so is named:
of two, one may be slow and the other briefly busy, and frames do not tell which.

*Misses.* By frames alone: storms that began before the window, several at one switch, and a switch
that has memory enough to hold no port back. Unknown far ends.

*Reference.* The port that sends pause and receives none is the root: PFC storms as SONiC's
watchdog, Hawkeye and others trace them. A pause frame lasts 65,535 times 512 bits at most (IEEE
802.3, annex 31B; 802.1Qbb has the same unit). 5 to 10 percent of time without credit as a warning
is folklore; UFM counts the same time as lost bandwidth.
"""

from __future__ import annotations

import numpy as np

from alerts.finding import Finding
from alerts.signals.ports import (
    Span,
    amount,
    called,
    carried,
    faces_nic,
    held_back,
    latest,
    line_of,
    mean,
    means,
    observe,
    paused_frames,
    percent,
    report,
    rows_with,
    scaled,
    unusual,
    usual_at,
    values_of,
    waited,
)
from alerts.window.columns import Flags, Floats
from alerts.window.model import Ports, Window
from collector.contract.verdict import Cause, Evidence, Reason

NAME = "pause_storm"
HELD_LEAST = 0.05
"""Of time for which a receiver holds its switch back."""
HELD_CLEAR = 0.3
HELD_RISE = 3.0
"""Times what is usual of this port, where most are held back like that."""
FRAMES_LEAST = 100.0
"""Pause frames a second from which on a port counts as held back where no device counts the time:
at 400 Gb/s one frame stops it for 84 microseconds at most, so this is up to a hundredth of time."""
FRAME_BITS = 65_535 * 512
"""Bit times that one pause frame can stop a port for: the longest that it can say."""
FRAMES_HELD_LEAST = HELD_CLEAR
"""Of time for which a port's pause frames can have stopped it at most, where they are all that is
counted: as much as is clear where time is counted. A tenth of it may be true, hence the rest."""
FALL_LEAST = 0.1
"""Share of its traffic that the port must have lost: frames that slow down no flow are health."""
FALL_CLEAR = 2.0
"""Times its present traffic that it carried before: then nothing else explains the fall."""
TICKS_LEAST = 1e7
"""A second, of a NIC's own count of waiting: devices differ in how long a tick is, so this only
shows that it waits, not for how long."""
READINGS_LEAST = 2
STALLED_LEAST = 0.15
"""Of time in which the host took nothing: as `pcie` has it."""
WAITING_SHOWN = 3
"""Of the ports that wait behind it, in the evidence; all are among the victims."""
HOPS_MAX = 16
"""Switches that are walked upstream: more than any fabric has tiers, both ways."""


def detect(window: Window) -> list[Finding]:
    ports = window.ports
    if not len(ports) or not ports.grid.cells:
        return []
    held = waited(ports)
    flags = roots(ports, held)
    findings = []
    for row in rows_with(flags, READINGS_LEAST):
        span = latest(ports, flags[row], least=READINGS_LEAST)
        if span is not None:
            findings.append(root(window, row, span, held))
    return [*findings, *by_frames(window, held)]


def roots(ports: Ports, held: Floats) -> Flags:
    """[ports, cells]: ports of switches that the NIC at their far end holds back."""
    can_be = (ports.is_switch & faces_nic(ports))[:, None]
    return unusual(np.where(can_be, held, np.nan), HELD_LEAST, HELD_RISE)


# By frames alone ----------------------------------------------------------------------------------


def by_frames(window: Window, held: Floats) -> list[Finding]:
    """Roots among ports of which frames are counted and no time: one of a switch, or none."""
    ports = window.ports
    frames = paused_frames(ports)
    can_be = ports.is_switch & faces_nic(ports) & np.isnan(held).all(axis=1)
    if not (np.nan_to_num(frames[can_be]) > 0).any():
        return []
    with np.errstate(divide="ignore", invalid="ignore"):
        longest = frames * FRAME_BITS / ports.rate_bits_per_second[:, None]
    longest = np.where(can_be[:, None] & np.isfinite(longest), np.fmin(longest, 1.0), np.nan)
    flags = unusual(longest, FRAMES_HELD_LEAST, HELD_RISE)
    rows_of: dict[str, list[int]] = {}
    for row in rows_with(flags, READINGS_LEAST):
        rows_of.setdefault(ports.host[row], []).append(row)
    lone = [rows[0] for _, rows in sorted(rows_of.items()) if len(rows) == 1]
    spans = [(row, latest(ports, flags[row], least=READINGS_LEAST)) for row in lone]
    found = [root_by_frames(window, row, span, frames, held) for row, span in spans if span]
    return [each for each in found if each is not None]


def root_by_frames(
    window: Window, row: int, span: Span, frames: Floats, held: Floats
) -> Finding | None:
    """A NIC whose frames are new, whose traffic fell, and behind whose port others wait."""
    ports, sent = window.ports, carried(window.ports)[row]
    nic, before = int(ports.other_end[row]), slice(0, max(0, span.first - 1))
    if (~np.isnan(frames[row, before] + sent[before])).sum() < READINGS_LEAST:
        return None
    count, base = mean(frames[row, span.cells]), mean(frames[row, before])
    now, usually = mean(sent[span.cells]), mean(sent[before])
    behind = upstream(ports, row, span, held)
    if count < HELD_RISE * base or now > (1.0 - FALL_LEAST) * usually or not behind:
        return None
    words = (
        f"{called(ports, nic)} held {called(ports, row)} back {{0}}, {amount(base)} before; what "
        f"the port sends fell to {percent(now / usually)} of before"
    )
    evidence = held_back(window, row, span, words=words)
    waiting = np.nan_to_num(means(frames[:, span.cells]))
    for other in sorted(behind, key=lambda one: (-waiting[one], called(ports, one)))[
        :WAITING_SHOWN
    ]:
        words = f"{called(ports, other)} waits behind it, stopped {{0}}"
        evidence += held_back(window, other, span, words=words)
    return report(
        window,
        span,
        detector=NAME,
        cause=Cause.PAUSE_STORM,
        reason=Reason.NIC,
        culprit=ports.culprit(nic),
        strength=scaled(usually / max(now, 1.0), 1.0, FALL_CLEAR, low=0.6, high=0.8),
        rows=[nic, *behind],
        evidence=evidence,
    )


def upstream(ports: Ports, row: int, span: Span, held: Floats) -> list[int]:
    """Ports that wait because this one does: held back by its switch, or by one that is."""
    frames = means(paused_frames(ports)[:, span.cells])
    ticks = means(values_of(ports, "transmit_wait_ticks_total")[:, span.cells])
    waits = (means(held[:, span.cells]) >= HELD_LEAST) | (frames >= FRAMES_LEAST)
    waits |= ~ports.is_switch & (ticks >= TICKS_LEAST)
    far_host = [ports.host[far] if far >= 0 else "" for far in ports.other_end.tolist()]
    facing: dict[str, list[int]] = {}
    for other in np.flatnonzero(waits).tolist():
        facing.setdefault(far_host[other], []).append(other)
    found: dict[int, None] = {}
    stopped, done = [ports.host[row]], set[str]()
    for _ in range(HOPS_MAX):
        fresh = [one for host in stopped if host not in done for one in facing.get(host, [])]
        done.update(stopped)
        found |= dict.fromkeys(one for one in fresh if one != row)
        stopped = sorted({ports.host[one] for one in fresh if ports.is_switch[one]} - done)
        if not stopped:
            break
    return list(found)


def root(window: Window, row: int, span: Span, held: Floats) -> Finding:
    """A NIC that stops its switch; ``row`` is the switch's port."""
    ports = window.ports
    nic = int(ports.other_end[row])
    share = mean(held[row, span.cells])
    base = usual_at(held, row)
    behind = upstream(ports, row, span, held)
    own = mean(held[nic, span.cells])
    words = (
        f"{called(ports, nic)} held {called(ports, row)} back {{0}}, {percent(base)} is usual; it "
        f"was itself held back for {percent(own)}"
    )
    evidence: list[Evidence] = [
        *held_back(window, row, span, words=words, baseline=base),
        *not_taken(window, nic, span),
    ]
    worst = sorted(behind, key=lambda one: (-mean(held[one, span.cells]), called(ports, one)))
    for other in worst[:WAITING_SHOWN]:
        words = f"{called(ports, other)} waits behind it {{0}}"
        evidence += held_back(window, other, span, words=words)
    return report(
        window,
        span,
        detector=NAME,
        cause=Cause.PAUSE_STORM,
        reason=Reason.NIC,
        culprit=ports.culprit(nic),
        strength=scaled(share, HELD_LEAST, HELD_CLEAR, low=0.7),
        rows=[nic, *behind],
        evidence=evidence,
    )


def not_taken(window: Window, nic: int, span: Span) -> list[Evidence]:
    """Why: the host did not take what the NIC wrote, if the NIC counts it."""
    name = "pcie_write_stalled_seconds_total"
    share = mean(line_of(window.ports, name, nic)[span.cells])
    if share < STALLED_LEAST:
        return []
    text = (
        f"{called(window.ports, nic)} could not write to its host's memory for {percent(share)} of "
        "the time: its slot, the bridge above it or address translation do not keep up"
    )
    return [observe(window, nic, name, span, text=text, value=share, unit="ratio", baseline=0.0)]
