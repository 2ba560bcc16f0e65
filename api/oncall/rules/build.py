"""The rule pack as files with the user's thresholds, and as a list of its rules."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from alerts.rulebook.file import parse_rules, write_duration
from alerts.rulebook.knobs import HEADER, default_knobs, fill_pack, pack_templates, used_in
from alerts.rulebook.model import Rule
from collector.contract.errors import SettingsError
from collector.contract.identity import printable

KNOBS_BYTES_MAX = 1 << 20
"""A file of knobs: a thousand lines of their longest texts are less."""

KEEP_LINE = re.compile(r"^ *keep_firing_for: .*\n", re.MULTILINE)

MARK = HEADER.partition("{name}")[0]
"""How each file that we write begins."""


def read_knobs(file: Path | None, settings: Sequence[str]) -> dict[str, object]:
    """The knobs of a TOML file, and over them those of `name=value` words."""
    given: dict[str, object] = {}
    if file is not None:
        try:
            with file.open("rb") as opened:
                content = opened.read(KNOBS_BYTES_MAX + 1)
            if len(content) > KNOBS_BYTES_MAX:
                raise SettingsError(f"{file}: over {KNOBS_BYTES_MAX} bytes")
            given |= tomllib.loads(content.decode("utf-8"))
        except OSError as error:
            raise SettingsError(f"{file}: {error.strerror}") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{file}: {error}") from error
    for word in settings:
        name, equals, text = word.partition("=")
        if not equals:
            raise SettingsError(f"--set {printable(word)!r}: write NAME=VALUE")
        given[name.strip()] = read_value(name.strip(), text.strip())
    return given


def read_value(name: str, text: str) -> object:
    knob = default_knobs().get(name)
    if knob is None or isinstance(knob.value, str):
        return text
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text  # the check of the knob reports what is wrong


def write_pack(
    folder: Path, given: Mapping[str, object], *, keeps_firing: bool = True
) -> list[Path]:
    """Write the pack's files with these knobs turned. Never overwrites files of other origin.

    ``keeps_firing``: False leaves `keep_firing_for` out, which older evaluators refuse.
    """
    pack = fill_pack(given)
    if not keeps_firing:
        pack = {name: KEEP_LINE.sub("", text) for name, text in pack.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = [name for name in pack if not is_ours(folder / name)]
        if foreign:
            raise SettingsError(
                f"{folder / foreign[0]} was not written by `fabricscope rules build`; "
                "name another folder, or move it away"
            )
        for name, text in pack.items():
            replace_file(folder / name, text)
    except OSError as error:
        raise SettingsError(f"{error.filename or folder}: {error.strerror}") from error
    return [folder / name for name in pack]


def is_ours(path: Path) -> bool:
    """Whether a file may be written: the path is free, or the file is one that we wrote."""
    if path.is_symlink():
        return False
    if not path.exists():
        return True
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK.encode()


def replace_file(path: Path, text: str) -> None:
    """Atomic: a Prometheus that reloads meanwhile sees the old file or the new."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


class PackRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the pack, as `rules list` shows it."""

    name: str
    is_alert: bool
    theme: str
    severity: str
    wait: str
    summary: str
    knobs: tuple[str, ...]
    expression: str


def pack_rules() -> list[PackRule]:
    templates = pack_templates()
    listed: list[PackRule] = []
    for file, text in fill_pack().items():
        # The header is one line that the template lacks.
        lines = templates[file].splitlines()
        rules = [rule for group in parse_rules(text, file) for rule in group.rules]
        begins = [rule.line - 2 for rule in rules]
        for place, rule in enumerate(rules):
            end = begins[place + 1] if place + 1 < len(begins) else len(lines)
            own = "\n".join(lines[begins[place] : end])
            listed.append(describe(rule, file.removesuffix(".yaml"), used_in(own)))
    return listed


def describe(rule: Rule, theme: str, knobs: Sequence[str]) -> PackRule:
    """A rule with the knobs that its own lines use; the runbooks' address is not one."""
    return PackRule(
        name=rule.name,
        is_alert=rule.is_alert,
        theme=theme,
        severity=rule.labels.get("severity", ""),
        wait=write_duration(rule.for_s),
        summary=rule.annotations.get("summary", ""),
        knobs=tuple(name for name in knobs if name != "runbook_base"),
        expression=rule.expression,
    )
