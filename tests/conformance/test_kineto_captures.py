"""Real traces beside what NCCL Inspector wrote of the same runs: same operations, same moments.

The captures are large and no part of the project; without them these tests are skipped.
"""

import gzip
import json
from bisect import bisect_left
from collections import Counter
from functools import cache
from typing import BinaryIO, cast

import pytest

from collector.contract.collective import Collective, Operation, StepSpan
from collector.contract.errors import ParseError
from collector.contract.model import Event
from collector.formats import HEAD_BYTES, Origin, Record
from collector.formats.kineto import FORMAT
from collector.parsing.intervals import length, merge
from tests.tools.captures import RINGS

RUNS = sorted(path.name for path in RINGS.glob("*") if (path / "kineto").is_dir())
OPERATIONS = {"AllReduce": Operation.ALL_REDUCE, "AllGather": Operation.ALL_GATHER}
RANKS = 8
STEPS = 7
"""Steps 28 to 34 were profiled."""
LATE_NS_MAX = 12_000_000
"""Inspector's times are those of a host thread that has other work, too: always late, mostly by
some microseconds, at worst here by five milliseconds (an exit) and by nine (an entry)."""
EARLY_NS_MAX = 1_000_000
"""Its clock and the profiler's are not the same, but adjusted to each other."""

pytestmark = pytest.mark.skipif(not RUNS, reason="no captures beside the repository")
each_run = pytest.mark.parametrize("run", RUNS)


@cache
def read_rank(run: str, rank: int) -> list[Record | ParseError]:
    path = RINGS / run / "kineto" / f"rank{rank}.pt.trace.json.gz"
    origin = Origin(path.name.removesuffix(".gz"))
    with gzip.open(path) as file:
        assert FORMAT.recognises(file.read(HEAD_BYTES), origin)
        file.seek(0)
        return list(FORMAT.parse(cast("BinaryIO", file), origin))


def collectives(run: str, rank: int) -> list[Collective]:
    return [each for each in read_rank(run, rank) if isinstance(each, Collective)]


Seen = tuple[int, int, int, str]
"""Entry, exit, number and communicator of an operation."""


@cache
def inspector(run: str) -> dict[tuple[int, Operation, int], list[Seen]]:
    """What Inspector saw, in order, by process, operation and size."""
    found: dict[tuple[int, Operation, int], list[Seen]] = {}
    for path in sorted((RINGS / run / "inspector").glob("*.log")):
        for line in path.read_text("utf-8").splitlines():
            record = json.loads(line)
            said = record.get("coll_perf")
            if said is None or said["coll"] not in OPERATIONS:
                continue
            channels = said["event_trace_ts"]["kernel_events"]
            entry_ns = min(each["kernel_start_ts"] for each in channels) * 1000
            exit_ns = max(each["kernel_stop_ts"] for each in channels) * 1000
            key = record["metadata"]["pid"], OPERATIONS[said["coll"]], said["coll_msg_size_bytes"]
            seen = entry_ns, exit_ns, said["coll_sn"], record["header"]["id"]
            found.setdefault(key, []).append(seen)
    return {key: sorted(each) for key, each in found.items()}


def nearest(seen: list[Seen], entry_ns: int) -> Seen:
    at = bisect_left(seen, (entry_ns, 0, 0, ""))
    return min(seen[max(0, at - 1) : at + 1], key=lambda each: abs(each[0] - entry_ns))


@each_run
def test_every_rank_has_every_operation_of_the_profiled_steps(run: str) -> None:
    whole = {("all_reduce", 8): STEPS, ("all_gather", 8): STEPS}
    parts = {("all_reduce", 4): 4 * STEPS, ("all_reduce", 2): STEPS}
    for rank in range(RANKS):
        found = Counter((str(each.operation), each.ranks) for each in collectives(run, rank))
        assert found == (parts if run.startswith("groups_") else whole), f"rank {rank}"
        assert not [each for each in read_rank(run, rank) if isinstance(each, ParseError)]


@each_run
def test_operations_begin_and_end_when_inspector_says(run: str) -> None:
    """And their numbers are the same on all ranks, so that they are joined rightly."""
    joined: dict[tuple[str, Operation, int], set[tuple[int, str]]] = {}
    for rank in range(RANKS):
        for each in collectives(run, rank):
            assert each.entry_ns is not None
            assert each.exit_ns is not None
            assert each.size_bytes is not None
            known = inspector(run)[each.pid, each.operation, each.size_bytes]
            entry_ns, exit_ns, number, communicator = nearest(known, each.entry_ns)
            assert -EARLY_NS_MAX < entry_ns - each.entry_ns < LATE_NS_MAX, f"rank {rank}: {each}"
            # Of a tree Inspector sees one of its two halves end: the kernel runs on, and the next
            # one on the stream starts only after that.
            if each.algorithm != "tree":
                assert -EARLY_NS_MAX < exit_ns - each.exit_ns < LATE_NS_MAX, f"rank {rank}: {each}"
            key = each.communicator, each.operation, each.sequence
            joined.setdefault(key, set()).add((number, communicator))
    assert {key: said for key, said in joined.items() if len(said) > 1} == {}


@each_run
def test_phases_cover_what_was_profiled(run: str) -> None:
    for rank in range(RANKS):
        records = read_rank(run, rank)
        spans = [each for each in records if isinstance(each, StepSpan)]
        (step,) = [each for each in spans if not each.phase]
        stretches = [(each.start_ns, each.end_ns) for each in spans if each.phase]
        assert merge(stretches) == [(step.start_ns, step.end_ns)]
        busy = merge(
            (each.start_ns, each.end_ns)
            for each in spans
            if each.phase in {"gpu.compute", "gpu.communication", "gpu.copy"}
        )
        idle = [(each.start_ns, each.end_ns) for each in spans if each.phase == "gpu.idle"]
        assert length(busy) + length(idle) == step.end_ns - step.start_ns
        (event,) = [each for each in records if isinstance(each, Event)]
        communicating = sum(
            each.duration_ns or 0 for each in records if isinstance(each, Collective)
        )
        assert float(event.attributes["communication_ms"]) == pytest.approx(
            communicating / 1e6, abs=0.001
        )
