"""Virtual functions: bytes of the kernel's answer, and the running kernel about what it has."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.doors.virtual_functions import (
    Counts,
    VirtualFunction,
    ask_functions,
    parse_functions,
)
from tests.doubles.ethtool_kernel import put


def function(number: int, *more: bytes) -> bytes:
    return put(1, put(1, struct.pack("=I32s", number, b"\xb8")) + b"".join(more))


def test_rates_are_bits_and_counts_are_the_functions_own() -> None:
    kinds = zip((0, 1, 2, 3, 4, 5, 7, 8), range(1, 9), strict=True)
    counts = put(8, b"".join(put(kind, struct.pack("=Q", count)) for kind, count in kinds))
    rate, trust = put(6, struct.pack("=3I", 5, 100, 25_000)), put(9, struct.pack("=2I", 5, 1))
    link = put(5, struct.pack("=2I", 5, 2))
    answer = put(3, b"ens1f0\0") + put(22, function(5, rate, trust, link, counts) + function(6))
    assert parse_functions(answer) == [
        VirtualFunction(5, "disable", True, 25_000_000_000, 100_000_000, Counts(1, 2, 3, 4, 7, 8)),
        VirtualFunction(6),
    ]


def test_a_setting_that_the_driver_does_not_know_is_not_on() -> None:
    """The kernel writes -1 where a driver has no such setting."""
    answer = put(22, function(0, put(9, struct.pack("=Ii", 0, -1)), put(5, b"\0")))
    assert parse_functions(answer) == [VirtualFunction(0)]


@given(st.binary(max_size=300))
def test_any_bytes_are_functions_or_none(data: bytes) -> None:
    assert all(one.number >= 0 for one in parse_functions(put(22, data) + data))


def test_the_running_kernel_answers_about_an_interface_without_functions() -> None:
    assert parse_functions(ask_functions("lo")) == []
    with pytest.raises(OSError, match="No such device"):
        ask_functions("no-such-nic")
    with pytest.raises(OSError, match="No such device"):
        ask_functions("an-interface-of-a-dream")
