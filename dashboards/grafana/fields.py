"""Small pieces of Grafana's JSON that every way to draw uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboards.grafana.model import Colour, Step, Unit

Json = dict[str, object]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
"""Every question goes to the data source that is chosen at the top of the board."""


def steps_json(steps: Sequence[Step]) -> list[Json]:
    """Colours by value. Grafana wants the first to have no value."""
    if not steps or steps[0].value is not None:
        steps = (Step(None, Colour.PLAIN), *steps)
    return [{"color": step.colour.value, "value": step.value} for step in steps]


def words_for(values: Mapping[str, str]) -> Json:
    """A mapping from values to words; colours stay those of the steps."""
    return {
        "type": "value",
        "options": {
            value: {"index": place, "text": text}
            for place, (value, text) in enumerate(values.items())
        },
    }


def decimals_of(unit: Unit) -> int | None:
    """Digits behind the point where Grafana has no good number of its own; None: it has.

    It writes a power of ten with all the digits that there are: 1.9023713125e-7.
    """
    return 1 if unit is Unit.SCIENTIFIC else None
