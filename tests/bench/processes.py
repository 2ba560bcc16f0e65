"""Programs under measurement: start them, ask them over HTTP, read their CPU, memory and disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.bench.report import KIB, MIB, BenchError
from tests.tools import peers

READY_SECONDS = 60.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05

QUIET_SHARE = 0.05
"""Below this share of a core a program has nothing left to do: what remains is its timers."""
QUIET_WINDOW_SECONDS = 1.0
QUIET_WINDOWS = 3
"""So many quiet windows in a row, because engines pause between two merges."""
SETTLE_SECONDS_MAX = 60.0

BLOCK_BYTES = 512
"""The unit of st_blocks, whatever the file system's own is."""


def cpu_seconds_of(pid: int) -> float:
    """User and system time of a process so far.

    The kernel's CPU clock of the process: what /proc/PID/stat shows in steps of 10 ms, in
    nanoseconds. Its number is made from the process id as clock_getcpuclockid(3) does.
    """
    return time.clock_gettime((~pid << 3) | 2)


def tree_of(root: int, without: Collection[int] = ()) -> list[int]:
    """The processes below one, without some and what is below these."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found, queue = [], [root]
    while queue:
        below = [pid for pid in children.get(queue.pop(), ()) if pid not in without]
        found += below
        queue += below
    return found


def tree_cpu_seconds(root: int, without: Collection[int] = ()) -> float:
    """The CPU time of the processes below one, also of those that have ended and were waited for.

    Without the root's own. In steps of 10 ms.
    """
    ticks = 0
    for pid in tree_of(root, without):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


class Program:
    """A running program and what it costs."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.name = name
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._process = process
        self._log = log
        self._http = httpx.Client(base_url=self.url, timeout=300.0, trust_env=False)

    @property
    def pid(self) -> int:
        """The process that is measured."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """User and system time so far, of all threads, also those that have ended."""
        return cpu_seconds_of(self.pid)

    def _status_kib(self, field: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith(field))
        return int(line.split()[1])

    def rss_mib(self) -> float:
        """Memory that it has now."""
        return self._status_kib("VmRSS:") * KIB / MIB

    def peak_rss_mib(self) -> float:
        """The most memory that it ever had."""
        return self._status_kib("VmHWM:") * KIB / MIB

    def get(self, path: str, **query: str) -> httpx.Response:
        """The answer to a question; BenchError if it is not a good one."""
        answer = self._http.get(path, params=query)
        if not answer.is_success:
            raise BenchError(f"{self.name}: GET {path}: {answer.status_code} {answer.text[:300]}")
        return answer

    def post(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """The JSON that a command answers with."""
        answer = self._http.post(path)
        if not answer.is_success:
            raise BenchError(f"{self.name}: POST {path}: {answer.status_code} {answer.text[:300]}")
        return answer.json()

    def wait_until_ready(self, path: str) -> None:
        """Return when it answers; BenchError with the end of its log if it never does."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self._http.get(path).is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(POLL_SECONDS)
        tail = self._log.read_text(errors="replace")[-1500:]
        raise BenchError(f"{self.name} does not answer on {path}:\n{tail}")

    def settle(self) -> float:
        """Wait until it is quiet (merges are done); the seconds that took."""
        started = time.monotonic()
        quiet = 0
        while quiet < QUIET_WINDOWS and time.monotonic() - started < SETTLE_SECONDS_MAX:
            before = self.cpu_seconds()
            time.sleep(QUIET_WINDOW_SECONDS)
            share = (self.cpu_seconds() - before) / QUIET_WINDOW_SECONDS
            quiet = quiet + 1 if share < QUIET_SHARE else 0
        return time.monotonic() - started

    def stop(self) -> None:
        """SIGTERM, and patience."""
        self._http.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextmanager
def run_program(name: str, command: list[str], folder: Path, port: int) -> Iterator[Program]:
    """Start a program in a folder, its output in a log there; stop it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    # Settings of the person at the keyboard must not change what is measured.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FABRICSCOPE_")}
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    program = Program(name, process, log, port)
    try:
        yield program
    finally:
        program.stop()


def free_port() -> int:
    """A port that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def fabricscope() -> str:
    """Our own command, of the environment in which this runs."""
    return str(Path(sys.executable).with_name("fabricscope"))


def find_peer(name: str) -> Path | None:
    """A peer's program; a line says so if it is missing."""
    found = peers.find(name)
    if found is None:
        say(f"{name} is missing (make peers): what is compared with it is not measured")
    return found


def disk_bytes(folder: Path) -> int:
    """What the files below a folder take on disk; hard links count once."""
    seen: dict[tuple[int, int], int] = {}
    # Engines remove files and folders while one looks; `walk` passes over a folder that is gone.
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                status = Path(above, name).lstat()
                seen[status.st_dev, status.st_ino] = status.st_blocks * BLOCK_BYTES
    return sum(seen.values())


def say(text: str) -> None:
    """One plain line of what is going on."""
    print(f"bench: {text}", flush=True)
