"""The service, asked over HTTP by programs near Slurm: bounded, and wrong answers told in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from collector.contract.errors import FabricscopeError
from collector.contract.identity import printable
from collector.ship import make_client

ANSWER_BYTES_MAX = 64 << 20
"""The topology of 4,096 hosts has 30 MB."""
REASON_CHARS_MAX = 300

Answer = TypeVar("Answer")


class ServiceError(FabricscopeError):
    """The service did not answer, or not with what was asked for. ``status`` 0: it is away."""

    def __init__(self, detail: str, status: int = 0) -> None:
        super().__init__(detail)
        self.status = status


class Service:
    """One service. ``token`` is asked each time, so that its file may change."""

    def __init__(
        self, url: str, token: Callable[[], str], ca_file: str = "", *, seconds: float = 10.0
    ) -> None:
        self.url = url
        self._token = token
        self._seconds = seconds
        self._client = make_client(url, ca_file)

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def get(self, path: str, kind: type[Answer], **parameters: str | list[str]) -> Answer:
        """One answer. Raises ServiceError."""
        return self._ask("GET", path, kind, None, parameters)

    def send(self, method: str, path: str, body: object) -> None:
        """Tell something. Raises ServiceError."""
        self._ask(method, path, dict[str, Any], msgspec.json.encode(body), {})

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        content: bytes | None,
        parameters: Mapping[str, str | list[str]],
    ) -> Answer:
        headers = {"Accept-Encoding": "identity", "User-Agent": "fabricscope-slurm"}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        deadline = time.monotonic() + self._seconds
        body = bytearray()
        try:
            with self._client.stream(
                method,
                path,
                params=parameters,
                content=content,
                headers=headers,
                timeout=self._seconds,
            ) as answer:
                for piece in answer.iter_bytes():
                    body += piece
                    if len(body) > ANSWER_BYTES_MAX:
                        raise ServiceError(f"{path}: more than {ANSWER_BYTES_MAX >> 20} MiB")
                    if time.monotonic() > deadline:
                        raise ServiceError(f"{path}: no whole answer within {self._seconds:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            words = printable(str(error))[:REASON_CHARS_MAX] or type(error).__name__
            raise ServiceError(f"cannot reach {self.url}: {words}") from error
        if not answer.is_success:
            said = f"{path}: HTTP {answer.status_code} {detail_of(bytes(body))}".rstrip()
            raise ServiceError(said, answer.status_code)
        try:
            return msgspec.json.decode(bytes(body), type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
            words = printable(str(error))[:REASON_CHARS_MAX]
            raise ServiceError(f"{path}: not an answer of Fabricscope ({words})") from error


def detail_of(body: bytes) -> str:
    """What a problem says, for a log."""
    try:
        problem = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    detail = problem.get("detail", "") if isinstance(problem, dict) else ""
    return printable(str(detail))[:REASON_CHARS_MAX]


def quoted(name: str) -> str:
    """A name as part of a path."""
    return quote(name, safe="")
