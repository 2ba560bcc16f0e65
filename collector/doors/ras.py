"""NCCL's RAS socket: asks one process of a job for the status of the whole job. Used by `Host`.

All processes of one user on a host listen at the same port (SO_REUSEPORT), and the kernel picks one
of them for each connection. One that is stopped is picked as well: the connection stands, and no
answer comes. So the greeting has a short time, and another connection is tried.
"""

from __future__ import annotations

import errno
import re
import socket
import time
from typing import Final

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason

ANSWER_BYTES_MAX: Final = 8 << 20
"""Some 12,000 ranks of communicators, with 650 bytes each as JSON. Of a larger job the text is
taken, which lists only ranks in trouble."""
LINE_BYTES_MAX: Final = 256
"""An answer to a command: `OK`, or an error."""
ATTEMPTS: Final = 4
"""Connections that are tried: of eight processes with one that is stopped, four in a row go there
once in four thousand times."""
GREETING_SECONDS: Final = 0.5
"""For a connection, and for each short command. The thread that answers does nothing else."""
GRACE_SECONDS: Final = 3.0
"""RAS gives its answer so much later than the time that it was told, at worst: it may try a second
way around a process that does not answer."""
PROTOCOL: Final = 2
PIECE_BYTES: Final = 1 << 16

_ADDRESS = re.compile(r"(.{1,253}):([0-9]{1,5})")
_PORT_MAX = 0xFFFF


class TooLargeError(Exception):
    """The answer has more than ANSWER_BYTES_MAX bytes."""


class _NoAnswerError(Exception):
    """A connection that stands and is not answered in time, or is closed too early."""


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port, as in NCCL_RAS_ADDR; None if it is not that.

    >>> parse_address("localhost:28028"), parse_address("[::1]:7"), parse_address("localhost")
    (('localhost', 28028), ('::1', 7), None)
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[2]) <= _PORT_MAX:
        return None
    return match[1].strip("[]"), int(match[2])


def ask_status(address: str, seconds: float) -> bytes:
    """What RAS answers to `VERBOSE STATUS`, unread: JSON where it can, else text.

    ``seconds`` is how long RAS may wait for processes that do not answer. Raises HostError: absent
    where nothing listens, a timeout where processes listen and none answers.
    """
    place = parse_address(address)
    if place is None:
        raise HostError(UnreadReason.ABSENT, address, "is not HOST:PORT")
    try:
        return _ask(place, address, seconds, as_json=True)
    except TooLargeError:
        pass
    try:
        return _ask(place, address, seconds, as_json=False)
    except TooLargeError:
        detail = f"over ANSWER_BYTES_MAX = {ANSWER_BYTES_MAX} bytes, as text too"
        raise HostError(UnreadReason.UNPARSEABLE, address, detail) from None


def _ask(place: tuple[str, int], address: str, seconds: float, *, as_json: bool) -> bytes:
    why = ""
    for _ in range(ATTEMPTS):
        try:
            with socket.create_connection(place, GREETING_SECONDS) as connection:
                return _Session(connection).status(seconds, as_json=as_json)
        except _NoAnswerError as error:
            why = str(error)
        except TimeoutError:
            why = "the connection was not accepted"
        except OSError as error:
            if error.errno == errno.ECONNREFUSED or isinstance(error, socket.gaierror):
                detail = "nothing listens: no process with NCCL 2.24 or later, or RAS is off"
                raise HostError(UnreadReason.ABSENT, address, detail) from error
            why = error.strerror or str(error)
    detail = f"{ATTEMPTS} connections, and no answer: {why}"
    raise HostError(UnreadReason.TIMEOUT, address, detail)


class _Session:
    """One connection: commands of a line each, and at last an answer that ends with it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def status(self, seconds: float, *, as_json: bool) -> bytes:
        greeting = self._command(f"CLIENT PROTOCOL {PROTOCOL}")
        if not greeting.upper().startswith(b"SERVER PROTOCOL "):
            raise _NoAnswerError(f"it greets with {greeting[:40]!r}, which RAS does not")
        # Refused by none that is known; without it RAS takes its own time, which is five seconds.
        self._command(f"TIMEOUT {max(1, round(seconds))}")
        if as_json:
            self._command("SET FORMAT json")  # older ones do not know it, and answer as text
        self._send(b"VERBOSE STATUS\n")
        return self._read_to_end(time.monotonic() + seconds + GRACE_SECONDS)

    def _command(self, words: str) -> bytes:
        self._send(words.encode() + b"\n")
        deadline = time.monotonic() + GREETING_SECONDS
        while b"\n" not in self._rest:
            if len(self._rest) > LINE_BYTES_MAX:
                raise _NoAnswerError(f"{words} is answered with over {LINE_BYTES_MAX} bytes")
            self._rest += self._receive(deadline, words)
        line, _, self._rest = self._rest.partition(b"\n")
        return line.strip()

    def _read_to_end(self, deadline: float) -> bytes:
        pieces = [self._rest]
        size = len(self._rest)
        while piece := self._receive(deadline, "VERBOSE STATUS", may_end=True):
            pieces.append(piece)
            size += len(piece)
            if size > ANSWER_BYTES_MAX:
                raise TooLargeError
        return b"".join(pieces)

    def _send(self, data: bytes) -> None:
        self._connection.settimeout(GREETING_SECONDS)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise _NoAnswerError(f"it takes no command: {error}") from error

    def _receive(self, deadline: float, words: str, *, may_end: bool = False) -> bytes:
        left = deadline - time.monotonic()
        if left <= 0:
            raise _NoAnswerError(f"{words} is not answered in time")
        self._connection.settimeout(left)
        try:
            piece = self._connection.recv(PIECE_BYTES)
        except TimeoutError as error:
            raise _NoAnswerError(f"{words} is not answered in time") from error
        except OSError as error:
            raise _NoAnswerError(f"{words}: {error.strerror or error}") from error
        if not piece and not may_end:
            raise _NoAnswerError(f"{words}: the connection was closed")
        return piece
