"""Requests of the service that a source serves, and the events by which it says how each ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from collector.contract.model import Event
from collector.contract.wire import CaptureRequest

CAPTURES_WAITING_MAX = 16
"""Requests that came and were not handled yet; a read comes every few seconds."""
CAPTURES_KNOWN_MAX = 256
"""Requests that are recognised when the service repeats them."""


class CaptureQueue:
    """Requests that wait for the next read, each once. `put` is for any thread."""

    def __init__(self) -> None:
        self._waiting: deque[CaptureRequest] = deque(maxlen=CAPTURES_WAITING_MAX)
        self._known: deque[str] = deque(maxlen=CAPTURES_KNOWN_MAX)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, request: CaptureRequest) -> None:
        """Take a request; the same again changes nothing."""
        if request.id not in self._known:
            self._known.append(request.id)
            self._waiting.append(request)

    def take(self) -> Iterator[CaptureRequest]:
        """All that wait, each of them for the last time."""
        while self._waiting:
            yield self._waiting.popleft()


def capture_event(
    capture: str, time_ns: int, result: str, detail: str = "", samples: int = 0
) -> Event:
    """How a capture ended: finished, refused or lost."""
    attributes = {"capture": capture, "result": result, "samples": str(samples)}
    if detail:
        attributes["detail"] = detail
    outcome = f"{samples} samples" if result == "finished" else detail
    return Event(
        kind="capture",
        time_ns=time_ns,
        labels={},
        message=f"capture {capture} {result}: {outcome}",
        attributes=attributes,
    )
