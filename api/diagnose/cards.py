"""Pieces that every part of the page is made of: cards, boxes, legends, tables."""

from __future__ import annotations

from collections.abc import Sequence

from api.diagnose.plots import safe


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Small boxes with a number and what it is."""
    boxes = "".join(f"<div><b>{safe(value)}</b><span>{safe(name)}</span></div>"
                    for name, value in pairs if value)  # fmt: skip
    return f'<section><div class="facts">{boxes}</div></section>'


def section(title: str, explanation: str, *body: str) -> str:
    """A card with a title and a sentence."""
    return (
        f"<section><h3>{safe(title)}</h3>"
        f'<p class="soft">{safe(explanation)}</p>{"".join(body)}</section>'
    )


def legend(names: Sequence[tuple[str, str]]) -> str:
    """What each colour means: class and name."""
    items = "".join(f'<span><i class="b{kind}"></i>{safe(name)}</span>' for kind, name in names)
    return f'<div class="legend">{items}</div>'


def table(headings: Sequence[str], rows: Sequence[tuple[Sequence[str], str]]) -> str:
    """A table; a heading that begins with `>` is of numbers. Rows are cells and a class."""
    numeric = [heading.startswith(">") for heading in headings]

    def cells(tag: str, texts: Sequence[str]) -> str:
        marks = (' class="n"' if is_number else "" for is_number in numeric)
        return "".join(f"<{tag}{mark}>{safe(text)}</{tag}>"
                       for mark, text in zip(marks, texts, strict=True))  # fmt: skip

    head = cells("th", [heading.removeprefix(">") for heading in headings])
    body = "".join(f'<tr class="{kind}">{cells("td", texts)}</tr>' for texts, kind in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
