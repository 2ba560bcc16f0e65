"""The programs of the demo: the service and the agents, started as a user would start them.

What the demo shows is then what an install does. Whatever is started here is ended here, by its
process, when the block that started it ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from api.remote.client import Client, ServiceError
from collector.contract.errors import FabricscopeError, SettingsError

READY_SECONDS = 180.0
"""How long the service may take to start: two seconds on an idle laptop, over a minute beside
programs that take all cores."""
STOP_SECONDS = 15.0
"""How long programs may take to end before they are killed."""
POLL_SECONDS = 0.1
SERVICE = "service"
SETTINGS_PREFIX = "FABRICSCOPE_"
"""The user's own settings in the environment are for the user's own agents and service."""


class Stop:
    """A request to end.

    A plain flag and short sleeps: what `threading` has for this may lock up when a signal's handler
    sets it in the very thread that waits for it.
    """

    def __init__(self) -> None:
        self.is_wanted = False

    def want(self, *_: object) -> None:
        """End soon: a handler of signals."""
        self.is_wanted = True

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.is_wanted and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))
        return self.is_wanted


def free_port(wanted: int) -> int:
    for candidate in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", candidate))
                return int(probe.getsockname()[1])
    raise SettingsError("no port on 127.0.0.1 is free")


class Programs:
    """Programs of ours that run beside this one; all end with the block."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Agents first, so that the service still takes what they have; all at once, because each
        # may need a second.
        self.stop([name for name in self._running if name != SERVICE])
        self.stop([SERVICE])

    def start(self, name: str, verb: str, flags: Sequence[str]) -> None:
        """Start one of our verbs under this name; its output goes to a file of that name."""
        program = "import sys; from collector.cli import main; sys.exit(main())"
        environment = os.environ.items()
        with self._log(name).open("ab") as output:
            self._running[name] = subprocess.Popen(  # noqa: S603 - our own program and arguments
                [sys.executable, "-P", "-c", program, verb, *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the demo alone, which then ends everything in order.
                start_new_session=True,
                env={
                    name: text for name, text in environment if not name.startswith(SETTINGS_PREFIX)
                },
            )

    def stop(self, names: Sequence[str]) -> None:
        """End these and wait for them; kill those that do not end in time."""
        stopping = [self._running.pop(name) for name in names if name in self._running]
        for process in stopping:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in stopping:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def is_running(self, name: str) -> bool:
        return name in self._running

    def check(self) -> None:
        """Raise with its last line of output if any has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                status = process.returncode
                raise FabricscopeError(f"{name} ended by itself ({status}): {self.last_line(name)}")

    def last_line(self, name: str) -> str:
        """Of its output, which goes with the demo's folder."""
        text = self._log(name).read_text("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else "it printed nothing"

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def await_ready(client: Client, programs: Programs, stop: Stop) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    while not stop.wait(POLL_SECONDS):
        programs.check()
        with contextlib.suppress(ServiceError):
            client.read("/readyz")
            return True
        if time.monotonic() > deadline:
            raise FabricscopeError(
                f"the service was not ready in {READY_SECONDS:.0f} s; is this machine busy with "
                f"something else? Its last words: {programs.last_line(SERVICE)}"
            )
    return False
