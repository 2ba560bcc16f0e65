"""Settings: what the host, its NICs, its GPUs and its jobs are set to, as facts for the audit.

Each fact is a series `fabric_setting_info` whose labels are the message. `fabric_setting_facts`
comes last, at the same time: where it has arrived, all of that read has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from collector.audit.facts import Fact, Unread
from collector.contract.model import Missing, Reading, Sample, Series
from collector.doors.host import Host
from collector.reading.configuration.reader import ConfigurationReader
from collector.sources import SourceSettings

INFO, FACTS, FACTS_LEFT_OUT = (
    "fabric_setting_info",
    "fabric_setting_facts",
    "fabric_setting_facts_left_out",
)


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `configuration`."""

    interval_seconds: float = 240.0
    """Settings change seldom. Less than the five minutes that an instant query
    looks back, so that one always finds them."""
    timeout_seconds: float = 20.0
    """A handful of programs is asked, with 12 s for all of them."""


class Configuration:
    """The source; it keeps the series of the last read."""

    name: ClassVar[str] = "configuration"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._reader = ConfigurationReader()
        self._series: dict[Fact | Unread, Series] = {}
        self._facts, self._left_out = Series(FACTS), Series(FACTS_LEFT_OUT)

    def read(self, host: Host) -> Iterator[Reading]:
        """Every fact, every setting that could not be read, and how many facts there are."""
        found = self._reader.read(host)
        if found is None:
            return
        time_ns = host.now_ns()
        before, self._series = self._series, {}
        count = 0
        for fact in found.all():
            count += 1
            yield Sample(self._keep(before, fact, series_of(fact)), 1, time_ns)
        for unread in found.unread:
            labels = {"device": unread.device, "setting": unread.setting}
            series = self._keep(before, unread, Series(INFO, labels))
            yield Missing(series, unread.reason, unread.detail)
        yield Sample(self._left_out, found.left_out, time_ns)
        yield Sample(self._facts, count, time_ns)

    def _keep(self, before: dict[Fact | Unread, Series], key: Fact | Unread, new: Series) -> Series:
        """The series that a fact had at the last read, or its new one."""
        series = self._series[key] = before.get(key, new)
        return series


SOURCE = Configuration


def series_of(fact: Fact) -> Series:
    labels = {
        "device": fact.device,
        "setting": fact.setting,
        "value": fact.value,
        "origin": fact.origin,
    }
    return Series(INFO, labels)
