"""`fabricscope_steps.py` in a training process: never raises, never blocks, counts its losses."""

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.contract.collective import StepSpan
from collector.doors.host import Host
from collector.formats.steps import Header, Mark, parse_line
from collector.sources.steps import Settings as StepSettings
from collector.sources.steps import StepMarks

SHIM = Path(__file__).resolve().parents[3] / "collector/shims/fabricscope_steps.py"

Load = Callable[[str], Any]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """`load(destination)`: the shim as a fresh import in a process with that setting."""
    loaded: list[Any] = []
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID", "FABRICSCOPE_JOB"):
        monkeypatch.delenv(name, raising=False)

    def import_it(destination: str) -> types.ModuleType:
        monkeypatch.setenv("FABRICSCOPE_STEPS", destination)
        spec = importlib.util.spec_from_file_location("fabricscope_steps", SHIM)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        loaded.append(module)
        return module

    yield import_it
    for module in loaded:
        module.configure("off")
        module.flush(5)


def read_marks(folder: Path) -> list[Mark]:
    lines = [line for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines()]
    return [each for each in map(parse_line, lines) if isinstance(each, Mark)]


def read_headers(folder: Path) -> list[Header]:
    lines = [line for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines()]
    return [each for each in map(parse_line, lines) if isinstance(each, Header)]


def names(marks: list[Mark]) -> list[tuple[str, int]]:
    return [(mark.phase, mark.step) for mark in marks]


# --- what is marked ------------------------------------------------------------------------------


def test_steps_and_nested_phases(load: Load, tmp_path: Path) -> None:
    steps = load(str(tmp_path))
    for _ in steps.batches([1, 2]):
        with steps.step(), steps.phase("forward"), steps.phase("attention"):
            pass
    with steps.step(100):
        pass
    with steps.phase("checkpoint"):
        pass
    assert steps.flush(5)
    assert names(read_marks(tmp_path)) == [
        ("data", 0),
        ("attention", 0),
        ("forward", 0),
        ("", 0),
        ("data", 1),
        ("attention", 1),
        ("forward", 1),
        ("", 1),
        ("", 100),
        ("checkpoint", 101),
    ]


def test_an_exception_passes_and_the_span_is_closed(load: Load, tmp_path: Path) -> None:
    steps = load(str(tmp_path))

    def fail() -> None:
        with steps.step(), steps.phase("forward"):
            raise KeyError("the model's own")

    with pytest.raises(KeyError, match="the model's own"):
        fail()
    assert steps.flush(5)
    assert names(read_marks(tmp_path)) == [("forward", 0), ("", 0)]


def test_decorated_functions_generators_and_coroutines(load: Load, tmp_path: Path) -> None:
    steps = load(str(tmp_path))

    @steps.phase("forward")  # type: ignore[untyped-decorator]
    def forward(value: int) -> int:
        """What the model does."""
        return forward(value - 1) if value else 7

    @steps.phase("data")  # type: ignore[untyped-decorator]
    def produce() -> Iterator[int]:
        yield from (1, 2, 3)

    @steps.phase("evaluate")  # type: ignore[untyped-decorator]
    async def evaluate() -> int:
        await asyncio.sleep(0)
        return 8

    assert forward(1) == 7
    assert forward.__doc__ == "What the model does."
    assert next(iter(produce())) == 1
    assert list(produce()) == [1, 2, 3]
    assert asyncio.run(evaluate()) == 8
    assert steps.flush(5)
    phases = [mark.phase for mark in read_marks(tmp_path)]
    assert phases == ["forward"] * 2 + ["data"] * 4 + ["evaluate"]


def test_marks_are_the_ends_of_steps(load: Load, tmp_path: Path) -> None:
    steps = load(str(tmp_path))
    steps.mark()
    steps.mark()
    steps.mark(50)
    steps.mark()
    assert steps.flush(5)
    marks = read_marks(tmp_path)
    assert names(marks) == [("", 0), ("", 50), ("", 51)]
    assert abs(marks[0].start_ns + marks[0].duration_ns - marks[1].start_ns) < 1_000_000_000


def test_an_optimizer_marks_by_itself(load: Load, tmp_path: Path) -> None:
    class Optimizer:
        def __init__(self) -> None:
            self.hooks: list[Callable[..., None]] = []

        def register_step_post_hook(self, hook: Callable[..., None]) -> str:
            self.hooks.append(hook)
            return "handle"

    steps, optimizer = load(str(tmp_path)), Optimizer()
    assert steps.attach(optimizer) == "handle"
    for _ in range(3):
        optimizer.hooks[0](optimizer, (), {})
    assert steps.attach(object()) is None
    assert steps.flush(5)
    assert names(read_marks(tmp_path)) == [("", 0), ("", 1)]


def test_a_loader_stays_what_it_is(load: Load, tmp_path: Path) -> None:
    class Loader(list[int]):
        batch_size = 4

    steps = load(str(tmp_path))
    wrapped = steps.batches(Loader([1, 2]))
    assert len(wrapped) == 2
    assert wrapped.batch_size == 4
    assert list(wrapped) == list(wrapped) == [1, 2]
    with pytest.raises(AttributeError):
        _ = wrapped.nothing


@pytest.mark.parametrize("name", [None, 3, "", b"x", "\x00", "x" * 10_000, "\udc80"])
def test_odd_names_do_no_harm(load: Load, tmp_path: Path, name: Any) -> None:  # noqa: ANN401
    steps = load(str(tmp_path))
    with steps.phase(name), steps.step(name):
        pass
    steps.mark(name)
    steps.configure(job=name, rank=name)
    with steps.phase("good"):
        pass
    assert steps.flush(5)
    assert any(b"good" in path.read_bytes() for path in tmp_path.iterdir())


# --- who it is -----------------------------------------------------------------------------------


def test_the_process_sends_its_identity(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = load(str(tmp_path))
    for name, value in (
        ("RANK", "3"),
        ("LOCAL_RANK", "1"),
        ("WORLD_SIZE", "8"),
        ("SLURM_ARRAY_JOB_ID", "38"),
        ("SLURM_ARRAY_TASK_ID", "2"),
    ):
        monkeypatch.setenv(name, value)
    steps.mark()
    steps.mark()
    assert steps.flush(5)
    (header,) = read_headers(tmp_path)
    assert (header.job, header.rank, header.local_rank, header.world_size) == ("38_2", 3, 1, 8)
    assert header.pid == os.getpid()
    assert header.start_ticks > 0
    steps.configure(job="mine", rank=7)
    steps.mark()
    assert steps.flush(5)
    assert (read_headers(tmp_path)[-1].job, read_headers(tmp_path)[-1].rank) == ("mine", 7)


def test_torch_s_rank_is_used_where_no_launcher_sets_one(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = types.SimpleNamespace(
        is_initialized=lambda: True, get_rank=lambda: 5, get_world_size=lambda: 6
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", fake)
    monkeypatch.setenv("SLURM_PROCID", "0")
    steps = load(str(tmp_path))
    steps.mark()
    steps.mark()
    assert steps.flush(5)
    assert (read_headers(tmp_path)[0].rank, read_headers(tmp_path)[0].world_size) == (5, 6)


# --- where to ------------------------------------------------------------------------------------


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "s.sock"))
        made.settimeout(10)
        yield made


def test_marks_go_to_the_socket(load: Load, tmp_path: Path, listener: socket.socket) -> None:
    steps = load(f"unix://{tmp_path}/s.sock")
    for _ in range(5000):
        with steps.step():
            pass
    assert steps.flush(5)
    count = 0
    while count < 5000:
        message = listener.recv(1 << 17)
        assert len(message) <= steps.BATCH_BYTES_MAX
        assert isinstance(parse_line(message.partition(b"\n")[0]), Header)
        count += message.count(b"\n") - 1
    assert count == 5000
    assert steps.dropped() == 0


def test_without_a_listener_nothing_breaks_and_losses_are_counted(
    load: Load, tmp_path: Path
) -> None:
    steps = load(f"unix://{tmp_path}/none.sock")
    for _ in range(steps.QUEUE_MAX + 10_000):
        with steps.step():
            pass
    assert not steps.flush(5)
    waiting = len(steps._recorder._queue) + steps._recorder._pending[1]
    waiting += bool(steps._recorder._carried)
    # The writer may take a mark between the look at the queue's length and the append: the count
    # is then one too high for each of its batches, never too low.
    assert 0 <= waiting + steps.dropped() - (steps.QUEUE_MAX + 10_000) < 100
    assert steps.dropped() > 0


def test_a_listener_that_comes_late_gets_what_waits(load: Load, tmp_path: Path) -> None:
    steps = load(f"unix://{tmp_path}/s.sock")
    with steps.step():
        pass
    assert not steps.flush(5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "s.sock"))
        with steps.step():
            pass
        assert steps.flush(5)
        assert made.recv(1 << 16).count(b"\n") == 2
        assert made.recv(1 << 16).count(b"\n") == 2


def test_a_full_listener_does_not_block(load: Load, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "s.sock"))  # and never reads
        steps = load(f"unix://{tmp_path}/s.sock")
        for _ in range(3 * steps.QUEUE_MAX):
            with steps.step():
                pass
        steps.flush(5)
        assert not steps._recorder._thread


@pytest.mark.parametrize("destination", ["off", "none", "/proc/no/such/folder"])
def test_nowhere_to_write(load: Load, destination: str) -> None:
    steps = load(destination)
    for _ in steps.batches([1]):
        with steps.step():
            pass
    steps.flush(5)


def test_a_file_that_is_large_is_set_aside(load: Load, tmp_path: Path) -> None:
    steps = load(str(tmp_path))
    steps.FILE_BYTES_MAX = 2000
    for _ in range(4):
        for _ in range(10):
            with steps.phase("x" * 60):
                pass
        assert steps.flush(5)
    assert sorted(path.name.rpartition(".")[2] for path in tmp_path.iterdir()) == ["1", "jsonl"]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())


def test_the_agent_reads_what_a_loop_sends(load: Load, tmp_path: Path) -> None:
    source = StepMarks(StepSettings(socket=str(tmp_path / "s.sock")))
    host = Host()
    assert list(source.read(host)) == []
    steps = load(f"unix://{tmp_path}/s.sock")
    steps.configure(job="llm", rank=3)
    for _ in steps.batches([1, 2]):
        with steps.step(), steps.phase("forward"):
            pass
    assert steps.flush(5)
    spans = [each for each in source.read(host) if isinstance(each, StepSpan)]
    host.close()
    assert [(each.phase, each.step) for each in spans] == [
        (phase, step) for step in (0, 1) for phase in ("data", "forward", "")
    ]
    assert {(each.job, each.rank, each.pid) for each in spans} == {("llm", 3, os.getpid())}


# --- threads, forks, the end ---------------------------------------------------------------------


def test_threads(load: Load, tmp_path: Path) -> None:
    steps = load(str(tmp_path))

    def work() -> None:
        for _ in range(500):
            with steps.phase("io"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps.flush(10)
    assert len(read_marks(tmp_path)) == 4000


def run_program(text: str, folder: Path) -> str:
    """The output of a program that imports the shim; it must end well and print nothing else."""
    environment = {
        "PYTHONPATH": str(SHIM.parent),
        "FABRICSCOPE_STEPS": str(folder),
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_end_of_a_program_writes_what_waits(tmp_path: Path) -> None:
    run_program("import fabricscope_steps as s\nwith s.step(): pass", tmp_path)
    assert names(read_marks(tmp_path)) == [("", 0)]


def test_a_forked_child_starts_fresh(tmp_path: Path) -> None:
    text = (
        "import os, fabricscope_steps as s\n"
        "with s.step(): pass\n"
        "pid = os.fork()\n"
        "with s.phase('child' if not pid else 'parent'): pass\n"
        "assert s.flush(5)\n"
        "if pid: os.waitpid(pid, 0)\n"
        "else: os._exit(0)\n"
    )
    run_program(text, tmp_path)
    found = sorted(
        [
            mark.phase
            for mark in map(parse_line, path.read_bytes().splitlines())
            if isinstance(mark, Mark)
        ]
        for path in tmp_path.iterdir()
    )
    assert found == [["", "parent"], ["child"]]


@pytest.mark.parametrize(
    "statement", ["import fabricscope_steps", "from collector.shims import fabricscope_steps"]
)
def test_it_needs_nothing_but_the_standard_library(statement: str, tmp_path: Path) -> None:
    heavy = "{'collector.doors.host', 'msgspec', 'numpy', 'torch'}"
    text = f"import sys; {statement}; print(sorted({heavy} & sys.modules.keys()))"
    assert run_program(text, tmp_path).strip() == "[]"


# --- the GPU's clock -----------------------------------------------------------------------------


class FakeCuda:
    """Events whose time is a counter; ready only when `is_ready`."""

    def __init__(self) -> None:
        self.clock = 0
        self.is_ready = False
        self.is_capturing = False
        cuda = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing
                self.time = 0

            def record(self) -> None:
                cuda.clock += 1
                self.time = cuda.clock

            def query(self) -> bool:
                return cuda.is_ready

            def elapsed_time(self, end: "Event") -> float:
                return float(end.time - self.time)

        self.Event = Event

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.is_capturing


def test_gpu_times_are_read_when_they_are_ready(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    steps = load(str(tmp_path))
    for _ in range(steps.GPU_SPANS_MAX + 3):
        with steps.phase("forward", cuda=True):
            pass
    assert steps.dropped() == 3
    cuda.is_ready = cuda.is_capturing = True
    with steps.phase("captured", cuda=True):
        pass
    assert len(steps._gpu_spans) == steps.GPU_SPANS_MAX
    cuda.is_capturing = False
    with steps.step(cuda=True):
        pass
    assert steps.flush(5)
    marks = [mark for mark in read_marks(tmp_path) if mark.phase.endswith(".gpu")]
    assert [(mark.phase, mark.duration_ns) for mark in marks] == [
        ("forward.gpu", 1_000_000)
    ] * steps.GPU_SPANS_MAX


def test_without_torch_the_gpu_is_left_alone(load: Load, tmp_path: Path) -> None:
    steps = load(str(tmp_path))
    with steps.phase("forward", cuda=True):
        pass
    assert steps.flush(5)
    assert [mark.phase for mark in read_marks(tmp_path)] == ["forward"]


def test_lines_are_plain_json(load: Load, tmp_path: Path) -> None:
    steps = load(str(tmp_path))
    with steps.step():
        pass
    assert steps.flush(5)
    (path,) = tmp_path.iterdir()
    header, mark = map(json.loads, path.read_text("utf-8").splitlines())
    assert header["fabricscope_steps"] == 1
    assert mark[:2] == ["", 0]
