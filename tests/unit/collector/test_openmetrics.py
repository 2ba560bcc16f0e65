"""Prometheus and OpenMetrics text: times, the short way through a line, bounds, recognition."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.agent.exposition import escape_label
from collector.contract.errors import ParseError
from collector.contract.identity import LABELS_MAX
from collector.contract.model import Sample, Series
from collector.formats import Origin, openmetrics
from collector.formats.openmetrics import FORMAT, parse_line, parse_lines

CHANGED_NS = 1_800_000_000_000_000_000
ORIGIN = Origin("some.metrics", CHANGED_NS)


def parse(text: bytes) -> list[Sample | ParseError]:
    return list(parse_lines(1, text, CHANGED_NS, {}))


@pytest.mark.parametrize(
    ("word", "time_ns"),
    [
        (b"1794700730.323", 1_794_700_730_323_000_000),  # OpenMetrics: seconds
        (b"1794700730", 1_794_700_730_000_000_000),
        (b"1.794700730323456e9", 1_794_700_730_323_456_000),
        (b"1794700730323", 1_794_700_730_323_000_000),  # 0.0.4: milliseconds
        (b"0", 0),
    ],
)
def test_the_size_of_a_time_decides_its_unit(word: bytes, time_ns: int) -> None:
    first, known = parse(b'up{a="b"} 1 %b\nup{a="b"} 1 %b\n' % (word, word))
    assert isinstance(first, Sample)
    assert first.time_ns == time_ns
    assert known == first


LABEL_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
# Lines end at a newline, which has an escape; other line ends are part of a value.
LABELS = st.dictionaries(LABEL_NAMES, st.text(max_size=8).filter(lambda text: text == text.strip()))
NUMBERS = st.floats(allow_nan=False) | st.integers(-(2**63), 2**63)


@given(
    name=st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True),
    labels=LABELS,
    value=NUMBERS,
    time=st.none() | st.integers(0, 2**32 - 1),
    exemplar=st.sampled_from(["", ' # {trace="x} 1"} 0.5', " # {} 2 3"]),
)
def test_a_known_text_is_read_as_an_unknown_one(
    name: str, labels: dict[str, str], value: float, time: int | None, exemplar: str
) -> None:
    braces = ",".join(f'{key}="{escape_label(text)}"' for key, text in labels.items())
    line = f"{name}{{{braces}}} {value!r}" + ("" if time is None else f" {time}") + exemplar
    first, known = parse(f"{line}\n{line}\n".encode())
    assert isinstance(first, Sample), first
    assert known == first
    assert first.series == Series(name, labels)
    assert first.value == float(value)
    assert first.time_ns == (CHANGED_NS if time is None else time * 1_000_000_000)


@pytest.mark.parametrize("broken", [b'up{a="b" 1', b"up } 1", b'up{a="b"}1_0', b"up 1_0", b"up{ 1"])
def test_a_broken_line_is_not_taken_for_a_known_one(broken: bytes) -> None:
    *_, last = parse(b'up{a="b"} 1\nup 1\n' + broken)
    assert isinstance(last, ParseError)
    assert last.where == "line 3"


def test_series_are_built_once() -> None:
    first, second = parse(b'up{a="b"} 1\nup{a="b"} 2\n')
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert first.series is second.series


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmetrics, "KEPT_SERIES_MAX", 100)
    kept: dict[bytes, Series] = {}
    text = b"".join(b'x{i="%d"} 1\n' % number for number in range(110))
    assert sum(1 for _ in parse_lines(1, text, 0, kept)) == 110
    assert len(kept) == 10


@pytest.mark.parametrize(
    "line",
    [
        b'x{a="' + b"y" * 3000 + b'"} 1',
        b"x{" + b",".join(b'a%d="1"' % number for number in range(LABELS_MAX + 1)) + b"} 1",
        b"x" * 3000 + b" 1",
        b'x{a="' + b'\\"' * 200_000 + b'"} 1',
        b"x " + b"9" * 300_000,
        b"x{" + b" " * 200_000 + b"} y",
    ],
    ids=["value", "labels", "name", "escapes", "digits", "blanks"],
)
def test_a_line_over_a_bound_is_refused_and_the_rest_is_used(line: bytes) -> None:
    refused, good = parse(line + b"\nup 1\n")
    assert isinstance(refused, ParseError)
    assert len(refused.detail) < 400
    assert isinstance(good, Sample)


def test_a_line_that_never_ends_is_named_and_passed_over() -> None:
    found = list(FORMAT.parse(io.BytesIO(b"x" * (6 << 20) + b"\nup 1\n"), ORIGIN))
    assert isinstance(found[0], ParseError)
    assert isinstance(found[1], Sample)


def test_a_name_may_be_any_text_in_quotes() -> None:
    sample = parse_line('{"größe.in.m","a b"="c"} 1'.encode(), 0, {})
    assert sample.series == Series("größe.in.m", {"a b": "c"})


@pytest.mark.parametrize(
    "head",
    [
        b'node_load1{instance="a"} 1\n',
        b"# TYPE up gauge\nup 1\n",
        b"# HELP up It is up.\nup 1\nx",
        b'\n\nx{a="b"} NaN 1794700730.5 # {} 1\n',
    ],
)
def test_its_own_text_is_recognised(head: bytes) -> None:
    assert FORMAT.recognises(head, ORIGIN)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"up 1\n",  # could be any table
        b"node0:17:17 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n" * 3,
        b'{"header": {"id": "0x1"}, "coll_perf": {"coll": "AllReduce"}}\n',
        b"# nThread 1 nGpus 1 minBytes 8\n#       size         count\n 1024 256 float sum -1 9.5\n",
        b"step 12 loss 3.4 {lr: 0.1} 5\n" * 3,
        b"# TYPE up gauge\n" + b"2026-11-15 ERROR it broke\n" * 5,
        b"\x80\x04\x95\x00{}\n",
    ],
)
def test_other_files_are_not(head: bytes) -> None:
    assert not FORMAT.recognises(head, ORIGIN)
