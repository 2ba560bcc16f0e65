"""What selectors of one query look for, and read, together.

Each question to the store costs as much as the rows of many series. Only such as find few series
are put together: they name a label, or are narrowed to what the other side of an operator can meet
(`api.promql.narrow`). What each finds is what it finds alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from api.promql import plan
from api.promql.aliases import strands_of
from api.promql.errors import QueryError
from api.promql.find import Found
from api.promql.values import Grid, Ints
from api.promql.windows import span_of

if TYPE_CHECKING:
    from api.promql.fetch import Reader
    from collector.contract.catalog import Catalog


class Asking(Protocol):
    """What is needed of the evaluation of a query: when its selectors look, and what they find."""

    def ends(self, grid: Grid, offset_ms: int, at: plan.At | None) -> Ints: ...
    def window_ms(self, range_ms: int) -> int: ...
    def find(self, select: plan.Select, ends: Ints, window_ms: int, grid: Grid) -> Found: ...


def find_named(
    evaluation: Asking, reader: Reader, catalog: Catalog | None, query: plan.Node, grid: Grid
) -> None:
    """Look at once for the series of selectors by labels."""
    sought = []
    for select, range_ms in plan.selects_of(query):
        if select.selector.label is not None:
            ends = evaluation.ends(grid, select.offset_ms, select.at)
            span = span_of(ends, evaluation.window_ms(range_ms))
            sought.append((strands_of(select.selector, catalog), *span))
    if len(sought) > 1:
        reader.find_all(sought)


def read_narrowed(evaluation: Asking, reader: Reader, narrowed: plan.Node, grid: Grid) -> None:
    """Read samples of the same time together, when the first of them are read.

    At one moment (rules) few samples are read, and most of them are in memory.
    """
    if grid.steps == 1:
        return
    found: dict[tuple[int, int], list[Found]] = {}
    for select, range_ms in plan.selects_of(narrowed):
        if select.among:
            ends = evaluation.ends(grid, select.offset_ms, select.at)
            window_ms = evaluation.window_ms(range_ms)
            try:
                one = evaluation.find(select, ends, window_ms, grid)
            except QueryError as error:
                if not error.rule:
                    raise
                return  # it may not be needed
            found.setdefault(span_of(ends, window_ms), []).append(one)
    for span, some in found.items():
        reader.read_together(some, *span)
