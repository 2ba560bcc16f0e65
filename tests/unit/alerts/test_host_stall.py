"""Hosts that keep their processes waiting."""

import numpy as np
import pytest

from alerts.detectors.host_stall import detect
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.machines import GRID, host_values, machines, reordered

BAD = 3
DATA = "step_phase_seconds_total:data"


def test_healthy_hosts_are_not_accused() -> None:
    assert detect(machines(8)) == []


def test_stolen_time_names_the_host_with_its_share() -> None:
    window = machines(8)
    host_values(window, "cpu_seconds_total:steal")[BAD, -3:] = 96.0
    host_values(window, "cpu_seconds_total:idle")[BAD, -3:] = 72.0
    (finding,) = detect(window)
    assert finding.culprit == Culprit(host="node3")
    assert (finding.cause, finding.reason) == (Cause.STRAGGLER, Reason.HOST_STALL)
    assert finding.since_ns == GRID.end_ns - 3 * GRID.step_ns
    assert finding.evidence[0].value == pytest.approx(0.5)
    assert finding.evidence[0].labels == {"host": "node3", "mode": "steal"}


@pytest.mark.parametrize(
    ("reading", "harmless", "grave"),
    [
        ("pressure_io_stalled_seconds_total", 0.02, 0.2),
        ("pressure_memory_stalled_seconds_total", 0.01, 0.2),
        ("pressure_cpu_waiting_seconds_total", 0.1, 0.7),
        ("major_faults_total", 100.0, 9_000.0),
    ],
)
def test_waiting_counts_from_where_it_hurts(reading: str, harmless: float, grave: float) -> None:
    window = machines(8)
    host_values(window, reading)[BAD, -3:] = harmless
    assert detect(window) == []
    host_values(window, reading)[BAD, -3:] = grave
    (finding,) = detect(window)
    assert finding.culprit == Culprit(host="node3")


def test_what_all_hosts_do_together_accuses_none() -> None:
    window = machines(8)
    host_values(window, "pressure_io_stalled_seconds_total")[:, -4:] = 0.4
    host_values(window, DATA)[:, 10:12] = 5.0
    assert detect(window) == []


def test_peers_that_differ_much_hide_what_differs_as_much() -> None:
    window = machines(8)
    values = host_values(window, "pressure_cpu_waiting_seconds_total")
    values[:] = np.linspace(0.0, 0.6, 8)[:, None]
    assert detect(window) == []


def test_data_that_comes_late_on_a_quiet_host_is_data_loading() -> None:
    window = machines(8)
    host_values(window, DATA)[BAD, -3:] = 2.4
    (finding,) = detect(window)
    assert finding.reason is Reason.DATA_LOADING
    assert finding.evidence[0].value == pytest.approx(0.3)
    assert finding.evidence[0].labels == {"host": "node3", "phase": "data"}


def test_data_that_comes_late_on_a_stalled_host_is_its_stall() -> None:
    window = machines(8)
    host_values(window, DATA)[BAD, -3:] = 2.4
    host_values(window, "pressure_io_stalled_seconds_total")[BAD, -3:] = 0.3
    (finding,) = detect(window)
    assert finding.reason is Reason.HOST_STALL
    assert len(finding.evidence) == 2


def test_one_slow_batch_is_no_fault() -> None:
    window = machines(8)
    host_values(window, DATA)[BAD, -1:] = 4.0
    assert detect(window) == []


def test_hosts_without_peers_are_held_against_their_past() -> None:
    window = machines(2, jobs=2)
    host_values(window, "pressure_io_stalled_seconds_total")[0] = 0.3
    host_values(window, "pressure_io_stalled_seconds_total")[1, -4:] = 0.3
    assert [one.culprit.host for one in detect(window)] == ["node1"]


def test_the_order_of_rows_changes_nothing() -> None:
    window = machines(8, jobs=2)
    host_values(window, "pressure_io_stalled_seconds_total")[[2, BAD], -3:] = 0.3
    assert len(detect(window)) == 2
    assert sorted(map(repr, detect(reordered(window)))) == sorted(map(repr, detect(window)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 0.0])
def test_garbage_neither_raises_nor_accuses(value: float) -> None:
    window = machines()
    for one in window.hosts.readings.values():
        one.values[:] = value
    assert detect(window) == []
    assert detect(machines(hosts=0)) == []
