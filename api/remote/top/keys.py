"""Keys as a terminal sends them: bytes become names. Pure; `terminal` reads the bytes."""

from __future__ import annotations

import enum

PENDING_BYTES_MAX = 64
"""Of a sequence that has begun and not ended. Longer is no key: something was pasted."""
ESCAPE = 0x1B


class Key(enum.StrEnum):
    """Keys that are no printable character."""

    UP = "up"
    DOWN = "down"
    LEFT = "left"
    RIGHT = "right"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    TAB = "tab"
    BACKSPACE = "backspace"
    ESCAPE = "escape"


CURSOR_KEYS = {
    b"A": Key.UP,
    b"B": Key.DOWN,
    b"C": Key.RIGHT,
    b"D": Key.LEFT,
    b"H": Key.HOME,
    b"F": Key.END,
}
PAGE_KEYS = {b"1": Key.HOME, b"4": Key.END, b"5": Key.PAGE_UP, b"6": Key.PAGE_DOWN}
SEQUENCES = {
    **{lead + key: name for lead in (b"\x1b[", b"\x1bO") for key, name in CURSOR_KEYS.items()},
    **{b"\x1b[%b~" % key: name for key, name in PAGE_KEYS.items()},
}
"""As xterm and those after it send them, in both modes of the cursor keys."""
SINGLE = {
    b"\r": Key.ENTER,
    b"\n": Key.ENTER,
    b"\t": Key.TAB,
    b"\x7f": Key.BACKSPACE,
    b"\x08": Key.BACKSPACE,
}


class Decoder:
    r"""Bytes in, keys out; a sequence may come in pieces.

    >>> Decoder().feed(b"j\x1b[Aq")
    ['j', <Key.UP: 'up'>, 'q']
    """

    def __init__(self) -> None:
        self._pending = b""

    @property
    def is_waiting(self) -> bool:
        """Whether a sequence has begun: an Escape key looks like the beginning of one."""
        return bool(self._pending)

    def feed(self, data: bytes) -> list[str]:
        """The complete keys; unprintable characters are dropped."""
        self._pending += data
        found: list[str] = []
        while self._pending:
            length, key = self._next(self._pending)
            if length == 0:
                break
            self._pending = self._pending[length:]
            if key:
                found.append(key)
        if len(self._pending) > PENDING_BYTES_MAX:
            self._pending = b""
        return found

    def flush(self) -> list[str]:
        """Nothing followed: what waits was an Escape key, or is thrown away."""
        waiting, self._pending = self._pending, b""
        return [Key.ESCAPE] if waiting == b"\x1b" else []

    def _next(self, data: bytes) -> tuple[int, str]:
        """How many bytes the first key has (0: more must come) and its name (empty: none)."""
        if data[0] == ESCAPE:
            return self._sequence(data)
        if data[:1] in SINGLE:
            return 1, SINGLE[data[:1]]
        for length in range(1, 5):
            try:
                sign = data[:length].decode("utf-8")
            except UnicodeDecodeError as error:
                if error.reason == "unexpected end of data" and length < 4:  # noqa: PLR2004 - UTF-8
                    if len(data) <= length:
                        return 0, ""
                    continue
                return 1, ""
            return length, sign if sign.isprintable() else ""
        return 1, ""

    def _sequence(self, data: bytes) -> tuple[int, str]:
        """The same for what begins with an escape: CSI (ECMA-48), SS3, or Alt with a key."""
        if len(data) == 1:
            return 0, ""
        if data[1:2] == b"O":
            return (3, SEQUENCES.get(data[:3], "")) if len(data) > 2 else (0, "")  # noqa: PLR2004
        if data[1:2] != b"[":
            return 1, Key.ESCAPE
        for place in range(2, len(data)):
            if 0x40 <= data[place] <= 0x7E:  # noqa: PLR2004 - ECMA-48's final bytes
                return place + 1, SEQUENCES.get(data[: place + 1], "")
        return 0, ""
