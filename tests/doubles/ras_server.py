"""A process that answers at NCCL's RAS port, well or badly: a small TCP server in a thread.

It speaks what `collector.doors.ras` needs of the protocol: lines in, a line out for each, and a
status that ends with the connection.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
from types import TracebackType
from typing import Self

PIECE = b"x" * (1 << 16)


class Manner(enum.Enum):
    """How it answers."""

    NEW = enum.auto()
    """As NCCL 2.28.7 and later: JSON, if it is asked for."""
    OLD = enum.auto()
    """As NCCL 2.24: it does not know SET FORMAT, and answers as text."""
    STOPPED = enum.auto()
    """Connections stand in the kernel's queue, and nothing reads them."""
    CUT = enum.auto()
    """Half of the status, and the end."""
    SILENT = enum.auto()
    """It greets, and its status never comes."""
    GARBAGE = enum.auto()
    """Another program listens there."""
    ENDLESS = enum.auto()
    """A status without an end."""
    LONG_LINE = enum.auto()
    """A greeting without an end."""


class RasServer:
    """Listens at a port of its own; ``with`` ends it. `asked` has the lines that came."""

    def __init__(self, json: bytes, text: bytes = b"", manner: Manner = Manner.NEW) -> None:
        self.json, self.text, self.manner = json, text, manner
        self.asked: list[str] = []
        self.connections = 0
        self.sent_bytes = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        if self.manner is not Manner.STOPPED:
            self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # A thread that waits in accept or recv wakes up when its socket is shut down.
        for one in (self._socket, *self._open):
            with contextlib.suppress(OSError):  # closed by the other end already
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        if self._listener.is_alive():
            self._listener.join(10)
        for thread in self._threads:
            thread.join(10)

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as lines:
                as_json = False
                for raw in lines:
                    line = raw.decode().strip()
                    self.asked.append(line)
                    if line.endswith("STATUS"):
                        self._send_status(connection, as_json=as_json)
                        return
                    as_json = as_json or (
                        line == "SET FORMAT json" and self.manner is not Manner.OLD
                    )
                    self._answer(connection, line)
        except OSError:
            return  # the asker has gone

    def _answer(self, connection: socket.socket, line: str) -> None:
        if self.manner is Manner.GARBAGE:
            connection.sendall(b"\x00\xffHTTP/1.1 400 Bad Request\r\n")
        elif self.manner is Manner.LONG_LINE:
            connection.sendall(PIECE)
        elif line.startswith("CLIENT PROTOCOL"):
            connection.sendall(b"SERVER PROTOCOL 2\n")
        elif line.startswith("SET FORMAT") and self.manner is Manner.OLD:
            connection.sendall(f"ERROR: Unknown command {line}\n".encode())
        else:
            connection.sendall(b"OK\n")

    def _send_status(self, connection: socket.socket, *, as_json: bool) -> None:
        status = self.json if as_json else self.text
        if self.manner is Manner.SILENT:
            connection.recv(1)  # until the asker gives up
        elif self.manner is Manner.ENDLESS:
            while True:
                connection.sendall(PIECE)
                self.sent_bytes += len(PIECE)
        elif self.manner is Manner.CUT:
            connection.sendall(status[: len(status) // 2])
        else:
            connection.sendall(status)
