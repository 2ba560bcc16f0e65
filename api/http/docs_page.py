"""The HTTP interface as one page: contents, search, every path with its schemas. Pure.

It loads nothing: the script and the style stand in it, and the policy allows just these two, by
their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from html import escape
from typing import Any, Final

from api.http.boundary import PROBLEM_TYPE, REMOTE_WRITE_PATH, speaks_prometheus
from api.http.docs_schema import kind_of, limits, prose, render_schema, schema_place
from api.http.schema_names import shown_name

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #0a7d5a; }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; display: grid;
  grid-template-columns: 19rem minmax(0, 56rem); gap: 2rem }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1rem;
  border-right: 1px solid var(--line) }
nav h2 { margin: 1rem 0 .2rem; font-size: .9rem } nav ol { list-style: none; margin: 0; padding: 0 }
nav a { display: block; overflow-wrap: anywhere; padding: .1rem 0; font-size: .85rem }
nav input { width: 100%; padding: .4rem .6rem; font: inherit }
main { padding: 1rem 1rem 4rem } a { color: var(--accent) }
h1 { margin: 0 } main h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line) }
.operation, .schema { border: 1px solid var(--line); border-radius: 8px; margin: .5rem 0;
  padding: .4rem .8rem; scroll-margin-top: .5rem }
summary { cursor: pointer; overflow-wrap: anywhere }
.method { display: inline-block; font-weight: 700; color: var(--accent); min-width: 4.2rem }
code, .path { font-family: ui-monospace, monospace; font-size: .95em }
.path { font-weight: 600 } .quiet { opacity: .75 }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; display: block; overflow-x: auto }
td a, td code { overflow-wrap: anywhere }
td, th { text-align: left; padding: .25rem .8rem .25rem 0; border-top: 1px solid var(--soft);
  vertical-align: top }
p { white-space: pre-line; margin: .5rem 0 }
[hidden] { display: none !important }
@media (max-width: 760px) {
  body { display: block } nav { position: static; height: auto; max-height: 45vh }
}
"""

_SCRIPT: Final = """
const field = document.querySelector("#search");
const found = document.querySelector("#found");
const parts = [...document.querySelectorAll("[data-words]")];
const look = () => {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let count = 0;
  for (const part of parts) {
    part.hidden = !words.every((word) => part.dataset.words.includes(word));
    if (!part.hidden && part.matches(".operation")) count++;
  }
  for (const group of document.querySelectorAll("[data-group]"))
    group.hidden = !group.querySelector("[data-words]:not([hidden])");
  found.textContent = words.length ? count === 1 ? "1 path" : `${count} paths` : "";
};
const open = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
field.addEventListener("input", look);
addEventListener("hashchange", open);
addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target !== field) {
    event.preventDefault();
    field.focus();
  }
});
look();
open();
"""


def hash_of(text: str) -> str:
    """As a policy names a script or a style that stands in the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final = {
    "Content-Security-Policy": f"default-src 'none'; script-src {hash_of(_SCRIPT)}; "
    f"style-src {hash_of(_STYLE)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def render_page(document: dict[str, Any]) -> str:
    info = document["info"]
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            group = (operation.get("tags") or ["other"])[0]
            groups.setdefault(group, []).append((method, path, operation))
    schemas = document.get("components", {}).get("schemas", {})
    body = "".join(
        f"<section data-group><h2>{escape(name)}</h2>"
        f"{''.join(render_operation(*each) for each in group)}</section>"
        for name, group in groups.items()
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta name=viewport content='width=device-width'>"
        f"<title>{escape(info['title'])} {escape(info['version'])}: HTTP interface</title>"
        f"<style>{_STYLE}</style><body><nav aria-label=Contents>{contents(groups)}</nav>"
        f"<main><h1>{escape(info['title'])}</h1>"
        f"<p class=quiet>{escape(info.get('summary', ''))} Version {escape(info['version'])}. "
        f"The same for programs: <a href=openapi.json>openapi.json</a></p>{body}"
        f"<section data-group><h2 id=schemas>Schemas</h2>{''.join(named_schemas(schemas))}"
        f"</section></main><script>{_SCRIPT}</script></body></html>"
    )


def contents(groups: dict[str, list[tuple[str, str, dict[str, Any]]]]) -> str:
    lists = "".join(
        f"<div data-group><h2>{escape(name)}</h2><ol>"
        + "".join(
            f"<li data-words='{words_of(*each)}'><a href='#{place_of(each[0], each[1])}'>"
            f"{escape(each[0].upper())} {escape(each[1])}</a></li>"
            for each in group
        )
        + "</ol></div>"
        for name, group in groups.items()
    )
    return (
        "<input id=search type=search aria-label='Search paths and schemas' "
        "placeholder='Search (press /)'><p id=found class=quiet role=status></p>"
        f"{lists}<p><a href='#schemas'>Schemas</a></p>"
    )


def place_of(method: str, path: str) -> str:
    """Where an operation stands on the page."""
    return re.sub(r"[^a-z0-9]+", "-", f"{method} {path}".lower()).strip("-")


def words_of(method: str, path: str, operation: dict[str, Any]) -> str:
    """What is searched."""
    asked = [str(one["name"]) for one in operation.get("parameters", [])]
    words = [method, path, operation.get("summary", ""), operation.get("description", ""), *asked]
    return escape(" ".join(words).lower())


def render_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    link = f"<a href='{escape(path)}'>open</a>" if method == "get" and "{" not in path else ""
    return (
        f"<details class=operation id='{place_of(method, path)}' "
        f"data-words='{words_of(method, path, operation)}'>"
        f"<summary><span class=method>{escape(method.upper())}</span> "
        f"<span class=path>{escape(path)}</span> {scope_of(operation)} "
        f"<span class=quiet>{escape(operation.get('summary', ''))}</span></summary>"
        f"<p>{prose(operation.get('description', ''))} {link}</p>"
        f"{render_parameters(operation.get('parameters', []))}"
        f"{render_content('Takes', operation.get('requestBody', {}))}"
        f"{render_responses(path, operation['responses'])}</details>"
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
        f"<td>{kind_of(parameter['schema'])}{', required' if parameter.get('required') else ''}"
        f"</td><td>{prose(parameter.get('description', ''))} "
        f"{escape(limits(parameter['schema']))}</td></tr>"
        for parameter in parameters
    )
    return f"<table><tr><th>parameter<th>kind<th>meaning</tr>{rows}</table>" if rows else ""


def render_content(title: str, body: dict[str, Any]) -> str:
    """A body by its types; empty: there is none."""
    parts = []
    for media_type, content in body.get("content", {}).items():
        schema = content.get("schema") or {}
        parts.append(f"<p>{title} <code>{escape(media_type)}</code></p>{render_schema(schema)}")
    return "".join(parts)


def render_responses(path: str, responses: dict[str, Any]) -> str:
    good = "".join(
        f"<p><b>{escape(status)}</b> {prose(answer.get('description', ''))}</p>"
        f"{render_content('Answers with', answer)}"
        for status, answer in sorted(responses.items())
        if status.startswith("2")
    )
    others = "".join(
        f"<li><b>{escape(status)}</b> {prose(answer.get('description', ''))}</li>"
        for status, answer in sorted(responses.items())
        if not status.startswith("2")
    )
    errors = f"<p>Errors are {escape(error_shape(path))}:</p><ul>{others}</ul>" if others else ""
    return good + errors


def named_schemas(schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items(), key=lambda each: shown_name(each[0])):
        shown, fields = shown_name(name), " ".join(schema.get("properties", {}))
        # Also by the name that a generated client has.
        words = escape(f"{shown} {name} {fields} {schema.get('description', '')}".lower())
        yield (
            f"<details class=schema id='{schema_place(name)}' data-words='{words}'>"
            f"<summary><code>{escape(shown)}</code></summary>"
            f"<p>{prose(schema.get('description', ''))}</p>{render_schema(schema)}</details>"
        )
