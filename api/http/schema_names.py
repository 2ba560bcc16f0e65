"""Names of schemas: those that clients are generated from, and those that people read. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

PUBLISHED_NAMES: Final = {
    "PackedMatrixOut": "api__routes__matrices__MatrixOut",
    "TrafficMatrixOut": "api__routes__matrix__MatrixOut",
    "ExportFormat": "api__routes__samples__Format",
    "TopologyFormat": "api__routes__topology__Format",
}
"""Our classes whose schemas were published under another name. Clients are generated from them."""

SHOWN_NAMES: Final = {published: ours for ours, published in PUBLISHED_NAMES.items()} | {
    "alerts__traffic__places__By": "TrafficMatrixBy",
    "By-Output": "TrafficMatrixByOut",
    "api__oncall__costs__By": "CostsBy",
}
"""Of schemas that are published with the path of a module in their name, as several classes are
called alike: what a person reads on `/docs`."""


def with_published_names(document: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(document)
    for ours, published in PUBLISHED_NAMES.items():
        title = published.rpartition("__")[2]
        text = text.replace(f'"title": "{ours}"', f'"title": "{title}"')
        text = text.replace(f'"{ours}": {{', f'"{published}": {{')
        text = text.replace(f'schemas/{ours}"', f'schemas/{published}"')
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def shown_name(published: str) -> str:
    """What a person reads for a schema's name.

    >>> shown_name("api__oncall__costs__By"), shown_name("JobOut")
    ('CostsBy', 'JobOut')
    """
    return SHOWN_NAMES.get(published, published)
