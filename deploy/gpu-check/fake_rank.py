"""A rank without a GPU and without NCCL, for trying the check: a ring over sockets, and its log.

It moves as many bytes through its NIC as a ring all-reduce and a ring all-gather do, chunk by
chunk, and writes what NCCL Inspector would have written of them.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from pathlib import Path
from typing import Any

from loop import RANK, WORLD, run_steps
from namespaces import address_of, name_of

PORT = 29_600
COMPUTE_SECONDS = 0.03
REDUCED_BYTES = 4 << 20
SHARD_BYTES = 128 << 10
CONNECT_SECONDS = 60.0
COMMUNICATOR = "0x00c0ffee00c0ff"
PIECE_BYTES = 1 << 20


class Ring:
    """This rank's two neighbours, and its log."""

    def __init__(self) -> None:
        server = socket.create_server((address_of(RANK), PORT))
        self._next = self._connect(address_of((RANK + 1) % WORLD))
        self._previous, _ = server.accept()
        for each in (self._next, self._previous):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bytes = bytes(max(REDUCED_BYTES // WORLD, SHARD_BYTES))
        folder = Path(os.environ["NCCL_INSPECTOR_DUMP_DIR"])
        folder.mkdir(exist_ok=True)
        path = folder / f"{name_of(RANK)}-pid{os.getpid()}.log"
        self._log = path.open("a", buffering=1, encoding="ascii")
        self._sequence = {"AllReduce": 0, "AllGather": 0}

    @staticmethod
    def _connect(address: str) -> socket.socket:
        ends = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                return socket.create_connection((address, PORT), timeout=CONNECT_SECONDS)
            except OSError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.05)

    def exchange(self, size: int) -> None:
        """Send so many bytes to the next rank while as many come from the one before."""
        to_send, to_come = memoryview(self._bytes)[:size], size
        while to_send or to_come:
            writes = [self._next] if to_send else []
            reads = [self._previous] if to_come else []
            can_read, can_write, _ = select.select(reads, writes, [])
            if can_read:
                came = len(self._previous.recv(min(to_come, PIECE_BYTES)))
                if not came:
                    raise ConnectionError(f"rank {(RANK - 1) % WORLD} has left the ring")
                to_come -= came
            if can_write:
                to_send = to_send[self._next.send(to_send[:PIECE_BYTES]) :]

    def collective(self, name: str, size: int, rounds: int, chunk: int) -> None:
        enter_us = time.time_ns() // 1000
        for _ in range(rounds):
            self.exchange(chunk)
        self._write(name, size, enter_us, time.time_ns() // 1000)

    def _write(self, name: str, size: int, enter_us: int, leave_us: int) -> None:
        times = {"kernel_start_ts": enter_us, "kernel_stop_ts": leave_us}
        line: dict[str, Any] = {
            "header": {"id": COMMUNICATOR, "rank": RANK, "n_ranks": WORLD, "nnodes": WORLD},
            "metadata": {
                "inspector_output_format_version": "v4.0",
                "dump_timestamp_us": leave_us,
                "hostname": name_of(RANK),
                "pid": os.getpid(),
            },
            "coll_perf": {
                "coll": name,
                "coll_sn": self._sequence[name],
                "coll_msg_size_bytes": size,
                "coll_exec_time_us": leave_us - enter_us,
                "coll_timing_source": "kernel_gpu",
                "event_trace_ts": {
                    "coll_start_ts": enter_us,
                    "coll_stop_ts": enter_us,
                    "kernel_events": [{"channel_id": 0, **times, "kernel_record_ts": leave_us}],
                },
            },
        }
        self._log.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._sequence[name] += 1


def main() -> None:
    ring = Ring()

    def one_step(delay_seconds: float) -> None:
        time.sleep(COMPUTE_SECONDS + delay_seconds)
        ring.collective("AllReduce", REDUCED_BYTES, 2 * (WORLD - 1), REDUCED_BYTES // WORLD)
        ring.collective("AllGather", SHARD_BYTES, WORLD - 1, SHARD_BYTES)

    print("a rank without GPU and NCCL", flush=True)
    run_steps(one_step)


if __name__ == "__main__":
    main()
