"""The evidence for and against the fleet's hosts: incidents, findings, silence, holds.

Reads little each time: news of incidents by their numbers, hosts only when their number changed,
only the silent hosts. For one thread at a time.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from alerts.finding import Finding
from alerts.health.blame import charges_of, signs_of
from alerts.health.judge import RISK_STEP
from alerts.health.lemon import WINDOW_NS, lemon_score, usual_count
from alerts.health.model import Charge, Hold, Target, TargetKind
from alerts.judge.incident import Incident
from api.base.limits import HEALTH_HOSTS_MAX, HEALTH_SIGNS_MAX, INCIDENT_CHANGES_PAGE_MAX, PAGE_MAX
from api.data.inventory.health import unix_ns
from api.data.inventory.incidents import IncidentQuery, moment_of
from api.data.inventory.repository import Inventory
from api.fleet.health.holds import Holds
from api.oncall.evaluate.book import IncidentBook
from api.oncall.evaluate.rows import REWRITE_SECONDS, Wanted
from collector.contract.errors import StoreError
from collector.contract.units import NS

SILENT_SECONDS = 180
"""A host of which nothing was heard for so long is silent. Agents report every five seconds and
exporters are scraped every minute; the inventory notes it every 30 s (`TOUCH_SECONDS`)."""
EVALUATED_SECONDS = 60
"""Verdicts that are older are of the past: twelve evaluations were left out."""
MOST = 0.5
"""When more of the fleet is silent at once, the way to this service is the first suspect."""
SIGNS_SECONDS = 10
SIGN_KEPT_SECONDS = REWRITE_SECONDS + 30
"""A finding that was not written for longer no longer stands: standing ones are written again after
REWRITE_SECONDS."""
REINDEX_SECONDS = 600
FADED = RISK_STEP / 10
"""A risk below it is none: ten of them together make no step."""
RELIST_SECONDS = 600
"""Hosts are listed again this often, also when their number has not changed."""

log = logging.getLogger(__name__)


class Known(msgspec.Struct, frozen=True):
    """What is kept of an incident."""

    charges: Sequence[Charge]
    first_said_ns: int
    ended_ns: int | None
    open: Incident | None
    """All of it while it is open: findings are compared with the things that it accuses."""


class Evidence:
    """Everything that a judge of health needs, as of the last `refresh`."""

    def __init__(
        self, inventory: Inventory, book: IncidentBook, holds: Sequence[Holds], started_ns: int
    ) -> None:
        self._inventory = inventory
        self._book = book
        self._sources = holds
        self._started_ns = started_ns
        self._known: dict[str, Known] = {}
        self._last_number: int | None = None
        """The number of the last news of incidents that were taken in; None: nothing was read."""
        self._findings: list[Finding] = []
        self._signs_ns = 0
        self._listed_ns = 0
        self._indexed_ns = 0
        self._is_store_away = False
        self.hosts: dict[str, int] = {}
        """The fleet in order of names, and when each host was first seen."""
        self.silent: dict[str, int] = {}
        """Silent hosts, and when each last sent something."""
        self.holds: dict[Target, Hold] = {}
        self.charges: Mapping[Target, Sequence[Charge]] = {}
        self.lemons: Mapping[str, float] = {}
        """Scores of hosts that have one above 0."""
        self.stale: tuple[str, ...] = ()

    def refresh(self, now_ns: int) -> bool:
        """Whether there was anything new. Raises InventoryError: the old evidence stands then."""
        now = moment_of(now_ns)
        is_new = self._follow_incidents(now_ns)
        is_new |= self._list_hosts(now_ns)
        is_new |= self._read_signs(now_ns)
        if is_new or not 0 <= now_ns - self._indexed_ns < REINDEX_SECONDS * NS:
            self._forget_old(now_ns)
            self.charges = self._index(now_ns)
            # Unchanged evidence stays the same object: lists of it are reused.
            lemons = self._lemons(now_ns)
            self.lemons = self.lemons if lemons == self.lemons else lemons
            self._indexed_ns = now_ns
            is_new = True
        held = strictest(hold for source in self._sources for hold in source.standing(now))
        silent = self._find_silent(now_ns)
        stale = tuple(self._doubts(now, silent))
        is_new |= (held, silent, stale) != (self.holds, self.silent, self.stale)
        self.holds, self.silent, self.stale = held, silent, stale
        return is_new

    # --- incidents -----------------------------------------------------------------------------

    def _follow_incidents(self, now_ns: int) -> bool:
        if self._last_number is None:
            self._read_incidents(now_ns)
            return True
        is_new = False
        while news := self._inventory.incidents.changes(self._last_number):
            if news[0].number > self._last_number + 1:
                # News in between are no longer kept: start over.
                self._read_incidents(now_ns)
                return True
            for each in news:
                self._put(each.change.incident)
            self._last_number = news[-1].number
            is_new = True
            if len(news) < INCIDENT_CHANGES_PAGE_MAX:
                break
        return is_new

    def _read_incidents(self, now_ns: int) -> None:
        """Read everything of the last weeks. The number first: what happens meanwhile is news."""
        span = self._inventory.incidents.changes_span()
        wanted = IncidentQuery(since=moment_of(now_ns - WINDOW_NS))
        self._known.clear()
        after: str | None = None
        while page := self._inventory.incidents.page(wanted, after, PAGE_MAX):
            for incident in page:
                self._put(incident)
            after = page[-1].id
        self._last_number = span[1] if span is not None else 0

    def _put(self, incident: Incident) -> None:
        self._known[incident.id] = Known(
            charges=charges_of(incident),
            first_said_ns=incident.first_said_ns,
            ended_ns=None if incident.is_open else incident.last_seen_ns,
            open=incident if incident.is_open else None,
        )

    def _forget_old(self, now_ns: int) -> None:
        self._known = {
            name: known
            for name, known in self._known.items()
            if known.ended_ns is None or known.ended_ns >= now_ns - WINDOW_NS
        }

    def _index(self, now_ns: int) -> dict[Target, list[Charge]]:
        """Charges and signs by the thing that they accuse, without faded ones."""
        standing = [known.open for known in self._known.values() if known.open is not None]
        every = (charge for known in self._known.values() for charge in known.charges)
        found: dict[Target, list[Charge]] = {}
        for charge in (*every, *signs_of(self._findings, standing)):
            if charge.risk_at(now_ns) >= FADED:
                found.setdefault(charge.target, []).append(charge)
        return found

    def _lemons(self, now_ns: int) -> dict[str, float]:
        """The lemon score of every host that was accused in the window."""
        counts: dict[str, float] = {}
        for known in self._known.values():
            if known.first_said_ns < now_ns - WINDOW_NS:
                continue
            for charge in known.charges:
                host = charge.target.host
                if charge.target.kind is TargetKind.HOST and host in self.hosts:
                    counts[host] = counts.get(host, 0.0) + charge.confidence * charge.weight
        usual = usual_count(counts.values(), len(self.hosts))
        scores = {
            host: lemon_score(count, usual, (now_ns - self.hosts[host]) / WINDOW_NS)
            for host, count in counts.items()
        }
        return {host: score for host, score in scores.items() if score > 0}

    # --- findings ------------------------------------------------------------------------------

    def _read_signs(self, now_ns: int) -> bool:
        if 0 <= now_ns - self._signs_ns < SIGNS_SECONDS * NS:
            return False
        wanted = Wanted(from_ns=now_ns - SIGN_KEPT_SECONDS * NS, to_ns=now_ns + NS)
        try:
            found = self._book.findings(wanted, limit=HEALTH_SIGNS_MAX)
        except StoreError as error:
            if not self._is_store_away:
                log.warning("findings cannot be read for health: %s", error)
            self._is_store_away = True
            found = []
        else:
            self._is_store_away = False
            self._signs_ns = now_ns
        before = self._findings
        latest = {each.id: each.finding for each in reversed(found)}
        self._findings = list(latest.values())
        return before != self._findings

    # --- hosts ---------------------------------------------------------------------------------

    def _list_hosts(self, now_ns: int) -> bool:
        now = moment_of(now_ns)
        is_fresh = 0 <= now_ns - self._listed_ns < RELIST_SECONDS * NS
        if is_fresh and self._inventory.health.count_hosts(now) == len(self.hosts):
            return False
        listed = {
            each.host: unix_ns(each.first_seen) for each in self._inventory.health.known_hosts(now)
        }
        self._listed_ns = now_ns
        is_new = listed != self.hosts
        self.hosts = listed if is_new else self.hosts
        return is_new

    def _find_silent(self, now_ns: int) -> dict[str, int]:
        """Silent hosts. None is silent before this process has listened for as long."""
        before_ns = now_ns - SILENT_SECONDS * NS
        if self._started_ns > before_ns:
            return {}
        found = self._inventory.health.silent_hosts(moment_of(before_ns), moment_of(now_ns))
        return {host: unix_ns(seen) for host, seen in found.items() if host in self.hosts}

    # --- doubts --------------------------------------------------------------------------------

    def _doubts(self, now: dt.datetime, silent: Mapping[str, int]) -> Iterable[str]:
        """What cannot be trusted, in sentences that change only when the cause does."""
        evaluated = self._book.evaluated_at()
        if evaluated is None:
            yield "verdicts: nothing has been evaluated yet"
        elif now - evaluated > dt.timedelta(seconds=EVALUATED_SECONDS):
            yield f"verdicts: nothing was evaluated since {evaluated:%Y-%m-%dT%H:%M:%SZ}"
        if self._is_store_away:
            yield "findings: the store cannot be read"
        if len(silent) > MOST * len(self.hosts):
            yield "silence: most hosts are silent; look at the way to this service first"
        if len(self.hosts) >= HEALTH_HOSTS_MAX:
            yield f"hosts: only the first HEALTH_HOSTS_MAX = {HEALTH_HOSTS_MAX} are judged"


def strictest(holds: Iterable[Hold]) -> dict[Target, Hold]:
    """Of several holds of one thing the strictest: out before draining, then the oldest."""
    found: dict[Target, Hold] = {}
    for hold in sorted(holds, key=lambda each: (each.state == "draining", each.since_ns)):
        found.setdefault(hold.target, hold)
    return found
