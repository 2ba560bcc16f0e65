"""Cases as bytes: a line that names the format, and msgpack in one zstd frame. Pure.

Columns are stored as differences, byte by byte of equal weight, because neighbours in a column
differ little. Nothing in the format is executable, and what is read is bounded before it is
unpacked: a case may come from a stranger.
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
COMPRESSION_LEVEL = 6
DIMENSIONS_MAX = 2
TYPES = {name: np.dtype(name) for name in ("bool", "int32", "int64", "float32", "float64")}
"""Of columns; nothing else is read, and objects least of all."""


def pack(case: ReplayCase) -> bytes:
    """The bytes of a case; raises CaseTooLarge, which names the bound."""
    raw = columns_bytes(case.window)
    if raw > CASE_UNPACKED_BYTES_MAX:
        raise CaseTooLarge(
            f"the window's columns have {raw >> 20} MiB; "
            f"CASE_UNPACKED_BYTES_MAX is {CASE_UNPACKED_BYTES_MAX >> 20} MiB"
        )
    body = msgspec.msgpack.encode(case, enc_hook=pack_column)
    packed = MAGIC + zstd.compress(body, level=COMPRESSION_LEVEL)
    if len(packed) > CASE_BYTES_MAX:
        raise CaseTooLarge(
            f"the case has {len(packed) / (1 << 20):.1f} MiB; "
            f"CASE_BYTES_MAX is {CASE_BYTES_MAX >> 20} MiB"
        )
    return packed


def unpack(packed: bytes) -> ReplayCase:
    """The case in these bytes. Raises CaseError, and nothing else, whatever the bytes are."""
    try:
        case = _CASE.decode(unpack_frame(packed))
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


def pack_column(column: object) -> object:
    """A column as its type, its shape and its bytes."""
    if isinstance(column, np.generic):
        return column.item()
    if not isinstance(column, np.ndarray):
        raise NotImplementedError(f"a case has no {type(column).__name__}")
    flat = np.ascontiguousarray(column).reshape(-1)
    little = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    if is_whole(little.dtype) and len(little):
        little = differences(little)
    size = little.dtype.itemsize
    planes = little.view(np.uint8).reshape(-1, size).T
    return [column.dtype.name, list(column.shape), planes.tobytes()]


def unpack_column(kind: Any, stored: object) -> npt.NDArray[Any]:  # noqa: ANN401 - a type
    """The column that a field of this type has; ValueError where the bytes are none.

    A column may be wider or narrower than its field says, as in a window; what it holds must fit.
    """
    _, of = get_args(kind)
    (scalar,) = get_args(of)
    wanted = np.dtype(scalar)
    match stored:
        case [str(name), [*shape], bytes(data)] if (
            name in TYPES and TYPES[name].kind == wanted.kind
        ):
            dtype = TYPES[name]
        case _:
            raise ValueError(f"no column of {wanted.name}")
    lengths = [length for length in shape if isinstance(length, int) and length >= 0]
    if len(shape) > DIMENSIONS_MAX or len(lengths) != len(shape):
        raise ValueError(f"a column of shape {str(shape)[:60]}")
    if math.prod(lengths) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes in a column of {math.prod(lengths)} {dtype.name}")
    planes = np.frombuffer(data, dtype=np.uint8).reshape(dtype.itemsize, -1)
    if dtype.kind == "b":
        # A byte that is neither 0 nor 1 is no truth value, and numpy would not notice.
        flags: npt.NDArray[Any] = (planes[0] != 0).reshape(lengths)
        return flags
    flat = np.ascontiguousarray(planes.T).reshape(-1).view(dtype.newbyteorder("<"))
    if is_whole(dtype):
        unsigned = flat.view(np.dtype(f"<u{dtype.itemsize}"))
        flat = np.cumsum(unsigned, dtype=unsigned.dtype).view(flat.dtype)
        limits = np.iinfo(wanted)
        if len(flat) and not limits.min <= int(flat.min()) <= int(flat.max()) <= limits.max:
            raise ValueError(f"{flat.min()} to {flat.max()} in a column of {wanted.name}")
    column: npt.NDArray[Any] = flat.astype(wanted).reshape(lengths)
    return column


def differences(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each value less the one before it; differences wrap, as their sums do when they are read."""
    unsigned = column.view(np.dtype(f"<u{column.dtype.itemsize}"))
    found = unsigned.copy()
    found[1:] -= unsigned[:-1]
    return found


def is_whole(dtype: np.dtype[Any]) -> bool:
    return bool(np.issubdtype(dtype, np.integer))


_CASE = msgspec.msgpack.Decoder(ReplayCase, dec_hook=unpack_column)
