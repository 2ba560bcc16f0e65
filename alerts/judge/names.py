"""Comparison of culprits by their names, and ids for incidents. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

from collector.contract.storage import server_of
from collector.contract.units import NS
from collector.contract.verdict import Culprit, Verdict

REMEMBERED_MAX = 1_000
"""Culprits whose names are cached: as many as a round examines incidents."""


def same_thing(one: Culprit, other: Culprit) -> bool:
    """Whether two may be the same: they share a machine or a rank, and no name contradicts.

    A link is named by its ends, so that either end's name is enough.

    >>> same_thing(Culprit(host="a", device="mlx5_0"), Culprit(host="a", device="mlx5_0", port="1"))
    True
    >>> same_thing(Culprit(host="a", gpu=1), Culprit(host="a", gpu=2))
    False
    >>> same_thing(Culprit(host="a"), Culprit(switch="leaf1"))
    False
    >>> same_thing(Culprit(storage="filer1:/data"), Culprit(job="llama", storage="filer1:/out"))
    True
    """
    if one.storage or other.storage:
        return bool(one.storage) and server_of(one.storage) == server_of(other.storage)
    has_machine = bool((one.host and other.host) or (one.switch and other.switch))
    has_rank = bool(one.job and other.job) and one.rank is not None and other.rank is not None
    if not has_machine and not has_rank:
        return False
    for name in Culprit.__struct_fields__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs and is_given(mine) and is_given(theirs):
            return False
    return True


def is_given(name: str | int | None) -> bool:
    return name is not None and name != ""


@lru_cache(maxsize=REMEMBERED_MAX)
def names_of(culprit: Culprit) -> frozenset[tuple[str, object]]:
    fields = ((name, getattr(culprit, name)) for name in Culprit.__struct_fields__)
    return frozenset((name, value) for name, value in fields if is_given(value))


SYLLABLES = ("bdfghjklmnprstvz", "aiou")
"""Sixteen consonants and four vowels: five letters hold sixteen bits, pronounceably."""


def word_of(number: int) -> str:
    """A word for sixteen bits.

    >>> word_of(0x7F00), word_of(0xFFFF)
    ('lusab', 'zuzuz')
    """
    consonants, vowels = SYLLABLES
    return "".join(
        (
            consonants[number >> 12 & 15],
            vowels[number >> 10 & 3],
            consonants[number >> 6 & 15],
            vowels[number >> 4 & 3],
            consonants[number & 15],
        )
    )


def name_incident(verdict: Verdict, now_ns: int, taken: Iterable[str] = ()) -> str:
    """The id of an incident that begins now: the time, and two words that make it unique."""
    moment = dt.datetime.fromtimestamp(now_ns // NS, tz=dt.UTC)
    salt = 0
    while True:
        content = (now_ns, str(verdict.cause), sorted(map(str, names_of(verdict.culprit))), salt)
        bits = int.from_bytes(blake2b(repr(content).encode(), digest_size=4).digest())
        name = f"{moment:%Y%m%d-%H%M%S}-{word_of(bits >> 16)}-{word_of(bits & 0xFFFF)}"
        if name not in set(taken):
            return name
        salt += 1
