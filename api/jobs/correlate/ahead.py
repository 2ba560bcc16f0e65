"""Pieces of jobs' heat maps and timelines, made before somebody asks for them.

The first look at half an hour of a job of 64 ranks takes four seconds of a core to be made into
pieces (`api.jobs.correlate.pieces`), and whoever is called at night looks for the first time. So
the pieces of jobs that are likely to be looked at are made when their time is over, one by one,
and a look makes the newest one or two. A piece is made by the same function for whoever asks: it
is the same piece.

Whose: jobs that somebody looked at in the last half hour; jobs in incidents that are open, or were
closed in the last half hour; and while a page is open, or was until ten minutes ago, all that run.
The others that run are made too, the newest first, as far as ALWAYS_SHARE of a core goes: whoever
opens the first page sees the jobs of a small cluster at once.

What it may cost is bounded: AHEAD_JOBS_MAX jobs, AHEAD_SHARE of one core, and the room of all kept
pieces. What is left out is counted by the bound that left it out, and made when it is looked at.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from api.base.steady import Steady
from api.data.inventory.repository import Inventory
from api.jobs.correlate.near import AFTER_NS, PIECE_NS
from api.jobs.correlate.piece import Piece
from api.jobs.correlate.pieces import JobPieces, starts_in
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.window import JobRanks
from collector.contract.units import NS

AHEAD_JOBS_MAX = 32
"""Jobs whose pieces are made ahead: of 64 ranks each, two thirds of the room of all pieces."""
AHEAD_SHARE = 0.25
"""Of one core, so that a job of 64 ranks that comes new is made in 40 seconds. Half an hour of it
that goes on takes 0.5 %. It is taken by the clock: on a busy machine it gives way."""
ALWAYS_SHARE = 0.02
"""Of one core, by the CPU time of the thread, for jobs that nobody asked for: five or six of 64
ranks that go on."""
ALWAYS_SECONDS = 60.0
"""For so long what was not used of it may be used later."""
ALWAYS_PIECES = 8
"""Of one job that nobody asked for, in one round: their records are read at once."""
AHEAD_NS = 1_800 * NS
"""How far back: what the page shows of a job by default."""
LOOKED_SECONDS = 1_800.0
"""How long a job stays of interest after a look at it, or after its incident."""
PAGE_SECONDS = 600.0
"""How long all jobs that run stay of interest after the last page was closed."""
GIVE_WAY_SECONDS = 10.0
"""How long a piece lets answers go first that somebody waits for; then it is made all the same."""
GIVEN_WAY_SECONDS = 0.1
"""After so long it is asked again whether an answer is made."""
ROUND_SECONDS = 15.0
"""Twice in a piece: a piece is made within that time after nothing is written to it any more."""
ROUND_PIECES_MAX = 64
"""Pieces of one round: half an hour of one job. Then it is asked again who is looked at."""
LOOKED_MAX = 64
"""Jobs that are noted as looked at; those looked at longest ago are forgotten."""

JOBS, SHARE, ALWAYS = "AHEAD_JOBS_MAX", "AHEAD_SHARE", "ALWAYS_SHARE"
ROOM = "PIECES_BYTES_MAX"
"""The bounds that leave something out."""

Step = Callable[[], Piece | None]
InTurn = Callable[[Step], Awaitable[Piece | None]]


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of the service tells and is told."""

    in_turn: InTurn
    """Runs a piece of work in a thread, in turn with the answers that make pieces."""
    has_pages: Callable[[], bool] = lambda: False
    """Whether a page is open."""
    is_answering: Callable[[], bool] = lambda: False
    """Whether an answer that takes a core for long is made for somebody who waits."""
    left_out: Callable[[str, int], object] = lambda _rule, _count: None
    """Told how many a bound left out: JOBS and ALWAYS jobs in each round, the others pieces."""


class Due(msgspec.Struct, frozen=True):
    """Pieces of one job that are to be made."""

    job: str
    job_rank: JobRanks
    starts: list[int]
    spent: bool
    is_asked: bool = True
    """Whether it is of interest; else ALWAYS_SHARE bounds it."""


class Ahead:
    """One a process that answers; belongs to the event loop. ``clock``: unix seconds."""

    def __init__(
        self, pieces: JobPieces, inventory: Inventory, clock: Callable[[], float], hooks: Hooks
    ) -> None:
        self._pieces = pieces
        self._inventory = inventory
        self._clock = clock
        self._hooks = hooks
        self._looked: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        """When, and whether for more than lateness."""
        self._paged_s = float("-inf")
        self._quiet: int | None = None
        """The latest insert before the last round: what came since may go on coming."""
        self._made: dict[tuple[str, int], JobRanks] = {}
        """What was made here, of the time that is made: what is gone from it had no room."""
        self._gone: set[tuple[str, int]] = set()
        """What was found gone, and is counted."""
        self._waiting: set[tuple[str, int]] = set()
        """Pieces of jobs of interest that the last round left to this one."""
        self._counted_s = clock()
        """Until when ALWAYS_SHARE was added up."""
        self._allowed_s = 0.0
        """CPU time that jobs which nobody asked for may take; below 0: more was taken."""

    def note_look(self, job: str, *, spent: bool) -> None:
        """Somebody looks at this job; ``spent``: at where its ranks' time went."""
        _, before = self._looked.pop(job, (0.0, False))
        self._looked[job] = (self._clock(), spent or before)
        while len(self._looked) > LOOKED_MAX:
            self._looked.popitem(last=False)

    async def run(self, steady: Steady) -> None:
        """Until cancelled."""
        while True:
            with steady.round():
                await self.round()
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> int:
        """Make what is due; how many pieces that were."""
        number = self._pieces.number
        quiet, self._quiet = self._quiet, number
        if number is None:
            return 0
        if self._hooks.has_pages():
            self._paged_s = self._clock()
        # Before the first round nobody knows what is written to still.
        if quiet is None:
            return 0
        due, others = await asyncio.to_thread(self._plan, quiet)
        count = 0
        for one in due:
            count += await self._make(one, one.starts[: ROUND_PIECES_MAX - count])
        return count + await self._make_others(others, quiet)

    async def _make_others(self, jobs: Sequence[str], quiet: int) -> int:
        """What is due of jobs that nobody asked for, as far as ALWAYS_SHARE goes."""
        now_s = self._clock()
        self._allowed_s += ALWAYS_SHARE * max(0.0, now_s - self._counted_s)
        self._allowed_s = min(self._allowed_s, ALWAYS_SHARE * ALWAYS_SECONDS)
        self._counted_s = now_s
        count = left_out = 0
        for place, job in enumerate(jobs):
            if self._allowed_s <= 0 or place >= AHEAD_JOBS_MAX:
                left_out += 1
                continue
            due = await asyncio.to_thread(self._due_of_other, job, quiet)
            # The newest are those that stay longest.
            starts = due.starts[-ALWAYS_PIECES:]
            left_out += len(starts) < len(due.starts)
            count += await self._make(due, starts)
        self._hooks.left_out(ALWAYS, left_out)
        return count

    async def _make(self, due: Due, starts: list[int]) -> int:
        made = self._pieces.make(due.job, due.job_rank, starts, spent=due.spent)

        def step() -> Piece | None:
            with self._metered(is_free=due.is_asked):
                return next(made, None)

        for start in starts:
            await self._give_way()
            began = time.monotonic()
            await self._hooks.in_turn(step)
            took = time.monotonic() - began
            self._made[due.job, start] = due.job_rank
            self._waiting.discard((due.job, start))
            await asyncio.sleep(took * (1 / AHEAD_SHARE - 1))
        return len(starts)

    async def _give_way(self) -> None:
        until_s = time.monotonic() + GIVE_WAY_SECONDS
        while self._hooks.is_answering() and time.monotonic() < until_s:  # noqa: ASYNC110 - of many queues
            await asyncio.sleep(GIVEN_WAY_SECONDS)

    @contextmanager
    def _metered(self, *, is_free: bool) -> Iterator[None]:
        """What the thread takes is taken off what jobs that nobody asked for may take."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._allowed_s -= 0.0 if is_free else time.thread_time() - began

    # --- what is due ----------------------------------------------------------------------------

    def _span(self) -> tuple[int, int]:
        end_ns = round(self._clock() * NS) - AFTER_NS - PIECE_NS
        return end_ns - AHEAD_NS, end_ns

    def _plan(self, quiet: int) -> tuple[list[Due], list[str]]:
        """What is due, and the other jobs that run. In a thread: it asks the inventory."""
        span = self._span()
        first = starts_in(span)[0]
        running = self._running()
        jobs = list(self._jobs(running))
        self._hooks.left_out(JOBS, len(jobs) - len(jobs[:AHEAD_JOBS_MAX]))
        found = [self._due(job, span, quiet) for job in jobs[:AHEAD_JOBS_MAX]]
        self._hooks.left_out(SHARE, sum(start < first for _, start in self._waiting))
        self._made = {key: each for key, each in self._made.items() if key[1] >= first}
        self._gone = {key for key in self._gone if key[1] >= first}
        self._waiting = {(each.job, start) for each in found for start in each.starts}
        others = [job for job in running if job not in jobs]
        return [each for each in found if each.starts], others

    def _due_of_other(self, job: str, quiet: int) -> Due:
        with self._metered(is_free=False):
            due = self._due(job, self._span(), quiet)
        return msgspec.structs.replace(due, is_asked=False)

    def _due(self, job: str, span: tuple[int, int], quiet: int) -> Due:
        job_rank = job_ranks_of(self._inventory, job)
        spent = self._looked.get(job, (0.0, False))[1]
        starts = starts_in(span) if job_rank else []
        missing = self._pieces.missing(job, job_rank, starts, spent=spent)
        missing = [one for one in missing if self._pieces.written(job_rank, one) <= quiet]
        gone = [
            one
            for one in missing
            if self._made.get((job, one)) == job_rank and not self._pieces.has(job, job_rank, one)
        ]
        # Made again they would take the room of others, which would be made again.
        news = {(job, one) for one in gone} - self._gone
        self._hooks.left_out(ROOM, len(news))
        self._gone |= news
        return Due(job, job_rank, sorted(set(missing) - set(gone)), spent)

    def _jobs(self, running: Sequence[str]) -> Iterator[str]:
        """Those of interest, each once, the most likely to be looked at first."""
        now_s = self._clock()
        since = now_s - LOOKED_SECONDS
        incidents = self._inventory.incidents.recent(dt.datetime.fromtimestamp(since, tz=dt.UTC))
        looked = [job for job, (at_s, _) in reversed(self._looked.items()) if at_s >= since]
        accused = [job for one in reversed(incidents) for job in one.jobs if job in running]
        others = running if now_s - self._paged_s <= PAGE_SECONDS else []
        yield from dict.fromkeys((*looked, *accused, *others))

    def _running(self) -> list[str]:
        """The newest first."""
        jobs = self._inventory.jobs.running()
        return [job.job for job in sorted(jobs, key=lambda job: job.first_seen, reverse=True)]
