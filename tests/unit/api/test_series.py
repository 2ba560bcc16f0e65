"""Which series the service knows, and when it must write them to the store."""

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given

from api.base.host_names import ANY_HOST, Hosts
from api.base.limits import TABLE_IDLE_SECONDS
from api.data.ingest import forgotten
from api.data.ingest import series as module
from api.data.ingest.columns import MS_PER_DAY
from api.data.ingest.series import (
    IDLE_SECONDS,
    TABLE_BYTES,
    TABLE_ROW_BYTES,
    THING_BYTES,
    Ahead,
    NativeTables,
    NewSeries,
    RemoteSeries,
    check_index,
    read_labels,
    read_table,
)
from api.data.inventory.sightings import Sighting
from collector.contract import wire
from collector.contract.errors import WireError
from collector.contract.identity import Labels, metric_id, series_id
from collector.contract.model import Sample, Series

UP: Labels = (("__name__", "up"), ("host", "h"))
DOWN: Labels = (("__name__", "down"),)
DAY = int(datetime(2026, 11, 15, tzinfo=UTC).timestamp()) // 86_400


def batch(*rows: tuple[str, dict[str, str]], agent: str = "a", **common: str) -> wire.Batch:
    empty = wire.pack_batch([], agent=agent, boot="b", sequence=0, sent_ms=0, common=common)
    return msgspec.structs.replace(empty, series=msgspec.Raw(msgspec.msgpack.encode(rows)))


def ints(*numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(numbers, dtype=np.int64)


def test_a_table_gets_ids_and_bad_rows_are_marked() -> None:
    sent = batch(("up", {}), ("", {}), ("up", {"": "x"}), ("down", {"host": ""}), host="h")
    table = read_table(sent)
    assert table.valid.tolist() == [True, False, False, True]
    labels = read_labels(sent, [0, 3])
    assert labels == {0: UP, 3: DOWN}, "an empty value removes a common label"
    assert int(table.series[0]) == series_id(UP)
    assert int(table.metric[0]) == metric_id("up")


def test_the_agent_s_ids_and_the_service_s_are_the_same() -> None:
    series = Series("up", {"z": "1", "a": "2"})
    packed = wire.pack_batch(
        [Sample(series, 1.0, 0)], agent="a", boot="b", sequence=0, sent_ms=0, common={"host": "h"}
    )
    assert int(read_table(packed).series[0]) == series.identify({"host": "h"})


def test_a_table_is_looked_at_once_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TABLE_BYTES_CACHED_MAX", 2 * (TABLE_BYTES + TABLE_ROW_BYTES))
    tables = NativeTables()
    first = tables.recognise(batch(("a", {})))
    second = tables.recognise(batch(("b", {})))
    assert tables.recognise(batch(("a", {}))) is first
    tables.recognise(batch(("c", {})))
    assert len(tables) == 2
    assert tables.recognise(batch(("a", {}))) is first, "the cache keeps a, used after b"
    assert tables.recognise(batch(("b", {}))) is not second


def test_common_labels_make_another_table() -> None:
    tables = NativeTables()
    one, other = (tables.recognise(batch(("a", {}), host=host)) for host in ("h", "i"))
    assert one.series[0] != other.series[0]


def test_a_native_table_is_written_once_a_day() -> None:
    tables = NativeTables()
    sent = batch(("up", {}), ("", {}), host="h")
    table = read_table(sent)
    assert tables.unwritten(sent, table, [DAY, DAY + 1]) == [
        NewSeries(DAY, series_id(UP), UP),
        NewSeries(DAY + 1, series_id(UP), UP),
    ]
    tables.written("a", table, [DAY])
    assert [new.day for new in tables.unwritten(sent, table, [DAY, DAY + 1])] == [DAY + 1]


def new_of(tables: NativeTables, agent: str, *rows: str, day: int = DAY) -> list[str]:
    """Write an agent's table with these rows; return the metrics that the store lacked."""
    sent = batch(*((row, {}) for row in rows), agent=agent)
    table = tables.recognise(sent)
    new = tables.unwritten(sent, table, [day])
    tables.written(agent, table, [day])
    return [dict(entry.labels)["__name__"] for entry in new]


def test_of_an_agent_s_other_tables_only_what_is_new_is_written() -> None:
    tables = NativeTables()
    assert new_of(tables, "a", "x", "y") == ["x", "y"]
    assert new_of(tables, "a", "x", "y", "z") == ["z"]
    assert new_of(tables, "a", "y", "z") == []
    assert new_of(tables, "a", "w", "x") == ["w"]
    assert new_of(tables, "b", "v", "w", "x") == ["v", "w", "x"], "known series are per agent"


def test_a_new_day_and_an_old_one_are_written_in_full() -> None:
    tables = NativeTables()
    new_of(tables, "a", "x", "y")
    assert new_of(tables, "a", "x", "y", "z", day=DAY + 1) == ["x", "y", "z"]
    assert new_of(tables, "a", "y", day=DAY) == ["y"], "the agent sends a backlog"
    assert new_of(tables, "a", "x", "z", day=DAY + 1) == [], "the backlog evicts no newer day"


def test_what_is_remembered_of_an_agent_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 3)
    tables = NativeTables()
    new_of(tables, "a", "u", "v")
    assert new_of(tables, "a", "v", "x") == ["x"]
    assert new_of(tables, "a", "u", "x") == []
    assert new_of(tables, "a", "w") == ["w"], "one series too many: the service forgets all others"
    assert new_of(tables, "a", "v") == ["v"]
    monkeypatch.setattr(module, "WRITTEN_SERIES_CACHED_MAX", 3)
    new_of(tables, "b", "x", "y", "z")
    assert new_of(tables, "a", "x", "z") == ["x", "z"], "the agent quiet longest is evicted"


def test_rows_beyond_the_table_are_a_wire_error() -> None:
    table = read_table(batch(("up", {})))
    check_index(np.array([], dtype=np.uint32), table)
    check_index(np.array([0, 0], dtype=np.uint32), table)
    with pytest.raises(WireError, match="row 1; the table has 1"):
        check_index(np.array([0, 1], dtype=np.uint32), table)


def add(known: RemoteSeries, key: bytes | None, labels: Labels) -> int:
    return known.add(key, labels, series_id(labels))


def test_remote_series_have_one_row_whatever_their_bytes() -> None:
    known = RemoteSeries()
    row = add(known, b"one way", UP)
    assert add(known, b"another way", UP) == row
    assert add(known, None, UP) == row
    assert add(known, b"down", DOWN) != row
    assert known.rows == {b"one way": row, b"another way": row, b"down": row + 1}
    assert (known.id_of(row), known.metric_name(row)) == (series_id(UP), "up")


def test_remote_series_grow_past_their_first_room() -> None:
    known = RemoteSeries()
    many = [(("__name__", "m"), ("n", str(n))) for n in range(3000)]
    rows = [add(known, str(n).encode(), labels) for n, labels in enumerate(many)]
    assert rows == list(range(3000))
    assert known.series(ints(0, 1023, 1024, 2999)).tolist() == [
        series_id(many[n]) for n in (0, 1023, 1024, 2999)
    ]
    assert len(known.unwritten(ints(*rows), ints(*[DAY] * 3000))) == 3000


def test_a_remote_series_is_written_until_the_store_has_it() -> None:
    known = RemoteSeries()
    row = add(known, b"k", UP)
    new = known.unwritten(ints(row, row, row), ints(DAY, DAY, DAY - 1))
    assert [entry.day for entry in new] == [DAY - 1, DAY]
    assert known.unwritten(ints(row), ints(DAY)), "the store has not confirmed the write"
    known.written(new)
    assert known.unwritten(ints(row), ints(DAY)) == []
    assert known.unwritten(ints(row), ints(DAY - 1)) == [], "successive days are remembered"
    assert [entry.day for entry in known.unwritten(ints(row), ints(DAY - 2))] == [DAY - 2]


@given(st.lists(st.integers(0, 12), max_size=40))
def test_no_day_of_a_remote_series_is_taken_for_written_that_was_not(days: list[int]) -> None:
    known, written = RemoteSeries(), set[int]()
    row = add(known, b"k", UP)
    for day in days:
        new = known.unwritten(ints(row), ints(day))
        assert new or day in written
        written |= {entry.day for entry in new}
        known.written(new)
        assert known.unwritten(ints(row), ints(day)) == [] or day < max(written) - 1


# --- before midnight ----------------------------------------------------------------------------


def ahead_at(hour: float, day: int = DAY) -> Ahead:
    return Ahead.at(int((day + hour / 24) * MS_PER_DAY))


def test_the_share_of_tomorrow_grows_in_the_last_hours() -> None:
    assert [ahead_at(hour).share for hour in (0, 12, 18)] == [0, 0, 0]
    assert [round(ahead_at(hour).share, 6) for hour in (19.5, 21, 24 - 1e-9)] == [0.25, 0.5, 1.0]
    assert {ahead_at(hour).today for hour in (0, 23.9)} == {DAY}


def play_evening(send: Callable[[Ahead, int], int], hours: Sequence[float]) -> list[int]:
    """How many rows are written in each of these steps, the last after midnight."""
    return [send(ahead_at(hour), DAY + int(hour // 24)) for hour in hours]


STEPS = [17.9, *np.arange(18.0, 24.0, 0.25).tolist(), 24.0, 24.5]


def test_remote_series_are_written_ahead_and_none_at_midnight() -> None:
    known, count = RemoteSeries(), 4_000
    many = [(("__name__", "m"), ("n", str(n))) for n in range(count)]
    rows = ints(*(add(known, str(n).encode(), labels) for n, labels in enumerate(many)))

    def send(ahead: Ahead, day: int) -> int:
        days = np.full(count, day)
        new = known.unwritten(rows, days) + known.unwritten_ahead(rows, days, ahead)
        assert {entry.day for entry in new} <= {DAY, DAY + 1}
        known.written(new)
        return len(new)

    first, *evening, midnight, later = play_evening(send, STEPS)
    assert first == count
    assert max(evening) < 3 * count / len(evening)
    assert midnight < count / 10, "those whose moment is in the last quarter of an hour"
    assert sum(evening) + midnight == count
    assert later == 0


def test_agents_tables_are_written_ahead_and_none_at_midnight() -> None:
    tables, agents = NativeTables(), [f"gpu{number:03}" for number in range(400)]

    def send(ahead: Ahead, day: int) -> int:
        wrote = 0
        for agent in agents:
            sent = batch(("x", {}), ("y", {}), agent=agent, host=agent)
            table, days = tables.recognise(sent), [day]
            days += ahead.days(agent, days)
            wrote += len(tables.unwritten(sent, table, days))
            tables.written(agent, table, days)
            # Another table of today, and its rows for tomorrow were written with the first.
            other = batch(("y", {}), agent=agent, host=agent)
            assert tables.unwritten(other, tables.recognise(other), days) == []
        return wrote

    first, *evening, midnight, later = play_evening(send, STEPS)
    assert first == 2 * len(agents)
    assert max(evening) < 3 * first / len(evening)
    assert midnight < first / 10
    assert sum(evening) + midnight == first
    assert later == 0


def test_samples_of_another_day_write_nothing_ahead() -> None:
    known = RemoteSeries()
    row = ints(add(known, b"k", UP))
    late = ahead_at(24 - 1e-9)
    for day in (DAY - 1, DAY + 1):
        assert late.days("a", [day]) == []
        assert known.unwritten_ahead(row, ints(day), late) == []
    assert late.days("a", [DAY - 1, DAY]) == [DAY + 1]


def test_what_was_written_for_a_forgotten_series_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REMOTE_SERIES_CACHED_MAX", 0)
    known = RemoteSeries()
    row = add(known, b"k", UP)
    new = known.unwritten(ints(row), ints(DAY))
    known.make_room()
    assert not known.rows
    again = add(known, b"k", UP)
    assert known.unwritten(ints(again), ints(DAY)) == new, "the store has not confirmed the write"
    known.written(new)
    known.make_room()
    again = add(known, b"k", UP)
    assert known.unwritten(ints(again), ints(DAY)) == []
    assert len(known.unwritten(ints(again), ints(DAY + 1))) == 1


# --- more series than are cached ----------------------------------------------------------------


class Sender:
    """Sends requests, as those that decode them do, and knows what the store must have."""

    def __init__(self, known: RemoteSeries) -> None:
        self.known = known
        self.stored: set[tuple[int, int]] = set()

    def send(
        self, numbers: Sequence[int], day: int = DAY, *, hour: float = 0.0, is_stored: bool = True
    ) -> list[int]:
        """Which of these series had to be parsed; each must be itself, and have its name."""
        self.known.make_room()
        parsed, rows = [], []
        for number in numbers:
            key, labels = str(number).encode(), (("__name__", "m"), ("n", str(number)))
            row = self.known.rows.get(key)
            if row is None:
                parsed.append(number)
                row = add(self.known, key, labels)
            rows.append(row)
            assert self.known.labels[row] == labels
            assert self.known.id_of(row) == series_id(labels)
        days = ints(*[day] * len(rows))
        new = self.known.unwritten(ints(*rows), days)
        new += self.known.unwritten_ahead(ints(*rows), days, ahead_at(hour, day))
        have = self.stored | {(entry.day, entry.series) for entry in new}
        assert {(day, self.known.id_of(row)) for row in rows} <= have
        if is_stored:
            self.stored = have
            self.known.written(new)
        self.new = len(new)
        return parsed


def test_of_more_series_than_are_cached_the_same_stay_and_none_is_new_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REMOTE_SERIES_CACHED_MAX", 100)
    sender, written = Sender(RemoteSeries()), list[int]()
    requests = [range(start, start + 10) for start in range(0, 150, 10)]
    for _ in range(2):
        for numbers in requests:
            sender.send(numbers)
    for numbers in requests:
        parsed = sender.send(numbers)
        assert sender.new == 0
        assert parsed == (list(numbers) if numbers.start >= 100 else [])
        assert all(sender.known.knows(sender.known.id_of(row)) for row in range(100))
    assert len(sender.known.labels) <= 110
    for hour, day in ((21.0, DAY), (21.0, DAY), (0.0, DAY + 1), (0.0, DAY + 1), (0.0, DAY)):
        news = 0
        for numbers in requests:
            sender.send(numbers, day, hour=hour)
            news += sender.new
        written.append(news)
    assert written[0] + written[2] == 150, "for tomorrow: some in the evening, the others then"
    assert written[0] > 20
    assert [written[1], *written[3:]] == [0, 0, 0]


def test_idle_series_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMOTE_SERIES_CACHED_MAX", 100)
    now_s = 0.0
    sender = Sender(RemoteSeries(ticks=lambda: now_s))
    for start in range(0, 100, 20):
        sender.send(range(start, start + 20))
    for _ in range(2):
        now_s += IDLE_SECONDS + 1
        sender.send(range(40))
        sender.send(range(200, 240))  # more than there is room for
        sender.send(range(40))
    assert sender.send(range(40)) == []
    assert sender.send(range(200, 240)) == list(range(200, 240)), "after the idle were looked for"
    assert sender.send(range(200, 240)) == []
    assert sender.new == 0
    sender.send(range(40, 60))
    assert sender.new == 0, "what was evicted is not new"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 3), st.booleans()))
)
def test_whatever_is_evicted_each_series_is_itself_and_gets_its_name(
    requests: list[tuple[int, int, int, bool]],
) -> None:
    now_s = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "REMOTE_SERIES_CACHED_MAX", 12)
        patch.setattr(forgotten, "RECENT_MAX", 3)
        patch.setattr(forgotten, "FORGOTTEN_SERIES_MAX", 8)
        sender = Sender(RemoteSeries(ticks=lambda: now_s))
        for start, count, day, is_stored in requests:
            sender.send(range(start, start + count), DAY + day, is_stored=is_stored)
            now_s += IDLE_SECONDS / 2


def test_series_that_had_samples_are_taken_once() -> None:
    known = RemoteSeries()
    row = add(known, b"k", UP)
    add(known, b"d", DOWN)
    known.unwritten(ints(row), ints(DAY))
    assert known.take_used() == [row]
    assert known.take_used() == []


def test_a_table_that_is_not_used_is_forgotten() -> None:
    now_s = 0.0
    tables = NativeTables(ticks=lambda: now_s)
    first = tables.recognise(batch(("a", {})))
    tables.recognise(batch(("b", {})))
    now_s = TABLE_IDLE_SECONDS
    assert tables.recognise(batch(("a", {}))) is first
    now_s += 1
    tables.recognise(batch(("c", {})))
    assert len(tables) == 2, "b was idle"
    assert tables.recognise(batch(("a", {}))) is first


def test_tables_are_bounded_by_their_bytes_not_by_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TABLE_BYTES_CACHED_MAX", 5 * TABLE_BYTES)
    tables = NativeTables()
    for name in "abcd":
        tables.recognise(batch((name, {})))
    assert len(tables) == 4
    many = 4 * TABLE_BYTES // TABLE_ROW_BYTES
    large = tables.recognise(batch(*((f"m{number}", {}) for number in range(many))))
    assert len(tables) == 1, "one table with as much as four"
    assert tables.bytes == large.counted_bytes == TABLE_BYTES + many * TABLE_ROW_BYTES


def test_what_a_table_shows_counts_while_it_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TABLE_BYTES_CACHED_MAX", 2 * TABLE_BYTES)
    tables = NativeTables()
    first = tables.recognise(batch(("a", {})))
    tables.show(first, (Sighting(host="h"),))
    assert tables.bytes == TABLE_BYTES + TABLE_ROW_BYTES + THING_BYTES
    tables.recognise(batch(("b", {})))
    assert len(tables) == 1
    assert tables.bytes == TABLE_BYTES + TABLE_ROW_BYTES
    tables.show(first, (Sighting(host="h"),))
    assert tables.bytes == TABLE_BYTES + TABLE_ROW_BYTES, "it is forgotten: it counts no more"


def held_bytes(make: Callable[[], object]) -> int:
    """What Python and numpy hold more after this than before; it was made once already."""
    make()
    gc.collect()
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    del made
    return held


def test_tables_of_an_agent_whose_sources_are_late_take_few_bytes() -> None:
    """Each batch lacks another row: the labels of all of them would be nine tenths of the memory.

    This was the growth of the demo's service: hardly two batches of a busy host are alike, and
    each table kept its labels, 300 bytes a row.
    """
    rows = [(f"fabric_port_counter_{number}_total", {"port": "1"}) for number in range(400)]
    batches = [batch(*rows[:late], *rows[late + 1 :], host="h") for late in range(100)]

    def recognise_all() -> NativeTables:
        tables = NativeTables()
        for sent in batches:
            tables.written(sent.agent, tables.recognise(sent), [DAY])
        return tables

    held = held_bytes(recognise_all)
    assert held <= 1.2 * 100 * (TABLE_BYTES + 399 * TABLE_ROW_BYTES), f"{held / 39_900:.0f} B a row"


def test_remote_series_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES_MAX", 10_000)
    known = RemoteSeries()
    for number in range(3):
        add(known, bytes([number]) * 10, (("__name__", "m"), ("n", str(number))))
    known.make_room()
    assert len(known.labels) == 3
    add(known, b"k" * 6_000, (("__name__", "m"), ("long", "x" * 6_000)))
    known.make_room()
    assert len(known.labels) == len(known.rows) == 3
    assert known.bytes < 10_000


def test_a_row_is_refused_for_a_reserved_name_or_a_foreign_host() -> None:
    known = RemoteSeries()
    labels: list[Labels] = [
        (("__name__", "m"), ("host", "own")),
        (("__name__", "m"), ("host", "other")),
        (("__name__", "fabric_incident"), ("host", "other")),
        (("__name__", "m"),),
    ]
    rows = ints(*(add(known, None, each) for each in labels))
    assert {rule: each.tolist() for rule, each in known.refused(rows, ANY_HOST).items()} == {
        "reserved_name": [False, False, True, False]
    }
    bound = known.refused(rows, Hosts.of(["own"]))
    assert bound["foreign_host"].tolist() == [False, True, False, False]
    assert known.refused(rows[:1], Hosts.of(["own"])) == {}
