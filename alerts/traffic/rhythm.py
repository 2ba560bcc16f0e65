"""The rhythm of a job's traffic: its period, when in a period it sends, and periods that differ.

The period comes twice: from the steps that the collectives repeat in, and from the byte rate alone
(its autocorrelation). Where they agree both are right; a byte rate that repeats twice a step (two
microbatches) shows the shorter one. Pure.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.window.columns import Floats, Ints, Records
from alerts.window.split import all_bus_bytes
from alerts.window.statistics import spread
from collector.contract.collective import Operation
from collector.contract.units import NS

BINS_MAX = 65_536
"""Of the byte rate: a quarter of a second's work. An hour then has bins of 55 ms."""
BIN_NS_MIN = 1_000_000
"""Shorter bins hold pieces of one operation."""
BURST_QUANTILE = 0.5
"""Of the bins in which anything was sent: what is above it counts as much."""
SMOOTH: Floats = np.array([0.25, 0.5, 0.25])
"""Over neighbouring bins: a period is no whole number of them."""
RESIDUE = 1e-6
"""Of the highest rate: what is below it is the rounding of sums."""
PERIODS_MIN = 3
"""Fewer are no repetition."""
CORRELATION_MIN = 0.3
"""Of the byte rate with itself a period later. Random traffic of a thousand bins stays
below 0.1."""
NEAR_BEST = 0.9
"""Every multiple of a period is one. The shortest that correlates nearly as well as the best is
meant."""
PHASE_BINS = 20
"""Parts of a period that are distinguished: a twentieth of a second for steps of one second."""
SENDING_SHARE = 0.5
"""A part of a period in which ranks are inside collectives for so much of it is one of sending."""
LONG_RATIO = 1.5
"""A period that takes so much longer than the median is long; checkpoints take tens of them."""
FAR_SIGMAS = 5.0
"""And so many robust standard deviations: uneven sequences make long steps part of the rhythm."""
ODD_MAX = 100
"""Odd periods that are listed, the longest."""


class Odd(enum.StrEnum):
    """How a period differs from the others."""

    LONG = "long"
    SHORT = "short"
    MISSING = "missing"
    """Nothing was sent for longer than a period between two of them."""


class OddPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """A period that differs."""

    kind: Odd
    start_ns: int
    end_ns: int
    periods: float
    """How many usual periods it took."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a period, from 0 (its beginning) to 1."""

    start: float
    end: float
    is_sending: bool
    bytes_per_second: float
    """One rank's, in the mean."""


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """How traffic repeats; None where nothing was found."""

    period_ns: float | None
    """By steps: the median."""
    byte_period_ns: float | None
    """By the byte rate alone."""
    correlation: float
    """Of the byte rate with itself after that period."""
    periods: int
    duty: float | None
    """The share of time inside collectives, waiting for others included."""
    phases: list[Phase]
    odd: list[OddPeriod]
    odd_left_out: int


NO_TIMES: Ints = np.zeros(0, dtype=np.int64)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank did: operations in any order, and the bytes that it sent in each."""

    entry_ns: Ints
    exit_ns: Ints
    bytes: Floats
    start_ns: Ints = NO_TIMES
    """Where its steps begin, in order; none if nothing repeats."""
    end_ns: Ints = NO_TIMES

    def __len__(self) -> int:
        return len(self.entry_ns)


def rhythm_of(ranks: Sequence[Sent]) -> Rhythm:
    """The rhythm of these ranks together, each by its own clock.

    Periods and those that differ are of the rank that shows the most steps; a job's ranks keep
    step, and one is enough to see when they did not.
    """
    ranks = [one for one in map(clean, ranks) if len(one)]
    if not ranks:
        return Rhythm(
            period_ns=None, byte_period_ns=None, correlation=0.0, periods=0, duty=None, phases=[],
            odd=[], odd_left_out=0,
        )  # fmt: skip
    shown = max(ranks, key=lambda one: len(one.start_ns))
    period_ns = period_by_steps(shown.start_ns, shown.end_ns)
    byte_period_ns, correlation = period_by_bytes(shown)
    odd = [] if period_ns is None else odd_periods(shown.start_ns, shown.end_ns, period_ns)
    most = sorted(odd, key=lambda one: (-one.periods, one.start_ns))[:ODD_MAX]
    return Rhythm(
        period_ns=period_ns,
        byte_period_ns=byte_period_ns,
        correlation=correlation,
        periods=len(shown.start_ns),
        duty=duty_of(ranks),
        phases=phases_of(ranks),
        odd=sorted(most, key=lambda one: one.start_ns),
        odd_left_out=len(odd) - len(most),
    )


def clean(sent: Sent) -> Sent:
    good = (sent.exit_ns >= sent.entry_ns) & (sent.entry_ns > 0) & np.isfinite(sent.bytes)
    order = np.flatnonzero(good)
    order = order[np.argsort(sent.entry_ns[order], kind="stable")]
    return msgspec.structs.replace(
        sent,
        entry_ns=sent.entry_ns[order],
        exit_ns=sent.exit_ns[order],
        bytes=np.maximum(sent.bytes[order], 0.0),
    )


def sent_of(records: Records) -> Sent:
    """What a rank sent, by its records; the bytes that a receive names were another's."""
    rows: Records = records.select(records.timed())
    bytes_ = all_bus_bytes(rows.operations, rows.operation, rows.size_bytes, rows.ranks)
    parts = {str(Operation.RECV): 0.0, str(Operation.SEND_RECV): 0.5}
    weight = np.array([parts.get(name, 1.0) for name in rows.operations])
    amount = bytes_ * weight[rows.operation] if len(rows) else np.zeros(0)
    return Sent(entry_ns=rows.entry_ns, exit_ns=rows.exit_ns, bytes=amount)


# Periods -----------------------------------------------------------------------------------------


def period_by_steps(starts: Ints, ends: Ints) -> float | None:
    """The median step's length; the first one's beginning is not known."""
    if len(starts) < PERIODS_MIN + 1:
        return None
    usual = float(np.median((ends - starts)[1:]))
    return usual if usual > 0 else None


def period_by_bytes(sent: Sent) -> tuple[float | None, float]:
    """The shortest period after which the byte rate is like itself, and how much so.

    First with bins that separate single operations, on as much of the end as BINS_MAX of them
    cover; then on the whole time.
    """
    inside = sent.exit_ns - sent.entry_ns
    end = int(sent.exit_ns.max())
    length = end - int(sent.entry_ns[0])
    coarse = max(BIN_NS_MIN, -(-length // BINS_MAX))
    fine = min(coarse, max(BIN_NS_MIN, int(np.median(inside)) // 2))
    for width in dict.fromkeys((fine, coarse)):
        bins = min(length // width + 1, BINS_MAX)
        if bins < 4 * PERIODS_MIN:
            continue
        begin = end - bins * width
        late: Sent = msgspec.structs.replace(
            sent,
            entry_ns=np.maximum(sent.entry_ns, begin)[sent.exit_ns > begin],
            exit_ns=sent.exit_ns[sent.exit_ns > begin],
            bytes=sent.bytes[sent.exit_ns > begin],
        )
        rate = binned(late, begin, width, bins)
        if not (rate > 0).any():
            continue
        # A burst counts as one, however high: when they come matters, not how much.
        level = np.minimum(rate, np.quantile(rate[rate > 0], BURST_QUANTILE))
        level = np.convolve(level, SMOOTH, mode="same")
        correlation = correlated(level - level.mean())
        found = best_lag(correlation, bins, width) if correlation is not None else (None, 0.0)
        if found[0] is not None:
            return found
    return None, 0.0


def binned(sent: Sent, begin_ns: int, width_ns: int, bins: int) -> Floats:
    """Bytes in each bin, as if each operation sent evenly from its entry to its exit."""
    edges = (np.concatenate([sent.entry_ns, sent.exit_ns]) - begin_ns) / width_ns
    took = np.maximum((sent.exit_ns - sent.entry_ns) / width_ns, 1e-9)
    slope = np.concatenate([sent.bytes / took, -sent.bytes / took])
    place = np.clip(np.floor(edges).astype(np.int64), 0, bins - 1)
    # A ramp from each edge on: its second difference is a step of the slope, shared by two bins.
    late = edges - place
    first = np.bincount(place, slope * (1 - late), bins)
    second = np.bincount(place + 1, slope * late, bins + 1)[:bins]
    rate = np.cumsum(first + second)
    # What sums of floats leave behind is no traffic.
    return np.where(rate > RESIDUE * rate.max(initial=0.0), rate, 0.0)


def correlated(signal: Floats) -> Floats | None:
    """Autocorrelation by lag in bins, corrected for the shorter overlap; None of silence."""
    size = len(signal)
    padded = 1 << (2 * size - 1).bit_length()
    power = np.abs(np.fft.rfft(signal, padded)) ** 2
    found = np.fft.irfft(power, padded)[:size]
    if found[0] <= 0:
        return None
    answer: Floats = found / found[0] * size / (size - np.arange(size))
    return answer


def best_lag(correlation: Floats, bins: int, width_ns: int) -> tuple[float | None, float]:
    """The first peak that is nearly as high as the highest, between bins by its neighbours."""
    last = bins // PERIODS_MIN
    inner = correlation[1:last]
    if len(inner) < 3:  # noqa: PLR2004 - a peak has two sides
        return None, 0.0
    peaks = 2 + np.flatnonzero((inner[1:-1] >= inner[:-2]) & (inner[1:-1] > inner[2:]))
    peaks = peaks[correlation[peaks] >= CORRELATION_MIN]
    if not len(peaks):
        return None, 0.0
    high = float(correlation[peaks].max())
    lag = int(peaks[correlation[peaks] >= NEAR_BEST * high][0])
    left, top, right = correlation[lag - 1 : lag + 2]
    bend = left - 2 * top + right
    shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
    return (lag + float(shift)) * width_ns, float(top)


# Within a period ---------------------------------------------------------------------------------


def duty_of(ranks: Sequence[Sent]) -> float | None:
    shares = []
    for one in ranks:
        begin, end = union(one)
        length = int(one.exit_ns.max() - one.entry_ns[0])
        if length > 0:
            shares.append(float((end - begin).sum()) / length)
    return float(np.median(shares)) if shares else None


def union(sent: Sent) -> tuple[Ints, Ints]:
    ended = np.zeros(len(sent), dtype=np.int64)
    ended[1:] = np.maximum.accumulate(sent.exit_ns)[:-1]
    begin = np.maximum(sent.entry_ns, ended)
    return begin, np.maximum(sent.exit_ns, begin)


def phases_of(ranks: Sequence[Sent]) -> list[Phase]:
    """When in a step ranks send and when they compute, over their steps of usual length."""
    inside, amount, seconds = np.zeros(PHASE_BINS), np.zeros(PHASE_BINS), 0.0
    for one in ranks:
        length = one.end_ns - one.start_ns
        if len(length) <= PERIODS_MIN:
            continue
        usual = float(np.median(length[1:]))
        kept = (length > 0) & (np.abs(length - usual) < usual / 4)
        kept[0] = False  # the first one's beginning is not known
        starts, ends = one.start_ns[kept], one.end_ns[kept]
        if not len(starts):
            continue
        begin, end = union(one)
        inside += folded(begin, end, np.ones(len(one)), starts, ends)
        rate = one.bytes / np.maximum((one.exit_ns - one.entry_ns) / NS, 1e-9)
        amount += folded(one.entry_ns, one.exit_ns, rate, starts, ends)
        seconds += float((ends - starts).sum()) / PHASE_BINS
    return joined(inside / seconds, amount / seconds) if seconds > 0 else []


def folded(begin: Ints, end: Ints, weight: Floats, starts: Ints, ends: Ints) -> Floats:
    """Weighted nanoseconds in each part of a period; spans are cut at the end of their step."""
    step = np.searchsorted(starts, begin, side="right") - 1
    good = step >= 0
    step, begin, end, weight = step[good], begin[good], end[good], weight[good]
    good = begin < ends[step]
    step, begin, end, weight = step[good], begin[good], end[good], weight[good]
    length = (ends - starts)[step].astype(np.float64)
    low = (begin - starts[step]) / length * PHASE_BINS
    high = np.minimum((end - starts[step]) / length, 1.0) * PHASE_BINS
    found = np.zeros(PHASE_BINS)
    for part in range(PHASE_BINS):
        share = np.clip(np.minimum(high, part + 1) - np.maximum(low, part), 0.0, 1.0)
        found[part] = float((share * length / PHASE_BINS * weight).sum())
    return found


def joined(inside: Floats, rate: Floats) -> list[Phase]:
    """Neighbouring parts of one kind as one phase."""
    sending = inside >= SENDING_SHARE
    cuts = [0, *(np.flatnonzero(np.diff(sending)) + 1).tolist(), len(inside)]
    return [
        Phase(
            start=first / len(inside),
            end=last / len(inside),
            is_sending=bool(sending[first]),
            bytes_per_second=float(rate[first:last].mean()),
        )
        for first, last in itertools.pairwise(cuts)
    ]


# Periods that differ -----------------------------------------------------------------------------


def odd_periods(starts: Ints, ends: Ints, period_ns: float) -> list[OddPeriod]:
    length = (ends - starts).astype(np.float64)
    bound = FAR_SIGMAS * spread(length[1:])
    found = []
    for row in range(1, len(starts)):
        times = float(length[row]) / period_ns
        is_far = abs(float(length[row]) - period_ns) > bound
        # The last one is cut where the time ends.
        is_short = times < 1 / LONG_RATIO and row + 1 < len(starts)
        if is_far and (times > LONG_RATIO or is_short):
            kind = Odd.LONG if times > 1 else Odd.SHORT
            span = int(starts[row]), int(ends[row])
            found.append(OddPeriod(kind=kind, start_ns=span[0], end_ns=span[1], periods=times))
        hole = int(starts[row] - ends[row - 1])
        if hole > period_ns:
            found.append(
                OddPeriod(
                    kind=Odd.MISSING,
                    start_ns=int(ends[row - 1]),
                    end_ns=int(starts[row]),
                    periods=hole / period_ns,
                )
            )
    return found
