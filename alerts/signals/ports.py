"""What detectors of ports share: loads, usual values, episodes, and the texts of evidence.

Everything is [ports, cells] as in `alerts.window.model.Ports`; NaN is what was not read, and never
zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.window.columns import Flags, Floats
from alerts.window.model import Ports, Window
from alerts.window.statistics import runs
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason

ACTIVE = 4.0
"""A port's state with a working link (IBTA; agents report it for Ethernet ports too)."""
USUAL_QUANTILE = 0.25
"""What is usual of a port: low, because a fault that fills half of the window is no new normal."""
GAP_SECONDS = 30.0
"""Two sightings of one trouble that are nearer than this are one: three polls of a switch."""
VICTIMS_MAX = 64
"""Ranks that a finding names as suffering: a rack's. The verdict knows the job."""
VALUE_MAX = 1e18
"""Nothing counts faster, or further: a petabyte a second is a thousandth of it."""
ROWS_MAX = 512
"""Ports that one detector looks at closely: where more are in trouble at once, no single one is the
cause, and the work stays bounded."""
EVIDENCE_MAX = 8
PACKETS, ERRORS, FRAMES = "packets per second", "errors per second", "frames per second"
HELD_BACK = (
    ("transmit_wait_seconds_total", False),
    ("receive_pause_seconds_total", False),
    ("transmit_pause_seconds_total", True),
    ("receive_pause_frames_total", False),
    ("transmit_pause_frames_total", True),
)
"""Readings that show a port held back, the plainest first, and whether its far end counts it."""


class Span(msgspec.Struct, frozen=True):
    """A stretch of cells: the first and the last in which something was seen."""

    first: int
    last: int

    @property
    def cells(self) -> slice:
        return slice(self.first, self.last + 1)


# Readings ----------------------------------------------------------------------------------------


def known_sum(*parts: Floats) -> Floats:
    """The sum of what is known; NaN where nothing is."""
    total = np.nansum(np.stack(parts), axis=0)
    unknown = np.all(np.isnan(np.stack(parts)), axis=0)
    return np.where(unknown, np.nan, total)


def values_of(ports: Ports, name: str) -> Floats:
    """[ports, cells] of a reading; NaN where it is not read, and for what cannot be."""
    return possible(ports.values(name))


def line_of(ports: Ports, name: str, row: int) -> Floats:
    """One port's cells of a reading; NaN all over where it is not read."""
    found = ports.readings.get(name)
    if found is not None:
        for place in np.flatnonzero(found.row == row).tolist():
            return possible(found.values[place])
    return np.full(ports.grid.cells, np.nan)


def possible(values: Floats) -> Floats:
    """NaN for what no reading can be: below nothing, or beyond all counting."""
    return np.where((values >= 0) & (values <= VALUE_MAX), values, np.nan)


def most_of(ports: Ports, names: Sequence[str]) -> Floats:
    most = np.full((len(ports), ports.grid.cells), np.nan)
    for name in names:
        if name in ports.readings:
            most = np.fmax(most, values_of(ports, name))
    return most


def added(ports: Ports, names: Sequence[str]) -> Floats:
    """The sum of several readings: those that count different things."""
    there = [values_of(ports, name) for name in names if name in ports.readings]
    return known_sum(*there) if there else np.full((len(ports), ports.grid.cells), np.nan)


def first_of(ports: Ports, names: Sequence[str]) -> Floats:
    """Of several readings of the same thing the first that is known."""
    found = np.full((len(ports), ports.grid.cells), np.nan)
    for name in names:
        if name in ports.readings:
            found = np.where(np.isnan(found), values_of(ports, name), found)
    return found


def from_far(ports: Ports, values: Floats) -> Floats:
    """For each port the value of its cable's other end; NaN where that end is not known."""
    far: Floats = np.where((ports.other_end >= 0)[:, None], values[ports.other_end], np.nan)
    return far


def carried(ports: Ports) -> Floats:
    """Bytes a second that leave each port.

    Of a switch's port that a NIC hangs on, what the NIC has received: NICs are read more often.
    Elsewhere what the port has sent, or else what its far end has received.
    """
    sent = values_of(ports, "transmit_bytes_total")
    arrived = from_far(ports, values_of(ports, "receive_bytes_total"))
    finer = ports.is_switch & faces_nic(ports)
    best = np.where(finer[:, None] & ~np.isnan(arrived), arrived, sent)
    return np.where(np.isnan(best), arrived, best)


def line_bytes(ports: Ports, row: int) -> float:
    """Bytes a second that a port's line carries."""
    return float(ports.rate_bits_per_second[row]) / 8


def load(ports: Ports) -> Floats:
    """The share of its line that leaves each port, 0 to 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share: Floats = carried(ports) * 8 / ports.rate_bits_per_second[:, None]
    return np.where(np.isfinite(share), share, np.nan)


def packets(ports: Ports, way: str) -> Floats:
    return first_of(ports, (f"{way}_packets_total", f"{way}_unicast_packets_total"))


def waited(ports: Ports) -> Floats:
    """Share of time in which a port had to hold back what it had to send, by its far end's will.

    InfiniBand: no credit. RoCE: paused; where a port does not count the time (most switches count
    frames only), its far end's count of the same pauses stands for it.
    """
    own = most_of(ports, ("transmit_wait_seconds_total", "receive_pause_seconds_total"))
    far = from_far(ports, values_of(ports, "transmit_pause_seconds_total"))
    return np.fmax(own, far)


def paused_frames(ports: Ports) -> Floats:
    """Pause frames a second that a port has received, by its own count or its far end's."""
    own = values_of(ports, "receive_pause_frames_total")
    return np.fmax(own, from_far(ports, values_of(ports, "transmit_pause_frames_total")))


def faces_nic(ports: Ports) -> Flags:
    return (ports.other_end >= 0) & ~ports.is_switch[ports.other_end]


def faces_switch(ports: Ports) -> Flags:
    return (ports.other_end >= 0) & ports.is_switch[ports.other_end]


def is_active(ports: Ports) -> Flags:
    """[ports, cells]: the link is up, as far as any reading shows."""
    state, up = values_of(ports, "state"), values_of(ports, "up")
    is_down = (state < ACTIVE) | ((up <= 0) & ~(state >= ACTIVE))
    return ~is_down


# Statistics --------------------------------------------------------------------------------------


def usual(values: Floats, quantile: float = USUAL_QUANTILE) -> Floats:
    """For each port a low quantile of what is known of it in the window; NaN for nothing."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    known = (~np.isnan(values)).sum(axis=1)
    place = np.maximum(np.floor(quantile * (known - 1)), 0).astype(np.int64)
    ordered = np.sort(values, axis=1)  # NaN comes last
    found: Floats = ordered[np.arange(len(values)), place]
    return found


def unusual(values: Floats, least: float, rise: float) -> Flags:
    """Cells with at least ``least``; where that is usual of most ports, ``rise`` times their own.

    What no healthy port has needs no past: a fault that is older than the window stays in sight.
    """
    base = usual(values)
    known = int((~np.isnan(base)).sum())
    is_common = known > 1 and int((base >= least).sum()) > known / 2
    limit = np.maximum(least, rise * np.nan_to_num(base) if is_common else 0.0)
    flags: Flags = values >= np.broadcast_to(limit, (len(values),))[:, None]
    return flags


def usual_at(values: Floats, row: int) -> float:
    """What is usual of a port, for the evidence beside its present value; 0 where nothing is known.

    A fault that is older than the window is all that is known of the port itself: then its peers
    show what is usual.
    """
    base = usual(values)
    known = base[~np.isnan(base)]
    if not len(known):
        return 0.0
    own = base[row]
    peers = float(np.median(known))
    return peers if np.isnan(own) else min(float(own), peers)


def mean(values: Floats) -> float:
    """The mean of what is known; 0 for nothing."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def means(values: Floats) -> Floats:
    """For each row the mean of what is known; NaN for nothing."""
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def gap_cells(ports: Ports) -> int:
    return max(1, int(GAP_SECONDS * NS // max(ports.grid.step_ns, 1)))


def latest(ports: Ports, flags: Flags, *, least: int = 1) -> Span | None:
    """The latest episode in one port's cells; None if there is none with as many sightings."""
    found = runs(flags, gap=gap_cells(ports), least=least)
    return Span(*found[-1]) if found else None


def rows_with(flags: Flags, least: int = 1) -> list[int]:
    """Ports with at least so many flagged cells, in their order; of too many the most flagged."""
    counts = flags.sum(axis=1)
    chosen = np.flatnonzero(counts >= max(1, least))
    if len(chosen) > ROWS_MAX:
        chosen = np.sort(chosen[np.argsort(-counts[chosen], kind="stable")[:ROWS_MAX]])
    rows: list[int] = chosen.tolist()
    return rows


def loudest(ports: Ports, names: Sequence[str], row: int, span: Span) -> str:
    """Of several readings the one that is largest at a port: what evidence shows."""
    return max(names, key=lambda name: mean(line_of(ports, name, row)[span.cells]))


def rhythm(values: Floats) -> str:
    """How something is spread over time: steadily, in bursts or now and then."""
    known = values[~np.isnan(values)]
    moving = known[known > 0]
    if len(known) < 2 or not len(moving):  # noqa: PLR2004 - one reading has no rhythm
        return ""
    if len(moving) < len(known) / 2:
        return "now and then"
    return "steadily" if moving.max() <= 4 * np.median(moving) else "in bursts"


def scaled(value: float, least: float, clear: float, low: float = 0.6, high: float = 0.97) -> float:
    """How clear a value is: ``low`` where it just counts, ``high`` from ``clear`` on; by decades.

    >>> scaled(1.0, 1.0, 100.0), scaled(10.0, 1.0, 100.0), scaled(1e6, 1.0, 100.0)
    (0.6, 0.785, 0.97)
    """
    if not value > least:
        return low
    share = np.log(value / least) / np.log(clear / least)
    return round(float(low + (high - low) * min(share, 1.0)), 4)


# Findings ----------------------------------------------------------------------------------------


def nic_end(ports: Ports, row: int) -> int:
    """The end of a port's cable that a NIC has; the port itself where neither has or both have."""
    far = int(ports.other_end[row])
    return far if ports.is_switch[row] and far >= 0 and not ports.is_switch[far] else row


def cable_of(ports: Ports, row: int) -> tuple[int, int]:
    """Both ends of a port's cable in order: the same for either; one end twice if alone."""
    far = int(ports.other_end[row])
    return (row, row) if far < 0 else (min(row, far), max(row, far))


def times_of(window: Window, span: Span) -> tuple[int, int]:
    """When the first cell begins and the last one ends, within the window."""
    edges = window.ports.grid.edges_ns
    last_ns = min(int(edges[span.last + 1]), window.to_ns)
    return min(int(edges[span.first]), last_ns), last_ns


def victims_of(window: Window, rows: Sequence[int]) -> tuple[Culprit, ...]:
    """The ranks that use these ports, or the NICs at their cables' other ends."""
    ports, found = window.ports, {}
    for row in rows:
        for job, rank in window.users_of_port.get(nic_end(ports, row), []):
            found[job.job, rank] = job.culprit(rank)
    return tuple(found[key] for key in sorted(found)[:VICTIMS_MAX])


def observe(
    window: Window,
    row: int,
    name: str,
    span: Span,
    *,
    text: str,
    value: float,
    unit: str,
    baseline: float | None = None,
) -> Evidence:
    """An observation at a port, as `/v1/explain` and PromQL find it again."""
    ports = window.ports
    from_ns, to_ns = times_of(window, span)
    samples = int((~np.isnan(line_of(ports, name, row)[span.cells])).sum())
    metric = ports.metric(name, row)
    return Evidence(
        metric=metric,
        text=text,
        value=value,
        unit=unit,
        baseline=baseline,
        from_ns=from_ns,
        to_ns=to_ns,
        labels=ports.labels(row, metric),
        samples=samples,
    )


def counted_by(ports: Ports, row: int, span: Span) -> tuple[str, int, float] | None:
    """Which reading of which end shows how much a port was held back, and how much that is.

    A share of time where one end counts it, else pause frames a second; None where neither does.
    """
    far = int(ports.other_end[row])
    for name, is_far in HELD_BACK:
        end = far if is_far else row
        if end >= 0 and name in ports.readings:
            value = mean(line_of(ports, name, end)[span.cells])
            if value > 0:
                return name, end, value
    return None


def held_back(
    window: Window, row: int, span: Span, *, words: str, baseline: float | None = None
) -> list[Evidence]:
    """That a port was held back, by the end that counts it; ``words`` with {0} for how much."""
    counted_there = counted_by(window.ports, row, span)
    if counted_there is None:
        return []
    name, end, value = counted_there
    is_time = name.endswith("_seconds_total")
    much = f"for {percent(value)} of the time" if is_time else f"by {amount(value)} frames a second"
    return [
        observe(
            window,
            end,
            name,
            span,
            text=words.format(much),
            value=value,
            unit="ratio" if is_time else FRAMES,
            baseline=baseline if is_time else None,
        )
    ]


def report(  # noqa: PLR0913 - what a finding has
    window: Window,
    span: Span,
    *,
    detector: str,
    cause: Cause,
    reason: Reason,
    culprit: Culprit,
    strength: float,
    rows: Sequence[int] = (),
    evidence: Sequence[Evidence] = (),
    since_ns: int | None = None,
) -> Finding:
    from_ns, last_ns = times_of(window, span)
    return Finding(
        detector=detector,
        cause=cause,
        culprit=culprit,
        strength=strength,
        since_ns=from_ns if since_ns is None else since_ns,
        until_ns=window.until(last_ns),
        last_ns=last_ns,
        reason=reason,
        victims=victims_of(window, rows),
        evidence=tuple(evidence[:EVIDENCE_MAX]),
    )


def called(ports: Ports, row: int) -> str:
    device = "" if ports.is_switch[row] else f" {ports.device[row]}"
    return f"{ports.host[row]}{device} port {ports.port[row]}"


def percent(share: float) -> str:
    """A share in a sentence.

    >>> percent(0.1234), percent(0.0035), percent(0.0), percent(0.00002)
    ('12 %', '0.35 %', '0 %', '0.002 %')
    """
    of_hundred = 100 * share
    return f"{of_hundred:.0f} %" if of_hundred >= 1 or not of_hundred else f"{of_hundred:.2g} %"


def amount(value: float) -> str:
    """A number in a sentence: three figures, and never a power of ten.

    >>> amount(751_289.2), amount(12.345), amount(0.5), amount(0.0), amount(2.0)
    ('751,000', '12.3', '0.5', '0', '2')
    """
    if not value or not np.isfinite(value):
        return "0"
    figures = 2 - int(np.floor(np.log10(abs(value))))
    rounded = round(float(value), figures)
    return (
        f"{rounded:,.{max(0, figures)}f}".rstrip("0").rstrip(".")
        if figures > 0
        else f"{rounded:,.0f}"
    )


def counted(count: float, word: str) -> str:
    """So many of something, by its singular.

    >>> counted(1, "cable"), counted(2.0, "change"), counted(0, "link")
    ('1 cable', '2 changes', '0 links')
    """
    return f"{amount(count)} {word}{'' if amount(count) == '1' else 's'}"
