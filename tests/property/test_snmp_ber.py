"""The reader of SNMP's answers agrees with pyasn1 on what is BER, and survives what is not."""

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyasn1.codec.ber import decoder, encoder
from pysnmp.proto.api import v2c

from collector.switches.snmp.ber import BerError, Odd, read_name, write_name
from collector.switches.snmp.columns import Column
from collector.switches.snmp.message import Answer, Community, bulk_request, get_request
from collector.switches.snmp.model import Credentials, Oid
from collector.switches.snmp.usm import Engine, User
from tests.doubles.snmp_hostile import Request, read_request

numbers = st.integers(0, (1 << 32) - 1)
names: st.SearchStrategy[Oid] = st.builds(
    lambda first, second, rest: (first, second, *rest),
    st.integers(0, 1),
    st.integers(0, 39),
    st.lists(numbers, max_size=30),
)
values: st.SearchStrategy[tuple[Any, Any]] = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1).map(lambda value: (v2c.Integer32(value), value)),
    numbers.map(lambda value: (v2c.Counter32(value), value)),
    numbers.map(lambda value: (v2c.Gauge32(value), value)),
    numbers.map(lambda value: (v2c.TimeTicks(value), value)),
    st.integers(0, (1 << 64) - 1).map(lambda value: (v2c.Counter64(value), value)),
    st.binary(max_size=300).map(lambda value: (v2c.OctetString(value), value)),
    st.binary(max_size=300).map(lambda value: (v2c.Opaque(value), value)),
    st.binary(min_size=4, max_size=4).map(lambda value: (v2c.IpAddress(value), value)),
    names.map(lambda value: (v2c.ObjectIdentifier(value), value)),
)


@given(st.lists(st.tuples(names, values), max_size=20), numbers)
def test_all_that_pyasn1_writes_is_read_as_it_was(
    rows: list[tuple[Oid, tuple[Any, Any]]], number: int
) -> None:
    number &= (1 << 31) - 1
    data = Request(number, (), None).answer((name, value) for name, (value, _) in rows)
    answer = Community("public").read(data, number)
    assert answer is not None
    found = [(read_name(name), value) for name, value in answer.bindings]
    assert found == [(name, plain) for name, (_, plain) in rows]


@given(names)
def test_a_name_is_written_as_pyasn1_writes_it(name: Oid) -> None:
    encoded = bytes(encoder.encode(v2c.ObjectIdentifier(name)))
    assert write_name(name) == encoded[len(encoded) - len(write_name(name)) :]
    assert read_name(write_name(name)) == name


@given(st.lists(names, min_size=1, max_size=10), st.integers(1, 100))
def test_pysnmp_reads_what_is_asked(asked: list[Oid], repetitions: int) -> None:
    bulk = read_request(Community("public").write(bulk_request(7, asked, repetitions), 7))
    assert bulk == Request(7, tuple(asked), repetitions)
    single = read_request(Community("public").write(get_request(8, asked), 8))
    assert single == Request(8, tuple(asked), None)


def read_any(data: bytes, number: int) -> Answer | None:
    """An answer, or None for whatever else the bytes are."""
    try:
        return Community("public").read(data, number)
    except BerError:
        return None


@given(
    st.lists(st.tuples(names, values), max_size=5),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    st.integers(0, 400),
)
def test_broken_answers_are_refused_or_read_and_nothing_else(
    rows: list[tuple[Oid, tuple[Any, Any]]], changes: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(Request(5, (), None).answer((name, value) for name, (value, _) in rows))
    for place, byte in changes:
        data[place % len(data)] = byte
    answer = read_any(bytes(data[:length]) if length % 3 == 0 else bytes(data), 5)
    column = Column((1, 3), rows_max=3)
    if answer is not None:
        column.take(answer.bindings)
        assert all(not isinstance(value, Odd) for value in column.rows.values())
        assert len(column.rows) <= 3


@given(st.binary(max_size=200))
def test_random_bytes_are_no_answer_of_either_version(data: bytes) -> None:
    answer = read_any(data, 5)
    assert answer is None or answer.request_id == 5
    user = User(Credentials(version="3", user="walker"))
    user.meet(Engine(b"engine", 1, 1, 0.0))
    for read in (user.read, user.read_discovery):
        with suppress(BerError):
            assert read(data, 5) is None


@given(st.lists(st.tuples(st.lists(numbers, max_size=3), st.booleans()), max_size=40))
def test_a_column_ends_whatever_it_is_fed(rows: list[tuple[list[int], bool]]) -> None:
    """Every answer brings a row that was not there, or is the last: no walk goes on for ever."""
    column = Column((1, 3, 6), rows_max=10)
    for index, is_odd in rows:
        if not column.is_open:
            break
        before = len(column.rows), len(column.flaws())
        name = write_name((1, 3, 6, *index))
        column.take([(name, Odd("null") if is_odd else 1)])
        is_new = len(column.rows) > before[0]
        assert is_new or is_odd or not column.is_open
    assert len(column.rows) <= 10


def test_pyasn1_finds_its_own_message_in_ours() -> None:
    """The whole of SNMPv3's envelope, by pysnmp's own description of it."""
    from pysnmp.proto.mpmod.rfc3412 import SNMPv3Message  # noqa: PLC0415 - only here

    user = User(Credentials(version="3", user="walker"))
    user.meet(Engine(b"engine", 3, 4, 0.0))
    message, rest = decoder.decode(user.write(get_request(9, [(1, 3, 6)]), 9), SNMPv3Message())
    assert not rest
    assert int(message[1][0]) == 9
