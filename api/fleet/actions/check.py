"""A run of nccl-tests against a floor. Strict: without a floor, or of another host, none passes."""

from __future__ import annotations

import enum
import io
import re
from collections.abc import Iterable, Sequence

import msgspec

from alerts.policy.model import Check
from api.jobs.correlate.baseline import BUS_BANDWIDTH, Baselines
from collector.contract.errors import ParseError
from collector.contract.model import Sample
from collector.formats import Origin, discover

FORMAT = "nccl_tests"
WRONG = "fabric_baseline_wrong_values"
GIGA = 1e9
ROWS_MAX = 200
"""Tests (operation, ranks, size) of one result that are judged: a run has forty at most."""

_RANK_HOST = re.compile(
    rb"# {1,9}Rank {1,9}[0-9]{1,7} [^\n]{0,60}?\bon {1,40}(\S{1,255}) device|"
    rb'"host(?:name)?": ?"([^"\n]{1,255})"'
)
"""Where a result, text or JSON, names the host of a rank."""


class CheckResult(enum.StrEnum):
    """The result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """There is no floor to compare it with."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The largest size of an operation. GB/s, as nccl-tests prints."""

    operation: str
    ranks: int
    size_bytes: int
    bus_bandwidth: float
    floor: float | None
    """Null: no floor is known."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A result, judged."""

    result: CheckResult
    words: str
    rows: Sequence[Row]
    wrong_values: int


def judge_result(body: bytes, host: str, check: Check, baselines: Baselines) -> Outcome:
    """Judge a result for a host. Raises ParseError for what is no result of it."""
    check_hosts(body, host)
    samples = list(read_samples(body))
    best = best_by_test(samples)
    if not best:
        raise ParseError("", "no row of nccl-tests with a bus bandwidth in it")
    wrong = round(sum(each.value for each in samples if each.series.metric == WRONG))
    rows = [judge_row(*test, check, baselines) for test in largest(best)]
    result, words = decide(rows, wrong)
    return Outcome(result=result, words=words, rows=rows, wrong_values=wrong)


def check_hosts(body: bytes, host: str) -> None:
    """Raise ParseError if the result names its hosts, and this is none of them."""
    found = (text or json for text, json in _RANK_HOST.findall(body))
    named = {short(name.decode("utf-8", "replace")) for name in found}
    if named and short(host) not in named:
        some = ", ".join(sorted(named)[:5])
        raise ParseError("", f"it ran on {some}, not on {host}")


def short(host: str) -> str:
    """A host's name without its domain: nccl-tests prints it so."""
    return host.partition(".")[0].lower()


def read_samples(body: bytes) -> Iterable[Sample]:
    reader = discover()[FORMAT]
    for found in reader.parse(io.BytesIO(body), Origin("check")):
        if isinstance(found, Sample):
            yield found


def best_by_test(samples: Iterable[Sample]) -> dict[tuple[str, int, int], float]:
    """The better of both placements of each test, bytes a second."""
    best: dict[tuple[str, int, int], float] = {}
    for sample in samples:
        labels = dict(sample.series.labels)
        if sample.series.metric != BUS_BANDWIDTH:
            continue
        ranks, size = (int(labels.get(name) or 0) for name in ("ranks", "bytes"))
        test = (labels["operation"], ranks, size)
        if test in best or len(best) < ROWS_MAX:
            best[test] = max(sample.value, best.get(test, 0.0))
    return best


def largest(best: dict[tuple[str, int, int], float]) -> list[tuple[str, int, int, float]]:
    """The largest size of each operation and number of ranks: small ones measure latency."""
    found: dict[tuple[str, int], tuple[int, float]] = {}
    for (operation, ranks, size), value in best.items():
        if size >= found.get((operation, ranks), (0, 0.0))[0]:
            found[operation, ranks] = (size, value)
    return [(*test, *found[test]) for test in sorted(found)]


def judge_row(
    operation: str, ranks: int, size: int, value: float, check: Check, baselines: Baselines
) -> Row:
    floor = check.bus_bandwidth_min.get(operation)
    if floor is None:
        reached = baselines.find(operation, ranks, size)
        floor = None if reached is None else check.share_min * reached / GIGA
    return Row(
        operation=operation,
        ranks=ranks,
        size_bytes=size,
        bus_bandwidth=round(value / GIGA, 3),
        floor=None if floor is None else round(floor, 3),
    )


def decide(rows: Sequence[Row], wrong: int) -> tuple[CheckResult, str]:
    if wrong:
        return CheckResult.FAILED, f"{wrong} values came out wrong"
    below = [row for row in rows if row.floor is not None and row.bus_bandwidth < row.floor]
    if below:
        row = below[0]
        return CheckResult.FAILED, f"{row_words(row)}, below its floor of {row.floor:g}"
    held = [row for row in rows if row.floor is not None]
    if not held:
        return CheckResult.UNKNOWN, (
            f"{row_words(rows[0])}, and no floor is known for it: set "
            f"check.bus_bandwidth_min.{rows[0].operation} in the policy"
        )
    row = held[0]
    return CheckResult.PASSED, f"{row_words(row)}, above its floor of {row.floor:g}"


def row_words(row: Row) -> str:
    return f"{row.operation} of {row.size_bytes} B reached {row.bus_bandwidth:g} GB/s"
