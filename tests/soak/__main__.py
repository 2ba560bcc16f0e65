"""Does the service stay as it is? `make soak HOURS=2`, or `python -m tests.soak --hours 2`.

The service as a user runs it, with verdicts, rules, roll and health, under a steady load: a
simulated cluster of a few hosts in real time and a browser that looks at it. Its memory,
descriptors, threads, parts and caches are written every 15 s to `build/soak/figures.csv`; at the
end there are curves (`soak.svg`) and a table. Exit status 1: a figure that must be flat grew by
more than `tests.soak.growth.GROWTH_MAX` from the middle of the run to its end, or the service did
not take the load.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import httpx

from tests.bench.report import ROOT
from tests.soak.curves import drawing
from tests.soak.feed import Browser, Feeder, Tally
from tests.soak.figures import Moment, append, look, read, shown
from tests.soak.growth import growths, table_of
from tests.stands.environment import clean_environment
from tests.stands.ports import free_port

FOLDER = ROOT / "build/soak"
FIGURES, CURVES, INSIDE, LOG = "figures.csv", "soak.svg", "inside.jsonl", "service.log"
SAMPLE_SECONDS = 15.0
PROGRESS_SAMPLES = 20
"""A line of progress every five minutes."""
READY_SECONDS, STOP_SECONDS = 120.0, 60.0
POLL_SECONDS = 0.2
HOSTS, SEED = 4, 1
MOMENTS_MIN = 24
"""Fewer make no median of the middle and the end."""
BAD_SHARE_MAX = 0.01
"""Of questions and batches that the service may refuse: a retry is no loss, an outage is."""
PROGRESS = ("rss_bytes", "anonymous_bytes", "engine_MemoryTracking", "descriptors", "parts")


def say(text: str) -> None:
    print(f"soak: {text}", flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="how long the load lasts (2)")
    parser.add_argument("--hosts", type=int, default=HOSTS, help=f"simulated hosts ({HOSTS})")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="what is written goes there")
    parser.add_argument(
        "--read", action="store_true", help="run nothing; judge the figures in the folder"
    )
    chosen = parser.parse_args(arguments)
    if chosen.hours <= 0:
        parser.error(f"--hours {chosen.hours}: must be above 0")
    if chosen.hosts < 4 or chosen.hosts % 4:  # two jobs, each on both halves
        parser.error(f"--hosts {chosen.hosts}: must be 4, 8, 12, …")
    return chosen


@contextlib.contextmanager
def service(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`fabricscope serve` with its data in the folder; SIGTERM at the end."""
    command = [sys.executable, "-m", "tests.soak.inside", str(folder / INSIDE)]
    command += [str(SAMPLE_SECONDS), "serve", "--data", str(folder / "data")]
    command += ["--listen", f"127.0.0.1:{port}"]
    with (folder / LOG).open("ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=clean_environment(), stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if client.get("/readyz").is_success:
                return True
        time.sleep(POLL_SECONDS)
    return False


@contextlib.contextmanager
def running(works: list[Callable[[], None]], stop: threading.Event) -> Iterator[None]:
    """All of them in threads; one that breaks ends the soak."""

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            finally:
                stop.set()

        return run

    threads = [threading.Thread(target=guarded(work)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def sample(
    folder: Path,
    process: subprocess.Popen[bytes],
    client: httpx.Client,
    stop: threading.Event,
    seconds: float,
    tally: Tally,
) -> bool:
    """Write figures until the time is over; False if the service or the load ended before."""
    started, number = time.monotonic(), 0
    while (now := time.monotonic() - started) < seconds:
        if stop.wait(max(0.0, min(number * SAMPLE_SECONDS, seconds) - now)):
            return False
        if process.poll() is not None:
            say(f"the service ended with status {process.returncode}; see {folder / LOG}")
            return False
        try:
            figures = look(process.pid, folder / INSIDE, folder / "data", client)
        except (OSError, httpx.HTTPError) as error:
            tally.bad_answers += 1
            tally.last_trouble = f"/metrics: {error!r}"
        else:
            moment = Moment(time.monotonic() - started, figures)
            append(folder / FIGURES, moment)
            if number % PROGRESS_SAMPLES == 0:
                tell(moment, tally)
        number += 1
    return True


def tell(moment: Moment, tally: Tally) -> None:
    parts = [
        f"{name} {shown(name, moment.figures[name])}" for name in PROGRESS if name in moment.figures
    ]
    say(
        f"{moment.seconds / 60:.0f} min: {', '.join(parts)}; {tally.samples:,} samples, "
        f"{tally.answers:,} answers, {tally.refused + tally.bad_answers:,} bad, "
        f"{tally.skipped_s:.0f} s skipped"
    )


def soak(folder: Path, hours: float, hosts: int) -> bool:
    """Run it; False if the service or the load ended early, or too much was refused."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port, stop = free_port(), threading.Event()
    url = f"http://127.0.0.1:{port}"
    client = httpx.Client(base_url=url, timeout=60.0, trust_env=False)
    with client, service(folder, port) as process:
        say(f"the service is process {process.pid} at {url}; figures in {folder / FIGURES}")
        if not await_ready(client, process):
            say(f"the service is not ready; see {folder / LOG}")
            return False
        feeder = Feeder(url, hosts, SEED, stop)
        browser = Browser(url, feeder.tally, stop)
        with running([feeder.run, browser.run], stop):
            is_whole = sample(folder, process, client, stop, hours * 3600, feeder.tally)
    return is_whole and is_served(feeder.tally)


def is_served(tally: Tally) -> bool:
    """Whether the service took the load; what was wrong is printed."""
    say(
        f"{tally.batches:,} batches with {tally.samples:,} samples, {tally.refused:,} refused at "
        f"first, {tally.dropped:,} dropped; {tally.answers:,} questions, {tally.bad_answers:,} "
        f"without a good answer"
    )
    if tally.last_trouble:
        say(f"the last trouble: {tally.last_trouble}")
    is_lost = tally.dropped > 0 or not tally.batches
    are_refused = tally.refused > BAD_SHARE_MAX * tally.batches
    return not (is_lost or are_refused or tally.bad_answers > BAD_SHARE_MAX * tally.answers)


def judge(folder: Path) -> bool:
    """Print the table and draw the curves; False if something grows."""
    moments = read(folder / FIGURES) if (folder / FIGURES).exists() else []
    if len(moments) < MOMENTS_MIN:
        say(f"{len(moments)} moments; {MOMENTS_MIN} are needed to judge")
        return False
    found = growths(moments)
    for line in table_of(found, moments[-1].seconds).lines():
        print(line)
    (folder / CURVES).write_text(drawing(moments), encoding="utf-8")
    say(f"curves in {folder / CURVES}")
    growing = [one.name for one in found if one.is_too_much]
    if growing:
        say(f"grows: {', '.join(growing)}")
    return not growing


def end(number: int, _: object) -> NoReturn:
    """By an exception, so that the service is ended whatever ends the soak."""
    say(f"ended by {signal.Signals(number).name} before its time; --read judges what there is")
    sys.exit(128 + number)


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    signal.signal(signal.SIGTERM, end)
    folder = chosen.folder.resolve()
    is_well = chosen.read or soak(folder, chosen.hours, chosen.hosts)
    return 0 if judge(folder) and is_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
