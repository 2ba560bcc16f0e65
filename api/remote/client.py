"""HTTP client of one service: bounded in time and size; all failures are one class of errors.

`Client` blocks, `AsyncClient` is for an event loop. Both read the token for every request, because
tokens are exchanged while programs run, and use no proxy of the environment: the service is in the
own network. Runs with an agent's packages.
"""

from __future__ import annotations

import argparse
import asyncio
import email.utils
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from collector.contract.client_flags import token_beside
from collector.contract.errors import FabricscopeError, SettingsError
from collector.contract.identity import printable

REASON_CHARS_MAX = 200
"""Of an error's text: two lines of a terminal."""
TOKEN_CHARS_MAX = 4_096
"""Of a file with a token: what is longer is another file."""
TEXT_CHARS_MAX = 2_000
"""Of one text for a terminal: a sentence has 300."""
NESTING_MAX = 16
"""Of an answer for a terminal; the deepest of ours, an incident with its evidence, has six."""
SKEW_SECONDS_MIN = 2.0
"""Clocks that are no further apart are taken as one: HTTP has the time in whole seconds."""
RETRY_SECONDS_FIRST = 1.0
"""After the first failure; it doubles with each."""
RETRY_SECONDS_MAX = 30.0
"""A service that was away for an hour is seen again within this."""
RETRY_SPREAD = 0.3
"""Part of the wait that is left to chance: a wall of terminals must not storm a restart."""

NOT_MODIFIED, UNAUTHORISED, FORBIDDEN, TOO_MANY, SERVER_ERRORS = 304, 401, 403, 429, 500
REDIRECTS = range(300, 400)

Answer = TypeVar("Answer")
Parameters = Mapping[str, str | float | Sequence[str]]


class ServiceError(FabricscopeError):
    """The service did not answer, or not with what was asked for. ``status`` 0: no answer."""

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.status = status


class Away(ServiceError):  # noqa: N818 - reads as the statement it is
    """The service cannot be reached: it may be back soon."""


class Busy(Away):
    """It can be reached and does not answer this request, or not in time."""


class Refused(ServiceError):  # noqa: N818 - the same
    """It denies access; an operator has to do something."""


class Odd(ServiceError):  # noqa: N818 - the same
    """It answered this request with an error, or with what is no answer."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of an answer. Seconds, bytes."""

    connect_s: float = 5.0
    silence_s: float = 12.0
    """Without a byte: longer than the service works on a request, which then answers with an
    error."""
    answer_s: float = 20.0
    """For the whole: a service that trickles bytes must not hold the client for longer."""
    answer_bytes: int = 16 << 20
    """A thousand hosts have 0.3 MB."""


FLEET_BOUNDS = Bounds(silence_s=20.0, answer_bytes=64 << 20)
"""For answers about a whole fleet: the health of 200,000 hosts has about 40 MB."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which service, and its credentials."""

    url: str
    token_file: str = ""
    token: str = ""
    """Where there is no file."""
    ca_file: str = ""
    """Certificates to trust (PEM) instead of the system's."""
    scope: str = "read"
    """The scope that the token needs, for the text of a refusal."""

    @classmethod
    def of(cls, arguments: argparse.Namespace, scope: str = "read") -> Target:
        """From the flags of `add_client_flags`; SettingsError for an invalid address."""
        return cls(
            url=check_url(arguments.service),
            token_file=arguments.token_file,
            token=token_beside(arguments.token_file),
            ca_file=arguments.ca_file,
            scope=scope,
        )

    def __repr__(self) -> str:
        """Without the token: it must not get into a log by accident."""
        return f"Target({self.url!r})"

    def read_token(self) -> str:
        """The token as it is now; empty if none is set. SettingsError if the file is invalid."""
        token = self.token
        if self.token_file:
            try:
                with Path(self.token_file).open(encoding="utf-8") as opened:
                    words = opened.read(TOKEN_CHARS_MAX).split()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise SettingsError(f"--token-file {self.token_file}: {reason}") from error
            if not words:
                raise SettingsError(f"--token-file {self.token_file} is empty")
            token = words[0]
        if not (token.isascii() and token.isprintable()):
            # It becomes a header: a line break in it would become another one.
            raise SettingsError("the token has signs that no token has")
        return token


def check_url(url: str) -> str:
    """An address without its last slash; SettingsError for an invalid one.

    >>> check_url("http://127.0.0.1:9700/")
    'http://127.0.0.1:9700'
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        is_good = False
    if not is_good or not url.isprintable() or " " in url or parts.query or parts.fragment:
        raise SettingsError(f"--service {url!r}: write http://HOST:PORT or https://HOST")
    if parts.username or parts.password:
        raise SettingsError("--service: no user and password in the address; use --token-file")
    return url.rstrip("/")


class _Asker:
    """What both clients share: everything but waiting."""

    def __init__(self, target: Target, name: str, bounds: Bounds) -> None:
        self.url = check_url(target.url)
        self.bounds = bounds
        self._target = target
        self._name = name
        self._has_token = False

    def _options(self) -> dict[str, Any]:
        verify: ssl.SSLContext | bool = False
        if self.url.startswith("https:"):
            try:
                verify = ssl.create_default_context(cafile=self._target.ca_file or None)
            except OSError as error:
                raise SettingsError(f"--ca-file {self._target.ca_file}: {error}") from error
        return {
            "base_url": self.url,
            "verify": verify,
            "trust_env": False,
            "follow_redirects": False,
            # A compressed answer could unpack to any size.
            "headers": {"Accept-Encoding": "identity", "User-Agent": f"fabricscope-{self._name}"},
        }

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        """The headers of a request; Refused if there is no token where one should be."""
        try:
            token = self._target.read_token()
        except SettingsError as error:
            raise Refused(str(error)) from error
        self._has_token = bool(token)
        return {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}

    def _timeout(self, silence_s: float) -> httpx.Timeout:
        return httpx.Timeout(self.bounds.connect_s, read=silence_s)

    def _grow(self, path: str, body: bytearray, piece: bytes) -> None:
        body += piece
        if len(body) > self.bounds.answer_bytes:
            raise Odd(f"{path}: more than {self.bounds.answer_bytes >> 20} MiB")

    def _late(self, path: str, seconds: float) -> Busy:
        return Busy(f"{path}: no answer from {self.url} within {seconds:.0f} s")

    def _unreached(self, error: Exception) -> Away:
        return Away(f"cannot reach {self.url}: {explain(error)} (another address: --service)")

    def _meaning(self, path: str, answer: httpx.Response, body: bytes) -> ServiceError:
        status = answer.status_code
        words = f"{path}: HTTP {status} {problem(body) or answer.reason_phrase}".rstrip()
        if status in {UNAUTHORISED, FORBIDDEN}:
            scope = self._target.scope
            make = f"(fabricscope token create NAME --scope {scope}, where the service runs)"
            if self._has_token:
                reason = f"does not accept this token ({words}): it needs one that may {scope}"
            else:
                reason = "asks for a token: start with --token-file FILE, which holds one"
            return Refused(f"{self.url} {reason} {make}", status)
        if status in REDIRECTS:
            where = printable(answer.headers.get("location", "elsewhere"))[:REASON_CHARS_MAX]
            words = f"{path}: it sends us to {where}; is --service {self.url} the service?"
        is_busy = status >= SERVER_ERRORS or status == TOO_MANY
        return (Busy if is_busy else Odd)(words, status)


# OSError: an alert of TLS that comes after the handshake is not httpx' in its own streams.
UNREACHED = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)


class Client(_Asker):
    """A blocking client of one service. Not for several threads: each has its own.

    ``for_terminal``: texts of answers are made fit for a terminal (`clean`).
    """

    def __init__(
        self,
        target: Target,
        name: str,
        *,
        bounds: Bounds | None = None,
        for_terminal: bool = False,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(target, name, bounds or Bounds())
        self.skew_s = 0.0
        """How much later it is at the service than here."""
        self._for_terminal = for_terminal
        self._clock = clock
        self._http = httpx.Client(transport=transport, **self._options())

    def close(self) -> None:
        self._http.close()

    @property
    def now_s(self) -> float:
        """The time at the service, unix seconds."""
        return self._clock() + self.skew_s

    def get(
        self, path: str, kind: type[Answer], **parameters: str | float | Sequence[str]
    ) -> Answer:
        """Raises ServiceError."""
        return self._decode(path, self.read(path, **parameters), kind)

    def read(self, path: str, **parameters: str | float | Sequence[str]) -> bytes:
        """The bytes of one answer; raises ServiceError."""
        with self.open(path, parameters) as answer:
            return self._read(path, answer)

    def send(
        self,
        method: str,
        path: str,
        content: bytes,
        kind: type[Answer],
        **parameters: str | float | Sequence[str],
    ) -> Answer:
        """The answer to a request that changes something, with a body of JSON or none.

        Raises ServiceError.
        """
        headers = {"Content-Type": "application/json"} if content else {}
        with self.open(path, parameters, headers=headers, method=method, content=content) as answer:
            body = self._read(path, answer)
        return self._decode(path, body, kind)

    def _decode(self, path: str, body: bytes, kind: type[Answer]) -> Answer:
        return decode(path, body, kind, for_terminal=self._for_terminal)

    @contextmanager
    def open(
        self,
        path: str,
        parameters: Parameters,
        *,
        headers: Mapping[str, str] | None = None,
        silence_s: float = 0.0,
        method: str = "GET",
        content: bytes | None = None,
    ) -> Iterator[httpx.Response]:
        """A streamed answer; raises ServiceError."""
        silence_s = silence_s or self.bounds.silence_s
        try:
            with self._http.stream(
                method,
                path,
                params=parameters,
                headers=self._headers(headers),
                timeout=self._timeout(silence_s),
                content=content,
            ) as answer:
                if not answer.is_success:
                    raise self._meaning(path, answer, self._read(path, answer))
                self._compare_clocks(answer.headers.get("date", ""))
                yield answer
        except httpx.ReadTimeout as error:
            raise self._late(path, silence_s) from error
        except UNREACHED as error:
            raise self._unreached(error) from error

    def _read(self, path: str, answer: httpx.Response) -> bytes:
        deadline = time.monotonic() + self.bounds.answer_s
        body = bytearray()
        for piece in answer.iter_bytes():
            self._grow(path, body, piece)
            if time.monotonic() > deadline:
                raise self._late(path, self.bounds.answer_s)
        return bytes(body)

    def _compare_clocks(self, date: str) -> None:
        """Learn the service's clock from its answers: ages are computed by it, not by ours."""
        try:
            there = email.utils.parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError):
            return
        skew = there - self._clock()
        self.skew_s = skew if abs(skew) > SKEW_SECONDS_MIN else 0.0


class AsyncClient(_Asker):
    """A client of one service for one event loop."""

    def __init__(
        self,
        target: Target,
        name: str,
        *,
        bounds: Bounds | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(target, name, bounds or Bounds())
        self._http = httpx.AsyncClient(transport=transport, **self._options())

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        patience_s: float = 0.0,
        **asked: Any,  # noqa: ANN401 - whatever httpx takes
    ) -> tuple[int, bytes, str]:
        """Status (success or 304), body and tag; ``patience_s``: how much longer it may take."""
        sent = self._headers(headers)
        whole_s = self.bounds.answer_s + patience_s
        timeout = self._timeout(self.bounds.silence_s + patience_s)
        body = bytearray()
        try:
            async with (
                asyncio.timeout(whole_s),
                self._http.stream(method, path, headers=sent, timeout=timeout, **asked) as answer,
            ):
                async for piece in answer.aiter_bytes():
                    self._grow(path, body, piece)
        except (TimeoutError, httpx.ReadTimeout) as error:
            raise self._late(path, whole_s) from error
        except UNREACHED as error:
            raise self._unreached(error) from error
        if not answer.is_success and answer.status_code != NOT_MODIFIED:
            raise self._meaning(path, answer, bytes(body))
        return answer.status_code, bytes(body), answer.headers.get("etag", "")


# --- answers ------------------------------------------------------------------------------------


def decode(path: str, body: bytes, kind: type[Answer], *, for_terminal: bool = False) -> Answer:
    """An answer as the given type; Odd if it does not match."""
    try:
        if for_terminal:
            return msgspec.convert(clean(msgspec.json.decode(body)), kind)
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise Odd(f"{path}: not an answer of Fabricscope ({shorten(str(error))})") from error


def clean(value: object, depth: int = NESTING_MAX) -> object:
    r"""An answer of the service with every text in it made fit for a terminal, and cut.

    Users of the cluster choose the names of jobs and hosts. A terminal obeys what stands between
    its texts, so nothing that cannot be printed gets past here: no escape, no line break, no sign
    that turns the direction of writing round.

    >>> clean({"job": ["a\x1b[2J", 7]})
    {'job': ['a�[2J', 7]}
    """
    if isinstance(value, str):
        return printable(value[:TEXT_CHARS_MAX])
    if depth == 0:
        return None
    if isinstance(value, dict):
        return {str(clean(key)): clean(each, depth - 1) for key, each in value.items()}
    if isinstance(value, list):
        return [clean(each, depth - 1) for each in value]
    return value


class _Problem(msgspec.Struct):
    """An error of the service: RFC 9457's fields, or Prometheus'."""

    title: str = ""
    detail: str = ""
    error: str = ""


def problem(body: bytes) -> str:
    r"""The text of the service's error; empty if it cannot be parsed.

    >>> problem(b'{"title": "busy", "detail": "later\\u001b"}'), problem(b"<html>")
    ('busy: later�', '')
    """
    try:
        found = msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return shorten(": ".join(each for each in (found.title, found.detail or found.error) if each))


def explain(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return shorten(text.partition("] ")[2] or text)


def shorten(text: str) -> str:
    """A reason in a line or two, fit for a terminal."""
    return printable(text[:REASON_CHARS_MAX])


def quoted(name: str) -> str:
    return quote(name, safe="")


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    wait_s = min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2.0 ** min(failures - 1, 16))
    return wait_s * (1 - RETRY_SPREAD * random.random())  # noqa: S311 - spreads, hides nothing
