"""The SNMP client: values, columns, and how much it asks for, against a switch of our own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from pysnmp.proto.api import v2c

from collector.contract.reason import UnreadReason
from collector.switches.snmp import client
from collector.switches.snmp.ber import BerError, Odd, read_bindings, read_value, write_name
from collector.switches.snmp.client import Session, open_session
from collector.switches.snmp.columns import Column
from collector.switches.snmp.model import Oid, Walked
from tests.doubles.snmp_hostile import Behaviour, Request, Row, Switch, Table, serve, target

NAMES: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1)
OCTETS: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6)
SPEED: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 15)
ABSENT: Oid = (1, 3, 6, 1, 4, 1, 9, 9, 813)

Result = TypeVar("Result")


def ports(count: int) -> list[Row]:
    """Three columns of a table; the second has no row for port 2."""
    rows: list[Row] = [((1, 3, 6, 1, 2, 1, 1, 5, 0), v2c.OctetString("leaf-0"))]
    for index in range(1, count + 1):
        rows.append(((*NAMES, index), v2c.OctetString(f"Ethernet{index}")))
        if index != 2:
            rows.append(((*OCTETS, index), v2c.Counter64((1 << 63) + index)))
        rows.append(((*SPEED, index), v2c.Gauge32(400_000)))
    return rows


def with_switch(
    behaviour: Behaviour,
    work: Callable[[Session], Awaitable[Result]],
    **settings: Any,  # noqa: ANN401
) -> Result:
    """What the work brings on a session with a switch of this behaviour."""

    async def run() -> Result:
        async with serve(Switch(behaviour)) as port:
            session = open_session(target(port, **settings))
            try:
                return await work(session)
            finally:
                session.close()

    return asyncio.run(run())


def walk(behaviour: Behaviour, *columns: Oid, rows_max: int = 1000) -> Walked:
    return with_switch(behaviour, lambda session: session.walk(list(columns), rows_max))


# Values -----------------------------------------------------------------------------------------


def test_single_objects_come_in_the_order_they_were_asked_for() -> None:
    asked = [(*SPEED, 1), (1, 3, 6, 1, 2, 1, 1, 5, 0), (*OCTETS, 2), (*OCTETS, 1)]
    found = with_switch(Table(ports(2)), lambda session: session.get(asked))
    assert found == [400_000, b"leaf-0", None, (1 << 63) + 1]


def test_many_single_objects_take_several_questions() -> None:
    table = Table(ports(40))
    asked = [(*NAMES, index) for index in range(1, 41)]
    found = with_switch(table, lambda session: session.get(asked))
    assert found == [f"Ethernet{index}".encode() for index in range(1, 41)]
    assert len(table.requests) == 2


@pytest.mark.parametrize(
    ("tag", "content", "expected"),
    [
        (0x02, b"\xff", -1),
        (0x02, b"\x7f\xff\xff\xff", (1 << 31) - 1),
        (0x41, b"\x00\xff\xff\xff\xff", (1 << 32) - 1),
        (0x41, b"\xff\xff\xff\xff", (1 << 32) - 1),
        (0x46, b"\xff" * 8, (1 << 64) - 1),
        (0x04, b"", b""),
        (0x40, b"\x7f\x00\x00\x01", b"\x7f\x00\x00\x01"),
        (0x06, b"\x2b\x06\x01", (1, 3, 6, 1)),
    ],
)
def test_a_value_is_read(tag: int, content: bytes, expected: object) -> None:
    """Agents that forget the zero byte before a great unsigned number are understood."""
    assert read_value(tag, content) == expected


@pytest.mark.parametrize(
    ("tag", "content", "what"),
    [
        (0x41, b"\xff", "negative number -1"),
        (0x41, b"\x01\x00\x00\x00\x00", "at most"),
        (0x46, b"\x00" * 10, "10 bytes"),
        (0x02, b"", "0 bytes"),
        (0x02, b"\x01" * 40, "40 bytes"),
        (0x05, b"", "null"),
        (0x06, b"\x2b\x80\x01", "leading zeros"),
        (0x06, b"\x2b\xff\xff\xff\xff\xff\xff\x7f", "without end"),
        (0x06, b"\x2b\x86", "ends inside"),
        (0x06, b"\x01" * 129, "129 numbers"),
        (0x30, b"", "unknown type 0x30"),
    ],
)
def test_a_value_that_is_none_has_a_reason(tag: int, content: bytes, what: str) -> None:
    found = read_value(tag, content)
    assert isinstance(found, Odd)
    assert what in found.detail


def test_long_lengths_are_read_where_short_ones_would_do() -> None:
    """Agents write a length of fixed width first, and fill it in later."""
    name = b"\x06\x81\x02\x2b\x06"
    pair = name + b"\x04\x82\x00\x01A"
    data = b"\x30\x83\x00\x00" + bytes([len(pair)]) + pair
    assert read_bindings(data, 0, len(data)) == [(b"\x2b\x06", b"A")]


@pytest.mark.parametrize(
    "data",
    [
        "3006 06012b 0400 00",  # the list is longer than its pair
        "3007 06012b 0400 0500",  # something behind the value
        "3005 06012b 0401 41",  # a value that reaches beyond its pair
        "3005 06092b 0400",  # a name that does
        "3005 04012b 0400",  # no name
        "3105 06012b 0400",  # no pair
        "3080 06012b 0400 0000",  # a length that is to be found out
        "3089 000000000000000005 06012b 0400",  # a length of nine bytes
        "30",
    ],
)
def test_pairs_that_do_not_hold_together_are_none(data: str) -> None:
    raw = bytes.fromhex(data)
    assert read_bindings(bytes.fromhex("3005 06012b 0400"), 0, 7) == [(b"\x2b", b"")]
    with pytest.raises(BerError):
        read_bindings(raw, 0, len(raw))


# Columns ----------------------------------------------------------------------------------------


def test_columns_of_a_table_are_walked_side_by_side() -> None:
    table = Table(ports(5))
    walked = walk(table, NAMES, OCTETS, SPEED, ABSENT)
    assert walked.flaws == []
    assert walked.columns[NAMES] == {(index,): f"Ethernet{index}".encode() for index in range(1, 6)}
    assert walked.columns[OCTETS] == {(i,): (1 << 63) + i for i in (1, 3, 4, 5)}
    assert walked.columns[ABSENT] == {}
    assert len(table.requests) == 1


def test_an_agent_that_answers_with_less_is_asked_on() -> None:
    """One value an answer, so that most columns of a question get none."""
    table = Table(ports(4), values_max=1)
    walked = walk(table, NAMES, SPEED)
    assert [len(rows) for rows in walked.columns.values()] == [4, 4]
    assert walked.flaws == []


def test_rows_keep_the_order_of_the_table() -> None:
    rows = [((*NAMES, 9, index), v2c.Integer32(index)) for index in (3, 200, 70_000)]
    assert list(walk(Table(rows), NAMES).columns[NAMES]) == [(9, 3), (9, 200), (9, 70_000)]


def test_a_second_walk_asks_for_no_more_than_there_was() -> None:
    table = Table(ports(10))

    async def twice(session: Session) -> Walked:
        await session.walk([NAMES, ABSENT], 1000)
        table.requests.clear()
        return await session.walk([NAMES, ABSENT], 1000)

    walked = with_switch(table, twice)
    assert len(walked.columns[NAMES]) == 10
    assert [request.repetitions for request in table.requests] == [11]


def test_a_table_that_has_grown_is_walked_to_its_end() -> None:
    table = Table(ports(3))

    async def grow(session: Session) -> Walked:
        await session.walk([NAMES], 1000)
        table.rows = ports(30)
        return await session.walk([NAMES], 1000)

    assert len(with_switch(table, grow).columns[NAMES]) == 30


def test_many_columns_are_asked_for_in_groups() -> None:
    columns = [(1, 3, 6, 1, 2, 1, 2, 2, 1, number) for number in range(1, 21)]
    table = Table([((*column, 7), v2c.Integer32(column[-1])) for column in columns])
    walked = walk(table, *columns)
    assert walked.columns == {column: {(7,): column[-1]} for column in columns}
    assert max(len(request.names) for request in table.requests) == client.COLUMNS_PER_REQUEST


def test_a_column_longer_than_allowed_is_cut_and_named() -> None:
    walked = walk(Table(ports(50)), NAMES, OCTETS, rows_max=20)
    assert [len(rows) for rows in walked.columns.values()] == [20, 20]
    assert [(flaw.column, flaw.reason) for flaw in walked.flaws] == [
        (NAMES, UnreadReason.UNPARSEABLE),
        (OCTETS, UnreadReason.UNPARSEABLE),
    ]
    assert "does not end" in walked.flaws[0].detail


def test_exactly_as_many_rows_as_allowed_are_no_flaw() -> None:
    walked = walk(Table(ports(20)), NAMES, SPEED, rows_max=20)
    assert [len(rows) for rows in walked.columns.values()] == [20, 20]
    assert walked.flaws == []


def test_of_two_rows_with_one_index_the_first_counts() -> None:
    column = Column(NAMES, rows_max=10)
    name = write_name((*NAMES, 4))
    column.take([(name, 1), (name, 2), (write_name((*NAMES, 5)), 3)])
    assert column.rows == {(4,): 1, (5,): 3}
    assert [flaw.detail for flaw in column.flaws()] == ["a row came twice: row 4"]


def test_rows_out_of_order_are_taken_and_named_once() -> None:
    column = Column(NAMES, rows_max=10)
    column.take([(write_name((*NAMES, index)), index) for index in (1, 5, 3, 2, 7)])
    assert column.rows == {(index,): index for index in (1, 5, 3, 2, 7)}
    assert [flaw.detail for flaw in column.flaws()] == [
        "rows out of order: row 3 after 5 and 1 more"
    ]
    assert column.is_open


# How much is asked for ----------------------------------------------------------------------------


def too_big_above(table: Table, values: int) -> Behaviour:
    """An agent whose buffer holds so many values."""

    def answer(request: Request) -> list[bytes]:
        if len(request.names) * (request.repetitions or 1) > values:
            table.requests.append(request)
            return [request.answer([], status=1)]
        return table(request)

    return answer


def test_too_big_an_answer_is_asked_for_in_parts() -> None:
    table = Table(ports(30))
    walked = walk(too_big_above(table, 10), NAMES, SPEED)
    assert [len(rows) for rows in walked.columns.values()] == [30, 30]
    assert walked.flaws == []
    refused = [r for r in table.requests if len(r.names) * (r.repetitions or 1) > 10]
    assert len(refused) <= 4


def test_an_agent_with_room_for_one_value_is_still_walked() -> None:
    walked = walk(too_big_above(Table(ports(3)), 1), NAMES, SPEED)
    assert [len(rows) for rows in walked.columns.values()] == [3, 3]


def test_single_objects_too_many_for_an_answer_are_asked_for_in_parts() -> None:
    asked = [(*NAMES, index) for index in range(1, 21)]
    behaviour = too_big_above(Table(ports(20)), 3)
    found = with_switch(behaviour, lambda session: session.get(asked))
    assert found == [f"Ethernet{index}".encode() for index in range(1, 21)]


def test_a_lost_answer_is_asked_for_again_and_smaller() -> None:
    """Fragments are what networks lose first."""
    table = Table(ports(30))

    def lossy(request: Request) -> list[bytes]:
        answers = table(request)
        return answers if len(answers[0]) < 400 else []

    walked = with_switch(
        lossy, lambda session: session.walk([NAMES], 1000), answer_seconds=1.0, retries=2
    )
    assert len(walked.columns[NAMES]) == 30
    assert table.requests[1].repetitions == (table.requests[0].repetitions or 0) // 4
    assert len({request.number for request in table.requests[:2]}) == 1
    assert sum((request.repetitions or 0) > 10 for request in table.requests) == 1


def test_a_question_that_was_abandoned_leaves_the_session_usable() -> None:
    table = Table(ports(3))
    asked = asyncio.Event()
    silent = True

    def answer(request: Request) -> list[bytes]:
        asked.set()
        return [] if silent else table(request)

    async def abandon(session: Session) -> Walked:
        nonlocal silent
        first = asyncio.create_task(session.walk([NAMES], 10))
        await asked.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        silent = False
        return await session.walk([NAMES], 10)

    assert len(with_switch(answer, abandon).columns[NAMES]) == 3


class Slow(Switch):
    """Answers after its event loop has done everything else, and sees what comes meanwhile."""

    outstanding = 0
    most = 0

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self.outstanding += 1
        self.most = max(self.most, self.outstanding)
        asyncio.get_running_loop().call_later(0.01, self.send, data, addr)

    def send(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self.outstanding -= 1
        super().datagram_received(data, addr)


def test_questions_of_one_session_wait_for_each_other() -> None:
    switch = Slow(Table(ports(5), values_max=2))

    async def both() -> list[Walked]:
        async with serve(switch) as port:
            session = open_session(target(port))
            walks = (session.walk([column], 10) for column in (NAMES, SPEED))
            walked = await asyncio.gather(*walks)
            session.close()
            return walked

    names, speeds = asyncio.run(both())
    assert (len(names.columns[NAMES]), len(speeds.columns[SPEED])) == (5, 5)
    assert switch.most == 1


def test_switches_have_addresses_of_version_6_too() -> None:
    async def run() -> list[Any]:
        async with serve(Switch(Table(ports(1))), "::1") as port:
            session = open_session(target(port, address="::1"))
            found = await session.get([(*SPEED, 1)])
            session.close()
            return found

    assert asyncio.run(run()) == [400_000]
