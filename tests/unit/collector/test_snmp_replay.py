"""A recording answers as a switch would, and gives what can be read of it."""

import asyncio

import pytest

from collector.contract.reason import UnreadReason
from collector.switches.snmp.model import Oid, Value, Walked
from collector.switches.snmp.replay import Recording
from tests.doubles.snmp_hostile import recorded, target

COLUMN: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1, 10)


def walk(text: str, *columns: Oid, rows_max: int = 100) -> Walked:
    return asyncio.run(Recording(text.encode("latin-1")).walk(list(columns), rows_max))


def get(text: str) -> Value | None:
    """The value of a line."""
    (value,) = asyncio.run(Recording(f"1.3.6.1|{text}\n".encode("latin-1")).get([(1, 3, 6, 1)]))
    return value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2|-5", -5),
        ("4|Ethernet1/1", b"Ethernet1/1"),
        ("4|a|b", b"a|b"),
        ("4|", b""),
        ("4x|00ff7C", b"\x00\xff|"),
        ("4e|one\\ntwo\\x41\\\\", b"one\ntwoA\\"),
        ("6|1.3.6.1.4.1.9", (1, 3, 6, 1, 4, 1, 9)),
        ("64|10.0.0.1", b"\x0a\x00\x00\x01"),
        ("64x|0a000001", b"\x0a\x00\x00\x01"),
        ("65|4294967295", 4294967295),
        ("66|7", 7),
        ("67|12345", 12345),
        ("68x|9f780442c80000", b"\x9f\x78\x04\x42\xc8\x00\x00"),
        ("70|18446744073709551615", (1 << 64) - 1),
        ("70x|00ff", 255),
        ("4|caf\xe9", b"caf\xe9"),
    ],
)
def test_a_value_is_read_by_its_type(text: str, expected: Value) -> None:
    assert get(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "5|",
        "65|-1",
        "65|4294967296",
        "70|many",
        "70|",
        "4x|0g",
        "6|here",
        "64|10.0.0.900",
        "99|1",
        "|1",
        "129|",
        "65:numeric|rate=1",
    ],
)
def test_a_value_that_is_none_is_absent(text: str) -> None:
    assert get(text) is None


def test_columns_are_walked_in_order_however_the_lines_stand() -> None:
    text = "".join(f"1.3.6.1.2.1.2.2.1.10.{index}|65|{index}\n" for index in (30, 4, 200, 1))
    walked = walk(f"# a comment\r\n\r\n.1.3.6.1.2.1.2.2.1.11.1|65|9\r\n{text}", COLUMN)
    assert list(walked.columns[COLUMN].items()) == [((i,), i) for i in (1, 4, 30, 200)]
    assert walked.flaws == []


def test_what_the_recording_does_not_have_is_empty_and_no_flaw() -> None:
    assert walk("1.3.6.1.2.1.2.2.1.100.1|65|9\n", COLUMN) == Walked({COLUMN: {}}, [])


def test_broken_rows_are_named_and_the_others_read() -> None:
    name = "1.3.6.1.2.1.2.2.1.10"
    text = f"{name}.1|65|1\n{name}.2|65|x\n{name}.3|65:numeric|1\n{name}.4|65|4\n{name}.4|65|5\n"
    walked = walk(text, COLUMN)
    assert walked.columns[COLUMN] == {(1,): 1, (4,): 4}
    assert [flaw.detail for flaw in walked.flaws] == [
        "a value that is none: b'x' of type '65' in row 2",
        "a row came twice: row 4",
    ]


def test_lines_that_are_none_are_reported_once() -> None:
    recording = Recording(b"203.0.113.0.1|65|1\nnonsense\n1.3.6.1|65\n\xff\n1.3.6.2|65|1\n")

    async def twice() -> list[Walked]:
        return [await recording.walk([(1, 3, 6)], 10) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert first.columns == second.columns == {(1, 3, 6): {(2,): 1}}
    assert [(flaw.column, flaw.reason) for flaw in first.flaws] == [((), UnreadReason.UNPARSEABLE)]
    assert "4 lines" in first.flaws[0].detail
    assert second.flaws == []


def test_a_column_longer_than_allowed_is_cut_and_named() -> None:
    text = "".join(f"1.3.6.1.2.1.2.2.1.10.{index}|65|{index}\n" for index in range(20))
    walked = walk(text, COLUMN, rows_max=5)
    assert len(walked.columns[COLUMN]) == 5
    assert "does not end" in walked.flaws[0].detail


def test_a_recording_answers_as_snmpsim_does() -> None:
    from collector.switches.snmp.client import open_session  # noqa: PLC0415 - the others need no pysnmp

    lines = [
        "1.3.6.1.2.1.1.5.0|4|leaf",
        "1.3.6.1.2.1.2.2.1.2.7|4x|457468",
        "1.3.6.1.4.1.9.1|6|1.3.6",
    ]
    lines += [f"1.3.6.1.2.1.2.2.1.10.{index}|65|{index}" for index in range(1, 90)]
    lines += [f"1.3.6.1.2.1.2.2.1.11.{index}.{9 - index}|70|{1 << 40}" for index in range(1, 9)]
    lines.sort(key=lambda line: tuple(map(int, line.partition("|")[0].split("."))))
    text = "\n".join(lines) + "\n"
    columns: list[Oid] = [(1, 3, 6, 1, 2, 1, 2, 2, 1, number) for number in (2, 10, 11, 12)]
    single = [(1, 3, 6, 1, 2, 1, 1, 5, 0), (1, 3, 6, 1, 4, 1, 9, 1), (1, 3, 6, 1, 4, 1, 9, 2)]

    async def both(port: int) -> None:
        recording, session = Recording(text.encode()), open_session(target(port))
        assert await session.walk(columns, 1000) == await recording.walk(columns, 1000)
        assert await session.get(single) == await recording.get(single)
        session.close()

    with recorded({"public": text}) as port:
        asyncio.run(both(port))
