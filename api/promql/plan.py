"""A query's plan: a small tree of typed nodes, made from the text by `api.promql.parse`."""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from api.data.selectors import Selector


class Kind(enum.StrEnum):
    """The type of a node's value; Prometheus' names in `resultType`."""

    SCALAR = "scalar"
    VECTOR = "vector"
    MATRIX = "matrix"
    STRING = "string"


class At(msgspec.Struct, frozen=True):
    """The `@` modifier: a fixed moment, or the first or last moment of the whole query."""

    anchor: str
    """``start``, ``end`` or ``time``."""
    time_ms: int = 0


class Node(msgspec.Struct, frozen=True):
    """Any part of a query."""


class Number(Node, frozen=True):
    """A number in the text."""

    value: float


class String(Node, frozen=True):
    """A string in the text."""

    value: str


class Select(Node, frozen=True):
    """The latest sample of each series that matches. ``offset_ms`` > 0 looks back."""

    selector: Selector
    offset_ms: int = 0
    at: At | None = None
    among: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Labels, and the values in which series are of use: others may be left out. Not of the text,
    but of an evaluation (`api.promql.narrow`)."""
    moved: bool = False
    """Series whose samples are all the same are of no use (`api.promql.moved`)."""


class RangeSelect(Node, frozen=True):
    """All samples of a range before each moment."""

    select: Select
    range_ms: int


class Subquery(Node, frozen=True):
    """Another query, evaluated at every ``step_ms`` of a range; None: the default step."""

    expression: Node
    range_ms: int
    step_ms: int | None
    offset_ms: int = 0
    at: At | None = None


class Call(Node, frozen=True):
    """A function."""

    function: str
    arguments: tuple[Node, ...]
    kind: Kind


class Aggregate(Node, frozen=True):
    """Many series become fewer: `sum by (host) (…)`. ``without``: by all labels but these."""

    operator: str
    expression: Node
    parameter: Node | None
    labels: tuple[str, ...]
    without: bool


class Matching(msgspec.Struct, frozen=True):
    """Which series of the left side meet which of the right one.

    ``on``: the labels are those that must agree; otherwise those that need not. ``group`` is the
    side that may have many series for one of the other: ``left``, ``right`` or none (``""``).
    ``include``: labels that the many take from the one. ``fill_left``, ``fill_right``: the value
    that stands in for an absent partner.
    """

    on: bool = False
    labels: tuple[str, ...] = ()
    group: str = ""
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


class Binary(Node, frozen=True):
    """An operator between two sides. Operators are written as in PromQL (`+`, `and`, `atan2`)."""

    operator: str
    left: Node
    right: Node
    matching: Matching = Matching()
    return_bool: bool = False


class Negate(Node, frozen=True):
    """A minus in front of something."""

    expression: Node


class Paren(Node, frozen=True):
    """Brackets in the text: without meaning of their own, kept for printing the query."""

    expression: Node


def chain_of(node: Node) -> tuple[Node, list[Binary]]:
    """The leftmost operand of binary operators, and these from the innermost.

    A chain leans to the left and may be long (`a or b or c …`): it is walked in a loop.
    """
    chain: list[Binary] = []
    while isinstance(node, Binary):
        chain.append(node)
        node = node.left
    return node, chain[::-1]


def nodes_of(plan: Node) -> Iterator[Node]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children_of(node)


def selects_of(plan: Node) -> Iterator[tuple[Select, int]]:
    """Selectors with their ranges, 0 for the latest sample; none of subqueries."""
    waiting: list[Node] = [plan]
    while waiting:
        match waiting.pop():
            case Select() as select:
                yield select, 0
            case RangeSelect(select=select, range_ms=range_ms):
                yield select, range_ms
            case Subquery():
                continue
            case node:
                waiting += children_of(node)


def children_of(node: Node) -> list[Node]:
    match node:
        case Paren(expression=inner) | Negate(expression=inner) | Subquery(expression=inner):
            return [inner]
        case Call(arguments=arguments):
            return [*arguments]
        case Aggregate(expression=inner, parameter=parameter):
            return [inner] if parameter is None else [inner, parameter]
        case Binary(left=left, right=right):
            return [left, right]
        case RangeSelect(select=select):
            return [select]
    return []
