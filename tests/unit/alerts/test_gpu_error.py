"""GPUs with errors: which of them accuse, how clearly, and which are a hang's reason."""

import numpy as np
import pytest

from alerts.detectors.gpu_error import detect
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.machines import GPUS_PER_HOST, GRID, gpu_values, machines, reordered

BAD = GPUS_PER_HOST + 5
WHO = Culprit(host="node1", gpu=5)


def xid(number: int, seconds_before_end: int = 10, **labels: str) -> Event:
    """An XID of the bad GPU."""
    return Event(
        kind="gpu_xid",
        time_ns=GRID.end_ns - seconds_before_end * NS,
        labels={"host": "node1", "gpu": "5", **labels},
        message=f"GPU 5: XID {number}.",
        attributes={"xid": str(number)},
    )


def test_healthy_gpus_are_not_accused() -> None:
    assert detect(machines()) == []


def test_a_storm_of_corrected_errors_is_found_with_its_rate() -> None:
    window = machines()
    gpu_values(window, "ecc_corrected_errors_total")[BAD, -3:] = 300.0
    (finding,) = detect(window)
    assert finding.culprit == WHO
    assert (finding.cause, finding.reason) == (Cause.STRAGGLER, Reason.GPU_ERROR)
    assert finding.since_ns == GRID.end_ns - 3 * GRID.step_ns
    assert (finding.evidence[0].value, finding.evidence[0].baseline) == (300.0, 0.0)


def test_some_corrected_errors_are_ordinary_and_so_is_what_all_have() -> None:
    window = machines()
    gpu_values(window, "ecc_corrected_errors_total")[BAD] = 1.0
    assert detect(window) == []
    gpu_values(window, "ecc_corrected_errors_total")[:] = 40.0
    assert detect(window) == []


@pytest.mark.parametrize("number", [63, 92, 43, 121])
def test_xids_that_the_catalogue_ignores_are_context(number: int) -> None:
    (finding,) = detect(machines(events=(xid(number),)))
    assert finding.is_context


@pytest.mark.parametrize(
    ("number", "cause"),
    [(79, Cause.HANG), (119, Cause.HANG), (48, Cause.STRAGGLER), (64, Cause.STRAGGLER)],
)
def test_grave_xids_accuse_and_some_are_a_hangs_reason(number: int, cause: Cause) -> None:
    (finding,) = detect(machines(events=(xid(number),)))
    assert finding.culprit == WHO
    assert finding.cause is cause
    assert finding.strength >= 0.8
    assert not finding.is_context


def test_an_applications_error_weighs_little() -> None:
    (finding,) = detect(machines(events=(xid(31), xid(31, 5))))
    assert finding.strength < 0.6
    assert finding.evidence[0].value == 2


def test_the_last_xid_is_news_only_when_it_changes() -> None:
    window = machines()
    gpu_values(window, "xid_last")[BAD] = 79.0
    assert detect(window) == []
    gpu_values(window, "xid_last")[BAD, :20] = 0.0
    gpu_values(window, "xid_last")[BAD, 15:22] = np.nan
    (finding,) = detect(window)
    assert finding.since_ns == GRID.start_ns + 22 * GRID.step_ns


def test_a_gpu_that_cannot_be_read_is_gone() -> None:
    window = machines()
    gpu_values(window, "up")[BAD, -2:] = 0.0
    (finding,) = detect(window)
    assert (finding.culprit, finding.cause) == (WHO, Cause.HANG)
    assert finding.until_ns is None


def test_a_gpu_that_is_not_heard_of_while_its_hosts_others_are_is_gone() -> None:
    window = machines()
    window.gpus.seen_ns[BAD] = GRID.end_ns - 40 * NS
    (finding,) = detect(window)
    assert (finding.culprit, finding.cause) == (WHO, Cause.HANG)
    window.gpus.seen_ns[GPUS_PER_HOST : 2 * GPUS_PER_HOST] = GRID.end_ns - 40 * NS
    assert detect(window) == []


def test_states_that_stood_before_are_less_clear_than_new_ones() -> None:
    old, new = machines(), machines()
    gpu_values(old, "row_remap_failed")[BAD] = 1.0
    gpu_values(new, "row_remap_failed")[BAD, -3:] = 1.0
    assert detect(old)[0].strength < detect(new)[0].strength


def test_rows_replaced_after_failures_are_found_when_they_grow() -> None:
    window = machines()
    gpu_values(window, "remapped_rows_uncorrected")[:] = 3.0
    assert detect(window) == []
    gpu_values(window, "remapped_rows_uncorrected")[BAD, -2:] = 4.0
    (finding,) = detect(window)
    assert finding.evidence[0].value == 1.0


def test_several_signs_are_one_finding_and_clearer() -> None:
    window = machines(events=(xid(48), xid(63)))
    gpu_values(window, "ecc_corrected_errors_total")[BAD, -3:] = 300.0
    (finding,) = detect(window)
    assert finding.strength > 0.9
    assert len(finding.evidence) == 3


def test_the_order_of_rows_and_events_changes_nothing() -> None:
    window = machines(events=(xid(48), xid(63)))
    other = machines(events=(xid(63), xid(48)))
    for each in (window, other):
        gpu_values(each, "nvlink_recovery_errors_total")[BAD, -3:] = 1.0
    assert detect(reordered(other)) == detect(window)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_garbage_neither_raises_nor_accuses(value: float) -> None:
    odd = (xid(48, host="unknown"), xid(48, gpu="x"), Event(kind="gpu_xid", time_ns=0, labels={}))
    window = machines(events=odd)
    for one in window.gpus.readings.values():
        one.values[:] = value
    assert detect(window) == []
    assert detect(machines(hosts=0)) == []
