"""Builds the images without a container registry, starts them and says what they cost.

As root, with Debian's buildah and debootstrap, after `make wheel` (`make images` does both):

    images.py            build and check both
    images.py --check    check what was built before

The Dockerfiles are built as they are. In place of the base that a registry would give stands one
of Debian's own packages, with Debian's Python: one version older than the registry's.

An image is started as a hardened host would: as the user it names, without capabilities, its root
read-only and its volume its own. It has to answer, and to end within its grace at SIGTERM.
"""
# ruff: noqa: INP001, S603, T201 - a program of its own, which runs the builder and prints

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BASE = "docker.io/library/python:3.12-slim-bookworm"
PACKAGES = "ca-certificates,netbase,tzdata,python3-minimal,python3-venv"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "/etc/ssl/certs"
"""This machine's, while it builds: a network may have an authority of its own."""
COMPILERS = ("cc", "gcc", "g++", "clang", "tcc", "as", "ld", "make")
UNUSED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "var/log")
START_SECONDS = 180.0
MIB = 1 << 20


@dataclass(frozen=True)
class Image:
    """An image, and what is asked of it. ``mib_max``: over its base, unpacked."""

    name: str
    file: str
    port: int
    path: str
    grace_seconds: float
    mib_max: int
    environment: tuple[str, ...]


IMAGES = (
    Image(
        name="fabricscope-agent:0.1.0",
        file="Dockerfile.agent",
        port=9701,
        path="/metrics",
        grace_seconds=10.0,
        mib_max=80,
        # No service listens there: an agent starts without.
        environment=("FABRICSCOPE_AGENT_SERVICE_URL=http://127.0.0.1:9",),
    ),
    Image(
        name="fabricscope:0.1.0",
        file="Dockerfile.service",
        port=9700,
        path="/healthz",
        grace_seconds=30.0,
        # The engine is 533 of them, Arrow 157, numpy 55: docs/how-to/deploy.md.
        mib_max=1050,
        environment=("FABRICSCOPE_LISTEN=127.0.0.1:9700",),
    ),
)


def call(*words: str) -> str:
    """What a program prints; it must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{' '.join(words[:3])}: status {done.returncode}: {done.stderr[-2_000:]}"
        raise SystemExit(f"images: {message}")
    return done.stdout.strip()


# --- building ----------------------------------------------------------------------------------


def make_base() -> None:
    """The base, from Debian's packages alone; one that is there is kept."""
    words = ["buildah", "inspect", "--type", "image", BASE]
    known = subprocess.run(words, capture_output=True, check=False)
    if known.returncode == 0:
        return
    container = call("buildah", "from", "scratch")
    root = Path(call("buildah", "mount", container))
    # From its own default.
    call("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root))
    for folder in UNUSED:
        for found in (root / folder).iterdir():
            found.unlink() if found.is_symlink() or not found.is_dir() else shutil.rmtree(found)
    (root / "usr/bin/python").symlink_to("python3")
    call("buildah", "config", "--env", f"PATH={PATH}", container)
    call("buildah", "commit", "--quiet", "--format", "docker", "--rm", container, BASE)


def build(image: Image) -> None:
    """By the Dockerfile as it is; without a network of containers, which a build does not need."""
    words = ["buildah", "bud", "--quiet", "--format", "docker", "--isolation", "chroot"]
    words += ["--pull-never", "--layers=false", "--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    words += ["--ignorefile", str(HERE / f"{image.file}.dockerignore")]
    call(*words, "--file", str(HERE / image.file), "--tag", image.name, str(ROOT))


# --- checking ----------------------------------------------------------------------------------


@contextmanager
def mounted(name: str) -> Iterator[Path]:
    """An image's files."""
    container = call("buildah", "from", "--pull-never", name)
    try:
        yield Path(call("buildah", "mount", container))
    finally:
        call("buildah", "rm", container)


def mib(folder: Path) -> int:
    """What a folder takes on a disk."""
    return int(call("du", "-sk", str(folder)).split()[0]) * 1024 // MIB


def largest(root: Path) -> str:
    """The packages that take most."""
    [folder] = (root / "opt/fabricscope/lib").glob("python3*/site-packages")
    sizes = sorted(((mib(each), each.name) for each in folder.iterdir()), reverse=True)
    return ", ".join(f"{name} {size}" for size, name in sizes[:6])


def compilers(root: Path) -> list[str]:
    """Those that the image has: it should have none."""
    places = [folder.lstrip("/") for folder in PATH.split(":")]
    return [
        f"/{place}/{name}"
        for place in places
        for name in COMPILERS
        if (root / place / name).exists()
    ]


def words_of(image: Image, settings: dict[str, Any], root: Path, volume: Path) -> list[str]:
    """The command that starts it in namespaces of its own."""
    [place] = settings["Volumes"]
    uid, _, gid = str(settings["User"]).partition(":")
    quoted = {"root": root, "volume": volume, "place": place, "uid": uid, "gid": gid}
    script = """
        mount --bind {root} {root} && mount -o remount,bind,ro {root}
        mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev
        mount --rbind /sys {root}/sys && mount -t tmpfs tmpfs {root}/tmp
        mount --bind {volume} {root}{place}
        exec chroot {root} setpriv --reuid {uid} --regid {gid} --clear-groups \\
            --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
    """.format(**quoted)
    environment = [*settings["Env"], *image.environment]
    program = [*settings["Entrypoint"], *settings["Cmd"]]
    inside = ["env", "-i", *environment, *program]
    own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", script, "sh"]
    return [*own, *inside]


def wait_for(image: Image, process: subprocess.Popen[bytes]) -> float:
    """Seconds until it answers."""
    began = time.monotonic()
    while time.monotonic() - began < START_SECONDS and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", image.port, timeout=5)
        try:
            connection.request("GET", image.path)
            if connection.getresponse().status == http.client.OK:
                return time.monotonic() - began
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    raise SystemExit(f"images: {image.name} does not answer {image.path} on port {image.port}")


def main_process(parent: int) -> int:
    """The program itself: the child of `unshare`, which has a number of its own inside."""
    return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])


def run_once(image: Image, settings: dict[str, Any], root: Path) -> tuple[float, float, int]:
    """Seconds to the first answer, seconds to the end after SIGTERM, and the status."""
    uid, _, gid = str(settings["User"]).partition(":")
    with tempfile.TemporaryDirectory() as folder:
        volume = Path(folder)
        os.chown(volume, int(uid), int(gid))
        process = subprocess.Popen(words_of(image, settings, root, volume))
        try:
            started_s = wait_for(image, process)
            child = main_process(process.pid)
            status = dict(
                line.split(":\t", 1)
                for line in Path(f"/proc/{child}/status").read_text().splitlines()
                if ":\t" in line
            )
            if status["Uid"].split()[0] != uid or int(status["CapEff"], 16):
                raise SystemExit(
                    f"images: {image.name} runs as {status['Uid']}, {status['CapEff']}"
                )
            began = time.monotonic()
            os.kill(child, signal.SIGTERM)
            code = process.wait(image.grace_seconds)
            return started_s, time.monotonic() - began, code
        finally:
            process.kill()
            process.wait()


def check(image: Image) -> list[str]:
    """What is wrong with it; prints its figures."""
    settings = json.loads(call("buildah", "inspect", "--type", "image", image.name))
    settings = settings["Docker"]["config"]
    with mounted(BASE) as base:
        base_mib = mib(base)
    wrong = []
    with mounted(image.name) as root:
        own_mib = mib(root) - base_mib
        print(f"{image.name}: {own_mib} MiB over a base of {base_mib} MiB: {largest(root)}")
        if own_mib > image.mib_max:
            wrong.append(f"{image.name} is {own_mib} MiB over its base, at most {image.mib_max}")
        wrong += [f"{image.name} has a compiler: {each}" for each in compilers(root)]
        if settings["User"].partition(":")[0] in {"", "0", "root"}:
            wrong.append(f"{image.name} runs as {settings['User'] or 'root'}")
            return wrong
        started_s, ended_s, code = run_once(image, settings, root)
    print(
        f"{image.name}: answers after {started_s:.1f} s, ends {ended_s:.1f} s after SIGTERM: {code}"
    )
    if code:
        wrong.append(f"{image.name} ends with status {code} at SIGTERM")
    return wrong


def main() -> int:
    """Build and check what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only check what was built before")
    asked = parser.parse_args()
    missing = [each for each in ("buildah", "debootstrap", "setpriv") if not shutil.which(each)]
    if os.geteuid() or missing:
        print(f"images: needs root, and the programs {', '.join(missing) or '-'}", file=sys.stderr)
        return 2
    if not asked.check:
        make_base()
        for image in IMAGES:
            build(image)
    wrong = [each for image in IMAGES for each in check(image)]
    for each in wrong:
        print(f"images: {each}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
