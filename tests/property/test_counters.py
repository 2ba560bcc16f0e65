"""Whatever a narrow counter does, the increase that PromQL computes is what was counted.

"The increase" is Prometheus': the sum of all rises, where a fall counts as a reset to zero.
"""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from collector.contract.counters import Change, Extender, Overflow, Width, advance

BITS = st.sampled_from([8, 16, 32, 64])


def increase(series: list[int]) -> int:
    """What PromQL's `increase` adds up, before it extrapolates."""
    return sum(now - then if now >= then else now for then, now in pairwise(series))


@st.composite
def counting(draw: st.DrawFn) -> tuple[int, int, list[list[int]]]:
    """A width, a first number, and increments grouped by the readings that see them.

    A group of several is a gap: readings were missed. Between two readings less than half the
    range is counted; a counter that moves faster is read too rarely to be reconstructed.
    """
    bits = draw(BITS)
    half = (1 << (bits - 1)) - 1
    start = draw(st.integers(0, (1 << bits) - 1))
    groups = []
    for _ in range(draw(st.integers(1, 20))):
        left, group = half, []
        for _ in range(draw(st.integers(1, 4))):
            group.append(draw(st.integers(0, left)))
            left -= group[-1]
        groups.append(group)
    return bits, start, groups


@given(counting(), st.sets(st.integers(0, 20)))
def test_nothing_is_lost_over_wraps_gaps_and_restarts(
    case: tuple[int, int, list[list[int]]], restarts: set[int]
) -> None:
    bits, truth, groups = case
    width = Width(bits, Overflow.WRAP)
    extender = Extender(width)
    extended = [extender.extend(truth % (1 << bits))]
    for number, group in enumerate(groups):
        truth += sum(group)
        if number in restarts:
            extender = Extender(width, extender.state)
        extended.append(extender.extend(truth % (1 << bits)))
    assert increase(extended) == sum(sum(group) for group in groups)
    assert extended == sorted(extended)


@given(BITS, st.lists(st.lists(st.integers(0, 30), min_size=1), min_size=1))
def test_resets_count_what_can_be_seen(bits: int, lives: list[list[int]]) -> None:
    """Each life of a device starts at zero and is read after every increment.

    What the first reading of a life shows was counted in it; that it is a reset can be seen only
    if it is less than the last reading before. Otherwise the difference is a lower bound.
    """
    extender = Extender(Width(bits, Overflow.WRAP))
    half, last, seen, series = 1 << (bits - 1), None, 0, []
    for life in lives:
        raw = 0
        for number in life:
            raw += number
            if raw >= half:
                break  # beyond, a reset and a wrap look the same
            if last is not None:
                seen += raw - last if raw >= last else raw
            last = raw
            series.append(extender.extend(raw))
    assert increase(series) == seen


@given(BITS, st.sampled_from(Overflow), st.lists(st.integers(0, (1 << 64) - 1), min_size=2))
def test_no_reading_ever_counts_backwards(bits: int, overflow: Overflow, raws: list[int]) -> None:
    """Even of a device that reports numbers which the counter's width cannot hold."""
    width = Width(bits, overflow)
    for previous, current in pairwise(raws):
        counted, change = advance(previous, current, width)
        assert counted >= 0
        assert change is not Change.WRAP or overflow is Overflow.WRAP
    extender = Extender(width)
    assert all(extender.extend(raw) >= raw for raw in raws)


@given(BITS, st.data())
def test_advance_finds_every_increment_below_half_the_range(bits: int, data: st.DataObject) -> None:
    previous = data.draw(st.integers(0, (1 << bits) - 1))
    increment = data.draw(st.integers(0, (1 << (bits - 1)) - 1))
    current = (previous + increment) % (1 << bits)
    counted, _ = advance(previous, current, Width(bits, Overflow.WRAP))
    assert counted == increment
