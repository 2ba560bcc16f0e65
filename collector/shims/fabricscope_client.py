"""A client of Fabricscope for schedulers and their plug-ins. One file, standard library only.

Copy it beside your plug-in (``fabricscope shim client > fabricscope_client.py``):

    from fabricscope_client import Client, Doubt, Error

    with Client("https://fabricscope:9700", token_file="/etc/fabricscope/token") as fabric:
        health = fabric.health()                     # the whole fleet, cheaply: an ETag is kept
        usable = [host.host for host in health.hosts if host.state == "healthy"]
        placed = fabric.place(size=8, candidates=usable, same_leaf=True)
        print(placed.sets[0].hosts, placed.sets[0].why)

Every failure is an ``Error`` with the service's own message. ``Unreachable``: no answer.
``Refused``: the request, the token or the state is wrong, and a retry is of no use. ``Doubt``: the
service answers and does not trust its data; keep what you knew and do nothing.

The client retries requests, up to `retries` times with growing pauses, where that is harmless: a
request that the service may already have carried out is only repeated if it is idempotent. A
client belongs to one thread. Times are unix nanoseconds where a name ends in ``_ns``, ISO 8601
text otherwise. Fields that a newer service adds are ignored. Python 3.10 or newer.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import random
import ssl
import time
import types
import typing
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

__all__ = [
    "Action",
    "Actions",
    "Client",
    "Culprit",
    "Doubt",
    "Error",
    "Fleet",
    "Hold",
    "Host",
    "Incident",
    "Job",
    "JobVerdict",
    "PlacedSet",
    "Placement",
    "Refused",
    "RefusedHost",
    "SharedJob",
    "Unreachable",
    "Verdict",
]

ANSWER_BYTES_MAX = 64 << 20
"""Ten times the health of 30,000 hosts: more is not an answer of this service."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.2, 10.0
RETRY_STATUSES = frozenset({429, 502, 503, 504})
PAGE = 500


class Error(Exception):
    """A failure, with a message for a person."""


class Unreachable(Error):  # noqa: N818 - what it is
    """No answer, or none of this service."""


class Refused(Error):  # noqa: N818
    """The service refused. ``rule`` names the broken rule or limit, where it has a name."""

    def __init__(self, status: int, title: str, detail: str, rule: str) -> None:
        super().__init__(f"{title}: {detail}" if detail else title)
        self.status, self.title, self.detail, self.rule = status, title, detail, rule


class Doubt(Refused):
    """The service cannot trust its data, or is too busy: change nothing, and retry later."""


# --- what is answered ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Host:
    """A host of the fleet. ``state``: healthy, suspect, degraded, draining or out."""

    host: str
    state: str
    risk: float
    lemon: float
    since_ns: int = 0
    reasons: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Fleet:
    """All hosts. While ``stale`` has sentences, do not act on their states."""

    counts: dict[str, int]
    stale: tuple[str, ...]
    items: tuple[Host, ...]

    @property
    def hosts(self) -> tuple[Host, ...]:
        return self.items


@dataclasses.dataclass(frozen=True)
class SharedJob:
    """A running job that shares leaf switches or uplinks with a set."""

    job: str
    title: str
    hosts: int
    leaf_hosts: int
    uplinks: int
    bits_per_second: float | None


@dataclasses.dataclass(frozen=True)
class PlacedSet:
    """Hosts that a job could get; give ranks in this order."""

    hosts: tuple[str, ...]
    score: float
    expected_bandwidth_bits_per_second: float | None
    bandwidth_share: float | None
    oversubscription: float | None
    risk: float
    leaves: dict[str, int]
    shared_jobs: tuple[SharedJob, ...]
    shared_jobs_total: int
    why: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RefusedHost:
    """A candidate that is in no set, and why."""

    host: str
    kind: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Placement:
    """Sets, the best first; without any, ``none_because`` has the reason."""

    as_of: float
    sets: tuple[PlacedSet, ...]
    none_because: str
    unknown: tuple[str, ...]
    usable: int
    refused_total: int
    refused_kinds: dict[str, int]
    refused: tuple[RefusedHost, ...]


@dataclasses.dataclass(frozen=True)
class Culprit:
    """The culprit that a verdict names; what does not apply is empty."""

    job: str = ""
    rank: int | None = None
    host: str = ""
    gpu: int | None = None
    device: str = ""
    port: str = ""
    switch: str = ""
    switch_port: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A diagnosis: cause, culprit, times, confidence."""

    cause: str
    culprit: Culprit
    since_ns: int
    reason: str
    confidence: float
    summary: str
    action: str


@dataclasses.dataclass(frozen=True)
class JobVerdict:
    """Open verdicts on a job; none means that it is well, if ``is_fresh``."""

    job: str
    is_fresh: bool
    evaluated_at: str | None
    incidents: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


@dataclasses.dataclass(frozen=True)
class Incident:
    """One trouble, in short."""

    id: str
    state: str
    cause: str
    reason: str
    culprit: Culprit
    confidence: float
    summary: str
    action: str
    jobs: tuple[str, ...]
    since_ns: int
    until_ns: int | None
    lost_seconds: float
    gpu_hours: float


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as the service knows it."""

    id: str
    name: str | None
    state: str
    ranks: int | None
    started_at: str | None
    ended_at: str | None


@dataclasses.dataclass(frozen=True)
class Hold:
    """An operator's or program's statement that a host is draining or out."""

    id: str
    host: str
    state: str
    reason: str
    by: str
    since_ns: int
    until_ns: int | None
    ended_ns: int | None
    ended_by: str


@dataclasses.dataclass(frozen=True)
class Action:
    """One drain of one host. ``state``: shadowed, proposed, standing, refused or ended."""

    id: str
    host: str
    hold: str
    state: str
    reason: str
    by: str
    rule: str
    at: str
    until: str | None
    incident: str
    cause: str | None
    confidence: float | None
    verdict: str
    refused: str | None
    ended: str | None
    ended_why: str | None


@dataclasses.dataclass(frozen=True)
class Actions:
    """Actions, the newest first. While ``evidence`` is stale, change nothing."""

    actions: tuple[Action, ...]
    evidence: str
    stale: tuple[str, ...]
    mode: str
    next: str | None


# --- reading answers -----------------------------------------------------------------------------

T = TypeVar("T")


def read(kind: type[T], value: object, where: str = "answer") -> T:
    """The answer as a type of this file. Raises Unreachable if it does not fit."""
    if not isinstance(value, dict):
        raise Unreachable(f"{where}: an object was expected, not {type(value).__name__}")
    hints = _hints(kind)
    taken = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in value:
            path = f"{where}.{field.name}"
            taken[field.name] = _read(hints[field.name], value[field.name], path)
        elif field.default is dataclasses.MISSING:
            raise Unreachable(f"{where} has no {field.name}: is this a Fabricscope service?")
    return kind(**taken)


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]


def _read(hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - any type of this file
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _read(of[0], value, where)
    if dataclasses.is_dataclass(hint):
        return read(typing.cast("type[Any]", hint), value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(of[0], each, f"{where}[{place}]") for place, each in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {str(key): _read(of[1], each, f"{where}.{key}") for key, each in value.items()}
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    raise Unreachable(f"{where} is {value!r:.80}: {hint} was expected")


# --- the client ----------------------------------------------------------------------------------


class Client:
    """Client of one service at `http[s]://host:port`, with a token if it wants one."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: str = "",
        ca_file: str = "",
        timeout_seconds: float = 10.0,
        retries: int = 3,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise Error(f"{url!r}: write http://host:port or https://host:port")
        self._parts = parts
        self._base = parts.path.rstrip("/")
        self._token, self._token_file = token, token_file
        self._context = None
        if parts.scheme == "https":
            self._context = ssl.create_default_context(cafile=ca_file or None)
        self._timeout, self._retries, self._pause = timeout_seconds, retries, pause
        self._connection: http.client.HTTPConnection | None = None
        self._fleet: tuple[str, Fleet] | None = None
        """The last answer of `health`, and its tag."""

    def __enter__(self) -> Client:  # noqa: PYI034 - Self is of 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- health ---

    def health(self, wait_seconds: float = 0.0) -> Fleet:
        """All hosts. With ``wait_seconds``: when something changes, or after that time.

        Uses an entity tag: an answer that has not changed is a few bytes.
        """
        query: dict[str, Any] = {}
        headers = {}
        if self._fleet is not None:
            headers["If-None-Match"] = self._fleet[0]
            if wait_seconds > 0:
                query["wait"] = wait_seconds
        status, tag, body = self._ask(
            "GET", "/v1/health", query, headers=headers, more_seconds=wait_seconds
        )
        if status == http.HTTPStatus.NOT_MODIFIED and self._fleet is not None:
            return self._fleet[1]
        fleet = read(Fleet, body, "health")
        self._fleet = (tag, fleet) if tag else None
        return fleet

    def host_health(self, host: str) -> dict[str, Any]:
        """One host's devices, links, GPUs, reasons and history, as the service's JSON."""
        found = self._ask("GET", f"/v1/hosts/{_quoted(host)}/health")[2]
        return typing.cast("dict[str, Any]", found)

    # --- placement ---

    def place(
        self,
        size: int,
        *,
        candidates: Sequence[str] | None = None,
        gpus_per_host: int | None = None,
        same_leaf: bool = False,
        rail_aligned: bool = False,
        avoid: Sequence[str] = (),
        allow: Sequence[str] = (),
        sets: int = 3,
    ) -> Placement:
        """Which hosts a job of this size should get. Reserves nothing."""
        asked: dict[str, Any] = {
            "size": size,
            "same_leaf": same_leaf,
            "rail_aligned": rail_aligned,
            "avoid": list(avoid),
            "allow": list(allow),
            "sets": sets,
        }
        if candidates is not None:
            asked["candidates"] = list(candidates)
        if gpus_per_host is not None:
            asked["gpus_per_host"] = gpus_per_host
        return read(Placement, self._ask("POST", "/v1/placement", body=asked)[2], "placement")

    # --- jobs and their trouble ---

    def register_job(self, job: str, hosts: Sequence[str] = (), **known: Any) -> Job:  # noqa: ANN401
        """Register a running job; ``known`` are further fields of it.

        `name`, `user`, `scheduler`, `cluster`, `ranks`, … A repetition changes nothing.
        """
        body = {"id": job, "hosts": list(hosts), **known}
        return read(Job, self._ask("POST", "/v1/jobs", body=body)[2], "job")

    def end_job(self, job: str, ended_at: str) -> Job:
        """Record a job's end; ISO 8601."""
        body = {"ended_at": ended_at}
        found = self._ask("PATCH", f"/v1/jobs/{_quoted(job)}", body=body)[2]
        return read(Job, found, "job")

    def verdict(self, job: str) -> JobVerdict:
        return read(JobVerdict, self._ask("GET", f"/v1/jobs/{_quoted(job)}/verdict")[2], "verdict")

    def incidents(self, *, state: str = "", host: str = "", job: str = "") -> Iterator[Incident]:
        """Incidents, the newest first, page by page."""
        query: dict[str, Any] = {"state": state, "host": host, "job": job, "limit": PAGE}
        while True:
            found = self._ask("GET", "/v1/incidents", query)[2]
            page = typing.cast("dict[str, Any]", found)
            for each in page.get("items", ()):
                yield read(Incident, each, "incident")
            if not page.get("next"):
                return
            query["after"] = page["next"]

    # --- holds and actions ---

    def hold(
        self, host: str, state: str, *, reason: str, by: str, hours: float | None = None
    ) -> Hold:
        """Set a host to `draining` or `out`."""
        body: dict[str, Any] = {"state": state, "reason": reason, "by": by}
        if hours is not None:
            body["hours"] = hours
        return read(Hold, self._ask("PUT", f"/v1/hosts/{_quoted(host)}/hold", body=body)[2], "hold")

    def release(self, host: str, *, by: str) -> Hold:
        path = f"/v1/hosts/{_quoted(host)}/hold"
        found = self._ask("DELETE", path, {"by": by}, is_repeatable=False)[2]
        return read(Hold, found, "hold")

    def actions(self, state: str = "") -> Actions:
        """Drains of hosts, past, present and shadowed. ``state="standing"``: present holds."""
        return read(Actions, self._ask("GET", "/v1/actions", {"state": state})[2], "actions")

    def approve(self, action: str, *, by: str, words: str = "") -> Action:
        """Grant a proposed action."""
        return self._change(action, "approve", {"by": by, "words": words})

    def reject(self, action: str, *, by: str, words: str = "") -> Action:
        """Refuse a proposed action."""
        return self._change(action, "reject", {"by": by, "words": words})

    def undo(self, action: str, *, by: str, words: str = "") -> Action:
        """End a standing action."""
        return self._change(action, "undo", {"by": by, "words": words})

    def applied(self, action: str, *, executor: str, outcome: str, words: str = "") -> Action:
        """Report the outcome of an action in a scheduler: `done` or `failed`."""
        body = {"executor": executor, "outcome": outcome, "words": words}
        return self._change(action, "applied", body)

    def _change(self, action: str, what: str, body: dict[str, Any]) -> Action:
        path = f"/v1/actions/{_quoted(action)}/{what}"
        # An approval works once; an executor's report can be repeated.
        found = self._ask("POST", path, body=body, is_repeatable=what == "applied")[2]
        return read(Action, found, "action")

    # --- asking ---

    def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        *,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        more_seconds: float = 0.0,
        is_repeatable: bool = True,
    ) -> tuple[int, str, object]:
        """Send a request, with retries; status, entity tag and the decoded answer.

        A request that is not repeatable uses a new connection, so that a missing answer is the
        service's own, and is not sent again.
        """
        chosen = {key: value for key, value in (query or {}).items() if value not in ("", None)}
        target = self._base + path + ("?" + urllib.parse.urlencode(chosen) if chosen else "")
        sent = {"Accept": "application/json", **self._credentials(), **(headers or {})}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        if not is_repeatable:
            self.close()
        tries = 0
        while True:
            tries += 1
            again_seconds = PAUSE_SECONDS * 2 ** (tries - 1)
            try:
                found = self._once(method, target, content, sent, more_seconds)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                was_heard = not isinstance(error, ConnectionRefusedError)
                if tries > self._retries or (was_heard and not is_repeatable):
                    where = f"{self._parts.scheme}://{self._parts.netloc}"
                    raise Unreachable(f"{where}: {error or type(error).__name__}") from error
            else:
                status, answer_headers, answer = found
                if status not in RETRY_STATUSES or tries > self._retries:
                    return self._taken(status, answer_headers, answer)
                asked = answer_headers.get("Retry-After", "")
                again_seconds = float(asked) if asked.isdigit() else again_seconds
            # Ten schedulers that were turned away together must not come back together.
            self._pause(min(again_seconds, PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.5))  # noqa: S311

    def _credentials(self) -> dict[str, str]:
        token = self._token
        if self._token_file:
            # Read each time, so that a renewed token needs no restart.
            try:
                with open(self._token_file, encoding="utf-8") as file:  # noqa: PTH123 - one file
                    token = file.read().strip()
            except OSError as error:
                raise Error(f"token_file {self._token_file}: {error.strerror}") from error
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _once(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: dict[str, str],
        more_seconds: float,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request over the open connection, or over a new one."""
        connection = self._connection or self._connect()
        self._connection = connection
        connection.timeout = self._timeout + more_seconds
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request(method, target, body=content, headers=headers)
        response = connection.getresponse()
        answer = response.read(ANSWER_BYTES_MAX + 1)
        if len(answer) > ANSWER_BYTES_MAX:
            self.close()
            raise Unreachable(f"{target}: an answer of more than {ANSWER_BYTES_MAX} bytes")
        return response.status, response.headers, answer

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._context is not None:
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout, context=self._context
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _taken(
        self, status: int, headers: http.client.HTTPMessage, answer: bytes
    ) -> tuple[int, str, object]:
        """The decoded answer. Raises Refused or Doubt with the service's error."""
        if status == http.HTTPStatus.NOT_MODIFIED:
            return status, headers.get("ETag", ""), None
        try:
            found = json.loads(answer) if answer else None
        except ValueError as error:
            raise Unreachable(f"status {status}, and no JSON: {answer[:80]!r}") from error
        if status < http.HTTPStatus.BAD_REQUEST:
            return status, headers.get("ETag", ""), found
        problem = found if isinstance(found, dict) else {}
        kind = Doubt if status in RETRY_STATUSES else Refused
        raise kind(
            status,
            str(problem.get("title") or f"status {status}"),
            str(problem.get("detail") or ""),
            str(problem.get("rule") or ""),
        )


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
