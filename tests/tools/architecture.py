"""Draws the floors of the code and the walks through them: docs/images/architecture.svg.

The floors are the `layers` contract in pyproject.toml; the words beside each package are the first
sentence of its docstring; each step of a walk must be an import that exists. So neither drawing nor
tables can say what the code does not do. `make docs` writes both.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from tests.tools.svg import at, safe

ROOT = Path(__file__).resolve().parents[2]
DRAWING = ROOT / "docs/images/architecture.svg"

ROW = 27
LEFT, WORDS_LEFT, LINES_LEFT, LINE_STEP = 16, 250, 860, 84
TOP = 62
COLOURS = ("#2b6cb0", "#b7791f", "#c53030")


class Step(msgspec.Struct, frozen=True):
    """A module on a walk, and what it does there.

    ``is_sent``: the step before does not import this module; its data arrives over HTTP.
    """

    module: str
    does: str
    is_sent: bool = False


class Walk(msgspec.Struct, frozen=True):
    """The way of one thing through the code, from the top floor that handles it downwards."""

    name: str
    steps: tuple[Step, ...]


WALKS = (
    Walk(
        "a counter",
        (
            Step("collector.agent.schedule", "calls every source at its interval, with a timeout"),
            Step("collector.sources.ib_sysfs", "names the counter as the catalog does"),
            Step("collector.reading.sysfs", "finds the port's folder and reads the value"),
            Step("collector.doors.host", "opens the file: only doors touch the machine"),
            Step("api.http.routes.ingest", "receives the spooled batch", is_sent=True),
            Step("api.http.context", "hands it to the one ingest of this process"),
            Step("api.data.ingest.ingest", "decodes it and waits for the group commit"),
            Step("api.data.store.store", "inserts it into ClickHouse; then the agent gets its 200"),
        ),
    ),
    Walk(
        "a collective",
        (
            Step("api.oncall.evaluate.parts", "builds the evaluator: a round every five seconds"),
            Step("api.oncall.evaluate.detect", "hands the window to every detector"),
            Step("api.jobs.correlate.windows", "joins the records of all ranks of a job"),
            Step("api.data.store.store", "reads collectives, counters and events of the window"),
            Step("alerts.judge.verdict", "runs after every detector: one root, its victims"),
            Step("alerts.detectors.slow_link", "finds transfers that take too long, and where"),
            Step("alerts.signals.ladder", "orders the ranks by when they left the ring"),
            Step("alerts.window.clocks", "puts all ranks on one clock"),
        ),
    ),
    Walk(
        "an alert",
        (
            Step("api.http.app", "starts the service"),
            Step("api.http.wiring", "builds the rule task and the notifier"),
            Step("api.oncall.rules.parts", "gives the task its engine, clock and shelf of rules"),
            Step("api.oncall.rules.task", "runs each group of rules when it is due"),
            Step("api.oncall.rules.evaluate", "asks the rule's expression"),
            Step("api.promql.engine", "answers it on matrices"),
            Step("api.data.store.store", "reads the samples"),
            Step("alerts.rulebook.life", "moves the alert: pending, firing, resolved"),
            Step("alerts.rulebook.model", "holds rules and alerts as plain values"),
        ),
    ),
)


@cache
def floors() -> tuple[tuple[str, ...], ...]:
    """The packages of each floor, top to bottom."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    return tuple(tuple(part.strip() for part in layer.split("|")) for layer in layers)


def floor_of(module: str) -> int:
    """How many floors lie above a module's; ValueError where it has none."""
    for number, packages in enumerate(floors()):
        if any(module == each or module.startswith(f"{each}.") for each in packages):
            return number
    raise ValueError(f"{module} stands on no floor: name its package in pyproject.toml")


def file_of(module: str) -> Path:
    """Where a module or a package is written."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def imports_of(module: str) -> frozenset[str]:
    """What a module imports: modules, and packages of names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file_of(module).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def first_sentence(package: str) -> str:
    """What a package says of itself."""
    text = ast.get_docstring(ast.parse(file_of(package).read_text("utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".")


def mistakes() -> Iterator[str]:
    """Steps that the code does not take, and steps that lead back up."""
    for walk in WALKS:
        above: list[Step] = []
        for step in walk.steps:
            if above and floor_of(step.module) < floor_of(above[-1].module):
                yield f"{walk.name}: {step.module} stands above {above[-1].module}"
            # A plug-in is found by its package's `discover()`.
            names = {step.module, step.module.rpartition(".")[0]}
            known = any(names & imports_of(each.module) for each in above)
            if above and not step.is_sent and not known:
                yield f"{walk.name}: no module before {step.module} imports it"
            above.append(step)


def walk_tables() -> str:
    """The walks as Markdown."""
    parts = []
    for walk in WALKS:
        lines = [
            f"### The way of {walk.name}\n\n| floor | module | what it does |\n|---:|---|---|\n"
        ]
        for step in walk.steps:
            path = file_of(step.module).relative_to(ROOT).as_posix()
            floor = len(floors()) - floor_of(step.module)
            lines.append(f"| {floor} | [`{step.module}`](../{path}) | {step.does} |\n")
        parts.append("".join(lines))
    return "\n".join(parts)


def draw() -> str:
    """The drawing: a row for each floor, and a line down through the floors for each walk."""
    rows = floors()
    height, width = TOP + ROW * len(rows) + 14, LINES_LEFT + LINE_STEP * len(WALKS)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="system-ui, sans-serif" font-size="12">'
        ),
        f'<rect {at(x=0, y=0, width=width, height=height)} fill="#ffffff"/>',
        (
            f'<text {at(x=LEFT, y=24)} font-size="15" font-weight="600" fill="#1a202c">'
            "Floors: a package imports only what stands below it</text>"
        ),
    ]
    for number, packages in enumerate(rows):
        parts.extend(draw_floor(number, packages))
    for number, walk in enumerate(WALKS):
        parts.extend(draw_walk(number, walk))
    return "\n".join([*parts, "</svg>", ""])


def draw_floor(number: int, packages: Sequence[str]) -> Iterator[str]:
    """One row: names, and what the packages say of themselves."""
    y = TOP + ROW * number
    tower = packages[0].partition(".")[0]
    fills = {"collector": "#ebf8ff", "simulator": "#f7fafc", "api": "#fffaf0", "alerts": "#f0fff4"}
    fill = fills.get(tower, "#faf5ff")
    width = LINES_LEFT - LEFT - 24
    yield f'<rect {at(x=LEFT, y=y, width=width, height=ROW - 3)} rx="3" fill="{fill}"/>'
    names = safe(" · ".join(packages))
    yield f'<text {at(x=LEFT + 8, y=y + 16)} fill="#1a202c" font-weight="600">{names}</text>'
    if len(packages) == 1:
        words = safe(first_sentence(packages[0])[:96])
        yield f'<text {at(x=WORDS_LEFT, y=y + 16)} fill="#4a5568">{words}</text>'


def draw_walk(number: int, walk: Walk) -> Iterator[str]:
    """A line from floor to floor, with a dot on each that the walk enters."""
    x, colour = LINES_LEFT + LINE_STEP * number + 12, COLOURS[number]
    yield f'<text {at(x=x - 12, y=TOP - 14)} fill="{colour}" font-weight="600">{walk.name}</text>'
    ys = sorted({TOP + ROW * floor_of(step.module) + 12.0 for step in walk.steps})
    yield f'<line {at(x1=x, x2=x, y1=ys[0], y2=ys[-1])} stroke="{colour}" stroke-width="2"/>'
    for y in ys:
        yield f'<circle {at(cx=x, cy=y)} r="5" fill="{colour}"/>'
