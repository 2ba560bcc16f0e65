"""A simulated cluster in trouble for the built-in page; the service's clock stands at its end.

Whatever a view asks about now is answered as if the run had just ended: incidents are open, jobs
run, hosts report. The browser's clock must stand there too (`tests.stands.browser` sees to it).

To look at the page with it, without Vite:

    make page && python -m tests.worlds.page_data --serve FOLDER

It prints the address and when the data begins and ends. Nothing sets the clock of a browser that a
person opens, so add `?from=…&to=…` to views that have a range.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from api.base.metrics import ServiceMetrics
from api.data.ingest.own import OwnSamples
from api.http.settings import ServiceSettings
from api.oncall.evaluate import changes, lead, task
from api.oncall.evaluate.rows import RowWriter, placed
from api.oncall.evaluate.series import FoundSeries
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from simulator.engine import Simulation
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.score.evaluate import Incidents
from simulator.score.simulated_service import SimulatedService
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric
from tests.stands.service import InProcess, in_process
from tests.tools.kept import kept
from tests.worlds.grafana_data import DataSet, Trouble, scenario_of
from tests.worlds.grafana_supplement import Supplement
from tests.worlds.incidents import Teller

SEED = 5
LOOK_S = 20.0
START_S = 1_794_733_200
"""When it begins: always the same, so that pictures of it are, too."""
FOR_GOOD_S = 1e6
CULPRIT_HOST = 2
CULPRIT = f"node{CULPRIT_HOST:04}"
"""Its GPU is too hot from a while before the end on: what a person must find."""
VICTIM_JOB = "vision"

DATA = DataSet(
    name="page",
    cluster=ClusterSpec(
        topology="rail",
        hosts=6,
        gpus_per_host=2,
        nics_per_host=2,
        speed="400GbE",
        fabric=Fabric.ROCE,
        hosts_per_leaf=3,
    ),
    jobs=(
        JobSpec(
            name="pretrain",
            hosts=(0, 1, 3, 4),
            tensor=2,
            compute_seconds=2.0,
            gradient_bytes=24 << 30,
        ),
        JobSpec(name="vision", hosts=(2, 5), tensor=1, compute_seconds=1.5),
    ),
    troubles=(
        Trouble("thermal_throttle", 80.0, 160.0, host=1, strength=0.9),
        Trouble("link_flap", 210.0, 240.0),
        Trouble("slow_receiver", 300.0, FOR_GOOD_S),
        Trouble("thermal_throttle", 340.0, FOR_GOOD_S, host=CULPRIT_HOST, strength=0.9),
    ),
    seconds=480,
)
END_S = START_S + DATA.seconds


# --- making it ------------------------------------------------------------------------------------


async def play(folder: Path) -> None:
    """Let it happen before the service's own parts, on simulated time."""
    simulation = Simulation(scenario_of(DATA, START_S))
    service = SimulatedService(folder, float(START_S))
    evaluator, said, series = Incidents(service), RowWriter(service.store), FoundSeries()
    own = OwnSamples(service.commit)
    supplement = Supplement(simulation.topology, DATA.name, START_S, ServiceMetrics(), {})
    reporter = Reporter(
        simulation.topology, cluster=DATA.name, start_unix_ns=START_S * NS, seed=SEED
    )
    looked_s = float(START_S)
    async with service.running():
        for snapshot in simulation.run():
            now_s = START_S + snapshot.time_s
            await service.work(now_s, list(reporter.batches(snapshot)))
            if now_s - looked_s < LOOK_S and now_s < END_S:
                continue
            looked_s, now_ns = now_s, round(now_s * NS)
            found = evaluator.look(now_ns)
            assert found is not None, "the agents of this world are on time"
            rows = placed(found.verdicts, found.incident_of, found.incidents)
            said.write(now_ns, found.findings, rows)
            await own.write(series.samples(now_ns, found.findings, found.incidents))
            await own.write(supplement.samples(now_ns))


# --- serving it -----------------------------------------------------------------------------------


class StageClock:
    """The service's: it stands where the data ends until a test moves it."""

    def __init__(self) -> None:
        self.now_s = float(END_S)

    def __call__(self) -> float:
        return self.now_s


class Stage:
    """The service with the data, and a `Teller` that gives it more verdicts."""

    def __init__(self, service: InProcess, clock: StageClock) -> None:
        self.service = service
        self.clock = clock
        self.url = str(service.client.base_url).rstrip("/")
        self._teller = Teller(service.inventory, service.store)
        self._now_s = float(END_S)

    def say(self, *verdicts: Verdict) -> None:
        """Give these verdicts, a second after those before."""
        self._now_s += 1
        self._teller.say(int(self._now_s * NS), *verdicts)


@contextlib.contextmanager
def served(workspace: Path) -> Iterator[Stage]:
    """A service over a copy of the data. One in a process at a time (chDB)."""
    data = workspace / "data"
    shutil.copytree(kept(__spec__.name, DATA.name), data, symlinks=True)
    settings = ServiceSettings(data=str(data), rules_pack=False, own_numbers=False)
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            # Looks once, when it starts; then only the test gives verdicts.
            (task, "EVALUATE_SECONDS", 1e6),
            (lead, "RENEW_SECONDS", 1e6),
            (changes, "FOLLOW_SECONDS", 0.1),
        ):
            stack.enter_context(patch.object(place, name, value))
        clock = StageClock()
        service = in_process(
            data, clock=clock, settings=settings, store_url=f"chdb://{data / 'store'}"
        )
        yield Stage(stack.enter_context(service), clock)


def main(arguments: Sequence[str]) -> int:
    """Make the data, or serve it until this is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--make", nargs=2, metavar=("NAME", "FOLDER"), help="make it there and end")
    parser.add_argument("--serve", metavar="FOLDER", help="serve a copy of it in this folder")
    chosen = parser.parse_args(arguments)
    if chosen.make:
        asyncio.run(play(Path(chosen.make[1])))
    if chosen.serve:
        with served(Path(chosen.serve)) as stage, contextlib.suppress(KeyboardInterrupt):
            print(stage.url, START_S, END_S, flush=True)  # noqa: T201 - for the person who started this
            while True:
                time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
