"""Clients that are no friends: they call by other names, stall, and take what they can."""

import contextlib
import json
import logging
import re
import select
import socket
from collections.abc import Iterator

import httpx

from collector.contract.wire import CONTENT_TYPE
from tests.stands.service import InProcess

SILENCE = {
    "matchers": [{"name": "alertname", "value": ".*", "isRegex": True}],
    "created_by": "a page",
    "comment": "all of them",
    "hours": 8,
}
JSON = {"Content-Type": "application/json"}


DECLARED = (
    b"POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16777216\r\n"
    b"Content-Type: %b\r\nContent-Encoding: zstd\r\n\r\n" % CONTENT_TYPE.encode()
)


def send(
    service: InProcess, method: str, path: str, body: object = None, **headers: str
) -> httpx.Response:
    content = b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return service.client.request(method, path, content=content, headers=named)


def metric(service: InProcess, name: str) -> float:
    for line in service.client.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.split()[-1])
    return 0.0


def address(service: InProcess) -> tuple[str, int]:
    url = service.client.base_url
    assert url.port is not None
    return url.host, url.port


def raw(service: InProcess, *parts: bytes) -> bytes:
    """What the service answers to these bytes, up to its last byte or the connection's end."""
    with socket.create_connection(address(service), timeout=30) as peer:
        for part in parts:
            peer.sendall(part)
        return peer.recv(65536)


QUIET_SECONDS = 0.3
"""A connection on which nothing comes for so long after an answer stays open."""


def hears_more(peer: socket.socket, seconds: float) -> bool:
    """Whether bytes or the end come in this time. Not by select: it knows 1,024 descriptors."""
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def conversation(
    service: InProcess, sent: bytes, quiet_seconds: float = QUIET_SECONDS
) -> tuple[bytes, bool]:
    """What the service answers to these bytes, and whether it then ended the connection.

    An answer is whole after its declared length; one that the service ends is whole at its end.
    """
    answer = b""
    with (
        socket.create_connection(address(service), timeout=30) as peer,
        contextlib.suppress(ConnectionError),
    ):
        peer.sendall(sent)
        while piece := peer.recv(65536):
            answer += piece
            if is_whole(answer) and not hears_more(peer, quiet_seconds):
                return answer, False
    return answer, True


def is_whole(answer: bytes) -> bool:
    """Whether there is one final answer, as long as it says."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        return is_whole(body)
    length = re.search(rb"content-length: (\d+)", head.lower())
    return bool(end) and length is not None and len(body) >= int(length[1])


def is_closed(peer: socket.socket) -> bool:
    """Whether the service has ended this connection; answers before that are passed over."""
    peer.setblocking(False)
    try:
        while peer.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


class Traces(logging.Handler):
    """What is logged with a trace: a bug of ours, whatever was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextlib.contextmanager
def traces_logged() -> Iterator[list[str]]:
    """The traces that any part of this process logs meanwhile."""
    handler = Traces()
    logging.getLogger().addHandler(handler)
    try:
        yield handler.seen
    finally:
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def stalled(service: InProcess, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Connections that send this and then nothing."""
    with contextlib.ExitStack() as held:
        peers = [
            held.enter_context(socket.create_connection(address(service), timeout=30))
            for _ in range(count)
        ]
        for peer in peers:
            peer.sendall(sent)
        yield peers
