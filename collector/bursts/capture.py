"""Raw samples on demand, copied from the rings; one piece a tick, so that sampling goes on."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

from collector.bursts.plan import NS_PER_SECOND
from collector.bursts.track import Track

PIECE_SAMPLES = 256
"""Samples of one piece: about 8 kB of text, a tenth of a millisecond's work."""
WAITING_MAX = 4
"""Requests that wait for another one to be sent; more are refused."""
SECONDS_MAX = 300.0
"""Before and after the moment of the request, each."""

Copied = tuple[int, "array[int]", "array[int]"]
"""A counter's place in the plan, its times and its values."""


class Captures:
    """The requests of one sampler, one after the other. Times are monotonic nanoseconds."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self._tracks = tracks
        self._waiting: deque[tuple[int, int, dict[str, Any]]] = deque()
        self._refused: deque[dict[str, Any]] = deque(maxlen=WAITING_MAX)
        self._current: dict[str, Any] | None = None
        self._from_ns = 0
        self._to_copy: deque[int] = deque()
        self._copied: deque[Copied] = deque()
        self._sent = 0
        self._samples = 0

    def ask(self, request: dict[str, Any], now_ns: int) -> None:
        """A request: ``id``, seconds ``before`` and ``after`` now, and ``devices`` (empty: all)."""
        if len(self._waiting) >= WAITING_MAX:
            refusal = f"{WAITING_MAX} captures wait already"
            self._refused.append({"capture": request["id"], "end": True, "refusal": refusal})
            return
        before = min(float(request["before"]), SECONDS_MAX)
        after = min(float(request["after"]), SECONDS_MAX)
        from_ns = now_ns - int(before * NS_PER_SECOND)
        self._waiting.append((from_ns, now_ns + int(after * NS_PER_SECOND), request))

    def step(self, now_ns: int) -> dict[str, Any] | None:
        if self._refused:
            return self._refused.popleft()
        if self._current is None:
            if not self._waiting or now_ns < self._waiting[0][1]:
                return None
            self._begin()
        if self._to_copy:
            # All are copied before the first is sent: the rings go on and would overwrite them.
            place = self._to_copy.popleft()
            self._copied.append((place, *self._tracks[place].ring.since(self._from_ns)))
            return None
        return self._piece() if self._copied else self._end()

    def _begin(self) -> None:
        self._from_ns, _, self._current = self._waiting.popleft()
        devices = self._current.get("devices") or []
        self._to_copy.extend(
            place
            for place, track in enumerate(self._tracks)
            if not devices or track.counter.device in devices
        )
        self._sent = self._samples = 0

    def _piece(self) -> dict[str, Any]:
        assert self._current is not None
        place, times, values = self._copied[0]
        end = self._sent + PIECE_SAMPLES
        piece = {
            "capture": self._current["id"],
            "counter": place,
            "times": times[self._sent : end].tobytes().hex(),
            "values": values[self._sent : end].tobytes().hex(),
        }
        self._samples += len(times[self._sent : end])
        self._sent = end
        if end >= len(times):
            self._copied.popleft()
            self._sent = 0
        return piece

    def _end(self) -> dict[str, Any]:
        assert self._current is not None
        message = {"capture": self._current["id"], "end": True, "samples": self._samples}
        self._current = None
        return message
