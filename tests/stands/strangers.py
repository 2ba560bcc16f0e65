"""Clients that are no friends: they call by other names, stall, and take what they can."""

import contextlib
import json
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
