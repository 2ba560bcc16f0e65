"""Answers that take a core for seconds or minutes: bounds on how many run and wait.

An answer whose askers have all left is not made: one that waits for its turn gives it up, and one
that is being made is stopped at its next question to the store (`api.base.errand`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from starlette.types import Receive

from api.base.errand import ERRAND, Errand
from api.base.errors import Problem
from api.base.metrics import ServiceMetrics
from api.promql.gate import hung_up
from collector.contract.errors import StoreError

ANSWER_KEPT_SECONDS = 5.0
"""How long an answer that takes a core for long stands for others who ask the same: agents report
every five seconds. Times that end now end at a multiple of it, so that people ask the same."""
ANSWERS_KEPT_MAX = 32
"""Answers of one kind that are kept at once, of up to a few MB. Past it the next is made anew."""

STOP_AGAIN_SECONDS = 0.2
"""An errand may have been between two questions when it was stopped."""
LEAVING: ContextVar[Receive | None] = ContextVar("leaving", default=None)
"""What the current request hears from its client; None: the asker is no client."""
GONE_STATUS = 499
"""As nginx has it: the client closed the request. No client reads it; the log and metrics do."""

Made = TypeVar("Made")
Given = TypeVar("Given")


class _Shared:
    """An answer that is made for all who wait for it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any]
        self.errand = Errand()
        self.askers = 0
        self.is_running = False
        """Its thread works: to cancel the task would give its turn away too early."""


class Turns:
    """One at a time; waiting requests hold no thread.

    People who look at the same view ask the same questions: with a key, a question that is being
    answered is answered for all who ask it, and the answer is kept for ANSWER_KEPT_SECONDS.
    """

    def __init__(self, kept_max: int = ANSWERS_KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._shared: dict[Hashable, _Shared] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    @property
    def is_taken(self) -> bool:
        """Whether an answer is made now."""
        return self._turn.locked()

    async def take(
        self, work: Callable[[], Made], rule: str, waiting_max: int, *, key: Hashable = None
    ) -> Made:
        """Run the work in a thread, in turn; a Problem with ``rule`` past ``waiting_max``.

        ``key`` has all that the answer depends on except the data; None: it is not shared.
        """
        return await self._share(lambda one: self._in_turn(work, one), rule, waiting_max, key)

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

        async def both(shared: _Shared) -> Made:
            given = await first()
            return await self._in_turn(lambda: work(given), shared)

        return await self._share(both, rule, waiting_max, key)

    async def _share(
        self,
        make: Callable[[_Shared], Coroutine[Any, Any, Made]],
        rule: str,
        waiting_max: int,
        key: Hashable,
    ) -> Made:
        shared = self._shared.get(key)
        if shared is None:
            if self._waiting >= waiting_max:
                why = f"{rule} = {waiting_max} questions of this kind wait already"
                raise Problem(503, "busy", why, rule=rule)
            shared = self._begin(make, key)
        shared.askers += 1
        try:
            made: Made = await unless_gone(shared.task)
            return made
        finally:
            shared.askers -= 1
            if not shared.askers and not shared.task.done():
                self._abandon(shared, key)

    def _begin(
        self, make: Callable[[_Shared], Coroutine[Any, Any, Made]], key: Hashable
    ) -> _Shared:
        shared = _Shared()

        async def work() -> Made:
            # It works for all who ask, and not for the one who asked first.
            LEAVING.set(None)
            ERRAND.set(shared.errand)
            return await make(shared)

        self._waiting += 1
        shared.task = asyncio.create_task(work())
        shared.task.add_done_callback(self._answered)
        if key is not None:
            self._shared[key] = shared
            shared.task.add_done_callback(lambda done: self._keep(key, shared, done))
        return shared

    async def _in_turn(self, work: Callable[[], Made], shared: _Shared) -> Made:
        async with self._turn:
            shared.is_running = True
            try:
                return await asyncio.to_thread(work)
            finally:
                shared.is_running = False

    def _abandon(self, shared: _Shared, key: Hashable) -> None:
        """Those who ask the same from now on begin anew."""
        self._forget(key, shared)
        if not shared.is_running:
            shared.task.cancel()
            return
        stopping = asyncio.create_task(stop(shared))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    def _answered(self, done: asyncio.Task[Any]) -> None:
        self._waiting -= 1
        if not done.cancelled():
            done.exception()  # may have no asker left to be told

    def _keep(self, key: Hashable, shared: _Shared, done: asyncio.Task[Any]) -> None:
        """A failure is for those who wait now; the next one asks anew."""
        is_kept = not done.cancelled() and not done.exception()
        is_kept = is_kept and len(self._shared) <= self._kept_max
        seconds = ANSWER_KEPT_SECONDS if is_kept else 0.0
        asyncio.get_running_loop().call_later(seconds, self._forget, key, shared)

    def _forget(self, key: Hashable, shared: _Shared) -> None:
        if self._shared.get(key) is shared:
            del self._shared[key]


async def unless_gone(task: asyncio.Task[Made]) -> Made:
    """What the task gives; a Problem when the client of this request leaves before."""
    hear = LEAVING.get()
    if hear is None or task.done():
        # One who goes away must not end it for the others.
        return await asyncio.shield(task)
    watch = asyncio.create_task(hung_up(hear))
    try:
        either: set[asyncio.Future[Any]] = {task, watch}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
    if not task.done():
        raise Problem(GONE_STATUS, "gone", "the client left before its answer was made")
    return task.result()


async def stop(shared: _Shared) -> None:
    """End what is being made; the turn is free only when its thread is."""
    while not shared.task.done():
        with contextlib.suppress(StoreError):  # then it ends by itself, as it did before
            await asyncio.to_thread(shared.errand.stop)
        await asyncio.wait({shared.task}, timeout=STOP_AGAIN_SECONDS)


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
