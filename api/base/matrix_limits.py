"""Bounds of traffic matrices (`/v1/jobs/{job}/matrix`); as in `api.base.limits`."""

from __future__ import annotations

from typing import Final

MATRICES_WAITING_MAX: Final = 8
"""Traffic matrices that are made or wait for their turn: each takes up to a second of a core, one
after the other. → 503, retry"""
