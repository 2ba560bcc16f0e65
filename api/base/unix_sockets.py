"""Unix sockets in folders whose paths may be longer than the kernel takes for a socket's name."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NAME_BYTES_MAX: Final = 107
"""What the kernel takes (`sun_path`), without the zero at its end."""
OWNER_ONLY: Final = 0o177
"""The mask of a file that its owner alone may open: mode 0600."""
STORE_AWAY: Final = "the store process does not listen"
"""Among the driver's words: a process of this service owns the store, and is away."""


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """The path, or another one of the same file that is short enough."""
    if len(os.fsencode(path)) <= NAME_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def bind_unix(path: Path) -> socket.socket:
    """A socket at this path for the user of this process alone; a dead process' one is replaced.

    Only for a path in a folder that this process has locked. Nothing listens yet. Changes the
    process' umask for a moment: call it before there are threads that make files.
    """
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(OWNER_ONLY)
    try:
        with short_name(path) as name:
            bound.bind(name)
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


def connect_unix(path: Path, timeout_s: float | None) -> socket.socket:
    """A connection to the process that listens there. Raises OSError."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout_s)
    try:
        with short_name(path) as name:
            connected.connect(name)
    except OSError:
        connected.close()
        raise
    return connected
