"""Answers as Prometheus writes them: JSON in its envelope, numbers in Go's notation.

Most of a large answer is numbers. orjson writes a row of them at once, and only where its notation
differs from Go's is a single number touched again: 1,000 series of 1,440 points take about a third
of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
import orjson

from api.promql.texts import decimal_text, general_text
from api.promql.values import (
    Floats,
    Grid,
    Ints,
    LabelRows,
    Labels,
    Notes,
    Scalar,
    Text,
    Vector,
    Windows,
    derive,
    label_order,
)

NOTES_MAX = 10
"""Warnings, and as many infos, that are shown; one more line counts the others."""

TRUNCATED = "results truncated due to limit"

FIXED_MIN, FIXED_BELOW = 1e-6, 1e21
"""Between these, Prometheus writes numbers without an exponent."""
EXPONENT_BELOW, EXPONENT_FROM = 1e-5, 1e16
"""Outside these, orjson writes an exponent."""
MINUS = ord("-")

Result = Vector | Scalar | Text | Windows
"""What a query can evaluate to. Windows: the range selector of an instant query, one step."""


# --- numbers and moments -----------------------------------------------------------------------

FORMATTED_AT_ONCE = 50_000
"""Points that are written at once: enough that the calls cost nothing, few enough for the cache."""


def format_value(value: float) -> str:
    """A number as Go writes it: as short as it can be and still be read back as the same number.

    >>> [format_value(value) for value in (2.0, -0.0, 1e20, 1e21, 1e-6, 2.5e-7)]
    ['2', '-0', '100000000000000000000', '1e+21', '0.000001', '2.5e-07']
    """
    if value == 0 or FIXED_MIN <= abs(value) < FIXED_BELOW:
        return decimal_text(value)
    return general_text(value)


def format_values(values: Floats) -> list[bytes]:
    """Each number of a row, as `format_value` writes it."""
    if not len(values):
        return []
    row = np.ascontiguousarray(values)
    written = orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] + b","
    if bool(np.any(row == np.trunc(row))):
        written = written.replace(b".0,", b",")
    if b"e" in written:
        for digit in b"789":  # Go's exponents have two digits
            written = written.replace(b"e-%c," % digit, b"e-0%c," % digit)
    finite = np.isfinite(row)
    if not finite.all():
        written = written.replace(b"null", b"NaN")
    texts = written.split(b",")
    texts.pop()  # what follows the last comma
    size = np.abs(row)
    for place in np.flatnonzero(size >= EXPONENT_FROM).tolist():
        value = float(row[place])
        fixed = abs(value) < FIXED_BELOW
        texts[place] = without_exponent(texts[place]) if fixed else format_value(value).encode()
    for place in np.flatnonzero((size >= FIXED_MIN) & (size < EXPONENT_BELOW)).tolist():
        texts[place] = without_exponent(texts[place])
    return texts


def without_exponent(text: bytes) -> bytes:
    """The same number, which is far from 1, in the notation that Go uses from 1e-6 to 1e21.

    >>> without_exponent(b"-1.5e-6"), without_exponent(b"1.25e+16")
    (b'-0.0000015', b'12500000000000000')
    """
    mantissa, _, power = text.partition(b"e")
    digits = mantissa.replace(b".", b"")
    if power == b"-6":
        return b"0.00000" + digits if digits[0] != MINUS else b"-0.00000" + digits[1:]
    return digits.ljust(int(power) + (1 if digits[0] != MINUS else 2), b"0")


def format_time(time_ms: int) -> str:
    """Unix seconds with three decimals, or none.

    >>> format_time(1_700_000_000_000), format_time(1_500), format_time(-5)
    ('1700000000', '1.500', '-0.005')
    """
    seconds, rest = divmod(abs(time_ms), 1000)
    sign = "-" if time_ms < 0 else ""
    return f"{sign}{seconds}.{rest:03}" if rest else f"{sign}{seconds}"


def encode_labels(labels: Labels) -> bytes:
    return orjson.dumps(dict(labels), option=orjson.OPT_SORT_KEYS)


# --- results -----------------------------------------------------------------------------------


def render_result(
    value: Result, grid: Grid, *, is_range: bool, ordered: bool = False, limit: int = 0
) -> tuple[bytes, bool]:
    """`resultType` and `result` of an answer, without braces; and whether ``limit`` cut it.

    ``ordered``: the query sets the order of the rows (`sort`, `topk`). Matrices are otherwise
    sorted by their labels. ``limit`` 0: no limit.
    """
    if is_range:
        body, cut = matrix_body(value, grid, ordered=ordered, limit=limit)
        return b'"resultType":"matrix","result":[%b]' % body, cut
    if isinstance(value, Windows):
        kind, rows = "matrix", windows_rows(value)
    elif isinstance(value, Vector):
        kind, rows = "vector", vector_rows(value, grid)
    else:
        kind, shown = lone_point(value, grid)
        return b'"resultType":"%b","result":%b' % (kind.encode(), shown), False
    cut = 0 < limit < len(rows)
    body = b",".join(rows[:limit] if cut else rows)
    return b'"resultType":"%b","result":[%b]' % (kind.encode(), body), cut


def lone_point(value: Scalar | Text, grid: Grid) -> tuple[str, bytes]:
    """The kind, and the moment with the one number or string."""
    moment = format_time(grid.start_ms).encode()
    if isinstance(value, Text):
        return "string", b"[%b,%b]" % (moment, orjson.dumps(value.text))
    return "scalar", b'[%b,"%b"]' % (moment, format_value(float(value.values[0])).encode())


def vector_rows(vector: Vector, grid: Grid) -> list[bytes]:
    here = np.flatnonzero(vector.present[:, 0])
    texts = format_values(vector.values[here, 0])
    moment = format_time(grid.start_ms).encode()
    return [
        b'{"metric":%b,"value":[%b,"%b"]}' % (encode_labels(vector.labels[row]), moment, text)
        for row, text in zip(here.tolist(), texts, strict=True)
    ]


def matrix_body(value: Result, grid: Grid, *, ordered: bool, limit: int) -> tuple[bytes, bool]:
    """The series of a range query that have a point; and whether ``limit`` cut them."""
    if isinstance(value, Scalar):
        value = Vector([{}], value.values[np.newaxis], np.ones((1, grid.steps), dtype=np.bool_))
    assert isinstance(value, Vector), "the engine answers a range query with numbers"
    ever = np.asarray(value.present.any(axis=1)).tolist()
    shown = [row for row in row_order(value.labels, ordered=ordered) if ever[row]]
    cut = 0 < limit < len(shown)
    if cut:
        shown = shown[:limit]
    at_once = max(1, FORMATTED_AT_ONCE // max(1, grid.steps))
    openings = point_openings(grid.times_ms())
    blocks = [
        matrix_block(value, shown[start : start + at_once], openings)
        for start in range(0, len(shown), at_once)
    ]
    return b",".join(blocks), cut


def matrix_block(vector: Vector, rows: Sequence[int], openings: list[bytes]) -> bytes:
    """Some series with their points, each of them with at least one.

    All points of all rows are put together at once: before every number stands the end of the
    point before it and its own moment, and before the first of a series also the series' labels.
    """
    present = vector.present[rows]
    texts = format_values(vector.values[rows][present])
    before = openings * len(rows)
    if not bool(present.all()):
        before = list(compress(before, present.ravel().tolist()))
    counts = present.sum(axis=1)
    firsts = (np.cumsum(counts) - counts).tolist()
    for labels, first in zip(encode_rows(vector.labels, rows), firsts, strict=True):
        opening = before[first].removeprefix(b'"],')
        before[first] = b'"]]},{"metric":%b,"values":[%b' % (labels, opening)
    parts = [b""] * (2 * len(texts))
    parts[0::2] = before
    parts[1::2] = texts
    parts[0] = parts[0].removeprefix(b'"]]},')
    parts.append(b'"]]}')
    return b"".join(parts)


def encode_rows(labels: Sequence[Labels], rows: Sequence[int]) -> list[bytes]:
    """The label sets of some rows as JSON; all are written at once where they are remembered."""
    if not isinstance(labels, LabelRows):
        return [encode_labels(labels[row]) for row in rows]
    known = derive(labels, "json", lambda: [encode_labels(one) for one in labels])
    return [known[row] for row in rows]


def windows_rows(windows: Windows) -> list[bytes]:
    """Each series of an instant query for a range selector: its samples at their own times."""
    rows = []
    for row in row_order(windows.labels, ordered=False):
        inside = slice(int(windows.first[row, 0]), int(windows.last[row, 0]))
        times = windows.times_ms[inside]
        if not len(times):
            continue
        points = join_points(point_openings(times), format_values(windows.values[inside]))
        labels = encode_labels(windows.labels[row])
        rows.append(b'{"metric":%b,"values":[%b]}' % (labels, points))
    return rows


def row_order(labels: Sequence[Labels], *, ordered: bool) -> Sequence[int]:
    """The numbers of the rows in the order in which they are shown."""
    places = range(len(labels))
    if ordered:
        return places
    return derive(labels, "order", lambda: sorted(places, key=lambda row: label_order(labels[row])))


def point_openings(times_ms: Ints) -> list[bytes]:
    return [b'"],[%b,"' % format_time(time_ms).encode() for time_ms in times_ms.tolist()]


def join_points(openings: list[bytes], texts: list[bytes]) -> bytes:
    """The points of a series, at least one: `[1700000000,"1"],[1700000060,"2"]`."""
    both = 2 * len(texts)
    parts = [b'"]'] * (both + 1)
    parts[0:both:2] = openings
    parts[1:both:2] = texts
    parts[0] = openings[0].removeprefix(b'"],')
    return b"".join(parts)


# --- the envelope ------------------------------------------------------------------------------


def envelope(data: bytes, warnings: Sequence[str] = (), infos: Sequence[str] = ()) -> bytes:
    """A success around data that are JSON already."""
    notes = b"".join(
        b',"%b":%b' % (name, orjson.dumps(shown_notes(texts, kind)))
        for name, kind, texts in ((b"warnings", "warning", warnings), (b"infos", "info", infos))
        if texts
    )
    return b'{"status":"success","data":%b%b}' % (data, notes)


def shown_notes(texts: Sequence[str], kind: str) -> list[str]:
    if len(texts) <= NOTES_MAX:
        return list(texts)
    return [*texts[:NOTES_MAX], f"{len(texts) - NOTES_MAX} more {kind} annotations omitted"]


def render_answer(result: bytes, notes: Notes, *, cut: bool, stats: bytes = b"") -> bytes:
    """The whole answer to a query. ``result`` is that of `render_result`, ``stats`` an object."""
    data = b'{%b,"stats":%b}' % (result, stats) if stats else b"{%b}" % result
    warnings = [*notes.warnings, TRUNCATED] if cut else notes.warnings
    return envelope(data, warnings, notes.infos)
