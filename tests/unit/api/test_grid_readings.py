"""Samples on a grid: rates and levels against ones that were worked out by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.window.model import Grid
from api.base.quarantine import Quarantine
from api.data.store.rings import Rings
from api.data.store.rings import Samples as Added
from api.jobs.correlate import readings
from api.jobs.correlate.meanings import Choice, Target
from api.jobs.correlate.readings import (
    GridReader,
    Samples,
    gathered,
    joined,
    on_grid,
    part_of,
    to_samples,
)
from collector.contract.identity import metric_id
from collector.contract.units import NS
from tests.stands.memory import nothing_held
from tests.tools.cut import CUT

GRID = Grid(1_000 * NS, 5 * NS, 6)
"""From 1000 s to 1030 s."""
BYTES = "fabric_port_transmit_bytes_total"
RATE = "fabric_port_rate_bits_per_second"
CPU = "fabric_host_cpu_seconds_total"

Points = Sequence[tuple[float, float]]


def answer(series: Mapping[tuple[str, int], Points]) -> pa.Table:
    """The store's answer for these series: metric and number, then seconds and values."""
    rows = []
    for (metric, number), points in sorted(
        series.items(), key=lambda item: (metric_id(item[0][0]), item[0][1])
    ):
        values = [value for _, value in points]
        times = [round(second * 1000) for second, _ in points]
        is_still = min(values) == max(values)
        rows.append(
            {
                "metric": metric_id(metric),
                "series": number,
                "first_ms": min(times),
                "last_ms": max(times),
                "lowest": min(values),
                "is_still": int(is_still),
                "times": [] if is_still else times,
                "points": [] if is_still else values,
            }
        )
    schema = pa.schema(
        [
            ("metric", pa.uint32()), ("series", pa.uint64()), ("first_ms", pa.int64()),
            ("last_ms", pa.int64()), ("lowest", pa.float64()), ("is_still", pa.uint8()),
            ("times", pa.list_(pa.int64())), ("points", pa.list_(pa.float64())),
        ]
    )  # fmt: skip
    return pa.Table.from_pylist(rows, schema)


class Told:
    """A fake store that answers with the given series and counts the queries for names."""

    def __init__(
        self, series: Mapping[tuple[str, int], Points], labels: Mapping[int, tuple[str, Any]]
    ) -> None:
        self.series, self.labels = dict(series), dict(labels)
        self.names_asked = 0
        self.quarantine = Quarantine()
        self.recent = nothing_held()

    def query(
        self, sql: str, parameters: Mapping[str, Any], *, settings: Mapping[str, str] | None = None
    ) -> pa.Table:
        del settings
        if "FROM samples" in sql:
            chosen = {
                key: points
                for key, points in self.series.items()
                if metric_id(key[0]) in parameters["metrics"]
            }
            return answer(chosen)
        self.names_asked += 1
        wanted = parameters.get("series", list(self.labels))
        rows = [
            {"series": number, "name": name, "words": list(words.items())}
            for number, (name, words) in self.labels.items()
            if number in wanted and name in parameters["names"]
        ]
        words = pa.map_(pa.string(), pa.string())
        schema = pa.schema([("series", pa.uint64()), ("name", pa.string()), ("words", words)])
        return pa.Table.from_pylist(rows, schema)


def samples_of(points: Points) -> Samples:
    return to_samples(answer({(BYTES, 1): points}), GRID)


def rates(points: Points) -> list[float]:
    return list(on_grid(samples_of(points), np.array([0]), is_counter=True)[0])


def levels(points: Points) -> list[float]:
    return list(on_grid(samples_of(points), np.array([0]), is_counter=False)[0])


def same(found: Sequence[float], wanted: Sequence[float]) -> bool:
    return np.allclose(found, wanted, equal_nan=True)


NAN = float("nan")


def test_an_increase_is_shared_out_over_the_cells_that_it_spans() -> None:
    # 100 a second from 1002.5 to 1007.5, then 20 a second until 1017.5, and no more.
    points = [(1002.5, 0.0), (1007.5, 500.0), (1017.5, 700.0)]
    assert same(rates(points), [100, (250 + 50) / 5, 20, 20, NAN, NAN])


def test_readings_before_the_grid_give_the_first_cell_its_rate() -> None:
    assert same(rates([(995, 0.0), (1005, 100.0), (1010, 100.0)]), [10, 0, NAN, NAN, NAN, NAN])


def test_a_reset_is_no_increase_and_no_reading() -> None:
    points = [(1000, 900.0), (1005, 1000.0), (1010, 5.0), (1015, 10.0)]
    assert same(rates(points), [20, NAN, 1, NAN, NAN, NAN])


def test_readings_too_far_apart_say_nothing_about_the_time_between() -> None:
    assert same(rates([(960, 0.0), (1021, 100.0), (1025, 104.0)])[:4], [NAN] * 4)
    assert rates([(960, 0.0), (1021, 100.0), (1025, 104.0)])[4] == pytest.approx(1.0)


def test_a_counter_that_stands_still_is_zero_and_a_single_reading_is_nothing() -> None:
    # The counter covers the grid until it is stale: half a minute after its last reading.
    assert same(rates([(1006, 7.0), (1016, 7.0)]), [NAN, 0, 0, 0, 0, 0])
    assert same(rates([(1006, 7.0)]), [NAN] * 6)


def test_a_gauge_has_its_last_value_until_it_is_stale() -> None:
    points = [(971, 1.0), (1001, 2.0), (1003, 3.0), (1005, 4.0)]
    assert levels(points) == [4, 4, 4, 4, 4, 4]
    assert same(levels([(974, 1.0), (976, 2.0)]), [2, NAN, NAN, NAN, NAN, NAN])
    assert same(levels([(1012, 1.0), (1018, 2.0)]), [NAN, NAN, 1, 2, 2, 2])


def test_points_may_come_in_any_order() -> None:
    points = [(1002.5, 0.0), (1007.5, 500.0), (1017.5, 700.0)]
    assert same(rates(points[::-1]), rates(points))


def test_what_is_there_twice_is_added_up_or_the_largest_counts() -> None:
    rows = np.array([4, 2, 4])
    values = np.array([[1.0, NAN], [7.0, 8.0], [2.0, NAN]])
    row, total = joined([(rows, values)], is_max=False)
    assert row.tolist() == [2, 4]
    assert same(total[1], [3.0, NAN])
    _, most = joined([(rows, values)], is_max=True)
    assert same(most[1], [2.0, NAN])


PORTS = Target(
    (Choice(BYTES, "transmit_bytes_total"), Choice(RATE, "rate", is_max=True)),
    ("host", "device", "port"),
)
PLACE = {"host": "node0", "device": "mlx5_0", "port": "1"}
MOVES: Points = [(1000, 0.0), (1005, 10.0)]


@given(st.integers(0, 1_000), st.booleans())
@settings(max_examples=40, deadline=None)
def test_cells_of_one_row_are_joined_as_one_after_the_other(seed: int, is_max: bool) -> None:  # noqa: FBT001 - drawn
    random = np.random.default_rng(seed)
    row = random.integers(0, 4, 9)
    values = np.where(random.random((9, 5)) < 0.4, np.nan, random.random((9, 5)))
    kept, found = joined([(row[:3], values[:3]), (row[3:], values[3:])], is_max=is_max)
    assert kept.tolist() == sorted(set(row.tolist()))
    for place, one in enumerate(kept.tolist()):
        for cell in range(5):
            known = [value for value in values[row == one, cell].tolist() if not np.isnan(value)]
            wanted = (max(known) if is_max else sum(known)) if known else float("nan")
            assert found[place, cell] == pytest.approx(wanted, nan_ok=True)


def test_aliases_are_read_in_our_units_and_under_their_own_name() -> None:
    alias = "node_infiniband_rate_bytes_per_second"
    labels = {"instance": "node0", "device": "mlx5_0", "port": "1"}
    told = Told({(alias, 5): [(1000, 50e9), (1005, 25e9)]}, {5: (alias, labels)})
    reader = GridReader(told)  # type: ignore[arg-type]
    samples = reader.ask((PORTS,), GRID)
    (part,) = reader.parts(PORTS, samples)
    assert (part.metric, part.name.factor) == (alias, 8.0)
    assert reader.known(PORTS).keys == [("node0", "mlx5_0", "1")]


def test_names_are_asked_for_once_and_again_when_something_new_comes() -> None:
    told = Told({(BYTES, 5): MOVES}, {5: (BYTES, PLACE)})
    reader = GridReader(told)  # type: ignore[arg-type]
    for _ in range(3):
        assert len(reader.parts(PORTS, reader.ask((PORTS,), GRID))[0].row) == 1
    assert told.names_asked == 1
    told.series[BYTES, 3] = MOVES
    told.labels[3] = (BYTES, PLACE | {"port": "2"})
    (part,) = reader.parts(PORTS, reader.ask((PORTS,), GRID))
    keys = [reader.known(PORTS).keys[code] for code in part.key]
    assert keys == [("node0", "mlx5_0", "2"), ("node0", "mlx5_0", "1")]
    assert told.names_asked == 2


def test_what_one_reader_has_learned_others_know() -> None:
    told = Told({(BYTES, 5): MOVES}, {5: (BYTES, PLACE)})
    for _ in range(2):
        reader = GridReader(told)  # type: ignore[arg-type]
        (part,) = reader.parts(PORTS, reader.ask((PORTS,), GRID))
        assert [reader.known(PORTS).keys[code] for code in part.key] == [("node0", "mlx5_0", "1")]
    assert told.names_asked == 1
    other = Told({(BYTES, 5): MOVES}, {5: (BYTES, PLACE | {"port": "2"})})
    reader = GridReader(other)  # type: ignore[arg-type]
    reader.parts(PORTS, reader.ask((PORTS,), GRID))
    assert reader.known(PORTS).keys == [("node0", "mlx5_0", "2")], "of another store"


def test_a_reader_that_learns_too_much_takes_nothing_from_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The codes that another has read by go on meaning what they meant."""
    told = Told({(BYTES, 5): MOVES}, {5: (BYTES, PLACE)})
    first, second = (GridReader(told) for _ in range(2))  # type: ignore[arg-type]
    (part,) = first.parts(PORTS, first.ask((PORTS,), GRID))
    monkeypatch.setattr(readings, "SERIES_KEPT_MAX", 1)
    told.series = {(BYTES, 3): MOVES}
    told.labels[3] = (BYTES, PLACE | {"port": "2"})
    (other,) = second.parts(PORTS, second.ask((PORTS,), GRID))
    assert [second.known(PORTS).keys[code] for code in other.key] == [("node0", "mlx5_0", "2")]
    assert len(second.known(PORTS)) == 1
    assert [first.known(PORTS).keys[code] for code in part.key] == [("node0", "mlx5_0", "1")]


def test_a_series_that_nobody_can_name_is_left_out() -> None:
    told = Told({(BYTES, 5): MOVES, (BYTES, 6): MOVES}, {5: (BYTES, PLACE)})
    reader = GridReader(told)  # type: ignore[arg-type]
    (part,) = reader.parts(PORTS, reader.ask((PORTS,), GRID))
    assert part.row.tolist() == [0]


def test_a_split_label_makes_readings_of_its_own() -> None:
    hosts = Target((Choice(CPU, "cpu", split="mode"),), ("host",))
    told = Told(
        {(CPU, 1): MOVES, (CPU, 2): MOVES},
        {n: (CPU, {"host": "node0", "mode": mode}) for n, mode in ((1, "user"), (2, "steal"))},
    )
    reader = GridReader(told)  # type: ignore[arg-type]
    (part,) = reader.parts(hosts, reader.ask((hosts,), GRID))
    names = [reader.known(hosts).readings[code] for code in part.reading]
    assert [one.name for one in names] == ["cpu:user", "cpu:steal"]
    assert [one.label for one in names] == ["user", "steal"]


def test_no_samples_at_all_are_no_parts() -> None:
    reader = GridReader(Told({}, {}))  # type: ignore[arg-type]
    assert reader.parts(PORTS, reader.ask((PORTS,), GRID)) == []


DEPTH = "fabric_port_queue_depth_bytes"
PAUSES = "fabric_port_receive_pause_frames_total"


def read_all(told: Told, target: Target) -> dict[str, list[float]]:
    """The cells of each reading, of the one thing that there is."""
    reader = GridReader(told)  # type: ignore[arg-type]
    samples = reader.ask((target,), GRID)
    parts = reader.parts(target, samples)
    known = reader.known(target)
    readings, _ = gathered(known, parts, samples, np.zeros(len(known.keys), dtype=np.int64), 1)
    return {name: list(found.values[0]) for name, found in readings.items()}


def test_what_two_exporters_tell_of_one_port_is_counted_once() -> None:
    """Our poller and the switch itself, and two names of one counter in one export."""
    theirs = {"host": "leaf1", "interface": "swp1"}
    ours = {"host": "leaf1", "device": "leaf1", "port": "swp1"}
    moves: Points = [(1000, 0.0), (1005, 50.0), (1010, 100.0)]
    target = Target((Choice("fabric_port_receive_bytes_total", "bytes"),), PORTS.keys)
    names = ("nvswitch_interface_if_in_octets", "nvswitch_interface_ether_stats_octets")
    pushed = {(name, number): moves for number, name in enumerate(names, start=1)}
    words = {number: (name, theirs) for number, name in enumerate(names, start=1)}
    wanted = [10.0, 10.0]
    assert read_all(Told(pushed, words), target)["bytes"][:2] == wanted
    own = "fabric_port_receive_bytes_total"
    both = Told({**pushed, (own, 9): moves}, {**words, 9: (own, ours)})
    assert read_all(both, target)["bytes"][:2] == wanted


def test_where_the_first_exporter_has_a_gap_the_next_one_fills_it() -> None:
    own, theirs = "fabric_port_transmit_bytes_total", "nvswitch_interface_if_out_octets"
    labels = {1: (own, {"host": "a", "device": "a", "port": "p"})}
    labels[2] = (theirs, {"host": "a", "interface": "p"})
    told = Told({(own, 1): MOVES, (theirs, 2): [(1000, 0.0), (1005, 10.0), (1010, 40.0)]}, labels)
    target = Target((Choice(own, "bytes"),), PORTS.keys)
    assert same(read_all(told, target)["bytes"][:2], [2.0, 6.0])


def test_priorities_of_two_exporters_are_still_added_up() -> None:
    theirs = "nvswitch_interface_sp_rx_pause"
    told = Told(
        {(theirs, 1): MOVES, (theirs, 2): MOVES, (PAUSES, 3): MOVES},
        {
            1: (theirs, {"host": "a", "interface": "p", "sp": "3"}),
            2: (theirs, {"host": "a", "interface": "p", "sp": "4"}),
            3: (PAUSES, {"host": "a", "device": "a", "port": "p", "priority": "global"}),
        },
    )
    assert read_all(told, Target((Choice(PAUSES, "pauses"),), PORTS.keys))["pauses"][0] == 6.0


def test_a_peak_within_a_cell_is_kept_where_the_catalog_asks_for_it() -> None:
    """High-frequency telemetry: full for a few milliseconds, empty when the cell ends."""
    points: Points = [(1001.0, 0.0), (1002.0, 5e6), (1002.003, 0.0), (1004.0, 0.0), (1009.0, 1.0)]
    told = Told({(DEPTH, 1): points}, {1: (DEPTH, PLACE | {"queue": "3"})})
    target = Target((Choice(DEPTH, "depth", is_max=True, is_peak=True),), PORTS.keys)
    assert read_all(told, target)["depth"][:2] == [5e6, 1.0]
    last = Target((Choice(DEPTH, "depth", is_max=True),), PORTS.keys)
    assert read_all(told, last)["depth"][:2] == [0.0, 1.0]


# Rings in memory: what stands still is not looked at reading by reading ---------------------------

EPOCH_MS = 1_000_000
READINGS = st.lists(
    st.tuples(
        st.integers(1, 3),  # series
        st.integers(1, 90),  # second
        st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.5, np.nan, np.inf]),
    ),
    max_size=60,
)


@given(commits=st.lists(READINGS, max_size=6), read_between=st.booleans())
@settings(max_examples=CUT.examples(500), deadline=None)
def test_series_in_memory_are_what_their_readings_say(
    commits: list[list[tuple[int, int, float]]], *, read_between: bool
) -> None:
    """Readings late, twice, of no number, and more than a ring has room for."""
    rings = Rings(10, EPOCH_MS)
    told: dict[int, dict[int, float]] = {}
    for commit in commits:
        columns = zip(*commit, strict=True) if commit else ((), (), ())
        series, second, value = (np.array(one) for one in columns)
        metric = np.full(len(series), 7, np.uint32)
        time_ms = EPOCH_MS + 1000 * second.astype(np.int64)
        rings.add(
            Added(metric, series.astype(np.uint64), time_ms, value.astype(np.float64)),
            lambda _, last: last >= 0,
        )
        for one, at, what in commit:
            told.setdefault(one, {})[EPOCH_MS + 1000 * at] = what
        if read_between:
            rings.copy(rings.of_metric(7))  # puts what came late in order
    from_ms, to_ms = EPOCH_MS + 30_000, EPOCH_MS + 80_000
    held = rings.copy(rings.of_metric(7))
    found = part_of(held, GRID, from_ms, to_ms)
    kept = {
        one: {at: what for at, what in own.items() if from_ms < at <= to_ms and np.isfinite(what)}
        for one, own in told.items()
    }
    kept = {one: own for one, own in kept.items() if own}
    if not rings.is_whole(rings.of_metric(7), from_ms):
        return  # more than a ring has room for: then the store is asked
    assert found.series.tolist() == sorted(kept)
    for row, own in enumerate(kept[one] for one in sorted(kept)):
        points = slice(found.start[row], found.start[row + 1])
        assert (found.first_ms[row], found.last_ms[row]) == (min(own), max(own))
        assert found.lowest[row] == min(own.values())
        assert found.is_still[row] == (min(own.values()) == max(own.values()))
        seen = dict(zip(found.time_ms[points].tolist(), found.value[points].tolist(), strict=True))
        assert seen == ({} if found.is_still[row] else dict(sorted(own.items())))


def test_a_series_that_stands_still_is_known_without_its_readings() -> None:
    """What costs least is most of what is read: error counters of a healthy fabric."""
    rings = Rings(10, EPOCH_MS)
    for second in range(1, 41):
        values = np.array([5.0, float(second)])
        time_ms = np.full(2, EPOCH_MS + 1000 * second)
        ids = np.array([1, 2], np.uint64)
        rings.add(Added(np.full(2, 7, np.uint32), ids, time_ms, values), lambda _, last: last >= 0)
    held = rings.copy(rings.of_metric(7))
    assert held.is_still(EPOCH_MS + 20_000).tolist() == [True, False]
