"""Files as they grow, are renamed, truncated, replaced and deleted."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.parsing.lines import LINE_BYTES_MAX
from collector.reading import follow
from collector.reading.follow import READ_BYTES, Follower, find_files, find_folders
from tests.doubles.fakes import HandClock, HandHost


class Place:
    """A folder `logs` that is followed, on a host whose clock agrees with its files."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "logs"
        self.folder.mkdir()
        self.clock = HandClock()
        self.host = HandHost(root, self.clock)
        self.follower = Follower(["/logs"], ["*.log"])

    def write(self, name: str, content: bytes, mode: str = "ab") -> None:
        path = self.folder / name
        with path.open(mode) as file:
            file.write(content)
        self.date(name)

    def date(self, name: str, seconds_ago: float = 0) -> None:
        time_ns = self.clock.wall_ns - int(seconds_ago * 1e9)
        os.utime(self.folder / name, ns=(time_ns, time_ns))

    def poll(self) -> list[bytes]:
        chunks = list(self.follower.poll(self.host))
        assert not [each for each in chunks if isinstance(each, HostError)]
        return [each.lines for each in chunks if not isinstance(each, HostError)]

    def restart(self) -> None:
        state = self.follower.save_state()
        self.follower = Follower(["/logs"], ["*.log"])
        self.follower.load_state(state)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_only_whole_lines_and_only_once(place: Place) -> None:
    place.write("a.log", b"one\ntw")
    assert place.poll() == [b"one\n"]
    assert place.poll() == []
    place.write("a.log", b"o\nthree\n")
    assert place.poll() == [b"two\nthree\n"]


def test_a_renamed_file_goes_on_and_its_successor_begins(place: Place) -> None:
    place.write("a.log", b"one\n")
    place.poll()
    (place.folder / "a.log").rename(place.folder / "a.log.1")
    place.write("a.log.1", b"two\n")
    place.write("a.log", b"new\n")
    assert sorted(place.poll()) == [b"new\n", b"two\n"]
    (place.folder / "a.log.1").rename(place.folder / "a.log.2")
    place.write("a.log.2", b"three\n")
    assert place.poll() == [b"three\n"]


def test_a_truncated_file_starts_again(place: Place) -> None:
    place.write("a.log", b"one\ntwo\n")
    place.poll()
    place.write("a.log", b"x\n", "wb")
    (chunk,) = place.follower.poll(place.host)
    assert not isinstance(chunk, HostError)
    assert (chunk.lines, chunk.offset, chunk.is_continued) == (b"x\n", 0, False)


def test_a_file_truncated_and_grown_beyond_is_noticed(place: Place) -> None:
    place.write("a.log", b"one\n")
    place.poll()
    place.write("a.log", b"other\nmore\n", "wb")
    assert place.poll() == [b"other\nmore\n"]


def test_a_deleted_file_is_forgotten(place: Place) -> None:
    place.write("a.log", b"one\n")
    place.poll()
    (place.folder / "a.log").unlink()
    assert place.poll() == []
    assert place.follower.files == []


def test_an_old_file_is_read_from_its_end(place: Place) -> None:
    place.write("a.log", b"old\n")
    place.write("cut.log", b"old\nhal")
    for name in ("a.log", "cut.log"):
        place.date(name, seconds_ago=7200)
    assert place.poll() == []
    place.write("a.log", b"new\n")
    place.write("cut.log", b"f\nnew too\n")
    assert sorted(place.poll()) == [b"new\n", b"new too\n"]


def test_of_a_big_file_the_end_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BACKLOG_BYTES_MAX", 10)
    place.write("a.log", b"one\ntwo\nthree\nfour\n")
    assert place.poll() == [b"four\n"]
    assert place.follower.skipped_bytes > 0


def test_offset_and_note_survive_a_restart(place: Place) -> None:
    place.write("a.log", b"one\ntw")
    place.poll()
    place.follower.files[0].note = {"header": "h"}
    place.restart()
    place.write("a.log", b"o\n")
    (chunk,) = place.follower.poll(place.host)
    assert not isinstance(chunk, HostError)
    assert (chunk.lines, chunk.is_continued, chunk.file.note) == (b"two\n", True, {"header": "h"})


def test_a_restart_finds_a_file_replaced(place: Place) -> None:
    place.write("a.log", b"one\ntwo\n")
    place.poll()
    state = place.follower.save_state()
    place.write("a.log", b"quite another text\n", "wb")
    place.follower = Follower(["/logs"], ["*.log"])
    place.follower.load_state(state)
    assert place.poll() == [b"quite another text\n"]


@pytest.mark.parametrize("state", [{}, {"files": 3}, {"files": [1, ["x"], ["a", 1, 2, -3, 0, 0]]}])
def test_a_state_of_another_shape_is_ignored(place: Place, state: dict[str, object]) -> None:
    place.follower.load_state(state)
    assert place.follower.files == []


def test_a_line_that_is_too_long_is_passed_over(place: Place) -> None:
    place.write("a.log", b"one\n" + b"x" * (LINE_BYTES_MAX + 3 * READ_BYTES) + b"\ntwo\n")
    chunks = [each for each in place.follower.poll(place.host) if not isinstance(each, HostError)]
    assert [chunk.lines for chunk in chunks] == [b"one\n", b"two\n"]
    assert [chunk.is_continued for chunk in chunks] == [False, False]
    assert place.follower.skipped_bytes >= LINE_BYTES_MAX


def test_a_long_line_is_whole(place: Place) -> None:
    long = b"x" * (3 * READ_BYTES) + b"\n"
    place.write("a.log", long + b"two\n")
    assert b"".join(place.poll()) == long + b"two\n"


def test_a_poll_is_bounded_and_the_rest_comes_later(place: Place) -> None:
    place.follower = Follower(["/logs"], ["*.log"], poll_bytes_max=READ_BYTES)
    content = (b"x" * 99 + b"\n") * (5 * READ_BYTES // 100)
    place.write("a.log", content)
    place.write("b.log", b"other\n")
    first = place.poll()
    assert len(b"".join(first)) <= READ_BYTES
    rest = [lines for _ in range(9) for lines in place.poll()]
    assert b"other\n" in first + rest
    assert len(b"".join(first + rest)) == len(content) + len(b"other\n")


def test_files_over_the_bound_are_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "FILES_MAX", 2)
    for name in ("a.log", "b.log", "c.log"):
        place.write(name, b"line\n")
    place.date("a.log", seconds_ago=60)
    assert len(place.poll()) == 2
    assert place.follower.left_out == 1
    assert [file.path for file in place.follower.files] == ["logs/b.log", "logs/c.log"]


def test_links_pipes_and_folders_are_no_files(place: Place) -> None:
    (place.folder / "secret").write_bytes(b"not for you\n")
    (place.folder / "link.log").symlink_to("secret")
    (place.folder / "folder.log").mkdir()
    os.mkfifo(place.folder / "pipe.log")
    assert place.poll() == []
    with pytest.raises(HostError):
        place.host.read_at("logs/link.log", 0, 10)
    with pytest.raises(HostError) as caught:
        place.host.read_at("logs/pipe.log", 0, 10)
    assert caught.value.reason is UnreadReason.NOT_SUPPORTED


def test_another_file_under_the_name_is_not_read(place: Place) -> None:
    place.write("a.log", b"one\n")
    identity = place.host.stat("logs/a.log").identity
    place.write("b.log", b"two\n")
    (place.folder / "b.log").rename(place.folder / "a.log")
    with pytest.raises(HostError) as caught:
        place.host.read_at("logs/a.log", 0, 10, identity)
    assert caught.value.reason is UnreadReason.ABSENT


def test_patterns_find_folders(place: Place) -> None:
    for job in ("job-1", "job-2", "other", ".hidden"):
        (place.folder / job).mkdir()
        (place.folder / job / "x.log").write_bytes(b"")
    folders = find_folders(place.host, ["/logs/job-*", "/logs/job-1", "/nowhere/*", "logs/other"])
    assert folders == ["logs/job-1", "logs/job-2", "logs/other"]
    assert list(find_files(place.host, ["/logs/*"], ["*.log"]).files) == [
        "logs/job-1/x.log",
        "logs/job-2/x.log",
        "logs/other/x.log",
    ]


def test_a_name_with_a_nul_is_absent(place: Place) -> None:
    with pytest.raises(HostError) as caught:
        place.host.stat("logs/\0")
    assert caught.value.reason is UnreadReason.ABSENT


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_to_a_log_every_line_comes_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Appends that are seen half-way, rotations, truncations and restarts in random order."""
    monkeypatch.setattr(follow, "READ_BYTES", 64)
    randomly = random.Random(seed)
    written: list[bytes] = []
    read: list[bytes] = []

    def drain() -> None:
        while chunks := place.poll():
            read.extend(line for chunk in chunks for line in chunk.splitlines())

    place.write("a.log", b"")
    rotations = 0
    for _ in range(60):
        action = randomly.choices(
            ["append", "drain", "rotate", "truncate", "restart"], [6, 2, 1, 1, 1]
        )
        if action == ["append"]:
            line = b"%d:" % len(written) + b"x" * randomly.randrange(150)
            cut = randomly.randrange(len(line))
            place.write("a.log", line[:cut])
            read.extend(each for chunk in place.poll() for each in chunk.splitlines())
            place.write("a.log", line[cut:] + b"\n")
            written.append(line)
        elif action == ["rotate"]:
            drain()
            for number in range(rotations, 0, -1):
                (place.folder / f"a.log.{number}").rename(place.folder / f"a.log.{number + 1}")
            (place.folder / "a.log").rename(place.folder / "a.log.1")
            place.write("a.log", b"")
            rotations += 1
        elif action == ["truncate"]:
            drain()
            place.write("a.log", b"", "wb")
        elif action == ["restart"]:
            place.restart()
        else:
            drain()
    drain()
    assert Counter(read) == Counter(written)
