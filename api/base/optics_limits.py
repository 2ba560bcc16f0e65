"""Bounds of the forecast of dying optics; as in `api.base.limits`."""

from __future__ import annotations

from typing import Final

OPTICS_SERIES_MAX: Final = 400_000
"""Series of optics of which six hours are kept in memory, 300 bytes each: eight ports of four lanes
on 8,000 hosts. More are left out and counted (`fabric_service_optics_series_left_out`)."""

OPTICS_NAMED_MAX: Final = 200
"""Dying optics that are named at once, the clearest. A fleet with more has another trouble."""
