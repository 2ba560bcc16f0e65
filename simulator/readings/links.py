"""The agent's `links` source: a NIC's link went down, came up or changed its rate.

Its states are those of the ticks. An agent reads ten times a second, so an event's time is that of
the read that followed the change. A link that goes down and comes back between two ticks is
reported as a flap, where the port counts its downs: on InfiniBand, and not on Ethernet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from collector.contract.model import Event
from simulator.interfaces.columns import hca_columns, link_is_up, port_columns
from simulator.interfaces.fabric_tree import rate_text
from simulator.readings.devices import DeviceSection
from simulator.readings.series import Rows, make_row
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Topology

LOOKS_PER_SECOND = 10
PORT = "1"
WORDS = {True: "ACTIVE", False: "DOWN"}
"""Of the file `state`."""


class LinkSection(DeviceSection):
    """The source on every host."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology.hosts)
        self._topology = topology
        nics = topology.nics
        self._was_seen: Bools = np.zeros(nics, dtype=np.bool_)
        self._was_up: Bools = np.zeros(nics, dtype=np.bool_)
        self._rates: Counts = np.full((nics, 2), -1, dtype=np.int64)
        """Bits a second and lanes when the link was last seen up; -1 before that."""
        self._counted: Counts = np.full(nics, -1, dtype=np.int64)
        """The port's own count of downs, at the last read; -1 before the first."""
        self._early: Counts = np.zeros(nics, dtype=np.int64)
        """Downs that were reported and that the port has not counted yet."""
        self._downs: Counts = np.zeros(nics, dtype=np.int64)
        self._events: dict[int, list[Event]] = {}

    def make_rows(self, host: int) -> Rows:
        size = self._topology.nics_per_host
        return tuple(
            make_row(
                "fabric_port_downs_seen_total",
                {"device": self._topology.device_name(nic), "port": PORT},
            )
            for nic in range(host * size, (host + 1) * size)
        )

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:  # noqa: ARG002
        """The source keeps no state: its first read reports no change."""
        nic_host = np.arange(self._topology.nics) // self._topology.nics_per_host
        fresh = np.isin(nic_host, list(started))
        self._was_seen[fresh] = False
        self._rates[fresh] = self._counted[fresh] = -1
        self._early[fresh] = self._downs[fresh] = 0

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        self._events = {}
        is_seen: Bools = is_read[snapshot.world.nic_host]
        is_up = link_is_up(snapshot.world)
        reported = self._report_states(snapshot, is_seen, is_up)
        self._report_rates(snapshot, is_seen & is_up)
        self._report_flaps(snapshot, is_seen, reported)
        self._was_seen |= is_seen
        self._was_up = np.where(is_seen, is_up, self._was_up)
        self.show([self._downs])

    def _report_states(self, snapshot: Snapshot, is_seen: Bools, is_up: Bools) -> Counts:
        """Report links that are down or up again; returns the downs reported, for each NIC."""
        changed = is_seen & self._was_seen & (is_up != self._was_up)
        reported: Counts = (changed & ~is_up).astype(np.int64)
        self._downs += reported
        for nic in np.flatnonzero(changed).tolist():
            kind = "link_up" if is_up[nic] else "link_down"
            time_s = self._look_s(snapshot, kind, nic)
            words = WORDS[not is_up[nic]], WORDS[bool(is_up[nic])]
            self._change(snapshot, nic, kind, words, time_s)
        return reported

    def _report_rates(self, snapshot: Snapshot, is_reported: Bools) -> None:
        columns = port_columns(snapshot)
        rates = np.column_stack([columns["rate"], columns["lanes"]])
        before = self._rates
        changed = is_reported & (before[:, 0] >= 0) & (rates != before).any(axis=1)
        for nic in np.flatnonzero(changed).tolist():
            was, now = (
                rate_text(self._topology, int(rate), int(lanes), is_up=True)
                for rate, lanes in (before[nic], rates[nic])
            )
            if was != now:
                self._change(snapshot, nic, "link_rate", (was, now), snapshot.time_s)
        self._rates = np.where(is_reported[:, np.newaxis], rates, before)

    def _report_flaps(self, snapshot: Snapshot, is_seen: Bools, reported: Counts) -> None:
        """Report downs that the port has counted and no read has seen."""
        counted = hca_columns(snapshot)["counters/link_downed"]
        grown = np.where(self._counted >= 0, np.maximum(counted - self._counted, 0), 0)
        known = reported + self._early
        early = np.minimum(reported, np.maximum(0, known - grown))
        flaps = np.where(is_seen, np.maximum(grown - known, 0), 0)
        self._early = np.where(is_seen, early, self._early)
        self._counted = np.where(is_seen, counted, self._counted)
        self._downs += flaps
        for nic in np.flatnonzero(flaps).tolist():
            times = f"{flaps[nic]} time{'' if flaps[nic] == 1 else 's'}"
            message = f"{self._title(nic)} went down and came back {times} between two looks"
            attributes = {"flaps": str(flaps[nic]), "seen_by": "sysfs"}
            self._add(snapshot, nic, "link_flap", message, attributes, snapshot.time_s)

    # One event -----------------------------------------------------------------------------------

    def _look_s(self, snapshot: Snapshot, kind: str, nic: int) -> float:
        """The time of the first read after the change, not after this tick."""
        ends = {self._topology.up(nic), self._topology.down(nic)}
        happened = (each for each in snapshot.happenings if each.kind == kind)
        moments = [each.time_s for each in happened if each.link in ends]
        if not moments:
            return snapshot.time_s
        look_s = math.ceil(max(moments) * LOOKS_PER_SECOND) / LOOKS_PER_SECOND
        return min(look_s, snapshot.time_s)

    def _change(
        self, snapshot: Snapshot, nic: int, kind: str, words: tuple[str, str], time_s: float
    ) -> None:
        was, now = words
        message = f"{self._title(nic)} went from {was} to {now}"
        attributes = {"from": was, "to": now, "seen_by": "sysfs"}
        self._add(snapshot, nic, kind, message, attributes, time_s)

    def _add(
        self,
        snapshot: Snapshot,
        nic: int,
        kind: str,
        message: str,
        attributes: dict[str, str],
        time_s: float,
    ) -> None:
        topology = self._topology
        host = topology.host_of_nic(nic)
        event = Event(
            kind=kind,
            time_ns=int(snapshot.host_unix_ns(host, time_s)),
            labels={
                "device": topology.device_name(nic),
                "port": PORT,
                "netdev": topology.interface_name(nic),
            },
            message=message,
            attributes=attributes,
        )
        self._events.setdefault(host, []).append(event)

    def _title(self, nic: int) -> str:
        return f"{self._topology.device_name(nic)} port {PORT}"

    def events(self, host: int) -> list[Event]:
        return self._events.get(host, [])
