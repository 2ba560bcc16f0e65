"""Real agents (`fabricscope agent`) on the trees of a small simulated cluster."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from simulator.engine import Simulation
from simulator.interfaces.host_trees import HostTrees
from simulator.interfaces.run_folder import SPOOL
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.topology.build import ClusterSpec
from tests.stands.service import READY_SECONDS, launch

HOSTS = GPUS_PER_HOST = 2
TICK_SECONDS = 1.0
IMPATIENT = "flush_seconds = 1.0\nretry_seconds_max = 1.0\n"
"""Before an agent's other settings: batches come five times as often as by default."""


class RealAgent:
    """One agent: its process, and the batches in its spool."""

    def __init__(self, flags: Sequence[str], inside: Sequence[str]) -> None:
        self._flags, self._inside = flags, inside
        self.root = Path(flags[flags.index("--root") + 1])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = self.root.parent / f"{self.root.name}.log"
        self._process = launch(["agent", *self._flags], log, self._inside)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(READY_SECONDS)
            self._process = None

    def spooled(self) -> dict[str, bytes]:
        """The batches that wait, by name; one that is delivered while we look is left out."""
        found = {}
        for path in sorted((self.root / SPOOL / "batches").glob("*.batch")):
            try:
                found[path.name] = path.read_bytes()
            except FileNotFoundError:
                continue
        return found


class Fleet(threading.Thread):
    """The agents of all hosts, and the trees that they read, which change every second."""

    def __init__(
        self, folder: Path, url: str, *, inside: Sequence[str] = (), token: str = ""
    ) -> None:
        super().__init__(name="trees", daemon=True)
        self._simulation = Simulation(
            Scenario(
                cluster=ClusterSpec(
                    topology="rail",
                    hosts=HOSTS,
                    gpus_per_host=GPUS_PER_HOST,
                    nics_per_host=GPUS_PER_HOST,
                    hosts_per_leaf=HOSTS,
                ),
                jobs=(JobSpec(name="train", hosts=tuple(range(HOSTS)), tensor=GPUS_PER_HOST),),
                tick_seconds=TICK_SECONDS,
                start_unix_ns=time.time_ns(),
            )
        )
        self._trees = HostTrees(folder, self._simulation.topology)
        self._trees.write(self._simulation.tick())
        self._ends = threading.Event()
        self.agents: list[RealAgent] = []
        for host in range(HOSTS):
            flags = self._trees.agent_flags(host, url, "chaos")
            config = Path(flags[flags.index("--config") + 1])
            secret = f'token = "{token}"\n' if token else ""
            config.write_text(IMPATIENT + secret + config.read_text())
            self.agents.append(RealAgent(flags, inside))

    def __enter__(self) -> Self:
        self.start()
        for agent in self.agents:
            agent.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self.join()
        for agent in self.agents:
            agent.kill()

    def run(self) -> None:
        began = time.monotonic() - self._simulation.now_s
        while not self._ends.is_set():
            snapshot = self._simulation.tick()
            self._ends.wait(max(0.0, began + snapshot.time_s - time.monotonic()))
            self._trees.write(snapshot)
