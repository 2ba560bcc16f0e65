"""Bandwidth against a communicator's own past and against nccl-tests."""

import math

import msgspec
import pytest

from alerts.detectors.bandwidth_regression import detect
from alerts.window.model import Kind, Past
from tests.worlds.ring_jobs import SIZE_BYTES, Group, make_job, make_window

KIND: Kind = ("0x00", "all_reduce", SIZE_BYTES)
BUS_BYTES = 2 * SIZE_BYTES * 7 / 8
TRANSFER_NS = 7.8e6
"""What the healthy ring below takes: 14 chunks of half a millisecond, and when ranks notice."""


def past_of(transfer_ns: float, operations: int = 40) -> dict[Kind, Past]:
    return {KIND: Past(transfer_ns=transfer_ns, skew_ns=0.0, operations=operations)}


def test_a_kind_that_was_faster_in_the_past_is_found_as_context() -> None:
    job = make_job([Group(range(8))], past=past_of(TRANSFER_NS * 0.8))
    (found,) = detect(make_window(job))
    assert found.is_context
    assert found.communicators == ("0x00",)
    (evidence,) = found.evidence
    assert evidence.baseline is not None
    assert evidence.baseline == pytest.approx(BUS_BYTES / (TRANSFER_NS * 0.8) * 1e9)
    assert evidence.value < 0.95 * evidence.baseline
    assert evidence.samples == 60


def test_a_kind_as_fast_as_ever_is_not_mentioned() -> None:
    job = make_job([Group(range(8))], past=past_of(TRANSFER_NS))
    assert detect(make_window(job)) == []


def test_half_of_what_nccl_tests_reached_is_found() -> None:
    tested = BUS_BYTES / TRANSFER_NS * 1e9
    job = make_job([Group(range(8))], baselines={KIND: 2 * tested})
    (found,) = detect(make_window(job))
    assert "nccl-tests" in found.evidence[0].text
    nearly = make_job([Group(range(8))], baselines={KIND: 1.2 * tested})
    assert detect(make_window(nearly)) == []


def test_a_few_operations_or_a_short_past_are_not_enough() -> None:
    few = make_job([Group(range(8))], operations=10, past=past_of(1e6))
    short = make_job([Group(range(8))], past=past_of(1e6, operations=3))
    assert detect(make_window(few)) == []
    assert detect(make_window(short)) == []


@pytest.mark.parametrize("odd", [0.0, -1.0, math.nan, math.inf])
def test_a_past_or_a_test_that_makes_no_sense_is_left_out(odd: float) -> None:
    job = make_job([Group(range(8))], past=past_of(odd), baselines={KIND: odd})
    assert detect(make_window(job)) == []


def test_without_past_and_tests_nothing_is_found() -> None:
    job = make_job([Group(range(8))])
    assert detect(make_window(job)) == []
    empty = msgspec.structs.replace(
        job, operations=job.operations.select(slice(0, 0)), past=past_of(1e6)
    )
    assert detect(make_window(empty)) == []
