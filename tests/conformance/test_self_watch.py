"""The service pages about itself when the store, the inventory or both take nothing.

Time is the test's: a step of 15 s looks at the registry, judges, plans and sends, as the service's
own loops do.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest

from alerts.rulebook.notices import Notice, Route
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.data.inventory.repository import Inventory
from api.http.settings import ServiceSettings
from api.oncall.evaluate.lead import EVALUATOR, Lead, moment
from api.oncall.notify import task
from api.oncall.notify.http import Delivery, Outcome
from api.oncall.notify.receivers import Receiver
from api.oncall.notify.settings import NotifierSettings, NotifySettings
from api.oncall.notify.table import ReceiverTable
from api.oncall.notify.task import Notifying
from api.oncall.rules.own import OWN_SECONDS
from api.oncall.rules.settings import RuleSettings
from api.oncall.rules.shelf import Shelf
from api.oncall.rules.task import RuleTask
from api.oncall.rules.watch import WARM_SECONDS, WATCHED, SelfWatch
from collector.contract.errors import InventoryError, StoreError
from collector.contract.units import NS
from tests.stands.alerting import Listener, make_alert
from tests.stands.service import eventually, in_process

START_S = 1_794_000_000.0
PLACE = {"host": "node1", "instance": "node1:9700"}
FULL = "insert into samples: Code: 243. DB::Exception: Cannot reserve 3 MiB. (NOT_ENOUGH_SPACE)"
RULES = RuleSettings(
    pack=True,
    knobs="",
    folder="",
    interval_s=30.0,
    external_labels={},
    public_url="http://127.0.0.1:9700",
    port=9700,
)
PAGE_SECONDS = 5 * 60
"""The stated time from the first failed insert to the page (docs/how-to/get-paged.md)."""


class Phone(Receiver):
    """A receiver in memory, up or down."""

    name = "phone"

    def __init__(self) -> None:
        self.is_up = True
        self.got: list[Notice] = []

    async def send(self, notice: Notice) -> Outcome:
        if not self.is_up:
            return Outcome(delivery=Delivery.RETRY, detail="away")
        self.got.append(notice)
        return Outcome(delivery=Delivery.SENT)

    @property
    def pages(self) -> list[tuple[str, str]]:
        return [(dict(each.group_labels)["alertname"], each.status.value) for each in self.got]


class Side:
    """One process: its registry, its watch and its notifier, over an inventory."""

    def __init__(self, inventory: Inventory, phone: Phone, *, is_alone: bool = True) -> None:
        self.now_s = START_S
        self.inventory = inventory
        self.phone = phone
        self.is_alone = is_alone
        self.restart()

    def restart(self) -> None:
        self.metrics = ServiceMetrics(lambda: self.now_s)
        self.metrics.vitals.steady = lambda: self.now_s
        pulse = self.metrics.vitals.inventory
        clock = lambda: self.now_s  # noqa: E731 - a clock
        self.lead = Lead(self.inventory, clock, is_alone=self.is_alone, pulse=pulse)
        self.lead.renew()
        self.metrics.watch("fabric_service_evaluation_leads", lambda: float(self.lead.is_held()))
        self.metrics.watch("fabric_service_rule_parts", lambda: 8.0 * self.lead.is_held())
        table = ReceiverTable(name="pager", type="webhook", url="http://127.0.0.1:9/")
        file = NotifySettings(receivers=(table,), routes=(Route(receiver="pager"),))
        settings = NotifierSettings(
            file=file, alertmanagers=[], interval_s=30.0, external_labels={}, public_url=""
        )
        with patch.object(task, "make_receiver", lambda *_: self.phone):
            self.notifying = Notifying(settings, self.inventory, self.lead, self.metrics, clock)
        shelf = Shelf(RULES, self.metrics, clock)
        shelf.look()
        notify = self.notifying.notify_own
        self.watch = SelfWatch(shelf, RULES, self.metrics, PLACE, notify, clock)
        self.notifying.owned = self.watch.owns

    async def step(self) -> None:
        self.now_s += OWN_SECONDS
        self.lead.renew()
        await self.watch.once()
        notifier, [outbox] = self.notifying.notifier, self.notifying.outboxes
        assert notifier is not None
        await notifier.plan_once()
        await notifier.send_directly(self.notifying._own_book)
        await outbox.send_due()

    async def live(self, seconds: float, *, commits: str = "stored") -> None:
        """Time passes; the commit of each step succeeds or fails."""
        for _ in range(int(seconds / OWN_SECONDS)):
            self.metrics.commits.labels(commits).inc()
            if commits == "stored":
                self.metrics.vitals.commit.succeed()
            else:
                self.metrics.vitals.commit.fail(FULL)
            await self.step()


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    opened = Inventory(f"sqlite:///{tmp_path / 'inventory.db'}")
    opened.migrate()
    yield opened
    opened.close()


@contextlib.contextmanager
def full_disk(inventory: Inventory) -> Iterator[None]:
    """Every write of the inventory that notifying needs fails; what it reads is answered."""
    error = InventoryError("inventory in /data/inventory.db: database or disk is full")
    writes = ("keep_plan", "begin_attempts", "drop_strangers", "settle", "postpone")
    with contextlib.ExitStack() as broken:
        broken.enter_context(patch.object(inventory.leases, "take", side_effect=error))
        for name in writes:
            broken.enter_context(patch.object(inventory.notices, name, side_effect=error))
        yield


def test_every_watched_alert_is_in_the_pack(inventory: Inventory) -> None:
    side = Side(inventory, Phone())
    side.watch.judge(round(START_S * NS))
    assert set(side.watch._standing) == WATCHED


def test_a_store_that_refuses_every_insert_pages_once_and_resolves_once(
    inventory: Inventory,
) -> None:
    async def scene() -> None:
        phone = Phone()
        side = Side(inventory, phone)
        await side.live(WARM_SECONDS)
        assert phone.pages == []
        await side.live(PAGE_SECONDS, commits="failed")
        assert phone.pages == [("FabricStoreFailing", "firing")]
        await side.live(1_500, commits="failed")
        assert len(phone.pages) == 1
        await side.live(1_500)
        assert phone.pages == [("FabricStoreFailing", "firing"), ("FabricStoreFailing", "resolved")]

    asyncio.run(scene())


def test_without_store_and_inventory_the_page_comes_from_memory(inventory: Inventory) -> None:
    async def scene() -> None:
        phone = Phone()
        side = Side(inventory, phone)
        await side.live(WARM_SECONDS)
        with full_disk(inventory):
            await side.live(PAGE_SECONDS, commits="failed")
            expected = {("FabricStoreFailing", "firing"), ("FabricInventoryAway", "firing")}
            assert set(phone.pages) == expected
            await side.live(1_200, commits="failed")
        assert len(phone.pages) == 2
        await side.live(1_500)
        ends = [name for name, status in phone.pages if status == "resolved"]
        assert sorted(ends) == ["FabricInventoryAway", "FabricStoreFailing"]
        assert len(phone.pages) == 4

    asyncio.run(scene())


def test_a_page_that_was_sent_before_the_inventory_went_is_not_sent_again(
    inventory: Inventory,
) -> None:
    async def scene() -> None:
        phone = Phone()
        side = Side(inventory, phone)
        await side.live(WARM_SECONDS)
        await side.live(PAGE_SECONDS, commits="failed")
        assert phone.pages == [("FabricStoreFailing", "firing")]
        # The store recovers first: its end is sent although the inventory keeps nothing.
        with full_disk(inventory):
            await side.live(1_200)
        await side.live(1_500)
        assert phone.pages.count(("FabricStoreFailing", "firing")) == 1
        assert phone.pages.count(("FabricStoreFailing", "resolved")) == 1
        assert phone.pages.count(("FabricInventoryAway", "firing")) == 1
        assert phone.pages.count(("FabricInventoryAway", "resolved")) == 1
        assert len({each.id for each in phone.got}) == len(phone.got)

    asyncio.run(scene())


def test_a_notice_that_was_kept_and_not_sent_when_the_inventory_went_is_sent(
    inventory: Inventory,
) -> None:
    async def scene() -> None:
        phone = Phone()
        phone.is_up = False
        side = Side(inventory, phone)
        await side.live(WARM_SECONDS)
        await side.live(PAGE_SECONDS, commits="failed")
        assert phone.got == []
        with full_disk(inventory):
            phone.is_up = True
            await side.live(120, commits="failed")
        assert phone.pages == [("FabricStoreFailing", "firing")]
        await side.live(600, commits="failed")
        assert phone.pages == [("FabricStoreFailing", "firing")]

    asyncio.run(scene())


def test_a_restart_amid_the_trouble_neither_ends_nor_repeats_the_page(
    inventory: Inventory,
) -> None:
    async def scene() -> None:
        phone = Phone()
        side = Side(inventory, phone)
        await side.live(WARM_SECONDS)
        await side.live(PAGE_SECONDS, commits="failed")
        side.restart()
        await side.live(1_200, commits="failed")
        assert phone.pages == [("FabricStoreFailing", "firing")]

    asyncio.run(scene())


def test_a_process_that_does_not_lead_and_cannot_store_pages_by_itself(
    inventory: Inventory,
) -> None:
    async def scene() -> None:
        phone = Phone()
        until = moment(START_S + 86_400)
        assert inventory.leases.take(EVALUATOR, "another", moment(START_S), until)
        side = Side(inventory, phone, is_alone=False)
        await side.live(WARM_SECONDS)
        assert not side.lead.is_held()
        await side.live(PAGE_SECONDS, commits="failed")
        await side.live(1_200)
        assert phone.pages == [("FabricStoreFailing", "firing"), ("FabricStoreFailing", "resolved")]

    asyncio.run(scene())


def test_an_alert_about_this_process_from_the_store_is_left_to_the_watch(
    inventory: Inventory,
) -> None:
    side = Side(inventory, Phone())
    side.watch.judge(round(START_S * NS))
    ours = make_alert("FabricStoreFailing", START_S, host="node1", instance="node1:9700")
    assert side.watch.owns(ours)
    assert not side.watch.owns(make_alert("FabricStoreFailing", START_S, instance="node2:9700"))
    assert not side.watch.owns(
        make_alert("FabricRowsPending", START_S, host="node1", instance="node1:9700")
    )


def test_a_receiver_that_is_away_gets_the_page_when_it_is_back_and_no_more_than_the_bound_wait(
    inventory: Inventory,
) -> None:
    async def scene() -> None:
        phone = Phone()
        side = Side(inventory, phone)
        await side.live(WARM_SECONDS)
        phone.is_up = False
        with full_disk(inventory), patch("api.oncall.notify.direct.DIRECT_NOTICES_MAX", 1):
            await side.live(900, commits="failed")
            numbers = side.metrics.registry.get_sample_value
            assert numbers("fabric_service_direct_notices_waiting") == 1
            assert numbers("fabric_service_direct_notices_dropped_total") == 1
            phone.is_up = True
            await side.live(60, commits="failed")
            assert len(phone.pages) == 1
            assert numbers("fabric_service_direct_notices_waiting") == 0

    asyncio.run(scene())


# --- the whole service -------------------------------------------------------------------------

NOTIFY = """
[[receivers]]
name = "pager"
type = "webhook"
url = "{url}"

[[routes]]
receiver = "pager"
match = ['alertname="FabricStoreFailing"']
group_wait_s = 0
group_interval_s = 1
"""
KNOBS = 'self_failing_seconds = 0.1\nself_service_for = "1s"\n'


@pytest.mark.slow
def test_the_service_pages_while_its_store_refuses_every_insert(tmp_path: Path) -> None:
    """The parts as they are wired, in real time, with short thresholds."""
    with Listener() as pager:
        (tmp_path / "notify.toml").write_text(NOTIFY.format(url=pager.url))
        (tmp_path / "knobs.toml").write_text(KNOBS)
        settings = ServiceSettings(
            data=str(tmp_path),
            notify_file=str(tmp_path / "notify.toml"),
            rules_knobs=str(tmp_path / "knobs.toml"),
        )
        with (
            patch("api.oncall.rules.watch.OWN_SECONDS", 0.5),
            patch("api.oncall.rules.own.OWN_SECONDS", 0.5),
            in_process(tmp_path, settings=settings) as service,
        ):
            with patch.object(service.store, "insert_samples", side_effect=StoreError(FULL)):
                eventually(lambda: bool(pager.calls), "a page")
            text = pager.calls[0].raw.decode()
            assert "FabricStoreFailing" in text
            assert "firing" in text


def test_a_notifier_that_broke_can_send_after_it_is_started_again(tmp_path: Path) -> None:
    """Red before: its HTTP client stayed closed, so that no page was sent until a restart."""
    opened = Inventory(f"sqlite:///{tmp_path / 'inventory.db'}")
    opened.migrate()
    side = Side(opened, Phone())

    async def scene() -> bool:
        broken = patch.object(side.notifying, "_count_on", side_effect=ValueError("one odd row"))
        with broken, pytest.raises(ExceptionGroup):
            await side.notifying.run(Steady("notifier", ServiceMetrics()))
        client = side.notifying._client
        assert client is not None
        is_open = not client.is_closed
        await client.aclose()
        return is_open

    assert asyncio.run(scene())
    opened.close()


def test_rules_that_broke_can_be_asked_after_they_are_started_again() -> None:
    """Red before: the break stopped the asker and its threads, for good."""
    asker, nothing, metrics = MagicMock(), MagicMock(), ServiceMetrics()
    rules = RuleTask(
        nothing, asker, nothing, nothing, nothing, nothing, metrics, nothing, interval_s=30.0
    )
    odd = patch.object(rules, "_begin", side_effect=ValueError("one odd rule"))
    for _ in range(2):
        with odd, pytest.raises(ValueError, match="one odd rule"):
            asyncio.run(rules.run(Steady("rules", metrics)))
    asker.stop.assert_not_called()
    assert asyncio.run(rules._in_thread(lambda: 7)) == 7
