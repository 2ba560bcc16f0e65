"""Pickles of plain containers, read without the power to do anything else.

A pickle is a program. `pickle.Unpickler` with a `find_class` that refuses runs nothing of the
attacker's, but it still believes every number in the pickle: `LONG_BINPUT` with the index 2**31
makes it allocate a memo of sixteen gigabytes, and so do claimed lengths. So this is a small machine
of its own: it knows the instructions that text, numbers, dictionaries, lists and tuples need
(protocols 2 to 5), refuses every other by name, and each thing that can grow has a bound.

What comes back may hold the same list many times, or itself: never walk through it without a bound,
and never print it. Keys of dictionaries are text, whose hashes an attacker cannot foresee.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from itertools import takewhile
from typing import Any, ClassVar

from collector.contract.errors import ParseError

INSTRUCTIONS_MAX = 4_000_000
"""No instruction makes more than a hundred bytes, or four times its own text: 400 MB at the worst,
and the text. A Flight Recorder's dump of 20,000 operations with their stacks has about
two million. It reads about three million in a second."""
MARKS_MAX = 100
"""Containers that are open at once. A dump has five."""
PROTOCOLS = range(2, 6)

EXECUTING = frozenset(
    {
        "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX",
        "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID",
    }
)  # fmt: skip
"""Instructions that import or call something."""

NAMES = {ord(each.code): each.name for each in pickletools.opcodes}


class CutOffError(ParseError):
    """A pickle that ends before its end; its beginning may be of use (`PlainPickle.rest`)."""


class PlainPickle:
    """One pickle that is being read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        """The stacks below each open container's own."""
        self._memo: dict[int, Any] = {}

    def load(self) -> object:
        """The value that the pickle holds; ParseError, and nothing else, if that is not plain."""
        data, do = self._data, self._DO
        try:
            for _ in range(INSTRUCTIONS_MAX):
                code = data[self._at]
                self._at += 1
                if code == _STOP:
                    return self._stack.pop()
                do[code](self)
        except KeyError:
            raise self._refuse(code) from None
        except (IndexError, struct.error):
            raise CutOffError(
                f"byte {self._at}", "the pickle is cut off, or takes more than it has"
            ) from None
        except (TypeError, AttributeError, ValueError):
            # An instruction found something else on the stack than it works on.
            raise ParseError(
                f"byte {self._at}", f"{NAMES[code]} has nothing to work on here"
            ) from None
        raise ParseError(
            f"byte {self._at}", f"over INSTRUCTIONS_MAX = {INSTRUCTIONS_MAX} instructions"
        )

    def rest(self) -> dict[str, Any] | None:
        """What was read of a dictionary that is cut off: its items, and those of the last of them.

        What was open inside of that is left out as a whole: half of an operation could be taken for
        another one. None: not even its beginning is there.
        """
        levels = [*self._marks, self._stack]
        if not levels[0] or type(levels[0][0]) is not dict:
            return None
        found: dict[str, Any] = dict(levels[0][0])
        if len(levels) == 1:
            return found
        items = levels[1]
        last = items[-2:] if len(items) % 2 == 0 else []
        found.update(pairs_of(items))
        if len(levels) > 2 and last and type(last[0]) is str:  # noqa: PLR2004 - below the outermost
            inside = levels[2]
            if type(last[1]) is list:
                # The last one may be about to be filled.
                found[last[0]] = [*last[1], *[*takewhile(is_filled, inside)][:-1]]
            elif type(last[1]) is dict:
                found[last[0]] = {**last[1], **pairs_of(inside)}
        return found

    def _refuse(self, code: int) -> ParseError:
        name = NAMES.get(code, f"0x{code:02x}")
        why = "would execute code" if name in EXECUTING else "is no part of plain data"
        return ParseError(f"byte {self._at - 1}", f"the pickle's instruction {name} {why}; refused")

    # Reading arguments -----------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        """The next bytes; a claimed length is checked before anything is made of it."""
        piece = self._data[self._at : self._at + count]
        if len(piece) != count:
            raise IndexError
        self._at += count
        return piece

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    # Instructions ----------------------------------------------------------------------------

    def _proto(self) -> None:
        version = self._number(1)
        if version not in PROTOCOLS:
            raise ParseError("byte 1", f"pickle protocol {version}; 2 to 5 are understood")

    def _frame(self) -> None:
        self._take(8)  # how much follows: a hint for readers of streams

    def _mark(self) -> None:
        if len(self._marks) >= MARKS_MAX:
            raise ParseError(f"byte {self._at}", f"over MARKS_MAX = {MARKS_MAX} open containers")
        self._marks.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Any]:
        items = self._stack
        self._stack = self._marks.pop()
        return items

    def _empty_dict(self) -> None:
        self._stack.append({})

    def _empty_list(self) -> None:
        self._stack.append([])

    def _empty_tuple(self) -> None:
        self._stack.append(())

    def _dict(self) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._set(items)

    def _list(self) -> None:
        items = self._since_mark()
        self._stack.append(items)

    def _tuple(self) -> None:
        items = self._since_mark()
        self._stack.append(tuple(items))

    def _last(self, count: int) -> tuple[Any, ...]:
        if len(self._stack) < count:
            raise IndexError
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        return items

    def _tuple1(self) -> None:
        self._stack.append(self._last(1))

    def _tuple2(self) -> None:
        self._stack.append(self._last(2))

    def _tuple3(self) -> None:
        self._stack.append(self._last(3))

    def _set(self, items: list[Any] | tuple[Any, ...]) -> None:
        target = self._stack[-1]
        keys = items[::2]
        if type(target) is not dict or len(items) % 2 or not all(type(key) is str for key in keys):
            raise TypeError
        target.update(zip(keys, items[1::2], strict=True))

    def _setitem(self) -> None:
        self._set(self._last(2))

    def _setitems(self) -> None:
        self._set(self._since_mark())

    def _extend(self, items: list[Any] | tuple[Any, ...]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise TypeError
        target.extend(items)

    def _append(self) -> None:
        self._extend(self._last(1))

    def _appends(self) -> None:
        self._extend(self._since_mark())

    def _text(self, width: int) -> None:
        self._stack.append(self._take(self._number(width)).decode("utf-8", "replace"))

    def _short_text(self) -> None:
        self._text(1)

    def _long_text(self) -> None:
        self._text(4)

    def _longest_text(self) -> None:
        self._text(8)

    def _int1(self) -> None:
        self._stack.append(self._number(1))

    def _int2(self) -> None:
        self._stack.append(self._number(2))

    def _int4(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def _long1(self) -> None:
        self._stack.append(int.from_bytes(self._take(self._number(1)), "little", signed=True))

    def _float(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def _none(self) -> None:
        self._stack.append(None)

    def _true(self) -> None:
        self._stack.append(True)

    def _false(self) -> None:
        self._stack.append(False)

    def _pop(self) -> None:
        self._stack.pop()

    def _put1(self) -> None:
        self._memo[self._number(1)] = self._stack[-1]

    def _put4(self) -> None:
        self._memo[self._number(4)] = self._stack[-1]

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, width: int) -> None:
        index = self._number(width)
        if index not in self._memo:
            raise IndexError
        self._stack.append(self._memo[index])

    def _get1(self) -> None:
        self._get(1)

    def _get4(self) -> None:
        self._get(4)

    _DO: ClassVar[dict[int, Callable[[PlainPickle], None]]] = {
        ord(code): do
        for code, do in {
            "\x80": _proto,
            "\x95": _frame,
            "(": _mark,
            "}": _empty_dict,
            "]": _empty_list,
            ")": _empty_tuple,
            "d": _dict,
            "l": _list,
            "t": _tuple,
            "\x85": _tuple1,
            "\x86": _tuple2,
            "\x87": _tuple3,
            "s": _setitem,
            "u": _setitems,
            "a": _append,
            "e": _appends,
            "\x8c": _short_text,
            "X": _long_text,
            "\x8d": _longest_text,
            "K": _int1,
            "M": _int2,
            "J": _int4,
            "\x8a": _long1,
            "G": _float,
            "N": _none,
            "\x88": _true,
            "\x89": _false,
            "0": _pop,
            "q": _put1,
            "r": _put4,
            "\x94": _memoize,
            "h": _get1,
            "j": _get4,
        }.items()
    }


_STOP = ord(".")


def is_filled(item: object) -> bool:
    return type(item) is dict and bool(item)


def pairs_of(items: list[Any]) -> dict[str, Any]:
    """Keys with their values, up to the first that is none; a key without a value is left out."""
    pairs = zip(items[::2], items[1::2], strict=False)
    return dict(takewhile(lambda pair: type(pair[0]) is str, pairs))


def load_plain(data: bytes) -> object:
    r"""The plain value in a pickle; ParseError for anything that is not one, executing nothing.

    >>> load_plain(b"\x80\x02}X\x01\x00\x00\x00aK\x01s.")
    {'a': 1}
    """
    return PlainPickle(data).load()


def load_beginning(data: bytes) -> tuple[object, ParseError | None]:
    r"""The same of a pickle that may be cut off: what there is of its dictionary, and the end.

    >>> load_beginning(b"\x80\x02}(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b")[0]
    {'a': 1}
    """
    machine = PlainPickle(data)
    try:
        return machine.load(), None
    except CutOffError as error:
        found = machine.rest()
        if found is None:
            raise
        return found, ParseError(error.where, error.detail)
