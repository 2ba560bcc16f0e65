"""One NCCL rank of the check: matrix products on its share of the GPU, then two collectives."""

from __future__ import annotations

import datetime as dt
import os
import time

import torch
import torch.distributed as dist
from loop import WORLD, run_steps

PRODUCTS = int(os.environ.get("GPU_CHECK_PRODUCTS", "72"))
"""Of 2048 x 2048 matrices in a step: eight ranks that share an H200 take some 20 ms for them."""
GRADIENT = 4 << 20
"""Numbers of an all-reduce: 8 MiB of bf16."""
SHARD = 128 << 10
"""Numbers that a rank gives to an all-gather: 256 KiB."""
TIMEOUT_SECONDS = 600
"""NCCL's watchdog must not end the job while one rank is stopped."""
WARM_UP_STEPS = 3


def main() -> None:
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    timeout = dt.timedelta(seconds=TIMEOUT_SECONDS)
    dist.init_process_group("nccl", device_id=device, timeout=timeout)
    x = torch.randn(2048, 2048, device=device, dtype=torch.bfloat16)
    w = torch.randn(2048, 2048, device=device, dtype=torch.bfloat16) / 64
    gradient = torch.zeros(GRADIENT, device=device, dtype=torch.bfloat16)
    shard = torch.zeros(SHARD, device=device, dtype=torch.bfloat16)
    gathered = torch.zeros(WORLD * SHARD, device=device, dtype=torch.bfloat16)

    def one_step(delay_seconds: float) -> None:
        for _ in range(PRODUCTS):
            torch.matmul(x, w, out=x)
        if delay_seconds:
            torch.cuda.synchronize()
            time.sleep(delay_seconds)
        dist.all_reduce(gradient)
        dist.all_gather_into_tensor(gathered, shard)
        torch.cuda.synchronize()

    for _ in range(WARM_UP_STEPS):
        one_step(0.0)
    version = ".".join(str(part) for part in torch.cuda.nccl.version())
    print(f"torch {torch.__version__} nccl {version} on {torch.cuda.get_device_name()}", flush=True)
    run_steps(one_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
