"""Incidents as annotations of a Grafana: a mark where one began, a region once it is over.

Our own boards need none of this: they draw incidents from the series `fabric_incident`. Annotations
are for people's own dashboards, which ask Grafana for the tag `fabricscope`.

An annotation is found again by the tag with its incident's id, so a second run changes nothing, and
one after the incident's end makes the mark a region. While it is open it has no end: an end that is
moved on every run would be a write on every run.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from collector.contract.units import NS_PER_MS
from dashboards.grafana.client import Service, ServiceError
from dashboards.grafana.connection import Grafana
from dashboards.grafana.failures import GrafanaError, plain
from dashboards.grafana.structure import objects

TAG = "fabricscope"
INCIDENT_TAG = "incident:"
"""Before the incident's id."""
TAG_CHARS_MAX = 100
"""Grafana's bound for a tag."""
TEXT_CHARS_MAX = 1_000
"""Of an annotation's text: it is a tooltip."""
INCIDENTS_MAX = 500
"""Of one run, the latest; a week of a large cluster has some dozens. Older ones are left out,
and the output mentions that."""
PAGE = 100
LOOK_MAX = 2_000
"""Annotations of ours that are looked at in one go; any other is asked for by its own tag."""
FOLLOW_SECONDS = 15.0
"""Between two runs: incidents appear within ten seconds or so, and marks are not urgent."""
FAILURES_MAX = 20
"""Runs that may fail one after the other while following: five minutes without a Grafana."""

CULPRIT = ("job", "host", "gpu", "device", "port", "switch", "switch_port", "rank")


class IncidentSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of an incident of `GET /v1/incidents`. Unix nanoseconds."""

    id: str
    state: str
    cause: str
    culprit: dict[str, str | int | None]
    confidence: float
    summary: str
    action: str = ""
    since_ns: int
    until_ns: int | None = None
    last_seen_ns: int


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of `GET /v1/incidents`."""

    items: list[IncidentSeen]
    next: str | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation as it should be. Milliseconds."""

    incident: str
    time: int
    time_end: int
    tags: tuple[str, ...]
    text: str

    def is_like(self, there: Mapping[str, Any]) -> bool:
        return (
            there.get("time") == self.time
            # Grafana gives a mark without an end its own time, or none, or 0.
            and (there.get("timeEnd") or self.time) == self.time_end
            and sorted(there.get("tags") or []) == sorted(self.tags)
            and there.get("text") == self.text
        )


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a run, or of a dry run."""

    created: Sequence[str] = ()
    updated: Sequence[str] = ()
    kept: int = 0
    removed: int = 0
    """Annotations of which there were two."""
    is_cut: bool = False
    """Whether there are more incidents than INCIDENTS_MAX."""

    @property
    def is_quiet(self) -> bool:
        return not (self.created or self.updated or self.removed)


def fetch_incidents(service: Service, since_s: float) -> tuple[list[IncidentSeen], bool]:
    """The latest incidents that were seen since a moment (unix seconds); whether there are more."""
    found: list[IncidentSeen] = []
    after = ""
    while len(found) < INCIDENTS_MAX:
        words = {"since": f"{since_s:.3f}", "limit": str(PAGE)}
        answer = service.get("/v1/incidents", words | ({"after": after} if after else {}))
        try:
            page = msgspec.convert(answer, Page)
        except msgspec.ValidationError as error:
            raise ServiceError(f"{service.url}/v1/incidents: {error}; an older service?") from error
        found += page.items
        if page.next is None or not page.items:
            return found, False
        after = page.next
    return found[:INCIDENTS_MAX], True


def tag_of(incident: str) -> str:
    """The tag by which an incident's annotation is found again.

    >>> tag_of("hang-20261116-0131")
    'incident:hang-20261116-0131'
    """
    return plain(f"{INCIDENT_TAG}{incident}")[:TAG_CHARS_MAX]


def mark_of(incident: IncidentSeen, service_url: str) -> Mark:
    start = incident.since_ns // NS_PER_MS
    is_open = incident.state == "open"
    end_ns = incident.until_ns or incident.last_seen_ns
    end = start if is_open else max(start, end_ns // NS_PER_MS)
    culprit = {key: incident.culprit.get(key) for key in CULPRIT}
    tags = [
        TAG,
        incident.cause,
        *(f"{key}:{value}" for key, value in culprit.items() if value not in {"", None}),
        tag_of(incident.id),
    ]
    link = f"{service_url}/v1/incidents/{quote(incident.id, safe='')}"
    lines = [html.escape(plain(text)) for text in (incident.summary, incident.action) if text]
    lines.append(f'<a href="{html.escape(link)}">incident {html.escape(incident.id)}</a>')
    return Mark(
        incident=incident.id,
        time=start,
        time_end=end,
        tags=tuple(dict.fromkeys(plain(tag)[:TAG_CHARS_MAX] for tag in tags)),
        text="\n".join(lines)[:TEXT_CHARS_MAX],
    )


def find_ours(grafana: Grafana, marks: Sequence[Mark]) -> dict[str, list[Mapping[str, Any]]]:
    """Annotations of ours by their incident's tag, those that these marks could be among them."""
    if not marks:
        return {}
    rows = look(
        grafana,
        [TAG],
        **{"from": min(mark.time for mark in marks)},
        to=max(mark.time_end for mark in marks) + 1,
        limit=LOOK_MAX,
    )
    found = by_incident(rows)
    for mark in marks:
        # Not among them: new, or its beginning has moved, or there are too many to see all.
        if tag_of(mark.incident) not in found:
            found |= by_incident(look(grafana, [TAG, tag_of(mark.incident)]))
    return found


def look(grafana: Grafana, tags: Sequence[str], **words: int) -> list[dict[str, Any]]:
    asked = urlencode({**words, "type": "annotation", "tags": tags}, doseq=True)
    rows = grafana.ask("look for annotations", lambda sdk: sdk.call("GET", f"/annotations?{asked}"))
    return objects(rows)


def by_incident(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Annotations by their incident's tag, of each the oldest first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: int(row.get("id") or 0)):
        for tag in row.get("tags") or []:
            if str(tag).startswith(INCIDENT_TAG):
                found.setdefault(str(tag), []).append(row)
    return found


def annotate(
    grafana: Grafana,
    service: Service,
    since_s: float,
    *,
    public_url: str = "",
    is_dry_run: bool = False,
) -> Marked:
    """Write the incidents since a time (unix seconds) to a Grafana. Once.

    ``public_url``: what people's browsers call the service, if that is another address.
    """
    incidents, is_cut = fetch_incidents(service, since_s)
    marks = [mark_of(incident, public_url or service.url) for incident in incidents]
    there = find_ours(grafana, marks)
    created, updated, kept, removed = [], [], 0, 0
    for mark in marks:
        rows = there.get(tag_of(mark.incident), [])
        if not rows:
            created.append(mark.incident)
            if not is_dry_run:
                create(grafana, mark)
        elif mark.is_like(rows[0]):
            kept += 1
        else:
            updated.append(mark.incident)
            if not is_dry_run:
                update(grafana, int(rows[0]["id"]), mark)
        for double in rows[1:]:
            # The answer to an earlier write was lost, and the incident was written again.
            removed += 1
            if not is_dry_run:
                remove(grafana, int(double["id"]))
    return Marked(created=created, updated=updated, kept=kept, removed=removed, is_cut=is_cut)


def create(grafana: Grafana, mark: Mark) -> None:
    """Make an annotation. Not repeated: if only the answer is lost, the next run finds it."""
    from grafana_api.model import AnnotationObject  # noqa: PLC0415 - only where it is installed

    made = AnnotationObject(mark.time, mark.time_end, list(mark.tags), mark.text)
    grafana.ask(
        f"annotate incident {mark.incident}",
        lambda sdk: sdk.annotations.create_annotation(made),
        may_repeat=False,
    )


def update(grafana: Grafana, number: int, mark: Mark) -> None:
    body = {"time": mark.time, "timeEnd": mark.time_end, "tags": mark.tags, "text": mark.text}
    grafana.ask(
        f"update annotation {number} of incident {mark.incident}",
        lambda sdk: sdk.call("PUT", f"/annotations/{number}", body),
    )


def remove(grafana: Grafana, number: int) -> None:
    """Remove an annotation that another one doubles; gone already is as good."""
    grafana.find(
        f"remove annotation {number}", lambda sdk: sdk.annotations.delete_annotation(number)
    )


def follow(
    run: Callable[[], Marked],
    report: Callable[[Marked | str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run periodically until interrupted; GrafanaError or ServiceError if it fails for long.

    Polls: the requests are small, and a stream that breaks would need them besides.
    """
    failures = 0
    while True:
        try:
            marked = run()
        except (GrafanaError, ServiceError) as error:
            failures += 1
            if failures > FAILURES_MAX:
                raise
            if failures == 1:
                report(str(error))
        else:
            if failures or not marked.is_quiet:
                report(marked)
            failures = 0
        sleep(FOLLOW_SECONDS)
