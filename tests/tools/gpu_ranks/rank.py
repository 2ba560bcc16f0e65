"""One rank of a recorded run: a small training loop on its share of one GPU, and its fault."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tests.tools.gpu_ranks.schedules import interleaving

PLAN: dict[str, Any] = json.loads(os.environ["PLAN"])
FOLDER = Path(os.environ["FOLDER"])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MICRO_BATCHES = 4
ACTIVATION = 512 << 10
"""Numbers of one message: 1 MiB of bf16."""
GRADIENT = 4 << 20
PRODUCTS = 6
"""Matrix products of a micro-batch's forward pass; backward takes twice as many."""

STEPS = int(PLAN.get("steps", 45))
PAUSE_SECONDS = PLAN.get("pause_ms", 0.0) / 1e3
"""Between steps, for runs that last long enough to be asked about."""
STAGES = int(PLAN.get("stages", 4))
COPIES = WORLD // STAGES
STAGE, COPY = RANK % STAGES, RANK // STAGES
CHUNKS = int(PLAN.get("chunks", 1))
"""Parts of the model in each stage: more than one is an interleaved pipeline."""
LAYERS = 2
"""Layers of attention in a job with context parallelism."""
FAULT, CULPRITS = PLAN.get("fault", ""), PLAN.get("ranks", [])
IS_CULPRIT = RANK in CULPRITS


class Ranks:
    """The groups of this rank, and what it computes with."""

    def __init__(self) -> None:
        timeout = dt.timedelta(seconds=PLAN.get("timeout_s", 60))
        dist.init_process_group("nccl", device_id=torch.device("cuda", 0), timeout=timeout)
        self.copies = self._group([list(range(stage, WORLD, STAGES)) for stage in range(STAGES)])
        first = range(0, WORLD, STAGES)
        self.pipeline = self._group([list(range(rank, rank + STAGES)) for rank in first])
        self.x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
        self.w = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) / 64
        self.message = torch.zeros(ACTIVATION, device="cuda", dtype=torch.bfloat16)
        self.inbox = torch.zeros(ACTIVATION, device="cuda", dtype=torch.bfloat16)
        self.gradient = torch.zeros(GRADIENT, device="cuda", dtype=torch.bfloat16)
        self.small = torch.zeros(128 << 10, device="cuda", dtype=torch.bfloat16)
        self.gathered = torch.zeros(WORLD * (128 << 10), device="cuda", dtype=torch.bfloat16)

    def _group(self, members: list[list[int]]) -> dist.ProcessGroup | None:
        mine = None
        for ranks in members:
            group = dist.new_group(ranks) if len(ranks) > 1 else None
            mine = group if RANK in ranks else mine
        return mine

    def compute(self, products: float, *, is_on: bool) -> None:
        is_slow = IS_CULPRIT and (FAULT == "stage" or (is_on and FAULT == "compute"))
        times = PLAN.get("times", 1) if is_slow else 1
        for _ in range(max(1, round(products * times))):
            torch.matmul(self.x, self.w, out=self.x)
        if is_on and IS_CULPRIT and FAULT == "late":
            torch.cuda.synchronize()
            time.sleep(PLAN["sleep_ms"] / 1e3)

    def send(self, stage: int) -> None:
        dist.send(self.message, COPY * STAGES + stage)

    def receive(self, stage: int) -> None:
        dist.recv(self.inbox, COPY * STAGES + stage)

    def exchange(self, send_to: int | None, receive_from: int | None) -> None:
        self.exchange_all(
            [] if send_to is None else [send_to], [] if receive_from is None else [receive_from]
        )

    def exchange_all(self, send_to: list[int], receive_from: list[int]) -> None:
        for work in self.begin(send_to, receive_from):
            work.wait()

    def begin(self, send_to: list[int], receive_from: list[int]) -> list[dist.Work]:
        """All at once, in the pipeline's own communicator, as Megatron does it."""
        first, group = COPY * STAGES, self.pipeline
        wanted = [dist.P2POp(dist.isend, self.message, first + one, group) for one in send_to]
        wanted += [dist.P2POp(dist.irecv, self.inbox, first + one, group) for one in receive_from]
        return list(dist.batch_isend_irecv(wanted)) if wanted else []


def lengths(step: int) -> list[float]:
    """How long each micro-batch of this copy is in this step; 1 unless lengths are the fault."""
    if FAULT != "lengths":
        return [1.0] * MICRO_BATCHES
    draw = random.Random(1000 * step + COPY)
    return [draw.choice([0.5, 0.5, 1.0, 1.0, 3.0]) for _ in range(MICRO_BATCHES)]


def all_forward_all_backward(ranks: Ranks, step: int, *, is_on: bool) -> None:
    long = lengths(step)
    for each in range(MICRO_BATCHES):
        if STAGE:
            ranks.receive(STAGE - 1)
        ranks.compute(PRODUCTS * long[each], is_on=is_on)
        if STAGE < STAGES - 1:
            ranks.send(STAGE + 1)
    for each in range(MICRO_BATCHES):
        if STAGE < STAGES - 1:
            ranks.receive(STAGE + 1)
        ranks.compute(2 * PRODUCTS * long[each], is_on=is_on)
        if STAGE:
            ranks.send(STAGE - 1)


def one_forward_one_backward(ranks: Ranks, *, is_on: bool) -> None:
    before = STAGE - 1 if STAGE else None
    after = STAGE + 1 if STAGE < STAGES - 1 else None
    warm_up = min(STAGES - 1 - STAGE, MICRO_BATCHES)
    for _ in range(warm_up):
        ranks.exchange(None, before)
        ranks.compute(PRODUCTS, is_on=is_on)
        ranks.exchange(after, None)
    steady = MICRO_BATCHES - warm_up
    if steady:
        ranks.exchange(None, before)
    for each in range(steady):
        ranks.compute(PRODUCTS, is_on=is_on)
        ranks.exchange(after, after)
        ranks.compute(2 * PRODUCTS, is_on=is_on)
        ranks.exchange(before, before if each < steady - 1 else None)
    for _ in range(warm_up):
        ranks.exchange(None, after)
        ranks.compute(2 * PRODUCTS, is_on=is_on)
        ranks.exchange(before, None)


def interleaved(ranks: Ranks, *, is_on: bool) -> None:
    """The last stage passes its first part's output on to the first stage's second part."""
    for each in interleaving(STAGE, STAGES, CHUNKS, MICRO_BATCHES):
        if isinstance(each, float):
            ranks.compute(each * PRODUCTS / CHUNKS, is_on=is_on)
        else:
            ranks.exchange_all(*each)


def blocks_round_a_ring(ranks: Ranks, *, is_on: bool) -> None:
    """Context parallelism: keys and values of a sequence's parts go round while each is used."""
    after, before = (STAGE + 1) % STAGES, (STAGE - 1) % STAGES
    for products in (PRODUCTS,) * LAYERS + (2 * PRODUCTS,) * LAYERS:
        for block in range(STAGES):
            passed = [] if block == STAGES - 1 else ranks.begin([after], [before])
            ranks.compute(products / 2, is_on=is_on)
            for work in passed:
                work.wait()


def broken(ranks: Ranks, step: int) -> None:
    """What ends or stops a rank, in the middle of the run."""
    if not IS_CULPRIT or step != STEPS // 2:
        return
    if FAULT == "absent":
        print(f"rank {RANK} does not go on", flush=True)
        time.sleep(600)
    if FAULT == "stopped":
        note_fault()
        os.kill(os.getpid(), signal.SIGSTOP)
    if FAULT == "killed":
        note_fault()
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "mismatch":
        note_fault()
        dist.all_gather_into_tensor(ranks.gathered, ranks.small)
    if FAULT == "oom":
        torch.zeros(1 << 40, device="cuda")
    if FAULT == "size":
        dist.all_reduce(ranks.gradient[: GRADIENT // 2])


def note_fault() -> None:
    """The time of a fault after which this rank writes nothing any more."""
    (FOLDER / "fault_ns").write_text(str(time.time_ns()), "utf-8")


def leaves_out(step: int) -> bool:
    is_now = FAULT == "skips" and IS_CULPRIT and step == STEPS // 2
    if is_now:
        note_fault()
    return is_now


def one_step(ranks: Ranks, step: int, *, is_on: bool) -> None:
    broken(ranks, step)
    time.sleep(PAUSE_SECONDS)
    if STAGES == 1:
        ranks.compute(3 * MICRO_BATCHES * PRODUCTS, is_on=is_on)
        if not leaves_out(step):
            dist.all_reduce(ranks.gradient)
        dist.all_gather_into_tensor(ranks.gathered, ranks.small)
        return
    if PLAN.get("context"):
        blocks_round_a_ring(ranks, is_on=is_on)
    elif CHUNKS > 1:
        interleaved(ranks, is_on=is_on)
    elif PLAN.get("batched"):
        one_forward_one_backward(ranks, is_on=is_on)
    else:
        all_forward_all_backward(ranks, step, is_on=is_on)
    if COPIES > 1:
        dist.all_reduce(ranks.gradient, group=ranks.copies)
    dist.all_reduce(ranks.small)
    torch.cuda.synchronize()


def shape_network(*, is_on: bool) -> None:
    if FAULT != "net" or not IS_CULPRIT:
        return
    words = ["tc", "qdisc", "replace" if is_on else "del", "dev", "eth0", "root"]
    if is_on:
        words += ["tbf", "rate", PLAN["rate"], "burst", "256kb", "latency", "100ms"]
    subprocess.run(words, check=False)


def main() -> None:
    torch.cuda.set_device(0)
    ranks = Ranks()
    first, last = STEPS // 3, 2 * STEPS // 3
    times: dict[str, Any] = {"step_ms": []}
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for step in range(3):
        one_step(ranks, -1 - step, is_on=False)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=kinds) as profile:
        for step in range(STEPS):
            is_on = first <= step < last
            if step in (first, last):
                shape_network(is_on=is_on)
                times["fault_on_ns" if is_on else "fault_off_ns"] = time.time_ns()
            began = time.perf_counter()
            one_step(ranks, step, is_on=is_on)
            torch.cuda.synchronize()
            times["step_ms"].append(round((time.perf_counter() - began) * 1e3, 1))
    profile.export_chrome_trace(str(FOLDER / "kineto" / f"rank{RANK}.pt.trace.json.gz"))
    if RANK == 0:
        (FOLDER / "times.json").write_text(json.dumps(times), "utf-8")
    dump = torch._C._distributed_c10d._dump_nccl_trace()
    (FOLDER / "flight_recorder" / f"nccl_trace_rank_{RANK}").write_bytes(dump)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
