"""Sends the spool's batches to the service, one request at a time, each until it is settled.

In normal times one batch waits. After an outage the newest go first, so that the present is known
at once, and what waits behind them follows from the newest to the oldest, many batches as one
request (`coalesce.py`); whatever was read meanwhile goes before the rest. The service recognises
every row, so that order and repeats change nothing. One that does not say so in its receipts is of
an earlier release and gets them one by one, the oldest first: it would count the others as lost.

A batch leaves the spool in three ways: the service acknowledged exactly this batch, the service
answered that it can never accept it (it goes to rejected/), or the spool's bound dropped it. In all
other cases it stays, and the shipper tries again with growing, random pauses, so that ten thousand
agents do not overload a service that has just come back.
"""

from __future__ import annotations

import email.utils
import enum
import logging
import ssl
import threading
from collections.abc import Callable
from random import Random

import httpx
import msgspec

from collector.agent.coalesce import COALESCED_BATCHES_MAX, COALESCED_READINGS_MAX, coalesce
from collector.agent.meter import Meter
from collector.agent.spool import Entry, Loaded, Spool
from collector.contract import wire
from collector.contract.errors import SettingsError, WireError

INGEST_PATH = "/v1/ingest"

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
"""The service answers when the batch is durable; a busy disk under group commit takes seconds."""
IDLE_SECONDS = 60.0
"""A connection is kept longer than any sensible flush_seconds, so that TLS is not redone."""

PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MIN = 0.05
"""Full jitter may draw zero; even then an agent sends at most twenty requests a second."""
BACKLOG_PAUSE_SECONDS_MAX = 2.0
"""The longest pause between two parts of a backlog; what is fresh waits for it, too."""
RETRY_AFTER_SECONDS_MAX = 300.0
"""The longest pause that a service may ask for. More is a mistake of its clock, and costs spool."""
ANSWER_BYTES_MAX = 64 << 10
"""A receipt has a few hundred bytes; the rest of a longer answer is not read."""
ANSWER_BYTES_SHOWN = 200
RULES_MAX = 32
"""Rules by which refused samples are counted; a service that names more gets `other`."""
FAILURES_BEFORE_NEWS = 2
"""One failed attempt is a restart or an idle connection that was closed: not worth a line."""

log = logging.getLogger(__name__)


class Answer(enum.StrEnum):
    """What an attempt to send means for the batch."""

    DELIVERED = "delivered"
    RETRY = "retry"
    """The service is away or busy: a later attempt may succeed."""
    HELD = "held"
    """The service refuses this agent (token, address): the operator has to change a setting."""
    NEVER = "never"
    """This batch is refused for what it is; the next one may be fine."""


_NEVER = {400, 413, 415, 422}
_RETRY = {408, 425, 429}


def classify_status(status: int) -> Answer:
    """The answer that an HTTP status means for the batch.

    >>> [classify_status(status).value for status in (200, 503, 429, 401, 422)]
    ['delivered', 'retry', 'retry', 'held', 'never']
    """
    if status == httpx.codes.OK:
        return Answer.DELIVERED
    if status in _NEVER:
        return Answer.NEVER
    if status in _RETRY or status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return Answer.RETRY
    return Answer.HELD


def pause_seconds(attempt: int, seconds_max: float, random: Random) -> float:
    """How long to wait after this many failures in a row: full jitter, doubling, bounded."""
    doubled = PAUSE_SECONDS_FIRST * 2.0 ** min(attempt - 1, 30)
    return max(PAUSE_SECONDS_MIN, random.uniform(0.0, min(seconds_max, doubled)))


def backlog_seconds(took_seconds: float, random: Random) -> float:
    """How long to wait after a part of a backlog: about as long as it took, bounded.

    So a backlog takes half of the time at most, and less of a service that is busy: the fresh
    batches of other agents have room.
    """
    return min(random.uniform(0.5, 1.5) * took_seconds, BACKLOG_PAUSE_SECONDS_MAX)


def retry_seconds(failures: int, asked_seconds: float, seconds_max: float, random: Random) -> float:
    """How long to wait after this many failures in a row, if the service asked for a pause.

    Never less than it asked for. On top of that, a random part of as long again, or of the usual
    pause if that is longer: a busy service asks all agents for the same pause, and those who came
    together must not come together again.
    """
    if not asked_seconds:
        return pause_seconds(failures, seconds_max, random)
    doubled = PAUSE_SECONDS_FIRST * 2.0 ** min(failures - 1, 30)
    return asked_seconds + random.uniform(0.0, max(asked_seconds, min(seconds_max, doubled)))


def parse_retry_after(text: str | None, now_seconds: float) -> float | None:
    """Seconds that a Retry-After header asks for (a number or an HTTP date), bounded.

    >>> parse_retry_after("7", 0.0), parse_retry_after("soon", 0.0), parse_retry_after("9e9", 0.0)
    (7.0, None, None)
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_seconds
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)


def clock_offset(date: str | None, now_seconds: float) -> float | None:
    """How far this clock (unix seconds) is ahead of the one that wrote an HTTP Date, in seconds.

    Good to two seconds: a Date has whole ones, and the answer was on its way. None: no such date.

    >>> clock_offset("Thu, 01 Jan 1970 00:01:00 GMT", 300.0), clock_offset("now", 0.0)
    (240.0, None)
    """
    try:
        return now_seconds - email.utils.parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


class News:
    """Logs when the state of the connection to the service changes, and only then."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._failures = 0
        self._since_ns = 0
        self._trouble = ""
        self._backlog = 0
        self._backlog_since_ns = 0

    @property
    def failures(self) -> int:
        return self._failures

    def failed(self, *, kind: str, detail: str, now_ns: int, waiting: int) -> None:
        """An attempt failed; a new kind of trouble is news."""
        self._failures += 1
        if self._failures == 1:
            self._since_ns = now_ns
        enough = self._failures >= FAILURES_BEFORE_NEWS or kind.isdigit()
        if not enough or kind == self._trouble:
            return
        self._trouble = kind
        log.warning(
            "service %s does not take batches: %s; %s; readings are kept in the spool",
            self._url,
            detail,
            _count(waiting),
        )

    def delivered(self, *, now_ns: int, waiting: int, batches: int = 1) -> None:
        """So many batches were settled; the end of trouble and the end of a backlog are news."""
        if self._trouble:
            log.info(
                "service %s takes batches again after %s; %s",
                self._url,
                _duration(now_ns - self._since_ns),
                _count(waiting),
            )
            self._backlog, self._backlog_since_ns = waiting + batches, now_ns
        self._failures, self._trouble = 0, ""
        if self._backlog and not waiting:
            seconds = _duration(now_ns - self._backlog_since_ns)
            log.info("delivered backlog of %d batches in %s", self._backlog, seconds)
            self._backlog = 0


def _count(batches: int) -> str:
    return f"{batches} batch{'' if batches == 1 else 'es'} waiting"


def _duration(duration_ns: int) -> str:
    """A duration for people.

    >>> _duration(6_200_000_000), _duration(754_000_000_000)
    ('6.2 s', '12 min 34 s')
    """
    seconds = duration_ns / 1e9
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s"


def make_client(url: str, ca_file: str) -> httpx.Client:
    """A client for this service.

    The environment's proxies are not used: a host's http_proxy is meant for people's downloads, and
    telemetry through it fails in ways that are hard to find.
    """
    try:
        # Without TLS no certificates are loaded, which saves memory on every host.
        verify: ssl.SSLContext | bool = False
        if url.startswith("https:"):
            verify = ssl.create_default_context(cafile=ca_file or None)
        return httpx.Client(
            base_url=url,
            verify=verify,
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=IDLE_SECONDS),
        )
    except OSError as error:
        raise SettingsError(f"ca_file = {ca_file!r}: {error}") from error
    except httpx.InvalidURL as error:
        raise SettingsError(f"service_url = {url!r}: {error}") from error


class Shipper:
    """The one sender of an agent; ``token`` is asked at each attempt, as its file may change."""

    def __init__(
        self,
        spool: Spool,
        client: httpx.Client,
        *,
        token: Callable[[], str],
        meter: Meter,
        monotonic_ns: Callable[[], int],
        now_ns: Callable[[], int],
        pause_seconds_max: float,
        random: Random | None = None,
    ) -> None:
        self._spool = spool
        self._client = client
        self._token = token
        self._meter = meter
        self._monotonic_ns = monotonic_ns
        self._now_ns = now_ns
        self._pause_seconds_max = pause_seconds_max
        self.take_request: Callable[[wire.CaptureRequest], None] | None = None
        """Receives the requests in receipts, each more than once; set before `run`."""
        self.take_configuration: Callable[[wire.ConfigurationNotice], None] | None = None
        """Receives the notice of a receipt, as long as the service repeats it; set before `run`."""
        self.take_probe_targets: Callable[[str], None] | None = None
        """Receives the name of the list of targets in each receipt that has one."""
        self._random = random or Random()  # noqa: S311 - spreads load, guards nothing
        self._news = News(str(client.base_url))
        self._wake = threading.Event()
        self._deadline_ns: int | None = None
        self._rules: set[str] = set()
        self._takes_any_order = False
        """Whether the service has said so; one that was not asked yet may be of before."""
        self._refusals = 0
        """Answers in a row that asked for a pause."""
        self._highest = -1
        """The highest sequence that was delivered: what is below it is of a backlog."""
        self._apart = range(0)
        """Batches that go alone: together they were refused, or are too large."""
        for what in ("batches", "samples", "coalesced_batches"):
            meter.add(f"fabric_agent_shipped_{what}_total", 0)

    # --- the loop ----------------------------------------------------------------------------

    def run(self) -> None:
        """Send until `stop`, then until the spool is empty or its time is up."""
        while not self._is_over():
            pause = self.step()
            if pause is None:
                if self._deadline_ns is None:
                    self._spool.wait(IDLE_SECONDS)
            elif pause:
                self._wait(pause)

    def stop(self, seconds: float) -> None:
        """Let `run` return when the spool is empty, at the latest after so many seconds."""
        self._deadline_ns = self._monotonic_ns() + int(seconds * 1e9)
        self._wake.set()
        self._spool.wake()

    def _is_over(self) -> bool:
        return self._deadline_ns is not None and (not len(self._spool) or not self._left_seconds())

    def _left_seconds(self) -> float:
        """What is left of the time to stop in; infinite before `stop`."""
        if self._deadline_ns is None:
            return ANSWER_SECONDS_MAX
        return max(0.0, (self._deadline_ns - self._monotonic_ns()) / 1e9)

    def _wait(self, seconds: float) -> None:
        """Wait, unless `stop` was called: then the next attempt follows at once."""
        if self._deadline_ns is not None:
            seconds = min(seconds, self._left_seconds())
        if self._wake.wait(seconds):
            self._wake.clear()

    # --- one request -------------------------------------------------------------------------

    def step(self) -> float | None:
        """Try to settle one request; seconds to wait before the next, None if nothing waits."""
        run, body = self._next()
        if not run:
            return None
        batch = run[-1].batch
        started_ns = self._monotonic_ns()
        try:
            status, headers, content = self._post(body)
        except httpx.HTTPError as error:
            detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return self._failed(type(error).__name__, detail)
        finally:
            seconds = (self._monotonic_ns() - started_ns) / 1e9
            self._meter.set("fabric_agent_send_duration_seconds", seconds)
        match classify_status(status):
            case Answer.DELIVERED:
                receipt = parse_receipt(content)
                if receipt is None or (receipt.boot, receipt.sequence) != (
                    batch.boot,
                    batch.sequence,
                ):
                    detail = f"its answer is no receipt for this batch: {show(content)}"
                    return self._failed("receipt", detail)
                self._delivered(run, receipt)
                is_backlog = len(run) > 1
                offset = clock_offset(headers.get("Date"), self._now_ns() / 1e9)
                if offset is not None:
                    self._meter.set("fabric_agent_clock_offset_seconds", offset)
                return backlog_seconds(seconds, self._random) if is_backlog else 0.0
            case Answer.NEVER:
                self._refused(run, status, content)
                return 0.0
            case Answer.RETRY | Answer.HELD:
                asked = parse_retry_after(headers.get("Retry-After"), self._now_ns() / 1e9)
                return self._failed(str(status), f"HTTP {status}: {show(content)}", asked or 0.0)

    def _next(self) -> tuple[list[Loaded], bytes]:
        """The batches that go next, and the body that has them all; none if nothing waits."""
        if not self._takes_any_order:
            oldest = self._spool.oldest()
            return ([oldest], oldest.body) if oldest is not None else ([], b"")
        # A service in trouble is asked with one batch: it costs little to write it again and again.
        batches_max = 1 if self._news.failures else COALESCED_BATCHES_MAX
        run = self._spool.newest(
            batches_max=batches_max, readings_max=COALESCED_READINGS_MAX, apart=self._apart
        )
        if not run:
            return [], b""
        if len(run) == 1 and run[0].entry.sequence > self._highest:
            return run, run[0].body
        try:
            return run, wire.encode_batch(coalesce([each.batch for each in run]))
        except WireError as error:
            log.debug("batches of a backlog go one by one: %s", error)
            self._keep_apart(run)
            return run[-1:], run[-1].body

    def fetch(self, path: str, bytes_max: int) -> tuple[int, bytes]:
        """Status and the beginning of what the service has there. For `take_configuration`."""
        status, _, content = self._ask("GET", path, {}, None, bytes_max)
        return status, content

    def _headers(self, given: dict[str, str]) -> dict[str, str]:
        headers = dict(given)
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _post(self, body: bytes) -> tuple[int, httpx.Headers, bytes]:
        headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
        return self._ask("POST", INGEST_PATH, headers, body, ANSWER_BYTES_MAX)

    def _ask(
        self, method: str, path: str, given: dict[str, str], body: bytes | None, bytes_max: int
    ) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and the beginning of the answer, which may come from another program."""
        seconds = max(PAUSE_SECONDS_MIN, min(self._left_seconds(), ANSWER_SECONDS_MAX))
        timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS_MAX))
        with self._client.stream(
            method, path, content=body, headers=self._headers(given), timeout=timeout
        ) as response:
            content = b""
            for chunk in response.iter_bytes(ANSWER_BYTES_MAX):
                content += chunk
                if len(content) >= bytes_max:
                    break
            return response.status_code, response.headers, content

    def _failed(self, kind: str, detail: str, asked_seconds: float = 0.0) -> float:
        self._spool.put_back()
        self._meter.add("fabric_agent_send_failures_total", error=kind)
        self._meter.set("fabric_agent_service_up", 0)
        self._news.failed(
            kind=kind, detail=detail, now_ns=self._monotonic_ns(), waiting=len(self._spool)
        )
        # A service that asks for a pause is there: pauses begin anew, however long it was away.
        self._refusals = self._refusals + 1 if asked_seconds else 0
        failures = self._refusals or self._news.failures
        return retry_seconds(failures, asked_seconds, self._pause_seconds_max, self._random)

    def _refused(self, run: list[Loaded], status: int, content: bytes) -> None:
        """The service can never accept this. Which batch is bad shows when each comes alone."""
        if len(run) == 1:
            self._rejected(run[0].entry, status, content)
        else:
            self._keep_apart(run)
            self._spool.put_back()

    def _keep_apart(self, run: list[Loaded]) -> None:
        self._apart = range(run[0].entry.sequence, run[-1].entry.sequence + 1)

    def _rejected(self, entry: Entry, status: int, content: bytes) -> None:
        """Move the batch to rejected/: the service works and can never accept this one."""
        log.warning(
            "batch %s is moved to rejected/: HTTP %d: %s", entry.name, status, show(content)
        )
        self._spool.reject(entry)
        self._meter.add("fabric_agent_rejected_batches_total", status=str(status))
        self._meter.add("fabric_agent_rejected_samples_total", entry.samples, status=str(status))
        self._news.delivered(now_ns=self._monotonic_ns(), waiting=len(self._spool))

    def _delivered(self, run: list[Loaded], receipt: wire.Receipt) -> None:
        self._takes_any_order = receipt.any_order is True
        self._refusals = 0
        self._highest = max(self._highest, run[-1].entry.sequence)
        for loaded in run:
            self._spool.remove(loaded.entry)
        self._meter.add("fabric_agent_shipped_batches_total", len(run))
        self._meter.add(
            "fabric_agent_shipped_samples_total", sum(each.entry.samples for each in run)
        )
        if len(run) > 1:
            self._meter.add("fabric_agent_shipped_coalesced_batches_total", len(run))
        self._meter.set("fabric_agent_service_up", 1)
        for rule, count in receipt.refused.items():
            if len(self._rules) < RULES_MAX:
                self._rules.add(rule)
            name = rule if rule in self._rules else "other"
            self._meter.add("fabric_agent_refused_samples_total", count, rule=name)
        if receipt.captures and self.take_request is not None:
            for request in receipt.captures[: wire.CAPTURES_MAX]:
                self.take_request(request)
        if receipt.configuration and self.take_configuration is not None:
            self.take_configuration(receipt.configuration)
        if receipt.probe_targets and self.take_probe_targets is not None:
            self.take_probe_targets(receipt.probe_targets)
        self._news.delivered(
            now_ns=self._monotonic_ns(), waiting=len(self._spool), batches=len(run)
        )


def parse_receipt(content: bytes) -> wire.Receipt | None:
    """The receipt in a 200 answer; None if another program gave that answer."""
    try:
        return msgspec.json.decode(content, type=wire.Receipt)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def show(content: bytes) -> str:
    """The beginning of an answer, fit for one line of a log."""
    text = content[:ANSWER_BYTES_SHOWN].decode("utf-8", errors="replace")
    return " ".join(text.split()) or "(empty)"
