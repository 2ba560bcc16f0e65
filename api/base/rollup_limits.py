"""Bounds of roll-ups; as in `api.base.limits`."""

from __future__ import annotations

from typing import Final

ROLLUP_SETTLE_SECONDS: Final = 600
"""How long after its end an hour is rolled up: agents repeat what a busy service refused within
minutes. What comes later is rolled up again."""

LATE_AFTER_SECONDS: Final = 300
"""How long after an hour's end its samples are late, and noted. Less than ROLLUP_SETTLE_SECONDS by
more than an insert takes and clocks of one installation differ."""

LATE_QUIET_SECONDS: Final = 180
"""How old a note of late samples is before their hour is rolled up again: it holds for what is
written for LATE_NOTED_AGAIN_SECONDS after it, and an insert takes seconds."""

LATE_NOTED_AGAIN_SECONDS: Final = 60
"""How often a metric's hour that goes on getting late samples is noted."""

LATE_NOTES_KEPT_MAX: Final = 200_000
"""Notes that are remembered, so that they are not written again: 40 MB. Past it they are forgotten,
and written once more."""

LATE_ROUND_SECONDS: Final = 600
"""How often hours with late samples are rolled up again: a backlog comes in over minutes, and each
time reads the whole hour of a metric."""

ROLLUP_ROWS_MAX: Final = 5_000_000
"""Samples that one statement rolls up: about a second of a core, and 250 MB."""

ROLLUP_STATEMENT_SECONDS: Final = 300
"""A statement that takes longer is given up, and its hour is tried again."""

ROLLUP_IDLE_SECONDS: Final = 60.0
"""How often is looked whether an hour is due."""

ROLLUP_REST: Final = 3.0
"""Between two statements the service rests so many times as long as the last one took: roll-ups
take a quarter of a core at most. While it is hours behind, it rests as long as it worked."""
