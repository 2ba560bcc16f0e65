"""Arithmetic of hardware counters that are narrower than 64 bits.

Some counters wrap (mlx5 queue counters at 2**32), some clamp (classic InfiniBand error counters
stop at 15, 255 or 65535), all of them fall back to zero when a device or host restarts. What a
falling counter means therefore depends on its width and on what it does at its end.
"""

from __future__ import annotations

import enum

import msgspec


class Overflow(enum.StrEnum):
    """What a counter does when it reaches the end of its range."""

    WRAP = "wrap"
    CLAMP = "clamp"


class Width(msgspec.Struct, frozen=True):
    """A counter's range: ``bits`` wide, and what happens at the end of it."""

    bits: int = 64
    overflow: Overflow = Overflow.WRAP

    @property
    def maximum(self) -> int:
        return (1 << self.bits) - 1

    @property
    def saturated_at(self) -> int:
        """The number at which the counter counts no more; -1 if it does not clamp.

        A number beyond it comes from a device whose counter is wider than we know: it counts.
        """
        return self.maximum if self.overflow is Overflow.CLAMP else -1


WIDE = Width()
"""64 bits: wraps after centuries."""
WRAPS_32 = Width(32, Overflow.WRAP)


class Change(enum.StrEnum):
    """How a counter came from one reading to the next."""

    STEP = "step"
    WRAP = "wrap"
    RESET = "reset"


def advance(previous: int, current: int, width: Width) -> tuple[int, Change]:
    """How much was counted between two readings, and how.

    A wrapping counter that fell has either wrapped or been reset. It has wrapped if the way
    forward over its end is less than half its range; a counter that moves more than that between
    two readings is read too rarely to be understood at all. It cannot have wrapped if it stood
    beyond its end: then it is wider than we know. After a reset, what it shows is what was counted
    since: a lower bound, as Prometheus assumes too.

    >>> advance(4_294_967_290, 4, WRAPS_32)
    (10, <Change.WRAP: 'wrap'>)
    >>> advance(70_000, 4, WRAPS_32)
    (4, <Change.RESET: 'reset'>)
    """
    if current >= previous:
        return current - previous, Change.STEP
    forward = current + (1 << width.bits) - previous
    can_wrap = width.overflow is Overflow.WRAP and previous <= width.maximum
    if can_wrap and forward < 1 << (width.bits - 1):
        return forward, Change.WRAP
    return current, Change.RESET


class Extender:
    """Turns readings of one narrow wrapping counter into a number that only a reset lowers.

    Every reader (PromQL's ``rate``, our detectors) then needs one rule: a fall is a reset.
    ``state`` is what has to be kept so that the number goes on after a restart of the agent.
    """

    __slots__ = ("_extended", "_raw", "_width")

    def __init__(self, width: Width, state: tuple[int, int] | None = None) -> None:
        self._width = width
        self._raw, self._extended = state if state is not None else (-1, -1)

    @property
    def state(self) -> tuple[int, int]:
        """The last raw reading and the number it was extended to."""
        return self._raw, self._extended

    def extend(self, raw: int) -> int:
        if self._raw < 0:
            extended = raw
        elif raw >= self._raw:  # the usual case, without the cost of `advance`
            extended = self._extended + raw - self._raw
        else:
            counted, change = advance(self._raw, raw, self._width)
            extended = raw if change is Change.RESET else self._extended + counted
        self._raw, self._extended = raw, extended
        return extended
