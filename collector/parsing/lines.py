"""Lines of a stream, with a bound on each: a line of ten gigabytes is named and passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from collector.contract.errors import ParseError

PIECE_BYTES = 1 << 16
"""What is read at once. A piece and what is made of it should fit into a core's cache: with a
megabyte everything takes a tenth more time."""
LINE_BYTES_MAX = 4 << 20
"""The longest line that is read. An Inspector's record of 64 channels with all its proxy steps
has about a megabyte; a longer line is another kind of file, or an attack."""


def read_pieces(stream: BinaryIO) -> Iterator[bytes | None]:
    """Whole lines, some PIECE_BYTES of them at once; None in the place of a line that is too long.

    A piece ends with a newline, except the last of a file that is cut off. No more than
    LINE_BYTES_MAX and a piece is ever held.
    """
    rest, is_skipping = b"", False
    while piece := stream.read(PIECE_BYTES):
        end = piece.rfind(b"\n") + 1
        if not end:
            if not is_skipping and len(rest) + len(piece) <= LINE_BYTES_MAX:
                rest += piece
            elif not is_skipping:
                yield None
                rest, is_skipping = b"", True
            continue
        start = piece.index(b"\n") + 1 if is_skipping else 0
        is_skipping = False
        if lines := rest + piece[start:end]:
            yield lines
        rest = piece[end:]
    if rest:
        yield rest


def read_blocks(stream: BinaryIO) -> Iterator[tuple[int, bytes] | ParseError]:
    """Blocks of whole lines with the number of each block's first line, counted from 1.

    A line over LINE_BYTES_MAX is a ParseError in its place.
    """
    number = 1
    for piece in read_pieces(stream):
        if piece is None:
            yield too_long(number)
            number += 1
        else:
            yield number, piece
            number += piece.count(b"\n")


def too_long(number: int) -> ParseError:
    return ParseError(
        f"line {number}", f"longer than LINE_BYTES_MAX = {LINE_BYTES_MAX} bytes; passed over"
    )


def read_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes] | ParseError]:
    """Lines without their newline, each with its number; too long ones as in `read_blocks`."""
    for block in read_blocks(stream):
        if isinstance(block, ParseError):
            yield block
        else:
            yield from lines_of(*block)


def lines_of(number: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of a block without their newlines, each with its number."""
    return enumerate(block.removesuffix(b"\n").split(b"\n"), number)
