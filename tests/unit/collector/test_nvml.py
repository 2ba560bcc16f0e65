"""The door to NVML, its replay, and the source's readings of answers that change."""

import ctypes
import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.doors.nvml import (
    EVENT_TYPES,
    EVENTS_MAX,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_READY,
    NOT_SUPPORTED,
    LiveNvml,
    Nvml,
    NvmlError,
    ReplayedNvml,
    reason_for,
)
from collector.sources.nvml import LOOK_SECONDS, PROCESSES_MAX, XIDS_MAX, NvmlSource, Settings
from collector.tables.nvml import (
    FABRIC_CONDITIONS,
    FEC_BLOCKS,
    FEC_SECONDS,
    LINK_FIELDS,
    XIDS,
    explain_xid,
)
from tests.bench.gpu_read import RecordingNvml
from tests.doubles.fakes import HandHost

H200 = (
    Path(__file__).resolve().parents[2] / "fixtures/sources/nvml/h200_busy/tree/nvml/answers.json"
)


class GpuHost(HandHost):
    """A host whose NVML gives what the test writes into ``answers``."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.answers: dict[str, Any] = json.loads(H200.read_text("utf-8"))
        self.answers["events"] = []
        self.asked = RecordingNvml(self.replay())

    @property
    def gpu(self) -> dict[str, Any]:
        answers: dict[str, Any] = self.answers["gpus"][0]
        return answers

    def replay(self) -> Nvml:
        return ReplayedNvml(json.dumps(self.answers).encode(), "answers.json")

    def nvml(self) -> Nvml:
        self.asked = RecordingNvml(self.replay())
        return self.asked


@pytest.fixture
def host(tmp_path: Path) -> GpuHost:
    return GpuHost(tmp_path)


def read(source: NvmlSource, host: Host) -> list[Reading]:
    return list(source.read(host))


def values(readings: list[Reading]) -> dict[str, float]:
    return {each.series.metric: each.value for each in readings if isinstance(each, Sample)}


def absences(readings: list[Reading]) -> dict[str, Missing]:
    return {each.series.metric: each for each in readings if isinstance(each, Missing)}


# --- the source ----------------------------------------------------------------------------------


def test_what_is_refused_is_not_asked_again_for_minutes(host: GpuHost) -> None:
    host.gpu["power"] = {"error": NOT_SUPPORTED}
    source = NvmlSource(Settings())
    first = absences(read(source, host))
    assert first["fabric_gpu_power_watts"].reason is UnreadReason.NOT_SUPPORTED
    assert "power" in host.asked.recording()["gpus"][0]
    host.gpu["power"] = {"value": 5000}
    host.gpu["field 29 0"] = 7
    second = read(source, host)
    assert "power" not in host.asked.recording()["gpus"][0]
    assert "field 29 0" not in host.asked.recording()["gpus"][0]
    assert absences(second).keys() == first.keys()
    host.clock.advance(LOOK_SECONDS)
    third = values(read(source, host))
    assert third["fabric_gpu_power_watts"] == 5
    assert third["fabric_gpu_retired_pages_single_bit"] == 7


def test_an_error_that_may_pass_is_asked_again_at_once(host: GpuHost) -> None:
    host.gpu["power"] = {"error": 999}
    source = NvmlSource(Settings())
    assert absences(read(source, host))["fabric_gpu_power_watts"].reason is UnreadReason.UNREADABLE
    host.gpu["power"] = {"value": 5000}
    assert values(read(source, host))["fabric_gpu_power_watts"] == 5


def test_a_lost_gpu_hides_no_other_and_may_come_back(host: GpuHost) -> None:
    second = json.loads(json.dumps(host.gpu))
    second["uuid"] = {"value": "GPU-2"}
    host.answers["gpus"].append(second)
    host.answers["system"]["count"] = {"value": 2}
    source = NvmlSource(Settings())
    before = read(source, host)
    healthy = dict(host.gpu)
    # Lost in the middle of a read: the calls before still had an answer.
    host.gpu["power"] = {"error": GPU_IS_LOST}
    after = read(source, host)
    of_first = [
        each
        for each in after
        if isinstance(each, Sample | Missing) and ("gpu", "0") in each.series.labels
    ]
    assert [each.series.metric for each in of_first] == [
        "fabric_gpu_up",
        "fabric_gpu_info",
        "fabric_gpu_xid_last",
    ]
    assert isinstance(of_first[0], Sample)
    assert of_first[0].value == 0
    assert isinstance(of_first[1], Missing)
    assert of_first[1].reason is UnreadReason.UNREADABLE
    assert ("uuid", host.gpu["uuid"]["value"]) in of_first[0].series.labels
    assert len(after) == len(before) // 2 + 3
    host.answers["gpus"][0] = healthy
    assert len(read(source, host)) == len(before)


def test_gpm_gives_nothing_until_there_are_two_samples(host: GpuHost) -> None:
    host.gpu["gpm"] = {"error": NOT_READY}
    readings = read(NvmlSource(Settings()), host)
    assert "fabric_gpu_sm_active_ratio" not in values(readings)
    assert "fabric_gpu_sm_active_ratio" not in absences(readings)


def test_a_metric_that_gpm_leaves_out_is_missing(host: GpuHost) -> None:
    del host.gpu["gpm"]["5"]
    readings = read(NvmlSource(Settings()), host)
    assert absences(readings)["fabric_gpu_tensor_active_ratio"].reason is UnreadReason.NOT_SUPPORTED
    assert values(readings)["fabric_gpu_sm_active_ratio"] > 0.9


def test_processes_are_bounded_and_the_rest_is_counted(host: GpuHost) -> None:
    host.gpu["processes"] = [{"pid": pid, "used": 1} for pid in range(1000)]
    readings = read(NvmlSource(Settings()), host)
    assert values(readings)["fabric_gpu_processes"] == 1000
    assert values(readings)["fabric_gpu_processes_left_out"] == 1000 - PROCESSES_MAX
    shown = [
        each
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_gpu_process_info"
    ]
    assert len(shown) == PROCESSES_MAX


def test_xids_are_reported_once_and_counted(host: GpuHost) -> None:
    source = NvmlSource(Settings())
    assert values(read(source, host))["fabric_gpu_xid_last"] == 0
    host.answers["events"] = [{"gpu": 0, "type": EVENT_TYPES, "data": 79}] * 2
    readings = read(source, host)
    assert len([each for each in readings if isinstance(each, Event)]) == 2
    host.answers["events"] = []
    readings = read(source, host)
    assert not [each for each in readings if isinstance(each, Event)]
    assert values(readings)["fabric_gpu_xid_last"] == 79
    assert values(readings)["fabric_gpu_xid_errors_total"] == 2


def test_series_of_xids_are_bounded(host: GpuHost) -> None:
    host.answers["events"] = [
        {"gpu": 0, "type": EVENT_TYPES, "data": number} for number in range(2 * XIDS_MAX)
    ]
    readings = read(NvmlSource(Settings()), host)
    counted = [
        each
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_gpu_xid_errors_total"
    ]
    assert len(counted) == XIDS_MAX
    assert len([each for each in readings if isinstance(each, Event)]) == 2 * XIDS_MAX


def test_an_answer_of_the_wrong_kind_is_missing(host: GpuHost) -> None:
    host.gpu["temperature"] = {"value": [1, 2]}
    host.gpu["utilization"] = {"gpu": "many"}
    host.gpu["field 82 0"] = "warm"
    host.answers["system"]["cuda"] = {"value": None}
    readings = read(NvmlSource(Settings()), host)
    assert {
        "fabric_gpu_temperature_celsius",
        "fabric_gpu_utilization_ratio",
        "fabric_gpu_memory_busy_ratio",
        "fabric_gpu_memory_temperature_celsius",
    } <= absences(readings).keys()


def test_a_sum_over_links_is_whole_or_missing(host: GpuHost) -> None:
    host.gpu["field 91 0"] = 2
    host.gpu["field 138 0"], host.gpu["field 138 1"] = 10, 20
    source = NvmlSource(Settings(per_link=False))
    assert values(read(source, host))["fabric_gpu_nvlink_transmit_bytes_total"] == 30 * 1024
    host.gpu["field 138 1"] = {"error": 999}
    readings = read(source, host)
    assert "fabric_gpu_nvlink_transmit_bytes_total" not in values(readings)
    assert "fabric_gpu_nvlink_transmit_bytes_total" in absences(readings)


def test_what_no_link_has_is_one_absence(host: GpuHost) -> None:
    host.gpu["field 91 0"] = 18
    host.gpu.update({f"field 165 {link}": 1 for link in range(18)})
    readings = read(NvmlSource(Settings()), host)
    of_links = [
        each
        for each in readings
        if isinstance(each, Missing) and "_link_" in each.series.metric and "nvlink" in str(each)
    ]
    series = {(field.metric, field.labels) for field in LINK_FIELDS}
    assert len(of_links) == len(series)  # all but the state, and the history of correction


def test_the_history_of_correction_is_read_once_a_minute_and_is_whole(host: GpuHost) -> None:
    host.gpu["field 91 0"] = 2
    for link in range(2):
        host.gpu.update({f"field {235 + wrong} {link}": 10**6 >> wrong for wrong in range(16)})
    source = NvmlSource(Settings())

    def blocks() -> dict[str, float]:
        return {
            f"{dict(each.series.labels)['link']} {dict(each.series.labels)['symbol_errors']}": (
                each.value
            )
            for each in read(source, host)
            if isinstance(each, Sample) and each.series.metric == FEC_BLOCKS
        }

    heavy = sum(10**6 >> wrong for wrong in range(4, 16))
    first = blocks()
    assert first["0 0"] == 10**6
    assert first["1 1-3"] == 500_000 + 250_000 + 125_000
    assert first["1 4-15"] == heavy
    assert len(first) == 6
    host.gpu["field 250 1"] = {"error": 999}
    assert blocks() == first
    assert "field 236 1" not in host.asked.recording()["gpus"][0]
    host.clock.advance(FEC_SECONDS)
    assert blocks() == {key: value for key, value in first.items() if key != "1 4-15"}


def test_a_fabric_status_means_nothing_before_the_registration_has_ended(host: GpuHost) -> None:
    fabric = {"cluster": "0" * 32, "clique": 0, "state": 2, "status": 999, "health": 0}
    host.gpu["fabric"] = fabric
    before = read(NvmlSource(Settings()), host)
    assert values(before)["fabric_gpu_fabric_state"] == 2
    assert "fabric_gpu_fabric_status" not in values(before) | absences(before)
    fabric["state"] = 3
    assert values(read(NvmlSource(Settings()), host))["fabric_gpu_fabric_status"] == 999


@pytest.mark.parametrize(
    ("mask", "unhealthy", "known"),
    [
        (0, set(), 0),
        (0b10101010, set(), 4),
        (0b10101001 | 1 << 8 | 1 << 14, {"degraded_bandwidth"}, 6),
        (3 << 8 | 2 << 14, {"incorrect_configuration", "manager_disconnected"}, 2),
        (0b11 | 0xF << 8 | 3 << 14, set(), 0),  # numbers that no header knows
    ],
)
def test_the_health_mask_is_read_bit_by_bit(mask: int, unhealthy: set[str], known: int) -> None:
    found = {name: each.judge(mask) for name, each in FABRIC_CONDITIONS.items()}
    assert {name for name, is_so in found.items() if is_so} == unhealthy
    assert sum(is_so is not None for is_so in found.values()) == known


def test_a_driver_that_refuses_is_an_error_of_the_source(host: GpuHost) -> None:
    host.answers["system"]["count"] = {"error": 18}
    with pytest.raises(HostError, match="different versions"):
        read(NvmlSource(Settings()), host)


@pytest.mark.parametrize("number", XIDS)
def test_every_known_xid_is_a_sentence(number: int) -> None:
    assert explain_xid(number).startswith(f"XID {number}: ")
    assert "see NVIDIA" not in explain_xid(number)
    assert "see NVIDIA" in explain_xid(9999)


# --- recordings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"system": 3, "gpus": []}', b"\xff", b"[" * 100_000, b'{"gpus": [1]}'],
)
def test_a_recording_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(HostError) as caught:
        ReplayedNvml(text, "nvml/answers.json")
    assert caught.value.reason is UnreadReason.UNPARSEABLE


def test_what_was_recorded_is_replayed(host: GpuHost) -> None:
    host.answers["events"] = [{"gpu": 0, "type": EVENT_TYPES, "data": 31}]
    first = read(NvmlSource(Settings()), host)
    again = json.dumps(host.asked.recording()).encode()
    host.answers = json.loads(again)
    assert read(NvmlSource(Settings()), host) == first


# --- the library ---------------------------------------------------------------------------------


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces functions of nvidia-ml-py by answers; its structures and errors stay its own."""
    module = importlib.import_module("pynvml")

    def replace(**functions: object) -> None:
        for name, answer in functions.items():
            function = answer if callable(answer) else lambda *_, answer=answer: answer
            monkeypatch.setattr(module, name, function)

    replace(
        nvmlInit=None,
        nvmlShutdown=None,
        nvmlDeviceGetCount=2,
        nvmlDeviceGetHandleByIndex=lambda index: ctypes.cast(1000 + index, ctypes.c_void_p),
    )
    return replace


def refuse(code: int) -> Callable[..., None]:
    def function(*_: object) -> None:
        raise importlib.import_module("pynvml").NVMLError(code)

    return function


def test_without_a_driver_there_is_nothing(tmp_path: Path) -> None:
    assert read(NvmlSource(Settings()), Host(tmp_path)) == []


def test_without_the_library_it_is_absent(library: Callable[..., None]) -> None:
    library(nvmlInit=refuse(12))
    with pytest.raises(NvmlError) as caught:
        LiveNvml()
    assert caught.value.reason is UnreadReason.ABSENT


def test_fields_have_the_type_that_nvml_reports(library: Callable[..., None]) -> None:
    module = importlib.import_module("pynvml")

    def answer(_: object, keys: Sequence[tuple[int, int]]) -> object:
        found = (module.c_nvmlFieldValue_t * len(keys))()
        for each, (number, scope) in zip(found, keys, strict=True):
            each.fieldId, each.scopeId, each.valueType = number, scope, number
        found[0].value.dVal = 1.5
        found[1].value.uiVal = 2**32 - 1
        found[3].value.ullVal = 2**64 - 1
        found[4].value.sllVal = -1
        found[5].value.siVal = -2
        found[6].nvmlReturn = NOT_SUPPORTED
        return found

    library(nvmlDeviceGetFieldValues=answer)
    *numbers, refusal, unknown = LiveNvml().fields(0, [(number, 7) for number in range(8)])
    assert numbers == [1.5, 2**32 - 1, 0, 2**64 - 1, -1, -2]
    assert isinstance(refusal, NvmlError)
    assert refusal.reason is UnreadReason.NOT_SUPPORTED
    assert isinstance(unknown, NvmlError)  # a type that this program does not know


def test_a_call_that_the_library_lacks_is_not_supported(
    library: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = LiveNvml()
    library(nvmlDeviceGetUUID="GPU-1", nvmlDeviceGetPowerUsage=refuse(GPU_IS_LOST))
    assert nvml.ask("uuid", 0) == {"value": "GPU-1"}
    with pytest.raises(NvmlError) as lost:
        nvml.ask("power", 0)
    assert (lost.value.code, lost.value.reason) == (GPU_IS_LOST, UnreadReason.UNREADABLE)
    monkeypatch.delattr("pynvml.nvmlDeviceGetUUID")
    with pytest.raises(NvmlError) as lacking:
        nvml.ask("uuid", 0)
    assert lacking.value.code == FUNCTION_NOT_FOUND


def test_events_know_their_gpu_and_are_bounded(library: Callable[..., None]) -> None:
    module = importlib.import_module("pynvml")
    waiting = [1001, 1000, 5] + [1000] * EVENTS_MAX

    def wait(*_: object) -> object:
        if not waiting:
            refuse(10)()
        event = module.c_nvmlEventData_t()
        device = ctypes.cast(waiting.pop(0), type(event.device))
        event.device, event.eventType, event.eventData = device, EVENT_TYPES, 31
        return event

    library(nvmlEventSetCreate=1, nvmlDeviceRegisterEvents=None, nvmlEventSetWait_v2=wait)
    nvml = LiveNvml()
    found = nvml.events()
    assert [event["gpu"] for event in found[:3]] == [1, 0, -1]
    assert len(found) == EVENTS_MAX
    assert len(nvml.events()) == 3
    assert nvml.events() == []


def test_events_that_no_gpu_can_report_are_refused(library: Callable[..., None]) -> None:
    library(
        nvmlEventSetCreate=1, nvmlEventSetFree=None, nvmlDeviceRegisterEvents=refuse(NOT_SUPPORTED)
    )
    with pytest.raises(NvmlError, match="does not support it"):
        LiveNvml().events()


def test_a_driver_that_was_unloaded_is_noticed(library: Callable[..., None]) -> None:
    library(nvmlSystemGetDriverVersion=refuse(1))
    nvml = LiveNvml()
    assert not nvml.is_dead
    with pytest.raises(NvmlError):
        nvml.ask_system("driver")
    assert nvml.is_dead


def test_gpm_measures_between_two_calls(library: Callable[..., None]) -> None:
    module = importlib.import_module("pynvml")
    samples = iter(range(1, 100))
    compared: list[tuple[int, int]] = []

    def compare(request: Any) -> None:  # noqa: ANN401 - the library's structure
        compared.append((request.sample1, request.sample2))
        for place in range(request.numMetrics):
            request.metrics[place].value = 100.0 * place
        request.metrics[1].nvmlReturn = NOT_SUPPORTED
        request.metrics[2].value = float("nan")

    support = module.c_nvmlGpmSupport_t()
    support.isSupportedDevice = 1
    library(
        nvmlGpmQueryDeviceSupport=support,
        nvmlGpmSampleAlloc=lambda: ctypes.cast(next(samples), module.c_nvmlGpmSample_t),
        nvmlGpmSampleGet=lambda _, sample: sample,
        nvmlGpmMetricsGet=compare,
    )
    nvml = LiveNvml()
    with pytest.raises(NvmlError) as first:
        nvml.ask("gpm", 0)
    assert first.value.code == NOT_READY
    assert nvml.ask("gpm", 0)["1"] == 0
    answer = nvml.ask("gpm", 0)
    assert not {"2", "3"} & answer.keys()
    pairs = [tuple(ctypes.cast(each, ctypes.c_void_p).value for each in pair) for pair in compared]
    assert pairs == [(1, 2), (2, 1)]  # two buffers take turns


def test_a_gpu_without_gpm_is_asked_no_samples(library: Callable[..., None]) -> None:
    library(nvmlGpmQueryDeviceSupport=importlib.import_module("pynvml").c_nvmlGpmSupport_t())
    with pytest.raises(NvmlError) as caught:
        LiveNvml().ask("gpm", 0)
    assert caught.value.code == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (INVALID_ARGUMENT, UnreadReason.NOT_SUPPORTED),
        (4, UnreadReason.UNREADABLE),
        (9, UnreadReason.ABSENT),
        (999, UnreadReason.UNREADABLE),
    ],
)
def test_reasons(code: int, reason: UnreadReason) -> None:
    assert reason_for(code) is reason
