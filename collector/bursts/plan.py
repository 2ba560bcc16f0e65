"""What is sampled and how: made by the source, carried to the sampler as one line of JSON."""

from __future__ import annotations

import json
from typing import NamedTuple

NS_PER_MS = 1_000_000
NS_PER_SECOND = 1_000_000_000

COUNTERS_MAX = 64
"""Counters of one sampler: thirty-two ports in both directions, four times a large host. Each costs
a read at every tick, and half a megabyte of ring."""
PERIOD_NS_MIN = NS_PER_MS
"""Python cannot keep a finer grid beside other work, and no counter of a NIC is worth it."""
READ_SHARE_MAX = 0.1
"""Of the time, what reading may take: a file behind a firmware command takes a hundred
microseconds, and is then read every few milliseconds instead of every one."""
LIFESPAN_SLACK_NS = 6 * NS_PER_MS
"""Beyond a counter's `lifespan`. The kernel compares in ticks of up to 4 ms and wants more than the
lifespan to have passed: at 250 Hz, 10 ms become 12 to 16. Reading earlier gives the old number."""
RECEIVE, TRANSMIT = "receive", "transmit"


class CounterPlan(NamedTuple):
    """One counter file, its unit and its limits."""

    path: str
    """Absolute, or as a captured tree's recording names it."""
    device: str
    port: str
    """Empty for a network interface, which has no ports."""
    direction: str
    factor: int
    """Bytes for each unit: 4 for InfiniBand's words."""
    floor_ns: int
    """The file never changes faster than this; 0 if unknown."""
    line_rate: float
    """Bytes per second; 0 if unknown."""


class Plan(NamedTuple):
    """All parameters of a sampler. Another plan needs another sampler."""

    counters: tuple[CounterPlan, ...]
    period_ns: int = NS_PER_MS
    cpu: int = -1
    """The processor to stay on; -1 is the last one that is allowed."""
    priority: int = 0
    """Of SCHED_FIFO; 0 leaves the scheduler as it is."""
    threshold: float = 0.5
    """Share of the line rate above which a burst begins."""
    release: float = 0.25
    """Share of the line rate below which it may end."""
    windows_min: int = 2
    """Windows above the threshold that make a burst."""
    ring_seconds: float = 30.0

    def encode(self) -> str:
        return json.dumps(self)

    @classmethod
    def decode(cls, text: str) -> Plan:
        counters, *rest = json.loads(text)
        return cls(tuple(CounterPlan(*each) for each in counters), *rest)


def reads_every(counter: CounterPlan, read_ns: int, counters: int, period_ns: int) -> int:
    """At every how manyth tick this counter is read, by what it allows and what it costs.

    ``read_ns`` is what one read was measured to take. All counters together stay below
    READ_SHARE_MAX, each with the same share.

    >>> cheap = CounterPlan("f", "eth0", "", RECEIVE, 1, 0, 0.0)
    >>> reads_every(cheap, 2_000, 16, NS_PER_MS), reads_every(cheap, 100_000, 16, NS_PER_MS)
    (1, 16)
    >>> reads_every(cheap._replace(floor_ns=10 * NS_PER_MS), 2_000, 16, NS_PER_MS)
    16
    """
    wanted_ns = max(period_ns, round(read_ns * counters / READ_SHARE_MAX))
    if counter.floor_ns:
        wanted_ns = max(wanted_ns, counter.floor_ns + LIFESPAN_SLACK_NS)
    return -(-wanted_ns // period_ns)
