"""The begin of a backup: what is in it is fixed here, and read afterwards."""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
from collections.abc import Iterator
from pathlib import Path

from api.data.backup import rows
from api.data.backup.archive import INVENTORY, Contents
from api.data.backup.manifest import InventoryFacts
from api.data.store.frozen import frozen
from api.data.store.store import Store


@contextlib.contextmanager
def begun(store: Store, inventory_url: str, now: dt.datetime) -> Iterator[Contents]:
    """Freeze the store, then copy the inventory; both are let go when this ends.

    In this order, so that a host or job of the store's rows is in the inventory too. Blocks: for a
    thread. The inventory's copy goes to the folder for temporary files.
    """
    with contextlib.ExitStack() as held:
        parts = None
        if store.folder is not None:
            parts = held.enter_context(frozen(store))
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="backup-")))
        file = folder / INVENTORY
        rows.snapshot(inventory_url, file)
        revision, tables = rows.facts_of(f"sqlite:///{file}")
        yield Contents(
            made_at=now,
            migration=store.migration(),
            engine=store.engine_version,
            parts=parts,
            inventory=file,
            inventory_facts=lambda digest, size: InventoryFacts(
                revision=revision, digest=digest, bytes=size, tables=tables
            ),
        )
