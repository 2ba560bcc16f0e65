"""What goes between the processes of a service and the one that owns its store, in frames.

ClickHouse's HTTP interface is there as well (`api.data.store.owner`), for statements that are rare
and for the driver. The two that are sent a hundred times a second, a question and the rows of a
group, come in a head and rows of known lengths instead: what a driver and a server of HTTP do with
a statement took a third of what a small question takes altogether.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

import msgspec

FIRST: Final = b"\0"
"""With which no request of HTTP begins."""
FRAME: Final = struct.Struct("<cIQ")
"""Of a request: FIRST, bytes of the head, bytes of the rows."""
REPLY: Final = struct.Struct("<?Q")
"""Of an answer: whether the statement was executed, and bytes of what it gave, or of the reason."""


class Question(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A statement that is answered in Arrow's format, or not at all."""

    sql: str
    asked: dict[str, str]
    """The engine's settings, and bound values as `param_*`."""


class Rows(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one table."""

    table: str
    columns: list[str]
    form: str
    """ClickHouse's name of their format."""
    note: bytes
    """What others must know of them (`api.data.store.notes`)."""
    length: int
    """Bytes of them, which follow the head in the order of the list."""

    @property
    def target(self) -> str:
        """As a statement begins that inserts them."""
        return f"INSERT INTO `{self.table}` ({', '.join(f'`{name}`' for name in self.columns)})"


class Group(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Rows of several tables, in the order in which they are inserted."""

    rows: list[Rows]
    settings: dict[str, str]


HEAD: Final = msgspec.msgpack.Decoder(Question | Group)
ENCODER: Final = msgspec.msgpack.Encoder()


class Readable(Protocol):
    """One end of a connection, buffered."""

    def read(self, size: int, /) -> bytes: ...


def frame_of(head: Question | Group, rows_bytes: int = 0) -> bytes:
    """What is sent before the rows."""
    packed = ENCODER.encode(head)
    return FRAME.pack(FIRST, len(packed), rows_bytes) + packed


def read_whole(stream: Readable, length: int) -> bytes:
    """So many bytes; EOFError if the other end closes before."""
    found = stream.read(length)
    if len(found) < length:
        raise EOFError(f"{len(found)} bytes of {length}")
    return found
