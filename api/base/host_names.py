"""Which labels name a host, and which hosts a sender may speak for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from collector.contract.errors import SettingsError

HOST_LABELS: Final = ("host", "instance", "Hostname", "hostname", "node")
"""Labels in which exporters name the host, the most trusted first."""
HOST, INSTANCE = HOST_LABELS[:2]
OTHER_LABELS: Final = HOST_LABELS[1:]

ANY = "*"
"""Ends a prefix of names; alone it stands for every name."""
PATTERNS_MAX: Final = 1_000
"""Names and prefixes of one token: the hosts of a rack, or of a cluster without a naming scheme."""
PATTERN_CHARS_MAX: Final = 255
"""Of one of them: a host's name has no more (`NAME_BYTES_MAX`)."""


class Hosts(msgspec.Struct, frozen=True):
    """The hosts of which a sender may send telemetry: names, and prefixes of names."""

    names: frozenset[str]
    prefixes: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        return "" in self.prefixes

    @property
    def count(self) -> int | None:
        """How many there are; None where a prefix leaves that open."""
        return None if self.prefixes else len(self.names)

    def allow(self, names: Iterable[str]) -> bool:
        """Whether each of these hosts is one of the sender's.

        >>> rack = Hosts.of(["head", "gpu-1*"])
        >>> rack.allow(["head", "gpu-17"]), rack.allow(["head2"]), rack.allow([])
        (True, False, True)
        """
        return all(name in self.names or name.startswith(self.prefixes) for name in names)

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Hosts:
        """From names and prefixes that `check_patterns` has passed.

        >>> Hosts.of(["*"]).is_any, Hosts.of([]).allow(["a"])
        (True, False)
        """
        given = tuple(patterns)
        return cls(
            frozenset(each for each in given if not each.endswith(ANY)),
            tuple(each.removesuffix(ANY) for each in given if each.endswith(ANY)),
        )


ANY_HOST: Final = Hosts.of([ANY])


def check_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """Names and prefixes, each once; SettingsError for one that can match no host.

    >>> check_patterns(["b", "a-*", "b"])
    ('b', 'a-*')
    """
    found = tuple(dict.fromkeys(patterns))
    if not 1 <= len(found) <= PATTERNS_MAX:
        raise SettingsError(f"{len(found)} hosts; a token has 1 to {PATTERNS_MAX}, or '*' for any")
    for each in found:
        stem = each.removesuffix(ANY)
        is_name = len(each) <= PATTERN_CHARS_MAX and each.isprintable() and ANY not in stem
        if not each or not is_name or "," in each or " " in each:
            raise SettingsError(
                f"host {each[:80]!r}: write a name, or a prefix with * at its end, as node-*"
            )
    return found


def parse_patterns(text: str) -> tuple[str, ...]:
    """Names and prefixes of a list with commas.

    >>> parse_patterns("a, b-*")
    ('a', 'b-*')
    """
    return check_patterns(word.strip() for word in text.split(","))


def hosts_named(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts that a series is about, for a check that no reader of the store can be fooled.

    `host` decides where it is there. Where it is not, readers differ in the order of the others,
    so all of them count.

    >>> hosts_named({"host": "a", "instance": "b:9100"}), hosts_named({"instance": "b:9100"})
    (('a',), ('b',))
    >>> hosts_named({"job": "x"})
    ()
    """
    if host := labels.get(HOST):
        return (host,)
    found = [
        without_port(value) if label == INSTANCE else value
        for label in OTHER_LABELS
        if (value := labels.get(label))
    ]
    return tuple(dict.fromkeys(found))


def without_port(instance: str) -> str:
    """The host in Prometheus' `instance`.

    >>> without_port("node-7:9100"), without_port("[fd00::7]:9100"), without_port("fd00::7")
    ('node-7', 'fd00::7', 'fd00::7')
    """
    if instance.startswith("["):
        return instance[1:].partition("]")[0]
    host, _, port = instance.rpartition(":")
    return host if port.isdigit() and ":" not in host else instance
