"""`deploy/gpu-check` without a GPU: namespaces, ranks, agents and service come up, and all go."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stands.environment import clean_environment

ROOT = Path(__file__).resolve().parents[2]
FABRICSCOPE = Path(sys.executable).with_name("fabricscope")
CAN_MAKE_NAMESPACES = os.geteuid() == 0 and all(map(shutil.which, ("ip", "tc", "unshare")))
SECONDS_MAX = 240


@pytest.mark.slow
@pytest.mark.skipif(not CAN_MAKE_NAMESPACES, reason="needs root and iproute2")
def test_the_check_runs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """No fault and no verdict: how soon those come depends on how busy the machine is."""
    words = [
        sys.executable,
        str(ROOT / "deploy/gpu-check/check.py"),
        "--out",
        str(tmp_path / "out"),
    ]
    words += ["--fake", "--faults", "", "--bare", "1", "--pairs", "1", "--turn", "1"]
    words += ["--healthy", "0", "--fabricscope", str(FABRICSCOPE), "--gpu-readers", "1"]
    words += ["--spare-cores", "1"] if len(os.sched_getaffinity(0)) > 1 else []
    done = subprocess.run(
        words,
        env=clean_environment() | {"TMPDIR": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out/result.json").read_text("utf-8"))
    assert "warning" not in found, "the service knew all ranks"
    assert found["agents_running"] == 8
    assert found["bare"]["steps"] > 0
    (cost,) = found["agents"]
    assert cost["with"]["steps"] > 0
    assert cost["gpu_readers"] == 1
    agents = sorted((tmp_path / "out/logs").glob("agent-node*.log"))
    assert len(agents) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not Path("/sys/class/net/fsbridge").exists()
    left = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    assert "node0" not in left.stdout
