"""Errors of a query, by Prometheus' error types."""

from __future__ import annotations

import enum

from collector.contract.errors import FabricscopeError


class ErrorKind(enum.StrEnum):
    """Prometheus' error types; the API gives each its status."""

    BAD_DATA = "bad_data"
    EXECUTION = "execution"
    CANCELED = "canceled"
    TIMEOUT = "timeout"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    NOT_FOUND = "not_found"


class QueryError(FabricscopeError):
    """A query that has no answer. ``rule`` names the bound that refused it, if one did."""

    def __init__(self, kind: ErrorKind, message: str, *, rule: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.rule = rule


def bad_data(message: str, *, rule: str = "") -> QueryError:
    return QueryError(ErrorKind.BAD_DATA, message, rule=rule)


def failed(message: str, *, rule: str = "") -> QueryError:
    """The evaluation cannot go on with these data."""
    return QueryError(ErrorKind.EXECUTION, message, rule=rule)
