"""Pages of a module's memory, as far as they were read."""

from __future__ import annotations

from typing import NamedTuple

EEPROM, DIAGNOSTICS = 0x50, 0x51
"""Addresses on the module's I2C bus; only SFF-8472 has the second one (its A2h)."""
PRINTABLE = range(32, 127)
"""ASCII."""
UPPER = 128
"""Where the part of the memory begins that is paged."""
STEPS_PER_WATT, STEPS_PER_AMPERE, STEPS_PER_VOLT = 10_000_000, 500_000, 10_000
"""Readings count in 0.1 µW, 2 µA and 0.1 mV. Divided by these they are exact to the last digit."""
DEGREE_STEPS = 256
"""A temperature counts in 1/256 degrees Celsius, signed."""


class Page(NamedTuple):
    """A piece of a module's memory: where, and how much. Offsets count from 0, pages from 128."""

    address: int
    bank: int
    page: int
    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class Memory:
    """The pieces that were read; whatever was not is None."""

    def __init__(self) -> None:
        self._pieces: dict[Page, bytes] = {}

    def put(self, page: Page, data: bytes) -> None:
        """Remember a piece; where two overlap, the one that was put last is read."""
        self._pieces.pop(page, None)
        self._pieces[page] = data

    def has(self, page: Page) -> bool:
        return page in self._pieces

    def byte(self, page: int, offset: int, *, bank: int = 0, address: int = EEPROM) -> int | None:
        data = self._at(page, offset, 1, bank, address)
        return data[0] if data else None

    def number(
        self, page: int, offset: int, *, bank: int = 0, address: int = EEPROM, signed: bool = False
    ) -> int | None:
        """Two bytes, the higher first."""
        data = self._at(page, offset, 2, bank, address)
        return int.from_bytes(data, "big", signed=signed) if data else None

    def scaled(
        self, page: int, offset: int, steps: int, *, bank: int = 0, address: int = EEPROM
    ) -> float | None:
        number = self.number(page, offset, bank=bank, address=address)
        return None if number is None else number / steps

    def degrees(self, page: int, offset: int, *, address: int = EEPROM) -> float | None:
        number = self.number(page, offset, address=address, signed=True)
        return None if number is None else number / DEGREE_STEPS

    def text(self, page: int, offset: int, length: int) -> str:
        """Padded ASCII; what is not printable becomes a question mark. Empty if it was not read."""
        data = self._at(page, offset, length, 0, EEPROM) or b""
        shown = "".join(chr(one) if one in PRINTABLE else "?" for one in data.rstrip(b"\0 "))
        return shown.strip()

    def bytes_at(self, page: int, offset: int, length: int, address: int = EEPROM) -> bytes | None:
        return self._at(page, offset, length, 0, address)

    def _at(self, page: int, offset: int, length: int, bank: int, address: int) -> bytes | None:
        for piece, data in reversed(self._pieces.items()):
            where = (piece.address, piece.bank, piece.page)
            start = offset - piece.offset
            if where == (address, bank, page) and start >= 0 and start + length <= len(data):
                return data[start : start + length]
        return None
