"""What all ranks do beside their work: obey the check, mark their steps, note their times.

The check writes small files into its folder: `slow<rank>` (milliseconds that this rank sleeps in
each step) and `end` (the number of the step before which all ranks leave). A rank appends a line to
`steps<rank>` for each step: when it began (ns since 1970) and how long it took (ns).
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("GPU_CHECK_FOLDER", "."))
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def read_number(name: str) -> float | None:
    """What stands in a file of the check; None where there is none."""
    try:
        return float((FOLDER / name).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def step_marks() -> Callable[[int], AbstractContextManager[Any]]:
    """`fabricscope_steps.step` where the check has put it; else nothing."""
    try:
        steps = importlib.import_module("fabricscope_steps")
    except ImportError:
        return lambda _: nullcontext()
    mark: Callable[[int], AbstractContextManager[Any]] = steps.step
    return mark


def run_steps(one_step: Callable[[float], None]) -> None:
    """Step after step until the check says that it is over; a step gets its delay in seconds."""
    mark = step_marks()
    slow = f"slow{RANK}"
    step = 0
    with (FOLDER / f"steps{RANK}").open("a", buffering=1, encoding="ascii") as noted:
        while (end := read_number("end")) is None or step < end:
            delay_ms = read_number(slow) or 0.0
            began_ns, began = time.time_ns(), time.perf_counter_ns()
            with mark(step):
                one_step(delay_ms / 1e3)
            noted.write(f"{began_ns} {time.perf_counter_ns() - began}\n")
            step += 1
