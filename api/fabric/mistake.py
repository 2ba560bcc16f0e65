"""A cabling mistake: what is wrong, the confidence, and the fix."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from api.fabric.plan import Basis
from collector.contract.identity import LinkId, PortId

GIGA = 10**9

NAMES_SHOWN_MAX = 8
"""Names in one sentence; more do not help the reader, and the lists have all of them."""


class MistakeKind(enum.StrEnum):
    """Kinds of cabling mistakes."""

    SWAPPED = "swapped"
    RAIL_MISMATCH = "rail_mismatch"
    """A NIC on the leaf of another rail, or a leaf of many."""
    WRONG_LEAF = "wrong_leaf"
    """A NIC on a leaf that serves other hosts."""
    WRONG_PORT = "wrong_port"
    """The right switch, but not the port that the plan names."""
    WRONG_TIER = "wrong_tier"
    """A host on a spine, or a link that skips a tier or stays within one."""
    MISSING_LINK = "missing_link"
    EXTRA_LINK = "extra_link"
    ASYMMETRIC = "asymmetric"
    """Ends that contradict each other, or more links to one switch than to its like."""
    OVERSUBSCRIBED = "oversubscribed"
    """A leaf with less bandwidth up than the pattern wants."""
    WRONG_SPEED = "wrong_speed"
    DOWN = "down"
    UNKNOWN_NEIGHBOUR = "unknown_neighbour"
    DUPLICATE_NAME = "duplicate_name"
    """Two machines that report the same name."""


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """A finding about cables. Sentences are for people, lists for programs."""

    kind: MistakeKind
    what: str
    expected: str
    found: str
    fix: str
    basis: Basis
    confidence: float
    """From 0 to 1: a plan or an observation is certain, a majority as certain as it is large."""
    nodes: tuple[str, ...] = ()
    ports: tuple[PortId, ...] = ()
    links: tuple[LinkId, ...] = ()
    evidence: tuple[str, ...] = ()


def names(items: Iterable[object]) -> str:
    """Things in a row, the first of them.

    >>> names(["a", "b", "c"])
    'a, b and c'
    """
    every = [name_of(item) for item in items]
    shown = every[:NAMES_SHOWN_MAX]
    if len(every) > len(shown):
        return f"{', '.join(shown)} and {len(every) - len(shown)} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1] if shown else "")))


def name_of(item: object) -> str:
    """A port as operators write it: a switch's name is not repeated.

    >>> name_of(PortId("leaf-0", "leaf-0", "4")), name_of(PortId("node-0", "mlx5_0", "1"))
    ('leaf-0/4', 'node-0/mlx5_0/1')
    """
    if isinstance(item, PortId) and item.host == item.device:
        return str(item).partition("/")[2]
    return str(item)


def gigabits(rate: int) -> str:
    """A rate in Gb/s, as text.

    >>> gigabits(400 * 10**9)
    '400 Gb/s'
    """
    return f"{rate / GIGA:g} Gb/s"


def plural(count: int, thing: str) -> str:
    """So many of something.

    >>> plural(1, "link"), plural(0, "link")
    ('1 link', '0 links')
    """
    return f"{count} {thing}" + ("" if count == 1 else "s")
