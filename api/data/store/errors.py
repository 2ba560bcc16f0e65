"""What the store's driver raises, as errors that say what to do.

The driver is imported late: it is a third of the imports of `diagnose`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator

import pyarrow as pa

from api.base.unix_sockets import STORE_AWAY
from api.base.vitals import ENGINE_CODE
from collector.contract.errors import StoreError

logging.getLogger("clickhouse_connect").addHandler(logging.NullHandler())
# It logs what it raises, and a verb that configures no logging would have that on its terminal.

BUSY_CODE = 202
"""The engine's error where too many statements run at once."""


DAMAGE_CODES = frozenset({3, 32, 33, 40, 74, 76, 107, 226, 228, 246, 271, 432})
"""The engine's errors that a read raises where data on disk are not what was written: wrong
checksums and sizes, files that are cut, gone or cannot be read, blocks that cannot be unpacked."""

UNREACHABLE = (
    (
        ConnectionRefusedError,
        "nothing listens there. Start ClickHouse, or give its HTTP port (usually 8123)",
    ),
    (socket.gaierror, "no host has this name. Correct the address, or the name service"),
    (TimeoutError, "nobody answers there. Look at the address, and at firewalls between"),
)
"""What a server that cannot be reached comes as, and what a person can do about it."""
CAUSES_MAX = 10
"""Errors behind an error that are looked at; the driver has four."""


class StoreBusy(StoreError):  # noqa: N818 - reads as the statement it is
    """Too many concurrent queries; retry later."""


def is_damage(error: StoreError) -> bool:
    """Whether the engine could not read what it had written.

    >>> is_damage(StoreError("query: Code: 40. DB::Exception: Checksum doesn't match"))
    True
    """
    found = ENGINE_CODE.search(str(error))
    return found is not None and int(found[1]) in DAMAGE_CODES


@contextlib.contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn the driver's errors into StoreError with the engine's own first line."""
    from clickhouse_connect.driver.exceptions import ClickHouseError  # noqa: PLC0415

    try:
        yield
    except (ClickHouseError, pa.ArrowException, OSError) as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        _, away, _ = line.partition(STORE_AWAY)
        found = ENGINE_CODE.search(line)
        is_busy = found is not None and int(found[1]) == BUSY_CODE
        raise (StoreBusy if is_busy else StoreError)(f"{doing}: {away or line[:500]}") from error


@contextlib.contextmanager
def opening_errors(address: str) -> Iterator[None]:
    """The same, while a store is opened: nobody may be there."""
    doing = f"cannot open the store at {address}"
    try:
        with store_errors(doing):
            yield
    except StoreError as error:
        if why := unreachable(error):
            raise StoreError(f"{doing}: {why}") from error
        raise


def unreachable(error: BaseException) -> str:
    """Why nobody answered, and what to do; empty: somebody did.

    >>> try:
    ...     raise OSError("a driver's words") from ConnectionRefusedError()
    ... except OSError as error:
    ...     unreachable(error).partition(".")[0]
    'nothing listens there'
    >>> unreachable(OSError("disk full"))
    ''
    """
    cause: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if cause is None:
            break
        for kind, words in UNREACHABLE:
            if isinstance(cause, kind):
                return words
        behind = getattr(cause, "reason", None)
        cause = (
            behind if isinstance(behind, BaseException) else cause.__cause__ or cause.__context__
        )
    return ""
