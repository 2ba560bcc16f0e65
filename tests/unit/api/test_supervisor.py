"""Background work that breaks: it starts again, and only vital work ends the service."""

import asyncio
import os
import signal
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from api.base.limits import WORK_BREAKS_MAX
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.http import works
from api.http.works import Supervisor, Work


@pytest.fixture(autouse=True)
def hurried() -> Iterator[None]:
    with patch.multiple(works, RESTART_SECONDS_MIN=0.001, RESTART_SECONDS_MAX=0.01):
        yield


def failures(metrics: ServiceMetrics, name: str) -> float:
    return metrics.registry.get_sample_value(
        "fabric_service_work_failures_total", {"work": name}
    ) or 0.0  # fmt: skip


async def run_until(supervisor: Supervisor, done: asyncio.Event) -> None:
    async with supervisor.running(), asyncio.timeout(20):
        await done.wait()


def test_work_that_breaks_starts_again_and_its_neighbour_goes_on() -> None:
    async def scene() -> tuple[int, int, ServiceMetrics]:
        rounds = {"odd": 0, "plain": 0}
        done = asyncio.Event()

        async def odd() -> None:
            rounds["odd"] += 1
            if rounds["odd"] < 4:
                raise ValueError("one odd row")
            done.set()
            await asyncio.Event().wait()

        async def plain() -> None:
            rounds["plain"] += 1
            await asyncio.Event().wait()

        metrics = ServiceMetrics()
        supervisor = Supervisor({"odd": odd, "plain": plain}, metrics)
        await run_until(supervisor, done)
        assert supervisor.broken == ""
        return rounds["odd"], rounds["plain"], metrics

    odd, plain, metrics = asyncio.run(scene())
    assert (odd, plain) == (4, 1)
    assert failures(metrics, "odd") == 3
    assert failures(metrics, "plain") == 0


def test_vital_work_that_breaks_ends_the_process() -> None:
    async def scene() -> str:
        done = asyncio.Event()

        async def commit() -> None:
            raise ValueError("the disk is gone")

        works_: dict[str, Work] = {"commit": commit}
        supervisor = Supervisor(works_, ServiceMetrics())
        with patch.object(os, "kill", side_effect=lambda *_: done.set()) as kill:
            await run_until(supervisor, done)
        kill.assert_called_once_with(os.getpid(), signal.SIGTERM)
        return supervisor.broken

    assert asyncio.run(scene()) == "commit"


def test_stopping_ends_work_that_waits_to_start_again() -> None:
    async def scene() -> None:
        done = asyncio.Event()

        async def odd() -> None:
            done.set()
            raise ValueError("again")

        await run_until(Supervisor({"odd": odd}, ServiceMetrics()), done)

    with patch.object(works, "RESTART_SECONDS_MIN", 3600.0):
        asyncio.run(scene())


def test_work_that_breaks_again_and_again_is_named_until_it_runs() -> None:
    async def scene() -> None:
        rounds = 0
        done = asyncio.Event()

        async def odd() -> None:
            nonlocal rounds
            rounds += 1
            named.append(list(supervisor.failing))
            if rounds <= WORK_BREAKS_MAX:
                raise ValueError("one odd row")
            done.set()
            await asyncio.Event().wait()

        supervisor = Supervisor({"odd": odd}, ServiceMetrics())
        with patch.object(works, "RESTART_SECONDS_MAX", 3600.0):
            async with supervisor.running(), asyncio.timeout(20):
                await done.wait()
                assert supervisor.failing == ["odd"]
                with patch.object(works, "RESTART_SECONDS_MAX", 0.0):  # it has run for long
                    assert supervisor.failing == []

    named: list[list[str]] = []
    asyncio.run(scene())
    assert named == [[], [], [], ["odd"]]


def test_rounds_that_break_again_and_again_are_named_until_one_is_well() -> None:
    """Red before: a loop that goes on after each broken round never came to the supervisor."""
    metrics = ServiceMetrics()
    supervisor = Supervisor({}, metrics)
    steady, beside = Steady("news", metrics), Steady("news", metrics)
    named: list[list[str]] = []

    def meet_an_odd_row() -> None:
        raise ValueError("one odd row")

    for _ in range(WORK_BREAKS_MAX):
        with steady.round():
            meet_an_odd_row()
        with beside.round():
            pass  # one that is well does not hide one that is not
        named.append(supervisor.failing)
    assert named == [[], [], ["news"]]
    with steady.round():
        pass
    assert supervisor.failing == []
