"""Answers that are structs of ours, and how the interface's document shows them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import Response
from pydantic import BaseModel

JSON = "application/json"
Made = TypeVar("Made", bound=msgspec.Struct | BaseModel)
Described = dict[int | str, dict[str, Any]]
CONFLICT: Described = {
    409: {"description": "Its state does not allow that, or a bound is reached: `rule` names it."}
}
"""For a route that changes something which may have changed, or of which there may be too many."""
BUSY: Described = {503: {"description": "Too many are being made; try again."}}
"""For a route whose answers are made in turn."""


def answer(body: msgspec.Struct) -> Response:
    """The struct as JSON; NaN and infinities are null."""
    return Response(msgspec.json.encode(body), media_type=JSON)


def copied(kind: type[Made], /, *sources: object, **given: object) -> Made:
    """An answer: each field that is not given is copied from the first source that has it."""
    names: Any = getattr(kind, "__struct_fields__", None) or getattr(kind, "model_fields", ())
    found = {
        name: getattr(next((each for each in sources if hasattr(each, name)), None), name)
        for name in names
        if name not in given
    }
    return kind(**found, **given)


def documented(
    kind: type[msgspec.Struct],
    description: str,
    *,
    status: int = 200,
    body: type[msgspec.Struct] | None = None,
    others: Described | None = None,
    schema: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Arguments of a route whose answer, and request, FastAPI describes but does not make.

    ``schema`` stands for the struct's own where that says too little. The errors that every such
    route may answer with are not listed here: `api.http.refusals` shows them.
    """
    content = {JSON: {"schema": schema or inline_schema(kind)}}
    responses = {status: {"description": description, "content": content}, **(others or {})}
    options = {"status_code": status, "response_class": Response, "responses": responses}
    return options | ({"openapi_extra": body_of(body)} if body is not None else {})


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
