"""Two threads: one polls the service, one follows its events; the screen only reads `latest`.

The listener takes nothing from an event but a line of news: it makes the poller ask
at once, so that there is one way in which a picture comes to be, and what is shown is what
`GET /v1/incidents` answers. Without a stream (a proxy that holds it back, too many listeners) the
poller goes on at its interval.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from api.remote.client import Away, Odd, Refused, ServiceError, Target, backoff, clean
from api.remote.top.ask import ask, open_client
from api.remote.top.model import Incident, Picture, Wanted

HURRY_SECONDS = 0.2
"""Between two rounds at least, whatever happens: a hundred changes in a second are one occasion."""
QUIET_SECONDS_MAX = 45.0
"""The stream sends something every 15 s; after three times as much it is dead."""
STREAM_BYTES_MAX = 1 << 20
"""Of one event: an incident in short has 1 kB."""


class Phase(enum.Enum):
    """The state of the connection."""

    CONNECTING = "connecting"
    ANSWERS = "answers"
    AWAY = "away"
    REFUSED = "refused"


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """The current state: never changed, always replaced, so that it can be read without a lock."""

    phase: Phase = Phase.CONNECTING
    picture: Picture | None = None
    why: str = ""
    away_since_s: float | None = None
    """By this machine's monotonic clock, as the next one."""
    retry_at_s: float | None = None
    is_live: bool = False
    """Whether changes come by themselves."""
    news: str = ""
    news_s: float = 0.0
    """When, by the service's clock."""
    skew_s: float = 0.0
    """How much later it is at the service than here."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an event, with the fields that are shown."""

    news: str
    time_ns: int
    incident: Incident


class Watch:
    """Polls until it is stopped. ``notify`` is called, from a thread, when `latest` has changed."""

    def __init__(
        self,
        target: Target,
        *,
        interval_s: float,
        notify: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latest = Latest()
        self.url = target.url
        self._interval_s = interval_s
        self._notify = notify
        self._monotonic = monotonic
        self._wanted = Wanted()
        self._failures = 0
        self._lock = threading.Lock()
        self._occasion = threading.Event()
        self._answers = threading.Event()
        self._stopped = threading.Event()
        # Made here, so that a wrong address or token file ends the program with a message.
        self._poller, self._listener = open_client(target), open_client(target)

    def start(self) -> None:
        """Start. The threads end with the process: after `q` no answer is awaited."""
        for run in (self._poll, self._listen):
            threading.Thread(target=run, name=f"top{run.__name__}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._occasion.set()
        self._answers.set()

    def want(self, wanted: Wanted) -> None:
        """Set what to request from now on; at once, if it differs."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._occasion.set()

    def hurry(self) -> None:
        self._occasion.set()

    # --- polling ----------------------------------------------------------------------------------

    def _poll(self) -> None:
        while not self._stopped.is_set():
            begun = self._monotonic()
            self._occasion.clear()
            wait_s = self._round()
            took_s = self._monotonic() - begun
            # A service that needs long to answer gets as long to rest.
            self._stopped.wait(min(HURRY_SECONDS, wait_s))
            self._occasion.wait(max(0.0, max(wait_s, took_s) - HURRY_SECONDS))

    def _round(self) -> float:
        """Poll once; returns seconds to wait before the next time."""
        try:
            picture = ask(self._poller, self._wanted, self.latest.picture)
        except Refused as error:
            return self._failed(Phase.REFUSED, str(error))
        except (Away, Odd) as error:
            return self._failed(Phase.AWAY, str(error))
        self._failures = 0
        self._change(
            phase=Phase.ANSWERS,
            picture=picture,
            why="",
            away_since_s=None,
            retry_at_s=None,
            skew_s=self._poller.skew_s,
        )
        self._answers.set()
        return self._interval_s

    def _failed(self, phase: Phase, why: str) -> float:
        """Record that there is no answer, and since when."""
        self._answers.clear()
        self._failures += 1
        wait_s = backoff(self._failures)
        now_s = self._monotonic()
        since_s = self.latest.away_since_s
        self._change(
            phase=phase,
            why=why,
            away_since_s=now_s if since_s is None else since_s,
            retry_at_s=now_s + wait_s,
            is_live=False,
        )
        return wait_s

    def _change(self, **fields: object) -> None:
        with self._lock:
            self.latest = msgspec.structs.replace(self.latest, **fields)
        self._notify()

    # --- listening --------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Hold a stream whenever the service answers; after failures with growing pauses."""
        seen, failures = "", 0
        while not self._stopped.is_set():
            self._answers.wait()
            if self._stopped.is_set():
                return
            try:
                for name, data, number in self._events(seen):
                    seen, failures = number or seen, 0
                    self._take(name, data)
            except ServiceError:
                # The poller reports failures; without a stream its interval bounds the delay of
                # news.
                pass
            failures += 1
            self._change(is_live=False)
            self._stopped.wait(backoff(failures))

    def _events(self, seen: str) -> Iterator[tuple[str, bytes, str]]:
        headers = {"Last-Event-ID": seen} if seen else {}
        with self._listener.open(
            "/v1/live", {}, headers=headers, silence_s=QUIET_SECONDS_MAX
        ) as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise Odd("/v1/live: not a stream")
            yield from read_events(answer.iter_bytes())

    def _take(self, name: str, data: bytes) -> None:
        if not self.latest.is_live:
            self._change(is_live=True)
        if name == "ready":
            return
        try:
            change = msgspec.convert(clean(msgspec.json.decode(data)), Change)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            # An unknown kind (`missed`, or of a later service): poll.
            self._occasion.set()
            return
        summary = change.incident.summary or change.incident.cause
        self._change(news=f"{change.news}: {summary}", news_s=change.time_ns / 1e9)
        self._occasion.set()


def read_events(pieces: Iterator[bytes]) -> Iterator[tuple[str, bytes, str]]:
    r"""Name, data and number of each event (WHATWG HTML §9.2, as far as our service uses it).

    >>> list(read_events(iter([b": quiet\nid: 6\n\nevent: op", b"ened\nid: 7\ndata: {}\n\n"])))
    [('opened', b'{}', '7')]
    """
    rest = b""
    for piece in pieces:
        rest += piece
        *messages, rest = rest.split(b"\n\n")
        if len(rest) > STREAM_BYTES_MAX:
            raise Odd(f"/v1/live: an event of more than {STREAM_BYTES_MAX >> 20} MiB")
        for message in messages:
            fields = dict(line.partition(b": ")[::2] for line in message.split(b"\n"))
            if b"event" in fields:
                number = fields.get(b"id", b"")
                yield (
                    fields[b"event"].decode("ascii", "replace"),
                    fields.get(b"data", b""),
                    number.decode() if number.isdigit() else "",
                )
