"""Reads and writes PNG, for pictures in the documentation.

A page has few colours: a palette of 256 makes it a third of the size, and no difference is seen.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

COLOURS = 256
USED_COLOURS = 48
"""Of them, those that fill the most: backgrounds, frames, lines and letters."""
PNG_START = b"\x89PNG\r\n\x1a\n"

Pixels = NDArray[np.uint8]


def read_png(data: bytes) -> Pixels:
    """Height x width x 3, of a picture with 8 bits a channel that is not interlaced."""
    assert data.startswith(PNG_START)
    at, parts, header = len(PNG_START), [], b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            parts.append(body)
        at += length + 12
    width, height, depth, colour = struct.unpack(">IIBB", header[:10])
    channels = {2: 3, 6: 4}[colour]
    assert depth == 8
    rows = np.frombuffer(zlib.decompress(b"".join(parts)), dtype=np.uint8)
    rows = rows.reshape(height, 1 + width * channels)
    return unfiltered(rows, width, channels)[:, :, :3]


def unfiltered(rows: Pixels, width: int, channels: int) -> Pixels:
    """Undo PNG's row filters: each row is coded relative to its neighbours."""
    pixels = np.zeros((len(rows), width, channels), dtype=np.uint8)
    above = np.zeros((width, channels), dtype=np.uint8)
    for number, row in enumerate(rows):
        said = row[1:].reshape(width, channels)
        if row[0] == 0:
            made = said
        elif row[0] == 1:
            made = np.cumsum(said, axis=0, dtype=np.uint8)
        elif row[0] == 2:
            made = said + above
        else:
            made = one_by_one(said, above, is_paeth=row[0] == 4)
        pixels[number] = above = made
    return pixels


def one_by_one(said: Pixels, above: Pixels, *, is_paeth: bool) -> Pixels:
    """The two filters in which each byte depends on the same channel of the pixel before it."""
    channels = said.shape[1]
    made = [0] * channels + said.ravel().tolist()
    up = [0] * channels + above.ravel().tolist()
    for place in range(channels, len(made)):
        left, over = made[place - channels], up[place]
        if is_paeth:
            corner = up[place - channels]
            to_left, to_over = abs(over - corner), abs(left - corner)
            to_corner = abs(left + over - 2 * corner)
            if to_left <= to_over and to_left <= to_corner:
                guess = left
            else:
                guess = over if to_over <= to_corner else corner
        else:
            guess = (left + over) // 2
        made[place] = made[place] + guess & 0xFF
    return np.array(made[channels:], dtype=np.uint8).reshape(said.shape)


def write_png(pixels: Pixels) -> bytes:
    """A picture of at most 256 colours: the most used ones, and the nearest for all others."""
    height, width, _ = pixels.shape
    codes = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    found, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    chosen = palette_of(found, counts)
    split = np.array([16, 8, 0], dtype=np.uint32)
    palette = ((chosen[:, None] >> split) & 0xFF).astype(np.int32)
    colours = ((found[:, None] >> split) & 0xFF).astype(np.int32)
    nearest = np.empty(len(found), dtype=np.uint8)
    for first in range(0, len(found), 4_096):
        part = colours[first : first + 4_096, None, :] - palette[None, :, :]
        nearest[first : first + 4_096] = (part**2).sum(axis=2).argmin(axis=1)
    rows = np.zeros((height, width + 1), dtype=np.uint8)
    rows[:, 1:] = nearest[inverse.reshape(-1)].reshape(height, width)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return b"".join(
        (
            PNG_START,
            chunk(b"IHDR", header),
            chunk(b"PLTE", palette.astype(np.uint8).tobytes()),
            chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            chunk(b"IEND", b""),
        )
    )


def palette_of(colours: NDArray[np.uint32], counts: NDArray[np.intp]) -> NDArray[np.uint32]:
    """Colours that stand for all: the most used ones, then one for each part of the colour space.

    Just the most used ones would all be greys of letters' edges, and a scale would lose its steps.
    """
    order = np.argsort(-counts, kind="stable")
    coarse = colours[order] & np.uint32(0xF0F0F0)
    _, firsts = np.unique(coarse, return_index=True)
    spread = order[np.sort(firsts)]
    wanted = np.concatenate([order[:USED_COLOURS], spread, order])
    _, places = np.unique(wanted, return_index=True)
    chosen: NDArray[np.uint32] = colours[wanted[np.sort(places)][:COLOURS]]
    return chosen


def chunk(kind: bytes, body: bytes) -> bytes:
    """One part of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
