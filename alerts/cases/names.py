"""Neutral names for those of a cluster: equal stays equal, and the order is kept. Pure.

Names are numbered in their order with leading zeros, because detectors and the judge order equals
by name: what came first comes first again.
"""

from __future__ import annotations

import enum
from collections.abc import Collection


class NameKind(enum.StrEnum):
    """What is named; the value begins the neutral name."""

    HOST = "host"
    SWITCH = "switch"
    DOMAIN = "domain"
    DEVICE = "nic"
    PORT = "port"
    JOB = "job"
    COMMUNICATOR = "comm"
    GROUP = "group"
    ADDRESS = "address"
    PATH = "path"
    LINE = "line"
    CALL = "call"
    LABEL = "label"
    METRIC = "metric"
    WORDS = "words"
    OPERATION = "operation"
    SOURCE = "source"


PORT_DIGITS_MAX = 3
"""A port that is only a number of so many digits is no name, and stays: a NIC's first port is `1`,
and events that name no port mean that one."""


class NameBook:
    """Collects names first; after `close` it gives each its neutral one."""

    def __init__(self, switches: Collection[str]) -> None:
        self._switches = frozenset(switches)
        self._seen: dict[NameKind, set[str]] = {kind: set() for kind in NameKind}
        self._neutral: dict[NameKind, dict[str, str]] | None = None
        self._pids: set[int] = set()
        self._pid_of: dict[int, int] = {}

    def close(self) -> None:
        self._neutral = {kind: numbered(kind, seen) for kind, seen in self._seen.items()}
        self._pid_of = {pid: place for place, pid in enumerate(sorted(self._pids), start=1)}

    def name(self, kind: NameKind, text: str) -> str:
        """The neutral name; an empty one stays empty."""
        if not text:
            return ""
        if self._neutral is None:
            self._seen[kind].add(text)
            return text
        return self._neutral[kind][text]

    def machine(self, text: str) -> str:
        """A host or switch. Its domain is a name of its own: logs and agents differ in using it."""
        short, dot, domain = text.partition(".")
        kind = NameKind.SWITCH if text in self._switches else NameKind.HOST
        tail = f".{self.name(NameKind.DOMAIN, domain)}" if dot else ""
        return self.name(kind, short) + tail

    def device(self, text: str) -> str:
        """A NIC or an interface; a switch's ports have the switch as their device."""
        return self.machine(text) if text in self._switches else self.name(NameKind.DEVICE, text)

    def port(self, text: str) -> str:
        is_number = text.isascii() and text.isdigit() and len(text) <= PORT_DIGITS_MAX
        return text if is_number else self.name(NameKind.PORT, text)

    def pid(self, number: int) -> int:
        """A process' number among those of the window; a negative one is none."""
        if number < 0:
            return number
        if self._neutral is None:
            self._pids.add(number)
            return number
        return self._pid_of[number]

    def known(self, kind: NameKind, text: str, vocabulary: Collection[str]) -> str:
        """A word of our own vocabulary as it is; any other is a name."""
        return text if text in vocabulary else self.name(kind, text)


def numbered(kind: NameKind, names: Collection[str]) -> dict[str, str]:
    """Each name and the neutral one, numbered in the order of the names.

    >>> numbered(NameKind.HOST, {"b", "a"})
    {'a': 'host-1', 'b': 'host-2'}
    """
    width = len(str(len(names)))
    return {name: f"{kind}-{place:0{width}d}" for place, name in enumerate(sorted(names), start=1)}
