"""File servers that answer slowly, hosts whose own way to them is slow, and what only looks so."""

import msgspec
import numpy as np
import pytest

from alerts.detectors import host_stall
from alerts.detectors.slow_storage import detect
from alerts.judge.verdict import judge
from alerts.window.columns import Step
from alerts.window.model import Readings, Window
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.machines import CELLS, GRID, host_values, machines, reordered

HOSTS = 8
BAD = 3
STORAGE = "filer1:/data"
READS, RESPONSE = f"mount_reads_total:{STORAGE}", f"mount_read_response_seconds_total:{STORAGE}"
DATA = "step_phase_seconds_total:data"
WELL, SLOW = 0.002, 0.1
NOW = slice(-6, None)


def added(window: Window) -> dict[str, Readings]:
    """The readings of hosts, to add some to."""
    readings = window.hosts.readings
    assert isinstance(readings, dict)
    return readings


def with_mount(window: Window, storage: str = STORAGE, kind: str = "read") -> Window:
    """All hosts read a hundred times a second, and are answered within two milliseconds."""
    for name, value in ((f"{kind}s_total", 100.0), (f"{kind}_response_seconds_total", 100 * WELL)):
        added(window)[f"mount_{name}:{storage}"] = Readings(
            metric=f"fabric_mount_{name}",
            row=np.arange(len(window.hosts), dtype=np.int64),
            values=np.full((len(window.hosts), CELLS), value),
            label=storage,
        )
    return window


def answers(
    window: Window, seconds: float, rows: int | slice = slice(None), cells: slice = NOW
) -> None:
    host_values(window, RESPONSE)[rows, cells] = 100 * seconds


def slow_server() -> Window:
    window = with_mount(machines(HOSTS))
    answers(window, SLOW)
    host_values(window, DATA)[:, NOW] = 8 * 0.4
    return window


def with_steps(window: Window, compute_s: float, transfer_s: float) -> Window:
    """A step a second; in the last thirty seconds with so much time outside and inside."""
    steps: list[Step] = []
    at = GRID.start_ns
    while at < GRID.end_ns - NS:
        is_late = at >= GRID.end_ns - 30 * NS
        compute, transfer = (compute_s, transfer_s) if is_late else (0.8, 0.2)
        length = int((compute + transfer) * NS)
        steps.append(
            Step(number=len(steps), start_ns=at, end_ns=at + length, ranks=64,
                 compute_ns=int(compute * NS), wait_ns=0, transfer_ns=int(transfer * NS),
                 last_rank=None)
        )  # fmt: skip
        at += length
    job = msgspec.structs.replace(window.jobs[0], steps=steps)
    return msgspec.structs.replace(window, jobs=[job])


# The server --------------------------------------------------------------------------------------


def test_a_server_that_answers_as_ever_is_not_accused() -> None:
    assert detect(with_mount(machines(HOSTS))) == []
    assert detect(machines(HOSTS)) == []


def test_a_mount_that_is_slow_on_all_hosts_accuses_the_server_and_no_host() -> None:
    (finding,) = detect(slow_server())
    assert finding.cause is Cause.SLOW_STORAGE
    assert finding.culprit == Culprit(job="job0", storage=STORAGE)
    assert not finding.is_context
    assert finding.since_ns == GRID.end_ns - 6 * GRID.step_ns
    assert finding.evidence[0].value == pytest.approx(SLOW)
    assert finding.evidence[0].baseline == pytest.approx(WELL)
    assert finding.evidence[1].value == pytest.approx(0.4)
    assert "8 of 8 hosts" in finding.ruled_out[0].why


def test_the_verdict_names_mount_and_server() -> None:
    (verdict,) = judge(slow_server())
    assert verdict.cause is Cause.SLOW_STORAGE
    assert verdict.culprit.storage == STORAGE
    assert not verdict.culprit.host
    assert "the server filer1 (mount filer1:/data)" in verdict.summary.lower()
    assert "filer1" in verdict.action


def test_a_rank_that_waits_for_the_slow_server_is_no_verdict_of_its_own() -> None:
    """Of a server that is slow for all, one host is always answered last."""
    window = slow_server()
    host_values(window, DATA)[BAD, NOW] = 8 * 0.5
    verdicts = judge(window)
    assert [one.cause for one in verdicts] == [Cause.SLOW_STORAGE]


def test_writes_are_felt_in_checkpoints() -> None:
    window = with_mount(machines(HOSTS), kind="write")
    added(window)["step_phase_seconds_total:checkpoint"] = msgspec.structs.replace(
        window.hosts.readings[DATA], values=np.zeros((HOSTS, CELLS)), label="checkpoint"
    )
    values = window.hosts.readings[f"mount_write_response_seconds_total:{STORAGE}"].values
    values[:, NOW] = 100 * SLOW
    assert detect(window)[0].is_context
    host_values(window, "step_phase_seconds_total:checkpoint")[:, NOW] = 8 * 0.5
    (finding,) = detect(window)
    assert not finding.is_context
    assert "writing checkpoints" in finding.evidence[1].text


def test_without_marks_steps_that_grew_outside_of_collectives_show_it_and_its_cost() -> None:
    window = with_mount(machines(HOSTS))
    answers(window, SLOW)
    (finding,) = detect(with_steps(window, compute_s=1.6, transfer_s=0.2))
    assert not finding.is_context
    assert finding.cost is not None
    assert finding.cost.lost_share == pytest.approx(1 - 1.0 / 1.8, abs=0.02)
    assert finding.cost.gpu_hours == pytest.approx(30 * (1 - 1 / 1.8) * 64 / 3600, rel=0.1)


def test_a_network_that_is_slow_at_the_same_time_is_not_blamed_on_the_server() -> None:
    window = with_mount(machines(HOSTS))
    answers(window, SLOW)
    (finding,) = detect(with_steps(window, compute_s=0.8, transfer_s=1.0))
    assert finding.is_context
    assert [one for one in judge(window) if one.cause is Cause.SLOW_STORAGE] == []


def test_a_server_that_is_slow_and_that_no_job_feels_is_no_verdict() -> None:
    window = with_mount(machines(HOSTS))
    answers(window, SLOW)
    (finding,) = detect(window)
    assert finding.is_context
    assert judge(window) == []


def test_two_exports_of_one_server_are_one_finding() -> None:
    window = with_mount(slow_server(), "filer1:/home")
    window.hosts.readings["mount_read_response_seconds_total:filer1:/home"].values[:, NOW] = 5.0
    (finding,) = detect(window)
    assert finding.culprit.storage == STORAGE
    assert [one.storage for one in finding.accomplices] == ["filer1:/home"]


@pytest.mark.parametrize("seconds", [WELL * 2.9, WELL + 0.004])
def test_a_busy_server_is_no_slow_one(seconds: float) -> None:
    window = with_mount(machines(HOSTS))
    answers(window, seconds)
    assert detect(window) == []


def test_few_requests_say_nothing() -> None:
    window = slow_server()
    host_values(window, READS)[:, NOW] = 0.5
    assert detect(window) == []


def test_a_gap_is_no_zero() -> None:
    window = slow_server()
    host_values(window, READS)[:, :] = np.nan
    assert detect(window) == []


def test_the_order_of_hosts_changes_nothing() -> None:
    window = slow_server()
    one, other = detect(window), detect(reordered(window))
    assert [(each.cause, each.culprit, each.strength) for each in one] == [
        (each.cause, each.culprit, each.strength) for each in other
    ]


# One host ----------------------------------------------------------------------------------------


def test_one_host_that_waits_for_what_its_peers_get_at_once_has_a_slow_way() -> None:
    window = with_mount(machines(HOSTS))
    answers(window, SLOW, BAD)
    (finding,) = detect(window)
    assert (finding.cause, finding.reason) == (Cause.STRAGGLER, Reason.STORAGE)
    assert finding.culprit == Culprit(host="node3")
    assert finding.evidence[0].labels == {"storage": STORAGE, "host": "node3"}


def test_a_slow_loader_on_one_host_is_not_blamed_on_the_mount_that_all_share() -> None:
    window = with_mount(machines(HOSTS))
    host_values(window, DATA)[BAD, NOW] = 8 * 0.4
    assert detect(window) == []
    (finding,) = host_stall.detect(window)
    assert finding.reason is Reason.DATA_LOADING
    (out,) = finding.ruled_out
    assert out.what == Reason.STORAGE
    assert STORAGE in out.why


def test_a_loader_behind_a_slow_mount_is_not_said_to_have_a_good_one() -> None:
    window = with_mount(machines(HOSTS))
    host_values(window, DATA)[BAD, NOW] = 8 * 0.4
    answers(window, SLOW, BAD)
    (finding,) = host_stall.detect(window)
    assert finding.ruled_out == ()


def test_half_of_the_hosts_are_no_single_host_and_not_all_of_them() -> None:
    """Two servers behind one name: whose fault it is these readings do not say."""
    window = with_mount(machines(HOSTS))
    answers(window, SLOW, slice(0, HOSTS // 2))
    host_values(window, DATA)[: HOSTS // 2, NOW] = 8 * 0.4
    assert detect(window) == []


def test_a_job_on_one_host_accuses_neither() -> None:
    window = with_mount(machines(1))
    answers(window, SLOW)
    host_values(window, DATA)[:, NOW] = 8 * 0.4
    assert detect(window) == []
