"""Answers in turn: the same question is answered once for all who ask it."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from starlette.types import Message

from api.base.errand import ERRAND, ErrandStopped
from api.base.errors import Problem
from api.http import turns
from api.http.turns import LEAVING, Turns

RULE = "SOME_MAX"


class Work:
    """Counts how often it is done; waits until it may end."""

    def __init__(self) -> None:
        self.done = 0
        self.may_end = threading.Event()
        self.fails = False

    def __call__(self) -> int:
        self.may_end.wait(60)
        self.done += 1
        if self.fails:
            raise ValueError("as asked")
        return self.done


async def begun(
    taken: Turns, work: Callable[[], int], key: str, most: int = 8
) -> asyncio.Task[int]:
    """A question that waits for its answer by now."""
    task = asyncio.create_task(taken.take(work, RULE, most, key=key))
    await asyncio.sleep(0)
    return task


def test_those_who_ask_meanwhile_and_soon_after_get_the_same() -> None:
    async def ask() -> None:
        taken, work = Turns(), Work()
        asked = [await begun(taken, work, "a") for _ in range(3)]
        work.may_end.set()
        assert await asyncio.gather(*asked) == [1, 1, 1]
        assert await taken.take(work, RULE, 8, key="a") == 1
        assert await taken.take(work, RULE, 8, key="another") == 2
        assert await taken.take(work, RULE, 8) == 3, "without a key nothing is shared"

    asyncio.run(ask())


def test_an_answer_stands_for_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        taken, work = Turns(), Work()
        work.may_end.set()
        assert await taken.take(work, RULE, 8, key="a") == 1
        await asyncio.sleep(0.01)
        assert await taken.take(work, RULE, 8, key="a") == 2

    monkeypatch.setattr(turns, "ANSWER_KEPT_SECONDS", 0.0)
    asyncio.run(ask())


def test_a_failure_is_not_kept() -> None:
    async def ask() -> None:
        taken, work = Turns(), Work()
        work.may_end.set()
        work.fails = True
        with pytest.raises(ValueError, match="as asked"):
            await taken.take(work, RULE, 8, key="a")
        work.fails = False
        await asyncio.sleep(0.01)
        assert await taken.take(work, RULE, 8, key="a") == 2

    asyncio.run(ask())


def test_one_who_goes_away_takes_no_answer_from_the_others() -> None:
    async def ask() -> None:
        taken, work = Turns(), Work()
        first, second = await begun(taken, work, "a"), await begun(taken, work, "a")
        first.cancel()
        await asyncio.sleep(0)
        work.may_end.set()
        assert await second == 1
        assert first.cancelled()

    asyncio.run(ask())


def test_questions_that_wait_are_bounded_and_the_same_one_does_not_count() -> None:
    async def ask() -> None:
        taken, work = Turns(), Work()
        asked = [await begun(taken, work, key, most=2) for key in ("a", "b", "a")]
        with pytest.raises(Problem, match=RULE):
            await taken.take(work, RULE, 2, key="c")
        work.may_end.set()
        assert await asyncio.gather(*asked) == [1, 2, 1]

    asyncio.run(ask())


def test_answers_that_are_kept_are_bounded() -> None:
    async def ask() -> None:
        taken, work = Turns(kept_max=3), Work()
        work.may_end.set()
        for number in range(5):
            await taken.take(work, RULE, 8, key=number)
            await asyncio.sleep(0.01)
        assert len(taken._shared) == 3

    asyncio.run(ask())


def test_what_work_is_done_on_is_not_asked_for_again_while_the_answer_is_kept() -> None:
    asked_for = 0

    async def first() -> str:
        nonlocal asked_for
        asked_for += 1
        return f"given {asked_for}"

    async def ask() -> None:
        taken = Turns()
        wanted = [taken.take_after(first, str.upper, RULE, 1, key="a") for _ in range(2)]
        assert await asyncio.gather(*wanted) == ["GIVEN 1"] * 2, "two of one key count once"
        assert await taken.take_after(first, str.upper, RULE, 1, key="a") == "GIVEN 1"
        assert await taken.take_after(first, str.upper, RULE, 1, key="another") == "GIVEN 2"

    asyncio.run(ask())


def test_one_who_goes_away_before_its_turn_leaves_its_place() -> None:
    async def ask() -> None:
        taken, work = Turns(), Work()
        alone = asyncio.create_task(taken.take(work, RULE, 1))
        alone.cancel()
        await asyncio.gather(alone, return_exceptions=True)
        work.may_end.set()
        assert await taken.take(work, RULE, 1) == 1

    asyncio.run(ask())


class Client:
    """What a request hears of its client: its body, then nothing until it leaves."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self._is_heard = False

    async def hear(self) -> Message:
        if not self._is_heard:
            self._is_heard = True
            return {"type": "http.request"}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def ask(self, taken: Turns, work: Callable[[], int], key: str) -> asyncio.Task[int]:
        """A question of this client that waits for its answer by now."""
        LEAVING.set(self.hear)
        try:
            return await begun(taken, work, key)
        finally:
            LEAVING.set(None)


async def is_refused_as_gone(task: asyncio.Task[int]) -> None:
    with pytest.raises(Problem, match="left before its answer"):
        await task


def test_an_answer_without_askers_gives_up_its_turn() -> None:
    async def ask() -> None:
        taken, work, client = Turns(), Work(), Client()
        running = await begun(taken, work, "a")
        waiting = await client.ask(taken, work, "b")
        client.leaves.set()
        await is_refused_as_gone(waiting)
        work.may_end.set()
        assert await running == 1
        assert await taken.take(work, RULE, 1, key="b") == 2, "only the new question is answered"

    asyncio.run(ask())


def test_an_answer_is_made_as_long_as_one_waits_for_it() -> None:
    async def ask() -> None:
        taken, work, leaver, stayer = Turns(), Work(), Client(), Client()
        left = await leaver.ask(taken, work, "a")
        stays = await stayer.ask(taken, work, "a")
        leaver.leaves.set()
        await is_refused_as_gone(left)
        work.may_end.set()
        assert await stays == 1

    asyncio.run(ask())


def test_an_answer_without_askers_is_stopped_at_its_next_question_to_the_store() -> None:
    inside, ended = threading.Event(), threading.Event()
    stopped: list[str] = []

    def work() -> int:
        errand = ERRAND.get()
        assert errand is not None
        try:
            while True:
                errand.begin(stopped.append)
                inside.set()
                ended.wait(0.01)
        except ErrandStopped:
            ended.set()
            raise

    async def ask() -> None:
        taken, client = Turns(), Client()
        asked = await client.ask(taken, work, "a")
        assert await asyncio.to_thread(inside.wait, 60)
        client.leaves.set()
        await is_refused_as_gone(asked)
        assert await asyncio.to_thread(ended.wait, 60)
        assert set(map(len, stopped)) == {len("errand-") + 32}, "the store was told, by the tag"
        # The turn is free again.
        assert await taken.take(lambda: 5, RULE, 8, key="a") == 5

    asyncio.run(ask())
