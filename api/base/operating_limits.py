"""Bounds of operating the service (backups, moves); as in `api.base.limits`."""

from __future__ import annotations

from typing import Final

BACKUPS_MAX: Final = 1
"""Backups that are made at once: each reads the whole store from its disk. → 503, retry"""

HOST_QUIET_SECONDS: Final = 600.0
"""A host that was seen since then still sends, and cannot be removed. → 409"""

GONE_FORGOTTEN_AT_ONCE: Final = 1_000
"""Hosts past `hosts_kept_days` that are deleted in one transaction, with devices, ports and cables;
the rest an hour later."""

BACKUP_PIECE_BYTES: Final = 1 << 20
"""Of a backup that are in memory at once."""
