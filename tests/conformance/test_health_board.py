"""The health board over a real inventory: the evidence it reads, and what it keeps."""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from alerts.finding import Finding
from alerts.health import judge
from alerts.health.lemon import LEMON_FROM
from alerts.health.model import HealthState, Hold, Standing, Target
from alerts.judge.incident import CLOSE_SECONDS
from api.base.errors import Problem
from api.base.limits import GHOST_SEEN_SECONDS, HEALTH_STALE_SECONDS
from api.base.metrics import ServiceMetrics
from api.data.ingest.own import OwnSamples
from api.data.inventory.incidents import moment_of
from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, Sighting
from api.data.store.store import Store
from api.fleet.health import board as board_module
from api.fleet.health import evidence as evidence_module
from api.fleet.health.answers import Asked, Fleet, HostEntry
from api.fleet.health.board import JUDGE_SECONDS, HealthMonitor, Looked
from api.fleet.health.evidence import EVALUATED_SECONDS, SILENT_SECONDS, Evidence
from api.fleet.health.holds import Holds, InventoryHolds
from api.fleet.health.series import HealthSeries
from api.oncall.evaluate.book import IncidentBook
from api.oncall.evaluate.lead import Lead
from api.oncall.evaluate.rows import Position, StoredFinding, Wanted
from collector.contract.errors import InventoryError, StoreError
from collector.contract.model import Sample
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason, Verdict
from tests.stands.holding import end_hold, set_hold
from tests.worlds.incidents import HOLDER, Teller, slow_link, straggler

START_S = 1_794_000_000
FLEET = ("node1", "node3", "node4", "node9")


class NoStore:
    """Takes verdict rows and keeps none."""

    def insert_arrow(self, *_: object) -> None:
        """Forget it."""


class Book(IncidentBook):
    """The incidents of the inventory, and findings that a test chooses."""

    found: list[StoredFinding]
    is_away = False

    def findings(
        self, wanted: Wanted, after: Position | None = None, limit: int = 0
    ) -> list[StoredFinding]:
        """The findings within the time asked for."""
        assert after is None
        if self.is_away:
            raise StoreError("the store is away")
        known = [each for each in self.found if wanted.from_ns <= each.time_ns <= wanted.to_ns]
        return sorted(known, key=lambda each: -each.time_ns)[:limit]


class Own:
    """Samples that a board would write."""

    def __init__(self) -> None:
        self.written: list[Sample] = []

    async def write(self, samples: list[Sample]) -> None:
        """Note them."""
        self.written += samples


class Process:
    """A service process' board, and a `Teller` that writes verdicts."""

    def __init__(
        self, inventory: Inventory, *, holder: str = HOLDER, started_s: int = START_S
    ) -> None:
        self.inventory = inventory
        self.now_s = float(started_s)
        self.book = Book(inventory, cast("Store", None))
        self.book.found = []
        self.own = Own()
        self.metrics = ServiceMetrics()
        self.lead = Lead(inventory, lambda: self.now_s, holder=holder)
        self._teller = Teller(inventory, cast("Store", NoStore()))
        evidence = Evidence(
            inventory, self.book, [InventoryHolds(inventory.health)], started_s * NS
        )
        own = cast("OwnSamples", self.own)
        self.board = HealthMonitor(
            evidence, inventory, self.lead, own, self.metrics, lambda: self.now_s
        )
        self.looked: Looked | None = None

    @property
    def now_ns(self) -> int:
        return round(self.now_s * NS)

    def say(self, *verdicts: Verdict) -> None:
        """A round of the evaluator."""
        self._teller.say(self.now_ns, *verdicts)

    def hear(self, *hosts: str) -> None:
        """These hosts report."""
        self.inventory.observe(
            Observation.at(Sighting(host=host), moment_of(self.now_ns)) for host in hosts
        )

    def look(self, *, after_s: float = 2.0) -> Fleet:
        """A look, some seconds later."""
        self.now_s += after_s
        self.looked = self.board.look(self.now_ns)
        return self.looked.fleet

    def states(self, *, after_s: float = 2.0) -> dict[str, str]:
        """The hosts that are not healthy."""
        hosts = self.look(after_s=after_s).hosts.values()
        return {each.host: each.state.value for each in hosts if each.state != "healthy"}


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    inventory = Inventory(f"sqlite:///{tmp_path}/inventory.db")
    inventory.migrate()
    yield inventory
    inventory.close()


@pytest.fixture
def process(inventory: Inventory) -> Process:
    """A service in which four hosts report, and that leads."""
    process = Process(inventory)
    process.hear(*FLEET)
    process.say()
    assert process.lead.renew()
    return process


def flap(process: Process, host: str = "node1", *, confidence: float = 0.9) -> Verdict:
    return Verdict(
        cause=Cause.LINK_FLAP,
        culprit=Culprit(host=host, device="mlx5_0", port="1"),
        since_ns=process.now_ns - NS,
        reason=Reason.CABLE,
        confidence=confidence,
        summary=f"the link of {host} goes down and comes back",
    )


# --- verdicts -----------------------------------------------------------------------------------


def test_an_incident_becomes_a_state_and_its_victims_stay_well(process: Process) -> None:
    assert process.states() == {}
    process.say(slow_link(process.now_ns - NS), straggler(process.now_ns - NS))
    fleet = process.look()
    assert {name: each.state for name, each in fleet.hosts.items()} == {
        "node1": "healthy",
        "node3": "degraded",
        "node4": "healthy",
        "node9": "suspect",
    }
    [reason] = fleet.hosts["node3"].reasons
    assert reason.startswith("slow_link (nic) of device mlx5_0, open, 2026")
    assert fleet.standings[Target.of_device("node3", "mlx5_0")].state == "degraded"
    assert fleet.standings[Target.of_gpu("node9", "1")].risk == 0.4
    assert fleet.counts == {"healthy": 2, "suspect": 1, "degraded": 1, "draining": 0, "out": 0}


def test_when_it_is_over_the_host_is_suspect_and_then_well(process: Process) -> None:
    process.say(flap(process))
    assert process.states() == {"node1": "degraded"}
    process.now_s += 600
    process.say()
    process.hear(*FLEET)
    assert process.states() == {"node1": "suspect"}
    risks = []
    for _ in range(10):
        process.now_s += 86_400
        process.hear(*FLEET)
        process.say()
        risks.append(process.look().hosts["node1"].risk)
    assert risks == sorted(risks, reverse=True)
    assert risks[0] > risks[1] > 0
    assert process.states() == {}


def test_a_process_that_starts_later_sees_the_same(process: Process, inventory: Inventory) -> None:
    process.say(flap(process), slow_link(process.now_ns - NS))
    set_hold(process.inventory, "1", hold_on("node4", process.now_ns))
    fleet = process.look()
    other = Process(inventory, holder="other", started_s=START_S + 2)
    seen = other.look(after_s=0.0)
    assert seen.body(Asked()) == fleet.body(Asked())
    assert other.looked is not None
    assert other.looked.turns == [], "what had happened before is no news"


def test_news_that_are_no_longer_kept_are_read_anew(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.look()
    monkeypatch.setattr("api.data.inventory.incidents.INCIDENT_CHANGES_KEPT_MAX", 1)
    process.say(flap(process))
    process.say(flap(process), slow_link(process.now_ns - NS))
    assert process.states() == {"node1": "degraded", "node3": "degraded"}


def test_a_host_in_trouble_again_and_again_is_a_lemon(process: Process) -> None:
    scores = []
    for _ in range(4):
        process.now_s += 3 * 86_400
        process.hear(*FLEET)
        process.say(flap(process, confidence=1.0))
        process.now_s += 600
        process.say()
        process.now_s += CLOSE_SECONDS
        process.say()
        scores.append(process.look().hosts["node1"].lemon)
    assert scores == sorted(scores)
    assert scores[0] < LEMON_FROM <= scores[3]
    assert process.look().hosts["node3"].lemon == 0.0


def test_a_name_that_no_host_has_is_not_listed(process: Process) -> None:
    process.say(flap(process, "nobody"), flap(process, "no\u2028body"))
    assert list(process.look().hosts) == list(FLEET)


# --- findings -----------------------------------------------------------------------------------


def found(process: Process, host: str, number: int = 1) -> StoredFinding:
    finding = Finding(
        detector="link_flap",
        cause=Cause.LINK_FLAP,
        culprit=Culprit(host=host, device="mlx5_0", port="1"),
        strength=0.9,
        since_ns=process.now_ns,
        until_ns=None,
        last_ns=process.now_ns,
    )
    return StoredFinding(time_ns=process.now_ns, id=number, finding=finding)


def test_a_finding_that_no_job_feels_makes_a_host_suspect_while_it_stands(
    process: Process,
) -> None:
    process.book.found = [found(process, "node4"), found(process, "node4")]
    assert process.states() == {"node4": "suspect"}
    process.hear(*FLEET)
    process.say()
    assert process.states(after_s=60) == {"node4": "suspect"}
    process.say()
    assert process.states(after_s=60) == {}


def test_a_store_that_is_away_is_said_and_stops_nothing(process: Process) -> None:
    process.book.found = [found(process, "node4")]
    process.book.is_away = True
    process.say(flap(process))
    fleet = process.look()
    assert fleet.hosts["node1"].state == "degraded"
    assert fleet.stale == ("findings: the store cannot be read",)
    process.book.is_away = False
    assert process.look().stale == ()
    assert process.look().hosts["node4"].state == "suspect"


# --- silence ------------------------------------------------------------------------------------


def test_a_host_that_no_longer_reports_is_suspect_since_then(process: Process) -> None:
    process.now_s += SILENT_SECONDS
    process.hear("node1", "node3", "node4")
    process.say()
    assert process.states(after_s=1) == {"node9": "suspect"}
    entry = process.look().hosts["node9"]
    assert entry.reasons == ("silent since 2026-11-06T21:20:00Z",)
    assert entry.risk == 0.5
    process.hear("node9")
    assert process.states() == {}


def test_a_service_that_has_just_started_blames_nobody_for_its_own_absence(
    process: Process, inventory: Inventory
) -> None:
    assert process.states() == {}
    process.look(after_s=GHOST_SEEN_SECONDS)
    process.hear(*FLEET)
    restarted = Process(inventory, started_s=START_S + GHOST_SEEN_SECONDS + 3_600)
    restarted.say()
    assert restarted.states() == {}
    assert set(restarted.states(after_s=SILENT_SECONDS)) == set(FLEET)
    assert restarted.looked is not None
    assert "silence: most hosts are silent" in " ".join(restarted.looked.fleet.stale)
    restarted.hear(*FLEET)
    assert restarted.states() == {}


def test_a_host_that_is_gone_for_a_week_leaves_the_list_unless_somebody_holds_it(
    process: Process,
) -> None:
    process.look()
    set_hold(process.inventory, "1", hold_on("node9", process.now_ns, state=HealthState.OUT))
    process.now_s += 7 * 86_400 + 60
    process.hear("node3")
    process.say()
    hosts = process.look().hosts
    assert {name: each.state for name, each in hosts.items()} == {
        "node3": "healthy",
        "node9": "out",
    }
    assert list(hosts) == sorted(hosts)


def test_verdicts_of_the_past_are_said_to_be(process: Process, inventory: Inventory) -> None:
    assert process.look().stale == ()
    process.now_s += EVALUATED_SECONDS
    process.hear(*FLEET)
    [doubt] = process.look().stale
    assert doubt == "verdicts: nothing was evaluated since 2026-11-06T21:20:00Z"
    process.say()
    assert process.look().stale == ()
    assert inventory.leases.take("other", "x", moment_of(0), moment_of(1))


# --- holds --------------------------------------------------------------------------------------


def hold_on(host: str, now_ns: int, *, state: HealthState = HealthState.DRAINING) -> Hold:
    return Hold(
        target=Target.of_host(host),
        state=state,
        reason="cables",
        by="ada",
        since_ns=now_ns,
        until_ns=None,
    )


def test_what_an_operator_says_stands_above_what_is_measured(process: Process) -> None:
    process.say(flap(process))
    set_hold(process.inventory, "1", hold_on("node1", process.now_ns))
    fleet = process.look()
    assert fleet.hosts["node1"].state == "draining"
    assert fleet.hosts["node1"].risk > 0.5
    assert fleet.hosts["node1"].reasons[0] == "draining by ada: cables"
    end_hold(process.inventory, "node1", "bob", moment_of(process.now_ns))
    assert process.states() == {"node1": "degraded"}


def test_of_two_who_hold_a_host_the_stricter_counts(process: Process) -> None:
    class Scheduler:
        """Another source of holds, as an action of ours will be."""

        def standing(self, now: dt.datetime) -> list[Hold]:
            assert now.tzinfo is not None
            out = hold_on("node3", process.now_ns, state=HealthState.OUT)
            return [hold_on("node1", process.now_ns), out]

    both: list[Holds] = [InventoryHolds(process.inventory.health), Scheduler()]
    evidence = Evidence(process.inventory, process.book, both, START_S * NS)
    set_hold(process.inventory, "1", hold_on("node1", process.now_ns, state=HealthState.OUT))
    set_hold(process.inventory, "2", hold_on("node3", process.now_ns))
    evidence.refresh(process.now_ns)
    assert {each.host: hold.state for each, hold in evidence.holds.items()} == {
        "node1": "out",
        "node3": "out",
    }


# --- turns --------------------------------------------------------------------------------------


def test_turns_are_written_by_who_leads_and_heard_by_all(
    process: Process, inventory: Inventory
) -> None:
    other = Process(inventory, holder="other")
    other.look()
    process.look()
    process.say(flap(process))
    process.look()
    assert process.looked is not None
    told = [(each.turn.target.kind.value, each.turn.state.value) for each in process.looked.turns]
    assert sorted(told) == [("device", "suspect"), ("host", "degraded"), ("link", "degraded")]
    since_ns = process.now_ns
    assert process.look().hosts["node1"].since_ns == since_ns
    other.now_s = process.now_s
    other.look()
    assert other.looked is not None
    assert [each.number for each in other.looked.turns] == [1, 2, 3]
    process.look()
    assert process.looked.turns == [], "each turn is published once"
    [latest, *_] = inventory.health.turns_of("node1")
    assert latest.was is HealthState.HEALTHY


def test_a_state_is_remembered_over_a_restart(process: Process, inventory: Inventory) -> None:
    """Inside the band the state is what it was, also for a process that was not there."""
    process.say(flap(process, confidence=0.7))
    assert process.states() == {"node1": "degraded"}
    process.say(flap(process, confidence=0.55))
    assert process.states() == {"node1": "degraded"}
    restarted = Process(inventory, started_s=round(process.now_s))
    assert restarted.states() == {"node1": "degraded"}


def test_turns_of_one_round_are_bounded_and_the_rest_follows(
    process: Process, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_module, "HEALTH_TURNS_A_ROUND_MAX", 3)
    process.look()
    process.now_s += SILENT_SECONDS
    process.lead.renew()
    assert len(process.states()) == 4
    assert process.looked is not None
    assert len(process.looked.turns) == 3
    process.look()
    assert len(process.looked.turns) == 1
    assert len(inventory.health.turns_after(0)) == 4


def test_without_news_nothing_is_judged_until_it_is_due(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []

    def stand(*arguments: Any, **more: Any) -> Standing:  # noqa: ANN401 - passed on as they are
        judged.append(process.now_s)
        return judge.stand(*arguments, **more)

    monkeypatch.setattr(board_module, "stand", stand)
    process.say(flap(process))
    first = process.look()
    process.look()
    judged.clear()
    assert process.look() is first
    assert judged == []
    assert process.look(after_s=JUDGE_SECONDS) is first, "it says the same"
    assert judged


# --- asking -------------------------------------------------------------------------------------


def test_a_board_that_cannot_see_says_so_and_nothing_else(process: Process) -> None:
    async def run() -> None:
        await process.board.once()
        assert (await process.board.fleet()).counts["healthy"] == 4
        process.now_s += HEALTH_STALE_SECONDS + 1
        assert await process.board.latest() is None
        with pytest.raises(Problem, match="states are not known") as refused:
            await process.board.fleet()
        assert refused.value.body.rule == "HEALTH_STALE_SECONDS"

    asyncio.run(run())


def test_an_inventory_that_fails_leaves_what_was_known(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        await process.board.once()

        def away(*_: object) -> None:
            raise InventoryError("the inventory is away")

        monkeypatch.setattr(process.inventory.health, "silent_hosts", away)
        monkeypatch.setattr(evidence_module, "SILENT_SECONDS", 0)
        process.now_s += 1
        with pytest.raises(InventoryError):
            await process.board.once()
        assert (await process.board.fleet()).counts["healthy"] == 4

    asyncio.run(run())


def waiting(process: Process, ask: Callable[[HealthMonitor], Any]) -> list[Any]:
    """What a question gives that waits while something happens."""

    async def run() -> list[Any]:
        await process.board.once()
        task = asyncio.ensure_future(ask(process.board))
        while process.metrics.registry.get_sample_value("fabric_service_health_clients") != 1:  # noqa: ASYNC110 - no event marks that a client begins to wait
            await asyncio.sleep(0)
        process.now_s += 2
        process.say(flap(process))
        await process.board.once()
        return [await task]

    return asyncio.run(run())


def test_who_waits_is_answered_when_something_changes(process: Process) -> None:
    async def ask(board: HealthMonitor) -> Any:  # noqa: ANN401 - a body
        known = await board.body(Asked())
        return known, await board.body(Asked(), {known.tag}, wait_s=60)

    [(known, changed)] = waiting(process, ask)
    assert known.tag != changed.tag
    assert b"degraded" in changed.content


def test_every_answer_counts_the_whole_fleet_so_that_any_turn_is_a_change(process: Process) -> None:
    async def ask(board: HealthMonitor) -> Any:  # noqa: ANN401 - a body
        asked = Asked(states=frozenset({HealthState.OUT}))
        known = await board.body(asked)
        return known, await board.body(asked, {known.tag}, wait_s=60)

    [(known, changed)] = waiting(process, ask)
    assert known.content != changed.content


def test_waiting_is_bounded_and_ends_with_the_service(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        board = process.board
        await board.once()
        known = await board.body(Asked())
        waits = asyncio.ensure_future(board.body(Asked(), {known.tag}, wait_s=600))
        await asyncio.sleep(0)
        monkeypatch.setattr(board_module, "HEALTH_WAITERS_MAX", 1)
        with pytest.raises(Problem, match="HEALTH_WAITERS_MAX"):
            await board.body(Asked(), {known.tag}, wait_s=600)
        board.close()
        assert (await waits).tag == known.tag

    asyncio.run(run())


def test_an_answer_is_made_once_for_every_change(process: Process) -> None:
    process.say(flap(process))
    fleet = process.look()
    asked = Asked(states=frozenset({HealthState.DEGRADED}), min_risk=0.5)
    assert fleet.body(asked) is fleet.body(asked)
    assert b'"node3"' not in fleet.body(asked).content
    assert fleet.body(Asked()).tag == process.look(after_s=JUDGE_SECONDS).body(Asked()).tag


# --- series -------------------------------------------------------------------------------------


def test_only_hosts_that_are_unwell_have_series_and_they_end(process: Process) -> None:
    process.say(flap(process))

    async def run() -> None:
        await process.board.once()
        await process.board.once()

    asyncio.run(run())
    written = {(each.series.metric, each.value) for each in process.own.written}
    assert written == {("fabric_host_health_state", 2.0), ("fabric_host_risk_ratio", 0.72)}
    assert len(process.own.written) == 2, "not at every look"
    count = process.metrics.registry.get_sample_value("fabric_service_hosts", {"state": "degraded"})
    assert count == 1.0


def test_series_are_bounded_by_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.fleet.health.series.HEALTH_SERIES_MAX", 2)
    hosts = [
        HostEntry(host=f"node{n}", state=HealthState.SUSPECT, risk=n / 10, lemon=0.0)
        for n in range(5)
    ]
    series = HealthSeries()
    made = series.samples(NS, hosts)
    assert [dict(each.series.labels)["host"] for each in made[::2]] == ["node4", "node3"]
    assert series.left_out == 3
    over = series.samples(2 * NS, hosts[:1])
    ended = [dict(each.series.labels)["host"] for each in over if each.value != each.value]
    assert sorted(set(ended)) == ["node3", "node4"]
