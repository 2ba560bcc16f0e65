r"""Records of the kernel's log: what they say, and about which thing. Pure.

A record of `/dev/kmsg` is `priority,sequence,microseconds,flags[,more];text`, then lines that begin
with a space and name the device (Documentation/ABI/testing/dev-kmsg, Linux 3.5). The kernel
escapes what is not printable as `\xNN`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from collector.contract.identity import XID_MAX, whole_number
from collector.tables.kernel_messages import Kind, load_kinds
from collector.tables.nvml import explain_xid

TEXT_BYTES_MAX = 1024
"""Of a line that is compared with patterns: a kernel writes at most 1,024 bytes at once."""
LINE_CHARACTERS_MAX = 240
"""Of the line that an event quotes."""
FACILITY_BITS = 3
"""The priority's lower bits are the level, those above it who has written the line."""
KERNEL = 0
"""The facility of the kernel and its drivers. What programs write has another one, always."""

_HEADER = re.compile(rb"(\d{1,6}),(\d{1,19}),(\d{1,19}),[^;\n]{0,128};")
_DEVICE = re.compile(
    rb"^ DEVICE=\+pci:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$", re.MULTILINE
)


class Record(NamedTuple):
    """One record. ``time_us`` counts from the host's boot, by a clock that is not corrected."""

    facility: int
    sequence: int
    time_us: int
    text: bytes
    pci: str
    """The PCI device that the kernel names beside the text; empty if it names none."""


class Said(NamedTuple):
    """A line that has a meaning."""

    kind: Kind
    line: str
    words: dict[str, str]
    """The groups of the pattern: pci, unit, disk, detail, pid, command, xid, sxid."""


def parse_record(data: bytes) -> Record | None:
    r"""The record in these bytes, or None.

    >>> parse_record(b"6,339,5140900,-;nvme nvme2: frozen\n SUBSYSTEM=nvme\n").text
    b'nvme nvme2: frozen'
    """
    header = _HEADER.match(data)
    if header is None:
        return None
    text, _, more = data[header.end() :].partition(b"\n")
    device = _DEVICE.search(more[:TEXT_BYTES_MAX]) if more else None
    return Record(
        facility=int(header[1]) >> FACILITY_BITS,
        sequence=int(header[2]),
        time_us=int(header[3]),
        text=text[:TEXT_BYTES_MAX],
        pci=device[1].decode("ascii") if device else "",
    )


def understand(text: bytes) -> Said | None:
    """What a line means; None for nearly all lines."""
    for compiled in load_kinds():
        if not any(part in text for part in compiled.has):
            continue
        for pattern in compiled.patterns:
            if found := pattern.match(text):
                words = {name: shown(value) for name, value in found.groupdict().items() if value}
                return Said(compiled.kind, shown(text)[:LINE_CHARACTERS_MAX], words)
    return None


def shown(text: bytes) -> str:
    """The text as people read it: printable, one space between words."""
    decoded = text.replace(rb"\x0a", b" ").decode("ascii", "replace")
    return " ".join("".join(each if each.isprintable() else " " for each in decoded).split())


def explain(said: Said) -> str:
    """What is wrong with the thing, and what to do about it: the end of a sentence."""
    xid = whole_number(said.words.get("xid", ""), XID_MAX)
    if xid is not None:
        return f"reports {explain_xid(xid)}"
    return f"{said.kind.meaning}; {said.kind.action}"
