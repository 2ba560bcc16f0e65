"""`/` and `/assets/…`: the built-in page, as `make page` built it.

Without a token: a user must first be able to open it, it holds nothing of the cluster,
and it asks for a token in the browser, which it sends with its requests. Where no page was
built, `/` leads to the interface's documentation.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from api.http.context import Parts
from api.http.page_files import ASSETS, INDEX, PACKED

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request, parts: Parts) -> Response:
    """The page; or, where there is none, what can be asked."""
    page = parts.page
    if page is None:
        return RedirectResponse("/docs")
    return page.respond(INDEX, request.headers)


@router.api_route("/assets/{name}", methods=["GET", "HEAD"])
async def asset(name: str, request: Request, parts: Parts) -> Response:
    """One of the page's files. The packed ones are no files of their own."""
    page = parts.page
    if page is None or name.endswith(PACKED):
        raise HTTPException(404)
    return page.respond(f"{ASSETS}/{name}", request.headers)
