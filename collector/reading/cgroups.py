"""What a process' cgroups say of it: its Slurm job and step, its pod, its container.

The kernel keeps them, and a user cannot choose them: they win over what an environment claims.
Versions 1 and 2, with the drivers of systemd and of cgroupfs, of containerd, CRI-O, Docker, Podman
and slurmd.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from collector.contract.errors import HostError
from collector.doors.host import Host

LINES_MAX = 32
"""cgroup v1 has a line per controller, about 14; v2 has one."""
CONTAINER_CHARACTERS = 12
"""Of a container's id of 64: what `docker ps` and `crictl ps` print (13 there), and who read it."""
DEPTH_MAX = 12
"""Of a process' cgroup below the root. Slurm has six, Kubernetes five."""
ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
ROOTS_V1 = {
    "cpu": ("sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpu"),
    "rdma": ("sys/fs/cgroup/rdma",),
}
"""By controller: version 1 has a tree for each."""

_SLURM = re.compile(
    r"slurm.*?/job_(\d{1,12})(?:/step_(\d{1,10}|batch|extern|interactive))?(?:/|$)", re.MULTILINE
)
_POD = re.compile(r"kubepods.*?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?![0-9a-f])")
_CONTAINER = re.compile(
    # A runtime's own helper (crio-conmon-…, libpod-conmon-…) is beside the container, not in it.
    r"(?:^|[/:])(?:(?:cri-containerd|crio|docker|libpod|nerdctl)-)?([0-9a-f]{64})(?:\.scope)?(?:/|$)",
    re.MULTILINE,
)


class CgroupPlace(NamedTuple):
    """Empty texts where no cgroup says it."""

    slurm_job: str = ""
    slurm_step: str = ""
    pod_uid: str = ""
    container: str = ""
    """The first CONTAINER_CHARACTERS of its id; the outermost of containers in containers."""


def read_cgroups(host: Host, pid: int) -> list[tuple[str, str]]:
    """The process' cgroups: controllers joined by commas (empty for version 2), and the path."""
    try:
        text = host.read(f"proc/{pid}/cgroup").decode("utf-8", "replace")
    except HostError:
        return []
    found = []
    for line in text.splitlines()[:LINES_MAX]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        # `/..` is what a process sees of cgroups outside its own namespace: no path of ours.
        if path.startswith("/") and "/.." not in path and path.isprintable():
            found.append((controllers, path))
    return found


def parse_place(paths: Iterable[str]) -> CgroupPlace:
    """What the paths say together: version 1 has several, and each may be shorter than the others.

    >>> parse_place(["/system.slice/slurmstepd.scope/job_41/step_0/user/task_0"])[:2]
    ('41', '0')
    """
    text = "\n".join(paths)
    slurm, pod, container = _SLURM.search(text), _POD.search(text), _CONTAINER.search(text)
    return CgroupPlace(
        slurm_job=slurm[1] if slurm else "",
        slurm_step=(slurm[2] or "") if slurm else "",
        pod_uid=pod[1].replace("_", "-") if pod else "",
        container=container[1][:CONTAINER_CHARACTERS] if container else "",
    )


def folders_above(controller: str, controllers: str, path: str) -> Iterator[str]:
    """The folders of a process' cgroup and of all above it, below each root it may be under.

    None if the line of version 1 is another controller's.

    >>> list(folders_above("cpu", "", "/a/b"))[:2]
    ['sys/fs/cgroup/a/b', 'sys/fs/cgroup/a']
    """
    if controllers and controller not in controllers.split(","):
        return
    parts = [part for part in path.split("/") if part][:DEPTH_MAX]
    for root in ROOTS_V1[controller] if controllers else ROOTS:
        for end in range(len(parts), 0, -1):
            yield "/".join((root, *parts[:end]))


def path_below(controller: str, folder: str) -> str:
    """A cgroup's path as `/proc/<pid>/cgroup` writes it.

    >>> path_below("rdma", "sys/fs/cgroup/rdma/slurm/uid_1000")
    '/slurm/uid_1000'
    """
    roots = sorted((*ROOTS, *ROOTS_V1[controller]), key=len, reverse=True)
    return next(folder.removeprefix(root) for root in roots if folder.startswith(f"{root}/"))
