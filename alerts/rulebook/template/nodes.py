"""What a template is made of, and how Go's complaints show it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Text(msgspec.Struct, frozen=True):
    """Plain text."""

    at: int
    text: str

    def __str__(self) -> str:
        return self.text


class Dot(msgspec.Struct, frozen=True):
    """The value that the template is about at this place."""

    at: int

    def __str__(self) -> str:
        return "."


class Nil(msgspec.Struct, frozen=True):
    """No value."""

    at: int

    def __str__(self) -> str:
        return "nil"


class Bool(msgspec.Struct, frozen=True):
    """`true` or `false`."""

    at: int
    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


class Number(msgspec.Struct, frozen=True):
    """A number. Which kind it is depends on where it is used: `1e3` can be whole too."""

    at: int
    text: str
    whole: int | None
    decimal: float | None
    is_decimal: bool
    """Whether it is a decimal where nothing else decides it."""

    def __str__(self) -> str:
        return self.text


class String(msgspec.Struct, frozen=True):
    """A text between quotes."""

    at: int
    written: str
    """With its quotes."""
    value: str

    def __str__(self) -> str:
        return self.written


class Identifier(msgspec.Struct, frozen=True):
    """The name of a function."""

    at: int
    name: str

    def __str__(self) -> str:
        return self.name


class Variable(msgspec.Struct, frozen=True):
    """A variable, and fields of it: `$labels.instance`."""

    at: int
    name: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.name, *self.fields))


class Field(msgspec.Struct, frozen=True):
    """Fields of the dot: `.Labels.instance`."""

    at: int
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f".{field}" for field in self.fields)


class Chain(msgspec.Struct, frozen=True):
    """Fields of what something gives: `(query "up" | first).Value`."""

    at: int
    of: Operand
    fields: tuple[str, ...]

    def __str__(self) -> str:
        whole = f"({self.of})" if isinstance(self.of, Pipeline) else str(self.of)
        return whole + "".join(f".{field}" for field in self.fields)


class Command(msgspec.Struct, frozen=True):
    """A word and what it is given."""

    at: int
    words: tuple[Operand, ...]

    def __str__(self) -> str:
        return " ".join(f"({one})" if isinstance(one, Pipeline) else str(one) for one in self.words)


class Pipeline(msgspec.Struct, frozen=True):
    """Commands, each of which gets what the one before gives; and the variables that get it."""

    at: int
    commands: tuple[Command, ...]
    variables: tuple[str, ...] = ()
    assigns: bool = False
    """The variables were there before: `=`, not `:=`."""

    def __str__(self) -> str:
        commands = " | ".join(map(str, self.commands))
        if not self.variables:
            return commands
        return f"{', '.join(self.variables)} {'=' if self.assigns else ':='} {commands}"


class Action(msgspec.Struct, frozen=True):
    """A pipeline whose value is printed, unless it declares something."""

    at: int
    pipeline: Pipeline

    def __str__(self) -> str:
        return f"{{{{{self.pipeline}}}}}"


class Branch(msgspec.Struct, frozen=True):
    """An `if` or a `with`."""

    at: int
    pipeline: Pipeline
    then: tuple[Piece, ...]
    otherwise: tuple[Piece, ...]
    sets_dot: bool
    """It is a `with`."""

    def __str__(self) -> str:
        return f"{{{{{'with' if self.sets_dot else 'if'} {self.pipeline}}}}}"


class Range(msgspec.Struct, frozen=True):
    """A loop."""

    at: int
    pipeline: Pipeline
    body: tuple[Piece, ...]
    otherwise: tuple[Piece, ...]

    def __str__(self) -> str:
        return f"{{{{range {self.pipeline}}}}}"


class Break(msgspec.Struct, frozen=True):
    """The end of a loop."""

    at: int

    def __str__(self) -> str:
        return "{{break}}"


class Continue(msgspec.Struct, frozen=True):
    """On to a loop's next round."""

    at: int

    def __str__(self) -> str:
        return "{{continue}}"


class Call(msgspec.Struct, frozen=True):
    """Another template in this place."""

    at: int
    name: str
    written: str
    pipeline: Pipeline | None

    def __str__(self) -> str:
        given = f" {self.pipeline}" if self.pipeline else ""
        return f"{{{{template {self.written}{given}}}}}"


Operand = Dot | Nil | Bool | Number | String | Identifier | Variable | Field | Chain | Pipeline
Piece = Text | Action | Branch | Range | Break | Continue | Call
Node = Operand | Piece | Command


class Template(msgspec.Struct, frozen=True):
    """A template that has been read."""

    text: str
    pieces: tuple[Piece, ...]
    defined: Mapping[str, tuple[Piece, ...]]
    """What its `define` and `block` actions define."""
