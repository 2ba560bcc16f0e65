"""Between ingest and inventory: bounded, deduplicating, patient with a database that is away."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from api.data.inventory import feed as feed_module
from api.data.inventory.batches import SEQUENCE_MAX, BatchRun
from api.data.inventory.engine import InventoryRefusedError
from api.data.inventory.feed import PART_TOUCH, TOUCH_SECONDS, InventoryFeed
from api.data.inventory.sightings import LinkEnd, Observation, Sighting
from collector.contract.catalog import Catalog, parse_catalog_file
from collector.contract.errors import InventoryError
from collector.contract.identity import Labels, canonical_labels

NIC = """
[target]
name = "nic"
help = "A network interface."
labels = ["host", "device"]

[[metrics]]
name = "fabric_nic_receive_bytes_total"
kind = "counter"
unit = "bytes"
help = "Bytes."
since = "0.1.0"

[[metrics]]
name = "fabric_nic_transmit_bytes_total"
kind = "counter"
unit = "bytes"
help = "Bytes."
since = "0.1.0"
"""
CATALOG = Catalog([parse_catalog_file(NIC, "test")])
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class FakeKeeper:
    """Keeps what it is given; can be away, and can refuse one host."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.runs: list[BatchRun] = []
        self.away = False
        self.refused_host = ""

    def observe(self, observations: Iterable[Observation], /) -> None:
        given = list(observations)
        if self.away:
            raise InventoryError("the database is away")
        if any(item.sighting.host == self.refused_host for item in given):
            raise InventoryRefusedError("the database does not like this host")
        self.observations += given

    def note_batches(self, runs: Iterable[BatchRun], /) -> None:
        if self.away:
            raise InventoryError("the database is away")
        self.runs += runs

    @property
    def hosts(self) -> list[str]:
        return sorted(item.sighting.host for item in self.observations)


def sighted(feed: InventoryFeed, labels: Labels) -> None:
    """What ingest does with the series of a table."""
    feed.seen(feed.things([labels]))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keeper() -> FakeKeeper:
    return FakeKeeper()


@pytest.fixture
def feed(keeper: FakeKeeper, clock: Clock) -> InventoryFeed:
    return InventoryFeed(keeper, CATALOG, clock)


def nic(host: str, metric: str = "fabric_nic_receive_bytes_total") -> Labels:
    return canonical_labels({"__name__": metric, "host": host, "device": "eth0"})


def test_many_series_of_one_thing_are_one_sighting(feed: InventoryFeed, keeper: FakeKeeper) -> None:
    sighted(feed, nic("h1"))
    sighted(feed, nic("h1", "fabric_nic_transmit_bytes_total"))
    sighted(feed, canonical_labels({"__name__": "http_requests_total", "host": "h2"}))
    feed.run_once()
    assert keeper.hosts == ["h1"]
    assert (feed.flushed, feed.dropped, feed.errors, feed.pending) == (1, 0, 0, 0)


def test_a_table_of_series_shows_each_thing_once(feed: InventoryFeed, keeper: FakeKeeper) -> None:
    table = [nic("h1"), nic("h1", "fabric_nic_transmit_bytes_total"), nic("h2")]
    things = feed.things(table)
    assert [thing.host for thing in things] == ["h1", "h2"]
    feed.seen(things)
    feed.run_once()
    assert keeper.hosts == ["h1", "h2"]


def test_tables_that_show_the_same_share_it(
    feed: InventoryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first] = feed.things([nic("h1")])
    again, other = feed.things([nic("h1", "fabric_nic_transmit_bytes_total"), nic("h2")])
    assert again is first, "an agent's tables are many, and what they show is the same"
    monkeypatch.setattr(feed_module, "KNOWN_MAX", 2)
    [afresh] = feed.things([nic("h2")])
    assert afresh == other
    assert afresh is not other, "what is shared is bounded"


def test_a_known_thing_is_written_again_only_after_a_while(
    feed: InventoryFeed, keeper: FakeKeeper, clock: Clock
) -> None:
    for _ in range(3):
        sighted(feed, nic("h1"))
        feed.run_once()
        clock.move(PART_TOUCH.total_seconds() / 2)
    assert [item.last_seen for item in keeper.observations] == [START, START + PART_TOUCH]


def test_cables_and_jobs_are_written_as_often_as_hosts(
    feed: InventoryFeed, keeper: FakeKeeper, clock: Clock
) -> None:
    cable = Sighting(host="h1", link=LinkEnd(device="eth0", port="1", method="lldp"))
    for _ in range(3):
        feed.seen([cable, Sighting(host="h1", job="j", rank=0)])
        feed.run_once()
        clock.move(TOUCH_SECONDS / 2)
    assert len(keeper.observations) == 4


def test_last_seen_of_a_host_moves_while_batches_arrive(
    feed: InventoryFeed, keeper: FakeKeeper, clock: Clock
) -> None:
    for sequence in range(TOUCH_SECONDS * 2 + 1):
        feed.batch(agent="a", boot="b", sequence=sequence, received_at=clock(), host="h1")
        feed.run_once()
        clock.move(1)
    assert [item.last_seen - START for item in keeper.observations] == [
        timedelta(seconds=second) for second in (0, TOUCH_SECONDS, 2 * TOUCH_SECONDS)
    ]
    assert keeper.observations[0].sighting == Sighting(host="h1", host_attributes=(("agent", "a"),))
    assert [run.last for run in keeper.runs] == list(range(TOUCH_SECONDS * 2 + 1))


def test_nothing_is_lost_while_the_database_is_away(
    feed: InventoryFeed, keeper: FakeKeeper, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=feed_module.__name__)
    keeper.away = True
    for sequence in (1, 2, 5):
        sighted(feed, nic("h1"))
        feed.batch(agent="a", boot="b", sequence=sequence, received_at=clock(), host="h1")
        feed.run_once()
        clock.move(PART_TOUCH.total_seconds())
    assert feed.pending == 3, "one interface, one host and one run of batches"
    assert feed.errors == 6
    keeper.away = False
    feed.run_once()
    assert {(item.first_seen, item.last_seen) for item in keeper.observations} == {
        (START, START + 2 * PART_TOUCH)
    }
    assert [(run.first, run.last, run.missing) for run in keeper.runs] == [(1, 5, 2)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_what_the_database_refuses_holds_up_no_other(
    feed: InventoryFeed, keeper: FakeKeeper
) -> None:
    keeper.refused_host = "h3"
    for number in range(8):
        sighted(feed, nic(f"h{number}"))
    feed.run_once()
    assert keeper.hosts == ["h0", "h1", "h2", "h4", "h5", "h6", "h7"]
    assert (feed.flushed, feed.dropped, feed.errors, feed.pending) == (7, 1, 1, 0)


def test_the_bounds_hold_and_drops_are_counted(
    feed: InventoryFeed, keeper: FakeKeeper, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "PENDING_MAX", 2)
    monkeypatch.setattr(feed_module, "AGENTS_PENDING_MAX", 1)
    for number in range(3):
        sighted(feed, nic(f"h{number}"))
        feed.batch(agent=f"a{number}", boot="b", sequence=1, received_at=clock())
    feed.batch(agent="a0", boot="b", sequence=SEQUENCE_MAX + 1, received_at=clock())
    assert (feed.pending, feed.dropped) == (3, 4)
    feed.run_once()
    sighted(feed, nic("h2"))
    feed.run_once()
    assert keeper.hosts == ["h0", "h1", "h2"], "what was dropped is noted when it is next seen"


def test_memory_of_what_is_known_is_bounded(
    feed: InventoryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "KNOWN_MAX", 2)
    for number in range(5):
        sighted(feed, nic(f"h{number}"))
    assert len(feed._known) <= 2
    assert feed.pending == 5


def test_a_long_queue_is_written_in_parts(
    feed: InventoryFeed, keeper: FakeKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "FLUSH_ROWS", 2)
    monkeypatch.setattr(feed_module, "FLUSHES_MAX", 2)
    for number in range(5):
        sighted(feed, nic(f"h{number}"))
    feed.run_once()
    assert (len(keeper.observations), feed.pending) == (4, 1)
    feed.run_once()
    assert keeper.hosts == ["h0", "h1", "h2", "h3", "h4"]
