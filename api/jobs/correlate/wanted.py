"""Whose readings suffice: a job's hosts, and the switch ports that their cables end at.

A view of one job has no use for the readings of a thousand other machines. Their series are found
by names alone, so that their samples are not read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from alerts.window.model import Rank
from api.data.store.store import Store

if TYPE_CHECKING:  # it brings what `diagnose` does not need
    from api.fabric.model import Topology

JOBS_KEPT_MAX = 8
"""Jobs whose series are kept: 20,000 numbers each at most, 1.3 MB together. Those that were asked
for longest ago go."""
DAYS_KEPT_SECONDS = 900
"""Days begin at a multiple of it in every time zone: all times in such a stretch are of one day."""

SQL = """
    SELECT DISTINCT metric_name AS name, series FROM series
    WHERE metric_name IN {names:Array(String)} AND day >= toDate({from_s:Int64})
      AND day <= toDate({to_s:Int64})
      AND (arrayExists(value -> value IN {hosts:Array(String)}, labels.values)
        OR arrayExists(value -> value IN {switches:Array(String)}, labels.values)
          AND arrayExists(value -> value IN {ports:Array(String)}, labels.values))
"""
"""By any label, as exporters call a host by different ones; perhaps with series of others."""


class Wanted(NamedTuple):
    """All of these hosts, and of these switches these ports."""

    hosts: list[str]
    switches: list[str]
    ports: list[str]


def wanted_of(ranks: Iterable[Rank], topology: Topology) -> Wanted | None:
    """Of a job's ranks; None: the host of some is not known, or there are none."""
    hosts = {rank.host for rank in ranks}
    if not hosts or not all(hosts):
        return None
    ports = [port.id for host in sorted(hosts) for port in topology.ports_of.get(host, ())]
    ends = [end for port in ports if (end := topology.other_end(port)) is not None]
    return Wanted(
        hosts=sorted(hosts),
        switches=sorted({end.host for end in ends} - hosts),
        ports=sorted({end.port for end in ends if end.host not in hosts}),
    )


class WantedSeries:
    """Series of jobs' machines, found anew when new ones are written. For one thread at a time.

    To find them takes longer with every host there is, and who looks at a job asks again and again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[object, tuple[int, npt.NDArray[np.uint64] | None]] = OrderedDict()
        """With the store's version of the metrics' series, from before they were looked for."""

    def find(
        self, numbers: Mapping[str, int], days: Mapping[str, int], wanted: Wanted, most: int
    ) -> npt.NDArray[np.uint64] | None:
        """As `series_of` answers."""
        version = self._store.known.series_version(list(numbers))
        if version is None:
            return series_of(self._store, numbers, days, wanted, most)
        stretches = tuple((name, at // DAYS_KEPT_SECONDS) for name, at in days.items())
        key = (tuple(numbers.items()), stretches, tuple(map(tuple, wanted)), most)
        kept = self._kept.pop(key, None)
        if kept is None or kept[0] != version:
            kept = version, series_of(self._store, numbers, days, wanted, most)
        self._kept[key] = kept
        while len(self._kept) > JOBS_KEPT_MAX:
            self._kept.popitem(last=False)
        return kept[1]


def series_of(
    store: Store, numbers: Mapping[str, int], days: Mapping[str, int], wanted: Wanted, most: int
) -> npt.NDArray[np.uint64] | None:
    """Series of metrics, which are ``numbers`` by name, in the order of these and then their own.

    None: there are more than ``most``.
    """
    parameters = {"names": sorted(numbers), **days, **wanted._asdict()}
    rows = store.query(f"{SQL} LIMIT {most + 1}", parameters)
    if rows.num_rows > most:
        return None
    metric = np.array([numbers[str(name)] for name in rows["name"].to_pylist()], np.uint32)
    series = rows["series"].to_numpy().astype(np.uint64)
    found: npt.NDArray[np.uint64] = series[np.lexsort((series, metric))]
    return found
