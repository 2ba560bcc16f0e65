"""Questions and inserts to the process that owns the store: one connection, and no driver."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from api.base.process_limits import OWNER_STATEMENT_BYTES_MAX
from api.base.unix_sockets import STORE_AWAY, connect_unix
from api.data.store.frames import REPLY, Group, Question, Rows, frame_of, read_whole

CONNECTED_SECONDS_MAX = 10.0
"""How long a connection may take: the other end accepts at once, unless it is overwhelmed."""
ANSWERED_SECONDS_MAX = 300.0
"""How long an answer may take; the driver's own default."""


class OwnerClient:
    """Used by one thread at a time. Connects when it is used, and again after a failure.

    Raises OSError where the other end is away, and the driver's DatabaseError, with the engine's
    words, where it has not executed a statement.
    """

    def __init__(self, path: Path, settings: Mapping[str, str]) -> None:
        """``settings``: the engine's, of each statement."""
        self._path = path
        self._settings = dict(settings)
        self._socket: socket.socket | None = None
        self._stream: IO[bytes] | None = None

    def query_arrow(self, sql: str, parameters: Mapping[str, Any]) -> pa.Table:
        """The answer to a question."""
        answer = self._ask(sql, parameters, {"default_format": "Arrow"})
        with pa.ipc.open_file(pa.BufferReader(answer)) as reader:
            return reader.read_all()

    def command(self, sql: str, parameters: Mapping[str, Any]) -> None:
        """A statement without an answer."""
        self._ask(sql, parameters, {})

    def insert(self, rows: Sequence[Rows], parts: Sequence[bytes]) -> None:
        """Insert rows of several tables; when this returns, they survive a kill."""
        length = sum(map(len, parts))
        self._send(frame_of(Group(list(rows), self._settings), length), parts)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._stream = None

    def _ask(self, sql: str, parameters: Mapping[str, Any], form: Mapping[str, str]) -> bytes:
        from clickhouse_connect.driver.binding import bind_query  # noqa: PLC0415 - see `store`
        from clickhouse_connect.driver.exceptions import DatabaseError  # noqa: PLC0415 - see `store`

        bound, values = bind_query(sql, dict(parameters), dt.UTC)
        assert isinstance(bound, str)
        frame = frame_of(Question(bound, {**self._settings, **form, **values}))
        if len(frame) > OWNER_STATEMENT_BYTES_MAX:
            raise DatabaseError(f"OWNER_STATEMENT_BYTES_MAX is {OWNER_STATEMENT_BYTES_MAX}")
        is_used = self._socket is not None
        try:
            return self._send(frame, ())
        except (ConnectionError, EOFError):
            if not is_used:
                raise
            # It was started again since the last question; this one may be asked twice.
            return self._send(frame, ())

    def _send(self, frame: bytes, parts: Sequence[bytes]) -> bytes:
        from clickhouse_connect.driver.exceptions import DatabaseError  # noqa: PLC0415 - see `store`

        is_whole = False
        try:
            connected, stream = self._connected()
            connected.sendall(b"".join((frame, *parts)))
            is_good, length = REPLY.unpack(read_whole(stream, REPLY.size))
            answer = read_whole(stream, length)
            is_whole = True
        except EOFError as error:
            raise ConnectionResetError(f"the store process ended: {error}") from error
        finally:
            if not is_whole:
                self.close()
        if not is_good:
            self.close()
            raise DatabaseError(answer.decode(errors="replace"))
        return answer

    def _connected(self) -> tuple[socket.socket, IO[bytes]]:
        if self._socket is None or self._stream is None:
            try:
                self._socket = connect_unix(self._path, CONNECTED_SECONDS_MAX)
            except OSError as error:
                raise ConnectionRefusedError(STORE_AWAY) from error
            self._socket.settimeout(ANSWERED_SECONDS_MAX)
            self._stream = self._socket.makefile("rb")
        return self._socket, self._stream
