"""The output of infiniband-diags' programs: ports, nodes and blocks of counters.

Every function takes the bytes of a whole output and gives what it could read and how many lines it
could not. Nothing raises: operators choose node names freely, and a program that was stopped leaves
half a line behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from collector.contract.identity import printable

LINE_CHARS_MAX = 1024
"""Longer lines are not parsed. A link with two names of 64 characters has some 300; eight
counters of ibqueryerrors some 700."""
NAME_CHARS_MAX = 128
"""Of a node's name. Its own description has 64 bytes (IBTA volume 1, 14.2.5.2); a node name map may
have longer ones."""
LID_MAX = 0xFFFF
PORT_MAX = 254
"""IBTA volume 1: a switch has up to 254 ports; 255 stands for all of them."""
NUMBER_MAX = (1 << 64) - 1

DOWN = 1
STATES = {"down": DOWN, "initialize": 2, "armed": 3, "active": 4}
PHYSICAL_STATES = {
    "sleep": 1,
    "polling": 2,
    "disabled": 3,
    "portconftrain": 4,
    "linkup": 5,
    "linkerrorrecovery": 6,
    "phytest": 7,
}
SPEED_NAMES = {
    2.5: "SDR",
    5.0: "DDR",
    10.0: "QDR",
    10.3125: "FDR10",
    14.0625: "FDR",
    25.78125: "EDR",
    53.125: "HDR",
    106.25: "NDR",
    212.5: "XDR",
}
"""By the gigabits a second of one lane that programs print: those on the wire."""


class Peer(NamedTuple):
    """The other end of a cable."""

    guid: str
    """Of its port, which need not be that of its node."""
    lid: int
    port: int
    name: str


class PortLine(NamedTuple):
    """A port as a program describes it on one line."""

    guid: str
    """Of the port; the ports of a switch share that of the switch."""
    lid: int
    port: int
    name: str
    lanes: int = 0
    """0: not in the line."""
    speed: str = ""
    """A name of SPEED_NAMES, or the program's own word; empty on a link that is down."""
    state: int = 0
    """As `fabric_port_state` has it; 0: not in the line."""
    physical_state: int = 0
    peer: Peer | None = None
    could_be: str = ""
    """The better mode that both ends support, as the program prints it."""
    kind: str = ""
    """`SW`, `CA` or `RT`, where the program prints it."""


def whole_lines(text: bytes) -> Iterator[str]:
    """The lines that are whole: a number may have lost its last digits where an output was cut."""
    for line in text.decode("utf-8", "replace").split("\n")[:-1]:
        yield line.rstrip("\r") if len(line) <= LINE_CHARS_MAX else ""


def guid_of(word: str) -> str:
    """The one way to write a GUID.

    >>> guid_of("0x2c90300a"), guid_of("2C90300A")
    ('0x000000002c90300a', '0x000000002c90300a')
    """
    return f"0x{int(word, 16):016x}"


def clean_name(text: str) -> str:
    return printable(text.strip())[:NAME_CHARS_MAX]


def speed_name(text: str) -> str:
    """The name of a speed that is printed as bits a second of one lane; other words as they are.

    >>> speed_name("53.125 Gbps"), speed_name("10.0 Gbps (FDR10)"), speed_name("undefined (32)")
    ('HDR', 'FDR10', 'undefined (32)')
    """
    name = text.strip().upper()
    if name in SPEED_NAMES.values():
        return name
    if "FDR10" in name:
        return "FDR10"
    match = re.match(r"([0-9]{1,4}(?:\.[0-9]{1,6})?) ?GBPS", name)
    if match:
        return SPEED_NAMES.get(float(match[1]), name)
    return clean_name(text)


# iblinkinfo -l ----------------------------------------------------------------------------------

_LINK = re.compile(
    r'(?P<guid>0x[0-9a-f]{1,16}) "(?P<name>.*?)" +(?P<lid>[0-9]{1,6}) +(?P<port>[0-9]{1,3})'
    r"\[.{0,3}\] ==\((?P<how>[^()]*(?:\([^()]*\))?[^()]*)\)==> +(?P<rest>.*)",
    re.IGNORECASE,
)
_HOW = re.compile(
    r" *(?:(?P<lanes>[0-9]{1,2})X +(?P<speed>.*?) +)?(?P<state>\w+)/ *(?P<physical>\w+)"
)
_PEER = re.compile(
    r"(?P<guid>0x[0-9a-f]{1,16}) +(?P<lid>[0-9]{1,6}) +(?P<port>[0-9]{1,3})\[.{0,3}\] "
    r'"(?P<name>.*)" \((?P<could>.*)\)',
    re.IGNORECASE,
)


def parse_links(text: bytes) -> tuple[list[PortLine], int]:
    """The ports in an output of `iblinkinfo -l`, and how many lines are none."""
    found: list[PortLine] = []
    broken = 0
    for line in whole_lines(text):
        match = _LINK.match(line)
        how = _HOW.fullmatch(match["how"]) if match else None
        if match is None or how is None or not is_port(match):
            broken += bool(line.strip())
            continue
        peer = _PEER.match(match["rest"])
        could_be = peer["could"] if peer else ""
        found.append(
            PortLine(
                guid=guid_of(match["guid"]),
                lid=int(match["lid"]),
                port=int(match["port"]),
                name=clean_name(match["name"]),
                lanes=int(how["lanes"] or 0),
                speed=speed_name(how["speed"] or ""),
                state=STATES.get(how["state"].lower(), 0),
                physical_state=PHYSICAL_STATES.get(how["physical"].lower(), 0),
                peer=make_peer(peer, peer["name"]) if peer and is_port(peer) else None,
                could_be=clean_name(could_be) if could_be.startswith("Could be") else "",
            )
        )
    return found, broken


def is_port(match: re.Match[str]) -> bool:
    """Whether address and number can be a port's; 0 is a switch's own, which has no cable."""
    return int(match["lid"]) <= LID_MAX and 0 < int(match["port"]) <= PORT_MAX


def make_peer(match: re.Match[str], name: str) -> Peer:
    return Peer(guid_of(match["guid"]), int(match["lid"]), int(match["port"]), clean_name(name))


# ibnetdiscover -p -------------------------------------------------------------------------------

_PORT = re.compile(
    r"(?P<kind>SW|CA|RT) +(?P<lid>[0-9]{1,6}) +(?P<port>[0-9]{1,3}) +(?P<guid>0x[0-9a-f]{1,16})"
    r" +(?P<lanes>[0-9]{1,2}|\?+)x +(?P<speed>\S+) +(?P<rest>.*)",
    re.IGNORECASE,
)
_PORT_PEER = re.compile(
    r"- (?:SW|CA|RT) +(?P<lid>[0-9]{1,6}) +(?P<port>[0-9]{1,3}) +(?P<guid>0x[0-9a-f]{1,16})"
    r" \( '(?P<name>.*)' - '(?P<peer>.*)' \)",
    re.IGNORECASE,
)
_PORT_ALONE = re.compile(r"'(?P<name>.*)'")


def parse_ports(text: bytes) -> tuple[list[PortLine], int]:
    """The ports of `ibnetdiscover -p`, and how many lines are none. It shows no states."""
    found: list[PortLine] = []
    broken = 0
    for line in whole_lines(text):
        match = _PORT.fullmatch(line.rstrip())
        peer = _PORT_PEER.fullmatch(match["rest"]) if match else None
        alone = _PORT_ALONE.fullmatch(match["rest"]) if match else None
        if match is None or not (peer or alone) or not is_port(match):
            broken += bool(line.strip())
            continue
        named = peer or alone
        assert named is not None
        lanes = match["lanes"]
        port = PortLine(
            guid=guid_of(match["guid"]),
            lid=int(match["lid"]),
            port=int(match["port"]),
            name=clean_name(named["name"]),
            state=DOWN,
            kind=match["kind"].upper(),
        )
        if peer and is_port(peer):
            port = port._replace(
                lanes=int(lanes) if lanes.isdigit() else 0,
                speed=speed_name(match["speed"]),
                state=0,
                peer=make_peer(peer, peer["peer"]),
            )
        found.append(port)
    return found, broken


# ibnetdiscover ----------------------------------------------------------------------------------


class Node(NamedTuple):
    """A switch, HCA or router as the topology file describes it."""

    kind: str
    """`Switch`, `Ca` or `Rt`."""
    guid: str
    vendor: int
    device: int
    name: str


class Nodes(NamedTuple):
    """The nodes of a topology file."""

    by_guid: dict[str, Node]
    of_port: dict[str, str]


_FIELD = re.compile(
    r"(vendid|devid|switchguid|caguid|rtguid)=0x([0-9a-f]{1,16})(?:\(([0-9a-f]{1,16})\))?",
    re.IGNORECASE,
)
_NODE = re.compile(
    r'(Switch|Ca|Rt)\s+[0-9]{1,4}\s+"[SHR]-([0-9a-f]{1,16})"\s*# "(.*)"(.*)', re.IGNORECASE
)
_OWN_PORT = re.compile(r"\[[0-9]{1,3}\]\(([0-9a-f]{1,16})\)\s", re.IGNORECASE)
_FAR_PORT = re.compile(r'"[SHR]-([0-9a-f]{1,16})"\[[0-9]{1,3}\]\(([0-9a-f]{1,16})\)', re.IGNORECASE)


def parse_nodes(text: bytes) -> tuple[Nodes, int]:
    """The nodes in an output of `ibnetdiscover`, and how many lines could not be read."""
    nodes = Nodes({}, {})
    ids: dict[str, int] = {}
    now: Node | None = None
    broken = 0
    for line in whole_lines(text):
        if not line.strip() or line.startswith(("#", "sysimgguid=")):
            now = now if line.strip() else None
        elif field := _FIELD.match(line):
            ids[field[1].lower()] = int(field[2], 16)
            if field[3]:
                nodes.of_port[guid_of(field[3])] = guid_of(field[2])
        elif start := _NODE.match(line):
            vendor, device = ids.pop("vendid", 0), ids.pop("devid", 0)
            name = clean_name(start[3])
            now = Node(start[1].capitalize(), guid_of(start[2]), vendor, device, name)
            nodes.by_guid[now.guid] = now
        elif line.startswith("[") and now is not None:
            if own := _OWN_PORT.match(line):
                nodes.of_port[guid_of(own[1])] = now.guid
            for far in _FAR_PORT.finditer(line):
                nodes.of_port[guid_of(far[2])] = guid_of(far[1])
        else:
            broken += 1
    return nodes, broken


# perfquery --------------------------------------------------------------------------------------


class Block(NamedTuple):
    """Counters of one port, from one query."""

    title: str
    lid: int
    port: int
    capabilities: int
    """CapabilityMask of the port's performance management; 0 where the title lacks it."""
    values: dict[str, int]


_TITLE = re.compile(
    r"# (?P<title>[\w ]{1,60}): Lid (?P<lid>[0-9]{1,6}) port (?P<port>[0-9]{1,3})"
    r"(?: \(CapMask: 0x(?P<mask>[0-9A-Fa-f]{1,8})(?: CapMask2: 0x[0-9A-Fa-f]{1,8})?\))?"
)
_VALUE = re.compile(r"^(\w{1,60}):\.+(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})\r?$", re.MULTILINE)
_BLOCK = re.compile(r"^# ", re.MULTILINE)


def parse_blocks(text: bytes) -> tuple[list[Block], int]:
    """The blocks in an output of `perfquery`, and how many lines are neither title nor number.

    A fabric of a thousand ports prints forty thousand lines at every read: they are taken block by
    block, and parsed one by one only where something else stands among them.
    """
    found: list[Block] = []
    # What is not a whole line may have lost the end of a number.
    head, *blocks = _BLOCK.split(text[: text.rfind(b"\n") + 1].decode("utf-8", "replace"))
    broken = count_broken(head)
    for block in blocks:
        first, _, body = block.partition("\n")
        title = _TITLE.fullmatch(f"# {first}".rstrip("\r"))
        if title is None:
            broken += 1 + count_broken(body)
            continue
        pairs = _VALUE.findall(body)
        if len(pairs) != body.count("\n"):
            broken += count_broken(_VALUE.sub("", body))
        numbers = ((name, int(word, 16 if word[:2] == "0x" else 10)) for name, word in pairs)
        values = {name: number for name, number in numbers if number <= NUMBER_MAX}
        lid, port, mask = int(title["lid"]), int(title["port"]), int(title["mask"] or "0", 16)
        found.append(Block(title["title"], lid, port, mask, values))
    return found, broken


def count_broken(text: str) -> int:
    """Lines with content; perfquery's message when it gives up does not count as broken."""
    return sum(bool(line.strip()) and "iberror: " not in line for line in text.split("\n"))


# ibqueryerrors ----------------------------------------------------------------------------------

_COUNTED = re.compile(r"\s+GUID (0x[0-9a-f]{1,16}) port ([0-9]{1,3}):(.*)", re.IGNORECASE)
_PAIR = re.compile(r"\[(\w{1,60}) == ([0-9]{1,20})(?: \([^()\]]{0,40}\))?\]")
_FAILED = re.compile(r"query failed on (.*), Lid ([0-9]{1,6}) port ([0-9]{1,3})")


def parse_counted(text: bytes) -> dict[tuple[str, int], dict[str, int]]:
    """Counters by GUID and port in an output of `ibqueryerrors`; sums over ports are passed over.

    Its `--details` are not to be believed: releases up to 44 at least print the discards' details
    under the names of those of errors. What it does not print may be zero or not answered.
    """
    found: dict[tuple[str, int], dict[str, int]] = {}
    for line in whole_lines(text):
        match = _COUNTED.fullmatch(line)
        if match and 0 < int(match[2]) <= PORT_MAX:
            place = guid_of(match[1]), int(match[2])
            numbers = ((name, int(number)) for name, number in _PAIR.findall(match[3]))
            values = {name: number for name, number in numbers if number <= NUMBER_MAX}
            found.setdefault(place, {}).update(values)
    return found


def parse_failures(complaints: bytes) -> set[int]:
    """The addresses that did not answer, from `ibqueryerrors`' standard error."""
    lines = complaints.decode("utf-8", "replace").split("\n")
    matches = (_FAILED.search(line[:LINE_CHARS_MAX]) for line in lines)
    return {int(match[2]) for match in matches if match}


# Names ------------------------------------------------------------------------------------------

_MAPPED = re.compile(r'\s*(0x[0-9a-f]{1,16})\s+"([^"]*)"', re.IGNORECASE)
_MANAGED = re.compile(r"[A-Za-z0-9]{1,8};(?P<system>[^:;]+):(?P<place>.+)")


def parse_name_map(text: bytes) -> dict[str, str]:
    """Names by GUID in a node name map as opensm and infiniband-diags take it."""
    matches = (_MAPPED.match(line) for line in whole_lines(text + b"\n"))
    return {guid_of(each[1]): clean_name(each[2]) for each in matches if each and each[2].strip()}


def system_of(description: str) -> tuple[str, str]:
    """The name of the system that a managed switch is, and its place: model, board and chip.

    >>> system_of("MF0;leaf-0:MQM8700/U1"), system_of("leaf-7")
    (('leaf-0', 'MQM8700/U1'), ('leaf-7', ''))
    """
    match = _MANAGED.fullmatch(description)
    return (match["system"], match["place"]) if match else (description, "")


def is_nameless(description: str) -> bool:
    """Whether a description is the maker's and names no node: `Quantum Mellanox Technologies`."""
    return not description or "Mellanox Technologies" in description


def name_nodes(descriptions: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    """A name for each GUID: the given one, or the system's, or system and place, or the GUID.

    No two get the same, and no name equals another node's own name.

    >>> name_nodes({"0x1": "MF0;dir:CS7500/L01/U1", "0x2": "MF0;dir:CS7500/L02/U1"}, {})
    {'0x1': 'dir:CS7500/L01/U1', '0x2': 'dir:CS7500/L02/U1'}
    """
    counts = dict.fromkeys(descriptions, 1)  # a node may call itself by another's GUID
    choices: dict[str, tuple[str, ...]] = {}
    for guid, description in descriptions.items():
        if guid in given:
            wanted: tuple[str, ...] = (given[guid],)
        elif is_nameless(description):
            wanted = ()
        else:
            system, place = system_of(description)
            wanted = (system, f"{system}:{place}") if place else (system,)
        choices[guid] = wanted
        for name in wanted:
            counts[name] = counts.get(name, 0) + 1
    return {
        guid: next((name for name in wanted if counts[name] == 1), guid)
        for guid, wanted in choices.items()
    }


# smpquery pkeys ---------------------------------------------------------------------------------

_KEYS = re.compile(r" {0,4}([0-9]{1,5}):((?: 0x[0-9a-f]{4}){1,32})", re.IGNORECASE)
_CAPACITY = re.compile(r"([0-9]{1,5}) pkeys capacity for this port")


def parse_keys(text: bytes) -> dict[int, int] | None:
    """A port's table of keys by index, zeros included; None unless it is there as a whole."""
    table: dict[int, int] = {}
    for line in whole_lines(text):
        if row := _KEYS.fullmatch(line.rstrip()):
            for index, word in enumerate(row[2].split(), start=int(row[1])):
                table[index] = int(word, 16)
        elif end := _CAPACITY.fullmatch(line.strip()):
            return table if sorted(table) == list(range(int(end[1]))) else None
    return None
