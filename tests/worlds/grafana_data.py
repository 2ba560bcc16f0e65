"""A simulated cluster in trouble, for dashboards: in a store of ours, and in a real Prometheus.

Everything that a board can ask for is there: counters of hosts, GPUs, NICs and switches, records of
collectives and steps and the series made of them, incidents, findings, the whole rule pack with its
recorded series and alerts, and (`tests.worlds.grafana_supplement`) what the simulator has no model
of.

To look at boards while they are written:

    python -m tests.worlds.grafana_data --serve [--port N] [--set infiniband]

It makes the data once and keeps it (`tests.tools.kept`); then it serves it until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from api.base.metrics import ServiceMetrics
from api.data.ingest.own import OwnSamples
from api.http.settings import ServiceSettings
from api.oncall.evaluate.series import FoundSeries
from api.oncall.rules.build import write_pack
from api.oncall.rules.explain import explain_by_incidents
from api.oncall.rules.leads import GroupLeads
from api.oncall.rules.parts import make_rules
from api.oncall.rules.task import Hooks
from api.promql.engine import Engine
from api.promql.values import Dialect
from collector.contract.catalog import load_catalog
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Place
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario, plan
from simulator.score.evaluate import Incidents
from simulator.score.simulated_service import SimulatedService
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric
from tests.stands.service import ServiceProcess
from tests.tools.kept import kept
from tests.worlds.grafana_supplement import Supplement

DAY_S = 86_400
KEPT_SECONDS_MAX = 3 * DAY_S
"""After so long the data is made anew: stores drop what is a week old."""
START_OF_DAY_S = 9 * 3_600
"""Runs begin yesterday at nine, so that the rules' moments are the same whenever it is made."""
TICK_S = 10.0
"""How often agents read and switches are polled."""
LOOK_S = 30.0
"""How often the service gets agents' readings, the evaluator looks, and the supplement writes.
No query comes between two looks, so that the readings may be stored together."""
RULES_S = 300.0
"""How often the rules run. The pack says 30 s, but a round takes eight seconds of a processor."""
SEED = 5


@dataclass(frozen=True)
class Trouble:
    """A fault, when it begins and ends, and on which hosts where it must not be left to chance."""

    fault: str
    start_s: float
    end_s: float
    host: int | None = None
    strength: float | None = None


@dataclass(frozen=True)
class DataSet:
    """A cluster, its jobs and what happens to them."""

    name: str
    cluster: ClusterSpec
    jobs: tuple[JobSpec, ...]
    troubles: tuple[Trouble, ...]
    seconds: int


ROCE = DataSet(
    name="roce",
    cluster=ClusterSpec(
        topology="rail",
        hosts=7,
        gpus_per_host=4,
        nics_per_host=2,
        speed="400GbE",
        fabric=Fabric.ROCE,
        hosts_per_leaf=4,
        # Two uplinks, of which a ring's flow takes one: an uneven spread to show.
        oversubscription=2.0,
    ),
    jobs=(
        JobSpec(
            name="pretrain",
            hosts=(0, 1, 4, 5),
            tensor=4,
            compute_seconds=2.0,
            gradient_bytes=24 << 30,
        ),
        JobSpec(name="vision", hosts=(2, 3), tensor=1, compute_seconds=1.5, gradient_bytes=8 << 30),
    ),
    troubles=(
        Trouble("bad_cable", 120.0, 330.0),
        Trouble("slow_receiver", 390.0, 570.0),
        Trouble("link_flap", 630.0, 720.0),
        Trouble("pfc_misconfigured", 580.0, 690.0),
        Trouble("incast", 750.0, 870.0),
        Trouble("thermal_throttle", 840.0, 1_300.0, host=1, strength=0.8),
        Trouble("gpu_ecc", 300.0, 500.0, host=2, strength=0.9),
        Trouble("pcie_downtrain", 960.0, 1_300.0, host=4, strength=0.8),
        Trouble("hang_not_launched", 990.0, 1_300.0, host=3),
        Trouble("agent_death", 780.0, 1_300.0, host=6),
    ),
    seconds=1_200,
)
INFINIBAND = DataSet(
    name="infiniband",
    cluster=ClusterSpec(
        topology="rail",
        hosts=4,
        gpus_per_host=2,
        nics_per_host=2,
        speed="NDR",
        fabric=Fabric.INFINIBAND,
        hosts_per_leaf=2,
    ),
    jobs=(JobSpec(name="train", hosts=(0, 1, 2, 3), tensor=2, compute_seconds=2.0),),
    troubles=(
        Trouble("bad_cable", 60.0, 230.0),
        Trouble("slow_receiver", 270.0, 400.0),
    ),
    seconds=420,
)
DATA_SETS = {each.name: each for each in (ROCE, INFINIBAND)}


class Made(msgspec.Struct, frozen=True):
    """What was made, beside the store: when it begins and ends, unix seconds."""

    start_s: int
    end_s: int


def scenario_of(data_set: DataSet, start_s: int) -> Scenario:
    """The data set's cluster with its faults placed."""
    scenario = Scenario(
        cluster=data_set.cluster,
        jobs=data_set.jobs,
        seconds=float(data_set.seconds),
        tick_seconds=TICK_S,
        seed=SEED,
        start_unix_ns=start_s * NS,
    )
    random = np.random.default_rng(SEED)
    cluster = Simulation(scenario).cluster
    faults = discover()
    per_host = data_set.cluster.gpus_per_host, data_set.cluster.nics_per_host
    injections = []
    for trouble in data_set.troubles:
        drawn = plan(faults[trouble.fault], cluster, random, trouble.start_s)
        place = drawn.place
        if trouble.host is not None:
            place = moved(place, trouble.host, *per_host)
        strength = drawn.strength if trouble.strength is None else trouble.strength
        injections.append(replace(drawn, place=place, end_s=trouble.end_s, strength=strength))
    return replace(scenario, injections=tuple(injections))


def moved(place: Place, host: int, gpus: int, nics: int) -> Place:
    """The same place of another host."""
    return place._replace(
        host=host if place.host >= 0 else -1,
        gpu=host * gpus + place.gpu % gpus if place.gpu >= 0 else -1,
        nic=host * nics + place.nic % nics if place.nic >= 0 else -1,
    )


# --- playing it -----------------------------------------------------------------------------------


class Desk:
    """Everything that the service does between a counter and a board, on simulated time."""

    def __init__(
        self,
        service: SimulatedService,
        folder: Path,
        supplement: Supplement,
        metrics: ServiceMetrics,
    ) -> None:
        self._evaluator = Incidents(service)
        self._series = FoundSeries()
        self._own = OwnSamples(service.commit)
        self._supplement = supplement
        rules_dir = folder / "rules"
        write_pack(rules_dir, {})
        settings = ServiceSettings(rules_pack=False, rules_dir=str(rules_dir))
        self._rules = make_rules(
            settings.rules,
            Engine(service.store, Dialect.PROMETHEUS_3, load_catalog()),
            service.inventory,
            GroupLeads([self._evaluator.lead]),
            service.commit,
            metrics,
            service.clock,
            Hooks(explain=explain_by_incidents(service.inventory, settings.public_url)),
        )
        self._ruled_s = service.now_s - RULES_S

    async def look(self, now_s: float) -> None:
        """Do what is due, every `LOOK_S`."""
        now_ns = round(now_s * NS)
        outcome = self._evaluator.look(now_ns)
        if outcome is not None:
            samples = self._series.samples(now_ns, outcome.findings, outcome.incidents)
            await self._own.write(samples)
        await self._own.write(self._supplement.samples(now_ns))
        if now_s - self._ruled_s >= RULES_S:
            self._ruled_s = now_s
            await self._rules.task.once()


async def play(data_set: DataSet, folder: Path, start_s: int) -> None:
    """Let it happen before a service in this folder."""
    simulation = Simulation(scenario_of(data_set, start_s))
    service = SimulatedService(folder, float(start_s))
    metrics = ServiceMetrics()
    dead_from_s = {
        simulation.topology.host_name(trouble.host): trouble.start_s
        for trouble in data_set.troubles
        if trouble.fault == "agent_death" and trouble.host is not None
    }
    supplement = Supplement(simulation.topology, data_set.name, start_s, metrics, dead_from_s)
    desk = Desk(service, folder, supplement, metrics)
    reporter = Reporter(
        simulation.topology, cluster=data_set.name, start_unix_ns=start_s * NS, seed=SEED
    )
    async with service.running():
        sent: list[bytes] = []
        for snapshot in simulation.run():
            sent += reporter.batches(snapshot)
            if snapshot.time_s % LOOK_S == 0:
                now_s = start_s + snapshot.time_s
                await service.work(now_s, sent)
                await desk.look(now_s)
                sent = []
        assert not sent, f"{data_set.name} ends between two looks"


def make(data_set: DataSet, folder: Path) -> Made:
    """Make the data below this folder, in this process (which then can open no other store)."""
    start_s = int(time.time()) // DAY_S * DAY_S - DAY_S + START_OF_DAY_S
    made = Made(start_s=start_s, end_s=start_s + data_set.seconds)
    asyncio.run(play(data_set, folder, start_s))
    (folder / "made.json").write_bytes(msgspec.json.encode(made))
    return made


def kept_data(data_set: DataSet) -> tuple[Path, Made]:
    """The data where it is kept, made if there is none."""
    folder = kept("tests.worlds.grafana_data", data_set.name, KEPT_SECONDS_MAX)
    return folder, msgspec.json.decode((folder / "made.json").read_bytes(), type=Made)


@contextlib.contextmanager
def served(folder: Path, workspace: Path, port: int | None = None) -> Iterator[ServiceProcess]:
    """A service over a copy of the data, so that what is kept stays as it was made."""
    data = workspace / "data"
    shutil.copytree(folder, data, symlinks=True)
    config = workspace / "service.toml"
    config.write_text(
        f'store = "chdb://{data / "store"}"\nrules_pack = false\nown_numbers = false\n'
        'promql_dialect = "prometheus-2"\n'
    )
    with ServiceProcess(data, "--config", str(config), port=port) as service:
        yield service


# --- by hand --------------------------------------------------------------------------------------


def say(text: str) -> None:
    """A line for the person who started this."""
    print(text, flush=True)  # noqa: T201 - a small command line for developers


def main(arguments: Sequence[str]) -> int:
    """Make the data, or serve it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--make", nargs=2, metavar=("SET", "FOLDER"), help="make it and end")
    parser.add_argument("--serve", action="store_true", help="serve it until this is ended")
    parser.add_argument("--port", type=int, help="of the service on loopback")
    parser.add_argument("--set", choices=tuple(DATA_SETS), default="roce", help="which cluster")
    chosen = parser.parse_args(arguments)
    if chosen.make:
        make(DATA_SETS[chosen.make[0]], Path(chosen.make[1]))
        return 0
    folder, made = kept_data(DATA_SETS[chosen.set])
    if not chosen.serve:
        return 0
    # SIGTERM ends the service, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with (
        tempfile.TemporaryDirectory() as workspace,
        served(folder, Path(workspace), chosen.port) as service,
    ):
        say(f"url   {service.url}\nstart {made.start_s}\nend   {made.end_s}")
        with contextlib.suppress(KeyboardInterrupt):
            while service.is_alive:
                time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
