"""Raw counters of captures as rates: as fine as the coarsest counter, and only what is common."""

import numpy as np
import pytest

from alerts.signals.smoothness import CELL_NS_MAX
from api.jobs.correlate.captured import Raw, counters_of, gridded
from collector.contract.units import NS_PER_MS
from tests.worlds.ring_jobs import make_ports

START_MS = 1_800_000_000_000


def raw(row: int, first_ms: int, last_ms: int, rate: float = 1000.0, way: str = "transmit") -> Raw:
    times = np.arange(first_ms, last_ms + 1)
    return Raw(row, way, START_MS + times, ((times - first_ms) * rate).astype(np.float64))


def test_rates_are_of_the_time_that_all_have_in_common() -> None:
    found = gridded([raw(0, 0, 6000), raw(1, 2000, 8000, way="receive")], 0.001)
    assert found is not None
    assert found.grid.start_ns == (START_MS + 2000) * NS_PER_MS
    assert found.grid.end_ns == (START_MS + 6000) * NS_PER_MS
    assert found.grid.step_ns == 2 * NS_PER_MS
    assert found.row.tolist() == [0, 1]
    assert found.transmit[0] == pytest.approx(1e6)
    assert found.receive[1] == pytest.approx(1e6)
    assert np.isnan(found.transmit[1]).all()


def test_a_capture_of_another_minute_is_left_out() -> None:
    found = gridded([raw(0, 0, 6000), raw(1, 60_000, 66_000)], 0.001)
    assert found is not None
    assert found.row.tolist() == [1]


def test_cells_are_no_finer_than_the_coarsest_counter() -> None:
    found = gridded([raw(0, 0, 6000)], 0.011)
    assert found is not None
    assert found.grid.step_ns == 22 * NS_PER_MS
    assert gridded([raw(0, 0, 6000)], 0.6 * CELL_NS_MAX / 1e9) is None
    assert gridded([], 0.001) is None


def test_a_reset_is_no_rate() -> None:
    one = raw(0, 0, 4000)
    values = np.where(np.arange(4001) < 2000, one.values, one.values - 2_000_000)
    found = gridded([Raw(0, "transmit", one.times, values)], 0.001)
    assert found is not None
    assert np.isnan(found.transmit).sum() == 1
    assert np.nanmax(found.transmit) == pytest.approx(1e6)


def row_of(host: str, **more: str) -> dict[str, object]:
    labels = {"host": host, "device": "mlx5_0", "port": "1", "direction": "transmit"} | more
    return {"labels": list(labels.items()), "times": [2, 1], "points": [20.0, 10.0]}


def test_counters_without_a_known_resolution_or_port_are_left_out() -> None:
    ports = make_ports(["node0", "node1"])
    known = {("node0", "mlx5_0", "1", "transmit"): 0.001}
    rows = [row_of("node0"), row_of("node1"), row_of("nowhere"), row_of("node0", direction="odd")]
    ((found, seconds),) = counters_of(rows, known, ports)
    assert (found.row, seconds) == (0, 0.001)
    assert found.times.tolist() == [1, 2]
    assert found.values.tolist() == [10.0, 20.0]
