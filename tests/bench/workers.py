"""What workers cost and what they split: `python -m tests.bench.workers [HOSTS] [SECONDS]`.

The same recorded cluster is played to the whole service (`tests.bench.live`) as one process, and
as 1, 2 and 4 that take requests, beside the evaluator and the store process. What is compared is
the CPU time of each process by the kernel's clock, at the same load: a machine that does other
things, or has two cores, shows the same split.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import msgspec

from tests.bench.live import Browsers, playing, recorded, values
from tests.bench.processes import Program, fabricscope, free_port, run_program, say
from tests.bench.report import OUTPUT, Table

WORKERS = (0, 1, 2, 4)
SETTLE_SECONDS = 45.0
"""Series are known by then, and windows begin to fill."""
HOSTS, SECONDS = 16, 60.0


class Split(msgspec.Struct, frozen=True):
    """CPU-seconds a million samples, by the kind of process."""

    workers: int
    samples: float
    whole: float
    http: list[float]
    evaluator: float
    store: float
    keeper: float
    rounds: float
    late_seconds: float


def pids_of(service: Program, data: Path) -> dict[str, int]:
    """The processes of a service by name; one alone is `whole`."""
    file = data / "run" / "processes.json"
    if not file.exists():
        return {"whole": service.pid}
    shown = json.loads(file.read_text())
    return {"keeper": service.pid, **{each["name"]: each["pid"] for each in shown}}


def cpu_of(pid: int) -> float:
    """User and system time so far, as `Program.cpu_seconds` reads it."""
    return time.clock_gettime((~pid << 3) | 2)


class Look:
    """The numbers of all processes at a moment."""

    def __init__(self, service: Program, pids: dict[str, int]) -> None:
        self.cpu = {name: cpu_of(pid) for name, pid in pids.items()}
        text = service.get("/metrics").text
        self.samples = sum(values(text, "fabric_service_samples_total"))
        self.rounds = sum(values(text, "fabric_service_evaluation_seconds_count"))


def measure(workers: int, hosts: int, seconds: float) -> Split:
    file = recorded(hosts)
    folder = OUTPUT / "work" / f"workers-{workers}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port = free_port()
    command = [fabricscope(), "serve", "--data", str(folder), "--listen", f"127.0.0.1:{port}"]
    command += ["--workers", str(workers)]
    with run_program("workers", command, folder, port) as service:
        service.wait_until_ready("/readyz")
        whole = SETTLE_SECONDS + 2 * seconds
        with playing(file, port, whole, 0) as player, Browsers(port):
            time.sleep(SETTLE_SECONDS)
            pids = pids_of(service, folder)
            before = Look(service, pids)
            say(f"workers: {workers}, measuring for {seconds:.0f} s")
            time.sleep(seconds)
            after = Look(service, pids)
            played = player.end()
    shutil.rmtree(folder, ignore_errors=True)
    millions = (after.samples - before.samples) / 1e6
    spent = {name: (after.cpu[name] - cpu) / millions for name, cpu in before.cpu.items()}
    return Split(
        workers=workers,
        samples=millions * 1e6,
        whole=sum(spent.values()),
        http=[cost for name, cost in spent.items() if name.startswith("worker-")],
        evaluator=spent.get("evaluator", 0.0),
        store=spent.get("store", 0.0),
        keeper=spent.get("keeper", 0.0),
        rounds=after.rounds - before.rounds,
        late_seconds=played.late_seconds,
    )


def table_of(found: list[Split]) -> Table:
    columns = ["workers", "samples", "all", "each worker", "evaluator", "store", "keeper"]
    columns += ["splits", "rounds", "late"]
    rows = [
        [
            str(each.workers),
            f"{each.samples:,.0f}",
            f"{each.whole:.1f}",
            " ".join(f"{one:.1f}" for one in each.http) or "-",
            f"{each.evaluator:.1f}" if each.http else "-",
            f"{each.store:.1f}" if each.http else "-",
            f"{each.keeper:.2f}" if each.http else "-",
            f"{100 * sum(each.http) / each.whole:.0f} %" if each.http else "-",
            f"{each.rounds:.0f}",
            f"{each.late_seconds:.0f} s",
        ]
        for each in found
    ]
    return Table(title="CPU-seconds a million samples, by process", columns=columns, rows=rows)


def main(words: list[str]) -> None:
    hosts = int(words[0]) if words else HOSTS
    seconds = float(words[1]) if len(words) > 1 else SECONDS
    found = []
    for workers in WORKERS:
        found.append(measure(workers, hosts, seconds))
        say(str(msgspec.json.encode(found[-1]).decode()))
    table = table_of(found)
    say(table.title)
    for row in [table.columns, *table.rows]:
        say(" | ".join(row))


if __name__ == "__main__":
    main(sys.argv[1:])
