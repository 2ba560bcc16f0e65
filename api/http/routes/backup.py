"""`GET /v1/backup`: store and inventory as one archive, made while the service runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.base.operating_limits import BACKUPS_MAX
from api.data.backup.archive import write_archive
from api.data.backup.begin import begun
from api.http.context import Parts
from api.http.routes.shared.answers import BUSY
from api.http.routes.shared.exports import stream
from api.http.tokens.guard import signed
from api.http.turns import refusals_counted

router = APIRouter(tags=["service"])
log = logging.getLogger(__name__)

BACKUP = "backup"
TAR = "application/x-tar"
BYTES_HEADER = "X-Fabricscope-Bytes"
"""About how long the archive is: it is made while it is sent."""


class BackupResponse(StreamingResponse):
    """A stream that holds frozen parts until it is over, however it ends."""

    def __init__(
        self, content: AsyncIterator[bytes], held: contextlib.ExitStack, headers: dict[str, str]
    ) -> None:
        super().__init__(content, media_type=TAR, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # In a thread: a large store has ten thousands of links to remove.
            await asyncio.shield(asyncio.to_thread(self._held.close))


@router.get(
    "/v1/backup",
    summary="Store and inventory, as they are now",
    response_class=Response,
    responses={
        200: {
            "description": "A tar archive for `fabricscope restore`. `manifest.json` stands last: "
            "an archive without it was cut off.",
            "content": {TAR: {"schema": {"type": "string", "format": "binary"}}},
        },
        **BUSY,
    },
)
async def backup(request: Request, parts: Parts) -> Response:
    """Everything that was acknowledged before is in it, and writing goes on meanwhile.

    It holds the digests of tokens and the key of links in notices: keep it as you keep those. Of a
    store on a ClickHouse server it has the inventory alone; the server backs up its own tables.
    """
    with refusals_counted(parts.metrics, BACKUP), contextlib.ExitStack() as held:
        held.enter_context(parts.queues.backups.hold("BACKUPS_MAX", BACKUPS_MAX))
        beginning = begun(parts.store, parts.settings.inventory_url, parts.now())
        contents = await asyncio.to_thread(held.enter_context, beginning)
        size = await asyncio.to_thread(lambda: contents.bytes)
        kept = held.pop_all()
    log.info("backup: %d MiB are sent to %s", size >> 20, signed(request, "an operator"))
    name = f"fabricscope-{contents.made_at:%Y%m%dT%H%M%SZ}.tar"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        BYTES_HEADER: str(size),
    }
    return BackupResponse(stream(write_archive(contents)), kept, headers)
