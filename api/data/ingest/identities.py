"""The rule `bad_identity`: what can never name a thing is refused at the door.

Only series of the catalog's own names are judged: their labels name hosts, devices and ports.
Another exporter's series is the user's data and is stored with whatever labels it has; what reads
it leaves out what it cannot use (`api.base.quarantine`). Looked at once for each new series.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from api.base.quarantine import shown_series
from api.data.inventory.sightings import host_of
from collector.contract.catalog import load_catalog
from collector.contract.identity import METRIC_LABEL, Labels

BAD_IDENTITY: Final = "bad_identity"

NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "port": ("device",),
    "nic": ("device",),
    "link": ("device", "port"),
    "gpu": (),
    "host": (),
    "switch": (),
}
"""By the catalog's target: labels that every series has, besides its host. Series of a device as a
whole have no port, and those of all GPUs of a host have no gpu."""

EVENT_NAMES: Final = (
    *("host", "device", "port", "gpu", "switch", "switch_port"),
    *("job", "rank", "communicator"),
)
"""Labels of an event that name a thing; it need not have them."""


def odd_series(labels: Labels) -> str:
    """Why the labels of a series cannot name a thing; empty: they can, or need not."""
    # Of nearly every series the name comes first, and most series are not ours.
    is_first = bool(labels) and labels[0][0] == METRIC_LABEL
    metric = labels[0][1] if is_first else dict(labels).get(METRIC_LABEL, "")
    target, naming = meaning_of(metric)
    if not naming:
        return ""
    found = dict(labels)
    for name in naming:
        value = found.get(name, "")
        if value and not value.isprintable():
            return f"label {name} of {shown_series(found)} cannot be printed: it can name nothing"
    if target not in NEEDED:
        return ""
    host = host_of(found, {})
    if not host.isprintable():
        return f"the host of {shown_series(found)} cannot be printed: it can name nothing"
    missing = next((name for name in NEEDED[target] if name not in found), "")
    missing = missing or ("" if host else "host")
    return f"{shown_series(found)} has no label {missing}" if missing else ""


@cache
def known_meanings() -> dict[str, tuple[str, tuple[str, ...]]]:
    return {
        metric.name: (file.target.name, tuple(file.target.labels))
        for file in load_catalog().files
        for metric in file.metrics
    }


def meaning_of(metric: str) -> tuple[str, tuple[str, ...]]:
    """The target of a metric of the catalog and the labels that name one; empty: not ours."""
    return known_meanings().get(metric, ("", ()))


def odd_names(labels: Mapping[str, str]) -> str:
    """The same of the labels of an event."""
    for name in EVENT_NAMES:
        value = labels.get(name, "")
        if value and not value.isprintable():
            return f"label {name}={value[:100]!r} cannot be printed: it can name nothing"
    return ""
