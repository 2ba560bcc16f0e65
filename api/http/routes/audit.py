"""`GET /v1/audit`: settings of the fleet that cost bandwidth before anything breaks."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from api.base.errors import Problem
from api.base.limits import PAGE_DEFAULT
from api.fleet.audit.fleet_audit import Severity, check_names, choose
from api.http.context import Parts
from api.http.routes.shared.paging import After, Limit
from api.http.routes.shared.parameters import OfHost

router = APIRouter(tags=["audit"])


class EvidenceOut(BaseModel):
    """A setting that was read, and where."""

    device: str
    setting: str
    value: str
    origin: str = Field(description="A path below the root, or a command.")


class FindingOut(BaseModel):
    """One thing that costs bandwidth, with its evidence and its remedy."""

    check: str
    severity: Severity
    host: str = Field(description="Empty where hosts disagree and there is no majority.")
    device: str
    title: str
    read: list[EvidenceOut]
    expected: str
    why: str
    source: str = Field(description="The source of the expectation: a document, or the majority.")
    fix: str
    confidence: float = Field(description="How sure, from 0 to 1.")
    cost: str


class UnreadOut(BaseModel):
    """A setting that could not be read, and on how many hosts."""

    setting: str
    reason: str
    hosts: int


class AuditOut(BaseModel):
    """One page of the findings, the worst first, and the data of the audit."""

    at: dt.datetime
    hosts: int = Field(description="Hosts whose settings arrived within the last 20 minutes.")
    counts: dict[Severity, int] = Field(description="Findings that match, by severity.")
    left_out: int = Field(description="Findings beyond the bound of one audit.")
    unread: list[UnreadOut] = Field(description="What agents could not read, the commonest first.")
    not_judged: list[str] = Field(description="What could not be judged at all, and why.")
    items: list[FindingOut]
    next: str | None = Field(description="Pass it as `after` to get the next page.")


@router.get("/v1/audit", summary="Settings that cost bandwidth, over the whole fleet")
async def audit(
    parts: Parts,
    host: OfHost = None,
    severity: Annotated[Severity | None, Query(description="This severity and worse.")] = None,
    check: Annotated[str | None, Query(description="Only what this check found.")] = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> AuditOut:
    """Every finding, the worst first. Hosts are judged by the last read that their agents sent.

    Without an expectation (setting `audit_expectations`), a host is compared with the majority of
    the hosts with the same GPUs and NICs. An audit is kept for half a minute.
    """
    if check is not None and check not in check_names():
        known = ", ".join(check_names())
        raise Problem(400, "no such check", f"check={check[:60]!r}; there are {known}")
    start = parse_position(after)
    now = parts.now()
    report = await asyncio.to_thread(parts.audit.report, now)
    chosen = choose(report, host, severity, check)
    page = chosen[start : start + limit]
    is_last = start + limit >= len(chosen)
    return AuditOut(
        at=report.at,
        hosts=report.hosts,
        counts={level: sum(each.severity is level for each in chosen) for level in Severity},
        left_out=report.left_out,
        unread=[UnreadOut(**msgspec.structs.asdict(each)) for each in report.unread],
        not_judged=list(report.blind),
        items=[FindingOut(**msgspec.to_builtins(each)) for each in page],
        next=None if is_last else str(start + limit),
    )


def parse_position(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit()) or len(after) > 9:  # noqa: PLR2004 - findings have six
        raise Problem(400, "not a position", f"after={after[:40]!r}; pass `next` of a page")
    return int(after)
