"""`/docs`: the HTTP interface as a page, made from the OpenAPI document on the server.

The usual viewers load their scripts from another server, which a cluster's network does
not reach; this page needs nothing but itself.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from api.http.boundary import PROBLEM_TYPE, REMOTE_WRITE_PATH, speaks_prometheus

router = APIRouter(include_in_schema=False)

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #0a7d5a; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0 } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line) }
article { border: 1px solid var(--line); border-radius: 8px; margin: 1rem 0; padding: .8rem 1rem }
article > header { display: flex; gap: .8rem; align-items: baseline; flex-wrap: wrap }
.method { font-weight: 700; color: var(--accent); min-width: 3.2rem }
code, .path { font-family: ui-monospace, monospace; font-size: .95em }
.path { font-weight: 600 } .quiet { opacity: .75 }
table { border-collapse: collapse; width: 100%; margin-top: .6rem }
th { width: 12rem } th:nth-child(2) { width: 5rem } th:last-child { width: auto }
td, th { text-align: left; padding: .25rem .6rem .25rem 0; border-top: 1px solid var(--soft);
  vertical-align: top }
p { white-space: pre-line; margin: .5rem 0 }
"""


@router.get("/docs")
async def page(request: Request) -> HTMLResponse:
    """Every path with its parameters and answers."""
    return HTMLResponse(render_page(request.app.openapi()))


@router.get("/openapi.json")
async def document(request: Request) -> JSONResponse:
    """The same for programs."""
    return JSONResponse(request.app.openapi())


def render_page(document: dict[str, Any]) -> str:
    info = document["info"]
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            group = (operation.get("tags") or ["other"])[0]
            groups.setdefault(group, []).append(render_operation(method, path, operation))
    body = "".join(f"<h2>{escape(name)}</h2>{''.join(group)}" for name, group in groups.items())
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta name=viewport content='width=device-width'>"
        f"<title>{escape(info['title'])} {escape(info['version'])}: HTTP interface</title>"
        f"<style>{_STYLE}</style><body><h1>{escape(info['title'])}</h1>"
        f"<p class=quiet>{escape(info.get('summary', ''))} Version {escape(info['version'])}. "
        f"The same for programs: <a href=openapi.json>openapi.json</a></p>{body}</body></html>"
    )


def render_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    link = f"<a href='{escape(path)}'>open</a>" if method == "get" and "{" not in path else ""
    return (
        f"<article><header><span class=method>{escape(method.upper())}</span>"
        f"<span class=path>{escape(path)}</span>{scope_of(operation)}"
        f"<span class=quiet>{escape(operation.get('summary', ''))}</span>{link}</header>"
        f"<p>{prose(operation.get('description', ''))}</p>"
        f"{render_parameters(operation.get('parameters', []))}"
        f"<p class=quiet>Answers: {escape(', '.join(sorted(operation['responses'])))}; "
        f"errors are {escape(error_shape(path))}.</p></article>"
    )


def scope_of(operation: dict[str, Any]) -> str:
    """The scope that a token needs, as `api.http.tokens.shown` has written it."""
    asked = (names for each in operation.get("security", []) for names in each.values())
    scopes = [scope for names in asked for scope in names]
    return f"<code>{escape(', '.join(scopes))}</code>" if scopes else ""


def error_shape(path: str) -> str:
    if path == REMOTE_WRITE_PATH:
        return "a line of text"
    return "Prometheus' JSON" if speaks_prometheus(path) else PROBLEM_TYPE


def render_parameters(parameters: list[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(parameter['name'])}</code></td>"
        f"<td>{'required' if parameter.get('required') else ''}</td>"
        f"<td>{prose(parameter.get('description', ''))} {escape(limits(parameter['schema']))}</td>"
        "</tr>"
        for parameter in parameters
    )
    return f"<table><tr><th>parameter<th><th>meaning</tr>{rows}</table>" if rows else ""


def prose(text: str) -> str:
    """Text as HTML: backquotes become code, lines flow, paragraphs stay."""
    flowing = re.sub(r"(?<!\n)\n(?!\n)", " ", escape(text, quote=False))
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", flowing)


def limits(schema: dict[str, Any]) -> str:
    words = []
    if schema.get("default") is not None:
        words.append(f"default {schema['default']}")
    if "minimum" in schema:
        words.append(f"{schema['minimum']} to {schema.get('maximum', '…')}")
    if "enum" in schema:
        words.append(" or ".join(map(str, schema["enum"])))
    return f"({'; '.join(words)})" if words else ""
