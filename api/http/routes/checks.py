"""`POST /v1/hosts/{host}/check`: a run of nccl-tests on a host that is held, against a floor."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from alerts.policy.action import Checked, checked
from api.base.errors import Problem
from api.base.limits import CHECK_BYTES_MAX, NAME_CHARS_MAX
from api.data.inventory.health import unix_ns
from api.fleet.actions.check import CheckResult, Outcome, Row, judge_result
from api.http.context import Context, Parts
from api.http.routes.shared.answers import answer, copied, documented
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.find import find_host
from api.http.tokens.guard import signed
from api.jobs.correlate.baseline import read_baselines
from collector.contract.errors import ParseError

router = APIRouter(tags=["actions"])


class CheckOut(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check."""

    host: str
    result: CheckResult
    words: str
    rows: Sequence[Row]
    wrong_values: int
    action: str
    """The action that it was recorded with; the policy's next round may end it. Empty: none
    stands."""


@router.post(
    "/v1/hosts/{host}/check",
    summary="Hold a result of nccl-tests against a floor",
    **documented(CheckOut, "What it came to."),
    openapi_extra={
        "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
async def check(
    host: str,
    request: Request,
    parts: Parts,
    by: Annotated[str, Query(min_length=1, max_length=NAME_CHARS_MAX, description="Who ran it.")],
) -> Response:
    """The body is what `all_reduce_perf` and its like print, text or JSON (`-J`).

    A result that passes returns a host whose rule has `return_on = ["check"]`; with an operator's
    hold it is only recorded. The floor is the policy's, or a share of the best that the same test
    reached.
    """
    fleet = await parts.health.fleet()
    found = await asyncio.to_thread(find_host, parts, fleet, host)
    body = await receive(request, parts)
    if len(body) > CHECK_BYTES_MAX:
        why = f"{len(body)} bytes; CHECK_BYTES_MAX is {CHECK_BYTES_MAX}"
        raise Problem(413, "too large", why, rule="CHECK_BYTES_MAX")
    floors = parts.acting.file.policy.check
    try:
        outcome = await asyncio.to_thread(
            lambda: judge_result(body, found.host, floors, read_baselines(parts.store))
        )
    except ParseError as error:
        raise Problem(422, "not a result of nccl-tests", str(error)) from error
    now = parts.now()
    action = await asyncio.to_thread(note, parts, found.host, outcome, signed(request, by), now)
    return answer(copied(CheckOut, outcome, host=found.host, action=action))


def note(parts: Context, host: str, outcome: Outcome, by: str, now: dt.datetime) -> str:
    """Record it with what holds the host; the action's id, empty if nothing does."""
    passed = outcome.result is CheckResult.PASSED
    result = Checked(
        time_ns=unix_ns(now), passed=passed, words=f"{outcome.result}: {outcome.words}"
    )
    for each in parts.inventory.actions.standing():
        if each.host == host and each.stands(unix_ns(now)):
            parts.inventory.actions.change(each.id, lambda found: checked(found, result, by), now)
            return each.id
    return ""
