"""What `fabricscope_steps` costs a training loop, per step: one JSON line.

Needs the standard library, and torch with a GPU if they are there (else the step is a loop of the
CPU). Each round runs the same number of steps plainly and in every way of marking, in turn; the
cost is the median over the rounds of the difference to the plain run of the same round. A second
process listens on the socket and counts what arrives:

    python tests/bench/steps_cost.py --record steps.jsonl
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

SHIM = Path(__file__).resolve().parents[2] / "collector/shims/fabricscope_steps.py"
MODES = ("plain", "spans", "attach", "cuda")
WARM_UP_STEPS = 50
SPAN_RUNS = 5
WIDTH, LAYERS, BATCH = 2048, 4, 1024
"""A step of some two milliseconds on an H200: a hundredth of a real one, so that a cost shows."""
STOP = b"stop"

Span = Callable[[], Any]
Phase = Callable[[str], Any]
READER_SECONDS = 120


# --- the listener --------------------------------------------------------------------------------


def listen(path: str, record: str) -> None:
    """Print how many marks came until someone says stop; keep what came if a file is named."""
    marks = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(READER_SECONDS)
        print("ready", flush=True)
        with Path(record or os.devnull).open("wb") as file:
            while (message := listener.recv(1 << 17)) != STOP:
                marks += message.count(b"\n") - 1
                file.write(message)
    print(marks, flush=True)


class Listener:
    """The listening process."""

    def __init__(self, path: str, record: str) -> None:
        self._path = path
        command = [sys.executable, __file__, "--listen", path, "--record", record]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> int:
        """How many marks it got."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(STOP, self._path)
        output, _ = self._process.communicate(timeout=READER_SECONDS)
        return int(output)


# --- the loop ------------------------------------------------------------------------------------


class TorchWork:
    """A step of matrix products on the GPU."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        self._model = torch.nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-4)
        self._batch = torch.randn(BATCH, WIDTH, device="cuda")
        self._loss: Any = None
        self.device = torch.cuda.get_device_name()

    def forward(self) -> None:
        self._loss = self._model(self._batch).square().mean()

    def backward(self) -> None:
        self._loss.backward()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def finish(self) -> None:
        self._torch.cuda.synchronize()


class PlainWork:
    """A step of some 300 microseconds on the CPU, for machines without torch."""

    optimizer: Any = None
    device = "cpu"

    def forward(self) -> None:
        sum(range(5000))

    def backward(self) -> None:
        sum(range(10_000))

    def update(self) -> None:
        sum(range(2000))

    def finish(self) -> None:
        pass


def make_work() -> TorchWork | PlainWork:
    """The GPU's step if there is one."""
    if importlib.util.find_spec("torch") is None:
        return PlainWork()
    torch = importlib.import_module("torch")
    return TorchWork(torch) if torch.cuda.is_available() else PlainWork()


def load_shim(path: str) -> ModuleType:
    """The shim as a training process imports it, sending to this socket."""
    os.environ["FABRICSCOPE_STEPS"] = f"unix://{path}"
    os.environ.setdefault("RANK", "0")
    spec = importlib.util.spec_from_file_location("fabricscope_steps", SHIM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_steps(work: TorchWork | PlainWork, count: int, step: Span, phase: Phase) -> float:
    """Seconds of so many steps, the GPU's part included."""
    work.finish()
    start = time.perf_counter()
    for _ in range(count):
        with step():
            with phase("forward"):
                work.forward()
            with phase("backward"):
                work.backward()
            with phase("optimizer"):
                work.update()
    work.finish()
    return time.perf_counter() - start


def run_mode(mode: str, work: TorchWork | PlainWork, count: int, steps: ModuleType) -> float:
    """Seconds of one round in one way of marking."""
    if mode in {"plain", "attach"}:
        nothing = nullcontext()
        handle = steps.attach(work.optimizer) if mode == "attach" else None
        seconds = run_steps(work, count, lambda: nothing, lambda _: nothing)
        if handle is not None:
            handle.remove()
        return seconds
    if mode == "spans":
        return run_steps(work, count, steps.step, steps.phase)
    return run_steps(
        work, count, lambda: steps.step(cuda=True), lambda name: steps.phase(name, cuda=True)
    )


# --- the measurement -----------------------------------------------------------------------------


def span_microseconds(steps: ModuleType, count: int) -> float:
    """CPU time of one empty `with phase(...)`: the median of five runs, the queue emptied between.

    CPU time, because what else the machine does is no cost of ours.
    """
    times = []
    for _ in range(SPAN_RUNS):
        start = time.thread_time_ns()
        for _ in range(count):
            with steps.phase("empty"):
                pass
        times.append((time.thread_time_ns() - start) / 1000 / max(1, count))
        steps.flush(5)
    return statistics.median(times)


def measure(rounds: int, count: int, spans: int, record: str) -> dict[str, Any]:
    """Everything in one table."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/steps.sock"
        listener = Listener(path, record)
        steps, work = load_shim(path), make_work()
        modes = MODES if isinstance(work, TorchWork) else ("plain", "spans")
        run_steps(work, WARM_UP_STEPS, nullcontext, lambda _: nullcontext())
        seconds: dict[str, list[float]] = {mode: [] for mode in modes}
        for number in range(rounds):
            turn = number % len(modes)
            for mode in (*modes[turn:], *modes[:turn]):
                seconds[mode].append(run_mode(mode, work, count, steps))
        span_us = span_microseconds(steps, spans)
        is_written = steps.flush(10)
        received = listener.stop()
    marks = steps._recorder.next_step
    costs = {
        mode: statistics.median(
            (one - plain) / count * 1e6
            for one, plain in zip(seconds[mode], seconds["plain"], strict=True)
        )
        for mode in modes
        if mode != "plain"
    }
    return {
        "python": platform.python_version(),
        "torch": getattr(sys.modules.get("torch"), "__version__", None),
        "device": work.device,
        "rounds": rounds,
        "steps_per_round": count,
        "step_us": {m: round(statistics.median(s) / count * 1e6, 2) for m, s in seconds.items()},
        "cost_per_step_us": {mode: round(cost, 2) for mode, cost in costs.items()},
        "span_cpu_us": round(span_us, 3),
        "steps_marked": marks,
        "marks_received": received,
        "marks_dropped": steps.dropped(),
        "all_written": is_written,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--steps", type=int, default=200, help="of each round and mode")
    parser.add_argument("--spans", type=int, default=4000, help="empty ones, for their bare cost")
    parser.add_argument("--record", default="", metavar="FILE", help="keep what was sent")
    parser.add_argument("--listen", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.listen:
        listen(arguments.listen, arguments.record)
    else:
        print(
            json.dumps(
                measure(arguments.rounds, arguments.steps, arguments.spans, arguments.record)
            )
        )


if __name__ == "__main__":
    main()
