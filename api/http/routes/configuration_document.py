"""`/v1/configurations/{version}/document`: what an agent fetches once, when a receipt names it."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from api.http.context import Parts
from api.http.routes.shared.configurations import VersionNumber, find_configuration

router = APIRouter(tags=["configurations"])

TOML_TYPE = "application/toml"


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
