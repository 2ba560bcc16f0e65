"""Answers that are structs of ours, and how the interface's document shows them."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Response

from api.jobs.registration import inline_schema

JSON = "application/json"


def answer(body: msgspec.Struct) -> Response:
    """The struct as JSON; what is no finite number is null."""
    return Response(msgspec.json.encode(body), media_type=JSON)


def documented(kind: type[msgspec.Struct], description: str) -> dict[int | str, dict[str, Any]]:
    """What FastAPI needs to describe an answer that it does not make itself."""
    content = {JSON: {"schema": inline_schema(kind)}}
    return {200: {"description": description, "content": content}}
