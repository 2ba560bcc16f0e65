"""What became of a deed that another system told of: a click in Slack, an event of PagerDuty's."""

from __future__ import annotations

import enum

from api.data.inventory.feedback import Dropped
from api.data.inventory.repository import Inventory
from api.data.inventory.work import Deed, RepeatedDeedError, TooMuchWorkError


class Result(enum.StrEnum):
    """What became of it."""

    KEPT = "kept"
    STANDS = "stands"
    """A person had acknowledged the incident already; the message shows who. Of Slack alone."""
    REPEATED = "repeated"
    """It had come before."""
    IGNORED = "ignored"
    """Nothing to keep: a button that is a link, another kind of event, or not a person's doing."""
    UNKNOWN = "unknown"
    """No notice of this receiver that stands is about this incident."""
    FULL = "full"
    """The incident has WORK_PER_INCIDENT_MAX deeds."""
    UNANSWERED = "unanswered"
    """Counted beside one of the others: Slack did not take our answer."""


def keep(inventory: Inventory, deed: Deed) -> tuple[Result, Dropped]:
    """Keep a deed; what cannot be kept is no error for the other system, which would repeat it."""
    try:
        return Result.KEPT, inventory.work.do(deed)
    except RepeatedDeedError:
        return Result.REPEATED, {}
    except TooMuchWorkError:
        return Result.FULL, {}
