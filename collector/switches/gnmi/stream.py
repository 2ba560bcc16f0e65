"""The thread that listens to one stream of one switch, and reconnects after every failure.

Messages go to `SwitchLeaves`; the stream's state is here. It ends at `stop`, and by itself when
no read has renewed its lease for a while: then the agent has other settings by now.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import NamedTuple

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.switches.gnmi.leaves import Feed, SwitchLeaves
from collector.switches.gnmi.model import (
    Connection,
    GnmiError,
    Message,
    Notification,
    Request,
    Subscription,
    Synced,
)

RETRY_SECONDS_MIN = 1.0
RETRY_SECONDS_MAX = 60.0
"""Pauses between attempts double from the one to the other: a switch that restarts is back within
minutes, and one that refuses us is not asked to log it every second."""
STEADY_SECONDS = 30
"""A stream that held for so long was no failure: the next pause is a short one again."""
PROBE_SECONDS = 5.0
"""How long a single subscription may take to be refused when all together were."""
PLAN_SECONDS = 3600
"""How long a refusal is believed: a switch may have been upgraded since."""
SYNC_SECONDS = 60
"""After that a switch that has not sent its sync message has a flaw."""
FIRST_MESSAGE_SECONDS = 30
"""How long a switch may take from the connection to its first message."""
SILENCE_INTERVALS = 3
SILENCE_SECONDS = 30
"""A stream of samples that is silent for so many intervals and seconds is taken for dead."""
LEASE_SECONDS = 15
"""No read for that long, beyond two intervals of reads, means that the source was dropped: an agent
that reads its settings again drops its old sources, and they may live on for a while."""
LOG_SECONDS = 300
"""A switch that fails again and again for the same reason is logged so often; readings always show
the present reason."""
UPDATES_PER_SECOND_MAX = 50_000
"""Values taken from one stream: half a core. A switch of 64 ports that sends 100 leaves of each
every second sends 6,400. The rest waits in the switch, which is what flow control is for."""

log = logging.getLogger(__name__)


class Clock(NamedTuple):
    """The host's clocks."""

    now_ns: Callable[[], int]
    steady_ns: Callable[[], int]


class Stream:
    """One stream. Methods without a leading underscore are for any thread."""

    def __init__(
        self,
        *,
        name: str,
        connect: Callable[[], Connection],
        leaves: SwitchLeaves,
        feed: Feed,
        wanted: Request,
        clock: Clock,
    ) -> None:
        self.name = name
        self.feed = feed
        self.error: GnmiError | None = GnmiError(UnreadReason.TIMEOUT, "not connected yet")
        """Why it is not listening; None while it is."""
        self.settled = threading.Event()
        """Set once the switch has sent everything, or the first attempt has failed."""
        self.refused: dict[str, str] = {}
        """Subscriptions that the switch refuses, and its messages."""
        self.connects = 0
        self._connect = connect
        self._leaves = leaves
        self._wanted = wanted
        self._clock = clock
        self._request = wanted
        self._plan_ns = 0
        self._connection: Connection | None = None
        self._connected_ns = 0
        self._heard_ns = 0
        self._silent_ns = 0
        """Set when the connection is ended because nothing came for that long."""
        self._lease_ns = clock.steady_ns() + LEASE_SECONDS * NS
        self._logged_ns = -LOG_SECONDS * NS
        self._window_ns = 0
        self._window_updates = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"gnmi {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended; a stream is started once."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        connection = self._connection
        if connection is not None:
            connection.cancel()

    def watch(self, interval_seconds: float) -> list[str]:
        """Renew the lease, close a connection that has fallen silent; returns the present flaws."""
        now_ns = self._clock.steady_ns()
        self._lease_ns = now_ns + int((LEASE_SECONDS + 2 * interval_seconds) * NS)
        connection, is_live = self._connection, self.feed.is_live
        if connection is None:
            return []
        bound_ns = self._silence_ns if is_live else FIRST_MESSAGE_SECONDS * NS
        if bound_ns and now_ns - self._heard_ns > bound_ns:
            self._silent_ns = bound_ns
            connection.cancel()
        late = now_ns - self._connected_ns > SYNC_SECONDS * NS
        if not (is_live and late and not self.feed.is_synced):
            return []
        self.feed.has_answered = True  # as much as such a switch ever says
        return ["no_sync"]

    @property
    def _silence_ns(self) -> int:
        """How long it may be silent; 0 for ever, for one that only sends changes."""
        sampled = [each.seconds for each in self._request.subscriptions if not each.on_change]
        if not sampled:
            return 0
        return int((SILENCE_INTERVALS * min(sampled) + SILENCE_SECONDS) * NS)

    # --- its own thread ----------------------------------------------------------------------

    def _run(self) -> None:
        pause = RETRY_SECONDS_MIN
        while not self._stop.is_set() and self._clock.steady_ns() < self._lease_ns:
            started_ns = self._clock.steady_ns()
            error = self._attempt()
            if self._stop.is_set():
                break
            self._fail(error)
            if self._clock.steady_ns() - started_ns > STEADY_SECONDS * NS:
                pause = RETRY_SECONDS_MIN
            self._stop.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads, no secret
            pause = min(2 * pause, RETRY_SECONDS_MAX)
        self.feed.is_live = False

    def _attempt(self) -> GnmiError:
        if self._plan_ns and self._clock.steady_ns() - self._plan_ns >= PLAN_SECONDS * NS:
            self._request, self._plan_ns = self._wanted, 0
        try:
            self._listen_to_what_it_can()
        except GnmiError as error:
            return self._silent_error() if self._silent_ns else error
        except HostError as error:
            return GnmiError(error.reason, error.detail)
        except Exception as error:
            # The agent ends when a thread of it dies; one switch's oddity must not do that.
            log.exception("gnmi %s: a mistake of ours; the stream reconnects", self.name)
            return GnmiError(UnreadReason.FAILED, f"{type(error).__name__}: {error}")
        finally:
            self.feed.is_live = False
            self._silent_ns = 0
        return GnmiError(UnreadReason.UNREADABLE, "the switch ended the stream")

    def _silent_error(self) -> GnmiError:
        return GnmiError(
            UnreadReason.TIMEOUT, f"connected and silent for {self._silent_ns / NS:g} s"
        )

    def _listen_to_what_it_can(self) -> None:
        """Listen; if the switch refuses what was asked, find out how much of it, and listen."""
        try:
            self._listen(self._request)
        except GnmiError as error:
            if error.reason is not UnreadReason.NOT_SUPPORTED or self._plan_ns:
                raise
            self._replan()
            if not self._request.subscriptions:
                self._request = self._wanted
                raise
            self._listen(self._request)

    def _listen(self, request: Request) -> None:
        connection = self._open()
        try:
            is_first = True
            for message in connection.subscribe(request):
                if is_first:
                    is_first = False
                    self._welcome(request)
                self._hear(message)
                if self._stop.is_set() or self._clock.steady_ns() > self._lease_ns:
                    return
        finally:
            self._connection = None
            connection.close()

    def _open(self) -> Connection:
        connection = self._connect()
        self._connected_ns = self._heard_ns = self._clock.steady_ns()
        self._connection = connection
        if self._stop.is_set():
            connection.cancel()  # `stop` may have looked before there was one
        return connection

    def _welcome(self, request: Request) -> None:
        self._leaves.begin(self.feed, request.subscriptions)
        self.feed.is_live = True
        self.connects += 1
        self.error = None
        log.info("gnmi %s: listening", self.name)

    def _hear(self, message: Message) -> None:
        self._heard_ns = self._clock.steady_ns()
        self._leaves.count(message)
        if isinstance(message, Notification):
            work = self._leaves.apply(self.feed, message, self._clock.now_ns(), self._heard_ns)
            self._throttle(work)
        elif isinstance(message, Synced):
            self._leaves.sync(self.feed)
            self.settled.set()
        else:
            self._throttle(1)

    def _throttle(self, count: int) -> None:
        """Wait if this second has brought more than its share; the switch waits with us."""
        if self._heard_ns - self._window_ns >= NS:
            self._window_ns, self._window_updates = self._heard_ns, 0
        self._window_updates += count
        if self._window_updates > UPDATES_PER_SECOND_MAX:
            self._leaves.note_throttled()
            seconds = self._window_updates / UPDATES_PER_SECOND_MAX
            left_ns = self._window_ns + int(seconds * NS) - self._clock.steady_ns()
            self._stop.wait(max(0.0, left_ns / NS))

    def _fail(self, error: GnmiError) -> None:
        before, self.error = self.error, error
        self.feed.has_answered = True
        self.settled.set()
        now_ns = self._clock.steady_ns()
        is_other = before is None or before.reason is not error.reason
        if is_other or now_ns - self._logged_ns > LOG_SECONDS * NS:
            log.warning("gnmi %s: %s", self.name, error.detail)
            self._logged_ns = now_ns

    # --- what the switch can -----------------------------------------------------------------

    def _replan(self) -> None:
        """Find out which subscriptions are refused, one by one, and ask for the others from now on.

        Most switches refuse the whole list for one path that they do not have, or for one that
        they do not send on change, and do not name it.
        """
        accepted: list[Subscription] = []
        refused: dict[str, str] = {}
        for each in self._wanted.subscriptions:
            words = self._probe(each)
            form = each
            if words is not None and each.on_change:
                form = each._replace(on_change=False)
                words = self._probe(form)
            if words is None:
                accepted.append(form)
            else:
                refused[each.path] = words
        self.refused = refused
        self._request = self._wanted._replace(subscriptions=tuple(accepted))
        self._plan_ns = self._clock.steady_ns()

    def _probe(self, subscription: Subscription) -> str | None:
        """The switch's refusal of this subscription alone; None if it accepts it."""
        connection = self._open()
        is_silent = threading.Event()

        def hang_up() -> None:
            is_silent.set()
            connection.cancel()

        timer = threading.Timer(PROBE_SECONDS, hang_up)
        timer.daemon = True
        timer.start()
        try:
            only = self._wanted._replace(subscriptions=(subscription,))
            next(iter(connection.subscribe(only)), None)
        except GnmiError as error:
            if error.reason is UnreadReason.NOT_SUPPORTED:
                return error.detail
            if not is_silent.is_set():  # silence is no refusal; anything else is no answer
                raise
        finally:
            timer.cancel()
            self._connection = None
            connection.close()
        return None
