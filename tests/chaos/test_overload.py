"""A machine that is far too busy: verdicts are late or missing then, and name no innocent.

Each fault strikes while two busy loops a core take the machine away from the service, and the
cluster is simulated on the same machine. While no incident names the fault, the service must show
that it is late.
"""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
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
DUE_SECONDS = 45.0
"""A service that shows for so long that it judges all, and in time, should name the fault: on a
free machine nine of ten are named within fifteen."""
ROUND_LATE_SECONDS = 15.0
"""Three rounds: the page warns of a last look that is older."""
BEHIND = re.compile(
    r'^(?:fabric_service_evaluation_behind_seconds|fabric_service_evaluation_hosts\{state="outstanding"\}'
    r") ([1-9]\S*)$",
    re.MULTILINE,
)
"""Data are late."""
LEFT_OUT = re.compile(
    r'^(fabric_service_evaluations_total\{outcome="incomplete"\}'
    r"|fabric_service_verdicts_held_back_total) (\S+)$",
    re.MULTILINE,
)
"""Rounds and verdicts that waited. Counters: what they gain from one look to the next."""
LAST_ROUND = re.compile(
    r'^fabric_service_last_success_time_seconds\{work="evaluation"\} (\S+)$', re.MULTILINE
)


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
    """Reads the service's own numbers now and then: for how long it showed that all is judged."""

    def __init__(self, service: ServiceProcess) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._ends = threading.Event()
        self._left_out: dict[str, str] = {}
        self.clear_seconds = 0.0
        """The longest time without a sign of being late. No answer is no such sign, and none of
        being in time either: it ends the time."""

    def run(self) -> None:
        clear_since: float | None = None
        with httpx.Client(base_url=self._service.url, timeout=60) as client:
            while not self._ends.wait(LOOK_SECONDS):
                now = time.monotonic()
                if self._is_late(client):
                    clear_since = None
                    continue
                clear_since = clear_since or now
                self.clear_seconds = max(self.clear_seconds, now - clear_since)

    def _is_late(self, client: httpx.Client) -> bool:
        try:
            text = client.get("/metrics").text
        except httpx.HTTPError:
            return True
        before, self._left_out = self._left_out, dict(LEFT_OUT.findall(text))
        last = LAST_ROUND.search(text)
        is_slow = last is None or time.time() - float(last[1]) > ROUND_LATE_SECONDS
        return is_slow or bool(BEHIND.search(text)) or self._left_out != before

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
            with busy_machine():
                stand.until(0.0)
                onlooker.start()
                stand.until(BUSY_SECONDS)
                onlooker.end()
            stand.cluster.end()
            assert service.stop() == 0
    truth = stand.cluster.truth
    with opened_data(data) as (store, inventory):
        ledger.check_rows(store, tally)
        incidents = read_incidents(inventory)
    ledger.check_pages(incidents, tally, least=0)
    named = [one.verdict.culprit for one in incidents]
    named += [turn.culprit for one in incidents for turn in one.history]
    right = [one.verdict for one in incidents if is_right(one.verdict, truth)]
    if right:
        tally.verdict = f"{right[0].cause} {culprit_text(right[0].culprit)}"
    elif incidents:
        tally.verdict = f"{incidents[0].verdict.cause}, not the cause"
    else:
        tally.verdict = f"not judged, {onlooker.clear_seconds:.0f} s clear"
    report(tally)
    wrong = [culprit for culprit in named if is_innocent(culprit, truth)]
    assert not wrong, f"innocent: {wrong}; the truth: {truth}"
    assert right or onlooker.clear_seconds < DUE_SECONDS, (
        f"{truth.fault} was missed; no number was late for {onlooker.clear_seconds:.0f} s"
    )
