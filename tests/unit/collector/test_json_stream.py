"""The JSON reader: any layout, any size of pieces, bounded whatever comes."""

import io
import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contract.errors import ParseError
from collector.parsing import json_stream
from collector.parsing.json_stream import JsonStream

DECODE = msgspec.json.Decoder(list[object]).decode


class Dribble:
    """A stream that gives a few bytes at a time, and remembers how many."""

    def __init__(self, content: bytes, size: int) -> None:
        self._stream = io.BytesIO(content)
        self._size = size

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, self._size))


class Endless:
    """A head, then the same bytes again and again, then nothing."""

    def __init__(self, head: bytes, piece: bytes, times: int) -> None:
        self._pieces = iter([head, *[piece] * times])

    def read(self, _size: int, /) -> bytes:
        return next(self._pieces, b"")


def elements(stream: JsonStream) -> Iterator[object]:
    for block in stream.read_elements(DECODE):
        if isinstance(block, ParseError):
            yield block
        else:
            yield from block


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(
    values=st.lists(json_values, max_size=12),
    indent=st.sampled_from([None, 0, 2]),
    size=st.integers(1, 64),
)
def test_elements_are_those_of_the_standard_library(
    values: list[object], indent: int | None, size: int
) -> None:
    content = json.dumps(values, indent=indent).encode()
    assert list(elements(JsonStream(Dribble(content, size)))) == values


@given(values=st.dictionaries(st.text("abc", max_size=3), json_values), size=st.integers(1, 64))
def test_members_are_those_of_the_standard_library(values: dict[str, object], size: int) -> None:
    stream = JsonStream(Dribble(json.dumps(values).encode(), size))
    found = {}
    for name in stream.members():
        found[name] = msgspec.json.decode(stream.read_value(1 << 20) or b"")
    assert found == values


def test_members_that_are_not_read_are_passed_over() -> None:
    stream = JsonStream(io.BytesIO(b'{"a": [1, {"b": "]}"}], "c": 2}'))
    assert list(stream.members()) == ["a", "c"]


def test_what_looks_like_a_boundary_inside_an_element_is_none() -> None:
    content = b'[{"a": "}, {"}, {"b": [{"c": 1}, {"d": 2}]}, {"e": "\\"}, {"}]'
    assert list(elements(JsonStream(io.BytesIO(content)))) == json.loads(content)


def test_a_broken_element_is_named_and_its_neighbours_are_used() -> None:
    content = b'[{"a": 1}, {"a": NaN}, {"a": {]}, {"a": 2}, {"a": "\xff"}, {"a": 3}]'
    found = list(elements(JsonStream(io.BytesIO(content))))
    errors = [each for each in found if isinstance(each, ParseError)]
    assert [each for each in found if not isinstance(each, ParseError)] == [
        {"a": 1},
        {"a": 2},
        {"a": 3},
    ]
    assert [error.where for error in errors] == ["byte 11", "byte 23", "byte 44"]


def test_an_element_of_any_depth_is_passed_over() -> None:
    bomb = b"[" * 500_000 + b"]" * 500_000
    found = list(elements(JsonStream(io.BytesIO(b"[1, " + bomb + b", 2]"))))
    assert [found[0], found[2]] == [1, 2]
    assert "recursion" in str(found[1])


def test_an_element_without_end_is_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "ELEMENT_BYTES_MAX", 1 << 16)
    stream = JsonStream(Endless(b'[{"a": 1}, {"b": "', b"x\\" * 5000, 1000))
    with pytest.raises(ParseError, match="cut off at byte 10000018"):
        list(elements(stream))
    assert len(stream._data) <= 1 << 17


@pytest.mark.parametrize("piece", [b"[" * (1 << 20), b"[[]]," * 100_000, b"x" * (1 << 20)])
def test_a_value_over_all_bounds_ends_the_reading(
    piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "SKIP_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(json_stream, "ELEMENT_BYTES_MAX", 1 << 16)
    found = elements(JsonStream(Endless(b"[1, [[", piece, 10**6)))
    assert next(found) == 1
    with pytest.raises(ParseError, match="SKIP_BYTES_MAX"):
        next(found)


def test_an_array_of_small_values_is_read_in_time_that_grows_with_it() -> None:
    values = [1] * 30_000
    assert list(elements(JsonStream(io.BytesIO(json.dumps(values).encode())))) == values


def test_a_long_element_is_passed_over_and_the_next_is_read() -> None:
    long = b'{"a": "' + b"x" * (json_stream.ELEMENT_BYTES_MAX + 1) + b'"}'
    found = list(elements(JsonStream(io.BytesIO(b"[1," + long + b", 2]"))))
    assert [found[0], found[2]] == [1, 2]
    assert "ELEMENT_BYTES_MAX" in str(found[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut off at byte 0"),
        (b"{", "cut off at byte 1"),
        (b'{"a', "cut off at byte 3"),
        (b'{"a": 1 "b": 2}', "a comma or the end of the object"),
        (b'{"a" 1}', "where ':' should be"),
        (b"{1: 2}", "without a name"),
        (b'{"a": }', "where a value should be"),
        (b"[]", "where '{' should be"),
    ],
)
def test_what_is_no_object_is_reported_with_its_place(content: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        list(JsonStream(io.BytesIO(content)).members())


@given(content=st.binary(max_size=64), size=st.integers(1, 8))
def test_any_bytes_end(content: bytes, size: int) -> None:
    for head in (b"", b"[", b"{", b'[{"a":1},', b'{"a":'):
        for read in (elements, JsonStream.members):
            try:
                for _ in read(JsonStream(Dribble(head + content, size))):
                    pass
            except ParseError:
                pass
