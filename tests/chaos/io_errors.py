"""I/O that fails with EIO in one running program, for as long as a case wants it: strace.

What was tried first: libfiu, preloaded. It makes SQLite's calls fail and never the engine's, which
do not go through the symbols that a preloaded library replaces; and with `write` and `open` its own
control pipe fails, too. strace stops the program at the call itself, whichever library made it.

The calls are such as programs make of files alone: the engine writes a part into a new folder
(`mkdir`) and names it when it is whole (`rename`), SQLite writes with `pwrite64` and syncs.
`write` is not among them: it would fail on pipes and on the log as well.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator

from tests.tools import peers

PEER = "strace"
CALLS = "?mkdir,mkdirat,?rename,?renameat,renameat2,pwrite64,fsync,fdatasync"
"""With a question mark: calls that some processors' kernels do not have."""
WAIT_SECONDS = 30


def why_not() -> str:
    """Why this machine cannot do it; empty if it can."""
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            with failing(other.pid):
                return ""
        except AssertionError as error:
            return str(error)
        finally:
            other.kill()


@contextlib.contextmanager
def failing(pid: int) -> Iterator[None]:
    """Meanwhile these calls of this process fail."""
    words = [str(peers.find(PEER)), "-f", "-o", "/dev/null", "-e", f"trace={CALLS}"]
    words += ["-e", f"inject={CALLS}:error=EIO", "-p", str(pid)]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as tracer:
        try:
            assert tracer.stderr is not None
            said = tracer.stderr.readline()
            assert b"attached" in said, f"strace cannot attach: {said!r}"
            yield
        finally:
            # It lets the process go and passes nothing on.
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=WAIT_SECONDS)
