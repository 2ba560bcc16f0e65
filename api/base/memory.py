"""How much memory this process may use: the machine's, or less where its cgroup has a limit."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
V2, V1 = "memory.max", "memory.limit_in_bytes"
CGROUP_CHARS_MAX = 65_536
"""Of the list of this process' cgroups: a line for each hierarchy, of which there are a dozen."""


@cache
def memory_bytes() -> int:
    """Asked once: limits are set when a container starts."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *limits_of(OWN_CGROUPS, CGROUPS)])


def limits_of(own: Path, root: Path) -> list[int]:
    """The limits of a process' cgroup and of all above it; those without a limit are left out.

    ``own`` lists its cgroups, as /proc/self/cgroup does; they lie under ``root``.
    """
    try:
        lines = own.read_text(errors="replace")[:CGROUP_CHARS_MAX].splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            top, name = root, V2
        elif "memory" in controllers.split(","):
            top, name = root / "memory", V1
        else:
            continue
        place = top / path.lstrip("/")
        folders = [place, *place.parents] if ".." not in path else [top]
        found += [limit_in(each / name) for each in folders if each.is_relative_to(top)]
    return [limit for limit in found if limit is not None]


def limit_in(file: Path) -> int | None:
    """None: no limit, or none that can be read."""
    try:
        text = file.read_text(errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None
