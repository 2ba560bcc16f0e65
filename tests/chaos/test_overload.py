"""A machine that is far too busy: verdicts are late or missing then, and name no innocent.

Each fault strikes while two busy loops a core take the machine away from the service, and the
cluster is simulated on the same machine. What no incident names must have been shown as not judged,
or be named once the machine is free again.
"""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from simulator.score.marks import is_right
from tests.chaos.conftest import Report
from tests.chaos.ledger import Ledger, Tally, culprit_text, is_innocent, read_incidents
from tests.chaos.stand import opened_data, paged, standing, write_settings
from tests.stands.service import ServiceProcess

pytestmark = pytest.mark.slow

FAULTS = (
    *("bad_cable", "buffer_pressure", "gpu_death", "gpu_ecc", "hang_not_finished"),
    *("hang_not_launched", "host_steal", "incast", "link_flap", "nic_dead", "page_cache_stall"),
    *("pcie_downtrain", "power_throttle", "rate_downgrade", "slow_loader", "slow_nic"),
    *("slow_receiver", "spine_loss", "storage_neighbour", "thermal_throttle"),
)
"""All that a cluster of this kind can have, and that have a culprit."""
LOOPS_PER_CORE = 2
BUSY_SECONDS = 80.0
"""How long a fault lasts on the busy machine."""
LOOK_SECONDS = 3.0
SEED = 23
INCOMPLETE = re.compile(
    r'^fabric_service_evaluations_total\{outcome="incomplete"\} ([1-9]\S*)$'
    r"|^fabric_service_evaluation_behind_seconds ([1-9]\S*)$"
    r'|^fabric_service_evaluation_hosts\{state="outstanding"\} ([1-9]\S*)$'
    r"|^fabric_service_verdicts_held_back_total ([1-9]\S*)$",
    re.MULTILINE,
)
"""How the service's own numbers show that it judges late, or not at all."""


@contextlib.contextmanager
def busy_machine() -> Iterator[None]:
    count = LOOPS_PER_CORE * (os.cpu_count() or 1)
    words = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(words) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


class Onlooker(threading.Thread):
    """Reads the service's own numbers now and then: whether it showed that it was late."""

    def __init__(self, service: ServiceProcess) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._ends = threading.Event()
        self.is_late = False

    def run(self) -> None:
        with httpx.Client(base_url=self._service.url, timeout=60) as client:
            while not self._ends.wait(LOOK_SECONDS):
                with contextlib.suppress(httpx.HTTPError):
                    self.is_late |= bool(INCOMPLETE.search(client.get("/metrics").text))

    def end(self) -> None:
        self._ends.set()
        self.join()


@pytest.mark.rotating(5 * len(FAULTS))
@pytest.mark.parametrize("fault", FAULTS)
def test_overload(fault: str, tmp_path: Path, report: Report) -> None:
    ledger, tally, data = Ledger(), Tally(), tmp_path / "data"
    with paged(ledger) as url:
        service = ServiceProcess(data, "--config", str(write_settings(tmp_path, url)))
        with service, standing([service], ledger, seed=SEED, fault=fault) as stand:
            onlooker = Onlooker(service)
            onlooker.start()
            with busy_machine():
                stand.until(BUSY_SECONDS)
            stand.cluster.end()
            onlooker.end()
            assert service.stop() == 0
    truth = stand.cluster.truth
    with opened_data(data) as (store, inventory):
        ledger.check_rows(store, tally)
        incidents = read_incidents(inventory)
    named = [one.verdict.culprit for one in incidents]
    named += [turn.culprit for one in incidents for turn in one.history]
    right = [one.verdict for one in incidents if is_right(one.verdict, truth)]
    if right:
        tally.verdict = f"{right[0].cause} {culprit_text(right[0].culprit)}"
    elif incidents:
        tally.verdict = f"{incidents[0].verdict.cause}, not the cause"
    else:
        tally.verdict = "not judged" if onlooker.is_late else "nothing"
    report(tally)
    wrong = [culprit for culprit in named if is_innocent(culprit, truth)]
    assert not wrong, f"innocent: {wrong}; the truth: {truth}"
    assert right or onlooker.is_late, f"{truth.fault} was missed, and no number showed why"
