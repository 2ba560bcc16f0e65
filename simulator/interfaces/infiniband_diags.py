"""What the programs of infiniband-diags print of a simulated fabric, as files of a captured tree.

    root/commands/iblinkinfo -t 200 -l --switches-only     every link of every switch
    root/commands/ibnetdiscover -t 200                     every node
    root/commands/perfquery -t 200 -x -l 2 1,2,3           the counters of a switch's ports
    root/commands/perfquery -t 200 -c 2 1                  how long its tick is
    root/commands/sminfo -t 200                            who manages the subnet

An agent with ``--root`` that asks the fabric (`ib_fabric`) is given these. Beside ibsim they know
every speed, lanes that were lost, and the wide counters of Quantum's chips. What became of discards
(`perfquery -D`) is not there: a fabric that waits for credits discards nothing.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

import numpy as np

from simulator.interfaces.columns import SUBNET_MANAGER_LID
from simulator.interfaces.ibsim import (
    CONNECTX_7,
    NVIDIA,
    QUANTUM_2,
    hca_id,
    hca_lid,
    switch_id,
    switch_lid,
)
from simulator.interfaces.infiniband_switches import TICK_BYTES, InfinibandReadings, PortStates
from simulator.interfaces.snmp import replace_file
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Topology

SUBNET_MANAGER_GUID = 0xFAB5_0000_0000_0001
ANSWER_MILLISECONDS = 200
"""Default timeout that an agent gives a switch; it is part of a command line."""
NAME_CHARS_MAX, NAME_CHARS_KEPT = 200, 180
"""Of a recorded command's file name: longer ones are cut, with a digest behind them."""
NAME_WIDTH = 30
"""Of a node's name in `iblinkinfo`."""
LINE_GIGABITS = {"EDR": "25.78125", "HDR": "53.125", "NDR": "106.25", "XDR": "212.5"}
"""Of a lane on the wire, as programs print it."""
CAPABILITIES = 0x5300
"""Quantum-2's capability mask: extended counters and PortXmitWait are valid."""
VALUE_COLUMN = 33
"""Where perfquery's values begin."""
SILENCE = "/usr/sbin/perfquery: iberror: failed: classportinfo query\n"
UNREACHED = "ibwarn: mad_rpc: _do_madrpc failed; dport (Lid {lid})\n"

EXTENDED = (
    *("PortXmitData", "PortRcvData", "PortXmitPkts", "PortRcvPkts"),
    *("PortUnicastXmitPkts", "PortUnicastRcvPkts"),
    *("PortMulticastXmitPkts", "PortMulticastRcvPkts"),
    *("SymbolErrorCounter", "LinkErrorRecoveryCounter", "LinkDownedCounter"),
    *("PortRcvErrors", "PortRcvRemotePhysicalErrors", "PortRcvSwitchRelayErrors"),
    *("PortXmitDiscards", "PortXmitConstraintErrors", "PortRcvConstraintErrors"),
    *("LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors", "VL15Dropped"),
    *("PortXmitWait", "QP1Dropped"),
)
"""In the order in which perfquery prints them."""


def recorded_as(*words: str) -> str:
    """The name of the file that holds what a command printed.

    >>> recorded_as("perfquery", "-t", "200", "-c", "2", "1")
    'perfquery -t 200 -c 2 1'
    """
    name = quote(" ".join(words), safe=" ,:=+")
    if len(name) > NAME_CHARS_MAX:
        digest = blake2b(name.encode(), digest_size=8).hexdigest()
        name = f"{name[:NAME_CHARS_KEPT]}-{digest}"
    return name


class DiagsOutputs:
    """The outputs of a fabric below one root; `write` brings them up to a snapshot."""

    def __init__(self, root: Path, topology: Topology) -> None:
        self._folder = root / "commands"
        self._topology = topology
        self._readings = InfinibandReadings(topology)
        self._has_nodes = False

    def write(self, snapshot: Snapshot) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        states, counters = self._readings.update(snapshot)
        if not self._has_nodes:
            # The nodes, also those cut off later: an agent asks once.
            self._write(self._nodes(), "ibnetdiscover")
            for switch in range(len(self._topology.switches)):
                lid = switch_lid(switch)
                self._write(_tick_text(lid), "perfquery", "-c", str(lid), "1")
            self._has_nodes = True
        self._write(_manager_text(snapshot.time_s), "sminfo")
        self._write(self._links(states), "iblinkinfo", "-l", "--switches-only")
        self._write_counters(states, counters)

    def _write(self, text: str, program: str, *arguments: str) -> None:
        name = recorded_as(program, "-t", str(ANSWER_MILLISECONDS), *arguments)
        replace_file(self._folder / name, text.encode())

    # Links ---------------------------------------------------------------------------------------

    def _links(self, states: PortStates) -> str:
        """`iblinkinfo -l --switches-only`: a switch that nothing reaches is not in it."""
        ports, topology = self._readings.ports, self._topology
        speed, lines = topology.speed, []
        columns = (states.is_found, states.is_up, states.lanes, states.is_degraded)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for position, (is_found, is_up, lanes, is_degraded) in enumerate(rows):
            if not is_found:
                continue
            switch, number = int(ports.switch[position]), int(ports.number[position])
            guid, name = topology.switch_guid(switch), topology.switches[switch].name
            near = f'0x{guid:016x} "{name:>{NAME_WIDTH}}" {switch_lid(switch):6} {number:4}[  ] '
            if not is_up:
                lines.append(f'{near}==(                Down/ Polling)==>             [  ] "" ( )')
                continue
            could_be = f"Could be {speed.lanes}X " if is_degraded else " "
            how = f"{lanes:2}X {LINE_GIGABITS[speed.name]:>13} Gbps Active/  LinkUp"
            far = self._far_end(int(ports.back[position]))
            lines.append(f"{near}==({how})==>  {far} ({could_be})")
        return "".join(f"{line}\n" for line in lines)

    def _far_end(self, back: int) -> str:
        topology, port = self._topology, int(self._topology.port[back])
        switch = int(topology.source_switch[back])
        if switch >= 0:
            guid, lid = topology.switch_guid(switch), switch_lid(switch)
            name = topology.switches[switch].name
        else:
            nic = int(topology.source[back]) % topology.nics
            guid, lid, name = topology.nic_guid(nic), hca_lid(topology, nic), self._hca_name(nic)
        return f'0x{guid:016x} {lid:6} {port:4}[  ] "{name}"'

    def _hca_name(self, nic: int) -> str:
        topology = self._topology
        return f"{topology.host_name(topology.host_of_nic(nic))} {topology.device_name(nic)}"

    # Nodes ---------------------------------------------------------------------------------------

    def _nodes(self) -> str:
        """`ibnetdiscover`: node types and names; cables are read from `iblinkinfo`."""
        topology = self._topology
        blocks = ["#\n# Topology file: simulated\n#\n"]
        for switch, about in enumerate(topology.switches):
            guid, size = topology.switch_guid(switch), len(self._readings.ports.of_switch(switch))
            blocks.append(
                f"vendid={NVIDIA:#x}\ndevid={QUANTUM_2:#x}\nsysimgguid={guid:#x}\n"
                f"switchguid={guid:#x}({guid:x})\n"
                f'Switch\t{size} "{switch_id(topology, switch)}"\t\t'
                f'# "{about.name}" enhanced port 0 lid {switch_lid(switch)} lmc 0\n'
            )
        for nic in range(topology.nics):
            guid, down = topology.nic_guid(nic), topology.down(nic)
            leaf = int(topology.source_switch[down])
            blocks.append(
                f"vendid={NVIDIA:#x}\ndevid={CONNECTX_7:#x}\nsysimgguid={guid:#x}\n"
                f"caguid={guid:#x}\n"
                f'Ca\t1 "{hca_id(topology, nic)}"\t\t# "{self._hca_name(nic)}"\n'
                f'[1]({guid:x}) \t"{switch_id(topology, leaf)}"[{topology.port[down]}]\n'
            )
        return "\n".join(blocks)

    # Counters ------------------------------------------------------------------------------------

    def _write_counters(self, states: PortStates, counters: dict[str, Counts]) -> None:
        """`perfquery -x` of every switch; one that nothing reaches does not answer."""
        ports = self._readings.ports
        matrix = np.column_stack([counters[name] for name in EXTENDED]).tolist()
        for switch in range(len(self._topology.switches)):
            mine, lid = ports.of_switch(switch), switch_lid(switch)
            numbers = ports.number[mine.start : mine.stop].tolist()
            text = SILENCE + UNREACHED.format(lid=lid)
            if states.is_found[mine.start]:
                text = "".join(
                    _PORT_TEXT % (lid, number, number, *matrix[position])
                    for number, position in zip(numbers, mine, strict=True)
                )
            self._write(text, "perfquery", "-x", "-l", str(lid), ",".join(map(str, numbers)))


def _value_line(name: str, value: str) -> str:
    return f"{name}:".ljust(VALUE_COLUMN, ".") + f"{value}\n"


_PORT_TEXT = (
    f"# Port extended counters: Lid %d port %d (CapMask: {CAPABILITIES:#06x} CapMask2: 0x0000002)\n"
    + _value_line("PortSelect", "%d")
    + _value_line("CounterSelect", "0x0000")
    + "".join(_value_line(name, "%d") for name in EXTENDED)
)
"""Of one port: takes its switch's address, its number twice, and the counters in order."""


def _manager_text(time_s: float) -> str:
    """`sminfo`: the manager is beside the cluster, and never goes; it sweeps every ten seconds."""
    activity = int(time_s) // 10
    return (
        f"sminfo: sm lid {SUBNET_MANAGER_LID} sm guid {SUBNET_MANAGER_GUID:#x}, activity count"
        f" {activity} priority 15 state 3 SMINFO_MASTER\n"
    )


def _tick_text(lid: int) -> str:
    """`perfquery -c`: the tick is one less than its bytes."""
    return (
        f"# PortSamplesControl: Lid {lid} port 1\n"
        + _value_line("PortSelect", "1")
        + _value_line("Tick", f"0x{TICK_BYTES - 1:02x}")
    )
