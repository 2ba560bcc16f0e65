"""Numbers of switches over SNMP, by maker: tables of OIDs → catalog metrics, one TOML each.

`standard.toml` holds what every maker has (IF-MIB, EtherLike-MIB, …) and is read from all switches.
A maker's file defines how to recognise its switches (`[profile]`) and adds its own tables. A new
switch needs a new file and no code: docs/how-to/poll-switches.md shows how to write one.

Nothing here touches a switch: these are data, checked against the catalog when they are loaded.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

import msgspec

from collector.contract.catalog import Catalog, Kind, load_catalog
from collector.contract.errors import CatalogError
from collector.switches.snmp.model import Oid

STANDARD = "standard"
"""The file whose tables every switch is asked for; a switch of an unknown maker has only these."""
INTERFACE = "interface"
"""The name of the part of an index that is an ifIndex."""

COLUMNS_MAX = 4096
"""Columns of one file, repeats counted. Cumulus has 48; more is a typing mistake."""
BITS = (32, 64)
"""Counter32 and Counter64."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of a row's index, in the order in which the MIB names them."""

    name: str
    """`interface` for an ifIndex; else the name that ``where`` uses."""
    label: str = ""
    """The label that it becomes; none if empty."""
    add: int = 0
    """Added to the number before it becomes a label: for makers who count queues from 1."""
    names: dict[str, str] = {}
    """Words for its numbers; a number without one stays a number."""
    text: bool = False
    """A text with its length before it, as in an index of DisplayString."""


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column, and the metric that its numbers are.

    Where two columns give the same series, the one that stands first wins: put the wide counter
    before the narrow one.
    """

    column: int
    metric: str
    bits: int = 64
    """Width of a counter. One of 32 bits is extended, so that only a reset lowers it."""
    factor: float = 1.0
    """Times its number is the metric's value."""
    dbm: bool = False
    """The number times ``factor`` is decibel-milliwatts; the metric is in watts."""
    signed: bool = False
    values: dict[str, float] = {}
    """For an enumeration: our value of each number. Others are left out."""
    none: list[int] = []
    """Numbers that mean "none" on this switch."""
    labels: dict[str, str] = {}
    where: dict[str, int] = {}
    """Only rows whose index has these numbers, by the parts' names."""
    repeat: int = 1
    """So many columns of one kind, ``step`` apart; the label ``label`` counts them from 0."""
    step: int = 1
    label: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table: the OID of its entry, what its index is made of, and its columns."""

    name: str
    oid: str
    index: list[str | Part]
    """A plain word is a part that becomes a label of that name, or `interface`."""
    columns: list[Column]
    discontinuity: int = 0
    """A column with the time of the last reset of an interface's counters; 0 if there is none."""
    slow: bool = False
    """Read as rarely as sensors."""


class Sensors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table like ENTITY-SENSOR-MIB's: type, scale, precision, value and status by entity."""

    name: str
    oid: str


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to recognise a maker's switches, and how to read their description."""

    name: str
    vendor: str = ""
    object_ids: list[str] = []
    """Beginnings of sysObjectID; the longest that fits wins."""
    descriptions: list[str] = []
    """Patterns (regular expressions) that sysDescr contains. They go before object ids, because
    systems built on Linux often answer with net-snmp's."""
    model: str = ""
    """A pattern with one group that finds the model in sysDescr."""
    version: str = ""


class SwitchFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One TOML file."""

    profile: Profile
    tables: list[Table] = []
    sensors: list[Sensors] = []


# Checked and expanded, ready to be walked --------------------------------------------------------


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One column to be walked, and what each of its numbers becomes."""

    oid: Oid
    spec: Column
    labels: dict[str, str]
    is_counter: bool
    is_of_port: bool
    """Whether its metric's series name a port, or only the switch."""

    @property
    def wraps(self) -> bool:
        return self.is_counter and self.spec.bits == BITS[0]


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """One table to be walked."""

    name: str
    parts: tuple[Part, ...]
    cells: tuple[Cell, ...]
    columns: tuple[Oid, ...]
    """Every OID once; several cells may share one."""
    discontinuity: Oid | None
    slow: bool


class SensorWalk(msgspec.Struct, frozen=True, kw_only=True):
    """One table of sensors to be walked."""

    name: str
    entry: Oid


class Switchbook(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one kind of switch."""

    profile: Profile
    walks: tuple[Walk, ...]
    sensors: tuple[SensorWalk, ...]


class Switchbooks:
    """All known kinds of switches."""

    def __init__(self, files: dict[str, SwitchFile]) -> None:
        if STANDARD not in files:
            raise CatalogError(f"switch tables: there is no {STANDARD}.toml")
        catalog = load_catalog()
        standard = _spell(files[STANDARD], STANDARD, catalog)
        self._books = {STANDARD: standard}
        for name, file in files.items():
            if name != STANDARD:
                own = _spell(file, name, catalog)
                self._books[name] = Switchbook(
                    profile=own.profile,
                    walks=standard.walks + own.walks,
                    sensors=standard.sensors + own.sensors,
                )

    @property
    def names(self) -> list[str]:
        return list(self._books)

    def named(self, name: str) -> Switchbook | None:
        return self._books.get(name)

    def find(self, object_id: Oid, description: str) -> Switchbook:
        """The book for a switch with this sysObjectID and sysDescr."""
        for book in self._books.values():
            if any(re.search(pattern, description) for pattern in book.profile.descriptions):
                return book
        best, length = self._books[STANDARD], 0
        for book in self._books.values():
            for text in book.profile.object_ids:
                prefix = parse_oid(text)
                if length < len(prefix) and object_id[: len(prefix)] == prefix:
                    best, length = book, len(prefix)
        return best


def parse_oid(text: str) -> Oid:
    """The OID of its dotted text; CatalogError if it is none.

    >>> parse_oid("1.3.6.1")
    (1, 3, 6, 1)
    """
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise CatalogError(f"{text!r} is not an object identifier: numbers joined by dots")
    return tuple(int(part) for part in parts)


def parse_switch_file(text: str, name: str) -> SwitchFile:
    """The file in this TOML text; ``name`` is for the error message."""
    try:
        file = msgspec.convert(tomllib.loads(text), SwitchFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CatalogError(f"switch tables {name}: {error}") from error
    _check_profile(file.profile, name)
    _spell(file, name, load_catalog())
    return file


def _check_profile(profile: Profile, name: str) -> None:
    """Raise CatalogError unless its patterns and OIDs can be used."""
    for text in profile.object_ids:
        parse_oid(text)
    patterns = [*profile.descriptions, profile.model, profile.version]
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise CatalogError(f"switch tables {name}: pattern {pattern!r}: {error}") from error
    for pattern in filter(None, (profile.model, profile.version)):
        if re.compile(pattern).groups != 1:
            raise CatalogError(f"switch tables {name}: pattern {pattern!r} needs one group")


@cache
def load_shipped() -> dict[str, SwitchFile]:
    folder = resources.files(__name__)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {
        name.removesuffix(".toml"): parse_switch_file((folder / name).read_text("utf-8"), name)
        for name in names
    }


# Spelling out ------------------------------------------------------------------------------------


def _spell(file: SwitchFile, name: str, catalog: Catalog) -> Switchbook:
    """The file's tables with repeats written out, every name checked against the catalog."""
    walks = tuple(_spell_table(table, name, catalog) for table in file.tables)
    if sum(len(walk.cells) for walk in walks) > COLUMNS_MAX:
        raise CatalogError(f"switch tables {name}: more than {COLUMNS_MAX} columns")
    sensors = tuple(SensorWalk(name=each.name, entry=parse_oid(each.oid)) for each in file.sensors)
    return Switchbook(profile=file.profile, walks=walks, sensors=sensors)


def _spell_table(table: Table, name: str, catalog: Catalog) -> Walk:
    parts = tuple(
        part if isinstance(part, Part) else Part(name=part, label="" if part == INTERFACE else part)
        for part in table.index
    )
    if not parts:
        raise CatalogError(f"switch tables {name}: table {table.name}: an index has parts")
    entry = parse_oid(table.oid)
    cells: list[Cell] = []
    for column in table.columns:
        _check_column(column, parts, f"switch tables {name}: table {table.name}", catalog)
        cells += _spell_column(column, entry, catalog)
    discontinuity = (*entry, table.discontinuity) if table.discontinuity else None
    return Walk(
        name=table.name,
        parts=parts,
        cells=tuple(cells),
        columns=tuple(dict.fromkeys(cell.oid for cell in cells)),
        discontinuity=discontinuity,
        slow=table.slow,
    )


def _spell_column(column: Column, entry: Oid, catalog: Catalog) -> list[Cell]:
    """The columns that one entry of the file stands for."""
    metric = catalog.metric(column.metric)
    assert metric is not None, "checked before"
    of_port = "port" in catalog.labels_of(column.metric)
    cells = []
    for number in range(column.repeat):
        counted = {column.label: str(number)} if column.label else {}
        cells.append(
            Cell(
                oid=(*entry, column.column + number * column.step),
                spec=column,
                labels=column.labels | counted,
                is_counter=metric.kind is Kind.COUNTER,
                is_of_port=of_port,
            )
        )
    return cells


def _check_column(column: Column, parts: tuple[Part, ...], where: str, catalog: Catalog) -> None:
    """Raise CatalogError unless the column gives series that the catalog knows."""

    def refuse(why: str) -> None:
        raise CatalogError(f"{where}: column {column.column}: {why}")

    metric = catalog.metric(column.metric)
    if metric is None:
        refuse(f"{column.metric} is not in the catalog")
        return
    allowed = catalog.labels_of(column.metric)
    given = {*column.labels, *(part.label for part in parts if part.label)}
    given |= {column.label} if column.label else set()
    if unknown := sorted(given - allowed):
        refuse(f"{column.metric} has no labels {unknown}")
    has_interface = any(part.name == INTERFACE for part in parts)
    if has_interface != ("port" in allowed):
        refuse(f"{column.metric} is not a metric of what the index names")
    if column.bits not in BITS:
        refuse(f"bits = {column.bits}; counters have {BITS}")
    if not 1 <= column.repeat <= COLUMNS_MAX or column.step < 1 or column.column < 1:
        refuse("column, repeat and step are numbers from 1")
    if column.repeat > 1 and not column.label:
        refuse("repeat needs a label that distinguishes the columns")
    if unknown := sorted(set(column.where) - {part.name for part in parts}):
        refuse(f"where names {unknown}, which are not in the index")
    if not all(key.lstrip("-").isdigit() for key in column.values):
        refuse("values are written by number")
