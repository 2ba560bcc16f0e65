"""Streams of switches: paths of their trees → catalog metrics. A profile is one TOML beside this.

Two styles of tree. ``yang`` (OpenConfig): a path of names, lists with keys; a value may come leaf
by leaf or as a JSON subtree of any size. ``database`` (SONiC): a table of objects with fields;
objects come by their path, or as JSON objects of objects. In patterns ``{port}`` stands for a
label's value.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Literal, NamedTuple

import msgspec

from collector.contract.errors import CatalogError, SettingsError

STREAMS_MAX = 4
"""Streams of one profile, each a thread: a database that is asked by itself (SONiC has three)."""

FIELDS_KEPT_MAX = 10_000
"""Names of fields that are remembered; SAI has some hundreds. Beyond it all are forgotten."""

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_KEYED = re.compile(r"\[([^=\]]+)=\{([a-z_]+)\}\]")
_LABEL_PATTERNS = dict.fromkeys(("lane", "priority", "queue", "symbol_errors"), r"[0-9]+")
"""The pattern of a label in a name of a database; any other is a word without a colon."""


class Leaf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Our metric for one leaf."""

    metric: str
    factor: float = 1.0
    labels: dict[str, str] = {}
    values: dict[str, float] = {}
    """Words and their numbers; empty: the leaf is a number."""
    nothing: list[str] = []
    """Words for that there is nothing to measure: no reading, and none that is missing."""
    unit: Literal["", "dbm", "boot_ns"] = ""
    """dbm: a power in dBm becomes watts. boot_ns: a start (unix ns) becomes the time since."""
    is_link_state: bool = False
    """Changes of it are events: 4 is up, everything else is down."""


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leaves with the same beginning of their path."""

    path: str
    leaves: dict[str, str | Leaf]
    """By the rest of the path: a metric's name, or a `Leaf`."""


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts of one list entry that become the labels of one info series."""

    path: str
    metric: str
    """An info metric; `alias`: it only maps a component or a front-plate name to its port."""
    labels: dict[str, list[str]]
    """Our label → leaves whose text it takes, the first that is there and is no hardware address
    where more than one is named."""
    fixed: dict[str, str] = {}


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One subscription."""

    path: str
    on_change: bool = False
    is_slow: bool = False
    """Changes rarely and is large (optics): sent every ``slow_seconds``."""
    is_optional: bool = False
    """Only some switches have it (parts of a chassis): that one has not is not named."""


class StreamTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one stream asks for, and what its leaves are."""

    name: str
    style: Literal["yang", "database"] = "yang"
    target: str = ""
    origin: str = ""
    names_from: str = ""
    """The stream whose `alias` rows name this one's ports: values wait for that stream's first
    answer, so that a port is not shown under two names."""
    subscriptions: list[Ask]
    groups: list[Group]
    rows: list[Row] = []


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One TOML file."""

    help: str
    streams: list[StreamTable]


class Match(NamedTuple):
    """A leaf that was found: what it is and the labels that its path gives."""

    order: int
    """Its place in the table: of two leaves with one meaning the earlier one wins."""
    leaf: Leaf | None
    """None: a text of ``row``."""
    row: Row | None
    name: str
    """The leaf's name below the row's path."""
    labels: tuple[tuple[str, str], ...]


class _Schema(NamedTuple):
    order: int
    leaf: Leaf | None
    row: Row | None
    name: str
    labels: tuple[tuple[int, str, str], ...]
    """(element, key, label)."""


class YangIndex:
    """Finds leaves of a ``yang`` tree by schema: names joined by /, without keys."""

    def __init__(self, table: StreamTable) -> None:
        self._leaves: dict[str, list[_Schema]] = {}
        self.known: dict[str, str] = {"": ""}
        """Every schema on the way to a leaf: where a subtree is worth looking into. It gives the
        one text that is kept, also for a request with another of the same content."""
        self.list_keys: dict[str, tuple[str, ...]] = {}
        """Keys of the lists on the way."""
        order = 0
        for group in table.groups:
            for name, leaf in group.leaves.items():
                what = Leaf(metric=leaf) if isinstance(leaf, str) else leaf
                self._add(order, group.path, name, what, None)
                order += 1
        for row in table.rows:
            for name in {name for names in row.labels.values() for name in names}:
                self._add(order, row.path, name, None, row)

    def _add(self, order: int, path: str, name: str, leaf: Leaf | None, row: Row | None) -> None:
        names, labels, schema = [], [], ""
        for number, element in enumerate(split_pattern(f"{path}/{name}")):
            bare = element.partition("[")[0]
            names.append(bare)
            schema = f"{schema}/{bare}"
            self.known.setdefault(schema, schema)
            keyed = _KEYED.findall(element)
            if keyed:
                self.list_keys[schema] = tuple(sorted(key for key, _ in keyed))
            labels += [(number, key, label) for key, label in keyed]
        found = _Schema(order, leaf, row, name, tuple(labels))
        self._leaves.setdefault(schema, []).append(found)

    def find(self, schema: str, keys: tuple[dict[str, str], ...]) -> list[Match]:
        """What the leaf of this schema is; ``keys`` are those of each element."""
        matches = []
        for found in self._leaves.get(schema, ()):
            labels = tuple((label, keys[at].get(key, "")) for at, key, label in found.labels)
            if all(value for _, value in labels):
                matches.append(Match(found.order, found.leaf, found.row, found.name, labels))
        return matches


class _Fields(NamedTuple):
    order: int
    table: str
    objects: re.Pattern[str]
    fields: re.Pattern[str]
    leaf: Leaf | None
    row: Row | None


class DatabaseIndex:
    """Finds fields of a ``database`` tree by table, object and field."""

    def __init__(self, table: StreamTable) -> None:
        self._fields: list[_Fields] = []
        for group in table.groups:
            for name, leaf in group.leaves.items():
                what = Leaf(metric=leaf) if isinstance(leaf, str) else leaf
                self._add(group.path, name, what, None)
        for row in table.rows:
            for name in sorted({name for names in row.labels.values() for name in names}):
                self._add(row.path, name, None, row)
        self.tables = {each.table for each in self._fields}
        self._by_field: dict[str, list[_Fields]] = {}

    def _add(self, path: str, name: str, leaf: Leaf | None, row: Row | None) -> None:
        table, _, objects = path.strip("/").partition("/")
        found = _Fields(len(self._fields), table, to_regex(objects), to_regex(name), leaf, row)
        self._fields.append(found)

    def find(self, table: str, thing: str, field: str) -> list[Match]:
        matches = []
        for each in self._with_field(field):
            of_object, of_field = each.objects.fullmatch(thing), each.fields.fullmatch(field)
            if each.table == table and of_object and of_field:
                labels = {**of_object.groupdict(), **of_field.groupdict()}
                found = Match(each.order, each.leaf, each.row, field, tuple(labels.items()))
                matches.append(found)
        return matches

    def _with_field(self, field: str) -> list[_Fields]:
        """Those that may be this field: remembered, because most fields of a port are none."""
        if field not in self._by_field:
            if len(self._by_field) >= FIELDS_KEPT_MAX:
                self._by_field.clear()
            self._by_field[field] = [each for each in self._fields if each.fields.fullmatch(field)]
        return self._by_field[field]


def split_pattern(path: str) -> list[str]:
    """The elements of a path of a profile, whose keys hold no slash.

    >>> split_pattern("/interfaces/interface[name={port}]/state")
    ['interfaces', 'interface[name={port}]', 'state']
    """
    return [element for element in path.split("/") if element]


def to_regex(pattern: str) -> re.Pattern[str]:
    """A pattern with places for labels as an expression.

    >>> bool(to_regex("{port}:{queue}").fullmatch("Ethernet8:3"))
    True
    """
    pieces, end = [], 0
    for found in _PLACEHOLDER.finditer(pattern):
        label = found[1]
        what = _LABEL_PATTERNS.get(label, r"[^:*]+")
        pieces += [re.escape(pattern[end : found.start()]), f"(?P<{label}>{what})"]
        end = found.end()
    return re.compile("".join([*pieces, re.escape(pattern[end:])]))


@cache
def profiles() -> dict[str, Profile]:
    found: dict[str, Profile] = {}
    for entry in resources.files("collector.switches.gnmi").iterdir():
        if entry.name.startswith("gnmi_") and entry.name.endswith(".toml"):
            name = entry.name.removeprefix("gnmi_").removesuffix(".toml")
            found[name] = parse_profile(entry.read_text("utf-8"), entry.name)
    return dict(sorted(found.items()))


def parse_profile(text: str, name: str) -> Profile:
    """The profile in this TOML text; ``name`` is for the error message."""
    try:
        profile = msgspec.convert(tomllib.loads(text), Profile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CatalogError(f"tables/{name}: {error}") from error
    if not 1 <= len(profile.streams) <= STREAMS_MAX:
        raise CatalogError(f"tables/{name}: has {len(profile.streams)} streams, 1 to {STREAMS_MAX}")
    names = {stream.name for stream in profile.streams}
    for stream in profile.streams:
        if stream.names_from and stream.names_from not in names:
            wrong = f"names_from of {stream.name} is {stream.names_from!r}, which is no stream"
            raise CatalogError(f"tables/{name}: {wrong}")
    return profile


def profile_named(name: str) -> Profile:
    if name not in profiles():
        raise SettingsError(f"gnmi: no profile {name!r}; there are: {', '.join(profiles())}")
    return profiles()[name]
