"""`/v1/configurations/{version}/document`: what an agent fetches once, when a receipt names it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Response

from api.base.errors import Problem
from api.data.inventory.rollout_model import Configuration
from api.http.context import Context, Parts
from collector.contract.rollout import VERSION_MAX

router = APIRouter(tags=["configurations"])

TOML_TYPE = "application/toml"
VersionNumber = Annotated[int, Path(ge=1, le=VERSION_MAX, description="Of the configuration.")]


@router.get(
    "/v1/configurations/{version}/document",
    summary="The document of a configuration",
    response_class=Response,
    responses={
        200: {
            "description": "The bytes as they were pushed.",
            "content": {TOML_TYPE: {"schema": {"type": "string"}}},
        }
    },
)
async def document(version: VersionNumber, parts: Parts) -> Response:
    """For agents, with their own token: there is nothing in it that one host may not know."""
    found = await asyncio.to_thread(find_configuration, parts, version)
    return Response(found.document, media_type=TOML_TYPE)


def find_configuration(parts: Context, version: int) -> Configuration:
    found = parts.inventory.rollouts.get(version)
    if found is None:
        raise Problem(404, "no such configuration", f"there is no configuration {version}")
    return found
