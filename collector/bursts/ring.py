"""The last samples of one counter, raw: two columns of a fixed length that are written round."""

from __future__ import annotations

from array import array
from bisect import bisect_left

RING_BYTES_MAX = 32 << 20
"""All rings of a sampler. Sixteen counters at 1 kHz for 30 s have 8 MB."""
SAMPLE_BYTES = 16


def ring_length(seconds: float, period_ns: int, counters: int) -> int:
    """Samples that each ring holds: as many as fall into the time, or as memory allows.

    >>> ring_length(30.0, 1_000_000, 16), ring_length(300.0, 1_000_000, 64)
    (30000, 32768)
    """
    wanted = int(seconds * 1e9 / period_ns)
    return max(2, min(wanted, RING_BYTES_MAX // SAMPLE_BYTES // max(1, counters)))


class Ring:
    """Times (monotonic nanoseconds) and values (bytes); only values that changed, and those before.

    An unchanged value adds nothing to its neighbours, so an idle port costs no memory: the
    columns grow until they have their length.
    """

    __slots__ = ("_length", "_next", "_times", "_values")

    def __init__(self, length: int) -> None:
        self._length = length
        self._next = 0
        self._times = array("q")
        self._values = array("Q")

    def __len__(self) -> int:
        return len(self._times)

    def append(self, time_ns: int, value: int) -> None:
        """Keep a sample; the oldest one goes if the ring is full."""
        if len(self._times) < self._length:
            self._times.append(time_ns)
            self._values.append(value)
            return
        self._times[self._next] = time_ns
        self._values[self._next] = value
        self._next = (self._next + 1) % self._length

    def extend(self, times: list[int], values: list[int]) -> None:
        start, end = self._next, self._next + len(times)
        if len(self._times) == self._length and end <= self._length:
            self._times[start:end] = array("q", times)
            self._values[start:end] = array("Q", values)
            self._next = end % self._length
        else:
            for time_ns, value in zip(times, values, strict=True):
                self.append(time_ns, value)

    def since(self, time_ns: int) -> tuple[array[int], array[int]]:
        """Copies of times and values from this moment on, the oldest first."""
        times = self._times[self._next :] + self._times[: self._next]
        values = self._values[self._next :] + self._values[: self._next]
        first = bisect_left(times, time_ns)
        return times[first:], values[first:]
