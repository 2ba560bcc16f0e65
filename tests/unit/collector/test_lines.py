"""Lines of a stream: whole, numbered, and bounded."""

import io

import pytest

from collector.contract.errors import ParseError
from collector.parsing import lines
from collector.parsing.lines import (
    LINE_BYTES_MAX,
    PIECE_BYTES,
    read_blocks,
    read_lines,
    read_pieces,
)


def test_lines_are_numbered_over_pieces() -> None:
    line = b"x" * 99
    count = 3 * PIECE_BYTES // 100
    found = list(read_lines(io.BytesIO((line + b"\n") * count)))
    assert found == [(number, line) for number in range(1, count + 1)]


def test_a_last_line_without_newline_is_a_line() -> None:
    assert list(read_lines(io.BytesIO(b"a\n\nb"))) == [(1, b"a"), (2, b""), (3, b"b")]


def test_an_empty_stream_has_no_line() -> None:
    assert list(read_pieces(io.BytesIO(b""))) == []


@pytest.mark.parametrize("tail", [b"\nafter\n", b"\nafter"])
def test_a_line_that_is_too_long_is_named_and_passed_over(tail: bytes) -> None:
    stream = io.BytesIO(b"before\n" + b"x" * (LINE_BYTES_MAX + PIECE_BYTES) + tail)
    first, error, last = list(read_lines(stream))
    assert first == (1, b"before")
    assert isinstance(error, ParseError)
    assert error.where == "line 2"
    assert last == (3, b"after")


def test_a_long_line_over_many_pieces_is_whole() -> None:
    long = b"x" * (LINE_BYTES_MAX - 1)
    assert list(read_lines(io.BytesIO(long + b"\nb\n"))) == [(1, long), (2, b"b")]


def test_no_more_than_the_bound_is_held() -> None:
    class Endless(io.RawIOBase):
        """Ten bounds of a line that never ends."""

        left = 10 * LINE_BYTES_MAX

        def read(self, size: int = -1) -> bytes:
            self.left -= size
            return b"x" * size if self.left > 0 else b""

    errors = list(read_blocks(Endless()))  # type: ignore[arg-type]
    assert [type(error) for error in errors] == [ParseError]


def test_pieces_put_together_are_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PIECE_BYTES", 7)
    content = b"a\nbb\n\nccccccccccccc\ndd\n" * 3 + b"end"
    assert b"".join(piece or b"" for piece in read_pieces(io.BytesIO(content))) == content
