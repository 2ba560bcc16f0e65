"""The agent's end of the sampler: starts the process, reads its messages, restarts it.

The process needs no package but ours and the standard library, so it starts without `site`: half
the memory and a third of the time. Its standard error is the agent's.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import Any, Protocol

from collector.bursts import sampler
from collector.bursts.plan import NS_PER_SECOND, Plan

PIPE_BYTES = 1 << 20
"""What the pipe holds, if the kernel permits: a capture's pieces come as fast as the agent reads,
once a second, and this is 30,000 samples. It is also all that one read takes."""
LINE_BYTES_MAX = 1 << 20
"""A report of COUNTERS_MAX counters has 40 kB."""
BACKOFF_SECONDS_MAX = 60.0
"""Between two starts of a sampler that dies: 1 s, doubled each time."""
WELL_SECONDS = 60.0
"""A sampler that lived so long is forgiven earlier deaths."""
END_SECONDS = 1.0
"""How long a sampler may take to end after its input closes: it checks every 50 ms."""

START = "import sys; sys.path.insert(0, sys.argv[1]); from {0} import main; main()"
PACKAGES = Path(__file__).resolve().parents[2]

Message = dict[str, Any]

log = logging.getLogger(__name__)


class FastSampler(Protocol):
    """A fast sampler: a process of this machine, or the recording of a captured tree."""

    restarts: int

    @property
    def is_up(self) -> bool: ...

    def poll(self) -> Sequence[Message]:
        """Its messages since the last call; starts it if it does not run."""

    def capture(self, request: Mapping[str, Any]) -> bool:
        """Ask for raw samples; False if it does not take the request."""

    def close(self) -> None: ...


class LiveSampler:
    """The process of this machine. For one thread, but for `capture`, which any may call."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._pause_seconds = 0.0
        self._start_ns = self._started_ns = 0
        self.restarts = 0

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def poll(self) -> Sequence[Message]:
        messages = self._take() if self._process is not None else []
        if not self.is_up:
            self._start_again()
        return messages

    def capture(self, request: Mapping[str, Any]) -> bool:
        process = self._process
        if process is None or process.stdin is None:
            return False
        try:
            os.write(process.stdin.fileno(), json.dumps(request).encode() + b"\n")
        except (OSError, ValueError):  # it has died, or reads nothing any more
            return False
        return True

    def close(self) -> None:
        """Close its input, and wait until it has ended."""
        process, self._process, self._rest = self._process, None, b""
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # --- starting ------------------------------------------------------------------------------

    def _start_again(self) -> None:
        now_ns = time.monotonic_ns()
        if self._process is not None:
            lived_seconds = (now_ns - self._started_ns) / NS_PER_SECOND
            status = self._process.poll()
            self.close()
            self.restarts += 1
            is_well = lived_seconds >= WELL_SECONDS
            pause = 1.0 if is_well or not self._pause_seconds else 2 * self._pause_seconds
            self._pause_seconds = min(BACKOFF_SECONDS_MAX, pause)
            self._start_ns = now_ns + int(self._pause_seconds * NS_PER_SECOND)
            log.warning("the sampler ended with status %s; started again in %.0f s", status, pause)
        if now_ns >= self._start_ns:
            self._start(now_ns)

    def _start(self, now_ns: int) -> None:
        command = [sys.executable, "-I", "-S", "-c", START.format(sampler.__name__), str(PACKAGES)]
        self._process = process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, close_fds=True
        )
        self._started_ns = now_ns
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            fcntl(process.stdout.fileno(), F_SETPIPE_SZ, PIPE_BYTES)
        except OSError as error:
            log.info("the sampler's pipe stays small, captures take longer: %s", error)
        try:
            process.stdin.write(self._plan.encode().encode() + b"\n")
        except OSError as error:  # it is gone already; the next poll notices
            log.warning("the sampler did not start: %s", error)
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)

    # --- listening -----------------------------------------------------------------------------

    def _take(self) -> list[Message]:
        assert self._process is not None
        assert self._process.stdout is not None
        data = self._rest
        while len(data) < PIPE_BYTES + LINE_BYTES_MAX:
            try:
                piece = os.read(self._process.stdout.fileno(), PIPE_BYTES)
            except BlockingIOError:
                break
            if not piece:
                break
            data += piece
        *lines, self._rest = data.split(b"\n")
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            log.error("the sampler sent an invalid message (%s); it is ended", error)  # noqa: TRY400
            self._process.kill()
            return []


def replay_messages(recorded: str, plan: Plan) -> list[Message]:
    from collector.bursts.replay import replay  # noqa: PLC0415 - only on captured trees

    return replay(recorded, plan)


class ReplayedSampler:
    """A captured tree's recording, given as a whole at every poll."""

    def __init__(self, recorded: str, plan: Plan) -> None:
        self._recorded = recorded
        self._plan = plan
        self.restarts = 0

    @property
    def is_up(self) -> bool:
        """A recording is always there."""
        return True

    def poll(self) -> Sequence[Message]:
        return replay_messages(self._recorded, self._plan)

    def capture(self, request: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the seam's shape
        return False

    def close(self) -> None:
        """A recording runs nothing."""
