"""Look-ups by a name in a request: the thing, or a 404 that suggests similar names."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request

from alerts.judge.incident import Incident
from api.base.errors import Problem
from api.base.limits import NAME_CHARS_MAX, PAGE_MAX
from api.data.inventory.records import Host, Job
from api.fabric.names import offer, offered, similar
from api.fleet.health.answers import Fleet
from api.http.context import Context, Parts

TIME_OF_ID = re.compile(r"^\d{8}-\d{6}-")
"""What an incident's id begins with (`alerts.judge.names.name_incident`)."""


async def find_job(job: str, request: Request, parts: Parts) -> Job:
    """The job of a path. Raises Problem: 404 if there is none, 308 to an alias' own job."""
    found = await asyncio.to_thread(parts.inventory.jobs.get, job)
    if found is None:
        near = await asyncio.to_thread(near_jobs, parts, job)
        why = f"no job named {job[:80]!r} was registered, sighted or inferred{near}"
        raise Problem(404, "no such job", why)
    if found.alias_of is None:
        return found
    rest = request.url.path.removeprefix("/v1/jobs/").partition("/")[2]
    target = f"/v1/jobs/{quote(found.alias_of, safe='')}" + (f"/{rest}" if rest else "")
    query = f"?{request.url.query}" if request.url.query else ""
    why = f"job {job[:80]!r} turned out to be {found.alias_of[:80]!r}"
    raise Problem(308, "another job", why, headers={"Location": target + query})


FoundJob = Annotated[Job, Depends(find_job)]


def no_such(kind: str, name: str, near: str = "") -> Problem:
    return Problem(404, f"no such {kind}", f"no {kind} is called {name[:80]!r}{near}")


def find_job_name(parts: Context, name: str) -> str:
    """The job of a name or an alias; a 404 suggests similar names."""
    found = parts.inventory.jobs.get(name)
    if found is None:
        raise no_such("job", name, near_jobs(parts, name))
    return found.alias_of or found.job


def near_jobs(parts: Context, name: str) -> str:
    return offer(name, [job.job for job in parts.inventory.jobs.page(limit=PAGE_MAX)])


def find_incident(parts: Context, name: str) -> Incident:
    """A 404 suggests similar ids."""
    found = parts.incidents.get(name) if len(name) <= NAME_CHARS_MAX else None
    if found is None:
        ids = [one.id for one in parts.incidents.list(limit=PAGE_MAX)]
        raise no_such("incident", name, offered(near_incidents(name, ids)))
    return found


def near_incidents(name: str, ids: Sequence[str]) -> list[str]:
    """By their words, which are said on the telephone; by the time alone all of a day are alike."""
    by_words = {TIME_OF_ID.sub("", one): one for one in reversed(ids)}
    return [by_words[words] for words in similar(TIME_OF_ID.sub("", name), by_words)]


def find_host(parts: Context, fleet: Fleet | None, name: str) -> Host:
    """A 404 suggests similar names."""
    found = parts.inventory.hosts.get(name) if len(name) <= NAME_CHARS_MAX else None
    if found is None:
        near = offer(name, fleet.hosts) if fleet is not None else ""
        why = f"no sample of a host named {name[:80]!r} has arrived{near}"
        raise Problem(404, "no such host", why)
    return found
