"""Look-ups by a name in a request: the thing, or a 404 that suggests similar names."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse

from alerts.judge.incident import Incident
from api.base.errors import Problem
from api.base.limits import NAME_CHARS_MAX, PAGE_MAX
from api.data.inventory.records import Host, Job
from api.fabric.names import offer
from api.fleet.health.answers import Fleet
from api.http.context import Context


async def find_job(request: Request, parts: Context, name: str) -> Job | RedirectResponse:
    """The job of this name; for an alias, a redirect to its job. 404 if there is none."""
    found = await asyncio.to_thread(parts.inventory.jobs.get, name)
    if found is None:
        raise Problem(
            404, "no such job", f"no job named {name[:80]!r} was registered, sighted or inferred"
        )
    if found.alias_of is None:
        return found
    rest = request.url.path.removeprefix("/v1/jobs/").partition("/")[2]
    target = f"/v1/jobs/{quote(found.alias_of, safe='')}" + (f"/{rest}" if rest else "")
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(target + query, status_code=308)


def find_incident(parts: Context, name: str) -> Incident:
    """A 404 suggests similar ids."""
    found = parts.incidents.get(name) if len(name) <= NAME_CHARS_MAX else None
    if found is None:
        near = offer(name, [one.id for one in parts.incidents.list(limit=PAGE_MAX)])
        raise Problem(404, "no such incident", f"no incident is called {name[:80]!r}{near}")
    return found


def find_host(parts: Context, fleet: Fleet, name: str) -> Host:
    """A 404 suggests similar names."""
    found = parts.inventory.hosts.get(name) if len(name) <= NAME_CHARS_MAX else None
    if found is None:
        near = offer(name, fleet.hosts)
        raise Problem(
            404, "no such host", f"no sample of a host named {name[:80]!r} has arrived{near}"
        )
    return found
