"""The sampler as a process: it reports, survives what files do, sends captures, ends with us."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.bursts.plan import NS_PER_MS, RECEIVE, TRANSMIT, CounterPlan, Plan
from collector.bursts.process import PACKAGES, START, LiveSampler, Message
from tests.stands.service import eventually

STEP = 1_000


class Machine:
    """Counter files that a thread keeps moving, and a sampler that reads them."""

    def __init__(self, folder: Path, **more: Any) -> None:  # noqa: ANN401 - of a plan
        self.files = [folder / "rx_bytes", folder / "tx_bytes"]
        for file in self.files:
            file.write_text("1000\n")
        rates = zip(self.files, (RECEIVE, TRANSMIT), strict=True)
        counters = [
            CounterPlan(str(file), "eth0", "", direction, 1, 0, 1e9) for file, direction in rates
        ]
        self.sampler = LiveSampler(Plan(tuple(counters), **more))
        self.messages: list[Message] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._move)
        self._thread.start()

    def _move(self) -> None:
        value = 1_000
        with self.files[0].open("r+b", buffering=0) as file:
            while not self._stop.wait(0.005):
                value += STEP
                os.pwrite(file.fileno(), b"%d\n" % value, 0)

    def reports(self) -> list[Message]:
        self.messages += self.sampler.poll()
        return [each for each in self.messages if "counters" in each]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        eventually(condition, what)

    @property
    def pid(self) -> int:
        process = self.sampler._process
        assert process is not None
        return process.pid

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.sampler.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def test_it_reports_what_it_reads_and_how_well(machine: Machine) -> None:
    machine.wait(lambda: len(machine.reports()) >= 2, "two reports")
    report = machine.reports()[1]
    moving, still = report["counters"]
    assert moving["mean"] > 0
    assert moving["windows"] > 0
    assert (still["mean"], still["windows"], still["variation"]) == (0.0, 0, None)
    assert report["ticks"] > 0
    middle, high, worst = report["late"]
    assert middle <= high <= worst
    assert report["cpu"] > 0
    assert abs(report["time"] - time.time_ns()) < 60e9


def test_a_counter_that_may_not_be_read_often_is_not(tmp_path: Path) -> None:
    (tmp_path / "rx_bytes").write_text("5\n")
    slow = CounterPlan(str(tmp_path / "rx_bytes"), "efa", "1", RECEIVE, 1, 10 * NS_PER_MS, 0.0)
    sampler = LiveSampler(Plan((slow,)))
    found: list[Message] = []

    def has_reported() -> bool:
        found.extend(sampler.poll())
        return bool(found)

    eventually(has_reported, "a report")
    sampler.close()
    assert found[0]["counters"][0]["period"] == 0.016
    # Not finer than the 10 ms for which the file is kept.
    assert found[0]["counters"][0]["resolution"] > 0.010


def test_a_file_that_cannot_be_read_is_trouble_of_that_file_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.files[1].unlink()
    machine.wait(lambda: len(machine.reports()) >= 1, "a report")
    moving, gone = machine.reports()[0]["counters"]
    assert (moving["trouble"], gone["trouble"]) == ("", "No such file or directory")
    machine.close()


def test_a_sampler_that_is_killed_is_started_again(machine: Machine) -> None:
    machine.wait(lambda: len(machine.reports()) >= 1, "a report")
    first = machine.pid
    os.kill(first, signal.SIGKILL)
    machine.wait(lambda: bool(machine.reports()) and machine.sampler.restarts == 1, "its death")
    machine.wait(lambda: bool(machine.reports()) and machine.sampler.is_up, "another start")
    assert machine.pid != first
    count = len(machine.reports())
    machine.wait(lambda: len(machine.reports()) > count, "a report of the new one")


def test_what_is_no_message_ends_the_sampler(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.wait(lambda: len(machine.reports()) >= 1, "a report")

    def refuse(text: bytes) -> None:
        raise ValueError(text)

    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", refuse)
        machine.wait(lambda: not machine.sampler.poll() and machine.sampler.restarts > 0, "its end")


def test_a_capture_brings_the_raw_samples_of_the_ring(machine: Machine) -> None:
    machine.wait(lambda: len(machine.reports()) >= 1, "a report")
    asked = {"id": "c1", "before": 30.0, "after": 0.2, "devices": ["eth0"]}
    assert machine.sampler.capture(asked)

    def is_over() -> bool:
        machine.reports()
        return any("end" in each for each in machine.messages)

    machine.wait(is_over, "the end of the capture")
    pieces = [each for each in machine.messages if "times" in each]
    (end,) = [each for each in machine.messages if "end" in each]
    times: dict[int, list[int]] = {0: [], 1: []}
    values: dict[int, list[int]] = {0: [], 1: []}
    for each in pieces:
        assert each["capture"] == "c1"
        for name, columns in (("times", times), ("values", values)):
            numbers = memoryview(bytes.fromhex(each[name])).cast("q").tolist()
            columns[each["counter"]] += numbers
    assert end["samples"] == len(times[0]) + len(times[1])
    assert times[0] == sorted(times[0])
    assert values[0] == sorted(values[0])
    assert len(set(values[0])) > 10
    assert {value % STEP for value in values[0]} == {0}
    # One that stands still takes no room, beyond the first round.
    assert set(values[1]) == {1_000}
    assert len(values[1]) < 100


def test_too_many_captures_are_refused(machine: Machine) -> None:
    machine.wait(lambda: len(machine.reports()) >= 1, "a report")
    for number in range(6):
        asked = {"id": str(number), "before": 0.0, "after": 300.0, "devices": []}
        assert machine.sampler.capture(asked)

    def refused() -> list[str]:
        machine.reports()
        return [each["capture"] for each in machine.messages if "refusal" in each]

    machine.wait(lambda: len(refused()) >= 2, "two refusals")
    assert refused() == ["4", "5"]


def test_it_ends_when_the_agent_is_gone_without_a_word(tmp_path: Path) -> None:
    """The agent is killed and closes nothing: the kernel closes the pipe."""
    (tmp_path / "rx_bytes").write_text("5\n")
    program = f"""
import time
from collector.bursts.plan import CounterPlan, Plan
from collector.bursts.process import LiveSampler
counter = CounterPlan({str(tmp_path / "rx_bytes")!r}, "e", "", "receive", 1, 0, 0.0)
sampler = LiveSampler(Plan((counter,)))
sampler.poll()
print(sampler._process.pid, flush=True)
time.sleep(600)
"""
    agent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=PACKAGES, text=True
    )
    assert agent.stdout is not None
    pid = int(agent.stdout.readline())
    agent.kill()
    agent.wait()
    agent.stdout.close()
    eventually(lambda: not is_running(pid), "the end of the sampler")


def is_running(pid: int) -> bool:
    """Whether a process runs; one that waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def sleeps_of(pid: int) -> int:
    """How often a process has gone to sleep: at least once for each of a sampler's ticks."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])


def test_an_agent_that_does_not_listen_costs_reports_and_nothing_else(tmp_path: Path) -> None:
    """The pipe is full: the sampler goes on and counts what it could not send."""
    (tmp_path / "rx_bytes").write_text("5\n")
    counter = CounterPlan(str(tmp_path / "rx_bytes"), "e", "", RECEIVE, 1, 0, 0.0)
    words = [sys.executable, "-I", "-S", "-c", START.format("collector.bursts.sampler")]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    while True:
        try:
            filled += os.write(writer, b" " * 4096)
        except BlockingIOError:
            break
    with subprocess.Popen(
        [*words, str(PACKAGES)], stdin=subprocess.PIPE, stdout=writer, bufsize=0
    ) as sampler:
        os.close(writer)
        assert sampler.stdin is not None
        sampler.stdin.write(Plan((counter,)).encode().encode() + b"\n")
        eventually(lambda: sleeps_of(sampler.pid) > 3_000, "three thousand ticks")
        assert sampler.poll() is None
        while filled:
            filled -= len(os.read(reader, min(filled, 4096)))
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(reader, 4096)
        assert json.loads(line.split(b"\n")[0])["ticks"] > 0
        sampler.stdin.close()
        sampler.wait(60)
    os.close(reader)


def test_the_sampler_imports_nothing_but_itself() -> None:
    """Its memory is on every host, beside a training job."""
    program = (
        f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); import collector.bursts.sampler; "
        "print(*sorted(name for name in sys.modules if '.' not in name))"
    )
    words = [sys.executable, "-I", "-S", "-c", program]
    loaded = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert not {"msgspec", "httpx", "subprocess", "logging", "asyncio", "typing_extensions"} & set(
        loaded
    )
