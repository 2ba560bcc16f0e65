"""Cases as bytes: a line that names the format, and one zstd frame. Pure.

In the frame lie the length of the structure, the structure (msgpack; of a column its type and
shape), and then all columns, in the order in which the structure has them. Columns are stored as
differences, in planes of bytes of equal weight, because neighbours in a column differ little.

A case may come from a stranger: nothing in the format is executable, and what is read is bounded
before it is unpacked. The structure has a bound of its own, because a byte of it may become an
object, and a byte of a column stays one.
"""

from __future__ import annotations

import math
import sys
from typing import Any, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.cases.model import ReplayCase
from alerts.cases.sound import check_window
from collector.contract.errors import CaseError, CaseTooLarge

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMAT = 1
MAGIC = b"fabricscope case %d\n" % FORMAT
CASE_BYTES_MAX = 32 << 20
"""A case as a file: three million records of collectives of twelve bytes each. Sixteen hosts with
128 ranks have one to four MiB."""
CASE_UNPACKED_BYTES_MAX = 256 << 20
"""The same unpacked: it is held whole, twice, while it is judged."""
CASE_STRUCTURE_BYTES_MAX = 16 << 20
"""What is no column: names, steps, events. Four thousand hosts have ten MiB; at worst, of a
stranger's, it becomes a gigabyte of small objects."""
COMPRESSION_LEVEL = 6
LENGTH_BYTES = 4
DIMENSIONS_MAX = 2
TYPES = {name: np.dtype(name) for name in ("bool", "int32", "int64", "float32", "float64")}
"""Of columns; nothing else is read, and objects least of all."""


def pack(case: ReplayCase) -> bytes:
    """The bytes of a case; raises CaseTooLarge, which names the bound."""
    raw = columns_bytes(case.window)
    if raw > CASE_UNPACKED_BYTES_MAX:
        raise too_large("the window's columns have", raw, "CASE_UNPACKED_BYTES_MAX")
    columns = ColumnWriter()
    structure = msgspec.msgpack.encode(case, enc_hook=columns.add)
    if len(structure) > CASE_STRUCTURE_BYTES_MAX:
        size = len(structure)
        raise too_large("names, steps and events have", size, "CASE_STRUCTURE_BYTES_MAX")
    body = b"".join((len(structure).to_bytes(LENGTH_BYTES, "little"), structure, *columns.parts))
    packed = MAGIC + zstd.compress(body, level=COMPRESSION_LEVEL)
    if len(packed) > CASE_BYTES_MAX:
        raise too_large("the case has", len(packed), "CASE_BYTES_MAX")
    return packed


def too_large(what: str, size: int, bound: str) -> CaseTooLarge:
    most = globals()[bound]
    return CaseTooLarge(f"{what} {size / (1 << 20):.1f} MiB; {bound} is {most / (1 << 20):.0f} MiB")


def unpack(packed: bytes) -> ReplayCase:
    """The case in these bytes. Raises CaseError, and nothing else, whatever the bytes are."""
    body = unpack_frame(packed)
    length = int.from_bytes(body[:LENGTH_BYTES], "little")
    if len(body) < LENGTH_BYTES or length > len(body) - LENGTH_BYTES:
        raise CaseError(f"a structure of {length} bytes in {len(body)}")
    if length > CASE_STRUCTURE_BYTES_MAX:
        raise too_large("its structure has", length, "CASE_STRUCTURE_BYTES_MAX")
    columns = ColumnReader(body[LENGTH_BYTES + length :])
    decoder = msgspec.msgpack.Decoder(ReplayCase, dec_hook=columns.take)
    try:
        case = decoder.decode(body[LENGTH_BYTES : LENGTH_BYTES + length])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaseError(f"not a case that this version reads: {str(error)[:200]}") from error
    check_window(case.window)
    return case


def unpack_frame(packed: bytes) -> bytes:
    """The msgpack of a case, never more than CASE_UNPACKED_BYTES_MAX of it."""
    if len(packed) > CASE_BYTES_MAX:
        raise CaseTooLarge(f"{len(packed)} bytes; CASE_BYTES_MAX is {CASE_BYTES_MAX}")
    if not packed.startswith(MAGIC):
        seen = packed[: len(MAGIC)].partition(b"\n")[0]
        raise CaseError(f"it begins with {seen!r}; this version reads {MAGIC[:-1]!r}")
    decompressor = zstd.ZstdDecompressor()
    try:
        body = decompressor.decompress(packed[len(MAGIC) :], max_length=CASE_UNPACKED_BYTES_MAX)
    except zstd.ZstdError as error:
        raise CaseError(f"damaged: {error}") from error
    if not decompressor.eof:
        if len(body) >= CASE_UNPACKED_BYTES_MAX:
            raise CaseTooLarge(f"it unpacks to over {CASE_UNPACKED_BYTES_MAX} bytes")
        raise CaseError(f"cut off after {len(packed)} bytes")
    if decompressor.unused_data:
        raise CaseError(f"{len(decompressor.unused_data)} bytes follow its end")
    return body


# Columns -----------------------------------------------------------------------------------------


def columns_bytes(part: object) -> int:
    """What all columns of a window take, unpacked."""
    if isinstance(part, np.ndarray):
        return int(part.nbytes)
    if isinstance(part, msgspec.Struct):
        return sum(columns_bytes(getattr(part, name)) for name in part.__struct_fields__)
    if isinstance(part, dict):
        return sum(map(columns_bytes, part.values()))
    if isinstance(part, list | tuple) and part and not isinstance(part[0], str | int):
        return sum(map(columns_bytes, part))
    return 0


class ColumnWriter:
    """Collects columns while the structure is written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def add(self, column: object) -> object:
        """What the structure has of a column: its type and shape."""
        if isinstance(column, np.generic):
            return column.item()
        if not isinstance(column, np.ndarray):
            raise NotImplementedError(f"a case has no {type(column).__name__}")
        self.parts.append(pack_column(column))
        return [column.dtype.name, list(column.shape)]


class ColumnReader:
    """Gives out columns one after the other, each byte once, while the structure is read."""

    def __init__(self, stored: bytes) -> None:
        self._stored = memoryview(stored)
        self._place = 0

    def take(self, kind: Any, described: object) -> npt.NDArray[Any]:  # noqa: ANN401 - a type
        """The column of a field of this type; ValueError where the bytes are none.

        A column may be wider or narrower than its field says, as in a window; what it holds must
        fit.
        """
        _, of = get_args(kind)
        (scalar,) = get_args(of)
        wanted = np.dtype(scalar)
        match described:
            case [str(name), [*shape]]:
                dtype = TYPES.get(name)
            case _:
                dtype = None
        if dtype is None or dtype.kind != wanted.kind:
            raise ValueError(f"no column of {wanted.name}")
        lengths = [length for length in shape if isinstance(length, int) and length >= 0]
        if len(shape) > DIMENSIONS_MAX or len(lengths) != len(shape):
            raise ValueError(f"a column of shape {str(shape)[:60]}")
        begin = self._place
        self._place += math.prod(lengths) * dtype.itemsize
        if self._place > len(self._stored):
            raise ValueError(f"a column of {math.prod(lengths)} {dtype.name} past the end")
        flat = unpack_column(self._stored[begin : self._place], dtype)
        if is_whole(dtype) and len(flat):
            limits = np.iinfo(wanted)
            if not limits.min <= int(flat.min()) <= int(flat.max()) <= limits.max:
                raise ValueError(f"{flat.min()} to {flat.max()} in a column of {wanted.name}")
        column: npt.NDArray[Any] = flat.astype(wanted).reshape(lengths)
        return column


def pack_column(column: npt.NDArray[Any]) -> bytes:
    flat = np.ascontiguousarray(column).reshape(-1)
    little = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    if is_whole(little.dtype) and len(little):
        little = differences(little)
    return little.view(np.uint8).reshape(-1, little.dtype.itemsize).T.tobytes()


def unpack_column(stored: memoryview, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values of a column, in one row: `pack_column` undone."""
    planes = np.frombuffer(stored, dtype=np.uint8).reshape(dtype.itemsize, -1)
    if dtype.kind == "b":
        # A byte that is neither 0 nor 1 is no truth value, and numpy would not notice.
        flags: npt.NDArray[Any] = planes[0] != 0
        return flags
    flat = np.ascontiguousarray(planes.T).reshape(-1).view(dtype.newbyteorder("<"))
    if not is_whole(dtype):
        return flat
    unsigned = flat.view(np.dtype(f"<u{dtype.itemsize}"))
    return np.cumsum(unsigned, dtype=unsigned.dtype).view(flat.dtype)


def differences(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each value less the one before it; differences wrap, as their sums do when they are read."""
    unsigned = column.view(np.dtype(f"<u{column.dtype.itemsize}"))
    found = unsigned.copy()
    found[1:] -= unsigned[:-1]
    return found


def is_whole(dtype: np.dtype[Any]) -> bool:
    return bool(np.issubdtype(dtype, np.integer))
