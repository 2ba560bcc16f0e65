"""Slurm's hostlist notation: `node[01-03,7],login`. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from collector.contract.errors import ParseError

HOSTS_MAX = 100_000
"""Hosts of one list: more than the largest machines have."""
TEXT_CHARS_MAX = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9._\-]*")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")


def expand(text: str) -> list[str]:
    """The hosts of a list, in its order. Raises ParseError.

    >>> expand("node[08-10],gpu7")
    ['node08', 'node09', 'node10', 'gpu7']
    >>> expand("r[1-2]n[1-2]")
    ['r1n1', 'r1n2', 'r2n1', 'r2n2']
    """
    if len(text) > TEXT_CHARS_MAX:
        raise ParseError("", f"a list of {len(text)} characters; at most {TEXT_CHARS_MAX}")
    found: list[str] = []
    for item in split(text):
        for host in expand_item(item):
            if len(found) >= HOSTS_MAX:
                raise ParseError("", f"more than HOSTS_MAX = {HOSTS_MAX} hosts")
            found.append(host)
    return found


def split(text: str) -> Iterator[str]:
    """Items of a list: commas inside brackets belong to the item."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in {0, 1}:
            break
        if sign == "," and not depth:
            yield text[start:place]
            start = place + 1
    if depth:
        raise ParseError("", f"brackets of {text[:80]!r} do not match")
    if text:
        yield text[start:]


def expand_item(item: str) -> Iterator[str]:
    parts: list[list[str]] = []
    count = 1
    for place, part in enumerate(re.split(r"[\[\]]", item)):
        if place % 2:
            parts.append(list(numbers(part)))
        elif _NAME.fullmatch(part) is None:
            raise ParseError("", f"{item[:80]!r} is no host, nor a list of them")
        else:
            parts.append([part])
        count *= max(1, len(parts[-1]))
        if count > HOSTS_MAX:
            raise ParseError("", f"{item[:80]!r} is more than HOSTS_MAX = {HOSTS_MAX} hosts")
    for pieces in itertools.product(*parts):
        host = "".join(pieces)
        if not host:
            raise ParseError("", "an empty name in a list of hosts")
        yield host


def numbers(text: str) -> Iterator[str]:
    """The numbers of `01-03,7`, with their zeros."""
    for piece in text.split(","):
        found = _RANGE.fullmatch(piece)
        if found is None:
            raise ParseError("", f"{piece[:40]!r} is no range of numbers")
        first, last = found[1], found[2] or found[1]
        if int(last) - int(first) >= HOSTS_MAX or int(last) < int(first):
            raise ParseError("", f"{piece[:40]!r} is no range of numbers that can be used")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}}"


def compress(hosts: Iterable[str]) -> str:
    """Hosts as Slurm writes them: numbers at the end of names are joined.

    >>> compress(["node10", "node08", "node09", "gpu7", "login"])
    'gpu7,login,node[08-10]'
    >>> compress(["n9", "n10"])
    'n[9-10]'
    """
    families: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for host in sorted(set(hosts)):
        found = _NUMBERED.fullmatch(host)
        if found is None:
            plain.append(host)
        else:
            # Without a zero in front a number has no fixed width.
            width = len(found[2]) if found[2].startswith("0") else 0
            families.setdefault((found[1], width), []).append(int(found[2]))
    for (stem, width), taken in merge_widths(families).items():
        ranges = [
            f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}"
            for a, b in runs(sorted(taken))
        ]
        lone = len(ranges) == 1 and "-" not in ranges[0]
        plain.append(f"{stem}{ranges[0]}" if lone else f"{stem}[{','.join(ranges)}]")
    return ",".join(sorted(plain))


def merge_widths(families: dict[tuple[str, int], list[int]]) -> dict[tuple[str, int], list[int]]:
    """`node08` and `node10` have one width, though the second begins with no zero."""
    merged: dict[tuple[str, int], list[int]] = {}
    for (stem, width), taken in sorted(families.items()):
        widths = {known for other, known in families if other == stem and known and not width}
        for number in taken:
            digits = len(str(number))
            merged.setdefault((stem, digits if digits in widths else width), []).append(number)
    return merged


def runs(ordered: list[int]) -> Iterator[tuple[int, int]]:
    """Numbers that follow each other, as first and last."""
    for _, placed in itertools.groupby(enumerate(ordered), lambda item: item[1] - item[0]):
        run = [number for _, number in placed]
        yield run[0], run[-1]
