"""Requests for raw samples on their way to agents, and the agents' reports of how they ended.

Agents call the service, never the other way round: the receipt of an agent's next batch carries
the request, and so does each later one until the agent reports its end. Requests are kept in the
inventory, so that an agent can talk to any service process; each process holds the pending ones
and polls the inventory for changes once a second.
"""

from __future__ import annotations

import datetime as dt
import secrets
import threading
from collections.abc import Callable, Iterable

from api.base.errors import Problem
from api.base.limits import CAPTURES_PENDING_MAX
from api.data.exchange import Exchange
from api.data.inventory.captures import Capture, CaptureEnd
from api.data.inventory.orders import Mark
from api.data.inventory.records import CaptureState
from api.data.inventory.repository import Inventory
from collector.contract.model import Event
from collector.contract.wire import CAPTURES_MAX, CaptureRequest

CAPTURES_SECONDS = 1.0
"""How often a service process polls the inventory for requests."""
EXPIRE_SECONDS = 900.0
"""A request expires after this long: five minutes after its moment, five to send it, and an agent
that was away for a while."""
KIND = "capture"
"""The kind of the events by which agents report how a capture ended."""
DETAIL_CHARS_MAX = 200
SAMPLES_MAX = 1 << 40


class Captures:
    """The requests that this process knows to be pending. For any thread."""

    def __init__(self, inventory: Inventory, clock: Callable[[], float]) -> None:
        self._inventory = inventory
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, list[CaptureRequest]] = {}
        self._asked: list[Capture] = []
        """Here, since the inventory was last asked: that answer may be from before them."""
        self._handed: set[tuple[str, str]] = set()
        self._told: set[tuple[str, str]] = set()
        self._ended: list[CaptureEnd] = []
        self.configuration: Mark | None = None
        """The latest configuration for agents when this last looked (`api.data.rollouts`): the
        same statement reads it."""
        self.look = Exchange("captures", self._exchange).look
        """Write news to the inventory, and read requests that other processes accepted."""

    # --- asking --------------------------------------------------------------------------------

    def ask(
        self,
        agent: str,
        before: float,
        after: float,
        devices: list[str],
        *,
        by: str = "",
        why: str = "",
    ) -> Capture:
        """Keep a request; a Problem if there are too many."""
        now = self._now()
        capture = Capture(
            agent=agent,
            # In order of time, so that lists are too.
            id=f"{int(now.timestamp() * 1000):012x}-{secrets.token_hex(4)}",
            state=CaptureState.WAITING,
            seconds_before=before,
            seconds_after=after,
            devices=devices,
            detail="",
            samples=None,
            requested_at=now,
            handed_at=None,
            ended_at=None,
            by=by,
            why=why,
        )
        if bound := self._inventory.captures.request(capture):
            detail = f"{bound} captures wait already; see GET /v1/agents/{agent}/captures"
            raise Problem(429, "too many captures", detail, rule=bound)
        with self._lock:
            self._asked.append(capture)
            pending = self._pending.setdefault(agent, [])
            if capture.id not in {each.id for each in pending}:  # else it was read meanwhile
                pending.append(request_of(capture))
        return capture

    # --- receipts and batches ------------------------------------------------------------------

    def of(self, agent: str) -> list[CaptureRequest]:
        if agent not in self._pending:  # as nearly always
            return []
        with self._lock:
            requests = self._pending.get(agent, [])[:CAPTURES_MAX]
            self._handed.update((agent, request.id) for request in requests)
        return requests

    def note(self, agent: str, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind != KIND:
                continue
            end = read_end(agent, event)
            with self._lock:
                if end is None or len(self._ended) >= CAPTURES_PENDING_MAX:
                    continue
                self._ended.append(end)
                requests = self._pending.get(agent, [])
                self._pending[agent] = [each for each in requests if each.id != end.id]

    # --- the inventory -------------------------------------------------------------------------

    def _exchange(self) -> None:
        now = self._now()
        with self._lock:
            handed, ended = self._handed - self._told, list(self._ended)
            self._asked = []
        if handed or ended:
            self._inventory.captures.note(handed, ended, now)
        orders = self._inventory.orders.pending()
        found, self.configuration = orders.captures, orders.configuration
        expired = now - dt.timedelta(seconds=EXPIRE_SECONDS)
        if any(capture.requested_at < expired for capture in found):
            self._inventory.captures.expire(expired, now)
        by_agent: dict[str, list[CaptureRequest]] = {}
        with self._lock:
            read = {capture.id for capture in found}
            found = [*found, *(each for each in self._asked if each.id not in read)]
            self._ended = self._ended[len(ended) :]
            just_ended = {(end.agent, end.id) for end in self._ended}
            for capture in found:
                key = capture.agent, capture.id
                if capture.requested_at >= expired and key not in just_ended:
                    by_agent.setdefault(capture.agent, []).append(request_of(capture))
            self._told |= handed
            alive = {(capture.agent, capture.id) for capture in found}
            self._handed &= alive
            self._told &= alive
            self._pending = by_agent

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC)


def request_of(capture: Capture) -> CaptureRequest:
    return CaptureRequest(
        id=capture.id,
        seconds_before=capture.seconds_before,
        seconds_after=capture.seconds_after,
        devices=capture.devices,
    )


def read_end(agent: str, event: Event) -> CaptureEnd | None:
    """How a capture ended, as an agent's event reports it; None if the event is malformed."""
    report = event.attributes
    number, samples = report.get("capture", ""), report.get("samples", "0")
    ends = (CaptureState.FINISHED, CaptureState.REFUSED, CaptureState.LOST)
    result = next((end for end in ends if end.value == report.get("result")), None)
    is_number = samples.isascii() and samples.isdigit() and len(samples) <= len(str(SAMPLES_MAX))
    if not number.isprintable() or result is None or not is_number:
        return None
    detail = "".join(each for each in report.get("detail", "") if each.isprintable())
    return CaptureEnd(
        agent=agent, id=number, state=result, samples=int(samples), detail=detail[:DETAIL_CHARS_MAX]
    )
