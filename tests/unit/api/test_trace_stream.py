"""A trace is written in pieces, ends by its bounds, and opens whatever ended it."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from api.diagnose.cli import write_pieces
from api.jobs.trace import stream
from api.jobs.trace.event import Event
from api.jobs.trace.stream import Account, packed, pieces
from collector.contract.errors import StoreError


class Counting:
    """Events that count how many were taken; each can be found again in the document."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0

    def __iter__(self) -> Iterator[Event]:
        for number in range(self.count):
            self.taken += 1
            yield {"ph": "i", "name": f"event {number}"}


def write(events: int) -> tuple[bytes, Account]:
    account = Account()
    return b"".join(pieces(Counting(events), account, lambda: {"writer": "test"})), account


def test_no_more_events_are_held_than_a_piece_has() -> None:
    source, account = Counting(5 * stream.PIECE_EVENTS_MAX + 7), Account()
    written = 0
    for piece in pieces(source, account, dict):
        written += piece.count(b'"name"')
        assert piece.count(b'"name"') <= stream.PIECE_EVENTS_MAX
        assert source.taken - written == 0, "what was taken has been handed on"
    assert written == source.count == account.events


@pytest.mark.parametrize("events", [0, 1, stream.PIECE_EVENTS_MAX, stream.PIECE_EVENTS_MAX + 1])
def test_a_document_of_any_length_is_json(events: int) -> None:
    text, _ = write(events)
    document = json.loads(text)
    assert len(document["traceEvents"]) == events
    assert document["fabricscope"] == {
        "writer": "test",
        "events": events,
        "is_complete": True,
        "ended_by": None,
        "ended_at_us": None,
        "left_out": {},
    }


@pytest.mark.parametrize(
    ("rule", "bound", "kept"), [("TRACE_EVENTS_MAX", 3, 3), ("TRACE_BYTES_MAX", 100, 3)]
)
def test_a_bound_ends_a_trace_that_still_opens_and_says_so(
    rule: str, bound: int, kept: int
) -> None:
    with patch.object(stream, rule, bound):
        document = json.loads(write(10)[0])
    assert len(document["traceEvents"]) == kept
    assert document["fabricscope"]["ended_by"] == rule
    assert document["fabricscope"]["is_complete"] is False


def test_what_is_left_out_is_counted_by_its_rule() -> None:
    account = Account()
    account.leave_out("LANES_MAX")
    account.leave_out("LANES_MAX", 2)
    account.leave_out("TRACKS_MAX", 0)
    document = json.loads(b'{"traceEvents":[' + account.tail({}))
    assert document["fabricscope"]["left_out"] == {"LANES_MAX": 3}


def test_packed_is_the_same_and_flows_on() -> None:
    text, _ = write(20_000)
    chunks = list(packed(text[start : start + 50_000] for start in range(0, len(text), 50_000)))
    assert len(chunks) > 2, "it does not wait for the end"
    assert gzip.decompress(b"".join(chunks)) == text


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_file_is_packed_if_its_name_says_so(tmp_path: Path, name: str) -> None:
    some: list[str | bytes] = [b"one ", "two"]
    write_pieces(tmp_path / name, some)
    written = (tmp_path / name).read_bytes()
    assert (gzip.decompress(written) if name.endswith(".gz") else written) == b"one two"


def moments(count: int, broken_at: int | None = None) -> Iterator[Event]:
    """Events a millisecond apart; the store breaks before one of them."""
    for number in range(count):
        if number == broken_at:
            raise StoreError("Code: 210. no connection to /var/lib/somewhere")
        yield {"ph": "i", "name": f"event {number}", "ts": 1000.0 * number}


def test_a_trace_that_takes_too_long_ends_whole_and_says_where() -> None:
    ticks = iter(range(1000))
    account = Account()
    text = b"".join(
        pieces(moments(50), account, dict, seconds_max=20, clock=lambda: float(next(ticks)))
    )
    document = json.loads(text)
    assert len(document["traceEvents"]) == 20
    summary = document["fabricscope"]
    assert (summary["is_complete"], summary["ended_by"]) == (False, "TRACE_MAKE_SECONDS_MAX")
    assert summary["ended_at_us"] == 19_000.0


def test_a_trace_that_the_store_does_not_finish_still_opens() -> None:
    account = Account()
    text = b"".join(packed(pieces(moments(50, broken_at=7), account, dict)))
    document = json.loads(gzip.decompress(text))
    assert len(document["traceEvents"]) == 7
    summary = document["fabricscope"]
    assert not summary["is_complete"]
    assert "did not give the rest" in summary["ended_by"]
    assert summary["ended_at_us"] == 6_000.0
    assert b"/var/lib" not in gzip.decompress(text), "the engine's text goes to the log"
