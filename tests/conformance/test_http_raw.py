"""Bytes that are no proper request: a 4xx or a closed connection, soon, and no trace in the log."""

import re
import socket
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from api.base import limits
from api.http import connections
from tests.stands.service import InProcess, eventually, in_process
from tests.stands.strangers import address, conversation, is_closed, metric, traces_logged

SECONDS_MAX = 25.0
"""None of these waits for a bound of the service, which here are longer: what is wrong is seen at
once, on a busy machine too."""
LONG_SECONDS = 120.0
SHORT_SECONDS = 1.0
"""A bound that a test waits for; on a busy machine a whole request comes within it."""
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/placement HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

NO_REQUESTS = {
    "nothing but a method": b"GET\r\n\r\n",
    "zeros": bytes(100),
    "another version": b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": bytes.fromhex("160301020001000001fc0303") + bytes(100),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a method that is none": b"BREW /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a zero in the target": b"GET /heal\0thz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a target that is no path": b"GET healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no target": b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an absolute target without a path": b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a header without a colon": GET + b"Nothing\r\n\r\n",
    "a space before the colon": GET + b"Content-Length : 3\r\n\r\nabc",
    "a zero in a header": GET + b"X: a\0b\r\n\r\n",
    "a header of controls": GET + b"X\x01: a\r\n\r\n",
    "a length below zero": POST + b"Content-Length: -1\r\n\r\n",
    "a length with a sign": POST + b"Content-Length: +2\r\n\r\n{}",
    "a length in hexadecimal": POST + b"Content-Length: 0x2\r\n\r\n{}",
    "a list of lengths": POST + b"Content-Length: 2, 3\r\n\r\n{}",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length past 64 bits": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "no length": POST + b"Content-Length: \r\n\r\n{}",
    "a length beside chunks": POST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "chunks beside a length": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "chunks that are not last": POST
    + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "nearly chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked with a tab before it": POST
    + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "a chunk of no size": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a chunk below zero": POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a chunk past 64 bits": POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}",
    "a chunk that is longer than it says": POST
    + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
    "a path that is no text": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
"""Each must be refused."""

ODD_REQUESTS = {
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/1.0": b"GET /healthz HTTP/1.0\r\n\r\n",
    "an absolute target": b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "all of it": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two slashes": b"GET //evil.example/%2e%2e HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a broken escape": b"GET /v1/hosts/%zz%f HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a web socket": GET
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "HTTP/2 in clear": GET
    + b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAA\r\n\r\n",
    "a folded header": GET + b"X: a\r\n b\r\n\r\n",
    "an empty line first": b"\r\n\r\n" + GET + b"\r\n",
    "lines without a return": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    "a thousand headers": GET + b"".join(b"X-%d: y\r\n" % n for n in range(1000)) + b"\r\n",
    "the same length twice": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "chunks with words and a trailer": POST
    + b"Transfer-Encoding: chunked\r\n\r\n2;"
    + b"x" * 5000
    + b"\r\n{}\r\n0\r\nX: y\r\n\r\n",
    "an expectation that is none": GET + b"Expect: a miracle\r\n\r\n",
    "a body of a GET": GET + b"Content-Length: 3\r\n\r\nabc",
}
"""Each has an answer: it is odd, and no error of the protocol, or may be refused."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("raw")) as one:
        yield one


@pytest.fixture(autouse=True)
def _alive_and_no_trace(service: InProcess) -> Iterator[None]:
    with traces_logged() as traces, patch.object(connections, "HEADER_SECONDS", LONG_SECONDS):
        yield
        assert service.client.get("/healthz").text == "ok\n"
    assert traces == []


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3})", answer)]


def next_statuses(peer: socket.socket) -> list[int]:
    """Those of the next answers, whose bytes may come one by one; none: the connection ended."""
    received = b""
    while not statuses(received):
        more = peer.recv(65536)
        if not more:
            return []
        received += more
    return statuses(received)


@pytest.mark.parametrize("sent", NO_REQUESTS.values(), ids=NO_REQUESTS)
def test_what_is_no_request_is_refused_and_the_connection_ends(
    service: InProcess, sent: bytes
) -> None:
    begun = time.monotonic()
    answer, is_over = conversation(service, sent, quiet_seconds=SECONDS_MAX)
    assert time.monotonic() - begun < SECONDS_MAX
    assert is_over, f"the connection is open after {answer!r}"
    found = statuses(answer)
    assert len(found) <= 1, "what lay behind it was taken for a request"
    assert all(400 <= status < 500 for status in found), answer


@pytest.mark.parametrize("sent", ODD_REQUESTS.values(), ids=ODD_REQUESTS)
def test_what_is_odd_is_answered(service: InProcess, sent: bytes) -> None:
    begun = time.monotonic()
    answer, _ = conversation(service, sent)
    assert time.monotonic() - begun < SECONDS_MAX
    [status] = statuses(answer)
    assert 200 <= status < 500, answer
    assert status != 101, "no path speaks another protocol"


# --- several requests on one connection ----------------------------------------------------------


def test_requests_that_come_at_once_are_answered_in_order(service: InProcess) -> None:
    asked = [b"/healthz", b"/v1/nothing", b"/v1/hosts"] * 20
    lines = (b"GET %b HTTP/1.1\r\nHost: localhost\r\n" % path for path in asked)
    sent = b"\r\n".join(lines) + b"Connection: close\r\n\r\n"
    answer, is_over = conversation(service, sent)
    assert statuses(answer) == [200, 404, 200] * 20
    assert is_over


def test_a_client_that_waits_for_leave_gets_it(service: InProcess) -> None:
    with socket.create_connection(address(service), timeout=30) as peer:
        peer.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 100")
        peer.sendall(b"{}")
        assert next_statuses(peer) == [422]


def test_a_client_that_is_refused_gets_no_leave(service: InProcess) -> None:
    head = POST.replace(b"/placement", b"/nothing")
    answer, _ = conversation(service, head + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert statuses(answer) == [404]


REFUSED = b"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
"""A request that is answered before its body has come."""


def test_a_request_follows_one_that_was_answered_before_its_body_came(service: InProcess) -> None:
    """More than the bound of headers: the rest of a body is none of the next request's."""
    rest = limits.HEADER_BYTES_MAX * 3
    with (
        patch.object(connections, "HEADER_SECONDS", SHORT_SECONDS),
        socket.create_connection(address(service), timeout=30) as peer,
    ):
        peer.sendall(REFUSED % rest)
        assert next_statuses(peer) == [404]
        peer.sendall(b"x" * rest)
        gone = time.monotonic() + 2 * SHORT_SECONDS
        eventually(lambda: time.monotonic() > gone, "twice the time for headers")
        peer.sendall(GET + b"\r\n")
        assert next_statuses(peer) == [200]


def test_the_rest_of_a_body_does_not_come_for_ever(service: InProcess) -> None:
    with (
        patch.object(connections, "BODY_SECONDS", SHORT_SECONDS),
        socket.create_connection(address(service), timeout=30) as peer,
    ):
        peer.sendall(REFUSED % (1 << 20))
        assert next_statuses(peer) == [404]

        def is_ended() -> bool:
            try:
                peer.setblocking(True)
                peer.sendall(b"x")
            except OSError:
                return True
            return is_closed(peer)

        eventually(is_ended, "the drops end", 20)
    assert ended_by(service, "BODY_SECONDS") >= 1


def test_a_request_follows_a_body_that_was_too_large(service: InProcess) -> None:
    """The connection once ended at the bound, whose last bytes the client had sent by then."""
    size = limits.BODY_BYTES_MAX + (1 << 20)
    with socket.create_connection(address(service), timeout=30) as peer:
        peer.sendall(POST + b"Content-Length: %d\r\n\r\n" % size)
        assert next_statuses(peer) == [413]
        peer.sendall(bytes(size))
        peer.sendall(GET + b"\r\n")
        assert next_statuses(peer) == [200]


def test_half_headers_behind_a_whole_request_end(service: InProcess) -> None:
    with (
        patch.object(connections, "HEADER_SECONDS", SHORT_SECONDS),
        socket.create_connection(address(service), timeout=30) as peer,
    ):
        peer.sendall(GET + b"\r\n" + GET)
        assert next_statuses(peer) == [200]
        eventually(lambda: is_closed(peer), "the connection ends", 20)


def ended_by(service: InProcess, rule: str) -> float:
    return metric(service, f'fabric_service_connections_refused_total{{rule="{rule}"}}')
