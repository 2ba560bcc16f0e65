"""Finds the real programs we test against, and fetches them without installing anything.

On Debian and Ubuntu a peer's package is downloaded and unpacked under `.peers/`, together with the
shared libraries that this system lacks. Tests ask `find("prometheus")`; the answer can be executed
as it is. Standard library only: it runs before `.venv` exists.

    python3 -m tests.tools.peers list      what is there, and where
    python3 -m tests.tools.peers unpack    fetch and unpack what can run unpacked
    python3 -m tests.tools.peers system    as root: install what should be installed
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/tools/peers.txt"
UNPACKED_AT_A_TIME = 4
"""Packages: most of the time goes by while apt waits for the network."""
POLICY = Path("/usr/sbin/policy-rc.d")
"""Asked by Debian's packages before they start a service."""
FOLDER = ROOT / ".peers"
BIN = FOLDER / "bin"

# A version is printed at once; a program that hangs here would hang every test that starts it.
VERSION_TIMEOUT_SECONDS = 20
# Packages of libraries start with lib; these are no shared objects that a peer links against.
# (PostgreSQL loads LLVM only when it compiles a query, and it runs without.)
NOT_LIBRARIES = ("libjs-", "libllvm", "libperl", "libc6", "libc-")

NO_APT = "this system has no apt-get: install {names} by hand (they are looked up on PATH)"
NO_LISTS = "apt knows no package {package}: run `apt-get update` as root, then again"


class PeerError(Exception):
    """A peer could not be had; the message says why and what to do."""


@dataclass(frozen=True)
class Peer:
    """One line of peers.txt."""

    name: str
    package: str
    path: str
    how: str


def read_table(text: str) -> list[Peer]:
    """The peers that a table's text describes; a bad line is named."""
    peers = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 4 or words[3] not in {"unpack", "system", "either"}:
            raise PeerError(f"{TABLE.name}:{number}: want name, package, path, how; got {line!r}")
        peers.append(Peer(*words))
    return peers


def table() -> list[Peer]:
    """Every peer we know."""
    return read_table(TABLE.read_text())


def find(name: str) -> Path | None:
    """The program to execute, or None when this machine does not have it."""
    peer = next((peer for peer in table() if peer.name == name), None)
    if peer is None:
        raise PeerError(f"no peer {name!r} in {TABLE.name}")
    installed = newest(Path("/"), peer.path)
    unpacked = BIN / name if (BIN / name).exists() else None
    # An unpacked peer has the version that the lists promised; an installed one comes first only
    # where peers.txt says that unpacked is second best.
    first, second = (unpacked, installed) if peer.how == "unpack" else (installed, unpacked)
    on_path = shutil.which(name)
    return first or second or (Path(on_path) if on_path else None)


def newest(root: Path, pattern: str) -> Path | None:
    """The last match of a path below a root: of several versions of a program the newest."""
    matches = [Path(match) for match in glob.glob(str(root / pattern))]  # noqa: PTH207 (absolute)
    return max(matches, key=version_key, default=None)


def version_key(path: Path) -> list[int]:
    """The numbers in a path, so that 9 comes before 15."""
    return [int(number) for number in re.findall(r"\d+", str(path))]


def run(*command: str, cwd: Path | None = None) -> str:
    """The output of a command; a failure becomes a PeerError with its last line."""
    environment = os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PeerError(f"{shlex.join(command)}: {said[-1] if said else done.returncode}")
    return done.stdout


# --- apt ---------------------------------------------------------------------------------------


def candidates(*packages: str) -> dict[str, str]:
    """The versions that apt would fetch; one call, because each call reads all of its lists."""
    text = run("apt-cache", "policy", *packages)
    found = re.findall(r"^(\S+):\n.*\n +Candidate: (\S+)", text, re.MULTILINE)
    return {package: version for package, version in found if version != "(none)"}


def known_versions(*packages: str) -> dict[str, str]:
    """The version of each package, after fetching apt's lists where they are missing."""
    versions = candidates(*packages)
    unknown = [package for package in packages if package not in versions]
    if not unknown:
        return versions
    if os.geteuid() != 0:
        raise PeerError(NO_LISTS.format(package=unknown[0]))
    say("apt-get update, because the package lists are missing")
    run("apt-get", "update")
    return candidates(*packages)


def download(package: str, into: Path) -> None:
    """Fetch a package and unpack its files below a folder."""
    into.mkdir(parents=True, exist_ok=True)
    run("apt-get", "download", package, cwd=into)
    for archive in into.glob("*.deb"):
        run("dpkg", "-x", str(archive), str(into))
        archive.unlink()


def dependencies(package: str) -> list[str]:
    """What a package directly depends on, in the order of its control file."""
    text = run("apt-cache", "depends", "--important", package)
    return list(dict.fromkeys(re.findall(r"^ +\|?(?:Pre)?Depends: ([^<\s]+)", text, re.MULTILINE)))


# --- unpacking ---------------------------------------------------------------------------------


def unpack_package(package: str, peers: list[Peer]) -> None:
    """Fetch one package, what it needs to run, and make its programs executable by name."""
    home = FOLDER / package
    shutil.rmtree(home, ignore_errors=True)
    download(package, home)
    sources = [package]
    if any(newest(home, peer.path) is None for peer in peers):
        # A package without files (postgresql) stands for the one of the current version
        # (postgresql-15), on which it depends.
        sources = [name for name in dependencies(package) if name.startswith(f"{package}-")]
        for name in sources:
            download(name, home)
    programs = {}
    for peer in peers:
        program = newest(home, peer.path)
        if program is None:
            raise PeerError(f"{package} has no {peer.path}")
        programs[peer.name] = program
    add_libraries(home, list(programs.values()), sources)
    for name, program in programs.items():
        link(name, program, libraries(home) if needs_libraries(program) else [])


def libraries(home: Path) -> list[Path]:
    """The folders of shared objects in an unpacked package."""
    return sorted({path.parent for path in home.glob("**/lib*.so.*")})


def missing_libraries(program: Path, folders: list[Path]) -> list[str]:
    """The shared objects that the loader would not find."""
    environment = os.environ | {"LC_ALL": "C", "LD_LIBRARY_PATH": ":".join(map(str, folders))}
    done = subprocess.run(
        ["ldd", str(program)], env=environment, check=False, capture_output=True, text=True
    )
    return re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)


def needs_libraries(program: Path) -> bool:
    """Whether this system alone cannot start the program."""
    return bool(missing_libraries(program, []))


def add_libraries(home: Path, programs: list[Path], sources: list[str]) -> None:
    """Unpack the libraries' packages beside the programs until the loader is content."""

    def missing() -> list[str]:
        folders = libraries(home)
        return [name for program in programs for name in missing_libraries(program, folders)]

    seen: set[str] = set()
    queue = list(sources)
    while missing() and queue:
        for package in dependencies(queue.pop(0)):
            is_library = package.startswith("lib") and not package.startswith(NOT_LIBRARIES)
            if not is_library or package in seen:
                continue
            seen.add(package)
            queue.append(package)
            if not is_installed(package) and missing():
                download(package, home)
    if still := missing():
        raise PeerError(f"no package gives {', '.join(sorted(set(still)))}")


def is_installed(package: str) -> bool:
    """Whether the system has the package already."""
    try:
        return "ok installed" in run("dpkg-query", "-W", "-f=${Status}", package)
    except PeerError:
        return False


def link(name: str, program: Path, folders: list[Path]) -> None:
    """Put a program under `.peers/bin`; with its own libraries, where it needs them."""
    BIN.mkdir(parents=True, exist_ok=True)
    target = BIN / name
    target.unlink(missing_ok=True)
    if is_preloaded(name):
        target.symlink_to(program)
        return
    # A script with exec, so that the process that a test starts and measures is the program.
    # A symbolic link would do for most, but some programs look for their files beside argv[0].
    search = f"LD_LIBRARY_PATH={shlex.quote(':'.join(map(str, folders)))} " if folders else ""
    target.write_text(f'#!/bin/sh\n{search}exec {shlex.quote(str(program))} "$@"\n')
    target.chmod(0o755)


def is_preloaded(name: str) -> bool:
    """Whether a peer is a shared object that tests load into other programs."""
    return name.endswith(".so")


def version(program: Path) -> str:
    """The first line of a program's version output; proof that it starts here."""
    if is_preloaded(program.name):
        return f"(preloaded) {program.resolve().name}"
    try:
        done = subprocess.run(
            [str(program), "--version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_SECONDS,
        )
        # ibsim and ptp4l know no --version, but they start: they say how they want to be called.
        # perftest's programs print theirs and end with status 1.
        if "usage:" not in done.stderr.lower() and not done.stdout.startswith("Version:"):
            done.check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerError(f"{program} does not start: {error}") from error
    # Debian's victoria-metrics starts, and prints an empty line.
    return next(iter((done.stdout or done.stderr).strip().splitlines()), "(starts)")


# --- the three commands ------------------------------------------------------------------------


def say(text: str) -> None:
    """One plain line of what is going on."""
    print(f"peers: {text}", flush=True)


def by_package(peers: list[Peer]) -> dict[str, list[Peer]]:
    """The peers of each package."""
    packages: dict[str, list[Peer]] = {}
    for peer in peers:
        packages.setdefault(peer.package, []).append(peer)
    return packages


def is_to_unpack(peer: Peer) -> bool:
    """Whether a peer runs unpacked, and is not there already as well or better."""
    is_there = newest(Path("/"), peer.path) is not None
    return peer.how == "unpack" or (peer.how == "either" and not is_there)


def unpack() -> None:
    """Fetch everything that can run unpacked; what fails is named, the rest is still done."""
    wanted = by_package([peer for peer in table() if is_to_unpack(peer)])
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        say(NO_APT.format(names=", ".join(wanted)))
        return
    known = known_versions(*wanted)
    with ThreadPoolExecutor(UNPACKED_AT_A_TIME) as threads:
        done = threads.map(
            lambda package: unpack_if_new(package, wanted[package], known.get(package)), wanted
        )
        failed = [package for package, is_ready in zip(wanted, done, strict=True) if not is_ready]
    if failed:
        say(f"missing: {', '.join(failed)}; their tests will be skipped")
    else:
        say(f"{len(wanted)} packages ready under .peers/")


def unpack_if_new(package: str, peers: list[Peer], wanted: str | None) -> bool:
    """Fetch one package unless this version is there; whether it is there now."""
    stamp = FOLDER / package / "unpacked.json"
    fresh = {"folder": str(FOLDER), "version": wanted}
    if read_json(stamp) == fresh and all((BIN / peer.name).exists() for peer in peers):
        return True
    start = time.monotonic()
    try:
        unpack_package(package, peers)
        for peer in peers:
            version(BIN / peer.name)
    except PeerError as error:
        for peer in peers:
            (BIN / peer.name).unlink(missing_ok=True)
        say(f"{package}: {error}")
        return False
    stamp.write_text(json.dumps(fresh))
    say(f"{package}: {wanted} unpacked in {time.monotonic() - start:.1f} s")
    return True


def read_json(path: Path) -> object:
    """The content of a JSON file, or None when it is not there or not whole."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def system() -> None:
    """Install, as root, what should be installed; no service is started by it."""
    packages = by_package([peer for peer in table() if peer.how in {"system", "either"}])
    absent = [
        package
        for package, peers in packages.items()
        if any(newest(Path("/"), peer.path) is None for peer in peers)
    ]
    if not absent:
        say("everything that should be installed is installed")
        return
    if shutil.which("apt-get") is None:
        raise PeerError(NO_APT.format(names=", ".join(absent)))
    if os.geteuid() != 0:
        raise PeerError(f"make peers-system needs root, to install {', '.join(absent)}")
    known_versions(*absent)
    keep_postgres_idle()
    say(f"apt-get install {' '.join(absent)}")
    # Old answers are kept: the file of keep_postgres_idle() must not become a question.
    options = ["-o", "Dpkg::Options::=--force-confold", "--no-install-recommends"]
    with no_services():
        run("apt-get", "install", "--yes", *options, *absent)
    say("installed")


@contextlib.contextmanager
def no_services() -> Iterator[None]:
    """Debian starts Slurm, redis and the like on installation, unless this program says no.

    A machine that has one, as images of containers do, keeps its own.
    """
    try:
        with POLICY.open("x") as policy:
            policy.write("#!/bin/sh\nexit 101\n")
    except FileExistsError:
        yield
        return
    try:
        POLICY.chmod(0o755)
        yield
    finally:
        POLICY.unlink()


def keep_postgres_idle() -> None:
    """Debian starts a database server on installation, unless a setting forbids it."""
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if not settings.exists():
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("create_main_cluster = false\n")


def show() -> None:
    """Where each peer is, or that it is missing."""
    for peer in table():
        program = find(peer.name)
        print(f"{peer.name:26}{program or 'missing'}{f'  {version(program)}' if program else ''}")


def one_at_a_time() -> Iterator[None]:
    """Hold a lock: two `make test` in one checkout must not unpack into each other."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> int:
    """The command line."""
    commands = {"list": show, "unpack": unpack, "system": system}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        for _ in one_at_a_time():
            commands[arguments[0]]()
    except PeerError as error:
        say(str(error))
        # Without peers `make test` still runs most tests; without root there is no peers-system.
        return 1 if arguments[0] == "system" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
