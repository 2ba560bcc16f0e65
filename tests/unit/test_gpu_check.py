"""Parts of `deploy/gpu-check`: the stand-in for NCCL Inspector, and what is said about a run.

The recorder is driven as NCCL 2.28 drives a profiler plugin: one thread enqueues collectives,
another reports their kernels. The structures here are NCCL's, written down a second time.
"""

import ctypes as c
import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from collector.contract.collective import Collective, Operation, Timing
from collector.formats import Origin
from collector.formats.nccl_inspector import FORMAT

CHECK = Path(__file__).resolve().parents[2] / "deploy/gpu-check"
COMPILER = shutil.which("cc") or shutil.which("gcc")
COLL, KERNEL_CHANNEL, KERNEL_STOP = 1 << 1, 1 << 6, 22
MICROSECONDS = 1000


@pytest.fixture(scope="module")
def faults() -> Iterator[ModuleType]:
    """`faults.py`, which imports its neighbours by their bare names."""
    sys.path.insert(0, str(CHECK))
    try:
        yield importlib.import_module("faults")
    finally:
        sys.path.remove(str(CHECK))


# --- the recorder --------------------------------------------------------------------------------


class CollPart(c.Structure):
    _fields_ = (
        ("seqNumber", c.c_uint64),
        ("func", c.c_char_p),
        ("sendBuff", c.c_void_p),
        ("recvBuff", c.c_void_p),
        ("count", c.c_size_t),
        ("root", c.c_int),
        ("datatype", c.c_char_p),
        ("nChannels", c.c_uint8),
        ("nWarps", c.c_uint8),
        ("algo", c.c_char_p),
        ("proto", c.c_char_p),
        ("parentGroup", c.c_void_p),
    )


class KernelPart(c.Structure):
    _fields_ = (("channelId", c.c_uint8), ("pTimer", c.c_uint64))


class Parts(c.Union):
    _fields_ = (("coll", CollPart), ("kernelCh", KernelPart))


class Description(c.Structure):
    _fields_ = (
        ("type", c.c_uint64),
        ("parentObj", c.c_void_p),
        ("rank", c.c_int),
        ("parts", Parts),
    )


class Profiler(c.Structure):
    _fields_ = (
        ("name", c.c_char_p),
        (
            "init",
            c.CFUNCTYPE(
                c.c_int,
                c.POINTER(c.c_void_p),
                c.c_uint64,
                c.POINTER(c.c_int),
                c.c_char_p,
                c.c_int,
                c.c_int,
                c.c_int,
                c.c_void_p,
            ),
        ),
        (
            "start",
            c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.c_void_p), c.POINTER(Description)),
        ),
        ("stop", c.CFUNCTYPE(c.c_int, c.c_void_p)),
        ("record", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int, c.POINTER(c.c_uint64))),
        ("finalize", c.CFUNCTYPE(c.c_int, c.c_void_p)),
    )


class Plugin:
    """The recorder, called as NCCL calls it for one communicator."""

    def __init__(self, library: Path, commhash: int = 0x4C2E456598088116) -> None:
        self._calls: Any = Profiler.in_dll(c.CDLL(str(library)), "ncclProfiler_v5")
        self._context, self.mask = c.c_void_p(), c.c_int()
        context, mask = c.byref(self._context), c.byref(self.mask)
        assert self._calls.init(context, commhash, mask, None, 8, 8, 3, None) == 0

    def start(self, description: Description) -> int | None:
        handle = c.c_void_p()
        assert self._calls.start(self._context, c.byref(handle), c.byref(description)) == 0
        return handle.value

    def enqueue(self, function: bytes, sequence: int, channels: int = 2) -> int | None:
        asked = Description(type=COLL, rank=3)
        asked.parts.coll = CollPart(
            seqNumber=sequence,
            func=function,
            count=4 << 20,
            datatype=b"ncclBfloat16",
            nChannels=channels,
        )
        handle = self.start(asked)
        self._calls.stop(handle)
        return handle

    def begin_kernel(self, parent: int | None, channel: int, gpu_ns: int) -> int | None:
        asked = Description(type=KERNEL_CHANNEL, parentObj=parent)
        asked.parts.kernelCh = KernelPart(channelId=channel, pTimer=gpu_ns)
        return self.start(asked)

    def end_kernel(self, handle: int | None, gpu_ns: int) -> None:
        if handle is not None:  # as NCCL does
            assert self._calls.record(handle, KERNEL_STOP, c.byref(c.c_uint64(gpu_ns))) == 0
            assert self._calls.stop(handle) == 0

    def finalize(self) -> None:
        assert self._calls.finalize(self._context) == 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("no C compiler here")
    made = tmp_path_factory.mktemp("recorder") / "librecorder.so"
    words = [COMPILER, "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
    subprocess.run([*words, "-o", str(made), str(CHECK / "recorder.c")], check=True)
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NCCL_INSPECTOR_DUMP_DIR", str(tmp_path / "inspector"))
    return tmp_path / "inspector"


def records(folder: Path) -> list[Collective]:
    (log,) = folder.iterdir()
    assert log.name == f"{os.uname().nodename}-pid{os.getpid()}.log"
    with log.open("rb") as stream:
        found = list(FORMAT.parse(stream, Origin(log.name, 0)))
    return [one for one in found if isinstance(one, Collective)]


def test_our_reader_takes_what_the_recorder_writes(library: Path, folder: Path) -> None:
    plugin = Plugin(library)
    assert plugin.mask.value == COLL | KERNEL_CHANNEL
    for sequence in range(3):
        parent = plugin.enqueue(b"AllReduce", sequence)
        kernels = [plugin.begin_kernel(parent, channel, 10_000) for channel in (0, 1)]
        for handle, took_ns in zip(kernels, (2_000_000, 3_000_000), strict=True):
            plugin.end_kernel(handle, 10_000 + took_ns)
    plugin.finalize()
    found = records(folder)
    assert [one.sequence for one in found] == [0, 1, 2]
    first = found[0]
    assert (first.communicator, first.rank, first.ranks) == ("0x4c2e4565980881", 3, 8)
    assert (first.operation, first.size_bytes) == (Operation.ALL_REDUCE, 8 << 20)
    assert (first.duration_ns, first.timing) == (3_000 * MICROSECONDS, Timing.KERNEL)
    assert first.enqueue_ns is not None
    assert first.entry_ns is not None
    assert first.exit_ns is not None
    assert first.enqueue_ns <= first.entry_ns <= first.exit_ns


def test_two_threads_as_nccl_has_them_lose_nothing(library: Path, folder: Path) -> None:
    """One thread enqueues ahead, the other reports kernels as they come."""
    plugin, count = Plugin(library), 2_000
    made: list[int | None] = []
    ready = threading.Semaphore(0)

    def report() -> None:
        for number in range(count):
            ready.acquire()
            kernels = [plugin.begin_kernel(made[number], channel, 5) for channel in (0, 1)]
            for handle in kernels:
                plugin.end_kernel(handle, 5_005)

    proxy = threading.Thread(target=report)
    proxy.start()
    for number in range(count):
        made.append(plugin.enqueue(b"AllGather" if number % 2 else b"AllReduce", number // 2))
        ready.release()
    proxy.join()
    plugin.finalize()
    found = records(folder)
    assert len(found) == count
    for operation in (Operation.ALL_REDUCE, Operation.ALL_GATHER):
        numbers = [one.sequence for one in found if one.operation is operation]
        assert numbers == list(range(count // 2))


def test_what_is_no_collective_is_passed_over(library: Path, folder: Path) -> None:
    plugin = Plugin(library)
    assert plugin.start(Description(type=1 << 2)) is None
    assert plugin.begin_kernel(None, 0, 5) is None
    assert plugin.enqueue(b"AllReduce", 0, channels=0) is None
    unfinished = plugin.enqueue(b"AllReduce", 1)
    plugin.begin_kernel(unfinished, 0, 5)
    plugin.finalize()
    assert records(folder) == []


def test_without_a_folder_nccl_goes_on_without_it(
    library: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NCCL_INSPECTOR_DUMP_DIR", raising=False)
    plugin = Plugin(library)
    assert plugin.mask.value == 0
    assert plugin.enqueue(b"AllReduce", 0) is None
    plugin.finalize()
    assert "NCCL_INSPECTOR_DUMP_DIR" in capfd.readouterr().err


# --- what is said about a run --------------------------------------------------------------------

START_NS = 1_794_987_000_000_000_000
SECOND = 1_000_000_000


def incident(**changed: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of any kind
    return {
        "id": "20261118-a",
        "state": "open",
        "reopened": 0,
        "cause": "slow_link",
        "culprit": {"host": "node3"},
        "since_ns": START_NS + SECOND,
        "first_said_ns": START_NS + 9 * SECOND,
    } | changed


@pytest.mark.parametrize(
    ("changed", "is_about_it"),
    [
        ({}, True),
        ({"since_ns": START_NS - 2 * SECOND}, True),
        ({"state": "closed"}, False),
        ({"since_ns": START_NS - 60 * SECOND, "first_said_ns": START_NS - 50 * SECOND}, False),
        ({"id": "known"}, False),
        ({"id": "known", "reopened": 1}, True),
    ],
)
def test_a_verdict_is_about_a_fault_if_it_was_opened_after_it(
    faults: ModuleType, changed: dict[str, Any], *, is_about_it: bool
) -> None:
    assert faults.is_new(incident(**changed), {("known", 0)}, START_NS) is is_about_it


@pytest.mark.parametrize(
    ("changed", "is_right", "accuses_another"),
    [
        ({}, True, False),
        ({"culprit": {"job": "gpu-check", "rank": 3}}, True, False),
        ({"culprit": {"host": "node4"}}, False, True),
        ({"cause": "straggler"}, False, False),
        ({"culprit": {}}, False, False),
    ],
)
def test_an_answer_is_right_if_cause_and_host_are(
    faults: ModuleType, changed: dict[str, Any], *, is_right: bool, accuses_another: bool
) -> None:
    seen = faults.Sighting(9.0, incident(**changed))
    assert faults.is_right(seen, faults.FAULTS["a"], 3) is is_right
    assert faults.accuses_others(seen, 3) is accuses_another


def test_each_run_breaks_another_rank(faults: ModuleType) -> None:
    for letter, ranks in faults.CULPRITS.items():
        assert len(set(ranks)) == 3
        assert faults.culprit_of(letter, 3) == ranks[0]
        assert all(0 <= rank < 8 for rank in ranks)


def test_the_cost_of_agents_is_told_with_its_error(faults: ModuleType) -> None:
    assert faults is not None  # its folder is on the path
    cost = importlib.import_module("cost")
    found = cost.compared([[10.0, 10.0], [20.0], []], [[10.1], [20.0], [9.0]])
    assert found["pairs_percent"] == [1.0, 0.0]
    assert (found["difference_percent"], found["standard_error_percent"]) == (0.5, 0.5)
    assert found["without"]["steps"] == 3
    assert cost.compared([[10.0]], [[10.1]])["standard_error_percent"] is None


def test_what_ras_said_is_told_in_short(faults: ModuleType, tmp_path: Path) -> None:
    answers = tmp_path / "ras.jsonl"
    assert faults.said_by_ras(answers) == {}
    text = {"format": "text", "took_s": 3.0, "said": ["OK\n", "Errors: rank 3\n"], "error": ""}
    failed = {"format": "json", "took_s": 1.0, "said": [], "error": "refused"}
    lines = [json.dumps(failed), json.dumps(text), json.dumps(text)[:20]]  # it was killed writing
    answers.write_text("\n".join(lines), "utf-8")
    assert faults.said_by_ras(answers) == {
        "answers": 2,
        "failed": 1,
        "slowest_seconds": 3.0,
        "last_text": "OK\nErrors: rank 3\n",
    }


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({}, "no verdict"),
        ({"verdicts": [{"culprit": {"job": "gpu-check"}}]}, "names no culprit"),
        ({"verdicts": [{"culprit": {"host": "node3"}}]}, "another cause"),
        ({"verdicts": [{}], "right_verdict_seconds": 9.0}, "right"),
        (
            {"verdicts": [{}], "right_verdict_seconds": 9.0, "accused_others": [{}]},
            "WRONG: accuses another host",
        ),
    ],
)
def test_an_innocent_accused_is_never_called_right(
    faults: ModuleType, changed: dict[str, Any], word: str
) -> None:
    assert faults is not None  # its folder is on the path
    check = importlib.import_module("check")
    nothing: dict[str, Any] = {"host": "node3", "verdicts": [], "accused_others": []}
    assert check.answer_of(nothing | {"right_verdict_seconds": None} | changed) == word
