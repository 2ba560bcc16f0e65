"""The agent against node_exporter: the same synthetic host, scraped at the same pace.

All run side by side and are scraped in turn, so that whatever else the machine does hits them
alike. Before each scrape every counter moves. node_exporter reads when it is scraped; our agent
reads once a second by itself, so its figure is a read and a scrape.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

import msgspec

from tests.bench.processes import Program, fabricscope, find_peer, free_port, run_program, say
from tests.bench.report import OUTPUT, Bar, BenchError, Result, Table, number
from tests.bench.systems import Fabricscope
from tests.fixtures.trees import bump, write_rdma_tree

DEVICES, HW_COUNTERS = 8, 40
SCRAPES, QUICK_SCRAPES = 60, 15
PACE_SECONDS = 1.0
WARM_UP_SCRAPES = 5
CPU_SHARE, RSS_MIB = 0.25, 60.0

PEER, SCRAPED, SHIPPING = "node_exporter", "agent, scraped", "agent, scraped and shipping"

CONFIG = """\
service_url = "{service}"
spool_dir = "{spool}"
listen = "127.0.0.1:{port}"
sources.ib_sysfs.interval_seconds = 1
sources.netdev.enabled = false
sources.ethtool.enabled = false
"""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a program costs and shows."""

    name: str
    cpu_ms: float
    """CPU of one second with one scrape in it."""
    idle_cpu_ms: float
    """CPU of one second without; for the agents, that is the reading."""
    rss_mib: float
    counters: int
    """Counters of ports in one answer."""

    @property
    def per_counter(self) -> float:
        """CPU milliseconds for each counter shown; infinite for a program that shows none."""
        return self.cpu_ms / self.counters if self.counters else float("inf")


def count_counters(text: str) -> int:
    """Samples of ports' counters: no states, rates, infos or numbers about the program."""
    lines = [line for line in text.splitlines() if 'device="mlx5_' in line]
    names = [line.partition("{")[0] for line in lines]
    return sum(name.endswith("_total") or name == "fabric_port_driver_value" for name in names)


def pace(programs: list[Program], root: Path, seconds: int, *, is_scraping: bool) -> list[float]:
    """Let so many seconds pass, with a scrape of each program in every one; the CPU of each."""
    before = [program.cpu_seconds() for program in programs]
    start = time.monotonic()
    for tick in range(seconds):
        bump(root, tick)
        if is_scraping:
            for program in programs:
                program.get("/metrics")
        time.sleep(max(0.0, start + (tick + 1) * PACE_SECONDS - time.monotonic()))
    after = [program.cpu_seconds() for program in programs]
    return [(end - begin) / seconds for begin, end in zip(before, after, strict=True)]


def start_agent(
    stack: contextlib.ExitStack, name: str, root: Path, folder: Path, service: str
) -> Program:
    """An agent on the tree with one source, reading every second."""
    port = free_port()
    folder.mkdir(parents=True)
    spool = folder / "spool"
    (folder / "agent.toml").write_text(CONFIG.format(service=service, spool=spool, port=port))
    command = [fabricscope(), "agent", "--root", str(root), "--config", str(folder / "agent.toml")]
    return stack.enter_context(run_program(name, command, folder, port))


def start_all(stack: contextlib.ExitStack, folder: Path, root: Path) -> dict[str, Program]:
    """The programs by name; without node_exporter if it is missing."""
    programs: dict[str, Program] = {}
    if (exporter := find_peer("prometheus-node-exporter")) is not None:
        port = free_port()
        command = [
            str(exporter),
            f"--path.sysfs={root / 'sys'}",
            f"--path.procfs={root / 'proc'}",
            "--collector.disable-defaults",
            "--collector.reading.infiniband",
            "--web.disable-exporter-metrics",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        programs[PEER] = stack.enter_context(run_program(PEER, command, folder / PEER, port))
    port, system = free_port(), Fabricscope()
    serve = system.command(folder / "service", port)
    assert serve is not None, "we are always here"
    service = stack.enter_context(run_program("service", serve, folder / "service", port))
    service.wait_until_ready(system.ready_path)
    programs[SCRAPED] = start_agent(stack, "scraped", root, folder / "scraped", "")
    programs[SHIPPING] = start_agent(stack, "shipping", root, folder / "shipping", service.url)
    return programs


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench."""
    seconds = QUICK_SCRAPES if is_quick else SCRAPES * rounds
    folder = OUTPUT / "work" / "agent"
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "tree"
    write_rdma_tree(root, devices=DEVICES, hw_counters=HW_COUNTERS)
    files = sum(1 for _ in root.glob("sys/class/infiniband/*/ports/*/*counters/*"))
    with contextlib.ExitStack() as stack:
        programs = start_all(stack, folder, root)
        for program in programs.values():
            program.wait_until_ready("/metrics")
        every = list(programs.values())
        pace(every, root, WARM_UP_SCRAPES, is_scraping=True)
        say(f"agent: {seconds} s without a scrape")
        idle = pace(every, root, seconds, is_scraping=False)
        say(f"agent: {seconds} s with a scrape of each program in every second")
        busy = pace(every, root, seconds, is_scraping=True)
        figures = [
            Figures(
                name=name,
                cpu_ms=with_scrape * 1000,
                idle_cpu_ms=without * 1000,
                rss_mib=program.peak_rss_mib(),
                counters=count_counters(program.get("/metrics").text),
            )
            for (name, program), with_scrape, without in zip(
                programs.items(), busy, idle, strict=True
            )
        ]
        check_delivery(programs[SHIPPING])
    shutil.rmtree(folder, ignore_errors=True)
    return make_result(figures, files, seconds, is_quick=is_quick)


def check_delivery(agent: Program) -> None:
    """Raise BenchError unless the agent that ships has had batches acknowledged."""
    name = "fabric_agent_shipped_batches_total"
    lines = [line for line in agent.get("/metrics").text.splitlines() if line.startswith(name)]
    if not any(float(line.rpartition(" ")[2]) > 0 for line in lines):
        raise BenchError(f"the agent delivered nothing: {lines}")


def make_result(figures: list[Figures], files: int, seconds: int, *, is_quick: bool) -> Result:
    """Table and bars."""
    by_name = {each.name: each for each in figures}
    peer = by_name.get(PEER)
    bars = []
    for name in (SCRAPED, SHIPPING):
        mine = by_name[name]
        for what, value in (
            ("CPU per scrape", mine.cpu_ms / peer.cpu_ms if peer else None),
            ("CPU per counter shown", mine.per_counter / peer.per_counter if peer else None),
        ):
            sentence = f"{name}: {what} {{needed}}x node_exporter"
            bars.append(Bar(what=sentence, needed=CPU_SHARE, value=value, unit="x", at_most=True))
    largest = max(by_name[name].rss_mib for name in (SCRAPED, SHIPPING))
    bars.append(
        Bar(
            what="agent: peak RSS in MiB {needed}",
            needed=RSS_MIB,
            value=largest,
            unit=" MiB",
            at_most=True,
        )
    )
    return Result(
        name="agent",
        tables=[
            Table(
                title=f"A host of {DEVICES} ports with {files} counter files, {seconds} scrapes",
                columns=[
                    "",
                    "CPU ms per scrape",
                    "of it without scraping",
                    "µs per counter",
                    "counters shown",
                    "peak RSS MiB",
                ],
                rows=[
                    [
                        each.name,
                        f"{each.cpu_ms:.2f}",
                        f"{each.idle_cpu_ms:.2f}",
                        number(each.per_counter * 1000),
                        f"{each.counters}",
                        number(each.rss_mib),
                    ]
                    for each in figures
                ],
            )
        ],
        bars=bars,
        figures={each.name: msgspec.to_builtins(each) for each in figures},
        notes=[
            "one scrape a second: node_exporter reads then, the agents by themselves once a second",
            "nothing is subtracted",
            "source: ib_sysfs alone, as node_exporter's infiniband collector alone",
        ],
        is_quick=is_quick,
    )
