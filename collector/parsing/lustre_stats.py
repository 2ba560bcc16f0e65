"""Lustre's counters of a client: lines `NAME N samples [UNIT] min max sum sumsquare`.

As `lprocfs_stats_seq_show` writes them (Lustre 2.12 to 2.15): of `llite` what programs did with the
mount, of `osc` what the client's requests to one object storage target took. A counter without a
sample may have no line, or none of the numbers behind its unit.
"""

from __future__ import annotations

import re

import msgspec

_LINE = re.compile(
    r"(\w{1,64})\s+(\d{1,20}) samples \[(\w+)\](?: (-?\d{1,20}) (-?\d{1,20}) (-?\d{1,26}))?"
)
LINES_MAX = 256
"""Counters of one file: llite has some 60."""


class Tally(msgspec.Struct, frozen=True):
    """One counter: samples, and the sum of what they measured, in ``unit``."""

    samples: int
    total: int
    unit: str


def parse_stats(text: str) -> dict[str, Tally]:
    """Counters by name; lines that are none, such as `snapshot_time`, are passed over.

    >>> parse_stats("ost_read 3 samples [usec] 100 300 600 140000")["ost_read"]
    Tally(samples=3, total=600, unit='usec')
    """
    found: dict[str, Tally] = {}
    for line in text.splitlines()[:LINES_MAX]:
        match = _LINE.match(line)
        if match:
            found[match[1]] = Tally(int(match[2]), max(0, int(match[6] or 0)), match[3])
    return found
