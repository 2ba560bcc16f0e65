"""The agent's `mounts` source: the one file system that all hosts share."""

from __future__ import annotations

import numpy as np

from simulator.interfaces.kernel import MOUNT, MOUNT_TYPE
from simulator.readings.devices import DeviceSection
from simulator.readings.series import Rows, make_row
from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Topology
from simulator.topology.world import STORAGE

_LABELS = {"storage": STORAGE, "mount": MOUNT, "filesystem": MOUNT_TYPE}
_READ = ("reads_total", "read_bytes_total", "read_response_seconds_total")
_WRITTEN = ("writes_total", "written_bytes_total", "write_response_seconds_total")
_STILL = (
    *("read_queue_seconds_total", "write_queue_seconds_total", "other_operations_total"),
    *("other_response_seconds_total", "retransmissions_total", "timeouts_total"),
)
"""Metrics that are 0 on every host."""
MS_PER_SECOND = 1000.0


class MountSection(DeviceSection):
    """The source on every host."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology.hosts)
        rows = [make_row(f"fabric_mount_{name}", _LABELS) for name in (*_READ, *_WRITTEN, *_STILL)]
        self._same_rows: Rows = (*rows, make_row("fabric_mount_left_out"))

    def make_rows(self, host: int) -> Rows:  # noqa: ARG002 - the same on every host
        return self._same_rows

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:  # noqa: ARG002 - a section's
        hosts = snapshot.hosts
        zero = np.zeros(len(hosts.mount_reads))
        self.show(
            [
                hosts.mount_reads,
                hosts.mount_read_bytes,
                hosts.mount_response_ms / MS_PER_SECOND,
                hosts.mount_writes,
                hosts.mount_written_bytes,
                hosts.mount_write_response_ms / MS_PER_SECOND,
                *(zero for _ in (*_STILL, "left_out")),
            ]
        )
