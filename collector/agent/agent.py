"""The agent: settings, sources, scheduler, spool, shipper and `/metrics` put together.

Only this module connects them. SIGTERM and SIGINT: stop reading, write what was read, try to
deliver, leave the rest in the spool. SIGHUP: the same with new settings, without leaving the
process; settings that cannot be used are refused and the old ones stay in force. The same happens
when a configuration came from the service (`collector.agent.rollout`).
"""

from __future__ import annotations

import logging
import platform
import signal
import threading
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from collector.agent.buffer import Buffer, Flusher
from collector.agent.exposition import Renderer, columns
from collector.agent.meter import Meter
from collector.agent.rollout.document import Overlay
from collector.agent.rollout.judge import Numbers
from collector.agent.schedule import (
    Publish,
    Report,
    Runner,
    Scheduler,
    first_tick_ns,
    next_tick_ns,
    phase_ns,
)
from collector.agent.settings import AgentSettings
from collector.agent.spool import Spool
from collector.contract.catalog import load_catalog
from collector.contract.errors import FabricscopeError, HostError
from collector.contract.model import Event
from collector.contract.probes import ProbeTarget
from collector.contract.rollout import Outcome
from collector.contract.units import NS
from collector.contract.wire import CaptureRequest
from collector.doors.host import Host
from collector.sources import Source

if TYPE_CHECKING:
    from collector.agent.metrics_http import MetricsServer
    from collector.agent.rollout.follow import Follow
    from collector.agent.ship import Shipper

SOURCES_STOP_SECONDS = 3.0
"""How long an ending agent waits for reads that run: as long as their usual timeout."""

FLUSH_STOP_SECONDS = 5.0
"""How long an ending agent waits for a write to a disk that is busy with a checkpoint."""
JOIN_SECONDS = 1.0
"""How much longer than it was given the shipper may take to notice that its time is up."""
URGENT_SECONDS = 0.2
"""Between two batches that could not wait: a port that flaps all day makes five a second, not five
hundred, and an event still reaches the service well within a second."""
DIED = 0
"""In the inbox beside the numbers of signals, which start at 1."""
OFFERED, LOOK = -1, -2
"""There, too: a configuration came or was taken back; it is time to look at the one on trial."""
TRIAL_LOOK_SECONDS = 2.0
"""Between two looks at a trial: a bad configuration is in force little longer than two reads."""

VERSION = metadata.version("fabricscope")

Sources = Mapping[str, type[Source]]

log = logging.getLogger(__name__)


def boot_id_of(host: Host) -> str:
    """The host's boot id; empty if it is not readable, and then no number outlives the agent."""
    try:
        return host.boot_id()
    except HostError as error:
        log.warning("no boot id (%s): the numbering of batches starts again at each start", error)
        return ""


def make_runners(
    settings: AgentSettings,
    sources: Sources,
    *,
    host: Host,
    meter: Meter,
    publish: Publish,
    states: Mapping[str, bytes],
) -> list[Runner]:
    return [
        Runner(
            sources[name](chosen),
            chosen,
            host=host,
            meter=meter,
            publish=publish,
            state=states.get(name),
        )
        for name, chosen in sorted(settings.sources.items())
        if chosen.enabled
    ]


class Shipping:
    """Spool, flusher and shipper with their threads: the path from the buffer to the service."""

    def __init__(self, settings: AgentSettings, host: Host, meter: Meter, buffer: Buffer) -> None:
        # Imported here: an agent that is only scraped does not need the memory of an HTTP client.
        from collector.agent.ship import Shipper, make_client  # noqa: PLC0415

        self._settings = settings
        self._host = host
        self._buffer = buffer
        self._stop = threading.Event()
        self._meter = meter
        common = settings.common_labels(host.name)
        self._agent = common["host"]
        self._client = make_client(settings.service_url, settings.ca_file)
        self.spool = Spool(
            Path(settings.spool_dir),
            bytes_max=settings.spool_bytes_max,
            host_boot_id=boot_id_of(host),
            now_ns=host.now_ns,
            meter=meter,
        )
        self._flusher = Flusher(
            buffer, self.spool, agent=common["host"], common=common, meter=meter, now_ns=host.now_ns
        )
        self.shipper: Shipper = Shipper(
            self.spool,
            self._client,
            token=settings.token_reader(),
            meter=meter,
            monotonic_ns=host.monotonic_ns,
            now_ns=host.now_ns,
            pause_seconds_max=settings.retry_seconds_max,
        )
        self.shipper.take_request = self._pass_request
        self._runners: list[Runner] = []
        self._states: Callable[[], dict[str, bytes]] = dict
        self._flush_thread = threading.Thread(target=self._run_flusher, name="flush", daemon=True)
        self._ship_thread = threading.Thread(target=self.shipper.run, name="ship", daemon=True)

    def start(self, states: Callable[[], dict[str, bytes]], runners: list[Runner]) -> None:
        """Begin to write and send; ``states`` are kept at each flush, ``runners`` take captures."""
        self._states = states
        self._runners = runners
        if any(runner.takes_targets for runner in runners):
            from collector.agent.probe_lists import ProbeLists  # noqa: PLC0415 - as the shipper

            lists = ProbeLists(
                self._agent,
                self.shipper.fetch,
                self._pass_targets,
                self._meter,
                self._host.monotonic_ns,
            )
            self.shipper.take_probe_targets = lists.offer
        self._flush_thread.start()
        self._ship_thread.start()

    def follow(self, follow: Follow) -> None:
        """Let receipts bring configurations; before `start`."""
        self.shipper.take_configuration = follow.offer
        follow.fetch = self.shipper.fetch

    def _pass_request(self, request: CaptureRequest) -> None:
        for runner in self._runners:
            runner.capture(request)

    def _pass_targets(self, targets: list[ProbeTarget]) -> None:
        for runner in self._runners:
            runner.take_targets(targets)

    def stop(self, deliver_seconds: float) -> None:
        """Write everything, deliver what can be delivered in time, release the spool."""
        self._stop.set()
        self._buffer.is_urgent.set()
        self._flush_thread.join(FLUSH_STOP_SECONDS)
        if self._flush_thread.is_alive():
            log.warning("the disk of the spool hangs; the last readings are lost")
        else:
            self._flush()
        self.shipper.stop(deliver_seconds)
        self._ship_thread.join(deliver_seconds + JOIN_SECONDS)
        if waiting := len(self.spool):
            log.info("%d batches stay in the spool", waiting)
        self.release()

    def release(self) -> None:
        self.spool.close()
        if not self._ship_thread.is_alive():
            self._client.close()

    def _flush(self) -> None:
        self._flusher.flush()
        self.spool.save_state(self._states())

    def _run_flusher(self) -> None:
        """Flush on a grid of its own phase, so that ten thousand agents do not send at once."""
        now_ns = self._host.monotonic_ns
        interval_ns = int(self._settings.flush_seconds * NS)
        phase = phase_ns(self._host.name, "flush", interval_ns)
        tick_ns = first_tick_ns(now_ns(), interval_ns=interval_ns, phase=phase)
        while not self._stop.is_set():
            self._buffer.is_urgent.wait(max(0, tick_ns - now_ns()) / NS)
            self._flush()
            if now_ns() >= tick_ns:
                tick_ns, _ = next_tick_ns(tick_ns, now_ns(), interval_ns)
            else:  # something could not wait; whatever comes right after it goes with the next one
                self._stop.wait(URGENT_SECONDS)


class Running:
    """An agent with one set of settings, from `start` to `stop`."""

    def __init__(self, settings: AgentSettings, sources: Sources, host: Host, meter: Meter) -> None:
        # Before there are threads: msgspec prepares a type when it is first used, and two threads
        # that do so at once have ended the process.
        load_catalog()
        self._settings = settings
        self._meter = meter
        self._buffer = Buffer(meter)
        self._is_stopped = False
        common = settings.common_labels(host.name)
        self._shipping: Shipping | None = None
        self._server: MetricsServer | None = None
        states: dict[str, bytes] = {}
        try:
            if settings.service_url:
                self._shipping = Shipping(settings, host, meter, self._buffer)
                states = self._shipping.spool.load_state()
            self._runners = make_runners(
                settings, sources, host=host, meter=meter, publish=self._publish, states=states
            )
            self._listen(host, common)
        except FabricscopeError:
            self._release()
            raise
        self._scheduler = Scheduler(self._runners, host, common["host"])

    def _listen(self, host: Host, common: Mapping[str, str]) -> None:
        address = self._settings.listen_address()
        self._latest = None
        if address is None:
            return
        from collector.agent.metrics_http import Latest, MetricsServer  # noqa: PLC0415 - as above

        intervals_ns = {runner.name: runner.interval_ns for runner in self._runners}
        self._latest = Latest(
            intervals_ns=intervals_ns,
            common=common,
            meter=self._meter,
            monotonic_ns=host.monotonic_ns,
        )
        self._server = MetricsServer(address, self._latest, self._meter)

    def _publish(self, report: Report) -> None:
        if self._is_stopped:
            # A read that hung while the agent stopped: its spool is closed, or another's by now.
            return
        if self._latest is not None:
            self._latest.publish(report)
        if self._shipping is not None:
            self._buffer.publish(report)

    def follow(self, follow: Follow) -> None:
        """Take part in roll-outs, and report through the batches; before `start`."""
        if self._shipping is not None:
            self._shipping.follow(follow)
            follow.tell = self._tell

    def _tell(self, event: Event) -> None:
        self._publish(Report(event.kind, [event], 0, event.time_ns, 0, is_look=True))

    def _release(self) -> None:
        if self._shipping is not None:
            self._shipping.release()

    def start(self) -> None:
        settings = self._settings
        names = ", ".join(runner.name for runner in self._runners)
        log.info("sources: %s", names or "none is enabled")
        if self._shipping is not None:
            log.info(
                "ships to %s; %d batches wait in %s",
                settings.service_url,
                len(self._shipping.spool),
                settings.spool_dir,
            )
            self._shipping.start(self._scheduler.states, self._runners)
        else:
            log.info("service_url is empty: ships nowhere")
        if self._server is not None:
            self._server.start()
            log.info("metrics at %s", self._server.url)
        self._scheduler.start()

    def stop(self, deliver_seconds: float) -> None:
        """Stop reading, write what was read, deliver what can be delivered in so many seconds."""
        hanging = self._scheduler.stop(SOURCES_STOP_SECONDS)
        for name in hanging:
            log.warning("source %s hangs in a read; it is left behind", name)
        for runner in self._runners:
            if runner.name not in hanging:
                runner.close()
        self._is_stopped = True
        if self._server is not None:
            self._server.stop()
        if self._shipping is not None:
            self._shipping.stop(deliver_seconds)
        self._meter.forget_levels()


class Agent:
    """The life of the process: signals in, exit status out.

    ``load`` reads the host's own settings, ``overlay`` the same with a layer from the service; None
    if this agent never takes any.
    """

    def __init__(
        self,
        load: Callable[[], AgentSettings],
        sources: Sources,
        host: Host,
        overlay: Overlay | None = None,
    ) -> None:
        self._load = load
        self._overlay = overlay
        self._follow: Follow | None = None
        self._sources = sources
        self._host = host
        self._meter = Meter()
        self._started_ns = host.now_ns()
        # A queue, because its `put` may be called by a signal handler at any moment; the lock of
        # an Event may be held by the very thread that the handler interrupts.
        self._inbox: SimpleQueue[int] = SimpleQueue()

    def run(self) -> int:
        """Run until a signal stops it; 0, or 1 if a thread of ours died."""
        settings = self._read()
        log.info("fabricscope agent %s on %s", VERSION, self._host.name)
        running = self._make(settings)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._inbox.put(number))
        threading.excepthook = self._note_death
        running.start()
        if self._follow is not None:
            self._follow.hello()
        while (news := self._next()) in {signal.SIGHUP, OFFERED, LOOK}:
            settings, running = self._take(news, settings, running)
        log.info("stopping")
        running.stop(settings.stop_seconds)
        self._host.close()
        return 1 if news == DIED else 0

    def _next(self) -> int:
        """What comes next; waits, and no longer than until the next look while there is a trial."""
        is_trying = self._follow is not None and self._follow.is_trying
        try:
            return self._inbox.get(timeout=TRIAL_LOOK_SECONDS if is_trying else None)
        except Empty:
            return LOOK

    def _take(
        self, news: int, settings: AgentSettings, running: Running
    ) -> tuple[AgentSettings, Running]:
        follow = self._follow
        if news == signal.SIGHUP:
            settings, running, _ = self._reload(settings, running)
            if self._follow is not None and self._follow is not follow:
                self._follow.hello()
        elif follow is not None and news == OFFERED:
            return self._try_out(follow, settings, running)
        elif follow is not None and follow.look(self._numbers(), settings):
            settings, running, _ = self._reload(settings, running)
        return settings, running

    def _try_out(
        self, follow: Follow, settings: AgentSettings, running: Running
    ) -> tuple[AgentSettings, Running]:
        """Go on with the configuration that is kept now, or with the last good one."""
        before = self._numbers()
        try:
            self._load()
        except FabricscopeError as error:  # the host's own file: no fault of the configuration
            follow.give_up(f"the host's own settings: {error}", Outcome.INTERRUPTED)
            return settings, running
        settings, running, refusal = self._reload(settings, running)
        if refusal is not None:
            follow.give_up(str(refusal))
            settings, running, _ = self._reload(settings, running)
        follow.begin(before)
        return settings, running

    def _numbers(self) -> Numbers:
        return Numbers.of(self._meter.samples(0))

    def _read(self) -> AgentSettings:
        """The host's own settings, and over them what came from the service, if it may."""
        local = self._load()
        if self._overlay is None or not (local.configuration.from_service and local.service_url):
            self._follow = None
            return local
        if self._follow is None:
            # Imported here for its HTTP client, as the shipper is.
            from collector.agent.rollout.follow import Follow  # noqa: PLC0415

            self._follow = Follow(
                Path(local.spool_dir),
                key_file=local.configuration.key_file,
                overlay=self._overlay,
                meter=self._meter,
                clocks=(self._host.monotonic_ns, self._host.now_ns),
                wake=lambda: self._inbox.put(OFFERED),
            )
        return self._follow.settings(local)

    def _make(self, settings: AgentSettings) -> Running:
        meter = self._meter
        meter.set("fabric_agent_build_info", 1, version=VERSION, python=platform.python_version())
        meter.set("fabric_agent_start_time_seconds", self._started_ns / 1e9)
        for result in ("ok", "refused"):
            meter.add("fabric_agent_reloads_total", 0, result=result)
        running = Running(settings, self._sources, self._host, meter)
        if self._follow is not None:
            running.follow(self._follow)
            self._follow.show()
        return running

    def _note_death(self, args: threading.ExceptHookArgs) -> None:
        """A necessary thread has died: end, so that the service manager restarts the agent."""
        thread = args.thread.name if args.thread else "?"
        log.critical("thread %s died; the agent ends", thread, exc_info=args.exc_value)
        self._inbox.put(DIED)

    def _reload(
        self, old: AgentSettings, running: Running
    ) -> tuple[AgentSettings, Running, FabricscopeError | None]:
        """Go on with new settings if they can be used, else with the old ones; and why not."""
        try:
            new = self._read()
        except FabricscopeError as error:
            return self._refuse(error, old, running)
        running.stop(deliver_seconds=0)
        try:
            running = self._make(new)
        except FabricscopeError as error:
            running = self._make(old)
            running.start()
            return self._refuse(error, old, running)
        running.start()
        log.info("settings read again")
        self._meter.add("fabric_agent_reloads_total", result="ok")
        return new, running, None

    def _refuse(
        self, error: FabricscopeError, old: AgentSettings, running: Running
    ) -> tuple[AgentSettings, Running, FabricscopeError]:
        log.error("settings not read again, the old ones stay in force: %s", error)
        self._meter.add("fabric_agent_reloads_total", result="refused")
        return old, running, error


def read_once(settings: AgentSettings, sources: Sources, host: Host) -> tuple[str, list[str]]:
    """The exposition of one read of every enabled source, and the sources that broke.

    Of the agent's own metrics only `fabric_agent_source_up` is in it: the others vary from one
    run to the next, and this text is compared with others.
    """
    reports: list[Report] = []
    meter = Meter()
    runners = make_runners(
        settings, sources, host=host, meter=meter, publish=reports.append, states={}
    )
    for runner in runners:
        runner.tick()
        runner.close()
    found = [columns(report.readings, report.source) for report in reports]
    series = [each for names, _ in found for each in names]
    values = [each for _, numbers in found for each in numbers]
    ups = [
        sample for sample in meter.samples(0) if sample.series.metric == "fabric_agent_source_up"
    ]
    series += [sample.series for sample in ups]
    values += [sample.value for sample in ups]
    text = Renderer(settings.common_labels(host.name)).render(series, values)
    return text, [dict(sample.series.labels)["source"] for sample in ups if not sample.value]
