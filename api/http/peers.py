"""What the processes of one service tell each other: whether all is well, their metrics, news.

Each listens on a Unix socket in the data folder that only the service's user may open. A question
is one line of JSON, the answer all that comes until the end. It is answered in a thread, which asks
the event loop where that is needed, so that a loop that stands still is a process that is not well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from api.base.process_limits import PEER_ANSWER_BYTES_MAX, PEER_SECONDS_MAX, WORKERS_MAX
from api.base.unix_sockets import connect_unix

log = logging.getLogger(__name__)

QUESTION_BYTES_MAX: Final = 1 << 16
QUESTIONS_MAX: Final = 2 * WORKERS_MAX
"""Questions that one process answers at once."""
CHUNK_BYTES: Final = 1 << 16
POLL_SECONDS: Final = 0.1
"""How long it takes at most until a process that ends stops answering."""

READY, METRICS, NUMBERS, NEWS = "ready", "metrics", "numbers", "news"
SILENCES, HEALTH, CAPTURES, ROLLOUTS = "silences", "health", "captures", "roll-outs"
"""What news may be about: something was changed that others keep in memory."""


class Question(msgspec.Struct, frozen=True):
    """``ask`` is one of the words above; ``names`` what it is about."""

    ask: str
    names: list[str] = []


Answer = Callable[[Question], bytes]


class Peers:
    """The other processes, by their names. For any thread."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self.paths = dict(paths)
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self.paths)

    def ask_all(self, question: Question) -> dict[str, bytes | None]:
        """What each says; None: it did not answer in time."""
        if not self.paths:
            return {}
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(len(self.paths), "peers")
        asked = self._threads.map(lambda path: ask(path, question), self.paths.values())
        return dict(zip(self.paths, asked, strict=True))

    async def tell(self, about: str) -> None:
        """Tell all that something changed; those that do not listen learn of it by themselves."""
        if self.paths:
            await asyncio.to_thread(self.ask_all, Question(NEWS, [about]))


def ask(path: Path, question: Question) -> bytes | None:
    """The answer of the process that listens there; None: it gave none in time."""
    try:
        with connect_unix(path, PEER_SECONDS_MAX) as connected:
            connected.sendall(msgspec.json.encode(question) + b"\n")
            return b"".join(read_all(connected))
    except OSError:
        return None


def read_all(connected: socket.socket) -> Iterator[bytes]:
    taken = 0
    while chunk := connected.recv(CHUNK_BYTES):
        taken += len(chunk)
        if taken > PEER_ANSWER_BYTES_MAX:
            raise OSError(f"an answer is longer than PEER_ANSWER_BYTES_MAX {PEER_ANSWER_BYTES_MAX}")
        yield chunk


class PeerServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Answers the other processes, on a socket that is bound already."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = QUESTIONS_MAX

    def __init__(self, bound: socket.socket, answers: Mapping[str, Answer]) -> None:
        super().__init__(("", 0), PeerHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = bound
        self.answers = answers
        self._turns = threading.BoundedSemaphore(QUESTIONS_MAX)
        self.server_activate()

    def verify_request(self, *_: object) -> bool:
        """Whether there is room for one more question."""
        return self._turns.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the class above has it
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._turns.release()

    def handle_error(self, *_: object) -> None:
        """The asker sees an empty answer or none; the reason is here."""
        log.error("another process cannot be answered", exc_info=sys.exception())


class PeerHandler(socketserver.StreamRequestHandler):
    """One question, one answer."""

    server: PeerServer
    timeout = PEER_SECONDS_MAX

    def handle(self) -> None:
        """Read the line and answer it; what is no question is answered with nothing."""
        with contextlib.suppress(OSError):
            line = self.rfile.readline(QUESTION_BYTES_MAX)
            try:
                question = msgspec.json.decode(line, type=Question)
            except msgspec.DecodeError:
                return
            if (answer := self.server.answers.get(question.ask)) is not None:
                self.wfile.write(answer(question))


@contextlib.contextmanager
def answering(bound: socket.socket, answers: Mapping[str, Answer]) -> Iterator[None]:
    """Answer the other processes in a thread, as long as this lasts."""
    with PeerServer(bound, answers) as server:
        thread = threading.Thread(
            target=server.serve_forever, args=(POLL_SECONDS,), name="peers", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
