"""What workers cost and what they split: `python -m tests.bench.workers [HOSTS] [SECONDS]`.

The same recorded cluster is played to the whole service (`tests.bench.live`) as one process, and
as 1, 2, 4 and 8 that take requests, beside the evaluator and the store process. What is compared is
the CPU time of each process by the kernel's clock, at the same load: a machine that does other
things, or has two cores, shows the same split. What so many cores could carry follows from it, and
is printed as what it is: arithmetic.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import msgspec

from tests.bench.live import Browsers, playing, recorded, values
from tests.bench.processes import Program, fabricscope, free_port, run_program, say
from tests.bench.report import OUTPUT, Table

WORKERS = (0, 1, 2, 4, 8)
SETTLE_SECONDS = 45.0
"""Series are known by then, and windows begin to fill."""
HOSTS, SECONDS = 16, 60.0
CORES = (2, 4, 8, 16)
ROUND_SECONDS = 5.0
JUDGING = re.compile(
    r'^fabric_service_cpu_seconds_total\{(?:[^}]*,)?work="evaluator"[^}]*\} (\S+)$', re.MULTILINE
)
BUSY = 0.6
"""Of a core that has room for what comes at once, as docs/scale.md has it."""


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
    """Of verdicts, of `due`: a machine that does other things makes some late, and one process more
    of them than several."""
    due: float
    round_cost: float
    """CPU-seconds of a round, without the engine's."""
    late_seconds: float
    commits: float
    load: float
    """Of the machine, when the measurement ended: what else ran."""

    @property
    def at_pace(self) -> float:
        """`whole`, had every round been played that was due."""
        missed = max(0.0, self.due - self.rounds)
        return self.whole + missed * self.round_cost / self.samples * 1e6

    @property
    def serial(self) -> float:
        """What more workers do not split."""
        return self.evaluator + self.store + self.keeper

    @property
    def amdahl(self) -> float:
        """How much faster any number of workers may make it at most."""
        return self.whole / self.serial

    def carried(self, cores: int) -> float:
        """Samples a second of so many cores: all of them busy, or the evaluator's one is.

        The store process is several threads of the engine's, the evaluator one interpreter.
        """
        return BUSY * 1e6 * min(cores / self.whole, 1 / self.evaluator)


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
        self.commits = sum(values(text, "fabric_service_commit_seconds_count"))
        self.judging = sum(float(cost) for cost in JUDGING.findall(text))


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
        due=seconds / ROUND_SECONDS,
        round_cost=(after.judging - before.judging) / max(1.0, after.rounds - before.rounds),
        late_seconds=played.late_seconds,
        commits=after.commits - before.commits,
        load=os.getloadavg()[0],
    )


def table_of(found: list[Split]) -> Table:
    columns = ["workers", "all", "at pace", "against one process", "workers together"]
    columns += ["each worker", "evaluator", "store", "splits", "at most"]
    columns += ["commits", "rounds", "late", "load"]
    alone = next((each.at_pace for each in found if not each.workers), 0.0)
    rows = [
        [
            str(each.workers or "one process"),
            f"{each.whole:.1f}",
            f"{each.at_pace:.1f}",
            f"{each.at_pace / alone:.2f}" if alone else "-",
            *(split_words(each) if each.workers else ["-"] * 6),
            f"{each.commits:.0f}",
            f"{each.rounds:.0f} of {each.due:.0f}",
            f"{each.late_seconds:.0f} s",
            f"{each.load:.1f}",
        ]
        for each in found
    ]
    return Table(title="CPU-seconds a million samples, by process", columns=columns, rows=rows)


def split_words(each: Split) -> list[str]:
    return [
        f"{sum(each.http):.1f}",
        " ".join(f"{one:.1f}" for one in each.http),
        f"{each.evaluator:.1f}",
        f"{each.store:.1f}",
        f"{100 * sum(each.http) / each.whole:.0f} %",
        f"{each.amdahl:.2f}x",
    ]


def carried_of(found: list[Split]) -> Table:
    """Arithmetic: what so many cores, each BUSY, could take at the costs that were measured."""
    rows = [
        [str(each.workers), *(f"{each.carried(cores) / 1000:.0f} k/s" for cores in CORES)]
        for each in found
        if each.workers
    ]
    columns = ["workers", *(f"{cores} cores" for cores in CORES)]
    return Table(title="Samples a second that cores could carry", columns=columns, rows=rows)


def main(words: list[str]) -> None:
    hosts = int(words[0]) if words else HOSTS
    seconds = float(words[1]) if len(words) > 1 else SECONDS
    counts = [int(word) for word in words[2:]] or list(WORKERS)
    found = []
    for workers in counts:
        found.append(measure(workers, hosts, seconds))
        say(str(msgspec.json.encode(found[-1]).decode()))
    for table in (table_of(found), carried_of(found)):
        say(table.title)
        for row in [table.columns, *table.rows]:
            say(" | ".join(row))


if __name__ == "__main__":
    main(sys.argv[1:])
