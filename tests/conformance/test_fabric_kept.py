"""The fabric's state from kept moments and from memory is the one that the store alone gives."""

import random
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from alerts.window.model import Grid
from api.data.ingest.columns import SampleColumns
from api.data.ingest.commit import series_rows
from api.data.ingest.series import NewSeries
from api.data.store.store import Store, StoreUrl
from api.fabric.model import Topology, make_topology
from api.jobs.correlate.fabric import MATRICES, FabricReader, FabricState, frames_of
from collector.contract.identity import Labels, PortId, metric_id, series_id
from collector.contract.units import NS
from tests.stands.memory import nothing_held
from tests.stands.service import TELEMETRY, copy_migrated
from tests.worlds.topologies import AT, RATE, cable

START_S = 1_794_700_020
SECONDS, PERIOD_S, STEP_S = 600, 5, 30
LINKS = 6
COUNTERS = ("transmit_bytes_total", "receive_bytes_total", "symbol_errors_total")
GAUGES = ("state", "rate_bits_per_second")
Row = tuple[int, int, int, float]


class Moment:
    """A clock that is set by hand."""

    seconds = float(START_S)

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Moment:
    return Moment()


@pytest.fixture
def store(tmp_path: Path, clock: Moment) -> Iterator[Store]:
    copy_migrated(tmp_path, with_store=True)
    opened = Store(StoreUrl.parse(f"chdb://{tmp_path / TELEMETRY}"), clock=clock)
    opened.insert_arrow(
        "series", series_rows([NewSeries(START_S // 86_400, *each) for each in names()])
    )
    yield opened
    opened.close()


def ends() -> list[tuple[PortId, PortId]]:
    return [
        (PortId(f"node{number}", "mlx5_0", "1"), PortId("leaf0", "leaf0", str(number)))
        for number in range(LINKS)
    ]


def topology() -> Topology:
    return make_topology(AT, [], [], [cable(*pair) for pair in ends()])


def labels_of(name: str, port: PortId) -> Labels:
    words = {"__name__": name, "host": port.host, "device": port.device, "port": port.port}
    return tuple(sorted(words.items()))


def names() -> Iterator[tuple[int, Labels]]:
    for port in (end for pair in ends() for end in pair):
        for name in (*COUNTERS, *GAUGES):
            labels = labels_of(f"fabric_port_{name}", port)
            yield series_id(labels), labels


def readings(rng: random.Random) -> list[Row]:
    """All that is read in the time: counters that grow and reset, states that change."""
    found = []
    for port in (end for pair in ends() for end in pair):
        for name in (*COUNTERS, *GAUGES):
            full, value = f"fabric_port_{name}", 0.0
            series = series_id(labels_of(full, port))
            for moment in range(START_S - 120, START_S + SECONDS, PERIOD_S):
                if name in COUNTERS:
                    value = 0.0 if rng.random() < 0.01 else value + rng.randrange(10**9)
                else:
                    value = rng.choice((4.0, 4.0, 1.0)) if name == "state" else RATE
                time_ms = moment * 1000 + rng.randrange(2_000)
                found.append((metric_id(full), series, time_ms, value))
    return found


def write(store: Store, rows: list[Row]) -> None:
    metric, series, time_ms, value = zip(*rows, strict=True)
    store.insert_samples(
        SampleColumns(
            np.array(metric, np.uint32),
            np.array(series, np.uint64),
            np.array(time_ms, np.int64),
            np.array(value),
        )
    )


def read(reader: FabricReader, end_s: int, cables: str | None = "cables") -> FabricState:
    grid: Grid = frames_of((end_s - 300) * NS, end_s * NS, 300 // STEP_S)
    whole = topology()
    return reader.read(whole, list(whole.links.values()), grid, cables=cables)


def assert_same(one: FabricState, other: FabricState) -> None:
    assert one.grid == other.grid
    for name in MATRICES:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_kept_moments_are_those_that_are_read_anew(store: Store, clock: Moment, seed: int) -> None:
    rng = random.Random(seed)
    waiting = readings(rng)
    kept = FabricReader(store)
    looks = 0
    while waiting:
        clock.seconds += rng.choice((10, 30, 60))
        now_ms = clock.seconds * 1000
        late = {series for series, _ in names() if rng.random() < 0.3}
        is_over = clock.seconds > START_S + SECONDS + 120
        due = [row for row in waiting if row[2] < now_ms and (is_over or row[1] not in late)]
        if due:
            write(store, due)
            write(store, rng.sample(due, 1 + len(due) // 10))
            sent = set(due)
            waiting = [row for row in waiting if row not in sent]
        if rng.random() < 0.8:
            end_s = int(clock.seconds) // STEP_S * STEP_S
            shown = read(kept, end_s)
            with patch.object(store, "recent", nothing_held()):
                assert_same(shown, read(FabricReader(store), end_s, cables=None))
            looks += 1
    assert looks > 5
    assert store.recent.reads_here > 0, "the newest were read from memory"


def test_what_nobody_sends_is_not_asked_for(store: Store, clock: Moment) -> None:
    """Exporters have ten times as many names for what is shown as anybody uses."""
    write(store, readings(random.Random(5)))
    clock.seconds = float(START_S + SECONDS)
    with (
        patch.object(store, "recent", nothing_held()),
        patch.object(store, "query", side_effect=store.query) as asked,
    ):
        read(FabricReader(store), int(clock.seconds), cables=None)
    read_of = [call.args[1]["metrics"] for call in asked.call_args_list if "ToGrid" in call.args[0]]
    assert len(read_of) == 2, "counters, and gauges"
    sent = {metric_id(f"fabric_port_{name}") for name in (*COUNTERS, *GAUGES)}
    assert {metric for metrics in read_of for metric in metrics} == sent


def test_a_moment_that_is_over_is_read_once(store: Store, clock: Moment) -> None:
    rows = readings(random.Random(7))
    end_s = START_S + 330
    write(store, [row for row in rows if row[2] < end_s * 1000])
    clock.seconds = float(end_s)
    outcomes: list[str] = []
    kept = FabricReader(store)
    kept.kept.note = outcomes.append
    read(kept, end_s)
    assert outcomes == ["made"] * 10
    read(kept, end_s)
    assert outcomes[10:] == ["kept"] * 10
    write(store, [row for row in rows if 0 <= row[2] - end_s * 1000 < 30_000])
    del outcomes[:]
    read(kept, end_s + 30)
    assert outcomes.count("made") <= 2
    write(store, [(12345, 1, (end_s - 200) * 1000, 1.0)])
    del outcomes[:]
    read(kept, end_s + 30)
    assert outcomes == ["kept"] * 10, "what links do not show makes nothing stale"


def test_moments_take_no_more_room_than_they_may(store: Store, clock: Moment) -> None:
    write(store, readings(random.Random(7)))
    clock.seconds = float(START_S + SECONDS)
    tight = FabricReader(store, bytes_max=5_000)
    assert_same(read(tight, START_S + 480), read(FabricReader(store), START_S + 480))
    assert 0 < tight.kept.bytes_used <= 5_000
