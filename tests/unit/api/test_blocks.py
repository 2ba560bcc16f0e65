"""ClickHouse's Native blocks, byte by byte."""

import numpy as np
import pytest

from api.data.store.blocks import Column, encode_block, encode_length, encode_text


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32, "8080808010")],
)
def test_lengths(number: int, encoded: str) -> None:
    assert encode_length(number).hex() == encoded


def test_text_is_counted_in_bytes() -> None:
    assert encode_text("é") == b"\x02\xc3\xa9"


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_block_is_little_endian_whatever_the_array_is(order: str) -> None:
    columns = [
        Column("a", "UInt32", np.array([1, 258], dtype=f"{order}u4")),
        Column("b", "Float64", np.array([1.0, -0.5], dtype=f"{order}f8")),
    ]
    assert b"".join(encode_block(columns)) == (
        b"\x02\x02"
        b"\x01a\x06UInt32\x01\0\0\0\x02\x01\0\0"
        b"\x01b\x07Float64\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\xe0\xbf"
    )


def test_a_slice_with_gaps_is_written_without_them() -> None:
    every_other = np.arange(6, dtype="<u4")[::2]
    block = b"".join(encode_block([Column("a", "UInt32", every_other)]))
    assert block.endswith(b"\0\0\0\0\x02\0\0\0\x04\0\0\0")
