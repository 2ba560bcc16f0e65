"""What was looked for and is not the cause, and why: only where there was data to look at. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from alerts.finding import Finding
from alerts.window import Things, Window
from collector.contract.verdict import LAYER_OF, Cause, Layer, Reason, RuledOut

NETWORK_CHECKS: tuple[tuple[Cause, tuple[str, ...], str], ...] = (
    (
        Cause.LOSSY_LINK,
        ("symbol_errors_total", "receive_errors_total", "sequence_naks_total"),
        "no port counted damaged or repeated packets beyond its limit",
    ),
    (Cause.LINK_FLAP, ("state", "link_downed_total", "up"), "no link of the job's hosts went down"),
    (
        Cause.PAUSE_STORM,
        ("receive_pause_frames_total", "transmit_wait_seconds_total", "transmit_wait_ticks_total"),
        "no receiver held back its senders by itself",
    ),
    (
        Cause.CONGESTION,
        ("receive_ecn_marked_packets_total", "transmit_wait_seconds_total", "queue_depth_bytes"),
        "no queue stood longer than usual",
    ),
)
COMPUTE_CHECKS: tuple[tuple[Reason, str, tuple[str, ...], str], ...] = (
    (Reason.GPU_THROTTLED, "gpus", ("sm_clock_hertz",), "no GPU ran slower than its peers"),
    (
        Reason.GPU_ERROR,
        "gpus",
        ("ecc_corrected_errors_total", "xid_errors_total"),
        "no GPU reported errors",
    ),
    (
        Reason.HOST_STALL,
        "hosts",
        ("cpu_seconds_total:steal", "pressure_io_stalled_seconds_total"),
        "no host's CPUs, memory or disks were held up",
    ),
)
NAMES = {"gpus": "GPU", "hosts": "host"}
"""What is looked for, the readings that would show it, and what their silence means."""


def ruled_out(
    window: Window, root: Finding, symptoms: Sequence[Finding], findings: Sequence[Finding]
) -> Iterator[RuledOut]:
    """Everything that had data, would explain the same, and was not found."""
    said: set[str] = {str(root.cause), str(root.reason)}
    for one in (root, *symptoms):
        for each in one.ruled_out:
            if each.what not in said:
                said.add(each.what)
                yield each
    if LAYER_OF[root.cause] is not Layer.COMPUTE:
        for cause, readings, why in NETWORK_CHECKS:
            count = read(window.ports, readings)
            if count and str(cause) not in said and not any(one.cause is cause for one in findings):
                yield RuledOut(what=str(cause), why=f"{why} ({counted(count, 'port')})")
    if LAYER_OF[root.cause] is not Layer.NETWORK:
        for reason, kind, readings, why in COMPUTE_CHECKS:
            count = read(getattr(window, kind), readings)
            found = any(one.reason is reason for one in findings)
            if count and str(reason) not in said and not found:
                yield RuledOut(what=str(reason), why=f"{why} ({counted(count, NAMES[kind])})")


def counted(count: int, thing: str) -> str:
    """How many were looked at.

    >>> counted(1, "GPU"), counted(12, "port")
    ('1 GPU was read', '12 ports were read')
    """
    return f"1 {thing} was read" if count == 1 else f"{count} {thing}s were read"


def read(things: Things, readings: Sequence[str]) -> int:
    """How many things have any of these readings with any value."""
    rows: set[int] = set()
    for name in readings:
        found = things.readings.get(name)
        if found is not None:
            rows.update(found.row[~np.isnan(found.values).all(axis=1)].tolist())
    return len(rows)
