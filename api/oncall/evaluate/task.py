"""The evaluator's task: every few seconds, in a thread, in the one process that judges.

Evaluators that do not judge look at their share of the jobs instead (`api.oncall.evaluate.scout`).

A round that takes long delays the next; rounds that could not begin in time are left out and
counted, because the next one sees all of their data; and it reads fewer records (`Effort`). A store
or inventory that is unavailable is tried again in the next round.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from functools import partial

from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.data.ingest.commit import Overloaded
from api.data.ingest.own import OwnSamples
from api.data.store.store import Store
from api.oncall.evaluate.lead import Lead
from api.oncall.evaluate.rounds import BrokenJudge, Incomplete, LostLead, Outcome, Rounds
from api.oncall.evaluate.rows import RowWriter, placed
from api.oncall.evaluate.scout import Scout
from api.oncall.evaluate.series import FoundSeries, read_live
from collector.contract.errors import InventoryError, SettingsError, StoreError
from collector.contract.units import NS

EVALUATE_SECONDS = 5.0
"""How often: agents report every five seconds."""
ROUND_SHARE = 0.5
"""Of that time, for a round; one that takes longer reads fewer records. Verdicts must leave room
for ingest, rules and answers."""


log = logging.getLogger(__name__)


class EvaluateTask:
    """Evaluates while this process leads. ``clock``: unix seconds."""

    def __init__(
        self,
        rounds: Rounds,
        lead: Lead,
        store: Store,
        own: OwnSamples,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        scout: Scout | None = None,
    ) -> None:
        self._rounds = rounds
        self._scout = scout
        self._lead = lead
        self._store = store
        self._turns = 0
        """Of the lease: how often live series of the holder before were taken over."""
        self._writer = RowWriter(store)
        self._series = FoundSeries()
        self._own = own
        self._metrics = metrics
        self._clock = clock
        self._is_failing = False
        self._pulse = metrics.vitals.evaluation
        metrics.watch("fabric_service_evaluation_leads", lambda: float(lead.is_held()))
        metrics.watch("fabric_service_incidents", lambda: float(rounds.open_count))
        metrics.watch("fabric_service_evaluation_behind_seconds", lambda: rounds.behind_ns / NS)
        metrics.watch(
            "fabric_service_evaluation_records_max", lambda: float(rounds.effort.records_max)
        )
        for state in rounds.jobs:
            metrics.watch("fabric_service_evaluation_jobs", partial(self._jobs, state), state=state)
        for state in ("outstanding", "silent"):
            metrics.watch(
                "fabric_service_evaluation_hosts", partial(self._hosts, state), state=state
            )

    def _jobs(self, state: str) -> float:
        return float(self._rounds.jobs[state])

    def _hosts(self, state: str) -> float:
        arrived = self._rounds.arrived
        return float(len(getattr(arrived, state))) if arrived is not None else 0.0

    async def run(self, steady: Steady) -> None:
        while True:
            started = time.monotonic()
            with steady.round():
                await self.once()
            took = time.monotonic() - started
            late = math.floor(took / EVALUATE_SECONDS)
            self._metrics.evaluation_delays.inc(late)
            await asyncio.sleep((late + 1) * EVALUATE_SECONDS - took)

    async def once(self) -> Outcome | None:
        """One round, if this process leads; None if it does not, or if nothing was kept.

        Rows are written after the incidents are kept: a store that then fails loses rows,
        which the next round writes, and no incident.
        """
        if not self._lead.is_held():
            self._rounds.forget()
            self._pulse.rest()
            await self._look_for_judge()
            return None
        started = time.perf_counter()
        result, why = "done", ""
        outcome = None
        try:
            outcome = await asyncio.to_thread(self._rounds.look, round(self._clock() * NS))
            await self._write(outcome)
        except (StoreError, Overloaded) as error:
            result, why = "store_away", str(error)
        except (InventoryError, SettingsError) as error:
            result, why = "inventory_away", str(error)
        except LostLead:
            result, why = "lost", "another process does it"
        except BrokenJudge:
            result, why = "broken", "the window or the judge has a bug"
        except Incomplete:
            result = "incomplete"
        except Exception as bug:
            # One round less: the next one sees its data, and incidents stay as they are.
            result, why = "broken", f"{type(bug).__name__}: {bug}"
            if not self._is_failing:
                log.exception("an evaluation broke")
        took_s = time.perf_counter() - started
        self._rounds.effort.note(took_s, EVALUATE_SECONDS * ROUND_SHARE)
        self._metrics.evaluation_seconds.observe(took_s)
        self._metrics.evaluations.labels(result).inc()
        if why and not self._is_failing:
            log.warning("the last minutes cannot be evaluated: %s", why)
        self._is_failing = bool(why)
        if result == "lost":
            self._pulse.rest()
        elif why:
            self._pulse.fail(why)
        else:
            self._pulse.succeed()
        return outcome

    async def _look_for_judge(self) -> None:
        """A share of the jobs, where another process judges."""
        if self._scout is None:
            return
        why = ""
        try:
            await asyncio.to_thread(self._scout.look, round(self._clock() * NS))
        except (StoreError, InventoryError, SettingsError) as error:
            why = str(error)
        if why and not self._is_failing:
            log.warning("this process' jobs cannot be looked at; the judge does it: %s", why)
        self._is_failing = bool(why)

    async def _write(self, outcome: Outcome) -> None:
        if not self._lead.may_write(outcome.now_ns):
            self._metrics.evaluations_fenced.inc()
            return  # the holder before may have written this moment, or the next one does
        if self._turns != self._lead.turns:
            turns = self._lead.turns
            self._series.adopt(await asyncio.to_thread(read_live, self._store, outcome.now_ns))
            self._turns = turns
        left_out = self._writer.left_out + self._series.left_out
        verdicts = placed(outcome.verdicts, outcome.incident_of, outcome.incidents)
        await asyncio.to_thread(self._writer.write, outcome.now_ns, outcome.findings, verdicts)
        samples = self._series.samples(
            outcome.now_ns,
            outcome.findings,
            outcome.incidents,
            outcome.waiting,
            outcome.contradicted,
        )
        await self._own.write(samples)
        self._metrics.findings_left_out.inc(
            self._writer.left_out + self._series.left_out - left_out
        )
