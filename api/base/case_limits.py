"""Bounds of what operators do and say about incidents, and of the windows kept; as `…limits`."""

from __future__ import annotations

from typing import Final

FEEDBACK_PER_INCIDENT_MAX: Final = 100
"""Times that operators may say something about one incident. All are kept as a record of who said
what, so that none can be pushed out by others. → 409"""

FEEDBACK_KEPT_MAX: Final = 20_000
"""What operators said that is kept, about 40 MB. Past it the oldest is dropped and counted."""

FEEDBACK_KEPT_DAYS: Final = 365
"""How long it is kept, and the cases with it: the releases of a year are compared by them."""

CASES_KEPT_MAX: Final = 500
"""Windows that are kept with what was said about them. Past it the oldest is dropped, counted."""

CASES_KEPT_BYTES_MAX: Final = 1 << 30
"""All of them together; one has CASE_BYTES_MAX (`alerts.cases.packed`) at most. The same."""

CASES_WAITING_MAX: Final = 4
"""Windows that are read or scrubbed, or wait for their turn: each takes some seconds of a core.
→ 503 for an export; what an operator says is kept without its window"""

WORK_PER_INCIDENT_MAX: Final = 200
"""Acknowledgements, assignments and notes of one incident. All are kept as a record of who did
what, so that none can be pushed out by others. → 409"""

WORK_KEPT_MAX: Final = 50_000
"""Of all incidents, about 50 MB. Past it the oldest is dropped and counted."""

WORK_KEPT_DAYS: Final = 365
"""How long it is kept, as what operators said: the next incident of the same host is within it."""

PAGERDUTY_BODY_BYTES_MAX: Final = 256 << 10
"""Of one webhook: an event has some kilobytes. It is read before its signature is known to be
right. → 413"""

SLACK_BODY_BYTES_MAX: Final = 256 << 10
"""Of one click: it carries the message that it is about, some kilobytes. It is read before its
signature is known to be right. → 413"""

PAGERDUTY_IDS_MAX: Final = 10_000
"""PagerDuty's incidents whose key is remembered, so that notes find theirs. Past it the oldest is
forgotten."""

COSTS_INCIDENTS_MAX: Final = 10_000
"""Incidents that one account of costs adds up, the latest: a year of a large fleet. More → the
answer says `is_partial`"""

COSTS_ENTRIES_MAX: Final = 1_000
"""Lines of one account, the dearest. More → counted in `entries_left_out`"""
