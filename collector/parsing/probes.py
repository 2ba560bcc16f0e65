"""The datagram that agents probe each other with. Pure.

Requests and answers have the same length, so that nothing is gained by asking in another's name.
Numbers are in network order: magic, kind, flow, sequence, nonce, and in answers how long the
request stayed with the one who answered.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

MAGIC: Final = b"FSP1"
REQUEST: Final = 1
ANSWER: Final = 2
BYTES: Final = 64
WIRE_BYTES: Final = BYTES + 8 + 20 + 14 + 24
"""With UDP, IPv4, Ethernet, its checksum, preamble and gap: what a probe takes of a link."""
STAY_NS_MAX: Final = 10_000_000_000

_FORM = struct.Struct("!4sBBHIQQ")
_PADDING = bytes(BYTES - _FORM.size)


class Probe(NamedTuple):
    """One request, or its answer."""

    kind: int
    flow: int
    sequence: int
    nonce: int
    """Of the prober's process: an answer to another one is none."""
    stay_ns: int = 0


def encode(probe: Probe) -> bytes:
    head = (MAGIC, probe.kind, probe.flow, 0, probe.sequence, probe.nonce, probe.stay_ns)
    return _FORM.pack(*head) + _PADDING


def decode(data: bytes) -> Probe | None:
    """None for anything that is no probe.

    >>> decode(encode(Probe(REQUEST, 3, 7, 1 << 63)))
    Probe(kind=1, flow=3, sequence=7, nonce=9223372036854775808, stay_ns=0)
    >>> decode(b"FSP1") is None
    True
    """
    if len(data) != BYTES:
        return None
    magic, kind, flow, _, sequence, nonce, stay_ns = _FORM.unpack_from(data)
    if magic != MAGIC or kind not in {REQUEST, ANSWER} or stay_ns > STAY_NS_MAX:
        return None
    return Probe(kind, flow, sequence, nonce, stay_ns)
