"""Whatever a switch answers, its poll ends and what comes of it can be stored."""

import asyncio
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.contract.catalog import load_catalog
from collector.contract.identity import check_labels
from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.switches.makers import Part, Switchbooks, load_shipped
from collector.switches.snmp.interfaces import Choice
from collector.switches.snmp.model import Flaw, Oid, Value, Walked
from collector.switches.snmp.plans import read_index
from collector.switches.snmp.switch import Pace, SwitchReader
from collector.switches.snmp.words import mac_of, network_address_of, text_of
from tests.tools.cut import CUT

SYSTEM: Oid = (1, 3, 6, 1, 2, 1, 1)
NAMES: tuple[Oid, ...] = (
    *((1, 3, 6, 1, 2, 1, 2, 2, 1, column) for column in (2, 3, 6)),
    *((1, 3, 6, 1, 2, 1, 31, 1, 1, 1, column) for column in (1, 18)),
    *((1, 0, 8802, 1, 1, 2, 1, 3, 7, 1, column) for column in (2, 3, 4)),
    *((1, 0, 8802, 1, 1, 2, 1, 4, 1, 1, column) for column in (4, 5, 6, 7, 8, 9)),
    *((1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1, column) for column in (2, 4, 7)),
    *((1, 3, 6, 1, 2, 1, 99, 1, 1, 1, column) for column in (1, 2, 3, 4, 5)),
    (1, 3, 6, 1, 2, 1, 47, 1, 3, 2, 1, 2),
)
PROFILES = ("standard", "arista", "cisco", "cumulus", "juniper", "sonic")

numbers = st.one_of(
    st.integers(0, 9),
    st.integers(-(2**31), 2**31),
    st.integers(0, 2**64 - 1),
    st.sampled_from([2**32 - 1, 2**64 - 1, 2**70, -1]),
)
texts = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"Ethernet0", b"Ethernet0 rx power", b"1", b"", b"\xff\x00", b"x" * 999]),
)
names = st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple)
answers: st.SearchStrategy[Value] = st.one_of(numbers, texts, names)
indexes = st.lists(st.integers(0, 8), min_size=1, max_size=4).map(tuple)


@cache
def books() -> Switchbooks:
    return Switchbooks(load_shipped())


@cache
def columns_of(profile: str) -> tuple[Oid, ...]:
    book = books().named(profile)
    assert book is not None
    sensors = tuple((*each.entry, column) for each in book.sensors for column in range(1, 6))
    return (*NAMES, *sensors, *(oid for walk in book.walks for oid in walk.columns))


class Random:
    """A switch that answers what hypothesis draws."""

    def __init__(self, data: st.DataObject, profile: str) -> None:
        self._data = data
        self._tables = data.draw(
            st.dictionaries(
                st.sampled_from(columns_of(profile)),
                st.dictionaries(indexes, answers, max_size=6),
                max_size=25,
            )
        )
        self._flaws = data.draw(st.lists(st.sampled_from(columns_of(profile)), max_size=3))

    async def get(self, oids: list[Oid]) -> list[Value | None]:
        drawn = st.lists(st.none() | answers, min_size=len(oids), max_size=len(oids))
        found: list[Value | None] = self._data.draw(drawn)
        return found

    async def walk(self, columns: list[Oid], rows_max: int) -> Walked:
        assert rows_max > 0
        flaws = [Flaw(oid, UnreadReason.TIMEOUT, "cut") for oid in self._flaws if oid in columns]
        return Walked({oid: dict(self._tables.get(oid, {})) for oid in columns}, flaws)

    def close(self) -> None:
        """Nothing is held."""


def check_readings(readings: list[Reading]) -> None:
    """No series twice; each in the catalog, with labels that it may have, and finite."""
    catalog, seen = load_catalog(), set()
    for each in readings:
        assert isinstance(each, Sample | Missing)
        series = each.series
        assert series not in seen, series
        seen.add(series)
        assert catalog.metric(series.metric), series
        assert {name for name, _ in series.labels} <= catalog.labels_of(series.metric), series
        check_labels(series.full_labels({"cluster": "c"}))
        assert all(value.isprintable() for _, value in series.labels)
        if isinstance(each, Sample):
            assert -1e7 < each.value < 2**80


@settings(max_examples=CUT.examples(40), deadline=None)
@given(st.data(), st.sampled_from(PROFILES))
def test_any_switch_is_polled_to_the_end(data: st.DataObject, profile: str) -> None:
    clock = iter(range(10**18, 2 * 10**18, 10**9))
    reader = SwitchReader(
        "leaf",
        "192.0.2.1",
        books=books(),
        profile=profile,
        choice=Choice(),
        pace=Pace(names=1, neighbours=1, sensors=1),
        now_ns=lambda: next(clock),
    )
    for _ in range(2):
        asyncio.run(reader.poll(Random(data, profile)))
        check_readings(list(reader.report(0.0)))
    reader.save()


@given(
    st.lists(
        st.builds(
            Part,
            name=st.sampled_from(["interface", "a", "b"]),
            label=st.sampled_from(["", "queue", "lane"]),
            add=st.integers(-2, 2),
            text=st.booleans(),
        ),
        max_size=4,
    ).map(tuple),
    st.lists(st.integers(0, 2**32), max_size=8).map(tuple),
)
def test_any_index_is_read_or_refused(parts: tuple[Part, ...], index: Oid) -> None:
    row = read_index(parts, index)
    assert row is None or all(value.isprintable() for value in row.labels.values())


@given(answers)
def test_any_value_becomes_a_label(value: Value) -> None:
    for text in (text_of(value), mac_of(value), network_address_of(value)):
        assert text.isprintable()
        assert len(text) <= 256
