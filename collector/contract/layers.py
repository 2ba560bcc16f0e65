"""Settings in three layers: a TOML file, then the environment, then flags; the later one wins.

Both programs, agent and service, read their settings through this, so that a typo gets the same
answer everywhere: the place, the key, the value and the nearest key that exists.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from collector.contract.errors import SettingsError

Settings = TypeVar("Settings", bound=msgspec.Struct)


def load_settings(
    kind: type[Settings],
    *,
    file: Path | None,
    environment: Mapping[str, str],
    prefix: str,
    flags: Mapping[str, object],
) -> Settings:
    """Settings of this kind from the three layers; a SettingsError names layer and key.

    ``FABRICSCOPE_RETENTION_DAYS__SAMPLES=7`` sets ``samples`` in the table ``retention_days``.
    A flag that is None was not given.
    """
    layers: list[tuple[str, dict[str, Any], bool]] = []
    if file is not None:
        layers.append((str(file), read_toml(file), True))
    layers.append(("environment", read_environment(environment, prefix), False))
    given = {name: value for name, value in flags.items() if value is not None}
    layers.append(("flags", given, False))
    merged: dict[str, Any] = {}
    for place, values, strict in layers:
        # Each layer is checked by itself, so that the message names the place of the mistake.
        checked = check_layer(kind, values, place, strict=strict)
        merge(merged, checked)
    settings: Settings = convert(kind, merged, "settings", strict=False)
    return settings


def read_toml(file: Path) -> dict[str, Any]:
    """What the file holds."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not TOML: {error}") from error


def read_environment(environment: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Variables that begin with the prefix, as a tree: two underscores open a table."""
    tree: dict[str, Any] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(prefix):
            continue
        *tables, key = variable.removeprefix(prefix).lower().split("__")
        branch = tree
        for table in tables:
            branch = branch.setdefault(table, {})
            if not isinstance(branch, dict):
                raise SettingsError(f"{variable}: {table} is set as a value already")
        branch[key] = value
    return tree


def check_layer(
    kind: type[msgspec.Struct], values: dict[str, Any], place: str, *, strict: bool
) -> dict[str, Any]:
    """The same values, once every key in them is known; the types are checked with them."""
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, value in values.items():
        if key not in known:
            raise SettingsError(f"{place}: {unknown_key(key, known)}")
        wanted = known[key].type
        if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
            if not isinstance(value, dict):
                raise SettingsError(f"{place}: {key} is a table, not {value!r}")
            check_layer(wanted, value, f"{place}: {key}", strict=strict)
        else:
            convert(wanted, value, f"{place}: {key} = {value!r}", strict=strict)
    return values


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that does not exist."""
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
    return f"unknown key {key!r}; {hint}"


def merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Lay one layer over another; tables are merged key by key."""
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def convert(kind: Any, value: object, what: str, *, strict: bool) -> Any:  # noqa: ANN401
    """The value as this kind; environment and flags bring text, so they are not strict."""
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{what}: {error}") from error
