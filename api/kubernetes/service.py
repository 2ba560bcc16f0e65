"""Our service, asked over HTTP: health, standing actions, labels; and told what was applied.

Nothing of the service is imported: this program runs elsewhere, against a service of another
version perhaps. What is not understood is an error by name (`api.top.client`), and upon an error
nobody acts.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from api.top.client import Away, Busy, Odd, Refused, Target, check_url, explain, problem, shorten
from collector.contract.errors import SettingsError

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 20.0
"""For one whole answer, beyond what we asked it to wait."""
ANSWER_BYTES_MAX = 64 << 20
"""Of one answer: the health of 200,000 hosts has about 40 MB."""
EXECUTOR = "kubernetes"
"""Who we are in an action's history."""
WORDS_CHARS_MAX = 500
"""Of what we say there."""
UNAUTHORISED, FORBIDDEN, NOT_MODIFIED, SERVER_ERRORS, TOO_MANY = 401, 403, 304, 500, 429

Answer = TypeVar("Answer")


class HostHealth(msgspec.Struct, frozen=True):
    """A host as `/v1/health` lists it."""

    host: str
    state: str
    reasons: tuple[str, ...] = ()


class FleetHealth(msgspec.Struct, frozen=True):
    """`/v1/health`."""

    stale: tuple[str, ...]
    items: list[HostHealth]


class Applied(msgspec.Struct, frozen=True):
    """What an executor said of an action."""

    executor: str
    outcome: str
    words: str = ""


class Action(msgspec.Struct, frozen=True):
    """A standing action, as far as we look at it."""

    id: str
    kind: str
    host: str
    state: str
    hold: str = ""
    """`draining` or `out`."""
    reason: str = ""
    by: str = ""
    applied: tuple[Applied, ...] = ()


class Actions(msgspec.Struct, frozen=True):
    """`/v1/actions?state=standing`."""

    actions: list[Action]
    evidence: Literal["fresh", "stale"]
    next: str | None = None
    """Set: this is not all that stands."""


class NodeLabels(msgspec.Struct, frozen=True):
    """A host's labels."""

    host: str
    labels: dict[str, str]


class Labels(msgspec.Struct, frozen=True):
    """`/v1/kubernetes/labels`."""

    items: list[NodeLabels]


class Report(msgspec.Struct, frozen=True):
    """What became of an action here."""

    action: str
    outcome: Literal["done", "failed"]
    words: str


class Service:
    """Asks one service. For one event loop."""

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.url = check_url(target.url)
        self._target = target
        self._tag = ""
        self._http = httpx.AsyncClient(
            base_url=self.url,
            verify=trusted(self.url, target.ca_file),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
            headers={"Accept-Encoding": "identity", "User-Agent": "fabricscope-kubernetes"},
        )

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def health(self, wait_s: float = 0.0) -> FleetHealth | None:
        """How hosts are; None: as we were told last, for as long as we waited."""
        headers = {"If-None-Match": self._tag} if self._tag else {}
        asked = {"wait": f"{wait_s:g}"} if self._tag and wait_s else {}
        status, body, tag = await self._ask(
            "GET", "/v1/health", params=asked, headers=headers, patience_s=wait_s
        )
        if status == NOT_MODIFIED:
            return None
        found = decode(body, FleetHealth, "/v1/health")
        self._tag = tag
        return found

    async def actions(self) -> Actions:
        """What stands."""
        asked = {"state": "standing"}
        _, body, _ = await self._ask("GET", "/v1/actions", params=asked)
        return decode(body, Actions, "/v1/actions")

    async def labels(self) -> dict[str, dict[str, str]]:
        """The labels of each host whose cables are known."""
        path = "/v1/kubernetes/labels"
        _, body, _ = await self._ask("GET", path)
        return {each.host: each.labels for each in decode(body, Labels, path).items}

    async def report(self, report: Report) -> None:
        """Tell what became of an action."""
        path = f"/v1/actions/{quote(report.action, safe='')}/applied"
        words = shorten(report.words)[:WORDS_CHARS_MAX]
        body = {"executor": EXECUTOR, "outcome": report.outcome, "words": words}
        await self._ask("POST", path, json=body)

    async def forward(self, path: str, body: bytes) -> bytes:
        """Pass a question on that somebody else has written; the answer as it came."""
        headers = {"Content-Type": "application/json"}
        _, answer, _ = await self._ask("POST", path, headers=headers, content=body)
        return answer

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        patience_s: float = 0.0,
        **asked: Any,  # noqa: ANN401 - whatever httpx takes
    ) -> tuple[int, bytes, str]:
        """Status, body and tag of an answer; Away, Busy, Refused or Odd if there is none."""
        # Read each time: tokens are exchanged while we run.
        try:
            token = self._target.read_token()
        except SettingsError as error:
            raise Refused(str(error)) from error
        sent = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        whole_s = ANSWER_SECONDS_MAX + patience_s
        timeout = httpx.Timeout(whole_s, connect=CONNECT_SECONDS_MAX)
        try:
            async with (
                asyncio.timeout(whole_s),
                self._http.stream(method, path, headers=sent, timeout=timeout, **asked) as answer,
            ):
                body = await read_all(answer)
        except (TimeoutError, httpx.ReadTimeout) as error:
            raise Busy(f"{path}: no answer from {self.url} within {whole_s:.0f} s") from error
        # OSError: an alert of TLS that comes after the handshake is not httpx' in its own streams.
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            raise Away(f"cannot reach {self.url}: {explain(error)}") from error
        self._check(path, answer, body)
        return answer.status_code, body, answer.headers.get("etag", "")

    def _check(self, path: str, answer: httpx.Response, body: bytes) -> None:
        """Raise what a status other than success means."""
        status = answer.status_code
        if answer.is_success or status == NOT_MODIFIED:
            return
        words = f"{self.url}{path}: HTTP {status} {problem(body) or answer.reason_phrase}".rstrip()
        if status in {UNAUTHORISED, FORBIDDEN}:
            raise Refused(f"{words}; --token-file must hold a token that the service accepts")
        raise Busy(words) if status >= SERVER_ERRORS or status == TOO_MANY else Odd(words)


def trusted(url: str, ca_file: str) -> ssl.SSLContext | bool:
    """How to know the service; False where it speaks plain HTTP."""
    if not url.startswith("https:"):
        return False
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise SettingsError(f"--ca-file {ca_file}: {error}") from error


async def read_all(answer: httpx.Response) -> bytes:
    """The body, bounded in size."""
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            raise Odd(f"{answer.url.path}: more than {ANSWER_BYTES_MAX >> 20} MiB")
    return bytes(body)


def decode(body: bytes, wanted: type[Answer], path: str) -> Answer:
    """An answer as what it should be; Odd if it is not."""
    try:
        return msgspec.json.decode(body, type=wanted)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Odd(f"{path}: not an answer of Fabricscope ({shorten(str(error))})") from error
