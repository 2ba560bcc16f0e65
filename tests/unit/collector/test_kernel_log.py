"""The source `kernel_log`: real records, restarts, floods, hostile lines, whom they are about."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.contract.errors import HostError
from collector.contract.kernel import MESSAGES
from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.doors.kernel_log import KernelLog, KernelNews
from collector.reading.kernel_log import parse_record, understand
from collector.reading.pci_devices import PciDevices
from collector.sources import kernel_log
from collector.sources.kernel_log import KernelLogSource, Settings
from collector.tables.kernel_messages import load_kinds

DEAD = "mlx5_core 0000:3b:00.0: poll_health:825:(pid 0): Fatal error 3 detected"
ALIVE = "mlx5_core 0000:3b:00.0: health recovery succeeded"
DISK = "nvme nvme2: I/O 18 QID 4 timeout, aborting"
SECOND_US = 1_000_000
FIXTURE = Path(__file__).resolve().parents[2] / "fixtures/sources/kernel_log/every_kind/tree"


class Clocked(Host):
    """A captured tree whose clock stands until a test moves it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.seconds = 1_000.0

    def monotonic_ns(self) -> int:
        return int(self.seconds * 1e9)


class Log:
    """A tree with one NIC and a log that a test writes to."""

    def __init__(self, root: Path) -> None:
        self.path = root / "dev/kmsg"
        self.path.parent.mkdir(parents=True)
        self.path.touch()
        (root / "sys/class/infiniband").mkdir(parents=True)
        link = root / "sys/class/infiniband/mlx5_3"
        link.symlink_to("../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_3")
        self.host = Clocked(root)
        self.sequence = 0

    def write(self, *lines: str | bytes, prefix: str = "3", skip: int = 0) -> None:
        self.sequence += skip
        with self.path.open("ab") as file:
            for line in lines:
                self.sequence += 1
                text = line.encode() if isinstance(line, str) else line
                header = f"{prefix},{self.sequence},{self.sequence * SECOND_US},-;"
                file.write(header.encode() + text + b"\n")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path)
    yield made
    made.host.close()


def source(*, programs: bool = False) -> KernelLogSource:
    return KernelLogSource(Settings(programs=programs))


def events_of(readings: list[Reading]) -> list[Event]:
    return [each for each in readings if isinstance(each, Event)]


def values_of(readings: list[Reading], metric: str) -> dict[str, float]:
    """Values of a metric by their kind, why, or nothing."""
    found = {}
    for each in readings:
        if isinstance(each, Sample) and each.series.metric == metric:
            labels = dict(each.series.labels)
            found[labels.get("kind", labels.get("why", ""))] = each.value
    return found


# --- the table -----------------------------------------------------------------------------------


def test_every_example_is_of_its_own_kind_and_every_pattern_has_one() -> None:
    for compiled in load_kinds():
        seen = set()
        for example in compiled.kind.examples:
            said = understand(example.encode())
            assert said is not None, example
            assert said.kind == compiled.kind, example
            seen |= {each for each in compiled.patterns if each.match(example.encode())}
        assert len(seen) == len(compiled.patterns) or compiled.kind.kind == "nic_unreachable"
        assert compiled.kind.source


def test_every_kind_is_in_the_fixture() -> None:
    text = (FIXTURE / "dev/kmsg").read_text("utf-8")
    assert [one.kind.kind for one in load_kinds() if one.kind.examples[0] not in text] == []


@pytest.mark.parametrize(
    "line",
    [
        "python[4201]: segfault at 0 ip 0 sp 0 error 4 NVRM: Xid (PCI:0000:5d:00): 79",
        "audit: NVRM: Xid (PCI:0000:5d:00): 79",
        "mlx5_core 0000:3b:00.0: firmware checks passed, health issue observed",
        "mlx5_core 0000:3b:00.0 eth2: Link up",
        "usb 1-1: Product: Out of memory: Killed process 1 (x)",
        "Out of memory: Killed process 99999999999 (python)",
        "",
    ],
)
def test_other_lines_mean_nothing(line: str) -> None:
    assert understand(line.encode()) is None


# --- a real log ----------------------------------------------------------------------------------


def write_kernel_log(text: str) -> None:
    try:
        handle = os.open("/dev/kmsg", os.O_WRONLY)
    except OSError as error:
        pytest.skip(f"/dev/kmsg cannot be written: {error.strerror}")
    try:
        os.write(handle, text.encode())
    except OSError as error:
        pytest.skip(f"/dev/kmsg cannot be written: {error.strerror}")
    finally:
        os.close(handle)


def test_lines_of_a_real_log_are_read_back_once() -> None:
    marker = f"nvme nvme{os.getpid() % 9000 + 1000}"
    write_kernel_log("fabricscope test: the log can be written\n")
    host, ours = Host(), source(programs=True)
    other = source(programs=False)
    try:
        try:
            list(ours.read(host))  # skips what is older than a minute
        except HostError as error:
            pytest.skip(str(error))
        write_kernel_log(f"{marker}: I/O 18 QID 4 timeout, aborting\n")
        write_kernel_log(f"{marker}: I/O 19 QID 4 timeout, aborting\n")
        while True:  # other programs may write thousands of lines
            found = [each for each in events_of(list(ours.read(host))) if marker in each.message]
            if found:
                break
        again = [each for each in events_of(list(ours.read(host))) if marker in each.message]
    finally:
        host.close()
    assert len(found) == 1
    assert found[0].labels == {"device": marker.split()[1]}
    assert again == []
    fresh = Host()
    try:
        believed = [each for each in events_of(list(other.read(fresh))) if marker in each.message]
    finally:
        fresh.close()
    assert believed == [], "a program's line was taken for the kernel's"


def test_an_overrun_and_a_record_that_is_too_long_do_not_end_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: Iterator[bytes | int] = iter(
        [b"6,1,1,-;a\n", errno.EPIPE, errno.EINVAL, b"6,9,9,-;b\n", errno.EAGAIN]
    )

    def fake(_handle: int, _size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        return answer

    log = KernelLog.__new__(KernelLog)
    monkeypatch.setattr(os, "read", fake)
    log._handle = -1
    assert log.read(100) == [b"6,1,1,-;a\n", b"6,9,9,-;b\n"]


def test_another_device_in_its_place_is_refused() -> None:
    with pytest.raises(HostError) as caught:
        KernelLog("/dev/null")
    assert caught.value.reason is UnreadReason.NOT_SUPPORTED


def test_a_log_that_may_not_be_read_is_named_with_what_to_do(log: Log) -> None:
    class Closed(Clocked):
        def kernel_news(self, records_max: int) -> KernelNews:  # noqa: ARG002
            raise HostError(UnreadReason.UNREADABLE, "dev/kmsg", "Operation not permitted")

    readings = list(source().read(Closed(log.host.root)))
    (missing,) = [each for each in readings if isinstance(each, Missing)]
    assert missing.reason is UnreadReason.UNREADABLE
    assert "CAP_SYSLOG" in missing.detail


# --- once, and then with a count -----------------------------------------------------------------


def test_the_first_of_a_kind_is_an_event_at_once_and_repeats_are_counted(log: Log) -> None:
    ours = source()
    log.write(DISK, DISK, DISK)
    assert [each.attributes["count"] for each in events_of(list(ours.look(log.host)))] == ["1"]
    log.write(DISK)
    assert events_of(list(ours.look(log.host))) == []
    log.host.seconds += kernel_log.EVENT_SECONDS + 1
    log.write(DISK)
    assert [each.attributes["count"] for each in events_of(list(ours.look(log.host)))] == ["4"]
    assert values_of(list(ours.read(log.host)), MESSAGES) == {"nvme_timeout": 5}


def test_a_restart_goes_on_where_the_agent_ended(log: Log, tmp_path: Path) -> None:
    first = source()
    log.write(DISK)
    assert len(events_of(list(first.read(log.host)))) == 1
    log.write("nvme nvme4: I/O 1 QID 4 timeout, aborting", skip=7)
    second, again = source(), Clocked(tmp_path)
    second.load_state(first.save_state())
    readings = list(second.read(again))
    again.close()
    assert [each.labels for each in events_of(readings)] == [{"device": "nvme4"}]
    assert values_of(readings, kernel_log.DROPPED) == {"overwritten": 7, "malformed": 0}


@pytest.mark.parametrize("state", [{}, {"sequence": -1}, {"sequence": "x", "standing": {}},
                                   {"sequence": 4, "standing": {"a": 1}}])  # fmt: skip
def test_a_damaged_state_is_as_none(log: Log, state: dict[str, object]) -> None:
    ours = source()
    ours.load_state(state)
    log.write(*["x"] * 5, DISK)
    assert len(events_of(list(ours.read(log.host)))) == 1


def test_lines_from_before_the_first_start_are_no_news(log: Log) -> None:
    log.write(DISK)
    log.write(DEAD, skip=kernel_log.RECENT_SECONDS + 10)
    assert [each.labels for each in events_of(list(source().read(log.host)))] == [
        {"device": "mlx5_3"}
    ]


# --- a NIC that is dead --------------------------------------------------------------------------


def test_a_dead_nic_is_reported_again_until_it_recovers(log: Log, tmp_path: Path) -> None:
    ours = source()
    log.write(DEAD)
    (first,) = events_of(list(ours.look(log.host)))
    assert (first.labels, first.attributes["severity"]) == ({"device": "mlx5_3"}, "fatal")
    assert events_of(list(ours.look(log.host))) == []
    log.host.seconds += kernel_log.STANDING_EVENT_SECONDS + 1
    (second,) = events_of(list(ours.look(log.host)))
    assert second.attributes["message"] == "nic_firmware_dead"
    restarted, again = source(), Clocked(tmp_path)
    restarted.load_state(ours.save_state())
    list(restarted.look(again))
    again.seconds += kernel_log.STANDING_EVENT_SECONDS + 1
    assert len(events_of(list(restarted.look(again)))) == 1
    again.close()
    log.write(ALIVE)
    (told,) = events_of(list(ours.look(log.host)))
    assert told.attributes["message"] == "nic_recovered"
    log.host.seconds += kernel_log.STANDING_EVENT_SECONDS + 1
    assert events_of(list(ours.look(log.host))) == []


def test_a_nic_is_named_after_it_has_vanished_from_sysfs(log: Log, tmp_path: Path) -> None:
    ours = source()
    log.write(DISK)
    list(ours.look(log.host))
    log.write(ALIVE)
    list(ours.look(log.host))
    (tmp_path / "sys/class/infiniband/mlx5_3").unlink()
    log.host.seconds += 3_600
    log.write(DEAD)
    assert [each.labels for each in events_of(list(ours.look(log.host)))] == [{"device": "mlx5_3"}]


def test_a_bridge_with_two_devices_behind_it_accuses_neither(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/infiniband"
    folder.mkdir(parents=True)
    for name, bus in (("mlx5_0", "3b"), ("mlx5_1", "3c")):
        target = f"../../devices/pci0000:3a/0000:3a:00.0/0000:{bus}:00.0/infiniband/{name}"
        (folder / name).symlink_to(target)
    host, devices = Clocked(tmp_path), PciDevices()
    assert devices.at(host, "0000:3a:00.0") is None
    found = devices.at(host, "0000:3C:00.0")
    host.close()
    assert found is not None
    assert found.labels == {"device": "mlx5_1"}


def test_a_killed_rank_says_its_last_words_once_and_a_killed_stranger_none(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(FIXTURE, root, symlinks=True)
    (root / "dev/kmsg").write_bytes(b"")
    host, ours = Clocked(root), source()
    list(ours.read(host))
    shutil.rmtree(root / "proc/4201")  # it is gone by the time that the line is read
    killed = "Memory cgroup out of memory: Killed process {} (python) total-vm:1kB"
    lines = [killed.format(4201), killed.format(77), killed.format(4201)]
    text = "".join(f"3,{number},{number},-;{line}\n" for number, line in enumerate(lines, 1))
    (root / "dev/kmsg").write_text(text, encoding="utf-8")
    events = events_of(list(ours.look(host)))
    host.close()
    assert [(each.kind, each.labels.get("rank"), each.labels["pid"]) for each in events] == [
        ("last_words", "8", "4201"),
        ("kernel_message", "8", "4201"),
        ("kernel_message", None, "77"),
    ]


# --- hostile -------------------------------------------------------------------------------------


def test_hostile_lines_are_cut_counted_and_harm_nothing(log: Log) -> None:
    log.write(b"A" * 1_000_000, b"\xff\xfe\x00" * 100, b"", b"NVRM: Xid (PCI:" + b"0" * 100_000)
    log.write(b"mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, \x1b[2J")
    with log.path.open("ab") as file:
        file.write(b"no record\n" + b"9" * 10_000 + b"\n\x00\x00\n")
    log.write(DISK)
    readings = list(source().read(log.host))
    assert [each.attributes["message"] for each in events_of(readings)] == [
        "module_error",
        "nvme_timeout",
    ]
    assert all(each.message.isprintable() for each in events_of(readings))
    assert values_of(readings, kernel_log.DROPPED)["malformed"] == 3


def test_a_flood_is_read_in_bounded_pieces_and_nothing_is_lost_silently(log: Log) -> None:
    lines = 100_000
    log.write(*[f"nvme nvme{number % 2000}: I/O 1 QID 4 timeout, aborting" for number in range(10)])
    with log.path.open("ab") as file:
        for number in range(11, lines + 1):
            text = f"4,{number},11000000,-;nvme nvme{number % 2000}: I/O 1 QID 4 timeout, aborting"
            file.write(text.encode() + b"\n")
    news = [log.path.read_bytes().splitlines(keepends=True)]

    class Flooded(Clocked):
        """As the live log: at each look the next records, without reading the file again."""

        def kernel_news(self, records_max: int) -> KernelNews:
            piece, news[0] = news[0][:records_max], news[0][records_max:]
            return KernelNews(piece, 60_000_000_000, 0)

    ours, host = source(), Flooded(log.host.root)
    looks = 0
    while news[0]:
        events = list(ours.look(host))
        assert len(events) <= kernel_log.SERIES_MAX + len(load_kinds())
        looks += 1
    readings = list(ours.read(host))
    host.close()
    counted = [
        each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric == MESSAGES
    ]
    assert looks == lines / kernel_log.RECORDS_PER_LOOK
    assert len(counted) <= kernel_log.SERIES_MAX + len(load_kinds())
    assert sum(counted) == lines


def test_records_with_more_fields_and_devices_are_understood() -> None:
    data = b"30,5,7,-,caller=T1;text\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n"
    record = parse_record(data)
    assert record is not None
    assert (record.facility, record.sequence, record.pci) == (3, 5, "0000:3b:00.0")
