"""Parts of answers that are kept while there is room, counted in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Kept(Generic[Thing]):
    """For any thread. Those used least recently go; one larger than all the room is not kept."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._things: OrderedDict[Hashable, tuple[int, Thing]] = OrderedDict()
        self.bytes_used = 0
        self.note: Callable[[str], object] = lambda _: None
        """Told `kept` or `made` for each thing that was asked for; a service counts them."""

    def __len__(self) -> int:
        return len(self._things)

    def get(self, key: Hashable, is_valid: Callable[[Thing], bool]) -> Thing | None:
        """None: there is none, or none that is valid any more."""
        with self._lock:
            known = self._things.get(key)
            if known is None:
                return None
            self._things.move_to_end(key)
        return known[1] if is_valid(known[1]) else None

    def peek(self, key: Hashable) -> Thing | None:
        """What is kept, valid or not; to look is no use of it."""
        with self._lock:
            known = self._things.get(key)
        return None if known is None else known[1]

    def put(self, key: Hashable, thing: Thing, size: int) -> None:
        """``size``: in bytes. What was kept under the key before goes."""
        with self._lock:
            self._drop(key)
            if size > self._bytes_max:
                return
            self._things[key] = (size, thing)
            self.bytes_used += size
            while self.bytes_used > self._bytes_max:
                self._drop(next(iter(self._things)))

    def _drop(self, key: Hashable) -> None:
        known = self._things.pop(key, None)
        if known is not None:
            self.bytes_used -= known[0]
