"""Alerts to Alertmanagers, with Prometheus' semantics: each gets every alert, independently.

What fires is sent when it begins to fire and again every minute, with an end a few minutes ahead,
so that an Alertmanager resolves it by itself if we are gone. What is resolved is sent at once and
for a quarter of an hour. So nothing has to survive a restart, and an Alertmanager that
was unavailable gets all firing alerts with the next round.

The queue holds the latest state of each alert; Prometheus' queue would hold every repetition.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

import httpx
import msgspec
import orjson

from alerts.rulebook.life import Outgoing, to_send
from alerts.rulebook.model import ALERT_NAME, Alert, Group
from api.base.limits import RULE_GROUPS_MAX
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.oncall.notify.http import Delivery, Outcome, post
from api.oncall.notify.message import generator_url, rfc3339
from api.oncall.notify.settings import AlertmanagerTable
from api.oncall.notify.table import read_secret
from collector.contract.errors import SettingsError
from collector.contract.identity import Labels, canonical_labels
from collector.contract.units import NS

ALERTS_PATH = "/api/v2/alerts"
RESEND_SECONDS = 60.0
"""Prometheus' `--rules.alert.resend-delay`."""
QUEUE_MAX = 10_000
"""Alerts that wait for one Alertmanager, Prometheus' default. Past it the oldest go, counted."""
BATCH_MAX = 256
"""Alerts of one request, as Prometheus 3 sends them."""
PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MAX = 30.0
"""After failures; half a resend, so that no round is missed."""

log = logging.getLogger(__name__)


class Entry(msgspec.Struct, frozen=True):
    """An alert to send, and from when until when it is valid."""

    labels: Labels
    outgoing: Outgoing
    expression: str
    is_over: bool


class Sender:
    """The way to one Alertmanager. ``clock``: unix seconds. For one event loop."""

    def __init__(
        self,
        table: AlertmanagerTable,
        client: httpx.AsyncClient,
        external_url: str,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
    ) -> None:
        self.url = table.url.rstrip("/") + ALERTS_PATH
        self._table = table
        self._client = client
        self._external_url = external_url
        self._metrics = metrics
        self._clock = clock
        self._random = Random()  # noqa: S311 - jitter
        self._queue: OrderedDict[Labels, Entry] = OrderedDict()
        self._wake = asyncio.Event()
        self._failures = 0
        name = self.name = table.url.rstrip("/")
        metrics.watch(
            "fabric_service_alertmanager_queue", lambda: float(len(self._queue)), alertmanager=name
        )
        metrics.watch(
            "fabric_service_alertmanager_up", lambda: float(not self._failures), alertmanager=name
        )

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def offer(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._queue.pop(entry.labels, None)
            self._queue[entry.labels] = entry
        self._drop(max(0, len(self._queue) - QUEUE_MAX), "queue_full")
        if self._queue:
            self._wake.set()

    def _drop(self, number: int, reason: str) -> None:
        for _ in range(number):
            self._queue.popitem(last=False)
        if number:
            self._metrics.alertmanager_dropped.labels(self.name, reason).inc(number)

    async def run(self, steady: Steady) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                pause_s = PAUSE_SECONDS_MAX
                with steady.round():
                    pause_s = await self.send_batch()
                if pause_s:
                    await asyncio.sleep(pause_s)

    async def send_batch(self) -> float:
        """Send the oldest entries; returns seconds to wait before the next attempt."""
        batch = self._take()
        if not batch:
            return 0.0
        outcome = await self._post(batch)
        if outcome.delivery is Delivery.SENT:
            self._metrics.alertmanager_sent.labels(self.name).inc(len(batch))
            if self._failures:
                log.info("Alertmanager %s takes alerts again", self.name)
            self._failures = 0
            return 0.0
        self._metrics.alertmanager_errors.labels(self.name).inc()
        if not self._failures:
            log.warning("Alertmanager %s does not take alerts: %s", self.name, outcome.detail)
        self._failures += 1
        if outcome.delivery is Delivery.REFUSED:
            # By its API it has taken the valid alerts; the others it will never take.
            self._metrics.alertmanager_dropped.labels(self.name, "refused").inc(len(batch))
            return 0.0
        self._put_back(batch)
        if outcome.retry_after_s is not None:
            return min(outcome.retry_after_s, RESEND_SECONDS)
        doubled = PAUSE_SECONDS_FIRST * 2.0 ** min(self._failures, 20)
        return self._random.uniform(PAUSE_SECONDS_FIRST, min(doubled, PAUSE_SECONDS_MAX))

    def _take(self) -> list[Entry]:
        """Without expired ones: a firing alert whose end has passed would look resolved."""
        now_ns = round(self._clock() * NS)
        batch: list[Entry] = []
        stale = 0
        while self._queue and len(batch) < BATCH_MAX:
            _, entry = self._queue.popitem(last=False)
            if entry.is_over or entry.outgoing.ends_ns > now_ns:
                batch.append(entry)
            else:
                stale += 1
        if stale:
            self._metrics.alertmanager_dropped.labels(self.name, "stale").inc(stale)
        return batch

    def _put_back(self, batch: Sequence[Entry]) -> None:
        """Put a refused batch in front again, unless a newer state is queued."""
        for entry in reversed(batch):
            if entry.labels not in self._queue:
                self._queue[entry.labels] = entry
                self._queue.move_to_end(entry.labels, last=False)
        self._drop(max(0, len(self._queue) - QUEUE_MAX), "queue_full")

    async def _post(self, batch: Sequence[Entry]) -> Outcome:
        try:
            headers = self._authorisation()
        except SettingsError as error:
            return Outcome(delivery=Delivery.RETRY, detail=str(error))
        body = orjson.dumps([write_entry(entry, self._external_url) for entry in batch])
        return await post(
            self._client,
            self.url,
            body,
            headers,
            timeout_s=self._table.timeout_s,
            now_s=self._clock(),
        )

    def _authorisation(self) -> dict[str, str]:
        """The authorization header. Files are read each time: secrets are rotated."""
        where = f"Alertmanager {self.name}"
        if file := self._table.bearer_token_file:
            return {"Authorization": f"Bearer {read_secret(where, file)}"}
        if file := self._table.password_file:
            pair = f"{self._table.username}:{read_secret(where, file)}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}


def write_entry(entry: Entry, external_url: str) -> dict[str, object]:
    outgoing = entry.outgoing
    return {
        "labels": dict(entry.labels),
        "annotations": outgoing.annotations,
        "startsAt": rfc3339(outgoing.starts_ns),
        "endsAt": rfc3339(outgoing.ends_ns),
        "generatorURL": generator_url(external_url, entry.expression),
    }


def with_external(labels: Labels, external: Mapping[str, str]) -> Labels:
    """An alert's labels with those of this installation; the alert's own win.

    >>> with_external((("cluster", "a"), ("host", "n")), {"cluster": "b", "site": "x"})
    (('cluster', 'a'), ('host', 'n'), ('site', 'x'))
    """
    return canonical_labels({**external, **dict(labels)}) if external else labels


def expressions_of(group: Group) -> dict[str, str]:
    return {rule.name: rule.expression for rule in group.rules if rule.is_alert}


class Rounds:
    """Decides which alerts are sent again, for all Alertmanagers alike."""

    def __init__(self, external_labels: Mapping[str, str], interval_s: float) -> None:
        self._external = external_labels
        self._interval_s = interval_s
        self._last_sent: dict[str, dict[Labels, int]] = {}

    def due(self, group: Group, alerts: Sequence[Alert], now_ns: int) -> list[Entry]:
        before = self._last_sent.get(group.key, {})
        interval_s = group.interval_s or self._interval_s
        outgoing = to_send(alerts, before, now_ns, RESEND_SECONDS, interval_s)
        # Only for alerts that exist: labels that come and go must not pile up.
        sent = {each.labels: before[each.labels] for each in alerts if each.labels in before}
        sent.update((each.labels, now_ns) for each in outgoing)
        if len(self._last_sent) >= 2 * RULE_GROUPS_MAX:
            self._last_sent.clear()
        self._last_sent[group.key] = sent
        expressions = expressions_of(group)
        return [
            Entry(
                with_external(each.labels, self._external),
                each,
                expressions.get(dict(each.labels).get(ALERT_NAME, ""), ""),
                each.ends_ns <= now_ns,
            )
            for each in outgoing
        ]

    def forget(self) -> None:
        """Another process evaluates now; what it has sent is not known here."""
        self._last_sent.clear()
