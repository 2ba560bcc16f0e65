"""A template's text in words, as Go's `text/template` splits it."""

from __future__ import annotations

import enum
import re

import msgspec

from alerts.rulebook.template.bounds import TEXT_MAX
from alerts.rulebook.template.errors import TemplateError

LEFT, RIGHT = "{{", "}}"
SPACES = " \t\r\n"
"""What separates words, and what trim markers take away."""
_SPACES = frozenset(SPACES)
"""The same, of which the empty text is no member."""
NAME_ENDS = ".,|:)("
"""What may follow a name, besides spaces and the end of the action."""


class Kind(enum.Enum):
    """What a word is."""

    ERROR = "error"
    BOOL = "bool"
    CHAR = "char"
    CHAR_CONSTANT = "character constant"
    ASSIGN = "="
    DECLARE = ":="
    END_OF_TEXT = "EOF"
    FIELD = "field"
    IDENTIFIER = "identifier"
    LEFT = "left delimiter"
    RIGHT = "right delimiter"
    OPEN = "("
    CLOSE = ")"
    NUMBER = "number"
    PIPE = "|"
    STRING = "string"
    RAW_STRING = "raw string"
    SPACE = "space"
    TEXT = "text"
    VARIABLE = "variable"
    DOT = "."
    KEYWORD = "keyword"


KEYWORDS = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template",
     "with")
)  # fmt: skip
"""Names that are no functions."""

_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*|0[oO][0-7_]*|0[bB][01_]*|[0-9_]*)"
    r"(?:\.[0-9a-fA-F_]*(?<![a-fA-F]))?(?:[eE][+-]?[0-9_]*|[pP][+-]?[0-9_]*)?i?"
)
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_CHAR = re.compile(r"'(?:[^'\\\n]|\\[^\n])*'")
_SIGNS = {"|": Kind.PIPE, "(": Kind.OPEN, ")": Kind.CLOSE, "=": Kind.ASSIGN}
_WORD_SHOWN_MAX = 10


class Word(msgspec.Struct, frozen=True):
    """One word; ``value`` is its text, or the complaint."""

    kind: Kind
    at: int
    value: str
    line: int

    def __str__(self) -> str:
        """As Go's complaints show it."""
        if self.kind is Kind.END_OF_TEXT:
            return "EOF"
        if self.kind is Kind.ERROR:
            return self.value
        if self.kind is Kind.KEYWORD or self.kind is Kind.DOT:
            return f"<{self.value}>"
        if len(self.value) > _WORD_SHOWN_MAX:
            return f"{quoted(self.value[:_WORD_SHOWN_MAX])}..."
        return quoted(self.value)


_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\",
}  # fmt: skip
_ASCII_END = 0x80
_FOUR_DIGITS_END = 0x10000
_ESCAPED_BYTES = range(0xDC80, 0xDD00)
"""Where Python keeps bytes that are no UTF-8."""


def quoted_character(character: str, quote: str, *, ascii_only: bool = False) -> str:
    """One character as Go writes it between quotes."""
    if character == quote:
        return "\\" + quote
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if character.isprintable() and (code < _ASCII_END or not ascii_only):
        return character
    if code < _ASCII_END:
        return f"\\x{code:02x}"
    if code in _ESCAPED_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < _FOUR_DIGITS_END else f"\\U{code:08x}"


def quoted(text: str, *, ascii_only: bool = False) -> str:
    inside = (quoted_character(one, '"', ascii_only=ascii_only) for one in text)
    return f'"{"".join(inside)}"'


def named(character: str) -> str:
    """A character as Go's `%#U` writes it."""
    shown = f" '{character}'" if character.isprintable() else ""
    return f"U+{ord(character):04X}{shown}"


def is_name_character(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()


def lex(text: str) -> list[Word]:
    if len(text) > TEXT_MAX:
        raise TemplateError(f"the template has {len(text)} characters; at most {TEXT_MAX}", line=1)
    return _Lexer(text).words()


class _Lexer:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.open = 0
        self.found: list[Word] = []

    def words(self) -> list[Word]:
        while self._text() and self._enter():
            pass
        return self.found

    def _add(self, kind: Kind, end: int) -> None:
        value = self.text[self.at : end]
        self.found.append(Word(kind, self.at, value, self.line))
        self.line += value.count("\n")
        self.at = end

    def _skip(self, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def _complain(self, complaint: str) -> bool:
        self.found.append(Word(Kind.ERROR, self.at, complaint, self.line))
        return False

    def _text(self) -> bool:
        """The plain text up to the next action. False: there is none."""
        begin = self.text.find(LEFT, self.at)
        if begin < 0:
            if self.at < len(self.text):
                self._add(Kind.TEXT, len(self.text))
            self._add(Kind.END_OF_TEXT, len(self.text))
            return False
        end = begin
        if self._trims(begin):
            end = self.at + len(self.text[self.at : begin].rstrip(SPACES))
        if end > self.at:
            self._add(Kind.TEXT, end)
        self._skip(begin)
        return True

    def _trims(self, begin: int) -> bool:
        """Whether the action that begins here takes away the spaces in front of it."""
        return self.text.startswith("-", begin + 2) and self.text[begin + 3 : begin + 4] in _SPACES

    def _enter(self) -> bool:
        """The action that begins here, be it a comment. False: a complaint ended it."""
        inside = self.at + (4 if self._trims(self.at) else 2)
        if self.text.startswith("/*", inside):
            return self._comment(inside)
        self._add(Kind.LEFT, self.at + 2)
        self._skip(inside)
        self.open = 0
        return self._action()

    def _comment(self, inside: int) -> bool:
        """A comment is a whole action."""
        end = self.text.find("*/", inside + 2)
        if end < 0:
            return self._complain("unclosed comment")
        if not self._is_end(end + 2):
            return self._complain("comment ends before closing delimiter")
        self._leave(end + 2)
        return True

    def _is_end(self, at: int) -> bool:
        """Whether an action ends here, with or without a trim marker."""
        return self.text.startswith(RIGHT, at) or self._is_trimming_end(at)

    def _is_trimming_end(self, at: int) -> bool:
        return self.text[at : at + 1] in _SPACES and self.text.startswith("-}}", at + 1)

    def _leave(self, at: int) -> None:
        """Go behind the end of the action at this place, and what it trims."""
        if self._is_trimming_end(at):
            end = at + 4
            while self.text[end : end + 1] in _SPACES:
                end += 1
            self._skip(end)
        else:
            self._skip(at + 2)

    def _action(self) -> bool:
        while True:
            if self._is_end(self.at):
                if self.open:
                    return self._complain("unclosed left paren")
                end = self.at
                self.found.append(Word(Kind.RIGHT, end, RIGHT, self.line))
                self._leave(end)
                return True
            if self.at >= len(self.text):
                return self._complain("unclosed action")
            if not self._word():
                return False

    def _word(self) -> bool:
        first = self.text[self.at]
        if first in SPACES:
            end = self.at
            while self.text[end : end + 1] in _SPACES and not self._is_trimming_end(end):
                end += 1
            self._add(Kind.SPACE, end)
            return True
        if first in "\"`'":
            return self._string(first)
        following = self.text[self.at + 1 : self.at + 2]
        if first in "+-" or "0" <= first <= "9" or (first == "." and "0" <= following <= "9"):
            return self._number()
        if first in ".$" or is_name_character(first):
            return self._name(first)
        return self._sign(first)

    def _sign(self, first: str) -> bool:
        """One that is a word by itself."""
        if first == ":":
            if not self.text.startswith(":=", self.at):
                return self._complain("expected :=")
            self._add(Kind.DECLARE, self.at + 2)
            return True
        if not (first.isascii() and first.isprintable()):
            return self._complain(f"unrecognized character in action: {named(first)}")
        self._add(_SIGNS.get(first, Kind.CHAR), self.at + 1)
        self.open += {"(": 1, ")": -1}.get(first, 0)
        return self.open >= 0 or self._complain(f"unexpected right paren {named(first)}")

    def _string(self, quote: str) -> bool:
        """A text or a character between quotes."""
        if quote == "`":
            end = self.text.find("`", self.at + 1)
            if end < 0:
                return self._complain("unterminated raw quoted string")
            self._add(Kind.RAW_STRING, end + 1)
            return True
        is_text = quote == '"'
        found = (_QUOTED if is_text else _CHAR).match(self.text, self.at)
        if found is None:
            what = "quoted string" if is_text else "character constant"
            return self._complain(f"unterminated {what}")
        self._add(Kind.STRING if is_text else Kind.CHAR_CONSTANT, found.end())
        return True

    def _number(self) -> bool:
        found = _NUMBER.match(self.text, self.at)
        end = found.end() if found else self.at
        following = self.text[end : end + 1]
        if following and is_name_character(following):
            return self._complain(f"bad number syntax: {quoted(self.text[self.at : end + 1])}")
        if following in ("+", "-"):
            return self._complain(
                f"complex numbers are not known here: {quoted(self.text[self.at : end + 1])}"
            )
        self._add(Kind.NUMBER, end)
        return True

    def _name(self, first: str) -> bool:
        """A name, a field (`.x`), a variable (`$x`), or a dot or dollar alone."""
        end = self.at + 1
        while end < len(self.text) and is_name_character(self.text[end]):
            end += 1
        following = self.text[end : end + 1]
        if following and following not in SPACES + NAME_ENDS and following != RIGHT[0]:
            return self._complain(f"bad character {named(following)}")
        word = self.text[self.at : end]
        kind = Kind.IDENTIFIER
        if first == "$":
            kind = Kind.VARIABLE
        elif first == ".":
            kind = Kind.DOT if word == "." else Kind.FIELD
        elif word in KEYWORDS:
            kind = Kind.KEYWORD
        elif word in ("true", "false"):
            kind = Kind.BOOL
        self._add(kind, end)
        return True
