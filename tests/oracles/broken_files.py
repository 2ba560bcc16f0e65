"""Copies of files with something broken: bits, ends, numbers, lines. Made from a seed."""

import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path

PACKED = ".gz"
NUMBERS = (
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"18446744073709551616",
    b"9" * 400,
    b"-9223372036854775809",
    b"0.0000001",
    b"null",
    b'"x"',
)
TEXTS = (
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\x1b[2J",
    b"\r",
    b"\xe2\x80\xae",
    b"x" * 100_000,
    b"[" * 5_000,
    b'{"a":' * 5_000,
    b"../../etc/passwd",
)
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


class Breaker:
    """Breaks contents; the same seed breaks them in the same way."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def copy(self, source: Path, target: Path) -> None:
        """A broken copy. Of a packed file mostly what is inside breaks."""
        content = source.read_bytes()
        if source.suffix == PACKED and self.random.random() < 0.8:
            target.write_bytes(gzip.compress(self.broken(gzip.decompress(content)), 1))
        else:
            target.write_bytes(self.broken(content))

    def broken(self, content: bytes) -> bytes:
        """The content with one to three things broken."""
        kinds: tuple[Callable[[bytes], bytes], ...] = (
            self._bits,
            self._cut,
            self._numbers,
            self._inserted,
            self._doubled,
            self._lines,
        )
        for _ in range(self.random.choice((1, 1, 2, 3))):
            content = self.random.choice(kinds)(content)
        return content

    def _at(self, content: bytes) -> int:
        return self.random.randint(0, len(content))

    def _bits(self, content: bytes) -> bytes:
        spoilt = bytearray(content)
        for _ in range(self.random.choice((1, 5, 50)) if content else 0):
            spoilt[self.random.randrange(len(spoilt))] ^= 1 << self.random.randrange(8)
        return bytes(spoilt)

    def _cut(self, content: bytes) -> bytes:
        return (
            content[: self._at(content)]
            if self.random.random() < 0.7
            else content[self._at(content) :]
        )

    def _numbers(self, content: bytes) -> bytes:
        """Some numbers become others; of one kind, so that a column may be wrong as a whole."""
        other, share = self.random.choice(NUMBERS), self.random.choice((0.001, 0.05, 0.5))
        return NUMBER.sub(
            lambda found: other if self.random.random() < share else found[0], content
        )

    def _inserted(self, content: bytes) -> bytes:
        at = self._at(content)
        return content[:at] + self.random.choice(TEXTS) + content[at:]

    def _doubled(self, content: bytes) -> bytes:
        begin, end = sorted((self._at(content), self._at(content)))
        return content[:end] + content[begin:end] + content[end:]

    def _lines(self, content: bytes) -> bytes:
        """Lines in another order, or some of them gone."""
        lines = content.splitlines(keepends=True)
        self.random.shuffle(lines)
        return b"".join(lines[: self.random.randint(0, len(lines))])
