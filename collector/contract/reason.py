"""Why a reading is missing: the closed set of reasons."""

from __future__ import annotations

import enum


class UnreadReason(enum.StrEnum):
    """Why a reading is missing. Closed: it is a label's value, and rules match on it."""

    ABSENT = "absent"
    """The file, directory or name is not there: this device or driver does not have it."""
    NOT_SUPPORTED = "not_supported"
    """It is there and reports that it does not work: ``N/A (no PMA)``, EINVAL, EOPNOTSUPP."""
    UNREADABLE = "unreadable"
    """It is there and cannot be read: permission, input/output error, device gone."""
    UNPARSEABLE = "unparseable"
    """It was read and is not what this counter should hold."""
    SATURATED = "saturated"
    """A clamping counter stands at its maximum: it counts no more until an operator resets it."""
    TIMEOUT = "timeout"
    """The source did not finish in its time."""
    FAILED = "failed"
    """The source itself broke: a bug of ours, with a trace in the log."""
