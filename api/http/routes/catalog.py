"""`GET /v1/catalog`: what every metric means. `GET /v1/causes`: what every cause means."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.http.routes.shared.answers import copied
from collector.contract.catalog import load_catalog
from collector.contract.cause_facts import Family, Layer
from collector.contract.causes import cause_table
from collector.contract.verdict import Cause, Reason

router = APIRouter(tags=["catalog"])


class AliasOut(BaseModel):
    """What another exporter calls the same thing."""

    exporter: str
    name: str
    factor: float = Field(description="Their number times this is ours.")


class MetricOut(BaseModel):
    """One metric of the catalog."""

    name: str
    target: str = Field(description="The kind of thing that is measured.")
    kind: str
    unit: str
    help: str
    labels: list[str]
    since: str
    aliases: list[AliasOut]
    writer: str = Field(
        description="`service`: only the service writes it, and what senders send is refused; "
        "or `any`."
    )
    window: str = Field(
        description="Detectors see it: `all`, or split by this label. Empty: they do not."
    )


class CatalogOut(BaseModel):
    """The whole catalog; it is small and changes with the release only."""

    items: list[MetricOut]


@router.get("/v1/catalog", summary="Every metric: meaning, unit, labels, aliases")
async def catalog() -> CatalogOut:
    """All metrics in the order of the catalog's files."""
    return CatalogOut(
        items=[
            copied(
                MetricOut,
                metric,
                target=file.target.name,
                labels=[*file.target.labels, *metric.labels],
                writer=load_catalog().writer_of(metric.name),
                aliases=[copied(AliasOut, alias) for alias in metric.aliases],
            )
            for file in load_catalog().files
            for metric in file.metrics
        ]
    )


class CauseOut(BaseModel):
    """One cause of verdicts and incidents."""

    name: Cause
    title: str
    meaning: str = Field(description="One sentence.")
    layer: Layer
    family: Family = Field(description="Causes that better evidence turns into each other.")
    spreads: bool = Field(description="Back-pressure carries it to other ports of the fabric.")
    needs: list[str] = Field(description="Data that shows it: any one of these.")
    runbook: str = Field(description="The page of `/runbooks/` about it.")
    runbooks: dict[str, str] = Field(
        description="By reason: the page about both together, before the reason's own."
    )
    colour: str = Field(description="A colour of the built-in page's style sheet.")
    drawn_by: str = Field(
        description="What it shows in on a drawing of the fabric: `errors`, `pause`; empty: load."
    )


class ReasonOut(BaseModel):
    """One reason that may lie behind a cause."""

    name: Reason
    title: str
    layer: Layer
    runbook: str = Field(description="The page of `/runbooks/` about it; empty: the cause's.")


class CausesOut(BaseModel):
    """All causes and reasons; they are few and change with the release only."""

    causes: list[CauseOut]
    reasons: list[ReasonOut]


@router.get("/v1/causes", summary="Every cause and reason of verdicts, in words")
async def causes() -> CausesOut:
    """The table of causes, as the page shows it. A later release may have more of them."""
    return CausesOut.model_validate(msgspec.to_builtins(cause_table()))
