"""What one read of the `nvml` source costs on a machine with GPUs, and what it read there.

    python -m tests.bench.gpu_read [--seconds 10] [--record OUT.json]

prints one JSON object. ``--record`` writes every answer that NVML gave to the source: the file is
the `nvml/answers.json` of a case below `tests/fixtures/sources/nvml/`.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.doors.nvml import Facts, Nvml, NvmlError, answer_key
from collector.sources.nvml import NvmlSource, Settings
from collector.tables.nvml import FieldKey

WARM_UP_READS = 3
"""The first read looks at everything, and GPM has numbers from the second one on."""
INTERVAL_SECONDS = 0.1
"""Between reads; long enough for GPM and for NVML's own caches to be cold again."""

Answered = TypeVar("Answered")


class RecordingNvml:
    """Passes every question on and keeps the answers; `recording` is what a replay needs."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.calls = 0
        """How often NVML was asked: a call that is remembered by the source is not here."""
        self._system: dict[str, Any] = {}
        self._gpus: dict[int, dict[str, Any]] = {}
        self._events: list[Facts] = []

    def recording(self) -> dict[str, Any]:
        """All answers of NVML, as `ReplayedNvml` takes them (in JSON)."""
        gpus = [self._gpus.get(gpu, {}) for gpu in range(max(self._gpus, default=-1) + 1)]
        return {"system": self._system, "gpus": gpus, "events": self._events}

    def ask_system(self, call: str) -> Facts:
        """See `Nvml`."""
        return self._keep(self._system, call, lambda: self._nvml.ask_system(call))

    def ask(self, call: str, gpu: int, *arguments: int) -> Facts:
        """See `Nvml`."""
        key = answer_key(call, arguments)
        return self._keep(self._of(gpu), key, lambda: self._nvml.ask(call, gpu, *arguments))

    def fields(self, gpu: int, keys: Sequence[FieldKey]) -> list[float | NvmlError]:
        """See `Nvml`."""
        self.calls += 1
        answers = self._nvml.fields(gpu, keys)
        for key, answer in zip(keys, answers, strict=True):
            said = {"error": answer.code} if isinstance(answer, NvmlError) else answer
            self._of(gpu)[answer_key("field", key)] = said
        return answers

    def processes(self, gpu: int) -> list[Facts]:
        """See `Nvml`."""
        return self._keep(self._of(gpu), "processes", lambda: self._nvml.processes(gpu))

    def events(self) -> list[Facts]:
        """See `Nvml`."""
        self.calls += 1
        found = self._nvml.events()
        self._events.extend(found)
        return found

    def _of(self, gpu: int) -> dict[str, Any]:
        return self._gpus.setdefault(gpu, {})

    def _keep(self, answers: dict[str, Any], key: str, ask: Callable[[], Answered]) -> Answered:
        self.calls += 1
        try:
            answer = ask()
        except NvmlError as error:
            answers[key] = {"error": error.code}
            raise
        answers[key] = answer
        return answer


class RecordingHost(Host):
    """This machine, with all of NVML's answers recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder = RecordingNvml(super().nvml())

    def nvml(self) -> Nvml:
        """NVML behind the recorder."""
        return self.recorder


def measure(host: RecordingHost, seconds: float) -> dict[str, object]:
    """The cost of a read, over as many as fit into the time."""
    source = NvmlSource(Settings())
    readings: list[Reading] = []
    for _ in range(WARM_UP_READS):
        readings = list(source.read(host))
        time.sleep(INTERVAL_SECONDS)
    before, asked = cpu_seconds(), host.recorder.calls
    wall: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        started = time.perf_counter()
        readings = list(source.read(host))
        wall.append(time.perf_counter() - started)
        time.sleep(INTERVAL_SECONDS)
    reads = len(wall)
    gpus = int(host.recorder.ask_system("count")["value"])
    absent = [each for each in readings if isinstance(each, Missing)]
    return {
        "gpus": gpus,
        "reads": reads,
        "calls_per_read": (host.recorder.calls - asked) / reads,
        "cpu_ms_per_read_and_gpu": 1000 * (cpu_seconds() - before) / reads / gpus,
        "wall_ms_per_read_and_gpu": 1000 * sorted(wall)[reads // 2] / gpus,
        "samples_per_gpu": sum(isinstance(each, Sample) for each in readings) / gpus,
        "missing": dict(Counter(f"{each.reason}: {each.detail}" for each in absent)),
        "missing_metrics": sorted({each.series.metric for each in absent}),
        "events": [each.message for each in readings if isinstance(each, Event)],
        "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def cpu_seconds() -> float:
    """What this process has used so far, in user and kernel mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description="measure one read of the nvml source")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--record", type=Path)
    wanted = parser.parse_args(arguments)
    host = RecordingHost()
    print(json.dumps(measure(host, wanted.seconds), indent=1))
    if wanted.record:
        text = json.dumps(host.recorder.recording(), indent=1, sort_keys=True)
        wanted.record.write_text(text + "\n", encoding="utf-8")
    host.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
