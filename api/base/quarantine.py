"""Odd things, remembered in a bounded memory: what the door refused, what readers skipped.

One odd thing harms itself alone: the part that meets it leaves it out, counts it and notes it here,
so that an operator sees what is missing and whose it is (`GET /v1/refused`). For any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from api.base.limits import (
    ODDITIES_MAX,
    ODDITY_EXAMPLE_CHARS_MAX,
    ODDITY_EXAMPLES_MAX,
)
from collector.contract.identity import METRIC_LABEL, printable

log = logging.getLogger(__name__)

Row = TypeVar("Row")
Made = TypeVar("Made")

NO_SENDER = ""
"""Of what was read from the store: its sender is not stored with it."""


class Oddity(msgspec.Struct, frozen=True, kw_only=True):
    """Things of one kind that were left out: how often, when, and the last examples."""

    road: str
    """The way on which it was met: a protocol at the door, or the part that read it."""
    reason: str
    """The rule that it breaks."""
    sender: str
    count: int
    examples: tuple[str, ...]
    """The latest last."""
    first_s: float
    last_s: float


Key = tuple[str, str, str]


class Oddities:
    """Odd things by road, reason and sender: a flood of one kind displaces no other kind.

    ``clock`` gives unix seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, Oddity] = OrderedDict()

    def note(
        self, road: str, reason: str, example: str, *, sender: str = NO_SENDER, count: int = 1
    ) -> None:
        """Past ODDITIES_MAX the entry that was quiet longest is forgotten."""
        key, now_s = (road, reason, sender), self._clock()
        shown = printable(example[:ODDITY_EXAMPLE_CHARS_MAX])
        with self._lock:
            known = self._known.pop(key, None)
            before = known.examples if known is not None else ()
            others = tuple(each for each in before if each != shown)
            examples = (*others, shown) if shown else others
            self._known[key] = Oddity(
                road=road,
                reason=reason,
                sender=sender,
                count=count + (known.count if known is not None else 0),
                examples=examples[-ODDITY_EXAMPLES_MAX:],
                first_s=known.first_s if known is not None else now_s,
                last_s=now_s,
            )
            if len(self._known) > ODDITIES_MAX:
                self._known.popitem(last=False)

    def latest(self) -> list[Oddity]:
        """All that are remembered, the latest first."""
        with self._lock:
            return list(reversed(self._known.values()))


class Quarantine(Oddities):
    """Stored things that cannot be used. They stay stored; what reads them leaves them out.

    ``count`` is called with the road of each. A store without a service counts nothing.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        count: Callable[[str], object] = lambda _: None,
    ) -> None:
        super().__init__(clock)
        self._count = count

    def put(self, road: str, reason: str, example: str) -> None:
        self.note(road, reason, example)
        self._count(road)

    def sound(
        self, road: str, what: str, rows: Iterable[Row], make: Callable[[Row], Made]
    ) -> list[Made]:
        """What ``make`` makes of each row; a row of which it makes nothing is put here."""
        found: list[Made] = []
        for row in rows:
            try:
                found.append(make(row))
            except Exception as error:
                log.debug("%s: %s cannot be read", road, what, exc_info=True)
                self.put(road, f"{what}: {type(error).__name__}", f"{error}: {row!r}")
        return found


def shown_series(labels: Mapping[str, str], metric: str = "") -> str:
    r"""A series as an example: what cannot be printed is escaped, so that it can be seen.

    >>> shown_series({"host": "gpu\u00a07"}, "fabric_port_state")
    "fabric_port_state{host='gpu\\xa07'}"
    """
    name = metric or labels.get(METRIC_LABEL, "")
    pairs = ", ".join(f"{key}={value!r}" for key, value in labels.items() if key != METRIC_LABEL)
    return f"{name}{{{pairs}}}"
