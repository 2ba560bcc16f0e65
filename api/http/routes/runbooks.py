"""`/runbooks`: what to do about each alert, as pages. Rules link to them.

Without a token: a paged on-call person opens it in a browser, and it reveals nothing of the
cluster.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from markdown_it import MarkdownIt

from api.base.errors import Problem
from api.fabric.names import offer

router = APIRouter(include_in_schema=False)

SUFFIX = ".md"

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #0a7d5a; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto;
  padding: 0 1rem; }
h2 { margin-top: 2rem; border-bottom: 1px solid var(--line) } a { color: var(--accent) }
code { font-family: ui-monospace, monospace; font-size: .92em; background: var(--soft);
  padding: .1em .3em; border-radius: 4px }
pre { background: var(--soft); padding: .8rem 1rem; border-radius: 8px; overflow-x: auto }
pre code { background: none; padding: 0 }
table { border-collapse: collapse } td, th { text-align: left; padding: .25rem .8rem .25rem 0;
  border-top: 1px solid var(--line); vertical-align: top }
"""


@cache
def runbooks() -> dict[str, str]:
    folder = files("alerts").joinpath("runbooks")
    found = (each for each in folder.iterdir() if each.name.endswith(SUFFIX))
    return {
        each.name.removesuffix(SUFFIX): each.read_text("utf-8")
        for each in sorted(found, key=lambda one: one.name)
    }


@router.get("/runbooks")
async def index() -> HTMLResponse:
    rows = "".join(
        f'<li><a href="/runbooks/{escape(name)}">{escape(title(text))}</a></li>'
        for name, text in runbooks().items()
        if name != "README"
    )
    return HTMLResponse(page("Runbooks", f"<h1>Runbooks</h1><ul>{rows}</ul>"))


@router.get("/runbooks/{name}")
async def runbook(name: str) -> HTMLResponse:
    """One page; links between pages end in `.md`, as in the repository."""
    name = name.removesuffix(SUFFIX)
    text = runbooks().get(name)
    if text is None:
        detail = f"there is no runbook {name!r}{offer(name, runbooks())}"
        raise Problem(404, "no such runbook", detail)
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return HTMLResponse(page(title(text), f'<p><a href="/runbooks">Runbooks</a></p>{body}'))


def title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def page(heading: str, body: str) -> str:
    """A whole page; it needs nothing but itself."""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>{escape(heading)}</title><style>{_STYLE}</style><body>{body}</body></html>"
    )
