"""Rules about the service itself, judged in memory: they need neither store nor inventory.

Rules are evaluated over the store. When it takes no insert the service's own numbers are not in it,
and the rules about them see nothing new; without the inventory no rule is evaluated at all. So a
few rules of the pack (`WATCHED`) are judged here too, over the last minutes of this process' own
registry, with the same text, thresholds and life. Of these alerts about this process, those from
here are the ones that are sent (`SelfWatch.owns`): one alert has one judge.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from alerts.rulebook.model import Alert, AlertState, Found, Group, Rule
from api.base.limits import SELF_WATCH_KEPT_SECONDS
from api.base.metrics import ServiceMetrics
from api.oncall.rules.evaluate import Asker, Moment, RuleEvaluator, metrics_read
from api.oncall.rules.memory import MemoryEngine, MemoryStore
from api.oncall.rules.own import HOST, INSTANCE, OWN_SECONDS
from api.oncall.rules.settings import RuleSettings
from api.oncall.rules.shelf import PACK, Shelf
from api.promql.values import Dialect, Grid
from collector.contract.identity import METRIC_LABEL, Labels
from collector.contract.units import NS, NS_PER_MS

WATCHED: Final = frozenset(
    {
        "FabricStoreFailing",
        "FabricStoreDamaged",
        "FabricDiskNearlyFull",
        "FabricInventoryAway",
        "FabricRulesStopped",
        "FabricWorkBroken",
        "FabricClockJumped",
    }
)
"""Alerts of the pack that say something of this process alone, by its own registry."""

OWN_FILE = "own"
"""The file of their groups, one for each rule: what begins so was judged in memory."""

WARM_SECONDS = 420.0
"""Until it has watched for so long, a rule that does not fire is not judged: after a restart an
alert that was sent before needs this time to fire again, and must not be sent as ended."""

Notify = Callable[[Group, Sequence[Alert], int], Awaitable[None]]
Row = tuple[dict[str, str], float]


class MemoryAsker(Asker):
    """Asks an engine over series in memory."""

    def __init__(self, engine: MemoryEngine) -> None:
        # Nothing of the engine over the store: both methods are overridden.
        self._memory = engine

    def ask(self, text: str, at: Moment) -> list[Found]:
        vector = self._memory.ask(text, Grid(at.asked_ns // NS_PER_MS, 1, 1))
        rows = zip(vector.labels, vector.values[:, 0].tolist(), vector.present[:, 0], strict=True)
        return [Found(labels, number) for labels, number, is_there in rows if is_there]

    def stop(self) -> bool:
        return True


class SelfWatch:
    """Judges this process. ``clock``: unix seconds; ``place``: the labels of its own numbers."""

    def __init__(
        self,
        shelf: Shelf,
        settings: RuleSettings,
        metrics: ServiceMetrics,
        place: Mapping[str, str],
        notify: Notify,
        clock: Callable[[], float],
    ) -> None:
        self._shelf = shelf
        self._settings = settings
        self._metrics = metrics
        self._place = dict(place)
        self._notify = notify
        self._clock = clock
        self._groups: list[Group] = []
        self._rules: list[Rule] = []
        self._names: frozenset[str] = frozenset()
        self._history: deque[tuple[int, list[Row]]] = deque()
        self._standing: dict[str, dict[Labels, Alert]] = {}
        self._began_ns: int | None = None
        self.others: Callable[[Collection[str]], list[Row]] = lambda _: []
        """The numbers with these names of the service's other processes, which do not judge."""

    def owns(self, alert: Alert) -> bool:
        """Whether this alert, which another judged over the store, is judged here."""
        return alert.name in self._standing and (
            dict(alert.labels).get(INSTANCE) == self._place[INSTANCE]
        )

    async def run(self) -> None:
        while True:
            await self.once()
            await asyncio.sleep(OWN_SECONDS)

    async def once(self) -> None:
        """Look at the registry, judge, and hand the alerts on."""
        now_ns = round(self._clock() * NS)
        for group, alerts in await asyncio.to_thread(self.judge, now_ns):
            await self._notify(group, alerts, now_ns)

    def judge(self, now_ns: int) -> list[tuple[Group, list[Alert]]]:
        """The alerts of each rule that is known well enough; those lately resolved too."""
        self._take_rules()
        if not self._rules:
            return []
        self._remember(now_ns)
        store = self._as_store()
        evaluator = RuleEvaluator(
            MemoryAsker(MemoryEngine(store, Dialect.PROMETHEUS_3, round(OWN_SECONDS * 1000))),
            self._settings.external_labels,
            self._settings.public_url,
        )
        judged: list[tuple[Group, list[Alert]]] = []
        for rule in self._rules:
            group = Group(file=OWN_FILE, name=rule.name, rules=(rule,), interval_s=OWN_SECONDS)
            before = self._standing.get(rule.name, {})
            outcome = evaluator.evaluate(group, rule, before, Moment.of(group, now_ns, OWN_SECONDS))
            if not rule.is_alert:
                for sample in outcome.samples:
                    labels = {METRIC_LABEL: sample.series.metric, **dict(sample.series.labels)}
                    store.series(labels).add(now_ns // NS_PER_MS, sample.value)
                continue
            alerts = before if outcome.alerts is None else outcome.alerts
            self._standing[rule.name] = alerts
            if self._is_warm(now_ns) or any(is_firing(each) for each in alerts.values()):
                judged.append((group, list(alerts.values())))
        return judged

    def _take_rules(self) -> None:
        """The rules that are watched, and those of the pack that record what they read."""
        groups = self._shelf.groups
        if groups == self._groups:
            return
        self._groups = groups
        pack = [one for each in groups if each.file.startswith(f"{PACK}/") for one in each.rules]
        watched = [rule for rule in pack if rule.is_alert and rule.name in WATCHED]
        read = {name for rule in watched for name in metrics_read(rule.expression)}
        records = [rule for rule in pack if not rule.is_alert and rule.name in read]
        self._rules = [*records, *watched]
        read |= {name for rule in records for name in metrics_read(rule.expression)}
        self._names = frozenset(name for name in read if name) - {rule.name for rule in records}
        self._standing = {rule.name: self._standing.get(rule.name, {}) for rule in watched}

    def _remember(self, now_ns: int) -> None:
        now_ms = now_ns // NS_PER_MS
        if self._history and now_ms <= self._history[-1][0]:
            self._history.clear()  # the clock was set back: what was seen is not in order
        rows = [
            ({METRIC_LABEL: sample.name, **sample.labels, **self._place}, sample.value)
            for family in self._metrics.registry.restricted_registry(self._names).collect()
            for sample in family.samples
            if not math.isnan(sample.value)
        ]
        where = {name: self._place[name] for name in (HOST, INSTANCE)}
        rows += [({**labels, **where}, value) for labels, value in self.others(self._names)]
        self._history.append((now_ms, rows))
        while self._history[0][0] < now_ms - SELF_WATCH_KEPT_SECONDS * 1000:
            self._history.popleft()
        if self._began_ns is None or now_ns < self._began_ns:
            self._began_ns = now_ns

    def _as_store(self) -> MemoryStore:
        store = MemoryStore()
        for time_ms, rows in self._history:
            for labels, value in rows:
                store.series(labels).add(time_ms, value)
        return store

    def _is_warm(self, now_ns: int) -> bool:
        return self._began_ns is not None and now_ns - self._began_ns >= WARM_SECONDS * NS


def is_firing(alert: Alert) -> bool:
    return alert.state is AlertState.FIRING
