"""Data sets that tests make once and keep, by the hash of everything that makes them.

They lie in the user's cache (`$XDG_CACHE_HOME/fabricscope-tests`), so that other clones on the same
machine find them, too. The hash covers the whole product, the versions of its packages and every
module of `tests` that is no test: a change to any of them makes the data anew. Deleting the folder
loses nothing but time.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("alerts", "api", "collector", "simulator")
SUFFIXES = {".ini", ".mako", ".py", ".sql", ".toml", ".yaml"}
DAY_SECONDS = 86_400.0
UNUSED_SECONDS_MAX = 7 * DAY_SECONDS
"""What no run has used for so long is deleted."""


def cache() -> Path:
    """Where data is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fabricscope-tests"


def sources(packages: tuple[str, ...] = PRODUCT) -> list[Path]:
    """Every file that has a say in what data sets hold."""
    product = (path for name in packages for path in (ROOT / name).rglob("*"))
    files = [path for path in product if path.suffix in SUFFIXES]
    helpers = (ROOT / "tests").rglob("*.py")
    files += [path for path in helpers if not path.name.startswith("test_")]
    return sorted([*files, ROOT / "requirements-dev.lock"])


@functools.cache
def fingerprint(packages: tuple[str, ...] = PRODUCT) -> str:
    """One hash of the sources, by name and content, and of the Python that runs them."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sources(packages):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def kept(module: str, name: str, seconds_max: float = float("inf")) -> Path:
    """The folder with a data set; it is copied by those who write to it.

    Where there is none, or one older than ``seconds_max``, `python -m MODULE --make NAME FOLDER`
    makes it: a process of its own, as the store's engine opens one folder in a process.
    """
    place = cache() / name
    place.mkdir(parents=True, exist_ok=True)
    folder = place / fingerprint()
    made = folder / "made"
    with (place / "lock").open("w") as guard:
        # A second process waits for the first, and finds the data made.
        fcntl.flock(guard, fcntl.LOCK_EX)
        if made.is_file() and time.time() - made.stat().st_mtime < seconds_max:
            os.utime(folder)
            return folder / "data"
        forget_unused(place)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "data").mkdir(parents=True)
        command = [sys.executable, "-m", module, "--make", name, str(folder / "data")]
        subprocess.run(command, check=True, cwd=ROOT)
        made.touch()
    return folder / "data"


def forget_unused(place: Path) -> None:
    """Delete what other sources have made, unless a clone has used it lately."""
    for folder in place.iterdir():
        if folder.is_dir() and time.time() - folder.stat().st_mtime > UNUSED_SECONDS_MAX:
            shutil.rmtree(folder, ignore_errors=True)
