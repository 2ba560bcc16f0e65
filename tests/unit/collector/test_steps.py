"""The `steps` source: datagrams and files, hostile senders, processes that end."""

import json
import os
import socket
from pathlib import Path

import pytest

from collector.contract.collective import StepSpan
from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.doors.sockets import Datagram, DatagramSocket
from collector.sources import steps as source_module
from collector.sources.steps import IDLE_SECONDS, PHASES_MAX, Settings, StepMarks
from tests.fixtures.trees import write_files

NOW_NS = 1_794_731_000_000_000_000
FOLDER = "var/steps"


class Machine(Host):
    """A tree with a clock, and with messages as if from its socket."""

    seconds = 100.0

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.messages: list[Datagram] = []

    def monotonic_ns(self) -> int:
        return int(self.seconds * 1e9)

    def receive(self, path: str, count_max: int) -> list[Datagram]:  # noqa: ARG002 - one socket
        taken, self.messages = self.messages[:count_max], self.messages[count_max:]
        return taken


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def batch(*marks: object, **header: object) -> bytes:
    lines = [{"fabricscope_steps": 1, **header}, *marks]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def write_process(root: Path, pid: int, variables: str = "", start: int = 5) -> None:
    numbers = f"S 1 1 1 0 -1 0 0 0 3 0 1 0 0 0 20 0 7 0 {start} 0"
    write_files(root, {f"proc/{pid}/stat": f"{pid} (python) {numbers}"})
    (root / f"proc/{pid}/environ").write_bytes(variables.encode())


def values(readings: list[Reading]) -> dict[str, float]:
    return {repr(each.series): each.value for each in readings if isinstance(each, Sample)}


def spans(readings: list[Reading]) -> list[StepSpan]:
    return [each for each in readings if isinstance(each, StepSpan)]


# --- messages ------------------------------------------------------------------------------------


def test_the_kernel_s_pid_identifies_the_sender(machine: Machine) -> None:
    write_process(machine.root, 42, "SLURM_JOB_ID=7\0RANK=3\0")
    machine.messages = [Datagram(batch(["", 5, NOW_NS, 1000], pid=1), 42)]
    readings = list(StepMarks(Settings()).read(machine))
    (span,) = spans(readings)
    assert (span.job, span.rank, span.pid, span.step, span.host) == ("7", 3, 42, 5, "")
    assert span.end_ns - span.start_ns == 1000
    assert values(readings)['fabric_step_steps_total{job="7",rank="3"}'] == 1


def test_a_loop_s_own_word_wins_and_may_change(machine: Machine) -> None:
    write_process(machine.root, 42, "RANK=3\0")
    source = StepMarks(Settings())
    machine.messages = [Datagram(batch(["", 0, NOW_NS, 1], run="r7"), 42)]
    assert spans(list(source.read(machine)))[0].job == "r7"
    machine.messages = [Datagram(batch(["", 1, NOW_NS, 1], job="mine", rank=9), 42)]
    readings = list(source.read(machine))
    assert (spans(readings)[0].job, spans(readings)[0].rank) == ("mine", 9)
    assert [name for name in values(readings) if "r7" in name] == []


def test_numbers_stand_while_the_process_does(machine: Machine) -> None:
    write_process(machine.root, 42)
    machine.messages = [Datagram(batch(["", 0, NOW_NS, 10**9], job="j", rank=0), 42)]
    source = StepMarks(Settings())
    first = values(list(source.read(machine)))
    machine.seconds += 100 * IDLE_SECONDS  # a hang of a day is still shown
    assert values(list(source.read(machine))) == first
    for name in ("stat", "environ"):
        (machine.root / "proc/42" / name).unlink()
    (machine.root / "proc/42").rmdir()
    assert list(source.read(machine)) == []


def test_a_process_that_cannot_be_looked_at_is_forgotten_when_it_is_silent(
    machine: Machine,
) -> None:
    machine.messages = [Datagram(batch(["", 0, NOW_NS, 1], job="j", rank=0, pid=3), 0)]
    source = StepMarks(Settings())
    assert values(list(source.read(machine)))
    machine.seconds += IDLE_SECONDS - 1
    assert values(list(source.read(machine)))
    machine.seconds += 2
    assert list(source.read(machine)) == []


def test_phases_have_a_bound(machine: Machine) -> None:
    marks = [[f"p{number}", 0, NOW_NS, 10**9] for number in range(PHASES_MAX + 10)]
    machine.messages = [Datagram(batch(*marks, *marks, job="j", rank=0), 0)]
    found = values(list(StepMarks(Settings()).read(machine)))
    phases = {name: value for name, value in found.items() if "phase_seconds" in name}
    assert len(phases) == PHASES_MAX
    assert sum(phases.values()) == 2 * (PHASES_MAX + 10)
    assert [value for name, value in phases.items() if '"other"' in name] == [22]


def test_senders_have_a_bound_that_is_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SENDERS_MAX", 2)
    machine.messages = [
        Datagram(batch(["", 0, NOW_NS, 1], ["", 1, NOW_NS, 1], job="j", rank=pid), pid)
        for pid in (1, 2, 3)
    ]
    readings = list(StepMarks(Settings()).read(machine))
    assert len(spans(readings)) == 4
    assert values(readings)['fabric_step_marks_dropped_total{reason="limit"}'] == 2


def test_one_process_is_one_loop_whatever_it_claims(machine: Machine) -> None:
    write_process(machine.root, 42)
    machine.messages = [
        Datagram(batch(["", 0, NOW_NS, 1], job="j", rank=rank, start_ticks=rank), 42)
        for rank in range(100)
    ]
    readings = list(StepMarks(Settings()).read(machine))
    assert len([name for name in values(readings) if "steps_total" in name]) == 1


def test_marks_lost_in_the_process_are_added_up(machine: Machine) -> None:
    source = StepMarks(Settings())
    for pid, lost in ((1, 5), (2, 3), (1, 9)):
        machine.messages.append(Datagram(batch(job="j", rank=0, dropped=lost), pid))
    found = values(list(source.read(machine)))
    assert found['fabric_step_marks_dropped_total{job="j",rank="0",reason="queue"}'] == 12


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\0",
        b"{}\n",
        b"[" * 50_000,
        b'{"fabricscope_steps": 1e999}\n["", 1, 2, 3]\n',
        b'["", 1, 2, 3]\n',
        b"\n" * 60_000,
        batch(["x" * 1000, 0, NOW_NS, 1]),
        batch(["a\nb", 0, NOW_NS, 1]),
        batch(["", 0, NOW_NS, -1]),
        batch(["", 0, 1 << 80, 1]),
        batch(["", 0.5, NOW_NS, 1]),
        batch(rank=-1),
    ],
)
def test_hostile_messages_are_counted_and_the_next_is_read(data: bytes, machine: Machine) -> None:
    machine.messages = [
        Datagram(data, 7),
        Datagram(batch(["", 0, NOW_NS, 1], job="j", rank=0), 8),
    ]
    readings = list(StepMarks(Settings()).read(machine))
    assert [span.pid for span in spans(readings)] == [8]
    (missing,) = [each for each in readings if isinstance(each, Missing)]
    assert missing.reason is UnreadReason.UNPARSEABLE


def test_texts_become_short_and_printable(machine: Machine) -> None:
    machine.messages = [Datagram(batch(["", 0, NOW_NS, 1], job="a\x00b" + "c" * 999, rank=0), 8)]
    (span,) = spans(list(StepMarks(Settings()).read(machine)))
    assert span.job.startswith("abc")
    assert len(span.job) < 130


# --- files ---------------------------------------------------------------------------------------


def file_source() -> StepMarks:
    return StepMarks(Settings(directories=(f"/{FOLDER}",), socket=""))


def test_files_are_followed_and_a_restart_goes_on(machine: Machine) -> None:
    path = machine.root / FOLDER / "h-42.steps.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(batch(["", 0, NOW_NS, 1], job="j", rank=0, pid=42, host="h"))
    source = file_source()
    assert [span.step for span in spans(list(source.read(machine)))] == [0]
    state = source.save_state()
    with path.open("ab") as file:  # the same batch goes on, then half a line
        file.write(b'["", 1, 5, 1]\n["", 2')
    again = file_source()
    again.load_state(state)
    assert [(span.step, span.job) for span in spans(list(again.read(machine)))] == [(1, "j")]
    with path.open("ab") as file:
        file.write(b", 5, 1]\n" + batch(["", 3, 5, 1], job="k", rank=0, pid=42, host="h"))
    found = [(span.step, span.job) for span in spans(list(again.read(machine)))]
    assert found == [(2, "j"), (3, "k")]


def test_a_pid_in_a_file_counts_only_with_its_start(machine: Machine) -> None:
    write_process(machine.root, 42, "RANK=3\0", start=5)
    folder = machine.root / FOLDER
    folder.mkdir(parents=True)
    (folder / "a.steps.jsonl").write_bytes(batch(["", 0, 9, 1], pid=42, start_ticks=5, host="pod"))
    (folder / "b.steps.jsonl").write_bytes(batch(["", 0, 9, 1], pid=42, start_ticks=6, host="far"))
    found = [(span.rank, span.host) for span in spans(list(file_source().read(machine)))]
    assert found == [(3, ""), (None, "far")]


# --- the socket itself ---------------------------------------------------------------------------


def send(path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, str(path))


def test_a_message_comes_with_its_sender(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    door = DatagramSocket(str(path))
    assert door.receive(10) == []
    for number in range(3):
        send(path, b"m%d" % number)
    assert door.receive(2) == [Datagram(b"m0", os.getpid()), Datagram(b"m1", os.getpid())]
    assert door.receive(2) == [Datagram(b"m2", os.getpid())]
    assert path.stat().st_mode & 0o777 == 0o666
    door.close()
    assert not path.exists()


def test_a_socket_whose_name_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    door = DatagramSocket(str(path))
    door.receive(1)
    path.unlink()
    door.receive(1)
    send(path, b"x")
    assert [each.data for each in door.receive(1)] == [b"x"]
    door.close()


def test_a_dead_agent_s_socket_is_taken_over_and_a_living_one_s_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(path))
    dead.close()
    alive = DatagramSocket(str(path))
    alive.receive(1)
    with pytest.raises(OSError, match="Another process"):
        DatagramSocket(str(path)).receive(1)
    alive.close()
    path.write_text("not a socket")
    with pytest.raises(OSError, match="Something else"):
        DatagramSocket(str(path)).receive(1)
    assert path.read_text() == "not a socket"


def test_a_live_host_without_the_folder_gives_nothing(tmp_path: Path) -> None:
    settings = Settings(socket=str(tmp_path / "none/s.sock"))
    host = Host()
    assert list(StepMarks(settings).read(host)) == []
    settings = Settings(socket=str(tmp_path / "s.sock"))
    source = StepMarks(settings)
    assert list(source.read(host)) == []
    send(tmp_path / "s.sock", batch(["", 0, NOW_NS, 1], job="j", rank=0))
    (span,) = spans(list(source.read(host)))
    assert span.pid == os.getpid()
    host.close()
    assert not (tmp_path / "s.sock").exists()
