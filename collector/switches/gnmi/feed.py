"""From a stream's messages to leaves: the key of each, whatever form it came in.

A leaf may come by its own path, or inside a JSON subtree that begins anywhere above it. Subtrees
are entered only where the profile knows a leaf below: the rest costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from collector.switches.gnmi.model import NAME_CHARS_MAX, Element, Keys, Path, Value
from collector.switches.gnmi.tables import DatabaseIndex, Match, StreamTable, YangIndex

DATABASE_DEPTH_MAX = 8
"""Names on the way to a field: database, namespace, table, pattern, kind, object, field."""

LeafKey = tuple[str, tuple[Any, ...]]
"""The key of one leaf: its schema and keys, or its table, object and field."""


class Reader(Protocol):
    """How to read a tree of one style."""

    def leaves(self, path: Path, value: Value) -> Iterator[tuple[LeafKey, Value]]: ...

    def find(self, key: LeafKey) -> list[Match]:
        """The table rows that this leaf matches."""
        ...

    def steps_of(self, path: Path) -> tuple[Element, ...]:
        """A path in the form that `steps_to` has; empty for one that is not of this tree."""
        ...

    def steps_to(self, key: LeafKey) -> tuple[Element, ...]:
        """The way to a leaf: every beginning of it is a path that the leaf is below of."""
        ...

    def emptied(self, path: Path, value: Value) -> list[Path]:
        """The objects that came without a field: how SONiC sends the deletion of one."""
        ...


def make_reader(table: StreamTable) -> Reader:
    return YangReader(table) if table.style == "yang" else DatabaseReader(table)


def strip_module(name: str) -> str:
    """A name without the YANG module that some switches write before it.

    >>> strip_module("openconfig-interfaces:interfaces"), strip_module("state")
    ('interfaces', 'state')
    """
    return name.rpartition(":")[2]


def strip_table(name: str, table: str) -> str:
    """An object's name without its table's: databases join them by : or |.

    >>> strip_table("PORT_TABLE:Ethernet0", "PORT_TABLE"), strip_table("Ethernet0", "PORT_TABLE")
    ('Ethernet0', 'Ethernet0')
    """
    return name[len(table) + 1 :] if name.startswith((f"{table}:", f"{table}|")) else name


class YangReader:
    """A tree of names and lists with keys. A key is (schema, keys of each element)."""

    def __init__(self, table: StreamTable) -> None:
        self._index = YangIndex(table)

    def leaves(self, path: Path, value: Value) -> Iterator[tuple[LeafKey, Value]]:
        schema = "".join(f"/{strip_module(name)}" for name, _ in path.elements)
        yield from self._walk(schema, tuple(keys for _, keys in path.elements), value)

    def _walk(
        self, schema: str, keys: tuple[Keys, ...], value: Value
    ) -> Iterator[tuple[LeafKey, Value]]:
        """Never deeper than the profile's longest path: every step down is one of `known`."""
        known = self._index.known.get(schema)
        if known is None:
            return
        if isinstance(value, dict):
            for name, inner in value.items():
                child = f"{schema}/{strip_module(name)}"
                yield from self._walk(child, (*keys, ()), inner)
        elif isinstance(value, list) and schema in self._index.list_keys:
            for entry in value:
                if entry_keys := self._keys_of(schema, entry):
                    yield from self._walk(schema, (*keys[:-1], entry_keys), entry)
        else:
            yield (known, keys), value

    def _keys_of(self, schema: str, entry: Value) -> Keys:
        """The keys of a list entry in JSON; none if the entry lacks them."""
        if not isinstance(entry, dict):
            return ()
        fields = {strip_module(name): value for name, value in entry.items()}
        found: list[tuple[str, str]] = []
        for key in self._index.list_keys[schema]:
            value = fields.get(key)
            for box in ("state", "config"):
                if value is None and isinstance(fields.get(box), dict):
                    value = fields[box].get(key)
            if not isinstance(value, str | int) or len(str(value)) > NAME_CHARS_MAX:
                return ()
            found.append((key, str(value)))
        return tuple(found)

    def find(self, key: LeafKey) -> list[Match]:
        schema, keys = key
        return self._index.find(schema, tuple(dict(each) for each in keys))

    def steps_of(self, path: Path) -> tuple[Element, ...]:
        return tuple((strip_module(name), keys) for name, keys in path.elements)

    def steps_to(self, key: LeafKey) -> tuple[Element, ...]:
        schema, keys = key
        return tuple(zip(schema.split("/")[1:], keys, strict=True))

    def emptied(self, path: Path, value: Value) -> list[Path]:  # noqa: ARG002 - YANG deletes by path
        return []


class DatabaseReader:
    """A table of objects with fields. A key is (table, (object, field))."""

    def __init__(self, table: StreamTable) -> None:
        self._index = DatabaseIndex(table)

    def leaves(self, path: Path, value: Value) -> Iterator[tuple[LeafKey, Value]]:
        names = self._names_of(path)
        if names:
            yield from self._walk(names, value)

    def _names_of(self, path: Path) -> list[str]:
        """The names from the table on; some switches put the database before it."""
        names = [name for name, _ in path.elements]
        for number, name in enumerate(names):
            if name in self._index.tables:
                return names[number:]
        return []

    def _walk(self, names: list[str], value: Value) -> Iterator[tuple[LeafKey, Value]]:
        if isinstance(value, dict) and len(names) < DATABASE_DEPTH_MAX:
            for name, inner in value.items():
                # The answer for one field of one port repeats the field's name.
                yield from self._walk(names if name == names[-1] else [*names, name], inner)
        elif not isinstance(value, dict) and (key := self._key_of(names)):
            yield key, value

    @staticmethod
    def _key_of(names: list[str]) -> LeafKey | None:
        """Table, object and field: what stands between (patterns, kinds) adds nothing."""
        if len(names) < 3:  # noqa: PLR2004 - the three
            return None
        table, thing, field = names[0], names[-2], names[-1]
        if len(thing) > NAME_CHARS_MAX or len(field) > NAME_CHARS_MAX:
            return None
        return table, (strip_table(thing, table), field)

    def find(self, key: LeafKey) -> list[Match]:
        table, (thing, field) = key
        return self._index.find(table, str(thing), str(field))

    def steps_of(self, path: Path) -> tuple[Element, ...]:
        names = self._names_of(path)
        return tuple((strip_table(name, names[0]), ()) for name in names)

    def steps_to(self, key: LeafKey) -> tuple[Element, ...]:
        table, (thing, field) = key
        return ((table, ()), (thing, ()), (field, ()))

    def emptied(self, path: Path, value: Value) -> list[Path]:
        names = self._names_of(path)
        if not names or not isinstance(value, dict):
            return []
        if not value and len(names) > 1:
            return [path]
        return [
            Path((*path.elements, (name, ())))
            for name, inner in value.items()
            if inner == {} and len(name) <= NAME_CHARS_MAX
        ]


def has_wildcard(steps: tuple[Element, ...]) -> bool:
    """Whether a part of the path stands for any name or key."""
    return any(name == "*" or any(value == "*" for _, value in keys) for name, keys in steps)


def covers(pattern: tuple[Element, ...], steps: tuple[Element, ...]) -> bool:
    """Whether the leaf is at this path or below; ``*`` stands for any name or key.

    >>> covers((("a", ()), ("b", (("k", "*"),))), (("a", ()), ("b", (("k", "1"),)), ("c", ())))
    True
    """
    if len(pattern) > len(steps):
        return False
    for (name, wanted), (ours, our_keys) in zip(pattern, steps, strict=False):
        keys = dict(our_keys)
        if name not in ("*", ours) or any(value not in ("*", keys.get(k)) for k, value in wanted):
            return False
    return True
