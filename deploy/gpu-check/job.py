"""The training job of the check: eight ranks, one a namespace, that one can slow down and stop."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from namespaces import INTERFACE, address_of, name_of, words_inside

HERE = Path(__file__).resolve().parent
RANKS = 8
STEPS_AHEAD = 20
"""Ranks are at most a step apart: all of them see the end in time."""
END_SECONDS = 20.0
RECORDS_SECONDS = 10.0
"""Until the plugin's first lines: it writes ten times a second."""
START_SECONDS = 180.0
POLL_SECONDS = 0.1
LAST_WORDS = 2000
"""Characters of a rank's output that an error shows."""


class Step(NamedTuple):
    """A step of rank 0: when it began (ns since 1970) and how long it took (ns)."""

    began_ns: int
    took_ns: int


class Plan(NamedTuple):
    """What a job is started with."""

    name: str
    python: str
    plugin: str
    """The profiler plugin's library; empty for none."""
    is_fake: bool
    shim: Path
    """Holds `fabricscope_steps.py`."""
    cores: Sequence[int] = ()
    """The ranks' own; none: all of the machine."""


def environment_of(plan: Plan, folder: Path, rank: int) -> dict[str, str]:
    """What a rank gets: NCCL takes it for a host of its own, and every byte crosses its NIC."""
    node = name_of(rank)
    given = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    given |= {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": address_of(0),
        "MASTER_PORT": "29500",
        "FABRICSCOPE_JOB": plan.name,
        "FABRICSCOPE_STEPS": str(folder / node),
        "GPU_CHECK_FOLDER": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(plan.shim), os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
        "NCCL_HOSTID": node,
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": INTERFACE,
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "NCCL_MAX_NCHANNELS": "2",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,NET",
        "NCCL_DEBUG_FILE": str(folder / node / "nccl_debug.log"),
        "NCCL_INSPECTOR_DUMP_DIR": str(folder / node / "inspector"),
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",
    }
    if plan.plugin:
        given |= {
            "NCCL_PROFILER_PLUGIN": plan.plugin,
            "NCCL_INSPECTOR_ENABLE": "1",
            "NCCL_INSPECTOR_DUMP_VERBOSE": "1",
            "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "100000",
        }
    else:
        given["NCCL_PROFILER_PLUGIN"] = "none"
    return given


class Job:
    """Ranks that run."""

    def __init__(self, plan: Plan, folder: Path, logs: Path) -> None:
        self.name, self.folder, self._logs = plan.name, folder, logs
        self._read = 0
        self._steps: list[Step] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        program = HERE / ("fake_rank.py" if plan.is_fake else "rank.py")
        for rank in range(RANKS):
            (folder / name_of(rank) / "inspector").mkdir(parents=True)
            command = f"exec {shlex.quote(plan.python)} {shlex.quote(str(program))}"
            with self._log(rank).open("wb") as log:
                self._processes.append(
                    subprocess.Popen(
                        on_cores(plan.cores, words_inside(rank, command)),
                        env=environment_of(plan, folder, rank),
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    def _log(self, rank: int) -> Path:
        return self._logs / f"{self.folder.name}-rank{rank}.log"

    @property
    def pids(self) -> list[int]:
        """Of the ranks: each program that starts one gives its own place to the next."""
        return [each.pid for each in self._processes]

    def check(self) -> None:
        """Raise an error that shows its last words if a rank has ended."""
        for rank, each in enumerate(self._processes):
            if each.poll() is not None:
                said = self._log(rank).read_text("utf-8", "replace")[-LAST_WORDS:]
                raise RuntimeError(f"rank {rank} ended with {each.returncode}:\n{said}")

    def steps(self) -> list[Step]:
        """All steps of rank 0 up to now."""
        with contextlib.suppress(FileNotFoundError), (self.folder / "steps0").open("rb") as file:
            file.seek(self._read)
            news = file.read()
            whole = news[: news.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                began, took = line.split()
                self._steps.append(Step(int(began), int(took)))
        return self._steps

    def wait_for_steps(self, count: int) -> float:
        """Wait until it has made so many steps; how long that took, in seconds."""
        began = time.monotonic()
        while len(self.steps()) < count:
            self.check()
            if time.monotonic() - began > START_SECONDS:
                raise RuntimeError(
                    f"the job made {len(self.steps())} steps in {START_SECONDS:.0f} s; "
                    f"what its ranks said: {self._logs}"
                )
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def check_records(self) -> None:
        """Raise an error with NCCL's own words if the plugin writes nothing."""
        ends = time.monotonic() + RECORDS_SECONDS
        while missing := [rank for rank in range(RANKS) if not self._has_records(rank)]:
            if time.monotonic() > ends:
                said = self.folder / name_of(missing[0]) / "nccl_debug.log"
                lines = said.read_text("utf-8", "replace").splitlines() if said.exists() else []
                told = "\n".join(one for one in lines if "PROFILER" in one.upper())
                raise RuntimeError(f"the plugin wrote nothing for ranks {missing}; NCCL:\n{told}")
            time.sleep(POLL_SECONDS)

    def _has_records(self, rank: int) -> bool:
        folder = self.folder / name_of(rank) / "inspector"
        return any(path.stat().st_size for path in folder.iterdir())

    def steps_between(self, start_ns: int, end_ns: int) -> list[float]:
        """How long each step took that lies within these times, in milliseconds."""
        inside = (
            one
            for one in self.steps()
            if one.began_ns >= start_ns and one.began_ns + one.took_ns <= end_ns
        )
        return [one.took_ns / 1e6 for one in inside]

    def slow_down(self, rank: int, milliseconds: float) -> None:
        self._tell(f"slow{rank}", f"{milliseconds}")

    def speed_up(self, rank: int) -> None:
        (self.folder / f"slow{rank}").unlink(missing_ok=True)

    def _tell(self, name: str, text: str) -> None:
        """Write a file of the check at once as a whole."""
        fresh = self.folder / f"{name}.new"
        fresh.write_text(text, "utf-8")
        fresh.replace(self.folder / name)

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self._processes[rank].pid, number)

    def end(self) -> None:
        """Let it leave after its present step, and kill what has not left in time."""
        if all(each.poll() is None for each in self._processes):
            self._tell("end", str(len(self.steps()) + STEPS_AHEAD))
            end_all(self._processes, END_SECONDS, first=None)
        else:
            end_all(self._processes, 0.0, first=None)


def on_cores(cores: Sequence[int], words: Sequence[str]) -> list[str]:
    """A command that runs on these cores alone, with all that it starts; none: on all.

    >>> on_cores([14, 15], ["sleep", "1"])
    ['taskset', '--cpu-list', '14,15', 'sleep', '1']
    """
    chosen = ",".join(map(str, cores))
    return ["taskset", "--cpu-list", chosen, *words] if chosen else [*words]


@contextlib.contextmanager
def running(plan: Plan, folder: Path, logs: Path) -> Iterator[Job]:
    job = Job(plan, folder, logs)
    try:
        yield job
    except BaseException:
        job.speed_up(0)
        end_all(job._processes, 0.0, first=None)  # noqa: SLF001 - its own way out
        raise
    job.end()


def end_all(
    processes: Sequence[subprocess.Popen[bytes]], seconds: float, first: signal.Signals | None
) -> None:
    """Signal all, wait for so long, and kill what is left with everything that it has started."""
    for each in processes:
        if first is not None and each.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, first)
    ends = time.monotonic() + seconds
    for each in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.wait(max(0.0, ends - time.monotonic()))
    for each in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.wait()


def facts(logs: Path, name: str) -> Mapping[str, str]:
    """What rank 0 said of its software and its GPU."""
    with contextlib.suppress(OSError):
        for line in (logs / f"{name}-rank0.log").read_text("utf-8", "replace").splitlines():
            if line.startswith(("torch ", "a rank without")):
                return {"ranks": line}
    return {}
