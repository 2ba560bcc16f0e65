"""Questions to a switch and its answers, for the live client and the replay alike."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from collector.contract.errors import FabricscopeError
from collector.contract.reason import UnreadReason

Oid = tuple[int, ...]
"""An object identifier: 1.3.6.1.2.1.1.3.0 is (1, 3, 6, 1, 2, 1, 1, 3, 0)."""

Value = int | bytes | Oid
"""A value as a Python type: integers, counters, gauges and time ticks are int (never
negative for the unsigned ones), octet strings and addresses bytes, names Oid."""


class SnmpError(FabricscopeError):
    """A switch that cannot be asked: it does not answer, refuses us, or sends nonsense.

    ``reason`` is that of the `Missing`: TIMEOUT (no answer in time), UNREADABLE (it refuses us:
    wrong community, user or key), UNPARSEABLE (what it sent is no answer).
    """

    def __init__(self, reason: UnreadReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Credentials(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The credentials: a community for v2c; a user, with or without keys, for v3."""

    version: str = "2c"
    community: str = "public"
    user: str = ""
    auth: str = ""
    """md5, sha, sha224, sha256, sha384, sha512; empty for none."""
    auth_key: str = ""
    privacy: str = ""
    """des, 3des, aes, aes192, aes256; empty for none. aes192c and aes256c lengthen short keys as
    Cisco does."""
    privacy_key: str = ""
    context: str = ""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One switch and how to ask it."""

    name: str
    """The operator's name for it; on a captured tree the recording is `snmp/<name>.snmprec`."""
    address: str
    port: int = 161
    credentials: Credentials = Credentials()
    answer_seconds: float = 2.0
    """For one answer; a switch under load takes a second."""
    retries: int = 1
    rows_per_answer: int = 40
    """GETBULK's max-repetitions, at most. Columns asked at once share what fits an answer of a few
    fragments, so for many of them it is less."""


class Flaw(NamedTuple):
    """Something wrong in a walk that did not end it for the other columns."""

    column: Oid
    reason: UnreadReason
    detail: str


class Walked(NamedTuple):
    """Columns of a table: for each asked column its rows by index, in the order of the table.

    A column that the switch does not have is empty and no flaw. ``flaws`` list what was wrong:
    rows that were repeated or out of order, a column that never ended, an answer that failed.
    """

    columns: dict[Oid, dict[Oid, Value]]
    flaws: list[Flaw]


class Session(Protocol):
    """One switch, asked one thing at a time; for one event loop. Sessions are kept between reads.

    Every method ends within its bounds whatever the switch does, and raises SnmpError only when
    the switch as a whole cannot be asked.
    """

    async def get(self, oids: list[Oid]) -> list[Value | None]:
        """The values of single objects; None where the switch has none."""

    async def walk(self, columns: list[Oid], rows_max: int) -> Walked:
        """All rows of these columns, at most so many of each; more is a flaw of that column."""

    def close(self) -> None: ...
