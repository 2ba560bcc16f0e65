"""Answers that take a core for seconds or minutes: bounds on how many run and wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from api.base.errors import Problem
from api.base.metrics import ServiceMetrics

Made = TypeVar("Made")


class Turns:
    """One at a time; waiting requests hold no thread."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def take(self, work: Callable[[], Made], rule: str, waiting_max: int) -> Made:
        """Run the work in a thread, in turn; a Problem with ``rule`` past ``waiting_max``."""
        if self._waiting >= waiting_max:
            why = f"{rule} = {waiting_max} questions of this kind wait already"
            raise Problem(503, "busy", why, rule=rule)
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1


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
