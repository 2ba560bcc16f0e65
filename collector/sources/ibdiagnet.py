"""What NVIDIA's ibdiagnet has found, from the files that it leaves behind.

Run it yourself (`ibdiagnet -r --get_cable_info --get_phy_info`, from cron or by UFM) and set
`folders`. It measures what no counter shows from outside: bit error ratios of both ends before and
after correction, cables, credit loops of the routes. Its counters are not read: `ib_fabric` reads
the same ones, and more often. A result that is old is not reported as if it were of now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.host import Host
from collector.parsing.ibdiagnet import (
    ROWS_MAX,
    Bits,
    Cable,
    Node,
    Summary,
    parse_db_csv,
    parse_log,
    parse_net_dump_ext,
)
from collector.reading.infiniband import FabricNode, label_nodes
from collector.reading.whole_files import WholeFile, WholeFiles
from collector.sources import SourceSettings

FILE_BYTES_MAX = 256 << 20
"""Of one file. A db_csv of 10,000 ports has some 40 MB."""
BITS, DATABASE, LOG = "ibdiagnet2.net_dump_ext", "ibdiagnet2.db_csv", "ibdiagnet2.log"
NAMES = (BITS, DATABASE, LOG)

LOOPS = "fabric_subnet_credit_loops"
BROKEN = "fabric_subnet_check_broken_lines"
PRE = "fabric_port_receive_fec_pre_bit_error_ratio"
POST = "fabric_port_receive_fec_post_bit_error_ratio"
CELSIUS = "fabric_port_module_temperature_celsius"


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `ibdiagnet`."""

    interval_seconds: float = 60.0
    timeout_seconds: float = 20.0
    folders: tuple[str, ...] = ()
    """Where ibdiagnet writes: `/var/tmp/ibdiagnet2`, or a pattern."""
    old_seconds: float = 7200.0
    """A file that was written longer ago is no news: its numbers are missing."""
    hcas: bool = False
    """Report ports of HCAs too, for hosts without an agent."""


class IbDiagnet:
    """The source; it keeps what the files held until they are written again."""

    name: ClassVar[str] = "ibdiagnet"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._files = WholeFiles(settings.folders, NAMES, bytes_max=FILE_BYTES_MAX)
        self._changed_ns: dict[str, int] = {}
        self._bits: list[Bits] = []
        self._nodes: dict[str, Node] = {}
        self._cables: list[Cable] = []
        self._summary: Summary | None = None
        self._broken = 0
        self._labels: dict[str, dict[str, str]] = {}
        self._series: dict[tuple[Any, ...], Series] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        """What the files hold, as long as they are young."""
        if not self._settings.folders:
            return
        for file in self._files.poll(host):
            if isinstance(file, HostError):
                yield Missing(self._find(LOOPS), file.reason, f"{file.path}: {file.detail}")
            else:
                self._take(file)
        now_ns = host.now_ns()
        if not self._changed_ns:
            detail = f"no {LOG} in {', '.join(self._settings.folders)}: run ibdiagnet"
            yield Missing(self._find(LOOPS), UnreadReason.ABSENT, detail)
            return
        oldest_ns = now_ns - int(self._settings.old_seconds * NS)
        young = {name for name, changed in self._changed_ns.items() if changed >= oldest_ns}
        if BITS in young:
            yield from self._read_bits(now_ns)
        if DATABASE in young:
            yield from self._read_cables(now_ns)
        yield from self._read_checks(now_ns, is_young=LOG in young)

    def _take(self, file: WholeFile) -> None:
        """A file that is new; of several folders the one that was written last counts."""
        if file.changed_ns < self._changed_ns.get(file.name, 0):
            return
        self._changed_ns[file.name] = file.changed_ns
        if file.name == BITS:
            self._bits, self._broken = parse_net_dump_ext(file.data)
        elif file.name == DATABASE:
            self._nodes, self._cables = parse_db_csv(file.data)
        else:
            self._summary = parse_log(file.data)
        known = self._nodes | {bits.node.guid: bits.node for bits in self._bits}
        nodes = [
            FabricNode(one.guid, one.is_switch, description=one.name) for one in known.values()
        ]
        wanted = [node for node in nodes if node.is_switch or self._settings.hcas]
        self._labels = label_nodes(wanted, {})
        self._series.clear()

    def _read_bits(self, time_ns: int) -> Iterator[Reading]:
        yield Sample(self._find(BROKEN), self._broken, time_ns)
        for one in {(each.node.guid, each.port): each for each in self._bits}.values():
            for metric, ratio in ((PRE, one.raw), (POST, one.effective)):
                series = self._find_port(metric, one.node.guid, one.port)
                if series is not None and ratio is not None:
                    yield Sample(series, ratio, time_ns)

    def _read_cables(self, time_ns: int) -> Iterator[Reading]:
        for one in {(each.guid, each.port): each for each in self._cables}.values():
            facts = {
                "vendor": one.vendor,
                "part_number": one.part,
                "serial_number": one.serial,
                "revision": one.revision,
            }
            info = self._find_port("fabric_port_cable_info", one.guid, one.port, facts)
            if info is not None and any(facts.values()):
                yield Sample(info, 1, time_ns)
            heat = self._find_port(CELSIUS, one.guid, one.port)
            if heat is not None and one.celsius is not None:
                yield Sample(heat, one.celsius, time_ns)

    def _read_checks(self, time_ns: int, *, is_young: bool) -> Iterator[Reading]:
        summary = self._summary
        if summary is None or not is_young:
            limit = f"old_seconds = {self._settings.old_seconds:g}"
            why = f"{LOG} is older than {limit}" if summary else f"there is no {LOG}"
            yield Missing(self._find(LOOPS), UnreadReason.ABSENT, f"{why}: run ibdiagnet")
            return
        if summary.has_credit_loops is None:
            detail = "the log has no report of credit loops: run ibdiagnet -r"
            yield Missing(self._find(LOOPS), UnreadReason.ABSENT, detail)
        else:
            yield Sample(self._find(LOOPS), int(summary.has_credit_loops), time_ns)
        for check in summary.checks:
            for metric, count in (("errors", check.errors), ("warnings", check.warnings)):
                name = f"fabric_subnet_check_{metric}"
                yield Sample(self._find(name, check=check.name), count, time_ns)

    def _find(self, metric: str, **labels: str) -> Series:
        return self._keep((metric, *labels.items()), metric, labels)

    def _find_port(
        self, metric: str, guid: str, port: int, facts: Mapping[str, str] | None = None
    ) -> Series | None:
        """The series of a port; None of a node that is not known, or not wanted."""
        own = self._labels.get(guid)
        if own is None:
            return None
        labels = own | {"port": str(port)} | dict(facts or {})
        return self._keep((metric, guid, port), metric, labels)

    def _keep(self, key: tuple[Any, ...], metric: str, labels: Mapping[str, str]) -> Series:
        if key not in self._series:
            if len(self._series) >= ROWS_MAX * 4:
                self._series.clear()
            self._series[key] = Series(metric, labels)
        return self._series[key]


SOURCE = IbDiagnet
