"""Thresholds ("knobs") of the rule pack: meaning, default, and the source of the default.

The pack is written as templates (`alerts/rules/templates/*.yaml`) in which `${name}` stands for a
knob of `alerts/rules/knobs.toml`, and `${causes:…}` for words of the table of causes. `fill_pack`
fills in the defaults, or an operator's own values: plain rule files that any Prometheus loads. The
service evaluates them from memory, and `fabricscope rules build` writes them.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from collector.contract.cause_facts import Layer
from collector.contract.causes import Cause
from collector.contract.errors import SettingsError

KNOB = re.compile(r"\$\{([a-z][a-z0-9_]*)\}")
"""Go's templates write `{{ $labels.x }}`, PromQL has no `${`: nothing else looks like this."""

OWNERS = {Layer.COMPUTE: "compute", Layer.UNKNOWN: "platform"}
OWNER_OF_REST = "network"
"""The team that owns an incident's alert, by its cause's layer."""

KNOB_TEXT_MAX = 400
"""Characters of one knob's value: a list of XIDs, or the address of the runbooks."""

Value = int | float | str


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One threshold or text that an operator can set."""

    value: Value
    """The default. A duration is text, as rule files write it (`5m`)."""
    unit: str
    meaning: str
    source: str
    """Where the default comes from; choices of ours are named as such."""


Knobs = Mapping[str, Knob]


@cache
def default_knobs() -> dict[str, Knob]:
    text = files("alerts").joinpath("rules", "knobs.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Knob])


def turn(given: Mapping[str, object], knobs: Knobs) -> dict[str, Knob]:
    """The knobs with other values. Raises SettingsError for an unknown name or a wrong value."""
    turned = dict(knobs)
    for name, value in given.items():
        if name not in knobs:
            near = difflib.get_close_matches(name, knobs, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(f"there is no knob {name!r}{hint}")
        before = knobs[name].value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number != isinstance(before, int | float) or not isinstance(value, int | float | str):
            kind = "a number" if isinstance(before, int | float) else "text"
            raise SettingsError(f"knob {name} is {value!r}; it must be {kind}, as {before!r} is")
        if isinstance(value, str) and (len(value) > KNOB_TEXT_MAX or not value.isprintable()):
            raise SettingsError(
                f"knob {name} has {len(value)} characters; at most {KNOB_TEXT_MAX}, on one line"
            )
        turned[name] = msgspec.structs.replace(knobs[name], value=value)
    return turned


def fill(template: str, knobs: Knobs) -> str:
    """A template with the knobs' values in it. Raises SettingsError for one that does not exist."""

    def value_of(found: re.Match[str]) -> str:
        knob = knobs.get(found[1])
        if knob is None:
            raise SettingsError(f"a rule asks for the knob {found[1]!r}, which knobs.toml lacks")
        return write_value(knob.value)

    return KNOB.sub(value_of, template)


def write_value(value: Value) -> str:
    """A value as rule files have it: PromQL and YAML both read `1e-14`.

    >>> write_value(1e-14), write_value(0.0001), write_value(5), write_value("5m")
    ('1e-14', '0.0001', '5', '5m')
    """
    return value if isinstance(value, str) else f"{value:.15g}"


def used_in(template: str) -> list[str]:
    return list(dict.fromkeys(KNOB.findall(template)))


def pack_templates() -> dict[str, str]:
    folder = files("alerts").joinpath("rules", "templates")
    found = (each for each in folder.iterdir() if each.name.endswith(".yaml"))
    return {
        each.name: with_causes(each.read_text("utf-8"))
        for each in sorted(found, key=lambda one: one.name)
    }


def with_causes(template: str) -> str:
    """A template with the texts of the table of causes, as branches of Go's templates."""
    texts = [(cause.facts.alert, [cause]) for cause in Cause]
    owned = [
        (owner, [cause for cause in Cause if cause.facts.layer is layer])
        for layer, owner in OWNERS.items()
    ]
    template = template.replace("${causes:alert}", branches(texts, "{{ $labels.cause }}"))
    return template.replace("${causes:owner}", branches(owned, OWNER_OF_REST))


def branches(texts: Sequence[tuple[str, Sequence[str]]], otherwise: str) -> str:
    """The text whose causes the alert's is among.

    >>> branches([("late", ["a", "b"])], "else")
    '{{ if eq $labels.cause "a" "b" }}late{{ else }}else{{ end }}'
    """
    written = "{{ "
    for text, causes in texts:
        names = " ".join(f'"{cause}"' for cause in causes)
        written += f"if eq $labels.cause {names} }}}}{text}{{{{ else "
    return f"{written}}}}}{otherwise}{{{{ end }}}}"


HEADER = """\
# Written by `fabricscope rules build` from templates/{name} and knobs.toml: change those.
"""


def fill_pack(given: Mapping[str, object] | None = None) -> dict[str, str]:
    knobs = turn(given or {}, default_knobs())
    return {
        name: HEADER.format(name=name) + fill(text, knobs)
        for name, text in pack_templates().items()
    }
