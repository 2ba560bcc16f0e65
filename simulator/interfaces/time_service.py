"""What chronyd and the kernel of a simulated host say of its clock.

chronyd measures its clock against its server: a server that is wrong itself makes a clock wrong
that looks right. The line is that of `chronyc -c -n tracking` (chrony 4.3).
"""

from __future__ import annotations

import numpy as np

from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Floats

SERVER, STRATUM = "10.255.0.1", 3
ROOT_DELAY_S, ROOT_DISPERSION_S = 0.0002, 0.0004
"""Of a time server in the same building."""
FREQUENCY_SCALED = -1_311_768
"""The quartz is 20 ppm fast, in the kernel's 2^-16 ppm."""
KEPT_ERROR_US, LOST_ERROR_US = 1_500, 16_000_000
"""`maxerror` of a clock that chronyd keeps, and the kernel's most, where nothing does."""
CHRONY_DIGITS = 9
LOST_LINE = (
    "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,"
    "1.000000000,1.000000000,0.0,Not synchronised\n"
)


def is_kept(snapshot: Snapshot) -> Bools:
    """Hosts whose chronyd follows a server."""
    kept: Bools = ~snapshot.world.host_time_service_is_lost
    return kept


def ahead_s(snapshot: Snapshot) -> Floats:
    """How far each clock is ahead of its server's time, as chronyd prints it."""
    ahead: Floats = np.round(
        snapshot.clock_offset_s - snapshot.world.host_time_server_off_s, CHRONY_DIGITS
    )
    return ahead


def tracking_lines(snapshot: Snapshot) -> list[str]:
    """Of every host."""
    return [
        f"0AFF0001,{SERVER},{STRATUM},1763000000.000000000,{-ahead:.9f},0.000000100,0.000000300,"
        f"20.017,0.001,0.020,{ROOT_DELAY_S:.9f},{ROOT_DISPERSION_S:.9f},64.0,Normal\n"
        if kept
        else LOST_LINE
        for ahead, kept in zip(ahead_s(snapshot).tolist(), is_kept(snapshot).tolist(), strict=True)
    ]


def kernel_lines(snapshot: Snapshot) -> list[str]:
    """What adjtimex answers on every host, as a captured tree records it."""
    return [
        f"state=0 maxerror={KEPT_ERROR_US} freq={FREQUENCY_SCALED}\n"
        if kept
        else f"state=5 maxerror={LOST_ERROR_US} freq={FREQUENCY_SCALED}\n"
        for kept in is_kept(snapshot).tolist()
    ]
