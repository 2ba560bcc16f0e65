"""Bounds of comparisons (`/v1/jobs/{job}/steps/compare` and the like); as in `api.base.limits`."""

from __future__ import annotations

from typing import Final

COMPARE_SECONDS_MAX: Final = 600
"""Of time on either side of a comparison: steps take seconds, and a large job's records of more
time are read in slices. → 422"""

COMPARE_BEFORE_SECONDS: Final = 120
"""Before the slow steps, that is read where no normal time is given: some twenty steps of a job
with long ones."""

COMPARE_AROUND_SECONDS: Final = 15
"""Before and after a time that is read with it: clocks are estimated from many operations, and the
first and last step of what is read may be cut off."""

COMPARE_APART_SECONDS_MAX: Final = 600
"""Between the two sides up to which both are read as one window, with one estimate of all clocks.
Past it each is read by itself."""

LINK_JOBS_MAX: Final = 16
"""Jobs that are looked at for one link, the largest: each takes a quarter of a second of the store.
The answer states how many more ran."""

LINK_FLOWS_MAX: Final = 50
"""Flows of each job on a link, those with the most bytes."""

LINK_PAIRS_MAX: Final = 20_000
"""Pairs of NICs of one job whose ways are looked at, those with the most bytes."""

LINK_SECONDS_MAX: Final = 3_600
"""Of time in which the jobs on a link are looked at. → 422"""

TENANT_SAMPLES_MAX: Final = 200_000
"""Samples that are read of one NIC to tell its bytes by tenant: an hour of every second of a dozen
counters. What comes after them is not counted."""

LINK_SHARES_WAITING_MAX: Final = 8
"""Such answers that are made or wait for their turn. → 503, retry"""

WHAT_IF_JOBS_MAX: Final = 16
"""Running jobs that an answer about changed cables looks at, the largest: each takes a quarter of a
second of the store. The answer states how many more run."""

WHAT_IF_CHANGES_MAX: Final = 64
"""Changes in one question: the uplinks of a leaf. → 422"""

WHAT_IF_PAIRS_MAX: Final = 200_000
"""Pairs of NICs and phases of one job whose ways are followed, those with the most bytes: an
all-to-all of 450 NICs. Of a job with more the answer says that it cannot be told."""

WHAT_IF_SECONDS_MAX: Final = 3_600
"""Of time that the traffic of running jobs is read from. → 422"""

WHAT_IF_SECONDS_DEFAULT: Final = 300

WHAT_IFS_WAITING_MAX: Final = 4
"""Such answers that are made or wait for their turn: each takes some seconds. → 503, retry"""

WHAT_IF_RATE_MAX: Final = 100_000_000_000_000
"""Bits a second of a cable in a question: fifty times the fastest there is. → 422"""
