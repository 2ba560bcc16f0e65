"""Counters of InfiniBand ports from NVIDIA's UFM: its page is fetched, its names become ours.

UFM Telemetry serves the last sample of every port as Prometheus text (`/metrics`) or as CSV
(`/csv/metrics`). Names are those of the management attributes, with `Extended` or `Ext` behind the
64-bit ones. It does not report cabling (`ufm_rest` does), and the length of a tick of PortXmitWait
is not known here, so neither is the time that ports have waited. Error ratios are in the secondary
telemetry (UFM Enterprise User Manual 6.24, "Low-Frequency (Secondary) Telemetry Fields").
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from collector.contract.errors import HostError, ParseError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.formats.openmetrics import parse_lines
from collector.parsing.infiniband_diags import PORT_MAX, clean_name, guid_of
from collector.reading.infiniband import PORT_LINES_MAX, FabricNode, label_nodes, read_counter
from collector.tables.infiniband_switches import COUNTERS, DISCARD_DETAILS, Counter

GUID_LABELS = ("node_guid", "Node_GUID", "NodeGUID", "guid")
PORT_LABELS = ("port_num", "port_number", "Port_Number", "PortNumber", "port")
NAME_LABELS = ("node_desc", "node_description", "NodeDesc", "node_name")
KIND_LABELS = ("node_type", "device_type", "NodeType")
"""Names that releases and plug-ins of UFM give to the same label."""
SWITCH_KINDS = frozenset({"2", "switch", "sw"})
OTHER_KINDS = frozenset({"1", "3", "ca", "hca", "host", "gpu", "computer", "router", "rt"})
MICROSECONDS_MIN, MICROSECONDS_MAX = 946_684_800 * 10**6, (1 << 32) * 10**6
"""From 2000 to 2106: what the CSV's column `timestamp` may hold."""
MEANINGS: dict[str, Counter] = {
    name.lower(): counter for name, counter in (COUNTERS | DISCARD_DETAILS).items()
}

RATIOS: dict[str, str] = {
    "totalrawber": "fabric_port_receive_fec_pre_bit_error_ratio",
    "rawber": "fabric_port_receive_fec_pre_bit_error_ratio",
    "effectiveber": "fabric_port_receive_fec_post_bit_error_ratio",
}
"""Error ratios by their names in small letters, without underscores."""

_GUID = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}")
_PORT = re.compile(r"[0-9]{1,3}")


class Number(NamedTuple):
    """A counter of a port as UFM has it."""

    counter: Counter | None
    """None for an error ratio."""
    raw: float
    is_wide: bool
    time_ns: int

    def reading(self, series: Series) -> Reading:
        if self.counter is not None:
            return read_counter(
                series, self.counter, self.raw, is_wide=self.is_wide, time_ns=self.time_ns
            )
        if 0 <= self.raw <= 1:
            return Sample(series, self.raw, self.time_ns)
        return Missing(series, UnreadReason.UNPARSEABLE, f"{self.raw!r} is no ratio")


class Row(NamedTuple):
    """One number of the page, with the labels that stand with it."""

    labels: Mapping[str, str]
    name: str
    raw: float
    time_ns: int


def meaning_of(name: str) -> tuple[Counter, bool] | None:
    """The counter that a name of UFM's stands for, and whether it has 64 bits.

    >>> meaning_of("PortXmitDataExtended")[1], meaning_of("LinkDownedCounter")[1]
    (True, False)
    """
    key = key_of(name).removesuffix("total")
    for ending in ("extended", "ext", ""):
        if key.endswith(ending) and key.removesuffix(ending) in MEANINGS:
            counter = MEANINGS[key.removesuffix(ending)]
            return counter, bool(ending) or counter.narrow.bits == 64  # noqa: PLR2004 - it is wide
    return None


def key_of(name: str) -> str:
    return name.lower().removeprefix("infiniband_").replace("_", "")


def metric_of(name: str) -> tuple[str, Counter | None, bool] | None:
    """The metric that a name of UFM's stands for, its counter, and whether it has 64 bits."""
    if (ratio := RATIOS.get(key_of(name))) is not None:
        return ratio, None, True
    meaning = meaning_of(name)
    return (meaning[0].metric, *meaning) if meaning is not None else None


def first_of(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def is_csv(page: bytes) -> bool:
    first = page.partition(b"\n")[0]
    return b"," in first and b"{" not in first and not first.startswith(b"#")


def read_csv(page: bytes, now_ns: int) -> Iterator[Row | ParseError]:
    """The numbers of a page in CSV: a line for each port, a column for each counter."""
    text = io.StringIO(page.decode("utf-8", "replace").replace("\0", ""))
    reader = csv.reader(text)
    try:
        header = [name.strip() for name in next(reader, [])]
        for line in reader:
            if len(line) != len(header):
                if any(line):
                    yield ParseError(f"line {reader.line_num}", "not as many as in the header")
                continue
            labels = dict(zip(header, line, strict=True))
            time_ns = csv_time(labels.get("timestamp", ""), now_ns)
            for name, word in labels.items():
                if word and metric_of(name):
                    try:
                        yield Row(labels, name, float(word), time_ns)
                    except ValueError:
                        yield ParseError(f"line {reader.line_num}", f"{name} is no number")
    except csv.Error as error:
        yield ParseError(f"line {reader.line_num}", str(error))


def csv_time(word: str, now_ns: int) -> int:
    """The time of a line, which UFM gives in microseconds; now where it does not."""
    if word.isascii() and word.isdigit() and len(word) <= len(str(MICROSECONDS_MAX)):
        microseconds = int(word)
        if MICROSECONDS_MIN <= microseconds < MICROSECONDS_MAX:
            return microseconds * 1000
    return now_ns


class Ufm:
    """UFM's page; it keeps the series of the ports on it."""

    def __init__(self, url: str, *, hcas: bool) -> None:
        self._url = url
        self._hcas = hcas
        self._texts: dict[bytes, Series] = {}
        self._nodes: dict[str, FabricNode] = {}
        self._series: dict[tuple[str, int, str], Series] = {}
        self._switches = Series("fabric_subnet_switches", {"through": "ufm"})
        self._broken = Series("fabric_subnet_broken_lines", {"through": "ufm"})
        self._left_out = Series("fabric_subnet_left_out")

    def read(self, host: Host, seconds: float, names: dict[str, str]) -> Iterator[Reading]:
        """Every counter of the page that the catalog knows; a port that it has twice comes once."""
        try:
            page = host.fetch(self._url, seconds)
        except HostError as error:
            yield Missing(self._switches, error.reason, f"{self._url}: {error.detail}")
            return
        now_ns = host.now_ns()
        ports, broken, left_out = self._sort(page, now_ns)
        self._name(names)
        switches = {guid for guid, _ in ports if self._nodes[guid].is_switch}
        yield Sample(self._switches, len(switches), now_ns)
        yield Sample(self._broken, broken, now_ns)
        yield Sample(self._left_out, left_out, now_ns)
        for guid in sorted(switches):
            info = self._nodes[guid].info
            assert info is not None
            yield Sample(info, 1, now_ns)
        for (guid, port), numbers in sorted(ports.items()):
            for metric, number in numbers.items():
                yield number.reading(self._find(guid, port, metric))

    def _sort(
        self, page: bytes, now_ns: int
    ) -> tuple[dict[tuple[str, int], dict[str, Number]], int, int]:
        """The page's numbers by port and metric; broken lines; series that were left out."""
        ports: dict[tuple[str, int], dict[str, Number]] = {}
        broken = left_out = 0
        self._nodes = {}
        rows = read_csv(page, now_ns) if is_csv(page) else self._read_text(page, now_ns)
        for row in rows:
            if isinstance(row, ParseError):
                broken += 1
                continue
            meaning, place = metric_of(row.name), self._place(row.labels)
            if meaning is None or place is None or len(ports) >= PORT_LINES_MAX:
                left_out += 1
                continue
            metric, counter, is_wide = meaning
            numbers = ports.setdefault(place, {})
            before = numbers.get(metric)
            left_out += before is not None
            if before is None or (is_wide and not before.is_wide):
                numbers[metric] = Number(counter, row.raw, is_wide, row.time_ns)
        return ports, broken, left_out

    def _read_text(self, page: bytes, now_ns: int) -> Iterator[Row | ParseError]:
        for line in parse_lines(1, page, now_ns, self._texts):
            if isinstance(line, ParseError):
                yield line
            else:
                yield Row(dict(line.series.labels), line.series.metric, line.value, line.time_ns)

    def _place(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """The node and port that labels name; None if they name none, or none that is wanted."""
        word, number = first_of(labels, GUID_LABELS), first_of(labels, PORT_LABELS)
        if not _GUID.fullmatch(word) or not _PORT.fullmatch(number):
            return None
        guid, port = guid_of(word), int(number)
        name, kind = (
            clean_name(first_of(labels, NAME_LABELS)),
            first_of(labels, KIND_LABELS).lower(),
        )
        # Where UFM does not report the kind: only an HCA's description has a host and a device in
        # it.
        is_switch = kind in SWITCH_KINDS or (kind not in OTHER_KINDS and " mlx" not in name)
        if not 0 < port <= PORT_MAX or not (is_switch or self._hcas):
            return None
        if guid not in self._nodes:
            self._nodes[guid] = FabricNode(guid, is_switch, description=name)
        return guid, port

    def _name(self, given: dict[str, str]) -> None:
        labelled = label_nodes(self._nodes.values(), given)
        for node in self._nodes.values():
            node.labels = labelled[node.guid]
            if node.is_switch:
                name = node.labels["host"]
                facts = {"method": "ufm", "guid": node.guid, "description": node.description}
                info = Series("fabric_switch_info", {"host": name, **facts})
                node.info = self._keep((node.guid, 0, info.metric), info)

    def _find(self, guid: str, port: int, metric: str) -> Series:
        labels = self._nodes[guid].labels | {"port": str(port)}
        known = self._series.get((guid, port, metric))
        if known is not None and all(item in known.labels for item in labels.items()):
            return known
        return self._keep((guid, port, metric), Series(metric, labels))

    def _keep(self, place: tuple[str, int, str], series: Series) -> Series:
        """The series that was here before, if it is the same."""
        if len(self._series) >= PORT_LINES_MAX * len(MEANINGS):
            self._series.clear()
        known = self._series.get(place)
        if known != series:
            known = self._series[place] = series
        return known
