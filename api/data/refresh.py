"""Copies the latest state and rate of every port, which no label carries, to the inventory."""

from __future__ import annotations

import datetime as dt
import math

import msgspec

from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import PortValues, sight
from api.data.store.store import Store
from collector.contract.catalog import Catalog
from collector.contract.identity import METRIC_LABEL, canonical_labels, metric_id

STATE, RATE = "fabric_port_state", "fabric_port_rate_bits_per_second"

LOOK_BACK = dt.timedelta(minutes=5)
"""A port whose state is older keeps the values that the inventory has."""

_LATEST = """
SELECT name, pairs, latest FROM
  (SELECT series, argMax(value, time) AS latest FROM samples
   WHERE metric IN {metrics:Array(UInt32)} AND time >= {since:DateTime64(3)} GROUP BY series) AS x
INNER JOIN
  (SELECT series, any(metric_name) AS name, any(labels) AS pairs FROM series
   WHERE metric_name IN {names:Array(String)} AND day >= toDate({since:DateTime64(3)})
   GROUP BY series) AS y
USING series
"""


def foreign_names(catalog: Catalog, metric: str) -> dict[str, float]:
    """Names of this metric, the catalog's and other exporters', with the factor to its unit."""
    defined = catalog.metric(metric)
    assert defined is not None, f"{metric} is not in the catalog"
    return {metric: 1.0, **{alias.name: alias.factor for alias in defined.aliases}}


def refresh_ports(store: Store, inventory: Inventory, catalog: Catalog, now: dt.datetime) -> int:
    """Returns the number of ports whose values were written."""
    states, rates = foreign_names(catalog, STATE), foreign_names(catalog, RATE)
    names = [*states, *rates]
    latest = store.query(
        _LATEST,
        {"metrics": [metric_id(name) for name in names], "names": names, "since": now - LOOK_BACK},
    )
    found: dict[tuple[str, str, str], PortValues] = {}
    for row in latest.to_pylist():
        name, number = row["name"], row["latest"]
        labels = canonical_labels({**dict(row["pairs"]), METRIC_LABEL: name})
        thing = sight(labels, catalog)
        if thing is None or not thing.port or not math.isfinite(number):
            continue  # windows leave it out, too, and note it
        key = (thing.host, thing.device, thing.port)
        port = found.get(key) or PortValues(
            host=thing.host, device=thing.device, port=thing.port, seen_at=now
        )
        if name in states:
            found[key] = msgspec.structs.replace(port, state=number * states[name])
        else:
            found[key] = msgspec.structs.replace(port, rate_bits_per_second=number * rates[name])
    if found:
        inventory.set_port_values(found.values())
    return len(found)
