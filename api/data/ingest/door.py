"""What a sender may write: not the service's own names, not other senders' hosts, within budget.

`Names` is the same for all requests; a `Door` is one request's. Both decide once for each new
series or table, and their answer is remembered with it, so known series cost nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import numpy as np

from api.base.host_names import ANY_HOST, Hosts
from api.data.ingest.budgets import SERIES_DAY, Allowance, KnownHosts
from collector.contract.catalog import PROMETHEUS_RESERVED, Catalog, load_catalog

BAD_LABELS, RESERVED_NAME, FOREIGN_HOST = "bad_labels", "reserved_name", "foreign_host"
NAMES_CACHED_MAX: Final = 100_000
"""Metric names of which it is remembered whether they are reserved."""


class Names:
    """Metric names: which the service keeps for itself, and which make hosts known."""

    def __init__(self, catalog: Catalog, *, accepts_alerts: bool = False) -> None:
        self._catalog = catalog
        self._accepts_alerts = accepts_alerts
        self.is_reserved = lru_cache(NAMES_CACHED_MAX)(self._is_reserved)
        self.show_hosts = catalog.knows
        """Whether the inventory takes hosts from series of this name."""

    def _is_reserved(self, name: str) -> bool:
        if self._accepts_alerts and name in PROMETHEUS_RESERVED:
            return False
        return self._catalog.is_reserved(name)


NAMES: Final = Names(load_catalog())


class Door:
    """One request's: the hosts that its sender may speak for, and what is left of its budgets."""

    def __init__(
        self, hosts: Hosts, allowance: Allowance | None = None, known: KnownHosts | None = None
    ) -> None:
        self.hosts = hosts
        self._allowance = allowance
        self._known = known if known is not None else KnownHosts()

    @property
    def takes_new(self) -> bool:
        """Whether there is room for one more new series."""
        return self._allowance is None or self._allowance.series > 0

    def take_series(self) -> str | None:
        """Count a new series; the rule that it breaks, if any."""
        return self._allowance.take_series() if self._allowance is not None else None

    def take_hosts(self, hosts: Iterable[str]) -> str | None:
        """Count a new series' hosts; the rule that they break, if any."""
        if self._allowance is None:
            return None
        return self._allowance.take_hosts(hosts, self._known)

    def is_past_day(self, count: int) -> bool:
        """Whether a sender has had its series of today, or has not room for so many more."""
        return self._allowance is not None and self._allowance.is_past_day(count)

    @property
    def day_rule(self) -> str:
        """The bound of a day that refuses new series, if one does."""
        return SERIES_DAY if self._allowance is None else self._allowance.day_rule

    def charge(self, count: int) -> None:
        """Count series that were read, and then refused by another rule."""
        if self._allowance is not None:
            self._allowance.charge(count)

    def check_series(self, count: int) -> None:
        """Raise Over unless a whole batch may bring so many new series."""
        if self._allowance is not None:
            self._allowance.check_series(count)

    def check_hosts(self, hosts: Iterable[str]) -> None:
        """Raise Over unless a whole batch may name these hosts; counts those that are new."""
        if self._allowance is not None:
            self._allowance.check_hosts(hosts, self._known)

    def settle(self, samples: int, new: Iterable[int], ahead: Iterable[int] = ()) -> None:
        """Count what the request brought: ids of new series, and of those that tomorrow has."""
        if self._allowance is not None:
            new_ids, ahead_ids = (np.fromiter(ids, dtype=np.uint64) for ids in (new, ahead))
            self._allowance.settle(samples, new_ids, self._known, ahead_ids)


OPEN: Final = Door(ANY_HOST)
"""For input that no stranger sends: files, tests, benchmarks."""
