"""One Grafana, asked through grafana-client: bounded in time, size and attempts.

grafana-client knows the addresses and the sign-in. What it leaves open is closed here: it would
follow a redirect to a login page and take the page for an answer, read an answer of any length for
any time, and show the exceptions of the library below it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from collector.contract.errors import SettingsError
from dashboards.grafana.failures import (
    FORBIDDEN,
    NOT_FOUND,
    SERVER_ERRORS,
    TOO_MANY,
    UNAUTHORISED,
    GrafanaError,
    NotGrafana,
    Refused,
    Unreachable,
    explain,
    plain,
)

ANSWER_SECONDS_MAX = 20.0
"""For one answer, all of it. A dashboard takes Grafana milliseconds; a busy database seconds."""
SILENCE_SECONDS_MAX = 10.0
"""Without a byte: for the connection, and between two pieces of an answer."""
ANSWER_BYTES_MAX = 32 << 20
"""Of one answer. A large dashboard has 1 MB, a thousand annotations as much."""
TRIES_MAX = 4
"""Attempts at what may be repeated: together they bear with a restart behind a proxy."""
PAUSE_SECONDS_FIRST = 0.5
"""After the first failure; it doubles: 0.5, 1 and 2 s."""
VERSION_MIN = 9
"""Folders, data sources and versions of dashboards by uid: documented from Grafana 9 on."""
TOKEN_CHARS_MAX = 4_096
"""Of a token: service accounts' have 46 characters."""
PAGE_CHARS_READ = 1_000
"""Of a page that is no answer: enough for its title."""

SYSTEM_REASON = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")

_PIECE_BYTES = 1 << 16


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which Grafana, and how to get in."""

    url: str
    """With a path if it is served under one: https://example.org/grafana."""
    token: str
    """Of a service account."""
    ca_file: str = ""
    """Certificates to trust (PEM) instead of the system's."""

    def __repr__(self) -> str:
        """Without the token: it must not get into a log by accident."""
        return f"Target({self.url!r})"


def read_token(given: str, file: str, environment: str, name: str) -> str:
    r"""A token from one of the three places, the first that has one; SettingsError if none has.

    >>> read_token(" a\n", "", "b", "token"), read_token("", "", "b", "token")
    ('a', 'b')
    """
    if given and file:
        raise SettingsError(f"--{name} and --{name}-file: give one of them")
    if file:
        try:
            with Path(file).open(encoding="utf-8") as opened:
                given = opened.read(TOKEN_CHARS_MAX + 1)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise SettingsError(f"--{name}-file {file}: {reason}") from error
        if not given.strip():
            raise SettingsError(f"--{name}-file {file} is empty")
    token = (given or environment).strip()
    if len(token) > TOKEN_CHARS_MAX or not token.isprintable() or not token.isascii():
        # It would become a header: a line break in it would become another one.
        raise SettingsError(f"the {name} has signs that no token has, or too many")
    return token


def check_url(url: str, flag: str) -> str:
    """An address without its last slash; SettingsError for what is none.

    >>> check_url("https://example.org/grafana/", "--grafana")
    'https://example.org/grafana'
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not url.isprintable() or " " in url:
        raise SettingsError(f"{flag} {url!r}: write http://HOST:PORT or https://HOST/PATH")
    if parts.username or parts.password:
        raise SettingsError(f"{flag}: no user and password in the address; use a token in a file")
    if parts.query or parts.fragment:
        raise SettingsError(f"{flag} {url!r}: leave out what stands behind ? or #")
    return url.rstrip("/")


class Grafana:
    """Asks one Grafana. ``sleep``: seconds; others in tests. Not for several threads."""

    def __init__(self, target: Target, sleep: Callable[[float], None] = time.sleep) -> None:
        self.url = check_url(target.url, "--grafana")
        self._secrets = [target.token]
        self._sleep = sleep
        self._api = open_api(self.url, target)
        self.retries = 0
        """Attempts that failed and were made again."""

    def ask(self, what: str, call: Callable[[Any], Any], *, may_repeat: bool = True) -> Any:  # noqa: ANN401 - JSON
        """What ``call(api)`` gives: JSON. GrafanaError says what went wrong with ``what``.

        ``may_repeat``: whether a second attempt does no harm if the first one was done and only
        its answer was lost.
        """
        for attempt in range(TRIES_MAX):
            try:
                with self._translated(what):
                    answer = call(self._api)
            except Unreachable:
                if not may_repeat or attempt + 1 == TRIES_MAX:
                    raise
            else:
                if isinstance(answer, str):
                    raise self._not_json(what, answer)
                return answer
            self.retries += 1
            self._sleep(PAUSE_SECONDS_FIRST * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def find(self, what: str, call: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON
        """The same, and None if there is no such thing."""
        try:
            return self.ask(what, call)
        except Refused as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def check(self) -> str:
        """Its version; an error if it is no Grafana, or too old. Empty: it does not tell."""
        what = f"look whether {self.url} is a Grafana"
        try:
            answer = self.ask(what, lambda api: api.client.GET("/health"))
        except Refused as error:
            if error.status == NOT_FOUND:
                raise NotGrafana(
                    f"{self.url}/api/health: 404; is this Grafana's address, with its path?"
                ) from error
            raise
        version = answer.get("version", "") if isinstance(answer, dict) else None
        if not isinstance(version, str):
            raise NotGrafana(f"{self.url}/api/health does not answer as a Grafana does")
        number = version.partition(".")[0]
        if number.isdecimal() and int(number) < VERSION_MIN:
            raise NotGrafana(f"Grafana {plain(version)} is too old: {VERSION_MIN} or newer")
        return plain(version)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Exceptions of grafana-client and of the library below it, as ours."""
        from grafana_client.client import (  # noqa: PLC0415 - only where it is installed
            GrafanaException,
            GrafanaTimeoutError,
        )

        try:
            yield
        except GrafanaTimeoutError as error:
            detail = f"no answer within {SILENCE_SECONDS_MAX:g} s"
            raise Unreachable(f"{what}: {detail}") from error
        except GrafanaException as error:
            raise self._of_status(what, int(error.status_code), error.response) from error
        except ValueError as error:
            # Its JSON reader's, and those of addresses that it cannot use.
            raise self._not_json(what, str(error)) from error
        except OSError as error:
            raise self._of_socket(what, error) from error

    def _of_status(self, what: str, status: int, answer: object) -> GrafanaError:
        """The error for an answer that says no."""
        is_json = isinstance(answer, dict | list)
        if (
            not is_json
            and status < SERVER_ERRORS
            and status
            not in {
                UNAUTHORISED,
                FORBIDDEN,
                TOO_MANY,
            }
        ):
            return self._not_json(f"{what}: {status}", str(answer))
        return explain(what, status, answer, self._secrets)

    def _of_socket(self, what: str, error: OSError) -> GrafanaError:
        """The error for what went wrong on the way."""
        said = plain(str(error), self._secrets)
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if "TooManyRedirects" in kinds:
            return NotGrafana(
                f"{what}: it redirects, probably to a login page; give Grafana's own address "
                "with its path, and a way past the proxy's sign-in"
            )
        if "SSLError" in kinds or "CERTIFICATE_VERIFY_FAILED" in said:
            return NotGrafana(f"{what}: its certificate is not trusted ({said}): use --ca-file")
        if "InvalidURL" in kinds or "InvalidSchema" in kinds:
            return NotGrafana(f"{what}: {self.url} is no address that can be asked")
        # Libraries wrap it several times; what the system said is enough.
        reason = SYSTEM_REASON.search(said)
        return Unreachable(f"{what}: nobody answers ({reason[1] if reason else said})")

    def _not_json(self, what: str, text: str) -> NotGrafana:
        """The error for a page instead of an answer."""
        said = plain(text[:PAGE_CHARS_READ], self._secrets)
        return NotGrafana(f"{what}: no JSON but {said!r}; is {self.url} Grafana's address?")


def open_api(url: str, target: Target) -> Any:  # noqa: ANN401 - it has no types that help
    """grafana-client's API object for an address, with our bounds on its session."""
    try:
        from grafana_client import GrafanaApi  # noqa: PLC0415 - only where it is installed
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"this needs {error.name}, which is not installed: in an environment of its own, "
            "pip install 'fabricscope[grafana]'"
        ) from error
    parts = urlsplit(url)
    host = parts.hostname or ""
    if target.ca_file and not Path(target.ca_file).is_file():
        raise SettingsError(f"--ca-file {target.ca_file}: there is no such file")
    path = parts.path.strip("/")
    api = GrafanaApi(
        target.token,
        host=f"[{host}]" if ":" in host else host,
        port=parts.port,
        url_path_prefix=f"{path}/" if path else "",
        protocol=parts.scheme,
        verify=target.ca_file or True,
        timeout=SILENCE_SECONDS_MAX,
        user_agent="fabricscope",
    )
    bound_session(api.client.s)
    return api


def bound_session(session: Any) -> None:  # noqa: ANN401 - niquests' session
    """Let a session follow nothing, and read no answer that is too long or takes too long."""
    session.max_redirects = 0
    request = session.request

    def bounded(*words: Any, **names: Any) -> Any:  # noqa: ANN401 - passed on
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        answer = request(*words, stream=True, **names)
        body = bytearray()
        for piece in answer.iter_content(_PIECE_BYTES):
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                answer.close()
                raise ConnectionError(f"its answer is over {ANSWER_BYTES_MAX >> 20} MiB")
            if time.monotonic() > deadline:
                answer.close()
                raise ConnectionError(f"its answer is not whole after {ANSWER_SECONDS_MAX:g} s")
        # What `answer.text` and `answer.json()` read; the library has no public way to give it.
        answer._content = bytes(body)  # noqa: SLF001
        answer._content_consumed = True  # noqa: SLF001
        return answer

    session.request = bounded
