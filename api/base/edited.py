"""Files that operators edit while the service runs: whether one has changed, and is whole."""

from __future__ import annotations

import time
from pathlib import Path

from collector.contract.units import NS

SETTLED_SECONDS = 1.0
"""A file that was written less long ago may be half of what it will be, and half a file may be a
valid one: half of the rules, an empty policy."""

Stamp = tuple[int, int, int, int]
"""Device, inode, size and time of change (unix nanoseconds): a file that has the same is the
same."""


def stamp_of(path: Path) -> Stamp | None:
    """None: there is no such file, or it may not be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def is_being_written(stamp: Stamp | None) -> bool:
    """A file from the future, by another machine's clock, is taken as it is."""
    return stamp is not None and 0 <= time.time_ns() - stamp[3] < SETTLED_SECONDS * NS
