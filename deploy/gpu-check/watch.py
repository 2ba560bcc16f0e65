"""The real service and the real agents beside the job, and what they say."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from job import RANKS, Job, end_all, on_cores
from namespaces import BRIDGE_ADDRESS, INTERFACE, name_of, words_inside

PORT = 9700
READY_SECONDS = 90.0
ANSWER_SECONDS = 10.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.1
INCIDENTS_MAX = 100
LAST_WORDS = 2000
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")

Incident = dict[str, Any]


class Service:
    """`fabricscope serve` on the bridge, where all namespaces reach it, with a token."""

    def __init__(self, program: str, folder: Path, log: Path, cores: Sequence[int]) -> None:
        self.url = f"http://{BRIDGE_ADDRESS}:{PORT}"
        self.token_file = folder / "agents.token"
        self._token = secrets.token_urlsafe(32)
        self._log = log
        folder.mkdir(parents=True)
        agents = secrets.token_urlsafe(32)
        self.token_file.write_text(agents + "\n", "utf-8")
        tokens = folder / "tokens"
        tokens.write_text(f"{self._token} admin\n{agents} ingest hosts=node*\n", "utf-8")
        for secret in (self.token_file, tokens):
            secret.chmod(0o600)
        words = [program, "serve", "--data", str(folder / "data"), "--token-file", str(tokens)]
        words += ["--listen", f"{BRIDGE_ADDRESS}:{PORT}"]
        self.process = start(on_cores(cores, words), self._log)
        # No proxy of the surrounding environment is asked about an address of this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> dict[str, Any]:
        """An answer as JSON."""
        asked = urllib.request.Request(  # noqa: S310 - its own service
            self.url + path, headers={"Authorization": f"Bearer {self._token}"}
        )
        with self._opener.open(asked, timeout=ANSWER_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def wait_until_ready(self) -> None:
        ends = time.monotonic() + READY_SECONDS
        while time.monotonic() < ends:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                self._opener.open(f"{self.url}/readyz", timeout=ANSWER_SECONDS).close()
                return
            time.sleep(POLL_SECONDS)
        said = self._log.read_text("utf-8", "replace")[-LAST_WORDS:]
        raise RuntimeError(f"the service is not ready within {READY_SECONDS:.0f} s:\n{said}")

    def incidents(self, since_ns: int) -> list[Incident]:
        """Those that were seen since then, the latest first; none where it did not answer."""
        try:
            path = f"/v1/incidents?limit={INCIDENTS_MAX}&since={since_ns / 1e9:.3f}"
            items: list[Incident] = self.get(path)["items"]
        except (OSError, ValueError, KeyError) as error:
            print(f"the service did not answer: {error}", flush=True)
            return []
        return items

    def job_verdict(self, job: str) -> dict[str, Any]:
        """What it says of the job as a whole, also where there is no incident."""
        try:
            return self.get(f"/v1/jobs/{job}/verdict")
        except (OSError, ValueError) as error:
            return {"error": str(error)}


class Agents:
    """`fabricscope agent`, one in each namespace, that sees its own rank alone.

    Only the first ``gpu_readers`` read the GPU: eight hosts share it here, and a real one is read
    by the agent of one.
    """

    def __init__(
        self,
        program: str,
        service: Service,
        job: Job,
        folder: Path,
        logs: Path,
        *,
        cores: Sequence[int],
        gpu_readers: int,
    ) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank in range(RANKS):
            node = name_of(rank)
            config = folder / node / "agent.toml"
            config.parent.mkdir(parents=True, exist_ok=True)
            reads_gpu = rank < gpu_readers
            text = configuration(service, job, folder, rank, reads_gpu=reads_gpu)
            config.write_text(text, "utf-8")
            others = [str(pid) for other, pid in enumerate(job.pids) if other != rank]
            # All namespaces share one /proc: each agent gets one without the other hosts' ranks.
            command = (
                f"for pid in {' '.join(others)}; do mount -t tmpfs -o ro,size=4k none /proc/$pid; "
                f"done; exec {shlex.quote(program)} agent --config {shlex.quote(str(config))}"
            )
            words = on_cores(cores, words_inside(rank, command))
            self.processes.append(start(words, logs / f"agent-{node}.log"))

    @property
    def running(self) -> int:
        return sum(each.poll() is None for each in self.processes)

    def hold(self) -> None:
        """Stop them with everything that they have started, until they may go on."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for each in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, number)

    def end(self) -> None:
        self.go_on()
        end_all(self.processes, STOP_SECONDS, signal.SIGTERM)


def configuration(service: Service, job: Job, folder: Path, rank: int, *, reads_gpu: bool) -> str:
    """An agent's settings: the product's defaults, and where this host's logs are."""
    node = name_of(rank)
    logs = job.folder / node
    return f"""
host = "{node}"
service_url = "{service.url}"
token_file = "{service.token_file}"
spool_dir = "{folder / node / "spool"}"
listen = "127.0.0.1:9701"

[sources.netdev]
include = ["{INTERFACE}"]

# On by itself where there are RDMA ports. A veth pair reports 10 Gb/s, whatever it carries.
[sources.bursts]
interfaces = ["{INTERFACE}"]

[sources.nvml]
enabled = {"true" if reads_gpu else "false"}

[sources.nccl_inspector]
directories = ["{logs / "inspector"}"]

[sources.nccl_debug]
files = ["{logs / "nccl_debug.log"}"]

[sources.steps]
socket = ""
directories = ["{logs}"]
"""


@contextlib.contextmanager
def serving(
    program: str, folder: Path, log: Path, *, cores: Sequence[int] = ()
) -> Iterator[Service]:
    service = Service(program, folder, log, cores)
    try:
        yield service
    finally:
        end_all([service.process], STOP_SECONDS, signal.SIGTERM)


@contextlib.contextmanager
def watching(
    program: str,
    service: Service,
    job: Job,
    folder: Path,
    logs: Path,
    *,
    cores: Sequence[int] = (),
    gpu_readers: int = RANKS,
) -> Iterator[Agents]:
    agents = Agents(program, service, job, folder, logs, cores=cores, gpu_readers=gpu_readers)
    try:
        yield agents
    finally:
        agents.end()


def start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program of ours in a session of its own, without proxies."""
    given = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    with log.open("ab") as out:
        return subprocess.Popen(
            words, env=given, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )


def cpu_seconds(processes: Sequence[subprocess.Popen[bytes]]) -> float:
    """Processor time of these and of all that they have started and that still runs."""
    sessions = {each.pid for each in processes}
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # Behind the name, which may hold anything: state, parent, group, session, …
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / CLOCK_TICKS
