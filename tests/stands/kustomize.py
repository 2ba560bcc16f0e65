"""Kustomize, as far as deploy/kubernetes uses it: resources, components, patches, images.

There is no kustomize to run here. A key that this does not know is an error, so that nothing in a
kustomization is believed and not done. Patches are strategic (lists are merged by the keys of
Kubernetes' types) or lists of JSON patch operations.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

MERGED_BY = {
    "containers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumes": "name",
    "volumeMounts": "mountPath",
}
"""Lists of pods that a strategic patch merges, and by which field."""
KEYS = {"apiVersion", "kind", "resources", "components", "patches", "images"}


def read_all(file: Path) -> list[Json]:
    """Every document of a file."""
    return [each for each in yaml.safe_load_all(file.read_text("utf-8")) if each is not None]


def build(folder: Path, components: Iterable[str] = ()) -> list[Json]:
    """What `kubectl apply -k` would send, with these components as well."""
    (settings,) = read_all(folder / "kustomization.yaml")
    assert settings["kind"] in {"Kustomization", "Component"}
    return apply(folder, settings, [], components)


def apply(
    folder: Path, settings: Json, before: list[Json], components: Iterable[str] = ()
) -> list[Json]:
    """The objects after one kustomization."""
    assert set(settings) <= KEYS, f"{folder}: {set(settings) - KEYS}"
    found = [*before]
    for name in settings.get("resources", []):
        found += read_all(folder / name)
    for name in (*settings.get("components", []), *components):
        (component,) = read_all(folder / name / "kustomization.yaml")
        assert component["kind"] == "Component"
        found = apply(folder / name, component, found)
    for patch in settings.get("patches", []):
        found = patched(found, patch)
    for image in settings.get("images", []):
        for container in (one for each in found for one in containers_of(each)):
            name, _, tag = container["image"].rpartition(":")
            if name == image["name"]:
                chosen = image.get("newName", name), image.get("newTag", tag)
                container["image"] = ":".join(chosen)
    return found


def containers_of(thing: Json) -> list[Json]:
    """The containers of an object that has pods; else none."""
    pod = thing.get("spec", {}).get("template", {}).get("spec", {})
    return [*pod.get("initContainers", []), *pod.get("containers", [])]


def patched(things: list[Json], patch: Json) -> list[Json]:
    """The objects after one patch, which must fit exactly one."""
    target, change = patch["target"], yaml.safe_load(patch["patch"])
    fitting = [
        each
        for each in things
        if each["kind"] == target["kind"] and each["metadata"]["name"] == target["name"]
    ]
    assert len(fitting) == 1, f"{target} fits {len(fitting)} objects"
    (old,) = fitting
    new = operated(old, change) if isinstance(change, list) else merged(old, change)
    return [new if each is old else each for each in things]


def merged(old: Any, change: Any) -> Any:  # noqa: ANN401 - JSON
    """A strategic patch."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    new = copy.deepcopy(old) if isinstance(old, dict) else {}
    for name, value in change.items():
        if value is None:
            new.pop(name, None)
        elif name in MERGED_BY and isinstance(value, list):
            key = MERGED_BY[name]
            entries = {entry[key]: entry for entry in new.get(name, [])}
            for entry in value:
                entries[entry[key]] = merged(entries.get(entry[key], {}), entry)
            new[name] = list(entries.values())
        else:
            new[name] = merged(new.get(name), value)
    return new


def operated(old: Json, operations: list[Json]) -> Json:
    """RFC 6902: test, replace and add."""
    new = copy.deepcopy(old)
    for one in operations:
        *way, last = [word.replace("~1", "/") for word in one["path"].split("/")[1:]]
        place: Any = new
        for word in way:
            place = place[int(word)] if isinstance(place, list) else place[word]
        index: Any = int(last) if isinstance(place, list) and last != "-" else last
        if one["op"] == "test":
            assert place[index] == one["value"], one
        elif one["op"] == "replace":
            assert place[index] is not None
            place[index] = one["value"]
        elif one["op"] == "add" and last == "-":
            place.append(one["value"])
        else:
            raise AssertionError(f"{one}: not known here")
    return new
