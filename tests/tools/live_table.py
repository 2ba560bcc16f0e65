"""How recorded faults are judged live: `python -m tests.tools.live_table --seeds 201:240`.

Draws sequences of recorded parts (calm ones, faults of 4 to 60 s, several in a row), plays each
into live rounds of verdicts (`tests.worlds.real_rings`), and prints what was named, how soon, and
what was said of parts that were well. Needs the recorded rings beside the checkout.
"""

import argparse
import random
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from collector.contract.units import NS
from tests.tools.captures import CAPTURES, RINGS
from tests.worlds.real_rings import Fault, Part, Said, Spliced, play

LASTS_SECONDS = (4.0, 8.0, 15.0, 30.0, 60.0)
SHORT_SECONDS = 10.0
FORGOTTEN_SECONDS = 200.0
"""How long after a fault it may still be spoken of: a window, and the closing of an incident."""
PIPELINES = CAPTURES / "h200-pipeline"
FAMILIES = {
    "ring": (
        ["compute5", "cpu2", "net3", "half4"],
        [
            *(Part(RINGS / run) for run in ("healthy", "noisy", "ckpt")),
            *(Part(RINGS / run, "calm") for run in ("compute5", "net3", "half4", "cpu2")),
        ],
    ),
    "two groups": (
        ["groups_net3", "groups_cpu6"],
        [Part(RINGS / run, "calm") for run in ("groups_net3", "groups_cpu6")],
    ),
    "pipeline": (["late0"], [Part(PIPELINES / "healthy"), Part(PIPELINES / "late0", "calm")]),
}
"""Faults and calm parts that may follow each other: those of one set-up."""


def drawn(family: str, seed: int) -> tuple[list[Part], float]:
    """Parts, and the seconds between two rounds."""
    chance = random.Random(f"{family} {seed}")
    faults, calm = FAMILIES[family]
    folder = PIPELINES if family == "pipeline" else RINGS
    parts: list[Part] = []
    for _ in range(chance.randint(1, 3)):
        parts += chance.choices(calm, k=chance.randint(2, 5))
        fault = Part(folder / chance.choice(faults), "fault")
        parts += [fault] * max(1, round(chance.choice(LASTS_SECONDS) / seconds_of(fault)))
    return parts + chance.choices(calm, k=2), chance.choice([5.0, 5.0, 10.0])


def seconds_of(part: Part) -> float:
    (fault,) = Spliced([part]).faults
    return fault.last_s - fault.first_s


def is_about(said: Said, fault: Fault) -> bool:
    return (str(said.verdict.cause), said.rank) == fault[:2]


def wrong_ones(said: list[Said], faults: list[Fault]) -> list[Said]:
    """What was said of parts that were well, or of a fault at another time."""
    return [
        one
        for one in said
        if not any(
            is_about(one, fault) and fault.first_s <= one.at_s <= fault.last_s + FORGOTTEN_SECONDS
            for fault in faults
        )
    ]


def first_ones(faults: list[Fault]) -> list[Fault]:
    """Without those that come again while their incident may still be open."""
    found: list[Fault] = []
    last: dict[tuple[str, int], float] = {}
    for one in faults:
        if one.first_s - last.get(one[:2], -1e9) > FORGOTTEN_SECONDS:
            found.append(one)
        last[one[:2]] = one.last_s
    return found


class Table:
    """What came of all sequences."""

    def __init__(self) -> None:
        self.times: dict[tuple[str, str], list[float | None]] = defaultdict(list)
        """By fault and how long it lasts: seconds until it was named, None: it was not."""
        self.sure: list[float] = []
        self.seconds, self.wrong, self.plays = 0.0, 0, 0

    def add(self, family: str, seed: int) -> None:
        parts, tick = drawn(family, seed)
        spliced = Spliced(parts)
        said = play(spliced, tick)
        self.seconds += (spliced.end_ns - spliced.start_ns) / NS
        self.plays += 1
        self.sure += [one.verdict.confidence for one in said]
        for one in wrong_ones(said, spliced.faults):
            self.wrong += 1
            print(f"WRONG: {family} {seed}, {one.at_s:.0f} s: {one.verdict.summary}")
        for fault in first_ones(spliced.faults):
            is_short = fault.last_s - fault.first_s < SHORT_SECONDS
            key = f"{family}: {fault.cause}, rank {fault.rank}", "< 10 s" if is_short else "≥ 10 s"
            soon = [one.at_s - fault.first_s for one in said if is_about(one, fault)]
            self.times[key].append(min((one for one in soon if one >= 0), default=None))

    def show(self) -> None:
        print("| fault | lasts | times | named | median | slowest |")
        print("|---|---|---:|---:|---:|---:|")
        for (name, lasts), found in sorted(self.times.items()):
            named = [one for one in found if one is not None]
            shown = f"{median(named):.0f} s | {max(named):.0f} s" if named else "- | -"
            print(f"| {name} | {lasts} | {len(found)} | {len(named)} | {shown} |")
        print(
            f"\n{self.plays} sequences, {self.seconds / 3600:.1f} h of recorded time, "
            f"{len(self.sure)} verdicts with {min(self.sure):.0%} to {max(self.sure):.0%}; "
            f"{self.wrong} of parts that were well."
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="201:220", help="first and last")
    first, last = map(int, parser.parse_args().seeds.split(":"))
    if not RINGS.is_dir():
        print(f"live_table: no recordings in {Path('../shared/captures')}", file=sys.stderr)
        return 1
    table = Table()
    for family in FAMILIES:
        for seed in range(first, last + 1):
            table.add(family, seed)
            print(f"{family} {seed}", file=sys.stderr, flush=True)
    table.show()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
