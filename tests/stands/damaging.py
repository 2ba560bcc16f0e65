"""Captures that are damaged on purpose: ranks absent, files cut off or missing, wrong times.

What people have is seldom whole. Each damage is a choice of a capture's files, and `diagnose` must
name the culprit or honestly nobody: never an innocent with more than CONFIDENCE_MAX, one job where
there was one, and ranks by their true numbers. A process reads each file of a capture once and
loads every choice of it into one store that is emptied in between: a damage costs a fifth of a run.

    python -m tests.stands.damaging COUNT RUN...    a table of so many damages of each kind
    python -m tests.stands.damaging all RUN...      of each subset, file and zone there is
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from api.diagnose.bandwidth import Results
from api.diagnose.cli import add_arguments, look, temporary_folder, to_time_range
from api.diagnose.find import Found, Walk, origin_of
from api.diagnose.load import FileRead, Loader
from api.diagnose.progress import Phases
from api.diagnose.throw_away import ThrowAwayStore, throw_away_store
from collector.contract.errors import ParseError
from collector.formats import Format, Record
from tests.stands.environment import clean_environment

ROOT = Path(__file__).resolve().parents[2]
CONFIDENCE_MAX = 0.5
"""Of an accusation against an innocent: half is what a coin says."""
RANKS_MIN = 3
CHOSEN = 48
"""Of kinds that have too many damages to try all."""
RUN_SECONDS = 3_600
"""Some hundred damages of one capture, beside other work."""
HOUR_NS = 3_600 * 1_000_000_000
ZONES = (-11.0, -8.0, -5.0, -1.0, 1.0, 2.0, 5.5, 8.0, 12.0, 14.0)
"""Hours by which a host in another time zone is off."""
RANK_IN_NAME = re.compile(r"(?:node|rank|dump_|rank_)(\d+)")
SHARED = ("openmetrics", "truth.json")
"""In the names of files that are no rank's own."""


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """Which files are left of a capture, by their places below its folder, and in what state."""

    kind: str
    what: str
    kept: tuple[str, ...]
    cut: tuple[str, ...] = ()
    """Of those kept: cut off in the middle."""
    changed_ns: int | None = None
    """When all files claim to be changed; None: as it is."""
    ahead: tuple[str, ...] = ()
    """Of those kept: written by a clock that was ahead by ``ahead_ns``."""
    ahead_ns: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What `diagnose` says of a damaged capture."""

    damage: Damage
    verdicts: list[dict[str, Any]]
    jobs: list[dict[str, Any]]


class Judged(msgspec.Struct, frozen=True):
    """An outcome against the truth."""

    answer: str
    """`named`, `unknown` or `wrong`."""
    faults: tuple[str, ...]


# The damages -------------------------------------------------------------------------------------


def files_of(run: Path) -> dict[str, int | None]:
    """A capture's files, and the rank whose own each is."""
    found: dict[str, int | None] = {}
    for path in sorted(run.rglob("*")):
        name = path.name
        if path.is_file() and name != "truth.json":
            match = RANK_IN_NAME.search(name)
            is_own = match is not None and not any(word in name for word in SHARED)
            found[str(path.relative_to(run))] = int(match[1]) if match and is_own else None
    return found


def source_of(place: str) -> str:
    return place.partition("/")[0] if "/" in place else "dumps"


def damages_of(run: Path, count: int) -> list[Damage]:
    """About so many damages of each kind, the same in every run."""
    files = files_of(run)
    ranks = sorted({rank for rank in files.values() if rank is not None})
    whole = tuple(files)
    dice = random.Random(run.name)
    sources = sorted({source_of(place) for place, rank in files.items() if rank is not None})
    found = [
        Damage(kind="whole", what="nothing", kept=whole),
        Damage(kind="1970", what="all files", kept=whole, changed_ns=0),
    ]
    for chosen in subsets(ranks, count, dice):
        kept = tuple(p for p, rank in files.items() if rank is None or rank in chosen)
        found.append(Damage(kind="ranks", what=named(chosen), kept=kept))
    for source, chosen in zip(
        itertools.cycle(sources), subsets(ranks, count if len(sources) > 1 else 0, dice),
        strict=False,
    ):  # fmt: skip
        kept = tuple(p for p, rank in files.items() if source_of(p) == source and rank in chosen)
        if kept:
            found.append(Damage(kind="source", what=f"{source} {named(chosen)}", kept=kept))
    for _ in range(count // 2 if len(sources) > 1 else 0):
        own = {source: set(dice.sample(ranks, dice.randint(1, len(ranks)))) for source in sources}
        kept = tuple(p for p, r in files.items() if r is None or r in own[source_of(p)])
        what = "; ".join(f"{source} {named(sorted(some))}" for source, some in own.items())
        found.append(Damage(kind="mix", what=what, kept=kept))
    single = [place for place, rank in files.items() if rank is not None]
    for place in dice.sample(single, min(count, len(single))):
        kept = tuple(p for p in whole if p != place)
        found.append(Damage(kind="missing", what=place, kept=kept))
        found.append(Damage(kind="cut", what=place, kept=whole, cut=(place,)))
    zones = dice.sample(ZONES, min(count // 2, len(ZONES)))
    return [*found, *(zone_damage(files, dice.choice(ranks), hours) for hours in zones)]


def all_damages_of(run: Path) -> list[Damage]:
    """Each subset of RANKS_MIN ranks and more, each file missing and cut, each rank in each zone.

    Single sources and mixes are a choice: there are thousands.
    """
    files = files_of(run)
    ranks = sorted({rank for rank in files.values() if rank is not None})
    whole = tuple(files)
    sets = [
        chosen
        for size in range(RANKS_MIN, len(ranks))
        for chosen in itertools.combinations(ranks, size)
    ]
    kinds = ("whole", "1970", "source", "mix")
    found = [one for one in damages_of(run, CHOSEN) if one.kind in kinds]
    for chosen in sets:
        kept = tuple(p for p, rank in files.items() if rank is None or rank in chosen)
        found.append(Damage(kind="ranks", what=named(chosen), kept=kept))
    for place in whole:
        kept = tuple(p for p in whole if p != place)
        found.append(Damage(kind="missing", what=place, kept=kept))
        found.append(Damage(kind="cut", what=place, kept=whole, cut=(place,)))
    found += [zone_damage(files, rank, hours) for rank in ranks for hours in ZONES]
    return found


def zone_damage(files: dict[str, int | None], rank: int, hours: float) -> Damage:
    return Damage(
        kind="zone",
        what=f"rank {rank} by {hours:g} h",
        kept=tuple(files),
        ahead=tuple(place for place, own in files.items() if own == rank),
        ahead_ns=int(hours * HOUR_NS),
    )


def subsets(ranks: Sequence[int], count: int, dice: random.Random) -> Iterator[tuple[int, ...]]:
    """So many subsets of RANKS_MIN ranks and more, each size as often as the others."""
    for number in range(count):
        size = RANKS_MIN + number % max(1, len(ranks) - RANKS_MIN)
        yield tuple(sorted(dice.sample(ranks, size)))


def named(ranks: Sequence[int]) -> str:
    return ",".join(map(str, ranks))


# One process for many damages --------------------------------------------------------------------


class RememberingLoader(Loader):
    """A loader that parses each file once, however often it is loaded."""

    parsed: dict[tuple[str, bool, int], list[Record | ParseError]]
    is_cut = False
    ahead_ns = 0

    def _parse(
        self, reader: Format, stream: BinaryIO, account: FileRead, found: Found
    ) -> Iterator[Record]:
        key = found.path, self.is_cut, found.changed_ns
        if key not in self.parsed:
            records: list[Record | ParseError] = []
            try:
                records.extend(reader.parse(stream, origin_of(found)))
            except ParseError as error:
                records.append(error)
            self.parsed[key] = records
        for record in self.parsed[key]:
            if isinstance(record, ParseError):
                account.note(str(record))
            else:
                yield moved(record, self.ahead_ns)


def moved(record: Record, ahead_ns: int) -> Record:
    """The record as a clock that is ahead would have written it."""
    if not ahead_ns:
        return record
    times = {
        name: value + ahead_ns
        for name in ("time_ns", "entry_ns", "exit_ns", "enqueue_ns", "start_ns", "end_ns")
        if (value := getattr(record, name, None)) is not None
    }
    return msgspec.structs.replace(record, **times)


def run_damages(run: Path, damages: Sequence[Damage]) -> list[Outcome]:
    """In a process of its own: the engine allows one data path in each."""
    command = [sys.executable, "-m", "tests.stands.damaging", "--answer", str(run)]
    done = subprocess.run(
        command,
        input=msgspec.json.encode(list(damages)),
        capture_output=True,
        check=False,
        timeout=RUN_SECONDS,
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[Outcome])


def answers(run: Path, damages: Sequence[Damage]) -> Iterator[Outcome]:
    bytes_of = {place: (run / place).read_bytes() for place in files_of(run)}
    found = {str(Path(one.path).relative_to(run)): one for one in Walk([str(run)]).files()}
    RememberingLoader.parsed = {}
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = parser.parse_args([str(run)])
    with temporary_folder() as folder, throw_away_store(folder / "store") as store:
        for damage in damages:
            empty(store)
            loader = RememberingLoader(store)
            for place in sorted(damage.kept):
                one, data = found[place], bytes_of[place]
                if damage.changed_ns is not None:
                    one = msgspec.structs.replace(one, changed_ns=damage.changed_ns)
                loader.is_cut = place in damage.cut
                loader.ahead_ns = damage.ahead_ns if place in damage.ahead else 0
                data = data[: len(data) // 2] if loader.is_cut else data
                loader.read(one, io.BytesIO(data), lambda _: None)
            report = look(words, to_time_range(None, None), store, loader.finish(), None, Phases())
            yield Outcome(
                damage=damage,
                verdicts=[msgspec.to_builtins(verdict) for verdict in report.verdicts],
                jobs=[job_words(msgspec.to_builtins(job)) for job in report.jobs],
            )


def empty(store: ThrowAwayStore) -> None:
    """As if nothing had been read: an engine for each damage would cost more than the damage."""
    if store.is_started:
        for table in ("collectives", "steps", "events", "samples", "series"):
            store._writer.command(f"TRUNCATE TABLE {table}")
    store.results = Results()
    store._tables.clear()
    store._events.clear()
    store._event_bytes = store._events_sent = 0


def job_words(job: dict[str, Any]) -> dict[str, Any]:
    """What the judgement needs of a job: a report of all jobs has megabytes."""
    return {
        "job": job["job"],
        "size": job["size"],
        "source": job["source"],
        "collectives": job["collectives_total"],
        "pending": job["pending_total"],
        "hosts": {rank["rank"]: rank["host"] for rank in job["ranks"] if rank["rank"] is not None},
        "ranks_read": job.get("ranks_read"),
    }


# Held against the truth --------------------------------------------------------------------------


def judge_outcome(truth: dict[str, Any], whole: Outcome, outcome: Outcome) -> Judged:
    ranks = set(truth.get("ranks", [truth["rank"]] if "rank" in truth else []))
    hosts = {truth["host"]} if "host" in truth else set()
    faults = []
    answer = "unknown"
    for verdict in outcome.verdicts:
        accused = [verdict["culprit"], *verdict.get("accomplices", [])]
        people = [one for one in accused if one.get("rank") is not None or one.get("host")]
        guilty = [one for one in people if is_guilty(one, ranks, hosts)]
        innocent = [one for one in people if one not in guilty]
        if innocent and verdict["confidence"] > CONFIDENCE_MAX:
            who = ", ".join(str(one.get("rank", one.get("host"))) for one in innocent)
            faults.append(f"accuses {who} with {verdict['confidence']:.0%}: {verdict['summary']}")
        if guilty and not innocent:
            answer = "named"
        if innocent and verdict["confidence"] <= CONFIDENCE_MAX:
            answer = "suspect" if answer == "unknown" else answer
        if truth["cause"] == "none" and verdict["cause"] in ("hang", "stall"):
            faults.append(f"a healthy run stands still: {verdict['summary']}")
    if len(outcome.jobs) > max(1, len(whole.jobs)):
        faults.append(f"{len(outcome.jobs)} jobs of {len(whole.jobs)}")
    total, of = (sum(job["collectives"] for job in one.jobs) for one in (outcome, whole))
    if total > of and outcome.damage.kind in ("ranks", "missing", "cut", "1970", "zone"):
        faults.append(f"{total} collectives of {of}")
    for job in outcome.jobs:
        wrong = [
            f"rank {rank} on {host}"
            for rank, host in job["hosts"].items()
            if host and host.startswith("node") and host != f"node{rank}"
        ]
        if wrong:
            faults.append(f"invented: {', '.join(wrong)}")
    faults += coverage_faults(outcome)
    return Judged("wrong" if faults else answer, tuple(faults))


def is_guilty(accused: dict[str, Any], ranks: set[int], hosts: set[str]) -> bool:
    if accused.get("host") in hosts:
        return True
    return accused.get("rank") in ranks


def coverage_faults(outcome: Outcome) -> Iterator[str]:
    """Whether the report says who is absent, by true numbers."""
    present = {
        int(match[1])
        for place in outcome.damage.kept
        if (match := RANK_IN_NAME.search(Path(place).name))
        and not any(word in place for word in SHARED)
    }
    job = max(outcome.jobs, key=lambda job: job["collectives"], default=None)
    if job is None:
        return
    read = job["ranks_read"]
    if read is None:
        yield "does not say which ranks were read"
        return
    if set(read["read"]) - present:
        yield f"claims to have read {sorted(set(read['read']) - present)}"
    if set(read["unread"]) & present and not outcome.damage.cut:
        yield f"has read {sorted(set(read['unread']) & present)} and denies it"


def table_of(run: Path, count: int | None) -> list[tuple[Outcome, Judged]]:
    """So many damages of each kind; None: all."""
    truth = json.loads((run / "truth.json").read_bytes())
    damages = all_damages_of(run) if count is None else damages_of(run, count)
    outcomes = run_damages(run, damages)
    return [(one, judge_outcome(truth, outcomes[0], one)) for one in outcomes]


HEADINGS = ("run", "damage", "cases", "named", "unknown", "suspect", "wrong")
WIDTHS = (24, 10, 6, 7, 8, 8, 7)


def table_lines(run: Path, rows: Sequence[tuple[Outcome, Judged]]) -> Iterator[str]:
    """How many cases of each kind had which answer."""
    for kind in dict.fromkeys(one.damage.kind for one, _ in rows):
        own = [judged.answer for one, judged in rows if one.damage.kind == kind]
        sums = [own.count(word) for word in HEADINGS[3:]]
        yield line_of(f"{run.parent.name}/{run.name}"[-23:], kind, len(own), *sums)


def line_of(*cells: object) -> str:
    return "".join(f"{cell!s:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def fault_lines(run: Path, rows: Sequence[tuple[Outcome, Judged]]) -> list[str]:
    return [
        f"{run.name} {one.damage.kind} {one.damage.what}: {'; '.join(judged.faults)}"
        for one, judged in rows
        if judged.faults
    ]


def write_table(runs: Sequence[Path], count: int | None) -> int:
    """Writes the table and what is wrong; the status."""
    sys.stdout.write(line_of(*HEADINGS) + "\n")
    faults: list[str] = []
    for run in runs:
        rows = table_of(run, count)
        sys.stdout.writelines(f"{line}\n" for line in table_lines(run, rows))
        sys.stdout.flush()
        faults += fault_lines(run, rows)
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--answer"]:
        wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Damage])
        sys.stdout.buffer.write(msgspec.json.encode(list(answers(Path(words[1]), wanted))))
        sys.exit(0)
    amount = words.pop(0)
    number = None if amount == "all" else int(amount)
    sys.exit(write_table([Path(word) for word in words], number))
