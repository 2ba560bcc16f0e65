"""Go's `fmt` for the values of templates: what `{{ x }}`, `print` and `printf` write."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from alerts.rulebook.template import numbers
from alerts.rulebook.template.bounds import OUTPUT_MAX, PRINT_DEPTH_MAX
from alerts.rulebook.template.errors import BoundError, CallError
from alerts.rulebook.template.lex import quoted, quoted_character
from alerts.rulebook.template.values import (
    Arguments,
    Byte,
    Moment,
    Root,
    Row,
    Rows,
    Value,
    as_bytes,
    fields_of,
    type_name,
)

_DIRECTIVE = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<width_place>\[[^\]]*\])?(?P<width>\*|[0-9]+)?"
    r"(?:(?P<point>\.)(?P<precision_place>\[[^\]]*\])?(?P<precision>\*|[0-9]+)?)?"
    r"(?P<place>\[[^\]]*\])?(?P<verb>.)?",
    re.DOTALL,
)
_PLACE = re.compile(r"\[([0-9]{1,4})\]")
_WIDTH_MAX = 1_000_000
"""Go's own bound on widths and precisions."""
_UNICODE_END = 0x110000
_UNSIGNED_MAX = 2**64 - 1
_REPLACEMENT = "\ufffd"
_WHOLE_BASES = {"v": "d", "d": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
_BASE_PREFIXES = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Flags(msgspec.Struct, frozen=True):
    """How a directive wants its value."""

    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    names: bool = False
    """Fields are written with their names: `%+v`."""
    width: int | None = None
    precision: int | None = None

    def pad(self, text: str) -> str:
        """A text in its width; zeros stand in front of texts too, as in Go."""
        if self.width is None:
            return text
        if self.minus:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if self.zero else " ")

    def pad_number(self, sign: str, digits: str) -> str:
        """A number in its width: zeros go between its sign and its digits."""
        if self.zero and not self.minus and self.width is not None:
            digits = digits.rjust(self.width - len(sign), "0")
        return self.without_zero().pad(sign + digits)

    def without_zero(self) -> Flags:
        return msgspec.structs.replace(self, zero=False)


_PLAIN = Flags()


class _Written:
    """Parts of a text, within the bound for all of it."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0

    def add(self, part: str) -> None:
        self.length += len(part)
        if self.length > OUTPUT_MAX:
            raise BoundError(f"a text of more than {OUTPUT_MAX} characters")
        self.parts.append(part)

    def text(self) -> str:
        return "".join(self.parts)


def show(value: Value) -> str:
    if value is None:
        return "<no value>"
    return write(value, "v", _PLAIN, follows=True)


def print_all(values: Sequence[Value], *, follows: bool = False) -> str:
    written = _Written()
    before: Value = ""
    for number, value in enumerate(values):
        if number and not _is_string(value) and not _is_string(before):
            written.add(" ")
        written.add(write(value, "v", _PLAIN, follows=follows))
        before = value
    return written.text()


def print_line(values: Sequence[Value]) -> str:
    written = _Written()
    for number, value in enumerate(values):
        written.add(" " if number else "")
        written.add(write(value, "v", _PLAIN))
    written.add("\n")
    return written.text()


def _is_string(value: Value) -> bool:
    return isinstance(value, str)


# --- one value ---------------------------------------------------------------------------------


def write(value: Value, verb: str, flags: Flags, *, follows: bool = False) -> str:
    """One value by one verb, or Go's error text for a verb that does not suit it.

    A row is a pointer to Go, which it marks (`&{…}`) unless ``follows`` is set.
    """
    if verb == "T":
        return flags.pad(type_name(value))
    if verb == "v" and flags.sharp:
        return _go_syntax(value, flags)
    written = _Written()
    if verb == "v" and flags.plus:
        flags = msgspec.structs.replace(flags, plus=False, names=True)
    if isinstance(value, Row) and not follows:
        written.add("&")
    _write(value, verb, flags, written, depth=0)
    return written.text()


def _go_syntax(value: Value, flags: Flags) -> str:
    """`%#v`: the value as a Go program would have it."""
    match value:
        case None | bool() | float():
            return write(value, "v", msgspec.structs.replace(flags, sharp=False))
        case Byte():
            return flags.pad_number("", f"0x{value:x}")
        case int():
            return _whole(value, "d", msgspec.structs.replace(flags, sharp=False))
        case str():
            return flags.pad(quoted(value))
        case dict():
            pairs = ", ".join(f"{quoted(key)}:{quoted(one)}" for key, one in sorted(value.items()))
            return f"{type_name(value)}{{{pairs}}}"
        case _:
            raise CallError(f"printf: %#v of a {type_name(value)} is not known here; use %v")


def _write(value: Value, verb: str, flags: Flags, written: _Written, depth: int) -> None:
    if depth > PRINT_DEPTH_MAX:
        raise BoundError(f"more than {PRINT_DEPTH_MAX} values inside each other")
    if flags.width is not None and flags.width > OUTPUT_MAX:
        raise BoundError(f"a width of {flags.width} characters; at most {OUTPUT_MAX}")
    if flags.precision is not None and flags.precision > OUTPUT_MAX:
        raise BoundError(f"a precision of {flags.precision} digits; at most {OUTPUT_MAX}")
    match value:
        case dict():
            _write_map(value, verb, flags, written, depth)
        case Arguments():
            _write_map(value.by_name, verb, flags, written, depth)
        case Rows():
            # Go writes each row's address in memory; its content is of more use.
            _write_rows(value.rows, verb, flags, written, depth)
        case Row() | Root():
            _write_struct(fields_of(value), verb, flags, written, depth)
        case _:
            written.add(_scalar(value, verb, flags))


def _write_rows(
    rows: Iterable[Row], verb: str, flags: Flags, written: _Written, depth: int
) -> None:
    written.add("[")
    for number, row in enumerate(rows):
        written.add(" " if number else "")
        _write(row, verb, flags, written, depth + 1)
    written.add("]")


def _write_struct(
    fields: Mapping[str, Value], verb: str, flags: Flags, written: _Written, depth: int
) -> None:
    written.add("{")
    for number, (name, one) in enumerate(fields.items()):
        written.add(" " if number else "")
        written.add(f"{name}:" if flags.names else "")
        _write(one, verb, flags, written, depth + 1)
    written.add("}")


def _write_map(
    entries: dict[str, str] | dict[str, Value],
    verb: str,
    flags: Flags,
    written: _Written,
    depth: int,
) -> None:
    written.add("map[")
    for number, (name, one) in enumerate(sorted(entries.items(), key=lambda pair: pair[0])):
        written.add(" " if number else "")
        _write(name, verb, flags, written, depth + 1)
        written.add(":")
        _write(one, verb, flags, written, depth + 1)
    written.add("]")


def _scalar(value: Value, verb: str, flags: Flags) -> str:
    match value:
        case None | bool():
            if verb != "v" and (value is None or verb != "t"):
                return _wrong(verb, value, flags)
            return flags.pad({None: "<nil>", True: "true", False: "false"}[value])
        case int():
            return _whole(value, verb, flags)
        case float():
            return _float(value, verb, flags)
        case str():
            return _string(value, verb, flags)
        case _:
            assert isinstance(value, Moment), "values with others inside are not written here"
            return _string(write_moment(value), verb, flags)


def _wrong(verb: str, value: Value, flags: Flags) -> str:
    """What Go writes where a verb does not suit the value, which it writes as wide as was asked."""
    if value is None:
        return f"%!{verb}(<nil>)"
    return f"%!{verb}({type_name(value)}={_scalar(value, 'v', flags)})"


def write_moment(moment: Moment) -> str:
    """A point in time as Go writes it.

    >>> write_moment(Moment(1435065584128))
    '2015-06-23 13:19:44.128 +0000 UTC'
    """
    seconds, milliseconds = divmod(moment.milliseconds, 1000)
    date = _EPOCH + dt.timedelta(seconds=seconds)
    fraction = f".{milliseconds:03d}".rstrip("0") if milliseconds else ""
    return f"{date:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _string(value: str, verb: str, flags: Flags) -> str:
    if verb in "xX":
        content = as_bytes(value)
        content = content if flags.precision is None else content[: flags.precision]
        written = content.hex(" ") if flags.space else content.hex()
        if flags.sharp and written:
            written = "0x" + (written.replace(" ", " 0x") if flags.space else written)
        return flags.pad(written.upper() if verb == "X" else written)
    if verb not in "vsq":
        return _wrong(verb, value, flags)
    text = value if flags.precision is None else value[: flags.precision]
    if verb != "q":
        return flags.pad(str(text))
    if flags.sharp and "`" not in text and all(one == "\t" or one.isprintable() for one in text):
        return flags.pad(f"`{text}`")
    return flags.pad(quoted(text, ascii_only=flags.plus))


def _whole(value: int, verb: str, flags: Flags) -> str:
    if verb in "cqU":
        return _character(value, verb, flags)
    if verb not in _WHOLE_BASES:
        return _wrong(verb, value, flags)
    base = _WHOLE_BASES[verb]
    sign = "-" if value < 0 else "+" if flags.plus else " " if flags.space else ""
    digits = format(abs(value), base)
    if flags.precision is not None:
        # A precision of zero and a value of zero make nothing at all.
        digits = "" if flags.precision == value == 0 else digits.rjust(flags.precision, "0")
        flags = flags.without_zero()
    if flags.sharp and base in _BASE_PREFIXES and not (base == "o" and digits.startswith("0")):
        digits = _BASE_PREFIXES[base] + digits
    if verb == "O":
        digits = "0o" + digits
    return flags.pad_number(sign, digits)


def _character(value: int, verb: str, flags: Flags) -> str:
    is_valid = 0 <= value < _UNICODE_END and not 0xD800 <= value < 0xE000  # noqa: PLR2004 - surrogates
    character = chr(value) if is_valid else _REPLACEMENT
    if verb == "c":
        return flags.pad(character)
    if verb == "q":
        return flags.pad(f"'{quoted_character(character, chr(39), ascii_only=flags.plus)}'")
    shown = f" '{character}'" if flags.sharp and is_valid and character.isprintable() else ""
    return flags.without_zero().pad(f"U+{value & _UNSIGNED_MAX:04X}{shown}")


def _float(value: float, verb: str, flags: Flags) -> str:
    if verb == "b" or (verb in "xX" and flags.precision is not None):
        raise CallError(f"printf: this %{verb} of a float64 is not known here; use %g, %f or %e")
    if verb not in "veEfFgGxX":
        return _wrong(verb, value, flags)
    if flags.sharp:
        raise CallError(f"printf: the flag # for %{verb} of a float64 is not known here")
    text = numbers.special(value)
    if text is None:
        text = _digits(value, verb, flags.precision)
    else:
        flags = flags.without_zero()
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    if flags.plus and sign != "-":
        sign = "+"
    elif flags.space and sign != "-":
        sign = " "
    return flags.pad_number(sign, digits)


def _digits(value: float, verb: str, precision: int | None) -> str:
    """A float that is a number, with its minus."""
    kind = "g" if verb == "v" else verb.lower()
    if kind == "x":
        text = numbers.hexadecimal(value)
    elif precision is None and kind == "g":
        text = numbers.shortest(value, "g")
    else:
        places = 6 if precision is None else precision
        text = format(value, f".{places}{kind}")
    return text.upper() if verb.isupper() and verb != "F" else text


# --- printf ------------------------------------------------------------------------------------


def printf(pattern: str, values: Sequence[Value]) -> str:
    """What `printf` writes. A wrong directive does not fail: Go writes what is wrong with it."""
    printing = _Printing(values)
    at = 0
    while (begin := pattern.find("%", at)) >= 0:
        printing.written.add(pattern[at:begin])
        found = _DIRECTIVE.match(pattern, begin)
        assert found is not None, "it begins with the sign, and everything else may be missing"
        printing.directive(found)
        at = found.end()
    printing.written.add(pattern[at:])
    printing.say_extra()
    return printing.written.text()


class _Printing:
    """One call of printf: which value is next."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.values = values
        self.next = 0
        self.reordered = False
        self.written = _Written()

    def directive(self, found: re.Match[str]) -> None:
        self.is_bad_place = False
        flags = _read_flags(found["flags"])
        flags = self._sized(flags, found)
        verb = found["verb"]
        if found["place"]:
            self._go_to(found["place"])
        if verb is None:
            self.written.add("%!(NOVERB)")
        elif verb == "%":
            self.written.add("%")
        elif self.is_bad_place:
            self.written.add(f"%!{verb}(BADINDEX)")
        elif self.next >= len(self.values):
            self.written.add(f"%!{verb}(MISSING)")
        else:
            value = self.values[self.next]
            self.next += 1
            self.written.add(write(value, verb, flags))

    def _sized(self, flags: Flags, found: re.Match[str]) -> Flags:
        width = self._size(found["width_place"], found["width"], "%!(BADWIDTH)")
        if width is not None and width < 0:
            flags = msgspec.structs.replace(flags, minus=True, zero=False)
            width = -width
        precision = None
        if found["point"]:
            place, written = found["precision_place"], found["precision"]
            precision = self._size(place, written, "%!(BADPREC)") if written or place else 0
            if precision is not None and precision < 0:
                self.written.add("%!(BADPREC)")
                precision = None
        return msgspec.structs.replace(flags, width=width, precision=precision)

    def _size(self, place: str | None, written: str | None, complaint: str) -> int | None:
        """A width or a precision: a number in the pattern, or the next value (`*`)."""
        if place:
            self._go_to(place)
        if written is None:
            return None
        if written != "*":
            size = int(written[:8])
            if size <= _WIDTH_MAX:
                return size
            self.written.add(complaint)
            return None
        value = self.values[self.next] if self.next < len(self.values) else None
        self.next += self.next < len(self.values)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or abs(int(str(value))) > _WIDTH_MAX:
            self.written.add(complaint)
            return None
        return int(str(value))

    def _go_to(self, place: str) -> None:
        """Make the value of this number (`[1]` is the first) the next."""
        self.reordered = True
        found = _PLACE.fullmatch(place)
        if found is None or not 1 <= int(found[1]) <= len(self.values):
            self.is_bad_place = True
            return
        self.next = int(found[1]) - 1

    def say_extra(self) -> None:
        """Name the values that no directive uses."""
        if self.reordered or self.next >= len(self.values):
            return
        self.written.add("%!(EXTRA ")
        for number, value in enumerate(self.values[self.next :]):
            self.written.add(", " if number else "")
            if value is None:
                self.written.add("<nil>")
            else:
                self.written.add(f"{type_name(value)}={write(value, 'v', _PLAIN)}")
        self.written.add(")")


def _read_flags(written: str) -> Flags:
    minus = "-" in written
    return Flags(
        minus=minus,
        plus="+" in written,
        sharp="#" in written,
        space=" " in written,
        zero="0" in written and not minus,
    )
