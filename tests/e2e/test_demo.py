"""`fabricscope demo` as a user runs it: everything is there, and afterwards nothing is."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from simulator.demo.run import hosts_by_cores, make_cluster
from simulator.topology.model import Fabric
from tests.stands.environment import clean_environment
from tests.stands.service import eventually

pytestmark = pytest.mark.slow

HOSTS = 8
"""The fewest that a demo can have. More show nothing else, and on two cores that have other work
32 agents and their service fall ever further behind."""
PATIENCE_SECONDS = 300.0
"""On an idle machine everything has happened after a minute; this one may be busy."""
END_SECONDS = 60
PROGRAM = "import sys; from collector.cli import main; sys.exit(main())"
JOBS = {"llama-70b": 32, "mixtral": 32}


class Running:
    """A demo that runs, and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, temporary: Path) -> None:
        self.process = process
        self.log = log
        self.temporary = temporary

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8")

    def await_text(self, pattern: str) -> re.Match[str]:
        """Wait until its output has this."""

        def is_there() -> bool:
            found = re.search(pattern, self.text) is not None
            assert found or self.process.poll() is None, f"it ended:\n{self.text}"
            return found

        eventually(is_there, f"{pattern!r} in {self.log}", PATIENCE_SECONDS)
        match = re.search(pattern, self.text)
        assert match is not None
        return match

    def children(self) -> list[int]:
        """The service and the agents that run now."""
        file = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in file.read_text().split()]


@contextmanager
def demo(folder: Path, *words: str) -> Iterator[Running]:
    """`fabricscope demo` on any port, with its temporary files below the folder."""
    temporary = folder / "tmp"
    temporary.mkdir()
    log = folder / "demo.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "demo", "--port", "0", *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**clean_environment(), "TMPDIR": str(temporary)},
        )
    try:
        yield Running(process, log, temporary)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(END_SECONDS)


def is_alive(pid: int) -> bool:
    """Whether there is such a process that is not merely waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def root_of(agent: int) -> Path:
    """The tree that an agent reads."""
    words = Path(f"/proc/{agent}/cmdline").read_text().split("\0")
    return Path(words[words.index("--root") + 1])


def query(client: httpx.Client, text: str) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/query", params={"query": text})
    result: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
    return result


@pytest.mark.rotating(3, turn=2)
def test_the_whole_chain_shows_what_was_simulated(tmp_path: Path) -> None:
    with demo(tmp_path, "--hosts", str(HOSTS), "--fault", "slow_nic") as running:
        url = running.await_text(r"Ready: (http://127\.0\.0\.1:\d+)/").group(1)
        running.await_text(f"hears the agents of all {HOSTS} hosts")
        with httpx.Client(base_url=url, timeout=60) as client:
            check_inventory(client)
            check_topology(client)
            culprit = running.await_text(r"injected slow_nic at (node\d+)/(mlx5_\d)").groups()
            for job in JOBS:
                running.await_text(f"the service measures {job}: a step takes [0-9,]+ ms")
            check_series(client, *culprit)
        children = running.children()
        # The service, the hosts' agents, and the one that polls the switches.
        assert len(children) == HOSTS + 2
        hosts_folder = root_of(children[-1]).parent
        assert hosts_folder.is_dir()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(END_SECONDS) == 0
    eventually(lambda: not any(map(is_alive, children)), "the end of every program")
    assert list(running.temporary.iterdir()) == []
    assert not hosts_folder.exists()
    assert "Traceback" not in running.text


def check_inventory(client: httpx.Client) -> None:
    """Hosts, jobs, ranks and where they run, as the service found them out."""

    def clusters() -> list[str]:
        hosts = client.get("/v1/hosts", params={"limit": 100}).json()["items"]
        return [host["cluster"] for host in hosts]

    # The poller's machine is one of them.
    eventually(lambda: clusters() == ["demo"] * (HOSTS + 1), "all hosts", PATIENCE_SECONDS)

    def found() -> dict[str, int]:
        return {job["id"]: job["ranks"] for job in client.get("/v1/jobs").json()["items"]}

    eventually(lambda: found() == JOBS, "both jobs with all ranks", PATIENCE_SECONDS)

    def is_placed() -> bool:
        ranks = client.get("/v1/jobs/llama-70b/ranks", params={"limit": 1000}).json()["items"]
        whole = [rank for rank in ranks if rank["host"] and rank["device"] and rank["gpu"]]
        return len(whole) == JOBS["llama-70b"]

    eventually(is_placed, "every rank with host, GPU and NIC", PATIENCE_SECONDS)


def check_topology(client: httpx.Client) -> None:
    """Every cable of the simulated cluster, as the switches report it to the poller."""
    topology = make_cluster(Fabric.ROCE, HOSTS).topology
    cables = (topology.links - 2 * topology.nics) // 2
    ports = int((topology.source_switch >= 0).sum())

    def is_found() -> bool:
        links = client.get("/v1/topology").raise_for_status().json()["links"]
        return len(links) == cables and all(link["is_up"] for link in links)

    eventually(is_found, f"{cables} cables that are up", PATIENCE_SECONDS)
    assert client.get("/v1/topology/mistakes").json()["items"] == []
    pauses = 'fabric_port_receive_pause_frames_total{host=~"leaf.*|spine.*",priority="3"}'
    assert len(query(client, pauses)) == ports


def check_series(client: httpx.Client, host: str, device: str) -> None:
    """Bytes that flow, steps that were marked, and GPUs that work."""

    def are_busy() -> bool:
        rates = query(client, "sum by (host) (rate(fabric_port_transmit_bytes_total[30s]))")
        busy = {row["metric"]["host"] for row in rates if float(row["value"][1]) > 1e9}
        return len(busy) >= HOSTS // 2

    # On a busy machine agents may have been late for half a minute.
    eventually(are_busy, "half of the hosts that send", PATIENCE_SECONDS)
    selector = f'fabric_port_transmit_bytes_total{{host="{host}",device="{device}"}}'
    assert len(query(client, selector)) == 1
    steps = query(client, "count by (job) (fabric_step_steps_total)")
    assert {row["metric"]["job"] for row in steps} == set(JOBS)
    assert len(query(client, "fabric_gpu_temperature_celsius")) == HOSTS * 8


@pytest.mark.rotating(6)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("programs", [1, 6])
def test_a_signal_at_any_moment_leaves_nothing(
    tmp_path: Path, number: signal.Signals, programs: int
) -> None:
    """Early: while the service starts. Late: while agents are being started."""
    with demo(tmp_path, "--hosts", str(HOSTS), "--quiet") as running:
        eventually(lambda: len(running.children()) >= programs, f"{programs} programs")
        children = running.children()
        running.process.send_signal(number)
        assert running.process.wait(END_SECONDS) == 0
    assert children
    assert not any(map(is_alive, children))
    assert list(running.temporary.iterdir()) == []
    assert "Traceback" not in running.text


@pytest.mark.rotating(3)
def test_it_ends_by_itself_and_keeps_what_it_was_told_to_keep(tmp_path: Path) -> None:
    kept, picture = tmp_path / "kept", tmp_path / "demo.svg"
    words = ("--quiet", "--seconds", "3", "--data", str(kept), "--svg", str(picture))
    with demo(tmp_path, "--fabric", "infiniband", *words) as running:
        assert running.process.wait(PATIENCE_SECONDS) == 0
    last = hosts_by_cores(len(os.sched_getaffinity(0))) - 1
    assert (kept / f"hosts/node{last:04}/sys/class/infiniband/mlx5_7").exists()
    assert list((kept / "hosts/poller-0/commands").glob("perfquery *"))
    assert (kept / "service/service.log").exists()
    assert picture.read_text("utf-8").startswith("<svg")
    assert "it is not empty" in refusal(*words)


def test_a_typo_is_told_with_what_was_meant() -> None:
    assert "did you mean 'slow_nic'?" in refusal("--fault", "slow_nick")


def refusal(*words: str) -> str:
    """The output of a demo that does not start."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "demo", *words],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    return done.stderr
