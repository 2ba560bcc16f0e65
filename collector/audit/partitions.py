"""Partitions of InfiniBand: tables of keys, and which ports may talk to each other by them. Pure.

A key (P_Key) has 15 bits that name a partition and one that is set for its full members. Packets
pass between two ports that have keys of one partition unless both are limited members of it; where
the 15 bits are zero the key is none (IBTA volume 1, 10.9).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from collector.audit.settings import NONE

FULL = 0x8000
"""The bit of a key that makes its holder a full member."""
PARTITION = 0x7FFF
"""The bits of a key that name the partition."""
KEY_MAX = 0xFFFF
ENTRIES_MAX = 23
"""Keys of one port that fit into a fact: eleven characters each, of 256. Tenants have one or two;
of a port with more nothing is said, because one that was left out could be the one that counts."""


def is_key(key: int) -> bool:
    return 0 < key & PARTITION <= key <= KEY_MAX


def to_text(table: Mapping[int, int]) -> str:
    """A table as one value: each entry that has a key, by its index.

    >>> to_text({0: 0xFFFF, 1: 0, 3: 1}), to_text({0: 0x8000})
    ('0:0xffff 3:0x0001', 'none')
    """
    keys = [f"{index}:0x{key:04x}" for index, key in sorted(table.items()) if is_key(key)]
    return " ".join(keys) or NONE


def parse_table(text: str) -> dict[int, int]:
    """The entries of such a value; what is no entry is passed over.

    >>> parse_table("0:0xffff 3:0x0001 4:x"), parse_table("none")
    ({0: 65535, 3: 1}, {})
    """
    found: dict[int, int] = {}
    for word in text.split():
        index, _, key = word.partition(":0x")
        is_number = index.isascii() and index.isdigit() and key.isascii() and key.isalnum()
        if is_number and len(index) + len(key) <= len("99999ffff"):
            try:
                found[int(index)] = int(key, 16)
            except ValueError:
                continue
    return {index: key for index, key in found.items() if is_key(key)}


def can_talk(one: Collection[int], other: Collection[int]) -> bool:
    """Whether some key of the one port and some key of the other let packets pass.

    >>> can_talk([0x0001], [0x8001]), can_talk([0x0001], [0x0001]), can_talk([0x8001], [0x8002])
    (True, False, False)
    """
    full = {key & PARTITION for key in one if key & FULL}
    limited = {key & PARTITION for key in one} - full
    return any(
        key & PARTITION in full or (bool(key & FULL) and key & PARTITION in limited)
        for key in other
    )


def membership(keys: Collection[int], partition: int) -> str:
    """What a holder of these keys is in a partition.

    >>> membership([0x7FFF, 0x8001], 1), membership([0x7FFF], 0x7FFF), membership([], 1)
    ('a full member', 'a limited member', 'no member')
    """
    if partition | FULL in keys:
        return "a full member"
    return "a limited member" if partition in keys else "no member"
