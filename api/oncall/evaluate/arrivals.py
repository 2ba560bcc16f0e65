"""How complete a window is: which hosts and records have not come yet, and how far to wait.

A round that judges before the evidence has come may accuse the neighbour whose data came first.
So each round measures how late its hosts' data are at the window's end, in three states:

- on time: not later than the host's own rhythm allows,
- outstanding: late, and likely to come: the service or the agent is behind. Where many hosts are,
  the next windows end earlier (`Arrived.behind_ns`), where all is complete. Where few are, the
  verdicts on jobs that use these hosts wait,
- silent: late by more than `SILENT_SECONDS`. Waiting longer does not help; a job of which too many
  hosts are silent is not judged, and any other is judged without them.

A job's records tell the same: the share of ranks that took part in an operation and have a record
of it falls towards the window's end while records are outstanding.

A job that stands still has no outstanding records, and a host that died is what holds it up: such
verdicts (`Family.STUCK`) never wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from alerts.window.model import JobWindow, Things, Window
from collector.contract.cause_facts import Family
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Verdict

ON_TIME_SECONDS = 15
"""Data that are not older are on time: agents read every five seconds, ship within five, and a
commit takes one."""
SILENT_SECONDS = 60
"""A host that was last heard of before that is silent, not late."""
REMEMBERED_SECONDS = 1_800
"""A host that was heard of since then is silent, and one that was not is gone: a window alone would
forget it after three minutes, and judge its jobs as if they had all of their evidence."""
RHYTHM_KEPT = 30
"""Of each host the last so many pauses between its data are kept; its rhythm is the shortest, since
a service that is behind makes pauses longer and never shorter."""
MANY_SHARE = 0.25
"""Of the hosts, or of a job's: if so many are outstanding, the service is behind, not an agent."""
SILENT_SHARE_MAX = 0.25
"""A job with more silent hosts than that is not judged: its evidence may lie with them."""
RECORDS_RECENT_SECONDS = 45
"""Operations that ended since then, and longer ago than ON_TIME_SECONDS, should have all records
that earlier ones have; those of later ones are on their way."""
RECORDS_SHARE_MIN = 0.1
"""Records of the last operations that may be missing beyond those that were missing before."""
WAIT_SECONDS_MAX = 60
"""So long a job's verdicts wait for records at most; then it is not judged until they come, or
until so many have been missing for the whole window that it is judged without them."""
BEHIND_SECONDS_MAX = 90
"""How much earlier than now a window may end: half of what a round looks at."""
CATCH_UP_SECONDS = 5
"""How much later the next window ends once this one was complete."""


class NotJudged(msgspec.Struct, frozen=True):
    """Why a job's verdicts wait: what is missing, and how much of it."""

    job: str
    missing: str
    """`hosts` or `records`."""
    share: float
    words: str


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """The completeness of one window."""

    behind_ns: int
    """How much earlier than now the next window should end."""
    is_complete: bool
    """Whether the window may be judged at all; if not, the next one ends earlier."""
    outstanding: tuple[str, ...]
    silent: tuple[str, ...]
    waiting: Mapping[str, NotJudged]
    """By job."""

    def may_say(self, verdict: Verdict) -> bool:
        """Whether the evidence for this verdict and against others has come."""
        if verdict.cause.facts.family is Family.STUCK:
            return True
        jobs = {*verdict.jobs, verdict.culprit.job} - {""}
        return not jobs & self.waiting.keys()


class Arrivals:
    """Remembers the rhythm of each host. For one thread at a time."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._pauses: dict[str, deque[int]] = {}
        self._waits_since: dict[str, int] = {}
        """By job: the end of the first window in which its records were outstanding."""

    def look(self, window: Window, behind_ns: int) -> Arrived:
        """``behind_ns`` is how much earlier than now this window ends."""
        seen = last_seen(window)
        self._learn(seen, window.to_ns)
        late = {host: window.to_ns - when for host, when in self._seen.items()}
        silent = {host for host, lag in late.items() if lag > SILENT_SECONDS * NS}
        outstanding = {
            host
            for host, lag in late.items()
            if host not in silent and lag > self._patience_ns(host)
        }
        heard = len(late) - len(silent)
        is_behind = bool(outstanding) and len(outstanding) >= MANY_SHARE * heard
        if is_behind:
            more = max(late[host] - self._rhythm_ns(host) for host in outstanding)
            wanted = behind_ns + more
        else:
            wanted = behind_ns - CATCH_UP_SECONDS * NS
        waiting = [
            self._job(job, window, outstanding, silent, is_counted=not is_behind)
            for job in window.jobs
        ]
        return Arrived(
            behind_ns=min(max(0, wanted), BEHIND_SECONDS_MAX * NS),
            is_complete=not is_behind,
            outstanding=tuple(sorted(outstanding)),
            silent=tuple(sorted(silent)),
            waiting={one.job: one for one in waiting if one is not None},
        )

    def _learn(self, seen: Mapping[str, int], to_ns: int) -> None:
        for host, when in seen.items():
            before = self._seen.get(host)
            if before is not None and when > before:
                kept = self._pauses.setdefault(host, deque(maxlen=RHYTHM_KEPT))
                kept.append(when - before)
        kept_from_ns = to_ns - REMEMBERED_SECONDS * NS
        gone = {host for host, when in self._seen.items() if when < kept_from_ns}
        self._seen = {**self._seen, **seen}
        for host in gone - seen.keys():
            del self._seen[host]
            self._pauses.pop(host, None)

    def _rhythm_ns(self, host: str) -> int:
        return min(self._pauses.get(host, (0,)))

    def _patience_ns(self, host: str) -> int:
        """How old a host's data may be: those that are scraped once a minute are older.

        Of a host that was seen once, the rhythm is not known, and it is not waited for.
        """
        if host not in self._pauses:
            return SILENT_SECONDS * NS
        return max(ON_TIME_SECONDS * NS, 2 * self._rhythm_ns(host) + ON_TIME_SECONDS * NS // 3)

    def _job(
        self,
        job: JobWindow,
        window: Window,
        outstanding: set[str],
        silent: set[str],
        *,
        is_counted: bool,
    ) -> NotJudged | None:
        hosts = {rank.host for rank in job.ranks.values()} - {""}
        gone, awaited = hosts & silent, hosts & outstanding
        missing = 0.0 if job.is_still else records_missing(job, window.to_ns)
        if missing > RECORDS_SHARE_MIN and is_counted:
            since_ns = self._waits_since.setdefault(job.job, window.to_ns)
        else:
            since_ns = window.to_ns
            self._waits_since.pop(job.job, None)
        if hosts and len(gone) > SILENT_SHARE_MAX * len(hosts):
            words = f"{len(gone)} of {len(hosts)} hosts are silent: {some(gone)}"
            return NotJudged(job.job, "hosts", len(gone) / len(hosts), words)
        if awaited:
            words = f"data of {len(awaited)} of {len(hosts)} hosts are outstanding: {some(awaited)}"
            return NotJudged(job.job, "hosts", len(awaited) / len(hosts), words)
        if missing > RECORDS_SHARE_MIN and window.to_ns - since_ns < WAIT_SECONDS_MAX * NS:
            words = f"{missing:.0%} of the last records are outstanding"
            return NotJudged(job.job, "records", missing, words)
        return None


def some(names: Iterable[str], most: int = 5) -> str:
    """The first names, and how many more."""
    ordered = sorted(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + more


def last_seen(window: Window) -> dict[str, int]:
    """When each host was last heard of, by any reading of it; those that never were are left out.

    Switches are left out: pollers read them in their own time.
    """
    found: dict[str, int] = {}

    def take(things: Things, rows: Iterable[int]) -> None:
        for row in rows:
            when = int(things.seen_ns[row])
            if when != ABSENT and when > found.get(things.host[row], 0):
                found[things.host[row]] = when

    take(window.hosts, range(len(window.hosts)))
    take(window.gpus, range(len(window.gpus)))
    take(window.ports, np.flatnonzero(~window.ports.is_switch).tolist())
    return found


def records_missing(job: JobWindow, to_ns: int) -> float:
    """How many more of the last operations' records are missing than of those before (0 to 1).

    Ranks that are not logged are missing all the time, and make no difference.
    """
    operations = job.operations
    if not len(operations):
        return 0.0
    age_ns = to_ns - operations.last_exit_ns
    before = age_ns > RECORDS_RECENT_SECONDS * NS
    recent = ~before & (age_ns > ON_TIME_SECONDS * NS)
    if not before.any() or not recent.any():
        return 0.0
    share = operations.ranks_seen / np.maximum(operations.ranks, 1)
    return max(0.0, float(share[before].mean() - share[recent].mean()))
