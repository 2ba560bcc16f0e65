"""`DELETE /v1/hosts/{host}`: a host that is gone for good leaves the inventory."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from api.base.errors import Problem
from api.base.limits import NAME_CHARS_MAX
from api.base.operating_limits import HOST_QUIET_SECONDS
from api.data.ingest.commit import event_rows
from api.data.inventory.health import unix_ns
from api.http.context import Context, Parts
from api.http.routes.shared.answers import CONFLICT, answer, documented
from api.http.routes.shared.find import find_host
from api.http.tokens.guard import signed
from collector.contract.identity import printable
from collector.contract.model import Event

router = APIRouter(tags=["inventory"])
log = logging.getLogger(__name__)

REMOVED = "host_removed"
"""The kind of the event that records it (`/v1/events`)."""


class HostRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """The host that was removed."""

    host: str
    last_seen: dt.datetime
    by: str


@router.delete(
    "/v1/hosts/{host}",
    summary="Remove a host that is gone",
    **documented(HostRemoved, "It is removed.", others=CONFLICT),
)
async def remove_host(
    host: str,
    request: Request,
    parts: Parts,
    by: Annotated[
        str, Query(min_length=1, max_length=NAME_CHARS_MAX, description="Who removes it.")
    ],
) -> Response:
    """With its devices, ports, cables and what holds it; also a switch.

    Samples, records, incidents, jobs and past actions stay as long as they are kept. An event
    `host_removed` records it. A host that still sends is refused: its next batch would bring it
    back.
    """
    fleet = await parts.health.fleet()
    found = await asyncio.to_thread(find_host, parts, fleet, host)
    now = parts.now()
    quiet_s = (now - found.last_seen).total_seconds()
    if quiet_s < HOST_QUIET_SECONDS:
        why = (
            f"{host[:80]!r} was seen {quiet_s:.0f} s ago; stop its agent or exporter, and wait "
            f"HOST_QUIET_SECONDS = {HOST_QUIET_SECONDS:g} s"
        )
        raise Problem(409, "it still sends", why, rule="HOST_QUIET_SECONDS")
    who = signed(request, by)
    await asyncio.to_thread(remove, parts, found.host, who, now)
    parts.health.poke()
    log.info("host %s was removed by %s", printable(found.host), who)
    return answer(HostRemoved(host=found.host, last_seen=found.last_seen, by=who))


def remove(parts: Context, host: str, who: str, now: dt.datetime) -> None:
    """The record first: what cannot be recorded is not done."""
    event = Event(
        kind=REMOVED,
        time_ns=unix_ns(now),
        labels={"host": host},
        message=f"{host} was removed from the inventory by {who}",
        attributes={"by": who},
    )
    parts.store.insert_arrow("events", event_rows([event]))
    parts.inventory.actions.give_back(host, who, "the host was removed", now)
    parts.inventory.hosts.remove(host)
