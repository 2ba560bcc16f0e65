"""Topology files that operators write: the cabling as it is, or as planned. TOML or JSON.

    [[nodes]]                       # only where a node has attributes to set
    name = "leaf-0"
    kind = "switch"

    [[links]]
    a = "node-0/mlx5_0/1"           # host/device/port
    b = "leaf-0/Ethernet4"          # switch/port; a slash inside a name is %2F
    speed = "400G"

    [pattern]                       # of a plan, instead of links
    kind = "rail-optimised"
    links_per_spine = 2

Whatever cannot be read raises a SettingsError that names the place: a plan that is read in part
would accuse the wrong cables.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from api.fabric.model import Link, Node, NodeKind, Port, Topology, make_topology
from collector.contract.errors import IdentityError, SettingsError
from collector.contract.identity import LinkId, PortId

FILE_BYTES_MAX = 64 << 20
"""A topology file: a quarter of a million cables take 25 MB."""

FILE_LINKS_MAX = 500_000
"""Links in one file: 16,384 hosts of 8 NICs with three tiers above them have fewer."""

FILE_NODES_MAX = 200_000

FILE_WORDS = "topology file"

FILE_METHOD = "file"
"""How a link was found that only a file names."""

SPEED_NAMES = {
    "SDR": 10,
    "DDR": 20,
    "QDR": 40,
    "FDR": 56,
    "EDR": 100,
    "HDR": 200,
    "NDR": 400,
    "XDR": 800,
}
"""InfiniBand's generations at their usual four lanes, in Gb/s."""

_SPEED = re.compile(
    r"(?P<number>\d{1,6}(?:\.\d{1,6})?)\s*(?P<unit>[MGT])(?:b/s|bps|bit/s|bE)?", re.IGNORECASE
)
_UNIT = {"M": 10**6, "G": 10**9, "T": 10**12}

Positive = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Small = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class PatternKind(enum.StrEnum):
    """Shapes that a plan can name instead of cables."""

    RAIL_OPTIMISED = "rail-optimised"
    """Rail r of every host on one leaf of its group; every leaf to every spine."""
    FAT_TREE = "fat-tree"
    """All NICs of a host on one leaf; every leaf to every spine."""


class Pattern(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A shape and its parameters; those left out are taken from the majority."""

    kind: PatternKind
    hosts_per_leaf: Positive | None = None
    links_per_spine: Positive | None = None
    """Links from each leaf to each of its spines."""
    oversubscription: Annotated[float, msgspec.Meta(gt=0, le=1000)] | None = None
    """Largest ratio of bandwidth down to bandwidth up, at a leaf."""
    speed: str | int | None = None


class DocumentNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host or a switch that the file describes."""

    name: str
    kind: NodeKind = NodeKind.SWITCH
    tier: Small | None = None
    rail: Small | None = None
    pod: Small | None = None
    attributes: dict[str, str] = {}


class DocumentLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cable of the file."""

    a: str
    b: str
    speed: str | int | None = None


class TopologyDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    nodes: list[DocumentNode] = []
    links: list[DocumentLink] = []
    pattern: Pattern | None = None


def read_file(path: Path) -> TopologyDocument:
    """JSON if the name ends in .json, TOML otherwise."""
    with naming(path):
        try:
            with path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise SettingsError(error.strerror or str(error)) from error
        if len(content) > FILE_BYTES_MAX:
            raise SettingsError(f"it has over FILE_BYTES_MAX = {FILE_BYTES_MAX} bytes")
        return parse_file(content, is_json=path.suffix == ".json")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Prefix every SettingsError raised within with this file's path."""
    try:
        yield
    except SettingsError as error:
        if str(error).startswith(FILE_WORDS):
            raise
        raise SettingsError(f"{FILE_WORDS} {path}: {error}") from error


def parse_file(content: bytes, *, is_json: bool) -> TopologyDocument:
    try:
        if is_json:
            document = msgspec.json.decode(content, type=TopologyDocument)
        else:
            document = msgspec.convert(tomllib.loads(content.decode("utf-8")), TopologyDocument)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(str(error)) from error
    except RecursionError as error:
        raise SettingsError("it is nested deeper than any topology") from error
    for name, found, most in (
        ("links", len(document.links), FILE_LINKS_MAX),
        ("nodes", len(document.nodes), FILE_NODES_MAX),
    ):
        if found > most:
            raise SettingsError(f"{found} {name}; a file has at most {most}")
    return document


def links_of(document: TopologyDocument) -> dict[LinkId, int | None]:
    """The cables of a file with their rates in bits a second. A port has one cable."""
    links: dict[LinkId, int | None] = {}
    taken: dict[PortId, int] = {}
    for number, link in enumerate(document.links, 1):
        try:
            ends = parse_end(link.a), parse_end(link.b)
            links[LinkId.between(*ends)] = parse_speed(link.speed)
        except (IdentityError, SettingsError) as error:
            raise SettingsError(f"link {number}: {error}") from error
        for end in ends:
            if end in taken:
                raise SettingsError(f"port {end} has two links: {taken[end]} and {number}")
            taken[end] = number
    return links


def topology_of(document: TopologyDocument, at: dt.datetime) -> Topology:
    links = [
        Link(
            id=link,
            since=at,
            last_seen=at,
            seen_from=(),
            methods=(FILE_METHOD,),
            rate_bits_per_second=rate,
        )
        for link, rate in links_of(document).items()
    ]
    nodes = []
    for node in document.nodes:
        if not (node.name and node.name.isprintable()):
            raise SettingsError(f"a node is called {node.name!r}; names are printable")
        nodes.append(Node(**msgspec.structs.asdict(node)))
    ports = [
        Port(id=end, rate_bits_per_second=link.rate_bits_per_second)
        for link in links
        for end in (link.id.a, link.id.b)
    ]
    return make_topology(at, nodes, ports, links)


def parse_end(text: str) -> PortId:
    """A port as operators write it: host/device/port, or switch/port.

    >>> parse_end("leaf-0/Ethernet1%2F1")
    PortId(host='leaf-0', device='leaf-0', port='Ethernet1/1')
    """
    switch, slash, port = text.partition("/")
    if slash and "/" not in port:
        return PortId.parse(f"{switch}/{switch}/{port}")
    return PortId.parse(text)


def parse_speed(value: str | int | None) -> int | None:
    """A rate in bits a second, from a number or a name such as 400G or NDR.

    >>> parse_speed("400G"), parse_speed("NDR"), parse_speed("100GbE"), parse_speed(10**11)
    (400000000000, 400000000000, 100000000000, 100000000000)
    """
    if value is None:
        return None
    if isinstance(value, int):
        if value <= 0:
            raise SettingsError(f"speed = {value}; bits a second are more than none")
        return value
    if (gigabits := SPEED_NAMES.get(value.strip().upper())) is not None:
        return gigabits * 10**9
    found = _SPEED.fullmatch(value.strip())
    rate = round(float(found["number"]) * _UNIT[found["unit"].upper()]) if found else 0
    if not rate:
        raise SettingsError(f"speed = {value[:40]!r}; write it as 400G, NDR, or bits a second")
    return rate
