"""Links that run at a lower rate than they could.

*Phenomenon.* After a retraining on a marginal cable both ports agree on what still works: fewer
lanes, or the signalling of an earlier generation. Nothing is lost and no error is counted; bytes
only take two or four times as long.

*Signal.* The rate (or the number of lanes) of a link that is up is lower than it was earlier in the
window, than what the port is known to be able to do, or than what nearly all peers of the same kind
have; or the switch itself reports that the port could be faster.

*Assumptions.* Peers are NICs of the same name on other hosts, and ports of switches of the same
tier that face the same kind of device. Where less than `PEERS_SHARE` of them agree, a fabric is
mixed on purpose and only the port's own past counts. A port without a link reports no rate.

*Misses.* Ports that have been slow for longer than the window on a fabric without peers.

*Reference.* sysfs `rate`, IBTA LinkWidthActive and LinkSpeedActive against what is enabled (what
`iblinkinfo` marks as "Could be"), ifHighSpeed.
"""

from __future__ import annotations

import numpy as np

from alerts.finding import Finding
from alerts.signals.ports import (
    Span,
    cable_of,
    called,
    first_of,
    is_active,
    latest,
    line_of,
    nic_end,
    observe,
    report,
    rows_with,
    values_of,
)
from alerts.window.columns import Flags, Floats
from alerts.window.model import Ports, Window
from collector.contract.verdict import Cause, Reason

NAME = "rate_downgrade"
RATES = ("rate_bits_per_second", "speed_bits_per_second")
SLOWER = 0.9
"""Of the rate that it should have: names of rates are rounded (53.125 and 50 Gb/s a lane)."""
PEERS_LEAST = 4
"""Fewer peers are no majority."""
PEERS_SHARE = 0.75
"""Of peers that must have one higher rate before a port with a lower one is called slow."""
FELL_STRENGTH = 0.97
"""It was faster earlier in the window."""
PEERS_STRENGTH = 0.8
"""It has been slower than its peers for an unknown time: that may be intended."""


def detect(window: Window) -> list[Finding]:
    ports = window.ports
    if not len(ports) or not ports.grid.cells:
        return []
    rate = first_of(ports, RATES)
    rate = np.where(is_active(ports) & (rate > 0), rate, np.nan)
    lanes = np.where(is_active(ports), values_of(ports, "lanes"), np.nan)
    should = expected(ports, rate)
    with np.errstate(invalid="ignore"):
        is_slow = rate < SLOWER * should[:, None]
        is_narrow = lanes < np.fmax.reduce(lanes, axis=1)[:, None]
        flags = is_slow | is_narrow | (is_active(ports) & (values_of(ports, "could_be_faster") > 0))
    found: dict[tuple[int, int], tuple[tuple[float, str], Finding]] = {}
    for row in rows_with(flags):
        key = cable_of(ports, row)
        finding = judge_port(window, row, flags[row], rate, float(should[row]))
        if finding is None:
            continue
        order = (-finding.strength, called(ports, row))
        if key not in found or order < found[key][0]:
            found[key] = order, finding
    return [found[key][1] for key in sorted(found)]


def expected(ports: Ports, rate: Floats) -> Floats:
    """What each port should run at: the best that is known of it, or what its peers have."""
    own = np.fmax(ports.rate_bits_per_second, np.fmax.reduce(rate, axis=1, initial=np.nan))
    groups: dict[tuple[object, ...], list[int]] = {}
    for row in range(len(ports)):
        groups.setdefault(kind_of(ports, row), []).append(row)
    for rows in groups.values():
        best = own[rows]
        known = best[best > 0]
        if len(known) < PEERS_LEAST:
            continue
        values, counts = np.unique(known, return_counts=True)
        common = float(values[np.argmax(counts)])
        if counts.max() >= PEERS_SHARE * len(known):
            own[rows] = np.where(np.isnan(best), np.nan, np.fmax(best, common))
    return own


def kind_of(ports: Ports, row: int) -> tuple[object, ...]:
    if not ports.is_switch[row]:
        return ("nic", ports.device[row])
    far = int(ports.other_end[row])
    facing = "unknown" if far < 0 else f"tier {ports.tier[far]}"
    return ("switch", int(ports.tier[row]), facing)


def judge_port(
    window: Window, row: int, flags: Flags, rate: Floats, should: float
) -> Finding | None:
    """A port that is slow now; None if it is well again or was never read since."""
    ports = window.ports
    span = latest(ports, flags)
    if span is None:
        return None
    known = np.flatnonzero(~np.isnan(rate[row]) | flags)
    if len(known) and not flags[known[-1]]:
        span = Span(span.first, int(np.flatnonzero(flags)[-1]))
    before = rate[row, : span.first]
    fell = bool((before > 0).any())
    now = last_known(rate[row, span.cells])
    if not now > 0:
        return None
    usual = float(np.nanmax(before)) if fell else should
    name = next((one for one in RATES if not np.isnan(line_of(ports, one, row)).all()), RATES[0])
    text = (
        f"{called(ports, row)} runs at {now / 1e9:g} Gb/s; "
        f"{'before, it ran at' if fell else 'its peers run at'} {usual / 1e9:g} Gb/s"
    )
    evidence = observe(
        window, row, name, span, text=text, value=now, unit="bits per second", baseline=usual
    )
    end = nic_end(ports, row)
    return report(
        window,
        span,
        detector=NAME,
        cause=Cause.SLOW_LINK,
        reason=Reason.RATE_DOWNGRADE,
        culprit=ports.culprit(end),
        strength=FELL_STRENGTH if fell else PEERS_STRENGTH,
        rows=[end],
        evidence=[evidence],
        since_ns=reported_ns(window, end, span),
    )


def reported_ns(window: Window, row: int, span: Span) -> int | None:
    """When an agent reported the new rate; None without such an event at that time.

    A rate is a level: it stands in the cell in which it was first read, and changed before.
    """
    ports = window.ports
    key = (ports.host[row], ports.device[row], ports.port[row])
    first_ns = int(ports.grid.edges_ns[span.first])
    for event in window.events:
        near = abs(event.time_ns - first_ns) <= 2 * ports.grid.step_ns
        labels = event.labels
        if event.kind == "link_rate" and near:
            subject = (labels.get("host", ""), labels.get("device", ""), labels.get("port", "1"))
            if subject == key:
                return min(event.time_ns, first_ns)
    return None


def last_known(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known[-1]) if len(known) else float("nan")
