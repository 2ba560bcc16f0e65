"""The generated parts of the documentation: made from the code, checked by a test.

    python -m tests.tools.docs_tables --write

A generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. The test
`tests/unit/test_docs.py` fails when a part lags behind the code.
"""

import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from alerts import detectors
from alerts.rulebook.file import parse_rules, write_duration
from alerts.rulebook.knobs import default_knobs, fill_pack, write_value
from alerts.rulebook.template import TemplateData, expand
from api.base import (
    case_limits,
    compare_limits,
    limits,
    matrix_limits,
    operating_limits,
    optics_limits,
    process_limits,
    rollout_limits,
    rollup_limits,
    trace_limits,
)
from api.http.settings import ServiceSettings
from collector.agent.settings import AgentSettings
from collector.contract.catalog import Alias, load_catalog
from collector.contract.causes import cause_table
from collector.contract.field_notes import note_in, setting_fields
from collector.contract.verdict import Layer, Reason
from collector.sources import SourceSettings, discover
from tests.tools import architecture, query_costs, unmapped

ROOT = Path(__file__).resolve().parents[2]
PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
DIAGNOSED = ROOT / "tests/fixtures/diagnose/net3.expected.txt"
"""The output of `fabricscope diagnose` for a real run; a test compares it."""


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell_text(cell) for cell in line)} |\n" for line in lines)


def cell_text(text: str) -> str:
    """Text that fits into a cell."""
    return " ".join(text.replace("|", "\\|").split())


def metrics() -> str:
    """Every metric by target."""
    parts = []
    for file in load_catalog().files:
        target = file.target
        labels = ", ".join(f"`{label}`" for label in target.labels) or "none"
        rows = [
            [
                f"`{metric.name}`",
                metric.kind + (f", {metric.unit}" if metric.unit else ""),
                metric.help,
                ", ".join(f"`{label}`" for label in metric.labels),
                ", ".join(f"`{name}`" for name in dict.fromkeys(map(known_as, metric.aliases))),
            ]
            for metric in file.metrics
        ]
        parts.append(
            f"## {target.name}\n\n{target.help} Labels of all: {labels}.\n\n"
            + table(["metric", "kind, unit", "meaning", "more labels", "also known as"], rows)
        )
    return "\n".join(parts)


def known_as(alias: Alias) -> str:
    """The alias' name; of a family that differs in a number, the name that all of it has."""
    return alias.family or alias.name


def settings_rows(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[list[str]]:
    """Name, default and reason of every setting of a kind."""
    for name, default, note in setting_fields(kind):
        if isinstance(default, msgspec.Struct):
            yield from settings_rows(type(default), f"{prefix}{name}.")
        elif name != "sources":
            shown = f"`{default!r}`" if default not in ("", {}, [], ()) else "none"
            yield [f"`{prefix}{name}`", shown.replace("'", '"'), note]


def service_settings() -> str:
    """The service's settings."""
    return table(["setting", "default", "meaning"], list(settings_rows(ServiceSettings)))


def agent_settings() -> str:
    """The agent's settings."""
    return table(["setting", "default", "meaning"], list(settings_rows(AgentSettings)))


def source_settings() -> str:
    """Settings that all sources have, and those that only one has."""
    rows = [["all", *row] for row in settings_rows(SourceSettings)]
    common = set(SourceSettings.__struct_fields__)
    for name, source in discover().items():
        rows += [
            [f"`{name}`", *row]
            for row in settings_rows(source.Settings)
            if row[0].strip("`") not in common
        ]
    return table(["source", "setting", "default", "meaning"], rows)


def sources() -> str:
    """Every source with the first sentence of its module."""
    rows = []
    for name, source in discover().items():
        module = importlib.import_module(source.__module__)
        first = (module.__doc__ or "").split("\n\n")[0]
        rows.append([f"`{name}`", first])
    return table(["source", "what it reads"], rows)


PROOFS = {
    "captured": "captured by us",
    "document": "made from a document, or from sources of the program",
    "hand": "made by hand",
}
"""How a fixture came to be: the last line of its ORIGIN."""
ORIGINS = ROOT / "tests/fixtures"


class Origin(NamedTuple):
    """One fixture of a source or a format."""

    subject: str
    models: str
    proof: str


def origins(room: str) -> list[Origin]:
    """Fixtures of `sources` or `formats`, in order; ValueError names one without a proof."""
    found = []
    for file in sorted((ORIGINS / room).glob("*/*/ORIGIN")):
        *lines, last = file.read_text("utf-8").strip().splitlines()
        proof = last.removeprefix("Proof: ")
        if proof not in PROOFS:
            raise ValueError(f"{file.relative_to(ROOT)}: the last line is not Proof: and a word")
        text = " ".join(" ".join(lines).removeprefix("Models: ").split())
        first = re.split(r"(?<=[a-z0-9)`])[.;:] ", text, maxsplit=1)[0].rstrip(".")
        found.append(Origin(file.parents[1].name, first, PROOFS[proof]))
    return found


def sources_proven() -> str:
    """Every source, what it was held against, and how each of its fixtures came to be."""
    proven = tomllib.loads((ORIGINS / "sources/proven.toml").read_text("utf-8"))
    named = {
        name: proven.get(name, {}).get("against", "nothing but its fixtures") for name in discover()
    }
    if strange := sorted(proven.keys() - named.keys()):
        raise ValueError(f"proven.toml: {strange[0]} is no source")
    fixtures = origins("sources")
    rows = [
        [f"`{name}`", against, counted_proofs(one.proof for one in fixtures if one.subject == name)]
        for name, against in named.items()
    ]
    return table(["source", "held against", "fixtures"], rows)


def counted_proofs(proofs: Iterable[str]) -> str:
    counted = sorted(Counter(proofs).items())
    return ", ".join(f"{count} {proof}" for proof, count in counted) or "none"


def fixtures_proven() -> str:
    """Every fixture of a source or a format: what it models, and how it came to be."""
    rows = [
        [f"`{one.subject}`", cell_text(one.models), one.proof]
        for room in ("sources", "formats")
        for one in origins(room)
    ]
    return table(["source or format", "fixture models", "how it was made"], rows)


def unmapped_numbers() -> str:
    """What recordings of others hold that no metric has, and why."""
    rows = [
        [recordings, what, f"`{cell_text(name)}`", why]
        for recordings, lists in unmapped.everything().items()
        for what, names in lists.items()
        for name, why in names.items()
    ]
    return table(["recording", "of its", "what has no metric", "why"], rows)


def service_limits() -> str:
    """Every bound of the service with its reason."""
    rows = []
    for module in (
        limits,
        case_limits,
        compare_limits,
        matrix_limits,
        trace_limits,
        operating_limits,
        process_limits,
        rollout_limits,
        rollup_limits,
        optics_limits,
    ):
        body = ast.parse(inspect.getsource(module)).body
        for statement, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                rows.append([f"`{name}`", f"{getattr(module, name):,}", note_in(following)])
    return table(["limit", "value", "reason, and what happens"], rows)


def http_paths() -> str:
    """Every path of the service."""
    from fastapi import FastAPI  # noqa: PLC0415 - only this table needs it

    from api.http.app import ROUTERS  # noqa: PLC0415
    from api.http.tokens.scopes import SCOPES  # noqa: PLC0415

    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    rows = [
        [
            f"`{method.upper()} {path}`",
            SCOPES.get(f"{method.upper()} {path}", ""),
            operation.get("summary", ""),
            operation.get("description", "").split("\n\n")[0],
        ]
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
    ]
    return table(["path", "scope", "question", "answer"], rows)


def detector_paragraphs(name: str) -> dict[str, str]:
    """The docstring of a detector's module: its paragraphs by their first word."""
    module = importlib.import_module(f"{detectors.__name__}.{name}")
    text = inspect.cleandoc(module.__doc__ or "").replace("``", "`")
    named = (re.match(r"\*(\w+)\.\* (.*)", part, re.DOTALL) for part in text.split("\n\n"))
    return {part[1]: part[2] for part in named if part}


def detectors_table() -> str:
    """Every detector: what it looks for, what that looks like, and the data without which not."""
    rows = []
    for name in detectors.discover():
        sought = detectors.looks_for(name)
        told = detector_paragraphs(name).get("Phenomenon", "")
        # Two sentences: the first one often only says how things should be.
        first = " ".join(re.split(r"(?<=[.])\s", told)[:2])
        wanted = ", or ".join(dict.fromkeys(need.title for need in sought.needs))
        rows.append([f"[`{name}`](#{name})", sought.title, first, wanted])
    return table(["detector", "looks for", "phenomenon", "needs, in a folder"], rows)


def detectors_in_full() -> str:
    """Every detector's own words, paragraph by paragraph."""
    parts = []
    for name in detectors.discover():
        told = detector_paragraphs(name).items()
        lines = "\n\n".join(f"*{word}.* {' '.join(text.split())}" for word, text in told)
        parts.append(f"## {name}\n\n{lines}\n")
    return "\n".join(parts)


def pack_alerts() -> str:
    """Every alert of the rule pack, by theme."""
    parts = []
    for file, text in fill_pack().items():
        rules = [rule for group in parse_rules(text, file) for rule in group.rules if rule.is_alert]
        rows = [
            [
                f"[{rule.name}](../runbooks/{rule.annotations['runbook_url'].rpartition('/')[2]}.md)",
                rule.labels["severity"],
                write_duration(rule.for_s),
                text_without_labels(rule.annotations["description"]),
                text_without_labels(rule.annotations["threshold_source"]),
            ]
            for rule in rules
        ]
        header = ["alert", "severity", "for", "what it means", "where the threshold comes from"]
        parts.append(f"\n### {file.removesuffix('.yaml')}\n\n{table(header, rows)}")
    return "".join(parts)


def text_without_labels(template: str) -> str:
    """A template's text for any alert: labels by their names, values as dots."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"*\1*", template)
    text = re.sub(r"\{\{ \$value[^}]*\}\}", "…", text)
    return expand(text, TemplateData(labels={}, value=0.0))


def pack_knobs() -> str:
    """Every knob of the rule pack."""
    rows = [
        [f"`{name}`", f"`{write_value(knob.value)}`", knob.unit, knob.meaning, knob.source]
        for name, knob in default_knobs().items()
    ]
    return table(["knob", "default", "unit", "meaning", "source"], rows)


def rules_reach() -> str:
    """At how many hosts a bound ends each rule."""
    header = ["hosts", "then", "rules"]
    return table(header, query_costs.table_rows(query_costs.rule_reaches()))


def boards_reach() -> str:
    """The same for the panels of boards."""
    reaches = query_costs.least_of_each(query_costs.board_reaches())
    return table(["hosts", "then", "panels"], query_costs.table_rows(reaches))


def verdict_in_text() -> str:
    """The verdict at the beginning of `diagnose`'s output, as the terminal shows it."""
    verdict, _, _ = DIAGNOSED.read_text("utf-8").partition("\nRead ")
    return f"```\n{verdict.rstrip()}\n```\n"


def verdict_in_brief() -> str:
    """The verdict's sentence, cause, time, cost and action, without its evidence."""
    verdict, _, _ = DIAGNOSED.read_text("utf-8").partition("\nRead ")
    head, _, rest = verdict.partition("\n\n")
    action = rest[rest.index("  What to do:") :].partition("\n\n")[0]
    return f"```\n{head.rstrip()}\n{action.rstrip()}\n```\n"


def causes() -> str:
    """Every cause: what it means, where it lies, what shows it, what to read."""
    rows = [
        [
            f"`{one.name}`",
            one.meaning,
            one.layer if one.layer is not Layer.UNKNOWN else "as the reason",
            ", or ".join(one.needs),
            f"[{one.runbook}](../runbooks/{one.runbook}.md)",
        ]
        for one in cause_table().causes
    ]
    return table(["cause", "meaning", "layer", "needs, in a folder", "runbook"], rows)


def runbooks_of(reason: Reason) -> list[str]:
    """A reason's own runbook, and those that it has with single causes."""
    own = [f"[{reason.facts.runbook}](../runbooks/{reason.facts.runbook}.md)"]
    with_cause = [
        f"[{one.runbooks[reason]}](../runbooks/{one.runbooks[reason]}.md) (`{one.name}`)"
        for one in cause_table().causes
        if reason in one.runbooks
    ]
    return [*(own if reason.facts.runbook else ()), *with_cause]


def reasons() -> str:
    """Every reason behind a cause."""
    rows = [
        [
            f"`{one}`",
            one.facts.because,
            one.facts.layer,
            ", ".join(runbooks_of(one)),
        ]
        for one in Reason
        if one is not Reason.UNKNOWN
    ]
    return table(["reason", "because …", "layer", "runbook, if not the cause's"], rows)


PARTS: dict[str, Callable[[], str]] = {
    "metrics": metrics,
    "service-settings": service_settings,
    "agent-settings": agent_settings,
    "source-settings": source_settings,
    "sources": sources,
    "sources-proven": sources_proven,
    "fixtures-proven": fixtures_proven,
    "unmapped-numbers": unmapped_numbers,
    "service-limits": service_limits,
    "http-paths": http_paths,
    "causes": causes,
    "reasons": reasons,
    "detectors-table": detectors_table,
    "detectors-in-full": detectors_in_full,
    "pack-alerts": pack_alerts,
    "pack-knobs": pack_knobs,
    "rules-reach": rules_reach,
    "boards-reach": boards_reach,
    "verdict-in-text": verdict_in_text,
    "verdict-in-brief": verdict_in_brief,
    "walks": architecture.walk_tables,
}


def documents() -> list[Path]:
    """Every Markdown file that has a generated part."""
    folders = [ROOT, *(ROOT / name for name in ("docs", "collector", "api", "alerts"))]
    files = {file for folder in folders[1:] for file in folder.rglob("*.md")}
    files |= set(ROOT.glob("*.md"))
    return sorted(file for file in files if PART.search(file.read_text("utf-8")))


def refreshed(text: str) -> str:
    """The document with every generated part made anew."""
    return PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}{part[3]}", text)


def main() -> int:
    """Write, or say what lags behind."""
    lagging = 0
    if "--write" in sys.argv[1:]:
        architecture.DRAWING.write_text(architecture.draw(), "utf-8")
    for file in documents():
        text = file.read_text("utf-8")
        fresh = refreshed(text)
        if fresh != text:
            lagging += 1
            name = file.relative_to(ROOT)
            if "--write" in sys.argv[1:]:
                file.write_text(fresh, "utf-8")
                print(f"docs: wrote {name}")
            else:
                print(f"docs: {name} lags behind the code; run make docs")
    return 0 if "--write" in sys.argv[1:] or not lagging else 1


if __name__ == "__main__":
    sys.exit(main())
