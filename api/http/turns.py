"""Answers that take a core for seconds or minutes: bounds on how many run and wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from typing import Any, TypeVar

from api.base.errors import Problem
from api.base.metrics import ServiceMetrics

ANSWER_KEPT_SECONDS = 5.0
"""How long an answer that takes a core for long stands for others who ask the same: agents report
every five seconds. Times that end now end at a multiple of it, so that people ask the same."""
ANSWERS_KEPT_MAX = 32
"""Answers of one kind that are kept at once, of up to a few MB. Past it the next is made anew."""

Made = TypeVar("Made")
Given = TypeVar("Given")


class Turns:
    """One at a time; waiting requests hold no thread.

    People who look at the same view ask the same questions: with a key, a question that is being
    answered is answered for all who ask it, and the answer is kept for ANSWER_KEPT_SECONDS.
    """

    def __init__(self, kept_max: int = ANSWERS_KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._shared: dict[Hashable, asyncio.Task[Any]] = {}

    async def take(
        self, work: Callable[[], Made], rule: str, waiting_max: int, *, key: Hashable = None
    ) -> Made:
        """Run the work in a thread, in turn; a Problem with ``rule`` past ``waiting_max``.

        ``key`` has all that the answer depends on except the data; None: it is not shared.
        """
        return await self._share(lambda: self._in_turn(work), rule, waiting_max, key)

    async def take_after(
        self,
        first: Callable[[], Awaitable[Given]],
        work: Callable[[Given], Made],
        rule: str,
        waiting_max: int,
        *,
        key: Hashable,
    ) -> Made:
        """The same, for work on what ``first`` gives, which is asked for only if there is work."""

        async def both() -> Made:
            given = await first()
            return await self._in_turn(lambda: work(given))

        return await self._share(both, rule, waiting_max, key)

    async def _share(
        self,
        make: Callable[[], Coroutine[Any, Any, Made]],
        rule: str,
        waiting_max: int,
        key: Hashable,
    ) -> Made:
        task: asyncio.Task[Made] | None = self._shared.get(key)
        if task is None:
            if self._waiting >= waiting_max:
                why = f"{rule} = {waiting_max} questions of this kind wait already"
                raise Problem(503, "busy", why, rule=rule)
            self._waiting += 1
            task = asyncio.create_task(make())
            task.add_done_callback(self._answered)
            if key is None:
                return await task
            self._shared[key] = task
            task.add_done_callback(lambda done: self._keep(key, done))
        # One who goes away must not end it for the others.
        return await asyncio.shield(task)

    async def _in_turn(self, work: Callable[[], Made]) -> Made:
        async with self._turn:
            return await asyncio.to_thread(work)

    def _answered(self, _: asyncio.Task[Any]) -> None:
        self._waiting -= 1

    def _keep(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        """A failure is for those who wait now; the next one asks anew."""
        is_kept = not done.cancelled() and not done.exception()
        is_kept = is_kept and len(self._shared) <= self._kept_max
        seconds = ANSWER_KEPT_SECONDS if is_kept else 0.0
        asyncio.get_running_loop().call_later(seconds, self._shared.pop, key, None)


class Slots:
    """So many at once, each for minutes; past the bound, refused. ``what`` names them."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._taken = 0

    @contextlib.contextmanager
    def hold(self, rule: str, slots_max: int) -> Iterator[None]:
        """Hold a slot; a Problem that names the ``rule`` if ``slots_max`` are taken."""
        if self._taken >= slots_max:
            why = f"{rule} = {slots_max} {self._what} are being made already"
            raise Problem(503, "busy", why, rule=rule)
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


@contextlib.contextmanager
def refusals_counted(metrics: ServiceMetrics, protocol: str) -> Iterator[None]:
    """Count the bounds that stop a query, by their names, and let the answer go out."""
    try:
        yield
    except Problem as problem:
        if problem.body.rule:
            metrics.refuse(protocol, {problem.body.rule: 1})
        raise
