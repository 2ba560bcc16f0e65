"""A JSON text of any size, read in pieces: members of its outermost object, elements of its arrays.

Only one value, or one piece of an array, is held at a time; a value over the caller's bound is
passed over without being held. Nothing here recurses: nesting is a number that is counted.

Elements come in blocks. A block ends where it looks as if an element ends, and is then decoded as
a whole. That it *does* decode proves the guess: JSON is read from left to right, so a text that is
a whole list of elements ends between two of them, whatever comes behind it. Where the guess was
wrong, or an element is broken, the elements of that block are split one by one: that takes
twice as long if they are JSON at least, and ten times as long if not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import msgspec

from collector.contract.errors import ParseError

T = TypeVar("T")

PIECE_BYTES = 1 << 20
"""What is read at once, and so the usual size of a block: larger ones are not decoded faster."""
KEY_BYTES_MAX = 4 << 10
"""A member's name. Longer ones are not written by any program; the text is given up."""
ELEMENT_BYTES_MAX = 4 << 20
"""An element of an array. An event of a profiler with a deep stack has a few kilobytes."""
SKIP_BYTES_MAX = 16 << 20
"""A value that is passed over. One that is longer ends the reading: where brackets are all there
is, it takes seconds to find its end."""
BOUNDARY_TRIES = 8
"""How many opening braces are tried for the end of a block: those of an element's own parts
come first, and an event has one or two."""
BOUNDARY_BYTES = 64
"""How much white space may stand around the comma between two elements of a block's end."""

SPACE = b" \t\r\n"
_SPACES = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb'[^ \t\r\n,:"{}\[\]]*+')
_STRING_BODY = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_UP_TO_BRACKET = re.compile(
    # Whole strings are passed over, and so are objects and arrays without strings or brackets.
    rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\[[^"{}\[\]]*+\]|\{[^"{}\[\]]*+\})*+',
    re.DOTALL,
)
_OPENING = re.compile(rb"[\[{]++")
_CLOSING = re.compile(rb"[\]}]++")
_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_OBJECT, _OBJECT_END, _ARRAY, _ARRAY_END = b"{}[]"


class Readable(Protocol):
    """What can be read in pieces: a file, a socket, something that decompresses."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end only."""
        ...


class ValueScanner:
    """Finds the end of one value, over any number of pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_started = self._is_string = self._is_scalar = False

    def scan(self, data: bytes, at: int) -> tuple[int, bool]:
        """Where to go on, and whether that is the value's end; ``at`` is where it went on last."""
        if not self._is_started:
            self._is_started = True
            self._is_string = data[at] == _QUOTE
            self._depth = int(data[at] in b"{[")
            self._is_scalar = not self._is_string and not self._depth
            at += not self._is_scalar
        if self._is_scalar:
            at = _end(_SCALAR, data, at)
            return at, at < len(data)
        while at < len(data):
            at = _end(_STRING_BODY if self._is_string else _UP_TO_BRACKET, data, at)
            if at == len(data) or data[at] == _BACKSLASH:
                return at, False  # a backslash is the last byte: what it escapes is yet to come
            if data[at] == _QUOTE:
                # Outside a string this is one whose end is yet to come, else it is the end.
                self._is_string = not self._is_string
                at += 1
            elif data[at] in b"{[":
                start, at = at, _end(_OPENING, data, at)
                self._depth += at - start
            else:
                closed = min(self._depth, _end(_CLOSING, data, at) - at)
                self._depth -= closed
                at += closed
            if not self._depth and not self._is_string:
                return at, True
        return at, False


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """Where the pattern's match ends; these patterns match everywhere, if only nothing."""
    match = pattern.match(data, at)
    return match.end() if match else at


class JsonStream:
    """The text, and how far it was read. Raises ParseError where it is no JSON, or cut off."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._data = b""
        self._at = 0
        self._before = 0
        self._is_taken = True

    @property
    def position(self) -> int:
        return self._before + self._at

    @property
    def where(self) -> str:
        return f"byte {self.position}"

    def peek(self) -> int:
        """The next byte that is no white space; -1 at the end of the text."""
        while True:
            self._at = _end(_SPACES, self._data, self._at)
            if self._at < len(self._data):
                return self._data[self._at]
            if not self._fill():
                return -1

    def members(self) -> Iterator[str]:
        """Names of the members of the object here; the caller takes each value, or leaves it."""
        self._expect(_OBJECT)
        while True:
            if self.peek() == _OBJECT_END:
                break
            name = self.read_value(KEY_BYTES_MAX)
            if name is None or not name.startswith(b'"'):
                raise ParseError(self.where, "a member without a name; this is no JSON")
            self._expect(_COLON)
            self._is_taken = False
            yield name[1:-1].decode("utf-8", "replace")
            if not self._is_taken:
                self.read_value(0)
            if self.peek() == _COMMA:
                self._at += 1
            elif self.peek() != _OBJECT_END:
                raise self._unexpected("a comma or the end of the object")
        self._at += 1

    def read_value(self, bytes_max: int) -> bytes | None:
        """The value that begins here, as it is written; None if it is longer than ``bytes_max``."""
        self._is_taken = True
        if self.peek() == -1:
            raise self._cut_off()
        if self._data[self._at] in b",:]}":
            raise self._unexpected("a value")
        scanner, length, skipped, is_held = ValueScanner(), 0, 0, True
        while True:
            end, is_end = scanner.scan(self._data, self._at + length)
            length = end - self._at
            is_held = is_held and length <= bytes_max
            if is_end:
                value = self._data[self._at : end] if is_held else None
                self._at = end
                return value
            if not is_held:
                skipped += length
                self._at, length = end, 0
                if skipped > SKIP_BYTES_MAX:
                    detail = f"a value longer than SKIP_BYTES_MAX = {SKIP_BYTES_MAX} bytes"
                    raise ParseError(self.where, f"{detail}; given up")
            if not self._fill():
                raise self._cut_off()

    def read_elements(
        self, decode_all: Callable[[bytes], list[T]], *, is_end_optional: bool = False
    ) -> Iterator[list[T] | ParseError]:
        """Elements of the array that begins here, in blocks.

        ``decode_all`` decodes a list. An element that it refuses, or that is over
        ELEMENT_BYTES_MAX, is a ParseError in its place. ``is_end_optional``: the text may end
        after any element, as Chrome's own traces do.
        """
        self._expect(_ARRAY)
        self._is_taken = True
        one_by_one_until = 0
        while self.peek() != _ARRAY_END:
            if self.position >= one_by_one_until:
                end, following = self._last_boundary()
                block = _try(decode_all, self._data[self._at : end]) if following else None
                if isinstance(block, list):
                    self._at = following
                    yield block
                    continue
                if following and (parts := _split(self._data[self._at : end])):
                    yield from _decode_parts(parts, decode_all, self.position)
                    self._at = following
                    continue
                one_by_one_until = self._before + end
            yield self._read_element(decode_all)
            if self.peek() == _COMMA:
                self._at += 1
            elif self.peek() == -1 and is_end_optional:
                return
            elif self.peek() != _ARRAY_END:
                raise self._unexpected("a comma or the end of the array")
        self._at += 1

    def _read_element(self, decode_all: Callable[[bytes], list[T]]) -> list[T] | ParseError:
        self.peek()
        where = self.where
        text = self.read_value(ELEMENT_BYTES_MAX)
        if text is None:
            detail = f"longer than ELEMENT_BYTES_MAX = {ELEMENT_BYTES_MAX} bytes; passed over"
            return ParseError(where, detail)
        block = _try(decode_all, text)
        if isinstance(block, ParseError):
            return ParseError(where, block.detail)
        return block

    def _last_boundary(self) -> tuple[int, int]:
        """Where, in what is held, an element seems to end and where the next one begins.

        The end of what is held and 0 if it shows no such place.
        """
        data, following = self._data, len(self._data)
        for _ in range(BOUNDARY_TRIES):
            following = data.rfind(b"{", self._at, following)
            if following < 0:
                break
            start = max(self._at, following - BOUNDARY_BYTES)
            before = data[start:following].rstrip(SPACE)
            element = before.removesuffix(b",").rstrip(SPACE)
            if before.endswith(b",") and element.endswith(b"}"):
                return start + len(element), following
        return len(data), 0

    def _fill(self) -> bool:
        """Whether another piece came; what was taken is dropped."""
        piece = self._stream.read(PIECE_BYTES)
        if piece:
            self._data = self._data[self._at :] + piece
            self._before += self._at
            self._at = 0
        return bool(piece)

    def _expect(self, byte: int) -> None:
        if self.peek() != byte:
            raise self._unexpected(repr(chr(byte)))
        self._at += 1

    def _unexpected(self, wanted: str) -> ParseError:
        if self.peek() == -1:
            return self._cut_off()
        seen = self._data[self._at : self._at + 20]
        return ParseError(self.where, f"{seen!r} where {wanted} should be")

    def _cut_off(self) -> ParseError:
        return ParseError("", f"cut off at byte {self._before + len(self._data)}")


def _try(decode_all: Callable[[bytes], list[T]], elements: bytes) -> list[T] | ParseError:
    try:
        return decode_all(b"[%b]" % elements)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return ParseError("", f"not understood: {error}")


_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _split(elements: bytes) -> list[bytes]:
    """The elements one by one; none if they are not JSON."""
    parts = _try(_decode_raw, elements)
    return [] if isinstance(parts, ParseError) else [bytes(part) for part in parts]


def _decode_parts(
    parts: list[bytes], decode_all: Callable[[bytes], list[T]], position: int
) -> Iterator[list[T] | ParseError]:
    """Each element by itself; ``position`` is where the first one stands."""
    good: list[T] = []
    for part in parts:
        one = _try(decode_all, part)
        if isinstance(one, ParseError):
            yield good
            good = []
            yield ParseError(f"after byte {position}", one.detail)
        else:
            good.extend(one)
    yield good
