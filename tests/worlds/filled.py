"""Structs with something in every field, made from their types alone.

A field that is added later is filled as well, so that a test which goes over all fields sees it.
"""

from __future__ import annotations

import collections.abc
import enum
import itertools
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

MARK = "LEAK"
"""What every text begins with."""


class Filler:
    """Fills fields: texts are marked and all different, ``time_ns`` is every time and duration."""

    def __init__(self, time_ns: int) -> None:
        self._time_ns = time_ns
        self._numbers = itertools.count(1)

    def text(self) -> str:
        return f"{MARK}{next(self._numbers)}.{MARK}"

    def fill(self, kind: Any, name: str = "") -> Any:  # noqa: ANN401 - any type and its value
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in {typing.Union, types.UnionType}:
            return self.fill(next(one for one in arguments if one is not type(None)), name)
        return self._one(kind, name) if origin is None else self._many(origin, arguments, name)

    def _many(self, origin: Any, arguments: Any, name: str) -> Any:  # noqa: ANN401 - the same
        if origin is np.ndarray:
            return self._column(arguments, name)
        if origin in {collections.abc.Mapping, dict}:
            return {self.fill(arguments[0]): self.fill(arguments[1])}
        if origin is tuple and arguments[-1] is not Ellipsis:
            return tuple(self.fill(one, name) for one in arguments)
        made = [self.fill(arguments[0], name)]
        return made if origin is collections.abc.Sequence else origin(made)

    def _one(self, kind: Any, name: str) -> Any:  # noqa: ANN401 - the same
        if issubclass(kind, msgspec.Struct):
            hints = typing.get_type_hints(kind)
            return kind(**{one: self.fill(hints[one], one) for one in kind.__struct_fields__})
        if issubclass(kind, enum.Enum):
            return next(iter(kind))
        if kind is str:
            return self.text()
        return {int: self._whole(name), float: 0.5}.get(kind, True)

    def _whole(self, name: str) -> int:
        return self._time_ns if name.endswith("_ns") or name == "slices" else 3

    def _column(self, arguments: Any, name: str) -> Any:  # noqa: ANN401 - the same
        (scalar,) = typing.get_args(arguments[1])
        shape = (1, 1) if name == "values" else 1
        value = self._time_ns if name.endswith("_ns") else 0
        return np.full(shape, value, dtype=scalar)


def texts_in(part: Any) -> Iterator[str]:  # noqa: ANN401 - whatever a struct holds
    """Every text of a struct, also those that are keys."""
    if isinstance(part, str) and not isinstance(part, enum.Enum):
        yield part
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from texts_in(getattr(part, name))
    elif isinstance(part, dict):
        yield from itertools.chain.from_iterable(map(texts_in, itertools.chain(*part.items())))
    elif isinstance(part, list | tuple | frozenset):
        yield from itertools.chain.from_iterable(map(texts_in, part))


def shape_of(part: Any) -> Any:  # noqa: ANN401 - the same
    """What a struct is made of, without its texts, numbers and times."""
    if isinstance(part, np.ndarray):
        return part.dtype.name, part.shape
    if isinstance(part, msgspec.Struct):
        fields = {name: shape_of(getattr(part, name)) for name in part.__struct_fields__}
        return type(part).__name__, fields
    if isinstance(part, dict):
        return [(shape_of(key), shape_of(value)) for key, value in part.items()]
    if isinstance(part, list | tuple | frozenset):
        return [shape_of(one) for one in part]
    return type(part).__name__


def times_in(part: Any, where: str = "") -> Iterator[tuple[str, int]]:  # noqa: ANN401 - the same
    """Every number that a field named `…_ns` has, and slices, with the field's name."""
    if isinstance(part, np.ndarray):
        yield from ((where, int(one)) for one in part.reshape(-1) if where.endswith("_ns"))
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from times_in(getattr(part, name), f"{type(part).__name__}.{name}")
    elif isinstance(part, dict):
        for value in part.values():
            yield from times_in(value, where)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from times_in(value, where)
    elif isinstance(part, int) and where.endswith(("_ns", ".slices")):
        yield where, part
