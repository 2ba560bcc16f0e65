"""Arithmetic of narrow counters, by example; `tests/property/test_counters.py` has the rules."""

import pytest

from collector.contract.counters import (
    WIDE,
    WRAPS_32,
    Change,
    Extender,
    Overflow,
    Width,
    advance,
)

CLAMPS_8 = Width(8, Overflow.CLAMP)


@pytest.mark.parametrize(
    ("previous", "current", "width", "expected"),
    [
        (5, 9, WIDE, (4, Change.STEP)),
        (5, 5, WIDE, (0, Change.STEP)),
        (2**32 - 6, 4, WRAPS_32, (10, Change.WRAP)),
        (70_000, 4, WRAPS_32, (4, Change.RESET)),
        (2**64 - 1, 0, WIDE, (1, Change.WRAP)),
        (1000, 0, WIDE, (0, Change.RESET)),
        (254, 1, CLAMPS_8, (1, Change.RESET)),
        (2**33, 5, WRAPS_32, (5, Change.RESET)),
    ],
    ids=["step", "still", "wrap", "reset", "wide wrap", "to zero", "clamp", "wider than known"],
)
def test_advance(previous: int, current: int, width: Width, expected: tuple[int, Change]) -> None:
    assert advance(previous, current, width) == expected


def test_only_a_clamping_counter_saturates() -> None:
    assert CLAMPS_8.saturated_at == 255
    assert WRAPS_32.saturated_at == -1


def test_an_extended_counter_falls_only_at_a_reset() -> None:
    extender = Extender(WRAPS_32)
    raws = [2**32 - 1, 0, 7, 2**31, 3]
    assert [extender.extend(raw) for raw in raws] == [
        2**32 - 1,
        2**32,
        2**32 + 7,
        2**32 + 2**31,
        3,
    ]


def test_an_extender_goes_on_from_its_state() -> None:
    extender = Extender(WRAPS_32)
    for raw in (2**32 - 1, 5):
        extender.extend(raw)
    again = Extender(WRAPS_32, extender.state)
    assert again.extend(6) == 2**32 + 6
