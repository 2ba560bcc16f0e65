"""OTLP over gRPC: a second address, through which exports reach the same route as over HTTP.

gRPC's own work is done by grpcio: HTTP/2, compression, TLS, bounds of connections. A request's
bytes then go through the whole of the service as if they had come to `POST /otlp/v1/metrics`:
tokens, scopes, budgets, bounds, counters and refusals are those of that route, and only the form of
the answer differs. A call in this process costs some tenths of a millisecond, of the milliseconds
that a request takes.

| gRPC | HTTP | |
|---|---|---|
| OK | 200 | durable, or all that was valid: `partial_success` names what was not |
| INVALID_ARGUMENT | 400 | do not retry |
| UNAUTHENTICATED, PERMISSION_DENIED | 401, 403 | the token, in the metadata `authorization` |
| RESOURCE_EXHAUSTED without RetryInfo | 413 | over a size limit; do not retry |
| RESOURCE_EXHAUSTED with RetryInfo | 429 | over a budget of the sender |
| UNAVAILABLE with RetryInfo | 503 | retry the whole request later |
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from starlette.types import ASGIApp, Message, Scope

from api.base.limits import BODY_BYTES_MAX, GRPC_REQUESTS_MAX
from api.data.store.blocks import encode_length
from api.http.boundary import OTLP_PATH, PROTOBUF
from collector.contract.errors import SettingsError

SERVICE: Final = "opentelemetry.proto.collector.metrics.v1.MetricsService"
RETRY_INFO: Final = "type.googleapis.com/google.rpc.RetryInfo"
CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
OK: Final = 200
RETRY_SECONDS: Final = 5
"""Where a refusal that may be repeated does not say when."""
STOP_SECONDS: Final = 5.0
"""How long requests that are under way may take to end."""
AUTHORITY: Final = b"localhost"
"""The Host header of requests from here. It guards against browsers, which cannot speak gRPC."""

log = logging.getLogger(__name__)


class GrpcDoor:
    """Listens at one address until it is closed. For one event loop."""

    def __init__(
        self, app: ASGIApp, address: str, files: tuple[str, str] = ("", ""), *, is_shared: bool
    ) -> None:
        """``files`` are a certificate and its key; ``is_shared``: with other processes."""
        self._app = app
        self._address = address
        self._files = files
        self._is_shared = is_shared
        self._server: grpc.aio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        """Listen; SettingsError names the address if that cannot be."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", BODY_BYTES_MAX),
                # Workers share the address; a single process must find out that it is taken.
                ("grpc.so_reuseport", int(self._is_shared)),
            ],
            maximum_concurrent_rpcs=GRPC_REQUESTS_MAX,
        )
        export = grpc.unary_unary_rpc_method_handler(self._export)
        handlers = grpc.method_handlers_generic_handler(SERVICE, {"Export": export})
        server.add_generic_rpc_handlers((handlers,))
        try:
            self.port = self._bind(server)
        except RuntimeError as error:
            raise SettingsError(f"otlp_grpc_listen is {self._address!r}: {error}") from error
        await server.start()
        self._server = server
        log.info("OTLP over gRPC on %s", self._address)

    def _bind(self, server: grpc.aio.Server) -> int:
        if not self._files[0]:
            port: int = server.add_insecure_port(self._address)
            return port
        pair = PairOnDisk(*self._files)
        credentials = grpc.dynamic_ssl_server_credentials(pair.read(), pair.changed)
        secure: int = server.add_secure_port(self._address, credentials)
        return secure

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(STOP_SECONDS)

    async def _export(self, body: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        answer = Answer()
        receive = Once(body)
        metadata = dict(context.invocation_metadata() or ())
        authorization = str(metadata.get("authorization", ""))
        await self._app(scope_of(body, authorization, context.peer()), receive, answer.take)
        if answer.status == OK:
            return answer.body
        code = CODES.get(answer.status, grpc.StatusCode.UNKNOWN)
        words = answer.words()
        if answer.may_retry:
            details = status_details(code, words, answer.retry_seconds)
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        await context.abort(code, words)
        raise AssertionError("abort raises")


class PairOnDisk:
    """A certificate and its key, read again when one of them changes; for any thread."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate, self._key = Path(certificate), Path(key)
        self._seen: tuple[int, int] | None = None

    def read(self) -> Any:  # noqa: ANN401 - grpcio has no types
        self._seen = self._times()
        pair = self._key.read_bytes(), self._certificate.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair])

    def changed(self) -> Any:  # noqa: ANN401
        """Asked at each handshake: the new pair, or None for the one before."""
        try:
            return self.read() if self._times() != self._seen else None
        except OSError as error:
            log.warning("the certificate cannot be read again, the old one stays: %s", error)
            return None

    def _times(self) -> tuple[int, int]:
        return self._certificate.stat().st_mtime_ns, self._key.stat().st_mtime_ns


class Once:
    """The body of a request, as an app asks for it."""

    def __init__(self, body: bytes) -> None:
        self._left: bytes | None = body

    async def __call__(self) -> Message:
        body, self._left = self._left, None
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}


class Answer:
    """What an app answers."""

    def __init__(self) -> None:
        self.status = 500
        self.body = b""
        self.headers: dict[bytes, bytes] = {}

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            self.body += message.get("body", b"")

    @property
    def may_retry(self) -> bool:
        return self.status in {429, 503}

    @property
    def retry_seconds(self) -> int:
        given = self.headers.get(b"retry-after", b"")
        return int(given) if given.isdigit() else RETRY_SECONDS

    def words(self) -> str:
        """The message of a google.rpc.Status in protobuf; of anything else how it begins."""
        is_status = self.headers.get(b"content-type", b"").startswith(PROTOBUF.encode())
        text = read_message(self.body) if is_status else self.body
        return text[:1000].decode(errors="replace") or f"HTTP {self.status}"


def scope_of(body: bytes, authorization: str, peer: str) -> Scope:
    headers = [
        (b"host", AUTHORITY),
        (b"content-type", PROTOBUF.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if authorization:
        headers.append((b"authorization", authorization.encode("latin-1", "replace")))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "method": "POST",
        "scheme": "http",
        "path": OTLP_PATH,
        "raw_path": OTLP_PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": client_of(peer),
        "server": None,
    }


def client_of(peer: str) -> tuple[str, int] | None:
    """Address and port of `ipv4:127.0.0.1:4317` or `ipv6:%5B::1%5D:4317`.

    >>> client_of("ipv4:10.0.0.7:51230"), client_of("ipv6:%5B::1%5D:4000"), client_of("unix:")
    (('10.0.0.7', 51230), ('::1', 4000), None)
    """
    _, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdecimal() else None


def read_message(status: bytes) -> bytes:
    """The message of a google.rpc.Status as `api.http.routes.otlp` writes it.

    >>> read_message(bytes([0x08, 3, 0x12, 2]) + b"no")
    b'no'
    """
    place, length, shift = 3, 0, 0
    while place < len(status):
        length |= (status[place] & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if not status[place - 1] & 0x80:
            break
    return status[place : place + length]


def status_details(code: grpc.StatusCode, words: str, seconds: int) -> bytes:
    """A google.rpc.Status with RetryInfo: senders repeat what was refused only with it."""
    delay: bytes = Duration(seconds=seconds).SerializeToString()
    info = b"\x0a" + encode_length(len(delay)) + delay
    detail: bytes = AnyMessage(type_url=RETRY_INFO, value=info).SerializeToString()
    text = words.encode()
    return (
        bytes([0x08, code.value[0], 0x12])
        + encode_length(len(text))
        + text
        + b"\x1a"
        + encode_length(len(detail))
        + detail
    )
