"""Files that NVIDIA's ibdiagnet (ibutils2) leaves behind. Pure.

- `ibdiagnet2.net_dump_ext`: a line for each port with its bit error ratios; columns by a header,
  parted by colons.
- `ibdiagnet2.db_csv`: sections of CSV between `START_<name>` and `END_<name>`; NODES and CABLE_INFO
  are read, by the names of their columns.
- `ibdiagnet2.log`: a summary of checks, and with `-r` the report of credit loops.

The formats are not documented column by column. These were held against public readers of such
files (columns by name, so that a release may add some) and the messages in ibutils' own source
(`ibdm/CredLoops.cpp`). Another kind of file of the same name gives nothing, and is counted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import NamedTuple

from collector.parsing.infiniband_diags import PORT_MAX, clean_name, guid_of, whole_lines

ROWS_MAX = 200_000
"""Ports of one file: four for each node that a subnet can have."""
CHECKS_MAX = 64
"""Checks of one summary; ibdiagnet has some thirty."""

_GUID = re.compile(r"0x([0-9a-fA-F]{1,16})")
_PORT = re.compile(r"[0-9]{1,3}")
_CELSIUS = re.compile(r"(-?[0-9]{1,3}(?:\.[0-9]{1,3})?) ?C")
_CHECK = re.compile(r"-I- (\S(?:.{0,60}?\S)?) {2,}([0-9]{1,9}) +([0-9]{1,9})\b")
_NO_LOOPS = re.compile(r"-I- no credit loops? found", re.IGNORECASE)
_LOOPS = re.compile(
    r"-E- (?:credit loops? in routing|found:? ?[0-9]{1,9} (?:credit loops?\b|CA to CA paths that"
    r" can cause credit loops?))",
    re.IGNORECASE,
)


class Node(NamedTuple):
    """A switch or HCA, as a file names it."""

    guid: str
    is_switch: bool
    name: str


class Bits(NamedTuple):
    """Bit error ratios of a port; None where the file has no number."""

    node: Node
    port: int
    raw: float | None
    """Before error correction."""
    effective: float | None
    """After it."""


class Cable(NamedTuple):
    """What a port's cable or module reports of itself."""

    guid: str
    port: int
    vendor: str
    part: str
    serial: str
    revision: str
    celsius: float | None


class Check(NamedTuple):
    """A line of the summary."""

    name: str
    warnings: int
    errors: int


class Summary(NamedTuple):
    """What the log reports."""

    checks: list[Check]
    has_credit_loops: bool | None
    """None: they were not looked for."""


def parse_ratio(word: str) -> float | None:
    """A bit error ratio; None where it is none.

    >>> parse_ratio(" 1.5E-254 "), parse_ratio("N/A"), parse_ratio("7")
    (1.5e-254, None, None)
    """
    try:
        number = float(word)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


def parse_net_dump_ext(text: bytes) -> tuple[list[Bits], int]:
    """The ports of a net_dump_ext, and how many lines behind its header are none."""
    found: list[Bits] = []
    header: list[str] = []
    broken = 0
    for line in whole_lines(text):
        if "Raw BER" in line and "Effective BER" in line and "Node Desc" in line:
            header = [word.strip() for word in line.split(":")]
            continue
        if not header or not line.strip() or line.startswith(("#", "-")):
            continue
        # Names have colons in them: the last column takes what is left.
        words = [word.strip() for word in line.split(":", len(header) - 1)]
        row = dict(zip(header, words, strict=False))
        guid, port = _GUID.fullmatch(row.get("GUID", "")), row.get("#IB", "")
        kind = row.get("Ty", "")
        if len(words) < len(header) or guid is None or kind not in {"SW", "CA", "RT"}:
            broken += 1
            continue
        if not _PORT.fullmatch(port) or not 0 < int(port) <= PORT_MAX or len(found) >= ROWS_MAX:
            broken += 1
            continue
        node = Node(guid_of(guid[1]), kind == "SW", clean_name(row["Node Desc"].strip('"')))
        raw, effective = (parse_ratio(row.get(f"{what} BER", "")) for what in ("Raw", "Effective"))
        found.append(Bits(node, int(port), raw, effective))
    return found, broken


def read_sections(text: bytes, wanted: frozenset[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Rows of the wanted sections of a db_csv, by the names of their columns."""
    section = ""
    header: list[str] = []
    for line in whole_lines(text):
        if line.startswith("START_"):
            section, header = line.removeprefix("START_").strip(), []
        elif line.startswith("END_"):
            section = ""
        elif section in wanted and line.strip():
            try:
                words = [word.strip().strip('"') for word in next(csv.reader([line]))]
            except csv.Error:
                continue
            if not header:
                header = words
            elif len(words) == len(header):
                yield section, dict(zip(header, words, strict=True))


NODES, CABLES = "NODES", "CABLE_INFO"
SWITCH = "2"


def parse_db_csv(text: bytes) -> tuple[dict[str, Node], list[Cable]]:
    """The nodes by GUID and the cables of a db_csv."""
    nodes: dict[str, Node] = {}
    cables: list[Cable] = []
    for section, row in read_sections(text, frozenset({NODES, CABLES})):
        # Releases write both NodeGUID and NodeGuid.
        guid = _GUID.fullmatch(row.get("NodeGUID", row.get("NodeGuid", "")))
        if guid is None or len(nodes) + len(cables) >= ROWS_MAX:
            continue
        place = guid_of(guid[1])
        if section == NODES:
            is_switch = row.get("NodeType") == SWITCH
            nodes[place] = Node(place, is_switch, clean_name(row.get("NodeDesc", "")))
            continue
        port = row.get("PortNum", "")
        if _PORT.fullmatch(port) and 0 < int(port) <= PORT_MAX:
            vendor, part, serial, revision = (
                known(row.get(name, "")) for name in ("Vendor", "PN", "SN", "Rev")
            )
            heat = _CELSIUS.fullmatch(row.get("Temperature", ""))
            celsius = float(heat[1]) if heat else None
            cables.append(Cable(place, int(port), vendor, part, serial, revision, celsius))
    return nodes, cables


def known(word: str) -> str:
    return "" if word in {"N/A", "NA"} else clean_name(word)


def parse_log(text: bytes) -> Summary:
    """The summary of checks, and whether routes have credit loops."""
    checks: dict[str, Check] = {}
    has_loops: bool | None = None
    is_in_summary = False
    for line in whole_lines(text):
        if line.startswith("-I- Stage") and "Errors" in line:
            is_in_summary = True
        elif _LOOPS.search(line):
            has_loops = True
        elif _NO_LOOPS.search(line) and has_loops is None:
            has_loops = False
        elif is_in_summary and (match := _CHECK.match(line)) and len(checks) < CHECKS_MAX:
            name = clean_name(match[1])
            checks[name] = Check(name, int(match[2]), int(match[3]))
    return Summary(list(checks.values()), has_loops)
