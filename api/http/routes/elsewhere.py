"""Paths that other processes answer: a process with a role of its own says which."""

from __future__ import annotations

from fastapi import APIRouter, Request

from api.base.errors import Problem
from api.http.context import context_of

router = APIRouter()


@router.api_route(
    "/{path:path}",
    methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
    include_in_schema=False,
)
async def elsewhere(request: Request, path: str) -> None:
    """Refuses by name what this process does not do."""
    parts = context_of(request.app)
    why = (
        f"/{path}: this process has the role {parts.settings.role}, it {parts.duties.describe()};"
        " ask one with another role"
    )
    raise Problem(404, "not here", why, rule="role")
