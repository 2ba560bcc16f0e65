"""Where the demo writes: a folder that was named and stays, or temporary ones that go."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from collector.contract.errors import SettingsError

PREFIX = "fabricscope-demo-"
MEMORY = Path("/dev/shm")  # noqa: S108 - below it, a folder of our own
"""Hosts' files are as those of /proc and /sys: tens of thousands, rewritten every second. In memory
that costs a fifth of what it costs on a disk, to make as to remove."""
MEMORY_BYTES_MIN = 1 << 30
"""That must be free there: hosts' files and logs take up to 400 MB. A container has less."""


class Folders(NamedTuple):
    """Where things are written; both are there and empty."""

    service: Path
    """The service's data, and the logs of all programs."""
    hosts: Path
    """What the simulated hosts show."""


@contextlib.contextmanager
def folders_for(wanted: Path | None) -> Iterator[Folders]:
    if wanted is None:
        with (
            tempfile.TemporaryDirectory(prefix=PREFIX) as service,
            tempfile.TemporaryDirectory(prefix=PREFIX, dir=memory_folder()) as hosts,
        ):
            yield Folders(Path(service), Path(hosts))
        return
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        is_used = any(wanted.iterdir())
        folders = Folders(wanted.resolve() / "service", wanted.resolve() / "hosts")
        if not is_used:
            for folder in folders:
                folder.mkdir()
    except OSError as error:
        raise SettingsError(f"--data {wanted}: {error.strerror}") from error
    if is_used:
        raise SettingsError(f"--data {wanted}: it is not empty; name a new folder")
    yield folders


def memory_folder() -> Path | None:
    """A file system in memory; None if there is none with enough space."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN else None
    except OSError:
        return None
