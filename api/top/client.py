"""One service, asked over HTTP: bounded in time and size, and wrong answers are told in words."""

from __future__ import annotations

import email.utils
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from api.top.words import clean
from collector.contract.errors import FabricscopeError, SettingsError
from collector.contract.identity import printable

CONNECT_SECONDS_MAX = 5.0
SILENCE_SECONDS_MAX = 12.0
"""Without a byte of an answer: longer than a question may take the service, which then says so."""
ANSWER_SECONDS_MAX = 20.0
"""For one whole answer: whoever trickles bytes must not keep the screen old for longer."""
ANSWER_BYTES_MAX = 16 << 20
"""Of one answer: a thousand hosts have 0.3 MB."""
REASON_CHARS_MAX = 200
"""Of what an error says: two lines of a terminal."""
TOKEN_CHARS_MAX = 4_096
"""Of a file with a token: what is longer is another file."""
SKEW_SECONDS_MIN = 2.0
"""Clocks that are no further apart are taken as one: HTTP tells the time in whole seconds."""

UNAUTHORISED, FORBIDDEN, SERVER_ERRORS = 401, 403, 500
REDIRECTS = range(300, 400)

Answer = TypeVar("Answer")


class Away(FabricscopeError):  # noqa: N818 - reads as the statement it is
    """The service cannot be reached: it may be back soon."""


class Busy(Away):
    """It can be reached and does not answer this question, or not in time."""


class Refused(FabricscopeError):  # noqa: N818 - the same
    """It does not let us in; a person has to do something."""


class Odd(FabricscopeError):  # noqa: N818 - the same
    """It answered this question with an error, or with what is no answer."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which service, and how to get in."""

    url: str
    token_file: str = ""
    """Read again whenever the service refuses: tokens are exchanged while people watch."""
    token: str = ""
    """Where there is no file."""
    ca_file: str = ""
    """Certificates to trust (PEM) instead of the system's."""

    def __repr__(self) -> str:
        """Without the token: it must not get into a log by accident."""
        return f"Target({self.url!r})"

    def read_token(self) -> str:
        """The token as it is now; empty if none is set. SettingsError if the file is no good."""
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
    """An address without its last slash; SettingsError for what is none.

    >>> check_url("http://127.0.0.1:9700/")
    'http://127.0.0.1:9700'
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not url.isprintable() or " " in url or parts.query or parts.fragment:
        raise SettingsError(f"--service {url!r}: write http://HOST:PORT or https://HOST")
    if parts.username or parts.password:
        raise SettingsError("--service: no user and password in the address; use --token-file")
    return url.rstrip("/")


class Client:
    """Asks one service. Not for several threads: each has its own."""

    def __init__(
        self,
        target: Target,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = check_url(target.url)
        self.skew_s = 0.0
        """How much later it is at the service than here."""
        self._target = target
        self._clock = clock
        self._http = open_http(self.url, target, transport)
        self.renew_token()

    def close(self) -> None:
        """Give the connection back."""
        self._http.close()

    def renew_token(self) -> None:
        """Take the token as the file has it now."""
        token = self._target.read_token()
        self._has_token = bool(token)
        if token:
            self._http.headers["Authorization"] = f"Bearer {token}"

    @property
    def now_s(self) -> float:
        """The time at the service."""
        return self._clock() + self.skew_s

    def get(self, path: str, kind: type[Answer], **parameters: str | float) -> Answer:
        """One answer, its texts fit for a terminal; Away, Busy, Refused or Odd if none."""
        with self.open(path, parameters) as answer:
            return self._decode(path, answer, kind)

    def send(
        self,
        method: str,
        path: str,
        content: bytes,
        kind: type[Answer],
        **parameters: str | float,
    ) -> Answer:
        """The answer to a request that changes something; the same errors."""
        with self.open(path, parameters, method=method, content=content) as answer:
            return self._decode(path, answer, kind)

    def _decode(self, path: str, answer: httpx.Response, kind: type[Answer]) -> Answer:
        body = self._read(answer)
        try:
            return msgspec.convert(clean(msgspec.json.decode(body)), kind)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
            raise Odd(f"{path}: not an answer of Fabricscope ({shorten(str(error))})") from error

    @contextmanager
    def open(
        self,
        path: str,
        parameters: Mapping[str, str | float],
        *,
        headers: Mapping[str, str] | None = None,
        silence_s: float = SILENCE_SECONDS_MAX,
        method: str = "GET",
        content: bytes | None = None,
    ) -> Iterator[httpx.Response]:
        """An answer that may be read; Away, Busy, Refused or Odd if it is none."""
        patience = httpx.Timeout(CONNECT_SECONDS_MAX, read=silence_s)
        try:
            with self._http.stream(
                method,
                path,
                params=parameters,
                headers=headers,
                timeout=patience,
                content=content,
            ) as answer:
                self._check(path, answer)
                self._compare_clocks(answer.headers.get("date", ""))
                yield answer
        except httpx.ReadTimeout as error:
            raise Busy(f"{path}: no answer from {self.url} within {silence_s:.0f} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise Away(f"cannot reach {self.url}: {explain(error)}") from error

    def _read(self, answer: httpx.Response) -> bytes:
        """The body, bounded in size and time."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise Odd(f"{answer.url.path}: more than {ANSWER_BYTES_MAX >> 20} MiB")
            if time.monotonic() > deadline:
                raise Busy(f"{self.url} takes more than {ANSWER_SECONDS_MAX:.0f} s to answer")
        return bytes(body)

    def _check(self, path: str, answer: httpx.Response) -> None:
        """Raise what a status other than success means."""
        status = answer.status_code
        if answer.is_success:
            return
        if status in {UNAUTHORISED, FORBIDDEN}:
            said = problem(self._read(answer)) or answer.reason_phrase
            raise Refused(
                f"{self.url} does not accept this token ({said}): it needs one that may read"
                " (fabricscope token create NAME --scope read, where the service runs)"
                if self._has_token
                else f"{self.url} asks for a token: start with --token-file FILE, which holds one"
                " (fabricscope token create NAME --scope read, where the service runs)"
            )
        if status in REDIRECTS:
            where = printable(answer.headers.get("location", "elsewhere"))[:REASON_CHARS_MAX]
            raise Odd(f"{path}: it sends us to {where}; is --service {self.url} the service?")
        said = problem(self._read(answer)) or answer.reason_phrase
        text = f"{path}: HTTP {status} {said}".rstrip()
        raise Busy(text) if status >= SERVER_ERRORS else Odd(text)

    def _compare_clocks(self, date: str) -> None:
        """Learn what time it is at the service: ages are told by its clock, not by ours."""
        try:
            there = email.utils.parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError):
            return
        skew = there - self._clock()
        self.skew_s = skew if abs(skew) > SKEW_SECONDS_MIN else 0.0


def open_http(url: str, target: Target, transport: httpx.BaseTransport | None) -> httpx.Client:
    """The connection. Without the environment's proxies, as our agents: it is the own network."""
    try:
        verify: ssl.SSLContext | bool = False
        if url.startswith("https:"):
            verify = ssl.create_default_context(cafile=target.ca_file or None)
        return httpx.Client(
            base_url=url,
            verify=verify,
            trust_env=False,
            follow_redirects=False,
            transport=transport,
            # A compressed answer could unpack to any size.
            headers={"Accept-Encoding": "identity", "User-Agent": "fabricscope-top"},
        )
    except OSError as error:
        raise SettingsError(f"--ca-file {target.ca_file}: {error}") from error
    except httpx.InvalidURL as error:
        raise SettingsError(f"--service {url!r}: {error}") from error


class _Problem(msgspec.Struct):
    """An error of the service: RFC 9457's fields, or Prometheus'."""

    title: str = ""
    detail: str = ""
    error: str = ""


def problem(body: bytes) -> str:
    r"""What an error of the service says; empty if it says nothing that we understand.

    >>> problem(b'{"title": "busy", "detail": "later\\u001b"}'), problem(b"<html>")
    ('busy: later�', '')
    """
    try:
        said = msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return shorten(": ".join(each for each in (said.title, said.detail or said.error) if each))


def explain(error: Exception) -> str:
    """Why a connection failed, in the system's words."""
    text = str(error) or type(error).__name__
    return shorten(text.partition("] ")[2] or text)


def shorten(text: str) -> str:
    """A reason in a line or two, fit for a terminal."""
    return printable(text[:REASON_CHARS_MAX])
