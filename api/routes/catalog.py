"""`GET /v1/catalog`: what every metric means."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from collector.contract.catalog import load_catalog

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


class CatalogOut(BaseModel):
    """The whole catalog; it is small and changes with the release only."""

    items: list[MetricOut]


@router.get("/v1/catalog", summary="Every metric: meaning, unit, labels, aliases")
async def catalog() -> CatalogOut:
    """All metrics in the order of the catalog's files."""
    return CatalogOut(
        items=[
            MetricOut(
                name=metric.name,
                target=file.target.name,
                kind=metric.kind,
                unit=metric.unit,
                help=metric.help,
                labels=[*file.target.labels, *metric.labels],
                since=metric.since,
                aliases=[
                    AliasOut(exporter=alias.exporter, name=alias.name, factor=alias.factor)
                    for alias in metric.aliases
                ],
            )
            for file in load_catalog().files
            for metric in file.metrics
        ]
    )
