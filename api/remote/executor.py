"""What all executors share: the loop between the service and a scheduler.

An executor observes the scheduler's nodes, plans what differs from the service's standing actions,
and applies it. The loop queries the service, backs off while something fails, logs each trouble
once, and reports back. It is level-triggered: each pass compares all that is known with all nodes
as they are, so that a crash, a missed event or a service that was unavailable loses nothing.

A new scheduler is one subclass of `Executor` (`api.remote.slurm.follow` is the short model,
`api.remote.kubernetes.controller` the one that follows events).
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import enum
import logging
import signal
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from api.remote.answers import Actions, FleetHealth, Report, Service
from api.remote.client import RETRY_SECONDS_MAX, Odd, ServiceError, backoff
from collector.contract.errors import FabricscopeError, HostError, ParseError

STEP_SECONDS_MIN = 0.2
"""How long a step takes at least: whatever answers at once must not keep both sides busy."""
PASS_SECONDS = 5.0
"""Without news all nodes are compared again this often: changes by other writers are corrected."""
PASS_PAUSE_SECONDS = 1.0
"""Between two passes: kubelets of 5,000 nodes make 17 events a second, and a pass takes 55 ms."""
HEALTH_WAIT_SECONDS = 30.0
"""How long the service lets an executor wait for a change."""
HEALTH_KEPT_SECONDS = 60.0
"""What was known of health counts so long without an answer: a service that is restarted must not
turn every node's condition. As long as the service trusts its own (HEALTH_STALE_SECONDS)."""
ACTIONS_SECONDS = 5.0
"""How often followers ask what stands."""
ACTIONS_KEPT_SECONDS = 30.0
"""An answer that is older is doubt."""
LABELS_SECONDS = 60.0
"""How often followers ask where hosts hang: cables change by hand."""
REPORT_SECONDS = 1.0
"""How often reports are sent."""
FLUSH_SECONDS = 2.0
"""How long an executor that ends tries to send the reports that wait."""
REPORTS_KEPT_MAX = 10_000
"""Actions whose last report waits, or is remembered. Past it the oldest are reported once more."""
SAID_KEPT_MAX = 200_000
"""Lines that were logged, so that each is logged once."""
ALIVE_SECONDS = 120.0
"""A pass takes seconds. After so long without one the process is stuck: restart it."""

log = logging.getLogger(__name__)

Thing = TypeVar("Thing")
Nodes = TypeVar("Nodes")
Change = TypeVar("Change")
Step = Callable[[], Awaitable[None]]


class Doubt(FabricscopeError):  # noqa: N818 - reads as the statement it is
    """Something cannot be known: nothing is changed."""


class SchedulerError(FabricscopeError):
    """The scheduler did not carry out a change. ``retry_s``: how long it asks to wait."""

    def __init__(self, words: str, retry_s: float = 0.0) -> None:
        super().__init__(words)
        self.retry_s = retry_s


PASSING = (ServiceError, SchedulerError, Doubt, HostError, ParseError)
"""Errors that a loop survives: it logs them and tries again."""


class Ask(enum.Enum):
    """Kinds of requests to the service."""

    HEALTH = "health"
    ACTIONS = "actions"
    LABELS = "labels"


class Plan(msgspec.Struct, Generic[Change], kw_only=True):
    """The next changes, the most urgent first."""

    changes: list[Change]
    reports: list[Report] = []
    """Reports to the service without a change: done already, or refused here."""
    refused: list[str] = []


class Attempt(msgspec.Struct, frozen=True):
    """The outcome of one change."""

    is_done: bool
    reports: Sequence[Report] = ()


class Done(msgspec.Struct, kw_only=True):
    """The result of a pass."""

    written: int = 0
    left: int = 0
    refused: tuple[str, ...] = ()


class Share:
    """A bound on the part of all nodes that is held at once; one node always may be."""

    def __init__(self, share_max: float, *, nodes: int, held: int, doing: str) -> None:
        self._share_max = share_max
        self._nodes = nodes
        self._held = held
        self._doing = doing

    def take(self) -> str:
        """Take the room of one more node; the reason in words if there is none.

        >>> share = Share(0.4, nodes=5, held=1, doing="tainted")
        >>> share.take(), share.take()
        ('', 'not tainted: 2 of 5 nodes are already, and --share-max is 0.4')
        """
        if self._held >= max(1, int(self._share_max * self._nodes)):
            return (
                f"not {self._doing}: {self._held} of {self._nodes} nodes are already, and"
                f" --share-max is {self._share_max:g}"
            )
        self._held += 1
        return ""


class Executor(abc.ABC, Generic[Nodes, Change]):
    """One scheduler. ``name`` appears in the history of actions."""

    name: str
    asks: frozenset[Ask] = frozenset({Ask.ACTIONS})
    """The answers of the service that the plan needs."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        """Set when a pass should be made soon."""

    @abc.abstractmethod
    async def observe(self) -> Nodes:
        """The nodes as the scheduler shows them. Raises where they are not known."""

    @abc.abstractmethod
    async def plan(self, nodes: Nodes, said: Said) -> Plan[Change]:
        """The differences from the service's answers. Raises Doubt where nothing may be done."""

    @abc.abstractmethod
    def apply(self, changes: Sequence[Change]) -> AsyncGenerator[Attempt]:
        """Make the changes one after another; a dry run shows them. May end before the last."""

    @property
    def followers(self) -> Mapping[str, Step]:
        """Tasks that keep `observe` up to date; none: each pass observes again."""
        return {}

    @property
    def is_ready(self) -> bool:
        return True

    async def claim(self) -> None:
        """Claim the right to write; raises if another process has it."""

    async def release(self) -> None:
        """Let others write."""


# --- the service's answers ----------------------------------------------------------------------


class Said:
    """The service's last answers, each with its age. ``monotonic``: seconds."""

    def __init__(
        self, service: Service, news: asyncio.Event, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._service = service
        self._news = news
        self._monotonic = monotonic
        self._health: FleetHealth | None = None
        self._health_s = monotonic()
        self._is_heard = False
        """Whether the last question about health was answered."""
        self._actions: Actions | None = None
        self._actions_s = float("-inf")
        self.labels: dict[str, dict[str, str]] | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the service has not answered for long, or not since the start."""
        return self._monotonic() - self._health_s >= HEALTH_KEPT_SECONDS

    @property
    def health(self) -> FleetHealth | None:
        return None if self.is_silent else self._health

    @property
    def actions(self) -> Actions | None:
        """Standing actions; None on doubt."""
        is_kept = self._monotonic() - self._actions_s < ACTIONS_KEPT_SECONDS
        return self._actions if is_kept else None

    async def ask_health(self) -> None:
        """Request health; wait for a change, unless the last request failed."""
        wait_s = HEALTH_WAIT_SECONDS if self._is_heard else 0.0
        self._is_heard = False
        found = await self._service.health(wait_s)
        self._is_heard, self._health_s = True, self._monotonic()
        if found is not None:
            self._health = found
        self._news.set()

    async def ask_actions(self) -> None:
        """Request standing actions; without a good answer none are known."""
        try:
            found = await self._service.actions()
        except FabricscopeError:
            self._actions = None
            raise
        self._actions, self._actions_s = found, self._monotonic()
        self._news.set()

    async def ask_labels(self) -> None:
        self.labels = await self._service.labels()
        self._news.set()

    def questions(self, asks: frozenset[Ask]) -> dict[str, tuple[Step, float]]:
        """Each request by name, and the seconds between two; the one for health waits by itself."""
        every = {
            Ask.HEALTH: (self.ask_health, 0.0),
            Ask.ACTIONS: (self.ask_actions, ACTIONS_SECONDS),
            Ask.LABELS: (self.ask_labels, LABELS_SECONDS),
        }
        return {ask.value: every[ask] for ask in Ask if ask in asks}


class Reports:
    """Reports about actions for the service: the latest of each, sent once."""

    def __init__(self, service: Service, executor: str) -> None:
        self._service = service
        self._executor = executor
        self._waiting: OrderedDict[str, Report] = OrderedDict()
        self._sent: OrderedDict[str, Report] = OrderedDict()
        self._sending: asyncio.Task[None] | None = None

    def add(self, report: Report) -> None:
        """Queue it, unless it equals the last report of its action."""
        last = self._waiting.get(report.action) or self._sent.get(report.action)
        if report != last:
            remember(self._waiting, report.action, report, REPORTS_KEPT_MAX)

    async def send(self) -> None:
        """Send queued reports. Raises ServiceError; the reports then stay queued.

        A report that the service refuses (it does not know the action) is not sent again. A caller
        that is cancelled does not interrupt a report, so that none is sent twice.
        """
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        await asyncio.shield(self._sending)

    async def _send(self) -> None:
        while self._waiting:
            action, report = next(iter(self._waiting.items()))
            try:
                await self._service.report(self._executor, report)
            except Odd as error:
                log.warning("the service refuses a report: %s", error)
            if self._waiting.get(action) == report:
                del self._waiting[action]
            remember(self._sent, action, report, REPORTS_KEPT_MAX)


# --- the loop -----------------------------------------------------------------------------------


class Loop(Generic[Nodes, Change]):
    """Applies the service's standing actions to a scheduler. ``say`` gets what is refused."""

    def __init__(
        self,
        executor: Executor[Nodes, Change],
        service: Service,
        *,
        is_dry: bool,
        say: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._is_dry = is_dry
        self._say_once = Once(say)
        self._monotonic = monotonic
        self._passed_s = monotonic()
        self.trouble = Trouble()
        self.said = Said(service, executor.news, monotonic)
        self.reports = Reports(service, executor.name)

    @property
    def is_alive(self) -> bool:
        """Whether passes are made; one that waits for the scheduler counts."""
        return self._monotonic() - self._passed_s < ALIVE_SECONDS

    async def once(self) -> Done:
        """Observe, query and apply once; reports then wait. Raises on doubt, before any change."""
        nodes = await self._executor.observe()
        for ask, _ in self.said.questions(self._executor.asks).values():
            await ask()
        total = Done()
        try:
            while True:
                if not self._is_dry:
                    await self._executor.claim()
                done = await self._pass(nodes)
                total.written += done.written
                total.refused = done.refused
                if not done.left:
                    return total
                nodes = await self._executor.observe()
        finally:
            if not self._is_dry:
                await self._executor.release()

    async def run(self, interval_s: float = 0.0) -> None:
        """Run until cancelled; ``interval_s``: between passes where there are no followers."""

        async def look() -> None:
            await self.once()
            await self.reports.send()

        steps: dict[str, tuple[Step, float]] = {self._executor.name: (look, interval_s)}
        if self._executor.followers:
            steps = {
                **{what: (step, 0.0) for what, step in self._executor.followers.items()},
                **self.said.questions(self._executor.asks),
                "passes": (self._follow, 0.0),
                "reports": (self.reports.send, REPORT_SECONDS),
            }
        try:
            async with asyncio.TaskGroup() as group:
                for what, (step, pause_s) in steps.items():
                    group.create_task(keep_on(what, step, self.trouble, pause_s), name=what)
        finally:
            with contextlib.suppress(*PASSING, TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self.reports.send()

    async def _follow(self) -> None:
        # Not wait_for: before Python 3.12 it loses a cancellation that comes with the news.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PASS_SECONDS):
                await self._executor.news.wait()
        self._executor.news.clear()
        self._passed_s = self._monotonic()
        # Without the first, every start would turn all conditions to Unknown, and back.
        has_begun = self.said.health is not None or self.said.is_silent
        if has_begun and self._executor.is_ready:
            done = await self._pass(await self._executor.observe())
            if done.left:
                self._executor.news.set()
            else:
                await asyncio.sleep(PASS_PAUSE_SECONDS)

    async def _pass(self, nodes: Nodes) -> Done:
        plan = await self._executor.plan(nodes, self.said)
        for words in plan.refused:
            self._say_once(words)
        done = Done(left=len(plan.changes), refused=tuple(plan.refused))
        if not self._is_dry:
            for report in plan.reports:
                self.reports.add(report)
        async with contextlib.aclosing(self._executor.apply(plan.changes)) as attempts:
            async for attempt in attempts:
                done.written += attempt.is_done
                done.left -= 1
                for report in attempt.reports:
                    self.reports.add(report)
        if self._is_dry:
            done.left = 0
        return done


class Once:
    """Logs what every pass finds again, once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lines: OrderedDict[str, None] = OrderedDict()

    def __call__(self, words: str) -> None:
        if words not in self._lines:
            self._say(words)
            remember(self._lines, words, None, SAID_KEPT_MAX)


class Trouble:
    """What fails now, by name; logged once when it begins and once when it is over."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}

    def begins(self, what: str, error: FabricscopeError) -> None:
        if self.now.get(what) != str(error):
            log.warning("%s: %s", what, error)
        self.now[what] = str(error)

    def over(self, what: str) -> None:
        if self.now.pop(what, None) is not None:
            log.info("%s: works again", what)


async def keep_on(what: str, step: Step, trouble: Trouble, pause_s: float) -> None:
    """Repeat a step until cancelled; after failures with growing pauses."""
    failures = 0
    while True:
        began_s = time.monotonic()
        try:
            await step()
        except PASSING as error:
            failures += 1
            trouble.begins(what, error)
            asked_s = error.retry_s if isinstance(error, SchedulerError) else 0.0
            await asyncio.sleep(max(backoff(failures), min(asked_s, RETRY_SECONDS_MAX)))
            continue
        failures = 0
        trouble.over(what)
        await asyncio.sleep(max(pause_s, began_s + STEP_SECONDS_MIN - time.monotonic()))


def remember(memory: OrderedDict[str, Thing], name: str, thing: Thing, limit: int) -> None:
    """Keep one more as the latest; past the bound the oldest goes."""
    memory[name] = thing
    memory.move_to_end(name)
    if len(memory) > limit:
        memory.popitem(last=False)


async def until_told(work: Coroutine[Any, Any, object]) -> None:
    """Run until it ends, or SIGTERM or SIGINT comes."""
    task = asyncio.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
