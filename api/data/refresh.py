"""Copies the latest state and rate of every port, which no label carries, to the inventory.

Of thousands of ports hardly one changes between two looks. What a series means is read once, only
samples since the last look are asked for, and only values that changed are written.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import PortValues, sight
from api.data.store.store import Store
from collector.contract.catalog import Catalog
from collector.contract.identity import METRIC_LABEL, canonical_labels, metric_id

STATE, RATE = "fabric_port_state", "fabric_port_rate_bits_per_second"

LOOK_BACK = dt.timedelta(minutes=5)
"""A port whose state is older keeps the values that the inventory has."""
OVERLAP = dt.timedelta(minutes=1)
"""How late a sample may be stored and still be seen by the next look."""
WRITE_ALL = dt.timedelta(minutes=10)
"""How often values are written that did not change: another process, or a person, may have changed
the inventory."""
SERIES_KEPT_MAX = 1_000_000
"""Series whose meaning and value are remembered, about 400 MB; past it all are forgotten."""
SERIES_ASKED_MAX = 5_000
"""New series that are asked for one by one; of more, all names are read."""

_LATEST = """
    SELECT series, argMax(value, time) AS latest, toUnixTimestamp64Milli(max(time)) AS time_ms
    FROM samples WHERE metric IN {metrics:Array(UInt32)} AND time >= {since:DateTime64(3)}
    GROUP BY series
"""
_NAMES = """
    SELECT series, any(metric_name) AS name, any(labels) AS pairs FROM series
    WHERE metric_name IN {names:Array(String)} AND day >= toDate({since:DateTime64(3)})
"""
_ONLY = " AND series IN {series:Array(UInt64)}"

Port = tuple[str, str, str]


class Meaning(msgspec.Struct, frozen=True):
    """The port that a series is of, and what its value is; None: of no port."""

    port: Port | None
    is_state: bool = False
    factor: float = 1.0


class PortRefresh:
    """One a service, for one thread at a time."""

    def __init__(self, store: Store, inventory: Inventory, catalog: Catalog) -> None:
        self._store = store
        self._inventory = inventory
        self._catalog = catalog
        self._states = foreign_names(catalog, STATE)
        self._rates = foreign_names(catalog, RATE)
        self._names = [*self._states, *self._rates]
        self._metrics = [metric_id(name) for name in self._names]
        self.forget()

    def forget(self) -> None:
        """Begin anew: the next look reads and writes everything."""
        self._meanings: dict[int, Meaning] = {}
        self._latest_ms: dict[int, int] = {}
        self._values: dict[Port, PortValues] = {}
        self._looked: dt.datetime | None = None
        self._wrote_all: dt.datetime | None = None

    def look(self, now: dt.datetime) -> int:
        """Write what changed since the last look; how many ports that were."""
        since = now - LOOK_BACK
        if self._looked is not None and self._looked <= now:
            since = max(since, self._looked - OVERLAP)
        parameters: dict[str, Any] = {"metrics": self._metrics, "since": since}
        rows = self._store.query(_LATEST, parameters).to_pylist()
        self._learn({row["series"] for row in rows}, now - LOOK_BACK)
        changed = self._take(rows, now)
        is_due = self._wrote_all is None or not dt.timedelta(0) <= now - self._wrote_all < WRITE_ALL
        known = self._values | changed
        written = known if is_due else changed
        if written:
            self._inventory.set_port_values(written.values())
        # Only now: what a failed write did not keep is new again.
        self._values = known
        self._looked = now
        if is_due:
            self._wrote_all = now
        return len(written)

    def _learn(self, series: set[int], since: dt.datetime) -> None:
        """Read the labels of series that were not seen before."""
        new = series - self._meanings.keys()
        if not new:
            return
        if len(self._meanings) + len(new) > SERIES_KEPT_MAX:
            self.forget()
            new = series
        sql, parameters = _NAMES, {"names": self._names, "since": since}
        if len(new) <= SERIES_ASKED_MAX:
            sql, parameters = sql + _ONLY, {**parameters, "series": sorted(new)}
        for row in self._store.query(sql + " GROUP BY series", parameters).to_pylist():
            self._meanings[row["series"]] = self._meaning(row["name"], dict(row["pairs"]))

    def _meaning(self, name: str, labels: dict[str, str]) -> Meaning:
        thing = sight(canonical_labels({**labels, METRIC_LABEL: name}), self._catalog)
        if thing is None or not thing.port:
            return Meaning(None)  # windows leave it out, too, and note it
        port = thing.host, thing.device, thing.port
        if name in self._states:
            return Meaning(port, is_state=True, factor=self._states[name])
        return Meaning(port, factor=self._rates[name])

    def _take(self, rows: list[Mapping[str, Any]], now: dt.datetime) -> dict[Port, PortValues]:
        """The ports whose values these rows change."""
        changed: dict[Port, PortValues] = {}
        for row in rows:
            series, number = row["series"], row["latest"]
            meaning = self._meanings.get(series)
            if meaning is None or meaning.port is None or not math.isfinite(number):
                continue
            # Between two looks only late samples may have come, older than what is known.
            if row["time_ms"] < self._latest_ms.get(series, 0):
                continue
            self._latest_ms[series] = row["time_ms"]
            host, device, port = meaning.port
            known = changed.get(meaning.port) or self._values.get(meaning.port)
            values = known or PortValues(host=host, device=device, port=port, seen_at=now)
            value = number * meaning.factor
            if meaning.is_state and values.state != value:
                values = msgspec.structs.replace(values, state=value, seen_at=now)
            elif not meaning.is_state and values.rate_bits_per_second != value:
                values = msgspec.structs.replace(values, rate_bits_per_second=value, seen_at=now)
            if values != known:
                changed[meaning.port] = values
        return changed


def foreign_names(catalog: Catalog, metric: str) -> dict[str, float]:
    """Names of this metric, the catalog's and other exporters', with the factor to its unit."""
    defined = catalog.metric(metric)
    assert defined is not None, f"{metric} is not in the catalog"
    return {metric: 1.0, **{alias.name: alias.factor for alias in defined.aliases}}
