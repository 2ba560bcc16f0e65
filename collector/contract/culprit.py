"""What a verdict accuses, by every name that is known of it."""

from __future__ import annotations

import msgspec


class Culprit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a verdict names as the culprit, by every known name; what does not apply is empty.

    ``device`` and ``port`` are as in the labels of `fabric_port_…` (`mlx5_3`, `1`), ``gpu`` is the
    index on its host, ``rank`` is the rank in ``job``. A link is named by both its ends.
    """

    job: str = ""
    rank: int | None = None
    host: str = ""
    gpu: int | None = None
    device: str = ""
    port: str = ""
    switch: str = ""
    switch_port: str = ""
    storage: str = ""
    """Of a server: `SERVER:EXPORT`, as `collector.contract.storage` names it."""
