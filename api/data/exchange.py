"""Looks into the inventory for what other processes did, and writes there what they must know."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from collector.contract.errors import InventoryError

log = logging.getLogger(__name__)


class Exchange:
    """One look at a time, from any thread; an inventory that is away is logged once."""

    def __init__(self, what: str, exchange: Callable[[], None]) -> None:
        self._what = what
        self._exchange = exchange
        self._looking = threading.Lock()
        self._is_failing = False

    def look(self) -> None:
        try:
            with self._looking:
                self._exchange()
            self._is_failing = False
        except InventoryError as error:
            if not self._is_failing:
                log.warning("%s cannot be looked up: %s", self._what, error)
            self._is_failing = True
