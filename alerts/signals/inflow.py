"""Foreign traffic into a NIC: how much, whether it comes in bursts, and where it queues.

`congestion` and `microburst` ask the same question of the same ports and differ in one answer, so
the question stands here. A NIC of a ring receives what it sends; what it receives beyond that is
not its job's. That alone is nothing to complain about: a queue has to show too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.ports import (
    PACKETS,
    VALUE_MAX,
    Span,
    amount,
    called,
    carried,
    counted,
    from_far,
    held_back,
    latest,
    line_bytes,
    line_of,
    mean,
    means,
    most_of,
    observe,
    packets,
    paused_frames,
    percent,
    report,
    rows_with,
    scaled,
    usual,
    values_of,
    waited,
)
from alerts.signals.storage import READ
from alerts.signals.storage_traffic import explains, storage_evidence, traffic_of
from alerts.signals.talkers import flow_evidence
from alerts.window.columns import Flags, Floats
from alerts.window.model import Ports, Window
from collector.contract.units import NS
from collector.contract.verdict import Cause, Evidence, Reason

FOREIGN_LEAST = 0.08
"""Of its line that a NIC receives beyond what it sends: both ways of a ring are nearly equal."""
FOREIGN_BEGINS = 0.02
"""Of its line: a cell with as much more than usual has some of it."""
FOREIGN_CLEAR = 0.3
"""From here on one whole reading is enough."""
FOREIGN_STEADY = 0.4
"""A mean from which on others' traffic is congestion, however it comes: what bursts bring drains at
the line's rate, so their queue would stand for four tenths of the time, and with the job's own
bytes behind it for most of it. Bursts of eight senders reached 0.22 to 0.28 here."""
LOAD_FULL = 0.95
"""Of its line: nothing more fits, burst or not."""
MARKED_LEAST = 1e-3
"""Of received packets that carry a mark. DCQCN begins with a hundredth of Kmax' share."""
MARKED_RISE = 3.0
"""Times what is usual of this NIC's own packets: flows of a healthy job meet too."""
MARKED_IN_CHECK = 0.05
"""Marks by others' packets, up to which the queue was never beyond the threshold from which on a
switch marks every packet: just below it a switch marks a hundredth (DCQCN's paper) or a twentieth
(SONiC's AZURE_LOSSLESS profile). A burst is over before its senders hear of a mark, and stands
beyond it: five simulated ones had 1.02 to 1.08, and two steady neighbours 0.006 and 0.027."""
HELD_LEAST = 0.03
"""Share of time for which a switch holds a port back that sends into it."""
FRAMES_LEAST = 100.0
"""Pause frames a second, where no device counts the time."""
TICKS_LEAST = 1e6
"""A second, of a NIC's own count of waiting. Devices differ in how long a tick is, so only its
order counts: at the shortest tick that is known this is a thousandth of time."""
QUEUE_LEAST = 1e6
"""Bytes in front of a port: twice where marking of every packet begins at 100 Gb/s."""
DISCARDS_LEAST = 100.0
"""A second (NVSentinel's limit)."""
GAPS_LEAST = 1.0
"""Gaps in its packets that a NIC sees, a second."""
READINGS_LEAST = 2
QUEUE_BURST = "queue_burst"
"""Events of watermarks (`collector.switches.peaks`)."""
BURSTS = "bursts_seen"
"""What evidence calls the bursts that an agent's sampler reported: events, and no series."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is worked out once for all NICs of a window."""

    received: Floats
    """Share of its line that each port receives."""
    foreign: Floats
    """Of it, what is beyond what the port sends."""
    beyond_marks: Flags
    """Cells in which the switch in front of a NIC holds back who sends into it, or a queue there is
    deep: marks alone did not do."""
    held: Floats
    far_host: np.ndarray


class Inflow(msgspec.Struct, frozen=True, kw_only=True):
    """Others' traffic into one NIC, with a queue at its switch."""

    nic: int
    span: Span
    is_own_storage: bool
    """The host behind the NIC reads them from its own mount."""
    is_bursty: bool
    """Its mean leaves room, and yet a queue stands that marks do not hold in check: it comes all at
    once."""
    strength: float
    evidence: tuple[Evidence, ...]


def inflow_findings(
    window: Window, *, detector: str, cause: Cause, is_bursty: bool
) -> list[Finding]:
    return [
        report(
            window,
            one.span,
            detector=detector,
            cause=cause,
            reason=Reason.STORAGE_TRAFFIC if one.is_own_storage else Reason.NEIGHBOUR,
            culprit=window.ports.culprit(one.nic),
            strength=one.strength,
            rows=[one.nic],
            evidence=one.evidence,
        )
        for one in inflows(window)
        if one.is_bursty is is_bursty
    ]


def inflows(window: Window) -> list[Inflow]:
    """NICs that receive others' traffic behind a queue; in the order of rows."""
    ports = window.ports
    if not len(ports) or not ports.grid.cells:
        return []
    received = arrived(ports)
    foreign = received - carried(ports) * 8 / line(ports)
    wants = (foreign >= FOREIGN_LEAST) & ~ports.is_switch[:, None]
    if not wants.any():
        return []
    beyond_marks = is_backed_up(ports) | is_deep(ports)
    queues = is_marked(ports, received, foreign) | beyond_marks
    flags = wants & queues & ~is_losing(ports)
    if not flags.any():
        return []
    seen = Seen(
        received=received,
        foreign=foreign,
        beyond_marks=beyond_marks,
        held=waited(ports),
        far_host=np.array([ports.host[end] if end >= 0 else "" for end in ports.other_end]),
    )
    found = []
    for row in rows_with(flags):
        clear = bool((foreign[row][flags[row]] >= FOREIGN_CLEAR).any())
        span = latest(ports, flags[row], least=1 if clear else READINGS_LEAST)
        one = inflow(window, row, span, seen) if span is not None else None
        if one is not None:
            found.append(one)
    return found


def line(ports: Ports) -> Floats:
    """Each port's line rate in bits a second, as a column; NaN where unknown."""
    rate = ports.rate_bits_per_second
    column: Floats = np.where(rate > 0, rate, np.nan)[:, None]
    return column


def arrived(ports: Ports) -> Floats:
    own = values_of(ports, "receive_bytes_total")
    far = from_far(ports, values_of(ports, "transmit_bytes_total"))
    share: Floats = np.where(np.isnan(own), far, own) * 8 / line(ports)
    return share


# Queues ------------------------------------------------------------------------------------------


def is_losing(ports: Ports) -> Flags:
    """[ports, cells]: NICs that lose packets for lack of flow control: `lossy_link`'s."""
    drops = most_of(ports, ("transmit_discards_total", "queue_discarded_packets_total"))
    in_front = from_far(ports, (drops >= DISCARDS_LEAST).astype(np.float64)) > 0
    gaps: Flags = values_of(ports, "receive_out_of_sequence_total") >= GAPS_LEAST
    return in_front | gaps


def is_marked(ports: Ports, received: Floats, foreign: Floats) -> Flags:
    """Packets arrive with marks, more than is usual while others do not send.

    Flows of a healthy job that meet somewhere have marks all the time, as a share of its own
    packets. Where others' packets are most of what arrives they thin these marks out: the usual
    share then counts of the job's own part alone, because it is all that had them.
    """
    wants = foreign >= FOREIGN_LEAST
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.clip(1.0 - foreign / received, 0.0, 1.0)
    own = np.where(foreign >= FOREIGN_STEADY, own, 1.0)
    marks = most_of(ports, ("receive_ecn_marked_packets_total", "cnp_sent_total"))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = marks / packets(ports, "receive")
    share = np.where(np.isfinite(share), share, np.nan)
    base = np.nan_to_num(usual(np.where(wants, np.nan, share)))[:, None]
    marked: Flags = (share >= MARKED_LEAST) & (share >= MARKED_RISE * base * own)
    return marked


def is_backed_up(ports: Ports) -> Flags:
    """The switch in front holds back who sends into it."""
    held = np.zeros((len(ports), ports.grid.cells), dtype=bool)
    for values, least in (
        (waited(ports), HELD_LEAST),
        (paused_frames(ports), FRAMES_LEAST),
        (
            np.where(
                ports.is_switch[:, None], np.nan, values_of(ports, "transmit_wait_ticks_total")
            ),
            TICKS_LEAST,
        ),
    ):
        held |= values >= least
    _, code = np.unique(np.array(ports.host, dtype=object).astype(str), return_inverse=True)
    known = ports.other_end >= 0
    by_host = np.zeros((int(code.max()) + 1, ports.grid.cells), dtype=bool)
    # Held ports by the device at their far end: that one holds them back.
    np.logical_or.at(by_host, code[ports.other_end[known]], held[known])
    return by_host[code[ports.other_end]] & known[:, None]


def is_deep(ports: Ports) -> Flags:
    """Much stands in the queue, or its mark shows that much stood there in this cell."""
    deep = values_of(ports, "queue_depth_bytes") >= QUEUE_LEAST
    deep |= fresh_marks(values_of(ports, "queue_peak_bytes")) >= QUEUE_LEAST
    return from_far(ports, deep.astype(np.float64)) > 0


def fresh_marks(marks: Floats) -> Floats:
    """Watermarks where they are new; NaN elsewhere: a mark that stands tells of an old burst.

    It was reached between two readings of the switch. Those are mostly further apart than cells,
    so that the cell before has it as well.
    """
    changed = np.zeros(marks.shape, dtype=bool)
    changed[:, 1:] = (marks[:, 1:] != marks[:, :-1]) & ~np.isnan(marks[:, 1:] + marks[:, :-1])
    fresh = np.where(changed, marks, np.nan)
    fresh[:, :-1] = np.fmax(fresh[:, :-1], fresh[:, 1:])
    return fresh


def is_in_check(ports: Ports, row: int, span: Span, seen: Seen) -> bool:
    """Whether marks alone slow the senders down, so that their queue at a NIC stays shallow.

    Senders that go on hear of marks and slow down; bursts are over before. So a burst marks most of
    its packets, or is held back, or its queue is deep. CNPs cannot tell: a NIC sends one for many
    marks. Not known where marks are not counted, as on InfiniBand: then it is not said.
    """
    marks = line_of(ports, "receive_ecn_marked_packets_total", row)[span.cells]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.clip(seen.foreign[row] / seen.received[row], 0.0, 1.0)
    others = (packets(ports, "receive")[row] * part)[span.cells]
    known = ~np.isnan(marks + others)
    if not known.any() or not 0 < marks[known].sum() < MARKED_IN_CHECK * others[known].sum():
        return False
    return not seen.beyond_marks[row, span.cells].any()


# The inflow of one NIC ---------------------------------------------------------------------------


def inflow(window: Window, row: int, span: Span, seen: Seen) -> Inflow | None:
    """One NIC; None while it is not known whether the inflow is steady.

    It may have begun anywhere in its first cell, so that the cell's mean does not show how
    much it is. A cell counts whose predecessor has some of it already.
    """
    foreign = seen.foreign
    base = float(np.nan_to_num(usual(foreign[row][None, :])[0]))
    has_some = foreign[row] > base + FOREIGN_BEGINS
    is_whole = np.concatenate([[True], has_some[:-1]])[span.cells]
    others = float(np.nanmax(foreign[row, span.cells]))
    if not is_whole.any() and others < FOREIGN_STEADY:
        return None
    full = float(np.nanmax(seen.received[row, span.cells]))
    evidence = [
        *receives(window, row, span, seen),
        *queue_evidence(window, row, span, seen),
        *peak_evidence(window, row, span),
        *burst_evidence(window, row, span),
        *flow_evidence(window, int(window.ports.other_end[row]), span),
    ]  # fmt: skip
    bytes_line = line_bytes(window.ports, row)
    own = traffic_of(window, window.ports.host[row], span, READ)
    is_own = own is not None and explains(own, foreign[row] * bytes_line, span)
    if own is not None:
        evidence += storage_evidence(window, own, span, bytes_line)
    return Inflow(
        nic=row,
        span=span,
        is_own_storage=is_own,
        is_bursty=(
            others < FOREIGN_STEADY
            and full < LOAD_FULL
            and not is_in_check(window.ports, row, span, seen)
        ),
        strength=scaled(others, FOREIGN_LEAST, FOREIGN_CLEAR, low=0.65, high=0.95),
        evidence=tuple(evidence),
    )


def receives(window: Window, row: int, span: Span, seen: Seen) -> list[Evidence]:
    """How much the NIC receives and sends, by its own count or by its switch's."""
    ports, far = window.ports, int(window.ports.other_end[row])
    for name, end in (("receive_bytes_total", row), ("transmit_bytes_total", far)):
        count = mean(line_of(ports, name, end)[span.cells]) if end >= 0 else 0.0
        if not (count > 0 and ports.rate_bits_per_second[end] > 0):
            continue
        share = count * 8 / float(ports.rate_bits_per_second[end])
        others = min(mean(seen.foreign[row, span.cells]), share)
        text = (
            f"{called(ports, row)} receives {percent(share)} of its line and sends "
            f"{percent(share - others)}: {percent(others)} are not its ring's"
        )
        return [
            observe(
                window, end, name, span, text=text, value=share, unit="ratio",
                baseline=share - others,
            )
        ]  # fmt: skip
    return []


def queue_evidence(window: Window, row: int, span: Span, seen: Seen) -> list[Evidence]:
    """Marks at the NIC, and the longest wait of a port that its switch holds back."""
    ports, found = window.ports, []
    name = "receive_ecn_marked_packets_total"
    marked = line_of(ports, name, row)
    if (marked[span.cells] > 0).any():
        marks = mean(marked[span.cells])
        base = float(np.nan_to_num(usual(marked[None, :])[0]))
        text = (
            f"{called(ports, row)} receives {amount(marks)} marked packets a second, "
            f"{amount(base)} as a rule"
        )
        found.append(
            observe(window, row, name, span, text=text, value=marks, unit=PACKETS, baseline=base)
        )
    far = int(ports.other_end[row])
    if far < 0:
        return found
    behind = np.flatnonzero(seen.far_host == ports.host[far])
    longest = np.zeros(len(ports))
    longest[behind] = np.nan_to_num(means(seen.held[behind][:, span.cells]))
    fullest = np.flatnonzero(longest >= longest.max())
    worst = min(fullest.tolist(), key=lambda one: called(ports, one))
    if longest[worst] >= HELD_LEAST:
        words = f"{called(ports, worst)} is held back by {ports.host[far]} {{0}}"
        found += held_back(window, worst, span, words=words)
    return found


def peak_evidence(window: Window, row: int, span: Span) -> list[Evidence]:
    """How much stood in front of the NIC at most, by its switch, and how finely that is known."""
    ports, far = window.ports, int(window.ports.other_end[row])
    if far < 0:
        return []
    edges = ports.grid.edges_ns
    told = [
        (amount_in(event.attributes, "peak_bytes"), amount_in(event.attributes, "milliseconds"))
        for event in window.events
        if event.kind == QUEUE_BURST
        and int(edges[span.first]) <= event.time_ns < int(edges[span.last + 1])
        and event.labels.get("host") == ports.host[far]
        and event.labels.get("port") == ports.port[far]
    ]
    if told and max(told)[0] >= QUEUE_LEAST:
        peak, milliseconds = max(told)
        times = f" ({len(told)} times so far)" if len(told) > 1 else ""
        text = (
            f"{peak / 1e6:.1f} MB stood in the queue of {called(ports, far)} at some moment within "
            f"{milliseconds / 1000:.3g} s{times}"
        )
        name = "queue_peak_bytes"
        return [observe(window, far, name, span, text=text, value=peak, unit="bytes")]
    depth = line_of(ports, "queue_depth_bytes", far)[span.cells]
    if not (np.nan_to_num(depth) >= QUEUE_LEAST).any():
        return []
    peak = float(np.nanmax(depth))
    text = (
        f"{peak / 1e6:.1f} MB stood in the queue of {called(ports, far)} when it was read, at some "
        f"moment within {ports.grid.step_ns / NS:.3g} s"
    )
    return [observe(window, far, "queue_depth_bytes", span, text=text, value=peak, unit="bytes")]


def amount_in(attributes: Mapping[str, str], name: str) -> float:
    """A number of an event; 0 for what is none: events come from outside."""
    try:
        number = float(attributes.get(name, ""))
    except ValueError:
        return 0.0
    return number if 0 <= number <= VALUE_MAX else 0.0


def burst_evidence(window: Window, row: int, span: Span) -> list[Evidence]:
    """How many bursts the NIC's own sampler saw arrive."""
    ports, edges = window.ports, window.ports.grid.edges_ns
    from_ns, to_ns = int(edges[span.first]), int(edges[span.last + 1])
    count = sum(
        event.kind == "burst"
        and from_ns <= event.time_ns < to_ns
        and event.labels.get("host") == ports.host[row]
        and event.labels.get("device") == ports.device[row]
        and event.attributes.get("direction") == "receive"
        for event in window.events
    )
    if not count:
        return []
    text = f"{counted(count, 'burst')} into {called(ports, row)}, by its own sampler"
    return [observe(window, row, BURSTS, span, text=text, value=float(count), unit="bursts")]
