"""The door to NVIDIA's management library (NVML), and the replay of its recorded answers.

Sources ask through `Nvml`: every answer is plain data that JSON can hold, so that the answers of a
machine with GPUs can be kept in a file (`nvml/answers.json` of a captured tree) and replayed
elsewhere. Sources know the meaning and unit of a number.

Only calls that return at once are here. `nvmlDeviceGetPcieThroughput` is not: it blocks for 20 ms.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.tables.nvml import FieldKey

Facts = dict[str, float | str]
"""One answer: NVML's values by our short names; a single number is under ``value``."""
ALL_LINKS = 0xFFFFFFFF
EVENTS_MAX = 128
"""Events taken in one read. A GPU that fails reports some dozens; the rest comes with the next."""

# nvmlReturn_t, those with a meaning of their own here.
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
NO_DATA = 21
NOT_READY = 27

_WORDS = {
    UNINITIALIZED: "NVML is not initialised",
    INVALID_ARGUMENT: "this driver does not know it",
    NOT_SUPPORTED: "this GPU does not support it",
    4: "the agent may not read it",
    6: "not found",
    DRIVER_NOT_LOADED: "the driver is not loaded",
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not there",
    FUNCTION_NOT_FOUND: "this driver's library does not have the call",
    14: "the infoROM is corrupted",
    GPU_IS_LOST: "the GPU has fallen off the bus",
    RESET_REQUIRED: "the GPU needs a reset",
    17: "the operating system blocked the call",
    18: "library and kernel module are of different versions: reload the driver or reboot",
    19: "another process is using the GPU",
    NO_DATA: "no data",
    22: "not with a virtual GPU",
    25: "this driver has another version of the structure",
    26: "this driver no longer has it",
    NOT_READY: "not ready yet",
    28: "the GPU is not there",
    29: "not in this state of the GPU",
}
_UNSUPPORTED = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, 22, 25, 26})
_NO_DRIVER = frozenset({DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND})
_DEAD = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED})
LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED, 28})
"""After these the whole GPU is gone, not the one number that was asked for."""

GPM_METRICS = (1, 2, 3, 5, 10, 20, 21, 60, 61)
"""nvmlGpmMetricId_t: graphics, SM, occupancy, tensor, DRAM; then rates of PCIe and NVLink."""
EVENT_TYPES = 0x8
"""nvmlEventTypeXidCriticalError."""


class NvmlError(HostError):
    """NVML's refusal of one call; ``code`` is its nvmlReturn_t."""

    def __init__(self, code: int, path: str) -> None:
        words = _WORDS.get(code, "refused")
        super().__init__(reason_for(code), path, f"{words} (NVML error {code})")
        self.code = code


def reason_for(code: int) -> UnreadReason:
    """Why a reading is missing, from NVML's return code."""
    if code in _NO_DRIVER:
        return UnreadReason.ABSENT
    return UnreadReason.NOT_SUPPORTED if code in _UNSUPPORTED else UnreadReason.UNREADABLE


def answer_key(call: str, arguments: Sequence[int]) -> str:
    """The name of an answer in a recording.

    >>> answer_key("clock", (1,)), answer_key("uuid", ())
    ('clock 1', 'uuid')
    """
    return " ".join([call, *map(str, arguments)])


class Nvml(Protocol):
    """What NVML can be asked. Each refusal is an NvmlError."""

    def ask_system(self, call: str) -> Facts:
        """An answer about driver and library: a call of SYSTEM_CALLS."""
        ...

    def ask(self, call: str, gpu: int, *arguments: int) -> Facts:
        """An answer about one GPU: a call of CALLS, or ``gpm``.

        ``gpm`` measures from one call to the next; the first of a GPU is NOT_READY.
        """
        ...

    def fields(self, gpu: int, keys: Sequence[FieldKey]) -> list[float | NvmlError]:
        """A number or a refusal for each field, in order, by one call."""
        ...

    def processes(self, gpu: int) -> list[Facts]:
        """The processes that compute on a GPU: ``pid``, and ``used`` bytes where known."""
        ...

    def events(self) -> list[Facts]:
        """What happened since the last call: ``gpu`` (-1 if unknown), ``type`` and ``data``."""
        ...


# --- the machine itself --------------------------------------------------------------------------

_Ask = Callable[..., Facts]


def _single(function: str) -> _Ask:
    """A call whose answer is one number or text."""

    def ask(library: Any, handle: Any, *arguments: int) -> Facts:  # noqa: ANN401 - untyped library
        return {"value": getattr(library, function)(handle, *arguments)}

    return ask


def _struct(function: str, **names: str) -> _Ask:
    """A call whose answer is a structure: our names for some of its members."""

    def ask(library: Any, handle: Any, *arguments: int) -> Facts:  # noqa: ANN401 - untyped library
        answer = getattr(library, function)(handle, *arguments)
        return {ours: getattr(answer, theirs) for ours, theirs in names.items()}

    return ask


def _memory(library: Any, handle: Any) -> Facts:  # noqa: ANN401 - untyped library
    # Only the second version keeps what the driver reserves apart from what jobs use.
    info = library.nvmlDeviceGetMemoryInfo(handle, version=library.nvmlMemory_v2)
    return {name: getattr(info, name) for name in ("total", "free", "used", "reserved")}


def _temperature(library: Any, handle: Any) -> Facts:  # noqa: ANN401 - untyped library
    # The older call goes away with CUDA 14; drivers before 565 do not have the newer one.
    try:
        return {"value": library.nvmlDeviceGetTemperatureV(handle, 0)}
    except (AttributeError, library.NVMLError):
        return {"value": library.nvmlDeviceGetTemperature(handle, 0)}


def _clock_event_reasons(library: Any, handle: Any) -> Facts:  # noqa: ANN401 - untyped library
    try:
        return {"value": library.nvmlDeviceGetCurrentClocksEventReasons(handle)}
    except library.NVMLError_FunctionNotFound:  # its name before driver 535
        return {"value": library.nvmlDeviceGetCurrentClocksThrottleReasons(handle)}


def _mig_mode(library: Any, handle: Any) -> Facts:  # noqa: ANN401 - untyped library
    current, pending = library.nvmlDeviceGetMigMode(handle)
    return {"current": current, "pending": pending}


def _fabric(library: Any, handle: Any) -> Facts:  # noqa: ANN401 - untyped library
    info = library.c_nvmlGpuFabricInfoV_t()
    library.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return {
        "cluster": bytes(info.clusterUuid).hex(),
        "clique": info.cliqueId,
        "state": info.state,
        "status": info.status,
        "health": info.healthMask,
    }


CALLS: dict[str, _Ask] = {
    "uuid": _single("nvmlDeviceGetUUID"),
    "name": _single("nvmlDeviceGetName"),
    "pci": _struct("nvmlDeviceGetPciInfo", bus_id="busId"),
    "vbios": _single("nvmlDeviceGetVbiosVersion"),
    "mig_mode": _mig_mode,
    "fabric": _fabric,
    "utilization": _struct("nvmlDeviceGetUtilizationRates", gpu="gpu", memory="memory"),
    "memory": _memory,
    "clock": _single("nvmlDeviceGetClockInfo"),
    "max_clock": _single("nvmlDeviceGetMaxClockInfo"),
    "performance_state": _single("nvmlDeviceGetPerformanceState"),
    "clock_event_reasons": _clock_event_reasons,
    "power": _single("nvmlDeviceGetPowerUsage"),
    "power_limit": _single("nvmlDeviceGetEnforcedPowerLimit"),
    "temperature": _temperature,
    "temperature_margin": _single("nvmlDeviceGetMarginTemperature"),
    "temperature_threshold": _single("nvmlDeviceGetTemperatureThreshold"),
    "pcie_generation": _single("nvmlDeviceGetCurrPcieLinkGeneration"),
    "pcie_generation_max": _single("nvmlDeviceGetMaxPcieLinkGeneration"),
    "pcie_width": _single("nvmlDeviceGetCurrPcieLinkWidth"),
    "pcie_width_max": _single("nvmlDeviceGetMaxPcieLinkWidth"),
    "row_remapper": _struct(
        "nvmlDeviceGetRowRemapperHistogram",
        max="max",
        high="high",
        partial="partial",
        low="low",
        none="none",
    ),
}

SYSTEM_CALLS: dict[str, str] = {
    "count": "nvmlDeviceGetCount",
    "driver": "nvmlSystemGetDriverVersion",
    "cuda": "nvmlSystemGetCudaDriverVersion_v2",
}

_UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Which member of a field's value holds it, by nvmlValueType_t."""


class LiveNvml:
    """NVML of this machine, for one thread. Raises NvmlError without driver, library or binding."""

    def __init__(self) -> None:
        self.is_dead = False
        """The driver was unloaded: the holder must make another."""
        self._handles: dict[int, Any] = {}
        self._samples: dict[int, tuple[Any, Any]] = {}
        self._event_set: Any = None
        try:
            # By name, when it is first needed: of no use on a host without GPUs.
            self._library: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise NvmlError(LIBRARY_NOT_FOUND, "nvml: nvidia-ml-py") from error
        self._guard("init", "nvmlInit")

    def close(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self._guard("shutdown", "nvmlShutdown")

    def ask_system(self, call: str) -> Facts:
        return {"value": self._guard(call, SYSTEM_CALLS[call])}

    def ask(self, call: str, gpu: int, *arguments: int) -> Facts:
        path = f"{gpu}/{answer_key(call, arguments)}"
        handle = self._handle(gpu)
        answer: Facts = (
            self._guard(path, self._gpm, gpu, handle)
            if call == "gpm"
            else self._guard(path, CALLS[call], self._library, handle, *arguments)
        )
        return answer

    def fields(self, gpu: int, keys: Sequence[FieldKey]) -> list[float | NvmlError]:
        handle = self._handle(gpu)
        values = self._guard(f"{gpu}/fields", "nvmlDeviceGetFieldValues", handle, keys)
        answers: list[float | NvmlError] = []
        for each in values:
            if each.nvmlReturn or each.valueType >= len(_UNION_MEMBERS):
                code = each.nvmlReturn or INVALID_ARGUMENT
                answers.append(NvmlError(code, f"{gpu}/field {each.fieldId} {each.scopeId}"))
            else:
                answers.append(getattr(each.value, _UNION_MEMBERS[each.valueType]))
        return answers

    def processes(self, gpu: int) -> list[Facts]:
        handle = self._handle(gpu)
        call = "nvmlDeviceGetComputeRunningProcesses"
        found = self._guard(f"{gpu}/processes", call, handle)
        # The library gives no number where another user's memory may not be seen (MIG, containers).
        return [
            {"pid": each.pid}
            if each.usedGpuMemory is None
            else {"pid": each.pid, "used": each.usedGpuMemory}
            for each in found
        ]

    def events(self) -> list[Facts]:
        if self._event_set is None:
            self._register_events()
        by_handle = {_address(handle): gpu for gpu, handle in self._handles.items()}
        found: list[Facts] = []
        while len(found) < EVENTS_MAX:
            try:
                event = self._guard("events", "nvmlEventSetWait_v2", self._event_set, 0)
            except NvmlError as error:
                if error.code == TIMEOUT:
                    break
                raise
            gpu = by_handle.get(_address(event.device), -1)
            found.append({"gpu": gpu, "type": event.eventType, "data": event.eventData})
        return found

    def _register_events(self) -> None:
        """Register for events of every GPU that has them; raises the last refusal if none does."""
        call = "nvmlDeviceRegisterEvents"
        events = self._guard("events", "nvmlEventSetCreate")
        refusals: list[NvmlError] = []
        count = int(self.ask_system("count")["value"])
        for gpu in range(count):
            try:
                self._guard(f"{gpu}/events", call, self._handle(gpu), EVENT_TYPES, events)
            except NvmlError as error:
                refusals.append(error)
        if refusals and len(refusals) == count:
            self._guard("events", "nvmlEventSetFree", events)
            raise refusals[-1]
        self._event_set = events

    def _handle(self, gpu: int) -> Any:  # noqa: ANN401 - untyped library
        if gpu not in self._handles:
            path = f"{gpu}/handle"
            self._handles[gpu] = self._guard(path, "nvmlDeviceGetHandleByIndex", gpu)
        return self._handles[gpu]

    def _gpm(self, gpu: int, handle: Any) -> Facts:  # noqa: ANN401 - untyped library
        """The means between the last sample and a new one; two buffers take turns."""
        library = self._library
        if gpu not in self._samples:
            if not library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                raise NvmlError(NOT_SUPPORTED, f"{gpu}/gpm")
            first = library.nvmlGpmSampleGet(handle, library.nvmlGpmSampleAlloc())
            self._samples[gpu] = first, library.nvmlGpmSampleAlloc()
            raise NvmlError(NOT_READY, f"{gpu}/gpm")
        before, after = self._samples[gpu]
        library.nvmlGpmSampleGet(handle, after)
        self._samples[gpu] = after, before
        request = library.c_nvmlGpmMetricsGet_t()
        request.version = library.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2 = before, after
        request.numMetrics = len(GPM_METRICS)
        for place, metric in enumerate(GPM_METRICS):
            request.metrics[place].metricId = metric
        library.nvmlGpmMetricsGet(request)
        answers = request.metrics[: len(GPM_METRICS)]
        return {
            str(each.metricId): each.value
            for each in answers
            if not each.nvmlReturn and math.isfinite(each.value)
        }

    def _guard(self, path: str, function: str | Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - untyped library
        """What the library returns, or its refusal as ours."""
        try:
            ask = getattr(self._library, function) if isinstance(function, str) else function
            return ask(*arguments)
        except self._library.NVMLError as error:
            if error.value in _DEAD:
                self.is_dead = True
            raise NvmlError(error.value, f"nvml/{path}") from error
        except AttributeError as error:  # an older nvidia-ml-py
            raise NvmlError(FUNCTION_NOT_FOUND, f"nvml/{path}") from error


def _address(handle: Any) -> int | None:  # noqa: ANN401 - untyped library
    """Where a device handle points: handles of the same GPU are other objects each time."""
    return ctypes.cast(handle, ctypes.c_void_p).value


# --- recordings ----------------------------------------------------------------------------------


class ReplayedNvml:
    """NVML as a recording has it; what was not recorded is a call that the driver does not have.

    A recording is a JSON object: ``system`` holds answers by their key, ``gpus`` is a list of such
    objects, ``events`` a list. An answer is what the call gave, or ``{"error": code}``. A field's
    answer is its number under ``field <id> <scope>``.

    A recording may go on growing (a simulated host's does): then each event has a ``number``, the
    highest is the latest, and none is reported twice. Events without one are reported at every
    read.
    """

    is_dead = False

    def __init__(self, text: bytes, path: str) -> None:
        self._path = path
        self._reported = 0.0
        """The number of the last event that was reported."""
        self.load(text)

    def load(self, text: bytes) -> None:
        """Continue with the recording's present text."""
        path = self._path
        try:
            recording = json.loads(text)
            self._system: dict[str, Any] = dict(recording["system"])
            self._gpus: list[dict[str, Any]] = [dict(gpu) for gpu in recording["gpus"]]
            self._events: list[Facts] = [dict(event) for event in recording.get("events", [])]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            detail = f"not a recording of NVML: {type(error).__name__}: {error}"
            raise HostError(UnreadReason.UNPARSEABLE, path, detail) from error

    def close(self) -> None:
        """A recording holds nothing open."""

    def ask_system(self, call: str) -> Facts:
        return self._facts(self._system, call, "system")

    def ask(self, call: str, gpu: int, *arguments: int) -> Facts:
        return self._facts(self._of(gpu), answer_key(call, arguments), str(gpu))

    def fields(self, gpu: int, keys: Sequence[FieldKey]) -> list[float | NvmlError]:
        answers: list[float | NvmlError] = []
        recorded = self._of(gpu)
        if isinstance(error := recorded.get("fields"), dict):
            raise NvmlError(error.get("error", FUNCTION_NOT_FOUND), f"nvml/{gpu}/fields")
        for key in keys:
            name = answer_key("field", key)
            answer = recorded.get(name, {"error": FUNCTION_NOT_FOUND})
            if isinstance(answer, int | float):
                answers.append(answer)
            else:
                answers.append(NvmlError(_code(answer), f"nvml/{gpu}/{name}"))
        return answers

    def processes(self, gpu: int) -> list[Facts]:
        answer = self._of(gpu).get("processes", {"error": FUNCTION_NOT_FOUND})
        if isinstance(answer, list):
            return answer
        raise NvmlError(_code(answer), f"nvml/{gpu}/processes")

    def events(self) -> list[Facts]:
        reported, fresh = self._reported, []
        for event in self._events:
            number = event.get("number")
            if not isinstance(number, int | float):
                fresh.append(event)
            elif number > reported:
                fresh.append(event)
                self._reported = max(self._reported, number)
        return fresh

    def _of(self, gpu: int) -> dict[str, Any]:
        if gpu < len(self._gpus):
            return self._gpus[gpu]
        raise NvmlError(INVALID_ARGUMENT, f"nvml/{gpu}")

    @staticmethod
    def _facts(answers: dict[str, Any], key: str, whose: str) -> Facts:
        answer = answers.get(key, {"error": FUNCTION_NOT_FOUND})
        if isinstance(answer, dict) and "error" not in answer:
            return answer
        raise NvmlError(_code(answer), f"nvml/{whose}/{key}")


def _code(answer: object) -> int:
    code = answer.get("error") if isinstance(answer, dict) else None
    return code if isinstance(code, int) else FUNCTION_NOT_FOUND
