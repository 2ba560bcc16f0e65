"""The memory of a transceiver: which pages to read, and what their bytes say. Pure.

Three maps are known: SFF-8472 revision 12.4 (SFP), SFF-8636 revision 2.10a (QSFP) and CMIS 5.2
(QSFP-DD, OSFP). The first byte of a module names its kind, and the kind its map. The bytes come
from a part that a technician plugs in, so any bytes give a `Module`: what a page does not hold is
None, and nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterable

from collector.parsing.transceiver import cmis, sff8472, sff8636
from collector.parsing.transceiver.memory import EEPROM, Memory, Page
from collector.parsing.transceiver.model import Module

__all__ = ["FIRST_LOOK", "Memory", "Module", "Page", "decode", "live_pages", "still_pages"]

FIRST_LOOK = Page(EEPROM, 0, 0, 0, 128)
"""What is read of a module before its kind is known."""

SFP, QSFP, QSFP_PLUS, QSFP28 = 0x03, 0x0C, 0x0D, 0x11
QSFP_DD, OSFP, SFP_DD, DSFP, QSFP_CMIS, SFP_CMIS = 0x18, 0x19, 0x1A, 0x1B, 0x1E, 0x1F
KINDS = {
    SFP: ("SFP", sff8472),
    QSFP: ("QSFP", sff8636),
    QSFP_PLUS: ("QSFP+", sff8636),
    QSFP28: ("QSFP28", sff8636),
    QSFP_DD: ("QSFP-DD", cmis),
    OSFP: ("OSFP", cmis),
    SFP_DD: ("SFP-DD", cmis),
    DSFP: ("DSFP", cmis),
    QSFP_CMIS: ("QSFP", cmis),
    SFP_CMIS: ("SFP", cmis),
}
"""SFF-8024 revision 4.11, table 4-1: names of kinds, and the map that each uses."""


def still_pages(memory: Memory) -> Iterable[Page]:
    """Pages that do not change while a module is plugged in: its names, limits and abilities.

    Which ones a module has may stand in one of them, so ask again after each that was read.
    """
    kind = KINDS.get(memory.byte(0, 0) or 0)
    return kind[1].still_pages(memory) if kind else ()


def live_pages(memory: Memory) -> Iterable[Page]:
    """Pages with measurements, given those that do not change."""
    kind = KINDS.get(memory.byte(0, 0) or 0)
    return kind[1].live_pages(memory) if kind else ()


def decode(memory: Memory) -> Module | None:
    """What the pages say; None for a module of a kind that is not known here."""
    kind = KINDS.get(memory.byte(0, 0) or 0)
    return kind[1].decode(memory, kind[0]) if kind else None
