"""Answers that are structs of ours, and how the interface's document shows them."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Response

JSON = "application/json"


def answer(body: msgspec.Struct) -> Response:
    """The struct as JSON; NaN and infinities are null."""
    return Response(msgspec.json.encode(body), media_type=JSON)


def documented(kind: type[msgspec.Struct], description: str) -> dict[int | str, dict[str, Any]]:
    """What FastAPI needs to describe an answer that it does not make itself."""
    content = {JSON: {"schema": inline_schema(kind)}}
    return {200: {"description": description, "content": content}}


def inline_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a body without references, for the interface's document."""
    whole = msgspec.json.schema(kind)
    definitions = whole.get("$defs", {})

    def resolved(part: object) -> object:
        match part:
            case {"$ref": str(reference)}:
                return resolved(definitions[reference.rpartition("/")[2]])
            case dict():
                return {key: resolved(value) for key, value in part.items()}
            case list():
                return [resolved(value) for value in part]
        return part

    schema = resolved({key: value for key, value in whole.items() if key != "$defs"})
    assert isinstance(schema, dict)
    return schema


def body_of(kind: type[msgspec.Struct], *, is_required: bool = True) -> dict[str, Any]:
    """The OpenAPI description of a JSON body, which is read under our own bounds."""
    content = {JSON: {"schema": inline_schema(kind)}}
    return {"requestBody": {"required": is_required, "content": content}}
