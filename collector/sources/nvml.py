"""GPUs through NVIDIA's management library: load, clocks, heat, memory, NVLink, PCIe, errors, XIDs.

NVML is asked as little as possible: some dozen calls and one call for all fields of a GPU. A read
takes 12 ms of CPU per GPU (H200, driver 580; `tests/bench/gpu_read.py`), nearly all of it inside
the driver: 3.6 ms for the energy, 2.3 ms for GPM. What a GPU does not support is named as missing
and not asked for again for minutes. A GPU that has fallen off the bus hides none of the others.

With MIG the numbers are those of the whole GPU, where NVML still gives them; `fabric_gpu_info`
shows that it is on. Which collective waits is not in here: utilisation is 1 in a GPU that waits.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.host import Host
from collector.doors.nvml import (
    EVENT_TYPES,
    LOST,
    NO_DATA,
    NOT_READY,
    NOT_SUPPORTED,
    Facts,
    Nvml,
    NvmlError,
)
from collector.reading.sysfs import read_pci_path
from collector.sources import SourceSettings
from collector.tables.nvml import (
    FABRIC_COMPLETED,
    FABRIC_CONDITIONS,
    FEC_BLOCKS,
    FEC_GROUPS,
    FEC_SECONDS,
    FIELDS,
    LINK_COUNT,
    LINK_FIELDS,
    LINK_STATE,
    LINK_STATES_UP,
    LINK_TOTALS,
    QUESTIONS,
    STEADY_QUESTIONS,
    Field,
    FieldKey,
    Labels,
    Question,
    explain_xid,
    unpack_ratio,
)

LOOK_SECONDS = 300
"""How long a refusal, a name, a limit is believed. A driver that is updated, a GPU that is reset
and MIG that is switched on change them; each comes with minutes of absence."""
GPUS_MAX = 64
"""GPUs of a host: the largest machines have 16. A larger count is a broken answer."""
LINKS_MAX = 64
"""NVLinks of a GPU: 18 in Blackwell; 64 leaves room for two more generations."""
PROCESSES_MAX = 64
"""Processes of a GPU that become series of their own. A training rank is one process; inference
with many small ones shares a GPU between dozens. The rest is counted."""
XIDS_MAX = 256
"""Different XIDs of a GPU that are counted one by one: NVIDIA's catalogue has fewer than 200."""

PCI_CHARACTERS = len("0000:00:00.0")
"""Of an address as the kernel writes it; NVML writes the domain with eight digits."""
INFO = "fabric_gpu_info"


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `nvml`."""

    per_link: bool = True
    """Also bytes, errors and state of each NVLink: about 150 series for a GPU of 18 links."""
    processes: bool = True
    """Also which process computes on which GPU; joins a rank to its GPU."""


class Gpu:
    """One GPU: its series, and the calls that it has refused."""

    def __init__(self, index: int, settings: Settings) -> None:
        self._index = index
        self._settings = settings
        self._labels = {"gpu": str(index)}
        self._info = Series(INFO, self._labels)
        self._look_ns = 0
        self._steady: list[tuple[Series, float | NvmlError]] = []
        self._refused: dict[tuple[str, tuple[int, ...]], NvmlError] = {}
        self._links = 0
        self._plan: list[tuple[FieldKey, Field, Series]] = []
        self._plan_missing: list[Missing] = []
        self._has_fec = False
        self._fec: list[tuple[Series, float | NvmlError]] = []
        self._fec_ns = 0
        self._series_of: dict[tuple[str, Labels], Series] = {}
        self._process_series: dict[str, tuple[Series, Series]] = {}
        self._xid_last = 0
        self._xid_counts: dict[int, int] = {}

    def read(self, nvml: Nvml, host: Host) -> Iterator[Reading]:
        """Everything about this GPU; if it is lost, that and nothing else."""
        try:
            if host.monotonic_ns() >= self._look_ns:
                self._look(nvml, host)
                self._look_ns = host.monotonic_ns() + LOOK_SECONDS * NS
            readings = list(self._read(nvml, host.now_ns()))
            if self._has_fec and host.monotonic_ns() >= self._fec_ns:
                self._fec = list(self._read_fec(nvml))
                self._fec_ns = host.monotonic_ns() + FEC_SECONDS * NS
            readings += [reading_of(*each, host.now_ns()) for each in self._fec]
        except NvmlError as error:
            self._look_ns = 0
            yield Sample(self._series("fabric_gpu_up"), 0, host.now_ns())
            yield Missing(self._info, error.reason, error.detail)
            return
        yield from readings

    def note_xid(self, number: int, time_ns: int) -> Event:
        self._xid_last = number
        if number in self._xid_counts or len(self._xid_counts) < XIDS_MAX:
            self._xid_counts[number] = self._xid_counts.get(number, 0) + 1
        return Event(
            kind="gpu_xid",
            time_ns=time_ns,
            labels=dict(self._labels),
            attributes={"xid": str(number)},
            message=f"GPU {self._index}: {explain_xid(number)}.",
        )

    def read_xids(self, time_ns: int) -> Iterator[Sample]:
        yield Sample(self._series("fabric_gpu_xid_last"), self._xid_last, time_ns)
        for number, count in sorted(self._xid_counts.items()):
            series = self._series("fabric_gpu_xid_errors_total", (("xid", str(number)),))
            yield Sample(series, count, time_ns)

    def miss_xids(self, refusal: NvmlError) -> Missing:
        """The absence of XIDs where the driver does not report them."""
        return Missing(self._series("fabric_gpu_xid_last"), refusal.reason, refusal.detail)

    # Names, limits and support -------------------------------------------------------------------

    def _look(self, nvml: Nvml, host: Host) -> None:
        """Names, limits and what is supported; series stay the same unless a name changed."""
        self._refused = {}
        labels = {"gpu": str(self._index), "uuid": self._text(nvml, "uuid")}
        if labels != self._labels:
            self._labels, self._series_of = labels, {}
        facts = labels | self._describe(nvml, host)
        if self._info.labels != Series(INFO, facts).labels:
            self._info = Series(INFO, facts)
        self._steady = []
        for question in STEADY_QUESTIONS:
            answer = self._ask(nvml, question.call, *question.arguments)
            for part in question.parts:
                series = self._series(part.metric, part.labels)
                number = number_of(answer, part.name)
                self._steady.append((series, scale(number, part.factor)))
        self._links = self._count_links(nvml)
        self._make_plan(nvml)

    def _describe(self, nvml: Nvml, host: Host) -> dict[str, str]:
        bus_id = self._text(nvml, "pci", "bus_id").lower()
        fabric = self._ask(nvml, "fabric")
        mig = number_of(self._ask(nvml, "mig_mode"), "current")
        return {
            "model": self._text(nvml, "name"),
            "pci_bus_id": bus_id,
            "pci_path": read_pci_path(host, f"sys/bus/pci/devices/{bus_id[-PCI_CHARACTERS:]}"),
            "vbios": self._text(nvml, "vbios"),
            "driver": text_of(ask_system(nvml, "driver")),
            "cuda": cuda_version(ask_system(nvml, "cuda")),
            "mig": "" if isinstance(mig, NvmlError) else ("on" if mig else "off"),
            **nvlink_domain(fabric),
        }

    def _count_links(self, nvml: Nvml) -> int:
        (count,) = self._fields(nvml, [LINK_COUNT])
        return 0 if isinstance(count, NvmlError) else max(0, min(int(count), LINKS_MAX))

    def _make_plan(self, nvml: Nvml) -> None:
        """Decide which fields to ask for from now on, and name those that are refused."""
        candidates: dict[Series, list[tuple[FieldKey, Field]]] = {}
        for field in FIELDS:
            series = self._series(field.metric, field.labels)
            candidates.setdefault(series, []).append(((field.number, 0), field))
        for field in self._link_fields():
            for link, series in enumerate(self._series_of_links(field)):
                candidates.setdefault(series, []).append(((field.number, link), field))
        keys = [key for each in candidates.values() for key, _ in each]
        answers = dict(zip(keys, self._fields(nvml, keys), strict=True))
        self._plan, refused = [], {}
        for series, each in candidates.items():
            usable = [(key, field) for key, field in each if not is_refusal(answers[key])]
            if usable:
                self._plan.append((*usable[0], series))
            else:
                refused[series] = answers[each[0][0]]
        self._plan_missing = [*self._name_refused(refused), *self._look_for_fec(nvml)]

    def _look_for_fec(self, nvml: Nvml) -> Iterator[Missing]:
        """Whether links have a history of error correction, by one number of its hundreds."""
        self._has_fec = False
        if self._settings.per_link and self._links:
            (first,) = self._fields(nvml, [(FEC_GROUPS["0"][0], 0)])
            self._has_fec = not is_refusal(first)
            if isinstance(first, NvmlError) and not self._has_fec:
                self._fec = []
                yield Missing(self._series(FEC_BLOCKS), first.reason, first.detail)

    def _name_refused(self, refused: dict[Series, float | NvmlError]) -> list[Missing]:
        """An absence for each; one, not eighteen, for what none of the links has."""
        for field in self._link_fields():
            series = self._series_of_links(field)
            if series and all(each in refused for each in series):
                errors = [refused.pop(each) for each in series]
                refused[self._series(field.metric, field.labels)] = errors[0]
        return [
            Missing(series, error.reason, error.detail)
            for series, error in refused.items()
            if isinstance(error, NvmlError)
        ]

    # Reading it ------------------------------------------------------------------------------

    def _read(self, nvml: Nvml, time_ns: int) -> Iterator[Reading]:
        yield Sample(self._series("fabric_gpu_up"), 1, time_ns)
        yield Sample(self._info, 1, time_ns)
        for question in QUESTIONS:
            yield from self._read_question(nvml, question, time_ns)
        for series, answer in self._steady:
            yield reading_of(series, answer, time_ns)
        yield from self._read_fabric(nvml, time_ns)
        yield from self._read_fields(nvml, time_ns)
        if self._settings.processes:
            yield from self._read_processes(nvml, time_ns)

    def _read_question(self, nvml: Nvml, question: Question, time_ns: int) -> Iterator[Reading]:
        answer = self._ask(nvml, question.call, *question.arguments)
        if isinstance(answer, NvmlError) and answer.code == NOT_READY:
            return  # the first of two samples was taken just now
        for part in question.parts:
            series = self._series(part.metric, part.labels)
            number = number_of(answer, part.name)
            yield reading_of(series, scale(number, part.factor), time_ns)

    def _read_fabric(self, nvml: Nvml, time_ns: int) -> Iterator[Reading]:
        """The NVLink domain beyond this host: whether it is ready, and what is wrong with it."""
        answer = self._ask(nvml, "fabric")
        state = number_of(answer, "state")
        yield reading_of(self._series("fabric_gpu_fabric_state"), state, time_ns)
        if state == FABRIC_COMPLETED:  # before that it has no meaning
            status = number_of(answer, "status")
            yield reading_of(self._series("fabric_gpu_fabric_status"), status, time_ns)
        health = number_of(answer, "health")
        if isinstance(health, NvmlError):
            return
        yield Sample(self._series("fabric_gpu_fabric_health"), health, time_ns)
        for name, condition in FABRIC_CONDITIONS.items():
            is_so = condition.judge(int(health))
            if is_so is not None:
                series = self._series("fabric_gpu_fabric_unhealthy", (("condition", name),))
                yield Sample(series, int(is_so), time_ns)

    def _read_fields(self, nvml: Nvml, time_ns: int) -> Iterator[Reading]:
        answers = self._fields(nvml, [key for key, _, _ in self._plan])
        links: dict[str, list[float | NvmlError]] = {}
        for (_, field, series), answer in zip(self._plan, answers, strict=True):
            value = decode_field(field, answer)
            is_link = len(series.labels) > len(self._labels) + len(field.labels)
            if is_link and field.metric in LINK_TOTALS:
                links.setdefault(field.metric, []).append(value)
            if self._settings.per_link or not is_link:
                yield reading_of(series, value, time_ns)
        for metric, values in links.items():
            yield reading_of(self._series(LINK_TOTALS[metric]), total_of(values), time_ns)
        yield from self._plan_missing

    def _read_fec(self, nvml: Nvml) -> Iterator[tuple[Series, float | NvmlError]]:
        """How many blocks of each link were received with how many wrong symbols."""
        numbers = [number for group in FEC_GROUPS.values() for number in group]
        for link in range(self._links):
            answers = self._fields(nvml, [(number, link) for number in numbers])
            by_number = dict(zip(numbers, answers, strict=True))
            for words, group in FEC_GROUPS.items():
                labels = (("link", str(link)), ("symbol_errors", words))
                whole = total_of([by_number[number] for number in group])
                yield self._series(FEC_BLOCKS, labels), whole

    def _read_processes(self, nvml: Nvml, time_ns: int) -> Iterator[Reading]:
        count = self._series("fabric_gpu_processes")
        refusal = self._refused.get(("processes", ()))
        try:
            if refusal:
                raise refusal
            found = nvml.processes(self._index)
        except NvmlError as error:
            self._remember(error, "processes")
            yield Missing(count, error.reason, error.detail)
            return
        yield Sample(count, len(found), time_ns)
        left_out = max(0, len(found) - PROCESSES_MAX)
        yield Sample(self._series("fabric_gpu_processes_left_out"), left_out, time_ns)
        shown = {text_of(each, "pid"): each for each in found[:PROCESSES_MAX]}
        # Of processes that have ended nothing is kept.
        self._process_series = {
            pid: self._process_series.get(pid) or self._make_process_series(pid) for pid in shown
        }
        for pid, process in shown.items():
            info, memory = self._process_series[pid]
            yield Sample(info, 1, time_ns)
            yield reading_of(memory, number_of(process, "used"), time_ns)

    def _make_process_series(self, pid: str) -> tuple[Series, Series]:
        labels = {**self._labels, "pid": pid}
        return (
            Series("fabric_gpu_process_info", labels),
            Series("fabric_gpu_process_memory_used_bytes", labels),
        )

    # Asking it -------------------------------------------------------------------------------

    def _ask(self, nvml: Nvml, call: str, *arguments: int) -> Facts | NvmlError:
        """The answer or its refusal; what was refused before is not asked."""
        if refusal := self._refused.get((call, arguments)):
            return refusal
        try:
            return nvml.ask(call, self._index, *arguments)
        except NvmlError as error:
            self._remember(error, call, *arguments)
            return error

    def _remember(self, error: NvmlError, call: str, *arguments: int) -> None:
        """Keep a refusal until the next look; raise it if the whole GPU is lost."""
        if error.code in LOST:
            raise error
        if error.reason is UnreadReason.NOT_SUPPORTED:
            self._refused[call, arguments] = error

    def _fields(self, nvml: Nvml, keys: list[FieldKey]) -> list[float | NvmlError]:
        if not keys:
            return []
        try:
            answers = nvml.fields(self._index, keys)
        except NvmlError as error:
            if error.code in LOST:
                raise
            return [error] * len(keys)
        for answer in answers:
            if isinstance(answer, NvmlError) and answer.code in LOST:
                raise answer
        return answers

    def _text(self, nvml: Nvml, call: str, name: str = "value") -> str:
        return text_of(self._ask(nvml, call), name)

    def _series(self, metric: str, labels: Labels = ()) -> Series:
        key = metric, labels
        if key not in self._series_of:
            self._series_of[key] = Series(metric, self._labels | dict(labels))
        return self._series_of[key]

    def _link_fields(self) -> list[Field]:
        """The fields to ask of each link: all, or only those that are summed."""
        is_wanted = self._settings.per_link
        return [field for field in LINK_FIELDS if is_wanted or field.metric in LINK_TOTALS]

    def _series_of_links(self, field: Field) -> list[Series]:
        return [
            self._series(field.metric, (*field.labels, ("link", str(link))))
            for link in range(self._links)
        ]


class NvmlSource:
    """The source; it keeps one `Gpu` for each that was ever seen."""

    name: ClassVar[str] = "nvml"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._gpus: list[Gpu] = []

    def read(self, host: Host) -> Iterator[Reading]:
        try:
            nvml = host.nvml()
            count = number_of(nvml.ask_system("count"), "value")
        except HostError as error:
            if error.reason is UnreadReason.ABSENT:
                return
            raise
        if isinstance(count, NvmlError):
            raise count
        while len(self._gpus) < min(int(count), GPUS_MAX):
            self._gpus.append(Gpu(len(self._gpus), self._settings))
        for gpu in self._gpus:
            yield from gpu.read(nvml, host)
        yield from self._read_events(nvml, host)

    def _read_events(self, nvml: Nvml, host: Host) -> Iterator[Reading]:
        time_ns = host.now_ns()
        try:
            events = nvml.events()
        except NvmlError as error:
            yield from (gpu.miss_xids(error) for gpu in self._gpus)
            return
        for event in events:
            number, index = number_of(event, "data"), number_of(event, "gpu")
            if event.get("type") != EVENT_TYPES or isinstance(number, NvmlError):
                continue
            if isinstance(index, NvmlError) or not 0 <= index < len(self._gpus):
                yield unknown_gpu_xid(int(number), time_ns)
            else:
                yield self._gpus[int(index)].note_xid(int(number), time_ns)
        for gpu in self._gpus:
            yield from gpu.read_xids(time_ns)


SOURCE = NvmlSource


# --- pure: answers and readings ------------------------------------------------------------------


def number_of(answer: Facts | NvmlError, name: str) -> float | NvmlError:
    if isinstance(answer, NvmlError):
        return answer
    number = answer.get(name)
    if isinstance(number, int | float):
        return number
    return NvmlError(NOT_SUPPORTED if number is None else NO_DATA, f"nvml/{name}")


def text_of(answer: Facts | NvmlError, name: str = "value") -> str:
    """The text of this name in an answer, as a label; empty if there is none."""
    return "" if isinstance(answer, NvmlError) else str(answer.get(name, ""))


def reading_of(series: Series, answer: float | NvmlError, time_ns: int) -> Reading:
    if isinstance(answer, NvmlError):
        return Missing(series, answer.reason, answer.detail)
    return Sample(series, answer, time_ns)


def scale(answer: float | NvmlError, factor: float) -> float | NvmlError:
    return answer if isinstance(answer, NvmlError) else answer * factor


def total_of(answers: Sequence[float | NvmlError]) -> float | NvmlError:
    """The sum, or the first refusal: a sum without a part would look like a counter's reset."""
    refusal = next((each for each in answers if isinstance(each, NvmlError)), None)
    return refusal or sum(each for each in answers if not isinstance(each, NvmlError))


def decode_field(field: Field, answer: float | NvmlError) -> float | NvmlError:
    """A field's number in base units."""
    if isinstance(answer, NvmlError):
        return answer
    if field.number == LINK_STATE:
        return int(answer in LINK_STATES_UP)
    if field.is_packed_ratio:
        return unpack_ratio(int(answer))
    return answer * field.factor


def is_refusal(answer: float | NvmlError) -> bool:
    """Whether the GPU does not have this at all; other errors may pass."""
    return isinstance(answer, NvmlError) and answer.reason is UnreadReason.NOT_SUPPORTED


def ask_system(nvml: Nvml, call: str) -> Facts | NvmlError:
    try:
        return nvml.ask_system(call)
    except NvmlError as error:
        return error


def cuda_version(answer: Facts | NvmlError) -> str:
    """The newest CUDA that the driver can run, as people write it.

    >>> cuda_version({"value": 13000}), cuda_version({"value": 12080})
    ('13.0', '12.8')
    """
    number = number_of(answer, "value")
    if isinstance(number, NvmlError):
        return ""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def nvlink_domain(fabric: Facts | NvmlError) -> dict[str, str]:
    """The NVLink domain and clique, which reach each other over NVLink; empty if there is none."""
    cluster = text_of(fabric, "cluster")
    if number_of(fabric, "state") != FABRIC_COMPLETED or not cluster.strip("0"):
        return {}
    try:
        domain = str(uuid.UUID(hex=cluster))
    except ValueError:
        return {}
    return {"nvlink_domain": domain, "clique": text_of(fabric, "clique")}


def unknown_gpu_xid(number: int, time_ns: int) -> Event:
    """The event of an XID when NVML no longer knows its GPU."""
    return Event(
        kind="gpu_xid",
        time_ns=time_ns,
        labels={},
        attributes={"xid": str(number)},
        message=f"A GPU that NVML does not name: {explain_xid(number)}.",
    )
