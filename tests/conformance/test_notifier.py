"""The built-in notifier: it keeps each planned notice and sends each kept one, despite crashes."""

import asyncio
import datetime as dt
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from alerts.rulebook.model import Alert
from alerts.rulebook.notices import Matcher, Notice, Operator, Route, Silence, Status, Why
from api.base.metrics import ServiceMetrics
from api.data.inventory import notices as notices_tables
from api.data.inventory.records import NoticeState
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.lead import EVALUATOR, Lead
from api.oncall.notify.http import Delivery, Outcome, make_client
from api.oncall.notify.outbox import Outbox
from api.oncall.notify.receivers import Means, Receiver, discover, make_receiver
from api.oncall.notify.settings import NotifySettings
from api.oncall.notify.table import ReceiverTable
from api.oncall.notify.task import Book, Notifier
from collector.contract.errors import InventoryError
from collector.contract.units import NS
from tests.stands.alerting import GROUP, Listener, make_alert

START_S = 1_794_000_000.0
RECEIVER = ReceiverTable(name="pager", type="webhook", url="http://127.0.0.1:9/")
ROUTE = Route(receiver="pager")
HOUR = 3_600.0


class Crash(BaseException):
    """The process ends here: nothing catches this."""


class Crashing:
    """A part of the inventory whose calls may be the last thing that a process does."""

    def __init__(self, real: Any, crash: Callable[[str], None]) -> None:  # noqa: ANN401
        self._real = real
        self._crash = crash

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the real one has
        called = getattr(self._real, name)

        def call(*positional: Any, **named: Any) -> Any:  # noqa: ANN401
            self._crash(f"before {name}")
            answer = called(*positional, **named)
            self._crash(f"after {name}")
            return answer

        return call


class Phone(Receiver):
    """A receiver in memory, up or down."""

    name = "phone"

    def __init__(self) -> None:
        self.is_up = True
        self.got: list[Notice] = []
        self.crash: Callable[[str], None] = lambda _: None
        self.cut_off: Counter[str] = Counter()
        """Notices that it took, and our side died before it knew."""

    async def send(self, notice: Notice) -> Outcome:
        self.crash("before send")
        if not self.is_up:
            return Outcome(delivery=Delivery.RETRY, detail="away")
        self.got.append(notice)
        self.crash("after send")
        return Outcome(delivery=Delivery.SENT)

    def statuses(self) -> list[str]:
        return [notice.status.value for notice in self.got]


class Side:
    """Our side over an inventory: one process after the other."""

    def __init__(
        self,
        inventory: Inventory,
        receiver: Receiver,
        *,
        route: Route = ROUTE,
        crash: Callable[[str], None] | None = None,
    ) -> None:
        self.now_s = START_S
        self.inventory: Any = inventory
        if crash:
            parts = {name: getattr(inventory, name) for name in ("notices", "silences")}
            self.inventory = SimpleNamespace(
                **{name: Crashing(part, crash) for name, part in parts.items()}
            )
        self.receiver = receiver
        self.settings = NotifySettings(receivers=(RECEIVER,), routes=(route,))
        self.metrics = ServiceMetrics()
        self._plain = inventory
        self.restart()

    def clock(self) -> float:
        return self.now_s

    def restart(self) -> None:
        """A new process on the same inventory."""
        self.lead = Lead(self._plain, self.clock, is_alone=True)
        self.lead.renew()
        self.metrics = ServiceMetrics()
        self.book = Book({})
        self.book.begin(round(self.now_s * NS))
        parts = (self.inventory, self.lead, self.metrics, self.clock)
        self.notifier = Notifier(self.settings, self.book, *parts)
        self.outbox = Outbox("pager", self.receiver, *parts)

    async def step(self, alerts: Sequence[Alert], seconds: float = 0.0) -> None:
        """Time passes, rules are evaluated, and what follows is planned and sent."""
        self.now_s += seconds
        self.lead.renew()
        self.book.note(GROUP, alerts, round(self.now_s * NS))
        await self.notifier.plan_once()
        await self.outbox.send_due()

    def unmarked(self, taken: Sequence[Notice]) -> set[str]:
        """Of these notices those that the inventory does not know to be sent."""
        sent = {
            kept.notice.id for kept in self._plain.notices.page(state=NoticeState.SENT, limit=1_000)
        }
        return {notice.id for notice in taken} - sent

    def states(self) -> Counter[str]:
        return Counter(kept.state.value for kept in self._plain.notices.page())


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    inventory = Inventory(f"sqlite:///{tmp_path}/inventory.db")
    inventory.migrate()
    yield inventory
    inventory.close()


def down(fired: float = 0.0, ended: float | None = None, **labels: Any) -> Alert:  # noqa: ANN401
    return make_alert(
        "LinkDown",
        START_S + fired,
        ended_s=None if ended is None else START_S + ended,
        **labels,
    )


# --- one receiver -------------------------------------------------------------------------------


def test_a_receiver_that_is_away_for_an_hour_gets_the_present_state_once(
    inventory: Inventory,
) -> None:
    phone = Phone()
    side = Side(inventory, phone)

    async def story() -> None:
        phone.is_up = False
        await side.step([down()])
        await side.step([down()], 10)
        for minute in range(60):
            # Something changes every minute: each interval makes a notice.
            await side.step([down(), down(60 * minute, host=f"n{minute}")], 60)
        assert phone.got == []
        phone.is_up = True
        for _ in range(10):
            await side.step([down(), down(60 * 59, host="n59")], 60)

    asyncio.run(story())
    assert [notice.status for notice in phone.got][:1] == [Status.FIRING]
    assert len(phone.got) <= 3, "what has happened since it is back, not what it missed"
    assert [len(phone.got[0].lines)] >= [2]
    assert side.states()["waiting"] == 0
    assert side.states()["superseded"] >= 10


def test_what_ended_while_a_receiver_was_away_is_never_told_to_fire(inventory: Inventory) -> None:
    phone = Phone()
    side = Side(inventory, phone)

    async def story() -> None:
        phone.is_up = False
        await side.step([down()])
        await side.step([down()], 10)
        await side.step([down(ended=400)], 400)
        phone.is_up = True
        for _ in range(5):
            await side.step([], HOUR)

    asyncio.run(story())
    assert phone.statuses() == ["resolved"]


@pytest.mark.parametrize("send_resolved", [True, False])
def test_an_end_supersedes_what_waits(inventory: Inventory, send_resolved: bool) -> None:  # noqa: FBT001
    phone = Phone()
    route = Route(receiver="pager", send_resolved=send_resolved)
    side = Side(inventory, phone, route=route)

    async def story() -> None:
        phone.is_up = False
        await side.step([down()], 10)
        await side.step([down()], 10)
        await side.step([], HOUR)
        phone.is_up = True
        await side.step([], HOUR)

    asyncio.run(story())
    assert phone.statuses() == (["resolved"] if send_resolved else [])


def test_a_restart_says_nothing_again_and_forgets_nothing(inventory: Inventory) -> None:
    phone = Phone()
    side = Side(inventory, phone)

    async def story() -> None:
        await side.step([down()])
        await side.step([down()], 10)
        side.restart()
        await side.notifier.plan_once()  # before anything is evaluated
        for _ in range(5):
            await side.step([down()], 600)
        side.restart()
        await side.step([down(ended=3_000)], 10)

    asyncio.run(story())
    assert phone.statuses() == ["firing", "resolved"]


def test_who_has_lost_the_lead_neither_plans_nor_sends(inventory: Inventory) -> None:
    phone, other = Phone(), Phone()
    side = Side(inventory, phone)

    async def story() -> None:
        phone.is_up = False
        await side.step([down()])
        await side.step([down()], 10)
        heir = Side(inventory, other)
        heir.now_s = side.now_s + 5
        heir.restart()
        phone.is_up = True
        # By its own clock it still has the lease; the inventory knows better.
        side.now_s += 5
        side.book.note(GROUP, [down(), down(host="b")], round(side.now_s * NS))
        await side.notifier.plan_once()
        assert await side.outbox.send_due() == 0
        await heir.step([down()], HOUR)

    asyncio.run(story())
    assert (phone.got, other.statuses()) == ([], ["firing"])


def test_a_yes_that_cannot_be_marked_is_marked_later_and_not_sent_again(
    inventory: Inventory,
) -> None:
    phone = Phone()
    fails = [0]

    def fail(point: str) -> None:
        if point == "before settle" and fails[0] < 3:
            fails[0] += 1
            raise InventoryError("away")

    side = Side(inventory, phone, crash=fail)

    async def story() -> None:
        await side.step([down()])
        for _ in range(6):
            await side.step([down()], 10)

    asyncio.run(story())
    assert fails == [3]
    assert phone.statuses() == ["firing"]
    assert side.states() == {"sent": 1}


def test_silences_hold_back_pages(inventory: Inventory) -> None:
    phone = Phone()
    side = Side(inventory, phone)
    now = dt.datetime.fromtimestamp(START_S, tz=dt.UTC)
    silence = Silence(
        id="s1",
        matchers=(Matcher("host", Operator.FITS, "n.*"),),
        starts_ns=round(START_S * NS),
        ends_ns=round((START_S + 1_000) * NS),
        created_by="me",
        comment="a cable is being changed",
        updated_ns=round(START_S * NS),
    )
    assert inventory.silences.keep(silence, now)

    async def story() -> None:
        for _ in range(9):
            await side.step([down(host="n1")], 100)
        assert phone.got == []
        assert inventory.silences.end("s1", round(side.now_s * NS)) is not None
        side.notifier.silences_changed()
        await side.step([down(host="n1")], 10)
        await side.step([down(host="n1")], 10)

    asyncio.run(story())
    assert phone.statuses() == ["firing"]


def test_the_outbox_is_bounded_and_keeps_what_is_critical(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_tables, "OUTBOX_MAX", 4)
    phone = Phone()
    side = Side(inventory, phone, route=Route(receiver="pager", group_by=("host",)))
    alerts = [down(host=f"n{each}", severity="info") for each in range(4)]
    alerts += [down(host=f"c{each}") for each in range(3)]

    async def story() -> None:
        phone.is_up = False
        await side.step(alerts)
        await side.step(alerts, 10)

    asyncio.run(story())
    assert side.states() == {"waiting": 4, "dropped": 3}
    waiting = inventory.notices.page(state=NoticeState.WAITING)
    assert sum(kept.notice.is_critical for kept in waiting) == 3


def test_notices_to_a_receiver_that_is_gone_are_given_up(inventory: Inventory) -> None:
    phone = Phone()
    side = Side(inventory, phone)

    async def story() -> None:
        phone.is_up = False
        await side.step([down()])
        await side.step([down()], 10)
        other = ReceiverTable(name="other", type="webhook", url="http://127.0.0.1:9/")
        side.settings = NotifySettings(receivers=(other,), routes=(Route(receiver="other"),))
        side.restart()
        await side.notifier.plan_once()

    asyncio.run(story())
    assert side.states() == {"dropped": 1}
    assert inventory.notices.talks() == {}


# --- real requests ------------------------------------------------------------------------------


def send_all(
    inventory: Inventory, table: ReceiverTable, story: Callable[[Side], Any], url: str = ""
) -> Side:
    """A story with a receiver that posts."""

    async def run() -> Side:
        async with make_client() as client:
            side = Side(inventory, Phone())
            side.receiver = make_receiver(
                table, Means(client=client, external_url=url, clock=side.clock)
            )
            side.restart()
            await story(side)
            return side

    return asyncio.run(run())


def webhook(listener: Listener, **more: Any) -> ReceiverTable:  # noqa: ANN401
    return ReceiverTable(name="pager", type="webhook", url=f"{listener.url}/hook", **more)


def test_a_receiver_that_answers_500_is_asked_again_with_the_same_key(inventory: Inventory) -> None:
    with Listener(lambda _: (500 if len(listener.calls) < 4 else 200, {})) as listener:

        async def story(side: Side) -> None:
            await side.step([down()])
            for _ in range(10):
                await side.step([down()], 70)

        side = send_all(inventory, webhook(listener), story)
        assert len(listener.calls) == 4
        assert len({call.key for call in listener.calls}) == 1
        assert side.states() == {"sent": 1}
        assert listener.calls[0].body["version"] == "4"
        assert listener.calls[0].body["fabricscope"]["id"] == listener.calls[0].key


def test_retry_after_is_honoured(inventory: Inventory) -> None:
    answers = iter([(429, {"Retry-After": "600"})])
    with Listener(lambda _: next(answers, (200, {}))) as listener:

        async def story(side: Side) -> None:
            await side.step([down()])
            await side.step([down()], 10)
            for _ in range(9):
                await side.step([down()], 60)
            assert len(listener.calls) == 1
            side.restart()  # and it is not forgotten
            await side.step([down()], 30)
            assert len(listener.calls) == 1
            await side.step([down()], 31)

        send_all(inventory, webhook(listener), story)
        assert len(listener.calls) == 2


def test_a_receiver_that_says_nothing_is_given_up_in_time(inventory: Inventory) -> None:
    hang = threading.Event()

    def wait(_: object) -> tuple[int, dict[str, str]]:
        hang.wait(30)
        return 200, {}

    with Listener(wait) as listener:

        async def story(side: Side) -> None:
            await side.step([down()])
            await side.step([down()], 10)

        try:
            side = send_all(inventory, webhook(listener, timeout_s=0.2), story)
        finally:
            hang.set()
        (kept,) = inventory.notices.page()
        assert (kept.state, kept.attempts) == (NoticeState.WAITING, 1)
        assert "no answer within 0.2 s" in kept.detail
        assert side.states() == {"waiting": 1}


def test_what_a_receiver_refuses_for_what_it_is_is_not_tried_again(inventory: Inventory) -> None:
    with Listener(lambda _: (422, {})) as listener:

        async def story(side: Side) -> None:
            await side.step([down()])
            for _ in range(5):
                await side.step([down()], 70)

        side = send_all(inventory, webhook(listener), story)
        assert len(listener.calls) == 1
        assert side.states() == {"refused": 1}


def test_secrets_are_in_no_detail(inventory: Inventory) -> None:
    table = ReceiverTable(
        name="pager", type="slack", url="http://127.0.0.1:9/services/T0/B0/geheim"
    )

    async def story(side: Side) -> None:
        await side.step([down()])
        await side.step([down()], 10)

    send_all(inventory, table, story)
    (kept,) = inventory.notices.page()
    assert kept.detail
    assert "geheim" not in kept.detail


def test_slack_and_pagerduty_get_their_own_form(inventory: Inventory) -> None:
    notes = {
        "verdict": "node7's link drops <!channel> 1 % of packets",
        "cost": "12 GPU-hours",
        "action": "Replace the cable.",
        "runbook_url": "https://runbooks.example/loss",
    }
    alert = make_alert("FabricIncident", START_S, incident="i-1", host="node7", notes=notes)

    async def story(side: Side) -> None:
        await side.step([alert])
        await side.step([alert], 10)
        await side.step([], HOUR)

    with Listener(lambda _: (202, {})) as listener:
        slack = ReceiverTable(name="pager", type="slack", url=listener.url)
        send_all(inventory, slack, story, "https://fabricscope.example")
        (page, end) = listener.calls
        text = page.raw.decode()
        assert "<!channel>" not in text
        for wanted in ("12 GPU-hours", "Replace the cable.", "host node7", "/incident/i-1"):
            assert wanted in text
        assert end.body["text"].startswith("[RESOLVED]")
    with Listener(lambda _: (202, {})) as listener:
        pager = ReceiverTable(name="pager", type="pagerduty", key="k" * 32, url=listener.url)
        send_all(
            inventory, pager, lambda side: later_story(side, alert), "https://fabricscope.example"
        )
        (trigger, resolve) = (call.body for call in listener.calls)
        assert (trigger["event_action"], resolve["event_action"]) == ("trigger", "resolve")
        assert trigger["dedup_key"] == resolve["dedup_key"]
        assert trigger["payload"]["severity"] == "critical"
        assert trigger["payload"]["custom_details"]["what_to_do"] == "Replace the cable."


def test_what_is_acknowledged_here_is_acknowledged_at_pagerduty(inventory: Inventory) -> None:
    alert = make_alert("FabricIncident", START_S, incident="i-1", host="node7")
    work = {"work": "acknowledged by ann (swapping the cable)"}
    taken = make_alert("FabricIncident", START_S, incident="i-1", host="node7", notes=work)

    async def story(side: Side) -> None:
        await side.step([alert])
        await side.step([alert], 10)
        await side.step([taken], 60)
        await side.step([taken], 120)
        await side.step([], HOUR)

    with Listener(lambda _: (202, {})) as listener:
        pager = ReceiverTable(name="pager", type="pagerduty", key="k" * 32, url=listener.url)
        send_all(inventory, pager, story, "https://fabricscope.example")
        bodies = [call.body for call in listener.calls]
    assert [one["event_action"] for one in bodies] == ["trigger", "acknowledge", "resolve"]
    assert len({one["dedup_key"] for one in bodies}) == 1


async def later_story(side: Side, alert: Alert) -> None:
    """The same again, a day later: another talk."""
    side.now_s += 24 * HOUR
    labels: dict[str, Any] = {
        name: value for name, value in alert.labels if name not in {"alertname", "severity"}
    }
    again = make_alert("FabricIncident", side.now_s, notes=alert.annotations, **labels)
    side.restart()
    await side.step([again])
    await side.step([again], 10)
    await side.step([], HOUR)


def test_every_receiver_is_found_by_its_file() -> None:
    found = discover()
    assert set(found) >= {"apprise", "pagerduty", "slack", "webhook"}
    for name, receiver in found.items():
        assert receiver.name == name
        assert receiver.__doc__
        assert issubclass(receiver.Table, ReceiverTable)
        assert not receiver.takes("")


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_mail_goes_out_through_apprise(inventory: Inventory) -> None:
    mails: list[str] = []

    async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 loopback\r\n")
        while line := await reader.readline():
            word = line[:4].upper()
            if word == b"DATA":
                writer.write(b"354 go\r\n")
                mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                writer.write(b"250 taken\r\n")
            elif word == b"QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                writer.write(b"250 fine\r\n")
            await writer.drain()
        writer.close()

    async def story(side: Side) -> None:
        server = await asyncio.start_server(smtp, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address = f"mailto://127.0.0.1:{port}?from=us@example.org&to=oncall@example.org"
        table = ReceiverTable(name="pager", type="apprise", url=address)
        side.receiver = make_receiver(table, side.receiver._means)
        side.restart()
        async with server:
            await side.step([down(host="n1")])
            await side.step([down(host="n1")], 10)

    side = send_all(inventory, RECEIVER, story)
    (kept,) = inventory.notices.page()
    assert kept.state is NoticeState.SENT, kept.detail
    assert side.states() == {"sent": 1}
    (mail,) = mails
    assert "Subject: [FIRING]" in mail
    assert f"X-Fabricscope-Notice: {kept.notice.id}" in mail
    assert "oncall@example.org" in mail


# --- crashes at every step ----------------------------------------------------------------------


class Fate:
    """Decides where the process ends: at one call, or here and there."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.share = self.random.choice([0.02, 0.1, 0.3])
        self.is_over = False
        self.points: Counter[str] = Counter()

    def __call__(self, point: str) -> None:
        if not self.is_over and self.random.random() < self.share:
            self.points[point] += 1
            raise Crash(point)


def live(side: Side, phone: Phone, fate: Fate) -> dict[str, bool]:
    """Hours of alerts that come and go; which hosts' alerts fire at the end."""
    fired: dict[str, float] = {}
    ended: list[Alert] = []
    random = fate.random

    def survive(seconds: float) -> None:
        now = side.now_s + seconds
        standing = [down(since - START_S, host=host) for host, since in fired.items()]
        recent = [each for each in ended if now * NS - (each.resolved_ns or 0) < 900 * NS]
        taken = len(phone.got)
        try:
            # A loop for each: what goes on beside a crash ends with it.
            asyncio.run(side.step([*standing, *recent], seconds))
        except Crash:
            side.now_s = max(side.now_s, now)
            phone.cut_off.update(side.unmarked(phone.got[taken:]))
            side.restart()

    for _ in range(30):
        host = f"n{random.randrange(3)}"
        if random.random() < 0.4:
            if host in fired:
                since = fired.pop(host)
                ended.append(down(since - START_S, side.now_s - START_S, host=host))
            else:
                fired[host] = side.now_s
                ended = [each for each in ended if dict(each.labels)["host"] != host]
        phone.is_up = random.random() < 0.7
        for _ in range(random.randrange(1, 3)):
            survive(random.choice([1, 5, 10, 60, 300, 1_000]))
    fate.is_over = True
    phone.is_up = True
    for _ in range(5):
        survive(400)
    return {f"n{each}": f"n{each}" in fired for each in range(3)}


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled_wherever_the_process_ends(
    inventory: Inventory, seed: int
) -> None:
    fate = Fate(seed)
    phone = Phone()
    phone.crash = fate
    side = Side(inventory, phone, route=Route(receiver="pager", group_by=("host",)), crash=fate)
    fires = live(side, phone, fate)
    assert fate.points, "no crash was tried"

    sent = Counter(notice.id for notice in phone.got)
    for key, times in sent.items():
        assert times <= 1 + phone.cut_off[key], "doubled though its mark was not lost"
    by_host: dict[str, list[Notice]] = defaultdict(list)
    for notice in phone.got:
        by_host[dict(notice.group_labels)["host"]].append(notice)
    for host, is_firing in fires.items():
        told = by_host[host]
        if is_firing:
            assert told
            assert told[-1].status is Status.FIRING, "nothing is lost"
        elif told:
            assert told[-1].status is Status.RESOLVED, "nothing is lost"
        check_order(told)
    assert side.states()["waiting"] == 0
    known = {kept.notice.id for kept in inventory.notices.page(limit=1_000)}
    assert set(sent) <= known, "nothing is sent that was not kept"


def check_order(told: list[Notice]) -> None:
    """Never the old after the new, and never twice within an interval."""
    planned = [notice.planned_ns for notice in told]
    assert planned == sorted(planned)
    first_sent = list({notice.id: notice for notice in told}.values())
    for before, after in itertools.pairwise(first_sent):
        if after.why is not Why.FIRST:
            assert after.planned_ns - before.planned_ns >= ROUTE.group_interval_s * NS


def test_leases_are_the_evaluator_s(inventory: Inventory) -> None:
    """The process that evaluates also notifies: there is one lease for both."""
    side = Side(inventory, Phone())
    lease = inventory.leases.get(EVALUATOR)
    assert lease is not None
    assert lease.holder == side.lead.holder
