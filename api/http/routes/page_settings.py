"""`GET /v1/page`: what of the service's settings the built-in page goes by."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from api.http.context import Parts
from api.http.routes.shared.answers import answer, documented

router = APIRouter(tags=["health"])


class PageSettingsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator decided for the page."""

    perfetto_url: str | None
    """Where the page opens traces, in a tab of its own; null: nowhere."""


@router.get(
    "/v1/page",
    summary="What the page goes by",
    **documented(PageSettingsOut, "Settings of the service that change what the page offers."),
)
async def page_settings(parts: Parts) -> Response:
    """Nothing here is a secret."""
    return answer(PageSettingsOut(perfetto_url=parts.settings.perfetto_url or None))
