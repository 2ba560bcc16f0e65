"""The evaluator: rounds over real inventories and stores, broken detectors, two processes, news."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from alerts.finding import Finding
from alerts.judge.incident import CLOSE_SECONDS, Incident, News
from alerts.window.model import Gpus, Grid, Hosts, Ports, Window
from api.base.metrics import ServiceMetrics
from api.data.ingest.commit import GroupCommit
from api.data.ingest.own import OwnSamples
from api.data.inventory.incidents import IncidentQuery, Numbered
from api.data.inventory.repository import Inventory
from api.data.store.store import Store, StoreUrl
from api.fabric.cache import TopologyCache
from api.jobs.correlate.places import RunningPlaces
from api.jobs.correlate.roll import RollTask
from api.jobs.correlate.windows import WindowReader
from api.oncall.evaluate import changes as news_of
from api.oncall.evaluate import rows as rows_of
from api.oncall.evaluate.book import IncidentBook
from api.oncall.evaluate.changes import Changes, Closed, Missed, TooManySubscribers
from api.oncall.evaluate.detect import JUDGE, GuardedDetectors
from api.oncall.evaluate.lead import LEASE_SECONDS, Lead
from api.oncall.evaluate.rounds import BrokenJudge, LostLead, Rounds
from api.oncall.evaluate.rows import RowWriter, Wanted
from api.oncall.evaluate.series import STALE, FoundSeries
from api.oncall.evaluate.task import EvaluateTask
from collector.contract.errors import StoreError
from collector.contract.model import Sample
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Verdict
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection, Place
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario
from simulator.score.evaluate import with_detectors
from simulator.score.run import CLUSTER_NAME, play
from simulator.score.simulated_service import SimulatedService
from simulator.topology.build import ClusterSpec

START_S = 1_794_700_000.0
CULPRIT = Culprit(host="node3", device="mlx5_0", port="1")


def empty_window(from_ns: int, to_ns: int) -> Window:
    """A window without any series, rank or port."""
    grid = Grid(from_ns, 5 * NS, (to_ns - from_ns) // (5 * NS))
    none = np.zeros(0, dtype=np.int64)
    bare: dict[str, Any] = {"grid": grid, "host": [], "readings": {}, "seen_ns": none}
    ports = Ports(
        **bare,
        device=[],
        port=[],
        is_switch=none.astype(bool),
        other_end=none,
        rate_bits_per_second=none.astype(float),
        rail=none,
        tier=none,
    )
    return Window(
        from_ns=from_ns, to_ns=to_ns, ports=ports, gpus=Gpus(**bare, gpu=[]), hosts=Hosts(**bare)
    )


def finding(window: Window, strength: float = 0.8, **more: object) -> Finding:
    made = Finding(
        detector="slow_link",
        cause=Cause.SLOW_LINK,
        culprit=CULPRIT,
        strength=strength,
        since_ns=window.from_ns,
        until_ns=None,
        last_ns=window.to_ns,
        job="llama",
    )
    return msgspec.structs.replace(made, **more)


def say_all(window: Window, findings: Sequence[Finding]) -> list[Verdict]:
    """A judge that accepts every finding."""
    del window
    return [
        Verdict(
            cause=each.cause,
            culprit=each.culprit,
            since_ns=each.since_ns,
            until_ns=each.until_ns,
            confidence=each.strength,
            jobs=(each.job,) if each.job else (),
            evidence=each.evidence,
        )
        for each in findings
    ]


class Process:
    """The evaluating parts of one service process, on a clock of the test's."""

    def __init__(self, inventory: Inventory, name: str = "first") -> None:
        self.now_s = START_S
        self.metrics = ServiceMetrics()
        self.detectors: dict[str, Callable[[Window], list[Finding]]] = {
            "slow_link": lambda window: [finding(window)]
        }
        self.judge: Callable[[Window, Sequence[Finding]], list[Verdict]] = say_all
        self.read: Callable[[int, int], Window] = empty_window
        self.lead = Lead(inventory, lambda: self.now_s, holder=name)
        self.panel = GuardedDetectors(self.metrics, self.detectors, self._judge)
        self.rounds = Rounds(self._read, inventory, self.lead, self.panel, self.metrics)

    def _judge(self, window: Window, findings: Sequence[Finding]) -> list[Verdict]:
        return self.judge(window, findings)

    def _read(self, from_ns: int, to_ns: int, _: object) -> Window:
        return self.read(from_ns, to_ns)

    def look(self, second: float) -> Sequence[Incident]:
        """One round, so many seconds after the start."""
        self.now_s = START_S + second
        assert self.lead.renew()
        return self.rounds.look(round(self.now_s * NS)).incidents

    def number(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


# --- detectors and the judge --------------------------------------------------------------------


def test_a_detector_that_breaks_is_counted_and_silences_no_other(inventory: Inventory) -> None:
    process = Process(inventory)

    def broken(window: Window) -> list[Finding]:
        raise ZeroDivisionError(str(window.from_ns))

    process.detectors["broken"] = broken
    (incident,) = process.look(0)
    process.look(5)
    assert incident.verdict.culprit == CULPRIT
    assert process.number("fabric_service_detector_errors_total", detector="broken") == 2
    assert process.number("fabric_service_detector_errors_total", detector="slow_link") == 0
    assert process.number("fabric_service_detector_seconds_count", detector="slow_link") == 2


def test_a_judge_that_breaks_ends_no_incident(inventory: Inventory) -> None:
    process = Process(inventory)
    process.look(0)

    def broken(window: Window, findings: Sequence[Finding]) -> list[Verdict]:
        raise KeyError(window.from_ns, findings)

    process.judge = broken
    with pytest.raises(BrokenJudge):
        process.look(CLOSE_SECONDS + 60)
    assert process.number("fabric_service_detector_errors_total", detector=JUDGE) == 1
    process.judge = say_all
    (incident,) = process.look(CLOSE_SECONDS + 65)
    assert incident.is_open
    assert incident.reopened == 0


def test_a_window_that_a_bug_keeps_from_being_read_ends_no_incident(inventory: Inventory) -> None:
    process = Process(inventory)
    (incident,) = process.look(0)

    def broken(from_ns: int, to_ns: int) -> Window:
        raise IndexError(f"{from_ns} to {to_ns}")

    process.read = broken
    with pytest.raises(BrokenJudge):
        process.look(5)
    assert process.number("fabric_service_detector_errors_total", detector="window") == 1
    process.read = empty_window
    assert [each.id for each in process.look(10)] == [incident.id]


def test_what_is_no_number_is_no_evidence_and_no_certainty(inventory: Inventory) -> None:
    process = Process(inventory)
    nan = float("nan")
    evidence = tuple(
        Evidence(metric=name, text="", value=value, baseline=baseline, unit="s")
        for name, value, baseline in (("a", nan, 1.0), ("b", 1.0, nan), ("c", 2.0, 1.0))
    )
    process.detectors["odd"] = lambda window: [
        finding(window, nan, culprit=Culprit(host="node9"), job="")
    ]
    process.detectors["slow_link"] = lambda window: [finding(window, evidence=evidence)]
    (incident,) = process.look(0)
    shown = [(each.metric, each.baseline) for each in incident.verdict.evidence]
    assert shown == [("b", None), ("c", 1.0)]
    assert inventory.incidents.get(incident.id) == incident


# --- restarts, and several processes ------------------------------------------------------------


def test_an_incident_opens_is_updated_and_closes_over_a_restart(inventory: Inventory) -> None:
    process = Process(inventory)
    (opened,) = process.look(0)
    process.detectors["slow_link"] = lambda window: [finding(window, 0.95)]
    process.look(5)
    again = Process(inventory)
    again.detectors["slow_link"] = lambda window: [finding(window, 0.9)]
    (updated,) = again.look(20)
    assert updated.id == opened.id
    assert updated.first_said_ns == opened.first_said_ns
    assert updated.verdict.confidence == pytest.approx(0.95)
    again.detectors.clear()
    again.look(21)
    last = Process(inventory)
    last.detectors.clear()
    (closed,) = last.look(20 + CLOSE_SECONDS)
    assert closed.verdict.until_ns == round((START_S + 20) * NS)
    assert inventory.incidents.get(opened.id) == closed
    told = [each.change.news for each in inventory.incidents.changes(0)]
    assert told == [News.OPENED, News.UPDATED, News.CLOSED]


def test_of_two_processes_one_works_and_the_other_takes_over(inventory: Inventory) -> None:
    first, second = Process(inventory, "first"), Process(inventory, "second")
    (opened,) = first.look(0)
    assert not second.lead.renew()
    assert not second.lead.is_held()
    # The first leader stops without releasing its lease; later it resumes, unaware of the second.
    second.now_s = START_S + LEASE_SECONDS
    assert second.lead.renew()
    (taken,) = second.look(LEASE_SECONDS + 5)
    assert (taken.id, taken.reopened) == (opened.id, 0)
    with pytest.raises(LostLead):
        first.rounds.look(round((START_S + LEASE_SECONDS + 6) * NS))
    first.now_s = START_S + LEASE_SECONDS + 6
    assert not first.lead.is_held()
    second.lead.release()
    assert first.lead.renew()


def test_an_inventory_that_is_away_leaves_who_leads_its_lease_until_that_ends(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(inventory)
    assert process.lead.renew()

    def away(*_: object, **__: object) -> bool:
        raise StoreError("away")

    monkeypatch.setattr("api.oncall.evaluate.lead.InventoryError", StoreError)
    monkeypatch.setattr(inventory.leases, "take", away)
    process.now_s += LEASE_SECONDS - 1
    assert process.lead.renew()
    process.now_s += 1
    assert not process.lead.renew()


# --- verdicts and findings in the store ---------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    days = {"findings": 3650, "samples": 3650, "series": 3650}
    store = Store(StoreUrl.parse(f"chdb://{tmp_path / 'store'}"), retention_days=days)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def local_inventory(tmp_path: Path) -> Iterator[Inventory]:
    """An inventory for tests that are about the store."""
    inventory = Inventory(f"sqlite:///{tmp_path}/local_inventory.db")
    inventory.migrate()
    yield inventory
    inventory.close()


def at_ns(second: float) -> int:
    return round((START_S + second) * NS)


def always(**conditions: object) -> Wanted:
    return msgspec.convert({"from_ns": 0, "to_ns": at_ns(1e6), **conditions}, Wanted)


def test_what_was_said_is_found_by_whom_it_is_about(
    store: Store, local_inventory: Inventory
) -> None:
    window = empty_window(at_ns(-180), at_ns(0))
    one = finding(window)
    other = finding(window, culprit=Culprit(switch="leaf1", switch_port="p1"), job="mixtral")
    late = finding(window, culprit=Culprit(job="llama", rank=5, host="node5", gpu=0))
    writer, book = RowWriter(store), IncidentBook(local_inventory, store)
    said = [(verdict, "incident-1") for verdict in say_all(window, [one])]
    assert writer.write(at_ns(0), [one, other], said) == 3
    assert writer.write(at_ns(5), [late], []) == 1
    assert book.findings(always())[0].finding == late
    assert [each.finding for each in book.findings(always(switch="leaf1"))] == [other]
    assert [each.finding for each in book.findings(always(job="mixtral"))] == [other]
    assert [each.finding for each in book.findings(always(host="node5"))] == [late]
    assert book.findings(always(cause="hang")) == []
    assert book.findings(always(to_ns=at_ns(-1))) == []
    (verdict,) = book.verdicts(always(incident="incident-1", cause="slow_link"))
    assert (verdict.verdict, verdict.time_ns) == (said[0][0], at_ns(0))
    pages = []
    after = None
    while page := book.findings(always(), after, limit=1):
        pages += page
        after = page[-1].position
    assert len(pages) == 3


def test_what_stands_is_written_when_it_is_new_when_it_changes_and_once_a_minute(
    store: Store,
) -> None:
    writer = RowWriter(store)
    window = empty_window(at_ns(-180), at_ns(0))
    strengths = {5: 0.8, 10: 0.82, 15: 0.9, 20: 0.9, 75: 0.9, 80: 0.9}
    written = {
        second: writer.write(at_ns(second), [finding(window, strength)], [])
        for second, strength in strengths.items()
    }
    assert written == {5: 1, 10: 0, 15: 1, 20: 0, 75: 1, 80: 0}


def test_a_round_writes_a_bounded_number_of_rows_and_counts_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_of, "ROUND_ROWS_MAX", 3)
    monkeypatch.setattr(rows_of, "DOCUMENT_BYTES_MAX", 2_000)
    window = empty_window(at_ns(-180), at_ns(0))
    many = [finding(window, number / 10, job=f"job{number}") for number in range(10)]
    crowd = tuple(Culprit(host=f"node{number}") for number in range(500))
    (verdict,) = say_all(window, many[:1])
    said = [(msgspec.structs.replace(verdict, victims=crowd), "")]
    writer = RowWriter(store)
    assert writer.write(at_ns(0), many, said) == 3
    assert writer.left_out == 8
    kept = rows_of.read_findings(store, always())
    assert {each.finding.job for each in kept} == {"job9", "job8"}
    assert rows_of.read_verdicts(store, always())[0].verdict.victims == ()


def test_a_round_becomes_rows_and_series_and_ends_with_a_stale_marker(
    store: Store, local_inventory: Inventory
) -> None:
    process = Process(local_inventory)
    process.lead.renew()

    async def run() -> None:
        commit = GroupCommit(store, lambda *_: None)
        working = asyncio.create_task(commit.run())
        own = OwnSamples(commit)
        task = EvaluateTask(
            process.rounds, process.lead, store, own, process.metrics, lambda: process.now_s
        )
        assert await task.once() is not None
        process.now_s += 5
        process.detectors.clear()
        assert await task.once() is not None
        process.now_s += LEASE_SECONDS
        assert await task.once() is None
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(run())
    sql = """
        SELECT metric_name, labels['host'] AS host, reinterpretAsUInt64(value) AS bits
        FROM samples INNER JOIN (SELECT DISTINCT series, metric_name, labels FROM series) AS named
        USING series WHERE metric_name != 'fabric_incident_victim' ORDER BY metric_name, time
    """
    rows = [tuple(row.values()) for row in store.query(sql).to_pylist()]
    strong, stale = (int(np.float64(value).view(np.uint64)) for value in (0.8, STALE))
    assert rows == [
        ("fabric_finding", "node3", strong),
        ("fabric_finding", "node3", stale),
        ("fabric_incident", "node3", strong),
        ("fabric_incident", "node3", strong),
    ]
    assert process.number("fabric_service_evaluations_total", outcome="done") == 2
    (verdict,) = rows_of.read_verdicts(store, always())
    assert local_inventory.incidents.get(verdict.incident) is not None


def test_series_of_the_holder_before_get_their_stale_markers(
    store: Store, local_inventory: Inventory
) -> None:
    """Red before: what ended while the judge changed stood for five minutes in every query."""
    first, second = Process(local_inventory), Process(local_inventory, "second")
    second.detectors.clear()

    async def run() -> None:
        commit = GroupCommit(store, lambda *_: None)
        working = asyncio.create_task(commit.run())
        for process, after_s in ((first, 0.0), (second, LEASE_SECONDS)):
            process.now_s = START_S + after_s
            assert process.lead.renew()
            own = OwnSamples(commit)
            task = EvaluateTask(
                process.rounds, process.lead, store, own, process.metrics, process.lead._clock
            )
            assert await task.once() is not None
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(run())
    sql = """
        SELECT isNaN(value) AS is_stale FROM samples
        WHERE series IN (SELECT series FROM series WHERE metric_name = 'fabric_finding')
        ORDER BY time
    """
    assert [row["is_stale"] for row in store.query(sql).to_pylist()] == [0, 1]


def test_a_store_that_is_away_is_counted_and_asked_again(
    local_inventory: Inventory, store: Store
) -> None:
    process = Process(local_inventory)
    process.look(0)

    def away(*_: object) -> Window:
        raise StoreError("away")

    task = EvaluateTask(
        process.rounds,
        process.lead,
        store,
        OwnSamples(GroupCommit(store, lambda *_: None)),
        process.metrics,
        lambda: process.now_s,
    )
    process.read = away
    process.now_s += 5
    assert asyncio.run(task.once()) is None
    assert process.number("fabric_service_evaluations_total", outcome="store_away") == 1
    process.read = empty_window
    (incident,) = process.look(15)
    assert incident.is_open


def test_series_of_findings_are_bounded_and_the_strongest_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("api.oncall.evaluate.series.FINDING_SERIES_MAX", 2)
    window = empty_window(at_ns(-180), at_ns(0))
    found = [finding(window, number / 10, job=f"job{number}") for number in range(5)]
    series = FoundSeries()
    made = series.samples(at_ns(0), found, [])
    assert [sample.value for sample in made] == [0.4, 0.3]
    assert series.left_out == 3


# --- news for subscribers -----------------------------------------------------------------------


def test_subscribers_hear_what_the_evaluator_of_another_process_says(
    local_inventory: Inventory,
) -> None:
    process = Process(local_inventory)
    process.look(0)

    async def run() -> list[object]:
        changes = Changes(local_inventory, ServiceMetrics())
        await changes.follow()
        async with changes.subscribe() as first:
            process.detectors.clear()
            await asyncio.to_thread(process.look, CLOSE_SECONDS)
            assert await changes.follow() == 1
            heard: list[object] = [await first.next(60), await first.next(0.001)]
            changes.close()
            with pytest.raises(Closed):
                await first.next(60)
        return heard

    heard = asyncio.run(run())
    assert isinstance(heard[0], Numbered)
    assert (heard[0].number, heard[0].change.news) == (2, News.CLOSED)
    assert heard[1] is None


def test_a_slow_subscriber_is_told_that_it_missed_something_and_where(
    local_inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news_of, "QUEUE_MAX", 2)
    process = Process(local_inventory)
    metrics = ServiceMetrics()

    async def run() -> list[object]:
        changes = Changes(local_inventory, metrics)
        await changes.follow()
        slow = changes.subscribe()
        for number in range(5):
            culprit = Culprit(host=f"node{number}")
            process.detectors["slow_link"] = lambda window, culprit=culprit: [  # type: ignore[misc]
                finding(window, culprit=culprit, job="")
            ]
            process.look(number)
            await changes.follow()
        heard = [await slow.next(60) for _ in range(3)]
        process.detectors.clear()
        process.look(CLOSE_SECONDS)
        await changes.follow()
        return [*heard, await slow.next(60)]

    heard = asyncio.run(run())
    numbers = [each.number for each in heard if isinstance(each, Numbered)]
    assert numbers == [1, 2, 6]
    assert heard[2] == Missed(3)
    assert metrics.registry.get_sample_value("fabric_service_live_dropped_total") == 3


def test_subscribers_are_bounded_and_leave(
    local_inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news_of, "SUBSCRIBERS_MAX", 1)

    async def run() -> None:
        changes = Changes(local_inventory, ServiceMetrics())
        async with changes.subscribe():
            with pytest.raises(TooManySubscribers):
                changes.subscribe()
        async with changes.subscribe():
            pass

    asyncio.run(run())


# --- a simulated cluster, from end to end -------------------------------------------------------

FAULT_START_S, RESTART_S, FAULT_END_S, RUN_S = 10.0, 25.0, 40.0, 40.0
SCENARIO = Scenario(
    cluster=ClusterSpec(topology="single", hosts=2, gpus_per_host=2, nics_per_host=2),
    jobs=(JobSpec(name="tiny", hosts=(0, 1), tensor=2, compute_seconds=0.5, startup_seconds=1.0),),
    injections=(
        Injection(
            discover()["thermal_throttle"], Place(host=0, gpu=0), FAULT_START_S, FAULT_END_S, 1.0
        ),
    ),
    seconds=RUN_S,
    tick_seconds=5.0,
)
HOT_CELSIUS = 85.0


def hottest(window: Window) -> list[Finding]:
    """A trivial detector: it accuses every GPU that is hot now."""
    celsius = window.gpus.values("temperature_celsius")
    if not celsius.size:
        return []
    is_hot = np.nan_to_num(celsius[:, -2:]).max(axis=1) > HOT_CELSIUS
    return [
        finding(window, detector="hottest", cause=Cause.STRAGGLER, culprit=window.gpus.culprit(row))
        for row in np.flatnonzero(is_hot).tolist()
    ]


class Simulated:
    """A simulated service with a cluster that reports to it."""

    def __init__(self, folder: Path) -> None:
        self.simulation = Simulation(SCENARIO)
        self.start_ns = SCENARIO.start_unix_ns
        self.service = SimulatedService(folder, self.start_ns / NS)
        self.reporter = Reporter(
            self.simulation.topology,
            cluster=CLUSTER_NAME,
            start_unix_ns=self.start_ns,
            seed=SCENARIO.seed,
        )

    def clock(self) -> float:
        return self.service.now_s

    def evaluator(self, name: str) -> tuple[Lead, Rounds]:
        """The evaluating parts of a process that was just started."""
        local_inventory, metrics = self.service.inventory, ServiceMetrics()
        lead = Lead(local_inventory, self.clock, holder=name, is_alone=True)
        reader = WindowReader(
            self.service.store, local_inventory, TopologyCache(local_inventory, self.clock).at
        )
        panel = GuardedDetectors(metrics, {"hottest": hottest}, say_all)
        return lead, Rounds(reader.read, local_inventory, lead, panel, metrics)

    async def run(self) -> tuple[list[Incident], list[News]]:
        """Let the scenario happen; the incidents in the end, and all news of them."""
        lead, rounds = self.evaluator("before")
        async with self.service.running():
            for snapshot in self.simulation.run():
                now_ns = self.start_ns + round(snapshot.time_s * NS)
                await self.service.work(now_ns / NS, self.reporter.batches(snapshot))
                if snapshot.time_s == RESTART_S:
                    lead, rounds = self.evaluator("after")
                assert lead.renew()
                rounds.look(now_ns)
            # No agent reports any more.
            self.service.now_s += CLOSE_SECONDS + 10
            assert lead.renew()
            rounds.look(round(self.service.now_s * NS))
            await self.check_roll()
            incidents = self.service.inventory.incidents.page(IncidentQuery())
            news = [each.change.news for each in self.service.inventory.incidents.changes(0)]
        return incidents, news

    async def check_roll(self) -> None:
        """Only the process that leads makes collectives into series."""
        leads = False
        own = Collected()
        places = RunningPlaces(self.service.inventory)
        roll = RollTask(
            self.service.store, own, places, ServiceMetrics(), self.clock, lambda: leads
        )
        assert await roll.catch_up() == 0
        assert own.samples == []
        leads = True
        assert await roll.catch_up() > 0


class Collected(OwnSamples):
    """Keeps samples instead of writing them."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    async def write(self, samples: Sequence[Sample], *, at_once: bool = False) -> None:
        del at_once
        self.samples += samples


def test_a_fault_of_a_simulated_cluster_is_one_incident_over_a_restart(tmp_path: Path) -> None:
    simulated = Simulated(tmp_path)
    (incident,), news = asyncio.run(simulated.run())
    assert incident.verdict.culprit == Culprit(host="node0000", gpu=0)
    said_s = (incident.first_said_ns - simulated.start_ns) / NS
    assert FAULT_START_S <= said_s < RESTART_S
    assert not incident.is_open
    assert [each for each in news if each is not News.UPDATED] == [News.OPENED, News.CLOSED]


def test_the_scoreboard_asks_the_evaluator_of_the_service(tmp_path: Path) -> None:
    healthy = dataclasses.replace(SCENARIO, injections=(), seconds=10.0)
    assert play(Simulation(healthy), tmp_path, with_detectors) == []
