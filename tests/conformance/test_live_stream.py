"""The live stream: incidents as they happen, resumed, bounded, and ended when the service stops."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from api.http.routes.shared import streams
from api.oncall.evaluate import changes, lead, task
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from tests.stands.service import InProcess, ServiceProcess, eventually, in_process
from tests.worlds.incidents import Teller, slow_link, straggler
from tests.worlds.streams import Listener


class Stage:
    """A service, a `Teller` that gives it verdicts, and a clock for the story."""

    def __init__(self, service: InProcess) -> None:
        self.service = service
        self.url = str(service.client.base_url)
        self._teller = Teller(service.inventory, service.store)
        self._now_s = time.time()
        self._opened = 0

    def open(self) -> str:
        """A new trouble: another rank of another job, whose name is returned."""
        self._now_s += 1
        self._opened += 1
        now_ns, name = int(self._now_s * NS), f"job{self._opened}"
        self._teller.say(now_ns, straggler(now_ns - NS, job=name, rank=self._opened))
        return name

    @property
    def newest(self) -> int:
        """The number of the latest change."""
        span = self.service.inventory.incidents.changes_span()
        return span[1] if span is not None else 0

    def say(self, *verdicts: Verdict) -> None:
        """These verdicts, now."""
        self._now_s += 1
        self._teller.say(int(self._now_s * NS), *verdicts)

    @contextlib.contextmanager
    def listen(self, last: str = "", **parameters: str) -> Iterator[Listener]:
        """A client that has received the event `ready`."""
        listener = Listener(self.url, {"Last-Event-ID": last} if last else {}, **parameters)
        try:
            eventually(
                lambda: "ready" in listener.names or listener.ended.is_set(), "the stream stands"
            )
            yield listener
        finally:
            listener.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for all: each test begins at its own place in the stream."""
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (task, "EVALUATE_SECONDS", 1e6),
            (lead, "RENEW_SECONDS", 1e6),
            (changes, "FOLLOW_SECONDS", 0.02),
            (streams, "LIVE_QUIET_SECONDS", 0.1),
        ):
            stack.enter_context(patch.object(place, name, value))
        service = stack.enter_context(in_process(tmp_path_factory.mktemp("service")))
        yield Stage(service)


def heard(listener: Listener, *names: str) -> None:
    eventually(
        lambda: [name for name in listener.names if name != "ready"] == list(names),
        f"{names}, not {listener.names}",
    )


def test_changes_come_as_they_happen(stage: Stage) -> None:
    with stage.listen() as listener:
        job = stage.open()
        heard(listener, "opened")
        _, data = listener.events[-1]
        assert data["incident"]["jobs"] == [job]
        assert data["incident"]["culprit"]["host"] == "node9"
        assert data["number"] == int(listener.last_id)


def test_a_quiet_stream_says_that_it_lives(stage: Stage) -> None:
    with stage.listen() as listener:
        eventually(lambda: listener.lines.count(": quiet") > 1, "two heartbeats")


def test_who_comes_back_gets_what_it_missed_and_nothing_twice(stage: Stage) -> None:
    with stage.listen() as listener:
        stage.open()
        heard(listener, "opened")
        seen = listener.last_id
    missed = [stage.open(), stage.open()]
    with stage.listen(seen) as listener:
        heard(listener, "opened", "opened")
        opened = [data["incident"]["jobs"] for name, data in listener.events if name == "opened"]
        assert opened == [[job] for job in missed]
        stage.open()
        heard(listener, "opened", "opened", "opened")
    with stage.listen(after=seen) as listener:
        heard(listener, "opened", "opened", "opened")


def test_who_was_away_for_too_long_is_told_so(stage: Stage) -> None:
    seen = stage.newest
    for _ in range(3):
        stage.open()
    with patch.object(streams, "LIVE_RESUMED_MAX", 2), stage.listen(str(seen)) as listener:
        assert listener.names == ["missed", "ready"]
        assert listener.events[0][1]["count"] == 3
    with stage.listen("999999") as listener:
        assert listener.names == ["missed", "ready"]
        assert listener.events[0][1]["count"] is None


def test_filters_choose_and_the_place_moves_on(stage: Stage) -> None:
    with stage.listen(job="train", cause="slow_link") as listener:
        stage.open()
        stage.say(slow_link(time.time_ns()))
        heard(listener, "opened")
        assert listener.events[-1][1]["incident"]["jobs"] == ["train"]
        stage.open()
        eventually(lambda: int(listener.last_id) == stage.newest, "the id of what was not shown")
        heard(listener, "opened")


def test_a_client_that_is_too_slow_is_told_and_dropped(stage: Stage) -> None:
    with stage.listen() as listener:

        async def behind(_: float) -> changes.Missed:
            return changes.Missed(7)

        with patch.object(changes.Subscription, "next", lambda _, timeout: behind(timeout)):
            eventually(listener.ended.is_set, "the stream ends")
        assert listener.names[-1] == "missed"
        assert listener.events[-1][1]["count"] == 7
        assert "broken" not in listener.lines


def test_a_client_that_never_reads_frees_its_place(stage: Stage) -> None:
    address = stage.service.client.base_url
    with patch.object(streams, "LIVE_SEND_SECONDS", 0.2), socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((address.host, address.port))
        deaf.sendall(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually(lambda: clients(stage) == 1, "it listens, alone")

        with (
            patch.object(streams, "LIVE_QUIET_SECONDS", 0.0),
            patch.object(streams, "quiet", lambda _: b": " + b"x" * (1 << 20) + b"\n\n"),
        ):
            eventually(lambda: clients(stage) == 0, "its place is free")


def clients(stage: Stage) -> int:
    text = stage.service.client.get("/metrics").text
    [line] = [one for one in text.splitlines() if one.startswith("fabric_service_live_clients ")]
    return int(float(line.split()[1]))


def test_listeners_are_bounded_and_their_places_come_back(stage: Stage) -> None:
    with patch.object(changes, "SUBSCRIBERS_MAX", 1), stage.listen():
        answer = stage.service.client.get("/v1/live")
        assert answer.status_code == 503, answer.text
        assert "SUBSCRIBERS_MAX" in answer.text
        assert answer.headers["retry-after"]
    eventually(lambda: clients(stage) == 0, "its place is free")


def test_an_id_that_was_never_given_is_refused(stage: Stage) -> None:
    for last in ("x", "-1", "1e3", "9" * 30, "\uff11"):
        answer = stage.service.client.get("/v1/live", params={"after": last})
        assert answer.status_code == 400, answer.text


def test_the_service_stops_although_somebody_listens_or_waits(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as service, contextlib.ExitStack() as stack:
        known = {"If-None-Match": service.client.get("/v1/health").headers["etag"]}
        streams = [Listener(service.url, {}), Listener(service.url, {}, path="/v1/health/live")]
        waiter = Listener(service.url, known, path="/v1/health", wait="60")
        for each in (*streams, waiter):
            stack.callback(each.close)
        eventually(lambda: all("ready" in each.names for each in streams), "the streams stand")
        two = "fabric_service_health_clients 2.0"
        eventually(lambda: two in service.client.get("/metrics").text, "one listens, one waits")
        assert service.stop() == 0
        eventually(lambda: all(each.ended.is_set() for each in (*streams, waiter)), "all ended")
        assert not [each for each in streams if "broken" in each.lines]
        assert "Cancel" not in service.log.read_text(), "uvicorn had to cancel a stream"
