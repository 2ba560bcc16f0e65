"""The loop that executors share, with a scheduler of three methods."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from api.remote import client as clients
from api.remote import executor as executors
from api.remote.answers import Report, Service
from api.remote.client import AsyncClient, Busy, Target
from api.remote.executor import Attempt, Doubt, Executor, Loop, Plan, Reports, Said


class FakeService:
    """A fake service with standing actions; it answers each report with ``status``."""

    def __init__(self) -> None:
        self.standing: list[str] = []
        self.evidence = "fresh"
        self.status = 200
        self.reported: list[tuple[str, str, str]] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            actions = [
                {"id": f"a-{host}", "kind": "drain", "host": host, "state": "standing"}
                for host in self.standing
            ]
            return httpx.Response(200, json={"actions": actions, "evidence": self.evidence})
        body = json.loads(request.content)
        if self.status == httpx.codes.OK:
            action = request.url.path.split("/")[3]
            self.reported.append((action, body["outcome"], body["words"]))
        return httpx.Response(self.status, json={"title": "told to fail"})

    def connect(self) -> Service:
        transport = httpx.MockTransport(self.handle)
        client = AsyncClient(Target(url="http://service.test"), "test", transport=transport)
        return Service(client)


class SetExecutor(Executor[set[str], str]):
    """A scheduler that is a set of held hosts."""

    name = "set"

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.is_broken = False
        self.looks = 0

    async def observe(self) -> set[str]:
        self.looks += 1
        if self.is_broken:
            raise Doubt("nobody knows")
        return self.held

    async def plan(self, nodes: set[str], said: Said) -> Plan[str]:
        standing = {each.host for each in said.actions.actions} if said.actions else set()
        return Plan(changes=sorted(standing - nodes))

    async def apply(self, changes: Sequence[str]) -> AsyncGenerator[Attempt]:
        for host in changes:
            self.held.add(host)
            yield Attempt(is_done=True, reports=[Report(f"a-{host}", "done", f"{host}: held")])


async def reached(is_so: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the condition never became true")


def looping(
    use: Callable[[Loop[set[str], str], SetExecutor, FakeService], Coroutine[Any, Any, None]],
    *,
    is_dry: bool = False,
) -> tuple[SetExecutor, FakeService]:
    """Run ``use`` with a loop between an executor and a fake service."""
    executor, service = SetExecutor(), FakeService()

    async def main() -> None:
        connected = service.connect()
        loop = Loop(executor, connected, is_dry=is_dry, say=lambda _: None)
        await use(loop, executor, service)
        await connected.close()

    with (
        patch.object(clients, "RETRY_SECONDS_FIRST", 0.001),
        patch.object(clients, "RETRY_SECONDS_MAX", 0.002),
        patch.object(executors, "STEP_SECONDS_MIN", 0.001),
    ):
        asyncio.run(main())
    return executor, service


def test_a_pass_applies_what_stands_and_reports_it_once() -> None:
    async def use(loop: Loop[set[str], str], _: SetExecutor, service: FakeService) -> None:
        service.standing = ["n1", "n2"]
        assert (await loop.once()).written == 2
        await loop.reports.send()
        assert (await loop.once()).written == 0
        await loop.reports.send()

    executor, service = looping(use)
    assert executor.held == {"n1", "n2"}
    assert service.reported == [("a-n1", "done", "n1: held"), ("a-n2", "done", "n2: held")]


def test_what_fails_is_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def use(loop: Loop[set[str], str], executor: SetExecutor, service: FakeService) -> None:
        service.standing, executor.is_broken = ["n1"], True
        task = asyncio.create_task(loop.run(0.001))
        await reached(lambda: executor.looks >= 3)
        assert loop.trouble.now == {"set": "nobody knows"}
        executor.is_broken = False
        await reached(lambda: bool(service.reported))
        await reached(lambda: not loop.trouble.now)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    looping(use)
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [
        "set: nobody knows"
    ]


def test_reports_wait_for_the_service_and_the_last_word_counts() -> None:
    async def main() -> None:
        service = FakeService()
        service.status = 503
        reports = Reports(service.connect(), "set")
        reports.add(Report("a1", "failed", "no"))
        with pytest.raises(Busy, match="told to fail"):
            await reports.send()
        reports.add(Report("a1", "done", "yes"))
        service.status = 200
        await reports.send()
        assert service.reported == [("a1", "done", "yes")]
        reports.add(Report("a1", "done", "yes"))
        await reports.send()
        reports.add(Report("a1", "failed", "no"))
        await reports.send()
        assert service.reported[1:] == [("a1", "failed", "no")]

    asyncio.run(main())


def test_what_waits_is_sent_when_the_loop_ends() -> None:
    async def use(loop: Loop[set[str], str], executor: SetExecutor, service: FakeService) -> None:
        service.standing, service.status = ["n1"], 503
        task = asyncio.create_task(loop.run(60.0))
        await reached(lambda: "set" in loop.trouble.now)
        service.status = 200
        executor.is_broken = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    _, service = looping(use)
    assert service.reported == [("a-n1", "done", "n1: held")]
