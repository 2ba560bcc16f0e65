"""Files on disk: walk, unpack, recognise by content. All content is untrusted.

A file is read once and in pieces, packed or not, so that standard input and pipes are files too.
A broken file ends where it breaks, with the reason in `Stream.broken`; what came before is used.
"""

from __future__ import annotations

import codecs
import difflib
import io
import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from api.diagnose.archives import Budget
from collector.contract.errors import ParseError, SettingsError
from collector.contract.identity import printable
from collector.formats import HEAD_BYTES, Format, Origin, discover
from collector.parsing.lines import read_pieces
from collector.parsing.prefixes import strip_prefixes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FILES_MAX = 200_000
"""Files that are read: four for each rank of the largest jobs there are. Further ones are not
read, and the report notes it."""
FOLDERS_DEEP_MAX = 64
"""Folders within folders. Logs are never deeper; a loop of bind mounts is."""
UNPACKED_BYTES_MAX = 64 << 30
"""What one packed file may unpack to. A profile of an hour has tens of gigabytes; a file that was
made to fill a disk, or to take for ever, has petabytes."""
LAYERS_MAX = 3
"""How often a file may be packed: a log that was packed by its writer and again by its archive."""
PACKED_BYTES = 256 << 10
UNPACKED_BYTES = 1 << 20

EARLIEST_NS = 946_684_800_000_000_000
"""The year 2000. What claims to be older is no time: NCCL is from 2015, and the files of a
reproducible archive all claim to be of 1970."""

STANDARD_INPUT = "-"
GZIP_MAGIC = b"\x1f\x8b\x08"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
XZ_MAGIC = b"\xfd7zXZ\x00"
BZIP2_MAGIC = b"BZh"
XZ_MEMORY_BYTES_MAX = 256 << 20
"""What unpacking may take: `xz -9` needs 65 MiB, a file that was made to fill memory 4 GiB."""
HINTS = (
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first, or pack it as tar or zip"),
    (b"Rar!", "a rar archive: unpack it first, or pack it as tar or zip"),
    (XZ_MAGIC, "an xz file, and this Python cannot unpack it: xz -d"),
    (b"\x04\x22\x4d\x18", "an lz4 file: unpack it first (lz4 -d)"),
    (b"SQLite format 3", "a SQLite database: give the profiler's trace as JSON instead"),
    (b"PAR1", "a Parquet file: not read"),
    (
        b"<system version",
        "NCCL's topology file: not read; NCCL_DEBUG=INFO logs have rings and NICs",
    ),
)
"""What people have beside what is read, and what to do about it."""
ENCODINGS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
"""How a text begins that says its encoding: `>` of PowerShell writes UTF-16."""


class Found(msgspec.Struct, frozen=True):
    """A file that was found: its path as a user would write it, and its size and identity."""

    path: str
    size_bytes: int
    """On disk; 0 for a pipe."""
    changed_ns: int
    is_pipe: bool = False
    depth: int = 0
    """How many archives it lies in."""

    @property
    def folder(self) -> str:
        return str(Path(self.path).parent)


class Walk:
    """Files below the paths that were given, each once, in order of their names."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._seen: set[tuple[int, int]] = set()
        self.left_out: list[tuple[str, str]] = []

    def files(self) -> list[Found]:
        found: list[Found] = []
        for path in self._paths:
            for one in self._below(path):
                if len(found) == FILES_MAX:
                    self.left_out.append((one.path, f"over FILES_MAX = {FILES_MAX} files"))
                    return found
                found.append(one)
        return found

    def _below(self, path: str) -> Iterator[Found]:
        if path == STANDARD_INPUT:
            # Lines without a time of their own need one, as a file has when it was changed.
            yield Found(path, 0, time.time_ns(), is_pipe=True)
            return
        try:
            status = os.stat(path)  # noqa: PTH116 - the same as for entries of folders
        except (OSError, ValueError) as error:
            raise SettingsError(no_such_path(path, error)) from error
        if stat.S_ISDIR(status.st_mode):
            self._is_new(status)
            yield from self._walk(path)
        elif stat.S_ISREG(status.st_mode):
            if self._is_new(status):
                yield Found(path, status.st_size, status.st_mtime_ns)
        elif stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode):
            yield Found(path, 0, status.st_mtime_ns, is_pipe=True)
        else:
            self.left_out.append((path, "neither a file nor a folder"))

    def _walk(self, top: str) -> Iterator[Found]:
        """Files of a folder, then of its folders; follows links, but visits no file twice."""
        waiting = [(top, 0)]
        while waiting:
            folder, depth = waiting.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self.left_out.append((folder, error.strerror or "cannot be listed"))
                continue
            folders = []
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                try:
                    status = entry.stat()
                except OSError as error:
                    self.left_out.append((entry.path, error.strerror or "cannot be read"))
                    continue
                if not self._is_new(status):
                    continue
                if stat.S_ISDIR(status.st_mode):
                    folders.append((entry.path, depth + 1))
                elif stat.S_ISREG(status.st_mode):
                    yield Found(entry.path, status.st_size, status.st_mtime_ns)
                else:
                    self.left_out.append((entry.path, "neither a file nor a folder"))
            if depth < FOLDERS_DEEP_MAX:
                waiting.extend(reversed(folders))
            elif folders:
                self.left_out.append((folder, f"deeper than FOLDERS_DEEP_MAX = {FOLDERS_DEEP_MAX}"))

    def _is_new(self, status: os.stat_result) -> bool:
        identity = (status.st_dev, status.st_ino)
        if identity in self._seen:
            return False
        self._seen.add(identity)
        return True


def no_such_path(path: str, error: OSError | ValueError) -> str:
    """The message about a path that cannot be read, with the path that was probably meant."""
    shown = printable(path)
    if path.startswith("-"):
        return f"unknown option {shown}; see fabricscope diagnose --help"
    if not isinstance(error, FileNotFoundError):
        return f"{shown}: {getattr(error, 'strerror', None) or error}"
    parent = Path(path).absolute().parent
    while not parent.is_dir():
        parent = parent.parent
    try:
        names = os.listdir(parent)  # noqa: PTH208 - names are what is compared
    except OSError:
        names = []
    # The part that is missing: of a long path it need not be the last.
    missing = Path(path).absolute().relative_to(parent).parts[0]
    near = difflib.get_close_matches(missing, names, n=1)
    hint = f"; did you mean {printable(str(parent / near[0]))}?" if near else ""
    return f"{shown}: there is no such file or folder{hint}"


# Unpacking ---------------------------------------------------------------------------------------


class Unpacker(Protocol):
    """The interface of zstd's decompressor, for one member of a packed file."""

    def decompress(self, data: bytes, max_length: int) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def needs_input(self) -> bool: ...


class GzipUnpacker:
    """One member of a gzip file, as zstd's decompressor gives a frame."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail


MORE_PACKINGS: list[tuple[bytes, str, Callable[[], Unpacker]]] = []
UNPACK_ERRORS: tuple[type[Exception], ...] = (zlib.error, zstd.ZstdError)
try:
    import bz2
    import lzma
except ImportError:  # a Python that was built without them
    pass
else:
    MORE_PACKINGS.append(
        (XZ_MAGIC, "xz", lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES_MAX))
    )
    MORE_PACKINGS.append((BZIP2_MAGIC, "bzip2", bz2.BZ2Decompressor))
    UNPACK_ERRORS = (*UNPACK_ERRORS, lzma.LZMAError, OSError)

PACKINGS: tuple[tuple[bytes, str, Callable[[], Unpacker]], ...] = (
    (GZIP_MAGIC, "gzip", GzipUnpacker),
    (ZSTD_MAGIC, "zstd", zstd.ZstdDecompressor),  # refuses frames that want over 128 MiB of memory
    *MORE_PACKINGS,
)
MAGIC_BYTES = max(len(magic) for magic, _, _ in PACKINGS)


class Piecewise(Protocol):
    """Something that gives its bytes in pieces of its own size; empty at the end."""

    def next_piece(self) -> bytes: ...


class Raw:
    """The bytes of an open file on disk; ``on_read`` gets the number of each read."""

    def __init__(self, file: BinaryIO, on_read: Callable[[int], None]) -> None:
        self._file = file
        self._on_read = on_read

    def next_piece(self) -> bytes:
        # A pipe gives what it has: the first line of a log is recognised before the next comes.
        read = getattr(self._file, "read1", self._file.read)
        piece: bytes = read(PACKED_BYTES)
        self._on_read(len(piece))
        return piece


class Unpacked:
    """What a packed stream holds: all its members, one behind the other."""

    def __init__(
        self, inner: Piecewise, magic: bytes, name: str, make: Callable[[], Unpacker]
    ) -> None:
        self._inner = inner
        self._magic = magic
        self._name = name
        self._make = make
        self._unpacker = make()
        self._data = b""
        self._is_over = False
        self.total_bytes = 0

    def next_piece(self) -> bytes:
        while not self._is_over:
            if self._unpacker.eof:
                self._data = self._unpacker.unused_data or self._inner.next_piece()
                if not self._data.startswith(self._magic[: len(self._data)]) or not self._data:
                    self._is_over = True  # the end, or padding as tapes and tools write it
                    break
                self._unpacker = self._make()
            elif self._unpacker.needs_input and not self._data:
                self._data = self._inner.next_piece()
                if not self._data:
                    self._is_over = True
                    raise ParseError("", f"the {self._name} file is cut off")
            try:
                piece = self._unpacker.decompress(self._data, UNPACKED_BYTES)
            except UNPACK_ERRORS as error:
                self._is_over = True
                where = f"unpacked byte {self.total_bytes}"
                raise ParseError(where, f"the {self._name} file is broken: {error}") from error
            self._data = b""
            if piece:
                self.total_bytes += len(piece)
                return piece
        return b""


class Decoded:
    """A text in UTF-16, or with a mark in front, as UTF-8: what formats read."""

    def __init__(self, inner: Piecewise, encoding: str) -> None:
        self._inner = inner
        self._decode = codecs.getincrementaldecoder(encoding)("replace").decode

    def next_piece(self) -> bytes:
        while piece := self._inner.next_piece():
            if text := self._decode(piece):
                return text.encode("utf-8", "replace")
        return b""


class Stream(io.RawIOBase):
    """A file as formats read it: unpacked, with its beginning shown first. Ends where it breaks."""

    def __init__(
        self,
        file: BinaryIO,
        on_read: Callable[[int], None] = lambda _: None,
        budget: Budget | None = None,
    ) -> None:
        """``budget``: what an archive may unpack to, of a file that lies in one."""
        self.broken: ParseError | None = None
        """Why it ended before its end, if it did."""
        self.packing = ""
        """`gzip`, `zstd`, both joined by a space, or empty."""
        self.total_bytes = 0
        """What was read of it, unpacked."""
        self._source: Piecewise = Raw(file, on_read)
        self._budget = budget
        self._data = b""
        self._at = 0
        self._fill_head(MAGIC_BYTES)
        for _ in range(LAYERS_MAX):
            if not self._unwrap():
                break
        for mark, encoding in ENCODINGS:
            if self._data.startswith(mark):
                self._source = Decoded(Pushed(self._data[len(mark) :], self._source), encoding)
                self._data = b""
                break
        self._fill_head(HEAD_BYTES)
        self.head = self._data[:HEAD_BYTES]

    def _unwrap(self) -> bool:
        for magic, name, make in PACKINGS:
            if self._data.startswith(magic):
                self._source = Unpacked(Pushed(self._data, self._source), magic, name, make)
                self._data = b""
                self.packing = f"{self.packing} {name}".strip()
                self._fill_head(MAGIC_BYTES)
                return True
        return False

    def _fill_head(self, size: int) -> None:
        while len(self._data) < size:
            piece = self._next_piece()
            if not piece:
                break
            self._data += piece

    def _next_piece(self) -> bytes:
        if self.broken is not None:
            return b""
        try:
            piece = self._source.next_piece()
            if self._budget is not None and self.packing:
                self._budget.spend(len(piece))
        except ParseError as error:
            self.broken = error
        except OSError as error:
            self.broken = ParseError("", f"cannot be read: {error.strerror or error}")
        else:
            self.total_bytes += len(piece)
            if self.total_bytes <= UNPACKED_BYTES_MAX or not self.packing:
                return piece
            bound = f"UNPACKED_BYTES_MAX = {UNPACKED_BYTES_MAX}"
            self.broken = ParseError("", f"unpacks to over {bound} bytes; the rest is left out")
        return b""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = -1 if size is None else size
        parts: list[bytes] = []
        while wanted != 0:
            if self._at == len(self._data):
                self._data, self._at = self._next_piece(), 0
                if not self._data:
                    break
            end = len(self._data) if wanted < 0 else self._at + wanted
            part = self._data[self._at : end]
            self._at += len(part)
            parts.append(part)
            if wanted > 0:
                wanted -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class Pushed:
    """A stream whose beginning was read already."""

    def __init__(self, first: bytes, rest: Piecewise) -> None:
        self._first = first
        self._rest = rest

    def next_piece(self) -> bytes:
        first, self._first = self._first, b""
        return first or self._rest.next_piece()


class WithoutPrefixes:
    """A text without what a launcher or collector put in front of its lines."""

    def __init__(self, stream: BinaryIO) -> None:
        self._pieces = read_pieces(stream)
        self._data = b""

    def read(self, size: int = -1, /) -> bytes:
        while size < 0 or not self._data:
            lines = next(self._pieces, b"")
            if lines == b"":
                break
            self._data += strip_prefixes(lines or b"\n")  # None: a line that is too long
        wanted = len(self._data) if size < 0 else size
        piece, self._data = self._data[:wanted], self._data[wanted:]
        return piece


def hint_of(head: bytes) -> str:
    """What to do about a file that is not understood; empty where there is nothing to say."""
    for mark, hint in HINTS:
        if head.startswith(mark):
            return hint
    if b"NCCL" in head and b"\0" not in head:
        return (
            "mentions NCCL, and has no line as NCCL writes it (host:pid:thread [GPU] NCCL INFO …): "
            "a summary, or a log of another level than INFO or WARN"
        )
    return ""


def recognise(head: bytes, origin: Origin) -> Format | None:
    for reader in discover().values():
        if reader.recognises(head, origin):
            return reader
    return None


PACKED_ENDINGS = (".gz", ".gzip", ".zst", ".zstd", ".xz", ".bz2")


def origin_of(found: Found) -> Origin:
    """What a format may know of a file besides its content.

    >>> origin_of(Found("a/rank3.json.gz", 0, 7))
    Origin(name='rank3.json', time_ns=0)
    """
    name = "standard input" if found.path == STANDARD_INPUT else Path(found.path).name
    for ending in PACKED_ENDINGS:
        name = name.removesuffix(ending)
    return Origin(name, found.changed_ns if found.changed_ns >= EARLIEST_NS else 0)
