"""Samples that several questions of one moment need are read once.

A view asks seven questions about a job at the same time, and each names the job's hosts and ports;
one question may need the same samples twice. Who comes first reads them, and the others take them.
No answer is older than it would be alone: a question takes only what somebody began to read after
that question had arrived, so what was acknowledged before it is there.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from api.base.limits import QUERY_WAIT_SECONDS
from api.promql.arrange import Stored

READS_BYTES_MAX: Final = 32 << 20
"""Of all that is held; the oldest go. A job's samples of half an hour are 9 MB."""
READ_BYTES_MAX: Final = READS_BYTES_MAX // 4
"""Larger ones are given to those who wait for them, and not held."""
HELD_SECONDS: Final = QUERY_WAIT_SECONDS
"""As long may questions that arrived before a read began still wait for their turn."""
WAIT_SECONDS: Final = 0.2
"""As often a question that waits for another one's read looks whether it was stopped itself."""


class Read:
    """Samples that somebody reads, or has read."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.is_over = threading.Event()
        self.stored: Stored | None = None
        """None: it is not over, or it failed."""
        self.is_held = False
        """Whether its bytes are counted."""

    @property
    def size(self) -> int:
        """In bytes."""
        columns = self.stored
        if columns is None:
            return 0
        return columns.series.nbytes + columns.times_ms.nbytes + columns.values.nbytes


class Reads:
    """One an engine; for any thread. Moments are those of ``time.monotonic``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Read] = OrderedDict()
        self._bytes = 0
        self.shared = 0
        """Reads that were spared."""

    def take(
        self,
        key: Hashable,
        arrived_s: float,
        read: Callable[[], Stored],
        check: Callable[[], None],
    ) -> Stored:
        """The samples of a key. ``check`` raises if the question that waits has been stopped."""
        known, is_own = self._enter(key, arrived_s)
        if is_own:
            return self._fill(key, known, read)
        while not known.is_over.wait(WAIT_SECONDS):
            check()
        if known.stored is None:
            # The other question was stopped, or has failed: that is no reason for this one to.
            return read()
        self.shared += 1
        return known.stored

    def _enter(self, key: Hashable, arrived_s: float) -> tuple[Read, bool]:
        """The read to wait for, and whether it is the caller's own."""
        now_s = time.monotonic()
        with self._lock:
            self._forget(now_s - HELD_SECONDS)
            known = self._known.get(key)
            if known is not None and known.began_s >= arrived_s:
                return known, False
            own = Read(now_s)
            self._drop(key)
            self._known[key] = own
        return own, True

    def _fill(self, key: Hashable, own: Read, read: Callable[[], Stored]) -> Stored:
        try:
            own.stored = read()
        finally:
            with self._lock:
                if self._known.get(key) is own:
                    self._keep(key, own)
            own.is_over.set()
        return own.stored

    def _keep(self, key: Hashable, own: Read) -> None:
        """Hold it, if it has not failed and is not too large."""
        if own.stored is None or own.size > READ_BYTES_MAX:
            del self._known[key]
            return
        own.is_held = True
        self._bytes += own.size
        while self._bytes > READS_BYTES_MAX:
            self._drop(next(one for one, other in self._known.items() if other.is_held))

    def _forget(self, before_s: float) -> None:
        """Those that were begun before a moment and are over."""
        for key, other in list(self._known.items()):
            if other.began_s >= before_s:
                break
            if other.is_held:
                self._drop(key)

    def _drop(self, key: Hashable) -> None:
        gone = self._known.pop(key, None)
        if gone is not None and gone.is_held:
            self._bytes -= gone.size


def key_of(text: str, parameters: Mapping[str, Any]) -> Hashable:
    """The same for the same statement about the same things."""
    values = (
        (name, tuple(one) if isinstance(one, list) else one) for name, one in parameters.items()
    )
    return text, frozenset(values)
