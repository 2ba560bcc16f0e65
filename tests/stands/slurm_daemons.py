"""Slurm itself on loopback: slurmctld, one slurmd for each of a few nodes, and a munged of its own.

All of it lives in one folder, as root, binds 127.0.0.1 alone, and is ended by process id. Debian's
slurmd takes `-N name`, so that several run on one machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from api.remote.slurm.hostlist import compress
from tests.stands.environment import clean_environment
from tests.stands.ports import free_port
from tests.stands.service import ROOT, eventually
from tests.tools.peers import find

PROGRAMS = ("munged", "slurmctld", "slurmd")
SHIPPED = Path(__file__).parents[2] / "deploy" / "slurm"
COMMAND_SECONDS = 30
END_SECONDS = 20

CONFIGURATION = """
ClusterName=alpha
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
# Without these two every daemon and srun would listen on all addresses.
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/%n.pid
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
# By default a job takes all memory of its nodes, and shares them with none.
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=1
# A job's end waits for a step that does not go: as little as it can be.
KillWait=1
SchedulerParameters=sched_interval=1,batch_sched_delay=0
RebootProgram=/bin/true
HealthCheckProgram={home}/healthcheck
HealthCheckInterval=2
PrologSlurmctld={home}/etc/prolog
EpilogSlurmctld={home}/etc/epilog
"""
QUIET = "#!/bin/sh\nexit 0\n"
PROGRAM = """#!{python}
import sys
sys.path.insert(0, {root!r})
from collector.cli import main
sys.exit(main())
"""
GUARD = """#!/bin/sh
# slurmd runs this on every node: a Python for each every two seconds would be dear.
[ "$SLURMD_NODENAME" = "$(cat {home}/checked 2>/dev/null)" ] || exit 0
exec {home}/etc/healthcheck
"""


def in_time(condition: Callable[[], bool], what: str) -> None:
    """`eventually`, for conditions that start programs of Slurm: more seldom, as each costs."""
    eventually(condition, what, pause_seconds=0.15)


class SlurmDaemons:
    """A cluster with these nodes; its client programs with `run`."""

    def __init__(self, home: Path, nodes: Sequence[str], hidden: str = "") -> None:
        self.home = home
        self.nodes = nodes
        self.etc = home / "etc"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for folder in ("etc", "state"):
            (home / folder).mkdir()
        ports = {node: free_port() for node in nodes}
        lines = [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4"
            for node, port in ports.items()
        ]
        shown = compress(node for node in nodes if node != hidden)
        lines.append(f"PartitionName=gpu Nodes={shown} Default=YES State=UP")
        if hidden:
            lines.append(f"PartitionName=hidden Nodes={hidden} Hidden=YES State=UP")
        text = CONFIGURATION.format(home=home, port=free_port())
        self.configuration.write_text("\n".join([text, *lines, ""]))
        (home / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (home / "munge.key").write_bytes(secrets.token_bytes(1024))
        (home / "munge.key").chmod(0o400)
        self._script(home / "fabricscope", PROGRAM.format(python=sys.executable, root=str(ROOT)))
        self._script(home / "healthcheck", GUARD.format(home=home))
        for name in ("prolog", "epilog", "healthcheck"):
            self._script(self.etc / name, QUIET)

    @property
    def configuration(self) -> Path:
        return self.home / "slurm.conf"

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    # Its daemons ---------------------------------------------------------------------------------

    def start(self) -> None:
        """All daemons; returns when every node can take a job."""
        files = [f"--{name}={self.home}/munge.{name[:-5]}" for name in ("key-file", "pid-file")]
        more = [f"--{name}-file={self.home}/munge.{name}" for name in ("log", "seed")]
        socket = self.home / "munge.socket"
        self._launch("munged", "--foreground", f"--socket={socket}", *files, *more)
        eventually(socket.exists, "munged's socket")
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        in_time(lambda: set(self.states().values()) == {"idle"}, "every node is idle")

    def start_controller(self) -> None:
        self._launch("slurmctld", "-D", "-f", str(self.configuration))
        in_time(lambda: self.try_to("scontrol", "ping").returncode == 0, "slurmctld answers")

    def start_node(self, node: str) -> None:
        self._launch("slurmd", "-D", "-N", node, "-f", str(self.configuration), name=node)

    def _launch(self, program: str, *words: str, name: str = "") -> None:
        path = find(program)
        assert path is not None
        with (self.home / f"{name or program}.log").open("ab") as log:
            self._daemons[name or program] = subprocess.Popen(
                [str(path), *words], stdout=log, stderr=log, env=self.environment, cwd=self.home
            )

    def end(self, name: str) -> None:
        """One daemon: slurmctld, munged, or a node's."""
        daemon = self._daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(END_SECONDS)

    def close(self) -> None:
        """All daemons, and every process of a job that is left."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.try_to("scancel", "--user=root")
        for name in reversed(tuple(self._daemons)):
            self.end(name)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Every process that was started with this cluster's configuration, or by one of those."""
        mark = f"SLURM_CONF={self.configuration}\0".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    # Its programs --------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        return {**clean_environment(), "SLURM_CONF": str(self.configuration), "LC_ALL": "C"}

    def try_to(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )

    def run(self, *words: str) -> str:
        done = self.try_to(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, program: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.run(program, "--json"))

    def shown(self) -> dict[str, Any]:
        """Every node by name, as `sinfo --json` has it: no reader of ours is between."""
        return {node["name"]: node for node in self.json("sinfo")["nodes"]}

    def states(self) -> dict[str, str]:
        """State and flags of each node, joined by +."""
        done = self.try_to("sinfo", "--json")
        nodes = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
        return {
            node["name"]: "+".join([node["state"], *sorted(node["state_flags"])]).lower()
            for node in nodes
        }

    def update(self, node: str, state: str, reason: str = "") -> None:
        """What an administrator does."""
        why = [f"Reason={reason}"] if reason else []
        self.run("scontrol", "update", f"NodeName={node}", f"State={state}", *why)

    # Its jobs ------------------------------------------------------------------------------------

    def submit(self, ranks: int, *words: str, name: str = "llm-70b") -> str:
        """A job whose ranks sleep until it is cancelled; its number."""
        script = self.home / "job.sh"
        # exec: a rank is what srun has started, as a training is.
        script.write_text("#!/bin/sh\nsrun sh -c 'exec sleep 600'\n")
        out = f"--output={self.home}/job.%j.%n"
        said = self.run(
            "sbatch", "--parsable", f"--ntasks={ranks}", f"--job-name={name}", "--requeue", out,
            *words, str(script),
        )  # fmt: skip
        return said.strip()

    def job(self, number: str) -> Any:  # noqa: ANN401 - JSON
        jobs = self.json("squeue")["jobs"]
        return next((job for job in jobs if str(job["job_id"]) == number), None)

    def ranks(self, number: str) -> dict[int, Path]:
        """The folder in /proc of each rank of a job."""
        found = {}
        for pid in self.processes():
            folder = Path("/proc", str(pid))
            with contextlib.suppress(OSError):
                words = (folder / "environ").read_bytes().split(b"\0")
                said = dict(word.partition(b"=")[::2] for word in words)
                is_rank = (folder / "comm").read_text() == "sleep\n" and b"SLURM_PROCID" in said
                if is_rank and said[b"SLURM_JOB_ID"] == number.encode():
                    found[int(said[b"SLURM_PROCID"])] = folder
        return found

    # What is shipped -----------------------------------------------------------------------------

    def install(self, name: str, service: str, *words: str) -> None:
        """A script of deploy/slurm, with our checkout and folder instead of the usual ones.

        ``words``: flags that an administrator has added to its last line.
        """
        fabricscope = self.home / "fabricscope"
        shutil.copy(SHIPPED / "environment", self.etc / "environment")
        with (self.etc / "environment").open("a") as file:
            file.write(f"FABRICSCOPE_SERVICE={service}\nSLURM_CONF={self.configuration}\n")
        (self.etc / "token").write_text("not-asked-for\n")
        (self.etc / "token").chmod(0o400)
        text = (SHIPPED / name).read_text()
        text = text.replace("/opt/fabricscope/bin/fabricscope", str(fabricscope))
        self._script(
            self.etc / name,
            text.replace("/etc/fabricscope/slurm", str(self.etc)).rstrip()
            + " ".join(["", *words, "\n"]),
        )

    def uninstall(self, name: str) -> None:
        self._script(self.etc / name, QUIET)


@contextlib.contextmanager
def slurm_daemons(nodes: Sequence[str], hidden: str = "") -> Iterator[SlurmDaemons]:
    """A running cluster. ``hidden``: the node of a partition that only administrators see."""
    if os.geteuid():
        pytest.skip("slurmd starts jobs as their users: it needs root")
    # Not below pytest's own folder: munged wants every folder above its socket to be open to all,
    # and a socket's path has 108 characters at most.
    home = Path(tempfile.mkdtemp(prefix="fabricscope-slurm-"))
    home.chmod(0o755)
    cluster = SlurmDaemons(home, nodes, hidden)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(home, ignore_errors=True)
