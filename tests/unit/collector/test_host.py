"""`Host`: files, held files, refusals, links and ethtool, on trees and on this very machine."""

import errno
import os
import socket
from pathlib import Path

import pytest

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.doors import host as host_module
from collector.doors.host import (
    REFUSED_RETRY_SECONDS,
    REOPEN_SECONDS,
    Host,
    reason_for,
)
from collector.doors.sockets import NicDriver, parse_ethtool_driver, parse_ethtool_stats
from tests.fixtures.trees import write_files, write_link

LO_SPEED = "sys/class/net/lo/speed"
"""A file that answers EINVAL on every Linux: the loopback interface has no speed."""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


class Clock:
    """Stands in for the monotonic clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(
            "collector.doors.host.time.monotonic_ns", lambda: int(self.seconds * 1_000_000_000)
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def refusal(host: Host, path: str) -> UnreadReason:
    with pytest.raises(HostError) as caught:
        host.reread(path)
    assert caught.value.path == path
    return caught.value.reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOENT, UnreadReason.ABSENT),
        (errno.ENOTDIR, UnreadReason.ABSENT),
        (errno.EINVAL, UnreadReason.NOT_SUPPORTED),
        (errno.EOPNOTSUPP, UnreadReason.NOT_SUPPORTED),
        (errno.EACCES, UnreadReason.UNREADABLE),
        (errno.EPERM, UnreadReason.UNREADABLE),
        (errno.EIO, UnreadReason.UNREADABLE),
        (errno.ENODEV, UnreadReason.UNREADABLE),
        (errno.ELOOP, UnreadReason.UNREADABLE),
    ],
)
def test_every_error_number_has_a_reason(code: int, reason: UnreadReason) -> None:
    assert reason_for(code) is reason


# --- names and clocks ----------------------------------------------------------------------------


def test_the_name_is_the_capture_s(host: Host, tmp_path: Path) -> None:
    write_files(tmp_path, {"proc/sys/kernel/hostname": "node-17"})
    assert host.name == "node-17"


def test_without_a_name_the_machine_s_is_taken(host: Host) -> None:
    assert host.name == socket.gethostname()


def test_boot_id(host: Host, tmp_path: Path) -> None:
    write_files(tmp_path, {"proc/sys/kernel/random/boot_id": "0-1-2"})
    assert host.boot_id() == "0-1-2"


def test_clocks_go_forward(host: Host) -> None:
    assert host.monotonic_ns() <= host.monotonic_ns()
    assert host.now_ns() > 1_700_000_000 * 1_000_000_000


# --- files ---------------------------------------------------------------------------------------


def test_read_gives_the_whole_file(host: Host, tmp_path: Path) -> None:
    write_files(tmp_path, {"a/b": "x" * 10_000})
    assert host.read("a/b") == b"x" * 10_000 + b"\n"


def test_a_file_that_is_not_there_is_absent(host: Host) -> None:
    assert refusal(host, "sys/nothing") is UnreadReason.ABSENT


def test_a_directory_in_place_of_a_file_is_unreadable(host: Host, tmp_path: Path) -> None:
    (tmp_path / "counter").mkdir()
    assert refusal(host, "counter") is UnreadReason.UNREADABLE


def test_a_link_to_itself_is_unreadable(host: Host, tmp_path: Path) -> None:
    write_link(tmp_path, "loop", "loop")
    assert refusal(host, "loop") is UnreadReason.UNREADABLE


def test_a_pipe_does_not_hang_the_agent(host: Host, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(host, "pipe") is UnreadReason.UNREADABLE


def test_reread_sees_a_file_that_changed_in_place(host: Host, tmp_path: Path) -> None:
    write_files(tmp_path, {"counter": "1"})
    assert host.reread("counter") == b"1\n"
    write_files(tmp_path, {"counter": "22"})
    assert host.reread("counter") == b"22\n"
    host.close()


def test_reread_sees_a_replaced_file_after_a_while(
    host: Host, tmp_path: Path, clock: Clock
) -> None:
    write_files(tmp_path, {"counter": "1", "other": "2"})
    assert host.reread("counter") == b"1\n"
    (tmp_path / "other").rename(tmp_path / "counter")
    clock.seconds += REOPEN_SECONDS
    assert host.reread("counter") == b"2\n"
    host.close()


def test_held_files_are_let_go(host: Host, tmp_path: Path, clock: Clock) -> None:
    """A period after the last read, plus the one in which a thread might still use it."""
    write_files(tmp_path, {"gone": "1", "counter": "2"})
    before = open_files()
    host.reread("gone")
    for _ in range(3):
        clock.seconds += REOPEN_SECONDS
        host.reread("counter")
    host.close()
    assert open_files() == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_beyond_the_bound_files_are_read_all_the_same(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "KEPT_FILES_MAX", 2)
    names = [f"counter{number}" for number in range(5)]
    write_files(tmp_path, {name: name for name in names})
    for _ in range(2):
        assert [host.reread(name).decode().strip() for name in names] == names
    assert len(host._kept) == 2
    host.close()


def test_reread_all_answers_in_order_and_each_for_itself(host: Host, tmp_path: Path) -> None:
    write_files(tmp_path, {"a": "1", "c": "3"})
    first, absent, third = host.reread_all(["a", "b", "c"])
    assert (first, third) == (b"1\n", b"3\n")
    assert isinstance(absent, HostError)
    assert absent.reason is UnreadReason.ABSENT
    host.close()


def test_a_vanished_device_is_looked_for_again(host: Host, tmp_path: Path) -> None:
    """A handle that fails as sysfs does for a device that went away: ENODEV."""
    write_files(tmp_path, {"counter": "1"})
    host.reread("counter")
    answer = host._let_go("counter", OSError(errno.ENODEV, os.strerror(errno.ENODEV)))
    assert answer == b"1\n"
    host.close()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/", LO_SPEED).exists(), reason="no sysfs here")
def test_a_refusal_is_remembered_and_asked_again_later(
    host: Host, tmp_path: Path, clock: Clock
) -> None:
    write_link(tmp_path, "counter", f"/{LO_SPEED}")
    assert refusal(host, "counter") is UnreadReason.NOT_SUPPORTED
    # The device now answers; the refusal holds until the time is over.
    (tmp_path / "counter").unlink()
    write_files(tmp_path, {"counter": "5"})
    assert refusal(host, "counter") is UnreadReason.NOT_SUPPORTED
    with pytest.raises(HostError):
        host.read("counter")
    clock.seconds += REFUSED_RETRY_SECONDS
    assert host.reread("counter") == b"5\n"
    host.close()


def test_other_failures_are_asked_again_at_once(host: Host, tmp_path: Path) -> None:
    assert refusal(host, "counter") is UnreadReason.ABSENT
    write_files(tmp_path, {"counter": "5"})
    assert host.reread("counter") == b"5\n"
    host.close()


# --- directories and links -----------------------------------------------------------------------


def test_list_is_sorted_and_leaves_out_what_is_no_text(host: Host, tmp_path: Path) -> None:
    write_files(tmp_path, {"d/b": "", "d/a": "", "d/SwLinkUp,32": ""})
    (tmp_path / "d" / os.fsdecode(b"\xff\xfe")).touch()
    assert host.list("d") == ["SwLinkUp,32", "a", "b"]


def test_list_of_nothing_is_absent(host: Host) -> None:
    with pytest.raises(HostError) as caught:
        host.list("sys/class/infiniband")
    assert caught.value.reason is UnreadReason.ABSENT


def test_links_need_not_lead_anywhere(host: Host, tmp_path: Path) -> None:
    write_link(tmp_path, "device/driver", "../../bus/pci/drivers/mlx5_core")
    write_files(tmp_path, {"file": ""})
    assert host.link_target("device/driver") == "../../bus/pci/drivers/mlx5_core"
    assert host.exists("device/driver")
    assert not host.exists("device/nothing")
    for path in ("file", "nothing"):
        with pytest.raises(HostError) as caught:
            host.link_target(path)
        assert caught.value.reason is UnreadReason.ABSENT


# --- ethtool -------------------------------------------------------------------------------------


def test_ethtool_of_a_capture(host: Host, tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "ethtool/eth0/statistics": "NIC statistics:\n     rx_prio3_pause: 7\n     odd: x",
            "ethtool/eth0/driver": "driver: mlx5_core\nfirmware-version: 28 (MT:1)\nbus-info: 0:1",
        },
    )
    assert host.ethtool_stats("eth0") == {"rx_prio3_pause": 7}
    assert host.ethtool_driver("eth0") == NicDriver("mlx5_core", "", "28 (MT:1)", "0:1")


def test_a_capture_without_statistics_is_of_an_interface_without(host: Host) -> None:
    with pytest.raises(HostError) as caught:
        host.ethtool_stats("eth0")
    assert caught.value.reason is UnreadReason.NOT_SUPPORTED


def test_names_may_hold_colons() -> None:
    assert parse_ethtool_stats("     [0]: rx_ucast_packets: 9\n") == {"[0]: rx_ucast_packets": 9}


def test_ethtool_driver_without_anything() -> None:
    assert parse_ethtool_driver("") == NicDriver("")


@pytest.mark.skipif(not Path("/sys/class/net/lo").exists(), reason="no loopback interface here")
def test_the_ioctl_answers_on_this_machine() -> None:
    """The loopback interface has no statistics; an interface that does not exist has nothing."""
    live = Host()
    with pytest.raises(HostError) as caught:
        live.ethtool_stats("lo")
    assert caught.value.reason is UnreadReason.NOT_SUPPORTED
    for name in ("nosuch0", "a-name-longer-than-an-interface-may-have"):
        with pytest.raises(HostError) as caught:
            live.ethtool_stats(name)
        assert caught.value.reason is UnreadReason.UNREADABLE
    live.close()


def interface_with_statistics(live: Host) -> str | None:
    for name in sorted(entry.name for entry in Path("/sys/class/net").glob("*")):
        try:
            live.ethtool_stats(name)
        except HostError:
            continue
        return name
    return None


def test_statistics_of_this_machine() -> None:
    live = Host()
    name = interface_with_statistics(live)
    if name is None:
        live.close()
        pytest.skip("no interface of this machine offers statistics")
    stats, again = live.ethtool_stats(name), live.ethtool_stats(name)
    assert stats.keys() == again.keys()
    assert all(name.isprintable() and number >= 0 for name, number in stats.items())
    assert live.ethtool_driver(name).driver
    live.close()
