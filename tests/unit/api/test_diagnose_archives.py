"""Files as people have them: in archives, packed, with prefixes, in UTF-16; and hostile ones."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.diagnose import archives, find
from api.diagnose.archives import Budget, Member, kind_of, members_of
from api.diagnose.bandwidth import Results
from api.diagnose.find import Found, Stream
from api.diagnose.load import FileRead, Loader
from collector.contract.errors import ParseError
from collector.contract.model import Event

LOG = b"node0:1:1 [0] init.cc:7 NCCL WARN Something is wrong\n"
TABLE = b"""# nThread 1 nGpus 1 minBytes 8 maxBytes 8
#   Rank  0 Pid 1 on node0 device  0 [0x00] H200
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    10.00    0.10    0.20      0    10.00    0.10    0.20      0
"""  # noqa: E501
CHANGED_NS = 1_700_000_000_000_000_000


class Kept:
    """Stands for the store: keeps events and results."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.results = Results()

    def add_event(self, event: Event) -> str | None:
        self.events.append(event)
        return None


def read(content: bytes, name: str = "some/x.bin", *, is_pipe: bool = False) -> tuple[Kept, Loader]:
    kept = Kept()
    loader = Loader(kept)  # type: ignore[arg-type]
    found = Found(name, len(content), CHANGED_NS, is_pipe=is_pipe)
    loader.read(found, io.BytesIO(content), lambda _: None)
    return kept, loader


def accounts(content: bytes) -> list[FileRead]:
    return read(content)[1].loaded.files


def make_tar(files: dict[str, bytes], mode: str = "w", kind: int = tarfile.GNU_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode, format=kind) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_600_000_000
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def make_zip(files: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", packing) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


LONG = "a/" + "long" * 60 + "/node1.log"
FILES = {"a/node0.log": LOG, LONG: LOG.replace(b"node0", b"node1")}
ARCHIVES = {
    "tar": make_tar(FILES),
    "pax": make_tar(FILES, kind=tarfile.PAX_FORMAT),
    "tgz": make_tar(FILES, "w:gz"),
    "tar.xz": make_tar(FILES, "w:xz"),
    "tar.bz2": make_tar(FILES, "w:bz2"),
    "zip": make_zip(FILES),
    "zip stored": make_zip(FILES, zipfile.ZIP_STORED),
    "gz in tar": make_tar({name: gzip.compress(content) for name, content in FILES.items()}),
    "tar in zip": make_zip({"all.tar": make_tar(FILES)}),
    "zip in tgz": make_tar({"all.zip": make_zip(FILES)}, "w:gz"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("is_pipe", [False, True])
def test_an_archive_is_read_as_its_folder_would_be(kind: str, is_pipe: bool) -> None:  # noqa: FBT001 - a case
    kept, loader = read(ARCHIVES[kind], "some/x.bin", is_pipe=is_pipe)
    assert [event.attributes["host"] for event in kept.events] == ["node0", "node1"]
    inner = {"tar in zip": "all.tar/", "zip in tgz": "all.zip/"}.get(kind, "")
    assert [file.path for file in loader.loaded.files] == [
        f"some/x.bin/{inner}{name}" for name in FILES
    ]
    assert loader.loaded.left_out == []


def test_times_of_members_are_those_of_their_files() -> None:
    kept, _ = read(ARCHIVES["tar"])
    assert {event.time_ns for event in kept.events} == {1_600_000_000 * 10**9}


def test_an_archive_in_an_archive_in_an_archive_is_named() -> None:
    (file,) = accounts(make_zip({"b.zip": make_zip({"c.zip": make_zip(FILES)})}))
    assert file.path == "some/x.bin/b.zip/c.zip"
    assert "unpack the outermost first" in file.problems[0]


def test_names_cannot_leave_the_archive_and_links_are_passed_over() -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name in ("../../etc/x.log", "/var/y.log", ".hidden/z.log"):
            info = tarfile.TarInfo(name)
            info.size = len(LOG)
            archive.addfile(info, io.BytesIO(LOG))
        link = tarfile.TarInfo("link.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    _, loader = read(target.getvalue())
    assert [file.path for file in loader.loaded.files] == [
        "some/x.bin/etc/x.log",
        "some/x.bin/var/y.log",
    ]
    assert [path for path, _ in loader.loaded.left_out] == ["some/x.bin/link.log"]


@pytest.mark.parametrize(("kind", "cut"), [("tar", 540), ("tar", 700), ("tgz", 99), ("zip", 99)])
def test_a_cut_archive_is_used_up_to_the_cut_and_named(kind: str, cut: int) -> None:
    """A zip file has its list at its end: nothing of it is left."""
    _, loader = read(ARCHIVES[kind][:cut])
    said = [why for _, why in loader.loaded.left_out]
    said += [problem for file in loader.loaded.files for problem in file.problems]
    assert any("broken" in why or "cut off" in why for why in said), said


def test_entries_are_bounded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "ENTRIES_MAX", 3)
    many = {f"{number}.log": LOG for number in range(9)}
    for content in (make_tar(many), make_zip(many)):
        _, loader = read(content)
        assert len(loader.loaded.files) == 3
        assert "ENTRIES_MAX = 3" in loader.loaded.left_out[0][1]


BOMB = LOG + b"\n" * (1 << 20)


@pytest.mark.parametrize(
    "content",
    [
        make_zip({"a.log": BOMB, "b.log": BOMB}),
        make_tar({"a.log": BOMB, "b.log": BOMB}, "w:gz"),
        make_tar({"a.log.gz": gzip.compress(BOMB), "b.log.gz": gzip.compress(BOMB)}),
        make_zip({"x.zip": make_zip({"a.log": BOMB, "b.log": BOMB})}),
    ],
    ids=["zip", "tgz", "gz in tar", "zip in zip"],
)
def test_a_bomb_ends_where_the_budget_does(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "UNPACKED_BYTES_FREE", 1 << 20)
    monkeypatch.setattr(archives, "UNPACKED_TIMES_MAX", 2)
    _, loader = read(content)
    said = [why for _, why in loader.loaded.left_out]
    said += [problem for file in loader.loaded.files for problem in file.problems]
    assert any("1,048,576 bytes" in why and "bomb" in why for why in said), said


def test_a_list_of_members_of_any_length_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "DIRECTORY_BYTES_MAX", 50)
    _, loader = read(ARCHIVES["zip"])
    assert "DIRECTORY_BYTES_MAX = 50" in loader.loaded.left_out[0][1]


class Counting(io.BytesIO):
    """Notes what is read at once: a header's claim must not become memory."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.sizes: list[int] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.sizes.append(len(found := super().read(size)))
        return found


def test_a_name_of_gigabytes_is_not_held() -> None:
    header = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"%011o\0" % (1 << 30)
    header[156:157] = b"L"
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    stream = Counting(bytes(header) + b"n" * (3 << 20))
    (error,) = members_of("tar", stream, Budget(0))
    assert isinstance(error, ParseError)
    assert "cut off" in str(error)
    header_bytes, name_bytes, *passed_over = stream.sizes
    assert (header_bytes, name_bytes) == (archives.BLOCK, archives.NAME_BYTES_MAX)
    assert max(passed_over) <= archives.PIECE_BYTES


def test_an_encrypted_entry_is_named() -> None:
    content = bytearray(make_zip({"a.log": LOG}, zipfile.ZIP_STORED))
    for mark in (b"PK\x03\x04", b"PK\x01\x02"):
        at = content.index(mark) + (6 if mark == b"PK\x03\x04" else 8)
        content[at] |= 1
    _, loader = read(bytes(content))
    assert "encrypted" in loader.loaded.left_out[0][1]


@given(
    kind=st.sampled_from(["tar", "tgz", "zip", "zip in tgz"]),
    places=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=12),
    cut=st.integers(0, 1 << 14),
)
def test_no_archive_raises(kind: str, places: list[tuple[int, int]], cut: int) -> None:
    content = bytearray(ARCHIVES[kind])
    for place, value in places:
        content[place % len(content)] = value
    read(bytes(content[: len(content) - cut % len(content)]))


def test_what_is_no_archive_is_none() -> None:
    assert kind_of(b"") == kind_of(LOG * 20) == kind_of(b"\0" * 600) == ""
    assert kind_of(ARCHIVES["tar"][:512]) == "tar"
    assert isinstance(next(members_of("tar", io.BytesIO(ARCHIVES["tar"]), Budget(0))), Member)


# --- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: b"\xff\xfe" + text.decode().encode("utf-16-le"),
        lambda text: b"\xfe\xff" + text.decode().encode("utf-16-be"),
        lambda text: gzip.compress(b"\xff\xfe" + text.decode().encode("utf-16-le")),
    ],
    ids=["utf-8 with a mark", "utf-16", "utf-16 big", "utf-16 in gzip"],
)
def test_a_text_that_says_its_encoding_is_read(encode) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    kept, _ = read(encode(LOG * 3))
    assert len(kept.events) == 3
    assert Stream(io.BytesIO(encode(LOG))).read() == LOG


PREFIXES = {
    "srun": "3: ",
    "srun, many": "   3: ",
    "mpirun": "[1,3]<stdout>:",
    "torchrun": "[rank3]: ",
    "kubectl": "[pod/nccl-test-worker-0/worker] ",
    "kubectl with times": "2026-11-14T23:59:59.123456789Z ",
    "container runtime": "2026-11-14T23:59:59.123456789Z stdout F ",
    "stern": "nccl-test-worker-0 worker ",
    "journal": "Nov 14 23:59:59 node0 slurmstepd[1234]: ",
    "journal, iso": "2026-11-14T23:59:59+0100 node0 python3[1234]: ",
    "compose": "worker-1  | ",
    "two": "[pod/a-0/b] 3: ",
}


@pytest.mark.parametrize("launcher", PREFIXES)
def test_a_table_and_a_warning_behind_prefixes_are_read(launcher: str) -> None:
    prefix = PREFIXES[launcher].encode()
    lines = (TABLE + LOG).splitlines(keepends=True)
    kept, loader = read(b"".join(prefix + line for line in lines))
    (file,) = loader.loaded.files
    assert (file.format, file.problems) == ("nccl_tests", [])
    (test,) = kept.results.tests({})
    assert (test.ranks, [row.bus_bytes_per_second for row in test.rows]) == (1, [2e8, 2e8])
    warned = [event for event in kept.events if event.kind == "nccl_warning"]
    assert [event.attributes["host"] for event in warned] == ["node0"]


@pytest.mark.parametrize("launcher", PREFIXES)
def test_other_texts_behind_prefixes_are_read(launcher: str) -> None:
    path = next(Path(__file__).parents[2].glob("fixtures/formats/steps/*/input*"))
    content = path.read_bytes()
    prefix = PREFIXES[launcher].encode()
    behind = b"".join(prefix + line for line in content.splitlines(keepends=True))
    counts = [read(text)[1].loaded.files[0].counts for text in (content, behind)]
    assert counts[0]["steps"] > 0
    assert counts[0] == counts[1]


def test_a_table_is_known_by_its_heading_and_by_what_stands_in_it() -> None:
    """A file that begins with an object, and one whose first lines a `grep` has taken."""
    for content in (b"{'NUM_GPUS': 16}\n" + TABLE, TABLE[TABLE.index(b"#       size") :]):
        kept, _ = read(content)
        assert [len(test.rows) for test in kept.results.tests({})] == [2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"7z\xbc\xaf\x27\x1c" + b"x" * 99, "unpack it first"),
        (b"Rar!\x1a\x07\x00" + b"x" * 99, "unpack it first"),
        (b"SQLite format 3\0" + b"x" * 99, "as JSON"),
        (b"NCCL WARN went by here\n", "no line as NCCL writes it"),
    ],
)
def test_what_is_refused_has_a_hint(content: bytes, words: str) -> None:
    (file,) = accounts(content)
    assert file.format == ""
    assert words in file.problems[0]


def test_what_xz_may_take_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "XZ_MEMORY_BYTES_MAX", 1 << 10)
    (file,) = accounts(ARCHIVES["tar.xz"])
    assert "the xz file is broken" in file.problems[0]
