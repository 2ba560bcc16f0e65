"""How well the host's clock is kept: the kernel (adjtimex), chronyd, ptp4l and the NIC's clock.

Verdicts compare times of hosts. Detectors align clocks by collectives; this is the other witness,
and the only one of hosts that share no collective. A program is asked only where its socket or
folder is there: a host without chronyd or ptp4l starts none, and the absence is named. Offsets are
positive where the host's clock is ahead. Nothing is ever set.

`by` names the witness: `kernel`, `chrony` or `ptp4l`. All offsets but one are the system clock's:
where ptp4l steers the clock of a NIC, the system's is compared with that one here (phc2sys should
keep them together), and the two offsets are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from collector.contract.clocks import CHRONY, ERROR, KERNEL, OFFSET, PTP, SYNCHRONISED
from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.clocks import KernelClock
from collector.doors.host import Host
from collector.parsing.clocks import STEERED, PtpStatus, parse_pmc, parse_tracking
from collector.sources import SourceSettings

SOURCE_INFO = "fabric_host_clock_source_info"
PHC_OFFSET = "fabric_host_clock_phc_offset_seconds"
FREQUENCY = "fabric_host_clock_frequency_adjustment_ratio"
PROGRAM_SECONDS = 2.0
"""For one answer: chronyc takes some milliseconds, pmc waits a tenth of a second for more."""
COMPLAINT_CHARACTERS_MAX = 200
PMC_ASKS = (
    "GET TIME_STATUS_NP",
    "GET CURRENT_DATA_SET",
    "GET PORT_DATA_SET",
    "GET TIME_PROPERTIES_DATA_SET",
    "GET PORT_PROPERTIES_NP",
)
LABELS_KEPT_MAX = 64
"""Names of time servers that are remembered: servers of a pool change."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `clock`."""

    interval_seconds: float = 30.0
    """A clock's error changes slowly, and two programs are started for it."""
    timeout_seconds: float = 6.0
    chrony_folder: str = "/run/chrony"
    """Where chronyd keeps its socket; chronyc is started only where this is."""
    chrony_host: str = ""
    """chronyd's address or socket, as `chronyc -h` takes it; empty: as chronyc finds it. Its own
    socket wants root or chrony's user; the address 127.0.0.1 answers every user."""
    ptp_socket: str = "/run/ptp4l"
    """ptp4l's `uds_address`; pmc is started only where this is. pmc wants root."""


class Clock:
    """The source; it keeps its series."""

    name: ClassVar[str] = "clock"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._chrony_folder = settings.chrony_folder.strip("/")
        at = ("-h", settings.chrony_host) if settings.chrony_host else ()
        self._chrony_words = ("chronyc", "-c", "-n", *at, "tracking")
        self._ptp_socket = settings.ptp_socket
        self._made: dict[tuple[str, ...], Series] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        """What each witness says, or why it says nothing."""
        try:
            kernel = host.kernel_clock()
        except HostError as error:
            if error.reason is UnreadReason.ABSENT:
                return  # a captured tree of other things
            yield self._missing(KERNEL, error)
        else:
            yield from self._show_kernel(kernel, host.now_ns())
        yield from self._read_chrony(host)
        yield from self._read_ptp(host)

    def _show_kernel(self, clock: KernelClock, time_ns: int) -> Iterator[Reading]:
        yield self._sample(SYNCHRONISED, clock.is_synchronised, time_ns, by=KERNEL)
        yield self._sample(ERROR, clock.error_bound_s, time_ns, by=KERNEL)
        yield self._sample(FREQUENCY, clock.frequency_ratio, time_ns)

    def _read_chrony(self, host: Host) -> Iterator[Reading]:
        if not host.exists(self._chrony_folder):
            yield self._absent(CHRONY, f"there is no /{self._chrony_folder}: no chronyd runs here")
            return
        try:
            said = parse_tracking(self._ask(host, self._chrony_words))
        except HostError as error:
            yield self._missing(CHRONY, error)
            return
        except ValueError as error:
            yield self._odd(CHRONY, error)
            return
        time_ns = host.now_ns()
        yield self._sample(SYNCHRONISED, said.is_synchronised, time_ns, by=CHRONY)
        if said.is_synchronised:
            yield self._sample(OFFSET, said.ahead_s, time_ns, by=CHRONY)
            yield self._sample(ERROR, said.error_bound_s, time_ns, by=CHRONY)
        names = {"source": said.source, "state": f"stratum {said.stratum}"}
        yield self._sample(SOURCE_INFO, 1, time_ns, by=CHRONY, **names)

    def _read_ptp(self, host: Host) -> Iterator[Reading]:
        if not host.exists(self._ptp_socket.strip("/")):
            yield self._absent(PTP, f"there is no {self._ptp_socket}: no ptp4l runs here")
            return
        try:
            words = ("pmc", "-u", "-b", "0", "-s", self._ptp_socket, *PMC_ASKS)
            said = parse_pmc(self._ask(host, words))
        except HostError as error:
            yield self._missing(PTP, error)
            return
        except ValueError as error:
            yield self._odd(PTP, error)
            return
        if said is None:
            detail = f"ptp4l does not answer at {self._ptp_socket}"
            yield Missing(self._series(SYNCHRONISED, by=PTP), UnreadReason.UNREADABLE, detail)
            return
        yield from self._show_ptp(host, said)

    def _show_ptp(self, host: Host, said: PtpStatus) -> Iterator[Reading]:
        time_ns = host.now_ns()
        names = {"source": said.grandmaster, "state": said.state}
        yield self._sample(SOURCE_INFO, 1, time_ns, by=PTP, **names)
        if said.state not in {"MASTER", "GRAND_MASTER"}:
            yield self._sample(SYNCHRONISED, said.state == STEERED[0], time_ns, by=PTP)
        if said.ahead_s is None:
            return
        # The two ways of a path take nothing at least: unlike ones shift the answer by one delay
        # at most.
        ahead_s, unsure_s = said.ahead_s, abs(said.path_delay_s or 0.0)
        if said.is_hardware:
            try:
                phc = self._phc_of(host, said.interface)
                yield self._sample(PHC_OFFSET, ahead_s, time_ns, phc=phc)
                there = host.hardware_clock(phc)
            except HostError as error:
                yield Missing(self._series(OFFSET, by=PTP), error.reason, error.detail)
                return
            ahead_s += said.utc_offset_s - there.ahead_ns / NS
            unsure_s += there.took_ns / 2 / NS
        yield self._sample(OFFSET, ahead_s, time_ns, by=PTP)
        if said.path_delay_s is not None:
            yield self._sample(ERROR, abs(ahead_s) + unsure_s, time_ns, by=PTP)

    def _phc_of(self, host: Host, interface: str) -> str:
        """The clock of a NIC, by its interface; HostError where there is none."""
        folder = f"sys/class/net/{interface or 'unknown'}/device/ptp"
        names = [name for name in host.list(folder) if name.startswith("ptp")]
        if not names:
            raise HostError(UnreadReason.ABSENT, folder, "the NIC has no clock there")
        return names[0]

    def _ask(self, host: Host, words: tuple[str, ...]) -> bytes:
        """What a program answers; HostError where it does not."""
        output = host.run(words, PROGRAM_SECONDS)
        if output.is_cut:
            detail = f"no whole answer in {PROGRAM_SECONDS:g} s"
            raise HostError(UnreadReason.TIMEOUT, words[0], detail)
        if output.status:
            said = (output.text + output.complaints).decode("utf-8", "replace").strip()
            detail = said[:COMPLAINT_CHARACTERS_MAX] or f"it ended with {output.status}"
            raise HostError(UnreadReason.UNREADABLE, words[0], detail)
        return output.text

    # Readings ------------------------------------------------------------------------------------

    def _sample(self, metric: str, value: float, time_ns: int, **labels: str) -> Sample:
        return Sample(self._series(metric, **labels), float(value), time_ns)

    def _series(self, metric: str, **labels: str) -> Series:
        key = (metric, *labels.values())
        series = self._made.get(key)
        if series is None:
            if len(self._made) >= LABELS_KEPT_MAX:
                self._made.clear()
            series = self._made[key] = Series(metric, labels)
        return series

    def _missing(self, by: str, error: HostError) -> Missing:
        return Missing(self._series(SYNCHRONISED, by=by), error.reason, error.detail)

    def _absent(self, by: str, detail: str) -> Missing:
        return Missing(self._series(SYNCHRONISED, by=by), UnreadReason.ABSENT, detail)

    def _odd(self, by: str, error: ValueError) -> Missing:
        return Missing(self._series(SYNCHRONISED, by=by), UnreadReason.UNPARSEABLE, str(error))


SOURCE = Clock
