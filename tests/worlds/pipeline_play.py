"""Training jobs cut into pipeline stages, played by what depends on what: who waits in what.

One forward, one backward. A receive's kernel begins when it is posted and ends when the bytes have
come; a send's ends when they were taken. Kernels of one kind share a stream and follow each other.
Copies of a stage meet before and after each step. Times are seconds; ranks are numbered as Megatron
does, copies of a stage beside each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

Work = Callable[[int, int, int, int], float]
"""What a pass takes, as a factor: of (copy, stage, step, micro-batch)."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The job, and how its messages are posted."""

    stages: int
    copies: int
    batches: int = 8
    steps: int = 5
    tensor: int = 1
    """Ranks beside each traced one that share its work, and have no trace."""
    forward_seconds: float = 0.1
    backward_factor: float = 2.0
    message_seconds: float = 0.002
    sync_seconds: float = 0.05
    jitter: float = 0.03
    is_early: bool = True
    """Receives are posted when the pass before of their kind has ended, beside other work; else
    when they are needed."""
    is_batched: bool = False
    """What goes to and comes from one neighbour is one kernel."""
    has_world: bool = True
    """All ranks meet once in a step, for the norm of the gradients."""

    def rank(self, copy: int, stage: int) -> int:
        return (stage * self.copies + copy) * self.tensor

    @property
    def ranks(self) -> list[int]:
        return [
            self.rank(copy, stage) for stage in range(self.stages) for copy in range(self.copies)
        ]

    @property
    def size(self) -> int:
        return self.stages * self.copies * self.tensor


class Half(NamedTuple):
    """One end of a message: who to or from whom, which way, which number."""

    is_send: bool
    source: int
    target: int
    number: tuple[str, int, int]


class Kernel(msgspec.Struct, eq=False):
    """What a rank's GPU did; times are NaN until they are known."""

    kind: str
    rank: int
    stream: str
    posted: float
    start: float = float("nan")
    end: float = float("nan")
    halves: list[Half] = []
    group: tuple[int, ...] = ()
    step: int = 0


class Play:
    """Every rank runs its program until it waits for another, in rounds until all are done."""

    def __init__(self, shape: Shape, work: Work = lambda *_: 1.0, *, seed: int = 1) -> None:
        self.shape, self.work = shape, work
        self.random = np.random.default_rng(seed)
        self.kernels: dict[int, list[Kernel]] = {rank: [] for rank in shape.ranks}
        self.bounds: dict[int, list[tuple[float, float]]] = {rank: [] for rank in shape.ranks}
        self.now = dict.fromkeys(shape.ranks, 0.0)
        self._queues: dict[tuple[int, str], deque[Kernel]] = {}
        self._free: dict[tuple[int, str], float] = {}
        self._ends: dict[tuple[bool, int, int, tuple[str, int, int]], Kernel] = {}
        self._met: dict[tuple[str, int, tuple[int, ...]], list[Kernel]] = {}

    def run(self) -> Play:
        shape = self.shape
        programs = {
            shape.rank(copy, stage): self._program(copy, stage)
            for copy in range(shape.copies)
            for stage in range(shape.stages)
        }
        waiting: dict[int, Kernel | None] = dict.fromkeys(programs)
        while programs:
            self._resolve()
            for rank, program in list(programs.items()):
                while True:
                    awaited = waiting[rank]
                    if awaited is not None:
                        if np.isnan(awaited.end):
                            break
                        self.now[rank] = max(self.now[rank], awaited.end)
                    try:
                        waiting[rank] = next(program)
                    except StopIteration:
                        del programs[rank]
                        break
        for own in self.kernels.values():
            own.sort(key=lambda kernel: kernel.start)
        return self

    # One rank's program: it yields the kernels that it waits for -------------------------------

    def _program(self, copy: int, stage: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        shape, rank = self.shape, self.shape.rank(copy, stage)
        group = tuple(shape.rank(other, stage) for other in range(shape.copies))
        world = tuple(shape.ranks)
        for step in range(shape.steps):
            began = self.now[rank]
            if shape.copies > 1:
                yield self._meet("params", rank, group, step)
            yield from self._passes(copy, stage, step)
            if shape.copies > 1:
                yield self._meet("grads", rank, group, step)
            if shape.has_world and len(world) > 1:
                yield self._meet("norm", rank, world, step)
            self._compute("optimizer", rank, 0.2 * shape.forward_seconds, step)
            self.bounds[rank].append((began, self.now[rank]))

    def _passes(self, copy: int, stage: int, step: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        shape = self.shape
        order = one_forward_one_backward(stage, shape.stages, shape.batches)
        posted: dict[tuple[str, int], Kernel] = {}
        for place, (kind, batch) in enumerate(order):
            key = kind, batch
            if key not in posted:
                self._post_receive(copy, stage, step, key, posted)
            if key in posted:
                yield posted[key]
            factor = self.work(copy, stage, step, batch)
            length = shape.forward_seconds * (shape.backward_factor if kind == "backward" else 1.0)
            self._compute(kind, shape.rank(copy, stage), length * factor, step)
            coming = order[place + 1] if place + 1 < len(order) else None
            self._post_send(copy, stage, step, key, coming, posted)
            later = kind, batch + 1
            if shape.is_early and later in order and later not in posted:
                self._post_receive(copy, stage, step, later, posted)

    def _neighbour(self, stage: int, kind: str, *, is_send: bool) -> int | None:
        up = (kind == "forward") == is_send
        other = stage + 1 if up else stage - 1
        return other if 0 <= other < self.shape.stages else None

    def _half(
        self, copy: int, stage: int, key: tuple[str, int], step: int, *, is_send: bool
    ) -> Half | None:
        other = self._neighbour(stage, key[0], is_send=is_send)
        if other is None:
            return None
        own, far = self.shape.rank(copy, stage), self.shape.rank(copy, other)
        number = key[0], step, key[1]
        return Half(is_send, own if is_send else far, far if is_send else own, number)

    def _post_receive(
        self,
        copy: int,
        stage: int,
        step: int,
        key: tuple[str, int],
        posted: dict[tuple[str, int], Kernel],
    ) -> None:
        half = self._half(copy, stage, key, step, is_send=False)
        if half is not None:
            posted[key] = self._post(half.target, f"{key[0]}-recv", [half], step)

    def _post_send(
        self,
        copy: int,
        stage: int,
        step: int,
        key: tuple[str, int],
        coming: tuple[str, int] | None,
        posted: dict[tuple[str, int], Kernel],
    ) -> None:
        """The send of a pass; batched, with the receive that comes next from the same neighbour."""
        half = self._half(copy, stage, key, step, is_send=True)
        if half is None:
            return
        halves = [half]
        if self.shape.is_batched and coming is not None and coming not in posted:
            back = self._half(copy, stage, coming, step, is_send=False)
            if back is not None and back.source == half.target:
                halves.append(back)
        kernel = self._post(half.source, f"{key[0]}-send", halves, step)
        if len(halves) > 1 and coming is not None:
            posted[coming] = kernel

    # The GPU ---------------------------------------------------------------------------------

    def _compute(self, kind: str, rank: int, seconds: float, step: int) -> None:
        took = seconds * max(0.5, self.random.normal(1.0, self.shape.jitter))
        start = self.now[rank]
        self.kernels[rank].append(
            Kernel(kind, rank, "compute", start, start, start + took, step=step)
        )
        self.now[rank] = start + took

    def _post(self, rank: int, stream: str, halves: list[Half], step: int) -> Kernel:
        kernel = Kernel("message", rank, stream, self.now[rank], halves=halves, step=step)
        self.kernels[rank].append(kernel)
        self._queues.setdefault((rank, stream), deque()).append(kernel)
        for half in halves:
            self._ends[half.is_send, half.source, half.target, half.number] = kernel
        return kernel

    def _meet(self, kind: str, rank: int, group: tuple[int, ...], step: int) -> Kernel:
        start = self.now[rank]
        kernel = Kernel(kind, rank, "sync", start, start, group=group, step=step)
        self.kernels[rank].append(kernel)
        met = self._met.setdefault((kind, step, group), [])
        met.append(kernel)
        if len(met) == len(group):
            end = max(one.start for one in met) + self.shape.sync_seconds
            for one in met:
                one.end = end
        return kernel

    def _resolve(self) -> None:
        """Begin and end what can begin and end; the first of each stream only."""
        is_moving = True
        while is_moving:
            is_moving = False
            for place, queue in self._queues.items():
                while queue:
                    kernel = queue[0]
                    if np.isnan(kernel.start):
                        kernel.start = max(kernel.posted, self._free.get(place, 0.0))
                    end = self._end_of(kernel)
                    if end is None:
                        break
                    kernel.end = self._free[place] = end
                    queue.popleft()
                    is_moving = True

    def _end_of(self, kernel: Kernel) -> float | None:
        ends = []
        for half in kernel.halves:
            other = self._ends.get((not half.is_send, half.source, half.target, half.number))
            if other is None or np.isnan(other.start):
                return None
            ends.append(max(kernel.start, other.start) + self.shape.message_seconds)
        return max(ends)


def one_forward_one_backward(stage: int, stages: int, batches: int) -> list[tuple[str, int]]:
    """The passes of a stage in their order.

    >>> one_forward_one_backward(1, 2, 2)
    [('forward', 0), ('backward', 0), ('forward', 1), ('backward', 1)]
    """
    ahead = min(stages - stage - 1, batches)
    order = [("forward", batch) for batch in range(ahead)]
    for batch in range(batches - ahead):
        order += [("forward", ahead + batch), ("backward", batch)]
    return order + [("backward", batch) for batch in range(batches - ahead, batches)]
