"""Everything that a production agent reads on a host, for all hosts of a cluster, tick by tick."""

from __future__ import annotations

from pathlib import Path

from simulator.interfaces.fabric_tree import FabricTree
from simulator.interfaces.machine_tree import MachineTree
from simulator.interfaces.run_folder import INSPECTOR, STEPS, JobFiles, agent_settings, host_places
from simulator.snapshot import Snapshot
from simulator.topology.model import Topology

LOG_BYTES_MAX = 512 << 10
"""A larger log is renamed, and the older one of that name is removed: logs of 240 ranks that write
10 kB a second hold 300 MB at most, and agents, which read every second, have most of a minute for
what they have not read yet."""
ROTATE_SECONDS = 30.0
"""How often the sizes of logs are checked, as `logrotate` would."""


class HostTrees:
    """The trees of all hosts below one folder; `write` at every tick, the first time all of it."""

    def __init__(self, folder: Path, topology: Topology) -> None:
        self._machines = MachineTree(folder, topology)
        self._trees = (FabricTree(folder, topology), self._machines)
        self._jobs = JobFiles(topology, host_places(folder, topology))
        self._roots = [self._machines.root(host) for host in range(topology.hosts)]
        self._rotated_s: float | None = None

    def write(self, snapshot: Snapshot) -> None:
        is_first = self._rotated_s is None
        for tree in self._trees:
            (tree.start if is_first else tree.update)(snapshot)
        self._jobs.write(snapshot)
        if self._rotated_s is None:
            self._rotated_s = snapshot.time_s
        elif snapshot.time_s - self._rotated_s >= ROTATE_SECONDS:
            self._rotated_s = snapshot.time_s
            for root in self._roots:
                rotate(root)

    def agent_flags(self, host: int, service_url: str, cluster: str) -> list[str]:
        """Flags of an agent on this host; writes its settings. The trees must be there."""
        root = self._roots[host]
        config = root / "agent.toml"
        config.write_text(agent_settings(root, service_url), encoding="utf-8")
        return ["--root", str(root), "--config", str(config), "--cluster", cluster]


def rotate(root: Path) -> None:
    """Rename the logs of a host that have become large; their writers then begin new ones."""
    for folder, pattern in ((INSPECTOR, "*/*.log"), (STEPS, "*.steps.jsonl")):
        for path in (root / folder).glob(pattern):
            if path.stat().st_size > LOG_BYTES_MAX:
                path.replace(f"{path}.1")
