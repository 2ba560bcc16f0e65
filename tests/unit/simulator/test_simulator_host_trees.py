"""The trees of all hosts: what an agent is started with, and logs that do not grow for ever."""

from pathlib import Path

import numpy as np
import pytest

from collector.agent.settings import load_settings
from collector.contract.collective import Collective
from collector.doors.host import Host
from collector.sources import discover
from simulator.engine import Simulation
from simulator.interfaces import host_trees
from simulator.interfaces.host_trees import HostTrees
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.topology.build import ClusterSpec

SECONDS = 20
LOG_BYTES = 4096
LINE_BYTES_MIN = 700
"""Of a verbose line of NCCL Inspector."""
KINDS = discover()


@pytest.fixture
def simulation() -> Simulation:
    job = JobSpec(name="llama", hosts=(0, 1), compute_seconds=0.4, startup_seconds=1.0)
    return Simulation(Scenario(cluster=ClusterSpec(hosts=2), jobs=(job,)))


def test_logs_are_renamed_in_time_and_an_agent_misses_nothing(
    tmp_path: Path, simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_trees, "LOG_BYTES_MAX", LOG_BYTES)
    monkeypatch.setattr(host_trees, "ROTATE_SECONDS", 3.0)
    trees = HostTrees(tmp_path, simulation.topology)
    root = tmp_path / "node0001"
    written = read = 0
    source, host = None, Host(root)
    for _ in range(SECONDS):
        snapshot = simulation.tick()
        trees.write(snapshot)
        if source is None:
            flags = trees.agent_flags(1, "http://127.0.0.1:1", "demo")
            settings = load_settings(
                {name: kind.Settings for name, kind in KINDS.items()},
                file=Path(flags[flags.index("--config") + 1]),
                environment={},
                flags={},
            )
            source = KINDS["nccl_inspector"](settings.sources["nccl_inspector"])
        [job] = snapshot.jobs
        for block in snapshot.collectives:
            written += int(np.sum(job.rank_host[block.members] == 1))
        read += sum(isinstance(each, Collective) for each in source.read(host))
    logs = root / "var/log/nccl"
    assert list(logs.rglob("*.log.1")), "no log was ever renamed"
    assert written > 1000
    assert read == written
    kept = sum(path.stat().st_size for path in logs.rglob("*.log*"))
    assert kept < written * LINE_BYTES_MIN / 2


def test_an_agent_is_told_everything_that_it_needs(tmp_path: Path, simulation: Simulation) -> None:
    trees = HostTrees(tmp_path, simulation.topology)
    trees.write(simulation.tick())
    flags = trees.agent_flags(0, "http://127.0.0.1:9799", "demo")
    root = str(tmp_path / "node0000")
    assert flags == ["--root", root, "--config", f"{root}/agent.toml", "--cluster", "demo"]
    text = Path(flags[3]).read_text("utf-8")
    assert 'service_url = "http://127.0.0.1:9799"' in text
    assert f'spool_dir = "{root}/' in text
    assert 'listen = ""' in text
