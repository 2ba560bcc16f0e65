"""Bounds of operating the service (backups, moves); as in `api.base.limits`."""

from __future__ import annotations

from typing import Final

BACKUPS_MAX: Final = 1
"""Backups that are made at once: each reads the whole store from its disk. → 503, retry"""

BACKUP_PIECE_BYTES: Final = 1 << 20
"""Of a backup that are in memory at once."""
