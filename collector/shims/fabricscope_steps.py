"""Marks of a training loop's steps and phases, for Fabricscope. One file, standard library only.

Copy it into your project:

    import fabricscope_steps as steps

    for batch in steps.batches(loader):          # phase "data": waiting for the next batch
        with steps.step():
            with steps.phase("forward"):
                loss = model(batch)
            with steps.phase("backward"):
                loss.backward()
            optimizer.step()

or, without touching the loop, once: ``steps.attach(optimizer)``.

It never raises into your code and never blocks it: marks go into a bounded queue in memory, and a
thread writes them once a second to the agent's socket, or to files. A full queue drops the oldest
marks and counts them; the count is sent along. Where neither socket nor folder is there, nothing
happens at all. A span costs two to three microseconds.

What is measured is the time of the *CPU*: the GPU works later. Over a whole step that is the same
thing as soon as the queue of launches is full; of a single phase it shows the launching only.
``phase(name, cuda=True)`` adds ``name.gpu``, the time between two events on the current stream,
read back when it is ready and without waiting for it.

``FABRICSCOPE_STEPS`` sets the destination: ``unix:///run/fabricscope/steps.sock`` (the default, if
that folder is there), a folder (one file for each process), or ``off``. ``FABRICSCOPE_JOB`` names
the job. Python 3.9 or newer, on Linux.
"""

from __future__ import annotations

import atexit
import errno
import functools
import inspect
import json
import os
import socket
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, Iterable, Iterator, TypeVar  # noqa: UP035 - subscripted below

__all__ = ["attach", "batches", "configure", "dropped", "flush", "mark", "phase", "step"]

VERSION = 1
"""Version of the lines. A reader that knows it understands every line."""
SOCKET = "/run/fabricscope/steps.sock"
QUEUE_MAX = 16_384
"""Marks that wait: at ten spans a step and ten steps a second nearly three minutes without an
agent, in 4 MB."""
FLUSH_SECONDS = 1.0
"""The longest wait of a mark. Dashboards need no less, and a wake-up costs 50 microseconds."""
BATCH_BYTES_MAX = 60_000
"""One datagram; Linux takes twice as much without tuning."""
NAME_CHARACTERS_MAX = 64
FILE_BYTES_MAX = 64 << 20
"""A file that reaches this is renamed to `….1` and a new one begun: 128 MB for each process."""
EXIT_SECONDS = 0.5
"""Time for the last marks when the program ends. A file system that hangs must not hold it."""
GPU_SPANS_MAX = 256
"""Pairs of CUDA events that wait to be read; an event takes memory of the driver."""

_RANKS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)
_TROUBLE = (OSError, RuntimeError, ValueError, TypeError, AttributeError, KeyError, MemoryError)
"""Errors of sockets, files, threads, CUDA and half-imported modules: never shown to the caller."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Item = TypeVar("_Item")


# --- what a training loop calls ------------------------------------------------------------------


def step(number: int | None = None, *, cuda: bool = False) -> Span:
    """A context manager, or decorator, around one step; without a number it counts on by itself.

    ``number`` is a Python int. Give it once after a restart from a checkpoint and counting goes on
    there.
    """
    return Span("", number if type(number) is int and number >= 0 else None, cuda=cuda)


def phase(name: str, *, cuda: bool = False) -> Span:
    """A context manager, or decorator, around a part of a step: `forward`, `data`, `checkpoint`.

    Phases may be nested. One outside of any step belongs to the step that comes next.
    """
    return Span(name if isinstance(name, str) and name else "unnamed", None, cuda=cuda)


def mark(number: int | None = None) -> None:
    """Mark the end of a step. The first call starts the clock; each later one ends a step."""
    recorder = _recorder
    now = time.time_ns(), time.perf_counter_ns()
    before, recorder.last_mark = recorder.last_mark, now
    if type(number) is int and number >= 0:
        recorder.next_step = number
    if before is not None:
        this, recorder.next_step = recorder.next_step, recorder.next_step + 1
        recorder.record("", this, before[0], now[1] - before[1])


def attach(optimizer: Any) -> Any:  # noqa: ANN401 - torch is not imported here
    """Mark a step after each `optimizer.step()`; a handle with `remove()`, or None on failure.

    For torch.optim's optimizers. Use it or `step()`, not both.
    """
    try:
        return optimizer.register_step_post_hook(lambda *_: mark())
    except _TROUBLE:
        return None


def batches(loader: Iterable[_Item], name: str = "data") -> Batches[_Item]:
    """The loader, with the wait for each batch as a phase. Its attributes and length stay."""
    return Batches(loader, name if isinstance(name, str) and name else "data")


def configure(
    destination: str | None = None,
    *,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> None:
    """Set what the environment does not; None changes nothing."""
    if destination is not None:
        _recorder.destination = find_destination(str(destination))
    if job is not None:
        _recorder.given["job"] = str(job)
    for name, value in (("rank", rank), ("world_size", world_size)):
        if type(value) is int:
            _recorder.given[name] = value


def flush(seconds: float = EXIT_SECONDS) -> bool:
    """Write now and wait up to ``seconds``; returns whether everything was written."""
    return _recorder.finish(seconds)


def dropped() -> int:
    """Marks of this process that were lost, because the queue was full or no agent took them."""
    return _recorder.dropped


# --- spans ---------------------------------------------------------------------------------------


class Span:
    """A stretch of time. For one `with` at a time; a decorated function makes one for each call."""

    __slots__ = ("_cuda", "_name", "_number", "_starts")

    def __init__(self, name: str, number: int | None, *, cuda: bool) -> None:
        self._name = name
        self._number = number
        self._cuda = cuda
        self._starts: list[tuple[int, int, Any]] = []

    def __enter__(self) -> Span:  # noqa: PYI034 - Self is too young
        if not self._name and self._number is not None:
            _recorder.next_step = self._number
        events = _start_gpu_events() if self._cuda else None
        self._starts.append((time.time_ns(), time.perf_counter_ns(), events))
        return self

    def __exit__(self, *exception: object) -> None:
        end = time.perf_counter_ns()
        if not self._starts:
            return
        start_ns, start, events = self._starts.pop()
        recorder = _recorder
        number = recorder.next_step
        if not self._name:
            number = number if self._number is None else self._number
            recorder.next_step = number + 1
        recorder.record(self._name, number, start_ns, end - start)
        if events is not None:
            _end_gpu_events(events, f"{self._name or 'step'}.gpu", number, start_ns)

    def __call__(self, function: _Function) -> _Function:
        """The function with each of its calls (of a generator: each of its items) as a span."""
        name, number, cuda = self._name, self._number, self._cuda
        wrapper: Callable[..., Any]
        if inspect.isgeneratorfunction(function):

            def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
                return iter(Batches(function(*args, **kwargs), name))

        elif inspect.iscoroutinefunction(function):

            async def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
                with Span(name, number, cuda=cuda):
                    return await function(*args, **kwargs)

        else:

            def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
                with Span(name, number, cuda=cuda):
                    return function(*args, **kwargs)

        return functools.update_wrapper(wrapper, function)  # type: ignore[return-value]


class Batches(Iterable[_Item]):
    """An iterable that times each wait for an item, and is the given one in all else."""

    def __init__(self, inner: Iterable[_Item], name: str) -> None:
        self._inner = inner
        self._name = name

    def __iter__(self) -> Iterator[_Item]:
        iterator = iter(self._inner)
        name, clock = self._name, time.perf_counter_ns
        while True:
            start_ns, start = time.time_ns(), clock()
            try:
                item = next(iterator)
            except StopIteration:
                return
            number = _recorder.next_step
            _recorder.next_step += not name  # a nameless item is a step
            _recorder.record(name, number, start_ns, clock() - start)
            yield item

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type]  # its own TypeError is the right one

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - whatever the loader has
        if attribute == "_inner":  # while it is being unpickled
            raise AttributeError(attribute)
        return getattr(self._inner, attribute)


# --- the GPU's clock -----------------------------------------------------------------------------

_gpu_spans: deque[tuple[Any, Any, str, int, int]] = deque()


def _start_gpu_events() -> Any:  # noqa: ANN401 - a torch.cuda.Event
    """An event on the current stream; None without torch, without CUDA or inside a graph capture.

    What is ready is read here, by the thread that launches: a query by another thread would break
    a capture that goes on in this one.
    """
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        if torch.cuda.is_current_stream_capturing():
            return None
        while _gpu_spans and _gpu_spans[0][1].query():
            start, end, name, number, start_ns = _gpu_spans.popleft()
            _recorder.record(name, number, start_ns, int(start.elapsed_time(end) * 1e6))
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    except _TROUBLE:
        return None
    return event


def _end_gpu_events(start: Any, name: str, number: int, start_ns: int) -> None:  # noqa: ANN401
    try:
        end = sys.modules["torch"].cuda.Event(enable_timing=True)
        end.record()
    except _TROUBLE:
        return
    if len(_gpu_spans) >= GPU_SPANS_MAX:
        _gpu_spans.popleft()
        _recorder.dropped += 1
    _gpu_spans.append((start, end, name, number, start_ns))


# --- from the queue to the agent -----------------------------------------------------------------


def find_destination(setting: str) -> str:
    """`unix:PATH` or a folder; empty for nowhere."""
    if setting.lower() in {"off", "none", "0"}:
        return ""
    if setting.startswith("unix:"):
        path = setting[len("unix:") :]
        return "unix:" + path.removeprefix("//")
    if setting:
        return setting
    # The agent may be restarting: its folder shows that there is one.
    return f"unix:{SOCKET}" if os.path.isdir(os.path.dirname(SOCKET)) else ""  # noqa: PTH112, PTH120


class Recorder:
    """The queue, and the thread that empties it."""

    def __init__(self, destination: str) -> None:
        self.destination = destination
        self.given: dict[str, Any] = {}
        self.next_step = 0
        """The number of the step that is under way, or comes next."""
        self.last_mark: tuple[int, int] | None = None
        self.restart()

    def restart(self) -> None:
        """Reset in a forked child: the thread and the waiting marks are the parent's."""
        self.dropped = 0
        self._queue: deque[tuple[str, int, int, int]] = deque(maxlen=QUEUE_MAX)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._is_ending = False
        self._pending: tuple[bytes, int] | None = None
        self._carried = ""
        self._socket: socket.socket | None = None
        self._file: int | None = None
        self._is_torn = False
        _gpu_spans.clear()
        self._start_ticks = _read_start_ticks()

    def record(self, name: str, number: int, start_ns: int, duration_ns: int) -> None:
        """Put a mark into the queue; the oldest goes when it is full."""
        if not self.destination:
            return
        waiting = len(self._queue)
        if waiting >= QUEUE_MAX:
            self.dropped += 1
        self._queue.append((name, number, start_ns, duration_ns))
        if self._thread is None:
            self._start()
        elif waiting == QUEUE_MAX // 2:
            self._wake.set()

    def finish(self, seconds: float) -> bool:
        thread = self._thread
        if thread is None:
            return not self._queue
        self._is_ending = True
        self._wake.set()
        thread.join(max(0.0, seconds))
        if thread.is_alive():
            return False
        self._thread, self._is_ending = None, False  # the next mark starts another
        return not (self._queue or self._carried or self._pending)

    def _start(self) -> None:
        if not self._starting.acquire(blocking=False):
            return  # another thread is at it
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="fabricscope-steps", daemon=True)
                thread.start()
                self._thread = thread
        except _TROUBLE:
            pass  # no room for a thread now, or the interpreter ends: the queue stays bounded
        finally:
            self._starting.release()

    def _run(self) -> None:
        while not self._is_ending:
            self._wake.wait(FLUSH_SECONDS)
            self._wake.clear()
            self._write()
        self._write()

    def _write(self) -> None:
        """Write everything that waits; what the agent does not take is kept for the next time."""
        try:
            while self._queue or self._carried or self._pending:
                if self._pending is None:
                    self._pending = self._take()
                if not self._send(*self._pending):
                    return
                self._pending = None
        except _TROUBLE:
            if self._pending is not None:
                self.dropped += self._pending[1]
                self._pending = None

    def _take(self) -> tuple[bytes, int]:
        """The next batch and how many marks it holds: a line about this process, a line each."""
        lines = [json.dumps(self._describe())]
        size = len(lines[0]) + 1
        while self._carried or self._queue:
            # Popped, not peeked: a full queue may drop its oldest mark meanwhile.
            line, self._carried = self._carried, ""
            if not line:
                name, *numbers = self._queue.popleft()
                line = json.dumps([name[:NAME_CHARACTERS_MAX], *numbers])
            size += len(line) + 1
            if size > BATCH_BYTES_MAX:
                self._carried = line
                break
            lines.append(line)
        return "".join(f"{line}\n" for line in lines).encode(), len(lines) - 1

    def _describe(self) -> dict[str, Any]:
        """The header. Read each time: frameworks set variables after they were imported."""
        rank, local_rank, world_size = find_rank(dict(os.environ))
        facts = {
            "fabricscope_steps": VERSION,
            "pid": os.getpid(),
            "start_ticks": self._start_ticks,
            "host": socket.gethostname(),
            "job": find_job(dict(os.environ)),
            "run": os.environ.get("TORCHELASTIC_RUN_ID", ""),
            "rank": rank,
            "local_rank": local_rank,
            "world_size": world_size,
            "dropped": self.dropped,
        }
        return {**facts, **self.given}

    def _send(self, batch: bytes, marks: int) -> bool:
        """Whether the batch was sent; not while the agent is away or its socket is full."""
        if not self.destination.startswith("unix:"):
            return self._append(batch)
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(batch, self.destination[len("unix:") :])
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                return False
            self.dropped += marks
        return True

    def _append(self, batch: bytes) -> bool:
        path = os.path.join(  # noqa: PTH118 - a text is enough
            self.destination, f"{socket.gethostname()}-{os.getpid()}.steps.jsonl"
        )
        if self._file is None:
            os.makedirs(self.destination, exist_ok=True)  # noqa: PTH103
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(self._file).st_size + len(batch) > FILE_BYTES_MAX:
            os.close(self._file)
            self._file = None
            os.replace(path, f"{path}.1")  # noqa: PTH105
            return self._append(batch)
        # A disk that is full takes a part. What follows must not become the rest of that line.
        batch = b"\n" + batch if self._is_torn else batch
        self._is_torn = os.write(self._file, batch) < len(batch)
        return True


def find_rank(variables: dict[str, str]) -> tuple[int | None, int | None, int | None]:
    """Rank, local rank and world size, from the launcher or torch.distributed."""
    if not variables.get("RANK"):
        found = _ask_torch()
        if found is not None:
            return found[0], _count(variables.get("LOCAL_RANK", "")), found[1]
    for names in _RANKS:
        rank, local_rank, size = (_count(variables.get(name, "")) for name in names)
        if rank is not None:
            return rank, local_rank, size
    return None, None, None


def _ask_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    except _TROUBLE:
        pass
    return None


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004


def find_job(variables: dict[str, str]) -> str:
    """The job's name from the user or Slurm; the agent finds the rest."""
    array, task = variables.get("SLURM_ARRAY_JOB_ID"), variables.get("SLURM_ARRAY_TASK_ID")
    slurm = f"{array}_{task}" if array and task else variables.get("SLURM_JOB_ID", "")
    return variables.get("FABRICSCOPE_JOB") or slurm


def _read_start_ticks() -> int:
    """When this process started, in the kernel's ticks: the agent checks the pid with it."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[19])
    except (*_TROUBLE, IndexError):
        return 0


_recorder = Recorder(find_destination(os.environ.get("FABRICSCOPE_STEPS", "")))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_recorder.restart)
atexit.register(lambda: _recorder.finish(EXIT_SECONDS))
