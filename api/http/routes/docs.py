"""`/docs`: the HTTP interface as a page, made from the OpenAPI document on the server.

The usual viewers load their scripts from another server, which a cluster's network does
not reach; this page needs nothing but itself (`api.http.docs_page`).
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from api.http.docs_page import HEADERS, render_page

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def page(request: Request) -> HTMLResponse:
    """Every path with its parameters, answers and schemas."""
    return HTMLResponse(render_page(request.app.openapi()), headers=HEADERS)


@router.get("/openapi.json")
async def document(request: Request) -> JSONResponse:
    """The same for programs."""
    return JSONResponse(request.app.openapi())
