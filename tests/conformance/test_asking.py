"""Asking back: two NICs alike, a capture by real agents decides, and the right one is named.

A NIC of a simulated ring takes in too slowly, and no counter of any port is read: the job's own
times accuse both ends of one direction alike, the innocent one first.
"""

import asyncio
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from alerts.judge.asking import AT_ONCE_MAX, HOST_PER_HOUR_MAX, WAIT_SECONDS
from alerts.judge.incident import Incident, News
from alerts.window.model import Window
from api.base.limits import CAPTURES_PER_AGENT_MAX
from api.base.metrics import ServiceMetrics
from api.data.captures import Captures
from api.data.inventory.batches import BatchRun
from api.data.inventory.captures import Capture
from api.data.inventory.records import CaptureState
from api.data.inventory.repository import Inventory
from api.fabric.cache import TopologyCache
from api.oncall.evaluate.asking import BY_SERVICE, Asking
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.lead import Lead
from api.oncall.evaluate.parts import make_rounds
from api.oncall.evaluate.rounds import Outcome, Rounds
from collector.contract.measurement import RAS_DEVICE
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import (
    Cause,
    Culprit,
    MeasurementKind,
    Suspected,
    Undecided,
    Verdict,
)
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection, Place
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario
from simulator.score.handicap import unread
from simulator.score.simulated_service import SimulatedService
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric
from tests.conformance.test_evaluator import START_S, empty_window
from tests.worlds.captured_rings import SLOW, ring_counters
from tests.worlds.capturing_agent import CapturingAgent

HOSTS, CULPRIT, INNOCENT = 8, 3, 2
FAULT_S, SECONDS, TICK_S = 40.0, 95.0, 5.0
EVERY_KIND = frozenset({MeasurementKind.BURST_CAPTURE})


def scenario() -> Scenario:
    slow = discover()["slow_receiver"]
    return Scenario(
        cluster=ClusterSpec(
            hosts=HOSTS, gpus_per_host=1, nics_per_host=1, speed="NDR", fabric=Fabric.INFINIBAND
        ),
        jobs=(
            JobSpec(
                name="llama", hosts=tuple(range(HOSTS)), compute_seconds=0.4,
                gradient_bytes=8_000_000_000,
            ),
        ),
        injections=(
            Injection(
                fault=slow, place=Place(nic=CULPRIT), strength=0.9, start_s=FAULT_S, end_s=1e9
            ),
        ),
        seconds=SECONDS,
        tick_seconds=TICK_S,
        seed=3,
    )  # fmt: skip


def without_counters(window: Window) -> Window:
    """As where agents read no port and no poller reads switches."""
    jobs = [msgspec.structs.replace(job, paths=None) for job in window.jobs]
    return msgspec.structs.replace(window, jobs=jobs, ports=unread(window.ports))


class Stand:
    """A simulated service with its evaluator, on the simulation's clock."""

    def __init__(self, folder: Path, allowed: frozenset[MeasurementKind]) -> None:
        self.plan = scenario()
        self.start_ns = self.plan.start_unix_ns
        folder.mkdir()
        self.service = SimulatedService(folder, self.start_ns / NS)
        self.metrics = ServiceMetrics()
        inventory, clock = self.service.inventory, self.service.clock
        self.lead = Lead(inventory, clock, holder="test", is_alone=True)
        self.rounds = make_rounds(
            self.service.store, inventory, TopologyCache(inventory, clock), self.lead, self.metrics,
            see=without_counters,
            asking=Asking(self.service.captures, inventory, self.metrics, allowed),
        )  # fmt: skip
        self.outcomes: list[Outcome] = []

    async def run(self, agents: Sequence[CapturingAgent]) -> None:
        simulation = Simulation(self.plan)
        reporter = Reporter(
            simulation.topology, cluster="simulated", start_unix_ns=self.start_ns, seed=3
        )
        async with self.service.running():
            for snapshot in simulation.run():
                now_ns = self.start_ns + round(snapshot.time_s * NS)
                bodies = list(reporter.batches(snapshot))
                bodies += [
                    agent.batch(now_ns, self.service.captures.of(agent.agent)) for agent in agents
                ]
                await self.service.work(now_ns / NS, bodies)
                self.lead.renew()
                self.outcomes.append(self.rounds.look(now_ns))
            self.asked = [
                one
                for host in range(HOSTS)
                for one in self.service.inventory.captures.page(f"node{host:04d}")
            ]

    def verdicts(self) -> list[Verdict]:
        return [verdict for outcome in self.outcomes for verdict in outcome.verdicts]

    def incidents(self) -> Sequence[Incident]:
        return self.outcomes[-1].incidents

    def count(self, outcome: str) -> float:
        labels = {"kind": "burst_capture", "outcome": outcome}
        found = self.metrics.registry.get_sample_value("fabric_service_asks_total", labels)
        return found or 0.0


def agents_of(folder: Path, start_ns: int) -> list[CapturingAgent]:
    """Every host's agent; what their NICs count follows from how a ring waits."""
    out, into = ring_counters(HOSTS, SECONDS - FAULT_S, receives={CULPRIT: SLOW})
    quiet = np.zeros((HOSTS, round(FAULT_S * 1000)), dtype=np.int64)
    out, into = np.concatenate([quiet, out], axis=1), np.concatenate([quiet, into], axis=1)
    return [
        CapturingAgent(
            folder / f"node{host:04d}", f"node{host:04d}",
            {"transmit": out[host], "receive": into[host]}, start_ns,
        )
        for host in range(HOSTS)
    ]  # fmt: skip


@pytest.mark.slow
def test_a_capture_decides_between_two_alike_and_the_incident_says_how(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "service", EVERY_KIND)
    asyncio.run(stand.run(agents_of(tmp_path, stand.start_ns)))
    first, *_, last = stand.verdicts()
    assert first.confidence < 0.5
    assert first.culprit.host == "node0002"  # an innocent, and below the bar
    assert last.confidence >= 0.8
    assert last.culprit.host == f"node{CULPRIT:04d}"
    assert last.undecided is None
    assert "captured_rates" in {one.metric for one in last.evidence}
    (incident,) = stand.incidents()
    assert incident.verdict.culprit.host == f"node{CULPRIT:04d}"
    asked, answered = (
        next(turn for turn in incident.history if turn.news is news)
        for news in (News.ASKED, News.ANSWERED)
    )
    assert asked.note.startswith("The service asked node0000, node0002 and node0003 for a burst")
    assert asked.confidence < 0.5
    assert "burst capture came after" in answered.note
    assert "the verdict went from slow_link of node0002's NIC" in answered.note
    assert f"to slow_link of node{CULPRIT:04d}'s NIC" in answered.note
    assert (stand.count("asked"), stand.count("answered")) == (1, 1)
    assert (stand.count("timed_out"), stand.count("refused")) == (0, 0)
    assert {one.agent for one in stand.asked} == {"node0002", "node0003", "node0000"}
    assert {one.by for one in stand.asked} == {BY_SERVICE}
    assert all("llama" in one.why for one in stand.asked)


@pytest.mark.slow
def test_with_the_switch_off_the_same_stays_unsure_and_says_what_would_decide(
    tmp_path: Path,
) -> None:
    stand = Stand(tmp_path / "service", frozenset())
    asyncio.run(stand.run(agents_of(tmp_path, stand.start_ns)))
    last = stand.verdicts()[-1]
    assert last.confidence < 0.5
    assert stand.incidents() == []
    assert stand.asked == []
    assert last.undecided is not None
    assert last.undecided.kind is MeasurementKind.BURST_CAPTURE
    assert {one.culprit.host for one in last.undecided.suspects} == {"node0002", "node0003"}
    assert stand.count("asked") == 0


# --- requests without a simulation ----------------------------------------------------------------

HOSTS_ASKED = ("a", "b", "c")


def unsure(confidence: float = 0.55, *jobs: str) -> Verdict:
    suspects = tuple(
        Suspected(culprit=Culprit(host=one, device="mlx5_0"), share=0.5, name=one) for one in "ab"
    )
    return Verdict(
        cause=Cause.SLOW_LINK,
        culprit=suspects[0].culprit,
        since_ns=round(START_S * NS),
        confidence=confidence,
        jobs=jobs or ("llama",),
        undecided=Undecided(
            kind=MeasurementKind.BURST_CAPTURE,
            text="Capture it.",
            suspects=suspects,
            at=tuple(Culprit(host=one, device="mlx5_0") for one in HOSTS_ASKED),
        ),
    )


class Asker:
    """Rounds with verdicts of the test's, over a real inventory."""

    def __init__(self, inventory: Inventory, *, allowed: frozenset[MeasurementKind]) -> None:
        self.inventory = inventory
        self.now_s = START_S
        self.captures = Captures(inventory, lambda: self.now_s)
        self.metrics = ServiceMetrics()
        self.verdicts: list[Verdict] = [unsure()]
        lead = Lead(inventory, lambda: self.now_s, holder="test", is_alone=True)
        self.lead = lead
        panel = GuardedDetectors(self.metrics, {}, lambda _, __: self.verdicts)
        self.rounds = Rounds(
            lambda from_ns, to_ns, _: empty_window(from_ns, to_ns),
            inventory, lead, panel, self.metrics,
            asking=Asking(self.captures, inventory, self.metrics, allowed),
        )  # fmt: skip

    def look(self, second: float) -> Sequence[Incident]:
        self.now_s = START_S + second
        assert self.lead.renew()
        self.captures.look()
        return self.rounds.look(round(self.now_s * NS)).incidents

    def requests(self) -> list[Capture]:
        return [one for host in HOSTS_ASKED for one in self.inventory.captures.page(host)]

    def answer(self, **said: str) -> None:
        for host in HOSTS_ASKED:
            for request in self.captures.of(host):
                attributes = {"capture": request.id, "result": "finished", "samples": "7"} | said
                event = Event(kind="capture", time_ns=1, labels={}, attributes=attributes)
                self.captures.note(host, [event])

    def count(self, outcome: str) -> float:
        labels = {"kind": "burst_capture", "outcome": outcome}
        found = self.metrics.registry.get_sample_value("fabric_service_asks_total", labels)
        return found or 0.0


def news(incident: Incident) -> list[News]:
    return [turn.news for turn in incident.history]


@pytest.fixture(name="known")
def with_agents(inventory: Inventory) -> Inventory:
    now = dt.datetime.fromtimestamp(START_S, tz=dt.UTC)
    runs = [
        BatchRun.of_one(agent=host, boot="b", sequence=0, received_at=now) for host in HOSTS_ASKED
    ]
    inventory.note_batches(runs)
    return inventory


def test_an_incident_that_stays_unsure_asks_once_and_notes_what_came(known: Inventory) -> None:
    asker = Asker(known, allowed=EVERY_KIND)
    for second in (0, 5):
        asker.look(second)
        assert asker.requests() == []
    (incident,) = asker.look(10)
    assert news(incident) == [News.OPENED, News.ASKED]
    assert [(one.agent, one.by, one.why, one.devices) for one in asker.requests()] == [
        (host, BY_SERVICE, incident.id, ["mlx5_0"]) for host in HOSTS_ASKED
    ]
    asker.answer()
    sure = msgspec.structs.replace(unsure(0.87), culprit=Culprit(host="b", device="mlx5_0"))
    asker.verdicts = [msgspec.structs.replace(sure, undecided=None)]
    (incident,) = asker.look(15)
    assert incident.history[-1].news is News.ANSWERED
    note = incident.history[-1].note
    assert "A burst capture came after 5.00 s (21 samples)" in note
    assert "from slow_link of a's NIC mlx5_0 (55 %) to slow_link of b's NIC mlx5_0 (87 %)" in note
    asker.verdicts = [msgspec.structs.replace(sure, confidence=0.55)]
    for second in range(20, 200, 5):
        (incident,) = asker.look(second)
    assert len(asker.requests()) == len(HOSTS_ASKED)
    assert news(incident).count(News.ASKED) == news(incident).count(News.ANSWERED) == 1
    assert (asker.count("asked"), asker.count("answered")) == (1, 1)
    assert known.incidents.get(incident.id) == incident


def test_a_standstill_asks_for_ras_and_notes_what_came(known: Inventory) -> None:
    asker = Asker(known, allowed=EVERY_KIND | {MeasurementKind.RAS_STATUS})
    stall = msgspec.structs.replace(
        unsure(),
        cause=Cause.STALL,
        culprit=Culprit(job="llama"),
        undecided=Undecided(
            kind=MeasurementKind.RAS_STATUS,
            text="Ask it.",
            at=tuple(Culprit(job="llama", host=one) for one in HOSTS_ASKED[:2]),
        ),
    )
    asker.verdicts = [stall]
    for second in (0, 5, 10):
        (incident,) = asker.look(second)
    assert [(one.agent, one.devices) for one in asker.requests()] == [
        (host, [RAS_DEVICE]) for host in HOSTS_ASKED[:2]
    ]
    assert incident.history[-1].note == "The service asked a and b for NCCL's RAS status."
    asker.answer()
    (incident,) = asker.look(15)
    assert "NCCL's RAS status came after 5.00 s" in incident.history[-1].note


def test_what_a_capture_decided_stands_when_it_has_left_the_window(known: Inventory) -> None:
    """A tie that names the culprit among its suspects keeps the incident open and as it is."""
    asker = Asker(known, allowed=EVERY_KIND)
    sure = msgspec.structs.replace(unsure(0.87), culprit=Culprit(host="b", device="mlx5_0"))
    asker.verdicts = [msgspec.structs.replace(sure, undecided=None)]
    (before,) = asker.look(0)
    for named in ("a", "b"):
        tie = msgspec.structs.replace(unsure(0.52), culprit=Culprit(host=named, device="mlx5_0"))
        asker.verdicts = [tie]
        for second in range(5, 305, 5):
            (incident,) = asker.look(second + 300 * (named == "b"))
        assert incident.id == before.id
        assert incident.is_open
        assert incident.verdict.culprit.host == "b"
        assert incident.verdict.undecided is None
        assert incident.verdict.confidence == pytest.approx(0.87)
    assert asker.requests() == []


def test_asking_raises_no_confidence_by_itself(known: Inventory) -> None:
    asked, silent = Asker(known, allowed=EVERY_KIND), unsure().confidence
    for second in range(0, 60, 5):
        (incident,) = asked.look(second)
        asked.answer()
    assert asked.count("answered") == 1
    assert incident.verdict.confidence == silent
    assert "the verdict stays unsure" in incident.history[-1].note


def test_agents_that_do_not_answer_are_given_up_and_not_asked_again(known: Inventory) -> None:
    asker = Asker(known, allowed=EVERY_KIND)
    for second in range(0, 10 + WAIT_SECONDS + 20, 5):
        (incident,) = asker.look(second)
    assert news(incident) == [News.OPENED, News.ASKED, News.ANSWERED]
    note = incident.history[-1].note
    assert "gave up on a burst capture after 2 min: a, b and c: did not answer in time" in note
    assert {one.state for one in asker.requests()} == {CaptureState.EXPIRED}
    asker.captures.look()
    assert [asker.captures.of(host) for host in HOSTS_ASKED] == [[], [], []]
    assert (asker.count("timed_out"), asker.count("answered")) == (1, 0)


def test_an_agent_that_refuses_is_named_with_its_reason(known: Inventory) -> None:
    asker = Asker(known, allowed=EVERY_KIND)
    for second in (0, 5, 10):
        asker.look(second)
    asker.answer(result="refused", detail="no sampler runs", samples="0")
    (incident,) = asker.look(15)
    assert "a, b and c: no sampler runs" in incident.history[-1].note
    assert asker.count("refused") == 1


def test_a_restart_neither_forgets_nor_repeats_what_was_asked(known: Inventory) -> None:
    first = Asker(known, allowed=EVERY_KIND)
    for second in (0, 5, 10):
        first.look(second)
    again = Asker(known, allowed=EVERY_KIND)
    for second in (15, 20, 25, 30):
        again.look(second)
    assert len(again.requests()) == len(HOSTS_ASKED)
    again.captures.look()
    again.answer()
    (incident,) = again.look(35)
    assert news(incident) == [News.OPENED, News.ASKED, News.ANSWERED]


def test_an_agent_with_enough_to_do_is_not_asked(known: Inventory) -> None:
    asker = Asker(known, allowed=EVERY_KIND)
    for _ in range(CAPTURES_PER_AGENT_MAX):
        asker.captures.ask("a", 1.0, 1.0, [])
    for second in range(0, 40, 5):
        (incident,) = asker.look(second)
    assert {one.by for one in asker.requests()} == {""}
    assert news(incident) == [News.OPENED]
    assert (asker.count("asked"), asker.count("refused")) == (0, 1)


def test_a_host_without_an_agent_is_not_asked(inventory: Inventory) -> None:
    asker = Asker(inventory, allowed=EVERY_KIND)
    for second in range(0, 40, 5):
        (incident,) = asker.look(second)
    assert asker.requests() == []
    assert news(incident) == [News.OPENED]
    assert asker.count("refused") == 1


def test_without_the_switch_nothing_is_requested(known: Inventory) -> None:
    asker = Asker(known, allowed=frozenset())
    for second in range(0, 60, 5):
        (incident,) = asker.look(second)
    assert asker.requests() == []
    assert news(incident) == [News.OPENED]


def test_many_troubles_at_once_stay_within_the_bounds(known: Inventory) -> None:
    asker = Asker(known, allowed=EVERY_KIND)
    asker.verdicts = [unsure(0.45, f"job{number}") for number in range(40)]
    for second in range(0, 60, 5):
        asker.look(second)
    assert len({one.why for one in asker.requests()}) == min(AT_ONCE_MAX, HOST_PER_HOUR_MAX)
    for second in range(60, 1200, 5):
        asker.look(second)
        asker.answer()
    assert len({one.why for one in asker.requests()}) == HOST_PER_HOUR_MAX
