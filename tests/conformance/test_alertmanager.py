"""A real Alertmanager receives, groups and resolves alerts; either side may die in between."""

import asyncio
import contextlib
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from alerts.rulebook.model import Alert
from alerts.rulebook.notices import fingerprint
from api.base.metrics import ServiceMetrics
from api.data.inventory.repository import Inventory
from api.http.settings import ServiceSettings
from api.oncall.evaluate.lead import Lead
from api.oncall.notify import alertmanager
from api.oncall.notify.settings import AlertmanagerTable
from api.oncall.notify.task import Notifying
from collector.contract.units import NS
from tests.stands.alerting import GROUP, Listener, make_alert
from tests.stands.ports import free_port
from tests.stands.service import eventually
from tests.tools import peers

CONFIG = """\
route:
  receiver: hook
  group_by: [incident, alertname]
  group_wait: 2s
  group_interval: 500ms
  repeat_interval: 24h
  routes:
    - receiver: hook
      matchers: ['incident=~".+"']
      group_by: [incident]
receivers:
  - name: hook
    webhook_configs:
      - url: URL
        send_resolved: true
"""


Gossip = Sequence[str]
"""By which words an Alertmanager finds the others."""
ALONE: Gossip = ("--cluster.listen-address=",)


def pair_words() -> list[Gossip]:
    """Of two that are one cluster. The second tells only what the first has not told in time.

    That time is what a busy machine may need to pass on that something was told.
    """
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    shared = ["--cluster.gossip-interval=50ms", "--cluster.peer-timeout=4s"]
    # Another's death is noticed within a second, and with it who is the first now.
    shared += ["--cluster.probe-interval=200ms", "--cluster.probe-timeout=100ms"]
    return [
        [f"--cluster.listen-address={own}", f"--cluster.advertise-address={own}", *shared]
        + [f"--cluster.peer={other}" for other in addresses if other != own]
        for own in addresses
    ]


class Alertmanager:
    """The real thing, on a folder of its own; kill it and start it again."""

    def __init__(self, folder: Path, hook: str, prefix: str = "", gossip: Gossip = ALONE) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.gossip = gossip
        self.url = f"http://127.0.0.1:{free_port()}"
        self.prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "config.yml").write_text(CONFIG.replace("URL", hook), "utf-8")

    def start(self) -> None:
        program = peers.find("prometheus-alertmanager")
        assert program is not None
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(program),
                    f"--config.file={self.folder / 'config.yml'}",
                    f"--storage.path={self.folder / 'data'}",
                    # What it has sent is written to disk every so often; its default is 15 min.
                    "--data.maintenance-interval=200ms",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                    f"--web.route-prefix=/{self.prefix}",
                    *self.gossip,
                ],
                stdout=log,
                stderr=log,
            )
        eventually(self._is_ready, "Alertmanager's start")

    def _is_ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/{self.prefix}/-/ready".replace("//-", "/-")).is_success
        return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.kill()

    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"{self.url}/api/v2/alerts").json()
        return found

    def peers(self) -> int:
        """How many of the cluster it sees, itself among them."""
        return len(httpx.get(f"{self.url}/api/v2/status").json()["cluster"].get("peers", []))

    def rounds(self) -> float:
        """How often it has asked its log whether a group was told: once a group and round."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        name = "alertmanager_nflog_queries_total "
        return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    def remembers(self) -> dict[str, int]:
        """What it has told, by its log as written to disk: of each group how many alerts fire."""
        log = self.folder / "data" / "nflog"
        return dict(map(told_of, delimited(log.read_bytes() if log.exists() else b"")))


def told_of(entry: bytes) -> tuple[str, int]:
    """The last labels of a group's key, and its firing alerts (nflogpb.MeshEntry, 0.25)."""
    content = fields(fields(entry)[1])
    alerts = content.get(6, b"")  # packed numbers; each ends with a byte below 0x80
    return content[1].decode().rpartition(":")[2], sum(byte < 0x80 for byte in alerts)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins here, and where the next thing does."""
    value = shift = 0
    while data[at] >= 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1


def delimited(data: bytes) -> Iterator[bytes]:
    """Messages that follow their lengths."""
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        yield data[at : at + length]
        at += length


def fields(message: bytes) -> dict[int, bytes]:
    """A message's fields that are messages or bytes, by their numbers; numbers are passed over."""
    found, at = {}, 0
    while at < len(message):
        tag, at = varint(message, at)
        size, at = varint(message, at)
        if tag & 7 == 2:  # what has a length
            found[tag >> 3] = message[at : at + size]
            at += size
    return found


@pytest.fixture
def hook() -> Iterator[Listener]:
    with Listener() as listener:
        yield listener


@pytest.fixture
def server(tmp_path: Path, hook: Listener) -> Iterator[Alertmanager]:
    server = Alertmanager(tmp_path, hook.url)
    yield server
    server.close()


class OurSide:
    """Our sender with no record of what was sent, as after each start."""

    def __init__(self, folder: Path, *urls: str | AlertmanagerTable) -> None:
        self._runner = asyncio.Runner()
        self._inventory = Inventory(f"sqlite:///{folder}/inventory.db")
        self._inventory.migrate()
        lead = Lead(self._inventory, time.time, is_alone=True)
        lead.renew()
        settings = ServiceSettings(
            data=str(folder),
            alertmanagers=list(urls),
            external_labels={"site": "north", "host": "not this"},
            external_url="http://fabricscope.example",
        )
        self.metrics = ServiceMetrics()
        self.notifying = Notifying(
            settings.notifier, self._inventory, lead, self.metrics, time.time
        )

    def tell(self, alerts: Sequence[Alert], later_s: float = 0.0) -> None:
        """Hand over what an evaluation found, and send once what is to be sent."""

        async def once() -> None:
            await self.notifying.notify(GROUP, alerts, round((time.time() + later_s) * NS))
            for sender in self.notifying.senders:
                await sender.send_batch()

        self._runner.run(once())

    def close(self) -> None:
        assert self.notifying._client is not None
        self._runner.run(self.notifying._client.aclose())
        self._runner.close()
        self._inventory.close()

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    @property
    def waiting(self) -> list[int]:
        return [sender.waiting for sender in self.notifying.senders]


Start = Callable[..., OurSide]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts our side, as often as it is called."""
    started: list[OurSide] = []

    def begin(*urls: str | AlertmanagerTable) -> OurSide:
        started.append(OurSide(tmp_path, *urls))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def groups_told(hook: Listener) -> Counter[tuple[str, str]]:
    """How often the webhook received each group as firing, and as resolved."""
    return Counter(
        (next(iter(call.body["groupLabels"].values())), call.body["status"]) for call in hook.calls
    )


def last_told(hook: Listener, group: str) -> dict[str, Any]:
    """The webhook's latest notification of a group; empty before the first."""
    bodies = [c.body for c in hook.calls if group in c.body["groupLabels"].values()]
    return bodies[-1] if bodies else {"alerts": []}


def names_of(body: dict[str, Any]) -> set[str]:
    return {each["labels"]["alertname"] for each in body["alerts"]}


@pytest.mark.peer("prometheus-alertmanager")
def test_it_receives_groups_and_resolves_and_either_side_may_die(
    server: Alertmanager, hook: Listener, start: Start
) -> None:
    began = time.time() - 60
    alerts = [
        make_alert("FabricIncident", began, incident="i-1", job="llama"),
        make_alert("Loss", began, incident="i-1", host="n1"),
        make_alert("LinkDown", began, host="n1"),
    ]
    ours = start(server.url)

    # No Alertmanager runs: the alerts wait.
    ours.tell(alerts)
    assert ours.waiting == [3]
    assert ours.value("fabric_service_alertmanager_up", alertmanager=server.url) == 0.0
    server.start()
    ours.tell(alerts)
    assert ours.waiting == [0]
    assert ours.value("fabric_service_alertmanager_up", alertmanager=server.url) == 1.0
    # Alerts that are older than its wait it tells at once: the first may go before the second came.
    both = {"FabricIncident", "Loss"}
    eventually(lambda: names_of(last_told(hook, "i-1")) == both, "both of the incident")
    eventually(lambda: names_of(last_told(hook, "LinkDown")) == {"LinkDown"}, "the other group")
    incident = last_told(hook, "i-1")
    told = groups_told(hook)
    assert incident["commonLabels"]["site"] == "north"
    assert "fabricscope.example" in incident["alerts"][0]["generatorURL"]

    # Alertmanager dies after it logged its notifications and restarts without alerts: the next
    # round sends it all.
    sent = {'{incident="i-1"}': 2, '{alertname="LinkDown"}': 1}
    eventually(lambda: server.remembers() == sent, "Alertmanager notes all that it sent")
    server.kill()
    ours.tell(alerts, later_s=61)
    assert ours.waiting == [3]
    server.start()
    ours.tell(alerts, later_s=62)
    eventually(lambda: len(server.alerts()) == 3, "Alertmanager knows all again")

    # The service dies and restarts with no record of what it sent.
    ours = start(server.url)
    witness = make_alert("Witness", time.time())
    ours.tell([*alerts, witness])
    # Alertmanager handles old alerts on arrival, a new one two seconds later: its notification is
    # the last.
    eventually(lambda: groups_told(hook)["Witness", "firing"] == 1, "the witness' notification")
    assert groups_told(hook) == told + Counter({("Witness", "firing"): 1})

    over = [make_alert("FabricIncident", began, ended_s=time.time(), incident="i-1", job="llama")]
    over += [make_alert("Loss", began, ended_s=time.time(), incident="i-1", host="n1")]
    over += [make_alert("LinkDown", began, ended_s=time.time(), host="n1")]
    ours.tell([*over, witness], later_s=1)
    eventually(lambda: groups_told(hook)["LinkDown", "resolved"] == 1, "one end")
    eventually(lambda: groups_told(hook)["i-1", "resolved"] == 1, "the other end")
    ours.tell([*over, witness], later_s=62)  # for a quarter of an hour it is sent again
    eventually(lambda: len(server.alerts()) == 1, "only the witness is left")
    ended = make_alert("Witness", witness.active_ns / NS, ended_s=time.time())
    ours = start(server.url)
    ours.tell([*over, ended])
    eventually(lambda: groups_told(hook)["Witness", "resolved"] == 1, "the witness ends last")
    ends = {group: count for group, count in groups_told(hook).items() if group[1] == "resolved"}
    assert ends == {(group, "resolved"): 1 for group in ("i-1", "LinkDown", "Witness")}


@pytest.mark.peer("prometheus-alertmanager")
def test_it_and_we_call_an_alert_by_the_same_fingerprint(
    server: Alertmanager, start: Start
) -> None:
    server.start()
    ours = start(server.url)
    ours.tell([make_alert("LinkDown", time.time(), host="n1\u2028 \"'😀", cluster="a")])
    (found,) = server.alerts()
    assert found["fingerprint"] == fingerprint(tuple(sorted(found["labels"].items())))


@pytest.mark.peer("prometheus-alertmanager")
def test_one_that_it_refuses_costs_the_others_nothing(server: Alertmanager, start: Start) -> None:
    """Alertmanager takes the good ones and answers 400 for the rest."""
    server.start()
    ours = start(server.url)
    strange: dict[str, Any] = {"no-name": "x"}
    bad = make_alert("Loss", time.time(), **strange)
    ours.tell([bad, make_alert("LinkDown", time.time())])
    assert [each["labels"]["alertname"] for each in server.alerts()] == ["LinkDown"]
    assert ours.waiting == [0]
    counted = ours.value(
        "fabric_service_alertmanager_dropped_total", alertmanager=server.url, reason="refused"
    )
    assert counted == 2


@pytest.mark.peer("prometheus-alertmanager")
def test_one_behind_a_path_is_reached(tmp_path: Path, hook: Listener, start: Start) -> None:
    server = Alertmanager(tmp_path, hook.url, prefix="am/")
    try:
        server.start()
        ours = start(f"{server.url}/am/")
        ours.tell([make_alert("LinkDown", time.time())])
        found = httpx.get(f"{server.url}/am/api/v2/alerts").json()
        assert [each["labels"]["alertname"] for each in found] == ["LinkDown"]
    finally:
        server.close()


def let_them_finish(servers: Sequence[Alertmanager], groups: int) -> None:
    """Until each has gone through all groups again: what it would tell of them now, it has told."""
    since = [server.rounds() for server in servers]
    eventually(
        lambda: all(
            server.rounds() >= before + 2 * groups
            for server, before in zip(servers, since, strict=True)
        ),
        "further rounds of notifying",
        pause_seconds=0.2,
    )


@pytest.mark.peer("prometheus-alertmanager")
def test_of_two_that_are_one_cluster_one_pages_and_either_may_die(
    tmp_path: Path, hook: Listener, start: Start
) -> None:
    first, second = pair = [
        Alertmanager(tmp_path / name, hook.url, gossip=words)
        for name, words in zip("ab", pair_words(), strict=True)
    ]
    try:
        for server in pair:
            server.start()
        eventually(lambda: [server.peers() for server in pair] == [2, 2], "they see each other")
        ours = start(first.url, second.url)
        began = time.time() - 60
        one = make_alert("FabricIncident", began, incident="i-1", job="llama")
        ours.tell([one])
        assert ours.waiting == [0, 0]
        eventually(lambda: groups_told(hook)["i-1", "firing"] >= 1, "the page")
        let_them_finish(pair, groups=1)
        assert groups_told(hook) == Counter({("i-1", "firing"): 1})

        first.kill()
        eventually(lambda: second.peers() == 1, "its death is noticed")
        two = make_alert("FabricIncident", began, incident="i-2", job="llama")
        ours.tell([one, two], later_s=61)
        assert ours.waiting == [2, 0]  # of the dead one they wait, of the living one they went
        eventually(lambda: groups_told(hook)["i-2", "firing"] >= 1, "the page of the other")
        let_them_finish([second], groups=2)
        assert groups_told(hook) == Counter({("i-1", "firing"): 1, ("i-2", "firing"): 1})

        # It comes back without a memory of the second incident: its neighbour has it.
        first.start()
        eventually(lambda: [server.peers() for server in pair] == [2, 2], "they meet again")
        ours.tell([one, two], later_s=122)
        assert ours.waiting == [0, 0]
        eventually(lambda: len(first.alerts()) == 2, "it knows both again")
        second.kill()
        eventually(lambda: first.peers() == 1, "the other's death is noticed")
        let_them_finish([first], groups=2)
        assert groups_told(hook) == Counter({("i-1", "firing"): 1, ("i-2", "firing"): 1})
        over = make_alert("FabricIncident", began, ended_s=time.time(), incident="i-1", job="llama")
        ours = start(first.url, second.url)  # with a clock that is not ahead of the end
        ours.tell([over, two])
        eventually(lambda: groups_told(hook)["i-1", "resolved"] >= 1, "the end")
        let_them_finish([first], groups=1)
        assert groups_told(hook)["i-1", "resolved"] == 1
    finally:
        for server in pair:
            server.close()


# --- without the real one -----------------------------------------------------------------------


def test_each_is_told_whatever_the_other_does(start: Start) -> None:
    with Listener() as good, Listener(lambda _: (503, {"Retry-After": "1"})) as bad:
        ours = start(bad.url, good.url)
        ours.tell([make_alert("LinkDown", time.time())])
        assert [len(good.calls), len(bad.calls)] == [1, 1]
        assert ours.waiting == [1, 0]


def test_of_each_alert_the_latest_word_waits(start: Start) -> None:
    """An outage must not be followed by a firing alert that has ended meanwhile."""
    now = time.time()
    with Listener(lambda _: (500, {})) as listener:
        ours = start(listener.url)
        ours.tell([make_alert("LinkDown", now)])
        ours.tell([make_alert("LinkDown", now, ended_s=now + 1)], later_s=1)
        assert ours.waiting == [1]
        listener.reply = lambda _: (200, {})
        ours.tell([], later_s=2)
        (alert,) = listener.calls[-1].body
        assert alert["endsAt"] < time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now + 60))


def test_the_queue_is_bounded_and_what_it_drops_is_counted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alertmanager, "QUEUE_MAX", 5)
    with Listener(lambda _: (500, {})) as listener:
        ours = start(listener.url)
        ours.tell([make_alert("LinkDown", time.time(), host=f"n{each}") for each in range(8)])
        assert ours.waiting == [5]
        counted = ours.value(
            "fabric_service_alertmanager_dropped_total",
            alertmanager=listener.url,
            reason="queue_full",
        )
        assert counted == 3


def test_what_may_no_longer_be_believed_is_not_sent(start: Start) -> None:
    """Its end has passed: an Alertmanager would take it for resolved."""
    with Listener() as listener:
        ours = start(listener.url)
        ours.tell([make_alert("LinkDown", time.time() - 1_000)], later_s=-500)
        assert listener.calls == []
        assert ours.waiting == [0]


def test_batches_are_of_256(start: Start) -> None:
    with Listener() as listener:
        ours = start(listener.url)
        now = time.time()
        ours.tell([make_alert("LinkDown", now, host=f"n{each}") for each in range(300)])
        ours.tell([])
        assert [len(call.body) for call in listener.calls] == [256, 44]


@pytest.mark.parametrize(
    ("secret", "expected"),
    [("bearer_token_file", "Bearer geheim1"), ("password_file", "Basic bWU6Z2VoZWltMQ==")],
)
def test_secrets_come_from_files_and_may_change(
    tmp_path: Path, start: Start, secret: str, expected: str
) -> None:
    file = tmp_path / "secret"
    file.write_text("geheim1\n", "utf-8")
    with Listener() as listener:
        given: dict[str, Any] = {secret: str(file)}
        if expected.startswith("Basic"):
            given["username"] = "me"
        table = AlertmanagerTable(url=listener.url, **given)
        ours = start(table)
        ours.tell([make_alert("LinkDown", time.time())])
        assert listener.calls[0].headers["Authorization"] == expected
        file.write_text("anders", "utf-8")
        ours.tell([make_alert("Loss", time.time())])
        assert listener.calls[1].headers["Authorization"] != expected


def test_nothing_is_told_again_within_a_minute(start: Start) -> None:
    with Listener() as listener:
        ours = start(listener.url)
        alert = make_alert("LinkDown", time.time())
        for later_s in (0, 15, 30, 45, 60):
            ours.tell([alert], later_s=later_s)
        assert len(listener.calls) == 2
