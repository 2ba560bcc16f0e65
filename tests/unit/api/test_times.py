"""Moments in parameters."""

import pytest

from api.base.errors import Problem
from api.base.times import parse_time_ms


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("1700000000", 1_700_000_000_000),
        ("1700000000.0005", 1_700_000_000_000),
        ("1700000000.123", 1_700_000_000_123),
        ("1.7e9", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000),
    ],
)
def test_both_forms_are_read(text: str, time_ms: int) -> None:
    assert parse_time_ms(text, "from") == time_ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "-1", "nan", "inf", "1e300", "2023-11-14", "2023-11-14T22:13:20", "12:00Z"),
        *("1700000000000000", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"),
        *("9999-12-31T23:59:59-23:59", "2023-02-30T00:00:00Z", "x" * 10_000),
    ],
)
def test_anything_else_is_a_problem_that_names_the_parameter(text: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_time_ms(text, "from")
    assert caught.value.body.status == 400
    assert caught.value.body.detail.startswith("from=")
    assert len(caught.value.body.detail) < 300
