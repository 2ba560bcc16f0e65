"""VictoriaMetrics' vmalert, with our rule files against our API, finds what our evaluator finds.

A simulated hour with faults is stored, our evaluator steps through it, and vmalert replays the same
rules at the same moments. Debian's vmalert (1.79) does not know `keep_firing_for`, so both have the
pack without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest

from alerts.rulebook.model import Group
from api.base.metrics import ServiceMetrics
from api.http.settings import ServiceSettings
from api.oncall.evaluate.lead import Lead
from api.oncall.rules.build import write_pack
from api.oncall.rules.leads import GroupLeads
from api.oncall.rules.parts import Rules, make_rules
from api.oncall.rules.task import aligned_ns
from api.promql.engine import Engine
from api.promql.values import Dialect
from collector.contract.catalog import load_catalog
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario, plan
from simulator.score.simulated_service import SimulatedService
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric
from tests.stands.ports import free_port
from tests.stands.service import ServiceProcess, eventually
from tests.tools import peers

HOUR_S = 3_600
TICK_S = 15.0
WORK_S = 60.0
"""How often the service gets what agents have read, four times each. It is stored as it was read,
so that both who go through it later find the same; to store it at once would take twice as long."""
THEMES = ("links", "pause")
"""What the faults below make fire. Every theme costs the test a minute."""
INTERVAL_S = 60
"""Of the pack's groups half as often, for the same reason."""
FAULTS = ("slow_receiver", "nic_dead", "bad_cable", "link_flap")

Point = tuple[tuple[tuple[str, str], ...], int, float]
"""A sample: labels, time (ms) and value."""


def scenario_at(start_s: int) -> Scenario:
    """An hour in which four things go wrong, one after the other."""
    scenario = Scenario(
        cluster=ClusterSpec(
            topology="rail",
            hosts=4,
            gpus_per_host=2,
            nics_per_host=2,
            speed="400GbE",
            fabric=Fabric.ROCE,
            hosts_per_leaf=2,
        ),
        jobs=(JobSpec(name="train", hosts=(0, 1, 2), tensor=2, compute_seconds=4.0),),
        seconds=float(HOUR_S),
        tick_seconds=TICK_S,
        seed=11,
        start_unix_ns=start_s * NS,
    )
    random = np.random.default_rng(11)
    cluster = Simulation(scenario).cluster
    injections = []
    for number, name in enumerate(FAULTS):
        drawn = plan(discover()[name], cluster, random, 300.0 + 800.0 * number)
        injections.append(replace(drawn, end_s=drawn.start_s + 420.0))
    return replace(scenario, injections=tuple(injections))


async def load_hour(folder: Path, simulation: Simulation, rules_dir: Path) -> list[Group]:
    """Store the hour, then let our evaluator step through it; the groups that it evaluated."""
    scenario = simulation.scenario
    service = SimulatedService(folder, scenario.start_unix_ns / NS)
    reporter = Reporter(
        simulation.topology,
        cluster="simulated",
        start_unix_ns=scenario.start_unix_ns,
        seed=scenario.seed,
    )
    async with service.running():
        sent: list[bytes] = []
        for snapshot in simulation.run():
            sent += reporter.batches(snapshot)
            if snapshot.time_s % WORK_S == 0:
                await service.work(scenario.start_unix_ns / NS + snapshot.time_s, sent)
                sent = []
        assert not sent, "the hour ends between two minutes"
        service.now_s = scenario.start_unix_ns / NS
        rules, lead = rules_of(service, rules_dir)
        for _ in range(HOUR_S // INTERVAL_S + 1):
            lead.renew()
            await rules.task.once()
            service.now_s += INTERVAL_S
        return list(rules.shelf.groups)


def rules_of(service: SimulatedService, rules_dir: Path) -> tuple[Rules, Lead]:
    """Our evaluator over a simulated service."""
    metrics = ServiceMetrics()
    lead = Lead(service.inventory, service.clock, holder="test", is_alone=True)
    settings = ServiceSettings(rules_pack=False, rules_dir=str(rules_dir))
    engine = Engine(service.store, Dialect.PROMETHEUS_3, load_catalog())
    made = make_rules(
        settings.rules,
        engine,
        service.inventory,
        GroupLeads([lead]),
        service.commit,
        metrics,
        service.clock,
    )
    return made, lead


@contextlib.contextmanager
def victoria_metrics(folder: Path) -> Iterator[httpx.Client]:
    """A place for what vmalert writes."""
    program = peers.find("victoria-metrics")
    assert program is not None
    port = free_port()
    arguments = [
        str(program),
        f"-storageDataPath={folder / 'vm'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-search.latencyOffset=0s",
    ]
    with (folder / "vm.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                eventually(lambda: is_up(client), "VictoriaMetrics answers")
                yield client
        finally:
            process.kill()
            process.wait()


def is_up(client: httpx.Client) -> bool:
    """Whether it answers."""
    with contextlib.suppress(httpx.TransportError):
        return client.get("/health").status_code == 200
    return False


def replay(group: Group, url: str, sink: str, start_s: int) -> None:
    """Let vmalert go through the hour with one group's file, at the moments that we chose."""
    program = peers.find("vmalert")
    assert program is not None
    assert group.interval_s is not None
    first_ns = aligned_ns(group.key, group.interval_s, start_s * NS)
    first_ns += round(group.interval_s * NS)
    end_ns = (start_s + HOUR_S) * NS
    arguments = [
        str(program),
        f"-rule={group.file}",
        f"-datasource.url={url}",
        f"-remoteWrite.url={sink}",
        f"-replay.timeFrom={written(first_ns)}",
        f"-replay.timeTo={written(end_ns)}",
        f"-datasource.queryStep={INTERVAL_S}s",
        "-replay.rulesDelay=1ms",
        "-replay.disableProgressBar",
        "-remoteWrite.flushInterval=100ms",
        "-disableAlertgroupLabel",
        f"-httpListenAddr=127.0.0.1:{free_port()}",
    ]
    done = subprocess.run(arguments, capture_output=True, timeout=300, check=False, text=True)
    assert done.returncode == 0, done.stderr[-3_000:]


def written(time_ns: int) -> str:
    """A moment as vmalert reads it."""
    return dt.datetime.fromtimestamp(time_ns / NS, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def theirs(client: httpx.Client, selector: str) -> set[Point]:
    """What vmalert has written."""
    client.get("/internal/force_flush")
    answer = client.get("/api/v1/export", params={"match[]": selector}).raise_for_status()
    points: set[Point] = set()
    for line in answer.text.splitlines():
        row = msgspec.json.decode(line)
        labels = tuple(sorted(row["metric"].items()))
        points.update(
            (labels, moment, float(value))
            for moment, value in zip(row["timestamps"], row["values"], strict=True)
            if value is not None
        )
    return points


def ours(client: httpx.Client, selector: str, start_s: int) -> set[Point]:
    """What our evaluator has written."""
    answer = client.get(
        "/api/v1/query", params={"query": f"{selector}[{HOUR_S + 1}s]", "time": start_s + HOUR_S}
    ).raise_for_status()
    return {
        (tuple(sorted(row["metric"].items())), round(moment * 1_000), float(value))
        for row in answer.json()["data"]["result"]
        for moment, value in row["values"]
    }


@pytest.mark.peer("vmalert")
def test_vmalert_reads_every_theme_and_refuses_what_is_no_expression(tmp_path: Path) -> None:
    """With its own parser of PromQL, and its own templates."""
    themes = write_pack(tmp_path / "pack", {}, keeps_firing=False)
    bad = tmp_path / "bad.yaml"
    bad.write_text('groups: [{name: x, rules: [{alert: A, expr: "rate(x"}]}]')

    def is_taken(paths: list[Path]) -> bool:
        words = [str(peers.find("vmalert")), "-dryRun", *(f"-rule={path}" for path in paths)]
        return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0

    assert len(themes) > len(THEMES)
    assert is_taken(themes)
    assert not is_taken([*themes, bad])


@pytest.mark.slow
@pytest.mark.rotating(3, turn=2)
@pytest.mark.peer("vmalert")
@pytest.mark.peer("victoria-metrics")
def test_vmalert_agrees_with_our_evaluator_over_an_hour(tmp_path: Path) -> None:
    start_s = int(time.time()) // HOUR_S * HOUR_S - 2 * HOUR_S
    rules_dir = tmp_path / "rules"
    for path in write_pack(rules_dir, {}, keeps_firing=False):
        if path.stem in THEMES:
            text = path.read_text("utf-8")
            path.write_text(text.replace("interval: 30s", f"interval: {INTERVAL_S}s"), "utf-8")
        else:
            path.unlink()
    simulation = Simulation(scenario_at(start_s))
    folder = tmp_path / "data"
    folder.mkdir()
    groups = asyncio.run(load_hour(folder, simulation, rules_dir))
    assert {group.name for group in groups} == {f"fabric-{theme}" for theme in THEMES}
    settings = tmp_path / "service.toml"
    settings.write_text(
        f'store = "chdb://{folder / "store"}"\nrules_pack = false\nown_numbers = false\n'
    )
    with (
        ServiceProcess(folder, "--config", str(settings)) as service,
        victoria_metrics(tmp_path) as sink,
    ):
        for group in groups:
            replay(group, service.url, str(sink.base_url), start_s)
        selector = '{__name__=~"ALERTS|ALERTS_FOR_STATE"}'
        mine, other = ours(service.client, selector, start_s), theirs(sink, selector)
        firing = {
            dict(labels)["alertname"] for labels, _, _ in mine if ("alertstate", "firing") in labels
        }
        assert len(firing) >= 3, f"the hour shows too little: {firing}"
        # Replaying, it writes ALERTS_FOR_STATE only of rules that wait.
        states = [
            {point for point in each if ("__name__", "ALERTS") in point[0]}
            for each in (mine, other)
        ]
        assert states[0] == states[1]
        assert other <= mine
