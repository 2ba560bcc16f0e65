"""A real agent and a real service: a configuration reaches the agent, or leaves it again.

One service for all tests, and an agent of another name for each. Every version goes to all agents
that take part, so that each test ends with its agent.
"""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.agent.rollout.keep import State
from collector.contract.rollout import sign
from tests.stands.environment import clean_environment
from tests.stands.service import ServiceProcess, eventually

TRIAL_SECONDS = 10
GOOD = "[sources.ib_sysfs]\ninterval_seconds = 0.2\n"
BAD = "[sources.ib_sysfs]\ntimeout_seconds = 0.0000001\n"
"""Valid, and every read takes longer than that: the source fails."""
MAIN = "import sys; from collector.cli import main; sys.exit(main())"
KEY = b"0123456789abcdef0123456789abcdef"


class RealAgent:
    """`fabricscope agent` on a tree with one port, which takes part in roll-outs."""

    def __init__(self, folder: Path, name: str, url: str, more: str = "") -> None:
        self.name = name
        self.log = folder / "agent.log"
        self.spool = folder / "spool"
        self._config = folder / "agent.toml"
        self._tree = folder / "tree"
        self._flags = ["--config", str(self._config), "--root", str(self._tree)]
        self._process: subprocess.Popen[bytes] | None = None
        kernel = self._tree / "proc/sys/kernel"
        counters = self._tree / "sys/class/infiniband/mlx5_0/ports/1/counters"
        for path, text in (
            (counters / "port_xmit_data", "1024\n"),
            (kernel / "hostname", f"{name}\n"),
            (kernel / "random" / "boot_id", "0b0b0b0b-1111-2222-3333-444444444444\n"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._config.write_text(
            f'service_url = "{url}"\nspool_dir = "{self.spool}"\nlisten = ""\n'
            "flush_seconds = 0.2\nretry_seconds_max = 0.2\nstop_seconds = 1\n"
            f"[configuration]\nfrom_service = true\n{more}\n"
            "[sources.ib_sysfs]\ninterval_seconds = 0.5\n"
        )

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN, "agent", *self._flags],
                stderr=log,
                env=clean_environment(),
            )

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(60)

    @property
    def state(self) -> State:
        """What it has on disk."""
        path = self.spool / "configuration/state.json"
        return msgspec.json.decode(path.read_bytes(), type=State) if path.exists() else State()


class Operator:
    """Pushes configurations, and looks at what became of them."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service

    def push(self, document: str, **more: object) -> int:
        body = {"document": document, "by": "op", "trial_seconds": TRIAL_SECONDS, **more}
        answer = self.service.client.post("/v1/configurations", json=body)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["version"])

    def order(self, does: str) -> None:
        path = f"/v1/configurations/{self.next_version() - 1}/{does}"
        answer = self.service.client.post(path, json={"by": "op"})
        assert answer.status_code in {200, 409}, answer.text

    def next_version(self) -> int:
        items = self.service.client.get("/v1/configurations?limit=1").json()["items"]
        return 1 + (items[0]["version"] if items else 0)

    def state(self, version: int) -> str:
        answer = self.service.client.get(f"/v1/configurations/{version}").json()
        return str(answer["version"]["rollout"]["state"])

    def agent(self, name: str) -> dict[str, Any]:
        found = self.service.client.get("/v1/agents/configurations").json()["items"]
        return next((each for each in found if each["agent"] == name), {})

    def is_known(self, agent: RealAgent) -> bool:
        """Whether it takes part, and is seen to report."""
        return bool(self.agent(agent.name).get("reports"))


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with ServiceProcess(tmp_path_factory.mktemp("rollout") / "data") as service:
        yield Operator(service)


def started(operator: Operator, folder: Path, name: str, more: str = "") -> RealAgent:
    agent = RealAgent(folder, name, operator.service.url, more)
    agent.start()
    eventually(lambda: operator.is_known(agent), f"the service knows {name}; see {agent.log}")
    return agent


def test_a_good_version_reaches_the_agent_and_goes_back_on_order(
    operator: Operator, tmp_path: Path
) -> None:
    agent = started(operator, tmp_path, "good-1")
    try:
        # The share is smaller than one agent: the first one that reports is in it all the same.
        version = operator.push(GOOD, shares=[1, 100])
        eventually(lambda: operator.state(version) == "done", f"done; see {agent.log}")
        assert agent.state.good == version
        assert operator.agent(agent.name)["state"] == "good"
        assert (agent.spool / f"configuration/{version}.toml").read_text() == GOOD
        assert f"configuration {version} is good" in agent.log.read_text()
        agent.end()
        agent.start()
        eventually(lambda: operator.is_known(agent), "the agent is back")
        assert agent.state.good == version
        operator.order("back")
        eventually(lambda: agent.state.good == 0, f"back to its own file; see {agent.log}")
        eventually(lambda: operator.agent(agent.name)["version"] == 0, "and the service knows")
    finally:
        agent.end()


def test_a_version_with_which_a_source_fails_is_left_and_stops_the_roll_out(
    operator: Operator, tmp_path: Path
) -> None:
    agent = started(operator, tmp_path, "bad-1")
    try:
        version = operator.push(BAD, shares=[100], failures_max=1)
        eventually(lambda: operator.state(version) == "stopped", f"stopped; see {agent.log}")
        assert agent.state.trying is None
        assert agent.state.good != version
        told = operator.agent(agent.name)
        assert told["state"] == "failed"
        assert "source ib_sysfs fails since the change" in told["detail"]
        metrics = operator.service.client.get("/metrics").text
        assert "fabric_service_rollout_stopped 1.0" in metrics
        # It is told no more, and tries it no more after a restart.
        agent.end()
        agent.start()
        eventually(lambda: operator.is_known(agent), "the agent is back")
        assert agent.state.failed.keys() == {version}
    finally:
        agent.end()
        operator.order("back")


def test_an_agent_that_is_killed_in_a_trial_comes_up_on_the_good_one(
    operator: Operator, tmp_path: Path
) -> None:
    agent = started(operator, tmp_path, "killed-1")
    try:
        version = operator.push(GOOD, shares=[100], trial_seconds=3_600)
        eventually(lambda: agent.state.trying == version, f"a trial; see {agent.log}")
        agent.end(signal.SIGKILL)
        operator.order("stop")  # so that it is not told again
        agent.start()
        eventually(
            lambda: f"configuration {version} is given up" in agent.log.read_text(), "it says so"
        )
        assert agent.state.trying is None
        assert agent.state.good == 0
        assert agent.state.tries == 1
        eventually(
            lambda: operator.agent(agent.name)["state"] == "outside", "and the service knows"
        )
    finally:
        agent.end()
        operator.order("back")


def test_a_document_that_was_changed_is_refused(operator: Operator, tmp_path: Path) -> None:
    agent = started(operator, tmp_path, "tampered-1")
    agent.end()
    try:
        version = operator.push(GOOD, shares=[100], failures_max=1)
        with sqlite3.connect(operator.service.data / "inventory.db") as database:
            changed = "UPDATE configurations SET document = ? WHERE version = ?"
            database.execute(changed, (b"flush_seconds = 1.0\n", version))
        database.close()
        agent.start()
        eventually(lambda: operator.state(version) == "stopped", f"stopped; see {agent.log}")
        assert agent.state.good == 0
        assert "SHA-256" in operator.agent(agent.name)["detail"]
    finally:
        agent.end()
        operator.order("back")


def test_an_agent_with_a_key_takes_what_is_signed_with_it_and_nothing_else(
    operator: Operator, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(KEY)
    agent = started(operator, tmp_path, "signed-1", f'key_file = "{tmp_path}/key"')
    try:
        version = operator.push(GOOD, shares=[100])
        eventually(lambda: operator.state(version) == "stopped", f"stopped; see {agent.log}")
        assert "not signed" in operator.agent(agent.name)["detail"]
        number = operator.next_version()
        sha256 = operator.service.client.get(f"/v1/configurations/{version}").json()
        signature = sign(KEY, number, sha256["version"]["sha256"])
        operator.push(GOOD, shares=[100], version=number, signature=signature)
        eventually(lambda: operator.state(number) == "done", f"done; see {agent.log}")
        assert agent.state.good == number
    finally:
        agent.end()
        operator.order("back")
