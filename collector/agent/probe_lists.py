"""Fetches the list of probe targets that a receipt names, as configurations are fetched.

For the shipper's thread. Without a notice it does nothing; a list that is held already, or that
could not be had a moment ago, is not asked for.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from urllib.parse import quote

import httpx

from collector.agent.meter import Meter
from collector.contract.errors import WireError
from collector.contract.probes import LIST_BYTES_MAX, ProbeTarget, decode_targets, digest_of
from collector.contract.units import NS

LIST_PATH = "/v1/agents/{}/probe-targets"
PAUSE_SECONDS = 60.0
"""Between two requests for lists: hosts that come and go change them again and again."""
DIGEST_CHARS_MAX = 64

Fetch = Callable[[str, int], tuple[int, bytes]]
Take = Callable[[list[ProbeTarget]], None]

log = logging.getLogger(__name__)


class Result(enum.StrEnum):
    """What became of a list."""

    TAKEN = "taken"
    FAILED = "failed"
    REFUSED = "refused"


class ProbeLists:
    """One agent's list of targets; ``take`` passes a new one on."""

    def __init__(
        self, agent: str, fetch: Fetch, take: Take, meter: Meter, monotonic_ns: Callable[[], int]
    ) -> None:
        self._path = LIST_PATH.format(quote(agent, safe=""))
        self._fetch = fetch
        self._take = take
        self._meter = meter
        self._monotonic_ns = monotonic_ns
        self._held = ""
        self._next_ns: int | None = None
        for result in Result:
            meter.add("fabric_agent_probe_lists_total", 0, result=result.value)

    def offer(self, digest: str) -> None:
        """Take what a receipt names; it comes with every receipt."""
        now_ns = self._monotonic_ns()
        if digest == self._held or len(digest) > DIGEST_CHARS_MAX:
            return
        if self._next_ns is not None and now_ns < self._next_ns:
            return
        self._next_ns = now_ns + int(PAUSE_SECONDS * NS)
        result = self._get(digest)
        self._meter.add("fabric_agent_probe_lists_total", result=result.value)

    def _get(self, digest: str) -> Result:
        try:
            status, body = self._fetch(self._path, LIST_BYTES_MAX + 1)
        except httpx.HTTPError as error:
            log.info("the list of probe targets is not there now: %s", type(error).__name__)
            return Result.FAILED
        if status != httpx.codes.OK:
            log.info("the list of probe targets is not there now: HTTP %d", status)
            return Result.FAILED
        try:
            targets = decode_targets(body)
        except WireError as error:
            log.warning("the service's list of probe targets is refused: %s", error)
            self._held = digest  # it would come again as it is
            return Result.REFUSED
        # Another list than the receipt named is a newer one, which the next receipt names.
        self._held = digest_of(body)
        self._take(targets)
        return Result.TAKEN
