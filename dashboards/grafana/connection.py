"""One Grafana, asked through grafana-api-sdk: bounded in time, size and attempts.

The SDK builds addresses and bodies, and checks the shape of answers. It opens a client of its own
for each call, follows redirects, reads an answer of any length, and raises a bare `Exception`
without the status. So it is given our client, which reads within bounds and turns every status into
a GrafanaError before the SDK sees the answer.

The SDK's own method is used where it does what Grafana documents. These calls go through `Sdk.call`
instead, because in 0.9.1 the method
- `get_folders` lists dashboards of the root folder as folders, and fails if there is none;
- `create_or_update_dashboard` looks its folder up by title, which need not be unique;
- `delete_dashboard_by_name_and_path` knows no uid;
- `get_dashboard_versions_by_uid` fails on the object that Grafana answers since 11.4;
- `search` and `find_annotations` fail if nothing is found, and the second one forgets a `?`;
- `update_annotation` does not send the tags;
- `get_health_status` fails if Grafana hides its version.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
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

if TYPE_CHECKING:
    import httpx

ANSWER_SECONDS_MAX = 20.0
"""For one answer, all of it. A dashboard takes Grafana milliseconds; a busy database seconds."""
SILENCE_SECONDS_MAX = 10.0
"""Without a byte: for the connection, and between two pieces of an answer."""
ANSWER_BYTES_MAX = 32 << 20
"""Of one answer. A large dashboard has 1 MB, a thousand annotations as much."""
TRIES_MAX = 4
"""Attempts at what may be repeated: together they bridge a restart behind a proxy."""
PAUSE_SECONDS_FIRST = 0.5
"""After the first failure; it doubles: 0.5, 1 and 2 s."""
VERSION_MIN = 9
"""Folders, data sources and versions of dashboards by uid: documented from Grafana 9 on."""
TOKEN_CHARS_MAX = 4_096
"""Of a token: service accounts' have 46 characters."""
PAGE_CHARS_READ = 1_000
"""Of a page that is no answer: enough for its title."""

SYSTEM_REASON = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A Grafana's address and credentials."""

    url: str
    """With a path if it is served under one: https://example.org/grafana."""
    token: str
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


# --- HTTP with bounds ----------------------------------------------------------------------------


def open_client(url: str, token: str, ca_file: str) -> httpx.Client:
    """A client that follows no redirect (the token would travel with it) and trusts ``ca_file``."""
    import httpx  # noqa: PLC0415 - only where it is installed

    headers = {"User-Agent": "fabricscope", "Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        if ca_file or url.startswith("https:"):
            trusted = ssl.create_default_context(cafile=ca_file or None)
        else:
            # It trusts no certificate. Loading the system's takes longer than a push.
            trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise SettingsError(f"--ca-file {ca_file}: {reason}") from error
    return httpx.Client(headers=headers, verify=trusted, timeout=SILENCE_SECONDS_MAX)


def fetch(client: httpx.Client, method: str, url: str, **names: Any) -> httpx.Response:  # noqa: ANN401 - passed on
    """One answer, whole. OSError or httpx.HTTPError if it does not come, or not within bounds."""
    import httpx  # noqa: PLC0415 - only where it is installed

    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    body = bytearray()
    with client.stream(method, url, **names) as answer:
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise ConnectionError(f"its answer is over {ANSWER_BYTES_MAX >> 20} MiB")
            if time.monotonic() > deadline:
                raise ConnectionError(f"its answer is not whole after {ANSWER_SECONDS_MAX:g} s")
        return httpx.Response(answer.status_code, content=bytes(body), request=answer.request)


def why_unanswered(error: Exception, secrets: list[str]) -> str:
    if "Timeout" in type(error).__name__:
        return f"no answer within {SILENCE_SECONDS_MAX:g} s"
    message = plain(str(error), secrets)
    reason = SYSTEM_REASON.search(message)
    return reason[1] if reason else message


# --- the SDK --------------------------------------------------------------------------------------


class Sdk:
    """The parts of grafana-api-sdk that we use, and a call for what they do not do right.

    ``client``: its method `request` makes every call. The SDK has no setting for its client, so
    the method that makes one is replaced. The SDK writes answers to the root logger, unescaped:
    they are kept from the terminal.
    """

    def __init__(self, url: str, client: Grafana) -> None:
        # Only where it is installed.
        from grafana_api import annotations, api, dashboard, datasource, folder, model  # noqa: PLC0415

        api.Api.create_the_http_api_client = lambda caller, _=None: caller.grafana_api_model.client
        logging.getLogger().addFilter(is_not_of_sdk)
        made = model.APIModel(host=url)
        made.client = client
        self._api = api.Api(made)
        self._methods = model.RequestsMethods
        self.annotations: Any = annotations.Annotations(made)
        self.dashboard: Any = dashboard.Dashboard(made)
        self.datasource: Any = datasource.Datasource(made)
        self.folder: Any = folder.Folder(made)

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        text = None if body is None else json.dumps(body)
        return self._api.call_the_api(f"/api{path}", self._methods[method], text)


def is_not_of_sdk(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "grafana_api"


class Grafana:
    """Asks one Grafana. ``sleep``: seconds; others in tests. Not for several threads."""

    def __init__(self, target: Target, sleep: Callable[[float], None] = time.sleep) -> None:
        self.url = check_url(target.url, "--grafana")
        self._secrets = [target.token]
        self._sleep = sleep
        self._client = open_client(self.url, target.token, target.ca_file)
        self._sdk = Sdk(self.url, self)
        self._what = ""
        self.retries = 0

    def close(self) -> None:
        self._client.close()

    def ask(self, what: str, call: Callable[[Sdk], Any], *, may_repeat: bool = True) -> Any:  # noqa: ANN401 - JSON
        """The result of ``call(sdk)``. Raises GrafanaError with what failed in ``what``.

        ``may_repeat``: whether a second attempt does no harm if the first one was done and only
        its answer was lost.
        """
        self._what = what
        for attempt in range(TRIES_MAX):
            try:
                return call(self._sdk)
            except Unreachable:
                if not may_repeat or attempt + 1 == TRIES_MAX:
                    raise
            except GrafanaError:
                raise
            except Exception as error:
                # The SDK's: the answer is JSON, and not what Grafana documents.
                why = f"{self.url} does not answer as a Grafana does"
                raise NotGrafana(f"{what}: {why}") from error
            self.retries += 1
            self._sleep(PAUSE_SECONDS_FIRST * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def find(self, what: str, call: Callable[[Sdk], Any]) -> dict[str, Any] | None:
        """The same, of an object; None if there is no such thing."""
        try:
            found = self.ask(what, call)
            return found if isinstance(found, dict) else None
        except Refused as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def check(self) -> str:
        """Its version; an error if it is no Grafana, or too old. Empty: it hides it."""
        what = f"look whether {self.url} is a Grafana"
        try:
            answer = self.ask(what, lambda sdk: sdk.call("GET", "/health"))
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

    def request(self, method: str, url: str, content: str | None = None) -> httpx.Response:
        """A call of the SDK. Raises GrafanaError unless the answer is JSON with a good status."""
        import httpx  # noqa: PLC0415 - only where it is installed

        what = self._what
        try:
            answer = fetch(self._client, method, url, content=content)
        except (OSError, httpx.HTTPError, httpx.InvalidURL) as error:
            reason = why_unanswered(error, self._secrets)
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                why = f"its certificate is not trusted ({reason}): use --ca-file"
                raise NotGrafana(f"{what}: {why}") from error
            raise Unreachable(f"{what}: no answer ({reason})") from error
        if answer.is_redirect:
            raise NotGrafana(
                f"{what}: it redirects, probably to a login page; give Grafana's own address "
                "with its path, and a way past the proxy's sign-in"
            )
        status = answer.status_code
        try:
            body = msgspec.json.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            body = answer.text
        is_proxy_s = status >= SERVER_ERRORS or status in {UNAUTHORISED, FORBIDDEN, TOO_MANY}
        if not isinstance(body, dict | list) and not is_proxy_s:
            page = plain(answer.text[:PAGE_CHARS_READ], self._secrets)
            raise NotGrafana(
                f"{what}: {status}, no JSON but {page!r}; is {self.url} Grafana's address?"
            )
        if not answer.is_success:
            raise explain(what, status, body, self._secrets)
        return answer
