"""A plug-in of snmpsim: answers with the number that stands in a shared file right now.

A line `1.3.6.1.2.1.31.1.1.1.6.5|70:snmpsim_variation|123` of a recording means: the value of
this OID is the 123rd 64-bit number of that file. The simulator overwrites the file at every tick;
the responder never re-reads its recordings.

snmpsim executes a copy of this file in a namespace of its own, while it still has the rights that
it was started with. So this file stands on the standard library alone.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import mmap
import struct
from pathlib import Path

COUNTER32, GAUGE32, TIMETICKS = "65", "66", "67"
"""SNMP types as recordings spell them; the remaining ones hold 64 bits, or small numbers."""
WORD = struct.Struct("<q")
BITS32 = 0xFFFFFFFF

# snmpsim opens its index of a recording through `dbm`, which imports its back end, and a codec, at
# that moment. By then snmpsim may have become another user, who cannot read this interpreter's
# files.
codecs.lookup("latin-1")
for _backend in ("sqlite3", "gnu", "ndbm", "dumb"):
    with contextlib.suppress(ImportError):
        importlib.import_module(f"dbm.{_backend}")

_numbers: list[mmap.mmap] = []
"""The shared file, once `init` has opened it."""


def init(*, options: str, **_: object) -> None:
    """Called once by snmpsim; ``options`` is the path of the file of numbers."""
    with Path(options).open("rb") as file:
        _numbers[:] = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)]


def variate(oid: object, tag: str, value: str, **context: object) -> tuple[object, str, object]:
    """Called by snmpsim for every answer; another OID, or a set, gets its prepared error."""
    if context["setFlag"] or not (context["nextFlag"] or context["exactMatch"]):
        return context["origOid"], tag, context["errorStatus"]
    (number,) = WORD.unpack_from(_numbers[0], int(value) * WORD.size)
    return oid, tag, as_shown(tag, number)


def as_shown(tag: str, number: int) -> int:
    """The number in its SNMP type: counters of 32 bits start again at zero, gauges stop at the top.

    >>> as_shown(COUNTER32, 2**32 + 5), as_shown(GAUGE32, 400_000_000_000)
    (5, 4294967295)
    """
    if tag in {COUNTER32, TIMETICKS}:
        return number & BITS32
    return min(number, BITS32) if tag == GAUGE32 else number


def shutdown(**_: object) -> None:
    for numbers in _numbers:
        numbers.close()
    _numbers.clear()
