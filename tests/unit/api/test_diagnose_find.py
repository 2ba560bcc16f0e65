"""Which files `diagnose` finds, how it unpacks them, and how it reports broken ones."""

import gzip
import io
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from api.diagnose import find
from api.diagnose.find import Found, Stream, Walk, origin_of, recognise
from collector.contract.errors import SettingsError
from collector.contract.identity import printable
from collector.formats import HEAD_BYTES, Origin

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMATS = Path(__file__).resolve().parents[2] / "fixtures/formats"


def names(walk: Walk, folder: Path) -> list[str]:
    return [os.path.relpath(found.path, folder) for found in walk.files()]


def read_all(content: bytes) -> tuple[bytes, Stream]:
    stream = Stream(io.BytesIO(content))
    return stream.read(), stream


# --- walking -----------------------------------------------------------------------------------


def test_files_come_in_order_and_hidden_ones_do_not(tmp_path: Path) -> None:
    for name in ("b/two", "b/one", "a", ".hidden", ".git/config", "c/.x/y"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert names(Walk([str(tmp_path)]), tmp_path) == ["a", "b/one", "b/two"]


def test_a_hidden_file_that_is_named_is_read(tmp_path: Path) -> None:
    (tmp_path / ".log").write_text("x")
    assert names(Walk([str(tmp_path / ".log")]), tmp_path) == [".log"]


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "real/up").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path / "real/file")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    walk = Walk([str(tmp_path), str(tmp_path / "real")])
    assert len(names(walk, tmp_path)) == 1
    assert [Path(path).name for path, _ in walk.left_out] == ["gone"]


def test_what_is_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("door")
        walk = Walk(["."])
        assert walk.files() == []
        assert [why for _, why in walk.left_out] == ["neither a file nor a folder"]


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "FILES_MAX", 3)
    for number in range(5):
        (tmp_path / str(number)).write_text("x")
    walk = Walk([str(tmp_path)])
    assert names(walk, tmp_path) == ["0", "1", "2"]
    assert "FILES_MAX = 3" in walk.left_out[0][1]


def test_folders_within_folders_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "FOLDERS_DEEP_MAX", 1)
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").write_text("x")
    (tmp_path / "a/b/deep").write_text("x")
    walk = Walk([str(tmp_path)])
    assert names(walk, tmp_path) == ["a/file"]
    assert "FOLDERS_DEEP_MAX" in walk.left_out[0][1]


def test_a_typo_in_a_path_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "captures/net3").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"no such file or folder; did you mean .*/captures\?"):
        Walk([str(tmp_path / "capturse/net3")]).files()
    with pytest.raises(SettingsError, match="unknown option --jsn"):
        Walk(["--jsn"]).files()
    with pytest.raises(SettingsError, match=r"no such file or folder$"):
        Walk([str(tmp_path / "elsewhere")]).files()


def test_a_name_is_shown_without_orders_to_the_terminal() -> None:
    assert printable("a\x1b[31m\udce4\n") == "a\ufffd[31m\ufffd\ufffd"


# --- unpacking ---------------------------------------------------------------------------------

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "gzip in zstd": lambda data: zstd.compress(gzip.compress(data)),
    "several members": lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:]),
    "several frames": lambda data: zstd.compress(data[:7]) + zstd.compress(data[7:]),
    "padded": lambda data: gzip.compress(data) + bytes(512),
}


CHANGED = (*(packing[0] for packing in find.PACKINGS), *(mark for mark, _ in find.ENCODINGS))
"""How content begins that a stream does not give as it is."""


@pytest.mark.parametrize("packing", PACKINGS)
@given(data=st.binary(max_size=300))
def test_what_was_packed_comes_out(packing: str, data: bytes) -> None:
    assume(not data.startswith(CHANGED))  # it would be unpacked, or decoded, too
    content, stream = read_all(PACKINGS[packing](data))
    assert content == data
    assert stream.broken is None


def test_the_beginning_is_shown_and_still_read() -> None:
    data = bytes(range(256)) * 4096
    stream = Stream(io.BytesIO(gzip.compress(data)))
    assert stream.head == data[:HEAD_BYTES]
    assert stream.read(10) == data[:10]
    buffer = bytearray(20)
    assert stream.readinto(buffer) == 20
    assert bytes(buffer) == data[10:30]
    assert stream.readall() == data[30:]
    assert stream.read(5) == b""


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_packed_file_that_is_cut_off_is_used_up_to_there(packing: str) -> None:
    data = os.urandom(3_000_000)
    packed = PACKINGS[packing](data)
    content, stream = read_all(packed[: len(packed) // 2])
    assert len(content) > 1_000_000
    assert data.startswith(content)
    assert stream.broken is not None
    assert "cut off" in str(stream.broken)


def test_a_packed_file_with_a_broken_middle_is_used_up_to_there() -> None:
    data = os.urandom(3_000_000)
    packed = bytearray(gzip.compress(data))
    packed[2_000_000:2_000_100] = bytes(100)
    content, stream = read_all(bytes(packed))
    assert stream.broken is not None
    assert len(content) <= len(data) + 100


def test_a_bomb_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "UNPACKED_BYTES_MAX", 5 << 20)
    content, stream = read_all(gzip.compress(bytes(64 << 20)))
    assert len(content) <= 5 << 20
    assert "UNPACKED_BYTES_MAX" in str(stream.broken)


def test_layers_are_bounded() -> None:
    data = b"x"
    for _ in range(find.LAYERS_MAX + 1):
        data = gzip.compress(data)
    content, stream = read_all(data)
    assert content.startswith(find.GZIP_MAGIC)
    assert stream.broken is None


@given(
    content=st.binary(max_size=200),
    magic=st.sampled_from([b"", find.GZIP_MAGIC, find.ZSTD_MAGIC]),
)
def test_any_bytes_end(content: bytes, magic: bytes) -> None:
    read_all(magic + content)


class BrokenDisk(io.BytesIO):
    """Returns 100 bytes, then raises an I/O error."""

    def read1(self, _: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError(5, "Input/output error")
        return super().read1(100)


def test_an_error_of_the_disk_ends_the_file() -> None:
    stream = Stream(BrokenDisk(bytes(200)))
    assert stream.read() == bytes(100)
    assert str(stream.broken) == "cannot be read: Input/output error"


# --- recognising -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    sorted(FORMATS.glob("*/*/input*")),
    ids=lambda path: "-".join(path.relative_to(FORMATS).parts[:2]),
)
def test_each_kind_is_recognised_by_content(path: Path) -> None:
    """Exactly one format recognises the file, whatever the file's name."""
    found = recognise(path.read_bytes()[:HEAD_BYTES], Origin(path.name.removeprefix("input."), 1))
    assert found is not None
    assert found.name == path.parent.parent.name


def test_the_name_is_without_its_packing() -> None:
    changed_ns = 1_800_000_000_000_000_000
    found = Found("runs/rank3.pt.trace.json.gz", 0, changed_ns)
    assert origin_of(found) == Origin("rank3.pt.trace.json", changed_ns)
    assert origin_of(Found("-", 0, 0, is_pipe=True)).name == "standard input"


@pytest.mark.parametrize("changed_ns", [-1, 0, 1, 86_400 * 10**9])
def test_a_file_of_1970_has_no_time(changed_ns: int) -> None:
    """Reproducible archives set all times to it: it is no time of anything."""
    assert origin_of(Found("a", 0, changed_ns)).time_ns == 0
