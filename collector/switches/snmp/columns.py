"""The state of each column in a walk: the rows so far, where to go on, and what was wrong.

Pure: the client feeds it answers of a switch, the replay those of a recording. A column ends by
itself whatever it is fed, because every answer brings it a row it did not have, or is its last.
"""

from __future__ import annotations

from collections.abc import Sequence

from collector.contract.reason import UnreadReason
from collector.switches.snmp.ber import BerError, Binding, Odd, read_name, read_numbers, write_name
from collector.switches.snmp.model import Flaw, Oid, Value
from collector.switches.snmp.words import dotted

NO_VALUE = "a value that is none"


class Column:
    """One column of a table, while it is walked."""

    __slots__ = (
        "_handled",
        "_has_turned_back",
        "_prefix",
        "_rows_max",
        "_wrong",
        "is_open",
        "last",
        "name",
        "rows",
    )

    def __init__(self, name: Oid, rows_max: int) -> None:
        self.name = name
        self.rows: dict[Oid, Value] = {}
        self.last: Oid = ()
        """The index to go on after."""
        self.is_open = True
        self._prefix = write_name(name)
        self._rows_max = rows_max
        self._handled = 0
        self._has_turned_back = False
        self._wrong: dict[str, tuple[UnreadReason, int, str]] = {}

    def where(self) -> Oid:
        """The name after which the walk continues."""
        return self.name + self.last

    def flaws(self) -> list[Flaw]:
        """One flaw of each kind, with how often and where first."""
        return [
            Flaw(self.name, reason, f"{what}: {detail}" + (f" and {times - 1} more" * (times > 1)))
            for what, (reason, times, detail) in self._wrong.items()
        ]

    def fail(self, reason: UnreadReason, what: str, detail: str) -> None:
        """End the column here, with the rows that it has."""
        self._note(what, detail, reason)
        self.is_open = False

    def take(self, bindings: Sequence[Binding]) -> None:
        """Some of the rows that follow, as they came."""
        prefix, rows, last = self._prefix, self.rows, self.last
        size, before = len(prefix), len(rows) + self._odd_count()
        for name, value in bindings:
            if type(value) is Odd and value.is_end:
                self.is_open = False
                return
            if name[:size] != prefix:
                self._leave(name, last)
                return
            try:
                index = read_numbers(name[size:])
            except BerError as error:
                self.fail(UnreadReason.UNPARSEABLE, "a row without an index", str(error))
                return
            if self._handled >= self._rows_max:
                self.fail(
                    UnreadReason.UNPARSEABLE, "it does not end", f"after {self._rows_max} rows"
                )
                return
            self._handled += 1
            if type(value) is Odd:
                self._note(NO_VALUE, f"{value.detail} in row {dotted(index)}")
                last = max(last, index)
            elif index > last and not self._has_turned_back:
                rows[index] = value
                last = index
            else:
                self._turn_back(index, value, last)
                last = index
        self.last = last
        if bindings and len(rows) + self._odd_count() == before:
            self.fail(
                UnreadReason.UNPARSEABLE, "it goes in a circle", f"back at row {dotted(last)}"
            )

    def _turn_back(self, index: Oid, value: Value, last: Oid) -> None:
        """A row that does not come after the one before it, or one later than such a row.

        Some agents do not sort their tables: a row that is new is taken. Of two the first counts.
        """
        self._has_turned_back = True
        if index in self.rows:
            self._note("a row came twice", f"row {dotted(index)}")
            return
        if index <= last:
            self._note("rows out of order", f"row {dotted(index)} after {dotted(last)}")
        self.rows[index] = value

    def _leave(self, name: bytes, last: Oid) -> None:
        """The switch has gone on to something else: this is the end, if that comes later."""
        self.is_open = False
        try:
            found = read_name(name)
        except BerError as error:
            self._note("it ends in a name that is none", str(error))
            return
        if found <= self.name + last:
            self._note("it ends in an earlier name", dotted(found))

    def _odd_count(self) -> int:
        return self._wrong[NO_VALUE][1] if NO_VALUE in self._wrong else 0

    def _note(
        self, what: str, detail: str, reason: UnreadReason = UnreadReason.UNPARSEABLE
    ) -> None:
        """Remember one kind of flaw once, and how often it came."""
        first = self._wrong.get(what, (reason, 0, detail))
        self._wrong[what] = first[0], first[1] + 1, first[2]
