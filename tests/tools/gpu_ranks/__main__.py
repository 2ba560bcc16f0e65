"""Records what real NCCL ranks leave behind, healthy and broken on purpose, on one GPU.

    python3 -m tests.tools.gpu_ranks OUT [RUN ...]

Needs Linux, root, PyTorch with CUDA, and nothing of ours. Each rank has a host name of its own
(node0, node1, …), so that NCCL takes eight processes for eight hosts, and where iproute2 is
installed a network namespace with a veth pair; without it all talk over loopback, and no NIC can be
made slow. A run is a folder: `kineto/`, `flight_recorder/`,
`nccl_debug/`, `out/` (what each rank printed), `ras/` (what NCCL's RAS answered, and when) and
`truth.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[3] / "deploy/gpu-check"
"""Scripts, in no package: what both need is there."""
sys.path.insert(0, str(SHARED))
import namespaces  # noqa: E402 - found by the line above

RANKS = 8
RUN_SECONDS_MAX = 90
HAS_IP = shutil.which("ip") is not None
INTERFACE = namespaces.INTERFACE if HAS_IP else "lo"

LATE = {"sleep_ms": 6.0}
INTERLEAVED = {"stages": 4, "chunks": 2}
CONTEXT = {"stages": 4, "context": True}
ASKED = {"stages": 1, "steps": 200, "pause_ms": 50, "timeout_s": 40, "ras": [0, 3, 6]}
"""Runs of which some ranks' RAS is asked while they last."""
RUNS: dict[str, dict[str, Any]] = {
    "pipeline_healthy": {},
    "pipeline_late5": {"fault": "late", "ranks": [5], **LATE},
    "pipeline_late3": {"fault": "late", "ranks": [3], **LATE},
    "pipeline_gpu2": {"fault": "compute", "ranks": [2], "times": 3},
    "pipeline_stage3": {"fault": "stage", "ranks": [3, 7], "times": 3},
    "pipeline_lengths": {"fault": "lengths", "ranks": []},
    "pipeline_two": {"fault": "late", "ranks": [1, 6], **LATE},
    "pipeline_net4": {"fault": "net", "ranks": [4], "rate": "300mbit"},
    "one_f_one_b_late6": {"fault": "late", "ranks": [6], "stages": 2, "batched": True, **LATE},
    "one_f_one_b_healthy": {"stages": 4, "batched": True},
    "one_copy_late3": {"fault": "late", "ranks": [3], "stages": 8, **LATE},
    "one_copy_healthy": {"stages": 8},
    "interleaved_healthy": INTERLEAVED,
    "interleaved_late5": {"fault": "late", "ranks": [5], **INTERLEAVED, **LATE},
    "interleaved_late0": {"fault": "late", "ranks": [0], **INTERLEAVED, **LATE},
    "interleaved_gpu2": {"fault": "compute", "ranks": [2], "times": 3, **INTERLEAVED},
    "interleaved_net4": {"fault": "net", "ranks": [4], "rate": "300mbit", **INTERLEAVED},
    "context_healthy": CONTEXT,
    "context_late3": {"fault": "late", "ranks": [3], **CONTEXT, **LATE},
    "context_gpu6": {"fault": "compute", "ranks": [6], "times": 3, **CONTEXT},
    "context_net4": {"fault": "net", "ranks": [4], "rate": "300mbit", **CONTEXT},
    "context_eight_late1": {"fault": "late", "ranks": [1], "context": True, "stages": 8, **LATE},
    "ring_never_enters3": {"fault": "absent", "ranks": [3], "stages": 1, "timeout_s": 8},
    "ring_mismatch5": {"fault": "mismatch", "ranks": [5], "stages": 1, "timeout_s": 8},
    "ring_size5": {"fault": "size", "ranks": [5], "stages": 1, "timeout_s": 8},
    "ring_killed2": {"fault": "killed", "ranks": [2], "stages": 1, "timeout_s": 8},
    "pipeline_killed6": {"fault": "killed", "ranks": [6], "timeout_s": 8},
    "pipeline_stopped1": {"fault": "absent", "ranks": [1], "timeout_s": 8},
    "ras_healthy": {**ASKED, "steps": 120},
    "ras_stopped3": {"fault": "stopped", "ranks": [3], **ASKED},
    "ras_killed2": {"fault": "killed", "ranks": [2], **ASKED},
    "ras_skips5": {"fault": "skips", "ranks": [5], **ASKED},
    "ras_mismatch5": {"fault": "mismatch", "ranks": [5], **ASKED},
    "ras_pipeline_stopped1": {"fault": "stopped", "ranks": [1], **ASKED, "stages": 4},
    "batched_stopped1": {"fault": "absent", "ranks": [1], "batched": True, "timeout_s": 8},
    "batched_killed6": {"fault": "killed", "ranks": [6], "batched": True, "timeout_s": 8},
    "interleaved_stopped5": {"fault": "absent", "ranks": [5], **INTERLEAVED, "timeout_s": 8},
    "context_stopped2": {"fault": "absent", "ranks": [2], **CONTEXT, "timeout_s": 8},
    "ring_oom4": {"fault": "oom", "ranks": [4], "stages": 1, "timeout_s": 8},
}


def main() -> int:
    out = Path(sys.argv[1]).absolute()
    chosen = sys.argv[2:] or list(RUNS)
    with namespaces.hosts(RANKS) if HAS_IP else contextlib.nullcontext(), namespaces.mps():
        for name in chosen:
            began = time.monotonic()
            record(out / name, RUNS[name])
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return 0


def record(folder: Path, plan: dict[str, Any]) -> None:
    for part in ("kineto", "flight_recorder", "nccl_debug", "out"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan), "utf-8")
    started = [start(folder, plan, rank) for rank in range(RANKS)]
    askers = [ask(folder, rank) for rank in plan.get("ras", [])]
    ends = time.monotonic() + RUN_SECONDS_MAX
    try:
        for each in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(max(0.1, ends - time.monotonic()))
    finally:
        for each in (*started, *askers):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
    status = {rank: each.returncode for rank, each in enumerate(started)}
    truth = {**plan, "exit_status": status, **read_times(folder)}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1), "utf-8")


def ask(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    """Ask the RAS of the rank's host again and again; without namespaces all have one host."""
    answers = folder / "ras" / f"node{rank}.jsonl"
    answers.parent.mkdir(exist_ok=True)
    words = [sys.executable, str(SHARED / "ras.py"), str(answers)]
    if HAS_IP:
        words = ["ip", "netns", "exec", f"node{rank}", *words]
    return subprocess.Popen(words, start_new_session=True)


def read_times(folder: Path) -> dict[str, Any]:
    """What rank 0 noted of the fault's time, if it came so far; else what the culprit noted."""
    noted = folder / "fault_ns"
    if noted.exists():
        return {"fault_on_ns": int(noted.read_text("utf-8"))}
    noted = folder / "times.json"
    if not noted.exists():
        return {}
    found: dict[str, Any] = json.loads(noted.read_text("utf-8"))
    noted.unlink()
    return found


def start(folder: Path, plan: dict[str, Any], rank: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": namespaces.address_of(0) if HAS_IP else "127.0.0.1",
        "MASTER_PORT": "29500",
        "NCCL_HOSTID": f"node{rank}",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": INTERFACE,
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "NCCL_MAX_NCHANNELS": "2",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,NET",
        "NCCL_DEBUG_FILE": str(folder / "nccl_debug" / f"node{rank}.log"),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DESYNC_DEBUG": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "flight_recorder" / "nccl_trace_rank_"),
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / "flight_recorder" / "nccl_trace_rank_"),
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",
        "PYTHONUNBUFFERED": "1",
        "PLAN": json.dumps(plan),
        "FOLDER": str(folder),
    }
    program = Path(__file__).with_name("rank.py")
    # The host name is set inside of its own namespace: files name it.
    command = f"hostname node{rank} && exec {sys.executable} {program}"
    words = ["unshare", "--uts", "sh", "-c", command]
    if HAS_IP:
        words = ["ip", "netns", "exec", f"node{rank}", *words]
    with (folder / "out" / f"node{rank}.log").open("wb") as log:
        return subprocess.Popen(
            words, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


if __name__ == "__main__":
    sys.exit(main())
