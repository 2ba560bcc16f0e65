"""Bounds concurrent queries, and ends those whose clients disconnect."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.types import Receive

from api.base.limits import QUERIES_MAX, QUERIES_WAITING_MAX, QUERY_WAIT_SECONDS
from api.base.threads import Threads
from api.promql.engine import Answer, Engine, Question
from api.promql.errors import ErrorKind, QueryError

Finished = TypeVar("Finished")

STOP_AGAIN_SECONDS = 0.2


class Gate:
    """Bounds running queries; others wait for a bounded time. Ingest's threads are never taken."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._free = asyncio.Semaphore(QUERIES_MAX)
        self._waiting = 0
        self._threads = Threads(QUERIES_MAX, work="promql")

    async def run(
        self, request: Request, question: Question, finish: Callable[[Answer], Finished]
    ) -> Finished:
        """``finish`` runs in the query's thread; a client that disconnects ends the query."""
        started = time.monotonic()
        running = self.engine.start(question)
        async with self._turn():
            waited = time.monotonic() - started

            def answer() -> Finished:
                found = running.answer()
                return finish(msgspec.structs.replace(found, waited_seconds=waited))

            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._threads, answer)
            watch = asyncio.create_task(hung_up(request.receive))
            try:
                either: set[asyncio.Future[Any]] = {work, watch}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                while not work.done():
                    # Again, until it has ended: it may have been between two parts.
                    await loop.run_in_executor(None, running.stop)
                    await asyncio.wait({work}, timeout=STOP_AGAIN_SECONDS)
                # The place is free only when the thread is.
                return await work
            finally:
                watch.cancel()

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._free.locked() and self._waiting >= QUERIES_WAITING_MAX:
            raise busy(f"{self._waiting} queries wait already (QUERIES_WAITING_MAX)")
        self._waiting += 1
        try:
            async with asyncio.timeout(QUERY_WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise busy(
                f"{QUERIES_MAX} queries are running and none ended in "
                f"{QUERY_WAIT_SECONDS:.0f} s (QUERY_WAIT_SECONDS)"
            ) from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.engine.close()


async def hung_up(receive: Receive) -> None:
    """Return when the client has left; what it still sends is thrown away."""
    while (await receive())["type"] != "http.disconnect":
        pass


def busy(why: str) -> QueryError:
    return QueryError(ErrorKind.UNAVAILABLE, f"too many queries: {why}")
