"""The files of the built-in page, as they are served: cached for ever, packed, with a policy.

They are answered from memory, by the event loop itself. A file that is read in a worker thread
takes several of them one after the other (look, open, read, close), each behind whatever the other
threads compute: while views were made for others, a script took a quarter of a second and more.
"""

from __future__ import annotations

import logging
import os
from email.utils import formatdate
from mimetypes import guess_type
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import NotModifiedResponse

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


KEPT_BYTES_MAX: Final = 32 << 20
"""Of files in memory: the page has about two megabytes, packed and not. Past it, after many
rebuilds under a running service, all are read again."""


class PageFiles:
    """Packed for clients that accept that. Looked at for each request: a page may be rebuilt."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._kept: dict[tuple[Path, int, int], bytes] = {}
        """By path, time of change and size."""
        for path in [*self._folder.glob("*"), *self._folder.glob(f"{ASSETS}/*")]:
            if path.is_file():
                self._read(path, path.stat())

    def respond(self, name: str, asked: Headers) -> Response:
        """The file, or the packed one beside it; or 304 if the client has it already.

        Raises HTTPException for what is no file of the page.
        """
        path, found = self._look_up(name)
        headers = {**HEADERS, "Cache-Control": FOR_EVER if is_asset(path) else ALWAYS_ASK}
        media_type = guess_type(path.name)[0] or "application/octet-stream"
        packed = packed_beside(path, found)
        if packed is not None and takes_gzip(asked.get("accept-encoding", "")):
            path, found = packed
            headers["Content-Encoding"] = "gzip"
        headers["ETag"] = tag = f'"{found.st_mtime_ns:x}-{found.st_size:x}"'
        headers["Last-Modified"] = formatdate(found.st_mtime, usegmt=True)
        answer = Response(self._read(path, found), headers=headers, media_type=media_type)
        known = [
            one.strip().removeprefix("W/") for one in asked.get("if-none-match", "").split(",")
        ]
        return NotModifiedResponse(answer.headers) if tag in known else answer

    def _look_up(self, name: str) -> tuple[Path, os.stat_result]:
        """The file of this name, below the folder and nowhere else."""
        try:
            path = (self._folder / name).resolve()
            if path.is_relative_to(self._folder) and path.is_file():
                return path, path.stat()
        except (OSError, ValueError) as error:
            raise HTTPException(404) from error
        raise HTTPException(404)

    def _read(self, path: Path, found: os.stat_result) -> bytes:
        key = (path, found.st_mtime_ns, found.st_size)
        content = self._kept.get(key)
        if content is None:
            content = path.read_bytes()
            if sum(map(len, self._kept.values())) + len(content) > KEPT_BYTES_MAX:
                self._kept.clear()
            self._kept[key] = content
        return content


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
        return PageFiles(folder)
    log.warning("no built-in page in %s: / leads to /docs; `make page` builds it", folder)
    return None
