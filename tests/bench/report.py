"""What a bench gives back: figures for programs, tables for people, how it stands to the bars."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build/bench"
PAGE = ROOT / "docs/benchmarks.md"
HEADING = "### "
BEGIN, END = "<!-- bench results: begin -->", "<!-- bench results: end -->"

KIB, MIB = 1 << 10, 1 << 20


class BenchError(Exception):
    """A bench could not be run, or what it measured was wrong; the message says which."""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A promise and what was measured: ``value`` is None when a peer is missing."""

    what: str
    needed: float
    value: float | None
    unit: str
    at_most: bool = False
    """True: the value must not be above ``needed``; False: not below."""

    @property
    def is_met(self) -> bool:
        """Whether the promise holds."""
        if self.value is None:
            return False
        return self.value <= self.needed if self.at_most else self.value >= self.needed

    def verdict(self) -> str:
        """`met`, or by how much it was missed."""
        if self.value is None:
            return "not measured"
        if self.is_met:
            return "met"
        short = self.value / self.needed - 1 if self.at_most else 1 - self.value / self.needed
        return f"missed by {short:.0%}".replace("%", " %")

    def sentence(self) -> str:
        """The promise: `native samples per CPU-second ≥ 5x VictoriaMetrics`."""
        return self.what.replace("{needed}", f"{'≤' if self.at_most else '≥'} {self.needed:g}")

    def measured(self) -> str:
        """The number with its unit."""
        return "none" if self.value is None else f"{number(self.value)}{self.unit}"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table of texts: the first column names the row."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def lines(self) -> list[str]:
        """The table for a terminal."""
        grid = [self.columns, *self.rows]
        widths = [max(len(row[at]) for row in grid) for at in range(len(self.columns))]
        out = [self.title]
        for row in grid:
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            out.append("  " + "  ".join(cells).rstrip())
        return out

    def markdown(self) -> list[str]:
        """The table for a page."""
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        rows = [f"| {' | '.join(row)} |" for row in (self.columns, rule, *self.rows)]
        return [f"**{self.title}**", "", *rows, ""]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one bench has to say."""

    name: str
    tables: list[Table]
    bars: list[Bar]
    figures: dict[str, Any]
    """The raw numbers, for programs."""
    notes: list[str] = []
    is_quick: bool = False
    release: str = metadata.version("fabricscope")
    machine: str = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    )


def number(value: float) -> str:
    """A number with three digits that matter, and no exponent.

    >>> number(1234567.0), number(0.01234), number(12.34)
    ('1,234,567', '0.0123', '12.3')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio(one: float | None, other: float | None) -> float | None:
    """How many times the other; None if either was not measured."""
    return None if one is None or other is None else one / other


def quantile(values: list[float], share: float) -> float:
    """The value that so large a share of them does not pass."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def rate(per_second: float) -> str:
    """A rate that people can compare at a glance: `682 k/s`, `6.1 M/s`."""
    if per_second >= 1e6:
        return f"{per_second / 1e6:.2f} M/s"
    return f"{per_second / 1e3:.0f} k/s"


def show(result: Result) -> None:
    """Print the tables and the bars."""
    for table in result.tables:
        print(*["", *table.lines()], sep="\n")
    for note in result.notes:
        print(f"  note: {note}")
    if result.bars:
        print("\nbars")
    for bar in result.bars:
        print(f"  {bar.sentence()}: {bar.measured()}  {bar.verdict()}")
    print(flush=True)


def save(result: Result) -> Path:
    """Write `build/bench/<name>.json`."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    path = OUTPUT / f"{result.name}.json"
    content = msgspec.to_builtins(result)
    for bar, built in zip(result.bars, content["bars"], strict=True):
        built["verdict"] = bar.verdict()
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load_results(names: list[str]) -> list[Result]:
    """What earlier runs left, in this order; what was not run is left out."""
    paths = [OUTPUT / f"{name}.json" for name in names]
    return [msgspec.json.decode(path.read_bytes(), type=Result) for path in paths if path.exists()]


def section(result: Result) -> str:
    """The result as a section of docs/benchmarks.md."""
    quick = "; a quick run, which says little" if result.is_quick else ""
    lines = [f"{HEADING}{result.name}", ""]
    lines += [f"Fabricscope {result.release} on {result.machine}{quick}.", ""]
    for table in result.tables:
        lines += table.markdown()
    lines += [f"- {note}" for note in result.notes]
    lines += [""] if result.notes else []
    if result.bars:
        lines += ["| bar | measured | |", "|---|---:|---|"]
        lines += [f"| {b.sentence()} | {b.measured()} | {b.verdict()} |" for b in result.bars]
        lines.append("")
    return "\n".join(lines)


def write_page(results: list[Result], names: list[str]) -> None:
    """Put the results between the markers of docs/benchmarks.md, in the order of `names`.

    A bench without a new result keeps what the page says of it.
    """
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    shown, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"{PAGE.name} lacks the markers {BEGIN} and {END}")
    kept = [HEADING + part for part in ("\n" + shown).split("\n" + HEADING)[1:]]
    sections = {part.removeprefix(HEADING).partition("\n")[0]: part for part in kept}
    sections |= {result.name: section(result) for result in results}
    content = "\n\n".join(sections[name].strip() for name in names if name in sections)
    PAGE.write_text(f"{before}{BEGIN}\n{content}\n\n{END}{after}", encoding="utf-8")
