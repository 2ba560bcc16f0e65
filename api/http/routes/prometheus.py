"""PromQL over HTTP, as Prometheus serves it: `/api/v1/query` and related paths.

Paths, parameters, answers and the texts of errors are Prometheus', so that Grafana, promtool and
every other client of it work with this service as they are. The paths that are about series and
about the service itself are in `api.http.routes.prometheus_meta`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson
from fastapi import APIRouter, Request, Response

from api.data.selectors import Selector
from api.http.context import Context, Parts
from api.http.routes.shared.answers import JSON
from api.http.routes.shared.prometheus_form import Form, Parameters, endpoint, invalid
from api.http.tokens.guard import caller_of
from api.promql.engine import Answer, Question
from api.promql.errors import ErrorKind, QueryError, bad_data
from api.promql.parse import parse_query, parse_text
from api.promql.plan import Node, Select
from api.promql.render import (
    encode_labels,
    envelope,
    format_time,
    format_value,
    render_answer,
    render_result,
)
from api.promql.series_index import Exemplar, Scope, find_exemplars
from api.promql.tree_json import tree_of
from api.promql.values import Grid, Labels

router = APIRouter(tags=["prometheus"])


@endpoint(
    router,
    "/api/v1/query",
    "PromQL at one moment",
    *("query", "time", "timeout", "lookback_delta", "limit", "stats"),
    post=True,
)
async def query(request: Request, parts: Parts, form: Parameters) -> Response:
    """A vector, a scalar, a string, or the raw samples of a range selector."""
    time_ms = form.time_ms("time", None)
    now_ms = round(parts.clock() * 1000)
    grid = Grid(now_ms if time_ms is None else time_ms, 1, 1)
    return await answer_query(request, parts, form, grid, is_range=False)


@endpoint(
    router,
    "/api/v1/query_range",
    "PromQL over a range of time",
    *("query", "start", "end", "step", "timeout", "lookback_delta", "limit", "stats"),
    post=True,
)
async def query_range(request: Request, parts: Parts, form: Parameters) -> Response:
    """A matrix: every series with its value at every step where it has one."""
    return await answer_query(request, parts, form, form.grid(), is_range=True)


async def answer_query(
    request: Request, parts: Context, form: Form, grid: Grid, *, is_range: bool
) -> Response:
    limit = form.limit()
    timeout_ns = form.duration_ns("timeout")
    lookback_ns = form.duration_ns("lookback_delta")
    question = Question(
        text=form.text("query"),
        grid=grid,
        is_range=is_range,
        lookback_ms=None if lookback_ns is None else lookback_ns // 1_000_000,
        timeout_s=None if timeout_ns is None else timeout_ns / 1e9,
    )
    with_stats = bool(form.text("stats"))
    body = await ask_engine(
        request,
        parts,
        question,
        lambda answer: write_answer(answer, is_range=is_range, limit=limit, with_stats=with_stats),
    )
    return Response(body, media_type=JSON)


async def ask_engine(
    request: Request, parts: Context, question: Question, write: Callable[[Answer], bytes]
) -> bytes:
    """The one place where routes call the engine; returns the written answer."""
    try:
        with parts.tenants.asking(caller_of(request).name) as charge:

            def finish(answer: Answer) -> bytes:
                charge(answer.samples)
                return write(answer)

            return await parts.gate.run(request, question, finish)
    except QueryError as error:
        if error.kind is ErrorKind.BAD_DATA:
            raise invalid("query", str(error), rule=error.rule) from error
        raise


def write_answer(answer: Answer, *, is_range: bool, limit: int, with_stats: bool) -> bytes:
    result, cut = render_result(
        answer.value, answer.grid, is_range=is_range, ordered=answer.ordered, limit=limit
    )
    stats = write_stats(answer) if with_stats else b""
    return render_answer(result, answer.notes, cut=cut, stats=stats)


def write_stats(answer: Answer) -> bytes:
    """Reading and evaluating go hand in hand: preparation and sorting are one."""
    return orjson.dumps(
        {
            "timings": {
                "evalTotalTime": answer.seconds,
                "resultSortTime": 0,
                "queryPreparationTime": 0,
                "innerEvalTime": answer.seconds,
                "execQueueTime": answer.waited_seconds,
                "execTotalTime": answer.seconds + answer.waited_seconds,
            },
            "samples": {
                "totalQueryableSamples": answer.samples,
                "peakSamples": answer.peak_samples,
            },
        }
    )


# --- about the text itself ---------------------------------------------------------------------


@endpoint(router, "/api/v1/format_query", "PromQL, laid out", "query", post=True)
async def format_query(form: Parameters) -> Response:
    """The same query as Prometheus' formatter would write it."""
    plan_of(form)  # refuses what the engine would not understand
    text: str = parse_text(form.text("query")).prettify()
    return Response(envelope(orjson.dumps(text)), media_type=JSON)


@endpoint(router, "/api/v1/parse_query", "PromQL as a tree", "query", post=True)
async def parse(form: Parameters) -> Response:
    """The query's parts as JSON, for editors and user interfaces."""
    return Response(envelope(orjson.dumps(tree_of(plan_of(form)))), media_type=JSON)


def plan_of(form: Form) -> Node:
    try:
        return parse_query(form.text("query"))
    except QueryError as error:
        raise invalid("query", str(error), rule=error.rule) from error


# --- exemplars ---------------------------------------------------------------------------------


@endpoint(
    router,
    "/api/v1/query_exemplars",
    "Exemplars of the series in a query",
    *("query", "start", "end"),
    post=True,
)
async def query_exemplars(parts: Parts, form: Parameters) -> Response:
    """Samples with the labels of a trace, for every selector in the query."""
    start_ms, end_ms = form.range_ms()
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise bad_data("end timestamp must not be before start timestamp")
    selectors = selectors_in(plan_of(form))
    found = []
    if selectors:
        scope = Scope(selectors, start_ms, end_ms)
        found = await asyncio.to_thread(find_exemplars, parts.store, scope)
    body = b",".join(encode_exemplars(labels, own) for labels, own in found)
    return Response(envelope(b"[%b]" % body), media_type=JSON)


def selectors_in(plan: Node) -> list[Selector]:
    """Nodes are structs, so that all their fields can be visited."""
    waiting: list[object] = [plan]
    found: dict[Selector, None] = {}
    while waiting:
        match waiting.pop():
            case Select(selector=selector):
                found[selector] = None
            case tuple() as several:
                waiting.extend(several)
            case Node() as node:
                waiting.extend(getattr(node, field) for field in node.__struct_fields__)
    return list(found)


def encode_exemplars(labels: Labels, exemplars: list[Exemplar]) -> bytes:
    points = b",".join(
        b'{"labels":%b,"value":"%b","timestamp":%b}'
        % (
            encode_labels(exemplar.labels),
            format_value(exemplar.value).encode(),
            format_time(exemplar.time_ms).encode(),
        )
        for exemplar in exemplars
    )
    return b'{"seriesLabels":%b,"exemplars":[%b]}' % (encode_labels(labels), points)
