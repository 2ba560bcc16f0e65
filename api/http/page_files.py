"""The files of the built-in page, as they are served: cached for ever, packed, with a policy."""

from __future__ import annotations

import logging
import os
from mimetypes import guess_type
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from api.base.packing import takes_gzip
from dashboards import PAGE

log = logging.getLogger(__name__)
FOLDER: Final = PAGE
INDEX: Final = "index.html"
ASSETS: Final = "assets"
PACKED: Final = ".gz"
POLICY: Final = (
    "default-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    # CodeMirror writes its rules into a style element. Attributes that hold styles stay forbidden:
    # scripts set styles through the object model, which no policy concerns.
    "style-src 'self'; style-src-elem 'self' 'unsafe-inline'; style-src-attr 'none'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Addresses of the page name hosts and jobs; linked sites need not learn them.
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}
ALWAYS_ASK: Final = "no-cache"
"""The page names its assets, so that it must be the newest."""
FOR_EVER: Final = "public, max-age=31536000, immutable"
"""An asset has a hash of its content in its name: another content is another name."""


class PageFiles(StaticFiles):
    """Packed for clients that accept that; read for each request: a page may be rebuilt."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """The file, or the packed one beside it; or 304 if the client has it already."""
        path = Path(full_path)
        headers = {**HEADERS, "Cache-Control": FOR_EVER if is_asset(path) else ALWAYS_ASK}
        asked = Headers(scope=scope)
        media_type = guess_type(path.name)[0] or "application/octet-stream"
        packed = packed_beside(path, stat_result)
        if packed is not None and takes_gzip(asked.get("accept-encoding", "")):
            path, stat_result = packed
            headers["Content-Encoding"] = "gzip"
        answer = FileResponse(
            path, status_code, headers, media_type=media_type, stat_result=stat_result
        )
        if self.is_not_modified(answer.headers, asked):
            return NotModifiedResponse(answer.headers)
        return answer


def is_asset(path: Path) -> bool:
    return path.parent.name == ASSETS


def packed_beside(path: Path, plain: os.stat_result) -> tuple[Path, os.stat_result] | None:
    """The packed file, unless it is older: then the page was rebuilt without packing it."""
    packed = path.with_name(path.name + PACKED)
    try:
        found = packed.stat()
    except OSError:
        return None
    return (packed, found) if found.st_mtime_ns >= plain.st_mtime_ns else None


def find_page(folder: Path) -> PageFiles | None:
    """The page in this folder. Logs once, at the start, if there is none."""
    if (folder / INDEX).is_file():
        return PageFiles(directory=folder)
    log.warning("no built-in page in %s: / leads to /docs; `make page` builds it", folder)
    return None
