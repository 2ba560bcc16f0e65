"""Cuts a recorded run's profiler traces down to a fixture: NCCL's kernels, around the fault.

Where sends and receives are batched, other kernels stay, too: they show which rank computes.

    python3 -m tests.tools.gpu_ranks.trim RUN FIXTURE [BEFORE_SECONDS AFTER_SECONDS]

What is kept is what the profiler wrote of it, without paths of the machine; everything else is left
out. Of a run that hung it is the last operations of each rank's Flight Recorder, without stacks.
"""

from __future__ import annotations

import gzip
import json
import pickle
import sys
from pathlib import Path
from typing import Any

NS_PER_US = 1_000
OPERATIONS_KEPT = 64
"""Of a dump: two steps of a pipeline with four micro-batches."""


def main() -> int:
    run, fixture = Path(sys.argv[1]), Path(sys.argv[2])
    if not (run / "kineto").exists():
        trim_dumps(run, fixture)
        return 0
    before, after = (float(word) for word in (sys.argv[3:] or ("0.3", "0.2")))
    truth = json.loads((run / "truth.json").read_text("utf-8"))
    from_ns, to_ns = truth["fault_on_ns"] - before * 1e9, truth["fault_off_ns"] + after * 1e9
    (fixture / "kineto").mkdir(parents=True, exist_ok=True)
    for path in sorted((run / "kineto").glob("*.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        base = int(trace.get("baseTimeNanoseconds", 0))
        window = ((from_ns - base) / NS_PER_US, (to_ns - base) / NS_PER_US)
        is_batched = "chunks" in truth or "context" in truth
        trace["traceEvents"] = [
            one for one in trace["traceEvents"] if is_kept(one, window, is_batched=is_batched)
        ]
        trace.pop("traceName", None)
        for one in trace["traceEvents"]:
            if one.get("name") == "process_name":  # with the machine's paths
                one["args"]["name"] = "python3"
        text = json.dumps(trace, separators=(",", ":")).encode()
        (fixture / "kineto" / path.name).write_bytes(gzip.compress(text, 9, mtime=0))
    kept = (
        "fault",
        "ranks",
        "stages",
        "chunks",
        "context",
        "step_ms",
        "fault_on_ns",
        "fault_off_ns",
    )
    small = {name: truth[name] for name in kept if name in truth}
    (fixture / "truth.json").write_text(json.dumps(small) + "\n", "utf-8")
    return 0


def trim_dumps(run: Path, fixture: Path) -> None:
    (fixture / "flight_recorder").mkdir(parents=True, exist_ok=True)
    for path in sorted((run / "flight_recorder").iterdir()):
        dump = pickle.loads(path.read_bytes())  # noqa: S301 - recorded by ourselves
        kept = dump["entries"][-OPERATIONS_KEPT:]
        dump["entries"] = [{**one, "frames": []} for one in kept]
        (fixture / "flight_recorder" / path.name).write_bytes(pickle.dumps(dump, protocol=2))


def is_kept(event: dict[str, Any], window: tuple[float, float], *, is_batched: bool) -> bool:
    if event.get("ph") == "M":
        return True
    if not window[0] <= event.get("ts", 0) <= window[1]:
        return False
    kind, name = event.get("cat"), event.get("name", "")
    if kind == "kernel":
        return is_batched or "nccl" in name
    return kind == "cpu_op" and name == "record_param_comms"


if __name__ == "__main__":
    sys.exit(main())
