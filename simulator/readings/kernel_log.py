"""The agent's `kernel_log` source: what a host's kernel says of NICs whose firmware has stopped.

The words are a copy of the agent's table; tests hold them against an agent on the simulated trees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.contract.kernel import (
    AGE,
    COMPONENT,
    COUNT,
    KERNEL_MESSAGE,
    MESSAGE,
    MESSAGES,
    NETDEV,
    SEVERITY,
)
from collector.contract.model import Event
from simulator.interfaces.kernel_lines import nic_address, nic_lines
from simulator.readings.series import Rows, make_row
from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Floats, Topology

RECORDS = "fabric_host_kernel_log_records_total"
DROPPED = "fabric_host_kernel_log_dropped_total"
AGAIN_SECONDS = 30.0
"""From one event about a dead NIC to the next."""
DEAD, ALIVE = "nic_firmware_dead", "nic_recovered"
SEVERITIES = {DEAD: "fatal", ALIVE: "warning"}
WORDS = {
    DEAD: "has stopped: its firmware failed. The port may still be up, and carries nothing; drain "
    "the host; reset the NIC (`mlxfwreset`) or power-cycle the host; update the firmware if it "
    "happens again",
    ALIVE: "works again: its driver has reset it. Connections that were open over it are lost; "
    "restart the job that used it; drain the host if it happens again",
}
"""The agent's sentences, after the name of the NIC."""
DETAILS = {DEAD: "1", ALIVE: ""}


class KernelSection:
    """The source on every host."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._was_dead: Bools = np.zeros(topology.nics, dtype=np.bool_)
        self._since_s: dict[int, float] = {}
        self._told_s: dict[int, float] = {}
        self._counts: list[dict[tuple[int, str], int]] = [{} for _ in range(topology.hosts)]
        """Of each host, by NIC and kind."""
        self._records = np.zeros(topology.hosts)
        self._rows: list[Rows | None] = [None] * topology.hosts
        self._events: dict[int, list[Event]] = {}

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        self._events = {}
        dead, seen = snapshot.world.nic_is_dead, is_read[snapshot.world.nic_host]
        for nic in np.flatnonzero(seen & (dead != self._was_dead)).tolist():
            self._note(snapshot, nic, DEAD if dead[nic] else ALIVE)
        for nic in np.flatnonzero(seen & dead & self._was_dead).tolist():
            if snapshot.time_s - self._told_s[nic] >= AGAIN_SECONDS:
                self._tell(snapshot, nic, DEAD, count=1)
        self._was_dead = np.where(seen, dead, self._was_dead)

    def _note(self, snapshot: Snapshot, nic: int, kind: str) -> None:
        host = nic // self._topology.nics_per_host
        counts, lines = self._counts[host], nic_lines(self._topology, nic, is_dead=kind == DEAD)
        if (nic, kind) not in counts:
            self._rows[host] = None
        counts[nic, kind] = counts.get((nic, kind), 0) + len(lines)
        self._records[host] += len(lines)
        self._since_s[nic] = snapshot.time_s
        self._tell(snapshot, nic, kind, count=1)

    def _tell(self, snapshot: Snapshot, nic: int, kind: str, *, count: int) -> None:
        topology = self._topology
        host, device = nic // topology.nics_per_host, topology.device_name(nic)
        line = nic_lines(topology, nic, is_dead=kind == DEAD)[0]
        self._told_s[nic] = snapshot.time_s
        attributes = {
            MESSAGE: kind,
            COMPONENT: "nic",
            SEVERITY: SEVERITIES[kind],
            COUNT: str(count),
            AGE: f"{snapshot.time_s - self._since_s[nic]:.0f}",
            NETDEV: topology.interface_name(nic),
            "line": line,
            "pci": nic_address(topology, nic),
            "detail": DETAILS[kind],
        }
        event = Event(
            kind=KERNEL_MESSAGE,
            time_ns=int(snapshot.host_unix_ns(host, snapshot.time_s)),
            labels={"device": device},
            message=f"NIC {device} {WORDS[kind]}. The kernel: {line}",
            attributes={name: value for name, value in attributes.items() if value},
        )
        self._events.setdefault(host, []).append(event)

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:
        """Counts begin anew; a host that has booted starts its NICs."""
        size = self._topology.nics_per_host
        for host in started:
            self._counts[host], self._rows[host] = {}, None
            self._records[host] = 0
        for host in booted:
            self._was_dead[host * size : (host + 1) * size] = False

    def rows(self, host: int) -> Rows:
        rows = self._rows[host]
        if rows is None:
            said = [
                make_row(
                    MESSAGES,
                    {
                        "kind": kind,
                        "component": "nic",
                        "severity": SEVERITIES[kind],
                        "device": self._topology.device_name(nic),
                    },
                )
                for nic, kind in self._counts[host]
            ]
            drops = [make_row(DROPPED, {"why": why}) for why in ("overwritten", "malformed")]
            rows = self._rows[host] = (make_row(RECORDS), *drops, *said)
        return rows

    def values(self, host: int) -> Floats:
        counts = list(self._counts[host].values())
        return np.array([self._records[host], 0.0, 0.0, *counts], dtype=np.float64)

    def events(self, host: int) -> list[Event]:
        return self._events.get(host, [])
