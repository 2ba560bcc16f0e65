"""NICs and GPUs whose PCIe slot moves less than it should.

*Phenomenon.* A slot came up with fewer lanes or a generation lower, or the host bridge does not
take what the NIC writes. The network is healthy and the port has its full rate; what arrives piles
up in the NIC, which then stops its switch.

*Signal.* NICs: the share of time in which writing to memory (or reading from it) was stalled, by
the NIC's own count, or packets that its buffer could not hold. GPUs: fewer lanes, or a lower
generation while the GPU works, than both sides can do.

*Assumptions.* mlx5 counts a second as stalled when more than 30 percent of it was; two readings in
a row are asked for, because a single one can be a host that has just been busy. A GPU that rests
goes down to generation 1 on purpose, so generations count under load only, and only where most GPUs
of the window do not show the same.

*Misses.* NICs that count no stalls; a slot that is slow for sending only.

*Reference.* mlx5 ethtool counters `outbound_pci_stalled_wr_events`, `outbound_pci_stalled_wr`,
`outbound_pci_buffer_overflow`; NVML PCIe link generation and width, current against maximum.
"""

from __future__ import annotations

import numpy as np

from alerts.columns import Flags
from alerts.finding import Finding
from alerts.ports import (
    called,
    latest,
    loudest,
    mean,
    most_of,
    observe,
    report,
    rows_with,
    scaled,
    times_of,
    unusual,
    usual,
    values_of,
)
from alerts.window import Gpus, Window
from collector.contract.verdict import Cause, Evidence, Reason

NAME = "pcie"
STALLS = (
    "pcie_write_stalled_seconds_total",
    "pcie_read_stalled_seconds_total",
    "pcie_write_stalled_ratio",
    "pcie_read_stalled_ratio",
)
STALLED_LEAST = 0.15
"""Of time. Below it a NIC's buffer of microseconds rides it out; a slot with a quarter of its lanes
stalls for half of the time."""
STALLED_CLEAR = 0.5
STALLED_RISE = 2.0
"""Times what is usual of this NIC, where most have such stalls."""
OVERFLOW_LEAST = 1.0
"""Packets a second that the NIC threw away because the host did not take them: none in health."""
READINGS_LEAST = 2
BUSY = 0.2
"""Share of time that a GPU works, from which on it has its slot's full generation."""
COMMON = 0.5
"""Where more than this share of GPUs show the same, the machines are built so."""
GPU_STRENGTH = 0.85


def detect(window: Window) -> list[Finding]:
    """Findings about NICs, then about GPUs."""
    return [*stalled_nics(window), *narrow_gpus(window)]


def stalled_nics(window: Window) -> list[Finding]:
    """NICs whose host does not take what they write, or give what they read."""
    ports = window.ports
    if not len(ports) or not ports.grid.cells:
        return []
    stalled = most_of(ports, STALLS)
    overflow = values_of(ports, "pcie_buffer_overflow_packets_total")
    base = np.nan_to_num(usual(stalled))
    flags = unusual(stalled, STALLED_LEAST, STALLED_RISE)
    flags |= (overflow >= OVERFLOW_LEAST) & (stalled > 0)
    findings = []
    for row in rows_with(flags, READINGS_LEAST):
        span = latest(ports, flags[row], least=READINGS_LEAST)
        if span is None:
            continue
        share = mean(stalled[row, span.cells])
        name = loudest(ports, STALLS, row, span)
        text = (
            f"{called(ports, row)}: its host did not take what it wrote for {share:.0%} of the "
            f"time, {base[row]:.0%} before"
        )
        evidence = observe(
            window, row, name, span, text=text, value=share, unit="ratio", baseline=float(base[row])
        )
        finding = report(
            window,
            span,
            detector=NAME,
            cause=Cause.SLOW_LINK,
            reason=Reason.PCIE,
            culprit=ports.culprit(row),
            strength=scaled(share, STALLED_LEAST, STALLED_CLEAR, low=0.7),
            rows=[row],
            evidence=[evidence],
        )
        findings.append(finding)
    return findings


def narrow_gpus(window: Window) -> list[Finding]:
    """GPUs with fewer lanes, or a lower generation under load, than they could have."""
    gpus = window.gpus
    if not len(gpus) or not gpus.grid.cells:
        return []
    findings = []
    works = gpus.values("utilization_ratio") >= BUSY
    for name, limit, when in (
        ("pcie_lanes", "pcie_lanes_max", np.ones_like(works)),
        ("pcie_generation", "pcie_generation_max", works),
    ):
        now, could = gpus.values(name), gpus.values(limit)
        flags = (now < could) & when
        slow = rows_with(flags, READINGS_LEAST)
        told = int((~np.isnan(now)).any(axis=1).sum())
        if len(slow) > COMMON * told and told > 1:
            continue
        findings += [narrow_gpu(window, row, name, flags[row]) for row in slow]
    return [finding for finding in findings if finding is not None]


def narrow_gpu(window: Window, row: int, name: str, flags: Flags) -> Finding | None:
    """One GPU; the latest episode."""
    gpus: Gpus = window.gpus
    span = latest(window.ports, flags, least=READINGS_LEAST)
    if span is None:
        return None
    now = float(np.nanmin(gpus.values(name)[row, span.cells]))
    could = float(np.nanmax(gpus.values(f"{name}_max")[row, span.cells]))
    what = "lanes" if name == "pcie_lanes" else "generation"
    from_ns, last_ns = times_of(window, span)
    evidence = Evidence(
        metric=gpus.metric(name),
        text=f"GPU {gpus.gpu[row]} of {gpus.host[row]}: PCIe {what} {now:g}; it can do {could:g}",
        value=now,
        unit="",
        baseline=could,
        from_ns=from_ns,
        to_ns=last_ns,
        labels={"host": gpus.host[row], "gpu": str(gpus.gpu[row])},
        samples=int(flags[span.cells].sum()),
    )
    return Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        culprit=gpus.culprit(row),
        strength=GPU_STRENGTH,
        since_ns=from_ns,
        until_ns=window.until(last_ns),
        last_ns=last_ns,
        reason=Reason.PCIE,
        evidence=(evidence,),
        is_context=True,
    )
