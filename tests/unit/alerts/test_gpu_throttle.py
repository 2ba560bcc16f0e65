"""GPUs that slow down: who is accused, and of what."""

import numpy as np
import pytest

from alerts.detectors.gpu_throttle import detect
from alerts.window.model import Window
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.machines import GPUS_PER_HOST, GRID, gpu_values, machines, reordered

SLOW = 2 * GPUS_PER_HOST + 3


def power_capped(cells: int = 4, row: int = SLOW) -> Window:
    """One GPU with a power limit of its own for the window's last cells."""
    window = machines()
    gpu_values(window, "sm_clock_hertz")[row, -cells:] = 1410e6
    gpu_values(window, "clock_event_reasons")[row, -cells:] = 0x4
    gpu_values(window, "power_violation_seconds_total")[row, -cells:] = 0.7
    gpu_values(window, "power_limit_watts")[row, -cells:] = 318.0
    return window


def test_healthy_gpus_are_not_accused() -> None:
    assert detect(machines()) == []


def test_a_gpu_with_a_power_limit_of_its_own_is_named_with_its_evidence() -> None:
    (finding,) = detect(power_capped())
    assert finding.culprit == Culprit(host="node2", gpu=3)
    assert (finding.cause, finding.reason) == (Cause.STRAGGLER, Reason.GPU_THROTTLED)
    assert finding.since_ns == GRID.end_ns - 4 * GRID.step_ns
    assert finding.until_ns is None
    assert finding.strength > 0.9
    evidence = {one.metric: (one.value, one.baseline) for one in finding.evidence}
    assert evidence["fabric_gpu_sm_clock_hertz"] == (1410e6, 1980e6)
    assert evidence["fabric_gpu_power_violation_seconds_total"] == (0.7, 0.0)
    assert evidence["fabric_gpu_power_limit_watts"] == (318.0, 700.0)


def test_one_reading_is_enough_where_reason_and_violation_agree() -> None:
    assert len(detect(power_capped(cells=1))) == 1


def test_one_reading_of_a_low_clock_alone_is_not_enough() -> None:
    window = machines()
    gpu_values(window, "sm_clock_hertz")[SLOW, -1:] = 1410e6
    assert detect(window) == []
    gpu_values(window, "sm_clock_hertz")[SLOW, -2:] = 1410e6
    (finding,) = detect(window)
    assert finding.strength < 0.7


def test_what_is_over_has_an_end() -> None:
    window = machines()
    gpu_values(window, "sm_clock_hertz")[SLOW, 5:10] = 1410e6
    (finding,) = detect(window)
    assert finding.until_ns == GRID.start_ns + 10 * GRID.step_ns


def test_an_equal_power_cap_accuses_no_gpu() -> None:
    window = power_capped()
    for reading in ("sm_clock_hertz", "clock_event_reasons", "power_violation_seconds_total"):
        values = gpu_values(window, reading)
        values[:] = values[SLOW]
    assert detect(window) == []


def test_silicon_that_differs_under_a_common_cap_accuses_no_gpu() -> None:
    window = machines()
    clocks = gpu_values(window, "sm_clock_hertz")
    clocks[:] = np.linspace(1500e6, 1700e6, len(clocks))[:, None]
    gpu_values(window, "clock_event_reasons")[:] = 0x4
    gpu_values(window, "power_violation_seconds_total")[:] = 0.9
    assert detect(window) == []


def test_a_gpu_with_nothing_to_do_may_lower_its_clock() -> None:
    window = machines()
    gpu_values(window, "sm_clock_hertz")[SLOW, -6:] = 345e6
    gpu_values(window, "utilization_ratio")[SLOW, -6:] = 0.0
    assert detect(window) == []
    gpu_values(window, "utilization_ratio")[SLOW, -6:] = np.nan
    gpu_values(window, "clock_event_reasons")[SLOW, -6:] = 0x1
    assert detect(window) == []


def test_less_power_while_waiting_for_others_is_no_throttle() -> None:
    window = machines()
    gpu_values(window, "temperature_celsius")[SLOW] = 40.0
    assert detect(window) == []


def test_most_gpus_of_a_host_at_once_are_the_hosts() -> None:
    window = machines()
    rows = slice(GPUS_PER_HOST, 2 * GPUS_PER_HOST - 1)
    gpu_values(window, "sm_clock_hertz")[rows, -4:] = 1000e6
    gpu_values(window, "clock_event_reasons")[rows, -4:] = 0x80
    (finding,) = detect(window)
    assert finding.culprit == Culprit(host="node1")
    assert [one.gpu for one in finding.accomplices] == list(range(GPUS_PER_HOST - 1))


def test_few_gpus_are_held_against_their_past_and_only_for_a_reason_of_their_own() -> None:
    window = machines(hosts=1)
    for name, values in window.gpus.readings.items():
        if name not in {"sm_clock_max_hertz", "temperature_slowdown_celsius"}:
            values.values[3:] = np.nan
    gpu_values(window, "sm_clock_hertz")[1, -4:] = 1410e6
    gpu_values(window, "clock_event_reasons")[1, -4:] = 0x4
    assert detect(window) == []
    gpu_values(window, "clock_event_reasons")[1, -4:] = 0x40
    assert [one.culprit.gpu for one in detect(window)] == [1]


def test_a_gpu_about_to_slow_down_is_context_and_a_warm_aisle_is_nothing() -> None:
    window = machines()
    heat = gpu_values(window, "temperature_celsius")
    heat[:] = 87.0
    assert detect(window) == []
    heat[:] = 66.0
    heat[SLOW, -3:] = 87.0
    (finding,) = detect(window)
    assert finding.is_context
    assert finding.culprit.gpu == 3


def test_the_order_of_rows_changes_nothing() -> None:
    assert detect(reordered(power_capped())) == detect(power_capped())


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 0.0])
def test_garbage_neither_raises_nor_accuses(value: float) -> None:
    window = machines()
    for one in window.gpus.readings.values():
        one.values[:] = value
    assert detect(window) == []
    assert detect(machines(hosts=0)) == []
