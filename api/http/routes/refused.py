"""`/v1/refused`: what the service refused or left out lately, and whose it was."""

from __future__ import annotations

import datetime as dt

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.base.limits import ODDITIES_MAX
from api.base.quarantine import Oddity
from api.http.context import Parts

router = APIRouter(tags=["health"])


class OddityOut(BaseModel):
    """Things of one kind that were refused or left out since this process started."""

    road: str = Field(description="The protocol that brought it, or the part that read it.")
    reason: str = Field(description="The rule that it breaks.")
    sender: str = Field(
        description="The token's name or the address; empty: the store does not keep it."
    )
    count: int
    examples: list[str] = Field(description="The latest last; what cannot be printed is escaped.")
    first_at: dt.datetime
    last_at: dt.datetime

    @classmethod
    def of(cls, oddity: Oddity) -> OddityOut:
        return cls(
            road=oddity.road,
            reason=oddity.reason,
            sender=oddity.sender,
            count=oddity.count,
            examples=list(oddity.examples),
            first_at=dt.datetime.fromtimestamp(oddity.first_s, tz=dt.UTC),
            last_at=dt.datetime.fromtimestamp(oddity.last_s, tz=dt.UTC),
        )


class RefusedOut(BaseModel):
    """What this process remembers of odd things, the latest first."""

    refused: list[OddityOut] = Field(description="Refused at the door: it is not stored.")
    quarantined: list[OddityOut] = Field(
        description="Stored, and left out by what reads it: it is in no window and no topology."
    )
    at_most: int = Field(
        description="Kinds that are remembered in each list; older ones are forgotten."
    )


@router.get("/v1/refused", summary="What was refused or left out lately")
async def refused(parts: Parts) -> RefusedOut:
    """Odd things by road, rule and sender, with examples: to find the sender and mend it.

    Each process remembers its own, since its start. The counters over all time are
    `fabric_service_refused_total` and `fabric_service_quarantined_total`.
    """
    return RefusedOut(
        refused=[OddityOut.of(each) for each in parts.ingest.refusals.latest()],
        quarantined=[OddityOut.of(each) for each in parts.store.quarantine.latest()],
        at_most=ODDITIES_MAX,
    )
