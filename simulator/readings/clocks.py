"""The agent's `clock` source: how chronyd and the kernel say that a host's clock is kept."""

from __future__ import annotations

import numpy as np

from collector.contract.clocks import CHRONY, ERROR, KERNEL, OFFSET, PTP, SYNCHRONISED
from collector.contract.reason import UnreadReason
from simulator.interfaces.time_service import (
    FREQUENCY_SCALED,
    KEPT_ERROR_US,
    LOST_ERROR_US,
    ROOT_DELAY_S,
    ROOT_DISPERSION_S,
    SERVER,
    STRATUM,
    ahead_s,
    is_kept,
)
from simulator.readings.devices import DeviceSection
from simulator.readings.series import Rows, make_row, missing_row
from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Topology

SOURCE_INFO = "fabric_host_clock_source_info"
FREQUENCY = "fabric_host_clock_frequency_adjustment_ratio"


class ClockSection(DeviceSection):
    """The source on every host."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology.hosts)
        followed = {"by": CHRONY, "source": SERVER, "state": f"stratum {STRATUM}"}
        self._same_rows: Rows = (
            make_row(SYNCHRONISED, {"by": KERNEL}),
            make_row(ERROR, {"by": KERNEL}),
            make_row(FREQUENCY),
            make_row(SYNCHRONISED, {"by": CHRONY}),
            make_row(OFFSET, {"by": CHRONY}),
            make_row(ERROR, {"by": CHRONY}),
            make_row(SOURCE_INFO, followed),
            make_row(SOURCE_INFO, {"by": CHRONY, "state": "stratum 0"}),
            missing_row(make_row(SYNCHRONISED, {"by": PTP}), UnreadReason.ABSENT, "clock"),
        )

    def make_rows(self, host: int) -> Rows:  # noqa: ARG002 - the same on every host
        return self._same_rows

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:  # noqa: ARG002 - a section's
        """A clock that follows nothing has no offset."""
        kept, ahead = is_kept(snapshot), ahead_s(snapshot)
        synchronised = kept.astype(np.float64)
        one, none = np.ones(len(kept)), np.full(len(kept), np.nan)
        bound = np.abs(ahead) + ROOT_DISPERSION_S + ROOT_DELAY_S / 2
        self.show(
            [
                synchronised,
                np.where(kept, KEPT_ERROR_US, LOST_ERROR_US) / 1_000_000,
                one * (FREQUENCY_SCALED / (1 << 16) / 1_000_000),
                synchronised,
                np.where(kept, ahead, none),
                np.where(kept, bound, none),
                np.where(kept, one, none),
                np.where(kept, none, one),
                one,
            ]
        )
