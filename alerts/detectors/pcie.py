"""NICs and GPUs whose PCIe slot moves less than it should.

*Phenomenon.* A slot came up with fewer lanes or a generation lower, or the host bridge does not
take what the NIC writes. The network is healthy and the port has its full rate; what arrives piles
up in the NIC, which then stops its switch, and what is to be sent comes late.

*Signal.* NICs: the share of time in which writing to memory (or reading from it) was stalled, by
the NIC's own count, or packets that its buffer could not hold. GPUs: fewer lanes, or a lower
generation while the GPU works, than both sides can do. A NIC that only cannot write, and stops its
switch for it, is context: a receiver that does not keep up is `pause_storm`'s, whatever the reason,
and that finding has the same stalls among its evidence. One that cannot read either, or whose next
neighbour in a ring has to wait as it does itself, has a slot that is too slow both ways.

*Assumptions.* mlx5 counts a second as stalled when more than 30 percent of it was; two readings in
a row are asked for, because a single one can be a host that has just been busy. A GPU that rests
goes down to generation 1 on purpose, so generations count under load only, and only where most GPUs
of the window do not show the same.

*Misses.* NICs that count no stalls. How many lanes a NIC's slot has is a setting and no reading of
windows: `fabricscope audit` reports it.

*Reference.* mlx5 ethtool counters `outbound_pci_stalled_wr_events`, `outbound_pci_stalled_wr`,
`outbound_pci_buffer_overflow`; NVML PCIe link generation and width, current against maximum.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.both_ways import sends_as_slowly
from alerts.signals.peers import known_values
from alerts.signals.ports import (
    Span,
    called,
    latest,
    line_of,
    loudest,
    mean,
    most_of,
    observe,
    percent,
    report,
    rows_with,
    scaled,
    times_of,
    unusual,
    usual_at,
    values_of,
    waited,
)
from alerts.window.columns import Flags
from alerts.window.model import Gpus, Window
from collector.contract.verdict import Cause, Evidence, Reason

NAME = "pcie"
WRITES = ("pcie_write_stalled_seconds_total", "pcie_write_stalled_ratio")
READS = ("pcie_read_stalled_seconds_total", "pcie_read_stalled_ratio")
STALLS = (*WRITES, *READS)
STALLED_LEAST = 0.15
"""Of time. Below it a NIC's buffer of microseconds rides it out; a slot with a quarter of its lanes
stalls for half of the time."""
STALLED_CLEAR = 0.5
STALLED_RISE = 2.0
"""Times what is usual of this NIC, where most have such stalls."""
HELD_LEAST = 0.05
"""Of time for which a NIC that does not keep up holds its switch back: as `pause_storm` has it."""
OVERFLOW_LEAST = 1.0
"""Packets a second that the NIC threw away because the host did not take them: none in health."""
READINGS_LEAST = 2
BUSY = 0.2
"""Share of time that a GPU works, from which on it has its slot's full generation."""
COMMON = 0.5
"""Where more than this share of GPUs show the same, the machines are built so."""
GPU_STRENGTH = 0.85
BOTH_WAYS_STRENGTH = 0.93
"""Of a NIC that stalls and is slow both ways: two independent observations."""


def detect(window: Window) -> list[Finding]:
    return [*stalled_nics(window), *narrow_gpus(window)]


def stalled_nics(window: Window) -> list[Finding]:
    """NICs whose host does not take what they write, or give what they read."""
    ports = window.ports
    if not len(ports) or not ports.grid.cells:
        return []
    stalled = most_of(ports, STALLS)
    overflow = values_of(ports, "pcie_buffer_overflow_packets_total")
    flags = unusual(stalled, STALLED_LEAST, STALLED_RISE)
    flags |= (overflow >= OVERFLOW_LEAST) & (stalled > 0)
    findings = []
    for row in rows_with(flags, READINGS_LEAST):
        span = latest(ports, flags[row], least=READINGS_LEAST)
        if span is None:
            continue
        name = loudest(ports, STALLS, row, span)
        share = mean(line_of(ports, name, row)[span.cells])
        base = usual_at(stalled, row)
        did = "take what it wrote" if name in WRITES else "give what it read"
        text = (
            f"{called(ports, row)}: its host did not {did} for {percent(share)} of the time, "
            f"{percent(base)} as a rule"
        )
        evidence = observe(
            window, row, name, span, text=text, value=share, unit="ratio", baseline=base
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
        is_slow_both_ways = cannot_send(window, row, span)
        findings.append(
            msgspec.structs.replace(
                finding,
                is_context=not is_slow_both_ways and holds_back(window, row, span),
                strength=max(finding.strength, BOTH_WAYS_STRENGTH if is_slow_both_ways else 0.0),
            )
        )
    return findings


def cannot_send(window: Window, row: int, span: Span) -> bool:
    """Whether a NIC that stalls is slow for sending too: by its reads, or by its ring's exits."""
    reads = max(mean(line_of(window.ports, name, row)[span.cells]) for name in READS)
    if reads >= STALLED_LEAST:
        return True
    return sends_as_slowly(window, row, *times_of(window, span)) is True


def holds_back(window: Window, row: int, span: Span) -> bool:
    """Whether a NIC stops its switch, as receivers do that do not keep up."""
    far = int(window.ports.other_end[row])
    return far >= 0 and mean(waited(window.ports)[far, span.cells]) >= HELD_LEAST


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
        now, could = known_values(gpus, name), known_values(gpus, limit)
        flags = (now < could) & when
        slow = rows_with(flags, READINGS_LEAST)
        known = int((~np.isnan(now)).any(axis=1).sum())
        if len(slow) > COMMON * known and known > 1:
            continue
        findings += [narrow_gpu(window, row, name, flags[row]) for row in slow]
    return [finding for finding in findings if finding is not None]


def narrow_gpu(window: Window, row: int, name: str, flags: Flags) -> Finding | None:
    gpus: Gpus = window.gpus
    span = latest(window.ports, flags, least=READINGS_LEAST)
    if span is None:
        return None
    now = float(np.nanmin(known_values(gpus, name)[row, span.cells]))
    could = float(np.nanmax(known_values(gpus, f"{name}_max")[row, span.cells]))
    what = "lanes" if name == "pcie_lanes" else "generation"
    from_ns, last_ns = times_of(window, span)
    evidence = Evidence(
        metric=gpus.metric(name),
        text=f"GPU {gpus.gpu[row]} of {gpus.host[row]}: PCIe {what} {now:g}; it can do {could:g}",
        value=now,
        unit="lanes" if name == "pcie_lanes" else "",
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
