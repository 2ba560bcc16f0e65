"""What NVIDIA's UFM answers about a simulated fabric, as pages of a captured tree.

    root/http/<https://ufm/ufmRestV3/resources/ports, quoted>     every port, with state and rate
    root/http/<https://ufm/ufmRestV3/resources/links, quoted>     every link that is up
    root/http/<https://ufm/ufmRestV3/app/events, quoted>          links that went down and came back
    root/http/<https://ufm/ufmRestV3/app/alarms, quoted>          links that are down
    root/http/<http://ufm:9001/csv/metrics, quoted>               counters of every port

An agent with ``--root`` whose `ib_fabric` asks UFM (`SETTINGS`) is given these. Shapes are those of
the UFM Enterprise REST API Guide 6.19 and of UFM Telemetry's CSV. UFM shows less than the fabric's
own programs: no length of a tick (so no time that ports waited), no chip, no reasons of discards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from collector.contract.units import NS
from simulator.interfaces.infiniband_diags import EXTENDED
from simulator.interfaces.infiniband_switches import InfinibandReadings, PortStates
from simulator.interfaces.snmp import replace_file
from simulator.interfaces.switch_tables import HcaPorts
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Topology

REST = "https://ufm"
PAGE = "http://ufm:9001/csv/metrics"
TOKEN_FILE = "etc/fabricscope/ufm.token"  # noqa: S105 - where it is, not what it is
SETTINGS = {
    "enabled": True,
    "ufm_rest": REST,
    "ufm_url": PAGE,
    "ufm_token_file": f"/{TOKEN_FILE}",
}
"""Of `ib_fabric` in an agent that sees the cluster through UFM alone."""
EVENTS_MAX = 1_000
"""Events that stand in the answer, the latest: UFM keeps a bounded list too."""
WIDE_NAMES = {
    name: f"{name}Extended" if name.endswith(("Data", "Pkts")) else f"{name}Ext"
    for name in EXTENDED
}
"""UFM's names of the 64-bit counters."""


def unix_ns(snapshot: Snapshot) -> int:
    return snapshot.start_unix_ns + int(snapshot.time_s * NS)


class UfmAnswers:
    """UFM's answers about a fabric, from one snapshot to the next."""

    def __init__(self, topology: Topology, *, hcas: bool = False) -> None:
        """``hcas``: counters of HCAs' ports too, for a reader that is set to ask for them."""
        self._topology = topology
        self._readings = InfinibandReadings(topology)
        self._of_hcas = InfinibandReadings(topology, HcaPorts(topology)) if hcas else None
        self._was_up: Bools = np.ones(len(self._readings.ports.out), dtype=np.bool_)
        self._events: list[dict[str, Any]] = []
        self._event_id = 0

    def pages(self, snapshot: Snapshot) -> dict[str, bytes]:
        """What it answers now, by URL."""
        states, counters = self._readings.update(snapshot)
        self._note_changes(states, snapshot)
        answers = {
            "resources/ports": self._ports(states),
            "resources/links": self._links(states),
            "app/events": self._events[-EVENTS_MAX:],
            "app/alarms": self._alarms(states, snapshot),
        }
        pages = {
            f"{REST}/ufmRestV3/{path}": json.dumps(answer).encode()
            for path, answer in answers.items()
        }
        lines = self._counters(states, counters, snapshot)
        if self._of_hcas is not None:
            lines += self._hca_counters(*self._of_hcas.update(snapshot), snapshot)
        return pages | {PAGE: ("\n".join(lines) + "\n").encode()}

    # REST ----------------------------------------------------------------------------------------

    def _ports(self, states: PortStates) -> list[dict[str, Any]]:
        """`/resources/ports`: ports of switches; a switch that nothing reaches has none."""
        ports, topology, found = self._readings.ports, self._topology, []
        for position in np.flatnonzero(states.is_found).tolist():
            switch, number = int(ports.switch[position]), int(ports.number[position])
            name, is_up = topology.switches[switch].name, bool(states.is_up[position])
            guid = f"{topology.switch_guid(switch):016x}"
            entry: dict[str, Any] = {
                "name": f"{guid}_{number}",
                "guid": guid,
                "systemID": guid,
                "system_name": name,
                "number": number,
                "dname": str(number),
                "path": f"default / Switch: {name} / {number}",
                "node_description": f"{name}:{number}",
                "logical_state": "Active" if is_up else "Down",
                "physical_state": "Link Up" if is_up else "Polling",
                "severity": "Info" if is_up else "Warning",
            }
            if is_up:
                entry["active_speed"] = topology.speed.name
                entry["active_width"] = f"{int(states.lanes[position])}x"
            found.append(entry)
        return found + [self._hca_port(nic) for nic in range(topology.nics)]

    def _hca_port(self, nic: int) -> dict[str, Any]:
        """Of an HCA as it is named; its state stands at the switch's end too."""
        topology = self._topology
        guid = f"{topology.nic_guid(nic):016x}"
        host, device = topology.host_name(topology.host_of_nic(nic)), topology.device_name(nic)
        return {
            "name": f"{guid}_1",
            "guid": guid,
            "systemID": guid,
            "system_name": host,
            "number": 1,
            "dname": f"{device}/1",
            "path": f"default / Computer: {host} / {device} / 1",
            "node_description": f"{host} {device}",
        }

    def _links(self, states: PortStates) -> list[dict[str, Any]]:
        """`/resources/links`: each link once, from the end that comes first."""
        ports, topology, found = self._readings.ports, self._topology, []
        to_hca = topology.target_switch[ports.out] < 0
        own = np.flatnonzero(states.is_up & states.is_found & (to_hca | (ports.out < ports.back)))
        for position in own.tolist():
            near = f"{topology.switch_guid(int(ports.switch[position])):016x}"
            far, port = self._far_end(int(ports.back[position]))
            number = int(ports.number[position])
            found.append(
                {
                    "source_guid": near,
                    "source_port": str(number),
                    "destination_guid": far,
                    "destination_port": str(port),
                    "width": f"IB_{int(states.lanes[position])}x",
                    "severity": "Info",
                    "name": f"{near}_{number}:{far}_{port}",
                }
            )
        return found

    def _far_end(self, back: int) -> tuple[str, int]:
        topology, port = self._topology, int(self._topology.port[back])
        switch = int(topology.source_switch[back])
        if switch >= 0:
            return f"{topology.switch_guid(switch):016x}", port
        return f"{topology.nic_guid(int(topology.source[back]) % topology.nics):016x}", port

    def _note_changes(self, states: PortStates, snapshot: Snapshot) -> None:
        for position in np.flatnonzero(states.is_up != self._was_up).tolist():
            self._event_id += 1
            is_up = bool(states.is_up[position])
            what = "Link is Up" if is_up else "Link is Down"
            kind = {"category": "Fabric Topology", "type": "IBPort", "description": what}
            severity = "Info" if is_up else "Warning"
            entry = self._about(position, snapshot) | kind
            self._events.append(entry | {"id": self._event_id, "name": what, "severity": severity})
        self._was_up = states.is_up.copy()
        del self._events[:-EVENTS_MAX]

    def _alarms(self, states: PortStates, snapshot: Snapshot) -> list[dict[str, Any]]:
        down = np.flatnonzero(~states.is_up & states.is_found).tolist()
        facts = {"name": "Link is Down", "reason": "Link is down", "severity": "Warning"}
        return [
            self._about(position, snapshot) | facts | {"id": position + 1, "event_count": 1}
            for position in down
        ]

    def _about(self, position: int, snapshot: Snapshot) -> dict[str, Any]:
        ports, topology = self._readings.ports, self._topology
        switch, number = int(ports.switch[position]), int(ports.number[position])
        moment = datetime.fromtimestamp(unix_ns(snapshot) // NS, UTC)
        return {
            "object_name": f"{topology.switch_guid(switch):016x}_{number}",
            "object_path": f"default / Switch: {topology.switches[switch].name} / {number}",
            "timestamp": f"{moment:%Y-%m-%d %H:%M:%S}",
        }

    # Counters ------------------------------------------------------------------------------------

    def _counters(
        self, states: PortStates, counters: dict[str, Counts], snapshot: Snapshot
    ) -> list[str]:
        """UFM Telemetry's CSV: a line for each port of a switch that answers."""
        ports, topology = self._readings.ports, self._topology
        matrix = np.column_stack([counters[name] for name in EXTENDED]).tolist()
        head = ["timestamp", "node_guid", "port_num", "node_desc", "node_type"]
        lines = [",".join([*head, *(WIDE_NAMES[name] for name in EXTENDED)])]
        stamp = unix_ns(snapshot) // 1_000
        for position in np.flatnonzero(states.is_found).tolist():
            switch = int(ports.switch[position])
            place = (
                f"{stamp},0x{topology.switch_guid(switch):016x},{ports.number[position]},"
                f"{topology.switches[switch].name},2,"
            )
            lines.append(place + ",".join(map(str, matrix[position])))
        return lines

    def _hca_counters(
        self, states: PortStates, counters: dict[str, Counts], snapshot: Snapshot
    ) -> Iterator[str]:
        """Lines for the HCAs that the fabric reaches: not those whose cable is down."""
        topology, stamp = self._topology, unix_ns(snapshot) // 1_000
        matrix = np.column_stack([counters[name] for name in EXTENDED]).tolist()
        for nic in np.flatnonzero(states.is_up & states.is_found).tolist():
            host, device = topology.host_name(topology.host_of_nic(nic)), topology.device_name(nic)
            place = f"{stamp},0x{topology.nic_guid(nic):016x},1,{host} {device},1,"
            yield place + ",".join(map(str, matrix[nic]))


class UfmTree:
    """The answers below one root; `write` brings them up to a snapshot."""

    def __init__(self, root: Path, topology: Topology) -> None:
        self._root = root
        self._answers = UfmAnswers(topology)
        self._has_token = False

    def write(self, snapshot: Snapshot) -> None:
        if not self._has_token:
            self._write_token()
        for url, body in self._answers.pages(snapshot).items():
            replace_file(self._root / "http" / quote(url, safe=""), body)

    def _write_token(self) -> None:
        path = self._root / TOKEN_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("simulated\n", encoding="utf-8")
        (self._root / "http").mkdir(parents=True, exist_ok=True)
        self._has_token = True
