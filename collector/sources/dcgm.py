"""GPUs through dcgm-exporter: its page is fetched, and its names become ours.

For hosts that run NVIDIA's exporter already and where `nvml` should not ask the driver as well.
The catalog maps each of its names, as aliases; everything else on the page is
counted and passed over. DCGM writes large numbers where it has none: those are absences.

Of MIG instances nothing is taken: their rows have the GPU's name and would be mistaken for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

from collector.contract.catalog import Alias, Metric, load_catalog
from collector.contract.errors import HostError, ParseError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.formats.openmetrics import parse_lines
from collector.parsing.dcgm_blanks import is_blank
from collector.sources import SourceSettings
from collector.tables.nvml import explain_xid

EXPORTER = "dcgm-exporter"
XID_LAST = "fabric_gpu_xid_last"

KNOWN_SERIES_MAX = 50_000
"""Series of the page that are remembered: 16 GPUs of 200 fields and 18 links. A page that changes
its labels at every read would fill the memory otherwise; then all are forgotten."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `dcgm`."""

    url: str = ""
    """The exporter's page, such as http://127.0.0.1:9400/metrics; empty: this source is off."""


class Ours(NamedTuple):
    """Our series for a series of the page."""

    series: Series
    info: Series
    factor: float


class Dcgm:
    """The source; it keeps which series of the page is which of ours."""

    name: ClassVar[str] = "dcgm"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._is_local = is_loopback(settings.url)
        self._texts: dict[bytes, Series] = {}
        self._known: dict[Series, Ours | None] = {}
        self._infos: dict[Series, Series] = {}
        self._xids: dict[Series, float] = {}
        self._found = Series("fabric_gpu_dcgm_series")
        self._left_out = Series("fabric_gpu_dcgm_series_left_out")
        self._broken = Series("fabric_gpu_dcgm_lines_broken")

    def read(self, host: Host) -> Iterator[Reading]:
        """Every number of the page that the catalog knows."""
        url = self._settings.url
        if not url:
            return
        try:
            page = host.fetch(url, self._settings.timeout_seconds)
        except HostError as error:
            yield Missing(self._found, error.reason, f"{url}: {error.detail}")
            return
        yield from self._translate(page, host.name, host.now_ns())

    def _translate(self, page: bytes, host_name: str, time_ns: int) -> Iterator[Reading]:
        taken: set[Series] = set()
        found = left_out = broken = 0
        for line in parse_lines(1, page, time_ns, self._texts):
            if isinstance(line, ParseError):
                broken += 1
                continue
            ours = self._find(line.series, host_name)
            if ours is None or ours.series in taken:
                left_out += 1
                continue
            taken.add(ours.series)
            found += 1
            if ours.info not in taken:
                taken.add(ours.info)
                yield Sample(ours.info, 1, time_ns)
            if is_blank(line.value):
                yield Missing(ours.series, UnreadReason.NOT_SUPPORTED, "DCGM has no value")
                continue
            yield Sample(ours.series, line.value * ours.factor, line.time_ns)
            if ours.series.metric == XID_LAST:
                yield from self._note_xid(ours.series, line.value, time_ns)
        yield Sample(self._found, found, time_ns)
        yield Sample(self._left_out, left_out, time_ns)
        yield Sample(self._broken, broken, time_ns)

    def _find(self, theirs: Series, host_name: str) -> Ours | None:
        """Our series for this one; None if the catalog does not know it."""
        if theirs in self._known:
            return self._known[theirs]
        if len(self._known) >= KNOWN_SERIES_MAX:
            self._known, self._infos = {}, {}
        ours = translate_series(theirs, "" if self._is_local else host_name)
        if ours is not None:
            # The series of one GPU share one info.
            ours = ours._replace(info=self._infos.setdefault(ours.info, ours.info))
        self._known[theirs] = ours
        return ours

    def _note_xid(self, series: Series, value: float, time_ns: int) -> Iterator[Event]:
        """An event when the last XID is another one than at the read before.

        The first read yields none: DCGM keeps the last XID for ever, without its time.
        """
        before = self._xids.get(series)
        self._xids[series] = value
        if before is None or value in (before, 0) or not value.is_integer():
            return
        labels = dict(series.labels)
        yield Event(
            kind="gpu_xid",
            time_ns=time_ns,
            labels=labels,
            attributes={"xid": str(int(value))},
            message=f"GPU {labels.get('gpu', '?')}: {explain_xid(int(value))}.",
        )


SOURCE = Dcgm


def translate_series(theirs: Series, host_name: str) -> Ours | None:
    """Our series and factor for one of the exporter's.

    ``host_name`` is this host's name where the page may be about another one, else empty.
    """
    found = dict(theirs.labels)
    for alias, metric in load_catalog().aliases_of(theirs.metric):
        if alias.exporter == EXPORTER and alias.fits(found):
            labels = translate_labels(alias, metric, found)
            there = found.get("Hostname") or found.get("hostname") or ""
            if host_name and there not in ("", host_name):
                labels["host"] = there
            facts = labels | {
                "model": found.get("modelName") or found.get("model_name", ""),
                "pci_bus_id": found.get("pci_bus_id", "").lower(),
                "driver": found.get("DCGM_FI_DRIVER_VERSION", ""),
            }
            info = Series("fabric_gpu_info", facts)
            return Ours(Series(metric.name, labels), info, alias.factor)
    return None


def translate_labels(alias: Alias, metric: Metric, found: Mapping[str, str]) -> dict[str, str]:
    names = load_catalog().labels_of(metric.name) - {"host", "cluster"}
    return {ours: found.get(alias.labels.get(ours, ours), "") for ours in sorted(names)}


def is_loopback(url: str) -> bool:
    """Whether the page is of this host: then it is about this host, whatever name it gives itself.

    In a container it calls itself by the container's name.

    >>> is_loopback("http://127.0.0.1:9400/metrics"), is_loopback("http://gpu-7:9400/metrics")
    (True, False)
    """
    try:
        name = urlsplit(url).hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
