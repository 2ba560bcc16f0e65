"""Switches that stream over gNMI: counters as they are sampled, link states as they change.

One thread for each stream keeps the latest value of every leaf (`collector.switches.gnmi`); a read
gives what is there, with the switch's own times. Changes of link states are events, given within a
fraction of a second and none lost between two reads. The tables of paths are
`collector/switches/gnmi/gnmi_*.toml`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

import msgspec

from collector.contract.catalog import load_catalog
from collector.contract.errors import HostError, SettingsError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import SourceSettings
from collector.switches.gnmi.leaves import Feed, SwitchLeaves
from collector.switches.gnmi.model import (
    GnmiError,
    Notification,
    Request,
    Subscription,
    Synced,
    Target,
)
from collector.switches.gnmi.replay import Recording
from collector.switches.gnmi.stream import Clock, Stream
from collector.switches.gnmi.tables import StreamTable, profile_named
from collector.switches.peaks import Peaks

METHOD = "gnmi"
TARGETS_MAX = 256
"""Switches of one agent, each with one to four threads: at more, run another agent."""
LOOK_SECONDS = 0.2
"""How soon a change of a link's state is passed on."""
FIRST_READ_SHARE = 0.5
"""Of the source's timeout, for which the first read waits for the switches' first values."""

SILENT_DETAIL = (
    "the switch takes this path and sends no number by it: it does not have it, or nothing is there"
)
NOT_A_PORT = ("Vlan*", "vlan*", "Loopback*", "loopback*", "lo", "lo0", "Null*", "docker*", "veth*")


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `gnmi`."""

    interval_seconds: float = 10.0
    """As often as switches are asked to sample: more often gives the same values again."""
    sample_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 10.0
    """How often switches send counters. Some switches refuse less than ten seconds."""
    slow_seconds: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 60.0
    """How often switches send optics and facts about themselves."""
    exclude: tuple[str, ...] = NOT_A_PORT
    """Ports to leave alone, as shell patterns: those without a cable."""
    targets: Annotated[tuple[Target, ...], msgspec.Meta(max_length=TARGETS_MAX)] = ()
    """The switches: `[[sources.gnmi.targets]]`."""


class Switch:
    """One switch: its leaves, its streams and the series about it."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self.target = target
        facts = {"method": METHOD, "address": target.host, "profile": target.profile}
        self.leaves = SwitchLeaves(target.name, facts, settings.exclude)
        self.streams: list[Stream] = []
        self._settings = settings
        self._feeds = [Feed(table) for table in profile_named(target.profile).streams]
        by_name = {feed.table.name: feed for feed in self._feeds}
        for feed in self._feeds:
            feed.names_from = by_name.get(feed.table.names_from)
        self._peaks = Peaks()
        self._recorded = b""
        self._errors: list[tuple[str, GnmiError]] = []
        """Streams without a listener, and why."""
        labels = {"host": target.name, "method": METHOD}
        self._labels = labels
        self._up = Series("fabric_switch_up", labels)
        self._values = Series("fabric_switch_poll_values", labels)
        self._updates = Series("fabric_switch_stream_updates_total", labels)
        self._connects = Series("fabric_switch_stream_connects_total", labels)
        self._delay = Series("fabric_switch_stream_delay_seconds", labels)
        self._made: dict[tuple[str, str, str], Series] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        now_ns = host.now_ns()
        readings = self.leaves.readings(now_ns, host.monotonic_ns())
        is_up = any(feed.is_live for feed in self._feeds)
        is_settled = not self.streams or any(each.settled.is_set() for each in self.streams)
        if is_up or is_settled:
            yield Sample(self._up, int(is_up), now_ns)
        else:
            yield Missing(self._up, UnreadReason.TIMEOUT, "not connected yet")
        yield Sample(self.leaves.info(), 1, now_ns)
        yield from self._peaks.with_bursts(readings)
        if is_up:
            values = sum(isinstance(each, Sample) for each in readings)
            yield Sample(self._values, values, now_ns)
        elif self._errors:
            # One absence for the switch, not one for each of thousands of leaves.
            _, error = self._errors[0]
            yield Missing(self._values, error.reason, error.detail)
        if is_up:
            for table, error in self._errors:
                yield Missing(self._flaw(table, "away"), error.reason, error.detail)
        yield from self._read_streams(now_ns)

    def listen(self, host: Host) -> None:
        """Start the streams that do not run, and remember why one cannot."""
        try:
            self._listen(host)
        except GnmiError as error:
            self._errors = [("", error)]
        except HostError as error:
            self._errors = [("", GnmiError(error.reason, error.detail))]
        else:
            self._errors = [
                (stream.feed.table.name, stream.error)
                for stream in self.streams
                if stream.error is not None
            ]

    def _listen(self, host: Host) -> None:
        if self.streams and not any(each.has_ended for each in self.streams):
            return
        connection = host.gnmi(self.target)
        if isinstance(connection, Recording):
            self._replay(connection, host)
            return
        connection.close()
        self.stop()
        self._start(host)

    def _start(self, host: Host) -> None:
        clock = Clock(host.now_ns, host.monotonic_ns)
        self.streams = [
            Stream(
                name=f"{self.target.name} {feed.table.name}",
                connect=lambda: host.gnmi(self.target),
                leaves=self.leaves,
                feed=feed,
                wanted=self._request(feed.table),
                clock=clock,
            )
            for feed in self._feeds
        ]
        for stream in self.streams:
            stream.start()

    def _request(self, table: StreamTable) -> Request:
        quick, slow = self._settings.sample_seconds, self._settings.slow_seconds
        subscriptions = tuple(
            # Sent on change if the switch can, else as often as this.
            Subscription(each.path, each.on_change, slow if each.is_slow else quick)
            for each in table.subscriptions
        )
        return Request(subscriptions, table.target, self.target.origin or table.origin)

    def _replay(self, recording: Recording, host: Host) -> None:
        """Take in what a captured tree recorded, once: a repetition would repeat its events."""
        if recording.text == self._recorded:
            return
        for feed in self._feeds:
            self.leaves.begin(feed, self._request(feed.table).subscriptions)
        now_ns, steady_ns = host.now_ns(), host.monotonic_ns()
        for message in recording.subscribe(Request(())):
            self.leaves.count(message)
            for feed in self._feeds:
                if isinstance(message, Notification):
                    # As if it came now: the times of a capture are always long ago.
                    self.leaves.apply(feed, message._replace(time_ns=now_ns), now_ns, steady_ns)
                elif isinstance(message, Synced):
                    self.leaves.sync(feed)
        for feed in self._feeds:
            feed.is_live = feed.has_answered = True
        self._recorded = recording.text

    def _read_streams(self, now_ns: int) -> Iterator[Reading]:
        leaves = self.leaves
        yield Sample(self._updates, leaves.updates, now_ns)
        yield Sample(self._connects, sum(each.connects for each in self.streams), now_ns)
        if leaves.delay_seconds is not None and self.streams:
            yield Sample(self._delay, leaves.delay_seconds, now_ns)
        for why, count in sorted(leaves.dropped.items()):
            series = self._series("fabric_switch_stream_dropped_total", "drop_reason", why)
            yield Sample(series, count, now_ns)
        for flaw, count in sorted(leaves.take_flaws().items()):
            yield Sample(self._flaw("", flaw), count, now_ns)
        for feed in self._feeds:
            for path in leaves.silent(feed):
                yield Missing(self._flaw(path, "silent"), UnreadReason.ABSENT, SILENT_DETAIL)
        for stream in self.streams:
            optional = {ask.path for ask in stream.feed.table.subscriptions if ask.is_optional}
            for flaw in stream.watch(self._settings.interval_seconds):
                yield Sample(self._flaw(stream.feed.table.name, flaw), 1, now_ns)
            for path, words in stream.refused.items():
                if path in optional:
                    continue
                yield Missing(self._flaw(path, "refused"), UnreadReason.NOT_SUPPORTED, words)

    def _flaw(self, table: str, flaw: str) -> Series:
        return self._series("fabric_switch_poll_flaws", "flaw", flaw, table)

    def _series(self, metric: str, label: str, value: str, table: str = "") -> Series:
        key = metric, value, table
        if key not in self._made:
            labels = {**self._labels, label: value, "table": table}
            self._made[key] = Series(metric, labels)
        return self._made[key]

    def stop(self) -> None:
        for stream in self.streams:
            stream.stop()


def stop_all(switches: list[Switch]) -> None:
    """End the threads of all switches. For a finalizer, which must not hold the source."""
    for switch in switches:
        switch.stop()


class Gnmi:
    """The source. Its threads end with it, and with the process."""

    name: ClassVar[str] = "gnmi"
    Settings: ClassVar[type[SourceSettings]] = Settings
    look_seconds: float
    """Only there with targets: an agent without switches does not wake up for them."""

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        names = [target.name for target in settings.targets]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SettingsError(f"sources.gnmi.targets: {twice[0]!r} is there twice")
        self._settings = settings
        self._has_read = False
        if settings.targets:
            # Before there are threads: msgspec builds what it knows of a type when it is first
            # used, and crashes when two threads do that at once.
            load_catalog()
        self._switches = [Switch(target, settings) for target in settings.targets]
        if self._switches:
            self.look_seconds = LOOK_SECONDS
        # Sources have no `close`: the agent drops them when it reads its settings again.
        weakref.finalize(self, stop_all, self._switches)

    def read(self, host: Host) -> Iterator[Reading]:
        """All that is known of every switch. The first read waits a little, for `agent --once`."""
        for switch in self._switches:
            switch.listen(host)
        if not self._has_read:
            self._has_read = True
            self._wait(host)
        for switch in self._switches:
            switch.listen(host)
            yield from switch.read(host)

    def _wait(self, host: Host) -> None:
        seconds = self._settings.timeout_seconds * FIRST_READ_SHARE
        deadline_ns = host.monotonic_ns() + int(seconds * 1e9)
        for switch in self._switches:
            for stream in switch.streams:
                stream.settled.wait(max(0.0, (deadline_ns - host.monotonic_ns()) / 1e9))

    def look(self, host: Host) -> Iterable[Reading]:  # noqa: ARG002 - streams wrote the leaves
        """Changes of link states since the last look."""
        for switch in self._switches:
            yield from switch.leaves.events()


SOURCE = Gnmi
