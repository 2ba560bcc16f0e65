"""A small file system in memory, which can be full, for one program and no other."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

SIZE = "256m"
MOUNT_AND_WAIT = f'mount -t tmpfs -o size={SIZE} none "$0" && echo ready && exec sleep infinity'


def why_not() -> str:
    """Why this machine cannot do it; empty if it can."""
    trial = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    done = subprocess.run(trial, check=False, capture_output=True)
    return "" if done.returncode == 0 else "this machine allows no mount namespaces"


class SmallDisk:
    """Mounted on a folder, in a mount namespace that a sleeping process holds."""

    def __init__(self, folder: Path, holder: int) -> None:
        self.folder = folder
        self.inside = ["nsenter", "-t", str(holder), "-m"]
        """The words that run a program where the disk is mounted."""

    def run(self, *words: str) -> None:
        subprocess.run([*self.inside, *words], check=False, capture_output=True)

    def fill(self) -> None:
        self.run("dd", "if=/dev/zero", f"of={self.folder / 'ballast'}", "bs=64k")

    def make_room(self) -> None:
        self.run("rm", str(self.folder / "ballast"))

    def copy_to(self, folder: Path) -> Path:
        """What lies on it, where every program can read it."""
        self.run("cp", "-a", str(self.folder), str(folder))
        return folder


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    folder.mkdir(exist_ok=True)
    words = ["unshare", "-m", "sh", "-c", MOUNT_AND_WAIT, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n", "the disk could not be mounted"
            yield SmallDisk(folder, holder.pid)
        finally:
            holder.kill()
