"""One round of requests for all that a screen shows: answers become rows.

A part that fails (a query that takes too long, a path that an old service lacks) loses its own
rows and is shown as failed; only a service that is unavailable or refuses us fails the whole.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from api.remote.client import Busy, Client, Odd, Target, quoted
from api.remote.top import questions
from api.remote.top.model import (
    Detail,
    Fleet,
    HostRow,
    Incident,
    JobRow,
    LinkRow,
    Picture,
    View,
    Wanted,
)

INCIDENTS_MAX = 200
"""Open ones that are asked for: as many as the service lets stand at once."""
CLOSED_MAX = 20
CLOSED_SECONDS = 3_600
"""How long what is over is worth a line."""
SERIES_MAX = 20_000
"""Of one answer: five columns of four thousand hosts."""
PAGE = 1_000
PAGES_MAX = 4
"""Of hosts and jobs: past four thousand a terminal is the wrong place to look through them."""
QUESTION_SECONDS_MAX = 8
"""Seconds that the service may take for one query; then it answers with an error."""
DOWN_MAX = 100
"""Links that are down and are listed."""
HOSTS_CHARS_MAX = 2_000
"""Of the names of hosts in one question: fifty of forty characters. The longest question names them
seventeen times, and the service reads 64 KiB."""

Part = TypeVar("Part")
Item = TypeVar("Item")
Row = TypeVar("Row", JobRow, LinkRow, HostRow)
Key = tuple[str, ...]


class Series(msgspec.Struct, frozen=True):
    """One series of an answer: an instant's value, or a range's values."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: tuple[tuple[float, str], ...] = ()


class Result(msgspec.Struct, frozen=True):
    """The result of a query."""

    result: tuple[Series, ...]


class QueryAnswer(msgspec.Struct, frozen=True):
    """Prometheus' answer."""

    data: Result


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A job or a host of a page."""

    id: str = ""
    host: str = ""
    ranks: int | None = None
    last_seen: dt.datetime | None = None


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """A page of a list."""

    items: tuple[Item, ...]
    next: str | None = None


class Cable(msgspec.Struct, frozen=True):
    """A link that is down; its ends are host/device/port."""

    a: str
    b: str


class Asked:
    """One round of requests; failures are kept in ``problems``."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.problems: dict[str, str] = {}

    def part(self, name: str, ask: Callable[[], Part], before: Part) -> Part:
        try:
            return ask()
        except (Odd, Busy) as error:
            self.problems[name] = str(error)
            return before

    def query(self, expression: str) -> tuple[Series, ...]:
        return self._query("/api/v1/query", query=expression)

    def history(self, expression: str) -> tuple[Series, ...]:
        now_s = self.client.now_s
        return self._query(
            "/api/v1/query_range",
            query=expression,
            start=now_s - questions.HISTORY_SECONDS,
            end=now_s,
            step=questions.HISTORY_STEP_SECONDS,
        )

    def _query(self, path: str, **parameters: str | float) -> tuple[Series, ...]:
        bounds = {"limit": SERIES_MAX, "timeout": QUESTION_SECONDS_MAX}
        return self.client.get(path, QueryAnswer, **parameters, **bounds).data.result

    def pages(self, path: str, **parameters: str | int) -> list[Named]:
        """All entries of a list, up to PAGES_MAX pages."""
        found: list[Named] = []
        for _ in range(PAGES_MAX):
            page = self.client.get(path, Page[Named], limit=PAGE, **parameters)
            found.extend(page.items)
            if page.next is None:
                break
            parameters["after"] = page.next
        return found


def open_client(target: Target) -> Client:
    """A client whose answers are fit for a terminal."""
    return Client(target, "top", for_terminal=True)


def ask(client: Client, wanted: Wanted, before: Picture | None = None) -> Picture:
    """All wanted parts; a part that is not wanted, or fails, stays as it was.

    The incidents come first: a server that does not even answer that is unavailable, or no service
    of ours.
    """
    asked = Asked(client)
    standing = client.get("/v1/incidents", Page[Incident], state="open", limit=INCIDENTS_MAX).items
    last = before or Picture(time_s=client.now_s)
    views = wanted.views

    def view(name: View, rows: Callable[[Asked], Part], known: Part) -> Part:
        return asked.part(name, lambda: rows(asked), known) if name in views else known

    return Picture(
        incidents=tuple(sorted(standing, key=lambda one: (-one.gpu_hours, one.since_ns, one.id))),
        closed=asked.part("closed incidents", lambda: closed(asked), last.closed),
        fleet=asked.part("fleet", lambda: fleet(asked), last.fleet),
        jobs=view(View.JOBS, jobs, last.jobs),
        links=view(View.LINKS, lambda each: links(each, wanted), last.links),
        hosts=view(View.HOSTS, hosts, last.hosts),
        detail=detail(asked, wanted, last),
        problems=asked.problems,
        time_s=client.now_s,
    )


def closed(asked: Asked) -> tuple[Incident, ...]:
    """Incidents that ended a short while ago, the latest first."""
    since = int(asked.client.now_s - CLOSED_SECONDS)
    page = asked.client.get(
        "/v1/incidents", Page[Incident], state="closed", since=since, limit=CLOSED_MAX
    )
    return tuple(sorted(page.items, key=lambda one: -(one.until_ns or 0)))


def detail(asked: Asked, wanted: Wanted, last: Picture) -> Detail | None:
    if not wanted.incident:
        return None
    known = last.detail if last.detail and last.detail.id == wanted.incident else None
    path = f"/v1/incidents/{quoted(wanted.incident)}"
    return asked.part("incident", lambda: asked.client.get(path, Detail), known)


def fleet(asked: Asked) -> Fleet:
    found = tabulate(asked.query(questions.fleet()), ())
    numbers = found.get((), {})
    down = asked.client.get("/v1/links", Page[Cable], is_up="false", limit=DOWN_MAX)
    names = ("agents", "gpus", "gpus_busy", "jobs")
    return Fleet(
        **{name: numbers[name] for name in names if name in numbers}, links_down=len(down.items)
    )


def jobs(asked: Asked) -> tuple[JobRow, ...]:
    known = {one.id: one for one in asked.pages("/v1/jobs", state="running")}
    measured = tabulate(asked.query(questions.jobs()), ("job",))
    steps = {
        one.metric.get("job", ""): tuple(finite(text for _, text in one.values))
        for one in asked.history(questions.JOB_STEPS)
    }
    rows = []
    for name in sorted({*known, *(job for (job,) in measured)}):
        columns = measured.get((name,), {})
        if "ranks" not in columns and name in known and known[name].ranks is not None:
            columns["ranks"] = float(known[name].ranks or 0)
        rows.append(fill(JobRow(job=name, steps_s=steps.get(name, ())), columns))
    return tuple(rows)


def links(asked: Asked, wanted: Wanted) -> tuple[LinkRow, ...]:
    """Links that are down, then the worst of the others, as many as one query allows."""
    labels = ("cluster", "host", "device", "port")
    down = asked.client.get("/v1/links", Page[Cable], is_up="false", limit=DOWN_MAX).items
    rows = [LinkRow(host=cable.a, peer=cable.b, is_down=True) for cable in down]
    found = tabulate(asked.query(questions.worst(wanted.order)), labels)
    ranked = sorted(found, key=lambda key: (-found[key].get("", 0.0), key))
    known = hosts_that_fit(key[1] for key in ranked)
    if not known:
        return tuple(rows)
    columns: dict[Key, dict[str, float]] = {}
    for name, question in questions.link_columns(known).items():
        for key, values in tabulate(asked.query(question), labels).items():
            columns.setdefault(key, {})[name] = values.get("", 0.0)
    peers = {
        key_of(one.metric, labels): " ".join(
            word for word in (one.metric.get("peer_name"), one.metric.get("peer_port")) if word
        )
        for one in asked.query(questions.peers(known))
    }
    for key in ranked:
        _, host, device, port = key
        if host in known:
            row = LinkRow(host=host, device=device, port=port, peer=peers.get(key, ""))
            rows.append(fill(row, columns.get(key, {})))
    return tuple(rows)


def hosts_that_fit(names: Iterable[str]) -> list[str]:
    """Hosts, each once, as many as a question has room for.

    >>> hosts_that_fit(["b", "a", "b", "x" * HOSTS_CHARS_MAX])
    ['b', 'a']
    """
    found: list[str] = []
    room = HOSTS_CHARS_MAX
    for name in dict.fromkeys(names):
        room -= len(name) + 1
        if room < 0:
            break
        found.append(name)
    return found


def hosts(asked: Asked) -> tuple[HostRow, ...]:
    """Hosts by name: those of the inventory, and those that it has not seen yet; no switches."""
    seen = {one.host: one.last_seen for one in asked.pages("/v1/hosts")}
    switches = {one.host for one in asked.pages("/v1/hosts", role="switch")}
    now_s = asked.client.now_s
    measured: dict[str, dict[str, float]] = {}
    for (_, host), columns in tabulate(asked.query(questions.hosts()), ("cluster", "host")).items():
        measured.setdefault(host, {}).update(columns)
    rows = []
    for host in sorted({*seen, *measured} - switches):
        moment = seen.get(host)
        silent_s = None if moment is None else max(0.0, now_s - moment.timestamp())
        rows.append(fill(HostRow(host=host, silent_s=silent_s), measured.get(host, {})))
    return tuple(rows)


def fill(row: Row, columns: Mapping[str, float]) -> Row:
    known = {name: value for name, value in columns.items() if name in row.__struct_fields__}
    return msgspec.structs.replace(row, **known)


def tabulate(found: Iterable[Series], labels: Sequence[str]) -> dict[Key, dict[str, float]]:
    """Rows by the labels that name a thing, each with its columns; without what is no number."""
    rows: dict[Key, dict[str, float]] = {}
    for series in found:
        numbers = finite([series.value[1]] if series.value else [])
        if numbers:
            row = rows.setdefault(key_of(series.metric, labels), {})
            row[series.metric.get(questions.WHAT, "")] = numbers[0]
    return rows


def key_of(metric: Mapping[str, str], labels: Sequence[str]) -> Key:
    return tuple(metric.get(label, "") for label in labels)


def finite(texts: Iterable[str]) -> list[float]:
    """The numbers among texts; NaN and infinity are PromQL's absent values.

    >>> finite(["1.5", "NaN", "+Inf", "?"])
    [1.5]
    """
    found = []
    for text in texts:
        try:
            number = float(text)
        except ValueError:
            continue
        if math.isfinite(number):
            found.append(number)
    return found
