"""A client of the service's live streams, reading in a thread of its own."""

import json
import threading
from typing import Any

import httpx

WAIT_SECONDS = 20.0


class Listener:
    """Reads what comes, line by line, until it is closed or the stream ends."""

    def __init__(
        self, url: str, headers: dict[str, str], *, path: str = "/v1/live", **parameters: str
    ) -> None:
        self.lines: list[str] = []
        self.ended = threading.Event()
        self._client = httpx.Client(timeout=httpx.Timeout(5, read=WAIT_SECONDS))
        self._asked = {"url": f"{url}{path}", "headers": headers, "params": parameters}
        self._stop = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._client.stream("GET", **self._asked) as answer:  # type: ignore[arg-type]
                for line in answer.iter_lines():
                    self.lines.append(line)
                    if self._stop:
                        return
        except httpx.TransportError:
            self.lines.append("broken")
        finally:
            self.ended.set()

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events so far: name and data."""
        found = []
        name = ""
        for line in list(self.lines):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
        return found

    @property
    def names(self) -> list[str]:
        """The events' names so far."""
        return [name for name, _ in self.events]

    @property
    def last_id(self) -> str:
        """What a browser would send to resume."""
        return [line.removeprefix("id: ") for line in self.lines if line.startswith("id: ")][-1]

    def close(self) -> None:
        """Go away, as soon as something comes."""
        self._stop = True
        self._client.close()
        self._thread.join(WAIT_SECONDS)
