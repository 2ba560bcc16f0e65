"""Answers from a recording (`.snmprec`) as a switch would: for captured trees.

A line is `1.3.6.1.2.1.1.5.0|4|leaf-0`: a name, the type's number (with an `x` when the value is in
hexadecimal) and the value. Rows that a module of snmpsim makes up at run time (`65:numeric`) are no
recording of anything, and are passed over. The format and the files come from other people:
whatever can be read of a file is read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

from collector.contract.reason import UnreadReason
from collector.switches.snmp.ber import (
    ADDRESS,
    COUNTER32,
    COUNTER32_MAX,
    COUNTER64,
    COUNTER64_MAX,
    GAUGE32,
    INTEGER,
    NAME,
    OCTETS,
    OPAQUE,
    SUB_IDENTIFIER_MAX,
    SUB_IDENTIFIERS_MAX,
    TIME_TICKS,
    Binding,
    Odd,
    read_value,
    write_name,
)
from collector.switches.snmp.columns import Column
from collector.switches.snmp.model import Flaw, Oid, Value, Walked

ROWS_MAX = 1 << 20
"""Of one recording. The longest known has 35,000; a host's file is read up to 1 MB anyway."""
BROKEN_SHOWN_MAX = 3
"""Lines without a name that are quoted in the flaw."""
QUOTED_CHARACTERS = 40
LAST_ARC, ARC_SIZE = 2, 40
"""Names begin with 0, 1 or 2; what follows 0 and 1 is below 40 (X.660)."""
NAMES_KEPT = 1 << 14
"""Names whose two forms are remembered, some 5 MB: switches of one make have the same ones, and a
recording that is rewritten has them again."""
TAG_DIGITS_MAX = 3
"""A type is a byte."""

_NUMBERS = {
    COUNTER32: COUNTER32_MAX,
    GAUGE32: COUNTER32_MAX,
    TIME_TICKS: COUNTER32_MAX,
    COUNTER64: COUNTER64_MAX,
}
_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}
_TEXTS = frozenset({OCTETS, ADDRESS, OPAQUE})
_ABSENCES = {5: "null", 128: "noSuchObject", 129: "noSuchInstance", 130: "endOfMibView"}


class _Row(NamedTuple):
    """One object, and its value or what is wrong with it."""

    name: Oid
    value: Value | Odd


class Recording:
    """A switch that repeats its recorded answers for ever."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._broken: list[str] = []
        self._broken_count = 0
        self._twice: dict[Oid, Value | Odd] = {}
        found: dict[Oid, Value | Odd] = {}
        for line in text.split(b"\n", ROWS_MAX)[:ROWS_MAX]:
            row = self._read(line)
            if row is None:
                continue
            if row.name in found:
                self._twice[row.name] = row.value
            else:
                found[row.name] = row.value
        self._values = found
        self._names = sorted(found)

    async def get(self, oids: list[Oid]) -> list[Value | None]:
        """The values of single objects; None where the recording has none."""
        values = (self._values.get(name) for name in oids)
        return [None if isinstance(value, Odd) else value for value in values]

    async def walk(self, columns: list[Oid], rows_max: int) -> Walked:
        """All rows of these columns, at most so many of each; more is a flaw of that column.

        Lines that cannot be read are reported with the first walk, as flaws of no column.
        """
        flaws = self._take_broken()
        rows: dict[Oid, dict[Oid, Value]] = {}
        for name in columns:
            column = Column(name, rows_max)
            self._walk_column(column)
            rows[name] = column.rows
            flaws += column.flaws()
        return Walked(rows, flaws)

    def close(self) -> None:
        """A recording holds nothing open."""

    def _walk_column(self, column: Column) -> None:
        """Feed a column its rows; a second row of a name follows the first, as on a switch."""
        size = len(column.name)
        rows: list[Binding] = []
        for position in range(bisect_left(self._names, column.name), len(self._names)):
            name = self._names[position]
            if name[:size] != column.name:
                break
            if len(name) > size:
                rows.append((_written(name), self._values[name]))
                if name in self._twice:
                    rows.append((_written(name), self._twice[name]))
        column.take(rows)

    def _take_broken(self) -> list[Flaw]:
        """The lines that could not be read at all, once."""
        if not self._broken_count:
            return []
        detail = f"{self._broken_count} lines of the recording: {', '.join(self._broken)}"
        self._broken_count = 0
        return [Flaw((), UnreadReason.UNPARSEABLE, detail)]

    def _read(self, line: bytes) -> _Row | None:
        """A line's row; None for one that holds none, counted unless that is valid."""
        line = line.rstrip(b"\r")
        if not line or line.startswith(b"#"):
            return None
        name_text, _, rest = line.partition(b"|")
        kind, bar, text = rest.partition(b"|")
        name = _read_dotted(name_text)
        if name is None or not bar:
            self._broken_count += 1
            if len(self._broken) < BROKEN_SHOWN_MAX:
                self._broken.append(repr(line[:QUOTED_CHARACTERS]))
            return None
        if b":" in kind:
            return None
        return _Row(name, _read_value(kind, text))


_written = lru_cache(NAMES_KEPT)(write_name)


@lru_cache(NAMES_KEPT)
def _read_dotted(text: bytes) -> Oid | None:
    parts = text.strip().removeprefix(b".").split(b".", SUB_IDENTIFIERS_MAX)
    if not 2 <= len(parts) <= SUB_IDENTIFIERS_MAX:  # noqa: PLR2004 - no name is shorter
        return None
    if not all(part.isdigit() and len(part) <= len(str(SUB_IDENTIFIER_MAX)) for part in parts):
        return None
    name = tuple(map(int, parts))
    has_arcs = name[0] == LAST_ARC or (name[0] < LAST_ARC and name[1] < ARC_SIZE)
    return name if has_arcs and max(name) <= SUB_IDENTIFIER_MAX else None


def _read_value(kind: bytes, text: bytes) -> Value | Odd:
    """A value by its type's number, which a letter for its notation may follow."""
    digits = kind.rstrip(b"xe")
    tag = int(digits) if digits.isdigit() and len(digits) <= TAG_DIGITS_MAX else 0
    shown = f"{text[:QUOTED_CHARACTERS]!r} of type {kind.decode('ascii', 'replace')!r}"
    try:
        if kind.endswith(b"x"):
            return read_value(tag, bytes.fromhex(text.decode("ascii")))
        if kind.endswith(b"e"):
            text = _ESCAPE.sub(_unescape, text)
        value = _read_plain(tag, text)
    except ValueError:
        return Odd(shown)
    return Odd(_ABSENCES.get(tag, shown)) if value is None else value


def _read_plain(tag: int, text: bytes) -> Value | Odd | None:
    """A value in plain text; None, or a ValueError, when it is none."""
    if tag in _NUMBERS or tag == INTEGER:
        return _read_number(tag, text)
    if tag == NAME:
        return _read_dotted(text)
    if tag == ADDRESS:
        return bytes(map(int, text.split(b".", 4)))
    return text if tag in _TEXTS else None


def _unescape(found: re.Match[bytes]) -> bytes:
    """One escape of Python's string literals."""
    what = found[1]
    return bytes([int(what[1:], 16)]) if len(what) > 1 else _ESCAPES.get(what, what)


def _read_number(tag: int, text: bytes) -> int | Odd:
    number = int(text[:QUOTED_CHARACTERS])
    if tag == INTEGER:
        return number
    if number < 0:
        return Odd(f"the negative number {number}")
    limit = _NUMBERS[tag]
    return number if number <= limit else Odd(f"{number} where at most {limit} fits")
