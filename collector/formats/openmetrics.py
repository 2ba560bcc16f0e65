"""Prometheus text 0.0.4 and OpenMetrics 1.0: what exporters answer, and files of such lines.

Every line is a sample under the name that stands on the line; histograms and summaries are plain
series. HELP, TYPE, UNIT and exemplars are passed over. A line without a time gets that of the file.

A time is in milliseconds in the one format and in seconds in the other, and only the end of a file
(`# EOF`) shows which it is. So its size decides, line by line, as the line is read: SECONDS_MAX.

A file repeats the text before the value over and over. Each such text is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, ClassVar

from collector.contract.errors import IdentityError, ParseError
from collector.contract.identity import LABEL_VALUE_BYTES_MAX, LABELS_MAX, check_label
from collector.contract.model import Sample, Series
from collector.formats import Origin, Record
from collector.parsing.lines import read_blocks

SECONDS_MAX = 1e11
"""A time below this is in seconds (the year 5138), any other in milliseconds (from March 1973)."""
TIME_SECONDS_MAX = 1 << 32
"""The year 2106: a later time is a mistake, and far later ones do not fit into 64 bits of ns."""

KEPT_SERIES_MAX = 100_000
"""Texts before the value that are remembered; then all are forgotten, which costs only time."""
LINE_BYTES_MAX = 256 << 10
"""LABELS_MAX labels of the longest values there may be have 136 KiB."""
SHOWN_BYTES = 60
"""How much of a line an error shows."""

NO_LABELS = b"\n"
"""Ends the text before the value where there are no labels, and never occurs in a line: so that
`name{a="b" 1`, where the brace is missing, is not taken for the known `name{a="b"} 1`."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:.]*"
_NAME_AT = re.compile(_NAME)
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LABEL_AT = re.compile(
    rf"\s*(?:([a-zA-Z_][a-zA-Z0-9_.]*)|{_QUOTED})\s*(=\s*{_QUOTED}\s*)?(?:,|(?=\}}))"
)
"""A label and its value; or a text in quotes alone, which is the name of the metric."""
_ESCAPED = re.compile(r"\\(.)")
_UNESCAPED = {"n": "\n", '"': '"', "\\": "\\"}

_NAME_BYTES = _NAME.encode()
_NUMBER = rb"[-+]?(?:[0-9][0-9.eE+-]*|\.[0-9][0-9eE+-]*|[iI]nf(?:inity)?|NaN|nan)"
_SAMPLE_LINE = re.compile(
    _NAME_BYTES
    + rb"(?:[ \t]*(\{[^\n]*\})[ \t]*|[ \t]+)"
    + _NUMBER
    + rb"(?:[ \t]+[-+]?[0-9][0-9.eE+-]*)?(?:[ \t]+#[^\n]*)?[ \t]*\r?"
)
_META_LINE = re.compile(rb"# (?:(?:TYPE|UNIT) %b [a-z_]+ *\r?|HELP %b .*)" % ((_NAME_BYTES,) * 2))
RECOGNISE_LINES = 50
"""Lines of a file's beginning that are checked."""
RECOGNISE_SHARE = 0.9
"""So many of them must be of this format: a broken line makes no other file of it."""


class OpenMetrics:
    """The format."""

    name: ClassVar[str] = "openmetrics"
    title: ClassVar[str] = "Prometheus or OpenMetrics text"

    def recognises(self, head: bytes, origin: Origin) -> bool:
        """Whether nearly all lines are samples or descriptions, and one of them is unmistakable."""
        del origin
        lines = [line for line in head.split(b"\n")[:-1] if line.strip()][:RECOGNISE_LINES]
        samples = [match for line in lines if (match := _SAMPLE_LINE.fullmatch(line))]
        meta = sum(1 for line in lines if _META_LINE.fullmatch(line))
        comments = sum(1 for line in lines if line.startswith(b"#"))
        is_certain = meta > 0 or any(match[1] for match in samples)
        return is_certain and len(samples) + comments >= RECOGNISE_SHARE * len(lines)

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """A sample for every line that is one."""
        kept: dict[bytes, Series] = {}
        for block in read_blocks(stream):
            if isinstance(block, ParseError):
                yield block
            else:
                yield from parse_lines(*block, origin.time_ns, kept)


FORMAT = OpenMetrics()


def parse_lines(
    number: int, text: bytes, time_ns: int, kept: dict[bytes, Series]
) -> Iterator[Sample | ParseError]:
    """The samples of whole lines; ``number`` is that of the first, ``kept`` the texts known so far.

    The way of nearly every line is the short one in the loop: the text before its value is known,
    and one or two plain numbers follow. `parse_line` reads all others.
    """
    for offset, line in enumerate(text.removesuffix(b"\n").split(b"\n")):
        prefix, brace, rest = line.rpartition(b"} ")
        if not brace:
            prefix, _, rest = line.partition(b" ")
            prefix += NO_LABELS
        if (series := kept.get(prefix)) and b"_" not in rest:
            parts = rest.split()
            try:
                if len(parts) == 1:
                    yield Sample(series, float(rest), time_ns)
                    continue
                value, at = map(float, parts)
                if 0 <= at < TIME_SECONDS_MAX:
                    # Microseconds: as fine as a float of this size is exact.
                    yield Sample(series, value, round(at * 1e6) * 1000)
                    continue
            except ValueError:
                pass
        if not line.strip() or line.startswith(b"#"):
            continue
        try:
            yield parse_line(line, time_ns, kept)
        except ParseError as error:
            yield ParseError(f"line {number + offset}", error.detail)


def parse_line(line: bytes, time_ns: int, kept: dict[bytes, Series]) -> Sample:
    """The sample on a line; the text before its value becomes known. Raises ParseError.

    >>> parse_line(b'up{job="a b"} 1 1700000000000', 0, {}).time_ns
    1700000000000000000
    """
    if len(line) > LINE_BYTES_MAX:
        raise ParseError("", f"longer than LINE_BYTES_MAX = {LINE_BYTES_MAX} bytes")
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise ParseError("", f"not UTF-8: {shown(line.decode('utf-8', 'replace'))}") from error
    series, end = parse_series(text)
    # An exemplar follows after a space and a hash: it is about one observation, no series.
    numbers = text[end:].partition(" # ")[0].split()
    if len(numbers) not in {1, 2}:
        raise ParseError("", f"not a value and a time after the name: {shown(text)}")
    value = parse_number(numbers[0], text)
    if len(numbers) > 1:
        time_ns = parse_time(numbers[1], text)
    if len(kept) >= KEPT_SERIES_MAX:
        kept.clear()
    is_labelled = text[end - 1] == "}"
    kept[text[: end - 1].encode() if is_labelled else text[:end].encode() + NO_LABELS] = series
    return Sample(series, value, time_ns)


def parse_series(text: str) -> tuple[Series, int]:
    name, end = "", 0
    if match := _NAME_AT.match(text):
        name, end = match[0], match.end()
    labels: dict[str, str] = {}
    place = len(text) - len(text[end:].lstrip())
    if text.startswith("{", place):
        name, labels, end = parse_labels(text, name, place + 1)
    if not name:
        raise ParseError("", f"no metric's name: {shown(text)}")
    try:
        if len(name.encode()) > LABEL_VALUE_BYTES_MAX:
            raise ParseError("", f"a name of over {LABEL_VALUE_BYTES_MAX} bytes: {shown(text)}")
        for label, value in labels.items():
            check_label(label, value)
    except IdentityError as error:
        raise ParseError("", f"{error}: {shown(text)}") from error
    return Series(name, labels), end


def parse_labels(text: str, name: str, place: int) -> tuple[str, dict[str, str], int]:
    """The metric's name, the labels from ``place`` on, and where the text after their brace is."""
    labels: dict[str, str] = {}
    while not text.startswith("}", place):
        match = _LABEL_AT.match(text, place)
        if match is None or len(labels) >= LABELS_MAX:
            why = "labels that end nowhere" if match is None else f"over {LABELS_MAX} labels"
            raise ParseError("", f"{why}: {shown(text)}")
        label = match[1] or unescape(match[2] or "")
        if match[3] is None:
            if name or match[1]:
                raise ParseError("", f"label {label[:SHOWN_BYTES]!r} has no value: {shown(text)}")
            name = label
        elif label in labels:
            raise ParseError("", f"label {label[:SHOWN_BYTES]!r} comes twice: {shown(text)}")
        else:
            labels[label] = unescape(match[4])
        place = match.end()
        place += len(text[place:]) - len(text[place:].lstrip())
    return name, labels, place + 1


def unescape(text: str) -> str:
    r"""A label's value without its backslashes.

    >>> unescape(r"C:\\dir \"a\"")
    'C:\\dir "a"'
    """
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda match: _UNESCAPED.get(match[1], match[0]), text)


def parse_number(word: str, line: str) -> float:
    """A value; `NaN` and infinities are values."""
    try:
        return float(word.replace("_", "no"))  # Python would take 1_000
    except ValueError:
        raise ParseError("", f"{word[:SHOWN_BYTES]!r} is no number: {shown(line)}") from None


def parse_time(word: str, line: str) -> int:
    """A time in unix nanoseconds, given in seconds or milliseconds (SECONDS_MAX decides)."""
    number = parse_number(word, line)
    seconds = number if number < SECONDS_MAX else number / 1000
    if not 0 <= seconds < TIME_SECONDS_MAX:
        raise ParseError("", f"{word[:SHOWN_BYTES]!r} is no time: {shown(line)}")
    return round(seconds * 1e6) * 1000


def shown(text: str) -> str:
    return repr(text[:SHOWN_BYTES]) + ("…" if len(text) > SHOWN_BYTES else "")
