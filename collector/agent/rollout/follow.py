"""Takes the configurations that the service hands out: fetch, verify, try, keep or go back.

Two threads meet here. The shipper's offers what a receipt carries: it fetches the document and
keeps the trial on disk. The agent's main thread then reads its settings again, looks at the trial
every few seconds, and reads them again with the last good configuration if it fails. Without a
notice nothing of this runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec

from collector.agent.meter import Meter
from collector.agent.rollout.document import Overlay, read_document
from collector.agent.rollout.judge import Judgement, Numbers, judge
from collector.agent.rollout.keep import Keeper
from collector.agent.settings import AgentSettings
from collector.contract.errors import FabricscopeError, SettingsError
from collector.contract.identity import printable
from collector.contract.model import Event
from collector.contract.rollout import (
    DETAIL_CHARS_MAX,
    DOCUMENT_BYTES_MAX,
    KIND,
    LOCAL_VERSION,
    VERSION_MAX,
    Outcome,
    digest_of,
    is_signed,
    read_key,
)
from collector.contract.units import NS
from collector.contract.wire import ConfigurationNotice

DOCUMENT_PATH = "/v1/configurations/{}/document"
RETRY_SECONDS = 60.0
"""After a document could not be fetched or kept, and between two reports of the same thing."""
TRIAL_SECONDS_MAX = 86_400.0
FOLDER = "configuration"
"""In the spool's folder: the settings' own may be read-only for the agent."""
RESULTS = (Outcome.GOOD, Outcome.FAILED, Outcome.INTERRUPTED)

Fetch = Callable[[str, int], tuple[int, bytes]]
Tell = Callable[[Event], None]

log = logging.getLogger(__name__)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on trial since when, by the monotonic clock, and the numbers before it."""

    version: int
    started_ns: int
    seconds: float
    before: Numbers


class Follow:
    """One agent's part in roll-outs.

    ``wake`` makes the main thread read the settings again soon, and call `begin`; ``clocks`` are
    monotonic and wall time, in nanoseconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        key_file: str,
        overlay: Overlay,
        meter: Meter,
        clocks: tuple[Callable[[], int], Callable[[], int]],
        wake: Callable[[], None],
    ) -> None:
        self._keeper = Keeper(folder / FOLDER)
        self._key = read_key(Path(key_file)) if key_file else b""
        self._overlay = overlay
        self._meter = meter
        self._monotonic_ns, self._now_ns = clocks
        self._wake = wake
        self.tell: Tell | None = None
        """Sends a report; None while the agent has no way to."""
        self.fetch: Fetch | None = None
        self._trial: Trial | None = None
        self._taken: ConfigurationNotice | None = None
        """What the shipper's thread has kept, for the main thread to take up."""
        self._told_ns = self._retry_ns = 0
        for result in RESULTS:
            meter.add("fabric_agent_configurations_total", 0, result=result.value)
        self._first = self._recover()

    def _recover(self) -> tuple[int, Outcome, str] | None:
        found = self._keeper.recover()
        if found is not None:
            version, outcome, why = found
            log.warning("configuration %d is given up for the last good one: %s", version, why)
            self._meter.add("fabric_agent_configurations_total", result=outcome.value)
        return found

    @property
    def is_trying(self) -> bool:
        return self._trial is not None

    # --- settings ------------------------------------------------------------------------------

    def settings(self, local: AgentSettings) -> AgentSettings:
        """The settings to run: the local ones with the configuration that is kept over them.

        A good configuration that cannot be used any more (the host's file or the release changed,
        a disk lost it) leaves the local ones; a trial that cannot raises SettingsError.
        """
        version = self._keeper.version
        try:
            document = self._keeper.document()
            if document is None:
                return local
            return self._overlay(read_document(document, f"configuration {version}"))
        except SettingsError as error:
            if self._keeper.state.trying is not None:
                raise
            log.warning("%s; the agent runs with its own file alone", error)
            self._keeper.failed(version, str(error))
            self._keeper.forget_good()
            self._first = version, Outcome.FAILED, str(error)
            return local

    def show(self) -> None:
        """Set the level that says which version runs; levels are dropped at each reload."""
        self._meter.set("fabric_agent_configuration_version", self._keeper.version)

    # --- the shipper's thread --------------------------------------------------------------------

    def offer(self, notice: ConfigurationNotice) -> None:
        """Take what a receipt carries; it comes again and again until the service knows more."""
        version, state = notice.version, self._keeper.state
        if not 0 <= version <= VERSION_MAX or version == state.trying:
            return
        if version == state.good:
            self._end_trial_or_repeat(state.trying)
        elif version in state.failed and notice.trial_seconds > 0:
            self._repeat(version, Outcome.FAILED, state.failed[version])
        elif self._monotonic_ns() >= self._retry_ns:
            self._take(notice)

    def _end_trial_or_repeat(self, trying: int | None) -> None:
        """The service wants the version that is good here: a trial of another one is over."""
        if trying is None:
            self._repeat(self._keeper.state.good, Outcome.GOOD, "")
            return
        self._keeper.interrupted(trying, "the service took it back")
        self._taken = None
        self._wake()

    def _take(self, notice: ConfigurationNotice) -> None:
        try:
            document = self._fetch(notice)
            if document is not None:
                self._keeper.begin(notice.version, document)
        except (httpx.HTTPError, OSError) as error:
            self._later(notice.version, f"{type(error).__name__}: {error}")
        except RefusedError as error:
            log.warning("configuration %d is refused: %s", notice.version, error)
            self._keeper.failed(notice.version, str(error))
            self._meter.add("fabric_agent_configurations_total", result=Outcome.FAILED.value)
            self.report(notice.version, Outcome.FAILED, str(error))
        except SettingsError as error:  # it cannot be kept: the host's trouble
            self._later(notice.version, str(error))
        else:
            if document is not None:
                self._taken = notice
                self._wake()

    def _later(self, version: int, why: str) -> None:
        self._retry_ns = self._monotonic_ns() + int(RETRY_SECONDS * NS)
        log.warning("configuration %d is not taken now: %s", version, why)

    def _fetch(self, notice: ConfigurationNotice) -> bytes | None:
        """The document, verified; None: not now. RefusedError: never."""
        if notice.version == LOCAL_VERSION:
            return b""
        assert self.fetch is not None
        status, document = self.fetch(DOCUMENT_PATH.format(notice.version), DOCUMENT_BYTES_MAX + 1)
        if status != httpx.codes.OK:
            self._later(notice.version, f"HTTP {status}")
            return None
        if digest_of(document) != notice.sha256:
            raise RefusedError("its SHA-256 is not the one that the service announced")
        if self._key and not is_signed(self._key, notice.version, notice.sha256, notice.signature):
            raise RefusedError("it is not signed with the key of configuration.key_file")
        try:
            self._overlay(read_document(document, f"configuration {notice.version}"))
        except SettingsError as error:
            raise RefusedError(str(error)) from error
        return document

    # --- the main thread -------------------------------------------------------------------------

    def begin(self, before: Numbers) -> None:
        """The settings were read again, and are in force."""
        self._trial, taken, self._taken = None, self._taken, None
        version = self._keeper.state.trying
        self.show()
        if version is None or taken is None or taken.version != version:
            self.report(self._keeper.state.good, Outcome.RUNNING, "")
            return
        seconds = min(max(0.0, taken.trial_seconds), TRIAL_SECONDS_MAX)
        if not seconds:
            self._settle(version, Judgement(Outcome.GOOD))
            return
        log.info("configuration %d is on trial for %g s", version, seconds)
        self._trial = Trial(
            version=version, started_ns=self._monotonic_ns(), seconds=seconds, before=before
        )
        self.report(version, Outcome.TRYING, "")

    def look(self, now: Numbers, settings: AgentSettings) -> bool:
        """Judge the trial; True if the settings are to be read again, with the good version."""
        trial = self._trial
        if trial is None:
            return False
        judged = judge(
            trial.before,
            now,
            settings,
            elapsed_seconds=(self._monotonic_ns() - trial.started_ns) / NS,
            trial_seconds=trial.seconds,
        )
        return judged.outcome is not Outcome.TRYING and self._settle(trial.version, judged)

    def give_up(self, why: str, outcome: Outcome = Outcome.FAILED) -> None:
        """The settings of the trial could not be put in force."""
        version = self._keeper.state.trying
        self._taken = None
        if version is not None:
            self._settle(version, Judgement(outcome, why))

    def _settle(self, version: int, judged: Judgement) -> bool:
        """End the trial; True if the agent has to go back."""
        outcome = judged.outcome
        try:
            if outcome is Outcome.GOOD:
                if not self._keeper.passed(version):
                    return False  # another one came meanwhile, and is taken up next
            elif outcome is Outcome.FAILED:
                self._keeper.failed(version, judged.why)
            else:
                outcome = self._keeper.interrupted(version, judged.why)
        except SettingsError as error:  # the disk: look again, the trial stays one
            log.warning("%s", error)
            return False
        self._trial = None
        is_back = outcome is not Outcome.GOOD
        log.log(
            logging.WARNING if is_back else logging.INFO,
            "configuration %d is %s%s",
            version,
            "given up for the last good one: " if is_back else "good",
            judged.why,
        )
        self._meter.add("fabric_agent_configurations_total", result=outcome.value)
        self.report(version, outcome, judged.why)
        return is_back

    # --- reports -------------------------------------------------------------------------------

    def hello(self) -> None:
        """Report the version that an agent runs when it starts, and what became of a trial."""
        first, self._first = self._first, None
        self.show()
        if first is not None:
            self.report(*first)
        self.report(self._keeper.state.good, Outcome.RUNNING, "")

    def _repeat(self, version: int, outcome: Outcome, why: str) -> None:
        """The service does not know yet: its report was lost, or is on its way."""
        if self._monotonic_ns() - self._told_ns >= RETRY_SECONDS * NS:
            self.report(version, outcome, why)

    def report(self, version: int, outcome: Outcome, why: str) -> None:
        self._told_ns = self._monotonic_ns()
        if self.tell is None:
            return
        attributes = {
            "version": str(version),
            "result": outcome.value,
            "good": str(self._keeper.state.good),
        }
        if why:
            attributes["detail"] = printable(why[:DETAIL_CHARS_MAX])
        self.tell(
            Event(
                kind=KIND,
                time_ns=self._now_ns(),
                labels={},
                message=f"configuration {version}: {outcome.value}",
                attributes=attributes,
            )
        )


class RefusedError(FabricscopeError):
    """A document that this agent will never run."""
