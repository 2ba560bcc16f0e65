"""Odd things are remembered within a bound, and a broken round does not end its loop."""

import asyncio

import pytest

from api.base.limits import ODDITIES_MAX, ODDITY_EXAMPLE_CHARS_MAX, ODDITY_EXAMPLES_MAX
from api.base.metrics import ServiceMetrics
from api.base.quarantine import Oddities, Quarantine
from api.base.steady import Steady


def test_a_flood_of_one_kind_displaces_no_other_kind() -> None:
    kept = Oddities(lambda: 1.0)
    kept.note("native", "bad_labels", "the first")
    for number in range(10 * ODDITIES_MAX):
        kept.note("window", "no port", f"series {number}")
    flood, first = kept.latest()
    assert flood.count == 10 * ODDITIES_MAX
    assert len(flood.examples) == ODDITY_EXAMPLES_MAX
    assert flood.examples[-1] == f"series {10 * ODDITIES_MAX - 1}"
    assert first.examples == ("the first",)


def test_past_the_bound_the_kind_that_was_quiet_longest_is_forgotten() -> None:
    kept = Oddities()
    for number in range(ODDITIES_MAX + 1):
        kept.note("native", "too_old", "", sender=f"sender {number}")
        kept.note("native", "too_old", "", sender="sender 0")
    senders = [one.sender for one in kept.latest()]
    assert len(senders) == ODDITIES_MAX
    assert senders[0] == "sender 0"
    assert "sender 1" not in senders


def test_an_example_is_short_and_printable_and_kept_once() -> None:
    kept = Quarantine()
    for _ in range(3):
        kept.put("window", "no port", "\x1b[2J" + "x" * 1000)
    (one,) = kept.latest()
    assert one.count == 3
    (shown,) = one.examples
    assert len(shown) == ODDITY_EXAMPLE_CHARS_MAX
    assert shown.isprintable()


def test_rows_of_which_nothing_can_be_made_are_counted_and_the_others_made() -> None:
    counted: list[str] = []
    kept = Quarantine(count=counted.append)
    assert kept.sound("jobs", "a number", ["1", "x", "3"], int) == [1, 3]
    assert counted == ["jobs"]
    assert kept.latest()[0].reason == "a number: ValueError"


def test_a_round_that_breaks_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ServiceMetrics()
    steady = Steady("port watch", metrics)
    states = []
    for is_bug in (True, True, False):
        with steady.round():
            assert not is_bug
        states.append(steady.is_broken)
    assert states == [True, True, False]
    found = metrics.registry.get_sample_value(
        "fabric_service_work_failures_total", {"work": "port watch"}
    )
    assert found == 2.0
    assert len([one for one in caplog.records if one.exc_info]) == 1


def test_cancelling_ends_the_loop() -> None:
    metrics = ServiceMetrics()
    with pytest.raises(asyncio.CancelledError), Steady("work", metrics).round():
        raise asyncio.CancelledError
