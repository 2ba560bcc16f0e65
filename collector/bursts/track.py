"""The reduction of one counter's samples: windows, one summary a second, and bursts.

A *window* is the stretch between two readings of the counter, and its rate is what was counted in
it by the time that was measured between them, never by the period that was meant.

A file that does not change may mean that nothing was counted, or that its driver refreshes it
seldom (a firmware that copies its numbers every 250 ms). The first is true of most; the second is
found out: more bytes at once than the line can carry in that time, or changes that come only at a
fixed rhythm. From then on a window is the stretch between two *changes*, and the resolution that is
reported is that rhythm.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from math import ceil, sqrt
from operator import sub, truediv
from typing import Any, NamedTuple

from collector.bursts.detect import Burst, Detector
from collector.bursts.plan import NS_PER_MS, NS_PER_SECOND, CounterPlan, Plan
from collector.bursts.ring import Ring

BIN_NS = 10 * NS_PER_MS
"""The coarser window, on a fixed grid: the same for every counter that allows it, so that ports can
be compared whatever their resolution."""
BIN_TOLERANCE = 0.2
"""Of a bin: so much longer a resolution may be, because it is measured and trembles."""
BOUNDS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Upper ends of the histogram's steps of utilisation; above the last lies what cannot be."""
SHORT_SHARE = 0.5
"""Of the period: a shorter window waits for the next one. After a late read comes an early one, and
a clump of packets in a sliver of time would look like more than the line carries."""
QUICK_CHANGES = 2
"""So many reads in a row that find a change prove a file that is always fresh: a driver may be
caught once in the middle of its refresh."""
IMPOSSIBLE = 4.0
"""Times what the line carries: bytes that must have been counted earlier. Well above one, because a
driver hands over a few milliseconds' packets at once now and then."""
PROOFS = 2
"""Impossible steps after which a file counts as refreshed seldom."""
RHYTHM_CHANGES = 12
"""So many changes at one rhythm prove the same."""
RHYTHM_SPREAD = 1.3
"""The longest of these pauses by the shortest."""
RHYTHM_SHARE = 0.05
"""Of what the line carries in a period; steps below it (a heartbeat, LLDP) prove nothing."""
CLAMPED = (1 << 32) - 1
"""Where the byte counters of the oldest HCAs (without PortCountersExtended) stop."""

END = 1 << 64
"""Of what a counter can hold."""


class Pending(NamedTuple):
    """Samples as they were read, in columns."""

    befores: list[int]
    """When the file was last read before."""
    times: list[int]
    texts: list[bytes]


class Samples(NamedTuple):
    """The same, in bytes."""

    befores: list[int]
    times: list[int]
    values: list[int]


def number_in(text: bytes) -> int:
    r"""The number in a file's text; -1 if it holds none.

    >>> number_in(b"17\n"), number_in(b"N/A (no PMA)")
    (17, -1)
    """
    try:
        return int(text)
    except ValueError:
        return -1


def bin_for(resolution_ns: int) -> int:
    """The length of bins for a counter of this resolution, in nanoseconds.

    >>> bin_for(NS_PER_MS), bin_for(11 * NS_PER_MS), bin_for(16 * NS_PER_MS)
    (10000000, 10000000, 20000000)
    """
    return max(1, ceil(resolution_ns / BIN_NS - BIN_TOLERANCE)) * BIN_NS


class Track:
    """One counter. ``pending`` is filled by the sampler, at every tick; `digest` empties it."""

    def __init__(self, counter: CounterPlan, plan: Plan, *, every: int, ring: Ring) -> None:
        self.counter = counter
        self.ring = ring
        self.pending = Pending([], [], [])
        self.trouble = ""
        """Why it cannot be read or understood at present."""
        self.is_clamped = False
        self.bursts = 0
        self.is_cached = False
        self.refresh_ns = 0
        self.period_ns = every * plan.period_ns
        self.read_ns = 0
        """What a read was measured to take."""
        self._line = counter.line_rate / NS_PER_SECOND
        self._short_ns = int(SHORT_SHARE * self.period_ns)
        self._bounds = [bound * self._line for bound in BOUNDS] if self._line else []
        self._detector: Detector | None = None
        if self._line:
            self._detector = Detector(
                plan.threshold * self._line,
                plan.release * self._line,
                windows_min=plan.windows_min,
                window_ns=self.period_ns,
            )
        self.histogram_ns = [0] * (len(BOUNDS) + 1)
        self._value = -1
        """The value up to which bytes are accounted for; ``_end_ns`` is its time."""
        self._end_ns = 0
        self._moved = self._moved_ns = 0
        self._carried_ns = 0
        """Where a window begins that is too short to stand alone; 0: there is none."""
        self._kept_ns = self._kept = 0
        self._text = b""
        self._quick = self._proofs = 0
        self._pauses: deque[int] = deque(maxlen=RHYTHM_CHANGES)
        self._bin_ns = bin_for(self.period_ns)
        self._bin_end_ns = 0
        self._bin_bytes = 0.0
        self._start_over()

    def _start_over(self) -> None:
        self._time_ns = self._busy_ns = self._bytes = self._windows = 0
        self._peak = 0.0
        self._bins = 0
        self._bins_sum = self._bins_squares = self._bins_peak = 0.0

    # --- samples -------------------------------------------------------------------------------

    def digest(self, seen_ns: int) -> list[Burst]:
        """Work through what is pending; ``seen_ns`` is when the file was last read."""
        found: list[Burst] = []
        texts = self.pending.texts
        if texts and texts[0] == self._text and texts.count(self._text) == len(texts):
            self.pending = Pending([], [], [])  # nothing moved
        elif texts:
            self._text = texts[-1]
            samples = self._parse()
            if samples.values:
                is_gapless = samples.befores[1:] == samples.times[:-1]
                self._keep(samples, is_gapless=is_gapless)
                if not (is_gapless and self._hurry(samples, found)):
                    for sample in zip(samples.befores, samples.times, samples.values, strict=True):
                        self._step(*sample, found)
        self._settle(seen_ns, found)
        if found:
            self.bursts += sum(burst.phase != "started" for burst in found)
        return found

    def _parse(self) -> Samples:
        pending, self.pending = self.pending, Pending([], [], [])
        try:
            values = list(map(int, pending.texts))
        except ValueError:
            values = [number_in(text) for text in pending.texts]
        factor = self.counter.factor
        if factor != 1:
            values = [value * factor for value in values]
        samples = Samples(pending.befores, pending.times, values)
        self.trouble = ""
        if min(values) < 0 or max(values) >= END:
            good = [place for place, value in enumerate(values) if 0 <= value < END]
            text = pending.texts[-1][:40].decode("utf-8", "replace").strip()
            self.trouble = f"{text!r} is no number" if len(values) - 1 not in good else ""
            samples = Samples(*([column[place] for place in good] for column in samples))
        self.is_clamped = values[-1] == CLAMPED * factor
        return samples

    def _keep(self, samples: Samples, *, is_gapless: bool) -> None:
        """Put samples into the ring, each with the last time at which it still stood before."""
        befores, times, values = samples
        if is_gapless:
            if befores[0] > self._kept_ns > 0:
                self.ring.append(befores[0], self._kept)
            self.ring.extend(times, values)
            self._kept_ns, self._kept = times[-1], values[-1]
            return
        for before_ns, now_ns, value in zip(befores, times, values, strict=True):
            if before_ns > self._kept_ns > 0:
                self.ring.append(before_ns, self._kept)
            self.ring.append(now_ns, value)
            self._kept_ns, self._kept = now_ns, value

    def _hurry(self, samples: Samples, found: list[Burst]) -> bool:
        """Take gapless samples of a counter that changes at nearly every read, all at once.

        What a port with traffic does nearly all the time, at a quarter of the cost of `_step`: most
        of the sampler's own time goes here. False if these samples are not of that kind; then
        nothing was done.
        """
        befores, times, values = samples
        is_steady = self._quick >= QUICK_CHANGES and not self._carried_ns and self._value >= 0
        if not is_steady or befores[0] != self._end_ns:
            return False
        durations = list(map(sub, times, befores))
        counted = list(map(sub, values, [self._value, *values[:-1]]))
        if min(counted) < 0 or min(durations) < self._short_ns or not any(counted):
            return False
        rates = list(map(truediv, counted, durations))
        lowest, highest = min(rates), max(rates)
        self._peak = max(self._peak, highest)
        step = bisect_left(self._bounds, highest)
        if bisect_left(self._bounds, lowest) == step:
            self.histogram_ns[step] += times[-1] - self._end_ns
        else:
            for rate, duration_ns in zip(rates, durations, strict=True):
                self.histogram_ns[bisect_left(self._bounds, rate)] += duration_ns
        self._time_ns += times[-1] - self._end_ns
        self._bytes += values[-1] - self._value
        self._windows += len(values) - counted.count(0)
        detector = self._detector
        if detector is not None and (detector.is_open or highest > detector.threshold):
            for window in zip(befores, times, counted, rates, strict=True):
                self._detect(detector, *window, found)
        self._fill_all(samples, counted)
        self._value, self._end_ns = values[-1], times[-1]
        self._moved, self._moved_ns = values[-1], times[-1]
        return True

    def _fill_all(self, samples: Samples, counted: list[int]) -> None:
        """`_fill` for windows that follow each other."""
        befores, times, values = samples
        place, before = 0, self._value
        while times[-1] > self._bin_end_ns:
            across = bisect_right(times, self._bin_end_ns, place)
            if across > place:
                self._bin_bytes += values[across - 1] - before
            self._fill(befores[across], times[across], counted[across])
            before, place = values[across], across + 1
            if place == len(times):
                return
        self._bin_bytes += values[-1] - before

    def lose(self) -> None:
        """The file was gone: counting begins again with its next value."""
        self.pending = Pending([], [], [])
        self._text = b""
        self._value = -1
        self._kept_ns = self._carried_ns = self._quick = 0

    def _step(self, before_ns: int, now_ns: int, value: int, found: list[Burst]) -> None:
        """One sample; it need not have changed."""
        if self._value < 0 or value < self._value:
            self._anchor(now_ns, value, found)
            return
        if self._carried_ns and before_ns > self._moved_ns:
            self._put_down(before_ns, found)
        counted = value - self._value
        if not counted:
            return  # the quiet is accounted for when it ends
        start_ns = self._start_of(before_ns, now_ns, counted)
        self._moved_ns, self._moved = now_ns, value
        if self._carried_ns:
            start_ns = min(start_ns, self._carried_ns)
        if now_ns - start_ns < self._short_ns:
            self._carried_ns = start_ns
            return
        self._carried_ns = 0
        self._value = value
        if start_ns > self._end_ns:
            self._be_quiet(start_ns, found)
        self._count(start_ns, now_ns, counted, found)

    def _put_down(self, until_ns: int, found: list[Burst]) -> None:
        """A short window waited for another one in vain: then nothing came, until now."""
        start_ns, self._carried_ns = self._carried_ns, 0
        counted, self._value = self._moved - self._value, self._moved
        if start_ns > self._end_ns:
            self._be_quiet(start_ns, found)
        self._count(start_ns, until_ns, counted, found)

    def _anchor(self, now_ns: int, value: int, found: list[Burst]) -> None:
        """Begin here: the first number of all, or one after a reset."""
        if self._detector is not None and (burst := self._detector.close()) is not None:
            found.append(burst)
        self._value, self._end_ns = value, now_ns
        self._moved, self._moved_ns = value, now_ns
        self._carried_ns = 0
        self._begin_bins()

    def _start_of(self, before_ns: int, now_ns: int, counted: int) -> int:
        """Since when these bytes may have been counted: the last read, or the last change."""
        if before_ns <= self._moved_ns:  # it had changed at the last read, too
            self._quick += 1
            if self._quick >= QUICK_CHANGES:
                self._proofs = 0
                self._pauses.clear()
                if self.is_cached:
                    self._set_refresh(0)
        else:
            self._quick = 0
            self._pauses.append(now_ns - self._moved_ns)
            carried = self._line * (now_ns - before_ns)
            is_impossible = carried > 0 and counted > IMPOSSIBLE * carried
            self._proofs += is_impossible
            if self.is_cached or self._proofs >= PROOFS or self._has_rhythm(counted):
                pauses = sorted(self._pauses)
                self._set_refresh(pauses[len(pauses) // 2])
            elif is_impossible:
                return self._moved_ns
        return self._moved_ns if self.is_cached else before_ns

    def _has_rhythm(self, counted: int) -> bool:
        if len(self._pauses) < RHYTHM_CHANGES or counted < (
            RHYTHM_SHARE * self._line * self.period_ns
        ):
            return False
        return max(self._pauses) <= RHYTHM_SPREAD * min(self._pauses)

    def _set_refresh(self, refresh_ns: int) -> None:
        self.is_cached, self.refresh_ns = refresh_ns > 0, refresh_ns
        resolution_ns = max(self.period_ns, refresh_ns)
        bin_ns = bin_for(resolution_ns)
        if bin_ns != self._bin_ns:  # bins of another length cannot be compared
            self._bin_ns = bin_ns
            self._bins = 0
            self._bins_sum = self._bins_squares = self._bins_peak = 0.0
            self._begin_bins()
        if self._detector is not None:
            self._detector.set_window(resolution_ns)

    def _begin_bins(self) -> None:
        self._bin_bytes = 0.0
        self._bin_end_ns = self._end_ns + self._bin_ns

    def _settle(self, seen_ns: int, found: list[Burst]) -> None:
        """Account for the time since the last change, as far as it is conclusive."""
        if self._value < 0:
            return
        if self._carried_ns:
            if seen_ns <= self._moved_ns:
                return
            self._put_down(seen_ns, found)
        believed_ns = 2 * self.refresh_ns if self.is_cached else 0
        if seen_ns - self._end_ns > believed_ns:
            self._be_quiet(seen_ns, found)

    # --- windows -------------------------------------------------------------------------------

    def _be_quiet(self, until_ns: int, found: list[Burst]) -> None:
        """Nothing was counted from where we are until then."""
        duration_ns = until_ns - self._end_ns
        self._time_ns += duration_ns
        self.histogram_ns[0] += duration_ns
        self._fill(self._end_ns, until_ns, 0.0)
        self._end_ns = until_ns
        if self._detector is not None and (burst := self._detector.quiet(duration_ns)) is not None:
            found.append(burst)

    def _count(self, start_ns: int, end_ns: int, counted: int, found: list[Burst]) -> None:
        rate = counted / (end_ns - start_ns)
        # Less than the window where quiet time within it was accounted for already.
        duration_ns = end_ns - self._end_ns
        self._time_ns += duration_ns
        self._bytes += counted
        self._windows += 1
        self._peak = max(self._peak, rate)
        self.histogram_ns[bisect_left(self._bounds, rate)] += duration_ns
        self._fill(self._end_ns, end_ns, counted)
        self._end_ns = end_ns
        if self._detector is not None:
            self._detect(self._detector, start_ns, end_ns, counted, rate, found)

    def _detect(
        self,
        detector: Detector,
        start_ns: int,
        end_ns: int,
        counted: int,
        rate: float,
        found: list[Burst],
    ) -> None:
        if rate > detector.threshold:
            self._busy_ns += end_ns - start_ns
        elif not detector.is_open:
            return
        if (burst := detector.take(start_ns, end_ns, counted, rate)) is not None:
            found.append(burst)

    def _fill(self, start_ns: int, end_ns: int, counted: float) -> None:
        """Put bytes into the bins of the coarser grid, evenly over the time."""
        if end_ns <= self._bin_end_ns:
            self._bin_bytes += counted
            return
        rate = counted / max(1, end_ns - start_ns)
        self._close_bins(self._bin_bytes + rate * (self._bin_end_ns - start_ns), 1)
        whole, rest_ns = divmod(end_ns - self._bin_end_ns, self._bin_ns)
        if whole:
            self._close_bins(rate * self._bin_ns, whole)
        self._bin_end_ns = end_ns - rest_ns + self._bin_ns
        self._bin_bytes = rate * rest_ns

    def _close_bins(self, filled: float, count: int) -> None:
        self._bins += count
        self._bins_sum += count * filled
        self._bins_squares += count * filled * filled
        self._bins_peak = max(self._bins_peak, filled)

    # --- the summary ---------------------------------------------------------------------------

    def summary(self, read_every_ns: float) -> dict[str, Any]:
        """Bytes and seconds since the last summary; ``read_every_ns``: the real read interval."""
        seconds = self._time_ns / NS_PER_SECOND
        resolution_ns = max(float(self.refresh_ns), read_every_ns)
        coarse = None
        if self._bin_ns == BIN_NS:
            coarse = self._bins_peak / BIN_NS * NS_PER_SECOND if self._bins else None
        summary = {
            "trouble": self.trouble,
            "clamped": self.is_clamped,
            "seconds": seconds,
            "peak": self._peak * NS_PER_SECOND,
            "peak_coarse": coarse,
            "mean": self._bytes / seconds if seconds else None,
            "busy": self._busy_ns / self._time_ns if self._time_ns and self._line else None,
            "variation": self._variation(),
            "histogram": [each / NS_PER_SECOND for each in self.histogram_ns],
            "resolution": resolution_ns / NS_PER_SECOND,
            "refresh": self.refresh_ns / NS_PER_SECOND,
            "period": self.period_ns / NS_PER_SECOND,
            "read": self.read_ns / NS_PER_SECOND,
            "windows": self._windows,
            "bursts": self.bursts,
        }
        self._start_over()
        return summary

    def _variation(self) -> float | None:
        """The coefficient of variation over bins; None where nothing was counted."""
        if not self._bins or self._bins_sum <= 0:
            return None
        mean = self._bins_sum / self._bins
        return sqrt(max(0.0, self._bins_squares / self._bins - mean * mean)) / mean
