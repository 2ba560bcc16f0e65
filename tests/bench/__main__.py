"""Measures us and the peers in one go: `python -m tests.bench [NAME …]`, or `make bench`.

Benchmarks are not tests: nothing fails because a number is low. A run fails when what was stored
is not what was sent. Results go to `build/bench/<name>.json`; docs/benchmarks.md says the rest.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from tests.bench import (
    agent,
    browser,
    bursts,
    decode,
    health,
    ib_fabric,
    ingest,
    jobs,
    live,
    page,
    placement,
    query,
    simulator,
    snmp,
    streams,
    verdict,
    views,
)
from tests.bench.processes import say
from tests.bench.report import OUTPUT, PAGE, BenchError, load_results, save, show, write_page

BENCHES = {
    "decode": decode.run,
    "agent": agent.run,
    "bursts": bursts.run,
    "ingest": ingest.run,
    "streams": streams.run,
    "query": query.run,
    "jobs": jobs.run,
    "verdict": verdict.run,
    "page": page.run,
    "browser": browser.run,
    "views": views.run,
    "health": health.run,
    "placement": placement.run,
    "simulator": simulator.run,
    "ib_fabric": ib_fabric.run,
    "snmp": snmp.run,
    "live": live.run,
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; all")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    parser.add_argument("--rounds", type=int, default=1, help="repeat; medians are shown (1)")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help=f"run nothing; put the last results into {PAGE.name}",
    )
    chosen = parser.parse_args(arguments)
    for name in chosen.names:
        if name not in BENCHES:
            parser.error(f"there is no bench {name!r}; there are {', '.join(BENCHES)}")
    return chosen


def main(arguments: list[str]) -> int:
    """Run what was asked for."""
    chosen = parse(arguments)
    if chosen.write_docs:
        results = load_results(list(BENCHES))
        write_page(results, list(BENCHES))
        say(f"{PAGE.name}: wrote {', '.join(result.name for result in results) or 'nothing'}")
        return 0
    failed = False
    for name in chosen.names or BENCHES:
        started = time.monotonic()
        say(f"{name}: starts")
        try:
            result = BENCHES[name](is_quick=chosen.quick, rounds=chosen.rounds)
        except BenchError as error:
            say(f"{name}: failed: {error}")
            failed = True
            continue
        show(result)
        path = save(result)
        say(f"{name}: {time.monotonic() - started:.0f} s, written to {path.relative_to(OUTPUT)}")
    if not failed:
        shutil.rmtree(OUTPUT / "work", ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
