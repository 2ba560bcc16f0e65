"""Sends prepared requests over a few open connections, a thread each, and times the answers.

Bare sockets: the sender shares the machine with what it measures, and an HTTP library would cost
more than the service does.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter

import msgspec

from tests.bench.load import Request
from tests.bench.report import BenchError, quantile

ANSWER_SECONDS = 120.0
TRIES_MAX = 10
PAUSE_SECONDS = 0.05
RECEIVE_BYTES = 65536


class Sent(msgspec.Struct):
    """What became of the requests."""

    samples: int = 0
    wall_seconds: float = 0.0
    sender_cpu_seconds: float = 0.0
    latencies: list[float] = msgspec.field(default_factory=list)
    """Seconds from the first byte sent to the last received, of requests that were accepted."""
    statuses: Counter[int] = msgspec.field(default_factory=Counter)
    complaint: str = ""

    def quantile_ms(self, share: float) -> float:
        """The latency that so large a share of the requests did not pass."""
        return quantile(self.latencies, share) * 1000

    @property
    def retries(self) -> int:
        """Requests that were refused for a while."""
        return sum(count for status, count in self.statuses.items() if not is_success(status))


def is_success(status: int) -> bool:
    """Whether the request was accepted."""
    return 200 <= status < 300


def is_retried(status: int) -> bool:
    """Whether the protocol asks to send it again."""
    return status == 429 or status >= 500


class Connection:
    """One open connection to the program under test."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and body of the answer."""
        self._socket.sendall(request)
        received = b""
        while (head_end := received.find(b"\r\n\r\n")) < 0:
            received += self._more()
        status, head = int(received[9:12]), received[:head_end].lower()
        body = received[head_end + 4 :]
        if b"transfer-encoding: chunked" in head:
            while not body.endswith(b"0\r\n\r\n"):
                body += self._more()
        else:
            _, found, rest = head.partition(b"content-length:")
            length = int(rest.partition(b"\r\n")[0]) if found else 0
            while len(body) < length:
                body += self._more()
        return status, body

    def _more(self) -> bytes:
        piece = self._socket.recv(RECEIVE_BYTES)
        if not piece:
            raise BenchError("the program closed the connection in the middle of an answer")
        return piece

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def send_queue(
    port: int, queue: list[Request], sent: Sent, lock: threading.Lock, pace_seconds: float
) -> None:
    """Send one connection's requests in order, each until it is accepted, none before its time."""
    connection = Connection(port)
    begun = time.perf_counter()
    try:
        for number, request in enumerate(queue):
            time.sleep(max(0.0, begun + number * pace_seconds - time.perf_counter()))
            for attempt in range(TRIES_MAX):
                started = time.perf_counter()
                status, body = connection.ask(request.wire)
                taken = time.perf_counter() - started
                with lock:
                    sent.statuses[status] += 1
                    if is_success(status):
                        sent.latencies.append(taken)
                        sent.samples += request.samples
                    else:
                        sent.complaint = f"{status} {body[:200].decode(errors='replace')}"
                if not is_retried(status):
                    break
                time.sleep(PAUSE_SECONDS * 2**attempt)
    except (OSError, BenchError) as error:
        with lock:
            sent.complaint = f"connection: {error}"
    finally:
        connection.close()


def send_all(port: int, queues: list[list[Request]], pace_seconds: float = 0.0) -> Sent:
    """Send every queue over a connection of its own, all at the same time.

    ``pace_seconds`` lie at least between the starts of two requests of a queue.
    """
    sent, lock = Sent(), threading.Lock()
    threads = [
        threading.Thread(target=send_queue, args=(port, queue, sent, lock, pace_seconds))
        for queue in queues
    ]
    cpu, wall = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent.wall_seconds = time.perf_counter() - wall
    sent.sender_cpu_seconds = time.process_time() - cpu
    expected = sum(request.samples for queue in queues for request in queue)
    if sent.samples != expected:
        raise BenchError(f"{sent.samples} of {expected} samples were accepted: {sent.complaint}")
    return sent
