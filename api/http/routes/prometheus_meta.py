"""Series, metadata of metrics, and what Prometheus' clients ask about a server.

Some paths are for features that this service lacks: it scrapes nothing. They answer with
empty lists in the right shape, which is the truth, and which clients understand better than an
error.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading

import msgspec
import orjson
from fastapi import APIRouter, Request, Response

from api.base.limits import QUERIES_MAX, QUERY_SAMPLES_MAX, QUERY_SECONDS_DEFAULT, SERIES_FOUND_MAX
from api.base.times import rfc3339
from api.base.version import VERSION
from api.http.context import Context, Parts
from api.http.routes.shared.answers import JSON
from api.http.routes.shared.prometheus_form import Form, Parameters, endpoint, success
from api.promql.engine import LOOKBACK_MS_DEFAULT
from api.promql.errors import bad_data
from api.promql.exposition import ALLOW_UTF8, MEDIA_TYPE, render_exposition
from api.promql.render import TRUNCATED, envelope
from api.promql.series_index import (
    Found,
    Scope,
    find_metadata,
    find_series,
    head_stats,
    label_names,
    label_values,
    newest_samples,
)
from collector.contract.catalog import load_catalog
from collector.contract.units import NS

router = APIRouter(tags=["prometheus"])

PROMETHEUS_VERSION = "3.5.0"
"""The version for clients: they choose by it what they send. This is the release whose rules the
engine follows; features that only later ones have are not promised."""

ESCAPED_PREFIX = "U__"
"""A label name in an address begins so when characters of it are written as their numbers."""
_CODE = re.compile(r"[0-9a-fA-F]{1,6}", re.ASCII)
_SURROGATES = range(0xD800, 0xE000)
"""Numbers that are no character's."""

HEAD_ENTRIES_DEFAULT = 10
HEAD_ENTRIES_MAX = 10_000


def listed(found: Found, *, as_json: bool = False, limit: int = 0) -> Response:
    """A list in the envelope, with a warning if it was cut. ``as_json``: the items are JSON."""
    data = f"[{','.join(found.items)}]".encode() if as_json else orjson.dumps(found.items)
    ours = "" if 0 < limit <= SERIES_FOUND_MAX else f" (SERIES_FOUND_MAX is {SERIES_FOUND_MAX})"
    warnings = [f"{TRUNCATED}{ours}"] if found.cut else []
    return Response(envelope(data, warnings), media_type=JSON)


# --- series and labels -------------------------------------------------------------------------


def scope_of(form: Form, parts: Context) -> Scope:
    start_ms, end_ms = form.range_ms()
    catalog = load_catalog() if parts.settings.promql_aliases else None
    return Scope(form.selectors(), start_ms, end_ms, catalog)


@endpoint(
    router, "/api/v1/labels", "Names of labels", "match[]", "start", "end", "limit", post=True
)
async def labels(parts: Parts, form: Parameters) -> Response:
    """All names of labels, in order."""
    limit, scope = form.limit(), scope_of(form, parts)
    found = await asyncio.to_thread(label_names, parts.store, scope, limit)
    return listed(found, limit=limit)


@endpoint(
    router, "/api/v1/label/{name}/values", "Values of a label", "match[]", "start", "end", "limit"
)
async def values(name: str, parts: Parts, form: Parameters) -> Response:
    """All values of one label, in order. Names of other characters may be escaped: `U__a_2e_b`."""
    label = unescape_name(name)
    if not label or "\ufffd" in label:
        raise bad_data(f"invalid label name: {json.dumps(label, ensure_ascii=False)}")
    limit, scope = form.limit(), scope_of(form, parts)
    found = await asyncio.to_thread(label_values, parts.store, label, scope, limit)
    return listed(found, limit=limit)


@endpoint(router, "/api/v1/series", "Series", "match[]", "start", "end", "limit", post=True)
async def series(parts: Parts, form: Parameters) -> Response:
    """The label sets of all series that match, in order; at least one selector is needed."""
    if not form.texts("match[]"):
        raise bad_data("no match[] parameter provided")
    limit, scope = form.limit(), scope_of(form, parts)
    found = await asyncio.to_thread(find_series, parts.store, scope, limit)
    return listed(found, as_json=True, limit=limit)


def unescape_name(name: str) -> str:
    """The label that an escaped name means; a name that is not properly escaped is kept.

    >>> unescape_name("U__a_2e_b__c"), unescape_name("job"), unescape_name("U__a_zz_")
    ('a.b_c', 'job', 'U__a_zz_')
    """
    if not name.startswith(ESCAPED_PREFIX):
        return name
    # Odd pieces stand between underscores: a code, or nothing for an underscore itself.
    pieces = name.removeprefix(ESCAPED_PREFIX).split("_")
    if len(pieces) % 2 == 0:
        return name
    for place in range(1, len(pieces), 2):
        code = pieces[place]
        if code and not _CODE.fullmatch(code):
            return name
        number = int(code, 16) if code else ord("_")
        if number > sys.maxunicode or number in _SURROGATES:
            return name
        pieces[place] = chr(number)
    return "".join(pieces)


@endpoint(router, "/api/v1/metadata", "Types and meanings", "metric", "limit", "limit_per_metric")
async def metadata(parts: Parts, form: Parameters) -> Response:
    """What metrics mean: ours from the catalog, others from their senders."""
    limit = form.count("limit", -1)
    form.count("limit_per_metric", -1)  # there is one entry for each
    metric = form.text("metric")
    found = await asyncio.to_thread(find_metadata, parts.store, metric, limit)
    return Response(envelope(msgspec.json.encode(found)), media_type=JSON)


@endpoint(router, "/federate", "Newest samples as text", "match[]")
async def federate(request: Request, parts: Parts, form: Parameters) -> Response:
    """The newest sample of each series that matches, for another Prometheus to scrape."""
    now_ms = round(parts.clock() * 1000)
    selectors = form.selectors()
    text = ""
    if selectors:
        newest = await asyncio.to_thread(
            newest_samples, parts.store, selectors, now_ms - LOOKBACK_MS_DEFAULT, now_ms
        )
        quote_names = ALLOW_UTF8 in request.headers.get("accept", "").replace(" ", "")
        text = await asyncio.to_thread(render_exposition, newest, quote_names=quote_names)
    return Response(text, media_type=MEDIA_TYPE)


# --- about the server --------------------------------------------------------------------------


@endpoint(router, "/api/v1/status/buildinfo", "Which server this is")
async def build_info() -> Response:
    """The Prometheus release that this service answers like, and its own release.

    Without `features`: Grafana would take the server for Mimir.
    """
    return success(
        {
            "version": PROMETHEUS_VERSION,
            "revision": "",
            "branch": "",
            "buildUser": "",
            "buildDate": "",
            "goVersion": "",
            "fabricscopeVersion": VERSION,
        }
    )


@endpoint(router, "/api/v1/status/runtimeinfo", "How the server runs")
async def runtime_info(parts: Parts) -> Response:
    """When the service started and how long it keeps samples."""
    started = rfc3339(int(parts.started_s) * NS)
    return success(
        {
            "startTime": started,
            "serverTime": rfc3339(int(parts.clock()) * NS),
            "CWD": "",
            "reloadConfigSuccess": True,
            "lastConfigTime": started,
            "corruptionCount": 0,
            "goroutineCount": threading.active_count(),
            "GOMAXPROCS": os.cpu_count() or 1,
            "GOMEMLIMIT": 0,
            "GOGC": "",
            "GODEBUG": "",
            "storageRetention": f"{parts.settings.retention_days.samples}d",
        }
    )


@endpoint(router, "/api/v1/status/flags", "Prometheus' flags")
async def flags(parts: Parts) -> Response:
    """Those of Prometheus' flags that have a meaning here."""
    return success(
        {
            "query.lookback-delta": f"{LOOKBACK_MS_DEFAULT // 1000}s",
            "query.max-concurrency": str(QUERIES_MAX),
            "query.max-samples": str(QUERY_SAMPLES_MAX),
            "query.timeout": f"{QUERY_SECONDS_DEFAULT:.0f}s",
            "storage.tsdb.retention.time": f"{parts.settings.retention_days.samples}d",
            "web.enable-remote-write-receiver": "true",
        }
    )


@endpoint(router, "/api/v1/status/config", "Prometheus' configuration")
async def config() -> Response:
    """A configuration without anything to scrape."""
    return success({"yaml": "global: {}\n"})


@endpoint(router, "/api/v1/status/tsdb", "Where series come from", "limit")
async def tsdb(parts: Parts, form: Parameters) -> Response:
    """Metrics, labels and values with the most series on the newest day: where cardinality is."""
    limit = form.count("limit", HEAD_ENTRIES_DEFAULT)
    if not 0 < limit <= HEAD_ENTRIES_MAX:
        raise bad_data(f"limit must be a positive number, {HEAD_ENTRIES_MAX} at most")
    return success(await asyncio.to_thread(head_stats, parts.store, limit))


# --- what this service does not do -------------------------------------------------------------


@endpoint(router, "/api/v1/alertmanagers", "Alertmanagers")
async def alertmanagers(parts: Parts) -> Response:
    """The configured Alertmanagers; the service's own metrics show how each is."""
    active = [{"url": sender.url} for sender in parts.notifying.senders]
    return success({"activeAlertmanagers": active, "droppedAlertmanagers": []})


@endpoint(router, "/api/v1/targets", "Targets")
async def targets() -> Response:
    """None: the service scrapes nothing, samples are sent to it."""
    return success({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}})


@endpoint(router, "/api/v1/targets/metadata", "Metadata by target")
async def targets_metadata() -> Response:
    """None: the service scrapes nothing, samples are sent to it."""
    return success([])
