"""Hosts that were seen for a moment and never again: a typing error, a test, or junk.

A host that sent for longer and fell silent is no ghost: its silence is news.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Column, ColumnElement, Float, Table, and_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from api.base.limits import GHOST_LISTED_SECONDS, GHOST_SEEN_SECONDS


class SecondsBetween(FunctionElement[float]):
    """How long it is from one moment to another: each database has its own way to ask."""

    type = Float()
    inherit_cache = True
    name = "seconds_between"

    def __init__(self, first: Column[Any], last: Column[Any]) -> None:
        super().__init__(first, last)


@compiles(SecondsBetween)
def _in_standard_sql(
    element: SecondsBetween,
    compiler: SQLCompiler,
    **more: Any,  # noqa: ANN401 - SQLAlchemy's
) -> str:
    first, last = (compiler.process(each, **more) for each in element.clauses)
    return f"EXTRACT(EPOCH FROM ({last} - {first}))"


@compiles(SecondsBetween, "sqlite")
def _in_sqlite(
    element: SecondsBetween,
    compiler: SQLCompiler,
    **more: Any,  # noqa: ANN401 - SQLAlchemy's
) -> str:
    first, last = (compiler.process(each, **more) for each in element.clauses)
    return f"((julianday({last}) - julianday({first})) * 86400)"


def is_ghost(hosts: Table, now: dt.datetime) -> ColumnElement[bool]:
    """Whether a row was seen for GHOST_SEEN_SECONDS at most and not for GHOST_LISTED_SECONDS."""
    return and_(
        # First: of nearly all rows nothing else is computed.
        hosts.c.last_seen < now - dt.timedelta(seconds=GHOST_LISTED_SECONDS),
        SecondsBetween(hosts.c.first_seen, hosts.c.last_seen) < GHOST_SEEN_SECONDS,
    )
