"""The settings of rules; `api.http.settings` makes it of the service's settings."""

from __future__ import annotations

import msgspec


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which rules there are, how often they are evaluated, and what alerts carry."""

    pack: bool
    knobs: str
    """File (TOML) with other thresholds for the pack; empty: its own."""
    folder: str
    """Folder of rule files of the user's; empty: none."""
    interval_s: float
    external_labels: dict[str, str]
    public_url: str
    port: int
    """Where the service listens: it names the instance in the service's own metrics."""
