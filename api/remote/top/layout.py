"""Lines of a terminal: tables whose columns fit, text that wraps; each line one row high. Pure.

Not rich's tables: a list that scrolls under a selection must know that a row is one line, and
which one.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

GAP = 2
MARK, NO_MARK = "▸ ", "  "
"""Before the selected line and before the others: it must be seen without colours too."""
SELECTED = "reverse"

_WRAPPER = Console(file=io.StringIO(), width=80, color_system=None)
"""Only breaks lines; it draws nothing."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    width: int = 0
    """0: the remaining width. One column of a table has it."""
    is_right: bool = False
    """Numbers stand under each other by their last digit."""
    from_width: int = 0
    """Only on terminals of so many columns."""


@dataclass(frozen=True)
class Cell:
    """A text and how it is drawn. Never markup: a name in square brackets is a name."""

    text: str
    style: str = ""
    is_tail: bool = False
    """Of a text that is too long, the end is shown: what is latest in a row of bars."""


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, selected: int | None
) -> tuple[Text, list[Text]]:
    shown = [place for place, column in enumerate(columns) if width >= column.from_width]
    fixed = sum(columns[place].width for place in shown)
    spare = max(1, width - len(MARK) - fixed - GAP * (len(shown) - 1))
    widths = [columns[place].width or spare for place in shown]

    def line(cells: Sequence[Cell], mark: str, style: str = "") -> Text:
        text = Text(mark, style=style)
        for number, (place, room) in enumerate(zip(shown, widths, strict=True)):
            cell = cells[place]
            text.append(" " * GAP if number else "")
            text.append_text(fit(cell, room, is_right=columns[place].is_right))
        return text

    head = line([Cell(column.title) for column in columns], NO_MARK, "bold")
    lines = [
        line(row, MARK if place == selected else NO_MARK, SELECTED if place == selected else "")
        for place, row in enumerate(rows)
    ]
    return head, lines


def fit(cell: Cell, room: int, *, is_right: bool = False) -> Text:
    """The cell in exactly so many columns, cut with an ellipsis."""
    text = Text(cell.text[-room:] if cell.is_tail else cell.text, style=cell.style)
    text.truncate(room, overflow="ellipsis")
    spare = " " * (room - cell_len(text.plain))
    return Text.assemble(spare, text) if is_right else Text.assemble(text, spare)


def wrap(text: str, width: int, style: str = "", lines_max: int = 0) -> list[Text]:
    """The text in lines of so many columns; past ``lines_max`` (0: none) cut with an ellipsis."""
    if not text:
        return []
    lines = list(Text(text, style=style).wrap(_WRAPPER, max(1, width)))
    if lines_max and len(lines) > lines_max:
        rest = " ".join(line.plain.strip() for line in lines[lines_max - 1 :])
        last = Text(rest, style=style)
        last.truncate(max(1, width), overflow="ellipsis")
        lines = [*lines[: lines_max - 1], last]
    return lines


def indent(lines: Sequence[Text], by: str = "  ", first: str | None = None) -> list[Text]:
    """Lines moved to the right; the first one after its own prefix."""
    return [
        Text.assemble(first if first is not None and number == 0 else by, line)
        for number, line in enumerate(lines)
    ]


def window(count: int, selected: int, room: int) -> range:
    """Which of so many lines are shown, with the selected one in the middle.

    >>> window(10, 0, 4), window(10, 5, 4), window(10, 9, 4), window(3, 1, 4)
    (range(0, 4), range(3, 7), range(6, 10), range(0, 3))
    """
    room = max(1, room)
    first = max(0, min(selected - room // 2, count - room))
    return range(first, min(count, first + room))
