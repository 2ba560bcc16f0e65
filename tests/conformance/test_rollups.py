"""How roll-ups are made: hour by hour, again where samples came late, and once where none did."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from api.base.metrics import ServiceMetrics
from api.base.rollup_limits import LATE_QUIET_SECONDS
from api.data.store.rolling import Roller, in_pieces
from api.data.store.rollups import MS_PER_HOUR, SERIES_MAX, read_late, read_span
from collector.contract.errors import StoreError
from tests.stands.rollups import (
    BEGIN_MS,
    END_MS,
    HOURS,
    Stand,
    assert_same,
    counter,
    grid_of,
    samples_alone,
    small_questions,
)
from tests.stands.samples import write_series
from tests.worlds.remote_write import TimeSeries


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path)
    yield made
    made.store.close()


def test_the_last_hours_are_made_of_samples(stand: Stand) -> None:
    """Half an hour is not over, and an hour that is has not settled."""
    stand.now_s = END_MS / 1000 + 60
    write_series(stand.store, [counter("x_total", BEGIN_MS, END_MS)])
    grid = grid_of(300_000)
    stand.roll()
    with small_questions() as answered:
        stand.ask("increase(x_total[10m])", grid)
    assert not answered, "all of it came late, and more may come"
    stand.now_s += LATE_QUIET_SECONDS
    stand.settle_late()
    span = read_span(stand.store.query)
    assert span is not None
    assert (span.since_ms, span.until_ms) == (BEGIN_MS, END_MS - MS_PER_HOUR)
    with small_questions() as answered:
        ours = stand.ask("increase(x_total[10m])", grid)
    assert answered == ["increase"]
    with samples_alone():
        assert_same(ours, stand.ask("increase(x_total[10m])", grid), to_the_bit=True)


def test_a_killed_roller_goes_on_and_writes_nothing_twice(stand: Stand) -> None:
    write_series(stand.store, [counter(f"m{one}", BEGIN_MS, END_MS) for one in range(4)])
    with patch("api.data.store.rolling.ROLLUP_ROWS_MAX", 60):
        for _ in range(6):  # of an hour's four statements some are done when it ends
            assert stand.roller.step()
        stand.roller = Roller(stand.store, ServiceMetrics())
        stand.roll()
    again = Roller(stand.store, ServiceMetrics())
    assert not again.step(), "nothing changed, and nothing is done"
    counts = "SELECT count() AS n, uniqExact(series, time) AS keys FROM {} FINAL"
    for table, rows in (("rollup_5m", 4 * 12 * HOURS), ("rollup_1h", 4 * HOURS)):
        [found] = stand.store.query(counts.format(table)).to_pylist()
        assert found == {"n": rows, "keys": rows}, table


def test_late_samples_are_noted_once_and_counted(stand: Stand) -> None:
    write_series(stand.store, [counter("x", BEGIN_MS, END_MS)])
    stand.settle()
    assert read_late(stand.store.query) == []
    counted = stand.metrics.registry.get_sample_value
    name, outcome = "fabric_service_rollup_late_hours_total", {"outcome": "rolled"}
    before = counted(name, outcome)
    assert before is not None
    for second in range(3):
        late = [(1.0, BEGIN_MS + 90_000 + second)]
        write_series(stand.store, [TimeSeries([("__name__", "x")], late)])
    assert [note.hour_ms for note in read_late(stand.store.query)] == [BEGIN_MS + MS_PER_HOUR]
    assert stand.roll() == 0, "more may come"
    stand.settle()
    assert read_late(stand.store.query) == []
    assert counted(name, outcome) == before + 1
    [row] = stand.store.query("SELECT count FROM rollup_1h FINAL ORDER BY time LIMIT 1").to_pylist()
    assert row["count"] == 60 + 3


def test_a_note_that_could_not_be_written_is_written_with_the_next(stand: Stand) -> None:
    """The sender repeats what was not acknowledged, within seconds."""
    late = TimeSeries([("__name__", "x")], [(1.0, BEGIN_MS + 90_000)])
    with (
        patch("api.data.store.store.late_rows", side_effect=OSError("full")),
        pytest.raises(StoreError, match="full"),
    ):
        write_series(stand.store, [late])
    assert read_late(stand.store.query) == []
    write_series(stand.store, [late])
    assert len(read_late(stand.store.query)) == 1


def test_a_late_sample_of_a_day_that_is_gone_replaces_no_rollup(stand: Stand) -> None:
    """As after `retention_bytes` dropped the day's samples."""
    write_series(stand.store, [counter("x", BEGIN_MS, END_MS)])
    stand.settle()
    with stand.store.holding_writes("drop") as client:
        client.command("TRUNCATE TABLE samples")
    late = [(1.0, BEGIN_MS + 90_000)]
    write_series(stand.store, [TimeSeries([("__name__", "x")], late)])
    stand.settle()
    [row] = stand.store.query(
        "SELECT count, high FROM rollup_1h FINAL ORDER BY time LIMIT 1"
    ).to_pylist()
    assert row["count"] == 60


def test_a_metric_with_many_samples_is_cut_by_ids() -> None:
    pieces = list(in_pieces([(1, 10), (2, 25)], 10))
    assert [piece.metrics for piece in pieces] == [[1], [2], [2], [2]]
    cut = pieces[1:]
    assert (cut[0].lowest, cut[-1].highest) == (0, SERIES_MAX)
    assert all(after.lowest == before.highest + 1 for before, after in itertools.pairwise(cut))
