"""What a second evaluator takes off the first: `python -m tests.bench.evaluators [HOSTS] [SECS]`.

A recorded cluster is played to a service with the role `ingest`, beside one and beside two with the
role `evaluate`; they share a store (the engine behind ClickHouse's HTTP interface) and PostgreSQL.
Compared is the CPU time that each evaluator says it spent, by work (`fabric_service_cpu_seconds`).
The engine's part of questions is in the store's process, and not in it.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from contextlib import ExitStack

from tests.bench.live import WORKS, playing, recorded
from tests.bench.processes import Program, fabricscope, free_port, run_program, say
from tests.bench.report import OUTPUT
from tests.doubles import clickhouse_http
from tests.stands import postgres

HOSTS, SECONDS = 16, 60.0
SETTLE_SECONDS = 60.0
"""A new evaluator gets its tasks after 15 s, and windows fill."""
SHOWN = ("rules", "evaluator", "roll", "health", "loop")


def works_of(service: Program) -> Counter[str]:
    found = WORKS.findall(service.get("/metrics").text)
    return Counter({work: float(value) for work, value in found})


def measure(evaluators: int, hosts: int, seconds: float) -> list[Counter[str]]:
    """CPU-seconds of each evaluator, by work, and of all of it as `all`."""
    folder = OUTPUT / "work" / f"evaluators-{evaluators}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "store").mkdir(parents=True)
    file = recorded(hosts)
    with (
        postgres.stoppable() as server,
        clickhouse_http.server(folder / "store") as store_url,
        ExitStack() as running,
    ):
        inventory = postgres.new_database(server.url)

        def start(name: str, role: str) -> Program:
            port = free_port()
            data = folder / name
            words = [fabricscope(), "serve", "--data", str(data), "--role", role]
            words += ["--listen", f"127.0.0.1:{port}", "--store", store_url]
            words += ["--inventory", inventory]
            program = running.enter_context(run_program(name, words, data, port))
            program.wait_until_ready("/readyz")
            return program

        door = start("door", "ingest")
        found = [start(f"evaluator-{number}", "evaluate") for number in range(evaluators)]
        with playing(file, door.port, SETTLE_SECONDS + 2 * seconds, 0) as player:
            time.sleep(SETTLE_SECONDS)
            before = [(each.cpu_seconds(), works_of(each)) for each in found]
            say(f"evaluators: {evaluators}, measuring for {seconds:.0f} s")
            time.sleep(seconds)
            after = [(each.cpu_seconds(), works_of(each)) for each in found]
            player.end()
    shutil.rmtree(folder, ignore_errors=True)
    spent = []
    for (cpu, works), (cpu_before, works_before) in zip(after, before, strict=True):
        own = Counter({work: cost - works_before[work] for work, cost in works.items()})
        spent.append(own | Counter({"all": cpu - cpu_before}))
    return spent


def main(words: list[str]) -> None:
    hosts = int(words[0]) if words else HOSTS
    seconds = float(words[1]) if len(words) > 1 else SECONDS
    say(" | ".join(["evaluators", "which", "all", *SHOWN]))
    for evaluators in (1, 2):
        for number, spent in enumerate(measure(evaluators, hosts, seconds), 1):
            costs = [f"{spent[work]:.2f} s" for work in ("all", *SHOWN)]
            say(" | ".join([str(evaluators), str(number), *costs]))


if __name__ == "__main__":
    main(sys.argv[1:])
