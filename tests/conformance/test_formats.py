"""The questions that every format has to answer, asked of all of them.

Cases are folders `tests/fixtures/formats/<format>/<case>/`: `input*` is the file as the other
program wrote it, `expected.jsonl` what must come of it, `ORIGIN` where it comes from. A new format
or case is tested by existing; `make golden` writes expectations.
"""

import io
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from collector.contract.collective import Collective
from collector.contract.errors import ParseError
from collector.contract.model import Event, Sample
from collector.formats import HEAD_BYTES, Origin, Record, discover
from tests.conftest import Golden

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures/formats"
INPUTS = sorted(FIXTURES.glob("*/*/input*"))
FORMATS = discover()
CHANGED_NS = 1_800_000_000_000_000_000

each_input = pytest.mark.parametrize(
    "path", INPUTS, ids=lambda path: "-".join(path.relative_to(FIXTURES).parts)
)
each_format = pytest.mark.parametrize("name", FORMATS)


def origin_of(path: Path) -> Origin:
    """The name behind `input.` is the file's own: `input.node0-pid17.log`."""
    return Origin(path.name.removeprefix("input."), CHANGED_NS)


def parse(path: Path, content: bytes | None = None) -> list[Record | ParseError]:
    """Everything that comes of a file; an error that ends the stream is the last."""
    reader = FORMATS[path.parent.parent.name]
    stream = io.BytesIO(path.read_bytes() if content is None else content)
    found: list[Record | ParseError] = []
    try:
        found.extend(reader.parse(stream, origin_of(path)))
    except ParseError as error:
        found.append(error)
    return found


def plain(record: Record | ParseError) -> dict[str, object]:
    """A record as a person reads it in a golden file."""
    if isinstance(record, ParseError):
        return {"error": str(record)}
    if isinstance(record, Sample):
        return {"sample": repr(record.series), "value": record.value, "time_ns": record.time_ns}
    kind = type(record).__name__.lower()
    absent: tuple[object, ...] = (None, "", {})
    return {kind: {k: v for k, v in msgspec.to_builtins(record).items() if v not in absent}}


def lines(records: Iterable[Record | ParseError]) -> str:
    return "".join(msgspec.json.encode(plain(record)).decode() + "\n" for record in records)


@each_format
def test_every_format_has_a_case(name: str) -> None:
    assert [path for path in INPUTS if path.parent.parent.name == name]


@each_input
def test_every_case_says_where_it_comes_from(path: Path) -> None:
    assert "Models:" in (path.parent / "ORIGIN").read_text("utf-8")


@each_input
def test_the_records_are_exactly_what_is_expected(path: Path, golden: Golden) -> None:
    suffix = path.name.removeprefix("input")
    golden(path.parent / f"expected{suffix}.jsonl", lines(parse(path)))


@each_input
def test_exactly_its_own_format_recognises_a_file(path: Path) -> None:
    head = path.read_bytes()[:HEAD_BYTES]
    claims = [name for name, one in FORMATS.items() if one.recognises(head, origin_of(path))]
    assert claims == [path.parent.parent.name]


@each_input
def test_a_cut_file_gives_a_beginning_of_the_same(path: Path) -> None:
    """Of a file that is cut anywhere, no record is wrong: the whole file has each of them."""
    whole = path.read_bytes()
    known = Counter(lines([record]) for record in parse(path) if not isinstance(record, ParseError))
    for seed in range(20):
        cut = random.Random(f"{path.name} {seed}").randrange(len(whole))
        found = [each for each in parse(path, whole[:cut]) if not isinstance(each, ParseError)]
        # What summarises a stream (events, samples) may be less complete; operations never differ.
        some = Counter(lines([each]) for each in found if isinstance(each, Collective))
        assert some <= known, f"cut at byte {cut}"


@each_input
def test_records_keep_their_contract(path: Path) -> None:
    for record in parse(path):
        if isinstance(record, Collective):
            assert record.sequence >= 0
            assert record.rank >= 0
            assert record.communicator
            assert record.source == path.parent.parent.name
            assert record.time_ns > 0
            if record.entry_ns is not None and record.exit_ns is not None:
                assert record.entry_ns <= record.exit_ns
        elif isinstance(record, Event):
            assert record.kind.isidentifier()
