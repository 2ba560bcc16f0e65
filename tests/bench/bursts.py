"""The fast sampler: what it costs, how late it is, and whether it finds bursts of a known shape.

Cost: sixteen counters (both directions of loopback, eight times) at 1 kHz, all of them moving at
every tick, because a counter that stands still costs half. Truth: `tests.stands.shaped_link`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collector.bursts.plan import NS_PER_MS, RECEIVE, TRANSMIT, CounterPlan, Plan
from collector.bursts.process import LiveSampler
from tests.bench.processes import say
from tests.bench.report import Bar, Result, Table
from tests.stands import shaped_link

COUNTERS = 16
SECONDS, QUICK_SECONDS = 30, 5
BURSTS, QUICK_BURSTS = 400, 60
SMOOTH_SECONDS, QUICK_SMOOTH_SECONDS = 20.0, 2.0
CPU_SHARE_MAX = 0.10
FOUND_SHARE = 0.99
START_MS_MAX = 2.0
PACKETS_PER_SECOND = 4_000
NS_PER_MICROSECOND = 1_000


@contextlib.contextmanager
def traffic() -> Iterator[None]:
    """A trickle over loopback that changes its counters in every millisecond."""
    stop = threading.Event()

    def run() -> None:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source,
        ):
            sink.bind(("127.0.0.1", 0))
            while not stop.wait(1 / PACKETS_PER_SECOND):
                source.sendto(b"x" * 1_000, sink.getsockname())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cost(seconds: int) -> dict[str, Any]:
    """CPU, lateness and memory of a sampler of sixteen counters."""
    folder = Path("/sys/class/net/lo/statistics")
    files = [(folder / "rx_bytes", RECEIVE), (folder / "tx_bytes", TRANSMIT)]
    counters = [
        CounterPlan(str(file), f"lo{number}", "", direction, 1, 0, 1.25e9)
        for number in range(COUNTERS // len(files))
        for file, direction in files
    ]
    sampler = LiveSampler(Plan(tuple(counters)))
    reports: list[dict[str, Any]] = []
    with traffic():
        while len(reports) < seconds + 2:
            reports += sampler.poll()
            time.sleep(0.2)
        assert sampler._process is not None
        status = Path(f"/proc/{sampler._process.pid}/status").read_text("utf-8")
    sampler.close()
    first, *rest = reports[1:]  # the first second holds the start
    shares = [
        (after["cpu"] - before["cpu"]) * 1e9 / (after["monotonic"] - before["monotonic"])
        for before, after in zip([first, *rest], rest, strict=False)
    ]
    moved = [each["windows"] / each["seconds"] for report in rest for each in report["counters"]]
    return {
        "cpu_share": (rest[-1]["cpu"] - first["cpu"])
        * 1e9
        / (rest[-1]["monotonic"] - first["monotonic"]),
        "cpu_share_best_second": min(shares),
        "late_p50_us": median([each["late"][0] for each in rest]) / NS_PER_MICROSECOND,
        "late_p99_us": median([each["late"][1] for each in rest]) / NS_PER_MICROSECOND,
        "late_p99_us_worst_second": max(each["late"][1] for each in rest) / NS_PER_MICROSECOND,
        "late_max_us": max(each["late"][2] for each in rest) / NS_PER_MICROSECOND,
        "ticks_missed": rest[-1]["missed"] - first["missed"],
        "ticks": sum(each["ticks"] for each in rest),
        "windows_a_second": median(moved),
        "rss_mib": int(status.partition("VmHWM:")[2].split()[0]) / 1024,
    }


def median(numbers: list[float]) -> float:
    """The middle one."""
    return sorted(numbers)[len(numbers) // 2]


def truth(bursts: int, smooth_seconds: float) -> dict[str, Any] | None:
    """What was found of known bursts; None where no shaped link can be made."""
    if why := shaped_link.why_not():
        say(f"bursts: no shaped link: {why}")
        return None
    trial = shaped_link.measure(bursts, smooth_seconds)
    fair = [sent for sent in trial.sent if trial.is_fair(sent)]
    off = [trial.starts_off_ns(sent) for sent in fair]
    found = sorted(abs(each) for each in off if each is not None)
    everything = [trial.starts_off_ns(sent) for sent in trial.sent]
    return {
        "sent": len(trial.sent),
        "fair": len(fair),
        "found": len(found),
        "found_of_all": sum(each is not None for each in everything),
        "start_off_ms_median": found[len(found) // 2] / NS_PER_MS if found else None,
        "start_off_ms_max": found[-1] / NS_PER_MS if found else None,
        "invented": len(trial.invented),
        "smooth_seconds": smooth_seconds,
    }


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench."""
    seconds = QUICK_SECONDS if is_quick else SECONDS * rounds
    say(f"bursts: {COUNTERS} counters at 1 kHz for {seconds} s")
    spent = cost(seconds)
    say("bursts: known bursts through a shaped link")
    seen = truth(
        QUICK_BURSTS if is_quick else BURSTS, QUICK_SMOOTH_SECONDS if is_quick else SMOOTH_SECONDS
    )
    return Result(
        name="bursts",
        tables=[
            Table(
                title=f"A sampler of {COUNTERS} counters at 1 kHz, {seconds} s",
                columns=["", ""],
                rows=[[name.replace("_", " "), f"{value:.4g}"] for name, value in spent.items()],
            ),
            Table(
                title="Bursts of 5 to 20 ms at the line's rate, then a flow at 30 % of it",
                columns=["", ""],
                rows=[[name.replace("_", " "), f"{value}"] for name, value in (seen or {}).items()],
            ),
        ],
        bars=bars_of(spent, seen),
        figures={"cost": spent, "truth": seen},
        notes=[
            "lateness: the middle second's; all counters of the cost table move at every tick",
            "fair: sent in under 2 ms, no gap of 2 ms between raw samples, and the shaper on time",
        ],
        is_quick=is_quick,
    )


def bars_of(spent: dict[str, Any], seen: dict[str, Any] | None) -> list[Bar]:
    """What was asked for."""
    share = seen["found"] / seen["fair"] if seen and seen["fair"] else None
    return [
        Bar(
            what="sampler: CPU of a core {needed}",
            needed=CPU_SHARE_MAX,
            value=spent["cpu_share"],
            unit="",
            at_most=True,
        ),
        Bar(
            what="sampler: share of fair bursts found {needed}",
            needed=FOUND_SHARE,
            value=share,
            unit="",
        ),
        Bar(
            what="sampler: start of a burst off by {needed} ms",
            needed=START_MS_MAX,
            value=seen["start_off_ms_max"] if seen else None,
            unit=" ms",
            at_most=True,
        ),
        Bar(
            what="sampler: bursts invented on smooth traffic {needed}",
            needed=0.0,
            value=float(seen["invented"]) if seen else None,
            unit="",
            at_most=True,
        ),
    ]
