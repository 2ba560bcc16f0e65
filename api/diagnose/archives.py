"""Archives (tar and zip), read where they lie. Nothing is ever written under a member's name.

Everything in them is hostile. A member's name is only shown and says what lies together; links and
devices are passed over; a header that claims gigabytes is not believed. What members unpack to is
counted over the whole archive: a small one that unpacks to a disk's worth ends there, by name.
"""

from __future__ import annotations

import datetime as dt
import io
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from collector.contract.errors import ParseError

ENTRIES_MAX = 50_000
"""Entries of an archive that are read: four files for each rank of a large job. Further ones are
counted."""
UNPACKED_BYTES_MAX = 64 << 30
"""What the members of one archive may unpack to, together."""
UNPACKED_TIMES_MAX = 500
"""...and as a multiple of the archive's own size, from UNPACKED_BYTES_FREE on. Logs shrink to a
twentieth, logs of one line to a hundredth; a bomb to a thousandth."""
UNPACKED_BYTES_FREE = 1 << 30
DIRECTORY_BYTES_MAX = 32 << 20
"""A zip file's list of members, which is held in memory as a whole: that of 100,000 members."""
NAME_BYTES_MAX = 4096
"""A name that a tar file gives in a header of its own; longer ones are cut."""
SPOOL_BYTES = 8 << 20
"""A zip file from a pipe, or out of another archive, is kept in memory up to here, else in a file
without a name."""
BLOCK = 512
PIECE_BYTES = 1 << 20

TAR_MAGIC_AT = 257
TAR_MAGIC = b"ustar"
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x06"
_END_BYTES = 22
_END_SEARCHED = (1 << 16) + _END_BYTES


class Readable(Protocol):
    """What an archive is read from."""

    def read(self, size: int, /) -> bytes: ...


class Member(NamedTuple):
    """One file of an archive; to be read before the next is asked for."""

    name: str
    size_bytes: int
    changed_ns: int
    file: BinaryIO


class Budget:
    """What an archive of this size may still unpack to; 0: the size is not known."""

    def __init__(self, packed_bytes: int) -> None:
        most = max(UNPACKED_BYTES_FREE, UNPACKED_TIMES_MAX * packed_bytes)
        self.most = min(UNPACKED_BYTES_MAX, most) if packed_bytes else UNPACKED_BYTES_MAX
        self.packed = packed_bytes
        self.used = 0

    def spend(self, count: int) -> None:
        self.used += count
        if self.used > self.most:
            of = f" from {self.packed:,}" if self.packed else ""
            raise ParseError(
                "", f"unpacks to over {self.most:,} bytes{of}: a zip bomb? the rest is left out"
            )


def kind_of(head: bytes) -> str:
    """`tar`, `zip`, or empty for what is no archive."""
    if head.startswith(ZIP_MAGICS):
        return "zip"
    is_tar = head[TAR_MAGIC_AT : TAR_MAGIC_AT + len(TAR_MAGIC)] == TAR_MAGIC
    return "tar" if is_tar and checksum_of(head[:BLOCK]) == octal(head[148:156]) else ""


def members_of(
    kind: str, stream: Readable, budget: Budget, plain: BinaryIO | None = None
) -> Iterator[Member | ParseError]:
    """The archive's files, in its order; a ParseError for one that is passed over.

    Ends with an error where the archive is broken, or unpacks to more than the budget has.
    ``plain`` is the stream's file, where that can be read in any order.
    """
    try:
        if kind == "tar":
            yield from tar_members(stream, budget)
        elif plain is not None:
            yield from zip_members(plain, budget)
        else:
            with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spooled:
                while piece := stream.read(PIECE_BYTES):
                    budget.spend(len(piece))
                    spooled.write(piece)
                yield from zip_members(spooled, budget)  # type: ignore[arg-type]
    except ParseError as error:
        yield error


def clean_name(name: str) -> str:
    """A member's name as a path below its archive: without roots, drives and steps upwards.

    >>> clean_name("../../etc/passwd"), clean_name("C:/logs/a.log"), clean_name("./a//b")
    ('etc/passwd', 'logs/a.log', 'a/b')
    """
    parts = name.replace("\\", "/").split("/")
    return "/".join(part for part in parts if part not in ("", ".", "..") and part[-1:] != ":")


def is_hidden(name: str) -> bool:
    """As in folders; `__MACOSX` is where a Mac puts what else it knows of files."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


# tar ---------------------------------------------------------------------------------------------


class TarFile(io.RawIOBase):
    """The bytes of one member, from the archive's stream."""

    def __init__(self, stream: Readable, size: int, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget
        self.left = size
        self.is_cut = False

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self.left if size is None or size < 0 else min(size, self.left)
        piece = self._stream.read(min(wanted, PIECE_BYTES)) if wanted else b""
        if wanted and not piece:
            self.is_cut, self.left = True, 0
        self.left -= len(piece)
        self._budget.spend(len(piece))
        return piece


def tar_members(stream: Readable, budget: Budget) -> Iterator[Member | ParseError]:
    """By hand: the standard library reads a header's name of any length into memory."""
    name, count = b"", 0
    size_said: int | None = None
    while len(header := read_fully(stream, BLOCK)) == BLOCK and header.strip(b"\0"):
        if checksum_of(header) != octal(header[148:156]):
            raise ParseError(
                "", "the tar file is broken: a header is not one; the rest is left out"
            )
        size = octal(header[124:136]) if size_said is None else size_said
        kind = header[156:157]
        file = TarFile(stream, size, budget)
        if kind in b"LxgK":
            said = read_fully(file, min(size, NAME_BYTES_MAX))
            if kind == b"L":
                name = said.rstrip(b"\0")
            elif kind == b"x":
                name, size_said = pax_words(said, name)
        else:
            shown = clean_name((name or tar_name(header)).decode("utf-8", "replace"))
            name, size_said = b"", None
            if kind in b"0\x007" and shown and not is_hidden(shown):
                count += 1
                if count > ENTRIES_MAX:
                    raise ParseError(
                        "", f"over ENTRIES_MAX = {ENTRIES_MAX} entries; the rest is left out"
                    )
                changed_ns = octal(header[136:148]) * 1_000_000_000
                yield Member(shown, size, changed_ns, file)  # type: ignore[arg-type]
            elif kind in b"12346" and kind != b"5":
                yield ParseError(shown, "a link or a device of an archive; passed over")
        while file.read(PIECE_BYTES):
            pass
        padding = -size % BLOCK
        if file.is_cut or len(read_fully(stream, padding)) < padding:
            raise ParseError("", "the tar file is cut off")


def tar_name(header: bytes) -> bytes:
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    return prefix + b"/" + name if prefix and header[257:263] == b"ustar\0" else name


def pax_words(said: bytes, name: bytes) -> tuple[bytes, int | None]:
    """The name and size of the next member, of a header that has words of its own for them."""
    size = None
    for line in said.split(b"\n"):
        word, _, value = line.partition(b" ")[2].partition(b"=")
        if word == b"path":
            name = value
        elif word == b"size" and value.isdigit() and len(value) < 20:  # noqa: PLR2004 - 64 bits
            size = int(value)
    return name, size


def octal(field: bytes) -> int:
    """A number of a tar header; those too large for its digits are binary."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[4:], "big")
    digits = field.strip(b" \0")
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else 0


def checksum_of(header: bytes) -> int:
    """The sum of a header's bytes, its own eight counted as spaces; -1 for what is too short."""
    return sum(header[:148]) + 8 * 32 + sum(header[156:]) if len(header) == BLOCK else -1


def read_fully(stream: Readable, size: int) -> bytes:
    """So many bytes; fewer at the end."""
    parts: list[bytes] = []
    while size > 0 and (piece := stream.read(size)):
        parts.append(piece)
        size -= len(piece)
    return b"".join(parts)


# zip ---------------------------------------------------------------------------------------------


class ZipFile(io.RawIOBase):
    """The bytes of one member; ends where it is broken."""

    def __init__(self, inner: Readable, budget: Budget) -> None:
        self._inner = inner
        self._budget = budget

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = PIECE_BYTES if size is None or size < 0 else min(size, PIECE_BYTES)
        try:
            piece = self._inner.read(wanted)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise ParseError("", f"the zip file's entry is broken: {error}") from error
        self._budget.spend(len(piece))
        return piece


def zip_members(file: BinaryIO, budget: Budget) -> Iterator[Member | ParseError]:
    if directory_bytes(file) > DIRECTORY_BYTES_MAX:
        raise ParseError(
            "", f"its list of members is over DIRECTORY_BYTES_MAX = {DIRECTORY_BYTES_MAX} bytes"
        )
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError) as error:
        raise ParseError("", f"the zip file is broken: {error}") from error
    with archive:
        count = 0
        for entry in archive.infolist():
            name = clean_name(entry.filename)
            if entry.is_dir() or not name or is_hidden(name):
                continue
            count += 1
            if count > ENTRIES_MAX:
                raise ParseError(
                    "", f"over ENTRIES_MAX = {ENTRIES_MAX} entries; the rest is left out"
                )
            if budget.used + entry.file_size > budget.most:
                budget.spend(entry.file_size)
            try:
                inner = archive.open(entry)
            except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
                yield ParseError(name, f"cannot be unpacked: {error}")
                continue
            with inner:
                unpacked = ZipFile(inner, budget)
                yield Member(name, entry.file_size, changed_ns(entry), unpacked)  # type: ignore[arg-type]


def changed_ns(entry: zipfile.ZipInfo) -> int:
    """Zip files have local time, to two seconds; 0 for a date that is none."""
    try:
        moment = dt.datetime(*entry.date_time, tzinfo=dt.UTC)
    except ValueError:
        return 0
    return int(moment.timestamp()) * 1_000_000_000


def directory_bytes(file: BinaryIO) -> int:
    """What the file says of its list of members; as `zipfile` finds it, before it reads that."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _END_SEARCHED))
    tail = file.read(_END_SEARCHED)
    at = len(tail) - _END_BYTES
    if at < 0 or tail[at : at + 4] != _END:
        at = tail.rfind(_END)
    found = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    larger = tail.rfind(_END_64)
    if larger >= 0:
        found = max(found, int.from_bytes(tail[larger + 40 : larger + 48], "little"))
    return min(found, size)  # more cannot be read
