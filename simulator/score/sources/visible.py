"""Whether a fault shows in what a source gave of the fabric: only then it can be missed.

By the numbers themselves, at the culprit's own ports: a cable whose errors arrive at a NIC moves no
counter of the switch at its other end, through any source that asks switches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from alerts.signals.ports import ACTIVE
from alerts.window.columns import Floats
from alerts.window.model import Ports
from collector.contract.culprit import Culprit

Moves = Callable[[Floats], bool]


def counts(values: Floats) -> bool:
    """A counter that stands still at a healthy port."""
    return bool((np.nan_to_num(values) > 0).any())


def is_down(values: Floats) -> bool:
    return bool((values < ACTIVE).any())


def changes(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return bool(len(known)) and bool(known.min() < known.max())


DEEP_BYTES = 1e6
"""As `alerts.signals.inflow.QUEUE_LEAST`."""


def is_deep(values: Floats) -> bool:
    return bool((np.nan_to_num(values) >= DEEP_BYTES).any())


ERRORS: dict[str, Moves] = {
    "receive_crc_errors_total": counts,
    "receive_errors_total": counts,
    "symbol_errors_total": counts,
}
PAUSES: dict[str, Moves] = {
    "receive_pause_frames_total": counts,
    "transmit_pause_frames_total": counts,
    # InfiniBand's: UFM reports ticks alone, and not how long one is.
    "transmit_wait_seconds_total": counts,
    "transmit_wait_ticks_total": counts,
}
QUEUES: dict[str, Moves] = {
    "queue_depth_bytes": is_deep,
    "queue_peak_bytes": is_deep,
    "queue_ecn_marked_packets_total": counts,
}
DROPS: dict[str, Moves] = {
    "transmit_discards_total": counts,
    "queue_discarded_packets_total": counts,
}
LOADS: dict[str, Moves] = {"transmit_bytes_total": counts}

SHOWS_IN: dict[str, dict[str, Moves]] = {
    "bad_cable": ERRORS,
    "buffer_pressure": QUEUES | PAUSES,
    "ecmp_polarised": LOADS,
    "incast": QUEUES | PAUSES,
    "link_flap": {"state": is_down, "carrier_changes_total": counts},
    "pcie_downtrain": PAUSES,
    "pfc_misconfigured": DROPS,
    "rate_downgrade": {"rate_bits_per_second": changes},
    "slow_nic": PAUSES,
    "slow_receiver": PAUSES,
    "spine_loss": ERRORS | DROPS,
    "storage_neighbour": LOADS,
    "storage_reads": LOADS,
    "storage_writes": LOADS,
}
"""What each fault moves at its culprit's ports of switches, if they count it."""


def shown_at(fault: str, ports: Ports, culprits: Iterable[Culprit]) -> set[str]:
    """Readings at the culprits' ports, of switches and of NICs, that show it in this window."""
    wanted = {(each.switch, each.switch_port) for each in culprits if each.switch}
    nics = {(each.host, each.device) for each in culprits if each.device}
    rows = [
        row
        for row, is_switch in enumerate(ports.is_switch.tolist())
        if (
            (ports.host[row], ports.port[row]) in wanted or (ports.host[row], "") in wanted
            if is_switch
            else (ports.host[row], ports.device[row]) in nics
        )
    ]
    found = set()
    for name, moves in SHOWS_IN.get(fault, {}).items():
        readings = ports.readings.get(name)
        if readings is not None and moves(readings.values[np.isin(readings.row, rows)]):
            found.add(name)
    return found
