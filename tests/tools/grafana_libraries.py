"""Grafana's own libraries from npm, run in Node: what they know, and what they make of our boards.

A Grafana cannot be had everywhere; the libraries that it draws panels with can. They begin where
the data source ends, so everything after is Grafana's: transformations, overrides, units, mappings,
colours. `make grafana` installs them (180 MB, not needed for anything else) and runs
`tests/conformance/test_grafana_libraries.py`, which is skipped where they are not.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.grafana.substitute import substituted
from tests.oracles.grafana_ask import Series, Source, Span, Target, read
from tests.oracles.grafana_judge import answer, choices
from tests.tools.setup_page import INSTALL, find_tools
from tests.tools.setup_venv import run, step

HERE = Path(__file__).parent / "grafana"
LIBRARY = HERE / "node_modules/@grafana/data/package.json"
SECONDS_MAX = 300
"""Of one run in Node; it takes two."""


def are_installed() -> bool:
    """Whether the libraries are here."""
    return LIBRARY.is_file()


def install() -> None:
    """Install what the lock names."""
    tools = find_tools()
    with step("install Grafana's libraries", "grafana"):
        run([str(tools.node), str(tools.npm), *INSTALL], folder=HERE)


def node(script: str, text: str = "") -> Any:  # noqa: ANN401 - JSON
    """What a script prints, given a text."""
    done = subprocess.run(
        [str(find_tools().node), str(HERE / script)],
        input=text,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def registries() -> Any:  # noqa: ANN401 - JSON
    """What the libraries know by name."""
    return node("registries.cjs")


def shown(panels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What stands in each panel, its `tables` or `values`; in `said` what the libraries warn of."""
    found: list[dict[str, Any]] = node("shown.cjs", json.dumps(panels))
    return found


def answered(name: str, dashboard: dict[str, Any], source: Source, span: Span) -> Iterator[Any]:
    """A dashboard's panels, each question with its answer, the first choice of each made."""
    chosen = next(iter(choices(read(dashboard), source, span)))
    for panel in dashboard["panels"]:
        for each in panel["panels"] if panel["type"] == "row" else [panel]:
            targets = []
            for target in each["targets"]:
                expr = substituted(target["expr"], chosen, span.lengths())
                asked = Target(target["expr"], target["refId"], target["instant"])
                series = answer(asked, expr, source, span)
                targets.append({**target, "answer": [as_json(one, asked) for one in series]})
            yield {**each, "board": name, "targets": targets}


def as_json(series: Series, target: Target) -> dict[str, Any]:
    """A series; of an instant question its last point."""
    points = series.points[-1:] if target.instant else series.points
    return {"labels": series.labels, "points": [[at, number(value)] for at, value in points]}


def number(value: float) -> float | str:
    """A value as JSON can hold it, in JavaScript's words where there is no number for it.

    >>> number(1.5), number(float("-inf"))
    (1.5, '-Infinity')
    """
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


if __name__ == "__main__":
    install()
    sys.exit(0)
