"""Grafana's published schema of dashboards, asked about one of ours."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

SCHEMA = Path(__file__).parents[1] / "fixtures/grafana/dashboard.schema.json"
BEYOND_SCHEMA = {
    "annotations": {"expr", "step", "tagKeys", "textFormat", "titleFormat", "useValueForTime"},
    "templating": {"definition"},
}
"""What the data source reads of an annotation, and the words that older Grafanas list a variable
by: the SDK's types know them, the schema leaves them open."""


def without_extras(found: dict[str, Any]) -> dict[str, Any]:
    """The dashboard without what the schema leaves open."""
    kept = dict(found)
    for part, extras in BEYOND_SCHEMA.items():
        each = [
            {key: value for key, value in one.items() if key not in extras}
            for one in found[part]["list"]
        ]
        kept[part] = {**found[part], "list": each}
    return kept


@cache
def validator() -> Draft7Validator:
    """Reads the schema once."""
    return Draft7Validator(json.loads(SCHEMA.read_text("utf-8")))


def schema_flaws(found: dict[str, Any]) -> list[str]:
    """The errors of a dashboard against Grafana's schema."""
    errors = validator().iter_errors(without_extras(found))
    return [f"{error.json_path}: {error.message}" for error in errors]
