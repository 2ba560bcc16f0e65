"""Programs of this machine, bounded in time and output, for `collector.doors.host` alone."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import IO, NamedTuple
from urllib.parse import quote

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason

OUTPUT_BYTES_MAX = 64 << 20
"""Kept of a program's output. Counters of ten thousand switch ports are some 10 MB of text; a
program that prints more is stopped, and its output so far is used."""
COMPLAINT_BYTES_MAX = 64 << 10
CHUNK_BYTES = 1 << 16
END_SECONDS = 1.0
"""How long a program that was stopped may take to end before it is killed."""
NAME_CHARS_MAX = 200
"""Of a recorded command's file name; file systems take 255 bytes."""


class Output(NamedTuple):
    """A program's output, and how it ended."""

    text: bytes
    complaints: bytes = b""
    status: int = 0
    """Exit status; negative: the signal that ended it."""
    is_cut: bool = False
    """It was stopped before it ended: its time was up, or it printed too much."""


def recorded_as(words: Sequence[str]) -> str:
    """Where a captured tree keeps the output of this command.

    >>> recorded_as(["ibnetdiscover", "-p"])
    'commands/ibnetdiscover -p'
    """
    name = quote(" ".join(words), safe=" ,:=+")
    if len(name) > NAME_CHARS_MAX:
        digest = blake2b(name.encode(), digest_size=8).hexdigest()
        name = f"{name[: NAME_CHARS_MAX - 20]}-{digest}"
    return f"commands/{name}"


def run_command(
    words: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> Output:
    """The output within so many seconds, or so far. Raises HostError if it cannot be started."""
    path = shutil.which(words[0])
    if path is None:
        raise HostError(UnreadReason.ABSENT, words[0], "there is no such program on this machine")
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell; the words are ours or the settings'
            [path, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise HostError(UnreadReason.UNREADABLE, words[0], str(error)) from error
    with process:
        try:
            text, complaints, is_cut = _listen(process, time.monotonic() + seconds)
        finally:
            _end(process)
    return Output(text, complaints, process.returncode, is_cut)


def _listen(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes, bool]:
    """Standard output and error up to the deadline and their bounds; whether that was too early."""
    assert process.stdout is not None
    assert process.stderr is not None
    kept: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    is_cut = False
    with selectors.DefaultSelector() as selector:
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and not is_cut:
            left = deadline - time.monotonic()
            ready = selector.select(max(0.0, left))
            is_cut = left <= 0 and not ready
            for key, _ in ready:
                stream = next(each for each in kept if each is key.fileobj)
                data = os.read(key.fd, CHUNK_BYTES)
                if not data:
                    selector.unregister(stream)
                    continue
                bound = OUTPUT_BYTES_MAX if stream is process.stdout else COMPLAINT_BYTES_MAX
                room = bound - len(kept[stream])
                kept[stream] += data[:room]
                is_cut |= stream is process.stdout and len(data) > room
            is_cut |= left <= 0
    return bytes(kept[process.stdout]), bytes(kept[process.stderr]), is_cut


def _end(process: subprocess.Popen[bytes]) -> None:
    """Make sure that it and its children have ended."""
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
                return
