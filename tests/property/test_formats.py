"""Any bytes give records or a ParseError, whatever the format, and nothing else happens."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contract.errors import ParseError
from collector.formats import HEAD_BYTES, Origin, discover

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures/formats"
SEEDS = {
    path.parent.parent.name: path.read_bytes()[: 1 << 16]
    for path in sorted(FIXTURES.glob("*/*/input*"))
}
FORMATS = discover()
ORIGIN = Origin("some.file", 1_800_000_000_000_000_000)

each_format = pytest.mark.parametrize("name", FORMATS)


def swallow(name: str, content: bytes) -> None:
    """Read the bytes as this format; only a ParseError may come out."""
    reader = FORMATS[name]
    reader.recognises(content[:HEAD_BYTES], ORIGIN)
    try:
        for _ in reader.parse(io.BytesIO(content), ORIGIN):
            pass
    except ParseError:
        pass


@each_format
@given(content=st.binary(max_size=4096))
def test_any_bytes(name: str, content: bytes) -> None:
    swallow(name, content)


@each_format
@given(data=st.data())
def test_a_real_file_with_bytes_changed(name: str, data: st.DataObject) -> None:
    content = bytearray(SEEDS[name])
    changes = data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8)
    )
    for place, byte in changes:
        content[place] = byte
    swallow(name, bytes(content))


@each_format
@given(data=st.data())
def test_a_real_file_with_its_middle_elsewhere(name: str, data: st.DataObject) -> None:
    content = SEEDS[name]
    one, other = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2)))
    swallow(name, content[other:] + content[one:other] + content[:one])
