"""Bounds of traces (`/v1/jobs/{job}/trace`); as in `api.base.limits`."""

from __future__ import annotations

from typing import Final

TRACE_SECONDS_MAX: Final = 3_600
"""Of time that one trace shows: single collectives are inspected over minutes. → 422"""

TRACE_RECORDS_MAX: Final = 1_500_000
"""Records of collectives in one trace, about 800 MB of JSON: a browser opens no more. → 422, which
states how much time would fit"""

TRACE_SPANS_MAX: Final = 1_000_000
"""Marks of steps and phases in one trace, about 150 MB. → 422"""

TRACES_MAX: Final = 2
"""Traces that are made at once: each takes a core, and some 100 MB. → 503, retry"""

TRACE_MAKE_SECONDS_MAX: Final = 300.0
"""In which a trace is made and taken. Past it the document ends, whole, and its summary names this
bound and where it ends: well before the connection would be cut. → `is_complete` false"""

TRACE_SEND_SECONDS_MAX: Final = 900
"""In which a client must have taken its trace: one that stops reading must not keep others from
theirs. → the connection ends"""
