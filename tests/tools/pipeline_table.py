"""`python -m tests.tools.pipeline_table`: what `diagnose` says of played pipelines, as a table.

Words: `--seeds 3:6` for those seeds, `--styles full annotated`, `--shapes 4x2 8x4` (stages x
copies), `--late` for receives that are posted when they are needed, `--steps 3`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.stands.diagnosing import report_of
from tests.worlds.pipeline_cases import Case, Fault
from tests.worlds.pipeline_play import Shape
from tests.worlds.pipeline_traces import Style


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--seeds", default="1:2")
    words.add_argument("--styles", nargs="+", default=[style.value for style in Style])
    words.add_argument("--shapes", nargs="+", default=["2x2", "4x2", "4x4", "8x2"])
    words.add_argument("--faults", nargs="+", default=[fault.value for fault in Fault])
    words.add_argument("--steps", type=int, default=5)
    words.add_argument("--batches", type=int, default=8)
    words.add_argument("--late", action="store_true")
    words.add_argument("--batched", action="store_true")
    words.add_argument("--unmarked", action="store_true")
    given = words.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    for case in cases_of(given):
        with tempfile.TemporaryDirectory() as folder:
            case.write(Path(folder))
            report = report_of(folder)
        outcome = case.outcome(report)
        counts[case.fault, case.style, outcome] += 1
        said = [
            (verdict.culprit.rank, verdict.reason, round(verdict.costs[0].lost_share, 3))
            for verdict in report.verdicts
            if verdict.costs
        ]
        sys.stdout.write(f"{outcome:8} {case.name:36} {case.accused()} {said}\n")
        sys.stdout.flush()
    for fault, style in sorted({key[:2] for key in counts}):
        row = ", ".join(
            f"{counts[fault, style, one]} {one}" for one in ("right", "unknown", "wrong")
        )
        sys.stdout.write(f"{fault:12} {style:10} {row}\n")


def cases_of(given: argparse.Namespace) -> list[Case]:
    first, last = map(int, given.seeds.split(":"))
    shapes = [tuple(map(int, shape.split("x"))) for shape in given.shapes]
    return [
        Case(
            fault=Fault(fault),
            style=Style(style),
            seed=seed,
            has_steps=not given.unmarked,
            shape=Shape(
                stages=stages, copies=copies, steps=given.steps, batches=given.batches,
                is_early=not given.late and not given.batched, is_batched=given.batched,
            ),
        )
        for seed in range(first, last)
        for stages, copies in shapes
        for fault in given.faults
        for style in given.styles
    ]  # fmt: skip


if __name__ == "__main__":
    main()
