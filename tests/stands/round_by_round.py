"""A service in this process whose background work rests: a test runs it round by round."""

import asyncio
import contextlib
import datetime as dt
import functools
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from api.data.refresh import PortRefresh
from api.http.context import Context
from api.http.settings import ServiceSettings
from api.jobs.correlate.roll import RollTask
from api.jobs.watch import JobWatch
from api.oncall.evaluate.members import Members
from api.oncall.evaluate.rounds import Outcome
from api.oncall.evaluate.task import EvaluateTask
from api.oncall.rules import task as rule_task
from api.oncall.rules.task import RuleTask
from collector.contract.catalog import load_catalog
from tests.stands.service import READY_SECONDS, InProcess, in_process

ROLLED_SECONDS = 120
"""How much of the past `roll` makes into series."""

Result = TypeVar("Result")
Part = TypeVar("Part")


class RoundByRound:
    """One round of each kind of background work, on the service's own event loop."""

    def __init__(self, service: InProcess, owners: Mapping[str, object], loop: Any) -> None:  # noqa: ANN401 - an event loop
        self.service = service
        self.client = service.client
        self._owners = owners
        self._loop = loop
        self.jobs = JobWatch(service.store, service.inventory)
        self.ports = PortRefresh(service.store, service.inventory, load_catalog())

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(READY_SECONDS)

    def part(self, work: str, kind: type[Part]) -> Part:
        """The part of the service whose loop has this name."""
        owner = self._owners[work]
        assert isinstance(owner, kind), f"{work}: {owner!r}"
        return owner

    def lead(self) -> None:
        members = self.part("lead", Members)
        members.renew()
        assert members.judge.is_held(), "this process must lead"

    def evaluate(self) -> Outcome | None:
        self.lead()
        return self.do(self.part("evaluator", EvaluateTask).once())

    def roll(self) -> int:
        """The last minutes again, whatever was rolled before."""
        self.lead()
        task = self.part("roll", RollTask)
        with patch.object(task, "_rolled_s", int(time.time()) // 10 * 10 - ROLLED_SECONDS):
            return self.do(task.catch_up())

    def evaluate_rules(self) -> int:
        """Every group of the pack once, whatever its interval."""
        self.lead()
        tasks = self.part("rules", RuleTask)
        with patch.object(rule_task, "aligned_ns", lambda *_: time.time_ns()):
            # The first look of all notes the groups, and finds them due when it looks again.
            return self.do(tasks.once()) or self.do(tasks.once())

    def judge_health(self) -> None:
        self.do(self.service.context.health.once())

    def watch(self) -> None:
        """What the watches of ports and jobs and the inventory's feed do."""
        parts = self.service.context
        self.do(parts.ingest.sighted())
        self.do(parts.ingest.sight_now())
        self._owners["feed"].run_once()  # type: ignore[attr-defined]
        now = dt.datetime.now(dt.UTC)
        self.ports.look(now)
        parts.inventory.links.note_unplugged(now)
        assert self.jobs.look(now), "the look for jobs failed"

    def counted(self, name: str) -> dict[str, float]:
        """A metric of the service's own, by its labels."""
        lines = self.client.get("/metrics").text.splitlines()
        rows = (line.rpartition(" ") for line in lines if line.startswith((name + "{", name + " ")))
        return {series.removeprefix(name): float(value) for series, _, value in rows}

    def troubles(self) -> dict[str, float]:
        """What counts as a failure of the service itself; all of it zero or absent is well."""
        counted = {
            **self.counted("fabric_service_work_failures_total"),
            **self.counted("fabric_service_detector_errors_total"),
            **self.counted("fabric_service_rule_failures_total"),
            **self.counted("fabric_service_inventory_errors_total"),
            **{
                outcome: count
                for metric in ("evaluations", "rule_groups")
                for outcome, count in self.counted(f"fabric_service_{metric}_total").items()
                if "done" not in outcome
            },
        }
        return {name: count for name, count in counted.items() if count}


@contextlib.contextmanager
def round_by_round(
    data: Path, *, rules: bool = False, clock: Callable[[], float] = time.time
) -> Iterator[RoundByRound]:
    """A service of which only the commit runs by itself."""
    loops: list[asyncio.AbstractEventLoop] = []
    began = threading.Event()
    owners: dict[str, object] = {}

    async def hold() -> None:
        loops.append(asyncio.get_running_loop())
        began.set()
        await asyncio.Event().wait()

    def rest(parts: Context) -> None:
        works = parts.supervisor.works
        assert isinstance(works, dict)
        runs = {name: getattr(work, "func", work) for name, work in works.items()}
        owners.update({name: getattr(run, "__self__", None) for name, run in runs.items()})
        owners["feed"] = parts.ingest.feed
        commit = works["commit"]
        works.clear()
        works |= {"commit": commit, "hand": hold}

    settings = ServiceSettings(data=str(data), rules_pack=rules, own_numbers=False)
    starting = functools.partial(in_process, data, clock=clock, settings=settings, wired=rest)
    with starting() as service:
        assert began.wait(READY_SECONDS)
        yield RoundByRound(service, owners, loops[0])
