"""The machine that polls the switches, as a tree that a production agent reads with ``--root``.

Ethernet switches are recordings of SNMP, InfiniBand switches are outputs of infiniband-diags. Both
are rewritten while the agent runs. The machine itself has only a name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from simulator.interfaces.infiniband_diags import DiagsOutputs
from simulator.interfaces.run_folder import SPOOL
from simulator.interfaces.snmp import Recordings
from simulator.interfaces.switch_tables import Flavour
from simulator.interfaces.ufm import SETTINGS as UFM_SETTINGS
from simulator.interfaces.ufm import UfmTree
from simulator.snapshot import Snapshot
from simulator.topology.model import Fabric, Topology

POLLER = "poller-0"
INTERVAL_SECONDS, TIMEOUT_SECONDS = 10.0, 8.0
OTHER_SOURCES = (
    *("bursts", "clock", "configuration", "dcgm", "disks", "ethtool", "flight_recorder", "gds"),
    *("gnmi", "host", "ib_sysfs", "ibdiagnet", "kernel_log", "kineto", "links", "lldp", "mlxlink"),
    *("modules", "mounts", "nccl_debug", "nccl_inspector", "nccl_ras", "nccl_tests", "netdev"),
    *("nvml", "opensm", "probes", "rdma_resources", "sflow", "sriov", "steps"),
)
"""All sources of an agent that ask no switches, or stream from them: a poller has them off."""


class Shown(Protocol):
    """A part of the tree that shows switches."""

    def write(self, snapshot: Snapshot) -> None: ...


class PollerTree:
    """The tree of the polling machine in a folder of its own."""

    def __init__(
        self,
        root: Path,
        topology: Topology,
        flavour: Flavour = Flavour.SONIC,
        *,
        through_ufm: bool = False,
    ) -> None:
        """``through_ufm``: an InfiniBand fabric is seen through UFM alone, not asked itself."""
        self._root = root
        self._topology = topology
        self._is_started = False
        self._through_ufm = through_ufm
        self._switches: Shown
        if topology.fabric is not Fabric.INFINIBAND:
            self._switches = Recordings(root, topology, flavour)
        elif through_ufm:
            self._switches = UfmTree(root, topology)
        else:
            self._switches = DiagsOutputs(root, topology)

    def write(self, snapshot: Snapshot) -> None:
        if not self._is_started:
            name = self._root / "proc/sys/kernel/hostname"
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_text(f"{POLLER}\n", encoding="utf-8")
            self._is_started = True
        self._switches.write(snapshot)

    def agent_flags(self, service_url: str, cluster: str) -> list[str]:
        """Flags of the agent, once the tree was written; writes its settings."""
        config = self._root / "agent.toml"
        config.write_text(self.settings(service_url), encoding="utf-8")
        return ["--root", str(self._root), "--config", str(config), "--cluster", cluster]

    def settings(self, service_url: str) -> str:
        top = {"service_url": service_url, "spool_dir": str(self._root / SPOOL), "listen": ""}
        # JSON texts are valid TOML.
        lines = [f"{name} = {json.dumps(value)}" for name, value in top.items()]
        pace = [f"interval_seconds = {INTERVAL_SECONDS}", f"timeout_seconds = {TIMEOUT_SECONDS}"]
        for source in OTHER_SOURCES:
            lines += ["", f"[sources.{source}]", "enabled = false"]
        if self._topology.fabric is Fabric.INFINIBAND:
            asked = UFM_SETTINGS if self._through_ufm else {"enabled": True}
            words = [f"{name} = {json.dumps(value)}" for name, value in asked.items()]
            lines += ["", "[sources.ib_fabric]", *words, *pace]
            return "\n".join(lines) + "\n"
        lines += ["", "[sources.snmp]", *pace]
        for switch in self._topology.switches:
            name = json.dumps(switch.name)
            lines += ["", "[[sources.snmp.switches]]", f"name = {name}", f"address = {name}"]
        return "\n".join(lines) + "\n"
