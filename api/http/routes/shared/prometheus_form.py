"""The parameters of Prometheus' HTTP API: from the address, from a form in the body, or from both.

The texts of the errors are Prometheus' own: users search for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs

import orjson
import promql_parser
from fastapi import APIRouter, Depends, Request, Response
from starlette.requests import ClientDisconnect

from api.base.errors import Problem
from api.base.limits import FORM_BYTES_MAX, FORM_FIELDS_MAX, QUERY_STEPS_MAX, SELECTORS_MAX
from api.base.times import TIME_MS_MAX, read_time_ms
from api.data.selectors import Selector, read_selector
from api.http.routes.shared.answers import JSON
from api.promql.errors import ErrorKind, QueryError, bad_data
from api.promql.parse import parse_text
from api.promql.render import envelope
from api.promql.values import Grid

FORM_TYPE = "application/x-www-form-urlencoded"

FAR_TIMES_MS = {
    "-292273086-05-16T16:47:06Z": -TIME_MS_MAX,
    "292277025-08-18T07:12:54.999999999Z": TIME_MS_MAX,
}
"""What Prometheus' clients send for "since ever" and "for ever": no parser of dates reads them."""

NANOSECONDS_MAX = (1 << 63) - 1
"""The longest duration that Prometheus knows: 292 years."""

_NANOSECONDS = {
    "y": 365 * 86_400_000_000_000,
    "w": 7 * 86_400_000_000_000,
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,19}}){unit})?" for unit in _NANOSECONDS))
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class Form:
    """The parameters by name, each with its values in order; those of the body come first."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        values = self._values.get(name)
        return values[0] if values else ""

    def texts(self, name: str) -> list[str]:
        return list(self._values.get(name, ()))

    def time_ms(self, name: str, default_ms: int | None) -> int | None:
        text = self.text(name)
        if not text:
            return default_ms
        try:
            return parse_moment_ms(text)
        except QueryError as error:
            raise invalid(name, f"invalid time value for '{name}': {error}") from error

    def range_ms(self) -> tuple[int | None, int | None]:
        return self.time_ms("start", None), self.time_ms("end", None)

    def duration_ns(self, name: str) -> int | None:
        """A duration that may be left out, in nanoseconds, as Prometheus counts."""
        text = self.text(name)
        if not text:
            return None
        try:
            return parse_duration_ns(text)
        except QueryError as error:
            raise invalid(name, str(error)) from error

    def limit(self) -> int:
        """`limit`; 0 means that there is none."""
        text = self.text("limit")
        if not text:
            return 0
        if not _INTEGER.fullmatch(text):
            raise invalid("limit", f'cannot parse "{text[:64]}" to a whole number')
        if int(text) < 0:
            raise invalid("limit", "limit must be non-negative")
        return int(text)

    def count(self, name: str, default: int) -> int:
        """A whole number, as the paths that ask about metadata read it."""
        text = self.text(name)
        if not text:
            return default
        if not _INTEGER.fullmatch(text):
            raise bad_data(f"{name} must be a number")
        return int(text)

    def selectors(self) -> list[Selector]:
        texts = self.texts("match[]")
        if len(texts) > SELECTORS_MAX:
            msg = f"{len(texts)} selectors; SELECTORS_MAX is {SELECTORS_MAX}"
            raise invalid("match[]", msg, rule="SELECTORS_MAX")
        return [parse_match(text) for text in texts]

    def grid(self) -> Grid:
        start_ms, end_ms = (self._required_time_ms(name) for name in ("start", "end"))
        if end_ms < start_ms:
            raise invalid("end", "end timestamp must not be before start time")
        step_ns = self.duration_ns("step")
        if step_ns is None:
            raise invalid("step", 'cannot parse "" to a valid duration')
        if step_ns <= 0:
            raise invalid(
                "step",
                "zero or negative query resolution step widths are not accepted. "
                "Try a positive integer",
            )
        if (end_ms - start_ms) * 1_000_000 // step_ns > QUERY_STEPS_MAX:
            raise bad_data(
                f"exceeded maximum resolution of {QUERY_STEPS_MAX:,} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)",
                rule="QUERY_STEPS_MAX",
            )
        step_ms = max(1, step_ns // 1_000_000)
        return Grid(start_ms, step_ms, (end_ms - start_ms) // step_ms + 1, end_ms)

    def _required_time_ms(self, name: str) -> int:
        try:
            return parse_moment_ms(self.text(name))
        except QueryError as error:
            raise invalid(name, str(error)) from error


def invalid(name: str, why: str, *, rule: str = "") -> QueryError:
    return bad_data(f'invalid parameter "{name}": {why}', rule=rule)


def parse_moment_ms(text: str) -> int:
    """Unix seconds, RFC 3339, or one of Prometheus' two ends of time.

    Moments past the year 9999 are refused, and so is NaN, which Prometheus takes for 1970.

    >>> parse_moment_ms("1.5"), parse_moment_ms("1970-01-01T00:00:02Z")
    (1500, 2000)
    """
    time_ms = FAR_TIMES_MS.get(text)
    if time_ms is None:
        time_ms = read_time_ms(text)
    if time_ms is None:
        raise bad_data(f'cannot parse "{text[:64]}" to a valid timestamp')
    return time_ms


def parse_duration_ns(text: str) -> int:
    """Seconds with decimals, or a duration of PromQL.

    `promql_parser.parse_duration` is not used: it reads 1ms as a microsecond, and a huge number
    ends in a panic.

    >>> parse_duration_ns("0.25"), parse_duration_ns("1h30m"), parse_duration_ns("5ms")
    (250000000, 5400000000000, 5000000)
    """
    try:
        nanoseconds = float(text) * 1e9
    except ValueError:
        found = _DURATION.fullmatch(text)
        if not text or found is None:
            raise bad_data(f'cannot parse "{text[:64]}" to a valid duration') from None
        units = {unit: int(count) for unit, count in found.groupdict().items() if count}
        nanoseconds = sum(count * _NANOSECONDS[unit] for unit, count in units.items())
    if not -NANOSECONDS_MAX <= nanoseconds <= NANOSECONDS_MAX:
        raise bad_data(f'cannot parse "{text[:64]}" to a valid duration. It overflows int64')
    return int(nanoseconds)


def parse_match(text: str) -> Selector:
    try:
        expression = parse_text(text)
        if not isinstance(expression, promql_parser.VectorSelector):
            raise invalid("match[]", 'parse error: write a selector, as up{job="node"}')
        if expression.offset is not None or expression.at is not None:
            raise invalid("match[]", "parse error: offset and @ have no meaning in a selector")
        return read_selector(expression)
    except QueryError as error:
        if "non-empty matcher" in str(error):
            why = "match[] must contain at least one non-empty matcher"
            raise invalid("match[]", why) from error
        raise
    except ValueError as error:
        raise invalid("match[]", f"parse error: {error}") from error


async def read_form(request: Request) -> Form:
    """Async, because FastAPI sends every other dependency through a thread."""
    values = parse_fields(request.scope["query_string"])
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and media_type == FORM_TYPE:
        of_body = parse_fields(await read_form_body(request))
        values = {
            name: [*of_body.get(name, ()), *values.get(name, ())] for name in {**of_body, **values}
        }
    return Form(values)


Parameters = Annotated[Form, Depends(read_form)]


def parse_fields(encoded: bytes) -> dict[str, list[str]]:
    """The fields of a form or an address; bytes that are no text become replacement characters."""
    try:
        return parse_qs(
            encoded.decode("utf-8", "replace"),
            keep_blank_values=True,
            max_num_fields=FORM_FIELDS_MAX,
        )
    except ValueError as error:
        msg = f"error parsing form values: {error}; FORM_FIELDS_MAX is {FORM_FIELDS_MAX}"
        raise bad_data(msg, rule="FORM_FIELDS_MAX") from error


async def read_form_body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                detail = f"the form has over {FORM_BYTES_MAX} bytes (FORM_BYTES_MAX)"
                raise Problem(413, "too large", detail, rule="FORM_BYTES_MAX")
    except ClientDisconnect as error:
        msg = f"the asker left after {len(body)} bytes"
        raise QueryError(ErrorKind.CANCELED, msg) from error
    return bytes(body)


# --- the document ------------------------------------------------------------------------------

MEANINGS = {
    "query": "PromQL.",
    "time": "The moment: unix seconds or RFC 3339; now by default.",
    "start": "The first moment: unix seconds or RFC 3339.",
    "end": "The last moment: unix seconds or RFC 3339.",
    "step": "From one moment to the next: seconds or a duration, as `30s`.",
    "timeout": "How long the query may take: seconds or a duration.",
    "lookback_delta": "How old a series' newest sample may be; 5m by default.",
    "stats": "`true` or `all`: also report how much was read and how long it took.",
    "limit": "How many series, names or values at most; 0 for no limit.",
    "match[]": "A selector; may be given several times.",
    "metric": "The one metric of interest.",
    "limit_per_metric": "How many entries for one metric at most.",
    "type": "`alert` or `record`: only rules of this kind.",
    "rule_name[]": "Only rules of this name; may be given several times.",
    "rule_group[]": "Only groups of this name; may be given several times.",
    "file[]": "Only groups of this file; may be given several times.",
    "exclude_alerts": "`true`: rules without their alerts.",
    "group_limit": "How many groups at most; `groupNextToken` is where the next page begins.",
    "group_next_token": "`groupNextToken` of the page before.",
}

Handler = TypeVar("Handler", bound=Callable[..., Any])


def endpoint(
    router: APIRouter, path: str, summary: str, *parameters: str, post: bool = False
) -> Callable[[Handler], Handler]:
    """Serve a path by GET, and by POST where Prometheus does, with its parameters in the document.

    FastAPI does not read them, since a form may repeat what stands in the address; it only shows
    them. Each method is a route of its own, so that each has its own name in the document.
    """
    shown = [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": MEANINGS[name],
            "schema": {"type": "array", "items": {"type": "string"}}
            if name.endswith("[]")
            else {"type": "string"},
        }
        for name in parameters
    ]

    def register(handler: Handler) -> Handler:
        for method in ("GET", "POST") if post else ("GET",):
            router.add_api_route(
                path,
                handler,
                methods=[method],
                summary=summary,
                response_class=Response,
                openapi_extra={"parameters": shown} if shown else None,
            )
        return handler

    return register


def success(data: object) -> Response:
    return Response(envelope(orjson.dumps(data)), media_type=JSON)
