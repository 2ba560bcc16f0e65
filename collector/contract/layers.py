"""Settings in three layers: a TOML file, then the environment, then flags; the later one wins.

Both programs, agent and service, read their settings through this, so that a mistake gets the same
answer everywhere: where it stands, the key, the value, and the key that was probably meant. Nothing
is ignored: a misspelt setting that silently keeps its default is found on the night it matters.
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


class Layer(msgspec.Struct):
    """One layer: where it comes from, its values, and whether they are typed (TOML) or text."""

    place: str
    values: dict[str, Any]
    is_typed: bool


def read_layers(
    *, file: Path | None, environment: Mapping[str, str], prefix: str, flags: Mapping[str, object]
) -> list[Layer]:
    """The three layers, the strongest last. A flag that is None was not given."""
    given = {name: value for name, value in flags.items() if value is not None}
    layers = [
        Layer("environment", read_environment(environment, prefix), is_typed=False),
        Layer("command line", given, is_typed=False),
    ]
    if file is not None:
        layers.insert(0, Layer(str(file), read_toml(file), is_typed=True))
    return layers


def combine(kind: type[Settings], layers: Iterable[Layer]) -> Settings:
    """The settings that the layers make; each is checked by itself, to name its own mistakes."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merge(merged, convert_table(kind, layer.values, layer))
    settings: Settings = msgspec.convert(merged, kind)
    return settings


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not a TOML file: {error}") from error


def read_environment(environment: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Variables that begin with the prefix, as a tree: two underscores open a table.

    >>> read_environment({"X_RETENTION_DAYS__SAMPLES": "7", "PATH": "/bin"}, "X_")
    {'retention_days': {'samples': '7'}}
    """
    tree: dict[str, Any] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(prefix):
            continue
        *tables, key = variable.removeprefix(prefix).lower().split("__")
        branch = tree
        for table in tables:
            branch = branch.setdefault(table, {})
            if not isinstance(branch, dict):
                raise SettingsError(f"environment: {variable}: {table} has a value already")
        branch[key] = value
    return tree


def convert_table(
    kind: type[msgspec.Struct], values: Mapping[str, Any], layer: Layer, path: str = ""
) -> dict[str, Any]:
    """The values by the fields' types, once all keys are known; ``path``: the table's place."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    converted: dict[str, Any] = {}
    for key, value in values.items():
        where = f"{layer.place}: {path}{key}"
        if key not in types:
            raise SettingsError(f"{layer.place}: {unknown('setting', key, types, path)}")
        wanted = types[key]
        if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
            if not isinstance(value, dict):
                raise SettingsError(f"{where} = {value!r}: must be a table")
            converted[key] = convert_table(wanted, value, layer, f"{path}{key}.")
            continue
        try:
            converted[key] = msgspec.convert(value, wanted, strict=layer.is_typed)
        except msgspec.ValidationError as error:
            # Lists of tables may hold passwords, and errors go to logs; the error names the place.
            shown = f" = {value!r}" if not isinstance(value, dict | list) else ""
            raise SettingsError(f"{where}{shown}: {error}") from error
    return converted


def unknown(what: str, name: str, known: Iterable[str], path: str = "") -> str:
    """The error text for an unknown name, with the closest known one.

    >>> unknown("setting", "spool_dri", ["spool_dir", "token"])
    "unknown setting 'spool_dri'; did you mean 'spool_dir'?"

    The dashes of options are no likeness: of `--port` and `--store` they would be the most of it.
    """
    names = sorted(known)
    bare = {each.lstrip("-"): each for each in names}
    near = difflib.get_close_matches(name.lstrip("-"), bare, n=1)
    hint = f"did you mean {path + bare[near[0]]!r}?" if near else f"there are: {', '.join(names)}"
    return f"unknown {what} {path + name!r}; {hint}"


def merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Lay one layer over another; tables are merged key by key."""
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value
