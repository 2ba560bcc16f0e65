"""A job that writes its logs and marks its steps, an agent beside it, and what the service says."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bench.records import inspector_line
from tests.stands.environment import clean_environment
from tests.stands.service import ROOT, ServiceProcess, eventually, launch

RANKS, STEPS, LATE_RANK = 4, 40, 3
STEP_US, TRANSFER_US, LATE_US = 100_000, 9_000, 30_000
JOB = "e2e-job"
COMMUNICATOR = "0x00c0ffee00c0ff"

TRAINING = """
import fabricscope_steps as steps
for number in range(5):
    with steps.step(number):
        with steps.phase("forward"):
            pass
steps.flush()
"""


@contextmanager
def agent(folder: Path, service: ServiceProcess) -> Iterator[None]:
    """`fabricscope agent` on a tree that holds nothing but the job's folders."""
    for name in ("proc", "var/log/nccl", "var/steps"):
        (folder / "tree" / name).mkdir(parents=True)
    config = folder / "agent.toml"
    config.write_text(
        f'service_url = "{service.url}"\nspool_dir = "{folder / "spool"}"\nlisten = ""\n'
        'host = "node-0"\nflush_seconds = 0.2\n'
        "[sources.nccl_inspector]\ninterval_seconds = 0.2\n"
        f'directories = ["/var/log/nccl"]\njob = "{JOB}"\n'
        '[sources.steps]\ninterval_seconds = 0.2\nsocket = ""\ndirectories = ["/var/steps"]\n',
        encoding="utf-8",
    )
    words = ["agent", "--config", str(config), "--root", str(folder / "tree")]
    process = launch(words, folder / "agent.log")
    try:
        yield
    finally:
        process.kill()
        process.wait(60)


def write_logs(folder: Path, start_us: int) -> None:
    """What Inspector writes for four ranks of one host; one of them comes late to every step."""
    for rank in range(RANKS):
        with (folder / f"node-0-pid{100 + rank}.log").open("wb") as file:
            for step in range(STEPS):
                begin_us = start_us + step * STEP_US
                entry_us = begin_us + rank * 100 + (LATE_US if rank == LATE_RANK else 0)
                leave_us = begin_us + LATE_US + 100 * LATE_RANK + TRANSFER_US
                line = inspector_line(
                    COMMUNICATOR,
                    (rank, RANKS),
                    ("AllReduce", 8 << 20, step),
                    (entry_us, leave_us),
                )
                file.write(line)
                file.flush()


@pytest.mark.slow
def test_from_a_job_s_own_files_to_who_is_waited_for(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as service, agent(tmp_path, service):
        tree = tmp_path / "tree"
        start_us = int(time.time() * 1e6) - STEPS * STEP_US
        write_logs(tree / "var/log/nccl", start_us)
        environment = clean_environment() | {
            "FABRICSCOPE_STEPS": str(tree / "var/steps"),
            "FABRICSCOPE_JOB": JOB,
            "RANK": "0",
            "PYTHONPATH": str(ROOT / "collector/shims"),
        }
        subprocess.run([sys.executable, "-c", TRAINING], env=environment, check=True)

        def get(path: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - a query
            answer = service.client.get(f"/v1/jobs{path}", params=parameters)
            found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
            return found

        eventually(lambda: bool(get(f"/{JOB}").get("communicators")), "the job is known")
        eventually(
            lambda: len(get(f"/{JOB}/operations").get("items", [])) == STEPS, "its operations"
        )
        operations = get(f"/{JOB}/operations")["items"]
        assert [item["sequence"] for item in operations] == list(range(STEPS))
        assert {item["last_in"] for item in operations} == {LATE_RANK}
        assert {item["ranks_seen"] for item in operations} == {RANKS}
        assert {item["transfer_ns"] for item in operations} == {TRANSFER_US * 1000}
        assert {item["skew_ns"] for item in operations} == {(LATE_US + 300) * 1000}

        ranks = get(f"/{JOB}/ranks")["items"]
        # Records keep the host's name that NCCL saw.
        assert [(rank["rank"], rank["host"]) for rank in ranks] == [
            (rank, f"node{rank}") for rank in range(RANKS)
        ]
        eventually(lambda: len(get(f"/{JOB}/steps").get("items", [])) == 10, "its marked steps")
        steps = get(f"/{JOB}/steps")["items"]
        assert sorted({step["step"] for step in steps}) == list(range(5))
        assert {step["phase"] for step in steps} == {"", "forward"}


def test_the_shim_never_needs_us() -> None:
    """A training process has the one file and nothing else of ours on its path."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "collector/shims")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", TRAINING],
        env=environment,
        cwd="/",
        check=False,
        capture_output=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
