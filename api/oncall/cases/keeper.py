"""Keeps the window that a verdict was made from, and gives it out without names.

Nothing is stored while rounds go on: when an operator says something, the window is read from the
store again, as the evaluator saw it. What cannot be read any more is stated with its reason.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from alerts.cases.compare import is_said
from alerts.cases.model import VERDICTS_MAX, ReplayCase, Told, Truth
from alerts.cases.packed import pack, unpack
from alerts.cases.scrub import scrub
from alerts.judge.incident import Incident, News
from alerts.window.model import Window
from api.base.metrics import ServiceMetrics
from api.base.version import VERSION
from api.data.inventory.feedback import CaseNote, CaseState, Dropped
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.cache import BuiltTopology
from api.jobs.correlate.windows import RECORDS_MAX
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.rounds import EFFORT_RECORDS_MIN, LOOK_SECONDS
from api.oncall.past import PastWindows
from collector.contract.errors import CaseTooLarge, StoreError
from collector.contract.units import NS

DAY_NS = 86_400 * NS


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Days that the store keeps what windows are made of."""

    samples: int
    events: int
    collectives: int

    def days(self, *, has_jobs: bool) -> int:
        """How far back a window is complete; without jobs no records are needed."""
        days = min(self.samples, self.events)
        return min(days, self.collectives) if has_jobs else days


class CaseKeeper:
    """Reads, keeps and gives out cases; thread-safe, one at a time: each holds a window."""

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        topology: Callable[[dt.datetime | None], BuiltTopology],
        panel: GuardedDetectors,
        metrics: ServiceMetrics,
        retention: Retention,
    ) -> None:
        self._inventory = inventory
        self._past = PastWindows(store, inventory, topology)
        self._panel = panel
        self._metrics = metrics
        self._retention = retention
        self._lock = threading.Lock()

    # --- keeping -------------------------------------------------------------------------------

    def keep(self, incident: Incident, truth: Truth, now_ns: int) -> CaseNote:
        """Keep the window of an incident's verdict, unless it is kept already."""
        with self._lock:
            known = self._inventory.feedback.note(incident.id)
            if known is not None and known.state is CaseState.KEPT and is_about(known, truth.told):
                return known
            note, packed = self._make(incident, truth, now_ns)
            if packed is None and known is not None and known.state is CaseState.KEPT:
                # A window of the same trouble under another name is better than none.
                self._metrics.cases.labels(note.state).inc()
                return known
            dropped = self._inventory.feedback.keep(note, packed)
        self._metrics.cases.labels(note.state).inc()
        self.count_dropped(dropped)
        return note

    def count_dropped(self, dropped: Dropped) -> None:
        for rule, count in dropped.items():
            self._metrics.cases_dropped.labels(rule).inc(count)

    def _make(self, incident: Incident, truth: Truth, now_ns: int) -> tuple[CaseNote, bytes | None]:
        blank = CaseNote(
            incident=incident.id,
            at_ns=now_ns,
            state=CaseState.NOT_READ,
            words="",
            told=truth.told,
            from_ns=incident.confirmed_ns - LOOK_SECONDS * NS,
            to_ns=incident.confirmed_ns,
        )

        def without(state: CaseState, words: str) -> tuple[CaseNote, None]:
            return msgspec.structs.replace(blank, state=state, words=words), None

        days = self._retention.days(has_jobs=bool(incident.jobs))
        if now_ns - blank.from_ns > days * DAY_NS:
            return without(
                CaseState.PAST_RETENTION,
                f"the window is from {age_words(now_ns - blank.from_ns)} ago, and the store keeps "
                f"what it is made of for {days} days: say it sooner, or keep more",
            )
        try:
            found = self._find_packed(incident, truth)
        except StoreError as error:
            return without(CaseState.NOT_READ, f"the store did not answer: {error}; say it again")
        except CaseTooLarge as error:
            return without(CaseState.TOO_LARGE, str(error))
        if found is None:
            return without(
                CaseState.EMPTY,
                f"the store has no readings and no records of the {LOOK_SECONDS} seconds before "
                "the verdict",
            )
        case, packed = found
        is_repeated = repeats(case, truth.told)
        note = msgspec.structs.replace(
            blank,
            state=CaseState.KEPT,
            words="" if is_repeated else "the window does not give this verdict again",
            from_ns=case.window.from_ns,
            to_ns=case.window.to_ns,
            bytes=len(packed),
            is_repeated=is_repeated,
        )
        return note, packed

    def _find_packed(self, incident: Incident, truth: Truth) -> tuple[ReplayCase, bytes] | None:
        """A case and its bytes: with all records or, where that is too large, with a part.

        Raises CaseTooLarge where even that is.
        """
        for records_max in (RECORDS_MAX, EFFORT_RECORDS_MIN):
            case = self._find(incident, truth, records_max)
            if case is None:
                return None
            try:
                return case, pack(case)
            except CaseTooLarge:
                if records_max == EFFORT_RECORDS_MIN:
                    raise
        return None

    def _find(self, incident: Incident, truth: Truth, records_max: int) -> ReplayCase | None:
        """The first window that gives the verdict again; else the first that has anything."""
        first = None
        for to_ns in moments_of(incident):
            from_ns = to_ns - LOOK_SECONDS * NS
            window = self._past.read(from_ns, to_ns, incident.jobs, records_max=records_max)
            if is_empty(window):
                continue
            verdicts = self._panel.judge(window, self._panel.find(window)) or []
            case = ReplayCase(
                truth=truth,
                window=window,
                verdicts=tuple(map(Told.of, verdicts[:VERDICTS_MAX])),
                kept_by=VERSION,
            )
            if repeats(case, truth.told):
                return case
            first = first or case
        return first

    # --- giving out ----------------------------------------------------------------------------

    def export(self, incident: str) -> bytes | None:
        """The case without names, with what was said last; None: no window is kept.

        Raises CaseError for one that cannot be read, of another version say.
        """
        packed = self._inventory.feedback.packed(incident)
        if packed is None:
            return None
        said = self._inventory.feedback.of(incident)
        with self._lock:
            case = unpack(packed)
            if said:
                case = msgspec.structs.replace(case, truth=said[0].truth)
            return pack(scrub(case))


def is_about(note: CaseNote, told: Told) -> bool:
    return note.told.cause is told.cause and note.told.culprit == told.culprit


def repeats(case: ReplayCase, told: Told) -> bool:
    return any(is_said(each, told.cause, told.culprit) for each in case.verdicts)


def moments_of(incident: Incident) -> Iterator[int]:
    """The ends of windows that may have given the incident its verdict, the latest first.

    The last confirmation; and when its explanation was new: a job that stands still for long is
    confirmed by the stillness alone, and its last window does not show how it stopped.
    """
    yield incident.confirmed_ns
    verdict = incident.verdict
    turns = [
        turn.time_ns
        for turn in incident.history
        if turn.news in (News.OPENED, News.CHANGED, News.REOPENED)
        and turn.cause is verdict.cause
        and turn.culprit == verdict.culprit
        and turn.time_ns != incident.confirmed_ns
    ]
    yield from turns[-1:]


def is_empty(window: Window) -> bool:
    """Whether it has neither readings nor records: nothing could be judged by it."""
    things = (window.ports, window.gpus, window.hosts)
    has_readings = any(
        bool(np.isfinite(reading.values).any())
        for each in things
        for reading in each.readings.values()
    )
    return not has_readings and not any(len(job.records) for job in window.jobs)


def age_words(age_ns: int) -> str:
    days = age_ns / DAY_NS
    return f"{days:.0f} days" if days >= 2 else f"{age_ns / NS / 3_600:.0f} hours"  # noqa: PLR2004
