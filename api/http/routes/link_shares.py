"""`GET /v1/links/shares`: the jobs and flows that share a link."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.base.compare_limits import LINK_SECONDS_MAX, LINK_SHARES_WAITING_MAX
from api.base.errors import Problem
from api.base.limits import NAME_CHARS_MAX
from api.http.context import Parts
from api.http.routes.shared.answers import BUSY, answer, documented
from api.http.routes.shared.parameters import From, ToNow, moment_of, range_to_now
from api.http.routes.shared.topologies import find, link_named
from api.jobs.correlate.link_shares import LinkShares, link_shares
from collector.contract.units import NS_PER_MS

router = APIRouter(tags=["topology"])


@router.get(
    "/v1/links/shares",
    summary="Who shares a link: jobs and flows, with their shares",
    **documented(LinkShares, "Modelled bytes, spread evenly over equal ways.", others=BUSY),
)
async def shares(
    parts: Parts,
    link: Annotated[
        str,
        Query(
            min_length=1,
            max_length=2 * NAME_CHARS_MAX,
            description="Its id, or one of its ports (host/device/port, switch/port).",
        ),
    ],
    from_: From = None,
    to: ToNow = None,
) -> Response:
    """The jobs whose bytes can cross a cable in this time, and between which NICs they go."""
    from_ms, to_ms = range_to_now(parts, from_, to, is_shared=True)
    if to_ms - from_ms > LINK_SECONDS_MAX * 1000:
        why = f"{(to_ms - from_ms) / 1000:.0f} s, over LINK_SECONDS_MAX = {LINK_SECONDS_MAX}"
        raise Problem(422, "too long", why, rule="LINK_SECONDS_MAX")
    span_ns = from_ms * NS_PER_MS, to_ms * NS_PER_MS
    built = await find(parts, moment_of(span_ns[1]))
    wanted = link_named(built, link)
    made = await parts.queues.link_shares.take(
        lambda: link_shares(parts.store, parts.inventory, built, wanted, span_ns),
        "LINK_SHARES_WAITING_MAX",
        LINK_SHARES_WAITING_MAX,
        key=(str(wanted), span_ns),
    )
    return answer(made)
