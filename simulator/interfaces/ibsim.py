"""InfiniBand switches and HCAs that answer management datagrams: input of the real ibsim.

ibsim reads a topology once (`topology_text`, the format of `ibnetdiscover`) and then takes console
commands: `commands` gives those that bring its counters and links from the last snapshot to this
one. Its clients (`perfquery`, `ibqueryerrors`, `opensm`) see no difference to a real fabric.

Limits of ibsim 0.10: it has no speed above HDR, so faster fabrics claim HDR, and their switches'
ticks of waiting are those of HDR, so that seconds come out right; a port's speed and width stay as
built; error counters have 8 to 32 bits and stop at their end, as IBTA wants, without wide ones
beside them: ticks are full after 1.4 s of waiting. It counts the datagrams themselves too. It
carries out some ten thousand commands a second: a thousand busy ports take one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collector.contract.errors import SettingsError
from simulator.interfaces.columns import SUBNET_MANAGER_LID, hca_columns
from simulator.interfaces.infiniband_switches import counted, ticks_at
from simulator.interfaces.switch_tables import Ports, Readings
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import SPEEDS, Bools, Speed, Topology

NODES_MAX = 2048
SWITCHES_MAX = 256
PORTS_MAX = 13_312
"""ibsim's tables. A switch takes a port more than it has, for itself."""
KNOWN_SPEEDS = ("SDR", "DDR", "QDR", "FDR", "EDR", "HDR")
FASTEST_KNOWN = "HDR"
NVIDIA = 0x2C9
QUANTUM_2, CONNECTX_7 = 0xD2F2, 0x1021
"""Vendor and device numbers that tools print."""

COUNTER_WIDTHS = {
    "PortCountersExtended.PortXmitData": 63,
    "PortCountersExtended.PortRcvData": 63,
    "PortCountersExtended.PortXmitPkts": 63,
    "PortCountersExtended.PortRcvPkts": 63,
    "PortCountersExtended.PortUnicastXmitPkts": 63,
    "PortCountersExtended.PortUnicastRcvPkts": 63,
    "PortCounters.SymbolErrorCounter": 16,
    "PortCounters.LinkErrorRecoveryCounter": 8,
    "PortCounters.LinkDownedCounter": 8,
    "PortCounters.PortRcvErrors": 16,
    "PortCounters.PortXmitDiscards": 16,
    "PortCounters.PortXmitWait": 32,
}
"""ibsim's names of the counters that are set, and bits; cut here, so that a counter at its end is
not set again at every tick."""
HCA_NAMES = {
    "PortCountersExtended.PortXmitData": "port_xmit_data",
    "PortCountersExtended.PortRcvData": "port_rcv_data",
    "PortCountersExtended.PortXmitPkts": "port_xmit_packets",
    "PortCountersExtended.PortRcvPkts": "port_rcv_packets",
    "PortCountersExtended.PortUnicastXmitPkts": "unicast_xmit_packets",
    "PortCountersExtended.PortUnicastRcvPkts": "unicast_rcv_packets",
    "PortCounters.SymbolErrorCounter": "symbol_error",
    "PortCounters.LinkErrorRecoveryCounter": "link_error_recovery",
    "PortCounters.LinkDownedCounter": "link_downed",
    "PortCounters.PortRcvErrors": "port_rcv_errors",
    "PortCounters.PortXmitDiscards": "port_xmit_discards",
    "PortCounters.PortXmitWait": "port_xmit_wait",
}
"""The same by the names of files below /sys: both must show the same values of an HCA."""


def switch_id(topology: Topology, switch: int) -> str:
    return f"S-{topology.switch_guid(switch):016x}"


def hca_id(topology: Topology, nic: int) -> str:
    """The name for an HCA in ibsim; clients attach to it by this name (SIM_HOST)."""
    return f"H-{topology.nic_guid(nic):016x}"


def switch_lid(switch: int) -> int:
    """The address that a subnet manager gives to a switch; the manager itself has the first."""
    return SUBNET_MANAGER_LID + 1 + switch


def hca_lid(topology: Topology, nic: int) -> int:
    """The address of an HCA's port: after those of the switches."""
    return switch_lid(len(topology.switches)) + nic


def claimed_speed(topology: Topology) -> Speed:
    """The speed that ports report: the fabric's, or the fastest that ibsim knows."""
    name = topology.speed.name
    return SPEEDS[name if name in KNOWN_SPEEDS else FASTEST_KNOWN]


# The topology -----------------------------------------------------------------------------------


def topology_text(topology: Topology) -> str:
    ports = Ports(topology)
    _check_size(topology, ports)
    claimed = claimed_speed(topology)
    speed = f"{claimed.lanes}x{claimed.name}"
    blocks = [
        _switch_text(topology, ports, switch, speed) for switch in range(len(topology.switches))
    ]
    blocks += [_hca_text(topology, nic, speed) for nic in range(topology.nics)]
    return "\n".join(blocks)


def _check_size(topology: Topology, ports: Ports) -> None:
    """Raise SettingsError about the cluster's size before ibsim fails with one about its tables."""
    switches = len(topology.switches)
    slots = sum(_size(ports, switch) + 1 for switch in range(switches)) + topology.nics
    for what, found, most in (
        ("nodes", switches + topology.nics, NODES_MAX),
        ("switches", switches, SWITCHES_MAX),
        ("ports", slots, PORTS_MAX),
    ):
        if found > most:
            raise SettingsError(
                f"{topology.name}: {found} {what} are more than the {most} that ibsim holds; take"
                " fewer hosts"
            )


def _size(ports: Ports, switch: int) -> int:
    """The number of ports of a switch, with unused ones below its last."""
    return int(ports.number[ports.of_switch(switch).stop - 1])


def _switch_text(topology: Topology, ports: Ports, switch: int, speed: str) -> str:
    guid = topology.switch_guid(switch)
    name, address = topology.switches[switch].name, switch_lid(switch)
    note = f'"{name}" enhanced port 0 lid {address} lmc 0'
    lines = [
        f"vendid={NVIDIA:#x}",
        f"devid={QUANTUM_2:#x}",
        f"sysimgguid={guid:#x}",
        f"switchguid={guid:#x}({guid:x})",
        f'Switch\t{_size(ports, switch)} "{switch_id(topology, switch)}"\t\t# {note}',
    ]
    for position in ports.of_switch(switch):
        back = int(ports.back[position])
        other = int(topology.source_switch[back])
        if other >= 0:
            far = f'"{switch_id(topology, other)}"[{topology.port[back]}]'
            note = f'"{topology.switches[other].name}" lid {switch_lid(other)}'
        else:
            nic = int(topology.source[back]) % topology.nics
            far = f'"{hca_id(topology, nic)}"[1]({topology.nic_guid(nic):x})'
            note = f'"{_hca_name(topology, nic)}" lid {hca_lid(topology, nic)}'
        lines.append(f"[{ports.number[position]}]\t{far}\t\t# {note} {speed}")
    return "\n".join(lines) + "\n"


def _hca_text(topology: Topology, nic: int, speed: str) -> str:
    guid, down = topology.nic_guid(nic), topology.down(nic)
    leaf = int(topology.source_switch[down])
    return (
        f"vendid={NVIDIA:#x}\ndevid={CONNECTX_7:#x}\nsysimgguid={guid:#x}\ncaguid={guid:#x}\n"
        f'Ca\t1 "{hca_id(topology, nic)}"\t\t# "{_hca_name(topology, nic)}"\n'
        f'[1]({guid:x}) \t"{switch_id(topology, leaf)}"[{topology.port[down]}]'
        f"\t\t# lid {hca_lid(topology, nic)} lmc 0"
        f' "{topology.switches[leaf].name}" lid {switch_lid(leaf)} {speed}\n'
    )


def _hca_name(topology: Topology, nic: int) -> str:
    """The node description that the kernel sets: host and device."""
    return f"{topology.host_name(topology.host_of_nic(nic))} {topology.device_name(nic)}"


# Commands ---------------------------------------------------------------------------------------


class Console:
    """The console commands for ibsim, tick by tick. Ports are those of switches, then the HCAs'."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._readings = Readings(topology)
        ports = self._readings.ports
        self._names = [
            f'"{switch_id(topology, int(switch))}"[{number}]'
            for switch, number in zip(ports.switch, ports.number, strict=True)
        ]
        self._names += [f'"{hca_id(topology, nic)}"[1]' for nic in range(topology.nics)]
        self._counted: Counts = np.zeros((len(COUNTER_WIDTHS), len(self._names)), dtype=np.int64)
        # A cable has one end where it is cut: its switch's, or one of its two switches'.
        to_hca = topology.target_switch[ports.out] < 0
        self._ends = np.flatnonzero(to_hca | (ports.out < ports.back))
        self._was_up: Bools = np.ones(len(self._ends), dtype=np.bool_)

    def commands(self, snapshot: Snapshot) -> list[str]:
        """The commands that make ibsim's fabric equal the snapshot's; only changes.

        A link that comes back waits for the subnet manager's next sweep, as a real one does.
        """
        return [*self._link_commands(snapshot), *self._counter_commands(snapshot)]

    def _link_commands(self, snapshot: Snapshot) -> Iterator[str]:
        ports, link_up = self._readings.ports, snapshot.world.link_up
        is_up = link_up[ports.out[self._ends]] & link_up[ports.back[self._ends]]
        for end in np.flatnonzero(is_up != self._was_up):
            yield f"{'ReLink' if is_up[end] else 'Unlink'} {self._names[self._ends[end]]}"
        self._was_up = is_up

    def _counter_commands(self, snapshot: Snapshot) -> Iterator[str]:
        of_switches, of_hcas = self._switch_counters(snapshot), hca_columns(snapshot)
        fresh = np.empty_like(self._counted)
        for row, (name, bits) in enumerate(COUNTER_WIDTHS.items()):
            both = (of_switches[name], of_hcas[f"counters/{HCA_NAMES[name]}"])
            fresh[row] = np.minimum(np.concatenate(both), (1 << bits) - 1)
        names = list(COUNTER_WIDTHS)
        for row, port in np.argwhere(fresh != self._counted):
            yield f"PerformanceSet {self._names[port]} {names[row]}={fresh[row, port]}"
        self._counted = fresh

    def _switch_counters(self, snapshot: Snapshot) -> dict[str, Counts]:
        ports = self._readings.ports
        columns = counted(snapshot, ports, self._readings.update(snapshot))
        rate = claimed_speed(snapshot.topology).bits_per_second
        ticks = ticks_at(snapshot.links.wait_ns[ports.out], rate)
        columns["PortXmitWait"] = ticks.astype(np.int64)
        return {name: columns[name.partition(".")[2]] for name in COUNTER_WIDTHS}
