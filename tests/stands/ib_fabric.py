"""A real InfiniBand fabric without hardware: ibsim, a subnet manager, and the tools that ask it.

Unix sockets only. Nothing is installed: programs and ibsim's library come from `.peers/`.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from simulator.interfaces.ibsim import hca_id, topology_text
from simulator.topology.model import Topology
from tests.tools import peers

READY_SECONDS = 120
POLL_SECONDS = 0.01
PROMPT = b"sim> "
ROOTS = (peers.FOLDER / "ibsim-utils", Path("/"))
LIBRARY = "usr/lib/*/umad2sim/libumad2sim.so"
"""Preloaded, it gives a program an HCA of ibsim's fabric in place of the kernel's."""
BESIDE = ("libibumad.so.3", "libibmad.so.5")
"""What the library needs; preloaded too, because an unpacked program does not find them."""


@dataclass
class Manager:
    """A running subnet manager."""

    process: subprocess.Popen[bytes]
    log: Path

    def has_said(self, words: str) -> bool:
        return self.log.exists() and words in self.log.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(READY_SECONDS)


@dataclass
class Fabric:
    """A running ibsim. Programs run on its first HCA."""

    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    folder: Path

    def type(self, commands: Sequence[str]) -> None:
        """Enter commands at the console; returns when all have been carried out."""
        assert self.process.stdin is not None
        wanted = self.prompts() + len(commands)
        self.process.stdin.write("".join(f"{command}\n" for command in commands).encode())
        self.process.stdin.flush()
        wait_until(lambda: self.prompts() >= wanted, self)

    def prompts(self) -> int:
        """How often the console has asked for a command: after each it asks for the next."""
        return (self.folder / "console").read_bytes().count(PROMPT)

    def run(self, program: str, *arguments: str) -> str:
        """What a program on the first HCA prints."""
        path = peers.find(program)
        assert path is not None
        done = subprocess.run(
            [str(path), *arguments],
            env=self.environment,
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
        )
        # ibqueryerrors returns 1 when it has found some.
        if done.returncode not in {0, 1}:
            raise peers.PeerError(f"{program}: {done.stderr[-1000:] or done.stdout[-1000:]}")
        return done.stdout

    def sweep(self, partitions: str = "") -> None:
        """Let a subnet manager look at the fabric once: it makes routes, and links active.

        ``partitions``: lines as in opensm's partitions.conf, in place of its one default.
        """
        words = ["-o", "-f", str(self.folder / "opensm.log")]
        if partitions:
            settings = self.folder / "partitions.conf"
            settings.write_text(partitions)
            words += ["-P", str(settings)]
        self.run("opensm", *words)

    @contextmanager
    def manager(self, hca: str, priority: int) -> Iterator[Manager]:
        """A subnet manager that goes on running on an HCA, and takes over within a second."""
        program = peers.find("opensm")
        assert program is not None
        folder = self.folder / f"manager-{hca}"
        folder.mkdir()
        settings = folder / "opensm.conf"
        # A standby looks after its master every 200 ms in place of 10 s, and gives it up at once.
        settings.write_text("sminfo_polling_timeout 200\npolling_retry_number 1\n")
        own = {"SIM_HOST": hca, "OSM_TMP_DIR": str(folder), "OSM_CACHE_DIR": str(folder)}
        log = folder / "opensm.log"
        words = ["-F", str(settings), "-f", str(log), "-p", str(priority), "-s", "1"]
        with subprocess.Popen(
            [str(program), *words],
            env=self.environment | own,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield Manager(process, log)
            finally:
                process.kill()


@contextmanager
def fabric(topology: Topology) -> Iterator[Fabric]:
    """The topology as ibsim plays it, swept once."""
    program = peers.find("ibsim")
    if program is None:
        raise peers.PeerError("ibsim is not here: make peers")
    folder = Path(tempfile.mkdtemp(prefix="fs-ib-", dir="/tmp"))
    (folder / "net").write_text(topology_text(topology))
    environment = os.environ | {
        # Its own name for its sockets: another run on this machine has another fabric.
        "IBSIM_SOCKNAME": folder.name,
        "OSM_TMP_DIR": str(folder),
        "OSM_CACHE_DIR": str(folder),
    }
    try:
        with (
            (folder / "console").open("wb") as console,
            (folder / "warnings").open("wb") as warnings,
            subprocess.Popen(
                [str(program), "-s", str(folder / "net")],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=warnings,
                env=environment,
            ) as process,
        ):
            preloaded = environment | {
                "LD_PRELOAD": ":".join(map(str, libraries())),
                "SIM_HOST": hca_id(topology, 0),
            }
            try:
                running = Fabric(process, preloaded, folder)
                wait_until(lambda: running.prompts() > 0, running)
                running.sweep()
                yield running
            finally:
                process.terminate()
                process.wait(READY_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def libraries() -> list[Path]:
    """The library of ibsim with what it needs, unpacked or installed."""
    library = next((found for root in ROOTS if (found := peers.newest(root, LIBRARY))), None)
    if library is None:
        raise peers.PeerError(f"ibsim is here without its {LIBRARY}: make peers")
    beside = [library.parent.parent / name for name in BESIDE]
    return [*(path for path in beside if path.exists()), library]


def wait_until(is_so: Callable[[], bool], running: Fabric, seconds: float = READY_SECONDS) -> None:
    """Return once it is so; if it never is, raise with ibsim's output."""
    deadline = time.monotonic() + seconds
    while running.process.poll() is None and time.monotonic() < deadline:
        if is_so():
            return
        time.sleep(POLL_SECONDS)
    said = (running.folder / "console").read_text()[-1000:]
    warned = (running.folder / "warnings").read_text()[-1000:]
    raise peers.PeerError(f"ibsim did not get there:\n{said}\n{warned}")
