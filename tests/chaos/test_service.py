"""One service with an embedded store: killed, stopped, out of disk, with a clock that is wrong."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import disk, io_errors
from tests.chaos.clock import PEER as FAKETIME
from tests.chaos.clock import FakeClock
from tests.chaos.conftest import PARTS, Report
from tests.chaos.stand import Stand, run_case
from tests.stands.service import eventually

pytestmark = pytest.mark.slow

STOP_SECONDS = 20.0
FULL_SECONDS = 15.0
HOUR = 3_600
MINUTES = 240
"""Less than ACCEPT_FUTURE_SECONDS: such samples are taken."""
FOR_GOOD = 1e9
WRONG_SECONDS = 30.0
"""Until a host's clock is set right again."""


def killed(stand: Stand) -> None:
    """Before there is a verdict, while it is made, and after its page."""
    for age_s in (2.0, 9.0, 16.0):
        stand.until(age_s)
        stand.service.kill()
        stand.service.start()
    stand.until_paged()
    stand.service.kill()
    stand.service.start()
    assert stand.cluster.failures, "no agent met a kill"


def stopped(stand: Stand) -> None:
    """As by a debugger, a hypervisor that moves the machine, or a laptop's lid."""
    stand.until(6.0)
    os.kill(stand.service.pid, signal.SIGSTOP)
    time.sleep(STOP_SECONDS)
    os.kill(stand.service.pid, signal.SIGCONT)


def stopped_after_the_page(stand: Stand) -> None:
    stand.until_paged()
    stopped(stand)


def host_ahead(stand: Stand) -> None:
    stand.until(1.0)
    stand.cluster.step_clock(innocent(stand), HOUR, WRONG_SECONDS)


def host_behind(stand: Stand) -> None:
    stand.until(1.0)
    stand.cluster.step_clock(innocent(stand), -HOUR, WRONG_SECONDS)


def host_stays_ahead(stand: Stand) -> None:
    """Nothing sets it right: what it sends is refused, and the others are judged."""
    stand.cluster.step_clock(innocent(stand), HOUR, FOR_GOOD)


def host_stays_behind(stand: Stand) -> None:
    stand.cluster.step_clock(innocent(stand), -HOUR, FOR_GOOD)


def host_is_minutes_ahead(stand: Stand) -> None:
    """By less than the service refuses: its samples lie in the future of all others."""
    stand.cluster.step_clock(innocent(stand), MINUTES, FOR_GOOD)


def host_is_minutes_behind(stand: Stand) -> None:
    stand.cluster.step_clock(innocent(stand), -MINUTES, FOR_GOOD)


def innocent(stand: Stand) -> int:
    """A host that has no part in the fault."""
    topology = stand.cluster.simulation.topology
    guilty = {culprit.host for culprit in stand.cluster.truth.culprits}
    return next(host for host in range(topology.hosts) if topology.host_name(host) not in guilty)


CASES: dict[str, tuple[Callable[[Stand], None], str]] = {
    "killed": (killed, "slow_nic"),
    "stopped": (stopped, "bad_cable"),
    "stopped_after_the_page": (stopped_after_the_page, "host_steal"),
    "host_an_hour_ahead": (host_ahead, "slow_nic"),
    "host_an_hour_behind": (host_behind, "slow_nic"),
    # Faults that can be told without that host: a slow NIC in a ring, and a bad cable, are found by
    # all members' records, and with one of six hosts in another time they may not be named.
    "host_stays_ahead": (host_stays_ahead, "thermal_throttle"),
    "host_stays_behind": (host_stays_behind, "thermal_throttle"),
    "host_is_minutes_ahead": (host_is_minutes_ahead, "bad_cable"),
    "host_is_minutes_behind": (host_is_minutes_behind, "thermal_throttle"),
}


@pytest.mark.rotating(PARTS)
@pytest.mark.parametrize("name", CASES)
def test_service(name: str, tmp_path: Path, report: Report) -> None:
    case, fault = CASES[name]
    report(run_case(tmp_path, case, seed=1, fault=fault))


@pytest.mark.rotating(PARTS)
@pytest.mark.skipif(bool(disk.why_not()), reason=disk.why_not() or "it can")
def test_disk_full_and_room_again(tmp_path: Path, report: Report) -> None:
    with disk.small_disk(tmp_path / "data") as small:

        def case(stand: Stand) -> None:
            stand.until(6.0)
            small.fill()
            eventually(lambda: not stand.service.is_ready(), "a service that is not ready")
            time.sleep(FULL_SECONDS)
            small.make_room()
            eventually(stand.service.is_ready, "ready again")

        report(
            run_case(
                tmp_path,
                case,
                seed=5,
                fault="slow_nic",
                inside=small.inside,
                fetch=lambda _: small.copy_to(tmp_path / "copy"),
            )
        )


@pytest.mark.rotating(PARTS)
@pytest.mark.peer(io_errors.PEER)
def test_writes_that_fail_with_eio(tmp_path: Path, report: Report) -> None:
    if reason := io_errors.why_not():
        pytest.skip(reason)

    def case(stand: Stand) -> None:
        stand.until(6.0)
        failures = stand.cluster.failures
        with io_errors.failing(stand.service.pid):
            eventually(lambda: stand.cluster.failures > failures, "a batch that is not taken")
            time.sleep(FULL_SECONDS)
        eventually(stand.service.is_ready, "ready again")

    report(run_case(tmp_path, case, seed=5, fault="slow_nic"))


@pytest.mark.rotating(PARTS)
@pytest.mark.peer(FAKETIME)
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_clock_of_the_service_steps_and_steps_back(
    step: int, tmp_path: Path, report: Report
) -> None:
    clock = FakeClock(tmp_path / "clock")

    def case(stand: Stand) -> None:
        stand.until_paged()
        clock.step(step)
        time.sleep(STOP_SECONDS)
        clock.step(0)

    tally = run_case(tmp_path, case, seed=1, fault="slow_nic", inside=clock.inside)
    report(tally)
    assert tally.refused == 0, "honest samples, refused for good by a clock that was wrong"
